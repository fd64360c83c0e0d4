"""Show records and times to a person as text."""

from collections.abc import Iterable
from textwrap import wrap

from heedful.sanitize import clean
from heedful.validation import MAX_SHOWN_TEXT_CHARS

SCREEN_COLUMNS = 100
SCREEN_LINES = 25

# The least age in seconds that is said in a unit, the seconds of the unit, its name.
AGE_UNITS = (
    (86_400 * 2, 86_400, "d"),
    (7_200, 3_600, "h"),
    (120, 60, "min"),
    (0, 1, "s"),
)


def counted(number: int, noun: str, nouns: str = "") -> str:
    """Return a number with its noun; `nouns` is an irregular plural.

    >>> counted(1, "retry", "retries"), counted(1200, "line")
    ('1 retry', '1,200 lines')
    """
    if number != 1:
        noun = nouns or f"{noun}s"
    return f"{number:,} {noun}"


def screen_text(lines: Iterable[str]) -> str:
    """Return lines as text that fits one screen, wide ones folded, with a count of the
    rest.
    """
    rows: list[str] = []
    for line in lines:
        line = clean(line, MAX_SHOWN_TEXT_CHARS)
        rows += wrap(line, SCREEN_COLUMNS, subsequent_indent="  ") or [""]

    hidden = len(rows) - SCREEN_LINES
    if hidden > 0:
        rows[SCREEN_LINES - 1 :] = [f"… and {hidden + 1} more lines"]
    return "\n".join(rows)


def line_text(name: str, **values: object) -> str:
    """Return a record in one line: its name and some of its values, cut if long.

    >>> line_text("Result", passed=True, candidate="P1")
    "Result(passed=True, candidate='P1')"
    """
    fields = []
    for field, value in values.items():
        # Much of a long value is not worth its repr.
        text = repr(value[:MAX_SHOWN_TEXT_CHARS] if isinstance(value, str) else value)
        fields.append(f"{field}={clean(text, 40)}")
    return clean(f"{name}({', '.join(fields)})", SCREEN_COLUMNS)


def age(at: float, now: float) -> str:
    """Return how long before `now` a time was, in one unit.

    >>> age(0, 59), age(0, 200), age(0, 90_000), age(0, 400_000)
    ('59 s', '3 min', '25 h', '4 d')
    """
    past_seconds = max(0.0, now - at)
    seconds, name = next(
        (seconds, name)
        for min_age, seconds, name in AGE_UNITS
        if past_seconds >= min_age
    )
    return f"{int(past_seconds // seconds)} {name}"
