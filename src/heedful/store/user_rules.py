"""Store the rules of users: as lessons, and as marks of the session that heard them.

A rule of a project, or of all projects, is a lesson with an error type of its own, so
it is trusted, quarantined, edited, exported and retired as any lesson. A session also
remembers by marks what was said in it, which holds at once, what the user allowed
again, and of which rules it told.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from heedful.episodes.episode import MODEL_WORD_EVENTS
from heedful.lessons.action import command_of
from heedful.lessons.preconditions import arguments_of
from heedful.lessons.scope import Remembered, Scope
from heedful.lessons.stated_rule import (
    MAX_SHOWN_RULES,
    REACHES,
    RULE_TYPES,
    RuleReach,
    StatedRule,
)
from heedful.redact import mask_personal, redact
from heedful.store import exposures
from heedful.store.connection import (
    CONFLICT_SKIP_SQL,
    Db,
    Row,
    holds,
    key_of,
    resumable,
    storable,
    storable_json,
)

if TYPE_CHECKING:
    from heedful.lessons.call_limits import CallLimit
    from heedful.lessons.lesson import Lesson

# A session is held to at most this many rules, those that were said last.
MAX_RULES_IN_FORCE = 40
# The commands of a session that are searched for one that had to come first.
MAX_EARLIER_COMMANDS = 2_000
# Who retires a rule that a later one contradicts.
USER_ACTOR = "user"
_BROKEN_META = "broken"
_DENIES_META = "denies"
# What operators decided about a rule, and how often it was broken.
RULE_META = frozenset({_BROKEN_META, _DENIES_META})
_SAID = "said "
_SHOWN = "shown rules"
_ALLOWED = "allowed rule "
_TOLD = "told rule "
# A session that loses its context forgets the marks that begin so.
_TOLD_LESSON = "told lesson "


def listed(db: Db, scope: Scope) -> list[StatedRule]:
    """Return the rules of a scope in all states, last said first."""
    rules = []
    for reach, error_type in RULE_TYPES.items():
        key = {**key_of(scope), "error_type": error_type, "kind": "reflection"}
        rules += [_stated(row, reach) for row in db.select("*", "lesson", key)]
    return sorted(rules, key=lambda stated: -stated.last_said)


def in_force(
    db: Db, scope: Scope, reaches: Collection[RuleReach] = ("project", "all")
) -> list[StatedRule]:
    """Return the rules that agents are held to, last said first."""
    rules = list[StatedRule]()
    for reach, error_type in RULE_TYPES.items():
        if reach in reaches:
            values = {"error_type": error_type, "limit": MAX_RULES_IN_FORCE}
            rows = db.all("rules_in_force", scope, **values)
            rules += [_stated(row, reach) for row in rows]
    return rules


def _stated(row: Row, reach: RuleReach) -> StatedRule:
    """Return the rule in the row of a lesson."""
    waits = row["state"] == "quarantined"
    meta = json.loads(row["meta"])
    since, count = meta.get(_BROKEN_META, (0.0, 0))
    return StatedRule(
        text="" if waits else row["text"],
        reach=reach,
        id=row["id"],
        state=row["state"],
        trust=row["trust"],
        seen=row["seen"],
        last_said=row["last_seen"],
        # The user has said it again since.
        broken=count if since == row["last_seen"] else 0,
        entry=(row["author"] or 0) if waits else 0,
        denies=meta.get(_DENIES_META) is True,
    )


def of_session(db: Db, scope: Scope, session: str) -> list[StatedRule]:
    """Return the rules that hold in a session: its own, the project's, and all others.

    What the user allowed again in the session is left out.
    """
    key = {**key_of(scope), "session": storable(session)}
    marks = [row["mark"] for row in db.select("mark", "session_mark", key)]
    allowed = {mark.removeprefix(_ALLOWED) for mark in marks}

    rules = {stated.digest: stated for stated in in_force(db, scope)}
    for reach in REACHES:
        prefix = f"{_SAID}{reach} "
        for mark in marks:
            if mark.startswith(prefix):
                stated = StatedRule(text=mark.removeprefix(prefix), reach=reach)
                rules.setdefault(stated.digest, stated)
    return [stated for digest, stated in rules.items() if digest not in allowed]


def broken_by(
    db: Db,
    scope: Scope,
    tool: str,
    arguments: Mapping[str, Any] | str,
    *,
    session: str = "",
    call: str = "",
    folder: str = "",
) -> tuple[StatedRule, ...]:
    """Return the rules that a call breaks, without those that the session was told of.

    A rule that denies such calls is returned each time.
    `call` is the id of the call, if it is stored already. Paths are those of the
    repository in `folder`.
    """
    rules = of_session(db, scope, session) if session else in_force(db, scope)
    if not rules:
        return ()

    # A hook process imports the grammar only if there is a rule.
    from heedful.lessons.call_limits import limits_of, may_limit

    suspects: list[tuple[StatedRule, CallLimit]] = []
    for stated in rules:
        if not may_limit(stated.text, arguments):
            continue
        # Earlier calls say more, and are read if need be.
        suspects += [
            (stated, limit)
            for limit in limits_of(stated.text)
            if limit.breaks(tool, arguments, None, folder)
        ]
    earlier = list[str]()
    if session and any(
        limit.kind == "order" or not limit.breaks(tool, arguments, folder=folder)
        for _, limit in suspects
    ):
        earlier = _earlier_commands(db, scope, session, call)
    key = {**key_of(scope), "session": storable(session)}
    broken = dict[str, StatedRule]()
    for stated, limit in suspects:
        mark = {**key, "mark": f"{_TOLD}{stated.digest}"}
        is_quiet = False
        if session and not stated.denies:
            is_quiet = bool(db.select("1", "session_mark", mark))
        if not is_quiet and limit.breaks(tool, arguments, earlier, folder):
            broken[stated.digest] = stated
    return tuple(broken.values())


def _earlier_commands(db: Db, scope: Scope, session: str, call: str) -> list[str]:
    """Return the commands of a session, without that of one call."""
    key = {**key_of(scope), "session": storable(session), "type": "tool_call"}
    end = f"order by n desc limit {MAX_EARLIER_COMMANDS}"
    commands = []
    for row in db.select("record, call", "event", key, end):
        if not call or row["call"] != storable(call):
            fields = arguments_of(json.loads(row["record"])["arguments"] or {})
            commands.append(command_of(fields))
    return commands


def hear(db: Db, scope: Scope, session: str, message: str) -> None:
    """Remember in a session the rules in a message of its user, and what it allows.

    A message that may be pasted neither rules nor allows at once. Nor does what may be
    the content of a file, or a sentence that an earlier result of the session has. In a
    session with instructions that heedful could not read, no sentence does: it may
    repeat them.
    """
    from heedful.episodes.sources import may_be_pasted, typed_part
    from heedful.lessons.call_limits import limits_of, sentences_of
    from heedful.lessons.user_rules import read_rules

    text = mask_personal(redact(message.strip()))
    if may_be_pasted(text):
        return
    text = typed_part(text)
    rules = read_rules(text)
    if rules:
        new_texts = _not_repeated(db, scope, session, [rule.text for rule in rules])
        rules = tuple(rule for rule in rules if rule.text in new_texts)
    marks = [f"{_SAID}{rule.reach} {rule.text}" for rule in rules]
    _mark(db, scope, session, marks)

    allowed: dict[str, list[CallLimit]] = {}
    for stated in of_session(db, scope, session):
        limits = [limit for limit in limits_of(stated.text) if limit.permits(text)]
        is_said_now = any(rule.text == stated.text for rule in rules)
        if limits and not is_said_now:
            allowed[stated.digest] = limits
    if not allowed:
        return
    new_text = "\n".join(_not_repeated(db, scope, session, sentences_of(text)))
    for digest, limits in allowed.items():
        if any(limit.permits(new_text) for limit in limits):
            _mark(db, scope, session, [f"{_ALLOWED}{digest}"])


def _not_repeated(
    db: Db, scope: Scope, session: str, texts: Sequence[str]
) -> list[str]:
    """Return the texts of a user that nobody else can have said in the session."""
    from heedful.episodes.sources import UNREAD_CODE
    from heedful.lessons.trust import find_quotations

    others = list(_words_of_others(db, scope, session))
    # A tool chooses the code of its own error, but not who speaks.
    if any(
        record["code"] == UNREAD_CODE and record["origin"] == "external"
        for record in others
    ):
        return []
    repeated = find_quotations(
        texts, [f"{record['content']}\n{record['error']}" for record in others]
    )
    return [text for text in texts if text not in repeated]


def _words_of_others(db: Db, scope: Scope, session: str) -> Iterator[Mapping[str, Any]]:
    """Yield the events in which others than the user and the model speak."""
    from heedful.episodes.course import SURROUNDING_EVENTS

    own_events = SURROUNDING_EVENTS | MODEL_WORD_EVENTS
    key = {**key_of(scope), "session": storable(session)}
    for row in db.select("type, record", "event", key):
        record = json.loads(row["record"])
        if record["origin"] or row["type"] not in own_events:
            yield record


@holds()
@resumable(result=None)
def carry(db: Db, scope: Scope, session: str, texts: Sequence[str]) -> None:
    """Let rules of all projects of the user hold in a session that is shown its rules.

    `texts` are those rules.
    """
    _mark(db, scope, session, [_SHOWN, *(f"{_SAID}all {text}" for text in texts)])


def told_marks(lessons: Iterable[int]) -> list[str]:
    """Return the marks of a session that was told these lessons, with what helps."""
    return [f"{_TOLD_LESSON}{id}" for id in lessons]


def unfit_lessons(
    db: Db, scope: Scope, session: str, texts: Mapping[int, str]
) -> frozenset[int]:
    """Return the lessons of which a session need not hear, or must not.

    It was told those, or was shown them as rules, or they tell of a call that goes
    against a rule. `texts` are those of lessons, by their ids.
    """
    marks = json.dumps(told_marks(texts))
    rows = db.all("read_marks", scope, session=storable(session), marks=marks)
    ids = {int(row["mark"].removeprefix(_TOLD_LESSON)) for row in rows}
    if is_shown(db, scope, session):
        rules = of_session(db, scope, session)[:MAX_SHOWN_RULES]
        ids.update(stated.id for stated in rules)
    limits = limits_in(db, scope, session)
    ids.update(id for id, text in texts.items() if goes_against(text, limits))
    return frozenset(ids.intersection(texts))


def goes_against(text: str, limits: Iterable[CallLimit]) -> bool:
    """Return True if a text tells of a call that one of the limits forbids."""
    return any(limit.is_broken_in(text) for limit in limits)


def limits_in(db: Db, scope: Scope, session: str = "") -> tuple[CallLimit, ...]:
    """Return what the rules forbid each call to do, in a session also its own rules.

    An order of commands is left out: no call alone goes against it.
    """
    rules = of_session(db, scope, session) if session else in_force(db, scope)
    if not rules:
        return ()

    from heedful.lessons.call_limits import limits_of

    limits = [limit for stated in rules for limit in limits_of(stated.text)]
    return tuple(limit for limit in limits if limit.kind != "order")


def is_shown(db: Db, scope: Scope, session: str) -> bool:
    """Return True if a session was shown the rules that hold in it."""
    key = {**key_of(scope), "session": storable(session)}
    return bool(db.select("1", "session_mark", {**key, "mark": _SHOWN}))


@holds()
@resumable(result=None)
def note_told(db: Db, scope: Scope, session: str, digests: Sequence[str]) -> None:
    """Remember that a session was told that it breaks these rules."""
    _mark(db, scope, session, [f"{_TOLD}{digest}" for digest in digests])


def _mark(db: Db, scope: Scope, session: str, marks: Iterable[str]) -> None:
    """Remember marks of a session."""
    key = {**key_of(scope), "session": storable(session)}
    for mark in marks:
        db.insert("session_mark", {**key, "mark": storable(mark)}, CONFLICT_SKIP_SQL)


@resumable(result=None)
def count_broken(db: Db, scope: Scope, counts: Mapping[str, int]) -> None:
    """Add how often rules were broken without a word of the user, by their digests."""
    for stated in in_force(db, scope):
        count = counts.get(stated.digest, 0)
        if count:
            (row,) = db.select("meta", "lesson", {"id": stated.id})
            broken = [stated.last_said, stated.broken + count]
            meta = {**json.loads(row["meta"]), _BROKEN_META: broken}
            db.update("lesson", {"id": stated.id}, {"meta": storable_json(meta)})


@resumable(result=None)
def deny(db: Db, scope: Scope, id: int, by: str, *, denies: bool) -> None:
    """Let a rule deny the calls that go against it, or no longer."""
    for row in db.select("*", "lesson", {**key_of(scope), "id": id}):
        meta = {**json.loads(row["meta"]), _DENIES_META: denies}
        db.update("lesson", {"id": id}, {"meta": storable_json(meta)})
        action = "deny calls" if denies else "allow calls"
        _record(db, scope, row, action=action, why="", by=by)


def say_again(db: Db, scope: Scope, lesson: Lesson) -> None:
    """Restore a retired rule that the user states again, before it is stored.

    Rules whose limit the new one allows are retired: "use npm" follows "never npm".
    """
    if lesson.error_type not in RULE_TYPES.values() or lesson.state == "quarantined":
        return

    from heedful.lessons.call_limits import limits_of

    key = {**key_of(scope), "error_type": lesson.error_type, "kind": "reflection"}
    this = {**key, "signature": lesson.signature.digest}
    for row in db.select("*", "lesson", {**this, "state": "retired"}):
        db.update("lesson", {"id": row["id"]}, {"state": "unverified"})
        why = "the user said it again"
        _record(db, scope, row, action="restore", why=why)
    for row in db.select("*", "lesson", {**key, "state": "unverified"}):
        limits = limits_of(row["text"])
        is_same = row["signature"] == lesson.signature.digest
        if not is_same and any(limit.permits(lesson.text) for limit in limits):
            db.update("lesson", {"id": row["id"]}, {"state": "retired"})
            why = f"the user said: {lesson.text}"
            _record(db, scope, row, action="retire", why=why)


def _record(
    db: Db, scope: Scope, row: Row, *, action: str, why: str, by: str = USER_ACTOR
) -> None:
    """Record a ruling about a rule; by default, it follows from the user's words."""
    from heedful.store import lessons as lesson_store  # a hook makes no rulings

    lesson_store.rule(
        db,
        scope,
        action=action,
        subject=lesson_store.name_of(row),
        by=by,
        why=why,
        now=time.time(),
        record={"digest": lesson_store.words_digest(row["text"])},
    )


@resumable(result=list[Remembered])
def state(
    db: Db,
    scope: Scope,
    lessons: Sequence[Lesson],
    *,
    most: int = 0,
    quota: int | None = None,
) -> list[Remembered]:
    """Store rules that a person states; `most` and `quota` are as in `remember`."""
    for lesson in lessons:
        say_again(db, scope, lesson)
    return exposures.remember(db, scope, lessons, most=most, quota=quota)


@resumable(result=None)
def forget(db: Db, scope: Scope, id: int) -> None:
    """Delete a rule that another memory has from now on."""
    db.delete("lesson", {**key_of(scope), "id": id})
