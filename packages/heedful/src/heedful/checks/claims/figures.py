"""Compare the numbers of a sentence with the evidence.

- `number_claims`: each number is bound to cells of the evidence. Its rows are the ones
  that the sentence names for it; the words around it name its columns. A number that a
  cell rounds to is supported, and so is a sum, mean, share or difference of the column
  or row that the sentence names; any other bound number is contradicted. Where only the
  row or only the column is named, a number that stands elsewhere is contradicted. A
  number without cells is supported if it occurs anywhere in the evidence.
- `change_claims`: what rose "from 3 to 2" fell.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from operator import itemgetter

from heedful.checks.claims import text_parts
from heedful.checks.claims.evidence import (
    Cell,
    Evidence,
    EvidenceRow,
    Path,
    Words,
    rows_of,
)
from heedful.checks.claims.sentence import (
    Claim,
    Sentence,
    Verdict,
    sentences,
    table_cells,
)
from heedful.checks.claims.text_parts import (
    WORDS,
    Quantity,
    likeness_in,
    meaning,
    stems,
)


def number_claims(sentence: Sentence) -> Iterator[Claim]:
    """Yield a claim for each number written in digits, and for each other number that
    refers to cells.
    """
    waiting = sentence.quantities[::-1]
    while waiting:
        quantity = waiting.pop()

        if waiting and _are_joined(sentence, quantity, waiting[-1]):
            second = waiting.pop()
            cell, second_cell = _paired_cells(sentence, quantity, second)
            yield _judge_number(sentence, quantity, cell)
            yield _judge_number(sentence, second, second_cell)
            continue

        if waiting and _is_range(sentence, quantity, waiting[-1]):
            yield from _range_claims(sentence, quantity, waiting.pop())
            continue

        cells = referred_cells(sentence, quantity)
        if cells or quantity.digits:
            cells = cells or _other_cells(sentence, quantity)
            yield _judge_number(sentence, quantity, cells)


def _range_claims(
    sentence: Sentence, first: Quantity, second: Quantity
) -> Iterator[Claim]:
    """Yield the claims of the ends of a range: "between 3 and 5".

    If they refer to one cell, it supports both with any value from 3 to 5.
    """
    second_cells = referred_cells(sentence, second)
    cells = referred_cells(sentence, first) or second_cells
    if len(cells) == 1:
        least = first.least
        greatest = second.greatest
        first = first._replace(least=least, greatest=greatest)
        second = second._replace(least=least, greatest=greatest)
        second_cells = cells
    yield _judge_number(sentence, first, cells)
    yield _judge_number(sentence, second, second_cells)


def _are_joined(sentence: Sentence, quantity: Quantity, second: Quantity) -> bool:
    """Return whether two numbers are written as one: "113 - 107", "3 of 5"."""
    between = sentence.lows[quantity.last + 1 : second.first]
    return bool(between) and WORDS.words("joiner").issuperset(between)


def _is_range(sentence: Sentence, quantity: Quantity, second: Quantity) -> bool:
    """Return whether two numbers are the ends of a range: "between 3 and 5"."""
    lead = sentence.low(quantity.first - 1)
    return (
        lead == "between" and "and" in sentence.lows[quantity.last + 1 : second.first]
    )


def _judge_number(
    sentence: Sentence, quantity: Quantity, cells: Sequence[Cell]
) -> Claim:
    """Compare a number with `cells`, or with all evidence if there are none."""
    fitting_cells = [cell for cell in cells if _fits(sentence, quantity, cell)]
    if fitting_cells:
        return _compared(sentence, quantity, fitting_cells, "supported")
    if _is_derived(sentence, quantity):
        return _searched(sentence, quantity, "supported", "follows from the evidence")
    if cells:
        return _compared(sentence, quantity, cells, "contradicted")
    if not _occurs(sentence, quantity) and not _is_count(sentence, quantity):
        return _searched(
            sentence, quantity, "not found", "occurs nowhere in the evidence"
        )
    return _searched(sentence, quantity, "supported", "occurs in the evidence")


def _is_count(sentence: Sentence, quantity: Quantity) -> bool:
    """Return whether a number counts the rows of a table, of which none is named."""
    counts = [len(table.rows) for table in sentence.evidence.tables.values()]
    is_count = quantity.value > 1 and quantity.value in counts
    return is_count and not sentence.mentions


def _fits(sentence: Sentence, quantity: Quantity, cell: Cell) -> bool:
    """Return whether a cell rounds to a number.

    What falls ("down 3 %") may be written without the minus sign of the cell.
    """
    if quantity.fits(cell.value):
        return True
    is_fall = text_parts.direction(_words_beside(sentence, quantity)) < 0
    return is_fall and quantity.fits(-cell.value)


def _words_beside(sentence: Sentence, quantity: Quantity) -> Words:
    """Return the words before a number, the nearest first, and those after it."""
    before = sentence.phrase(quantity.first - 1, -1)
    after = sentence.phrase(quantity.last + 1, 1)
    return before + after


def _compared(
    sentence: Sentence, quantity: Quantity, cells: Sequence[Cell], verdict: Verdict
) -> Claim:
    """Return the claim of a number that was compared with cells."""
    values = [cell.value for cell in cells]
    nearest = min(values, key=lambda value: abs(value - quantity.value))
    return sentence.claim(
        "number",
        verdict,
        first=quantity.first,
        last=quantity.last,
        why="compared with its row and column",
        paths=tuple(cell.path for cell in cells[:3]),
        nearest=sentence.figure(nearest),
    )


def _searched(
    sentence: Sentence, quantity: Quantity, verdict: Verdict, why: str
) -> Claim:
    """Return the claim of a number that was compared with all evidence."""
    return sentence.claim(
        "number", verdict, first=quantity.first, last=quantity.last, why=why
    )


def _other_cells(sentence: Sentence, quantity: Quantity) -> list[Cell]:
    """Return the cells of the named row that a number should have been one of.

    It is empty if the number is in the row, or if it stands in no other row of its
    table. In prose, a sentence that names no row is compared by its words.
    """
    if not sentence.mentions:
        return other_numbers(sentence, quantity)
    attached = sentence.attached(quantity)
    mentions = [attached] if attached else sentence.names
    rows = rows_of(mentions)
    tables = dict.fromkeys(row.table for row in rows)
    cells = _row_cells(sentence, rows)
    if any(_fits(sentence, quantity, cell) for cell in cells):
        return []

    for table in tables:
        others = _row_cells(sentence, sentence.evidence.tables[table].rows)
        # A number with the other sign is another number.
        columns = {cell.column for cell in others if quantity.fits(abs(cell.value))}
        if columns:
            in_table = [cell for cell in cells if cell.row.table == table]
            return [cell for cell in in_table if cell.column in columns] or in_table
    return []


def other_numbers(sentence: Sentence, quantity: Quantity) -> list[Cell]:
    """Return the numbers of prose that the words after this number belong to.

    It is empty if the words after a number of the evidence that fits do not belong to
    another number of its sentence: "in 2023" for a number that is one "in 2024".
    """
    after = _stems_after(sentence, quantity)
    rivals: list[Cell] = []
    for source, row in _prose_sentences(sentence.evidence):
        for number in source.quantities:
            if not quantity.fits(number.value):
                continue
            own = _stems_after(source, number)
            count = len(rivals)
            for other in source.quantities:
                others = _stems_after(source, other)
                is_named = after & (others - own) and own - others - after
                if is_named and other.percent == number.percent:
                    rivals.append(Cell(other.value, row, ()))
            if len(rivals) == count:
                return []
    return rivals


@lru_cache(maxsize=4)
def _prose_sentences(evidence: Evidence) -> list[tuple[Sentence, EvidenceRow]]:
    """Return the sentences in the long texts of evidence, with their rows."""
    return [
        (sentence, row)
        for text, row in evidence.passages
        for sentence in sentences(text, evidence, decimal=evidence.decimal)
    ]


def _stems_after(sentence: Sentence, quantity: Quantity) -> set[str]:
    """Return the stems of the words after a number."""
    return set(text_parts.content_stems(sentence.phrase(quantity.last + 1, 1)))


def _row_cells(sentence: Sentence, rows: Sequence[EvidenceRow]) -> list[Cell]:
    """Return the numbers in rows."""
    tables = sentence.evidence.tables
    cells = (row.numbers(tables[row.table].columns) for row in rows)
    return list(chain.from_iterable(cells))


def referred_cells(sentence: Sentence, quantity: Quantity) -> list[Cell]:
    """Return the cells that a number may refer to.

    Their rows are those of the subject of the number, or else those that are alone in
    their tables, if the words give the whole name of a column. The columns are named by
    the words after the number, or else by those directly before it ("an RMSE of 3"), or
    else, if no word follows it, by any before it. A word directly before another number
    names no column for this one: "3 (page 14)".
    """
    evidence = sentence.evidence
    phrases = _column_phrases(sentence, quantity)
    subject = sentence.subject(quantity)
    if sentence.header:
        # The rows that the cell above the number names.
        mentions = evidence.mentions(_header_cell(sentence, quantity))
        subject = rows_of(mentions) or subject

    for rows, by_whole_name in ((subject, False), (evidence.singles, True)):
        for phrase in phrases:
            cells = named_cells(evidence, rows, phrase, by_whole_name=by_whole_name)
            if cells:
                return cells

    previous_word = sentence.low(quantity.first - 1)
    is_lone = len(sentence.quantities) == 1 or previous_word == "between"
    is_lone = is_lone and previous_word not in WORDS.words("change")
    if is_lone and sentence.mentions:
        words = sentence.words_without(sentence.other_labels(quantity))
        return named_cells(evidence, subject, words, by_whole_name=True)
    return []


def _header_cell(sentence: Sentence, quantity: Quantity) -> list[text_parts.Token]:
    """Return the tokens of the cell above a number in a table."""
    column = sentence.lows[: quantity.first].count("|")
    return list(sentence.header[column]) if column < len(sentence.header) else []


def _column_phrases(sentence: Sentence, quantity: Quantity) -> list[Words]:
    """Return the phrases that may name the column of a number, the likeliest first."""
    if sentence.header:
        first_cell = table_cells(sentence.tokens)[1]
        cells = (_header_cell(sentence, quantity), first_cell)
        return [tuple(token.low for token in cell) for cell in cells]

    others = sentence.other_labels(quantity)
    after = sentence.phrase(quantity.last + 1, 1, others)
    before = sentence.phrase(quantity.first - 1, -1)
    label = sentence.label(quantity)
    return [after, label] if after else [label, before]


def named_cells(
    evidence: Evidence,
    rows: Sequence[EvidenceRow],
    phrase: Words,
    *,
    by_whole_name: bool,
) -> list[Cell]:
    """Return the numbers of the rows in the columns that a phrase names."""
    cells: list[Cell] = []
    for row in rows:
        columns = evidence.tables[row.table].bind(phrase, whole=by_whole_name)
        cells += row.numbers(columns)
    return cells


def _paired_cells(
    sentence: Sentence, quantity: Quantity, second: Quantity
) -> tuple[list[Cell], list[Cell]]:
    """Return the two cells of a `Lexicon` pair whose name follows the numbers.

    Each is in a list of its own; both lists are empty without such a pair.
    """
    pairs: list[tuple[tuple[int, int], Cell, Cell]] = []
    for terms, columns in _named_pairs(sentence, quantity, second):
        for row in sentence.subject(quantity):
            cell = row.named(columns[0])
            second_cell = row.named(columns[1])
            if cell is None or second_cell is None:
                continue
            fitting = quantity.fits(cell.value) + second.fits(second_cell.value)
            pairs.append(((len(terms), fitting), cell, second_cell))

    if not pairs:
        return [], []
    # The longest name wins, then the row that has the numbers.
    _, cell, second_cell = max(pairs, key=itemgetter(0))
    return [cell], [second_cell]


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
        fits = all(likeness_in(phrase, term) > 1 for term in terms)
        if fits and (terms or in_parentheses):
            yield terms, columns


def changes(sentence: Sentence) -> list[tuple[Quantity, Quantity]]:
    """Return the start and the end of each change: "from 3 to 2", "2, down from 3".

    The end is after "to", or else the last number before the start.
    """
    leads = [
        meaning("change", sentence.low(quantity.first - 1))
        for quantity in sentence.quantities
    ]
    numbers = list(zip(leads, sentence.quantities, strict=True))
    starts = [quantity for lead, quantity in numbers if lead == "from"]
    ends = [quantity for lead, quantity in numbers if lead == "to"]
    if len(starts) == 1 and not ends:
        ends = [
            quantity
            for lead, quantity in numbers
            if lead != "by"
            and quantity.last < starts[0].first
            and quantity.percent == starts[0].percent
        ][-1:]
    return list(zip(starts, ends, strict=False))


def change_claims(sentence: Sentence) -> Iterator[Claim]:
    """Yield a claim for a word of rising or falling with two numbers."""
    for start, end in changes(sentence):
        step = end.value - start.value
        last = max(start.first, end.first)
        for position in range(last - 1, -1, -1):
            direction = text_parts.direction([sentence.lows[position]])
            if not direction:
                continue
            verdict: Verdict = "supported" if direction * step > 0 else "contradicted"
            yield sentence.claim(
                "comparison",
                verdict,
                first=position,
                last=position,
                why=f"it goes from {sentence.figure(start.value)} to "
                f"{sentence.figure(end.value)}",
                nearest="a rise" if step > 0 else "a fall",
            )
            break


def _is_derived(sentence: Sentence, quantity: Quantity) -> bool:
    """Return whether a number follows from a row or column that the sentence names."""
    derived = list(_sentence_values(sentence, quantity))
    for table in _named_tables(sentence):
        derived += _table_values(sentence, quantity, table)
    amount = quantity._replace(percent=False)
    return any(amount.fits(abs(value)) or amount.fits(value) for value in derived)


def _named_tables(sentence: Sentence) -> list[Path]:
    """Return the tables of the rows that a sentence names, or else all tables."""
    tables = dict.fromkeys(row.table for row in rows_of(sentence.mentions))
    return list(tables or sentence.evidence.tables)


def _sentence_values(sentence: Sentence, quantity: Quantity) -> Iterator[float]:
    """Yield what follows from the other numbers of the sentence that occur in evidence.

    This is their sum, or the difference of the only two or of the two of a change.
    """
    others = [
        other
        for other in sentence.quantities
        if other != quantity and other.digits and not other.is_year
    ]
    if not all(_occurs(sentence, other) for other in others):
        return
    pairs = changes(sentence)
    if len(others) == 2:
        pairs.append((others[0], others[1]))
    for start, end in pairs:
        if quantity not in (start, end):
            yield from _differences(quantity, start.value, end.value)
    if len(others) > 1:
        yield sum(other.value for other in others)


def _occurs(sentence: Sentence, quantity: Quantity) -> bool:
    """Return whether a number occurs anywhere in the evidence."""
    low, high = sorted((abs(quantity.least), abs(quantity.greatest)))
    has_number = sentence.evidence.has_number_between
    return has_number(low, high) or (
        quantity.percent and has_number(low / 100, high / 100)
    )


def _table_values(
    sentence: Sentence, quantity: Quantity, path: Path
) -> Iterator[float]:
    """Yield the sums, means, shares and differences in what the sentence names.

    These are of a column that it names, over the rows that it names or else all, and of
    a row that it names, over the columns that it names or else all.
    """
    table = sentence.evidence.tables[path]
    columns = sentence.columns(path)
    mentions = sentence.mentions or sentence.compared
    named_rows = [row for row in rows_of(mentions) if row.table == path]
    for column in columns:
        values = _numbers(table.rows, [column])
        named_values = _numbers(named_rows, [column])
        total = sum(values)
        if len(named_rows) != 1:
            yield from _totals(sentence, quantity, named_values or values)
        elif quantity.percent and total:
            yield from (100 * value / total for value in named_values)
        rows = named_rows or table.rows
        yield from _change_values(sentence, quantity, rows, column)

    if len(columns) < 2:
        columns = list(table.columns)
    if not named_rows and len(table.rows) == 1:
        named_rows = table.rows
    for row in named_rows:
        yield from _totals(sentence, quantity, _numbers([row], columns))


def _numbers(rows: Sequence[EvidenceRow], columns: Sequence[Path]) -> list[float]:
    """Return the numbers in some rows and columns."""
    cells = chain.from_iterable(row.numbers(columns) for row in rows)
    return [cell.value for cell in cells]


def _totals(
    sentence: Sentence, quantity: Quantity, values: Sequence[float]
) -> Iterator[float]:
    """Yield the sum, mean or difference of numbers, if the sentence says that it is."""
    if len(values) < 2:
        return
    sentence_stems = set(map(text_parts.stem, sentence.words))
    if not sentence_stems.isdisjoint(stems("total")):
        yield sum(values)
    if WORDS.pattern("mean").search(" ".join(sentence.words)):
        yield sum(values) / len(values)
    if len(values) == 2 and (quantity.percent or _is_difference(sentence, quantity)):
        yield from _differences(quantity, *values)


def _is_difference(sentence: Sentence, quantity: Quantity) -> bool:
    """Return whether the words beside a number say that it is a difference."""
    near = _words_beside(sentence, quantity)
    groups = ("difference", "bound", "order")
    compared = frozenset().union(*map(WORDS.words, groups))
    return bool(text_parts.direction(near)) or not compared.isdisjoint(near)


def _change_values(
    sentence: Sentence, quantity: Quantity, rows: Sequence[EvidenceRow], column: Path
) -> Iterator[float]:
    """Yield by how much rows rise or fall in a column, and how many of them do.

    Nothing is yielded if the words beside the number do not say what they do.
    """
    direction = text_parts.direction(_words_beside(sentence, quantity))
    steps_of_rows = []
    for row in rows:
        steps = _steps(sentence, row, column)
        steps_of_rows.append([step for step in steps if direction * step[0] > 0])
    if sentence.low(quantity.last + 1) == "of":
        yield sum(map(bool, steps_of_rows))
    if len(rows) > 1:
        return
    for step, base in chain.from_iterable(steps_of_rows):
        if not quantity.percent or base == 1:
            yield step
        if quantity.percent:
            yield 100 * step / abs(base)


def _steps(
    sentence: Sentence, row: EvidenceRow, column: Path
) -> list[tuple[float, float]]:
    """Return by how much a number of a row has changed, and since which number.

    A column such as "change" says it, as a share of 1, or else one whose name has all
    words of the name of the column and more: "sales_last_week" for "sales".
    """
    columns = sentence.evidence.tables[row.table].columns
    steps: list[tuple[float, float]] = []
    for cell in row.numbers(columns):
        parts = set(columns[cell.column])
        if not parts.isdisjoint(WORDS.words("change_column")):
            steps.append((cell.value, 1.0))
        elif set(columns[column]) < parts and cell.value:
            now = row.numbers([column])
            steps += ((current.value - cell.value, cell.value) for current in now)
    return steps


def _differences(quantity: Quantity, first: float, second: float) -> Iterator[float]:
    """Yield the difference of two numbers, of percentages for a percentage."""
    if quantity.percent:
        for part, base in ((first, second), (second, first)):
            if base:
                yield 100 * part / base
                yield 100 * (part - base) / abs(base)
        return

    yield second - first
    if quantity.points:
        yield 100 * (second - first)
