"""Split a text into sentences, find their claims, and judge each claim by the evidence.

A claim is judged by rules, and no model is asked. `sentences` splits the text and finds
in each sentence what it is about: the tokens, the dates, and the mentions, which are
words that name rows of the evidence. `claims` then applies five rules to a sentence:

- `_number_claims`: each number is bound to cells of the evidence. Its rows are the last
  ones named before it; the words around it name its columns. A number that a cell
  rounds to is supported, any other bound number is contradicted. A number without cells
  is supported if it occurs anywhere in the evidence.
- `_date_claims`: weekdays and dates have to agree with a date of the evidence.
- `_name_claims`: capitalised words have to occur in the evidence.
- `_extreme_claims`: "the lowest RMSE" has to belong to the named row.
- `_statement_claims`: a sentence that shares few words with the evidence is not found.
"""

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import Literal

from heedful.checks.claims import words
from heedful.checks.claims.evidence import Cell, Evidence, EvidenceRow, Mention, Words
from heedful.checks.claims.words import (
    STOP_WORDS,
    WEEKDAY_NUMBERS,
    Date,
    Quantity,
    Token,
    likeness,
    split_name,
)

Kind = Literal["number", "date", "name", "comparison", "statement"]
Verdict = Literal["supported", "contradicted", "not found"]
MAX_SENTENCE_TOKENS = 200  # a sentence with more tokens is split
MAX_PHRASE_WORDS = 6
MAX_PHRASE_TOKENS = 12  # the most tokens that a phrase spans
MAX_LINKED_PHRASE_WORDS = 4
MAX_CLAIM_PATHS = 3
# The least share of the words of a sentence that must be in the evidence. These values
# agree best with people on 984 texts about data and 376 about prose.
MIN_PROSE_WORD_SHARE = 0.5
MIN_DATA_WORD_SHARE = 0.2
MIN_STATEMENT_WORDS = 3
_SENTENCE_ENDS = frozenset(".!?;\n。！？")
# The phrase that names a column ends before these; "" is the end of the sentence.
_PHRASE_BREAKS = frozenset(
    ("", *".,!?;)[]", *"and but while whereas although which who".split())
)
# These follow the name of a number's column: "an RMSE of 3".
_NUMBER_LINKS = frozenset("of is was at : =".split())
# After these, a number is a change or a unit.
_CHANGE_PREPOSITIONS = frozenset("by from to per".split())
# Between two numbers that are written as one: "113 - 107", "3 of 5".
_NUMBER_JOINERS = frozenset("- – of for".split())
_MAX_JOINING_TOKENS = 3
_MAXIMUM_WORDS = frozenset(
    "highest largest greatest biggest most maximum longest heaviest".split()
)
_MINIMUM_WORDS = frozenset(
    "lowest smallest least fewest minimum shortest lightest".split()
)


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

    `topic` are the last rows of the evidence named before this sentence.
    """

    text: str
    tokens: Sequence[Token]
    dates: Sequence[Date]
    evidence: Evidence
    topic: Sequence[EvidenceRow]

    @cached_property
    def lows(self) -> list[str]:
        """The tokens in lower case."""
        return [token.low for token in self.tokens]

    @cached_property
    def mentions(self) -> list[Mention]:
        """The tokens that name rows of the evidence, with these rows."""
        return list(self.evidence.mentions(self.tokens))

    @cached_property
    def dated(self) -> set[int]:
        """The positions of the tokens that are part of a date."""
        positions: set[int] = set()
        for date in self.dates:
            for position, token in enumerate(self.tokens):
                if date.start <= token.start < date.end:
                    positions.add(position)
        return positions

    @cached_property
    def quantities(self) -> list[Quantity]:
        """The numbers that are not part of a date or of the name of a row or column."""
        other_positions = set(self.dated)
        for mention in self.mentions:
            other_positions.update(range(mention.first, mention.last + 1))
        return [
            quantity
            for quantity in words.quantities(self.tokens)
            if quantity.first not in other_positions and not self._is_label(quantity)
        ]

    @cached_property
    def _numbered(self) -> set[int]:
        """The positions of the tokens that are part of a number."""
        positions: set[int] = set()
        for quantity in self.quantities:
            positions.update(range(quantity.first, quantity.last + 1))
        return positions

    def low(self, position: int) -> str:
        """Return the token at a position in lower case, or "" beyond the ends."""
        return self.lows[position] if 0 <= position < len(self.lows) else ""

    def is_name(self, position: int) -> bool:
        """Return whether the token at a position is a capitalised word, not a date."""
        token = self.tokens[position]
        return (
            token.kind == "word"
            and token.text[0].isupper()
            and position not in self.dated
            and token.low not in STOP_WORDS
            and token.low not in WEEKDAY_NUMBERS
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

        after = quantity.last + 1
        noun = ""
        if self.low(after) == "-" and self.low(after + 1) not in ("of", "for"):
            noun = self.low(after + 1)
        elif after < len(self.tokens):
            has_gap = self.tokens[after].start > self.tokens[quantity.last].end
            noun = "" if has_gap else self.low(after)

        return noun[:1].isalpha()

    def phrase(self, first: int, step: Literal[1, -1]) -> Words:
        """Return the words from the token `first` on, up to a break or a number.

        With a `step` of -1 the words are read backwards.
        """
        phrase_words: list[str] = []
        for position in range(first, first + step * MAX_PHRASE_TOKENS, step):
            low = self.low(position)
            if position in self._numbered or low in _PHRASE_BREAKS:
                break

            if low[0].isalpha() and any(map(str.isdigit, low)):  # "q1" is "q" and "1"
                phrase_words += split_name(low)
            elif low[0].isalnum():
                phrase_words.append(low)

        return tuple(phrase_words[:MAX_PHRASE_WORDS])

    def subject(self, position: int) -> list[EvidenceRow]:
        """Return the rows that the token at a position is about, the likeliest first.

        These are the rows of the last mention before the token, then the rows of the
        last mention of another table. If no mention is before the token, they are the
        rows of `topic`.
        """
        earlier = [mention for mention in self.mentions if mention.last < position]
        if not earlier:
            return list(self.topic)

        rows = list(earlier[-1].rows)
        tables = {row.table for row in rows}
        for mention in reversed(earlier):
            if tables.isdisjoint(row.table for row in mention.rows):
                rows += mention.rows
                break

        return list(dict.fromkeys(rows))


def sentences(text: str, evidence: Evidence) -> Iterator[Sentence]:
    """Yield the sentences of a text, with the rows that they name."""
    tokens = evidence.lexicon.read(words.tokenize(text))
    dates = list(words.dates(text))
    topic: Sequence[EvidenceRow] = ()
    start = 0
    first_date = 0
    for end, token in enumerate(tokens, 1):
        gap = "\n"  # the end of the text ends a line too
        if end < len(tokens):
            gap = text[token.end : tokens[end].start]

        is_end = (token.low in _SENTENCE_ENDS and gap) or "\n" in gap
        if not is_end and end - start < MAX_SENTENCE_TOKENS:
            continue

        next_date = first_date
        while next_date < len(dates) and dates[next_date].start < token.end:
            next_date += 1
        sentence = Sentence(
            text=text,
            tokens=tokens[start:end],
            dates=dates[first_date:next_date],
            evidence=evidence,
            topic=topic,
        )
        yield sentence

        if sentence.mentions:
            topic = sentence.mentions[-1].rows
        start = end
        first_date = next_date


def claims(sentence: Sentence) -> Iterator[Claim]:
    """Yield the claims of a sentence."""
    for rule in (
        _number_claims,
        _date_claims,
        _name_claims,
        _extreme_claims,
        _statement_claims,
    ):
        yield from rule(sentence)


def _number_claims(sentence: Sentence) -> Iterator[Claim]:
    """Yield a claim for each number in digits, and each that refers to cells."""
    waiting = sentence.quantities[::-1]
    while waiting:
        quantity = waiting.pop()

        if waiting and _are_joined(sentence, quantity, waiting[-1]):
            second = waiting.pop()
            cell, second_cell = _paired_cells(sentence, quantity, second)
            yield _judge_number(sentence, quantity, cell)
            yield _judge_number(sentence, second, second_cell)
            continue

        cells = _referred_cells(sentence, quantity)
        if cells or quantity.digits:
            yield _judge_number(sentence, quantity, cells)


def _are_joined(sentence: Sentence, quantity: Quantity, second: Quantity) -> bool:
    """Return whether two numbers are written as one: "113 - 107", "3 of 5"."""
    between = sentence.lows[quantity.last + 1 : second.first]
    is_short = 0 < len(between) <= _MAX_JOINING_TOKENS
    return is_short and _NUMBER_JOINERS.issuperset(between)


def _judge_number(
    sentence: Sentence, quantity: Quantity, cells: Sequence[Cell]
) -> Claim:
    """Compare a number with `cells`, or with all evidence if there are none."""
    if not cells:
        return _search_number(sentence, quantity)

    verdict: Verdict = "contradicted"
    fitting_cells = [cell for cell in cells if quantity.fits(cell.value)]
    if fitting_cells:
        verdict = "supported"
        cells = fitting_cells

    values = [cell.value for cell in cells]
    nearest = min(values, key=lambda value: abs(value - quantity.value))
    return sentence.claim(
        "number",
        verdict,
        first=quantity.first,
        last=quantity.last,
        why="compared with its row and column",
        paths=tuple(cell.path for cell in cells[:MAX_CLAIM_PATHS]),
        nearest=f"{nearest:g}",
    )


def _search_number(sentence: Sentence, quantity: Quantity) -> Claim:
    """Return the claim that a number occurs anywhere in the evidence."""
    value = abs(quantity.value)
    half_step = quantity.step / 2

    verdict: Verdict = "not found"
    why = "occurs nowhere in the evidence"
    if sentence.evidence.holds(value - half_step, value + half_step):
        verdict = "supported"
        why = "occurs in the evidence"

    return sentence.claim(
        "number", verdict, first=quantity.first, last=quantity.last, why=why
    )


def _referred_cells(sentence: Sentence, quantity: Quantity) -> list[Cell]:
    """Return the cells that a number may refer to.

    Their rows are those of the subject of the number, or else those with the date of
    the sentence (if it has only one date), or else those that are alone in their
    tables, if the words give the whole name of a column. The columns are named by the
    words before "of" ("an RMSE of 3"), or else by the words after or before the number.
    """
    evidence = sentence.evidence
    dated_rows: list[EvidenceRow] = []
    if len(sentence.dates) == 1:
        dated_rows = evidence.on(sentence.dates[0])

    phrases = _column_phrases(sentence, quantity)
    for rows, by_whole_name in (
        (sentence.subject(quantity.first), False),
        (dated_rows, False),
        (evidence.singles, True),
    ):
        for phrase in phrases:
            cells = _named_cells(evidence, rows, phrase, by_whole_name=by_whole_name)
            if cells:
                in_table = [cell for cell in cells if _names_table(sentence, cell.row)]
                return in_table or cells

    return []


def _column_phrases(sentence: Sentence, quantity: Quantity) -> list[Words]:
    """Return the phrases that may name the column of a number, the likeliest first."""
    previous_word = sentence.low(quantity.first - 1)
    before = sentence.phrase(quantity.first - 1, -1)
    after = sentence.phrase(quantity.last + 1, 1)

    phrases = []
    if previous_word in _NUMBER_LINKS:
        phrases.append(before[:MAX_LINKED_PHRASE_WORDS])
    if previous_word not in _CHANGE_PREPOSITIONS:
        phrases.append(after or before)

    return phrases


def _named_cells(
    evidence: Evidence,
    rows: Sequence[EvidenceRow],
    phrase: Words,
    *,
    by_whole_name: bool,
) -> list[Cell]:
    """Return the numbers of the rows in the columns that a phrase names."""
    cells = []
    for row in rows:
        for column in evidence.tables[row.table].bind(phrase, whole=by_whole_name):
            value = row.number(column)
            if value is not None:
                cells.append(Cell(value, row, column))
    return cells


def _names_table(sentence: Sentence, row: EvidenceRow) -> bool:
    """Return whether a word of the sentence names the table of the row."""
    for name in row.table:
        for part in split_name(name):
            if any(likeness(word, part) == 3 for word in sentence.lows):
                return True
    return False


def _paired_cells(
    sentence: Sentence, quantity: Quantity, second: Quantity
) -> tuple[list[Cell], list[Cell]]:
    """Return the two cells of a `Lexicon` pair whose name follows the numbers.

    Each is in a list of its own; both lists are empty without such a pair.
    """
    best: tuple[list[Cell], list[Cell]] = ([], [])
    best_score = -1
    for terms, columns in _named_pairs(sentence, quantity, second):
        for row in sentence.subject(quantity.first):
            cell = row.named(columns[0])
            second_cell = row.named(columns[1])
            if cell is None or second_cell is None:
                continue

            # The longest name wins, then the row that has the numbers.
            score = 3 * len(terms)
            if quantity.fits(cell.value):
                score += 1
            if second.fits(second_cell.value):
                score += 1

            if score > best_score:
                best_score = score
                best = ([cell], [second_cell])

    return best


def _named_pairs(
    sentence: Sentence, quantity: Quantity, second: Quantity
) -> Iterator[tuple[list[str], Sequence[str]]]:
    """Yield the words of the name and the two columns of each `Lexicon` pair that fits.

    Its name follows the numbers, or is "" and the numbers are in parentheses.
    """
    phrase = sentence.phrase(second.last + 1, 1)
    before = sentence.low(quantity.first - 1)
    after = sentence.low(second.last + 1)
    in_parentheses = before == "(" and after == ")"

    for name, columns in sentence.evidence.lexicon.pairs.items():
        terms = name.casefold().split()
        fits = all(_has_like_word(phrase, term) for term in terms)
        if fits and (terms or in_parentheses):
            yield terms, columns


def _has_like_word(phrase: Words, term: str) -> bool:
    """Return whether a word of the phrase is like the term."""
    return any(likeness(word, term) > 1 for word in phrase)


def _date_claims(sentence: Sentence) -> Iterator[Claim]:
    """Yield a claim for each weekday and date.

    It is supported if the evidence has a matching date.
    """
    evidence = sentence.evidence
    for token in sentence.tokens:
        if token.low in WEEKDAY_NUMBERS and token.text[0].isupper():
            number = WEEKDAY_NUMBERS[token.low]
            supported = number in evidence.weekdays or token.low in evidence.words
            yield _date_claim(sentence, token, supported=supported)

    for date in sentence.dates:
        yield _date_claim(sentence, date, supported=bool(evidence.on(date)))


def _date_claim(sentence: Sentence, date: Token | Date, *, supported: bool) -> Claim:
    """Return the claim of a weekday or date."""
    dates_count = len(sentence.evidence.dates)
    verdict: Verdict = "contradicted" if dates_count else "not found"
    if supported:
        verdict = "supported"
    return Claim(
        (date.start, date.end),
        sentence.text[date.start : date.end],
        kind="date",
        verdict=verdict,
        why=f"compared with {dates_count} dates in the evidence",
    )


def _name_claims(sentence: Sentence) -> Iterator[Claim]:
    """Yield a claim for each capitalised name that the evidence does not contain.

    After "the" or "to" the verdict is "contradicted", because the evidence should
    contain such a name; otherwise it is "not found".
    """
    # The first word of a sentence always has a capital.
    for are_names, run in groupby(range(1, len(sentence.tokens)), sentence.is_name):
        positions = list(run)
        first = positions[0]
        last = positions[-1]
        lows = sentence.lows[first : last + 1]
        if not are_names or all(map(sentence.evidence.knows_name, lows)):
            continue

        before = sentence.low(first - 1)
        is_place = sentence.low(first - 2) in ("at", "in", "from")
        verdict: Verdict = "not found"
        if before == "to" or (before == "the" and not is_place):
            verdict = "contradicted"

        yield sentence.claim(
            "name", verdict, first=first, last=last, why="not named in the evidence"
        )


def _statement_claims(sentence: Sentence) -> Iterator[Claim]:
    """Yield the sentence as one claim if few of its words are in the evidence."""
    evidence = sentence.evidence
    stems = words.content_stems(
        token.low for token in sentence.tokens if token.kind == "word"
    )
    shared = sum(map(evidence.knows, stems))
    share = MIN_PROSE_WORD_SHARE if evidence.prose else MIN_DATA_WORD_SHARE
    if len(stems) >= MIN_STATEMENT_WORDS and shared < share * len(stems):
        yield sentence.claim(
            "statement",
            "not found",
            first=0,
            last=len(sentence.tokens) - 1,
            why=f"{shared} of its {len(stems)} words are in the evidence",
        )


def _extreme_claims(sentence: Sentence) -> Iterator[Claim]:
    """Yield a claim for each superlative about the only rows that are named."""
    if len(sentence.mentions) != 1:
        return

    rows = sentence.mentions[0].rows
    for position, low in enumerate(sentence.lows):
        if low not in _MAXIMUM_WORDS and low not in _MINIMUM_WORDS:
            continue

        phrase = sentence.phrase(position + 1, 1)
        for row in rows:
            claim = _extreme_claim(sentence, position, row, phrase)
            if claim is not None:
                yield claim
                break


def _extreme_claim(
    sentence: Sentence, position: int, row: EvidenceRow, phrase: Words
) -> Claim | None:
    """Return the claim that the row has the highest or lowest number of its table.

    None is returned if the words after the superlative do not name one column.
    """
    table = sentence.evidence.tables[row.table]
    columns = table.bind(phrase, whole=True)
    if len(columns) != 1 or len(table.rows) < 2:
        return None

    number = row.number(columns[0])
    if number is None:
        return None

    cells = _named_cells(sentence.evidence, table.rows, phrase, by_whole_name=True)
    choose = max if sentence.lows[position] in _MAXIMUM_WORDS else min
    extreme = choose(cells, key=attrgetter("value"))
    verdict: Verdict = "supported" if number == extreme.value else "contradicted"

    return sentence.claim(
        "comparison",
        verdict,
        first=position,
        last=position + 1,
        nearest=extreme.row.title,
        why=f"{extreme.row.title} has {extreme.value:g}, {row.title} {number:g}",
    )
