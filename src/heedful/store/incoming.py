"""The records of an export, written in SQL: each once, however often it comes."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Any

from heedful.memory.portable import IMPORT, Effect, Plain, parted
from heedful.memory.trust import RAISING, raises
from heedful.memory.words import MOST, words
from heedful.protocols import Scope
from heedful.redact import redacted_data
from heedful.store import trust
from heedful.store.database import Db, Row
from heedful.store.names import VOICE, Names, finite
from heedful.store.outgoing import MOVED
from heedful.store.reflections import LESSON, key_of, mark, placed, step_aside, storable, token
from heedful.store.rulings import rule

STAYS = ("retired", "superseded")
TEXTS = ("error_type", "pattern", "text", "source")
SAME = (
    "kind", "signature", "state", "trust", "importance", "pinned", "apart", "useful",
    "first_seen", "last_seen", "last_shown",
)  # fmt: skip


def absorb(
    db: Db, scope: Scope, records: Sequence[Plain], source: str, by: str, why: str, now: float
) -> list[Effect]:
    """Write records in the order of an export; what became of each.

    What is known stays as it is, but that sightings are counted; and what an operator or a measured
    outcome said raises what neither has said here, as `remember` does. That is on record: `by` is
    whoever vouches for the import, which is called `source`; "" where nobody does.
    """
    sink = _Sink(db, scope, source, by, why, now)
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
        kind, signature = parted(lesson)
        return next(iter(self._rows("find_lesson", kind=kind, signature=signature)), None)

    def _lesson(self, record: Plain) -> Effect:
        name = f"{record['kind']}/{record['signature']}"
        told = {one: record[one] for one in SAME} | {one: storable(record[one]) for one in TEXTS}
        told["tags"] = json.dumps([storable(tag) for tag in record["tags"]])
        told["meta"] = json.dumps(redacted_data(finite(record.get("meta", {}))))
        listed, row = record["listed"], self._find(name)
        # Those that later records tell of are counted with them.
        unlisted = {one: record[one] - listed[one] for one in ("seen", "helped", "hurt")}
        if row is None:
            self._rows("import_lesson", **told, **unlisted)
            return "new"
        told["reflection"] = row["id"]
        raised = raises(record["trust"], row["trust"]) and row["state"] not in STAYS
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
        kind, signature = parted(record["lesson"])
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
        plain = redacted_data(record["example"])
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
        if known["state"] not in STAYS and raises(values["trust"], known["trust"]):
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
            kind, signature = parted(one["lesson"])
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
        if redacted_data(named) in there:
            return False
        self._rows("insert_ruling", **values, record=json.dumps(redacted_data(record)))
        return True

    def _raised(self, lesson: str, digest: str) -> None:
        """Put on record that who vouches for the import raised what was known."""
        record = {"digest": digest, "source": self._source}
        rule(self._db, self._scope, "release", lesson, self._by, self._why, self._now, record)
