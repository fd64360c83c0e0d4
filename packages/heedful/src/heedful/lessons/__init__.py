"""Lessons: what a loop teaches, how it is found again, trusted and proven. Pure."""
