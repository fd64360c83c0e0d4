"""`errata why` and `errata loops`: what happened in loops, in words."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from errata.cli.output import Db, Json, print_json, short, show, table, when

if TYPE_CHECKING:
    from errata.cli.settings import Settings
    from errata.loop.explain import Explanation
    from errata.protocols import Stored

CANDIDATE = 400
SHOWN = 10
HEADS = ("loop", "state", "stopped by", "attempts", "best", "calls", "tokens", "updated")


def why(
    loop: Annotated[str, typer.Argument(help="The id of a loop, or its beginning.")],
    db: Db = None,
    json: Json = False,
) -> int:
    """Explain a loop: why again, and why it stopped.

    Shows its attempts, what was wrong, what was fed back, and what would have changed the end.
    """
    from errata.cli.interrupt import drive
    from errata.cli.settings import settings
    from errata.codec import policy_from
    from errata.loop.explain import explain

    stored = drive(_one(settings(db=db), loop))
    last = stored.verdicts[-1] if stored.verdicts else None
    explanation = explain(stored.loop, policy_from(stored.head.policy), last)
    if json:
        print_json(_document(stored, explanation))
    else:
        _print(stored, explanation)
    return 0


def loops(
    run: Annotated[str, typer.Option("--run", help="Only the loops of this run.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="How many, the newest first.")] = 50,
    db: Db = None,
    json: Json = False,
) -> int:
    """List the newest loops; open ones run or were interrupted."""
    from errata.cli.interrupt import drive
    from errata.cli.settings import settings

    found = drive(_newest(settings(db=db), limit, f"{run}/" if run else ""))
    rows = [_row(one) for one in found]
    if json:
        print_json({"loops": [{**dict(zip(KEYS, row, strict=True))} for row in rows]})
    elif rows:
        table(HEADS, [(*row[:-1], when(row[-1])) for row in rows], text=3)
    else:
        show("no loop yet" if not run else f"no loop of a run {run!r}")
    return 0


KEYS = ("id", "state", "stopped_by", "attempts", "best", "calls", "tokens", "updated")


def state_of(stored: Stored) -> str:
    """passed, stopped, or open."""
    from errata.loop.decide import Done

    last = stored.verdicts[-1] if stored.verdicts else None
    if not isinstance(last, Done):
        return "open"
    return "passed" if last.passed else "stopped"


async def _one(settings: Settings, loop: str) -> Stored:
    """The loop of that id, or the only one whose id begins so. Raises NotFound, UsageError."""
    from errata.cli.opening import scope_of, stored
    from errata.errors import NotFound, UsageError

    async with stored(settings) as store:
        try:
            return await store.read(scope_of(settings), loop)
        except NotFound:
            found = await store.loops(scope_of(settings), SHOWN + 1, loop)
            if len(found) == 1:
                return found[0]
            if not found:
                raise
        ids = ", ".join(sorted(one.id for one in found)[:SHOWN])
        more = ", …" if len(found) > SHOWN else ""
        raise UsageError(f"several loops begin with {loop!r}: {ids}{more}; give more of the id")


async def _newest(settings: Settings, limit: int, prefix: str) -> Sequence[Stored]:
    from errata.cli.opening import scope_of, stored

    async with stored(settings) as store:
        return await store.loops(scope_of(settings), limit, prefix)


def _row(stored: Stored) -> tuple[Any, ...]:
    from errata.loop.decide import Done

    last = stored.verdicts[-1] if stored.verdicts else None
    rule = last.stopped_by[0].rule if isinstance(last, Done) and last.stopped_by else ""
    loop, usage = stored.loop, stored.loop.usage
    counts = (len(loop.attempts), loop.best or 0, usage.calls, usage.tokens)
    return (stored.id, state_of(stored), rule, *counts, stored.updated)


def _document(stored: Stored, explanation: Explanation) -> dict[str, Any]:
    from errata import codec

    attempts = [
        {
            "number": attempt.number,
            "candidate": value,
            "evaluation": codec.evaluation_to(attempt.evaluation),
            "usage": codec.sparse(attempt.usage),
            "repeats": attempt.repeats,
            "wrong": list(line.wrong),
            "decided": line.decided,
            "feedback": _feedback(stored, attempt.number),
        }
        for attempt, value, line in zip(
            stored.loop.attempts, stored.values, explanation.lines, strict=True
        )
    ]
    return {
        "id": stored.id,
        "state": state_of(stored),
        "task": stored.head.task,
        "goals": list(stored.head.goals),
        "policy": dict(stored.head.policy),
        "attempts": attempts,
        "best": stored.loop.best,
        "verdicts": [codec.verdict_to(one) for one in stored.verdicts],
        "overrides": [codec.override_to(one) for one in stored.loop.overrides],
        "would_change": list(explanation.would_change),
        "usage": codec.sparse(stored.loop.usage),
    }


def _feedback(stored: Stored, number: int) -> str:
    """What the attempt after this one was told; "" where none followed or nothing was said."""
    from errata.loop.decide import Again

    said = [one for one in stored.verdicts if isinstance(one, Again)]
    return said[number - 1].feedback if number <= len(said) else ""


def _print(stored: Stored, explanation: Explanation) -> None:
    loop, usage = stored.loop, stored.loop.usage
    goals = f", goals: {', '.join(map(str, loop.goals))}" if loop.goals else ""
    policy = stored.head.policy.get("name") or "of its own"
    show(f"loop {stored.id}: {state_of(stored)}, policy {policy}{goals}")
    show(f"task: {short(_text(stored.head.task), CANDIDATE)}")
    for attempt, value, line in zip(loop.attempts, stored.values, explanation.lines, strict=True):
        show(f"\nattempt {attempt.number}: {short(_text(value), CANDIDATE) or '(empty)'}")
        for finding in attempt.evaluation.findings if attempt.evaluation else ():
            fix = f" -> {short(finding.fix, CANDIDATE)}" if finding.fix else ""
            level = "" if finding.level == "error" else f" ({finding.level})"
            show(f"  {finding.check}{level}: {short(finding.message, CANDIDATE)}{fix}")
        for goal in attempt.evaluation.unmet(loop.goals) if attempt.evaluation else ():
            show(f"  goal missed: {goal}, it is {_score(attempt, goal.score):g}")
        show(f"  => {line.decided}")
        if told := _feedback(stored, attempt.number):
            show("  fed back:\n" + "\n".join(f"  | {part}" for part in told.splitlines()))
    _end(stored, explanation)
    show(f"cost: calls {usage.calls}, tokens {usage.tokens}, {usage.seconds:.1f} s")


def _end(stored: Stored, explanation: Explanation) -> None:
    show()
    for override in stored.loop.overrides:
        show(f"override of {override.rule} by {override.by}: {short(override.why, CANDIDATE)}")
    if state_of(stored) == "open":
        waiting = "an answer is stored and waits for its checks" if stored.journal else "it waits"
        show(f"open: {waiting}; run it again with --resume")
    elif state_of(stored) == "stopped":
        show(f"kept: attempt {stored.loop.best}" if stored.loop.best else "kept: nothing")
    for change in explanation.would_change:
        show(f"would have changed it: {change}")


def _score(attempt: Any, name: str) -> float:
    return float(attempt.evaluation.scores[name])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else jsonlib.dumps(value)
