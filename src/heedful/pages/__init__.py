"""Pages for people: the report of a pipeline as Markdown, as HTML and as files."""

from heedful.pages.report import html, markdown, render, write, write_attempt

__all__ = ["html", "markdown", "render", "write", "write_attempt"]
