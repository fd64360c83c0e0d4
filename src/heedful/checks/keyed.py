"""`rows`: keys compared in bounded memory: which are missing, which too many, which come twice.

Keys are compared by 64 bits each, sorted part by part; parts that are large wait on disk. Counts
are exact unless two keys share their 64 bits (SipHash), of which the odds are n² / 2⁶⁵: 3 in a
million among ten million keys. In memory are 8 bytes a key for a `PARTS`-th of all, and 128 kB a
part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from heedful.checks.batches import Source, Unread, opened
from heedful.checks.cells import keyed, listed
from heedful.checks.evaluate import Context
from heedful.checks.files import counted, empty, located, named
from heedful.checks.text import require, shorten
from heedful.loop.record import Finding, Level

if TYPE_CHECKING:
    from numpy import uint64
    from numpy.typing import NDArray

    Codes = NDArray[uint64]

PARTS = 64
KEPT = 1 << 17
"""Bytes of a part that stay in memory."""
SHOWN = 3
"""Keys of each kind that are named: the first in their source, among the first `HELD` by code."""
HELD = 10_000


class Keys:
    """The keys of one source, as codes in parts; a context manager, since parts may be files."""

    def __init__(self) -> None:
        self._open = ExitStack()
        enter = self._open.enter_context
        self._parts = [enter(SpooledTemporaryFile(KEPT)) for _ in range(PARTS)]  # noqa: SIM115
        self.rows: int = 0
        self.absent: int = 0

    def __enter__(self) -> Keys:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._open.close()

    def read(self, source: Source, names: Sequence[str]) -> None:
        """Take in the keys of all rows. Raises Unread."""
        import numpy as np

        for keys in _texts(source, names):
            codes = _codes([key for key in keys if any(key)])
            self.rows += len(keys)
            self.absent += len(keys) - len(codes)
            places = (codes >> np.uint64(58)).astype(np.intp)  # the first 6 of 64 bits
            codes = codes[np.argsort(places, kind="stable")]
            ends = np.cumsum(np.bincount(places, minlength=PARTS))
            for part, some in zip(self._parts, np.split(codes, ends[:-1]), strict=True):
                part.write(some.tobytes())

    def counted(self) -> Iterator[tuple[Codes, NDArray[Any]]]:
        """For each part the codes in it, sorted, and how often each comes."""
        import numpy as np

        for part in self._parts:
            part.seek(0)
            yield np.unique(np.frombuffer(part.read(), np.uint64), return_counts=True)


def _texts(source: Source, names: Sequence[str]) -> Iterator[list[tuple[str, ...]]]:
    """The keys of each batch as texts; all are empty where a row has none."""
    for columns in source.batches(names):
        cells = [map(keyed, listed(column)) for column in columns]
        yield list(zip(*cells, strict=True))


def _codes(keys: Sequence[tuple[str, ...]]) -> Codes:
    import numpy as np

    return np.fromiter(map(hash, map("\0".join, keys)), np.int64, len(keys)).view(np.uint64)


@dataclass(frozen=True, slots=True)
class Apart:
    """So many keys (or rows) that are not as they should be, and some of these keys by code."""

    count: int
    codes: list[int]


def apart(keys: Keys, wanted: Keys) -> dict[str, Apart]:
    """The keys that are `missing` of those wanted, `extra`, or in more than one row (`twice`)."""
    import numpy as np

    found: dict[str, Apart] = {kind: Apart(0, []) for kind in ("missing", "extra", "twice")}
    for (here, times), (there, _) in zip(keys.counted(), wanted.counted(), strict=True):
        missing = np.setdiff1d(there, here, assume_unique=True)
        extra = np.setdiff1d(here, there, assume_unique=True)
        for kind, codes, count in (
            ("missing", missing, len(missing)),
            ("extra", extra, len(extra)),
            ("twice", here[times > 1], int((times - 1).sum())),
        ):
            was = found[kind]
            found[kind] = Apart(
                was.count + count, was.codes + codes[: HELD - len(was.codes)].tolist()
            )
    return found


def _examples(source: Source, names: Sequence[str], codes: Sequence[int]) -> str:
    """The keys that have these codes, as the source has them: it is read once more."""
    asked, found = set(codes), list[str]()
    for keys in _texts(source, names):
        for code, key in zip(_codes(keys).tolist(), keys, strict=True):
            if code in asked:
                asked.remove(code)
                found.append(shorten(", ".join(key)))
                if len(found) == SHOWN or not asked:
                    return "; ".join(found)
    return "; ".join(found)


@dataclass(frozen=True, slots=True)
class Rows:
    """Each row has a key of its own, and the keys are those of another source; made by `rows`."""

    source: Any
    key: tuple[str, ...]
    same_as: Any
    name: ClassVar[str] = "rows"
    pure: ClassVar[bool] = False

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        try:
            source = opened(located(self.source, candidate, context))
            other = None
            if self.same_as is not None:
                other = opened(located(self.same_as, candidate, context))
            if not self.key:
                return _counts(source, other or source)
            return list(self._keys(source, other))
        except Unread as why:
            return [why.finding(self.name)]

    def _keys(self, source: Source, other: Source | None) -> Iterator[Finding]:
        by = " and ".join(self.key)
        with Keys() as keys, Keys() as wanted:
            keys.read(source, self.key)
            if other is not None:
                wanted.read(other, self.key)
            if not keys.rows:
                yield empty()
                return
            if keys.absent:
                what = f"{keys.absent} of {keys.rows} rows have no {by}"
                yield _found(what, f"write {by} in every row", "no key")
            found = apart(keys, wanted)
            where = {"missing": other or source, "extra": source, "twice": source}
            for kind, what, fix in (
                ("twice", "{} of {} rows have the same {} as one before", "write every row once"),
                ("missing", "{} of {} wanted rows are missing, by {}", "write a row for each"),
                ("extra", "{} of {} rows are not wanted, by {}", "leave these rows out"),
            ):
                if found[kind].count and (other is not None or kind == "twice"):
                    of = wanted.rows if kind == "missing" else keys.rows
                    first = _examples(where[kind], self.key, found[kind].codes)
                    told = f"{what.format(found[kind].count, of, by)}, such as {first}"
                    yield _found(told, fix, kind)
            if other is not None and (again := apart(wanted, keys)["twice"].count):
                what = f"{again} of {wanted.rows} wanted rows have the same {by} as one before"
                yield _found(
                    what, "compare with rows that have keys of their own", "wanted", "warning"
                )


def _found(what: str, fix: str, kind: str, level: Level = "error") -> Finding:
    return Finding("rows", what, fix, level, 0.7, f"rows: {kind}")


def _counts(source: Source, other: Source) -> list[Finding]:
    here, there = counted(source), counted(other)
    if here == there:
        return []
    fix = f"write {there} rows, one for each that is wanted"
    return [_found(f"there are {here} rows, {there} are wanted", fix, "count")]


def rows(source: Any = None, key: str | Sequence[str] = (), same_as: Any = None) -> Rows:
    """Every row has a key of its own, the same keys as the rows of `same_as`, in any order.

    `key` names the columns that tell rows apart; without it the rows are counted alone. `same_as`
    is a source, too. 7, 7.0 and "7" are one key, and so are a date and its midnight. Millions of
    keys take some seconds and little memory. Raises InvalidInput without `key` and `same_as`.
    """
    names = named("key", key)
    require(bool(names) or same_as is not None, "key", key, "given where there is no same_as")
    return Rows(source, names, same_as)
