"""Bytes and values: what requests and answers hold, a file a group of routes."""
