"""What a pipeline's report looks like: as Markdown, as one HTML page, as files."""

from heedful.pages.report import html, markdown, write, write_attempt

__all__ = ["html", "markdown", "write", "write_attempt"]
