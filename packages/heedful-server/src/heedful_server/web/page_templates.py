"""Render a page from its template, with times, numbers and addresses for a browser."""

import time
from collections.abc import Sequence
from functools import cache
from math import floor, log10
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from heedful.display import age
from heedful.lessons.reasons import HOLDOUT_REASON
from heedful.loop.codec import from_document
from heedful.loop.share import percent
from heedful.loop.stop import Stop, describe_rule_name, describe_stops
from heedful.pages.run_report import environment
from heedful.sanitize import visible
from heedful.store.head import HEAD_PLAIN
from heedful.store.loop_names import short_id
from heedful.validation import Document
from heedful_server.web.loop_texts import find_folded
from heedful_server.web.menu import MENU

if TYPE_CHECKING:
    from jinja2 import Environment

DATA_ENDING = ".json"  # of an address that asks for the data of a page
MAX_MONEY_DECIMALS = 6


def page_text(template: str, **values: Any) -> str:
    """Return the HTML of a page."""
    return _pages().get_template(template).render(**values, now=time.time())


@cache
def _pages() -> "Environment":
    """Return the environment of the pages: that of the reports, with more filters."""
    from jinja2 import ChoiceLoader, PackageLoader, Undefined, pass_context

    packages = ("heedful_server.web", "heedful.pages")
    templates = ChoiceLoader([PackageLoader(package) for package in packages])
    # API answers omit fields that have their default value.
    pages = environment().overlay(undefined=Undefined, loader=templates)
    pages.filters = {
        **pages.filters,
        "age": age,
        "excerpt": excerpt,
        "hit": hit,
        "money": money,
        "number": number,
        "percent": lambda share: unbroken(percent(share)),
        "rule_words": describe_rule_name,
        "short": short_id,
        "words": cut_words,
        "unbroken": unbroken,
    }
    pages.globals |= {
        "address": address,
        "fact": pass_context(lambda context, name: context.get(name)),
        "HEAD_PLAIN": HEAD_PLAIN,
        "HOLDOUT_REASON": HOLDOUT_REASON,
        "MENU": MENU,
    }
    return pages


def cut_words(text: str, most: int) -> str:
    """Return the visible text, cut at the end of a word before `most` characters.

    >>> cut_words("the answer repeats attempt 1", 14)
    'the answer …'
    """
    text = _visible_lines(text)
    if len(text) <= most:
        return text
    head = text[: most + 1]
    # A word that fills the place is cut.
    return f"{head.rpartition(' ')[0] or head[:most]} …"


def _visible_lines(text: str) -> str:
    """Return a text with the same lines, in which hidden characters are visible."""
    return "\n".join(map(visible, text.splitlines()))


def hit(text: str, word: str) -> tuple[str, str, str] | None:
    """Return what stands before a searched word in a text, the word, and the rest.

    >>> hit("Typo on The page", "the")
    ('Typo on ', 'The', ' page')
    """
    place = find_folded(text, word)
    if place is None:
        return None
    begin, end = place
    return text[:begin], text[begin:end], text[end:]


def excerpt(text: str, word: str, most: int) -> str:
    """Return `most` visible characters of a text, with a searched word in the middle.

    They are the beginning of the text if it has the word there, or not at all.

    >>> excerpt("the answer repeats attempt 1 of the night", "night", 20)
    '… the night'
    """
    text = _visible_lines(text)
    parts = hit(text, word)
    if parts is None or len(parts[0]) + len(parts[1]) <= most:
        return cut_words(text, most)
    begin = len(parts[0]) - (most - len(parts[1])) // 2
    lead = text[max(0, begin) : len(parts[0])]
    # A word at the edge may be only a part of one.
    words = (lead.partition(" ")[2] or lead) + parts[1] + parts[2]
    return f"… {cut_words(words, most)}"


def stop_words(stops: Sequence[Document]) -> list[str]:
    """Return in words why rules stopped a loop; `stops` are JSON data.

    >>> stop_words([{"rule": "mine", "text": "it is late"}])
    ['it is late']
    """
    return describe_stops([from_document(Stop, stop) for stop in stops])


def stage_value(output: Any) -> Any:
    """Return the value that a stage wrote, if it changed only one field of the state.

    >>> stage_value({"changed": {"load": [1, 2]}})
    [1, 2]
    """
    if not isinstance(output, dict) or output.keys() != {"changed"}:
        return output
    changed = output["changed"]
    if not isinstance(changed, dict) or len(changed) != 1:
        return output
    (value,) = changed.values()
    return value


def number(value: float) -> str:
    """Return a number as people read it.

    >>> number(1234567), number(0.1234)
    ('1,234,567', '0.123')
    """
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"


def unbroken(sentence: str) -> str:
    """Return a sentence in which no line ends between a number and its "%".

    >>> unbroken("50 % with") == "50\N{NO-BREAK SPACE}% with"
    True
    """
    return sentence.replace(" %", "\N{NO-BREAK SPACE}%")


def money(value: float) -> str:
    """Return a cost in dollars; a small one has two digits that are not 0.

    >>> money(0.0084), money(12.5), money(0)
    ('$0.0084', '$12.50', '$0.00')
    """
    decimals = 2
    if 0 < value < 1:
        decimals = max(2, min(MAX_MONEY_DECIMALS, 1 - floor(log10(value))))
    return f"${value:,.{decimals}f}"


def address(path: str, /, **query: Any) -> str:
    """Return the address of a page, with the parts of its query that are not empty."""
    place = quote(path) if path != "/" else ""
    # The id of a loop may end with `.json`, which would ask for the data of a page.
    if place.endswith(DATA_ENDING):
        place = "%2E".join(place.rsplit(".", 1))

    fields = {name: value for name, value in query.items() if value not in ("", None)}
    if not fields:
        return f"/ui{place}"
    return f"/ui{place}?{urlencode(fields)}"
