"""Who leads, ranks, wins and belongs: comparisons of rows with the rows around them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from heedful.checks.claim import Claim, Verdict
from heedful.checks.evidence import Evidence, Mention, title
from heedful.checks.figures import Figures
from heedful.checks.naming import TIMES, names
from heedful.checks.quantities import ORDINALS
from heedful.checks.reading import Record
from heedful.checks.said import Said
from heedful.checks.table import Cell, Column, value

_LEADS = frozenset("led leads leading paced paces topped".split())
_LED = frozenset("team way group field all".split())
_BEATS = frozenset("defeated defeat beat beats outscored outscoring scored scoring over".split())
_BEATS |= frozenset(("against",))
_WINS = frozenset("defeated beat won win wins".split())
_APART = frozenset((",", ".", ";", "while", "and", "but", "as"))
_AGO = TIMES | {"season", "career", "record", "decade", "century"}
NEAR = 6
MANY = 2_000
FEW = 3


class Standing:
    """Judges the comparisons of one text, over the columns that its numbers are bound to."""

    def __init__(self, said: Said, figures: Figures) -> None:
        self.said: Said = said
        self.evidence: Evidence = said.evidence
        self._met = figures.met
        self._inside: dict[int, list[tuple[int, Cell]]] = {}
        self._of: dict[int, dict[Column, Cell]] = {}
        for one, (_, cell) in sorted(figures.held.items()):
            if one not in figures.paired:
                start, _ = said.sentence(one.first)
                self._inside.setdefault(start, []).append((one.first, cell))
                self._of.setdefault(id(cell.row), {})[cell.column] = cell

    def claims(self) -> Iterator[Claim]:
        """What the text claims of the places of rows among rows."""
        for at, token in enumerate(self.said.tokens):
            if token.low == "high" or token.low in _LEADS:
                yield from self._leads(at)
            elif token.low in ORDINALS:
                yield from self._ranks(at)
            elif token.low in ("double", "triple"):
                yield from self._doubles(at)
        for one, two in pairwise(self.said.mentions):
            between = [self.said.low(at) for at in range(one.last + 1, two.first)][: 2 * NEAR + 1]
            yield from self._itself(one, two, between)
            yield from self._member(one, two, between)
        for mention in self.said.mentions:
            yield from self._role(mention)
        yield from self._winners()

    def _claim(self, first: int, last: int, true: bool, nearest: str, why: str) -> Claim:
        span = self.said.tokens[first].start, self.said.tokens[last].end
        verdict: Verdict = "supported" if true else "contradicted"
        text = self.said.text[slice(*span)]
        return Claim(span, text, "comparison", verdict, (), nearest, why)

    def _measured(self, at: int) -> list[tuple[int, Cell]]:
        """The cells that the numbers of the sentence of a token were held against, in order."""
        return self._inside.get(self.said.sentence(at)[0], [])

    def _group(self, row: Record) -> list[Record]:
        """The rows that belong where the row does; all of its table where that is unknown."""
        rows = self.evidence.tables[row.table].rows[:MANY]
        path = next(iter(self.evidence.linked(row)), None)
        return rows if path is None else [r for r in rows if r.cells.get(path) == row.cells[path]]

    def _leads(self, at: int) -> Iterator[Claim]:
        """ "X led the team with 20 points", "a game-high 31 points"."""
        whole, high = self.said.low(at - 2), self.said.low(at) == "high"
        if high and (self.said.low(at - 1) != "-" or whole in _AGO):
            return
        found = self._measured(at)
        cells = [cell for first, cell in found if not high or first > at][:1]
        for cell in cells if high or self._led(at) else ():
            table = self.evidence.tables[cell.row.table].rows[:MANY]
            rows = table if high and whole != "team" else self._group(cell.row)
            top = _top(rows, cell.column)
            if top is not None and len(rows) >= FEW and cell.value is not None:
                why = f"{top[0]:g} is the highest"
                true = cell.value >= top[0]
                yield self._claim(at - 2 * high, at, true, title(top[1]), why)

    def _led(self, at: int) -> bool:
        """Whether what is led is a row of another table, a team or "the way"."""
        after = at + 1 + (self.said.low(at + 1) == "the")
        low = self.said.low(after)
        return low == "by" or low in _LED or bool(self.said.within(after, after + 1))

    def _ranks(self, at: int) -> Iterator[Claim]:
        """ "Second on the team with 16 points"."""
        words = tuple(self.said.low(at + n) for n in (1, 2, 3))
        if words[0] not in ("on", "in", "among") or words[1] != "the" or words[2] not in _LED:
            return
        for _, cell in self._measured(at)[:1]:
            rows, own = self._group(cell.row), cell.value
            if own is not None and len(rows) >= FEW:
                rank = 1 + sum((value(row, cell.column) or 0) > own for row in rows)
                true = rank == ORDINALS[self.said.low(at)]
                yield self._claim(at, at, true, str(rank), "its rank in the first measure named")

    def _doubles(self, at: int) -> Iterator[Claim]:
        """ "Double figures" are 10 or more; "a double-double" is 10 or more in two measures."""
        times, after = 2 + (self.said.low(at) == "triple"), self.said.low(at + 1)
        found = self._measured(at)
        if not found:
            return
        cells = self._of[id(found[-1][1].row)].values()
        if after == "-" and self.said.low(at + 2) == "double" and len(cells) >= times:
            tens = sum((cell.value or 0) >= 10 for cell in cells)
            why = f"{tens} measures of 10 or more"
            yield self._claim(at, at + 2, tens >= times, "", why)
        elif times == 2 and after in ("figures", "digits"):
            own = found[0][1].value or 0.0
            yield self._claim(at, at + 1, own >= 10, f"{own:g}", "10 or more")

    def _role(self, mention: Mention) -> Iterator[Claim]:
        """ "The home Badgers", where the row of the Badgers is not the one called home."""
        word, at = self.said.low(mention.first - 1), mention.first - 1
        for row in mention.rows if self.said.low(at - 1) == "the" else ():
            others = (
                self.evidence.tables[row.table].rows if row.key and row.path.endswith("…") else ()
            )
            called = [r for r in others if any(names(word, k) > 1 for k in r.key)]
            if called:
                true = any(r.key == row.key for r in called)
                yield self._claim(at, at, true, title(called[0]), f"said of {title(called[0])}")

    def _itself(self, one: Mention, two: Mention, between: Sequence[str]) -> Iterator[Claim]:
        """ "The Hawks defeated the Hawks": nothing is compared with itself."""
        same = one.rows and {id(row) for row in one.rows} == {id(row) for row in two.rows}
        told = _APART.isdisjoint(between) and not _BEATS.isdisjoint(between)
        if same and told and len(between) <= 2 * NEAR:
            yield self._claim(two.first, two.last, False, "", "is compared with itself")

    def _member(self, one: Mention, two: Mention, between: Sequence[str]) -> Iterator[Claim]:
        """ "X led the Kings", where X belongs to another row of their table."""
        leads = not _LEADS.isdisjoint(between)
        if len(between) > NEAR or not {",", ".", ";"}.isdisjoint(between):
            return
        whole, part = (one, two) if leads and "by" in between else (two, one)
        homes = self._homes(part) if leads or between[:1] in (["for"], ["of"]) else []
        rows = [row for row in whole.rows if homes and row.table == homes[0].table]
        if rows and not any(row in homes for row in rows):
            why = f"belongs to {title(homes[0])}"
            yield self._claim(whole.first, whole.last, False, title(homes[0]), why)

    def _homes(self, part: Mention) -> list[Record]:
        """The rows of other tables that those of a mention belong to."""
        cells = [row.cells[p] for row in part.rows for p in self.evidence.linked(row)[:1]]
        own = {row.table for row in part.rows}
        return [home for c in cells for home in self.evidence.homes(c) if home.table not in own]

    def _winners(self) -> Iterator[Claim]:
        """ "A beat B, 3 - 5": who is said to win has the greater of the two numbers."""
        for pair, cells in self._met:
            start, _ = self.said.sentence(pair.one.first)
            back = range(pair.one.first, start, -1)
            verb = next((at for at in back if self.said.low(at) in _WINS), start)
            named = self.said.within(start, verb)[-1:]
            own = [cell.value for cell in cells if named and cell.row in named[0].rows]
            if own and own[0] is not None:
                true = own[0] >= max(cell.value or 0.0 for cell in cells)
                shown = " - ".join(f"{cell.value:g}" for cell in cells)
                yield self._claim(verb, verb, true, shown, "the greater number wins")


def _top(rows: Sequence[Record], column: Column) -> tuple[float, Record] | None:
    held = [(v, row) for row in rows if (v := value(row, column)) is not None]
    return max(held, key=lambda pair: pair[0], default=None)
