"""Origins: whose words a part of a record is. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

Origin = Literal["user", "local", "outside"]
# From the most to the least trusted.
ORIGINS: tuple[Origin, ...] = ("user", "local", "outside")


def lowest_origin(origins: Iterable[Origin]) -> Origin:
    """Return the least trusted of these origins; that of a user without any."""
    return max(origins, key=ORIGINS.index, default="user")
