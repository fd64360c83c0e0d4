"""`heedful ask`, `heedful runs` and what `heedful why` prints of a pipeline's run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from difflib import get_close_matches
from typing import Annotated, Any

import typer

from heedful.cli import settings
from heedful.cli.output import (
    Columns,
    Db,
    Json,
    Newest,
    emit,
    following,
    print_json,
    print_table,
    show,
    table,
    when,
)
from heedful.errors import NotFound, UsageError
from heedful.loop.record import clean, format_score
from heedful.memory.memory import Memory
from heedful.pipeline.questions import (
    AttemptCost,
    Statistics,
    answer,
    describe_run,
    describe_stage,
    find_stage,
    statistics,
)
from heedful.store import loops
from heedful.store.records import StoredLoop
from heedful.store.runs import Report, StageAttempt, StageReport, is_run, report_of

LAST = "last"
LISTED = 10
LOOKED_AT = 200  # loops that begin alike, and loops among which a similar name is looked for
CANDIDATE = 400
TIMELINE = ("stage", "state", "failed", "attempts", "kept", "seconds", "tokens")
COUNTS: Columns = {
    **{name: name for name in ("runs", "failed", "stages", "recovered")},
    "retries": lambda one: one.cost.attempts,
    "seconds": lambda one: f"{one.cost.seconds:.1f}",
    "tokens": lambda one: one.cost.tokens,
}
RUNS: Columns = {
    **{name: name for name in ("run", "pipeline", "state", "passed", "attempts", "retries")},
    "seconds": lambda one: f"{one['seconds']:.1f}",
    "began": lambda one: when(one["began"]),
}


def ask(
    run: Annotated[str, typer.Argument(help="A run's id, its beginning, or `last`.")],
    question: Annotated[str, typer.Argument(help="What to know. [a summary]")] = "",
    db: Db = None,
    json: Json = False,
) -> int:
    """Answer which stages of a pipeline were retried, why, and what was fed back.

    Name the stages in the question; no model is asked. The answer cites the reports.
    """
    report = settings.ask(db, lambda memory: run_of(memory, run))
    found = answer(report, question)
    if json:
        print_json({"pipeline": report.pipeline, "run": report.run, **found.plain()})
        return 0
    show(str(found))
    stages = {fact.stage for fact in found.facts if fact.stage}
    show(f"\n{following('why', report.run, *(stages if len(stages) == 1 else ()), db=db or '')}")
    return 0


def runs(
    pipeline: Annotated[str, typer.Argument(help="Only the runs of this pipeline.")] = "",
    stats: Annotated[
        bool,
        typer.Option("--stats", help="Which checks fail, how often retries help, and their cost."),
    ] = False,
    limit: Newest = 20,
    db: Db = None,
    json: Json = False,
) -> int:
    """List the newest runs of pipelines, or count over them."""

    async def found(memory: Memory) -> list[Report]:
        listed = await newest_runs(memory, limit, pipeline)
        return [await report_of(memory.store, memory.scope, one.id) for one in listed]

    reports = settings.ask(db, found)
    rows = list(map(_run_row, reports))
    if stats and (json or reports):
        counts = statistics(reports)
        if json:
            print_json({"runs": rows, "stats": asdict(counts)})
        else:
            _print_counts(counts)
    else:
        empty = f"no run of a pipeline {pipeline!r}" if pipeline else "no run of a pipeline yet"
        emit(rows, RUNS, json=json, key="runs", text=3, empty=empty)
    if reports and not json:
        show(following("why", reports[0].run, db=db))
    return 0


def _run_row(report: Report) -> dict[str, Any]:
    made = [attempt for stage in report.stages for attempt in stage.attempts]
    return {
        "run": report.run,
        "pipeline": report.pipeline,
        "state": report.status,
        "passed": f"{sum(one.action == 'passed' for one in report.stages)}/{len(report.stages)}",
        "attempts": len(made),
        "retries": sum(max(0, len(one.attempts) - 1) for one in report.stages),
        "seconds": AttemptCost.of(made).seconds,
        "began": report.began,
    }


def _print_counts(counts: Statistics) -> None:
    """Print a table of the checks that failed, and one of the stages."""
    cost = counts.cost
    tokens = f", {cost.tokens} tokens" if cost.tokens else ""
    retries = "1 retry" if cost.attempts == 1 else f"{cost.attempts} retries"
    show(f"runs: {counts.runs}; {retries} took {format_score(cost.seconds)} s{tokens}")
    if failed := [one for one in counts.checks if one.failed]:
        print_table(failed, {"check": "name", **COUNTS}, 1)
    print_table(counts.stages, {"stage": "name", **COUNTS}, 1)
    if never := [clean(one.name, 200) for one in counts.checks if not one.failed]:
        show(f"never failed: {', '.join(never)}")
    show("failed: attempts that failed; stages: those with such an attempt that have ended;")
    show("recovered: those of them that passed; seconds, tokens: those of retries")


# What `heedful why RUN` prints


def tell(report: Report, stage: str | None, db: str, json: bool) -> None:
    """Show a run, or one stage of it by its name or number. Raises UnknownName."""
    chosen = [find_stage(report, stage)] if stage else report.stages
    if json:
        run = {"pipeline": report.pipeline, "run": report.run}
        print_json({**run, **chosen[0].plain()} if stage else report.plain())
        return
    show(describe_run(report))
    if not stage:
        table(TIMELINE, [_stage_row(report, one) for one in chosen], text=3)
    for one in chosen:
        if stage or len(one.attempts) > 1 or one.action != "passed" or _warned(one):
            _tell_stage(report, one, whole=bool(stage))
    show()
    show(following("ask", report.run, _question(report, chosen[0] if stage else None), db=db))


def _stage_row(report: Report, stage: StageReport) -> tuple[object, ...]:
    names = dict.fromkeys(one.check_name for made in stage.attempts for one in made.failed)
    number, took = report.stages.index(stage) + 1, AttemptCost.of(stage.attempts)
    state = ", ".join(dict.fromkeys((stage.status, stage.action))).replace("_", " ")
    kept = stage.kept or "-"
    counts = (len(stage.attempts), kept, f"{took.seconds:.1f}", took.tokens)
    return (f"{number} {stage.name}", state, ", ".join(names), *counts)


def _warned(stage: StageReport) -> bool:
    return any(one.status != "passed" for made in stage.attempts for one in made.checks)


def _tell_stage(report: Report, stage: StageReport, *, whole: bool) -> None:
    show(f"\n{describe_stage(report, stage)}")
    for made in stage.attempts:
        seconds = format_score(made.execution_time_ms / 1000)
        status = made.overall_status.replace("_", " ")
        show(f"  attempt {made.attempt}: {status}, {seconds} s, {made.file}")
        if whole and made.output:
            show(f"    output: {clean(made.output, CANDIDATE)}")
        _tell_checks(made, whole=whole)
        if made.feedback_for_agent and made.attempt < len(stage.attempts):
            lines = (clean(line, CANDIDATE) for line in made.feedback_for_agent.splitlines())
            show("    fed back:")
            for line in lines:
                show(f"    | {line}".rstrip())


def _tell_checks(made: StageAttempt, *, whole: bool) -> None:
    for one in made.checks:
        if one.status == "passed" and not whole:
            continue
        status = one.status.replace("_", " ")
        fix = f" -> {clean(one.suggestion, CANDIDATE)}" if one.suggestion else ""
        said = f": {clean(one.message, CANDIDATE)}" if one.message else ""
        show(f"    {clean(one.check_name, 200)} {status}{said}{fix}")


def _question(report: Report, stage: StageReport | None) -> str:
    """Return an example of a question that can be answered."""
    listed = (stage,) if stage else report.stages
    again = [one for one in listed if len(one.attempts) > 1]
    number = report.stages.index(again[0] if again else listed[0]) + 1 if listed else 0
    if again:
        return f"why was stage {number} retried?"
    return f"what happened in stage {number}?" if number else "did it pass?"


# Loops by name


async def loop_of(memory: Memory, name: str) -> StoredLoop:
    """Return the loop with this id, or the only loop whose id begins so; `last`: the newest run.

    The stages of a run have ids that begin with the run's id; such a beginning means the run.
    Raises NotFound, UsageError.
    """
    try:
        return await memory.store.read(memory.scope, loops.read, name)
    except NotFound as error:
        if name == LAST and (newest := await newest_runs(memory, 1)):
            return newest[0]
        found = await memory.store.read(memory.scope, loops.newest, LOOKED_AT, name)
        if not found:
            raise await _not_found(memory, name, error) from None
    ends = tuple(f"{one.id}/" for one in found if is_run(one))
    found = [one for one in found if not one.id.startswith(ends)] if ends else found
    if len(found) == 1:
        return found[0]
    ids = ", ".join(sorted(one.id for one in found)[:LISTED])
    more = ", …" if len(found) > LISTED else ""
    raise UsageError(f"several loops begin with {name!r}: {ids}{more}; give more of the id")


async def run_of(memory: Memory, name: str) -> Report:
    """Return the run of a pipeline, found as `loop_of` does. Raises NotFound, UsageError."""
    found = await loop_of(memory, name)
    if not is_run(found):
        hint = f"heedful why {found.id} explains it, heedful runs lists runs"
        raise UsageError(f"loop {found.id!r} is not the run of a pipeline; {hint}")
    return await report_of(memory.store, memory.scope, found.id)


async def newest_runs(memory: Memory, limit: int, pipeline: str = "") -> list[StoredLoop]:
    """Return the newest runs, newest first; those of one pipeline if its name is given."""
    most = 8 * limit
    while True:
        found = await memory.store.read(memory.scope, loops.newest, most)
        runs = [one for one in found if is_run(one)]
        runs = [one for one in runs if pipeline in ("", one.head.task["pipeline"])]
        if len(runs) >= limit or len(found) < most:
            return runs[:limit]
        most *= 4


async def _not_found(memory: Memory, name: str, error: NotFound) -> NotFound:
    """Return the error for an unknown name, with the ids that are similar."""
    if name == LAST:
        where = f"{memory.store.url}; no pipeline has run in this scope"
        return NotFound("loop", name, where)
    newest: Sequence[StoredLoop] = await memory.store.read(memory.scope, loops.newest, LOOKED_AT)
    near = get_close_matches(name, [one.id for one in newest], n=3)
    hint = f"there is {', '.join(near)}" if near else "heedful loops and heedful runs list them"
    return NotFound("loop", name, f"{error.where}; {hint}")
