"""Claims: the sentences of a model, and what a run lacks of them.

A sentence about the run is refused for one reason: it has a figure or a quotation that
the run lacks. Every sentence of a reflection is about the run. A strategy is advice,
whose figures and quotations are its author's own ("give up after 3 retries"); only a
sentence of it that reports what happened is about the run.
Figures are compared by value: 1,200 and 1200.0 are equal, and so are 12 % and 0.12; a
count of like calls or of failures is a figure of the run, too. Of a quotation only
letters and digits are compared, and "…" may stand for what it leaves out. A single word
in quotation marks, and code between backticks, are no quotations.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from itertools import chain
from typing import Literal

from heedful.episodes import course as trace
from heedful.episodes.course import LIST_MARK_PATTERN, Course
from heedful.episodes.episode import Fault

# The end of a sentence: blanks after a full stop or the like, or line breaks.
_SENTENCE_END_PATTERN = re.compile(r"(?<=[.!?;])\s+|(?<=[.!?;][\"'”’)])\s+|\n+")
# Events that a model cites: "[2]", "[events 1, 3]" or "(event 4)".
_CITATION_PATTERN = re.compile(r"\s?(?:\[(?:events? )?|\(events? )e?\d[\de, and]*[\])]")
# A text in quotation marks, without the marks.
_QUOTATION_PATTERN = re.compile(
    r"“([^”\n]+)”|\"([^\"\n]+)\"|(?<!\w)['‘]([^'’\n]+)['’](?!\w)"
)
# A number, the sign of a percentage, and the beginning of a unit or of minutes, but not
# of "st", "nd", "rd" or "th". What belongs to a word, as in utf-8, 0xe9 and 5xx, is no
# figure, nor is the number of a standard or of an event.
_RUN_FIGURE_PATTERN = re.compile(
    r"(?<![\w.-])(?<!ISO )(?<!RFC )(?<![Ee]vent )(?<![Ss]tep )"
    r"((?:\d{1,3}(?>(?:,\d{3})+)(?!\d)|\d++)(?>(?:\.\d++)*))(?!x)(\s?%|\spercent)?"
    r"((?![snrt][tdh]\b)[A-Za-z:])?"
)
# How an English sentence reports: its subject, which begins with an article, a pronoun
# or a number, and then a verb in the past tense before any in the present; or such a
# verb right before a quotation. Advice begins with its verb or with a condition. Models
# write rules about a run in English by far most often; what another language reports is
# believed.
_REPORT_PATTERN = re.compile(
    r"(?i)\W*(?:an?|its?|th(?!en\b)\w+|two|afterwards|\d+)\b"
    r"(?:(?! (?:are|can|is|may|must|needs?|should) ).)*?"
    r" (?:\w+[^\We]ed|had|lost|said|took|was|were)\b"
    r"|\w+ (?:\w+[^\We]ed|said) [“\"'‘]"
)


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence, the events it rests on, and what the run lacks of it.

    `events` are positions.
    """

    text: str
    events: tuple[int, ...] = ()
    _: KW_ONLY
    unsupported: tuple[str, ...] = ()
    part: Literal["reflection", "strategy"] = "reflection"

    @property
    def why(self) -> str:
        """The reason why the text is dropped; "" if the run has all of it."""
        missing = ", ".join(f"“{words}”" for words in self.unsupported)
        return missing and f"the run does not contain {missing}"


def without_citations(text: str) -> str:
    """Return a text without citations such as [2] or [events 1, 3]."""
    return _CITATION_PATTERN.sub("", text).strip()


def sentences(text: str) -> list[str]:
    """Split a text into sentences."""
    pieces = [piece.strip() for piece in _SENTENCE_END_PATTERN.split(text)]
    return [piece for piece in pieces if piece]


def is_report(sentence: str) -> bool:
    """Return True if a sentence says what happened, and is no advice.

    >>> is_report("It was sent 3 times."), is_report("Send it 3 times.")
    (True, False)
    """
    return _REPORT_PATTERN.match(sentence) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """The figures of a run, and all its letters and digits, to compare a text with.

    `counts` say how many calls, failures and like events it has.
    """

    figures: frozenset[float | str]
    counts: frozenset[float]
    letters: str

    @classmethod
    def of(cls, run: Course) -> "RunFacts":
        """Return the facts of a run: of its task, its error and all its events.

        The counts are those of like events, of all failures, and of the failures of
        each tool. A text may name any of them as a figure.
        """
        episode = run.episode
        fault = episode.fault or Fault("")
        texts = [episode.task, episode.goal]
        texts += [fault.category, fault.message, fault.context]

        counts = Counter[object]()
        for event, failure in zip(run.events, run.failure, strict=True):
            text = trace.event_text(event)
            texts += [event.agent, event.tool, text, trace.event_details(event)]
            counts.update([(event.type, event.tool), (event.type, text)])
            if failure:
                counts.update(["a failure", ("a failure of", event.tool)])

        run_text = "\n".join(texts)
        # Of the run, a number inside a word counts too: a text may name it by itself.
        numbers = re.sub(r"[^\d.,%]", " ", run_text)
        figures = chain.from_iterable(values for _, values, _ in _figures(numbers))
        return cls(
            figures=frozenset(figures),
            # Nothing may always be counted.
            counts=frozenset({0.0, *map(float, counts.values())}),
            letters=_letters(run_text),
        )

    def missing(self, text: str) -> Iterator[str]:
        """Yield the quotations and the figures of a text that the run lacks.

        Of a quotation only letters and digits are compared. A figure is compared by its
        value, and one without a unit may also be a count of the run.
        """
        for match in _QUOTATION_PATTERN.finditer(text):
            quotation = next(filter(None, match.groups()))
            # "…" may stand for what a quotation leaves out.
            parts = quotation.replace("...", "…").split("…")
            is_missing = any(_letters(part) not in self.letters for part in parts)
            # A single word in quotation marks is a name, and no quotation.
            if is_missing and len(quotation.split()) > 1:
                yield quotation

        for figure, values, unit in _figures(LIST_MARK_PATTERN.sub("", text)):
            counts = frozenset() if unit else self.counts
            if (self.figures | counts).isdisjoint(values):
                yield figure


def _figures(text: str) -> Iterator[tuple[str, set[float | str], str]]:
    """Yield each figure of a text as it is written, its values and its unit.

    The values are what it may be compared with: 1200.0 for "1,200", and both 12.0 and
    0.12 for "12 %". A figure that stands for no amount, such as a version or the "03"
    of a date, has itself as its value, as a text.
    """
    for number, percent, unit in _RUN_FIGURE_PATTERN.findall(text):
        values: set[float | str] = {number}
        # A number that begins with 0 is a part of a date or of a time.
        is_part = number[0] == "0" and number[1:2].isdecimal()
        if number.count(".") < 2 and not is_part:
            value = float(number.replace(",", ""))
            values = {value, round(value / 100, 9)} if percent else {value}
        yield number, values, unit


def _letters(text: str) -> str:
    """Return the letters and digits of a text in lower case, without what separates.

    A line break and a tab may be escaped, as in JSON.
    """
    return re.sub(r"\\[nrt]|[\W_]+", "", text.casefold())
