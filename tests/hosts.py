"""Hosts whose lookups wait for a busy machine."""

from __future__ import annotations

from typing import Any

from heedful.integrations import Host

LOOKUP_SECONDS = 60.0


def patient_host(**options: Any) -> Host:
    """Return a Host that gives no lookup up within a minute.

    A lookup that took more than two seconds is given up by a Host of the default: a
    test of anything else would depend on what else the machine does.
    """
    return Host(seconds=LOOKUP_SECONDS, **options)
