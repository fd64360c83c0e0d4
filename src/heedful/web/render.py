"""Render a page: the templates of the reports, with times, numbers and addresses for a browser."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from heedful.pages.report import axis, environment, lasted
from heedful.store.runs import iso

if TYPE_CHECKING:
    from jinja2 import Environment

WORDS = 800  # of a text that are compared; the rest counts as unchanged
Span = tuple[int, int, str]
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
AGO = ((86_400 * 2, 86_400, "d"), (7_200, 3_600, "h"), (120, 60, "min"), (0, 1, "s"))
MENU = (
    ("Home", "/"),
    ("Loops", "/loops"),
    ("Lessons", "/lessons"),
    ("Quarantine", "/quarantine"),
    ("Proof", "/proof"),
    ("Policies", "/policies"),
    ("Pipelines", "/pipelines"),
    ("Traces", "/traces"),
    ("Dreams", "/dreams"),
    ("Health", "/health"),
    ("Recall", "/recall"),
)


def page_text(template: str, **values: Any) -> str:
    """Return the HTML of a page."""
    return _pages().get_template(template).render(**values, menu=MENU, now=time.time())


@cache
def _pages() -> Environment:
    from jinja2 import Undefined

    # The data of the API leave out what has its default.
    made = environment(True).overlay(autoescape=True, undefined=Undefined)
    made.filters |= {
        "ago": ago,
        "percent": percent,
        "number": number,
        "text": text,
        "counted": counted,
    }
    made.filters |= {"place": lambda value: quote(str(value), safe="/")}
    made.globals |= {
        "marked": marked,
        "spans": spans,
        "axis": axis,
        "address": address,
        "iso": iso,
        "lasted": lasted,
    }
    return made


def ago(at: float, now: float) -> str:
    """Return how long before `now` a time was, in one unit.

    >>> ago(0, 59), ago(0, 200), ago(0, 90_000), ago(0, 400_000)
    ('59 s ago', '3 min ago', '25 h ago', '4 d ago')
    """
    past = max(0.0, now - at)
    unit, name = next((unit, name) for least, unit, name in AGO if past >= least)
    return f"{int(past // unit)} {name} ago"


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


def text(value: Any) -> str:
    """Return a value of a loop as text: a text as it is, anything else as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


def address(path: str, /, **query: Any) -> str:
    """Return the address of a page, with the parts of its query that are not empty."""
    given = {name: value for name, value in query.items() if value not in ("", None)}
    place = quote(path)
    if place.endswith(".json"):  # of a name: without this, it would be the address of the data
        place = f"{place[:-5]}%2Ejson"
    return f"/ui{place}" + (f"?{urlencode(given)}" if given else "")


def counted(number: int, noun: str) -> str:
    """Return a number of things in words.

    >>> counted(1, "time"), counted(1200, "loop")
    ('1 time', '1,200 loops')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def spans(attempt: Mapping[str, Any]) -> list[Span]:
    """Return the faulty characters of an attempt that its findings name, with what is wrong."""
    findings = (attempt.get("evaluation") or {}).get("findings", ())
    return [
        (one["span"][0], one["span"][1], f"{one['check']}: {one['message']}")
        for one in findings
        if one.get("span")
    ]


def marked(before: str, after: str, spans: Sequence[Span] = ()) -> list[tuple[str, str, str]]:
    """Return the parts of two texts as ("same", "gone" or "new", what is wrong, text).

    They differ word by word. `spans` are the faulty characters of `after`.

    >>> marked("high", "P1")
    [('gone', '', 'high'), ('new', '', 'P1')]
    >>> marked("a b", "a b", [(2, 3, "late")])
    [('same', '', 'a '), ('same', 'late', 'b')]
    """
    old, new = (_WORDS.findall(one)[:WORDS] for one in (before, after))
    rest = after[sum(map(len, new)) :]
    parts, at = list[tuple[str, str, str]](), 0
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if a < b and kind != "equal":
            parts.append(("gone", "", "".join(old[a:b])))
        if c < d:
            said = "".join(new[c:d])
            parts += _split("same" if kind == "equal" else "new", said, at, spans)
            at += len(said)
    return parts + _split("same", rest, at, spans)


def _split(kind: str, said: str, at: int, spans: Sequence[Span]) -> list[tuple[str, str, str]]:
    """Split a part that begins at the character `at` at both ends of each span."""
    places = (end - at for low, high, _ in spans for end in (low, high))
    ends = {0, len(said), *(place for place in places if 0 < place < len(said))}
    return [
        (kind, "; ".join(why for low, high, why in spans if low <= at + a < high), said[a:b])
        for a, b in pairwise(sorted(ends))
    ]
