"""Forget texts: those of a source, a person, a lesson or a loop, or all that are old.

What is forgotten goes with all that derives from it. What others said stays: an example
that another source gave, too, becomes that one's, and a lesson that others have seen
shows their words. Counts fall by the sightings that went. A ruling without the words
records it; all of it is one transaction. What is left in the files of the database,
`Store.clean` removes.
"""

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from heedful.errors import NotFound
from heedful.lessons.forgetting import Forgotten, Target
from heedful.lessons.lesson import Example
from heedful.lessons.origin import KEY_SOURCE_PREFIX, keys_in
from heedful.lessons.quarantine import initial_state
from heedful.lessons.scope import TOLD_STATES, Scope, lesson_name
from heedful.store import loops as loop_store, session_marks
from heedful.store.connection import Db, Row, key_of, resumable, storable, token
from heedful.store.idempotency import remove_answers
from heedful.store.lessons import (
    add_words,
    replace_origins,
    scope_key,
    search_text,
    searched_words,
)
from heedful.store.rulings import LESSON_DIGEST_PREFIX, rule
from heedful.store.voices import best_example, bring_back, read_author
from heedful.validation import MAX_SHOWN_ROWS, Document, check_actor, require

# The tables whose old rows go: the column of their time, and as what they count.
OLD_ROWS: Mapping[str, tuple[str, str]] = {
    "note": ("created", "notes"),
    "call_failure": ("at", "failures"),
    "reminder": ("at", "exposures"),
    "trial": ("at", "exposures"),
    "trace": ("last", "traces"),
    "event": ("at", "events"),
}
# The tables whose rows of a scope go when it is cleared, besides lessons. `event` and
# what other tables refer to follow.
CLEARED_TABLES = tuple(
    (
        "loop note call_failure call_success link exposure outcome climb trial learnt "
        "episode span trace session_mark reminder"
    ).split()
)


@dataclass(slots=True)
class Removal:
    """What went: rows by their kind, lessons with their names, examples and loops.

    `shared` are the ids of the lessons that stay.
    """

    counts: Counter[str] = field(default_factory=Counter)
    lessons: dict[int, str] = field(default_factory=dict)
    examples: set[int] = field(default_factory=set)
    loop_ids: list[str] = field(default_factory=list)
    reopened: list[str] = field(default_factory=list)
    shared: list[int] = field(default_factory=list)

    @property
    def summary(self) -> Forgotten:
        """What went, with the first ids of each kind."""
        values: Document = {
            **self.counts,
            "lessons": len(self.lessons),
            "lesson_ids": tuple([*self.lessons][:MAX_SHOWN_ROWS]),
            "loop_ids": tuple(self.loop_ids[:MAX_SHOWN_ROWS]),
            "reopened": tuple(self.reopened[:MAX_SHOWN_ROWS]),
            "shared": tuple(self.shared[:MAX_SHOWN_ROWS]),
        }
        return Forgotten(**values)


@resumable(result=Forgotten)
def forget(
    db: Db,
    scope: Scope,
    target: Target,
    *,
    by: str,
    why: str = "",
    dry_run: bool = False,
) -> Forgotten:
    """Delete the texts of a target, and record a ruling if there were any.

    Also removes the stored answers of the tenant, which may quote them. With `dry_run`,
    deletes nothing and returns what it would delete. Raises NotFound for an unknown
    lesson or loop and for a source without texts, InvalidInput without an actor, and
    for a time in the future.
    """
    now = time.time()
    if not dry_run:
        check_actor(by, why)
    if target.before is not None:
        is_past = target.before <= now
        require(is_past, "before", target.before, "a time that is not in the future")

    # What a dry run deletes is taken back.
    db.execute("savepoint forgetting")
    removal = Removal()
    _forget_target(db, scope, target, removal)
    forgotten = removal.summary
    if target.source and not forgotten:
        raise NotFound("source", target.source, f"the memory of {scope}")
    if dry_run:
        db.undo("forgetting")
    elif forgotten:
        remove_answers(db, scope)
        action = "revoke" if target.source else "forget"
        counts = dict(forgotten.counts)
        subject = target.subject
        rule(db, scope, action, subject=subject, by=by, why=why, now=now, record=counts)
    return forgotten


def _forget_target(db: Db, scope: Scope, target: Target, removal: Removal) -> None:
    """Delete the texts of a target. Raises NotFound."""
    if target.source:
        # Who decided about its texts, and why, stays.
        _forget_source(db, scope, storable(target.source), removal)
        return
    if target.lesson is not None:
        _forget_lesson(db, scope, target, removal)
    elif target.loop:
        _forget_loop(db, scope, target, removal)
    elif target.before is not None:
        _forget_old(db, scope, target.before, removal)
    else:
        _forget_person(db, scope, target, removal)
    _forget_decisions(db, scope, removal)


def _forget_source(db: Db, scope: Scope, source: str, removal: Removal) -> None:
    """Delete what comes from a source; from a key, all that came through it."""
    sources = [source]
    if source.startswith(KEY_SOURCE_PREFIX):
        sources += _forget_key(db, scope, source, removal)
    _forget_texts(db, scope, removal, sources=sources)


def _forget_lesson(db: Db, scope: Scope, target: Target, removal: Removal) -> None:
    """Delete a lesson with its texts, and what derives from it. Raises NotFound."""
    id = target.lesson or 0
    if not db.select("id", "lesson", {**key_of(scope), "id": id}):
        error = NotFound("lesson", str(id), f"the lessons of {scope}")
        _check_ruled(db, scope, target, error)
    _forget_texts(db, scope, removal, lesson=id)


def _check_ruled(db: Db, scope: Scope, target: Target, error: NotFound) -> None:
    """Raise the error unless this target was forgotten before.

    The earlier call may have ended before its words had left the files.
    """
    ruling = {**key_of(scope), "action": "forget", "subject": target.subject}
    if not db.select("id", "ruling", ruling):
        raise error


def _forget_loop(db: Db, scope: Scope, target: Target, removal: Removal) -> None:
    """Delete a loop, a run with its stages, and what it taught. Raises NotFound."""
    rows = db.all("loops_of", scope, id=target.loop)
    if all(row["id"] != target.loop for row in rows):
        _check_ruled(db, scope, target, NotFound("loop", target.loop, db.url))
    ids = tuple(row["id"] for row in rows)
    sources = tuple(f"loop:{id}" for id in ids)
    values = {
        **key_of(scope),
        "loops": json.dumps(ids),
        "named": json.dumps(sources),
    }
    outcomes = db.run("outcomes_of_loops", values).fetchall()
    _delete_outcomes(db, scope, outcomes, removal)
    _delete_loops(db, scope, rows, removal)
    _forget_texts(db, scope, removal, sources=sources, loops=ids)
    for statement in ("delete_exposures", "delete_trials"):
        removal.counts["exposures"] += db.run(statement, values).rowcount
    for statement in ("delete_climbs", "unlearn_loops"):
        db.send(statement, values)


def _forget_old(db: Db, scope: Scope, before: float, removal: Removal) -> None:
    """Delete loops, runs and texts that nobody has changed or said since a time."""
    values = {**key_of(scope), "before": before}
    _delete_loops(db, scope, db.all("old_loops", scope, before=before), removal)
    removal.counts["episodes"] += db.run("empty_episodes", values).rowcount
    db.send("old_spans", values)
    sessions = db.run("old_sessions", values).fetchall()
    for table, (column, kind) in OLD_ROWS.items():
        removal.counts[kind] += _delete_old(db, table, column, values)
    session_marks.note_past(
        db, scope, [(row["session"], row["via"]) for row in sessions]
    )
    removal.counts["reasons"] += db.run("forget_old_reasons", values).rowcount
    _forget_texts(db, scope, removal, before=before)


def _delete_old(db: Db, table: str, column: str, values: Document) -> int:
    """Delete the rows of a scope that are older than `before`; return their number."""
    scope = "tenant = :tenant and project = :project"
    sql = f"delete from {table} where {scope} and {column} < :before"
    return int(db.execute(sql, values).rowcount)


def _forget_person(db: Db, scope: Scope, target: Target, removal: Removal) -> None:
    """Delete what a person said, and what came through the keys of this name."""
    name = storable(target.person_name)
    key_ids = [
        row["id"]
        for row in db.run("keys_of_person", {"tenant": scope.tenant, "person": name})
    ]
    sources = [storable(source) for source in target.person_sources]
    for id in key_ids:
        sources.append(KEY_SOURCE_PREFIX + id)
        sources += _forget_key(db, scope, KEY_SOURCE_PREFIX + id, removal)

    actors = [name, *(f"{name} ({id})" for id in key_ids)]
    values = {
        **key_of(scope),
        "actors": json.dumps(actors),
        "named": json.dumps(sources),
        "subject": target.subject,
    }
    removal.counts["notes"] += db.run("delete_notes_of", values).rowcount
    for statement in (
        "forget_reasons_of",
        "forget_reasons_of_overrides",
        "forget_reasons_of_checks",
    ):
        removal.counts["reasons"] += db.run(statement, values).rowcount
    db.send("forget_subjects", values)
    _forget_texts(db, scope, removal, sources=sources)


def _delete_loops(db: Db, scope: Scope, rows: Sequence[Row], removal: Removal) -> None:
    """Delete loops with all that belongs to them; `rows` have their numbers and ids."""
    ids = [row["id"] for row in rows]
    values = {
        **key_of(scope),
        "numbers": json.dumps([row["n"] for row in rows]),
        "loops": json.dumps(ids),
    }
    parts = db.run("count_parts", values).fetchone()
    removal.counts.update(dict(parts))
    removal.counts["loops"] += len(ids)
    removal.loop_ids += ids
    for statement in ("delete_notes", "unlink_causes", "delete_loops"):
        db.send(statement, values)


def _delete_outcomes(
    db: Db, scope: Scope, outcomes: Iterable[Row], removal: Removal
) -> None:
    """Delete outcomes of loops; they no longer count for the lessons shown there."""
    for row in outcomes:
        if row["n"] is not None:
            db.send("count_outcome", {**key_of(scope), **dict(row), "times": -1})
        db.delete("outcome", {**key_of(scope), "loop": row["loop"]})
        removal.counts["outcomes"] += 1


def _forget_key(db: Db, scope: Scope, source: str, removal: Removal) -> list[str]:
    """Delete what came through the key `source`; return the sources that it taught.

    A loop that the key did not begin goes back to the state before the first attempt
    that the key reported.
    """
    key = key_of(scope)
    values = {**key, "source": source}
    deleted, reopened, attempts = loop_store.revoke(db, scope, source)
    removal.loop_ids += deleted
    removal.reopened += reopened
    sources = [f"loop:{id}" for id in (*deleted, *reopened)]

    removal.counts["notes"] += db.run("delete_key_notes", values).rowcount
    episodes = db.run("delete_sent", values).fetchall()
    sources += [f"episode:{row['digest'][:16]}" for row in episodes]
    runs = {json.loads(row["record"]).get("run", "") for row in episodes} - {""}
    traces = db.run("delete_traces", values).fetchall()
    for row in traces:
        db.delete("span", {**key, "trace": row["id"]})
    session_marks.forget_events(db, scope, {**key, "via": source})
    # Sessions may go on, or an earlier version stored them: both have only a past.
    runs |= session_marks.past_runs(db, scope, source)
    for run in sorted(runs):
        _forget_run(db, key, run, removal)

    _delete_outcomes(db, scope, db.run("outcomes_of", values).fetchall(), removal)
    removal.counts["exposures"] += db.delete("trial", {**key, "via": source})
    removal.counts.update(
        loops=len(deleted),
        attempts=attempts,
        episodes=len(episodes),
        traces=len(traces),
    )
    return sources


def _forget_run(db: Db, key: Document, source: str, removal: Removal) -> None:
    """Delete the failed calls of a run, and the note that its lessons were learnt."""
    removal.counts["failures"] += db.delete("call_failure", {**key, "source": source})
    db.delete("learnt", {**key, "source": source})


def _forget_texts(
    db: Db,
    scope: Scope,
    removal: Removal,
    *,
    sources: Sequence[str] = (),
    loops: Sequence[str] = (),
    lesson: int = 0,
    before: float = -inf,
) -> None:
    """Delete sightings and examples, and what derives from them.

    They come from `sources` or `loops`, or are of the `lesson` with this id, or from
    `before` a time: then what derives from them is newer, and stays. Adds what went to
    `removal`, with the lessons that nobody else has seen.
    """
    values: Document = {
        **scope_key(scope),
        "named": json.dumps(sources),
        "loops": json.dumps(loops),
        "lesson": lesson,
        "before": before,
        "descends": int(before == -inf),
        "now": time.time(),
    }
    chosen = db.run("chosen_sightings", values).fetchall()
    values["sightings"] = json.dumps([row["id"] for row in chosen])
    derived, sayings = _choose_examples(db, values)
    values["ids"] = json.dumps(sorted(derived))

    key = key_of(scope)
    removal.counts["prompts"] += db.run("forget_briefings", values).rowcount
    for via in keys_in(sources):
        removal.counts["exposures"] += db.delete("exposure", {**key, "via": via})
    sightings = Counter(
        row["lesson_id"] for row in db.run("delete_sightings", values).fetchall()
    )
    examples = db.run("delete_examples", values).fetchall()
    changed = {row["lesson_id"] for row in examples}
    for statement in ("delete_origins", "delete_lineage"):
        db.send(statement, values)
    for id, saying in sayings.items():
        changed.add(_give_example(db, values, id, saying))

    for source in sources:
        _forget_run(db, key, source, removal)
        db.send("forget_record", {**key, "source": source})
    # A check may quote any output of its memory key.
    for memory_key in {row["memory_key"] for row in examples} - {""}:
        db.delete("hardened", {**key, "memory_key": memory_key})

    removal.counts["examples"] += len(examples)
    removal.counts["sightings"] += sum(sightings.values())
    changed = changed.union(sightings)
    for lesson_id in sorted(changed):
        db.delete("hardened", {**key, "lesson_id": lesson_id})
        of_lesson = {**values, "lesson_id": lesson_id, "n": sightings[lesson_id]}
        _settle_lesson(db, of_lesson, sayings.keys(), removal)

    names = {**values, "names": json.dumps([*removal.lessons.values()])}
    removal.counts["prompts"] += db.run("forget_lesson_briefings", names).rowcount
    removal.examples |= derived


def _choose_examples(db: Db, values: Document) -> tuple[set[int], dict[int, Row]]:
    """Return the examples to delete, and those that become another source's.

    The latter are mapped to the sighting of that source, which came with the same
    example and was not derived from what goes.
    """
    sayings: dict[int, Row] = {}
    while True:
        values = {**values, "spared": json.dumps([*sayings])}
        examples = {row["id"] for row in db.run("chosen_examples", values).fetchall()}
        others = db.run("said_by_others", {**values, "ids": json.dumps([*examples])})
        sayings_of_others = {
            row["example"]: row
            for row in others.fetchall()
            if examples.isdisjoint(json.loads(row["parents"]))
        }
        if not sayings_of_others:
            return examples, sayings
        sayings |= sayings_of_others


def _give_example(db: Db, values: Document, id: int, saying: Row) -> int:
    """Make an example that of another sighting; return the id of its lesson."""
    [row] = db.select("*", "example", {"id": id})
    example = Example(**json.loads(saying["record"]))
    text = saying["lesson"] or saying["text"]
    lesson_words = ""
    if row["digest"].startswith(LESSON_DIGEST_PREFIX):
        lesson_words = text
    state = row["state"]
    if state in TOLD_STATES:
        state = initial_state(saying["trust"], state, row["released_by"])
    changes = {
        "record": saying["record"],
        "lesson": text,
        "mistake": saying["mistake"],
        "words": searched_words(row["task"], example.context, lesson_words),
        "trust": saying["trust"],
        "state": state,
        "at": saying["at"],
        # The index of searches loses the old words before it gets the new ones.
        "indexed": False,
    }
    db.update("example", {"id": id}, changes)
    db.delete("origin", {"example": id})
    db.delete("lineage", {"child": id})
    replace_origins(db, {**values, **_origins_of(saying)}, id)
    return int(row["lesson_id"])


def _origins_of(saying: Row) -> Document:
    """Return the sources and parents of a sighting, as those of an example."""
    return {
        "source": saying["source"],
        "sources": json.loads(saying["sources"]),
        "parents": saying["parents"],
    }


def _settle_lesson(
    db: Db, values: Document, shared_examples: Iterable[int], removal: Removal
) -> None:
    """Take `n` sightings from the lesson `lesson_id`, or delete it; note which.

    It stays with an example, or with a sighting, whose words it then shows. The
    `shared_examples` became another source's. A reflection of a dream is deleted with
    the lessons that it cited.
    """
    db.send("unsee", values)
    id = values["lesson_id"]
    rows = db.select("kind, signature", "lesson", {"id": id})
    if not rows:
        removal.lessons[id] = ""
        return
    lesson = read_author(db, values)
    best = lesson["author"]
    if not lesson["spoken_for"]:
        best = best_example(db, values)
        if best is None:
            best = _speak_for(db, values, lesson)
    if best is None:
        removal.counts["failures"] += db.delete("call_failure", {"lesson_id": id})
        db.delete("lesson", {"id": id})
        removal.lessons[id] = lesson_name(lesson["kind"], lesson["signature"])
        return

    removal.shared.append(id)
    if best != lesson["author"] or best in shared_examples:
        # Its tags were those of who said it before.
        db.update("lesson", {"id": id}, {"author": None})
        bring_back(db, values, best, lesson)


def _speak_for(db: Db, values: Document, lesson: Row) -> int | None:
    """Write the words of the best sighting of a lesson as an example; return its id.

    Returns None if no sighting has words.
    """
    saying = db.first("best_sighting", values)
    if saying is None:
        return None
    text = saying["lesson"] or saying["text"]
    example = {
        **values,
        **_origins_of(saying),
        "kind": lesson["kind"],
        "signature": lesson["signature"],
        "text": text,
        "mistake": saying["mistake"],
        "trust": saying["trust"],
        "state": initial_state(saying["trust"]),
        "memory_key": "",
        "now": saying["at"],
        "about": search_text(text, lesson["pattern"]),
    }
    return add_words(db, example).id


def _forget_decisions(db: Db, scope: Scope, removal: Removal) -> None:
    """Empty what decisions and dreams say about the lessons and examples that went."""
    values = {
        **key_of(scope),
        "names": json.dumps([*removal.lessons.values()]),
        "ids": json.dumps(sorted(removal.examples)),
    }
    db.send("forget_reasons", values)
    if not removal.lessons:
        return
    key = {**key_of(scope), "subject": "dream", "action": "dream"}
    for row in db.select("id, record", "ruling", key):
        report = json.loads(row["record"])
        for proposal in report.get("proposals", ()):
            lessons = (*proposal["members"], proposal["survivor"])
            if not removal.lessons.keys().isdisjoint(lessons):
                proposal["why"] = ""
        db.update("ruling", {"id": row["id"]}, {"record": json.dumps(report)})


@resumable(result=int)
def clear(db: Db, scope: Scope) -> int:
    """Delete the lessons, loops and runs of the scope with all their data.

    Who decided what about them stays, without the reasons, and so do the digests of
    refused words and what rungs have spent. Returns the number of lessons.
    """
    key = key_of(scope)
    db.delete("ruling", {**key, "subject": "dream"})
    db.send("clear_reasons", key)
    for table in CLEARED_TABLES:
        db.delete(table, key)
    session_marks.forget_events(db, scope, key)
    db.send("clear_lineage", {"scope": token(scope)})
    db.delete("origin", {"scope": token(scope)})
    remove_answers(db, scope)
    # Rows of other tables follow by cascades.
    return db.delete("lesson", key)
