"""Pages for people: the report of a run as Markdown, as HTML and as files."""

from heedful.pages.report import (
    html,
    markdown,
    render,
    write,
    write_attempt,
    write_html,
)

__all__ = ["html", "markdown", "render", "write", "write_attempt", "write_html"]
