"""The numbers of a text, each bound to rows and columns and judged. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations
from math import fsum

from heedful.checks.claim import Claim, Kind, Verdict
from heedful.checks.evidence import Evidence, Mention, title
from heedful.checks.naming import names, parts
from heedful.checks.quantities import Quantity
from heedful.checks.reading import Record
from heedful.checks.said import Pair, Said, rows_of
from heedful.checks.series import Series
from heedful.checks.table import Cell, Column, Table, Words, explained, shared, value

# Rows of a table among which a row is searched, and those that two numbers are searched among.
MANY = 200
FEW = 6
# "About 50" says 48 to 52 too.
LOOSE = 0.05
_LOOSE = frozenset("around about approximately roughly nearly almost over under ~ above".split())
_LOOSE |= frozenset(("below", "than"))
_APART = frozenset(
    "by win victory loss defeat lead margin deficit advantage difference gap more fewer less"
    " increase decrease rise fall drop rose fell grew below above better worse improved improvement"
    " reduced reduction".split()
)
_SAYS = frozenset(
    "is was are were be been of at to from between around about approximately nearly reached"
    " reaching only just than : = ( hit".split()
)
_OF = frozenset(("of", "is", "was", "=", ":", "at"))
NEAR = 4
_LISTS = frozenset((",", "and", "included", "including", "with", "also", "adding"))
_ENDS = frozenset(("", ",", ".", "and", "in", "on", "to", "while"))

Cells = tuple[Cell, Cell]


class Figures:
    """Judges the numbers of one text.

    `held` is the mention and the cell that each was held against, `met` the pairs of numbers that
    are right for two rows.
    """

    def __init__(self, said: Said, tolerance: float) -> None:
        self.said: Said = said
        self.evidence: Evidence = said.evidence
        self.tolerance: float = tolerance
        self._series = Series(said)
        self.held: dict[Quantity, tuple[Mention, Cell]] = {}
        self.met: list[tuple[Pair, Cells]] = []
        self._told: dict[int, list[Cell]] = {}
        self._right: dict[int, list[float]] = {}
        self.pairs: list[Pair] = list(said.pairs())
        self.paired: set[Quantity] = {one for pair in self.pairs for one in (pair.one, pair.two)}
        self._usual = self._agreed()

    def claims(self) -> Iterator[Claim]:
        """A claim for every number that says something of the evidence.

        Where all that is said of a row is true of another, the name is wrong and not the numbers.
        """
        claims = dict(self._numbers())
        told: dict[Mention, list[tuple[Quantity, Cell]]] = {}
        for one, (mention, cell) in self.held.items():
            told.setdefault(mention, []).append((one, cell))
        for mention, cells in told.items():
            other = self._mistaken(cells)
            if other is not None:
                for one, _ in cells:
                    claims.pop(one, None)
                why = f"its numbers are those of {title(other)}"
                yield self._claim(mention, "contradicted", (other.path,), title(other), why)
        yield from claims.values()

    def fits(self, one: Quantity, true: float) -> bool:
        """Whether a number says a value: 38 % says 0.38, 5 says -5 ("fell by 5")."""
        shares = (true, true * 100) if one.percent and abs(true) <= 1 else (true,)
        far = self.tolerance
        if self.said.low(one.first - 1) in _LOOSE:
            far, one = max(far, LOOSE), one._replace(step=2 * one.step)
        return any(one.fits(abs(v) if one.value >= 0 else v, far) for v in shares)

    def _numbers(self) -> Iterator[tuple[Quantity, Claim]]:
        for pair in self.pairs:
            claims = self._pair(pair)
            yield from zip((pair.one, pair.two), claims, strict=False)
        for one in self.said.quantities:
            if one not in self.paired and one.form not in ("article", "ordinal"):
                yield from ((one, claim) for claim in self._single(one))
        inside = {(self.said.sentence(q.first)[0], id(c.row)) for q, (_, c) in self.held.items()}
        for one in self.said.quantities:
            if one.form == "article":
                yield from ((one, claim) for claim in self._article(one, inside))

    def _claim(
        self,
        one: Quantity | Mention,
        verdict: Verdict,
        paths: tuple[str, ...],
        nearest: str,
        why: str,
    ) -> Claim:
        start, end = self.said.span(one)
        kind: Kind = "number" if isinstance(one, Quantity) else "name"
        return Claim((start, end), self.said.text[start:end], kind, verdict, paths, nearest, why)

    def _judged(self, one: Quantity, cells: Sequence[Cell], derived: bool = False) -> Claim:
        """The claim of a number that is held against some cells, the likeliest first."""
        fit = [cell for cell in cells if self._says(one, cell)]
        shown = fit or cells
        if fit and fit[0].value is not None:
            self._right.setdefault(self.said.sentence(one.first)[0], []).append(fit[0].value)
        values = [cell.value for cell in shown if cell.value is not None]
        near = min(values, key=lambda v: abs(v - one.value), default=None)
        paths = tuple(cell.path for cell in shown[:3])
        true = bool(fit) or derived
        why = (
            "derived from its column" if derived and not fit else "held against its row and column"
        )
        nearest = "" if near is None else f"{near:g}"
        return self._claim(one, "supported" if true else "contradicted", paths, nearest, why)

    def _says(self, one: Quantity, cell: Cell) -> bool:
        return cell.value is not None and self.fits(one, cell.value)

    def _hold(self, one: Quantity, cells: Sequence[Cell]) -> None:
        cell = next((cell for cell in cells if self._says(one, cell)), cells[0])
        for mention in self.said.subjects(one.first):
            if cell.row in mention.rows:
                self.held[one] = mention, cell
                self._told.setdefault(self.said.sentence(one.first)[0], []).append(cell)

    def _mistaken(self, told: Sequence[tuple[Quantity, Cell]]) -> Record | None:
        """The row that three numbers or more are right for, all of them wrong for their own."""
        if len(told) < 3 or any(self._says(one, cell) for one, cell in told):
            return None
        for row in self.evidence.tables[told[0][1].row.table].rows[:MANY]:
            cells = [(one, Cell(row, cell.column, value(row, cell.column))) for one, cell in told]
            if all(self._says(one, cell) for one, cell in cells):
                return row
        return None

    # One number

    def _single(self, one: Quantity) -> Iterator[Claim]:
        cells = self._cells(one, rows_of(self.said.subjects(one.first)))
        if self.said.low(one.first - 1) == "per":
            yield self._anywhere(one)
        elif any(cell.value is not None for cell in cells):
            self._hold(one, cells)
            yield self._judged(one, cells, self._difference(one, cells))
        elif dated := self._series.cells(one):
            yield self._judged(one, dated, self._difference(one, dated))
        elif alone := self._alone(one):
            yield self._judged(one, alone)
        elif cells:
            self._hold(one, cells)
            yield self._judged(one, cells)
        elif one.form == "digits":
            yield self._unbound(one)

    def _cells(self, one: Quantity, rows: Sequence[Record]) -> list[Cell]:
        """The cells of these rows that the words after a number name, else those before it."""
        after, words = self.said.after(one), self.said.words(one.first)
        found = self._introduced(one, rows) or self._named(rows, after, words, one.percent)
        if not found and (self.said.low(one.first - 1) in _SAYS or not after):
            found = self._named(rows, self.said.before(one), percent=one.percent)
        return self._in_named_tables(found, words)

    def _in_named_tables(self, cells: list[Cell], words: Words) -> list[Cell]:
        """Of the cells of one column in several tables those in the tables that words name."""
        same = {cell.row.table for cell in cells if cell.column.path == cells[0].column.path}
        called = {t: [part for name in t for part in parts(name)] for t in same if len(same) > 1}
        said = {t for t, own in called.items() for w in words if any(names(w, p) == 3 for p in own)}
        return [cell for cell in cells if cell.row.table in said] if said else cells

    def _introduced(self, one: Quantity, rows: Iterable[Record]) -> list[Cell]:
        """The cells of these rows of the column that a number is said of: "an RMSE of 3"."""
        if self.said.low(one.first - 1) not in _OF:
            return []
        return self._whole(rows, self.said.before(one)[:NEAR], one.percent)

    def _whole(self, rows: Iterable[Record], phrase: Words, percent: bool) -> list[Cell]:
        """The cells of these rows in columns whose names a phrase says to the end."""
        return [
            Cell(row, bound.column, value(row, bound.column))
            for row in rows
            for bound in self.evidence.tables[row.table].bound(phrase, (), percent)
            if not bound.left
        ]

    def _named(
        self, rows: Iterable[Record], phrase: Words, words: Words = (), percent: bool = False
    ) -> list[Cell]:
        found = [
            (one.rank, Cell(row, one.column, value(row, one.column)))
            for row in rows
            for one in self.evidence.tables[row.table].bound(phrase, words, percent)
        ]
        return [cell for _, cell in sorted(found, key=lambda pair: -pair[0])]

    def _alone(self, one: Quantity) -> list[Cell]:
        """The cells of tables of one row whose columns the words beside a number name wholly."""
        rows = [t.rows[0] for t in self.evidence.tables.values() if len(t.rows) == 1]
        phrases = (self.said.after(one), self.said.before(one))
        found = [self._introduced(one, rows), *(self._whole(rows, p, one.percent) for p in phrases)]
        cells = next((cells for cells in found if cells), [])
        if cells and self.said.low(one.first - 1) == "from":  # a baseline of that measure, say
            row, own = cells[0].row, set(cells[0].column.own)
            more = [c for c in self.evidence.tables[row.table].numeric if own & set(c.own)]
            cells += [Cell(row, column, value(row, column)) for column in more]
        return cells

    def _difference(self, one: Quantity, cells: Sequence[Cell]) -> bool:
        """Whether it is the difference of two named rows in one of the columns."""
        if _APART.isdisjoint(self.said.words(one.first)):
            return False
        for table, column in {(cell.row.table, cell.column) for cell in cells[:4]}:
            rows = self._named_rows(one.first, self.evidence.tables[table])
            held = [v for row in rows[:FEW] if (v := value(row, column)) is not None]
            if any(self._apart(one, x, y) for x, y in permutations(held, 2)):
                return True
        return False

    def _follows(self, one: Quantity) -> bool:
        """Whether it is the difference of the last two numbers of its sentence that are right."""
        if _APART.isdisjoint(self.said.words(one.first)):
            return False
        right = self._right.get(self.said.sentence(one.first)[0], [])
        return any(self._apart(one, x, y) for x, y in permutations(right[-2:], 2))

    def _apart(self, one: Quantity, x: float, y: float) -> bool:
        """Whether it says how far one value is from another, or by how many per cent of that."""
        shares = [abs(x / y - 1) * 100] if one.percent and y else []
        return any(self.fits(one, far) for far in (abs(x - y), *shares))

    def _named_rows(self, at: int, table: Table) -> list[Record]:
        """The rows of a table that a sentence names, in order; of a table of two rows both."""
        inside = self.said.within(*self.said.sentence(at))
        rows = [row for row in rows_of(inside) if row.table == table.path]
        return (
            rows + [row for row in table.rows if row not in rows] if len(table.rows) == 2 else rows
        )

    def _unbound(self, one: Quantity) -> Claim:
        """A number without a row: a difference in what the sentence measures, or in a column."""
        told = self._told.get(self.said.sentence(one.first)[0], [])
        if self._difference(one, told):
            return self._judged(one, told, derived=True)
        if self._follows(one):
            return self._claim(one, "supported", (), "", "the difference of the two before it")
        if counted := self._counted(one):
            return self._claim(one, "supported", (counted.path,), "", "so many rows are there")
        words = self.said.words(one.first)
        for phrase in (self.said.after(one), self.said.before(one)):
            for table in self.evidence.tables.values():
                columns = [b.column for b in table.bound(phrase, words, one.percent) if not b.left]
                if len(columns) == 1 and len(table.rows) > 1:
                    return self._in_column(one, table, columns[0])
        return self._anywhere(one)

    def _counted(self, one: Quantity) -> Record | None:
        """The first row of a table that has so many, which the word after the number calls one."""
        noun = self.said.after(one)[:1]
        for table in self.evidence.tables.values() if noun else ():
            labels = [c for c in table.columns if c not in table.numeric]
            called = [part for c in labels for part in c.own] + [
                p for n in table.path for p in parts(n)
            ]
            if len(table.rows) == one.value > 1 and any(names(noun[0], p) == 3 for p in called):
                return table.rows[0]
        return None

    def _in_column(self, one: Quantity, table: Table, column: Column) -> Claim:
        """Whether some row says it, or it is the sum, the mean or a difference in the column."""
        cells = [Cell(row, column, value(row, column)) for row in table.rows]
        values = [cell.value for cell in cells if cell.value is not None]
        whole = (fsum(values), fsum(values) / len(values))
        fit = [cell for cell in cells if self._says(one, cell)]
        derived = any(self.fits(one, v) for v in whole) or self._difference(one, cells[:1])
        if fit or derived:
            return self._judged(one, fit[:1] or cells[:1], derived=not fit)
        near = min(values, key=lambda v: abs(v - one.value))
        name = ".".join(column.path)
        return self._claim(one, "not found", (), f"{near:g}", f"no row of {name} says so")

    def _anywhere(self, one: Quantity) -> Claim:
        if self.evidence.near(abs(one.value) - one.step / 2, abs(one.value) + one.step / 2):
            return self._claim(one, "supported", (), "", "occurs in the evidence")
        near = self.evidence.nearest(one.value)
        shown = "" if near is None else f"{near:g}"
        return self._claim(one, "not found", (), shown, "occurs nowhere in the evidence")

    def _article(self, one: Quantity, inside: set[tuple[int, int]]) -> Iterator[Claim]:
        """ "A steal" counts one in a list of counts of the same row."""
        before, noun, after = (self.said.low(one.first + n) for n in (-1, 1, 2))
        if before not in _LISTS or after not in _ENDS:
            return
        start, _ = self.said.sentence(one.first)
        rows = rows_of(self.said.subjects(one.first))
        told = [row for row in rows if (start, id(row)) in inside]
        cells = self._named(told, (noun,))
        if cells:
            self._hold(one, cells)
            yield self._judged(one, cells)

    # Two numbers written as one

    def _agreed(self) -> tuple[Column, Column] | None:
        """The two columns that the pairs in brackets after names of rows agree with most."""
        found: Counter[tuple[Column, Column]] = Counter()
        for pair in self.pairs:
            for row in self._bracketed(pair):
                one, two = self._holding(row, pair.one), self._holding(row, pair.two)
                found.update((a, b) for a in one for b in two if a != b)
        return max(found, key=found.__getitem__, default=None)

    def _bracketed(self, pair: Pair) -> list[Record]:
        around = self.said.low(pair.one.first - 1) + self.said.low(pair.two.last + 1)
        if pair.joined != "-" or around != "()":
            return []
        at = pair.one.first
        return rows_of([one for one in self.said.subjects(at) if one.last == at - 2])

    def _holding(self, row: Record, one: Quantity) -> list[Column]:
        columns = self.evidence.tables[row.table].numeric
        return [c for c in columns if (v := value(row, c)) is not None and self.fits(one, v)]

    def _pair(self, pair: Pair) -> list[Claim]:
        rows = self._bracketed(pair)
        options: list[Cells] = []
        if rows and self._usual:
            a, b = self._usual
            there = [row for row in rows if a.path in row.cells]
            options = [(Cell(r, a, value(r, a)), Cell(r, b, value(r, b))) for r in there]
        elif not rows:
            twins = self._twins(pair) if pair.joined != "to" else []
            options = twins or self._two_rows(pair)
        if options:
            return self._best(pair, options)
        if pair.joined == "to" and (cells := self._alone(pair.one)):
            return [self._judged(one, cells) for one in (pair.one, pair.two)]
        return [claim for one in (pair.one, pair.two) for claim in self._single(one)]

    def _twins(self, pair: Pair) -> list[Cells]:
        """The cells of the columns of a row that go together: so many made of so many attempted."""
        phrase, found = self.said.after(pair.two), []
        if pair.joined == "-" and not phrase:
            return []
        for row in rows_of(self.said.subjects(pair.one.first)):
            for a, b in self.evidence.tables[row.table].twins:
                ranks = [explained(part, phrase) for part in shared(a, b)]
                rank = sum(ranks) - ranks.count(0) if any(ranks) else 0
                found.append((rank, (Cell(row, a, value(row, a)), Cell(row, b, value(row, b)))))
        best = max((rank for rank, _ in found), default=0)
        if pair.joined == "-" and not best:
            return []
        return [cells for rank, cells in found if rank == best]

    def _two_rows(self, pair: Pair) -> list[Cells]:
        """The cells of two rows in the columns that the sentence names; joined by "-", in any."""
        if pair.joined == "of":
            return []
        phrase = (*self.said.after(pair.two), *self.said.before(pair.one))
        words, found = self.said.words(pair.one.first), []
        for table in self.evidence.tables.values():
            rows = self._named_rows(pair.one.first, table)
            named = [b.column for b in table.bound(phrase, words) if b.sure]
            for a, b in permutations(rows, 2) if len(rows) <= FEW else ():
                for column in named or (table.numeric if pair.joined == "-" else ()):
                    both = Cell(a, column, value(a, column)), Cell(b, column, value(b, column))
                    found.append(both)
        return found

    def _best(self, pair: Pair, options: Sequence[Cells]) -> list[Claim]:
        """The claims of both numbers, held against the cells that most of them fit."""

        def nearness(cells: Cells) -> tuple[int, float]:
            held = list(zip((pair.one, pair.two), cells, strict=True))
            far = sum(abs(one.value - cell.value) for one, cell in held if cell.value is not None)
            return sum(self._says(one, cell) for one, cell in held), -far

        best = max(options, key=nearness)
        if best[0].row is best[1].row:
            self._hold(pair.one, best[:1])
            self._hold(pair.two, best[1:])
        elif nearness(best)[0] == 2 and pair.joined == "-":
            self.met.append((pair, best))
        return [self._judged(pair.one, best[:1]), self._judged(pair.two, best[1:])]
