"""What a scope has learnt, read in SQL as the records of an export."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import groupby
from typing import Any

from heedful.memory.learn import Example
from heedful.memory.portable import FORMAT, VERSION, Plain, credit, encoded, place
from heedful.protocols import Scope
from heedful.redact import redacted_data
from heedful.store.database import Db, Row
from heedful.store.names import Names, digest_of, finite
from heedful.store.reflections import count, key_of, storable

# Between the id of a loop elsewhere and its time: here another one may have that id.
MOVED = "\x1e"
BLANK = asdict(Example("", ""))
FLAGS = ("pinned", "apart")
TEXTS = ("error_type", "pattern", "text", "source")
SAME = (
    "kind", "signature", "state", "trust", "importance", "useful",
    "seen", "helped", "hurt", "first_seen", "last_seen", "last_shown",
)  # fmt: skip


def export(db: Db, scope: Scope, write: Callable[[Plain], None], vectors: bool) -> None:
    """Hand every record to `write`, in order, but for the last. Within one read transaction."""
    source = _Source(db, scope, vectors)
    for record in source.records():
        write(record)


class _Source:
    """One scope as one read transaction sees it."""

    def __init__(self, db: Db, scope: Scope, vectors: bool) -> None:
        self._db, self._scope, self._vectors = db, scope, vectors
        self._names = Names(db, scope)

    def records(self) -> Iterator[Plain]:
        yield self._header()
        listed = self._credits()
        for row in self._rows("export_lessons"):
            yield _lesson(row, listed[f"{row['kind']}/{row['signature']}"])
            yield from self._examples(row)
        for row in self._rows("export_lessons"):
            yield from self._sightings(row)
        for row in self._rows("export_lineage"):
            if parents := self._names.parents(int(row["id"])):
                child = f"{row['kind']}/{row['signature']}/{digest_of(row)}"
                yield {"is": "lineage", "child": child, "parents": parents}
        yield from self._loops()
        rulings = {place(one): one for one in self._rulings()}  # those on examples gone look alike
        yield from (rulings[key] for key in sorted(rulings))
        links = ({"is": "link", **dict(row)} for row in self._rows("export_links"))
        yield from sorted(links, key=place)

    def _rows(self, name: str, **values: Any) -> Iterator[Row]:
        return iter(self._db.named(name, {**key_of(self._scope), **values}))

    def _header(self) -> Plain:
        spaces = {row["space"]: row["n"] for row in self._rows("export_spaces")}
        return {
            "is": FORMAT,
            "version": VERSION,
            **key_of(self._scope),
            "lessons": count(self._db, self._scope),
            "spaces": spaces if self._vectors else {},
        }

    def _credits(self) -> defaultdict[str, Counter[str]]:
        """By lesson, how often it helped and hurt as far as the loops below tell."""
        found: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for loop in self._loops():
            for one in loop["exposures"]:
                helped, hurt = credit(one, loop["outcome"])
                found[one["lesson"]].update(helped=helped, hurt=hurt)
        return found

    def _examples(self, lesson: Row) -> Iterator[Plain]:
        for row in self._rows("export_examples", reflection=lesson["id"]):
            origins = [o["source"] for o in self._rows("export_origins", example=row["id"])]
            vector = None
            if self._vectors and row["space"] is not None:
                data = b64encode(row["data"]).decode("ascii")
                vector = {"space": row["space"], "data": data}
            yield {
                "is": "example",
                "lesson": f"{lesson['kind']}/{lesson['signature']}",
                "digest": digest_of(row),
                "author": row["id"] == lesson["author"],
                "says": storable(row["lesson"]),
                **{name: row[name] for name in ("state", "trust", "at")},
                "example": _example(row["record"]),
                "words": row["words"],
                "origins": sorted(map(storable, origins)),
                "vector": vector,
            }

    def _sightings(self, lesson: Row) -> Iterator[Plain]:
        """In the order of their times; those of one time, which are few, by loop and text."""
        name = f"{lesson['kind']}/{lesson['signature']}"
        rows = self._rows("export_sightings", reflection=lesson["id"])
        for at, those in groupby(rows, key=lambda row: float(row["at"])):
            told: defaultdict[tuple[str, str], list[Plain]] = defaultdict(list)
            for row in those:
                parents = self._names.names(json.loads(row["parents"]))
                one = {"source": storable(row["source"]), "trust": row["trust"], "parents": parents}
                told[row["loop"], storable(row["text"])].append(one)
            for (loop, text), by in sorted(told.items()):
                same = {"lesson": name, "at": at, "loop": loop, "text": text}
                yield {"is": "sighting", **same, "told": sorted(by, key=encoded)}

    def _loops(self) -> Iterator[Plain]:
        """By the name that a loop had where it ran, and when."""
        rows = self._rows("export_loops")
        told = sorted((row["loop"].partition(MOVED)[0], row["at"], row["loop"]) for row in rows)
        for name, at, loop in told:
            outcome = self._rows("export_outcome", loop=loop)
            yield {
                "is": "loop",
                "loop": name,
                "at": at,
                "exposures": [
                    self._exposure(row) for row in self._rows("export_exposures", loop=loop)
                ],
                "outcome": next((_outcome(row) for row in outcome), None),
            }

    def _exposure(self, row: Row) -> Plain:
        examples = [self._names.name(id) for id in json.loads(row["examples"])]
        return {
            "lesson": f"{row['kind']}/{row['signature']}",
            "shown": bool(row["shown"]),
            "share": row["share"],
            "together": bool(row["together"]),
            "examples": [name.rpartition("/")[2] for name in examples if name],
        }

    def _rulings(self) -> Iterator[Plain]:
        for row in self._rows("export_rulings"):
            told = {name: row[name] for name in ("at", "action", "subject", "by", "why")}
            yield {"is": "ruling", **told, "record": self._names.told(row["record"])}


def _lesson(row: Row, listed: Counter[str]) -> Plain:
    counts = {"seen": row["listed"], "helped": listed["helped"], "hurt": listed["hurt"]}
    meta = finite(redacted_data(json.loads(row["meta"])))
    return {
        "is": "lesson",
        **{name: row[name] for name in SAME},
        **{name: storable(row[name]) for name in TEXTS},
        **{name: bool(row[name]) for name in FLAGS},
        "tags": [storable(tag) for tag in json.loads(row["tags"])],
        "listed": counts,
        **({"meta": meta} if meta else {}),
    }


def _example(record: str) -> Plain:
    """All fields of an Example; of its scores those that are numbers."""
    plain: dict[str, Any] = redacted_data(BLANK | json.loads(record))
    for name in ("before", "after"):
        scores = finite(plain[name]).items()
        plain[name] = {key: value for key, value in scores if value is not None}
    return plain


def _outcome(row: Row) -> Plain:
    return {
        "right_at_once": bool(row["right_at_once"]),
        "calls": row["calls"],
        "signatures": json.loads(row["signatures"]),
        "at": row["at"],
    }
