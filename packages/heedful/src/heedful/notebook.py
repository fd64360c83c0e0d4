"""Show records as HTML in a notebook, which asks a value for `_repr_html_`.

Only the room `pages` makes HTML, which records may not know: `heedful/__init__.py` says
where the maker is.
"""

from collections.abc import Callable

_makers: list[Callable[[object], str]] = []


def make_html_with(maker: Callable[[object], str]) -> None:
    """Let `maker` make the HTML of all records."""
    _makers[:] = [maker]


def html_form(record: object) -> str | None:
    """Return a record as HTML for a notebook; None if nothing makes HTML."""
    for maker in _makers:
        return maker(record)
    return None
