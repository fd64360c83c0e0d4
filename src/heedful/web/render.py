"""Render a page from its template, with times, numbers and addresses for a browser."""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from heedful.display import ago
from heedful.pages.report import environment
from heedful.web.menu import MENU

if TYPE_CHECKING:
    from jinja2 import Environment


def page_text(template: str, **values: Any) -> str:
    """Return the HTML of a page."""
    return _pages().get_template(template).render(**values, now=time.time())


@cache
def _pages() -> Environment:
    """Return the environment of the pages: that of the reports, with more filters."""
    from jinja2 import ChoiceLoader, PackageLoader, Undefined

    packages = ("heedful.web", "heedful.pages")
    templates = ChoiceLoader([PackageLoader(package) for package in packages])
    # API answers omit fields that have their default value.
    pages = environment(True).overlay(undefined=Undefined, loader=templates)
    pages.filters |= {"ago": ago, "number": number}
    pages.globals |= {"address": address, "MENU": MENU}
    return pages


def number(value: float) -> str:
    """Return a number as people read it.

    >>> number(1234567), number(0.1234)
    ('1,234,567', '0.123')
    """
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"


def address(path: str, /, **query: Any) -> str:
    """Return the address of a page, with the parts of its query that are not empty."""
    place = quote(path) if path != "/" else ""
    # The id of a loop may end with `.json`, which would ask for the data of a page.
    if place.endswith(".json"):
        place = f"{place.removesuffix('.json')}%2Ejson"

    fields = {name: value for name, value in query.items() if value not in ("", None)}
    if not fields:
        return f"/ui{place}"
    return f"/ui{place}?{urlencode(fields)}"
