"""Lists that come page by page: `limit`, and a `cursor` that says where the next page begins."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Annotated, Any

from fastapi import Query

from heedful.errors import InvalidInput

LARGEST = 2**53  # what every JSON and every database holds exactly
Limit = Annotated[int, Query(ge=1, le=200, description="How many at most.")]
"""As a parameter of a route: `limit: Limit = 50`."""
Cursor = Annotated[
    str | None, Query(max_length=1000, description="`next` of the page before; none at the first.")
]
"""As a parameter of a route: `cursor: Cursor = None`."""


def cursor_to(*place: str | float) -> str:
    """The cursor of the page after that place, such as a time and an id.

    >>> cursor_from(cursor_to(1.5, "a"), float, str)
    (1.5, 'a')
    """
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def cursor_from(cursor: str | None, *kinds: type) -> tuple[Any, ...] | None:
    """The place that a cursor names, None at the first page. Raises InvalidInput."""
    if cursor is None:
        return None
    wrong = InvalidInput("cursor", cursor, "`next` of the page before, unchanged")
    try:
        place: Any = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise wrong from error
    if not isinstance(place, list) or [type(one) for one in place] != list(kinds):
        raise wrong
    if any(isinstance(one, int | float) and not -LARGEST < one < LARGEST for one in place):
        raise wrong
    return tuple(place)
