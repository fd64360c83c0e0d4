"""Quarantine: the lessons that wait until a person decides about them.

Texts from outside wait here, and never reach a prompt. Each is an entry: an example of
a lesson with the words that came with it, under the id of the example. A person
releases or rejects an entry, or states its source by its name. Revoking a source
removes all that comes or derives from it; a source `key:ID` includes all that came
through this key of a service. Every decision is recorded as a ruling, with its author
and reason.
"""

import json
import time
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import fields, replace

from heedful.episodes.episode import EPISODE_OUTCOMES
from heedful.errors import NotFound, NotQuarantined
from heedful.lessons import render
from heedful.lessons.forgetting import Forgotten, Target
from heedful.lessons.lesson import OWN_AUTHORS, Example, LessonRun, Scope
from heedful.lessons.mistake import adds_fix, from_json, merged
from heedful.lessons.origin import (
    check_name,
    is_outside,
)
from heedful.lessons.quarantine import (
    Action,
    FreedText,
    Provenance,
    QuarantinedLesson,
    freed_texts,
    texts_in,
)
from heedful.lessons.states import after
from heedful.store import exposures, keys
from heedful.store.connection import (
    CONFLICT_SKIP_SQL,
    MAX_ROWS,
    Db,
    Row,
    from_row,
    resumable,
    storable,
    token,
)
from heedful.store.lessons import mistake_json, refusable_digests, scope_key
from heedful.store.rulings import rule
from heedful.store.search import example_of
from heedful.store.store import Store
from heedful.store.voices import best_example, bring_back, read_author
from heedful.validation import (
    Document,
    check_actor,
    check_integer,
    check_sequence,
    check_texts,
    require,
)

RULING_WORDS = {"release": "released", "reject": "rejected", "undo": "undone"}
# The states of an example that a ruling has left as they are; others came later.
RULED_STATES: Mapping[str, tuple[str, ...]] = {
    "release": ("unverified", "verified", "superseded"),
    "reject": ("retired",),
    "undo": (),
}
_IDS_FORM = "ids of what waits in quarantine"


class Quarantine:
    """The quarantine of one scope: lessons that wait for a review.

    Every decision is recorded. `Memory.quarantine` returns one. `stated` are names of
    sources that count as stated besides those in the store. All methods raise
    StoreError.
    """

    def __init__(
        self, store: Store, scope: Scope, stated: Set[str] = frozenset()
    ) -> None:
        self._store = store
        self._scope = scope
        self._stated = frozenset(stated)

    async def waiting(
        self, limit: int = 50, after: int | None = None
    ) -> list[QuarantinedLesson]:
        """Return the newest lessons in quarantine, at most `limit`, newest first.

        For the next page, `after` is the last id of the page before: only older lessons
        are returned. Raises InvalidInput.
        """
        check_integer("limit", limit)
        return await self._store.read(
            self._scope, newest_waiting, limit=limit, before_id=after
        )

    async def restore(self, id: int, *, by: str, why: str = "") -> None:
        """Bring back a lesson that a proof retired; only later evidence counts for it.

        The decision is recorded. Raises NotFound, InvalidInput without an actor.
        """
        check_integer("id", id, least=0)
        await self._store.write(self._scope, exposures.restore, id, by=by, why=why)

    async def show(self, id: int) -> QuarantinedLesson:
        """Return a lesson that is or was in quarantine.

        Raises NotFound, InvalidInput.
        """
        check_integer("id", id, least=0)
        return await self._store.read(self._scope, read_entry, id)

    async def release(self, ids: Sequence[int], *, by: str, why: str = "") -> None:
        """Release lessons from quarantine: agents are told them.

        `ids` are those of the entries. The lessons stay from outside, with who released
        them (`by`), when and `why`. If one cannot be released, none is. Raises
        NotFound, InvalidInput without an id or an author, and NotQuarantined after an
        earlier decision.
        """
        await self._settle(ids, "release", by=by, why=why)

    async def reject(self, ids: Sequence[int], *, by: str, why: str = "") -> None:
        """Retire lessons in quarantine, and refuse their texts in future.

        `ids` are those of the entries. If one cannot be rejected, none is. The decision
        is recorded, with its author `by` and the reason `why`. Raises NotFound,
        InvalidInput without an id or an author, and NotQuarantined after an earlier
        decision.
        """
        await self._settle(ids, "reject", by=by, why=why)

    async def _settle(
        self, ids: Sequence[int], action: Action, *, by: str, why: str
    ) -> None:
        """Release or reject the entries with these ids, as `settle` does."""
        check_sequence("ids", ids, int, _IDS_FORM)
        await self._store.write(self._scope, settle, ids, action=action, by=by, why=why)

    async def undo(self, ids: Sequence[int], *, by: str, why: str = "") -> None:
        """Take back what was decided about lessons; they wait in quarantine again.

        `ids` are those of their entries. The words of a rejected lesson may be stored
        again. Prompts that were shown a released lesson keep it. If one decision cannot
        be taken back, none is. Raises NotFound for a lesson that nobody decided about,
        and InvalidInput without an id or an author.
        """
        check_sequence("ids", ids, int, _IDS_FORM)
        await self._store.write(self._scope, undo, ids, by=by, why=why)

    async def state(
        self,
        *names: str,
        by: str,
        why: str = "",
        remove: bool = False,
        key: str = "",
    ) -> Sequence[int]:
        """State sources by their names: lessons from them no longer wait for a review.

        A name is that of a program or a tool that fetches, of an MCP server, `key:ID`
        for a key of the service, or `reviewer:LOGIN`. Releases the lessons that wait
        only because of stated sources, and returns their ids. With `remove`, the names
        are stated no more, and nothing is released. All calls with one `key` are
        recorded once a day. Raises InvalidInput, and Conflict if the key belongs to
        another call.
        """
        for name in names:
            check_name(name)
        require(names, "names", names, "at least one name of a source")
        check_actor(by, why)
        return await self._store.write_once(
            key,
            self._scope,
            state_names,
            names,
            by=by,
            why=why,
            own=self._stated,
            is_stated=not remove,
        )

    async def stated(self) -> frozenset[str]:
        """Return the names of sources that people stated, in the scope or in code."""
        return self._stated | await self._store.read(self._scope, keys.stated_names)

    async def believed(self) -> frozenset[str]:
        """Return the stated names, and the keys of a service that an operator made."""
        return await self._store.read(self._scope, keys.believed_names, self._stated)

    async def has_strict(self, key_sources: Collection[str]) -> bool:
        """Return True if one of these keys of the service was made as one from outside.

        `key_sources` are the keys as names of sources, such as `key:ID`. What a key
        from outside sends is read by the strict rules, as with `Memory(strict=True)`.
        """
        if not key_sources:
            return False
        trusted_keys = await self._store.read(self._scope, keys.stated_keys)
        return not trusted_keys.issuperset(key_sources)

    async def revoke(
        self, source: str, *, by: str = "", why: str = "", dry_run: bool = False
    ) -> Forgotten:
        """Remove everything that depends on a source, and its sightings of errors.

        One transaction also removes what was derived from the source, and what loops
        learnt with its text in their prompts. A lesson that also came from other
        sources stays, in the words of these sources. With `dry_run` nothing is removed,
        and no actor is needed. Raises NotFound for an unknown source, InvalidInput
        without a name or an actor.
        """
        check_texts(source=source)
        require(source.strip(), "source", source, "the name of a source")
        from heedful.store import forgetting  # few processes revoke

        removed = await self._store.write(
            self._scope,
            forgetting.forget,
            Target(source=source),
            by=by,
            why=why,
            dry_run=dry_run,
        )
        if dry_run:
            return removed
        return replace(removed, remains=await self._store.clean())


def newest_waiting(
    db: Db, scope: Scope, limit: int = MAX_ROWS, before_id: int | None = None
) -> list[QuarantinedLesson]:
    """Return the newest entries in quarantine, at most `limit`, newest first.

    With `before_id`, only those with a lower id, which are older, are returned.
    """
    if before_id is None:
        before_id = MAX_ROWS  # no id is as high
    rows = db.all("waiting_ids", scope, most=limit, before=before_id)
    return read_entries(db, scope, [row["id"] for row in rows])


def read_entries(db: Db, scope: Scope, ids: Collection[int]) -> list[QuarantinedLesson]:
    """Return the examples with these ids as entries of the quarantine, newest first.

    An example is one text of a lesson, with the words that came with it. They may
    be in any state, also released or rejected. Unknown ids are left out, and the
    provenance is empty: `provenance` reads it.
    """
    entries = []
    for row in db.all("quarantine_entries", scope, ids=json.dumps(list(ids))):
        example = example_of(row)
        # An example without answers whose task is the lesson says nothing more.
        is_shown = example.accepted or example.wrong or example.task != row["lesson"]
        entry = from_row(
            QuarantinedLesson,
            row,
            example=example if is_shown else None,
            texts=_texts_of(row, example),
            provenance=Provenance(),
        )
        entries.append(entry)
    return entries


def _texts_of(row: Row, example: Example) -> tuple[FreedText, ...]:
    """Return every text that the release of an example frees, for a person to read.

    Whatever is stored of the example may be told afterwards, by a prompt, a page, an
    answer or an export. `row` is the row of its entry, with the columns of its lesson.
    Only the texts in which its error was seen stay from outside.
    """
    mistake = from_json(row["mistake"])
    parts: Document = {"lesson": row["lesson"]}
    for item in fields(example):
        parts[item.name] = getattr(example, item.name)
    if mistake is not None:
        for item in fields(mistake):
            parts[f"mistake: {item.name}"] = getattr(mistake, item.name)
    parts |= {
        "error": row["pattern"],
        "error type": row["error_type"],
        "tags": json.loads(row["tags"]),
        "function": row["memory_key"],
        "source": row["source"].split(", "),
        "run": run_texts(LessonRun.read(row["run"])),
        "data": "" if row["data"] == "{}" else row["data"],
    }

    # The words by which a search finds it, without those that are listed already: those
    # of its context stand nowhere else.
    listed = "\n".join(text.text for text in freed_texts(parts)).casefold()
    unlisted = [word for word in row["words"].split(" ") if word not in listed]
    parts["found by"] = " ".join(unlisted)
    return freed_texts(parts)


def run_texts(run: LessonRun | None) -> Sequence[str]:
    """Return the texts in the record of a run that came with the run itself.

    Words of heedful's own, such as the outcome, are left out. Without a run, return
    none.
    """
    if run is None:
        return ()
    own_words = OWN_AUTHORS.union(EPISODE_OUTCOMES)
    return tuple(text for text in texts_in(run) if text not in own_words)


def count_waiting(db: Db, scope: Scope) -> int:
    """Return how many examples wait in quarantine."""
    key = {"scope": token(scope), "state": "quarantined"}
    (row,) = db.select("count(*) as number", "example", key)
    return int(row["number"])


def lessons_of_waiting(db: Db, scope: Scope) -> dict[int, int]:
    """Map the id of each waiting example to the id of its lesson, newest first."""
    key = {"scope": token(scope), "state": "quarantined"}
    return {
        row["id"]: row["lesson_id"]
        for row in db.select("id, lesson_id", "example", key, "order by id desc")
    }


def read_entry(db: Db, scope: Scope, id: int) -> QuarantinedLesson:
    """Return an example that is or was in quarantine, with where it comes from.

    Raises NotFound.
    """
    for entry in read_entries(db, scope, [id]):  # one at most
        return replace(entry, provenance=provenance(db, scope, entry))
    raise NotFound("example", str(id), f"the memory of {scope}")


def provenance(db: Db, scope: Scope, entry: QuarantinedLesson) -> Provenance:
    """Return where an example comes from, and what people decided about it.

    Its sources include those of all examples from which it was derived. Its parents and
    children are the examples that it was derived from and that were derived from it.
    The sightings are the last 20 texts in which the error of its lesson was seen.
    """
    values = _entry_key(scope, entry)
    sources = db.run("rests_on", {"parents": json.dumps([entry.id])}).fetchall()
    (lesson,) = db.select("lesson_id", "example", {"id": entry.id})
    columns = "text, source, trust, loop, at"
    newest = "order by id desc limit 20"
    sightings = db.select(columns, "occurrence", dict(lesson), newest)
    parents = db.select("parent", "lineage", {"child": entry.id}, "order by parent")
    children = db.select("child", "lineage", {"parent": entry.id}, "order by child")

    rows = db.run("rulings_on", values).fetchall()
    rulings = [{**dict(row), "record": json.loads(row["record"])} for row in rows]
    return Provenance(
        tuple(row["source"] for row in sources),
        tuple(row["parent"] for row in parents),
        children=tuple(row["child"] for row in children),
        sightings=tuple(dict(row) for row in sightings),
        rulings=tuple(rulings),
    )


@resumable(result=list[int], counts=True)
def state_names(
    db: Db,
    scope: Scope,
    names: Sequence[str],
    by: str,
    why: str,
    own: Collection[str] = (),
    is_stated: bool = True,
) -> list[int]:
    """Record that a person states sources by name; return the released examples' ids.

    What a stated source says no longer waits in quarantine. An example is released if
    each source for which it waits is stated, in the store or among the names in `own`.
    Unless `is_stated`, the names are stated no more, and nothing is released. `by` is
    the person, and `why` the reason.
    """
    for name in names:
        rule(
            db,
            scope,
            action="trust",
            subject=name,
            by=by,
            why=why,
            record={"stated": is_stated},
        )
    if not is_stated:
        return []
    waiting = list(lessons_of_waiting(db, scope))
    return release_stated(db, scope, waiting, own, by=by, why=why)


@resumable(result=list[int])
def release_stated(
    db: Db,
    scope: Scope,
    ids: Sequence[int],
    own: Collection[str] = (),
    by: str = "reflect",
    why: str = "the sources of the run are stated now",
) -> list[int]:
    """Release the examples that wait only for stated sources; return their ids.

    A source is stated if a person said by its name that what it says need not wait;
    `own` are such names besides those in the store. The release is recorded as a ruling
    of `by`, with the reason `why`.
    """
    released = only_of_stated(db, scope, ids, keys.believed_names(db, scope, own))
    if released:
        settle(
            db, scope, ids=released, action="release", by=by, why=why, is_stated=True
        )
    return released


def only_of_stated(
    db: Db, scope: Scope, ids: Collection[int], stated: Set[str]
) -> list[int]:
    """Return the ids of those examples that wait only because of stated sources.

    `stated` are names of sources whose texts people let in without a review. An example
    without a source from outside waits because it was derived from another example. It
    is left out, so that a person decides about it.
    """
    sources_by_example: dict[int, list[str]] = {}
    for row in db.all("own_sources", scope, ids=json.dumps(list(ids))):
        sources_by_example.setdefault(row["example"], []).append(row["source"])
    freed = []
    for example, sources in sources_by_example.items():
        has_unstated = any(is_outside(source, stated) for source in sources)
        if any(map(is_outside, sources)) and not has_unstated:
            freed.append(example)
    return freed


@resumable(result=None)
def settle(
    db: Db,
    scope: Scope,
    ids: Collection[int],
    action: Action,
    by: str,
    why: str,
    is_stated: bool = False,
) -> None:
    """Release or reject the quarantined examples with these ids: all, or none.

    An example is a text from outside, with the words that came with it; it belongs to a
    lesson. `action` says what is done. The decision is recorded for each example, with
    its author `by` and the reason `why`. A released example stays from outside, with
    who released it and when; if its sources are trusted (`is_stated`), it counts as
    local. Raises NotFound, NotQuarantined if an example no longer waits, and
    InvalidInput without an id or an author.
    """
    require(ids, "ids", list(ids), "at least one id of the quarantine")
    ids = sorted(set(ids))
    entries = {entry.id: entry for entry in read_entries(db, scope, ids)}
    now = time.time()
    name = storable(by)
    new_columns: Document = {"state": after(action, "quarantined")}
    if action == "release" and is_stated:
        new_columns |= {"trust": "local"}
    elif action == "release":
        new_columns |= {"released_by": name, "released_at": now}
    # An error for one example undoes the whole transaction.
    for id in ids:
        if id not in entries:
            raise NotFound("example", str(id), f"the memory of {scope}")

        entry = entries[id]
        lesson_id = _settle_waiting(db, scope, entry, new_columns)
        rule(
            db,
            scope,
            action=action,
            subject=f"{entry.kind}/{entry.signature}",
            by=by,
            why=why,
            now=now,
            record={"example": id, "source": entry.source, "trust": entry.trust},
        )

        values = {
            **scope_key(scope),
            "example": id,
            "lesson_id": lesson_id,
            "now": now,
        }
        if action == "release":
            _release(db, values, entry)
        else:
            _reject(db, values, entry)


def _entry_key(scope: Scope, entry: QuarantinedLesson) -> Document:
    """Return the parameters of the statement that finds the decisions on an example."""
    subject = f"{entry.kind}/{entry.signature}"
    return {**scope_key(scope), "example": entry.id, "subject": subject}


def _settle_waiting(
    db: Db, scope: Scope, entry: QuarantinedLesson, new_columns: Document
) -> int:
    """Set these columns of an example that still waits; return the id of its lesson.

    Raises NotQuarantined, with the earlier decision, if it no longer waits.
    """
    waiting = {"id": entry.id, "scope": token(scope), "state": "quarantined"}
    if db.update("example", waiting, new_columns):
        [row] = db.select("lesson_id", "example", {"id": entry.id})
        return int(row["lesson_id"])

    # The example no longer waits; the error says who decided about it.
    ruling = db.first("rulings_on", _entry_key(scope, entry))
    reason = ""
    if ruling is not None:
        reason = f"was {RULING_WORDS[ruling['action']]} by {ruling['by']}"
    raise NotQuarantined(entry.id, entry.state, reason)


def _release(db: Db, values: Document, entry: QuarantinedLesson) -> None:
    """Allow the words of a released entry, and let its lesson show the better ones.

    `values` are the key of the scope, `example` and `lesson_id`. The entry is one
    example of the lesson; the text of the lesson comes from one of its examples, its
    author. The entry becomes the author if that text is unreviewed, or says less.
    """
    digests = refusable_digests(entry.kind, entry.lesson, entry.example, with_task=True)
    db.send("allow_words", {**values, "words": digests})

    lesson = read_author(db, values)
    shows_entry = lesson["unreviewed"]
    # The entry is better if it says what fixed the failure and the lesson does not, or
    # if a part of its mistake is from outside. The words of a person stay.
    [row] = db.select("mistake", "example", {"id": entry.id})
    mistake = from_json(row["mistake"])
    stored_mistake = from_json(lesson["mistake"])
    if (
        not shows_entry
        and mistake is not None
        and stored_mistake is not None
        and (adds_fix(mistake, stored_mistake) or stored_mistake.origin == "outside")
    ):
        full = merged(mistake, stored_mistake)
        if full != mistake:
            texts = {
                "lesson": render.text_of(entry.kind, full),
                "mistake": mistake_json(full),
            }
            db.update("example", {"id": entry.id}, texts)
        author = {"id": lesson["author"]}
        shows_entry = db.update("example", author, {"state": "superseded"}) > 0
    if shows_entry:
        bring_back(db, values, entry.id, lesson)


def _reject(db: Db, values: Document, entry: QuarantinedLesson) -> None:
    """Refuse the words of a rejected entry in future, and show none of them.

    `values` are the key of the scope, `example` and `lesson_id`. The entry is one
    example of a lesson. If the lesson showed its unreviewed text, the lesson now
    shows its best other example.
    """
    digests = refusable_digests(
        entry.kind, entry.lesson, entry.example, with_task=False
    )
    key = {"tenant": values["tenant"], "project": values["project"]}
    for digest in json.loads(digests):
        db.insert("refused", {**key, "words": digest}, CONFLICT_SKIP_SQL)

    lesson = read_author(db, values)
    if lesson["unreviewed"] and lesson["author"] == entry.id:
        bring_back(db, values, best_example(db, values), lesson)


@resumable(result=None)
def undo(db: Db, scope: Scope, ids: Collection[int], by: str, why: str) -> None:
    """Take back the decision about each of these examples, which then wait again.

    An example gets back the trust that it had before. If its lesson showed it, the
    lesson shows its best example now. The words of a rejected example may be stored
    again. Each undoing is recorded, with its author `by` and the reason `why`. Raises
    NotFound if no decision about an example is in force, and InvalidInput without an id
    or an author.
    """
    require(ids, "ids", list(ids), "at least one id of what was reviewed")
    ids = sorted(set(ids))
    entries = {entry.id: entry for entry in read_entries(db, scope, ids)}
    key = scope_key(scope)
    now = time.time()
    for id in ids:
        entry = entries.get(id)
        ruling = None
        if entry is not None:  # the newest ruling comes first
            ruling = db.first("rulings_on", _entry_key(scope, entry))
        # A ruling is in force as long as the example has a state that it led to.
        if (
            entry is None
            or ruling is None
            or entry.state not in RULED_STATES[ruling["action"]]
        ):
            raise NotFound(
                "decision about example", str(id), f"the quarantine of {scope}"
            )

        _wait_again(db, {**key, "now": now}, entry, ruling)
        rule(
            db,
            scope,
            action="undo",
            subject=ruling["subject"],
            by=by,
            why=why,
            now=now,
            record={"example": id, "source": entry.source, "trust": entry.trust},
        )


def _wait_again(db: Db, key: Document, entry: QuarantinedLesson, ruling: Row) -> None:
    """Put an example back into quarantine, as it was before a ruling.

    `key` is that of the scope, and the time `now`. The record of the ruling has the
    trust that the example had. The words of a rejected example are allowed again. The
    lesson shows its best example if it showed this one, or was rejected as a whole.
    """
    trust = json.loads(ruling["record"])["trust"]
    waiting = {
        "state": after("undo", entry.state),
        "trust": trust,
        "released_by": "",
        "released_at": 0.0,
    }
    db.update("example", {"id": entry.id}, waiting)
    if ruling["action"] == "reject":
        digests = refusable_digests(
            entry.kind, entry.lesson, entry.example, with_task=False
        )
        db.send("allow_words", {**key, "words": digests})

    (row,) = db.select("lesson_id", "example", {"id": entry.id})
    values = {**key, "lesson_id": row["lesson_id"]}
    lesson = read_author(db, values)
    was_rejected_whole = lesson["state"] == "retired" and lesson["unreviewed"]
    if lesson["author"] == entry.id or was_rejected_whole:
        bring_back(db, values, best_example(db, values), lesson)
