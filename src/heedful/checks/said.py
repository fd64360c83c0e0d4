"""A text taken apart for grounding: sentences, numbers, who each number is about. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from heedful.checks.dates import Date, dates
from heedful.checks.evidence import Evidence, Mention
from heedful.checks.naming import names, parts
from heedful.checks.quantities import Quantity, Token, quantities, tokens
from heedful.checks.reading import Record

_ENDS = frozenset(".!?;\n。！？")
_BREAKS = frozenset(".,!?;:()[]")
_INTRODUCES = frozenset(":=(*~≈$€£|`")
_CLAUSES = frozenset("and but while whereas although though which who".split())
# What stands after these is not what the sentence is about.
_ASIDE = frozenset("for of over against to from at in than behind versus vs".split())
# The words of a phrase, and the mentions before a sentence, that are looked at.
PHRASE = 6
EARLIER = 20
BRACKET = 40
# A sentence of more tokens is taken as several.
LONGEST = 200


class Pair(NamedTuple):
    """Two numbers told together: "113 - 107" (joined by "-"), "3 of 5", "from 3 to 5"."""

    one: Quantity
    two: Quantity
    joined: str


class Said:
    """The tokens of a text with its sentences, numbers and mentions of rows of the evidence."""

    def __init__(self, text: str, evidence: Evidence) -> None:
        self.text: str = text
        self.evidence: Evidence = evidence
        self.tokens: list[Token] = tokens(text)
        self.dates: list[Date] = list(dates(text))
        self._subjects: dict[int, list[Mention]] = {}
        self._words: dict[int, tuple[str, ...]] = {}
        self.mentions: list[Mention] = [
            one for one in evidence.mentions(self.tokens) if self._names(one)
        ]
        named = {at for one in self.mentions for at in range(one.first, one.last + 1)}
        self._mentioned = named
        self.quantities: list[Quantity] = [
            one
            for one in quantities(self.tokens)
            if not (one.first in named or one.first in self.dated or self._label(one))
        ]

    @cached_property
    def dated(self) -> frozenset[int]:
        """The tokens that are part of a date."""
        begins = [token.start for token in self.tokens]
        found: set[int] = set()
        for date in self.dates:
            found.update(range(bisect_left(begins, date.start), bisect_left(begins, date.end)))
        return frozenset(found)

    def _names(self, mention: Mention) -> bool:
        """Key words such as "home" name a row after "the" only; names do anywhere."""
        before = self.low(mention.first - 1)
        rows = mention.rows or mention.group
        key = {self.low(at) for at in range(mention.first, mention.last + 1)}
        plain = all(key <= set(row.key) and row.path.endswith("…") for row in rows)
        return not plain or before == "the"

    def _label(self, one: Quantity) -> bool:
        """Whether the number is part of a name: "three-point", "5G", "first quarter".

        The numbers of a series of columns (q1, q2 …) are so beside the word of the series only.
        """
        beside = self.evidence.labels.get(one.value, frozenset())
        after = self.low(one.last + 1)
        if any(names(after, part) > 1 for part in beside):
            return True
        hyphen = after == "-" and self.low(one.last + 2) not in ("of", "for", "")
        noun = self.low(one.last + 1 + hyphen)
        close = bool(after) and self.tokens[one.last + 1].start == self.tokens[one.last].end
        labels = self.evidence.labels
        series = labels.get(1.0, frozenset()) & labels.get(2.0, frozenset())
        return (hyphen or close) and noun[:1].isalpha() and bool(beside - series)

    def low(self, at: int) -> str:
        """The casefolded token at a place, "" beyond the ends."""
        return self.tokens[at].low if 0 <= at < len(self.tokens) else ""

    def span(self, one: Quantity | Mention) -> tuple[int, int]:
        """The characters from the first to the last token."""
        return self.tokens[one.first].start, self.tokens[one.last].end

    @cached_property
    def starts(self) -> list[int]:
        """The first token of every sentence."""
        found = [0]
        for at, token in enumerate(self.tokens):
            gap = (
                self.text[token.end : self.tokens[at + 1].start]
                if at + 1 < len(self.tokens)
                else ""
            )
            ends = (token.low in _ENDS and gap) or "\n" in gap
            if ends or at - found[-1] >= LONGEST:
                found.append(at + 1)
        return found

    @cached_property
    def beginnings(self) -> frozenset[int]:
        """The first tokens of sentences, where a capital tells nothing."""
        return frozenset(self.starts)

    def sentence(self, at: int) -> tuple[int, int]:
        """The half-open range of tokens of the sentence that a token is in."""
        n = bisect_right(self.starts, at)
        return self.starts[n - 1], self.starts[n] if n < len(self.starts) else len(self.tokens)

    @cached_property
    def _numbered(self) -> dict[int, Quantity]:
        return {at: one for one in self.quantities for at in range(one.first, one.last + 1)}

    def after(self, one: Quantity) -> tuple[str, ...]:
        """The words after a number in its sentence, up to a break, a conjunction or a number."""
        found: list[str] = []
        _, end = self.sentence(one.last)
        for at in range(one.last + 1, min(end, one.last + 12)):
            low = self.low(at)
            number = self._numbered.get(at)
            if number and number.form != "article":
                found = found[: found.index("with")] if "with" in found else found
                break
            if low in _BREAKS or low in _CLAUSES:
                break
            if low[0].isalnum() or low == "%":
                found += split(low)
        return tuple(found[:PHRASE])

    def before(self, one: Quantity) -> tuple[str, ...]:
        """The words before a number in its sentence, the nearest first, back to a break or number.

        Signs that introduce the number ("MAE: 3", "**MAE** = 3", "MAE (3)") are no break, but for
        what stands in brackets after the name of a row.
        """
        found: list[str] = []
        start, _ = self.sentence(one.first)
        last = one.first - 1
        while last >= start and self.low(last) in _INTRODUCES:
            last -= 1
        if last in self._mentioned and last < one.first - 1:
            return ()
        for at in range(last, max(start - 1, one.first - 14), -1):
            low = self.low(at)
            if low in _BREAKS or at in self._numbered:
                break
            if low[0].isalnum():
                found += split(low)
        return tuple(found[: 2 * PHRASE])

    def words(self, at: int) -> tuple[str, ...]:
        """The words of the sentence that a token is in."""
        start, end = self.sentence(at)
        if start not in self._words:
            words = (token.low for token in self.tokens[start:end] if token.low[0].isalnum())
            self._words[start] = tuple(words)
        return self._words[start]

    def dates_in(self, start: int, end: int) -> list[Date]:
        """The dates that begin in a half-open range of tokens."""
        until = self.tokens[end - 1].end
        begins = self._dates_begin
        first = bisect_left(begins, self.tokens[start].start)
        return self.dates[first : bisect_left(begins, until)]

    @cached_property
    def _dates_begin(self) -> list[int]:
        return [date.start for date in self.dates]

    def within(self, start: int, end: int) -> list[Mention]:
        """The mentions that begin in a half-open range of tokens."""
        return self.mentions[bisect_left(self._begins, start) : bisect_left(self._begins, end)]

    @cached_property
    def _begins(self) -> list[int]:
        return [one.first for one in self.mentions]

    def numbers_in(self, start: int, end: int) -> list[Quantity]:
        """The numbers that begin in a half-open range of tokens."""
        return [q for at in range(start, end) if (q := self._numbered.get(at)) and q.first == at]

    def subjects(self, at: int) -> list[Mention]:
        """Whom what is said at a token is about, the likeliest first; of earlier sentences too."""
        if at not in self._subjects:
            self._subjects[at] = self._about(at)
        return self._subjects[at]

    def _about(self, at: int) -> list[Mention]:
        start, end = self.sentence(at)
        inside = [one for one in self.within(start, end) if one.rows]
        before = [one for one in inside if one.last < at]
        opens = self._bracket(at, start)
        close = [
            one
            for one in before
            if one.last == opens - 1 or (one.last == at - 2 and self.low(at - 1) == "'s")
        ]
        if close or before:
            direct = [one for one in before if not self._aside(one)]
            return close[-1:] or self._joined(direct, before) or before[-1:]
        if inside:
            return inside[:1]
        last = bisect_left(self._begins, start)
        earlier = [one for one in self.mentions[max(0, last - EARLIER) : last] if one.rows]
        direct = [one for one in earlier if not self._aside(one)]
        return (direct or earlier)[-1:]

    def _bracket(self, at: int, start: int) -> int:
        """The bracket that a token stands in, -1 in none."""
        for back in range(at - 1, max(start, at - BRACKET) - 1, -1):
            if self.low(back) in "()":
                return back if self.low(back) == "(" else -1
        return -1

    def _joined(self, direct: Sequence[Mention], before: Sequence[Mention]) -> list[Mention]:
        """The last, the one that "and" joins to it, and the nearest of rows of another table."""
        last = list(direct[-1:])
        if len(direct) > 1 and self.low(direct[-1].first - 1) in ("and", "&"):
            last.append(direct[-2])
        here = {row.table for one in last for row in one.rows}
        other = [one for one in before if not here & {row.table for row in one.rows}]
        return [*last, *other[-1:]] if last else []

    def _aside(self, one: Mention) -> bool:
        """Whether a preposition makes the mention an aside: "for the Hawks", "against Smith"."""
        at = one.first - 1
        while self.low(at) in ("the", "a", "host", "visiting", "rival"):
            at -= 1
        return self.low(at) in _ASIDE

    def pairs(self) -> Iterator[Pair]:
        """Neighbouring numbers that a dash, "of" or "from … to" joins; none is in two pairs."""
        taken = -1
        for one, two in zip(self.quantities, self.quantities[1:], strict=False):
            between = [self.low(at) for at in range(one.last + 1, two.first)]
            joined = "".join(word for word in between if word not in "-–")
            if one.first <= taken or not between or {one.form, two.form} & {"article", "set"}:
                continue
            if between[-1] == "to" and self.low(one.first - 1) == "from" and len(between) < 4:
                yield Pair(one, two, "to")
                taken = two.last
            elif (
                joined in ("of", "for") and len(between) < 4 and ("-" in between or joined == "of")
            ):
                yield Pair(one, two, "of")
                taken = two.last
            elif not joined and one.form == two.form == "digits":
                yield Pair(one, two, "-")
                taken = two.last


def split(low: str) -> tuple[str, ...]:
    """A word, and its parts where digits are among its letters: "q1" is the first q."""
    return parts(low) if any(map(str.isdigit, low)) and low[0].isalpha() else (low,)


def rows_of(found: Sequence[Mention]) -> list[Record]:
    """The rows that some mentions name, each once."""
    return list({id(row): row for one in found for row in one.rows}.values())
