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
from heedful.lessons.scope import (
    EPISODE_SOURCE_PREFIX,
    TOLD_STATES,
    Scope,
    lesson_name,
)
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
    "past_call": ("at", "events"),
}
# The tables whose rows of a scope go when it is cleared, besides lessons. `event` and
# what other tables refer to follow.
CLEARED_TABLES = tuple(
    (
        "loop note call_failure call_success link exposure outcome climb trial learnt "
        "episode span trace session_mark past_call reminder"
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
        """What was deleted: how many rows of each kind, and the first ids of some."""
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
    if not dry_run:
        check_actor(by, why)
    if target.before is not None:
        is_past = target.before <= time.time()
        require(is_past, "before", target.before, "a time that is not in the future")

    # A dry run deletes, too, to count what goes, and is then undone to this point.
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
        rule(db, scope, action, target.subject, by=by, why=why, record=counts)
    return forgotten


def _forget_target(db: Db, scope: Scope, target: Target, removal: Removal) -> None:
    """Delete the texts of a target: a source, a lesson, a loop, a time or a person.

    What is deleted is added to `removal`. Raises NotFound.
    """
    if target.source:
        # What persons decided about its texts, and why, stays.
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
    """Delete the texts that come from a source, and what derives from them.

    If the source is a key of the service ("key:ID"), the loops and runs that came
    through it go, too; so do the calls of a run. What is deleted is added to `removal`.
    """
    sources = [source]
    if source.startswith(KEY_SOURCE_PREFIX):
        sources += _forget_key(db, scope, source, removal)
    for name in sources:
        session = name.removeprefix(EPISODE_SOURCE_PREFIX)
        calls = {**key_of(scope), "session": session}
        removal.counts["events"] += db.delete("past_call", calls)
    _forget_texts(db, scope, removal, sources=sources)


def _forget_lesson(db: Db, scope: Scope, target: Target, removal: Removal) -> None:
    """Delete a lesson with its texts, and what derives from it.

    What is deleted is added to `removal`. Raises NotFound.
    """
    id = target.lesson or 0
    if not db.select("id", "lesson", {**key_of(scope), "id": id}):
        error = NotFound("lesson", str(id), f"the lessons of {scope}")
        _raise_unless_forgotten(db, scope, target, error)
    _forget_texts(db, scope, removal, lesson=id)


def _raise_unless_forgotten(
    db: Db, scope: Scope, target: Target, error: NotFound
) -> None:
    """Raise `error`, that a target does not exist, unless it was forgotten before.

    The earlier call may have ended before the words had left the files of the database,
    so a second call for the same target is let through to remove them there.
    """
    ruling = {**key_of(scope), "action": "forget", "subject": target.subject}
    if not db.select("id", "ruling", ruling):
        raise error


def _forget_loop(db: Db, scope: Scope, target: Target, removal: Removal) -> None:
    """Delete a loop and what it taught; the run of a pipeline goes with its stages.

    What is deleted is added to `removal`. Raises NotFound.
    """
    # The loop itself and, if it is a run, the loops of its stages.
    rows = db.all("loops_of", scope, id=target.loop)
    if all(row["id"] != target.loop for row in rows):
        _raise_unless_forgotten(
            db, scope, target, NotFound("loop", target.loop, db.url)
        )
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
    # What each model of a ladder did in these loops goes, and the record that they have
    # taught lessons: a new loop with the same id teaches again.
    for statement in ("delete_climbs", "unlearn_loops"):
        db.send(statement, values)


def _forget_old(db: Db, scope: Scope, before: float, removal: Removal) -> None:
    """Delete loops, runs of agents and texts that are older than a time.

    `before` is in seconds since 1970. A loop counts by its last change. Of episodes the
    texts go, but their digests stay, so that nobody learns from them again. What is
    deleted is added to `removal`.
    """
    values = {**key_of(scope), "before": before}
    _delete_loops(db, scope, db.all("old_loops", scope, before=before), removal)
    removal.counts["episodes"] += db.run("empty_episodes", values).rowcount
    db.send("old_spans", values)
    sessions = db.run("old_sessions", values).fetchall()
    for table, (column, kind) in OLD_ROWS.items():
        removal.counts[kind] += _delete_old(db, table, column, values)
    # Sessions may go on: it is remembered whose they are, though their events are gone.
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
    """Delete what a person said, and what came through the person's keys.

    These are keys of the service that have the name of the person. Notes and the
    reasons of decisions go, too; who decided, and what, stays. What is deleted is added
    to `removal`.
    """
    name = storable(target.person_name)
    key_ids = [
        row["id"]
        for row in db.run("keys_of_person", {"tenant": scope.tenant, "person": name})
    ]
    sources = [storable(source) for source in target.person_sources]
    for id in key_ids:
        sources.append(KEY_SOURCE_PREFIX + id)
        sources += _forget_key(db, scope, KEY_SOURCE_PREFIX + id, removal)

    # What was written through a key has its author as "NAME (KEY)".
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
    # Earlier decisions about these sources name the person; now they have the digest.
    db.send("forget_subjects", values)
    _forget_texts(db, scope, removal, sources=sources)


def _delete_loops(db: Db, scope: Scope, rows: Sequence[Row], removal: Removal) -> None:
    """Delete loops with their attempts and notes, and add to `removal` what went.

    `rows` have the number `n` and the `id` of each loop.
    """
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
    # A rule that a loop has broken names the last one that did: that name is emptied.
    for statement in ("delete_notes", "unlink_causes", "delete_loops"):
        db.send(statement, values)


def _delete_outcomes(
    db: Db, scope: Scope, outcomes: Iterable[Row], removal: Removal
) -> None:
    """Delete how loops ended, so that it no longer counts for lessons.

    An outcome with a number `n` was counted for the lessons that the loop was shown: as
    help or as harm. These counts fall again.
    """
    for row in outcomes:
        if row["n"] is not None:
            db.send("count_outcome", {**key_of(scope), **dict(row), "times": -1})
        db.delete("outcome", {**key_of(scope), "loop": row["loop"]})
        removal.counts["outcomes"] += 1


def _forget_key(db: Db, scope: Scope, source: str, removal: Removal) -> list[str]:
    """Delete what came through a key; return the loops and episodes that it taught by.

    `source` is "key:" and the id of the key. Loops that the key began are deleted. A
    loop that it only added to goes back to the state before the first attempt that the
    key reported. The loops and episodes are returned as sources ("loop:ID"), because
    lessons from them are still to be deleted.
    """
    key = key_of(scope)
    values = {**key, "source": source}
    deleted, reopened, attempts = loop_store.revoke(db, scope, source)
    removal.loop_ids += deleted
    removal.reopened += reopened
    sources = [f"loop:{id}" for id in (*deleted, *reopened)]

    removal.counts["notes"] += db.run("delete_key_notes", values).rowcount
    # The finished runs of agents that were sent through the key.
    episodes = db.run("delete_sent", values).fetchall()
    sources += [f"episode:{row['digest'][:16]}" for row in episodes]
    runs = {json.loads(row["record"]).get("run", "") for row in episodes} - {""}
    traces = db.run("delete_traces", values).fetchall()
    for row in traces:
        db.delete("span", {**key, "trace": row["id"]})
    session_marks.forget_events(db, scope, {**key, "via": source})
    # Sessions whose events are gone, now or before, are known by their past only.
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
    """Delete sightings and examples of lessons, and lessons without any left.

    A sighting is one time that a lesson was learnt, and an example its text or a worked
    answer. They go if they come from one of `sources` or `loops`, are of the `lesson`
    with this id, or are from `before` a time. What derives from them goes, too, unless
    a time is given: then it is newer, and stays. What was deleted is added to
    `removal`.
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
    example_ids, new_owners = _choose_examples(db, values)
    values["ids"] = json.dumps(sorted(example_ids))

    key = key_of(scope)
    removal.counts["prompts"] += db.run("forget_briefings", values).rowcount
    for via in keys_in(sources):
        removal.counts["exposures"] += db.delete("exposure", {**key, "via": via})
    # By the id of a lesson, how many of its sightings were deleted.
    sightings = Counter(
        row["lesson_id"] for row in db.run("delete_sightings", values).fetchall()
    )
    examples = db.run("delete_examples", values).fetchall()
    changed = {row["lesson_id"] for row in examples}
    for statement in ("delete_origins", "delete_lineage"):
        db.send(statement, values)
    for id, sighting in new_owners.items():
        changed.add(_reattribute_example(db, values, id, sighting))

    for source in sources:
        _forget_run(db, key, source, removal)
        db.send("forget_record", {**key, "source": source})
    # These rows are checks that lessons became: one may quote any output of its key.
    for memory_key in {row["memory_key"] for row in examples} - {""}:
        db.delete("hardened", {**key, "memory_key": memory_key})

    removal.counts["examples"] += len(examples)
    removal.counts["sightings"] += sum(sightings.values())
    changed = changed.union(sightings)
    for lesson_id in sorted(changed):
        db.delete("hardened", {**key, "lesson_id": lesson_id})
        of_lesson = {**values, "lesson_id": lesson_id, "n": sightings[lesson_id]}
        _lessen_or_delete_lesson(db, of_lesson, new_owners.keys(), removal)

    names = {**values, "names": json.dumps([*removal.lessons.values()])}
    removal.counts["prompts"] += db.run("forget_lesson_briefings", names).rowcount
    removal.examples |= example_ids


def _choose_examples(db: Db, values: Document) -> tuple[set[int], dict[int, Row]]:
    """Return which examples to delete, and which to leave to another source.

    The first are ids. The others are a mapping from the id of the example to a sighting
    of the other source: it came with the same example, and does not derive from what is
    deleted. `values` say what is to be forgotten.
    """
    new_owners: dict[int, Row] = {}
    # What derives from an example that stays is to stay, too, so choose again until no
    # more of them have another source.
    while True:
        values = {**values, "spared": json.dumps([*new_owners])}
        examples = {row["id"] for row in db.run("chosen_examples", values).fetchall()}
        others = db.run("said_by_others", {**values, "ids": json.dumps([*examples])})
        more_owners = {
            row["example"]: row
            for row in others.fetchall()
            if examples.isdisjoint(json.loads(row["parents"]))
        }
        if not more_owners:
            return examples, new_owners
        new_owners |= more_owners


def _reattribute_example(db: Db, values: Document, id: int, sighting: Row) -> int:
    """Give an example the text and origin of another sighting.

    `id` is that of the example, whose own source is being forgotten. Returns the id of
    its lesson.
    """
    [row] = db.select("*", "example", {"id": id})
    example = Example(**json.loads(sighting["record"]))
    text = sighting["lesson"] or sighting["text"]
    # A row that holds a lesson's own words is found by them, any other by its task.
    lesson_words = ""
    if row["digest"].startswith(LESSON_DIGEST_PREFIX):
        lesson_words = text
    state = row["state"]
    # What agents were told waits for a review if the other source is from outside.
    if state in TOLD_STATES:
        state = initial_state(sighting["trust"], state, row["released_by"])
    changes = {
        "record": sighting["record"],
        "lesson": text,
        "mistake": sighting["mistake"],
        "words": searched_words(row["task"], example.context, lesson_words),
        "trust": sighting["trust"],
        "state": state,
        "at": sighting["at"],
        # The index of searches loses the old words before it gets the new ones.
        "indexed": False,
    }
    db.update("example", {"id": id}, changes)
    db.delete("origin", {"example": id})
    db.delete("lineage", {"child": id})
    replace_origins(db, {**values, **_origins_of(sighting)}, id)
    return int(row["lesson_id"])


def _origins_of(sighting: Row) -> Document:
    """Return the sources of a sighting, and its parents: what it derives from.

    They are in the form in which `replace_origins` reads them.
    """
    return {
        "source": sighting["source"],
        "sources": json.loads(sighting["sources"]),
        "parents": sighting["parents"],
    }


def _lessen_or_delete_lesson(
    db: Db, values: Document, shared_examples: Iterable[int], removal: Removal
) -> None:
    """Lower how often a lesson was seen, or delete it if none of its words are left.

    `values` have the `lesson_id`, and as `n` how many sightings were deleted. The
    lesson stays if it still has an example, or a sighting with words. If the words that
    it showed are gone, it shows the most trusted of these. `shared_examples` are ids of
    examples that were left to another source. What happened is added to `removal`.
    """
    db.send("unsee", values)
    id = values["lesson_id"]
    rows = db.select("kind, signature", "lesson", {"id": id})
    # A reflection of a dream was deleted with the lessons that it cited.
    if not rows:
        removal.lessons[id] = ""
        return
    lesson = read_author(db, values)
    best = lesson["author"]
    if not lesson["spoken_for"]:
        best = best_example(db, values)
        if best is None:
            best = _write_best_words(db, values, lesson)
    if best is None:
        removal.counts["failures"] += db.delete("call_failure", {"lesson_id": id})
        db.delete("lesson", {"id": id})
        removal.lessons[id] = lesson_name(lesson["kind"], lesson["signature"])
        return

    removal.shared.append(id)
    if best != lesson["author"] or best in shared_examples:
        # The author is the example whose words and tags a lesson shows. It is emptied
        # first, so that the tags of the old one go, too.
        db.update("lesson", {"id": id}, {"author": None})
        bring_back(db, values, best, lesson)


def _write_best_words(db: Db, values: Document, lesson: Row) -> int | None:
    """Write the words of a lesson's most trusted sighting as an example of it.

    Returns the id of the example, None if no sighting has words. `values` have the
    `lesson_id`.
    """
    sighting = db.first("best_sighting", values)
    if sighting is None:
        return None
    text = sighting["lesson"] or sighting["text"]
    example = {
        **values,
        **_origins_of(sighting),
        "kind": lesson["kind"],
        "signature": lesson["signature"],
        "text": text,
        "mistake": sighting["mistake"],
        "trust": sighting["trust"],
        "state": initial_state(sighting["trust"]),
        "memory_key": "",
        "now": sighting["at"],
        "about": search_text(text, lesson["pattern"]),
    }
    return add_words(db, example).id


def _forget_decisions(db: Db, scope: Scope, removal: Removal) -> None:
    """Empty the words of decisions about lessons and examples that were deleted.

    That something was decided stays, and by whom. In the reports of dreams, which
    consolidate lessons, the reasons of proposals about deleted lessons are emptied.
    """
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

    Who decided what about them stays, without the reasons. So do the digests of words
    that persons refused, and what models have spent of their daily limits. Returns the
    number of lessons.
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
