"""Readers of traces, one a format; `episodes.reading` lists them."""
