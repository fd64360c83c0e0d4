"""Days in an address, such as `2026-11-24`; days are those of UTC."""

from __future__ import annotations

from datetime import UTC, datetime

from heedful.errors import InvalidInput
from heedful.lessons.ranking import DAY_SECONDS
from heedful.web.figures import ALL_TIME, Period
from heedful.web.site import Visit


def day_text(at: float) -> str:
    """Return the day of a time.

    >>> day_text(86_400.0)
    '1970-01-02'
    """
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def period_of(visit: Visit) -> Period:
    """Return the days `from` and `to` of an address, both inclusive.

    Raises InvalidInput, also if `to` is before `from`.
    """
    period = ALL_TIME
    if visit.query.get("from"):
        period = period._replace(begin=_read_day("from", visit.query["from"]))
    if visit.query.get("to"):
        end = _read_day("to", visit.query["to"]) + DAY_SECONDS
        period = period._replace(end=end)
    if period.end <= period.begin:
        allowed = f"{visit.query['from']} or a later day: from is before to"
        raise InvalidInput("to", visit.query["to"], allowed)
    return period


def _read_day(name: str, text: str) -> float:
    """Return the time at which a day begins. Raises InvalidInput."""
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError as error:
        raise InvalidInput(name, text, "a day such as 2026-11-24") from error
    return day.timestamp()
