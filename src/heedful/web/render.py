"""Render a page: the templates of the reports, with times, numbers and addresses for a
browser.
"""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from heedful.pages.report import environment

if TYPE_CHECKING:
    from jinja2 import Environment

AGE_UNITS = (
    (86_400 * 2, 86_400, "d"),
    (7_200, 3_600, "h"),
    (120, 60, "min"),
    (0, 1, "s"),
)


def page_text(template: str, **values: Any) -> str:
    """Return the HTML of a page."""
    return _pages().get_template(template).render(**values, now=time.time())


@cache
def _pages() -> Environment:
    from jinja2 import Undefined

    # The data of the API leave out what has its default.
    made = environment(True).overlay(undefined=Undefined)
    made.filters |= {"ago": ago, "number": number, "percent": percent}
    made.globals["address"] = address
    return made


def percent(share: float | None) -> str:
    """Return a share as a percentage, or a dash if there is none.

    >>> percent(0.875), percent(None)
    ('88 %', '–')
    """
    return "–" if share is None else f"{share:.0%}".replace("%", " %")


def number(value: float) -> str:
    """Return a number as people read it.

    >>> number(1234567), number(0.1234)
    ('1,234,567', '0.123')
    """
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"


def ago(at: float, now: float) -> str:
    """Return how long before `now` a time was, in one unit.

    >>> ago(0, 59), ago(0, 200), ago(0, 90_000), ago(0, 400_000)
    ('59 s ago', '3 min ago', '25 h ago', '4 d ago')
    """
    past = max(0.0, now - at)
    unit, name = next((unit, name) for least, unit, name in AGE_UNITS if past >= least)
    return f"{int(past // unit)} {name} ago"


def address(path: str, /, **query: Any) -> str:
    """Return the address of a page, with the parts of its query that are not empty."""
    given = {name: value for name, value in query.items() if value not in ("", None)}
    place = quote(path) if path != "/" else ""
    if place.endswith(
        ".json"
    ):  # of a name: without this, it would be the address of the data
        place = f"{place[:-5]}%2Ejson"
    return f"/ui{place}" + (f"?{urlencode(given)}" if given else "")
