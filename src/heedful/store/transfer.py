"""The records of an export, read from the rows of one scope and written into another.

`heedful.lessons.export` declares fields and order. In an export an example is named by kind,
signature and digest, because its id means nothing in another database. Writing a record twice
changes nothing.
"""

from __future__ import annotations

import json
import time
from base64 import b64decode, b64encode
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from math import isfinite
from typing import Any

from heedful.errors import StoreError
from heedful.lessons.export import (
    FORMAT,
    IMPORT,
    LESSON_FLAGS,
    LESSON_TEXTS,
    VERSION,
    Effect,
    Plain,
    credit,
    encode_line,
    lost_parent,
    sort_key,
    split_name,
)
from heedful.lessons.lesson import Example, Scope
from heedful.lessons.trust import RAISING, raises_trust
from heedful.lessons.words import MOST, words
from heedful.redact import redact_data
from heedful.store import lessons as lesson_store
from heedful.store.lessons import LESSON, mark
from heedful.store.store import Db, Row, Store, key_of, placed, storable, token

Origin = tuple[frozenset[str], frozenset[str]]  # sources and names of parents
UNKNOWN: Origin = (frozenset(), frozenset())
WORDS = f"{LESSON}:"  # the prefix of the digest of a row that holds the words of its lesson
# Separates an imported loop's id from its time if another loop with that id ran here.
MOVED = "\x1e"
BLANK = asdict(Example("", ""))
STAYS = ("retired", "superseded")
# The columns of a lesson that a record has unchanged.
KEPT = ("kind", "signature", "state", "trust", "importance", "useful")
TIMES = ("first_seen", "last_seen", "last_shown")


def _finite(value: Any) -> Any:
    """Return JSON data with null for the numbers that JSON cannot express."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _digest(row: Row) -> str:
    """Return the digest of an example; the row of a lesson itself has the digest of its words."""
    alone = row["digest"] == LESSON
    return WORDS + mark(LESSON, storable(row["lesson"])) if alone else str(row["digest"])


class _Scope:
    """The rows of one scope, and the names of its examples: `kind/signature/digest`.

    A removed example is named by its origin, which is all that is known about it: its sources, and
    the examples that it derives from.
    """

    def __init__(self, db: Db, scope: Scope) -> None:
        self.db, self.scope = db, scope
        self._key = {**key_of(scope), "scope": token(scope)}
        self._origins: dict[int, Origin] = {}
        self._removed: dict[bytes, int] = {}

    def rows(self, name: str, **values: Any) -> list[Row]:
        return self.db.named(name, {**self._key, **values}).fetchall()

    def each(self, name: str, **values: Any) -> Iterator[Row]:
        return iter(self.db.named(name, {**self._key, **values}))

    def changes(self, name: str, **values: Any) -> bool:
        return self.db.named(name, {**self._key, **values}).rowcount > 0

    def name(self, id: int) -> str:
        """Return the name of an example, or "" if there is none."""
        for row in self.rows("example_name", example=id):
            return f"{row['kind']}/{row['signature']}/{_digest(row)}"
        return ""

    def names(self, ids: Iterable[int]) -> list[Any]:
        """Return the names of examples, each once, without removed ones of unknown origin."""
        named = {id: self.name(id) for id in ids}
        origins = {self._origin(id) for id, name in named.items() if not name} - {UNKNOWN}
        there = sorted({name for name in named.values() if name})
        return [*there, *sorted((lost_parent(*origin) for origin in origins), key=encode_line)]

    def parents(self, id: int) -> list[Any]:
        """Return the names of the examples that this one derives from."""
        return self.names(row["parent"] for row in self.rows("parents_of", example=id))

    def id(self, name: str) -> int | None:
        """Return the id of the example of that name, if there is one."""
        kind, signature, digest = split_name(name)
        bare = digest.removeprefix(WORDS)
        rows = self.rows("find_examples", kind=kind, signature=signature, digest=bare)
        ids = {_digest(row): int(row["id"]) for row in rows}
        return ids.get(digest, ids.get(WORDS + bare if digest == bare else bare))

    def ids(self, names: Iterable[Any]) -> list[int]:
        """Return the ids for names; an example that was removed there is removed here too."""
        ids = (self.id(one) if isinstance(one, str) else self._removed_id(one) for one in names)
        return sorted({id for id in ids if id is not None})

    def ruling(self, record: str) -> Plain:
        """Return the record of a ruling with the name of its example; null if it was removed."""
        plain: dict[str, Any] = _finite(json.loads(record))
        if isinstance(id := plain.get("example"), int):
            plain["example"] = self.name(id) or None
        return plain

    def _origin(self, id: int) -> Origin:
        if id not in self._origins:
            rows = self.rows("rested_on", example=id)
            sources = {storable(row["source"]) for row in rows if row["source"]}
            there = {self.name(row["there"]) for row in rows if row["there"] is not None}
            self._origins[id] = frozenset(sources), frozenset(there - {""})
        return self._origins[id]

    def _removed_id(self, removed: Plain) -> int:
        """Return the id of a removed example with this origin, creating it if there is none."""
        key = encode_line(removed)
        if key not in self._removed:
            sources = [storable(source) for source in removed["sources"] if source]
            parents = [id for id in map(self.id, removed["parents"]) if id is not None]
            wanted = frozenset(sources), frozenset(map(self.name, parents))
            near = {"source": next(iter(sources), None), "parent": next(iter(parents), None)}
            known = (int(row["id"]) for row in self.rows("find_gone", **near))
            id = next((id for id in known if self._origin(id) == wanted), None)
            if id is None:
                ((id,),) = self.rows("next_gone")
                for source in sources or [""]:
                    self.rows("insert_origin", example=id, source=source)
                for parent in parents:
                    self.rows("derive", example=id, parent=parent)
            self._removed[key] = int(id)
        return self._removed[key]


async def read_records(
    store: Store, scope: Scope, write: Callable[[Plain], None], vectors: bool
) -> None:
    """Call `write` with each record of an export except the last, in order, from one moment.

    `write` runs in another thread, and is not called after the caller is cancelled.
    """
    going = True

    def work(db: Db, scope: Scope) -> None:
        for record in _Reader(db, scope, vectors).records():
            if not going:
                raise StoreError("the export was cancelled")
            write(record)

    try:
        await store.apart(scope, work)
    finally:
        going = False


class _Reader(_Scope):
    """Reads the records of one scope within one transaction."""

    def __init__(self, db: Db, scope: Scope, vectors: bool) -> None:
        super().__init__(db, scope)
        self._vectors = vectors

    def records(self) -> Iterator[Plain]:
        spaces = {row["space"]: row["n"] for row in self.each("export_spaces")}
        yield {
            "is": FORMAT,
            "version": VERSION,
            **key_of(self.scope),
            "lessons": lesson_store.count(self.db, self.scope),
            "spaces": spaces if self._vectors else {},
        }
        credits: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for loop in self._loops():
            for exposure in loop["exposures"]:
                helped, hurt = credit(exposure, loop["outcome"])
                credits[exposure["lesson"]].update(helped=helped, hurt=hurt)
        for row in self.each("export_lessons"):
            name = f"{row['kind']}/{row['signature']}"
            yield _lesson(row, credits[name])
            for example in self.each("export_examples", reflection=row["id"]):
                yield self._example(name, row["author"], example)
        for row in self.each("export_lessons"):
            yield from self._sightings(row)
        for row in self.each("export_lineage"):
            if parents := self.parents(int(row["id"])):
                child = f"{row['kind']}/{row['signature']}/{_digest(row)}"
                yield {"is": "lineage", "child": child, "parents": parents}
        yield from self._loops()
        about = ("at", "action", "subject", "by", "why")
        rulings = (
            {
                "is": "ruling",
                **{name: row[name] for name in about},
                "record": self.ruling(row["record"]),
            }
            for row in self.each("export_rulings")
        )
        by_place = {
            sort_key(record): record for record in rulings
        }  # those on removed examples agree
        yield from (by_place[key] for key in sorted(by_place))
        links = ({"is": "link", **dict(row)} for row in self.each("export_links"))
        yield from sorted(links, key=sort_key)

    def _example(self, lesson: str, author: Any, row: Row) -> Plain:
        origins = [origin["source"] for origin in self.each("export_origins", example=row["id"])]
        vector = None
        if self._vectors and row["space"] is not None:
            vector = {"space": row["space"], "data": b64encode(row["data"]).decode("ascii")}
        example: dict[str, Any] = redact_data(BLANK | json.loads(row["record"]))
        for name in ("before", "after"):
            scores = _finite(example[name]).items()
            example[name] = {key: score for key, score in scores if score is not None}
        return {
            "is": "example",
            "lesson": lesson,
            "digest": _digest(row),
            "author": row["id"] == author,
            "says": storable(row["lesson"]),
            **{name: row[name] for name in ("state", "trust", "at")},
            "example": example,
            "words": row["words"],
            "origins": sorted(map(storable, origins)),
            "vector": vector,
        }

    def _sightings(self, lesson: Row) -> Iterator[Plain]:
        """Yield sightings ordered by time, then by loop and text."""
        name = f"{lesson['kind']}/{lesson['signature']}"
        rows = self.each("export_sightings", reflection=lesson["id"])
        for at, same_time in groupby(rows, key=lambda row: float(row["at"])):
            sightings: defaultdict[tuple[str, str], list[Plain]] = defaultdict(list)
            for row in same_time:
                parents = self.names(json.loads(row["parents"]))
                sighting = {"source": storable(row["source"]), "trust": row["trust"]}
                sightings[row["loop"], storable(row["text"])].append(
                    {**sighting, "parents": parents}
                )
            for (loop, text), made in sorted(sightings.items()):
                same = {"lesson": name, "at": at, "loop": loop, "text": text}
                yield {"is": "sighting", **same, "told": sorted(made, key=encode_line)}

    def _loops(self) -> Iterator[Plain]:
        """Yield loops by the name that each had in its first database, and by time."""
        rows = self.each("export_loops")
        named = sorted((row["loop"].partition(MOVED)[0], row["at"], row["loop"]) for row in rows)
        for name, at, loop in named:
            outcomes = [
                {
                    "right_at_once": bool(row["right_at_once"]),
                    "calls": row["calls"],
                    "signatures": json.loads(row["signatures"]),
                    "at": row["at"],
                }
                for row in self.each("export_outcome", loop=loop)
            ]
            exposures = [self._exposure(row) for row in self.each("export_exposures", loop=loop)]
            outcome = next(iter(outcomes), None)
            yield {"is": "loop", "loop": name, "at": at, "exposures": exposures, "outcome": outcome}

    def _exposure(self, row: Row) -> Plain:
        examples = [self.name(id) for id in json.loads(row["examples"])]
        return {
            "lesson": f"{row['kind']}/{row['signature']}",
            "shown": bool(row["shown"]),
            "share": row["share"],
            "together": bool(row["together"]),
            "examples": [name.rpartition("/")[2] for name in examples if name],
        }


def _lesson(row: Row, credits: Counter[str]) -> Plain:
    meta = _finite(redact_data(json.loads(row["meta"])))
    return {
        "is": "lesson",
        **{name: row[name] for name in (*KEPT, "seen", "helped", "hurt", *TIMES)},
        **{name: storable(row[name]) for name in LESSON_TEXTS},
        **{name: bool(row[name]) for name in LESSON_FLAGS},
        "tags": [storable(tag) for tag in json.loads(row["tags"])],
        "listed": {
            "seen": row["listed"],
            "helped": credits["helped"],
            "hurt": credits["hurt"],
        },
        **({"meta": meta} if meta else {}),
    }


def write_records(
    db: Db, scope: Scope, records: Sequence[Plain], source: str, by: str, why: str
) -> list[Effect]:
    """Write records in the order of an export; return what each changed.

    A known record stays as it is, but its sightings are counted. Text from an operator or a
    measured outcome raises the trust of the same text here, as `remember` does, and that is
    recorded. `by` vouches for the import; "" if nobody does. `source` is the name of the import.
    """
    writer = _Writer(db, scope, source, by, why)
    kinds: dict[str, Callable[[Plain], Effect]] = {
        "lesson": writer.lesson,
        "example": writer.example,
        "sighting": writer.sighting,
        "lineage": writer.lineage,
        "loop": writer.loop,
        "ruling": writer.ruling_record,
        "link": writer.link,
    }
    return [kinds[record["is"]](record) for record in records]


class _Writer(_Scope):
    """Writes records into one scope within one transaction."""

    def __init__(self, db: Db, scope: Scope, source: str, by: str, why: str) -> None:
        super().__init__(db, scope)
        self._source, self._by, self._why, self._now = source, by, why, time.time()
        if by:
            ruling = {"action": IMPORT, "subject": source, "by": by, "why": why}
            self._rule(ruling, {}, {}, self._now)

    def _find(self, lesson: str) -> Row | None:
        """Return the lesson with this name, unless it was removed meanwhile."""
        kind, signature = split_name(lesson)
        return next(iter(self.rows("find_lesson", kind=kind, signature=signature)), None)

    def lesson(self, record: Plain) -> Effect:
        name = f"{record['kind']}/{record['signature']}"
        values = {column: record[column] for column in (*KEPT, *LESSON_FLAGS, *TIMES)}
        values |= {column: storable(record[column]) for column in LESSON_TEXTS}
        values["tags"] = json.dumps([storable(tag) for tag in record["tags"]])
        values["meta"] = json.dumps(redact_data(_finite(record.get("meta", {}))))
        row = self._find(name)
        # What later records list is counted with them.
        unlisted = {
            column: record[column] - record["listed"][column]
            for column in ("seen", "helped", "hurt")
        }
        if row is None:
            self.rows("import_lesson", **values, **unlisted)
            return "new"
        values["reflection"] = row["id"]
        raised = raises_trust(record["trust"], row["trust"]) and row["state"] not in STAYS
        if raised:
            self.rows("begin_anew", **{**values, "source": self._by, "mark": "", "now": self._now})
            self.rows("raise_lesson", **values)
            lesson_store.step_aside(self.db, {**self._key, **values})
            self._record_raise(name, mark(LESSON, values["text"]))
        both = {values["trust"], row["trust"]} <= RAISING
        verified = both and (values["state"], row["state"]) == ("verified", "candidate")
        merged = {
            "state": values["state"] if raised or verified else row["state"],
            "seen": row["listed"] + max(row["seen"] - row["listed"], unlisted["seen"]),
            "first_seen": min(row["first_seen"], record["first_seen"]),
            **{
                column: max(row[column], record[column])
                for column in ("last_seen", "last_shown", *LESSON_FLAGS)
            },
        }
        if any(row[column] != value for column, value in merged.items()):
            self.rows("merge_lesson", **merged, reflection=row["id"])
            return "changed"
        return "changed" if raised else "known"

    def example(self, record: Plain) -> Effect:
        lesson, says = self._find(record["lesson"]), storable(record["says"])
        if lesson is None:
            return "known"
        alone = record["digest"].startswith(WORDS)
        digest = mark(LESSON, says) if alone else record["digest"]
        if alone and says == lesson["text"]:
            self.rows("take_voice", reflection=lesson["id"], mark=digest)
            digest = LESSON
        kind, signature = split_name(record["lesson"])
        rows = self.rows("find_examples", kind=kind, signature=signature, digest=digest)
        known = next((row for row in rows if row["digest"] == digest), None)
        plain = redact_data(record["example"])
        task, given = storable(plain["task"]), record["words"]
        values = {
            "task": task,
            "record": json.dumps(plain),
            "lesson": says,
            "words": " ".join(words(task) if given is None else storable(given).split()[:MOST]),
            **{column: record[column] for column in ("state", "trust")},
            "now": record["at"],
            "reflection": lesson["id"],
            "digest": digest,
        }
        effect, id = self._put(record["lesson"], values, known)
        if (known is None or self._by) and self._add_origins(id, record) and effect == "known":
            effect = "changed"
        if record["author"] and says == lesson["text"]:
            self.rows("make_author", example=id, reflection=lesson["id"])
        return effect

    def _put(self, lesson: str, values: dict[str, Any], known: Row | None) -> tuple[Effect, int]:
        """Write an example that is new or raised; return its id."""
        digest = mark(values["digest"], values["lesson"])
        if known is None:
            held = values["state"] == "quarantined"
            rejected = held and lesson_store.was_rejected(self.db, self._key, lesson, digest)
            values["state"] = "retired" if rejected else values["state"]
            id = int(self.rows("insert_example", **values)[0]["id"])
            return "rejected" if rejected else "new", id
        if known["state"] not in STAYS and raises_trust(values["trust"], known["trust"]):
            self._record_raise(lesson, digest)
            return "changed", int(self.rows("insert_example", **values)[0]["id"])
        verified = self.changes("verify_example", **values)
        return "changed" if verified else "known", int(known["id"])

    def _add_origins(self, id: int, record: Plain) -> bool:
        """Write the sources and the vector of an example; return True if any of it is new."""
        origins = [storable(source) for source in record["origins"] or [""]]
        new = [self.changes("insert_origin", example=id, source=source) for source in origins]
        if vector := record["vector"]:
            values = placed(self.db, vector["space"], b64decode(vector["data"]))
            new.append(self.changes("import_vector", example=id, **values))
        return any(new)

    def sighting(self, record: Plain) -> Effect:
        if (lesson := self._find(record["lesson"])) is None:
            return "known"
        loop, text = storable(record["loop"]), storable(record["text"])
        same = {"reflection": lesson["id"], "at": record["at"], "loop": loop, "text": text}
        known = self.rows("count_same_sightings", **same)[0]["n"]
        new = record["told"][known:]
        for sighting in new:
            parents = json.dumps(self.ids(sighting["parents"]))
            origin = {"source": storable(sighting["source"]), "trust": sighting["trust"]}
            self.rows("insert_occurrence", **same, **origin, parents=parents, now=record["at"])
        if not new:
            return "known"
        self.rows("count_imported", reflection=lesson["id"], n=len(new))
        return "changed" if known else "new"

    def lineage(self, record: Plain) -> Effect:
        """Write which example derives from which; unless somebody vouches, only for imported ones.

        Otherwise a file could claim that a text of this scope derives from a source that will be
        revoked.
        """
        child = self.id(record["child"])
        if not self._by and not self.rows("is_of", example=child, source=self._source):
            return "known"
        known = self.parents(child) if child is not None else record["parents"]
        parents = self.ids(name for name in record["parents"] if name not in known)
        new = [self.changes("derive", example=child, parent=parent) for parent in parents]
        return "new" if any(new) else "known"

    def loop(self, record: Plain) -> Effect:
        """Write what a loop was shown, and its outcome; id and time identify the loop."""
        loop, at = storable(record["loop"]), float(record["at"])
        there = self.rows("find_told", loop=loop)
        if not there or there[0]["at"] != at:
            loop = f"{loop}{MOVED}{at!r}"
            there = self.rows("find_told", loop=loop)
        exposures = record["exposures"]
        for exposure in () if there else exposures:
            kind, signature = split_name(exposure["lesson"])
            named = (self.id(f"{exposure['lesson']}/{digest}") for digest in exposure["examples"])
            values = {name: exposure[name] for name in ("shown", "share", "together")}
            values["examples"] = json.dumps([id for id in named if id is not None])
            values |= {"among": len(exposures), "now": at, "loop": loop}
            self.rows("insert_exposure", kind=kind, signature=signature, **values)
        ended = record["outcome"] is not None and self._end(loop, record["outcome"])
        return "new" if not there else "changed" if ended else "known"

    def _end(self, loop: str, outcome: Plain) -> bool:
        """Write an outcome and count it on the lessons shown; return False if it was known."""
        values = {name: outcome[name] for name in ("right_at_once", "calls")}
        signatures = json.dumps([storable(signature) for signature in outcome["signatures"]])
        values |= {"loop": loop, "signatures": signatures, "now": outcome["at"]}
        if not self.rows("insert_outcome", **values):
            return False
        self.rows("count_outcome", **values)
        return True

    def ruling_record(self, record: Plain) -> Effect:
        plain = dict(record["record"])
        if isinstance(plain.get("example"), str):
            plain["example"] = self.id(plain["example"])
        ruling = {name: record[name] for name in ("action", "subject", "by", "why")}
        return "new" if self._rule(ruling, plain, record["record"], record["at"]) else "known"

    def link(self, record: Plain) -> Effect:
        """Write links between lessons; unless somebody vouches, only between imported ones."""
        values = {name: record[name] for name in ("child", "relation", "parent")}
        values |= {"source": "" if self._by else self._source, "now": record["at"]}
        return "new" if self.changes("import_link", **values) else "known"

    def _rule(self, ruling: Plain, record: Plain, named: Plain, at: float) -> bool:
        """Record a ruling; return False if it was known. `named` is its record with names."""
        values = {name: storable(text) for name, text in ruling.items()} | {"now": at}
        if redact_data(named) in map(
            self.ruling, (row["record"] for row in self.rows("find_ruling", **values))
        ):
            return False
        self.rows("insert_ruling", **values, record=json.dumps(redact_data(record)))
        return True

    def _record_raise(self, lesson: str, digest: str) -> None:
        """Record that the import raised the trust of a known text."""
        record = {"digest": digest, "source": self._source}
        lesson_store.rule(
            self.db, self.scope, "release", lesson, self._by, self._why, self._now, record
        )
