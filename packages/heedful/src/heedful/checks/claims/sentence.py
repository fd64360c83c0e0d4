"""Split a text into sentences, and find what each is about.

A `Sentence` has the tokens, the dates, and the mentions: words and dates that name rows
of the evidence. It says which rows a number is about, which words may name its column,
and makes the claims that `figures` and `heedful.checks.claims` judge.
"""

from bisect import bisect_left
from collections.abc import Container, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from itertools import chain, count
from operator import attrgetter
from typing import Literal

from heedful.checks.claims import text_parts
from heedful.checks.claims.evidence import Evidence, EvidenceRow, Mention, Path, Words
from heedful.checks.claims.text_parts import (
    WORDS,
    Date,
    Quantity,
    Token,
    is_stop_word,
    is_weekday,
    likeness_in,
    split_name,
)

Kind = Literal["number", "date", "name", "comparison", "statement"]
Verdict = Literal["supported", "contradicted", "not found"]
# Between a number and the words before it: "amount of 5", "page no. 5".
_LABEL_LINKS = frozenset(("of", "is", "was", "are", "were", "no", ":", "="))
# Between a word such as "report" and a date.
_DATE_LINKS = frozenset(("of", "on", "vom", ":", ",", "("))
MAX_SENTENCE_TOKENS = 200  # a sentence with more tokens is split
MAX_PHRASE_WORDS = 6
MIN_STATEMENT_WORDS = 3
_SENTENCE_ENDS = frozenset(".!?;\n")  # before a space
_DENSE_SENTENCE_ENDS = frozenset("。！？｡")  # of Chinese and Japanese
# The phrase that names a column ends before these; "" is the end of the sentence.
_BREAK_SIGNS = frozenset(("", *".,!?;)[]"))


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim in a text, at the characters `span` (end excluded), and its verdict.

    `paths` are the places in the evidence with which the claim was compared. `nearest`
    is the true value nearest to the claim, as text, or "". `why` explains the verdict
    in a few words.
    """

    span: tuple[int, int]
    text: str
    _: KW_ONLY
    kind: Kind
    verdict: Verdict
    paths: tuple[str, ...] = ()
    nearest: str = ""
    why: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Sentence:
    """A sentence of `text`, with its tokens and dates, and the evidence for its claims.

    `topic` are the last rows of the evidence named before this sentence. `header` are
    the tokens of the cells above this line of a table. `decimal` is the decimal sign of
    the text.
    """

    text: str
    tokens: Sequence[Token]
    dates: Sequence[Date]
    evidence: Evidence
    topic: Sequence[EvidenceRow]
    header: Sequence[Sequence[Token]] = field(default=())
    decimal: str = "."

    @cached_property
    def lows(self) -> list[str]:
        """The tokens in lower case."""
        return [token.low for token in self.tokens]

    @cached_property
    def names(self) -> list[Mention]:
        """The names of rows, with these rows."""
        return list(self.evidence.mentions(self.tokens))

    @cached_property
    def mentions(self) -> list[Mention]:
        """The names and dates of rows, with these rows, in order."""
        mentions = list(self.names)
        last = len(self.lows)
        for date in self.dates:
            positions = self._positions(date)
            if not positions:
                continue

            between = self.lows[last + 1 : positions[0]]
            last = positions[-1]
            # The two ends of a span, as of "May to June", name no row.
            if len(between) == 1 and between != [","]:
                mentions.pop()
            else:
                mentions.append(Mention(positions[0], last, self._rows_at(date)))
        with_rows = [mention for mention in mentions if mention.rows]
        return sorted(with_rows, key=attrgetter("first"))

    def _rows_at(self, date: Date) -> list[EvidenceRow]:
        """Return the rows of a date, each once."""
        rows = (row for day, row in self.evidence.dates if day.agrees(date))
        return list(dict.fromkeys(rows))

    @cached_property
    def compared(self) -> list[Mention]:
        """What a comparison is about, in order: the names of rows, or else the dates of
        one row of a table.
        """
        if self.names:
            return self.names
        mentions: list[Mention] = []
        for date in self.stated_dates:
            positions = self._positions(date)
            rows = self._rows_at(date)
            tables = {row.table for row in rows}
            if positions and rows and len(tables) == len(rows):
                mentions.append(Mention(positions[0], positions[-1], rows))
        return mentions

    def _positions(self, date: Date) -> list[int]:
        """Return the positions of the tokens of a date."""
        return [
            position
            for position, token in enumerate(self.tokens)
            if date.start <= token.start < date.end
        ]

    @cached_property
    def stated_dates(self) -> list[Date]:
        """The dates, without those of the text itself.

        Such a date stands alone, or behind words such as "report of" and "as of".
        """
        return [date for date in self.dates if not self._is_of_text(date)]

    def _is_of_text(self, date: Date) -> bool:
        """Return whether a date says when the text was written."""
        positions = self._positions(date)
        is_alone = all(
            token.kind == "sign" or position in positions
            for position, token in enumerate(self.tokens)
        )
        if is_alone:
            return True
        before = self.lows[: positions[0]] if positions else []
        while before and before[-1] in _DATE_LINKS:
            before.pop()
        return bool(before) and _dates_text(before[-1])

    @cached_property
    def dated(self) -> set[int]:
        """The positions of the tokens that are part of a date."""
        return set(chain.from_iterable(map(self._positions, self.dates)))

    @cached_property
    def quantities(self) -> list[Quantity]:
        """The numbers that are not part of a date or of the name of a row or column.

        The number of an item of a list is left out, too.
        """
        other_positions = set(self.dated)
        for mention in self.names:
            other_positions.update(range(mention.first, mention.last + 1))
        if self._is_list_item:
            other_positions.add(0)
        return [
            quantity
            for quantity in text_parts.quantities(self.tokens)
            if quantity.first not in other_positions
            and not self._is_label(quantity)
            and not self._is_week_of_text(quantity)
        ]

    def _is_week_of_text(self, quantity: Quantity) -> bool:
        """Return whether a number says in which week the text was written."""
        if self.low(quantity.first - 1) not in WORDS.words("week"):
            return False
        before = self.lows[: quantity.first - 1]
        return len(self.tokens) == 2 or any(map(_dates_text, before))

    @property
    def _is_list_item(self) -> bool:
        """Whether the sentence begins with the number of an item: "1. Berlin"."""
        is_whole_text = self.span[1] >= len(self.text.rstrip())
        is_alone = len(self.tokens) == 2 and self.low(1) == "." and not is_whole_text
        return is_alone or (self.low(1) == ")" and len(self.tokens) > 2)

    @cached_property
    def _numbered(self) -> set[int]:
        """The positions of the tokens that are part of a number, but not of a year."""
        figures = [quantity for quantity in self.quantities if not quantity.is_year]
        ranges = (range(figure.first, figure.last + 1) for figure in figures)
        return set(chain.from_iterable(ranges))

    def low(self, position: int) -> str:
        """Return the token at a position in lower case, or "" beyond the ends."""
        return self.lows[position] if 0 <= position < len(self.lows) else ""

    def figure(self, value: float) -> str:
        """Return a number as this text writes it."""
        return text_parts.figure(value, self.decimal)

    def is_name(self, position: int) -> bool:
        """Return whether the token at a position is a capitalised word, not a date."""
        token = self.tokens[position]
        return (
            token.kind == "word"
            and token.text[0].isupper()
            and position not in self.dated
            and not is_stop_word(token.low)
            and not is_weekday(token.low)
        )

    @property
    def span(self) -> tuple[int, int]:
        """The start and the end of the sentence in the text, in characters."""
        return self.tokens[0].start, self.tokens[-1].end

    def claim(
        self,
        kind: Kind,
        verdict: Verdict,
        *,
        first: int,
        last: int,
        why: str,
        paths: tuple[str, ...] = (),
        nearest: str = "",
    ) -> Claim:
        """Return a claim about the tokens `first` to `last` (both included)."""
        start = self.tokens[first].start
        end = self.tokens[last].end
        return Claim(
            (start, end),
            self.text[start:end],
            kind=kind,
            verdict=verdict,
            paths=paths,
            nearest=nearest,
            why=why,
        )

    def _is_label(self, quantity: Quantity) -> bool:
        """Return whether a number is part of a column name: "three-point", "5G"."""
        if quantity.value not in self.evidence.labels:
            return False
        if quantity.is_year:
            return True

        after = quantity.last + 1
        noun = ""
        if self.low(after) == "-" and self.low(after + 1) not in ("of", "for"):
            noun = self.low(after + 1)
        elif after < len(self.tokens):
            has_gap = self.tokens[after].start > self.tokens[quantity.last].end
            noun = "" if has_gap else self.low(after)

        return noun[:1].isalpha()

    def phrase(
        self, first: int, step: Literal[1, -1], without: Container[int] = ()
    ) -> Words:
        """Return the words from the token `first` on, up to a break or a number.

        With a `step` of -1 the words are read backwards. The tokens at the positions
        `without` are skipped.
        """
        phrase_words: list[str] = []
        for position in count(first, step):
            low = self.low(position)
            if position in self._numbered or _is_break(low):
                break

            if position in without:
                continue
            if low[0].isalpha() and any(map(str.isdigit, low)):  # "q1" is "q" and "1"
                phrase_words += split_name(low)
            elif low[0].isalnum():
                phrase_words.append(low)

        return tuple(phrase_words[:MAX_PHRASE_WORDS])

    @cached_property
    def _labels(self) -> dict[int, range]:
        """The positions of the words directly before each figure, the nearest first.

        They are given by the position of the figure: a number in digits, which may be
        the name of a row, such as a year. A word directly behind a number is not the
        label of the next one: "24 beds 21".
        """
        places = {quantity.first for quantity in self.quantities}
        places |= {mention.first for mention in self.names}
        figures = {place for place in places if self.tokens[place].kind == "number"}
        labels: dict[int, range] = {}
        for figure in sorted(figures):
            last = figure - 1
            while self.low(last) in _LABEL_LINKS:
                last -= 1
            before = last
            while self._may_label(before):
                before -= 1
            if before in figures or before in self._numbered:
                last = before
            labels[figure] = range(last, before, -1)
        return labels

    def _may_label(self, position: int) -> bool:
        """Return whether a token is a word with a meaning, and no part of a number."""
        low = self.low(position)
        is_word = low[:1].isalpha() and not is_stop_word(low)
        return is_word and position not in self._numbered

    def label(self, quantity: Quantity) -> Words:
        """Return the words directly before a number, the nearest first: "page 14"."""
        positions = self._labels.get(quantity.first, ())
        parts = [split_name(self.lows[position]) for position in positions]
        return tuple(chain.from_iterable(parts))

    def other_labels(self, quantity: Quantity) -> set[int]:
        """Return the positions of the words directly before the other figures."""
        others = [place for place in self._labels if place != quantity.first]
        return set(chain.from_iterable(self._labels[place] for place in others))

    @cached_property
    def words(self) -> Words:
        """All words, and the numbers that are not quantities."""
        return self.words_without(())

    def words_without(self, positions: Container[int]) -> Words:
        """Return `words` without those of the tokens at some positions."""
        sentence_words: list[str] = []
        for position, token in enumerate(self.tokens):
            is_number = token.kind == "number" and position not in self._numbered
            if (token.kind == "word" or is_number) and position not in positions:
                sentence_words += split_name(token.low)
        return tuple(sentence_words)

    @cached_property
    def content_stems(self) -> list[str]:
        """The stems of the words, without words of scale, rising or falling."""
        return text_parts.content_stems(
            token.low
            for token in self.tokens
            if token.kind == "word"
            and not text_parts.scale_of(token.low)
            and not text_parts.direction([token.low])
        )

    @property
    def is_statement(self) -> bool:
        """Whether the sentence has enough words to be judged by its words."""
        return len(self.content_stems) >= MIN_STATEMENT_WORDS

    def columns(self, table: Path) -> list[Path]:
        """Return the columns of a table that the sentence names with all their parts.

        A table with one column needs no name for it.
        """
        columns = self.evidence.tables[table].columns
        if len(columns) == 1:
            return list(columns)
        return [
            column
            for column, parts in columns.items()
            if parts and all(likeness_in(self.words, part) for part in parts)
        ]

    def attached(self, quantity: Quantity) -> Mention | None:
        """Return the mention that a number is tied to: "266 in Bern", "Bern: 266"."""
        later = [m for m in self.mentions if m.first > quantity.last]
        if later:
            lows = self.lows[quantity.last + 1 : later[0].first]
            if any(map(is_stop_word, lows)) and not any(map(_is_break, lows)):
                return later[0]

        earlier = [m for m in self.mentions if m.last < quantity.first]
        if earlier:
            lows = self.lows[earlier[-1].last + 1 : quantity.first]
            is_link = all(is_stop_word(low) or not low[0].isalnum() for low in lows)
            if is_link and not any(map(_is_break, lows)):
                return earlier[-1]
        return None

    def subject(self, quantity: Quantity) -> list[EvidenceRow]:
        """Return the rows that a number is about, the likeliest first.

        The mention that the number is tied to counts first, then the last one before
        it, then the first name after it; then the rows of `topic`. Other mentions leave
        of these rows those that they name, too. The rows of the next mention of another
        table follow.
        """
        earlier = [m for m in self.mentions if m.last < quantity.first]
        later = [m for m in self.names if m.first > quantity.last]
        ordered = [*reversed(earlier), *later]
        attached = self.attached(quantity)
        if attached is not None:
            ordered.insert(0, attached)
        if not ordered:
            return list(self.topic)

        rows = list(ordered[0].rows)
        for mention in ordered[1:]:
            named_rows = set(mention.rows)
            shared_tables = {row.table for row in rows if row in named_rows}
            rows = [
                row
                for row in rows
                if row in named_rows or row.table not in shared_tables
            ]

        tables = {row.table for row in rows}
        for mention in reversed(earlier):
            if tables.isdisjoint(row.table for row in mention.rows):
                rows += mention.rows
                break
        return list(dict.fromkeys(rows))


def _dates_text(low: str) -> bool:
    """Return whether a date after a word is that of the text."""
    is_report = WORDS.pattern("report", after=r"\Z").search(low)
    return bool(is_report) or low in WORDS.words("dating")


def _is_break(low: str) -> bool:
    """Return whether a phrase ends before a token in lower case."""
    return low in _BREAK_SIGNS or low in WORDS.words("break")


def sentences(
    text: str, evidence: Evidence, *, decimal: str = "."
) -> Iterator[Sentence]:
    """Yield the sentences of a text, with the rows that they name.

    `decimal` is the decimal sign of the text.
    """
    tokens = evidence.lexicon.read(text_parts.tokenize(text, decimal))
    dates = list(text_parts.dates(text))
    if not evidence.has_times:  # "3:15" may be a ratio
        dates = [date for date in dates if date.hour is None]
    dates.sort(key=attrgetter("start"))

    topic: Sequence[EvidenceRow] = ()
    header: Sequence[Sequence[Token]] = ()
    start = 0
    first_date = 0
    for end, token in enumerate(tokens, 1):
        # The end of the text ends a line too.
        gap = text[token.end : tokens[end].start] if end < len(tokens) else "\n"
        is_end = (token.low in _SENTENCE_ENDS and gap) or "\n" in gap
        is_end = is_end or token.text in _DENSE_SENTENCE_ENDS
        if not is_end and end - start < MAX_SENTENCE_TOKENS:
            continue

        next_date = bisect_left(dates, token.end, key=attrgetter("start"))
        is_in_date = next_date > first_date and dates[next_date - 1].end > token.end
        if is_in_date and "\n" not in gap:  # the point of "Jan. 4"
            continue

        is_row = tokens[start].low == "|"
        sentence = Sentence(
            text=text,
            tokens=tokens[start:end],
            dates=dates[first_date:next_date],
            evidence=evidence,
            topic=topic,
            header=header if is_row else (),
            decimal=decimal,
        )
        yield sentence

        if not is_row:
            header = ()
        elif not header:
            header = table_cells(sentence.tokens)
        if sentence.names:
            topic = sentence.names[-1].rows
        start = end
        first_date = next_date


def table_cells(tokens: Sequence[Token]) -> list[list[Token]]:
    """Return the tokens of the cells in a line of a table; the first is empty."""
    cells: list[list[Token]] = [[]]
    for token in tokens:
        if token.low == "|":
            cells.append([])
        else:
            cells[-1].append(token)
    return cells
