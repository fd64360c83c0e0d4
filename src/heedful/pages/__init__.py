"""What a pipeline's report looks like: as Markdown, as one HTML page, as files."""

from heedful.pages.files import write, write_attempt

__all__ = ["write", "write_attempt"]
