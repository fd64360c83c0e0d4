"""What examples are called outside of their database, where their ids say nothing; and back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import isfinite
from typing import Any

from heedful.memory.portable import Plain, encoded, gone, parted
from heedful.protocols import Scope
from heedful.store.database import Db, Row
from heedful.store.reflections import LESSON, key_of, mark, storable, token

Rest = tuple[frozenset[str], frozenset[str]]
NOTHING: Rest = (frozenset(), frozenset())
VOICE = f"{LESSON}:"


def digest_of(row: Row) -> str:
    """The digest of an example; of the row of a lesson itself that of its words, marked so."""
    alone = row["digest"] == LESSON
    return VOICE + mark(LESSON, storable(row["lesson"])) if alone else str(row["digest"])


def finite(value: Any) -> Any:
    """JSON data without the numbers that JSON has no word for: null stands there."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not isfinite(value) else value


class Names:
    """The names of the examples of one scope: `kind/signature/digest`.

    One that is gone is called by what it rested on, which is all that is known of it: its sources
    and the examples that it derived from, through others that are gone.
    """

    def __init__(self, db: Db, scope: Scope) -> None:
        self._db, self._key = db, {**key_of(scope), "scope": token(scope)}
        self._rests: dict[int, Rest] = {}
        self._made: dict[bytes, int] = {}

    def name(self, id: int) -> str:
        """The name of an example that is there; "" where there is none."""
        for row in self._rows("example_name", example=id):
            return f"{row['kind']}/{row['signature']}/{digest_of(row)}"
        return ""

    def names(self, ids: Iterable[int]) -> list[Any]:
        """What the examples are called, each once; not one that is gone and rested on nothing."""
        named = {id: self.name(id) for id in ids}
        rests = {self._rest(id) for id, name in named.items() if not name} - {NOTHING}
        there = sorted({name for name in named.values() if name})
        return [*there, *sorted((gone(*rest) for rest in rests), key=encoded)]

    def parents(self, id: int) -> list[Any]:
        """What the examples are called that this one derives from."""
        return self.names(row["parent"] for row in self._rows("parents_of", example=id))

    def id(self, name: str) -> int | None:
        """The id of an example that is there; None where there is none of that name."""
        kind, signature, digest = parted(name)
        bare = digest.removeprefix(VOICE)
        rows = self._rows("find_examples", kind=kind, signature=signature, digest=bare)
        ids = {digest_of(row): int(row["id"]) for row in rows}
        other = VOICE + bare if digest == bare else bare
        return ids.get(digest, ids.get(other))

    def told(self, record: str) -> Plain:
        """What a ruling rests on, with the name of its example; null where that is gone."""
        plain: dict[str, Any] = finite(json.loads(record))
        if isinstance(id := plain.get("example"), int):
            plain["example"] = self.name(id) or None
        return plain

    def ids(self, names: Iterable[Any]) -> list[int]:
        """The ids for what `names` gives: one that is gone here, too, is there again as gone."""
        found = (self.id(one) if isinstance(one, str) else self._gone(one) for one in names)
        return sorted({id for id in found if id is not None})

    def _rows(self, name: str, **values: Any) -> list[Row]:
        return self._db.named(name, {**self._key, **values}).fetchall()

    def _rest(self, id: int) -> Rest:
        if id not in self._rests:
            rows = self._rows("rested_on", example=id)
            sources = {storable(row["source"]) for row in rows if row["source"]}
            there = {self.name(row["there"]) for row in rows if row["there"] is not None}
            self._rests[id] = frozenset(sources), frozenset(there - {""})
        return self._rests[id]

    def _gone(self, one: Plain) -> int:
        key = encoded(one)
        if key not in self._made:
            sources = [storable(source) for source in one["sources"] if source]
            parents = [id for id in map(self.id, one["parents"]) if id is not None]
            wanted = frozenset(sources), frozenset(map(self.name, parents))
            near = {"source": next(iter(sources), None), "parent": next(iter(parents), None)}
            known = (int(row["id"]) for row in self._rows("find_gone", **near))
            same = (id for id in known if self._rest(id) == wanted)
            self._made[key] = next(same, None) or self._new(sources, parents)
        return self._made[key]

    def _new(self, sources: Iterable[str], parents: Iterable[int]) -> int:
        ((id,),) = self._rows("next_gone")
        for source in sources or [""]:
            self._rows("insert_origin", example=id, source=source)
        for parent in parents:
            self._rows("derive", example=id, parent=parent)
        return int(id)
