"""Tables of which `make test` runs the rows that tell most, and `make soak` all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest


def telling(names: Iterable[str], *telling_names: str) -> list[Any]:
    """Return the rows of a table by their names; the others are marked `nightly`."""
    rows = list(names)
    unknown_names = set(telling_names) - set(rows)
    if unknown_names:
        raise ValueError(f"no rows: {sorted(unknown_names)}")
    return [
        pytest.param(
            name, id=name, marks=() if name in telling_names else pytest.mark.nightly
        )
        for name in rows
    ]


def cases(names: str, rows: Mapping[str, Any], **options: Any) -> pytest.MarkDecorator:
    """Run a test for each row; the key of a row is the id that says what fails."""
    return pytest.mark.parametrize(
        names, list(rows.values()), ids=list(rows), **options
    )
