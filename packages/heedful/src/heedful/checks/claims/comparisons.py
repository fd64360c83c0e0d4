"""Judge what a sentence says of rows and columns without a number.

- A superlative ("the lowest RMSE") or a lead ("North leads") is true if no row of the
  table goes beyond the row that is named.
- An order ("North earned more than South") is true if the numbers of the two rows are
  in this order.
- A trend ("sales fell") is true if the last number in time lies on that side of the
  first, and a steady one ("every month") if each step does.

A date of one row names it. The words name the column; a table with one column of
numbers needs no name for it. Each table that has the rows and the column judges; where
none does, or two disagree, an order, a lead or a trend is not found.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from operator import attrgetter

from heedful.checks.claims import text_parts
from heedful.checks.claims.evidence import (
    Cell,
    EvidenceRow,
    EvidenceTable,
    Mention,
    Path,
    rows_of,
)
from heedful.checks.claims.sentence import Claim, Sentence, Verdict
from heedful.checks.claims.text_parts import WORDS, is_stop_word, meaning, stem, stems
from heedful.loop.similarity import is_negation

# What "highest" or "leads" means: the function that chooses its cell.
_EXTREMES: Mapping[str, Callable[..., Cell]] = {"max": max, "min": min}
_SIGNS: Mapping[str, int] = {"max": 1, "min": -1}
# Stop words of English that are words of other languages too.
_SHARED_WORDS = frozenset(("a", "an", "as", "in", "me", "no", "so", "will"))


def comparison_claims(sentence: Sentence) -> Iterator[Claim]:
    """Yield the superlatives, leads, orders and trends of a sentence.

    A sentence that is not English may compare in words that are not known.
    """
    comparisons = list(_superlative_claims(sentence))
    if not sentence.evidence.prose:
        comparisons += _lead_claims(sentence)
        comparisons += _order_claims(sentence)
        comparisons += _trend_claims(sentence)
        if not comparisons and _may_compare(sentence):
            span = (0, len(sentence.tokens) - 1)
            comparisons.append(_unjudged_claim(sentence, span))
    yield from comparisons


def _may_compare(sentence: Sentence) -> bool:
    """Return whether a sentence is not English and names more rows than numbers."""
    own_words = [low for low in sentence.lows if low not in _SHARED_WORDS]
    is_english = any(map(is_stop_word, own_words))
    if is_english or text_parts.is_english(sentence.text):
        return False
    figures = [quantity for quantity in sentence.quantities if quantity.digits]
    return sentence.is_statement and len(sentence.compared) > len(figures)


def _superlative_claims(sentence: Sentence) -> Iterator[Claim]:
    """Yield a claim for each superlative about the only rows that are named.

    It is judged by the one column that the words after it name, or else, if none of
    these has a meaning, by the one that the sentence names.
    """
    if len(sentence.compared) != 1:
        return
    mention = sentence.compared[0]
    name_places = range(mention.first, mention.last + 1)
    for position, low in enumerate(sentence.lows):
        extreme = meaning("extreme", low.removesuffix("ed"))  # "peaked"
        if not extreme or position in name_places:
            continue
        phrase = sentence.phrase(position + 1, 1, name_places)
        last = position + 1
        if all(map(is_stop_word, phrase)):
            phrase = sentence.words
            last = position
        cells = [
            cell
            for cell, *_ in _compared_cells(sentence, [mention], phrase, whole=True)
            if len(sentence.evidence.tables[cell.row.table].rows) > 1
        ]
        if cells and _is_of_part(sentence, position):
            cells = []
        is_adverb = low in ("most", "least")  # "at least"
        if cells or not (is_adverb or sentence.evidence.prose):
            yield _extreme_claim(sentence, extreme, cells, (position, last))


def _is_of_part(sentence: Sentence, position: int) -> bool:
    """Return whether a superlative is one of several, or that of a year."""
    before = sentence.lows[max(0, position - 3) : position]
    has_year = any(quantity.is_year for quantity in sentence.quantities)
    return has_year or not WORDS.words("rank").isdisjoint(before)


def _lead_claims(sentence: Sentence) -> Iterator[Claim]:
    """Yield a claim if the only name in a sentence is one that leads: "North leads"."""
    if len(sentence.compared) != 1:
        return
    mention = sentence.compared[0]
    position = mention.last + 1
    extreme = meaning("lead", sentence.low(position))
    if not extreme or sentence.low(position + 1) == "to":
        return

    measure = sentence.phrase(position + 1, 1)
    cells = [cell for cell, *_ in _compared_cells(sentence, [mention], measure)]
    yield _extreme_claim(sentence, extreme, cells, (mention.first, position))


def _extreme_claim(
    sentence: Sentence, extreme: str, cells: Sequence[Cell], span: tuple[int, int]
) -> Claim:
    """Return the claim that each cell is the extreme of its column in its table."""
    judged: dict[Verdict, tuple[str, str]] = {}
    for cell in cells if extreme in _EXTREMES else ():
        rows = sentence.evidence.tables[cell.row.table].rows
        column = chain.from_iterable(row.numbers([cell.column]) for row in rows)
        best = _EXTREMES[extreme](column, key=attrgetter("value"))
        verdict: Verdict = "supported" if cell.value == best.value else "contradicted"
        judged[verdict] = (_difference(sentence, best, cell), best.row.title)
    return _judged_claim(sentence, judged, span)


def _order_claims(sentence: Sentence) -> Iterator[Claim]:
    """Yield a claim if the first of two rows has more or less than the second."""
    if len(sentence.compared) != 2:
        return
    first, second = sentence.compared
    between = sentence.lows[first.last + 1 : second.first]
    numbers = range(first.last + 1, second.first)
    if any(quantity.first in numbers for quantity in sentence.quantities):
        return

    than = [place for place, low in enumerate(between) if low in WORDS.words("than")]
    end = than[-1] if than else len(between)
    group = "order" if than else "precedence"
    orders = [place for place in range(end) if meaning(group, between[place])]
    span = (first.first, second.last)
    if not orders and "than" not in between:
        return
    if not orders:
        yield _unjudged_claim(sentence, span)
        return

    measure = between[orders[0] + 1 : end]
    sign = _SIGNS[meaning(group, between[orders[0]])]
    judged: dict[Verdict, tuple[str, str]] = {}
    for cell, other in _compared_cells(sentence, [first, second], measure):
        is_true = sign * (cell.value - other.value) > 0
        verdict: Verdict = "supported" if is_true else "contradicted"
        judged[verdict] = (_difference(sentence, cell, other), "")
    yield _judged_claim(sentence, judged, span)


def _difference(sentence: Sentence, cell: Cell, other: Cell) -> str:
    """Return what two rows have."""
    return (
        f"{cell.row.title} has {sentence.figure(cell.value)}, "
        f"{other.row.title} {sentence.figure(other.value)}"
    )


def _trend_claims(sentence: Sentence) -> Iterator[Claim]:
    """Yield a claim for the first word of rising or falling, if there is no number.

    It is judged by the column that the words before it name, or else those after it.
    Without such a column, only a sentence that is too short to be a statement is a
    claim. A word such as "every" claims each step.
    """
    directions = [text_parts.direction([low]) for low in sentence.lows]
    if not any(directions) or any(q.digits for q in sentence.quantities):
        return
    position = next(place for place, sign in enumerate(directions) if sign)
    before = sentence.phrase(position - 1, -1)
    bound: list[tuple[EvidenceTable, Path]] = []
    for table in sentence.evidence.tables.values():
        columns = table.bind(before, whole=True)
        columns = columns or table.bind(sentence.phrase(position + 1, 1), whole=True)
        bound += ((table, column) for column in columns[:1] if len(columns) == 1)
    if not bound and (not before or sentence.is_statement):
        return

    is_steady = not stems("steady").isdisjoint(map(stem, sentence.lows))
    judged: dict[Verdict, tuple[str, str]] = {}
    for table, column in bound:
        values = [cell.value for cell in _cells_in_time(sentence, table, column)]
        if len(values) < 2:
            continue
        if not is_steady:
            values = [values[0], values[-1]]
        wrong_steps = [
            (start, end)
            for start, end in pairwise(values)
            if directions[position] * (end - start) <= 0
        ]
        start, end = wrong_steps[0] if wrong_steps else (values[0], values[-1])
        why = f"it goes from {sentence.figure(start)} to {sentence.figure(end)}"
        nearest = "a rise" if end > start else "a fall"
        judged["contradicted" if wrong_steps else "supported"] = (why, nearest)
    span = (position, position) if judged else (0, position)
    yield _judged_claim(sentence, judged, span)


def _cells_in_time(
    sentence: Sentence, table: EvidenceTable, column: Path
) -> list[Cell]:
    """Return the cells of a column in the order of time, of the named rows or else all.

    Two dates are the ends of the time. It is empty if a row has no date, or two rows
    the same, or if the ends are not found.
    """
    meant_rows = set(rows_of(sentence.names) or table.rows)
    rows = [row for row in table.rows if row in meant_rows]
    dates = {row: date for date, row in sentence.evidence.dates if date.year}
    moments = [dates[row][2:5] for row in rows if row in dates]
    if len(set(moments)) < len(rows):
        return []
    in_time = sorted(rows, key=lambda row: dates[row][2:5])
    if sentence.stated_dates:
        ends = [
            place
            for place, row in enumerate(in_time)
            if any(map(dates[row].agrees, sentence.stated_dates))
        ]
        if len(ends) != 2 or len(sentence.stated_dates) != 2:
            return []
        in_time = in_time[ends[0] : ends[1] + 1]
    return list(chain.from_iterable(row.numbers([column]) for row in in_time))


def _compared_cells(
    sentence: Sentence,
    mentions: Sequence[Mention],
    measure: Sequence[str],
    *,
    whole: bool = False,
) -> Iterator[list[Cell]]:
    """Yield the cells of the mentions in each table in which each names one row.

    `measure` are the words that may say what is compared, or else those of the sentence
    do. They name the only column; with `whole`, also that of a table with one column.
    """
    words = tuple(word for word in measure if word.isalnum() and not is_stop_word(word))
    for path in dict.fromkeys(row.table for row in mentions[0].rows):
        rows = [_row_in(path, mention) for mention in mentions]
        table = sentence.evidence.tables[path]
        columns = list(table.columns)
        is_named = whole or len(columns) > 1
        if words or is_named:
            columns = table.bind(words or sentence.words, whole=is_named)
        if len(columns) != 1:
            continue
        cells = list(chain.from_iterable(row.numbers(columns) for row in rows if row))
        if len(cells) == len(mentions):
            yield cells


def _row_in(table: Path, mention: Mention) -> EvidenceRow | None:
    """Return the only row of a table that a mention names, or None."""
    rows = [row for row in mention.rows if row.table == table]
    return rows[0] if len(rows) == 1 else None


def _judged_claim(
    sentence: Sentence,
    judged: Mapping[Verdict, tuple[str, str]],
    span: tuple[int, int],
) -> Claim:
    """Return a claim with the one verdict of all tables, its reason and true value."""
    if len(judged) != 1 or any(map(is_negation, sentence.lows)):
        return _unjudged_claim(sentence, span)
    ((verdict, (why, nearest)),) = judged.items()
    return sentence.claim(
        "comparison",
        verdict,
        first=span[0],
        last=span[1],
        nearest=nearest,
        why=why,
    )


def _unjudged_claim(sentence: Sentence, span: tuple[int, int]) -> Claim:
    """Return the claim of a comparison that the evidence cannot judge."""
    return sentence.claim(
        "comparison",
        "not found",
        first=span[0],
        last=span[1],
        why="not judged, because the evidence does not say by which numbers",
    )
