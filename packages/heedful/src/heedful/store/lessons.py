"""The lessons in a store: write, list, edit, limit and delete them.

A lesson is one row for each kind and signature. Each time its error is seen (a
sighting), the count of the lesson rises. Its examples are rows of their own; one of
them, the *author*, is the example whose text the lesson shows. A lesson without worked
examples has an example row with only its words, so that searches find it.

This module sets the trust and the state of every text in the store. Examples record
their sources and the examples that they derive from (parents), so that revoking a
source also deletes every example that derives from it; `quarantine` has these
decisions of operators.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any, Literal

from heedful.episodes.error_lines import error_line
from heedful.errors import InvalidInput, NotFound, QuotaExceeded
from heedful.lessons import render
from heedful.lessons.holdout import opportunity_name
from heedful.lessons.lesson import (
    EPISODE_LESSON_KINDS,
    Example,
    Lesson,
    LessonRun,
    Remembered,
    Scope,
    Signature,
)
from heedful.lessons.merging import merge, with_stored_parts
from heedful.lessons.mistake import (
    Mistake,
    from_json,
    to_data,
    with_origin,
    with_words,
    without_outside,
)
from heedful.lessons.origin import (
    Origin,
    is_below,
    keys_in,
    lowest_origin,
    standing_of,
)
from heedful.lessons.patterns import MASK_PATTERN
from heedful.lessons.quarantine import MAX_QUARANTINE_TAGS, clip_lesson, initial_state
from heedful.lessons.scope import State, digest_of, short_digest, source_of
from heedful.lessons.signature import signature, untitled_digest
from heedful.lessons.states import after
from heedful.lessons.words import words
from heedful.store.connection import (
    CONFLICT_SKIP_SQL,
    Db,
    Row,
    from_row,
    key_of,
    resumable,
    storable,
    storable_json,
    token,
)
from heedful.store.rulings import name_of, rule, words_digest
from heedful.store.search import example_of, placed, with_told_words
from heedful.validation import MAX_STORED_TEXT_CHARS, Document, Fields, require


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenExample:
    """The row of an example, and what writing it did.

    It was stored already ("nothing"), it is new, or it is trusted more ("raised").
    `record` is the example as JSON, as it was to be written.
    """

    id: int
    state: State
    trust: Origin
    record: str
    wrote: Literal["nothing", "new", "raised"]

    @property
    def entry(self) -> int:
        """Its id if it waits in quarantine, or else 0."""
        return self.id if self.state == "quarantined" else 0


# The answer about a lesson that was not stored, or that was evicted at once.
UNSTORED_LESSON = Remembered(0, created=False, seen=0, state="retired")


def scope_key(scope: Scope) -> Document:
    """Return the parameters that select the rows of `scope`, and its token."""
    return {**key_of(scope), "scope": token(scope)}


# An answer of at least this many words is rejected for every task, a shorter one only
# together with its task.
MIN_REJECTED_ANSWER_WORDS = 5


def refusable_digests(
    kind: str, text: str, example: Example | None, with_task: bool
) -> str:
    """Return digests of the texts of a lesson, as a JSON list.

    A person may refuse a text, and it is known again by its digest. Letter case and
    blanks do not matter. An accepted answer of few words is refused only together with
    its task. With `with_task`, the task of the example and what was wrong there count
    as texts, too.
    """
    texts = [] if kind == "example" else [text]
    digests = set[str]()

    if example is not None:
        for answer_or_task in (example.accepted, example.task):
            is_long = len(answer_or_task.split()) >= MIN_REJECTED_ANSWER_WORDS
            is_task = answer_or_task == example.task
            if is_long and (with_task or not is_task):
                texts.append(answer_or_task)

        # A lesson whose text begins with what was wrong says the same words.
        if with_task or text.startswith(example.wrong.rstrip(". ")):
            texts.append(example.wrong)

        if example.accepted:
            digests.add(example.digest)

    for refusable_text in texts:
        folded = " ".join(storable(refusable_text).casefold().split()).strip(" .!")
        if folded:
            digests.add(short_digest(folded))

    return json.dumps(sorted(digests))


def assign_trust(db: Db, key: Document, lesson: Lesson) -> Lesson | None:
    """Return the lesson with the trust, state, source and parents to store.

    `key` is the `scope_key`. Parents are the examples from which a lesson derives, by
    id: those that it names, and those that were shown to the loop, or to the session
    about the same failure, that taught it. Returns None for a lesson of a loop or a
    session if it is no longer recorded where one of its parents is from. Raises
    InvalidInput for an unknown parent.
    """
    parents = set(lesson.parents)
    trust = lesson.trust
    exposure_name = _exposure_name(lesson)
    if exposure_name:
        shown_rows = db.run("shown_to_loop", {**key, "loop": exposure_name})
        parents.update(int(row["id"]) for row in shown_rows)

    # A lesson is trusted no more than what it derives from.
    parent_ids = {**key, "ids": json.dumps(sorted(parents))}
    if parents and exposure_name and (trust == "local" or not lesson.loop):
        # It is trusted by the outcome of the loop or session, not by its prompt. But
        # without all origins, a revocation of one would not find it.
        traced = db.run("count_traced", parent_ids).fetchone()["n"]
        if traced < len(parents):
            return None
    elif parents:
        trust = lowest_origin((trust, *_trust_of_parents(db, parent_ids, parents)))

    lesson = _with_outside_parts(lesson, trust)
    # Only an operator may write again what a person has refused; from anybody else it
    # is believed as little as a text from outside.
    is_operator = trust == "user"
    digests = refusable_digests(
        lesson.kind, lesson.text, lesson.example, with_task=not is_operator
    )
    if is_operator:
        db.send("allow_words", {**key, "words": digests})
    elif db.first("is_refused", {**key, "words": digests}) is not None:
        trust = "outside"
        lesson = replace(lesson, released_by="", released_at=0.0)

    if lesson.pinned and trust == "outside":
        raise InvalidInput("pinned", value=True, allowed="False for text from outside")

    source = lesson.source
    if trust == "outside":
        source = source or trust
        lesson = clip_lesson(lesson)

    # The key of a service through which the lesson came is a source, too.
    sources = lesson.sources
    if db.actor.via:
        sources = (*sources, db.actor.via)

    return replace(
        lesson,
        trust=trust,
        state=initial_state(trust, lesson.state, lesson.released_by),
        source=source,
        parents=tuple(sorted(parents)),
        sources=sources,
    )


def _with_outside_parts(lesson: Lesson, trust: Origin) -> Lesson:
    """Return a lesson whose text has its parts from outside, too, for a reviewer.

    They are left out of the text of a lesson that needs no review. So the lesson is
    returned as it is unless `trust`, how far it will be trusted, is "outside".
    """
    mistake = lesson.mistake
    if trust != "outside" or mistake is None or mistake.origin != "outside":
        return lesson
    # The text has a part only if that is not from outside.
    released = with_origin(mistake, "local")
    return replace(lesson, mistake=released, text=render.text_of(lesson.kind, released))


def _exposure_name(lesson: Lesson) -> str:
    """Return the name under which the store has what was shown before a lesson.

    That is the id of the loop that taught the lesson or, for a session of an agent, the
    session together with the failure. Returns "" for the words of a user, and for a
    lesson of neither.
    """
    # What a user says is no repetition of what was shown.
    if lesson.trust == "user":
        return ""
    # A lesson that names its parents derives from no other ones of its session.
    if lesson.loop or lesson.parents:
        return lesson.loop
    # Only the source of a session or a run has this prefix.
    session = lesson.source.removeprefix(source_of(""))
    if session == lesson.source:
        return ""
    return opportunity_name(storable(session), lesson.signature.digest)


def _trust_of_parents(db: Db, values: Document, parents: set[int]) -> list[Origin]:
    """Return how far each parent, that is an example, is trusted; in no order.

    `values` select the same `parents` in the store. Raises InvalidInput if one is not
    stored. What derives from a text that a person released needs no review, but is
    nobody's own words: it is "local".
    """
    rows = db.run("some_examples", values).fetchall()
    if len(rows) < len(parents):
        unknown = sorted(parents - {row["id"] for row in rows})
        raise InvalidInput("derived_from", unknown, "ids of examples of this scope")
    return ["local" if row["released_by"] else row["trust"] for row in rows]


def replace_origins(db: Db, values: Document, example: int) -> bool:
    """Replace the sources and parents of an example; return True if it had some before.

    `values` holds the `scope_key`, the new `source`, its other `sources`, and the
    new `parents` as a JSON list of ids. If a new parent derives from this example, the
    old sources and parents are kept besides the new ones: the parent rests on them.
    """
    # Without parents, the search through all ancestors is needless.
    had_origins = (
        values["parents"] != "[]"
        and db.first("is_own_ancestor", {**values, "example": example}) is not None
    )
    if not had_origins:
        had_origins = db.delete("origin", {"example": example}) > 0
        db.delete("lineage", {"child": example})

    for source in {values["source"], *values.get("sources", ())}:
        origin = {
            "example": example,
            "source": storable(source),
            "scope": values["scope"],
        }
        db.insert("origin", origin, CONFLICT_SKIP_SQL)
    for parent in set(json.loads(values["parents"])) - {example}:
        db.insert("lineage", {"child": example, "parent": parent}, CONFLICT_SKIP_SQL)

    return had_origins


def upsert(
    db: Db,
    scope: Scope,
    lessons: Sequence[Lesson],
    now: float,
    quota: int | None = None,
    drops: bool = False,
    most: int = 0,
) -> list[Remembered]:
    """Store each lesson: insert its row or, if the lesson exists, add 1 to its count.

    Also stores the sighting and the example of the lesson. Skips a lesson if
    `assign_trust` returns None. Returns an answer for each lesson that is not skipped.

    At most `quota` texts of one source may wait in quarantine; None means any number.
    The source is the key through which a lesson came, or else its own source. With
    `drops`, skips what is beyond the quota. Then evicts what is beyond `most`, as
    `evict` does. Raises QuotaExceeded, and InvalidInput for an unknown parent.
    """
    key = scope_key(scope)
    answers = []
    for new_lesson in lessons:
        lesson = assign_trust(db, key, new_lesson)
        if lesson is None:
            continue

        # Only what waits in quarantine is limited.
        limit = quota if lesson.state == "quarantined" else None
        source = storable(min(keys_in(lesson.sources), default=lesson.source))
        if drops and limit is not None and len(held_of(db, scope, source)) >= limit:
            continue

        answers.append(_upsert_lesson(db, key, lesson, now))
        # The cause, a rule that loops broke, lets later loops be shown the lesson.
        if lesson.cause is not None and lesson.state != "quarantined":
            cause = {
                **asdict(lesson.cause),
                "checks": json.dumps(lesson.cause.checks),
                "kind": lesson.kind,
                "signature": lesson.signature.digest,
                "loop": lesson.loop,
                "now": now,
            }
            db.send("upsert_cause", {**key, **cause})

        # After the write, as the text may have been stored already. The error undoes
        # it.
        if limit is not None:
            waiting = len(held_of(db, scope, source))
            if waiting > limit:
                raise QuotaExceeded(source, waiting, limit)

    return evict(db, scope, answers, most)


def held_of(db: Db, scope: Scope, source: str) -> list[int]:
    """Return the ids of the examples of a source that wait in quarantine."""
    return [row["id"] for row in db.all("held_of", scope, source=storable(source))]


def _upsert_lesson(db: Db, key: Document, lesson: Lesson, now: float) -> Remembered:
    """Store a lesson, its texts and its sighting; return what the caller is told.

    A sighting says how the error was this time. If the lesson is stored already,
    `merge` decides which of both texts the lesson keeps. `key` is the `scope_key`.
    """
    sighting = lesson_values(key, lesson, now)
    name = {
        column: sighting[column]
        for column in ("tenant", "project", "kind", "signature")
    }
    values = sighting  # of the texts; with parts of a stored lesson, if it has some
    is_updated = False
    rows = list(db.select("*", "lesson", name))
    if rows:
        lesson_before = read_lesson(db, rows[0])
        seen_lesson = replace(lesson, text=storable(lesson.text))
        result = merge(lesson_before, seen_lesson)
        parts_before = (lesson_before.text, lesson_before.mistake)
        is_updated = (result.text, result.mistake) != parts_before
        row = _count_sighting(db, key, rows[0], result, is_updated, now=now)
        # What waits for a review is stored as it came. Any other text gets the parts of
        # the stored lesson that it lacks.
        if lesson.trust != "outside":
            full_lesson = with_stored_parts(lesson_before, seen_lesson)
            values = lesson_values(key, full_lesson, now)
            has_stored_part = full_lesson.mistake != seen_lesson.mistake
            if has_stored_part and rows[0]["author"] is not None:
                # The stored part goes when the source of the stored lesson is revoked.
                values["parents"] = json.dumps((*lesson.parents, rows[0]["author"]))
    else:
        row = insert_lesson(db, sighting)

    id = int(row["id"])
    values = {**values, "lesson_id": id, "renews": int(is_updated)}
    _add_signature_tags(db, lesson, sighting["tags"], row)

    written = _write_texts(db, values, lesson, row)
    _add_sighting(db, sighting, written, lesson_id=id)

    # The answer is about the text that was written if that, or the lesson, waits in
    # quarantine.
    state = row["state"]
    trust = row["trust"]
    entry = _waiting_entry(row)
    if written is not None and "quarantined" in (lesson.state, state):
        state = written.state
        trust = written.trust
        entry = written.entry

    return Remembered(
        id,
        created=row["seen"] == 1,
        updated=is_updated,
        seen=int(row["seen"]),
        state=state,
        trust=trust,
        entry=entry or _quarantine_whole_text(db, values, lesson),
        figures=lesson.signature.figures,
    )


def insert_lesson(db: Db, values: Document) -> Row:
    """Insert a new lesson, given as `lesson_values`; return its row."""
    state, judged_from = _state_by_rulings(db, values)
    counters = {"author": None, "useful": 1.0, "judged_from": judged_from}
    (row,) = db.run("upsert_lesson", {**values, "state": state, **counters}).fetchall()
    return row


def _state_by_rulings(db: Db, values: Document) -> tuple[State, float]:
    """Return the state of a lesson with new words, and the time of the last ruling.

    A ruling is a decision of a person to retire or restore a lesson; its time is 0.0 if
    there is none. A lesson that was retired stays retired, even if it was evicted or
    pruned meanwhile. But a text from an operator that differs from the one that was
    retired is not. `values` are the `lesson_values`.
    """
    state: State = values["state"]
    scope = Scope(values["tenant"], values["project"])
    ruling = db.one("ended_or_restored", scope, subject=name_of(values))
    if ruling is None:
        return state, 0.0

    is_new_text = values["trust"] == "user" and ruling["digest"] != values["mark"]
    if ruling["action"] == "retire" and not is_new_text:
        state = after("retire", state)
    return state, ruling["at"]


def _count_sighting(
    db: Db, key: Document, row: Row, lesson: Lesson, is_updated: bool, now: float
) -> Row:
    """Store a lesson in the place of `row`, and count one more sighting.

    Returns the new row. If the words are replaced, the old ones are kept, but no longer
    recalled, and whether the lesson is useful is judged from now on. `is_updated` says
    that the words or the record of the mistake are new. Then, or if the trust is, the
    lesson has no author: the example with its words is yet to be written.
    """
    values = lesson_values(key, lesson, now)
    counters = {name: row[name] for name in ("author", "useful", "judged_from")}
    has_other_text = row["text"] != values["text"]
    if has_other_text:
        old_words = {"id": row["id"], "text": row["text"]}
        db.send("replace_words", old_words)
        counters["useful"] = 1.0
        # What was shown before had the old words.
        counters["judged_from"] = max(now, row["last_shown"])
    belief = ("trust", "released_by")
    is_believed_otherwise = any(row[name] != values[name] for name in belief)
    if is_updated or is_believed_otherwise:
        counters["author"] = None
    if row["state"] != values["state"]:
        values["state"], _ = _state_by_rulings(db, values)
    (counted,) = db.run("upsert_lesson", {**values, **counters}).fetchall()
    return counted


def _add_sighting(
    db: Db, sighting: Document, written: WrittenExample | None, *, lesson_id: int
) -> None:
    """Store a sighting, that is one occurrence of a lesson's error.

    `sighting` are the `lesson_values` as they were seen, and `written` is the example
    that was written last. If that was stored already, perhaps by another source, the
    sighting keeps a copy of what was said this time: it stays when the other one goes.
    """
    finding = ""
    # A check may name its findings by a key of its own: they are found by words, too.
    if sighting["kind"] == "check":
        finding = finding_digest(sighting["scope"], sighting["sighting"])
    lesson_text = sighting["text"]
    # It is not stored twice.
    if lesson_text == sighting["sighting"]:
        lesson_text = ""
    example = None
    record = ""
    if written is not None and written.wrote == "nothing":
        example = written.id
        record = written.record

    occurrence = {
        "lesson_id": lesson_id,
        "loop": sighting["loop"],
        "text": sighting["sighting"],
        "finding": finding,
        "mistake": sighting["mistake"],
        "source": sighting["source"],
        "via": sighting["via"],
        "trust": sighting["error_trust"],
        "lesson": lesson_text,
        "lesson_trust": sighting["trust"],
        "example": example,
        "record": record,
        "sources": json.dumps(sorted(map(storable, sighting["sources"]))),
        "parents": sighting["parents"],
        "at": sighting["now"],
    }
    db.insert("occurrence", occurrence)


def finding_digest(scope_token: str, text: str) -> str:
    """Return the digest by which the words of a check's finding are found in a scope.

    The case, the blanks and the end of the words make no difference.
    """
    return digest_of(scope_token, " ".join(text.lower().split()).rstrip(" .…"))


def read_lesson(db: Db, row: Row) -> Lesson:
    """Return the lesson in a row, without what is stored elsewhere or not at all.

    Only the lesson of a check has its example: its author, whose words it shows.
    """
    example = None
    # There is one such row, or none if the example is gone.
    if row["kind"] == "check":
        for author in db.select("record", "example", {"id": row["author"]}):
            example = example_of(author)
    signature = Signature(
        "", row["pattern"], digest=row["signature"], error_type=row["error_type"]
    )
    return from_row(
        Lesson,
        row,
        signature=signature,
        sighting="",
        loop="",
        example=example,
        space="",
        vector=None,
        context="",
        parents=(),
        run=LessonRun.read(row["run"]),
        sources=(),
        cause=None,
        memory_key="",
        mistake=from_json(row["mistake"]),
    )


def _quarantine_whole_text(db: Db, values: Document, lesson: Lesson) -> int:
    """Put the whole text of a lesson into quarantine if a part of it is from outside.

    The lesson itself is recalled without this part; a person may release the whole.
    `values` are those of the lesson's texts. Returns the id of the example that waits,
    or 0.
    """
    released = _with_outside_parts(lesson, "outside")
    if released is lesson or lesson.state == "quarantined":
        return 0
    columns = {
        "text": storable(released.text),
        "mistake": mistake_json(released.mistake),
        "about": "",  # searches find the lesson by its other text
        "state": "quarantined",
        "trust": "outside",
        "released_by": "",
        "released_at": 0.0,
    }
    return add_words(db, {**values, **columns}).entry


def lesson_values(key: Document, lesson: Lesson, now: float) -> Document:
    """Return the values of a lesson for the statements that write it.

    `key` is the `scope_key`. Texts are without secrets. Lists are JSON, except for the
    `sources`, which have rows of their own.
    """
    message = lesson.signature.message
    is_trace = message != lesson.signature.pattern
    is_output = lesson.kind == "error" and "\n" in lesson.sighting.strip()
    if is_output and not is_trace:
        # In a long output, searches find the line that says what failed.
        message = signature("", error_line(lesson.sighting)).pattern
    # An error of a tool may begin with its name, "npm: error": it is found without.
    is_titled = lesson.kind == "reflection"
    text = storable(lesson.text)
    mistake = lesson.mistake
    error_trust = lesson.trust
    if mistake is not None and mistake.error_origin == "outside":
        error_trust = "outside"

    return {
        **key,
        "kind": lesson.kind,
        "state": lesson.state,
        "trust": lesson.trust,
        "released_by": storable(lesson.released_by),
        "released_at": lesson.released_at,
        "importance": lesson.importance,
        "pinned": lesson.pinned,
        "loop": lesson.loop,
        "memory_key": lesson.memory_key,
        "error_type": storable(lesson.error_type),
        "text": text,
        "mark": words_digest(text),
        "source": storable(lesson.source),
        "signature": lesson.signature.digest,
        "pattern": storable(lesson.signature.pattern),
        "signature_version": lesson.signature.version,
        "words": untitled_digest(lesson.error_type, storable(message), is_titled),
        "tags": json.dumps([storable(tag) for tag in lesson.tags]),
        "evidence": lesson.evidence,
        "is_correction": lesson.is_correction,
        "run": run_json(lesson.run),
        "data": storable_json(lesson.data),
        "mistake": mistake_json(mistake),
        "sighting": storable(lesson.sighting),
        "error_trust": error_trust,
        "via": " ".join(sorted(keys_in(lesson.sources))),
        "parents": json.dumps(lesson.parents),
        "sources": lesson.sources,
        "now": now,
    }


def run_json(run: LessonRun | None) -> str:
    """Return the JSON of a run without secrets; "" for none."""
    return storable_json(asdict(run)) if run is not None else ""


def mistake_json(mistake: Mistake | None) -> str:
    """Return the JSON of a mistake without secrets; "" for none."""
    return storable_json(to_data(mistake)) if mistake is not None else ""


def _add_signature_tags(db: Db, lesson: Lesson, tags: str, row: Row) -> None:
    """Add the new `sig:` tags of a sighting to those of the stored lesson in `row`.

    Such a tag is the exact signature of an error: a search for this error then finds
    the lesson. `tags` are the tags of `lesson` as JSON. Untrusted lessons add no tags.
    """
    if lesson.trust == "outside":
        return

    stored_tags = json.loads(row["tags"])
    new_tags = [
        tag
        for tag in json.loads(tags)
        if tag.startswith("sig:") and tag not in stored_tags
    ]
    if new_tags and len(stored_tags) + len(new_tags) <= MAX_QUARANTINE_TAGS:
        changes = {"tags": json.dumps([*stored_tags, *new_tags])}
        db.update("lesson", {"id": row["id"]}, changes)


def remembered(
    db: Db, scope: Scope, lessons: Sequence[Lesson | None]
) -> tuple[Remembered, ...]:
    """Return what is stored of these lessons, as `upsert` would; count no sighting.

    Lessons that are None or not stored are left out.
    """
    return tuple(
        Remembered(
            row["id"],
            created=False,
            seen=row["seen"],
            state=row["state"],
            trust=row["trust"],
            entry=_waiting_entry(row),
            figures=lesson.signature.figures,
        )
        for lesson in filter(None, lessons)
        for row in db.select(
            "id, seen, state, trust, author",
            "lesson",
            {
                **key_of(scope),
                "kind": lesson.kind,
                "signature": lesson.signature.digest,
            },
        )
    )


def _waiting_entry(lesson: Row) -> int:
    """Return the id of the example with a quarantined lesson's words, or else 0."""
    return (lesson["author"] or 0) if lesson["state"] == "quarantined" else 0


def of_failure(db: Db, scope: Scope, signature: str) -> list[Fields]:
    """Return the lessons about a failure as plain data, oldest first.

    These are the reflection with this `signature` digest, which says what went wrong,
    and the strategies that say what to do. Quarantined lessons are returned, too;
    retired and superseded ones are not.
    """
    name = f"reflection/{signature}"
    return [
        {
            **dict(row),
            "tags": json.loads(row["tags"]),
            "run": LessonRun.read(row["run"]),
        }
        for row in db.all("read_failure", scope, signature=signature, name=name)
    ]


def _write_texts(
    db: Db, values: Document, lesson: Lesson, row: Row
) -> WrittenExample | None:
    """Write the texts of a sighting: its example, the text of the lesson, or both.

    `values` are the `lesson_values` and the `lesson_id`. `row` is the stored lesson.
    Its `author` is the id of the example whose text the lesson shows, None if the text
    is new or was just replaced; then the example becomes the author. Returns the
    example that was written last, None if none was.
    """
    has_author = row["author"] is not None
    shows_text = row["text"] == values["text"]

    # One example carries the words of the lesson, so that they do not crowd out other
    # lessons.
    lesson_words = ""
    if not (has_author and shows_text):
        lesson_words = search_text(values["text"], values["pattern"])

    values = {**values, "about": lesson_words}

    place = None
    if lesson.vector is not None:
        place = placed(db, lesson.space, lesson.vector)

    # Words that the lesson does not show are stored if they wait for a review, or if
    # they are trusted more than those that it shows.
    stored_standing = standing_of(row["trust"], row["released_by"])
    keeps_unshown_text = lesson.trust == "outside" or is_below(
        stored_standing, lesson.trust
    )

    written = None
    if lesson.example is not None:
        written = add_example(
            db,
            {**values, "digest": lesson.example.digest},
            example=lesson.example,
            context=lesson.context,
            place=place,
        )
    elif shows_text or (keeps_unshown_text and lesson.text != lesson.sighting):
        written = add_words(db, values, lesson.context, place)
    raised = written is not None and written.wrote == "raised"

    if not has_author:
        # A known lesson has no author if its words or their trust are new.
        raised = raised or row["seen"] > 1
        # Another source had written this example, so the words get a row of their own.
        if written is None or written.wrote == "nothing":
            written = add_words(db, values, lesson.context)
        db.update("lesson", {"id": row["id"]}, {"author": written.id})
        # If another source had written these words too, its trust and state apply.
        if written.wrote == "nothing":
            kept_state = "retired" if row["state"] == "retired" else ""
            db.send("set_voice", {**values, "example": written.id, "kept": kept_state})

    if lesson.trust == "user" and raised:
        # An operator wrote a known text again, which raises the trust of the text.
        rule(
            db,
            Scope(values["tenant"], values["project"]),
            action="release",
            subject=name_of(values),
            by=values["source"].strip() or "operator",
            why="wrote the same text",
            record={"source": values["source"]},
        )

    return written


def search_text(text: str, pattern: str) -> str:
    """Return the text and the pattern of a lesson for searches, without masks."""
    return f"{text}\n{MASK_PATTERN.sub(' ', pattern)}"


def add_words(
    db: Db, values: Document, context: str = "", place: Document | None = None
) -> WrittenExample:
    """Write the text of a lesson as an example row, so that searches find it.

    The arguments are those of `add_example`, without a `digest`.
    """
    text = values["text"]
    return add_example(
        db,
        {**values, "digest": words_digest(text)},
        example=Example(text, "", context=context),
        context=context,
        place=place,
    )


def add_example(
    db: Db, values: Document, example: Example, context: str, place: Document | None
) -> WrittenExample:
    """Write an example with its origin and vector; return its row.

    An example that is stored already is replaced only if it is trusted more now, or if
    newer words had taken its place before.

    `values` holds the `scope_key` and `kind`, `signature`, `lesson_id`, `digest`,
    `text`, `state`, `trust`, `source`, `parents`, `now`. `place` holds the space and
    data of the vector. Searches find the words of the task, of `context` and of `about`
    in `values`. An import gives them as `searched` instead.
    """
    task = storable(example.task)
    search_words = values.get("searched") or searched_words(
        task, storable(context), values.get("about", "")
    )
    values = {
        **values,
        "task": task,
        "record": storable_json(asdict(example)),
        "lesson": values["text"],
        "mistake": values.get("mistake", ""),
        "words": search_words,
    }

    # What a person has refused does not wait for a review again.
    if values["state"] == "quarantined":
        digests = refusable_digests(
            values["kind"], values["text"], example, with_task=True
        )
        if db.first("is_refused", {**values, "words": digests}) is not None:
            values["state"] = "retired"

    # The defaults of what only some callers give.
    unreleased = {"released_by": "", "released_at": 0.0}
    row = db.first("insert_example", {"renews": 0, **unreleased, **values})
    wrote = "nothing"
    # No row was written: the example was stored already, and is trusted as much.
    if row is None:
        db.send("verify_example", values)
        key = {"lesson_id": values["lesson_id"], "digest": values["digest"]}
        [row] = db.select("id, state, trust", "example", key)
    # It had sources, so it was there, and is trusted more now.
    elif replace_origins(db, values, row["id"]):
        wrote = "raised"
    else:
        wrote = "new"

    is_trusted = values["trust"] != "outside"
    if place is not None and (wrote != "nothing" or is_trusted):
        db.send("place", {**values, **place, "id": row["id"]})
    return from_row(WrittenExample, row, wrote=wrote, record=values["record"])


def searched_words(task: str, context: str, lesson: str) -> str:
    """Return the words by which a search finds an example, separated by blanks.

    They are the words of task and context and, after an empty word, the other words of
    `lesson`, each of them once. The latter do not add to the length of the text, so
    that they never lower the score of a lesson.
    """
    task_words = words(f"{task}\n{context}")
    unique_words = dict.fromkeys(words(lesson))
    lesson_words = [word for word in unique_words if word not in task_words]
    if lesson_words:
        task_words = [*task_words, "", *lesson_words]
    return " ".join(task_words)


def top(db: Db, scope: Scope, limit: int) -> list[Fields]:
    """Return up to `limit` lessons as plain data, most often seen first.

    Failures that nothing put right come last. If the text of a lesson waits in
    quarantine, `entry` is the id under which a person can review it, else 0.
    """
    return _listed(db, scope, db.all("top_lessons", scope, limit=limit))


def shown(db: Db, scope: Scope, id: int) -> Fields:
    """Return a lesson as `top` returns it. Raises NotFound."""
    return _listed(db, scope, [_lesson_row(db, scope, id)])[0]


def _listed(db: Db, scope: Scope, rows: Sequence[Row]) -> list[Fields]:
    """Return the lessons in rows as plain data, with the words that a prompt has."""
    lessons = [{**plain(row), "entry": _waiting_entry(row)} for row in rows]
    return with_told_words(db, scope, lessons)


def newest_examples(
    db: Db, scope: Scope, lessons: Sequence[int]
) -> dict[int, Document]:
    """Return the newest example of each lesson that has one, by the lesson's id.

    An example that waits in quarantine is never returned.
    """
    examples = dict[int, Document]()
    for lesson in lessons:
        row = db.first("newest_example", {"token": token(scope), "lesson": lesson})
        if row is not None:
            examples[lesson] = json.loads(row["record"])
    return examples


def count(db: Db, scope: Scope) -> int:
    """Return the number of lessons in the scope."""
    return sum(row["lessons"] for row in db.select("lessons", "tally", key_of(scope)))


@resumable(result=int)
def clear_type(db: Db, scope: Scope, kind: str, error_type: str) -> int:
    """Delete the lessons of this kind and error type; return their number.

    Stored prompts with words of them are emptied.
    """
    key = {**key_of(scope), "kind": kind, "error_type": error_type}
    for row in db.select("id", "lesson", key):
        _forget_prompts(db, scope, {"lesson_id": row["id"]})
    return db.delete("lesson", key)


def delete_lessons(db: Db, scope: Scope, lessons: Sequence[Fields]) -> None:
    """Delete lessons; `lessons` are their rows.

    Stored prompts that had texts which now wait in quarantine are emptied. With the
    lessons the sources of these texts are deleted, so a later revocation of a source
    would not find the prompts.
    """
    for lesson in lessons:
        # A lesson that was never shown is in no prompt.
        if lesson["last_shown"]:
            waiting = {"lesson_id": lesson["id"], "state": "quarantined"}
            _forget_prompts(db, scope, waiting)
        db.delete("lesson", {**key_of(scope), "id": lesson["id"]})


def _forget_prompts(db: Db, scope: Scope, examples: Document) -> None:
    """Empty the stored prompts that have words of examples.

    `examples` are the values of columns that select these.
    """
    ids = [row["id"] for row in db.select("id", "example", examples)]
    if ids:
        values = {"ids": json.dumps(ids), "named": "[]"}
        db.send("forget_briefings", {**key_of(scope), **values})


def count_examples(db: Db, scope: Scope, kind: str, error_type: str) -> int:
    """Return the number of examples of these lessons that recall can find."""
    (row,) = db.all("count_examples", scope, kind=kind, error_type=error_type)
    return int(row["n"])


def scopes(
    db: Db, scope: Scope, having: Literal["lessons", "loops", "work"] = "lessons"
) -> list[Scope]:
    """Return all scopes, of every tenant, that have what `having` names.

    "work" is a waiting or failed episode, or an open trace. The given `scope` makes no
    difference.
    """
    rows = db.run("scopes", {"having": having}).fetchall()
    return [Scope(row["tenant"], row["project"]) for row in rows]


def projects(db: Db, scope: Scope) -> list[Scope]:
    """Return the scopes of the tenant of `scope` in which anything is stored.

    That is, loops, lessons, exposures, trials, episodes or traces.
    """
    return [Scope(scope.tenant, row["project"]) for row in db.all("projects", scope)]


def plain(row: Row) -> Fields:
    """Return the row of a lesson as plain data: lists, booleans and a mistake.

    Words of tools and documents are left empty until a person has released them.
    """
    lesson = dict(row)
    # These columns are of no use outside the store.
    del lesson["tenant"], lesson["project"]
    for name in ("words", "author", "run", "data", "unreviewed"):
        del lesson[name]
    if row["unreviewed"]:
        lesson |= {"pattern": "", "text": "", "tags": "[]", "mistake": ""}
    mistake = from_json(lesson["mistake"])
    # The pattern is that of the error, so it has words of it.
    if mistake is not None and mistake.error_origin == "outside":
        lesson["pattern"] = ""

    lists = {name: json.loads(lesson[name]) for name in ("tags", "unfit_for")}
    switches = {name: bool(lesson[name]) for name in ("pinned", "is_correction")}
    record = mistake and to_data(without_outside(mistake))
    return {**lesson, **lists, **switches, "mistake": record}


def evict(
    db: Db, scope: Scope, answers: Sequence[Remembered], most: int
) -> list[Remembered]:
    """Evict lessons until `most` are left, and as many examples; 0 evicts nothing.

    Quarantined lessons go first, then the least useful ones. The lessons that are new
    in `answers`, unless they are quarantined, go last, so that a full memory still
    learns. Without a new lesson none is evicted. Returns the answers, with
    `UNSTORED_LESSON` for each evicted lesson.
    """
    if not most:
        return list(answers)

    evicted = set[int]()
    new = sorted({answer.id for answer in answers if answer.created})
    # The second time, if that was not enough, the new ones are not spared.
    for spared in (new, []):
        excess = count(db, scope) - most
        if new and excess > 0:
            rows = db.all(
                "prunable",
                scope,
                most_useful=inf,
                since=-inf,
                before=inf,
                limit=excess,
                kept=json.dumps(spared),
            )
            delete_lessons(db, scope, rows)
            evicted.update(row["id"] for row in rows)

    # The oldest examples go, but not the words of a lesson nor what a pinned one has.
    corpus = db.one("read_corpus", scope)
    if corpus is not None and corpus["texts"] > most:
        values = {"scope": corpus["scope"], "excess": corpus["texts"] - most}
        db.send("evict_examples", values)

    return [UNSTORED_LESSON if answer.id in evicted else answer for answer in answers]


@resumable(result=None, counts=True)
def pin(db: Db, scope: Scope, id: int, pinned: bool, by: str, why: str) -> None:
    """Pin a lesson so that it is never evicted, or unpin it if not `pinned`.

    The change is recorded as a ruling, that is a decision of `by`, with the reason
    `why`. Raises NotFound, and InvalidInput without an actor.
    """
    lesson = _lesson_row(db, scope, id)
    db.update("lesson", {"id": id}, {"pinned": pinned})
    action = "pin" if pinned else "unpin"
    # This checks `by`, too: its error undoes the update.
    rule(
        db,
        scope,
        action=action,
        subject=name_of(lesson),
        by=by,
        why=why,
    )


def _lesson_row(db: Db, scope: Scope, id: int) -> Row:
    """Return the row of the lesson with this id. Raises NotFound."""
    rows = db.select("*", "lesson", {**key_of(scope), "id": id})
    if not rows:
        raise NotFound("lesson", str(id), f"the lessons of {scope}")
    return rows[0]


@resumable(result=int)
def edit(
    db: Db,
    scope: Scope,
    id: int,
    text: str,
    by: str,
    why: str,
    space: str = "",
    vector: Any = None,
) -> int:
    """Give a lesson new words of an operator, with a source of their own.

    The fix of the lesson stays beside the new words, and the edit is recorded as a
    ruling, that is a decision of `by`. `vector` is the embedding of the text in a
    vector `space`. If the old words wait for a review, so do the new ones: then returns
    the id of their example, or else 0. Raises NotFound, InvalidInput.
    """
    text = storable(text)
    has_words = bool(text.strip()) and len(text) <= MAX_STORED_TEXT_CHARS
    require(has_words, "text", text, f"1 to {MAX_STORED_TEXT_CHARS} characters")

    lesson = _lesson_row(db, scope, id)
    mistake = from_json(lesson["mistake"])
    if mistake is not None:
        mistake = with_words(mistake, text, "user")
        text = render.text_of(lesson["kind"], mistake)

    is_live = lesson["state"] != "superseded"
    require(is_live, "lesson", id, "a lesson that no other one superseded")
    require(
        text != lesson["text"], "text", text, "other words than those of the lesson"
    )

    is_untrusted = lesson["unreviewed"]
    trust: Origin = "outside" if is_untrusted else "user"
    trust_and_state = {"trust": trust, "state": initial_state(trust)}

    now = time.time()
    values = {
        **scope_key(scope),
        **trust_and_state,
        "kind": lesson["kind"],
        "signature": lesson["signature"],
        "lesson_id": id,
        "text": text,
        "mistake": mistake_json(mistake),
        "parents": "[]",
        "memory_key": "",
        "now": now,
        "source": db.actor.via or f"operator:{by}",
        "about": search_text(text, lesson["pattern"]),
    }

    # An operator may write again what a person has refused.
    digests = refusable_digests(lesson["kind"], text, example=None, with_task=False)
    db.send("allow_words", {**values, "words": digests})

    place = placed(db, space, vector) if vector is not None else None
    new_author = add_words(db, values, "", place).id
    # Another source may have written the same words.
    db.update("example", {"id": new_author}, trust_and_state)
    replace_origins(db, values, new_author)

    # Only the old words are replaced: if a worked example was the author, it stays.
    old_words = {"id": lesson["author"], "digest": words_digest(lesson["text"])}
    db.update("example", old_words, {"state": "superseded"})
    db.send("set_voice", {**values, "example": new_author, "kept": ""})
    _reset_counters(db, scope, lesson)

    # This checks `by`, too: its error undoes the edit.
    rule(
        db,
        scope,
        action="edit",
        subject=name_of(lesson),
        by=by,
        why=why,
        record={
            "was": lesson["author"],
            "example": new_author,
            "trust": lesson["trust"],
            "source": lesson["source"],
        },
    )

    return new_author if is_untrusted else 0


def _reset_counters(db: Db, scope: Scope, lesson: Row) -> None:
    """Forget whether a lesson helped, because its words are new now.

    `lesson` is its row before the edit.
    """
    # The words of a person about a run say what to do, like a correction by a user.
    is_correction = lesson["kind"] in EPISODE_LESSON_KINDS or lesson["is_correction"]
    changes = {
        "tags": lesson["tags"],
        "importance": lesson["importance"],
        "evidence": "said",
        "useful": 1,
        "helped": 0,
        "hurt": 0,
        "is_correction": bool(is_correction),
    }
    db.update("lesson", {"id": lesson["id"]}, changes)

    cause = {"kind": lesson["kind"], "signature": lesson["signature"]}
    db.update("cause", {**key_of(scope), **cause}, {"quiet": 0})
