"""Judge what a sentence says of rows and columns without a number.

- A superlative ("the lowest RMSE") or a lead ("North leads") is true if no row of the
  table goes beyond the row that is named.
- An order ("North earned more than South") is true if the numbers of the two rows are
  in this order.
- A trend ("sales fell") is true if the last number in time lies on that side of the
  first.

The words name the column; a table with one column of numbers needs no name for it. An
order, a lead or a trend that no column of rows can judge is not found.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter

from heedful.checks.claims import text_parts
from heedful.checks.claims.evidence import (
    Cell,
    EvidenceRow,
    EvidenceTable,
    Path,
    rows_of,
)
from heedful.checks.claims.sentence import Claim, Sentence, Verdict
from heedful.checks.claims.text_parts import is_stop_word, likeness_in, meaning
from heedful.loop.similarity import is_negation

# What "highest" or "leads" means: the function that chooses its cell.
_EXTREMES: Mapping[str, Callable[..., Cell]] = {"max": max, "min": min}
_SIGNS: Mapping[str, int] = {"max": 1, "min": -1}


def comparison_claims(sentence: Sentence) -> Iterator[Claim]:
    """Yield the superlatives, leads, orders and trends of a sentence."""
    yield from _superlative_claims(sentence)
    if not sentence.evidence.prose:
        yield from _lead_claims(sentence)
        yield from _order_claims(sentence)
        yield from _trend_claims(sentence)


def _superlative_claims(sentence: Sentence) -> Iterator[Claim]:
    """Yield a claim for each superlative about the only rows that are named.

    It is judged by the one column of a table that the words after it name.
    """
    if len(sentence.names) != 1:
        return
    row = sentence.names[0].rows[0]
    table = sentence.evidence.tables[row.table]
    for position, low in enumerate(sentence.lows):
        extreme = meaning("extreme", low)
        if not extreme:
            continue
        columns = table.bind(sentence.phrase(position + 1, 1), whole=True)
        number = row.number(columns[0]) if len(columns) == 1 else None
        if number is not None and len(table.rows) > 1:
            yield _extreme_claim(
                sentence,
                extreme,
                Cell(number, row, columns[0]),
                (position, position + 1),
            )


def _lead_claims(sentence: Sentence) -> Iterator[Claim]:
    """Yield a claim if the only name in a sentence is one that leads: "North leads"."""
    if len(sentence.names) != 1:
        return
    name = sentence.names[0]
    position = name.last + 1
    extreme = meaning("lead", sentence.low(position))
    if not extreme or sentence.low(position + 1) == "to":
        return

    cell = _compared_cell(sentence, name.rows, sentence.phrase(position + 1, 1))
    span = (name.first, position)
    if cell is None:
        yield _unjudged_claim(sentence, span)
    else:
        yield _extreme_claim(sentence, extreme, cell, span)


def _extreme_claim(
    sentence: Sentence, extreme: str, cell: Cell, span: tuple[int, int]
) -> Claim:
    """Return the claim that a cell is the extreme of its column in its table."""
    rows = sentence.evidence.tables[cell.row.table].rows
    cells = chain.from_iterable(row.numbers([cell.column]) for row in rows)
    best = _EXTREMES[extreme](cells, key=attrgetter("value"))
    verdict: Verdict = "supported" if cell.value == best.value else "contradicted"
    return sentence.claim(
        "comparison",
        verdict,
        first=span[0],
        last=span[1],
        nearest=best.row.title,
        why=f"{best.row.title} has {sentence.figure(best.value)}, "
        f"{cell.row.title} {sentence.figure(cell.value)}",
    )


def _order_claims(sentence: Sentence) -> Iterator[Claim]:
    """Yield a claim if the first of two names has more or less than the second."""
    if len(sentence.names) != 2:
        return
    name, other_name = sentence.names
    between = sentence.lows[name.last + 1 : other_name.first]
    numbers = range(name.last + 1, other_name.first)
    if "than" not in between or any(q.first in numbers for q in sentence.quantities):
        return

    than = between.index("than")
    orders = [place for place in range(than) if meaning("order", between[place])]
    span = (name.first, other_name.last)
    if not orders or any(map(is_negation, sentence.lows)):
        yield _unjudged_claim(sentence, span)
        return

    measure = between[orders[0] + 1 : than]
    cell = _compared_cell(sentence, name.rows, measure)
    other = _compared_cell(sentence, other_name.rows, measure)
    if cell is None or other is None:
        yield _unjudged_claim(sentence, span)
        return

    sign = _SIGNS[meaning("order", between[orders[0]])]
    is_true = sign * (cell.value - other.value) > 0
    yield sentence.claim(
        "comparison",
        "supported" if is_true else "contradicted",
        first=span[0],
        last=span[1],
        why=f"{cell.row.title} has {sentence.figure(cell.value)}, "
        f"{other.row.title} {sentence.figure(other.value)}",
    )


def _trend_claims(sentence: Sentence) -> Iterator[Claim]:
    """Yield a claim for the first word of rising or falling, if there is no number.

    It is judged by the column that the words before it name, over the named rows or
    else all, if each has a date of its own. Without such a column, only a sentence
    that is too short to be a statement is a claim.
    """
    directions = [text_parts.direction([low]) for low in sentence.lows]
    if not any(directions) or any(q.digits for q in sentence.quantities):
        return
    position = next(place for place, sign in enumerate(directions) if sign)
    phrase = sentence.phrase(position - 1, -1)
    bound: list[tuple[EvidenceTable, Path]] = []
    for table in sentence.evidence.tables.values():
        bound += ((table, column) for column in table.bind(phrase, whole=True))
    if not bound and (not phrase or sentence.is_statement):
        return

    cells: list[Cell] = []
    if len(bound) == 1:
        table, column = bound[0]
        cells = _cells_in_time(sentence, table, column)
    if len(cells) < 2:
        yield _unjudged_claim(sentence, (0, position))
        return

    step = cells[-1].value - cells[0].value
    yield sentence.claim(
        "comparison",
        "supported" if directions[position] * step > 0 else "contradicted",
        first=position,
        last=position,
        why=f"it goes from {sentence.figure(cells[0].value)} to "
        f"{sentence.figure(cells[-1].value)}",
        nearest="a rise" if step > 0 else "a fall",
    )


def _cells_in_time(
    sentence: Sentence, table: EvidenceTable, column: Path
) -> list[Cell]:
    """Return the cells of a column in the order of time.

    It is empty if a row has no date, or two rows the same.
    """
    rows = rows_of(sentence.names) or table.rows
    dates = {row: date for date, row in sentence.evidence.dates if date.year}
    moments = [dates[row][2:5] for row in rows if row in dates]
    if sentence.stated_dates or len(set(moments)) < len(rows):
        return []
    in_time = sorted(rows, key=lambda row: dates[row][2:5])
    return list(chain.from_iterable(row.numbers([column]) for row in in_time))


def _compared_cell(
    sentence: Sentence, rows: Sequence[EvidenceRow], measure: Sequence[str]
) -> Cell | None:
    """Return the number of the only row in the only column that a sentence names.

    `measure` are the words that may say what is compared. None is returned if these
    mean something else than the column.
    """
    table = rows[0].table
    columns = sentence.columns(table)
    if len(rows) != 1 or len(columns) != 1:
        return None
    words = [word for word in measure if not is_stop_word(word)]
    parts = sentence.evidence.tables[table].columns[columns[0]]
    if words and not any(likeness_in(words, part) for part in parts):
        return None
    return next(rows[0].numbers(columns), None)


def _unjudged_claim(sentence: Sentence, span: tuple[int, int]) -> Claim:
    """Return the claim of a comparison that the evidence cannot judge."""
    return sentence.claim(
        "comparison",
        "not found",
        first=span[0],
        last=span[1],
        why="not judged, because the evidence does not say by which numbers",
    )
