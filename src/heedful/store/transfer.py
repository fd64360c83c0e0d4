"""What examples are called outside of their database, where their ids say nothing; and back.

What a scope has learnt, read in SQL as the records of an export.
The records of an export, written in SQL: each once, however often it comes.
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
from heedful.store import lessons as trust
from heedful.store.database import Db, Row
from heedful.store.lessons import (
    LESSON,
    count,
    key_of,
    mark,
    placed,
    rule,
    step_aside,
    storable,
    token,
)
from heedful.store.store import Store

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
        return [*there, *sorted((lost_parent(*rest) for rest in rests), key=encode_line)]

    def parents(self, id: int) -> list[Any]:
        """What the examples are called that this one derives from."""
        return self.names(row["parent"] for row in self._rows("parents_of", example=id))

    def id(self, name: str) -> int | None:
        """The id of an example that is there; None where there is none of that name."""
        kind, signature, digest = split_name(name)
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
        key = encode_line(one)
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


# Between the id of a loop elsewhere and its time: here another one may have that id.
MOVED = "\x1e"
BLANK = asdict(Example("", ""))
FLAGS = ("pinned", "apart")
TEXTS = ("error_type", "pattern", "text", "source")
SAME = (
    "kind", "signature", "state", "trust", "importance", "useful",
    "seen", "helped", "hurt", "first_seen", "last_seen", "last_shown",
)  # fmt: skip


async def export(store: Store, scope: Scope, write: Callable[[Plain], None], vectors: bool) -> None:
    """Hand the records of an export to `write` as of one moment, in order, without the last one.

    `write` is called in another thread, and no more once the caller is cancelled.
    """
    going = True

    def work(db: Db, scope: Scope) -> None:
        for record in _Source(db, scope, vectors).records():
            if not going:
                raise StoreError("nobody waits for the export any more")
            write(record)

    try:
        await store.apart(scope, work)
    finally:
        going = False


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
        rulings = {
            sort_key(one): one for one in self._rulings()
        }  # those on examples gone look alike
        yield from (rulings[key] for key in sorted(rulings))
        links = ({"is": "link", **dict(row)} for row in self._rows("export_links"))
        yield from sorted(links, key=sort_key)

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
                yield {"is": "sighting", **same, "told": sorted(by, key=encode_line)}

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
    meta = finite(redact_data(json.loads(row["meta"])))
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
    plain: dict[str, Any] = redact_data(BLANK | json.loads(record))
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


STAYS = ("retired", "superseded")
SAME_READ = (
    "kind", "signature", "state", "trust", "importance", "pinned", "apart", "useful",
    "first_seen", "last_seen", "last_shown",
)  # fmt: skip


def absorb(
    db: Db, scope: Scope, records: Sequence[Plain], source: str, by: str, why: str
) -> list[Effect]:
    """Write records in the order of an export; what became of each.

    What is known stays as it is, but that sightings are counted; and what an operator or a measured
    outcome said raises what neither has said here, as `remember` does. That is on record: `by` is
    whoever vouches for the import, which is called `source`; "" where nobody does.
    """
    sink = _Sink(db, scope, source, by, why, time.time())
    return [sink.write(record) for record in records]


class _Sink:
    """One scope that records are written into, within one transaction."""

    def __init__(self, db: Db, scope: Scope, source: str, by: str, why: str, now: float) -> None:
        self._db, self._scope, self._now = db, scope, now
        self._source, self._by, self._why = source, by, why
        self._key = {**key_of(scope), "scope": token(scope)}
        self._names = Names(db, scope)
        self._kinds: dict[str, Callable[[Plain], Effect]] = {
            "lesson": self._lesson,
            "example": self._example,
            "sighting": self._sighting,
            "lineage": self._lineage,
            "loop": self._loop,
            "ruling": self._ruling,
            "link": self._link,
        }
        if by:
            ruling = {"action": IMPORT, "subject": source, "by": by, "why": why}
            self._ruled(ruling, {}, {}, now)

    def write(self, record: Plain) -> Effect:
        """Write one record, unless it is known."""
        return self._kinds[record["is"]](record)

    def _rows(self, name: str, **values: Any) -> list[Row]:
        return self._db.named(name, {**self._key, **values}).fetchall()

    def _changes(self, name: str, **values: Any) -> bool:
        return self._db.named(name, {**self._key, **values}).rowcount > 0

    def _find(self, lesson: str) -> Row | None:
        """The lesson of that name; None where it was forgotten meanwhile."""
        kind, signature = split_name(lesson)
        return next(iter(self._rows("find_lesson", kind=kind, signature=signature)), None)

    def _lesson(self, record: Plain) -> Effect:
        name = f"{record['kind']}/{record['signature']}"
        told = {one: record[one] for one in SAME_READ} | {
            one: storable(record[one]) for one in TEXTS
        }
        told["tags"] = json.dumps([storable(tag) for tag in record["tags"]])
        told["meta"] = json.dumps(redact_data(finite(record.get("meta", {}))))
        listed, row = record["listed"], self._find(name)
        # Those that later records tell of are counted with them.
        unlisted = {one: record[one] - listed[one] for one in ("seen", "helped", "hurt")}
        if row is None:
            self._rows("import_lesson", **told, **unlisted)
            return "new"
        told["reflection"] = row["id"]
        raised = raises_trust(record["trust"], row["trust"]) and row["state"] not in STAYS
        if raised:
            anew = {**told, "source": self._by, "mark": "", "now": self._now}
            self._rows("begin_anew", **anew)
            self._rows("raise_lesson", **told)
            step_aside(self._db, told)
            self._raised(name, mark(LESSON, told["text"]))
        both = {told["trust"], row["trust"]} <= RAISING
        verified = both and (told["state"], row["state"]) == ("verified", "candidate")
        merged = {
            "state": told["state"] if raised or verified else row["state"],
            "seen": row["listed"] + max(row["seen"] - row["listed"], unlisted["seen"]),
            "first_seen": min(row["first_seen"], record["first_seen"]),
            "last_seen": max(row["last_seen"], record["last_seen"]),
            "last_shown": max(row["last_shown"], record["last_shown"]),
            "pinned": max(row["pinned"], record["pinned"]),
            "apart": max(row["apart"], record["apart"]),
        }
        if any(row[one] != value for one, value in merged.items()):
            self._rows("merge_lesson", **merged, reflection=row["id"])
            return "changed"
        return "changed" if raised else "known"

    def _example(self, record: Plain) -> Effect:
        lesson, says = self._find(record["lesson"]), storable(record["says"])
        if lesson is None:
            return "known"
        alone = record["digest"].startswith(VOICE)
        digest = mark(LESSON, says) if alone else record["digest"]
        if alone and says == lesson["text"]:
            self._rows("take_voice", reflection=lesson["id"], mark=digest)
            digest = LESSON
        kind, signature = split_name(record["lesson"])
        rows = self._rows("find_examples", kind=kind, signature=signature, digest=digest)
        known = next((row for row in rows if row["digest"] == digest), None)
        values = self._row(record, says) | {"reflection": lesson["id"], "digest": digest}
        effect, id = self._put(record["lesson"], values, known)
        if (known is None or self._by) and self._rests(id, record) and effect == "known":
            effect = "changed"
        if record["author"] and says == lesson["text"]:
            self._rows("make_author", example=id, reflection=lesson["id"])
        return effect

    def _row(self, record: Plain, says: str) -> dict[str, Any]:
        plain = redact_data(record["example"])
        task = storable(plain["task"])
        told = words(task) if record["words"] is None else storable(record["words"]).split()[:MOST]
        return {
            "task": task,
            "record": json.dumps(plain),
            "lesson": says,
            "words": " ".join(told),
            **{one: record[one] for one in ("state", "trust")},
            "now": record["at"],
        }

    def _put(self, lesson: str, values: dict[str, Any], known: Row | None) -> tuple[Effect, int]:
        """Write an example where it is new or raised; its id."""
        digest = mark(values["digest"], values["lesson"])
        if known is None:
            held = values["state"] == "quarantined"
            rejected = held and trust.was_rejected(self._db, self._key, lesson, digest)
            values["state"] = "retired" if rejected else values["state"]
            id = int(self._rows("insert_example", **values)[0]["id"])
            return "rejected" if rejected else "new", id
        if known["state"] not in STAYS and raises_trust(values["trust"], known["trust"]):
            self._raised(lesson, digest)
            return "changed", int(self._rows("insert_example", **values)[0]["id"])
        verified = self._changes("verify_example", **values)
        return "changed" if verified else "known", int(known["id"])

    def _rests(self, id: int, record: Plain) -> bool:
        """What an example comes from, and where it lies; whether any of it is new."""
        origins = [storable(source) for source in record["origins"] or [""]]
        new = [self._changes("insert_origin", example=id, source=one) for one in origins]
        if vector := record["vector"]:
            told = placed(self._db, vector["space"], b64decode(vector["data"]))
            new.append(self._changes("import_vector", example=id, **told))
        return any(new)

    def _sighting(self, record: Plain) -> Effect:
        if (lesson := self._find(record["lesson"])) is None:
            return "known"
        loop, text = storable(record["loop"]), storable(record["text"])
        same = {"reflection": lesson["id"], "at": record["at"], "loop": loop, "text": text}
        known = self._rows("count_same_sightings", **same)[0]["n"]
        new = record["told"][known:]
        for one in new:
            parents = json.dumps(self._names.ids(one["parents"]))
            rests = {"source": storable(one["source"]), "trust": one["trust"], "parents": parents}
            self._rows("insert_occurrence", **same, **rests, now=record["at"])
        if not new:
            return "known"
        self._rows("count_imported", reflection=lesson["id"], n=len(new))
        return "changed" if known else "new"

    def _lineage(self, record: Plain) -> Effect:
        """What derives from what; where nobody vouches for it, only of what came with the import.

        Else a file could say that a text derives from one whose source will be revoked.
        """
        child = self._names.id(record["child"])
        if not self._by and not self._rows("is_of", example=child, source=self._source):
            return "known"
        known = self._names.parents(child) if child is not None else record["parents"]
        parents = self._names.ids(one for one in record["parents"] if one not in known)
        new = [self._changes("derive", example=child, parent=parent) for parent in parents]
        return "new" if any(new) else "known"

    def _loop(self, record: Plain) -> Effect:
        """What a loop was shown and came to; one that ran here at the same time is the same one."""
        loop, at = storable(record["loop"]), float(record["at"])
        there = self._rows("find_told", loop=loop)
        if not there or there[0]["at"] != at:
            loop = f"{loop}{MOVED}{at!r}"
            there = self._rows("find_told", loop=loop)
        if not there:
            self._expose(loop, at, record["exposures"])
        ended = record["outcome"] is not None and self._end(loop, record["outcome"])
        return "new" if not there else "changed" if ended else "known"

    def _expose(self, loop: str, at: float, exposures: Sequence[Plain]) -> None:
        for one in exposures:
            kind, signature = split_name(one["lesson"])
            named = (self._names.id(f"{one['lesson']}/{digest}") for digest in one["examples"])
            examples = json.dumps([id for id in named if id is not None])
            told = {name: one[name] for name in ("shown", "share", "together")}
            told |= {"among": len(exposures), "examples": examples, "now": at}
            self._rows("insert_exposure", loop=loop, kind=kind, signature=signature, **told)

    def _end(self, loop: str, outcome: Plain) -> bool:
        """Whether the loop had no outcome here; it is counted on the lessons that were shown."""
        told = {name: outcome[name] for name in ("right_at_once", "calls")}
        signatures = json.dumps([storable(one) for one in outcome["signatures"]])
        told |= {"loop": loop, "signatures": signatures, "now": outcome["at"]}
        if not self._rows("insert_outcome", **told):
            return False
        self._rows("count_outcome", **told)
        return True

    def _ruling(self, record: Plain) -> Effect:
        told = dict(record["record"])
        if isinstance(told.get("example"), str):
            told["example"] = self._names.id(told["example"])
        ruling = {name: record[name] for name in ("action", "subject", "by", "why")}
        return "new" if self._ruled(ruling, told, record["record"], record["at"]) else "known"

    def _link(self, record: Plain) -> Effect:
        """How lessons belong together; where nobody vouches for it, only those that it brought."""
        told = {name: record[name] for name in ("child", "relation", "parent")}
        whose = "" if self._by else self._source
        return (
            "new"
            if self._changes("import_link", **told, source=whose, now=record["at"])
            else "known"
        )

    def _ruled(self, ruling: Plain, record: Plain, named: Plain, at: float) -> bool:
        """Put a ruling on record; whether it was not there. `named` is its record with names."""
        values = {name: storable(text) for name, text in ruling.items()} | {"now": at}
        there = (self._names.told(row["record"]) for row in self._rows("find_ruling", **values))
        if redact_data(named) in there:
            return False
        self._rows("insert_ruling", **values, record=json.dumps(redact_data(record)))
        return True

    def _raised(self, lesson: str, digest: str) -> None:
        """Put on record that who vouches for the import raised what was known."""
        record = {"digest": digest, "source": self._source}
        rule(self._db, self._scope, "release", lesson, self._by, self._why, self._now, record)
