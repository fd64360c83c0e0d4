"""Tables of cases, by the ids that say what fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest


def cases(names: str, rows: Mapping[str, Any], **options: Any) -> pytest.MarkDecorator:
    """Run a test for each row; the key of a row is the id that says what fails."""
    return pytest.mark.parametrize(
        names, list(rows.values()), ids=list(rows), **options
    )
