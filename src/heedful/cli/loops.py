"""`heedful why`, `loops`, `log` and `override`: stored loops, found by what a user types."""

from __future__ import annotations

import json as jsonlib
import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from heedful.cli.output import (
    MOST,
    By,
    Columns,
    Db,
    Json,
    Newest,
    Why,
    answer,
    counted,
    emit,
    following,
    print_json,
    show,
    when,
)
from heedful.cli.runs import loop_of, tell
from heedful.cli.settings import ask
from heedful.drive.report import override as lift
from heedful.errors import InvalidInput, NotFound, UsageError
from heedful.lessons.lesson import Exposure
from heedful.loop import codec
from heedful.loop.decide import Again, Done, Reasoning, Verdict, reasoning
from heedful.loop.explain import Explanation
from heedful.loop.record import Attempt, clean
from heedful.memory.memory import Memory
from heedful.store import exposures as exposure_store
from heedful.store import loops as loop_store
from heedful.store.loops import explained, state_of
from heedful.store.records import StoredLoop
from heedful.store.runs import Report, is_run, report_of

CANDIDATE = 400  # characters of a candidate that are shown
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
LONGEST = 3650 * SECONDS["d"]  # more than ten years is a typing error
CHANGE = ("what", "outcome", "was", "to")
LOOPS: Columns = {
    "loop": "id",
    "state": "state",
    "stopped by": "stopped_by",
    **{name: name for name in ("attempts", "best", "calls", "tokens")},
    "updated": lambda one: when(one["updated"]),
}


def why(
    loop: Annotated[
        str, typer.Argument(help="The id of a loop or of a pipeline's run, its beginning, or last.")
    ],
    stage: Annotated[
        str | None, typer.Argument(help="Only this stage of the run: its name or number.")
    ] = None,
    db: Db = None,
    json: Json = False,
) -> int:
    """Explain why a loop went on and why it stopped.

    Or the run of a pipeline. Shows its attempts, what was wrong, what was fed back, and what would
    have changed the end.
    """

    async def read(memory: Memory) -> Report | tuple[StoredLoop, Sequence[Exposure]]:
        found = await loop_of(memory, loop)
        if is_run(found):
            return await report_of(memory.store, memory.scope, found.id)
        if stage is not None:
            raise UsageError(f"loop {found.id!r} is not a run of a pipeline: it has no stages")
        return found, (
            await memory.store.read(memory.scope, exposure_store.past, found.id)
        ).exposures

    found = ask(db, read)
    if isinstance(found, Report):
        tell(found, stage, db or "", json)
        return 0
    stored, exposures = found
    explanation = explained(stored)
    if json:
        print_json({**_document(stored, explanation), "exposures": list(map(asdict, exposures))})
    else:
        _print(stored, explanation, exposures)
    return 0


def loops(
    run: Annotated[str, typer.Option("--run", help="Only the loops of this run.")] = "",
    limit: Newest = 50,
    db: Db = None,
    json: Json = False,
) -> int:
    """List the newest loops.

    A loop that is open is running or was interrupted.
    """
    prefix = f"{run}/" if run else ""
    found = ask(
        db, lambda memory: memory.store.read(memory.scope, loop_store.newest, limit, prefix)
    )
    empty = f"no loop of a run {run!r}" if run else "no loop yet"
    emit(list(map(_row, found)), LOOPS, json=json, key="loops", text=3, empty=empty)
    return 0


def _row(stored: StoredLoop) -> dict[str, Any]:
    last = stored.verdicts[-1] if stored.verdicts else None
    loop, usage = stored.loop, stored.loop.usage
    return {
        "id": stored.id,
        "state": state_of(stored),
        "stopped_by": last.stopped_by[0].rule if isinstance(last, Done) and last.stopped_by else "",
        "attempts": len(loop.attempts),
        "best": loop.best or 0,
        "calls": usage.calls,
        "tokens": usage.tokens,
        "updated": stored.updated,
    }


def _document(stored: StoredLoop, explanation: Explanation) -> dict[str, Any]:
    lines = zip(stored.loop.attempts, stored.values, explanation.lines, strict=True)
    return {
        "id": stored.id,
        "state": state_of(stored),
        "task": stored.head.task,
        "goals": stored.head.goals,
        "policy": stored.head.policy,
        "attempts": [
            {
                **codec.to_document(attempt),
                "candidate": value,
                "wrong": line.wrong,
                "decided": line.decided,
                "feedback": _feedback(stored, attempt.number),
            }
            for attempt, value, line in lines
        ],
        "best": stored.loop.best,
        "verdicts": list(map(codec.verdict_to, stored.verdicts)),
        "overrides": list(map(codec.to_document, stored.loop.overrides)),
        "decisions": list(map(_decision, reasoning(stored.loop, stored.decisions))),
        "would_change": [
            {"words": str(change), **{name: getattr(change, name) for name in CHANGE}}
            for change in explanation.would_change
        ],
        "otherwise": explanation.otherwise,
        "usage": codec.to_document(stored.loop.usage),
    }


def _decision(one: Reasoning) -> dict[str, Any]:
    return {**asdict(one), "rerun": one.rerun}


def _feedback(stored: StoredLoop, number: int) -> str:
    """Return what was fed back after an attempt; "" if no attempt followed."""
    again = [one.feedback for one in stored.verdicts if isinstance(one, Again)]
    return again[number - 1] if number <= len(again) else ""


def _print(stored: StoredLoop, explanation: Explanation, exposures: Sequence[Exposure]) -> None:
    loop, usage = stored.loop, stored.loop.usage
    goals = f", goals: {', '.join(map(str, loop.goals))}" if loop.goals else ""
    policy = stored.head.policy.get("name") or "of its own"
    show(f"loop {stored.id}: {state_of(stored)}, policy {policy}{goals}")
    show(f"task: {_text(stored.head.task)}")
    if exposures:
        withheld = sum(not one.shown for one in exposures)
        reason = f", {withheld} withheld to see whether it helps (heedful proof)"
        known = counted(len(exposures) - withheld, "lesson")
        show(f"from memory: {known} shown{reason if withheld else ''}")
    for attempt, value, line in zip(loop.attempts, stored.values, explanation.lines, strict=True):
        _print_attempt(stored, attempt, value)
        show(f"  => {line.decided}")
        if fed := _feedback(stored, attempt.number):
            show("  fed back:\n" + "\n".join(f"  | {part}" for part in fed.splitlines()))
    show()
    for override in loop.overrides:
        until = f", until {when(override.until)}" if override.until else ""
        used = f"used {override.used} of {override.decisions}{until}"
        reason = clean(override.why, CANDIDATE) or "no reason given"
        show(f"override of {override.rule} by {clean(override.by, 60)}: {reason} ({used})")
    if state_of(stored) == "open":
        waiting = "an answer is stored and waits for its checks" if stored.journal else "it waits"
        show(f"open: {waiting}; run it again with --resume")
    elif state_of(stored) == "stopped":
        show(f"kept: attempt {loop.best}" if loop.best else "kept: nothing")
    for way in explanation.ways:
        show(f"would have changed it: {way}")
    show(f"cost: calls {usage.calls}, tokens {usage.tokens}, {usage.seconds:.1f} s")


def _print_attempt(stored: StoredLoop, attempt: Attempt, value: Any) -> None:
    show(f"\nattempt {attempt.number}: {_text(value) or '(empty)'}")
    if attempt.evaluation is None:
        return
    for finding in attempt.evaluation.findings:
        fix = f" -> {clean(finding.fix, CANDIDATE)}" if finding.fix else ""
        level = "" if finding.level == "error" else f" ({finding.level})"
        show(f"  {finding.check}{level}: {clean(finding.message, CANDIDATE)}{fix}")
    for goal in attempt.evaluation.unmet(stored.loop.goals):
        show(f"  goal missed: {goal}, it is {attempt.evaluation.scores[goal.score]:g}")


def _text(value: Any) -> str:
    return clean(value if isinstance(value, str) else jsonlib.dumps(value), CANDIDATE)


def _reason(one: Reasoning) -> str:
    if one.decided == "stopped":
        return f"{one.reason}: {one.detail}"
    reasons = dict.fromkeys(trigger.reason for trigger in one.triggers)
    return "" if one.decided == "passed" else ", ".join(reasons)


def _fatigue(one: Reasoning) -> str:
    change = f" ({one.standing.change:+.2f})" if one.standing.change else ""
    return f"{one.standing.fatigue:.2f}{change}"


DECISIONS: Columns = {
    "loop": "loop",
    "decided": "decided",
    "why": _reason,
    "overridden by": lambda one: ", ".join(f"{each.stop.rule}: {each.by}" for each in one.lifted),
    "attempt": "attempt",
    "fatigue": _fatigue,
    "echoes": lambda one: max(one.standing.echoes.values(), default=0),
    "at": lambda one: when(one.at),
}


def log(
    loop: Annotated[str, typer.Argument(help="The beginning of the loops' ids.")] = "",
    limit: Newest = 20,
    db: Db = None,
    json: Json = False,
) -> int:
    """List decisions with their reasons and overrides.

    Why again, why stopped, which rules were overridden and by whom.
    """

    async def read(memory: Memory) -> list[Reasoning]:
        found = await memory.store.read(memory.scope, loop_store.newest, limit, loop)
        if loop and not found:
            raise NotFound("loop that begins with", loop, memory.store.url)
        return [one for stored in found for one in reasoning(stored.loop, stored.decisions)]

    found = ask(db, read)
    options: dict[str, Any] = {"key": "decisions", "text": 4, "empty": "no decision yet"}
    if emit(found, DECISIONS, json=json, document=_decision, **options):
        show(following("why", found[-1].loop if loop else found[0].loop, db=db))
    return 0


def override(
    loop: Annotated[str, typer.Argument(help="The id of a loop.")],
    rule: Annotated[str, typer.Argument(help="The rule to lift, such as attempts.")],
    by: By,
    why: Why = "",
    decisions: Annotated[
        int, typer.Option(min=1, max=MOST, help="For how many decisions the rule is lifted.")
    ] = 1,
    expires: Annotated[str | None, typer.Option(help="For how long: 30m, 2h, 1d. [no end]")] = None,
    db: Db = None,
    json: Json = False,
) -> int:
    """Let a loop go on past a rule; a loop that was stopped reopens.

    The override and its reason stay on record. `heedful run --resume` continues the loop.
    """
    until = None if expires is None else time.time() + seconds("--expires", expires)
    options: dict[str, Any] = {"by": by, "why": why, "decisions": decisions, "until": until}

    async def lifted(memory: Memory) -> Verdict:
        return await lift(loop, rule, **options, store=memory.store, scope=memory.scope)

    verdict = ask(db, lifted)
    answer(
        {"loop": loop, "rule": rule, **options, **codec.verdict_to(verdict)},
        f"{rule} is lifted for {counted(decisions, 'decision')}; {_outcome(loop, verdict)}",
        following("why", loop, db=db),
        json=json,
    )
    return 0


def _outcome(loop: str, verdict: Verdict) -> str:
    name = clean(loop, 200)
    if not isinstance(verdict, Again):
        stops = ", ".join(stop.rule for stop in verdict.stopped_by)
        return f"loop {name} is still stopped by {stops}"
    run, _, task = loop.rpartition("/")
    if not (run and task):
        return f"loop {name} is open; resume it where it was driven"
    return f"loop {name} is open; heedful run TASKS --run {run} --resume continues it"


def seconds(option: str, text: str) -> float:
    """Parse a time such as 2h or 1d. Raises InvalidInput, which names the option."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd])", text.strip())
    parsed = float(found[1]) * SECONDS[found[2]] if found else 0.0
    if not 0 < parsed <= LONGEST:
        allowed = "a time such as 90s, 30m, 2h or 1d, above 0 and up to 3650d"
        raise InvalidInput(option, text, allowed)
    return parsed
