"""Loops: driven in this process, written to a journal, or decided from reported attempts."""
