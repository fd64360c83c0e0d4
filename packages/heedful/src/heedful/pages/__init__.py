"""Pages for people: the report of a run as HTML and as files."""

from heedful.pages.run_report import render, write, write_html

__all__ = ["render", "write", "write_html"]
