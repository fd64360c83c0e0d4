"""Pages for people: the report of a run as HTML and as files."""

from heedful.pages.run_report import (
    html,
    render,
    write,
    write_attempt,
    write_html,
)

__all__ = ["html", "render", "write", "write_attempt", "write_html"]
