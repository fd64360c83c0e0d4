"""Vectors of a scope in RAM, as int8: derived from the database, which alone says what is true."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from heedful.store.database import Db, Row

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ids = NDArray[np.int64]
    Rows = NDArray[np.float32]

# What all scopes together may take, in bytes: a million vectors of 384 dimensions, and some more.
MOST = 512 * 1024 * 1024
# Vectors that are read and coded together: their numbers stay in the cache of a core.
TOGETHER = 256


class Vectors:
    """The codes of the scopes searched last, within `most` bytes; the one in use always stays.

    A connection keeps them, and they are true of it alone.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._kept: dict[tuple[str, str, int], Codes] = {}

    def codes(self, db: Db, key: dict[str, Any], corpus: Row, width: int) -> Codes:
        """Those of the scope and space of `key`, as of the transaction that is open."""
        name = corpus["scope"], key["space"], width
        codes = self._kept.pop(name, None)
        # What is gone is only found out where a search comes upon it.
        if codes is None or codes.count > 2 * corpus["texts"] + TOGETHER:
            codes = Codes(width, corpus["texts"])
        codes.follow(db, key, corpus["changed"])
        self._kept[name] = codes
        while self.bytes > self._most and len(self._kept) > 1:
            del self._kept[next(iter(self._kept))]
        return codes

    @property
    def bytes(self) -> int:
        """What they take."""
        return sum(codes.bytes for codes in self._kept.values())


class Codes:
    """Vectors of `width` numbers, one a row: id, code and scale, in no order.

    A code times its scale is the vector to within half a 127th of its largest number. Without
    numkong, which multiplies int8, the codes are the vectors themselves: four times the memory.
    """

    def __init__(self, width: int, room: int) -> None:
        import numpy as np

        self._followed: int = 0
        self._newest: int = 0
        self.count: int = 0
        self._ids = np.empty(room, np.int64)
        self._scales = np.empty(room, np.float32)
        self._codes = np.empty((room, width), np.int8 if _numkong() else np.float32)

    @property
    def bytes(self) -> int:
        """What there is room for."""
        return self._ids.nbytes + self._scales.nbytes + self._codes.nbytes

    def follow(self, db: Db, key: dict[str, Any], changed: int) -> None:
        """Take over what became a candidate since the last time; `changed` is the last number."""
        import numpy as np

        if changed == self._followed:
            return
        values = {**key, "since": self._followed}
        rows = db.named("new_vectors", values)
        size = 4 * self._codes.shape[1]
        for part in _parts(rows, size):
            data = np.frombuffer(b"".join(data for _, data in part), "<f4")
            self._put(np.array([id for id, _ in part], np.int64), data.reshape(len(part), -1))
        self._followed = changed

    def nearest(self, query: Rows, many: int, among: Ids | None = None) -> Ids:
        """The ids of the `many` nearest, as the codes tell it, the nearest first; of `among`."""
        import numpy as np

        scores, ids = self._scores(query), self._ids[: self.count]
        if among is not None:
            known = np.isin(ids, among)
            scores, ids = scores[known], ids[known]
        if many < len(ids):
            least = np.partition(scores, -many)[-many]
            near = np.flatnonzero(scores >= least)
            scores, ids = scores[near], ids[near]
        return ids[np.lexsort((ids, -scores))[:many]]

    def drop(self, gone: Ids) -> None:
        """Forget these; the last rows take their places."""
        import numpy as np

        was = np.isin(self._ids[: self.count], gone)
        self.count -= int(was.sum())
        holes = np.flatnonzero(was[: self.count])
        last = self.count + np.flatnonzero(~was[self.count :])
        for rows in (self._ids, self._scales, self._codes):
            rows[holes] = rows[last]

    def keep(self, these: Ids) -> None:
        """Forget all others."""
        import numpy as np

        ids = self._ids[: self.count]
        self.drop(ids[~np.isin(ids, these)])

    def _put(self, ids: Ids, vectors: Rows) -> None:
        import numpy as np

        if ids.min() <= self._newest:
            self.drop(ids)
        self._newest = max(self._newest, int(ids.max()))
        end = self.count + len(ids)
        if end > len(self._ids):
            room = end + end // 8
            for name in ("_ids", "_scales", "_codes"):
                old = getattr(self, name)
                new = np.empty((room, *old.shape[1:]), old.dtype)
                new[: self.count] = old[: self.count]
                setattr(self, name, new)
        self._ids[self.count : end] = ids
        if self._codes.dtype == np.int8:
            coded = _coded(vectors)
            self._codes[self.count : end], self._scales[self.count : end] = coded
        else:
            self._codes[self.count : end] = vectors
        self.count = end

    def _scores(self, query: Rows) -> Any:
        """How near each is, up to one factor for all."""
        import numpy as np

        codes = self._codes[: self.count]
        if codes.dtype == np.float32 or not self.count:
            return codes @ query
        products = _numkong().cdist(_coded(query[None])[0], codes, "dot")
        return np.asarray(products)[0] * self._scales[: self.count]


def _parts(rows: Any, size: int) -> Iterator[list[tuple[int, bytes]]]:
    """Rows with as many bytes as asked for, so many at once."""
    while part := rows.fetchmany(TOGETHER):
        if fitting := [(id, data) for id, data in part if len(data) == size]:
            yield fitting


def _coded(vectors: Rows) -> tuple[NDArray[np.int8], Rows]:
    """Codes of -127..127 and the scale of each row; a vector of zeros, or not finite, is zeros."""
    import numpy as np

    scales = np.maximum(vectors.max(axis=1), -vectors.min(axis=1)) / 127
    fit = np.isfinite(scales) & (scales > 0)
    if not fit.all():
        vectors = np.where(fit[:, None], vectors, 0)
        scales = np.where(fit, scales, 1)
    return np.rint(vectors / scales[:, None]).astype(np.int8), scales


def _numkong() -> Any:
    """The library, or None on a platform or in an installation without it."""
    try:
        import numkong
    except ImportError:
        return None
    return numkong
