"""The lessons that loops were shown, how these loops ended, and rulings on lessons.

An exposure is a lesson that recall ranked into the prompt of a loop; it was shown or
withheld. From exposures and outcomes, `lessons.proof` computes whether a lesson helps.
What is recorded first stays: later exposures and outcomes of a loop change nothing.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from math import ceil
from typing import TYPE_CHECKING

from heedful.errors import NotFound
from heedful.lessons.holdout import Exposure, LoopExposures, Outcome, Shown
from heedful.lessons.lesson_check import Alarm, LessonCheck
from heedful.lessons.scope import DAY_SECONDS, MIN_UNBROKEN_CASES, Remembered, Scope
from heedful.store.connection import (
    CONFLICT_SKIP_SQL,
    MAX_ROWS,
    Actor,
    Db,
    Row,
    from_row,
    key_of,
    resumable,
    storable,
)
from heedful.store.rulings import name_of, rule, words_digest
from heedful.validation import Fields

if TYPE_CHECKING:  # slow to import: a hook process starts for each event
    from heedful.lessons.lesson import Lesson, Match
    from heedful.lessons.proof import Case, CasesByModel, Comparison


# Memory counts as hurting only if it also hurts in this many of the newest loops.
# Without this, memory that hurt for long would be withheld long after it helps again.
MAX_RECENT_LOOPS = 1_000
PACE_DAYS = 7  # how far back loops show how many end in a day


@resumable(result=list[Remembered], counts=True)
def remember(
    db: Db,
    scope: Scope,
    lessons: Sequence[Lesson],
    *,
    exposures: Sequence[Exposure] = (),
    outcome: Outcome | None = None,
    most: int = 0,
    quota: int | None = None,
) -> list[Remembered]:
    """Store lessons, and record the exposures and the outcome of a loop.

    A loop is one task that is tried until the answer passes. An exposure is a lesson
    that was chosen for its prompt, whether it was shown or withheld for comparison.
    Later calls do not change the exposures and the outcome of a loop, and only the
    first call with lessons of a loop stores lessons of this loop.

    With `most` above 0, the least useful lessons beyond `most` are evicted, except
    pinned ones. Returns one answer for each written lesson: `UNSTORED_LESSON` if it was
    evicted. Raises InvalidInput, and QuotaExceeded if an untrusted source exceeds its
    `quota`.
    """
    from heedful.store import lessons as lesson_store  # a hook seldom stores lessons

    now = time.time()
    expose(db, scope, exposures=exposures, outcome=outcome, now=now)

    # The loops whose lessons are stored now; "" stands for lessons without a loop.
    new_loops = {""}
    for loop in {lesson.loop for lesson in lessons if lesson.loop}:
        if is_first_lesson(db, scope, loop, now):
            new_loops.add(loop)

    new_lessons = [lesson for lesson in lessons if lesson.loop in new_loops]
    return lesson_store.upsert(
        db, scope, lessons=new_lessons, now=now, quota=quota, most=most
    )


def is_first_lesson(db: Db, scope: Scope, loop: str, now: float) -> bool:
    """Note that a loop taught lessons; return True if none were noted before."""
    row = {**key_of(scope), "source": f"loop:{loop}", "steps": 0, "at": now}
    return bool(db.insert_now("learnt", row, CONFLICT_SKIP_SQL).rowcount)


def expose(
    db: Db,
    scope: Scope,
    exposures: Sequence[Exposure],
    outcome: Outcome | None,
    now: float,
) -> int:
    """Record the exposures and the outcome of a loop, unless they are recorded already.

    An exposure is a lesson that was chosen for the loop's prompt: shown, or withheld by
    a random draw. The outcome of a loop with exposures updates the counters of the
    lessons that it was shown. Returns the number that a new outcome gets in its scope;
    0 without an outcome, or if it is not counted.
    """
    # All exposures are those of one loop. Its first ones stay: a second draw must not
    # replace the first.
    if exposures and not shown_to(db, scope, exposures[0].loop):
        for exposure in exposures:
            # An API key, `via`, may report at most so many outcomes a day as `most`.
            row = {
                **_lesson_key(scope, exposure.lesson),
                "loop": exposure.loop,
                "shown": exposure.shown,
                "share": exposure.share,
                "together": exposure.together,
                "among": len(exposures),
                "at": now,
                "via": db.actor.via,
                "most": db.actor.outcomes,
                "examples": json.dumps(exposure.examples),
            }
            db.insert("exposure", row, CONFLICT_SKIP_SQL)

    if outcome is None:
        return 0
    return _record_outcome(db, scope, outcome=outcome, now=now, actor=db.actor)


def _record_outcome(
    db: Db, scope: Scope, outcome: Outcome, now: float, actor: Actor
) -> int:
    """Record how a loop ended, and count it for the lessons that the loop was shown.

    `actor` is who reports it. An API key, `actor.via`, may add at most `actor.outcomes`
    a day; code in this process has no key and no limit. Returns the number of the
    outcome in the scope. Returns 0 if nothing is recorded, or if the key is beyond its
    limit: then the outcome is recorded without a number, and counts for no lesson.
    """
    # A key must not report how loops ended that it never ran.
    if not _has_run(db, scope, outcome.loop, actor.via):
        return 0

    values = {
        **key_of(scope),
        "loop": outcome.loop,
        "right_at_once": outcome.right_at_once,
        "calls": outcome.calls,
        "climbed": outcome.climbed,
        "cost": outcome.cost,
        "memory_key": outcome.memory_key,
        "model": storable(outcome.model),
        "rung": outcome.rung,
        "signatures": json.dumps(sorted(_broken_signatures(db, scope, outcome))),
    }
    # Nothing is inserted for a loop without exposures, or with an outcome already.
    row = db.first(
        "insert_outcome",
        {
            **values,
            "most": actor.outcomes,
            "day": DAY_SECONDS,
            "via": actor.via,
            "now": now,
        },
    )

    number = 0
    if row is not None and row["n"] is not None:
        number = row["n"]
        if outcome.rung == 1:
            db.send("count_outcome", {**values, "times": 1})

    # The memory key names loops of one kind. For each of its rules that this loop was
    # shown, or that was kept so often that it is seldom shown, count a loop that kept
    # it. A loop whose first attempt came from a dearer model of a ladder (a higher
    # rung) is left out: it does not show what the first model would break. So is one
    # with exposures but without a number: it was counted before, or does not count.
    # Rules that the loop broke are counted here, too; their count begins again when the
    # lessons of the loop are written.
    judges_rules = outcome.memory_key and outcome.rung == 1
    if judges_rules and (number or not shown_to(db, scope, outcome.loop)):
        db.send("keep_rules", {**values, "quiet": MIN_UNBROKEN_CASES})
    return number


def _broken_signatures(db: Db, scope: Scope, outcome: Outcome) -> set[str]:
    """Return the signatures, digests of error texts, of all that a loop did wrong.

    These are its own errors and, for each rule that it broke, the errors of the lessons
    about this rule: they may have other words, and so other signatures.
    """
    signatures = set(outcome.signatures)
    for broken_rule in outcome.rules:
        cause = {"memory_key": outcome.memory_key, "rule": broken_rule}
        rows = db.select("signature", "cause", {**key_of(scope), **cause})
        signatures.update(row["signature"] for row in rows)
    return signatures


def _has_run(db: Db, scope: Scope, loop: str, via: str) -> bool:
    """Return True if the API key `via` reported an attempt or an event of the loop.

    A key that reported neither may have invented the loop. If `via` is "", code in this
    process reports the outcome, which is trusted: the result is True.
    """
    if not via:
        return True

    for row in db.select("n", "loop", {**key_of(scope), "id": loop}):
        if db.select("1", "attempt", {"loop": row["n"], "via": via}):
            return True

    # An error that a session of an agent may meet again is recorded as a loop named
    # `SESSION/SIGNATURE`. It has no attempts, but the session has events.
    session = loop.rpartition("/")[0]
    key = {**key_of(scope), "session": session, "via": via}
    return bool(db.select("1", "event", key, "limit 1"))


def past(db: Db, scope: Scope, loop: str) -> LoopExposures:
    """Return which lessons a loop was shown or not, and its place among all outcomes.

    `verdict` in the result is the newest conclusion on memory as a whole.
    """
    (row,) = db.all("count_outcomes", scope, loop=loop)
    return LoopExposures(
        exposures=tuple(shown_to(db, scope, loop)),
        ended=row["ended"],
        number=row["number"],
        verdict=row["verdict"],
    )


def brief(
    db: Db,
    scope: Scope,
    loop: str,
    memory_key: str,
    find: Callable[..., list[Match]],
    task: str = "",
    model: str = "",
    check_ids: Sequence[str] = (),
) -> tuple[list[Match], LoopExposures, tuple[LessonCheck, ...]]:
    """Return the lessons that fit a loop, its exposures so far, and checks of lessons.

    A memory key names loops of one kind. The lessons are those that the search `find`
    returns and, each with a `cause`, the rules that earlier loops broke: loops of this
    key, and loops of other keys that have one of the checks `check_ids`. Rules from the
    same `task` keep its particulars. If `memory_key` or `model` is "", that of the
    stored loop is used. The third item are the checks, made from lessons, that judge
    loops of the key.
    """
    if not (memory_key and model):
        # There is one row, or none if the loop is not stored.
        for row in db.select(
            "memory_key, model", "loop", {**key_of(scope), "id": loop}
        ):
            memory_key = memory_key or row["memory_key"]
            model = model or row["model"]

    matches = find(db, scope, memory_key=memory_key)
    if memory_key:
        # Slow to import, and a hook of an agent, which must be fast, has no memory key.
        from heedful.store import search

        matches = matches + search.by_cause(
            db, scope, memory_key, task=task, check_ids=check_ids
        )

    # At most 100 texts that wait in quarantine are counted.
    waiting = db.all("waiting_ids", scope, most=100, before=MAX_ROWS)
    history = replace(
        past(db, scope, loop),
        memory_key=memory_key,
        model=model,
        waiting=len(waiting),
    )

    return matches, history, active_checks(db, scope, memory_key)


def active_checks(
    db: Db, scope: Scope, memory_key: str = "", calls: bool = False
) -> tuple[LessonCheck, ...]:
    """Return the checks of lessons that judge loops of a memory key, or `calls`."""
    return judging(
        db.all("active_checks", scope, memory_key=memory_key, calls=calls, id="")
    )


def judging(rows: Iterable[Row]) -> tuple[LessonCheck, ...]:
    """Return the checks in rows of `active_checks` that are not retired."""
    return tuple(check for check in map(check_of, rows) if check.state == "accepted")


def check_of(row: Row) -> LessonCheck:
    """Return the check of a lesson that a row of `active_checks` describes.

    An accepted check that was wrong too often, or that found nothing for long, is
    returned with the state "retired", and with the reason as `why`. The row stays.
    """
    check = from_row(LessonCheck, row)
    if not check.taught_by:
        # Then the check that found the mistake is the only one that can find it again.
        check = replace(check, taught_by=(check.error_type,))
    if check.is_unreviewed:  # its text is shown nowhere
        check = replace(check, text="", about="", rule={})
    retired_why = check.retired(time.time()) if check.state == "accepted" else ""
    return replace(check, state="retired", why=retired_why) if retired_why else check


@resumable(result=None, counts=True)
def count_alarms(db: Db, scope: Scope, alarms: Sequence[Alarm]) -> None:
    """Count what the checks of lessons found in one attempt or call."""
    now = time.time()
    for alarm in alarms:
        values = {"id": alarm.lesson, "wrong": int(alarm.is_false), "now": now}
        db.send("count_alarm", {**key_of(scope), **values})


def shown_to(db: Db, scope: Scope, loop: str) -> list[Exposure]:
    """Return the exposures of a loop: the lessons shown to it or withheld from it."""
    columns = "kind || '/' || signature as lesson, exposure.*"
    return [
        from_row(Exposure, row)
        for row in db.select(columns, "exposure", {**key_of(scope), "loop": loop})
    ]


def tally(db: Db, scope: Scope, names: Sequence[str] = ()) -> dict[str, Shown]:
    """Count for each lesson how the loops and sessions that were shown it ended.

    The keys of the result, and `names`, are names of lessons, `kind/signature`. Without
    `names`, counts for all lessons that were ever shown. Loops and sessions that were
    shown earlier words of a lesson, before it was edited, do not count.
    """
    return {
        row["lesson"]: Shown(
            shown=row["shown"],
            right=row["right"],
            again=row["again"],
            other=row["shown"] - row["right"] - row["again"],
        )
        for row in db.all("tally_shown", scope, names=json.dumps(list(names)))
    }


def count_recent(db: Db, scope: Scope, model: str = "") -> tuple[int, int]:
    """Return how many loops with lessons ended lately, and in how many days.

    The days are at most `PACE_DAYS`, fewer if the first of these loops ended later, and
    at least one. With a `model`, only its loops count.
    """
    key = {**key_of(scope), "model": storable(model)} if model else key_of(scope)
    now = time.time()
    since = now - PACE_DAYS * DAY_SECONDS
    (recent,) = db.select(
        "count(*) as n, min(at) as first",
        "outcome",
        key,
        f"and n > 0 and at > {since} and at <= {now}",
    )
    return recent["n"], ceil((now - (recent["first"] or since)) / DAY_SECONDS) or 1


def evidence(db: Db, scope: Scope, recent: bool = False) -> CasesByModel:
    """Return how often each `Case` occurred, and the number of open loops, by model.

    A case is one loop with or without a lesson, and how it went. Cases are counted for
    each lesson; under the name None, once for each loop, about memory as a whole. A
    loop without an outcome after a day counts as the worst: its first attempt failed,
    its errors came again, it made `MAX_COUNTED_CALLS` calls and, if it had a ladder of
    cheaper and dearer models, needed a dearer one.

    If a lesson was restored or its text was replaced, only loops after that count. With
    `recent`, only the newest `MAX_RECENT_LOOPS` count, and of them those that began
    after the last lesson was retired, kept from a model, edited or revoked.
    """
    since = 0.0
    if recent:
        (row,) = db.all("recent_since", scope, loops=MAX_RECENT_LOOPS)
        since = row["at"]

    from heedful.lessons import proof  # slow to import

    # The statement counts equal cases, and fills in those of loops that were given up,
    # that is have not ended after a day.
    times = {"day": DAY_SECONDS, "now": time.time()}
    cases: defaultdict[str, dict[str | None, dict[Case, int]]] = defaultdict(dict)
    costs: defaultdict[str, list[proof.CostSum]] = defaultdict(list)
    limits = {**times, "most": proof.MAX_COUNTED_CALLS, "since": since}
    for row in db.all("read_evidence", scope, **limits):
        climbed = row["climbed"]
        case = (
            row["share"],
            bool(row["shown"]),
            bool(row["right_at_once"]),
            bool(row["recurred"]),
            row["calls"],
            None if climbed is None else bool(climbed),
        )
        cases[row["model"]].setdefault(row["lesson"], {})[case] = row["n"]
        if row["priced"]:  # so many of these loops have a known cost
            cost = proof.CostSum(
                share=row["share"],
                shown=bool(row["shown"]),
                loops=row["priced"],
                cost=row["cost"],
            )
            costs[row["model"]].append(cost)

    rows = db.all("count_pending", scope, **times)
    pending = {row["model"]: row["n"] for row in rows}
    return proof.CasesByModel(cases=cases, pending=pending, costs=costs)


@resumable(result=list[str])
def conclude(
    db: Db,
    scope: Scope,
    useful: Mapping[str, float],
    hurting: Sequence[Comparison],
    *,
    unfit: Mapping[str, Sequence[Comparison]] | None = None,
    pooled: Comparison | None = None,
) -> list[str]:
    """Act on a proof: retire lessons that hurt, and rank others by their usefulness.

    Returns the names (`kind/signature`) of the retired lessons, those in `hurting`. A
    ruling, an entry of a log of decisions, is recorded for each. Lessons that an
    operator wrote or pinned stay until they are unpinned; a ruling "review" puts them
    before a person, once.

    `useful` maps names of lessons to their factors in ranking. The factor becomes 1 for
    all other lessons, and is at least 1 for those that an operator wrote or pinned.
    `unfit` maps names of models to the lessons that hurt their loops; these loops are
    no longer shown these lessons. If the conclusion on memory as a whole, `pooled`, has
    changed, a ruling records it. If a lesson is retired now, no ruling does: the
    conclusion is about a memory that had this lesson.
    """
    _keep_from_models(db, scope, unfit or {})
    db.send("reset_useful", key_of(scope))
    for lesson, factor in useful.items():
        db.send("set_useful", {**_lesson_key(scope, lesson), "useful": factor})

    retired = []
    for comparison in hurting:
        lesson = str(comparison.lesson)
        # There is no row if the lesson is gone, or waits, or is retired already.
        for row in db.run("retire", _lesson_key(scope, lesson)).fetchall():
            action = "retire" if row["state"] == "retired" else "review"
            ruling = {**key_of(scope), "subject": lesson, "action": action}
            if action == "retire":
                retired.append(lesson)
            elif db.select("id", "ruling", ruling):
                continue  # a person reviews it already

            rule(
                db,
                scope,
                action=action,
                subject=lesson,
                by="proof",
                why=str(comparison),
                record={
                    **asdict(comparison),
                    "digest": words_digest(row["text"]),
                },
            )

    if pooled is not None and not retired:
        _record_verdict(db, scope, pooled)
    return retired


def _keep_from_models(
    db: Db, scope: Scope, unfit: Mapping[str, Sequence[Comparison]]
) -> None:
    """Store for each lesson the models whose loops it hurts, and clear it for others.

    `unfit` has, by model, the comparisons of the lessons that hurt its loops; these are
    no longer shown the lessons. A ruling, an entry of a log of decisions, is recorded
    for each lesson and model for which this is new.
    """
    models_before = {
        name_of(row): json.loads(row["unfit_for"])
        for row in db.select("*", "lesson", key_of(scope), "and unfit_for <> '[]'")
    }
    # A lesson that hurts no model now gets an empty list instead of its old one.
    comparisons: dict[str, dict[str, Comparison]] = {name: {} for name in models_before}
    for model, hurting in unfit.items():
        for comparison in hurting:
            comparisons.setdefault(str(comparison.lesson), {})[model] = comparison

    for lesson, by_model in comparisons.items():
        models = sorted(by_model)
        known_models = models_before.get(lesson, [])
        row = {**_lesson_key(scope, lesson), "unfit_for": json.dumps(models)}
        # What an operator wrote or pinned is not updated: all models are shown it.
        if models == known_models or db.first("set_unfit", row) is None:
            continue

        for model in sorted(by_model.keys() - set(known_models)):
            comparison = by_model[model]
            rule(
                db,
                scope,
                action="withhold",
                subject=lesson,
                by="proof",
                why=f"in loops of {model}: {comparison}",
                record={**asdict(comparison), "model": model},
            )


def _record_verdict(db: Db, scope: Scope, pooled: Comparison) -> None:
    """Record whether memory helps, in a log of rulings, if the conclusion has changed.

    `pooled` compares loops that were shown any lessons with loops that were shown none.
    """
    last_verdict = past(db, scope, "").verdict  # it is the same for every loop
    if pooled.conclusion == (last_verdict or "insufficient data"):
        return

    rule(
        db,
        scope,
        action=pooled.conclusion,
        subject="memory as a whole",
        by="proof",
        why=str(pooled),
        record=asdict(pooled),
    )


@resumable(result=None)
def restore(db: Db, scope: Scope, id: int, by: str, why: str) -> None:
    """Restore the lesson `id`, which a proof retired or keeps from some models.

    Loops of all models may be shown it again, and only loops from now on count for its
    proof. A ruling records who did it, `by`, and `why`. Raises NotFound for a lesson
    that no proof took out of prompts.
    """
    now = time.time()
    row = db.one("restore", scope, id=id, now=now)
    if row is None:
        raise NotFound(
            "lesson that a proof retired",
            str(id),
            f"the lessons of {scope}",
        )

    rule(
        db,
        scope,
        action="restore",
        subject=name_of(row),
        by=by,
        why=why,
    )


def rulings(db: Db, scope: Scope, limit: int) -> list[Fields]:
    """Return the newest `limit` rulings of the scope as plain data, newest first."""
    return [
        {**dict(row), "record": json.loads(row["record"])}
        for row in db.all("newest_rulings", scope, limit=limit)
    ]


def settle(db: Db, scope: Scope, outcome: Outcome, at: float) -> None:
    """Record at the time `at` whether a session of an agent met a known error again.

    The session was shown a lesson about the error, or not; this exposure is stored
    under the loop `SESSION/SIGNATURE`, that of the outcome. The outcome counts as if
    the API key that recorded the exposure had reported it.
    """
    key = {**key_of(scope), "loop": outcome.loop}
    # The first outcome of a loop stays, so further exposures would change nothing.
    for row in db.select("via, most", "exposure", key):
        actor = Actor(via=row["via"], outcomes=row["most"])
        _record_outcome(db, scope, outcome=outcome, now=at, actor=actor)


def settle_without_verdict(db: Db, scope: Scope, loop: str, at: float) -> None:
    """Record that a session ended, but not whether it met a known error again.

    `loop` names session and error, as in `settle`, and `at` is the time of the end. The
    outcome has no number, so it counts for no lesson.
    """
    row = {**key_of(scope), "loop": loop, "n": None, "right_at_once": False}
    db.insert(
        "outcome", {**row, "calls": 0, "signatures": "[]", "at": at}, CONFLICT_SKIP_SQL
    )


def _lesson_key(scope: Scope, name: str) -> dict[str, str]:
    """Return the columns that select the lesson `name`, such as `error/12ab34`."""
    kind, _, signature = name.partition("/")
    return {**key_of(scope), "kind": kind, "signature": signature}
