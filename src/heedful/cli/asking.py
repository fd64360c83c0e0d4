"""`heedful ask` and `heedful runs`: what pipelines' runs came to, and why."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli.found import newest_runs, run_of
from heedful.cli.opening import ask as asked
from heedful.cli.output import MOST, Db, Json, following, print_json, show, table, when
from heedful.lessons.proof import Estimate
from heedful.loop.feedback import clean
from heedful.loop.record import format_score
from heedful.pipeline.questions import AttemptCost, CheckCount, Statistics, answer, statistics
from heedful.store.runs import Report, report_of

if TYPE_CHECKING:
    from heedful.memory.memory import Memory

RUNS = ("run", "pipeline", "state", "passed", "attempts", "retries", "seconds", "began")
CHECKS = ("check", "judged", "failed", "share failed", "stages", "recovered", "share recovered")
STAGES = ("stage", "runs", "passed", "degraded", "attempts", "retries", "seconds", "tokens")


def ask(
    run: Annotated[str, typer.Argument(help="A run's id, its beginning, or `last`.")],
    question: Annotated[str, typer.Argument(help="What to know. [a summary]")] = "",
    db: Db = None,
    json: Json = False,
) -> int:
    """Answer why a stage of a pipeline was retried, what was fed back, and how it ended.

    The question is understood by its keywords, without a model. The answer cites the reports.
    """
    report = asked(db, lambda memory: run_of(memory, run))
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
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="How many, the newest first.")] = 20,
    db: Db = None,
    json: Json = False,
) -> int:
    """List the newest runs of pipelines, or count over them."""

    async def found(memory: Memory) -> list[Report]:
        listed = await newest_runs(memory, limit, pipeline)
        return [await report_of(memory.store, memory.scope, one.id) for one in listed]

    reports = asked(db, found)
    counts = statistics(reports)
    if json:
        listed = [dict(zip(RUNS, _row(one), strict=True)) for one in reports]
        print_json({"runs": listed, **({"stats": asdict(counts)} if stats else {})})
        return 0
    if not reports:
        show(f"no run of a pipeline {pipeline!r}" if pipeline else "no run of a pipeline yet")
        return 0
    if stats:
        _print_counts(counts)
    else:
        rows = [_row(one) for one in reports]
        table(RUNS, [(*row[:-2], f"{row[-2]:.1f}", when(row[-1])) for row in rows], text=3)
    show(following("why", reports[0].run, db=db or ""))
    return 0


def _row(report: Report) -> tuple[Any, ...]:
    passed = sum(one.action == "passed" for one in report.stages)
    attempts = sum(len(one.attempts) for one in report.stages)
    again = sum(max(0, len(one.attempts) - 1) for one in report.stages)
    seconds = AttemptCost.of(made for one in report.stages for made in one.attempts).seconds
    counts = (f"{passed}/{len(report.stages)}", attempts, again, seconds)
    return (report.run, report.pipeline, report.status, *counts, report.began)


def _print_counts(counts: Statistics) -> None:
    """One table of checks, one of stages."""
    cost = counts.cost
    tokens = f", {cost.tokens} tokens" if cost.tokens else ""
    retries = "1 retry" if cost.attempts == 1 else f"{cost.attempts} retries"
    show(f"runs: {counts.runs}; {retries} took {format_score(cost.seconds)} s{tokens}")
    failed = [one for one in counts.checks if one.failed]
    if failed:
        table((*CHECKS, "retries", "seconds", "tokens"), map(_counts, failed))
    rows_of_stages = [
        (one.name, one.runs, one.passed, one.degraded, one.attempts, *_worth(one.cost))
        for one in counts.stages
    ]
    table(STAGES, rows_of_stages)
    if never := [clean(one.name, 200) for one in counts.checks if not one.failed]:
        show(f"never failed: {', '.join(never)}")
    show("share: with its 95 % interval; stages: those in which the check failed at an attempt")
    show("recovered: those of them that passed in the end; seconds, tokens: those of retries")


def _counts(one: CheckCount) -> tuple[Any, ...]:
    judged = (one.name, one.judged, one.failed, _share(one.share))
    return (*judged, one.stages, one.recovered, _share(one.success), *_worth(one.cost))


def _share(found: Estimate | None) -> str:
    if found is None:
        return "-"
    value, low, high = (f"{100 * one:.0f}" for one in (found.value, found.low, found.high))
    return f"{value}% ({low}..{high})"


def _worth(cost: AttemptCost) -> tuple[int, str, int]:
    return cost.attempts, f"{cost.seconds:.1f}", cost.tokens
