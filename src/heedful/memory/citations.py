"""Claims: sentences with the events they cite, checked word by word.

A sentence is supported if its numbers, its names and its quoted words occur in the
events that it cites, or in the task, the goal or the error that ended the run. What it
concludes from them is not judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import chain
from typing import Literal

from heedful.episodes import course as trace
from heedful.episodes.course import NUMBER_PATTERN
from heedful.episodes.episode import Episode, Event
from heedful.episodes.error_lines import output
from heedful.lessons.words import words
from heedful.sanitize import sanitize

# The end of a sentence: blanks after a full stop or the like, or line breaks. Blanks
# before a citation such as "[2]" do not end it.
_SENTENCE_END_PATTERN = re.compile(r"(?<=[.!?;])[\"'”’)]?\s+(?!\[)|\n+")
# Events that a model cites: "[2]", "[events 1, 3]" or "(event 4)".
_CITATION_PATTERN = re.compile(r"\s?(?:\[(?:events? )?|\(events? )e?\d[\de, and]*[\])]")
# A quoted text, in one of four sorts of quotation marks, without its marks.
_QUOTATION_PATTERN = re.compile(
    r"“([^”\n]{2,400})”|\"([^\"\n]{2,400})\"|`([^`\n]{2,400})`"
    r"|(?<!\w)'([^'\n]{2,400})'(?!\w)"
)
# Capitalised words in a row ("Bank of England"), or a word with a digit or an
# underscore in it ("max_tokens").
_PROPER_NAME_PATTERN = re.compile(
    r"\b[A-Z][\w’'-]{1,40}(?: (?:of |the |and |de |von )?[A-Z][\w’'-]{1,40}){0,5}"
    r"|\b\w{1,60}[_\d]\w{0,60}\b"
)
# The ending of a possessive: "the API's", "the APIs'".
_POSSESSIVE_PATTERN = re.compile(r"(?<=\w)'s?(?!\w)")
# What comes before the first word of a clause, which is capitalised without a name.
_CLAUSE_STARTS = ("", *".!?:;(")


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence or a strategy, its events, and its words that these events lack.

    `events` are positions. The words of a strategy are looked up in all that its author
    was shown. `reason` is another reason to drop the text, if there is one.
    """

    text: str
    events: tuple[int, ...] = ()
    _: KW_ONLY
    unsupported: tuple[str, ...] = ()
    part: Literal["reflection", "strategy"] = "reflection"
    reason: str = ""

    @property
    def why(self) -> str:
        """The reason why the text is dropped; "" if its events have all its words."""
        if self.reason:
            return self.reason
        missing = ", ".join(f"“{words}”" for words in self.unsupported)
        return missing and f"the events do not contain {missing}"


def sentences(text: str) -> list[str]:
    """Split a text into sentences, without citations such as [2] or [events 1, 3]."""
    bare_text = _CITATION_PATTERN.sub("", text)
    pieces = [piece.strip() for piece in _SENTENCE_END_PATTERN.split(bare_text)]
    return [piece for piece in pieces if piece]


def claim(text: str, events: Sequence[int], episode: Episode) -> Claim:
    """Return the claim of a sentence, checked against task, goal, error and events."""
    fault = episode.fault
    texts = [episode.task, episode.goal]
    if fault:
        texts += [fault.category, fault.message]

    positions = tuple(dict.fromkeys(events))
    for position in positions:
        event = episode.events[position]
        texts += [event.type.replace("_", " "), trace.ends(event_words(event))]

    unsupported = tuple(find_unsupported(text, "\n".join(texts)))
    return Claim(text, positions, unsupported=unsupported)


def find_claim(text: str, episode: Episode, positions: Sequence[int]) -> Claim:
    """Return the claim of a sentence with the first event that has all its facts.

    Facts are numbers, names and quoted words. If no event has all, the claim cites
    those that have some.
    """
    facts = list(find_unsupported(text, ""))
    partial: list[int] = []
    for position in positions:
        candidate = claim(text, (position,), episode)
        if facts and not candidate.unsupported:
            return candidate
        if len(candidate.unsupported) < len(facts):
            partial.append(position)

    return claim(text, partial, episode)


def find_unsupported(sentence: str, evidence: str) -> Iterator[str]:
    """Yield the quoted words, numbers and names of a sentence that `evidence` lacks."""
    evidence_words = normalize(evidence)
    evidence_stems = stems(evidence)
    numbers = {_value(number) for number in NUMBER_PATTERN.findall(evidence)}

    unquoted = sentence
    for match in _QUOTATION_PATTERN.finditer(sentence):
        quotation = next(filter(None, match.groups()))
        unquoted = unquoted.replace(match[0], " ")
        # "…" marks where a quotation was shortened.
        pieces = re.split(r"\s*…\s*", normalize(quotation))
        if not all(piece in evidence_words for piece in pieces):
            yield quotation

    written_numbers = NUMBER_PATTERN.findall(unquoted)
    yield from (n for n in written_numbers if _value(n) not in numbers)

    for match in _PROPER_NAME_PATTERN.finditer(unquoted):
        name = match[0]
        before = unquoted[: match.start()].rstrip()[-1:]
        if before in _CLAUSE_STARTS and not re.search(r"[_\d]", name):
            name = name.partition(" ")[2]  # the first word begins a clause

        text = normalize(name)
        name_stems = words(plain_words(name))  # without words such as "the"
        supported = text in evidence_words or evidence_stems.issuperset(name_stems)
        if not supported and not NUMBER_PATTERN.fullmatch(name):
            yield name


def event_words(event: Event) -> str:
    """Return all words of an event: names, texts, and arguments without quotes, too."""
    arguments = chain.from_iterable(trace.named_arguments(event).items())
    texts = [event.agent, event.tool, event.code, *arguments]
    if event.content[:1] == "{":
        texts.append(output(event.content))
    return "\n".join(filter(None, [*texts, trace.event_text(event)]))


def normalize(text: str) -> str:
    """Return a text in lower case, with single spaces and straight apostrophes."""
    return " ".join(sanitize(text).casefold().split()).replace("’", "'")


def plain_words(text: str) -> str:
    """Return a normalized text without endings of possessives: "api" for "API's"."""
    return _POSSESSIVE_PATTERN.sub("", normalize(text))


def stems(text: str) -> frozenset[str]:
    """Return all words of a text without endings: a plural is its singular."""
    parts = set(re.findall(r"[^\W_]+", plain_words(text)))
    return frozenset(chain.from_iterable(map(words, parts)))


def _value(number: str) -> float:
    """Return the value of a number in a text; 1,200 and 1200.0 are equal."""
    return float(number.replace(",", "").rstrip(".") or 0)
