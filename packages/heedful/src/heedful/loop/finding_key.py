"""What two occurrences of one finding have in common, and how far each is off.

A finding without a key of its own is known by its text without secrets and without the
particulars of the moment. An error that nobody measured may name two figures, a value
and its limit.
"""

import re
from collections.abc import Hashable, Iterator
from functools import lru_cache

from heedful.redact import redact
from heedful.validation import MAX_SCORE

# What differs between two occurrences of one error: a clock time, with its date, a time
# that was measured, a UUID, an id of hexadecimal digits or of letters among digits, an
# address in memory or of a computer, a temporary file or the folders of one.
_POINT_IN_TIME_PATTERN = re.compile(
    r"(?<![A-Za-z\d])(?:(?=[A-Za-z]*+\d)(?:(?<![\w.:])(?:"
    r"(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?Z?(?:[+-]\d\d:?\d\d)?"
    r"|\d+(?:\.\d+)? ?(?:[nuµm]s|sec(?:ond)?s?)|\d+\.\d+ ?s"
    r"|(?:[\da-fA-F]+-){4}[\da-fA-F]{12}|0x[\da-fA-F]+"
    r"|\d+(?:\.\d+){3}(?::\d+)?)\b"
    r"|(?:(?=[a-f]*\d)(?=\d*[a-f])[\da-f]{6,}"
    r"|(?=[A-Za-z]*\d+[A-Za-z]+\d)[A-Za-z\d]{8,})(?![A-Za-z\d]))"
    r"|(?<=[/\\])(?:te?mp[/\\](?:[^\s/\\]+[/\\])*|tmp\w+))"
)
# A number in the text of a finding, such as "12,088.5".
_MESSAGE_FIGURE_PATTERN = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")


@lru_cache(256)  # of the findings that a loop has again and again
def default_key(check: str, message: str, *, is_measured: bool = False) -> str:
    """Return the key of a finding that has none of its own.

    It is the same for another time, id, address or temporary path in the message, and
    for another figure if that `is_measured`. It has no secrets.

    >>> default_key("tests", "job 3fa9c1d2 failed in cell 3 at 10:15:02")
    'tests: job … failed in cell 3 at …'
    """
    message = redact(message)  # what masking leaves of a secret is not recognised
    if is_measured:
        message = _MESSAGE_FIGURE_PATTERN.sub("…", message)
    return f"{redact(check)}: {mask_moments(message)}"


def mask_moments(text: str) -> str:
    """Return a text with its times, ids and temporary paths masked; other figures stay.

    >>> mask_moments("10:15:02 job 3fa9c1d2: 40 % done")
    '… job …: 40 % done'
    """
    return _POINT_IN_TIME_PATTERN.sub("…", text)


def relative_distance(value: float, limit: float) -> float | None:
    """Return how far a value is from its limit, as a share of the limit.

    For a limit of 0, it is the absolute distance. None means that it is not a number,
    or above `MAX_SCORE`.

    >>> relative_distance(205, limit=200), relative_distance(3, limit=0)
    (0.025, 3.0)
    """
    distance = abs(value - limit) / (abs(limit) or 1)
    return round(distance, 9) if distance <= MAX_SCORE else None


def distances_in(message: str) -> Iterator[tuple[Hashable, float]]:
    """Yield how far one of two figures in a text is from the other, with its key.

    Nobody says which figure is the limit: it is the one that the text of another
    attempt has, too, so a key names the text and the limit. A part of a whole, as in "3
    of 20", has no limit.
    """
    figures = list(_MESSAGE_FIGURE_PATTERN.finditer(message))
    if len(figures) != 2:
        return

    first, second = (float(figure[0].replace(",", "")) for figure in figures)
    between = message[figures[0].end() : figures[1].start()].strip()
    if first <= second and between.removesuffix(" the").endswith(("of", "/")):
        return

    form = _MESSAGE_FIGURE_PATTERN.sub("#", message)
    for limit, value in ((first, second), (second, first)):
        distance = relative_distance(value, limit)
        if distance is not None:
            yield (form, limit), distance
