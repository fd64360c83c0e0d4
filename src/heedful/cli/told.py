"""`heedful why`, `loops`, `lessons`, `seen` and `recall`: what is stored, told."""

from __future__ import annotations

import json as jsonlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from heedful.cli.found import loop_of
from heedful.cli.opening import ask
from heedful.cli.output import (
    MOST,
    Db,
    Json,
    counted,
    following,
    print_json,
    show,
    table,
    when,
)
from heedful.cli.reembed import spaces_to, warn
from heedful.cli.timeline import tell
from heedful.errors import UsageError
from heedful.lessons.lesson import Exposure, Match
from heedful.loop import codec
from heedful.loop.decide import Again, Done, reasoning
from heedful.loop.explain import Change, Explanation
from heedful.loop.feedback import clean
from heedful.memory.memory import Memory, Spaces
from heedful.reports import Report
from heedful.runs import is_run, report_of
from heedful.store import exposures as exposure_store
from heedful.store import loops as loop_store
from heedful.store.history import explained, state_of
from heedful.store.records import StoredLoop

CANDIDATE = 400
COLUMNS = ("id", "state", "stopped_by", "attempts", "best", "calls", "tokens", "updated")
HIDDEN = "(held back)"
FACTS = ("id", "seen", "helped", "hurt", "examples")
WORDS = 200
MOST_BYTES = 1_000_000


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
    """Explain a loop: why again, and why it stopped; or the run of a pipeline.

    Shows its attempts, what was wrong, what was fed back, and what would have changed the end.
    """

    async def asked(memory: Memory) -> Report | tuple[StoredLoop, Sequence[Exposure]]:
        one = await loop_of(memory, loop)
        if is_run(one):
            return await report_of(memory.store, memory.scope, one.id)
        if stage is not None:
            raise UsageError(f"loop {one.id!r} is no run of a pipeline: it has no stage {stage!r}")
        return one, (await memory.store.read(memory.scope, exposure_store.past, one.id)).exposures

    found = ask(db, asked)
    if isinstance(found, Report):
        tell(found, stage, db or "", json)
        return 0
    stored, exposures = found
    explanation = explained(stored)
    if json:
        ranked = [asdict(one) for one in exposures]
        print_json({**_document(stored, explanation), "exposures": ranked})
    else:
        _print(stored, explanation, exposures)
    return 0


def loops(
    run: Annotated[str, typer.Option("--run", help="Only the loops of this run.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="How many, the newest first.")] = 50,
    db: Db = None,
    json: Json = False,
) -> int:
    """List the newest loops; open ones run or were interrupted."""
    prefix = f"{run}/" if run else ""
    found = ask(
        db, lambda memory: memory.store.read(memory.scope, loop_store.newest, limit, prefix)
    )
    rows = [_row(one) for one in found]
    if json:
        print_json({"loops": [dict(zip(COLUMNS, row, strict=True)) for row in rows]})
    elif rows:
        heads = ("loop", "state", "stopped by", *COLUMNS[3:])
        table(heads, [(*row[:-1], when(row[-1])) for row in rows], text=3)
    else:
        show("no loop yet" if not run else f"no loop of a run {run!r}")
    return 0


def _row(stored: StoredLoop) -> tuple[Any, ...]:
    last = stored.verdicts[-1] if stored.verdicts else None
    rule = last.stopped_by[0].rule if isinstance(last, Done) and last.stopped_by else ""
    loop, usage = stored.loop, stored.loop.usage
    counts = (len(loop.attempts), loop.best or 0, usage.calls, usage.tokens)
    return (stored.id, state_of(stored), rule, *counts, stored.updated)


def _document(stored: StoredLoop, explanation: Explanation) -> dict[str, Any]:
    attempts = [
        {
            **codec.to_document(attempt),
            "candidate": value,
            "wrong": line.wrong,
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
        "goals": stored.head.goals,
        "policy": stored.head.policy,
        "attempts": attempts,
        "best": stored.loop.best,
        "verdicts": [codec.verdict_to(one) for one in stored.verdicts],
        "overrides": [codec.to_document(one) for one in stored.loop.overrides],
        "decisions": [
            {**asdict(one), "rerun": one.rerun} for one in reasoning(stored.loop, stored.decisions)
        ],
        "would_change": [_change(change) for change in explanation.would_change],
        "otherwise": explanation.otherwise,
        "usage": codec.to_document(stored.loop.usage),
    }


def _change(change: Change) -> dict[str, Any]:
    words = {"words": str(change), "what": change.what, "outcome": change.outcome}
    return {**words, "was": change.was, "to": change.to}


def _feedback(stored: StoredLoop, number: int) -> str:
    """What the attempt after this one was told; "" where none followed or nothing was said."""
    said = [one.feedback for one in stored.verdicts if isinstance(one, Again)]
    return said[number - 1] if number <= len(said) else ""


def _print(stored: StoredLoop, explanation: Explanation, exposures: Sequence[Exposure]) -> None:
    loop, usage = stored.loop, stored.loop.usage
    goals = f", goals: {', '.join(map(str, loop.goals))}" if loop.goals else ""
    policy = stored.head.policy.get("name") or "of its own"
    show(f"loop {stored.id}: {state_of(stored)}, policy {policy}{goals}")
    show(f"task: {_text(stored.head.task)}{_ranked(exposures)}")
    for attempt, value, line in zip(loop.attempts, stored.values, explanation.lines, strict=True):
        show(f"\nattempt {attempt.number}: {_text(value) or '(empty)'}")
        if attempt.evaluation is not None:
            for finding in attempt.evaluation.findings:
                fix = f" -> {clean(finding.fix, CANDIDATE)}" if finding.fix else ""
                level = "" if finding.level == "error" else f" ({finding.level})"
                show(f"  {finding.check}{level}: {clean(finding.message, CANDIDATE)}{fix}")
            for goal in attempt.evaluation.unmet(loop.goals):
                score = attempt.evaluation.scores[goal.score]
                show(f"  goal missed: {goal}, it is {score:g}")
        show(f"  => {line.decided}")
        if told := _feedback(stored, attempt.number):
            show("  fed back:\n" + "\n".join(f"  | {part}" for part in told.splitlines()))
    show()
    for override in loop.overrides:
        until = f", until {when(override.until)}" if override.until else ""
        used = f"used {override.used} of {override.decisions}{until}"
        why = clean(override.why, CANDIDATE) or "no reason given"
        show(f"override of {override.rule} by {clean(override.by, 60)}: {why} ({used})")
    if state_of(stored) == "open":
        waiting = "an answer is stored and waits for its checks" if stored.journal else "it waits"
        show(f"open: {waiting}; run it again with --resume")
    elif state_of(stored) == "stopped":
        show(f"kept: attempt {loop.best}" if loop.best else "kept: nothing")
    for way in explanation.ways:
        show(f"would have changed it: {way}")
    show(f"cost: calls {usage.calls}, tokens {usage.tokens}, {usage.seconds:.1f} s")


def _ranked(exposures: Sequence[Exposure]) -> str:
    """What memory had to say to the loop, as a line of its own."""
    if not exposures:
        return ""
    spared = sum(not one.shown for one in exposures)
    why = f", {spared} withheld to see whether it helps (heedful proof)" if spared else ""
    return f"\nfrom memory: {counted(len(exposures) - spared, 'lesson')} shown{why}"


def _text(value: Any) -> str:
    return clean(value if isinstance(value, str) else jsonlib.dumps(value), CANDIDATE)


def lessons(
    limit: Annotated[
        int, typer.Option(min=1, max=MOST, help="How many, the most seen first.")
    ] = 50,
    db: Db = None,
    json: Json = False,
) -> int:
    """List what was learnt, most often seen first, without the words of what is held back."""
    found = ask(db, lambda memory: memory.top(limit))
    if json:
        print_json({"lessons": found})
    elif found:
        rows = [
            (
                *(clean(one["text"], WORDS) or HIDDEN, one["kind"], _state(one), one["trust"]),
                *(one[fact] for fact in FACTS),
                when(one["last_seen"]),
            )
            for one in found
        ]
        table(("lesson", "kind", "state", "trust", *FACTS, "last seen"), rows, text=4)
        if any(not one["text"] for one in found):
            show(following("quarantine", "list", db=db or ""))
    else:
        show("nothing was learnt in this scope yet")
    return 0


def seen(
    error_type: Annotated[str, typer.Argument(help="The kind of error, as KeyError.")],
    text: Annotated[str, typer.Argument(help="Its text; - reads it from standard input.")],
    db: Db = None,
    json: Json = False,
) -> int:
    """Say whether an error was seen before.

    Like grep, it exits 0 where it was and 1 where it was not.
    """
    from heedful.lessons.signature import signature

    given = _given(text)
    mark = signature(error_type, given)
    found = ask(db, lambda memory: memory.seen(error_type, given))
    if json:
        group = found.group and asdict(found.group)
        known = {"seen": found.count, "signature": mark.digest, "pattern": mark.pattern}
        print_json({**known, "group": group, "lessons": found.lessons})
        return 0 if found else 1
    show(f"seen: {found.count}  {mark.digest}  {clean(mark.pattern, WORDS)}")
    if found.group is not None:
        members = counted(len(found.group.members), "pattern")
        show(f"  {members} merged as: {clean(found.group.template, WORDS)}")
        for why in found.group.why:
            show(f"    {clean(why, WORDS)}")
    for one in found.lessons:
        show(f"  {_state(one)}, {one['trust']}, {_worth(one)}: {clean(one['text'], WORDS)}")
    if found.group is not None:
        show(following("patterns", "list", error_type, db=db or ""))
    return 0 if found else 1


def _state(lesson: Mapping[str, Any]) -> str:
    return f"{lesson['state']}, pinned" if lesson["pinned"] else str(lesson["state"])


def _worth(lesson: Mapping[str, Any]) -> str:
    """How often it was seen, and in how many loops that it was shown in it helped or hurt."""
    seen = f"seen {lesson['seen']}"
    if not lesson["last_shown"]:
        return f"{seen}, never shown"
    return f"{seen}, helped {lesson['helped']}, hurt {lesson['hurt']}"


def recall(
    task: Annotated[str, typer.Argument(help="The task; - reads it from standard input.")],
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="How many examples at most.")] = 5,
    db: Db = None,
    json: Json = False,
) -> int:
    """Show which accepted answers a task brings back."""
    given = _given(task)

    async def recalled(memory: Memory) -> tuple[Sequence[Match], Spaces | None]:
        found = await memory.recall(given, limit)
        return found, await memory.spaces() if memory.embedder is not None else None

    found, spaces = ask(db, recalled)
    if spaces is not None:
        warn(spaces, db or "")
    if json:
        where = None if spaces is None else spaces_to(spaces)
        print_json({"examples": [asdict(one) for one in found], "spaces": where})
        return 0
    for one in found:
        _print_example(one)
    if not found:
        show("nothing related")
    return 0


def _given(text: str) -> str:
    """The text, of `-` standard input's first 1,000,000 bytes; what is not UTF-8 is replaced."""
    return sys.stdin.buffer.read(MOST_BYTES).decode("utf-8", "replace") if text == "-" else text


def _print_example(one: Match) -> None:
    how = "verified" if one.verified else "not verified"
    near = f"cosine {one.cosine:.2f}" if one.cosine is not None else "by its words"
    show(f"{one.kind}, {how}, {near}, seen {one.seen}")
    show(f"  task:     {clean(one.example.task, WORDS)}")
    if one.example.rejected:
        show(f"  rejected: {clean(one.example.rejected, WORDS)}")
    if one.example.accepted:
        show(f"  accepted: {clean(one.example.accepted, WORDS)}")
    elif one.lesson not in ("", one.example.task):
        show(f"  lesson:   {clean(one.lesson, WORDS)}")
