"""The lessons in a store: write, list, limit and delete them; release, reject and
revoke texts.

A lesson is one row for each kind and signature. Each time its error is seen (a
sighting), the count of the lesson rises. Examples record their sources, so that
revoking a source also deletes every example that derives from it. This module sets the
trust and the state of every text in the store.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from math import inf
from typing import Any, Literal

from heedful.errors import InvalidInput, NotFound, NotQuarantined, QuotaExceeded
from heedful.lessons import lesson as records
from heedful.lessons import trust as trusts
from heedful.lessons.action import MEND_HEADING
from heedful.lessons.lesson import (
    Example,
    Lesson,
    Remembered,
    Scope,
    State,
    Trust,
    short_digest,
)
from heedful.lessons.patterns import MASK_PATTERN
from heedful.lessons.signature import signature, words_of
from heedful.lessons.trust import (
    KEY_SOURCE_PREFIX,
    QUARANTINE_TRUST,
    TRUST_RAISING_VERIFICATION,
    Action,
    QuarantinedLesson,
    RevocationResult,
)
from heedful.lessons.words import words
from heedful.redact import redact_data
from heedful.store.connection import (
    CONFLICT_SKIP_SQL,
    MAX_ROWS,
    Db,
    Row,
    from_row,
    key_of,
    resumable,
    storable,
    token,
)
from heedful.store.search import blob, placed
from heedful.validation import check_actor, require

Plain = dict[str, Any]
Wrote = Literal["nothing", "new", "raised"]
LESSON_DAY_SECONDS = 86_400.0
UNSTORED_LESSON = Remembered(0, created=False, seen=0, state="retired")
MIN_REJECTED_ANSWER_WORDS = 5  # words of an answer that is rejected for every task
# The fields of a reflection that are stored unchanged.
PLAIN_LESSON_FIELDS = (
    "kind",
    "state",
    "trust",
    "importance",
    "pinned",
    "loop",
    "memory_key",
)
# The beginning of the digest of a row that holds the words of a lesson, not an example.
LESSON_DIGEST_PREFIX = "lesson"


def words_digest(text: str) -> str:
    """Return the digest of the example row that holds only `text`, the text of a
    lesson.
    """
    return f"{LESSON_DIGEST_PREFIX} {Example(text, '').digest}"


def _said(kind: str, text: str, example: Example | None, task: bool) -> str:
    """Return the digests of the words of a lesson as JSON; letter case and blanks do
    not matter.

    A short answer counts only together with its task. With `task`, includes that of the
    example.
    """
    texts = [] if kind == "example" else [text]
    digests = set[str]()
    if example is not None:
        long = (
            one
            for one in (example.accepted, example.task)
            if len(one.split()) >= MIN_REJECTED_ANSWER_WORDS
        )
        texts += [one for one in long if task or one != example.task]
        texts += (
            [example.wrong]
            if task or text.startswith(example.wrong.rstrip(". "))
            else []
        )
        digests |= {example.digest} if example.accepted else set()
    plain = (" ".join(storable(one).casefold().split()).strip(" .!") for one in texts)
    return json.dumps(sorted(digests | {short_digest(one) for one in plain if one}))


def move_examples(db: Db, subject: int, successor: int) -> None:
    """Move the recallable examples of lesson `subject` to `successor`, which superseded
    it.

    When the lesson returns, a trigger moves them back.
    """
    for row in db.run(
        "move_examples", {"subject": subject, "successor": successor}
    ).fetchall():
        db.insert("moved", {"example": row["id"], "lesson": subject})


def assign_trust(db: Db, key: Plain, one: Lesson) -> Lesson | None:
    """Return the reflection with the trust, state, source and parents (example ids) to
    store.

    `key` holds `tenant`, `project` and the scope's token as `scope`. Returns None for a
    measured reflection if its loop was shown an example whose origin is deleted. Raises
    InvalidInput for an unknown parent.
    """
    parents = set(one.parents)
    if one.loop:
        parents |= {
            int(row["id"]) for row in db.run("shown_to_loop", {**key, "loop": one.loop})
        }
    ids = {**key, "parents": json.dumps(sorted(parents))}
    known_trusts = list[Trust]()
    if (
        one.loop and one.trust == "measured"
    ):  # by the outcome of the loop, not by its prompt
        traced = db.run("count_traced", ids).fetchone()["n"] if parents else 0
        if traced < len(parents):
            return None
    else:
        known = db.run("known_parents", ids).fetchall() if parents else []
        known_trusts = [row["trust"] for row in known]
        if len(known) < len(parents):
            unknown = sorted(parents - {row["id"] for row in known})
            raise InvalidInput("derived_from", unknown, "ids of examples of this scope")
    trust = (
        trusts.lowest_trust((one.trust, *known_trusts)) if known_trusts else one.trust
    )
    words = {
        **key,
        "words": _said(one.kind, one.text, one.example, trust != "operator"),
    }
    if trust == "operator":
        db.run("allow_words", words)
    elif db.first("is_refused", words) is not None:
        trust = "external"
    if one.pinned and trust not in TRUST_RAISING_VERIFICATION:
        raise InvalidInput(
            "pinned", value=True, allowed=f"False for text of trust {trust}"
        )
    state = trusts.initial_state(trust, one.state)
    source = one.source or (trust if trust in QUARANTINE_TRUST else "")
    one = trusts.clip_reflection(one) if trust in QUARANTINE_TRUST else one
    origin: Plain = {"source": source, "parents": tuple(sorted(parents))}
    origin["sources"] = (*one.sources, *[db.actor.via] * bool(db.actor.via))
    return replace(one, trust=trust, state=state, **origin)


def replace_origins(db: Db, values: Plain, example: int) -> bool:
    """Replace the source and parents of an example; return True if it had a source
    before.

    `values` holds the scope, the new `source`, the `sources` beside it, and the new
    `parents` as a JSON list of ids. If a new parent derives from this example, the old
    source and parents are kept besides the new ones.
    """
    values = {**values, "example": example}
    known = (
        values["parents"] != "[]" and db.first("is_own_ancestor", values) is not None
    )
    if not known:
        known = db.delete("origin", {"example": example}) > 0
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
    return known


def upsert(
    db: Db,
    scope: Scope,
    reflections: Sequence[Lesson],
    now: float,
    quota: int | None = None,
    drops: bool = False,
) -> list[Remembered]:
    """Store each reflection: insert its lesson or, if the lesson exists, add 1 to its
    count.

    Also stores the sighting and the example of the reflection. Skips a reflection if
    `assign_trust` returns None. The `quota` is that of the key through which a
    reflection came, or else of its source; with `drops`, skips what is beyond it.
    Raises QuotaExceeded, and InvalidInput for an unknown parent.
    """
    key = _scope_key(scope)
    answers = []
    for one in reflections:
        if (stamped := assign_trust(db, key, one)) is not None:
            keys = [
                name for name in stamped.sources if name.startswith(KEY_SOURCE_PREFIX)
            ]
            source = storable(keys[0] if keys else stamped.source)
            most = (
                MAX_ROWS if quota is None or stamped.state != "quarantined" else quota
            )
            if drops and most < MAX_ROWS and len(held_of(db, scope, source)) >= most:
                continue
            answers.append(_upsert(db, key, stamped, now))
            if stamped.cause is not None and stamped.state != "quarantined":
                broken = {
                    **asdict(stamped.cause),
                    "checks": json.dumps(stamped.cause.checks),
                }
                broken |= {"kind": stamped.kind, "signature": stamped.signature.digest}
                db.run(
                    "upsert_cause", {**key, **broken, "loop": stamped.loop, "now": now}
                )
            if most < MAX_ROWS and (held := len(held_of(db, scope, source))) > most:
                raise QuotaExceeded(source, held, most)
    return answers


def held_of(db: Db, scope: Scope, source: str) -> list[int]:
    """Return the ids of the examples of a source that wait in quarantine."""
    rows = db.run("held_of", {"scope": token(scope), "source": storable(source)})
    return [int(row["id"]) for row in rows]


def _upsert(db: Db, key: Plain, reflection: Lesson, now: float) -> Remembered:
    name = reflection.signature
    titled = reflection.kind == "reflection"
    if reflection.kind == "error" and "\n" in reflection.sighting.strip():
        from heedful.traces.error_lines import error_line

        name = signature("", error_line(reflection.sighting))
    values = {
        **key,
        **{name: getattr(reflection, name) for name in PLAIN_LESSON_FIELDS},
        **{
            name: storable(getattr(reflection, name))
            for name in ("error_type", "text", "source")
        },
        "signature": reflection.signature.digest,
        "pattern": storable(reflection.signature.pattern),
        "words": words_of(reflection.error_type, storable(name.pattern), titled),
        "tags": json.dumps([storable(tag) for tag in reflection.tags]),
        "meta": json.dumps(redact_data(dict(reflection.meta))),
        "parents": json.dumps(reflection.parents),
        "sources": reflection.sources,
        "now": now,
    }
    values["mark"] = words_digest(values["text"])
    if reflection.trust in TRUST_RAISING_VERIFICATION:
        db.run("replace_words", values)
    row = db.run("upsert_reflection", values).fetchall()[0]
    values["reflection"] = id = int(row["id"])
    # A tag that is an exact signature lets a search for this text find the lesson.
    tags = json.loads(row["tags"])
    tagged = (
        json.loads(values["tags"]) if reflection.trust not in QUARANTINE_TRUST else []
    )
    new = [
        tag for tag in tagged if tag.startswith("sig:") and tag not in tags
    ]  # of an error
    if new and len(tags) + len(new) <= trusts.MAX_QUARANTINE_TAGS:
        db.update("reflection", {"id": id}, {"tags": json.dumps([*tags, *new])})
    sighting = {
        name: values[name]
        for name in ("reflection", "loop", "source", "trust", "parents")
    }
    sighting["via"] = " ".join(
        name for name in reflection.sources if name.startswith(KEY_SOURCE_PREFIX)
    )
    db.insert(
        "occurrence", {**sighting, "text": storable(reflection.sighting), "at": now}
    )
    _write(db, values, reflection, row)
    state: State = row["state"]
    trust: Trust = row["trust"]
    entry = 0
    if "quarantined" in (reflection.state, row["state"]):
        key = {"id": row["author"]}  # a dream may have moved it to another lesson
        if "digest" in values:
            key = {"reflection": id, "digest": values["digest"]}
        # none, if it was evicted
        for example in db.select("id, state, trust", "example", key):
            state = example["state"]
            trust = example["trust"]
            entry = example["id"] if state == "quarantined" else 0
    if row["state"] == "superseded":
        for successor in db.run("became", values).fetchall():
            move_examples(db, id, successor["id"])
    return Remembered(
        id,
        created=row["seen"] == 1,
        seen=int(row["seen"]),
        state=state,
        trust=trust,
        entry=entry,
    )


def known(
    db: Db, scope: Scope, wanted: Sequence[Lesson | None]
) -> tuple[Remembered, ...]:
    """Return the stored lessons that `wanted` names, as `upsert` would, and count no
    sighting.
    """
    answers = []
    for lesson in filter(None, wanted):
        key = {
            **key_of(scope),
            "kind": lesson.kind,
            "signature": lesson.signature.digest,
        }
        for row in db.select("id, seen, state, trust, author", "reflection", key):
            answer = Remembered(
                row["id"],
                created=False,
                seen=row["seen"],
                state=row["state"],
                trust=row["trust"],
                entry=row["author"] if row["state"] == "quarantined" else 0,
            )
            answers.append(answer)
    return tuple(answers)


def of_failure(db: Db, scope: Scope, signature: str) -> list[Mapping[str, Any]]:
    """Return the reflection on a failure and its strategies as plain data, oldest
    first.

    Quarantined lessons are returned, too; retired and superseded ones are not.
    """
    rows = db.all(
        "read_failure", scope, signature=signature, name=f"reflection/{signature}"
    )
    texts = ("tags", "meta")
    return [
        {**dict(row), **{name: json.loads(row[name]) for name in texts}} for row in rows
    ]


def _write(db: Db, values: Plain, reflection: Lesson, row: Row) -> None:
    """Write the texts of a sighting: its example, the text of the lesson, or both.

    `row` is the lesson. Its `author`, the id of the example with the lesson's text, is
    None if this text is new or was just replaced.
    """
    raised = row["author"] is None and row["seen"] > 1
    lowest = trusts.lowest_trust([reflection.trust, row["trust"]])
    held = reflection.trust in QUARANTINE_TRUST or lowest != reflection.trust
    # One example carries the words of the lesson, so that they do not crowd out other
    # lessons.
    if row["author"] is None or row["text"] != values["text"]:
        values["about"] = (
            f"{values['text']}\n{MASK_PATTERN.sub(' ', values['pattern'])}"
        )
    wrote: Wrote = "nothing"
    vector = reflection.vector
    place = placed(db, reflection.space, blob(vector)) if vector is not None else None
    if reflection.example is not None:
        values["digest"] = reflection.example.digest
        wrote = add_example(
            db,
            values,
            example=reflection.example,
            context=reflection.context,
            place=place,
        )
    elif row["text"] == values["text"] or (
        held and reflection.text != reflection.sighting
    ):
        # The lesson does not show these words: they are quarantined or less trusted
        # than its own.
        wrote = _add_words(db, values, reflection.context, place)
    if row["author"] is None:
        words: Wrote = wrote
        if wrote == "nothing":  # another source wrote the example, this one the words
            words = _add_words(db, values, reflection.context)
        key = {name: values[name] for name in ("reflection", "digest")}
        author = db.select("id", "example", key)[0]["id"]
        db.update("reflection", {"id": values["reflection"]}, {"author": author})
        if words == "nothing":  # another source wrote these words too
            kept = "retired" if row["state"] == "retired" else ""
            db.run("set_voice", {**values, "example": author, "kept": kept})
    if reflection.trust == "operator" and (raised or wrote == "raised"):
        # An operator wrote a known text again, which raises the trust of the text.
        scope = Scope(values["tenant"], values["project"])
        source = values["source"]
        by = source.strip() or "operator"
        why = "wrote the same text"
        rule(
            db,
            scope,
            action="release",
            subject=name_of(values),
            by=by,
            why=why,
            now=values["now"],
            record={"source": source},
        )


def _add_words(
    db: Db, values: Plain, context: str = "", place: Plain | None = None
) -> Wrote:
    """Write the text of a lesson without an example as an example row, so that searches
    find it.
    """
    values["digest"] = words_digest(values["text"])
    return add_example(
        db,
        values,
        example=Example(values["text"], "", context=context),
        context=context,
        place=place,
    )


def add_example(
    db: Db, values: Plain, example: Example, context: str, place: Plain | None
) -> Wrote:
    """Write an example with its origin and vector; replace a stored copy only to raise
    its trust.

    Returns "new", "raised" or "nothing". `values` holds the scope and `kind`,
    `signature`, `reflection`, `digest`, `text`, `state`, `trust`, `source`, `parents`,
    `now`. `place` holds the space and data of the vector. Searches also find the words
    of `context`; `values` may hold the words of an import as `searched`.
    """
    task = storable(example.task)
    found = values.get("searched") or searched_words(
        task, storable(context), values.get("about", "")
    )
    record = json.dumps(redact_data(asdict(example)))
    values = {
        **values,
        "task": task,
        "record": record,
        "lesson": values["text"],
        "words": found,
    }
    if values["state"] == "quarantined":
        said = {"words": _said(values["kind"], values["text"], example, task=True)}
        if db.first("is_refused", {**values, **said}) is not None:
            values["state"] = "retired"
    row = db.first("insert_example", values)
    wrote: Wrote = "nothing"
    if row is not None:
        wrote = "raised" if replace_origins(db, values, row["id"]) else "new"
    else:
        db.run("verify_example", values)
    if place is not None and (
        row is not None or values["trust"] not in QUARANTINE_TRUST
    ):
        key = {name: values[name] for name in ("reflection", "digest")}
        db.run(
            "place", {**values, **place, "id": db.select("id", "example", key)[0]["id"]}
        )
    return wrote


def searched_words(task: str, context: str, lesson: str) -> str:
    """Return the words by which a search finds an example, separated by blanks.

    They are the words of task and context and, after an empty word, once each the other
    words of `lesson`. These do not count as the length of the text: a lesson is no
    worse for its words.
    """
    own = words(f"{task}\n{context}")
    more = [word for word in dict.fromkeys(words(lesson)) if word not in own]
    return " ".join([*own, "", *more] if more else own)


def name_of(row: Row) -> str:
    """Return the name of the lesson in `row`: `kind/signature`."""
    return f"{row['kind']}/{row['signature']}"


def top(db: Db, scope: Scope, limit: int) -> list[Mapping[str, Any]]:
    """Return up to `limit` lessons, most often seen first; a text that waits has an
    `entry`.
    """
    found = db.all("top_reflections", scope, limit=limit)
    waits = (row["author"] if row["state"] == "quarantined" else None for row in found)
    return [
        {**plain(row), "entry": entry or 0}
        for row, entry in zip(found, waits, strict=True)
    ]


def count(db: Db, scope: Scope) -> int:
    """Return the number of lessons in the scope."""
    return sum(int(n) for (n,) in db.select("lessons", "tally", key_of(scope)))


@resumable(result=int)
def clear(db: Db, scope: Scope) -> int:
    """Delete the lessons of the scope with all their data except rulings; return their
    number.
    """
    tables = (
        "reflection dream link exposure outcome taught episode span trace event".split()
    )
    gone = [
        db.delete(table, key_of(scope)) for table in tables
    ]  # others follow by cascades
    db.run("clear_lineage", {"scope": token(scope)})
    db.update("loop", key_of(scope), {"briefing": ""})
    db.delete("origin", {"scope": token(scope)})
    return gone[0]


@resumable(result=int)
def clear_type(db: Db, scope: Scope, kind: str, error_type: str) -> int:
    """Delete the lessons of this kind and error type; return their number."""
    return db.delete(
        "reflection", {**key_of(scope), "kind": kind, "error_type": error_type}
    )


def count_examples(db: Db, scope: Scope, kind: str, error_type: str) -> int:
    """Return the number of examples of these lessons that recall can find."""
    return int(
        db.all("count_examples", scope, kind=kind, error_type=error_type)[0]["n"]
    )


def scopes(db: Db, scope: Scope, waiting: bool = False) -> list[Scope]:
    """Return the scopes of all tenants that have lessons.

    With `waiting`, return instead those that have waiting or failed episodes, or open
    traces.
    """
    return [Scope(*row) for row in db.run("scopes", {"waiting": waiting}).fetchall()]


def plain(row: Row) -> Mapping[str, Any]:
    """Return the row of a lesson as plain data, without the words of tools and
    documents.
    """
    internal = ("tenant", "project", "words", "author", "meta")
    lesson = {name: value for name, value in dict(row).items() if name not in internal}
    if row["trust"] in QUARANTINE_TRUST:
        lesson |= {"pattern": "", "text": "", "tags": "[]"}
    flags = {name: bool(row[name]) for name in ("pinned", "apart")}
    return {**lesson, **flags, "tags": json.loads(lesson["tags"])}


def rule(
    db: Db,
    scope: Scope,
    action: str,
    subject: str,
    by: str,
    why: str,
    now: float,
    record: Mapping[str, Any] | None = None,
) -> None:
    """Record a ruling on `subject`; `record` holds details as plain data.

    The subject is a name or a digest, not an id, so that the ruling is clear even after
    the lesson is deleted. Raises InvalidInput if `by` is empty.
    """
    check_actor(by, why)
    texts = {"action": action, "subject": subject, "by": by, "why": why}
    stored = {name: storable(text) for name, text in texts.items()}
    plain = json.dumps(redact_data(dict(record or {})))
    db.insert("ruling", {**key_of(scope), **stored, "record": plain, "at": now})


def evict(
    db: Db, scope: Scope, answers: Sequence[Remembered], most: int
) -> list[Remembered]:
    """Evict lessons until `most` are left, and examples until `most` are left; 0 evicts
    nothing.

    Evicts quarantined lessons first. Evicts the lessons that are new in `answers`,
    unless they are quarantined, last, so that a full memory still learns. Returns the
    answers, with `UNSTORED_LESSON` for each evicted lesson.
    """
    new = {one.id for one in answers if one.created}
    gone: set[int] = set()
    for kept in (new, ()) if most and new else ():
        if (excess := count(db, scope) - most) > 0:
            values = {"most_useful": inf, "since": -inf, "before": inf, "limit": excess}
            for row in db.all("prunable", scope, **values, kept=json.dumps(list(kept))):
                gone.add(row["id"])
                db.delete("reflection", {**key_of(scope), "id": row["id"]})
    corpus = db.run("read_corpus", {"scope": token(scope)}).fetchone() if most else None
    if corpus is not None and (excess := corpus["texts"] - most) > 0:
        db.run("evict_examples", {"scope": token(scope), "excess": excess})
    return [UNSTORED_LESSON if one.id in gone else one for one in answers]


def prunable(
    db: Db, scope: Scope, unused_for: float, keep: int
) -> list[Mapping[str, Any]]:
    """Return the lessons that `prune` would delete, as plain data with the reason as
    `why`.

    With `unused_for` above 0, these are the lessons neither seen nor shown for this
    many seconds. With `keep` of at least 0, the least useful lessons are added until
    only `keep` would remain. Lessons that are pinned or proven to help are left out.
    """
    now = time.time()
    before = now - unused_for if unused_for else -inf
    values = {"most_useful": 1, "kept": "[]"}
    found = list[Mapping[str, Any]]()
    for row in db.all(
        "prunable", scope, **values, since=-inf, before=before, limit=MAX_ROWS
    ):
        days = (now - max(row["last_seen"], row["last_shown"])) / LESSON_DAY_SECONDS
        found.append({**dict(row), "why": f"not used for {days:.0f} days"})
    excess = count(db, scope) - len(found) - keep if keep >= 0 else 0
    if excess > 0:
        rows = db.all(
            "prunable", scope, **values, since=before, before=inf, limit=excess
        )
        found += [
            {**dict(row), "why": f"the least useful beyond {keep}"} for row in rows
        ]
    return found


@resumable(result=list[Mapping[str, Any]])
def prune(
    db: Db, scope: Scope, unused_for: float, keep: int, by: str
) -> list[Mapping[str, Any]]:
    """Delete the lessons that `prunable` returns, record a ruling, and return these
    lessons.
    """
    found = prunable(db, scope, unused_for, keep)
    for one in found:
        db.delete("reflection", {**key_of(scope), "id": one["id"]})
    if found:
        removed = [{"lesson": name_of(one), "why": one["why"]} for one in found]
        rule(
            db,
            scope,
            action="prune",
            subject=f"{len(found)} lessons",
            by=by,
            why="",
            now=time.time(),
            record={"removed": removed},
        )
    return found


@resumable(result=None)
def pin(db: Db, scope: Scope, id: int, pinned: bool, by: str, why: str) -> None:
    """Pin a lesson so that it is never evicted, or unpin it; record a ruling. Raises
    NotFound.
    """
    key = {**key_of(scope), "id": id}
    if not db.update("reflection", key, {"pinned": pinned}):
        raise NotFound(
            "lesson", str(id), f"the lessons of {scope.tenant}/{scope.project}"
        )
    subject = db.select("kind || '/' || signature as name", "reflection", key)[0][
        "name"
    ]
    rule(
        db,
        scope,
        action="pin" if pinned else "unpin",
        subject=subject,
        by=by,
        why=why,
        now=time.time(),
    )


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
    """Give a lesson new words of an operator, which get a source of their own; record a
    ruling.

    Returns the id of the new words if they wait in quarantine, as the old ones did, or
    else 0. Raises NotFound, InvalidInput.
    """
    most = records.MAX_EXAMPLE_TEXT_CHARS
    text = storable(text)
    require(text.strip() and len(text) <= most, "text", text, f"1 to {most} characters")
    rows = db.select("*", "reflection", {**key_of(scope), "id": id})
    if not rows:
        raise NotFound(
            "lesson", str(id), f"the lessons of {scope.tenant}/{scope.project}"
        )
    row = rows[0]
    was = rows[0]["text"]
    require(
        row["state"] != "superseded",
        "lesson",
        id,
        "a lesson that no other one superseded",
    )
    require(text != was, "text", text, "other words than those of the lesson")
    name = {one: row[one] for one in ("kind", "signature")}
    trust: Trust = row["trust"] if row["trust"] in QUARANTINE_TRUST else "operator"
    stamp = {"trust": trust, "state": trusts.initial_state(trust)}
    values = {
        **_scope_key(scope),
        **stamp,
        **name,
        "reflection": id,
        "text": text,
        "parents": "[]",
    }
    values |= {"memory_key": "", "now": time.time(), "kept": ""}
    values["source"] = db.actor.via or f"operator:{by}"
    values["about"] = f"{text}\n{MASK_PATTERN.sub(' ', row['pattern'])}"
    db.run(
        "allow_words",
        {**values, "words": _said(row["kind"], text, example=None, task=False)},
    )
    _add_words(
        db, values, "", placed(db, space, blob(vector)) if vector is not None else None
    )
    known = {"reflection": id, "digest": values["digest"]}
    values["example"] = new = int(db.select("id", "example", known)[0]["id"])
    db.update("example", known, stamp)  # another source may have written the same words
    replace_origins(db, values, new)
    old = {"id": row["author"], "digest": words_digest(was)}  # a worked example stays
    db.update("example", old, {"state": "superseded"})
    db.run("set_voice", values)
    user = (
        '"correction": true' in row["meta"]
        or signature("", was).digest == row["signature"]
    )
    kept = {
        "tags": row["tags"],
        "importance": row["importance"],
        "useful": 1,
        "helped": 0,
    }
    kept["meta"] = json.dumps(
        {"correction": True} if user else {}
    )  # it was known by its words
    db.update("reflection", {"id": id}, {**kept, "hurt": 0})
    db.update("cause", {**key_of(scope), **name}, {"quiet": 0})
    record = {
        "was": row["author"],
        "example": new,
        "trust": row["trust"],
        "source": row["source"],
    }
    rule(
        db,
        scope,
        action="edit",
        subject=name_of(row),
        by=by,
        why=why,
        now=values["now"],
        record=record,
    )
    return new if trust in QUARANTINE_TRUST else 0


# The number of sightings in a provenance, newest first.
MAX_PROVENANCE_SIGHTINGS = 20
RULING_WORDS = {"release": "released", "reject": "rejected"}


def quarantined(
    db: Db,
    scope: Scope,
    ids: Sequence[int] | None = None,
    limit: int = MAX_ROWS,
    before: int = MAX_ROWS,
) -> list[QuarantinedLesson]:
    """Return the examples with these ids, in any state, newest first.

    Without `ids`, returns the newest `limit` quarantined examples, those with ids below
    `before`.
    """
    key = _scope_key(scope)
    if ids is None:
        ids = [
            row["id"]
            for row in db.run("held", {**key, "most": limit, "before": before})
        ]
    found = []
    for row in db.run("read_held", {**key, "ids": json.dumps(list(ids))}).fetchall():
        example = Example(**json.loads(row["record"]))
        known = example if example.accepted else None
        origin = trusts.Provenance()
        found.append(from_row(QuarantinedLesson, row, example=known, provenance=origin))
    return found


def lessons_of_waiting(db: Db, scope: Scope) -> dict[int, int]:
    """Return the id of the lesson of each example in quarantine, newest first, by its
    id.
    """
    known = {"scope": token(scope), "state": "quarantined"}
    return dict(
        map(tuple, db.select("id, reflection", "example", known, "order by id desc"))
    )


def provenance(db: Db, scope: Scope, one: QuarantinedLesson) -> trusts.Provenance:
    """Return the sources, parents, children and sightings of an example, and the
    rulings on it.
    """
    named = {
        "kind": one.kind,
        "signature": one.signature,
        "most": MAX_PROVENANCE_SIGHTINGS,
    }
    subject = f"{one.kind}/{one.signature}"
    values = {**_scope_key(scope), **named, "example": one.id, "subject": subject}
    queries = ("rests_on", "newest_sightings", "rulings_on")
    found = {name: db.run(name, values).fetchall() for name in queries}
    parents = db.select("parent", "lineage", {"child": one.id}, "order by parent")
    children = db.select("child", "lineage", {"parent": one.id}, "order by child")
    return trusts.Provenance(
        tuple(row["source"] for row in found["rests_on"]),
        tuple(row["parent"] for row in parents),
        children=tuple(row["child"] for row in children),
        sightings=tuple(dict(row) for row in found["newest_sightings"]),
        rulings=tuple(
            {**dict(row), "record": json.loads(row["record"])}
            for row in found["rulings_on"]
        ),
    )


def statements(db: Db, scope: Scope) -> dict[str, Trust]:
    """Return the trust that operators state by source."""
    key = {**key_of(scope), "action": "trust"}
    rows = db.select("subject, record", "ruling", key, "order by at, id")
    last = {row["subject"]: json.loads(row["record"])["trust"] for row in rows}
    return {source: trust for source, trust in last.items() if trust}


@resumable(result=list[int])
def state_trust(
    db: Db,
    scope: Scope,
    source: str,
    trust: Trust | None,
    by: str,
    why: str,
    waiting: Mapping[str, Trust] | None,
) -> list[int]:
    """Record the trust of a source. Return the ids of the examples that this releases.

    With `waiting`, the trust of other sources, releases each quarantined example that
    depends on this source, if no source of it is untrusted any more. It is trusted like
    the text of a model.
    """
    rule(
        db,
        scope,
        action="trust",
        subject=source,
        by=by,
        why=why,
        now=time.time(),
        record={"trust": trust or ""},
    )
    if waiting is None:
        return []
    stated = {**waiting, **statements(db, scope)}
    released = list[int]()
    for one in quarantined(db, scope):
        rows = db.select("source", "origin", {"example": one.id})
        rows = [row for row in rows if not row["source"].startswith(KEY_SOURCE_PREFIX)]
        names = {
            row["source"] for row in rows if not row["source"].startswith("episode:")
        }
        # A caller may name a single source as it likes; only a session has several.
        known = len(rows) > len(names) > 0 and (source == "tool" or source in names)
        known = known and not db.select("parent", "lineage", {"child": one.id})
        if known and QUARANTINE_TRUST.isdisjoint(
            trusts.source_trust(name, stated) for name in names
        ):
            released.append(one.id)
    if released:
        settle(db, scope, ids=released, action="release", by=by, why=why, trust="model")
    return released


@resumable(result=None)
def settle(
    db: Db,
    scope: Scope,
    ids: Collection[int],
    action: Action,
    by: str,
    why: str,
    trust: Trust = "operator",
) -> None:
    """Release or reject the quarantined examples with these ids, and record a ruling
    for each.

    A released example gets this `trust`. Raises NotFound, NotQuarantined, InvalidInput.
    """
    require(ids, "ids", list(ids), "at least one id of the quarantine")
    known = {one.id: one for one in quarantined(db, scope, sorted(set(ids)))}
    now = time.time()
    released = action == "release"
    for id in sorted(set(ids)):
        if id not in known:
            raise NotFound(
                "example", str(id), f"the memory of {scope.tenant}/{scope.project}"
            )
        one = known[id]
        subject = f"{one.kind}/{one.signature}"
        state = "candidate" if released else "retired"
        values = {
            **_scope_key(scope),
            "example": id,
            "state": state,
            "subject": subject,
        }
        row = db.first(
            "settle_example", {**values, "trust": trust if released else one.trust}
        )
        if row is None:
            last = db.first("rulings_on", values)
            ruled = (
                f"was {RULING_WORDS[last['action']]} by {last['by']}"
                if last is not None
                else ""
            )
            raise NotQuarantined(id, one.state, ruled)
        record = {"example": id, "source": one.source, "trust": one.trust}
        rule(
            db,
            scope,
            action=action,
            subject=subject,
            by=by,
            why=why,
            now=now,
            record=record,
        )
        values |= {"reflection": row["reflection"], "now": now}
        words = _said(one.kind, one.lesson, one.example, released)
        if released:
            db.run("allow_words", {**values, "words": words})
            for became in db.run("became", values).fetchall():
                move_examples(db, row["reflection"], became["id"])
        for said in json.loads(words) if not released else ():
            db.insert("refused", {**key_of(scope), "words": said}, CONFLICT_SKIP_SQL)
        (lesson,) = db.run("read_voice", values).fetchall()
        speaks = lesson["trust"] in QUARANTINE_TRUST
        if released and not speaks and lacks_mend(one.lesson, lesson):
            speaks = (
                db.update("example", {"id": lesson["author"]}, {"state": "superseded"})
                > 0
            )
        if speaks and (released or lesson["author"] == id):
            _speak(db, values, id if released else _best(db, values), lesson)


MAX_REVOKED_NAMES = (
    50  # of the removed loops, and of the removed lessons, as many are named
)


def lacks_mend(text: str, lesson: Row) -> bool:
    """Return True if a text says what put a failure right, and the lesson of a session
    does not.
    """
    return (
        MEND_HEADING in text
        and MEND_HEADING not in lesson["text"]
        and lesson["source"][:8] == "episode:"
    )


@resumable(result=RevocationResult)
def revoke(
    db: Db, scope: Scope, source: str, by: str, why: str, dry_run: bool
) -> RevocationResult:
    """Delete the sightings and texts that come or derive from a source; record a
    ruling.

    A lesson with an example from another source stays, with its text. The source
    `key:ID` includes all that came through this key of a service. With `dry_run`,
    deletes nothing and returns what it would delete. Raises NotFound if nothing comes
    from the source.
    """
    values: Plain = {
        **_scope_key(scope),
        "source": storable(source),
        "now": time.time(),
    }
    db.execute("savepoint revocation")
    removed = RevocationResult()
    names = [values["source"]]
    if source.startswith(KEY_SOURCE_PREFIX):
        removed, names = _forget_key(db, values)
    values["named"] = json.dumps(names)
    rests = [row["id"] for row in db.run("rests_on_source", values).fetchall()]
    values["ids"] = json.dumps(rests)
    seen = Counter(
        row["reflection"] for row in db.run("delete_sightings", values).fetchall()
    )
    voiced = db.run(
        "voiced", values
    ).fetchall()  # also those whose examples a dream moved
    gone = db.run("delete_examples", values).fetchall()
    for name in names:
        db.delete("action", {**key_of(scope), "source": name})
    for name in ("delete_origins", "delete_lineage", "forget_record"):
        db.run(name, values)
    lost = list[int]()
    for reflection in sorted(
        seen.keys() | {row["reflection"] for row in (*voiced, *gone)}
    ):
        values |= {"reflection": reflection, "n": seen[reflection]}
        db.run("forget_briefings", values)
        db.run("unsee", values)
        lesson = db.run("read_voice", values).fetchone()
        if not lesson[
            "spoken_for"
        ]:  # its words were deleted: take those of another example
            db.run("give_back", values)
            best = _best(db, values)
            if best is None:
                lost += [reflection] * db.delete("reflection", {"id": reflection})
            else:
                _speak(db, values, best, lesson)
    sightings = sum(seen.values())
    removed = replace(
        removed, examples=len(gone), lessons=len(lost), sightings=sightings
    )
    removed = replace(removed, lesson_ids=tuple(lost[:MAX_REVOKED_NAMES]))
    if dry_run:
        db.execute("rollback to revocation")
    db.execute("release revocation")
    if removed == RevocationResult():
        raise NotFound(
            "source", source, f"the memory of {scope.tenant}/{scope.project}"
        )
    if not dry_run:
        rule(
            db,
            scope,
            action="revoke",
            subject=source,
            by=by,
            why=why,
            now=values["now"],
            record=asdict(removed),
        )
    return removed


def _forget_key(db: Db, values: Plain) -> tuple[RevocationResult, list[str]]:
    """Delete what came through the key `source`; return the numbers, and the sources of
    lessons.

    A loop of others goes back to the state before the first attempt that the key
    reported.
    """
    names = [values["source"]]
    scope = {name: values[name] for name in ("tenant", "project")}
    attempts = 0
    loops = list[str]()
    for n, id, first, last in db.run("loops_of", values).fetchall():
        names.append(f"loop:{id}")
        for number in range(first, last + 1):  # the later ones built on the feedback
            attempts += db.delete("attempt", {"loop": n, "number": number})
            db.delete("decision", {"loop": n, "attempt": number})
        db.update("loop", {"n": n}, {"state": "open", "updated": values["now"]})
        if db.delete("loop", {"n": n, "via": values["source"]}):
            loops.append(id)
            db.delete("note", {**scope, "loop": id})
    sent = db.run("delete_sent", values).fetchall()
    names += [f"episode:{row['digest'][:16]}" for row in sent]
    for row in db.run("delete_traces", values).fetchall():
        db.delete("span", {**scope, "trace": row["id"]})
    ended = {**scope, "via": values["source"]}
    db.delete("event", ended)
    outcomes = db.run("outcomes_of", values).fetchall()
    for row in outcomes:
        if row["n"] is not None:
            db.run("count_outcome", {**scope, **dict(row), "times": -1})
        db.delete("outcome", {**scope, "loop": row["loop"]})
    exposures = db.delete("exposure", ended)
    removed = RevocationResult(
        loops=len(loops),
        attempts=attempts,
        episodes=len(sent),
        outcomes=len(outcomes),
        exposures=exposures,
        loop_ids=tuple(loops[:MAX_REVOKED_NAMES]),
    )
    return removed, names


def projects(db: Db, scope: Scope) -> list[Scope]:
    """Return the scopes of the tenant that have loops, lessons, exposures, episodes or
    traces.
    """
    tables = "loop", "reflection", "exposure", "episode", "trace"
    key = {"tenant": scope.tenant}
    found = {
        row[0] for one in tables for row in db.select("distinct project", one, key)
    }
    return [Scope(scope.tenant, project) for project in sorted(found)]


def _best(db: Db, values: Plain) -> int | None:
    """Return the id of the lesson's most trusted example; a retired one only if all are
    retired.
    """
    row = db.first("best_example", {**values, "order": json.dumps(records.TRUST_ORDER)})
    return int(row["id"]) if row is not None else None


def _speak(db: Db, values: Plain, example: int | None, lesson: Row) -> None:
    """Give a lesson the text, trust and state of an example.

    A retired or superseded lesson keeps its state, unless a tool or document wrote its
    old text.
    """
    stays = (
        lesson["state"] in ("retired", "superseded")
        and lesson["trust"] not in QUARANTINE_TRUST
    )
    values = {**values, "example": example, "kept": lesson["state"] if stays else ""}
    db.run("bring_back", values)
    db.run("set_voice", values)


def _scope_key(scope: Scope) -> Plain:
    return {**key_of(scope), "scope": token(scope)}
