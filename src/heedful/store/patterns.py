"""Groups of error patterns, the list and edits of lessons, and dreams.

Rows are never merged: every pattern keeps its own lesson. Groups are computed from the
patterns of an error type, in the order in which they were learnt, so an operator can
always take a pattern out of its group. A dream replaces lessons by other lessons, and
can be rolled back.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from heedful.errors import Changed, NotFound, RollbackRefused
from heedful.lessons.lesson import LESSON_KINDS, Scope, Signature
from heedful.lessons.patterns import (
    MASK_PATTERN,
    MAX_SCOPE_PATTERNS,
    MIN_PATTERN_WORDS,
    Seen,
    Templates,
    is_learnable,
)
from heedful.lessons.signature import bare_digest, untitled
from heedful.lessons.trust import QUARANTINE_TRUST
from heedful.store import exposures as shown
from heedful.store import lessons as size
from heedful.store.connection import Db, Row, from_row, key_of, resumable, storable
from heedful.store.lessons import move_examples, name_of, plain, rule
from heedful.validation import MAX_INTEGER, require

if TYPE_CHECKING:  # imported when they are needed: a hook process starts for each event
    from heedful.lessons.consolidate import DreamLesson, Proposal

# The number of error types whose templates are cached, and of lessons in the answer of
# `seen`.
MAX_CACHED_ERROR_TYPES = 32
MAX_SEEN_LESSONS = 50
MAX_ANSWER_ERRORS = 5  # errors in the answer about a text with many
_LETTER_WORD_PATTERN = re.compile(r"[^\W\d_]{2,}")
_ERROR_TYPE_SEARCH = re.compile(
    r"\w(?:error|exception)$"
).search  # as many languages name types of errors
Plain = dict[str, Any]


class PatternCache:
    """A cache of the groups of patterns of each error type; valid until the patterns
    change.

    Texts of tools and documents count only after their release. Otherwise anybody could
    merge patterns by sending many texts.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[Scope, str], tuple[str, Templates]] = {}

    def templates(self, db: Db, scope: Scope, error_type: str) -> Templates:
        """Return the groups learnt from the `MAX_SCOPE_PATTERNS` oldest patterns of an error
        type.
        """
        values = {"error_type": error_type, "most": MAX_SCOPE_PATTERNS}
        state = db.all("learnt_state", scope, **values)[0]["state"]
        kept = self._kept.pop((scope, error_type), None)
        if kept is None or kept[0] != state:
            kept = (
                state,
                _templates(error_type, db.all("learnt_patterns", scope, **values)),
            )
        self._kept[scope, error_type] = kept
        if len(self._kept) > MAX_CACHED_ERROR_TYPES:
            del self._kept[next(iter(self._kept))]  # the least recently used
        return kept[1]


def seen(db: Db, scope: Scope, pattern: Signature) -> Seen:
    """Return the lessons of `pattern` and of its group, and how often the group was
    seen.

    Includes the lessons that replaced these lessons in dreams. All reads use an index.
    """
    digest = pattern.digest
    merge = None
    count, alone = _lessons(db, scope, digest, [digest])
    if not any(one["apart"] for one in alone):
        if is_learnable(pattern):
            kind = storable(pattern.error_type)
            known = db.local(PatternCache).templates(db, scope, kind)
            merge = known.merge(
                Signature("", storable(pattern.pattern), digest=digest, error_type=kind)
            )
        members = [digest] if merge is None else list(merge.members)
        # The patterns that a dream merged with any of these count, too.
        names = {"kinds": json.dumps(LESSON_KINDS), "members": json.dumps(members)}
        members += [row["signature"] for row in db.all("became_one", scope, **names)]
        if members != [digest]:
            count, lessons = _lessons(db, scope, digest, members)
            return Seen(count, lessons, group=merge)
    return Seen(count, alone)


def find(
    db: Db, scope: Scope, whole: Signature, lines: Sequence[tuple[str, Signature]]
) -> Seen:
    """Return what is known about a text: about the whole, or else about its error
    lines.

    A line is found under any of its titles, such as a type or a tool, and under none;
    words that say little are found only under the same title. Each of the `lines` has
    its signature. The rules for the next time are among the lessons.
    """
    found = seen(db, scope, whole)
    matches = (
        [("", found, whole.digest)] if found else _find_lines(db, scope, whole, lines)
    )
    lessons = {one["id"]: one for _, each, _ in matches for one in each.lessons}
    members = {"members": json.dumps([digest for _, _, digest in matches])}
    for row in db.all("rules_of", scope, **members) if matches else ():
        _, rules = _lessons(db, scope, row["signature"], [row["signature"]])
        lessons |= {one["id"]: one for one in rules if one["state"] != "superseded"}
    names = tuple(line for line, _, _ in matches if line)
    group = matches[0][1].group if len(matches) == 1 else None
    return Seen(
        sum(each.count for _, each, _ in matches),
        tuple(lessons.values()),
        group=group,
        lines=names,
    )


def _find_lines(
    db: Db, scope: Scope, whole: Signature, lines: Sequence[tuple[str, Signature]]
) -> list[tuple[str, Seen, str]]:
    """Return up to `MAX_ANSWER_ERRORS` error lines that are known, each with what is known and its
    digest.
    """
    asked: dict[str, tuple[int, frozenset[str], str]] = {}
    for at, (_, name) in enumerate(lines):
        for titles, words in untitled(name.pattern):
            asked.setdefault(bare_digest(words), (at, titles, words))
    matches: dict[str, tuple[int, Signature]] = {}
    rows = db.all(
        "find_words", scope, digests=json.dumps(list(asked)), limit=MAX_SEEN_LESSONS
    )
    for row in sorted(rows, key=lambda row: int(row["id"])):
        at, titles, words = asked[row["words"]]
        *_, (own, _) = untitled(row["pattern"])
        here = {whole.error_type.lower(), *titles}
        there = {row["error_type"].lower(), *own}
        many = (
            len(_LETTER_WORD_PATTERN.findall(MASK_PATTERN.sub(" ", words)))
            >= MIN_PATTERN_WORDS
        )
        if here & there - {""} or (
            many
            and not (
                any(map(_ERROR_TYPE_SEARCH, here))
                and any(map(_ERROR_TYPE_SEARCH, there))
            )
        ):
            name = Signature(
                "",
                row["pattern"],
                digest=row["signature"],
                error_type=row["error_type"],
            )
            matches.setdefault(row["signature"], (at, name))
    first = sorted(matches.values(), key=lambda match: match[0])[:MAX_ANSWER_ERRORS]
    return [(lines[at][0], seen(db, scope, name), name.digest) for at, name in first]


def list_patterns(
    db: Db, scope: Scope, error_type: str = ""
) -> list[Mapping[str, Any]]:
    """Return groups of patterns as plain data, most seen first; excluded patterns are
    last.
    """
    rows = db.all("every_pattern", scope, error_type=storable(error_type))
    groups = [
        one
        for kind, those in groupby(rows, key=lambda row: str(row["error_type"]))
        for one in _grouped(kind, list(those))
    ]
    return sorted(groups, key=lambda one: (one["apart"], -one["seen"]))


@resumable(result=None)
def set_apart(
    db: Db, scope: Scope, digests: Sequence[str], apart: bool, by: str, why: str
) -> None:
    """Exclude patterns from groups, or include them again; record rulings. Raises
    NotFound.
    """
    for digest in digests:
        if not db.update(
            "reflection", {**key_of(scope), "signature": digest}, {"apart": apart}
        ):
            raise NotFound(
                "pattern", digest, f"the lessons of {scope.tenant}/{scope.project}"
            )
        rule(
            db,
            scope,
            action="unmerge" if apart else "remerge",
            subject=digest,
            by=by,
            why=why,
            now=time.time(),
        )


def _lessons(
    db: Db, scope: Scope, signature: str, members: Sequence[str]
) -> tuple[int, tuple[Mapping[str, Any], ...]]:
    """Return the number of sightings of all lessons of these patterns, and the first
    lessons.
    """
    names = {"signature": signature, "members": json.dumps(members)}
    found = db.all("seen", scope, **names, limit=MAX_SEEN_LESSONS)
    rows = [{**plain(row), "pattern": row["pattern"]} for row in found]
    return max([int(row.pop("total")) for row in rows], default=0), tuple(rows)


def _templates(error_type: str, rows: Sequence[Row]) -> Templates:
    learnt = [
        Signature("", row["pattern"], digest=row["signature"], error_type=error_type)
        for row in rows
    ]
    return (
        Templates()
        .learn(*learnt)
        .unmerge(*(row["signature"] for row in rows if row["apart"]))
    )


def _grouped(error_type: str, rows: Sequence[Row]) -> Iterator[Mapping[str, Any]]:
    patterns = {
        row["signature"]: {name: row[name] for name in ("signature", "pattern", "seen")}
        for row in rows
    }
    merges = _templates(error_type, rows[:MAX_SCOPE_PATTERNS]).merges()
    groups = [(one.template, one.members, False) for one in merges]
    groups += [
        (row["pattern"], (row["signature"],), True) for row in rows if row["apart"]
    ]
    for template, members, apart in groups:
        found = [patterns[digest] for digest in members]
        seen = sum(one["seen"] for one in found)
        group = {
            "error_type": error_type,
            "template": template,
            "seen": seen,
            "apart": apart,
        }
        yield {**group, "patterns": found}


# The fields that the edition of a lesson covers: its text and states, but no counters.
EDITION_FIELDS = (
    "text",
    "tags",
    "state",
    "trust",
    "importance",
    "meta",
    "pinned",
    "apart",
)


def list_lessons(
    db: Db, scope: Scope, /, limit: int, before: int = MAX_INTEGER, **only: str
) -> list[Mapping[str, Any]]:
    """Return lessons as plain data, newest first; texts of tools and documents are left
    empty.

    Only lessons with an id below `before` are listed: pass the last id of a page to get
    the next. `only` may have a `kind`, `error_type`, `tag` and `state`: "" is any,
    "settled" none that waits. The `edition` of a lesson is a hash of its text, states
    and settings, but not of its counters.
    """
    values = {"kind": "", "error_type": "", "tag": "", "state": "", **only}
    rows = db.all("list_reflections", scope, **values, limit=limit, before=before)
    return list(map(_plain, rows))


def one(db: Db, scope: Scope, id: int) -> Mapping[str, Any]:
    """Return the lesson with this id as plain data. Raises NotFound."""
    for found in list_lessons(db, scope, limit=1, before=min(id, MAX_INTEGER - 1) + 1):
        if found["id"] == id:
            return found
    raise NotFound("lesson", str(id), f"the memory of {scope.tenant}/{scope.project}")


@resumable(result=Mapping[str, Any])
def amend(
    db: Db, scope: Scope, /, id: int, edition: str, by: str, why: str, **change: Any
) -> Mapping[str, Any]:
    """Change a lesson, record a ruling for each change, and return the lesson.

    `pinned` protects the lesson from eviction and pruning. `apart` excludes its pattern
    from groups. `retired` takes the lesson out of recall, and `restored` brings it
    back, also after a proof retired it. `text` gives it new words. Raises Changed if
    the lesson has another edition, NotFound, and InvalidInput if `by` is empty.
    """
    found = one(db, scope, id)
    if found["edition"] != edition:
        raise Changed("lesson", str(id), found["edition"])
    if (pinned := change.get("pinned")) is not None:
        size.pin(db, scope, id=id, pinned=pinned, by=by, why=why)
    if (apart := change.get("apart")) is not None:
        set_apart(db, scope, digests=[found["signature"]], apart=apart, by=by, why=why)
    if change.get("retired"):
        live = found["state"] in ("candidate", "verified")
        require(
            live,
            "retired",
            value=True,
            allowed=f"left out: the lesson is {found['state']}",
        )
        db.update("reflection", {**key_of(scope), "id": id}, {"state": "retired"})
        record = {"digest": size.words_digest(found["text"])}
        rule(
            db,
            scope,
            action="retire",
            subject=name_of(found),
            by=by,
            why=why,
            now=time.time(),
            record=record,
        )
    if change.get("restored"):
        shown.restore(db, scope, id=id, by=by, why=why)
    if (text := change.get("text")) is not None:
        size.edit(db, scope, id=id, text=text, by=by, why=why)
    return one(db, scope, id)


def _plain(row: Row) -> Mapping[str, Any]:
    lesson = {
        **plain(row),
        "meta": {} if row["trust"] in QUARANTINE_TRUST else json.loads(row["meta"]),
    }
    edited = json.dumps([lesson[name] for name in EDITION_FIELDS], sort_keys=True)
    return {
        **lesson,
        "edition": hashlib.sha256(edited.encode("ascii")).hexdigest()[:16],
    }


MAX_LESSON_QUERIES = 5
# The fields that must be unchanged for a dream to supersede a lesson.
UNCHANGED_LESSON_FIELDS = ("id", "kind", "signature", "text", "trust")
CHANGED_LESSON_OUTCOME = "one of its lessons changed during the dream"


def material(
    db: Db, scope: Scope, space: str
) -> list[tuple[DreamLesson, Sequence[float] | None]]:
    """Return the recallable lessons, sorted by name, each with its vector in `space` or
    None.
    """
    import numpy as np

    from heedful.lessons.consolidate import DreamLesson

    rows = db.all("material", scope, space=space)
    return [
        (
            from_row(DreamLesson, row),
            None if row["data"] is None else np.frombuffer(row["data"], "<f4"),
        )  # type: ignore[misc]
        for row in rows
    ]


def queries(db: Db, scope: Scope, ids: Sequence[int]) -> dict[int, list[str]]:
    """Return for each lesson the `MAX_LESSON_QUERIES` newest tasks and sightings that belong to
    it.
    """
    return {
        id: [
            row["text"]
            for row in db.run("asked", {"reflection": id, "most": MAX_LESSON_QUERIES})
        ]
        for id in ids
    }


def _dream_result() -> Any:
    from heedful.lessons.consolidate import Proposal

    return tuple[int, list[Proposal]]


@resumable(result=_dream_result)
def supersede(
    db: Db,
    scope: Scope,
    report: Mapping[str, Any],
    proposals: Sequence[Proposal],
    expected: Mapping[int, DreamLesson],
    by: str,
) -> tuple[int, list[Proposal]]:
    """Store a dream's report and carry out its proposals; return the dream's id and the
    proposals.

    Each returned proposal has its outcome. `expected` holds the lessons as the dream
    read them: a proposal is skipped if one of its lessons has changed since.
    """
    key = key_of(scope)
    dream = {**key, "report": "{}", "by": storable(by), "at": time.time()}
    id = int(db.insert("dream", dream, "returning id").fetchone()["id"])
    done = [
        _carry_out(db, key, dream=id, proposal=one, expected=expected)
        if one.outcome == "proposed"
        else one
        for one in proposals
    ]
    record = {**report, "proposals": [asdict(one) for one in done]}
    db.update("dream", {"id": id}, {"report": json.dumps(record)})
    return id, done


def _carry_out(
    db: Db,
    key: Plain,
    dream: int,
    proposal: Proposal,
    expected: Mapping[int, DreamLesson],
) -> Proposal:
    members = [expected[id] for id in proposal.members]
    survivor = expected[proposal.survivor]
    for lesson in (*members, survivor):
        same = {name: getattr(lesson, name) for name in UNCHANGED_LESSON_FIELDS}
        if db.first("unchanged", {**key, **same, "member": lesson in members}) is None:
            return replace(proposal, outcome=CHANGED_LESSON_OUTCOME)
    for lesson in members:
        link = {"child": lesson.name, "relation": "became", "parent": survivor.name}
        db.insert("link", {**key, **link, "dream": dream, "before": lesson.state})
        move_examples(db, lesson.id, survivor.id)
        db.update("reflection", {"id": lesson.id}, {"state": "superseded"})
    return replace(proposal, outcome="done")


def log(
    db: Db, scope: Scope, limit: int, id: int | None = None, before: int | None = None
) -> list[Mapping[str, Any]]:
    """Return dreams as plain data, newest first: only dream `id`, or all with ids below
    `before`.

    `texts` maps the ids of a dream's lessons to the texts of these lessons.
    """
    found: list[Mapping[str, Any]] = []
    for row in db.all("read_dreams", scope, limit=limit, dream=id, before=before):
        report = json.loads(row["report"])
        ids = {
            n for one in report["proposals"] for n in (*one["members"], one["survivor"])
        }
        named = db.all("texts_of", scope, ids=json.dumps(sorted(ids)))
        texts = {one["id"]: one["text"] for one in named}
        known = {name: row[name] for name in ("id", "by", "at", "undone")}
        found.append({**report, **known, "texts": texts})
    return found


@resumable(result=int)
def undo(db: Db, scope: Scope, id: int, by: str, why: str) -> int:
    """Restore the lessons that a dream superseded, and record a ruling; return their
    number.

    Raises NotFound, RollbackRefused, and InvalidInput if `by` is empty.
    """
    known = log(db, scope, limit=1, id=id)
    if not known:
        raise NotFound(
            "dream", str(id), f"the memory of {scope.tenant}/{scope.project}"
        )
    if known[0]["undone"] is not None:
        raise RollbackRefused(
            id, "it is rolled back already; heedful dream log shows when"
        )
    for later in db.all("superseded_later", scope, dream=id):
        what = f"dream {later['dream']} later superseded its lesson {later['child']}"
        do = f"roll back that dream first: heedful dream rollback {later['dream']}"
        raise RollbackRefused(id, f"{what}; {do}", later["dream"])
    linked = {
        row["parent"]
        for row in db.select("parent", "link", {**key_of(scope), "dream": id})
    }
    back: int = sum(row["back"] for row in db.all("undo_dream", scope, dream=id))
    for one in known[0]["proposals"]:
        named = db.select("kind, signature", "reflection", {"id": one["survivor"]})
        if one["action"] == "reword" and linked.intersection(map(name_of, named)):
            db.update("reflection", {"id": one["survivor"]}, {"state": "superseded"})
    db.update("dream", {"id": id}, {"undone": time.time()})
    rule(
        db,
        scope,
        action="rollback",
        subject=f"dream/{id}",
        by=by,
        why=why,
        now=time.time(),
    )
    return back
