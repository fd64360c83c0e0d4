"""Bytes and values: what requests and answers hold."""
