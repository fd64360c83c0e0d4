"""Sentences against the events that they cite: numbers, names and quoted words must stand there.

What a sentence makes of them is not judged. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from heedful.memory.course import read, text_of
from heedful.memory.episode import Episode, Event
from heedful.sanitize import sanitize

# Events that one sentence may cite.
MOST_CITED = 20
_SENTENCE = re.compile(r"(?<=[.!?;])[\"'”’)]?\s+(?!\[)|\n+")
_BRACKET = re.compile(r"\s?[\[(]((?:events? )?[^\[\]()\n]{1,120})[\])]")
_LISTED = re.compile(r"\s*(?:,|;|\band\b)\s*")
_REFERENCE = re.compile(r"e?\d{1,6}")
_QUOTED = re.compile(
    r"“([^”\n]{2,400})”|\"([^\"\n]{2,400})\"|`([^`\n]{2,400})`|(?<!\w)'([^'\n]{2,400})'(?!\w)"
)
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]{0,24}(?:\.\d{1,12})?")
_NAME = re.compile(
    r"\b[A-Z][\w’'-]{1,40}(?: (?:of |the |and |de |von )?[A-Z][\w’'-]{1,40}){0,5}"
    r"|\b\w{1,60}[_\d]\w{0,60}\b"
)
_WORD = re.compile(r"[^\W_]+")
# What ends what is shown of a longer text, in the middle or behind.
_LEFT_OUT = re.compile(r"\s*…\s*")


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence, the positions of the events that it cites, and what of it they do not hold."""

    text: str
    events: tuple[int, ...] = ()
    unheld: tuple[str, ...] = ()

    @property
    def grounded(self) -> bool:
        """Whether it cites an event, and all that can be checked of it stands there."""
        return bool(self.events) and not self.unheld


def sentences(text: str) -> list[str]:
    """The sentences of a text, a citation behind one with it."""
    return [one.strip() for one in _SENTENCE.split(text) if one.strip()]


def cited(sentence: str, names: Mapping[str, int]) -> tuple[str, tuple[int, ...], tuple[str, ...]]:
    """A sentence without its citations, the events of these by name, and names that none has.

    >>> cited("It failed [e2, e9].", {"e2": 1})
    ('It failed.', (1,), ('e9',))
    """
    found: dict[int, None] = {}
    unknown: list[str] = []

    def taken(match: re.Match[str]) -> str:
        said = re.sub(r"^events? ", "", match[1].strip())
        parts = [one.removeprefix("event ") for one in _LISTED.split(said) if one]
        if not parts or not all(one in names or _REFERENCE.fullmatch(one) for one in parts):
            return match[0]
        found.update((names[one], None) for one in parts if one in names)
        unknown.extend(one for one in parts if one not in names)
        return ""

    bare = _BRACKET.sub(taken, sentence).strip()
    return bare, tuple(found)[:MOST_CITED], tuple(unknown)


def claim(text: str, events: Sequence[int], episode: Episode) -> Claim:
    """A sentence as it stands to the events at these positions, and to what the run was given."""
    known = [one for one in dict.fromkeys(events) if 0 <= one < len(episode.events)][:MOST_CITED]
    fault = episode.fault
    given = [episode.task, episode.goal, *((fault.category, fault.message) if fault else ())]
    held = "\n".join([*given, *(told(episode.events[one]) for one in known)])
    return Claim(text, tuple(known), tuple(unheld(text, held)))


def supported(text: str, episode: Episode, among: Iterable[int]) -> Claim:
    """A sentence that cites nothing, with the first of these events that holds what it says.

    One without a number, a name or a quotation says nothing that an event could hold.
    """
    if not any(_particulars(text)):
        return Claim(text)
    best = Claim(text)
    for at in among:
        one = claim(text, (at,), episode)
        if one.grounded:
            return one
    return best


def told(event: Event) -> str:
    """All that an event says, who and what tool with it."""
    names = (event.agent, event.tool, event.code, event.type.replace("_", " "))
    return "\n".join([*filter(None, names), read(text_of(event))])


def unheld(sentence: str, held: str) -> Iterator[str]:
    """Numbers, names and quoted words of a sentence that a text does not have."""
    plain = _plain(held)
    words = frozenset(_WORD.findall(plain))
    numbers = {_value(one) for one in _NUMBER.findall(held)}
    for kind, one in _particulars(sentence):
        if kind == "number":
            there = _value(one) in numbers
        elif kind == "quoted":
            there = all(piece in plain for piece in _LEFT_OUT.split(_plain(one)) if piece)
        else:
            there = _plain(one) in plain or words.issuperset(_WORD.findall(_plain(one)))
        if not there:
            yield one


def _particulars(sentence: str) -> Iterator[tuple[str, str]]:
    """What of a sentence can be looked up; the word that it begins with may be any."""
    rest = sentence
    for match in _QUOTED.finditer(sentence):
        yield "quoted", next(filter(None, match.groups()))
        rest = rest.replace(match[0], " ")
    for match in _NUMBER.finditer(rest):
        yield "number", match[0]
    for match in _NAME.finditer(rest):
        name = match[0]
        if not rest[: match.start()].strip() and not re.search(r"[_\d]", name):
            name = name.partition(" ")[2]
        if name and not _NUMBER.fullmatch(name):
            yield "name", name


def _plain(text: str) -> str:
    return " ".join(sanitize(text).casefold().replace("’", "'").split())


def _value(number: str) -> float:
    return float(number.replace(",", "").rstrip(".") or 0)
