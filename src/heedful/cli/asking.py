"""`heedful ask` and `heedful runs`: what pipelines' runs came to, and why."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.answers import retries
from heedful.cli.loops import newest_runs, run_of
from heedful.cli.output import (
    MOST,
    Db,
    Json,
    following,
    print_json,
    report_error,
    show,
    table,
    when,
)
from heedful.cli.progress import Progress, drive
from heedful.cli.settings import Settings, model_of, settings
from heedful.cli.settings import ask as asked
from heedful.errors import HeedfulError
from heedful.lessons.proof import Estimate
from heedful.loop.feedback import clean
from heedful.loop.record import shown
from heedful.memory.memory import Memory
from heedful.phrasing import Phrased, phrased
from heedful.questions import Facts, facts
from heedful.reports import Report
from heedful.retries import CheckCount, Extra, Statistics, statistics
from heedful.runs import report_of

RUNS = ("run", "pipeline", "state", "passed", "attempts", "retries", "seconds", "began")
CHECKS = ("check", "judged", "failed", "share failed", "stages", "mended", "share mended")
STAGES = ("stage", "runs", "passed", "degraded", "attempts", "retries", "seconds", "tokens")

Phraser = Annotated[
    str | None, typer.Option("--model", help="A model that puts the facts into words. [none]")
]


def ask(
    ctx: typer.Context,
    run: Annotated[str, typer.Argument(help="A run's id, its beginning, or `last`.")],
    question: Annotated[str, typer.Argument(help="What to know. [a summary]")] = "",
    model: Phraser = None,
    db: Db = None,
    json: Json = False,
) -> int:
    """Answer a question about the run of a pipeline with cited facts.

    It is understood by its keywords, no model is asked. With --model one puts the facts into
    words, below them; what cites no fact, or has a number that the facts have not, is not shown.
    """
    report = asked(db, lambda memory: run_of(memory, run))
    found = facts(report, question)
    document = {"pipeline": report.pipeline, "run": report.run, **found.plain()}
    if not json:
        show(str(found))
    said: Phrased | None = None
    if model is not None:
        try:
            said = _phrased(found, settings(model=model, db=db))
        except HeedfulError as error:
            debug = "--debug" in (ctx.obj or ())
            return report_error(error, json=json, debug=debug, **(document if json else {}))
    if json:
        print_json({**document, "phrased": said and {"model": model, **asdict(said)}})
        return 0
    if said is not None:
        words = said.text or f"what {model} wrote is not shown: {said.why}; the facts stand"
        show(f"\n{words}")
    stages = {one.stage for one in found.facts if one.stage}
    show(f"\n{following('why', report.run, *(stages if len(stages) == 1 else ()), db=db or '')}")
    return 0


def _phrased(found: Facts, values: Settings) -> Phrased:
    sys.path.insert(0, str(Path.cwd()))  # a model may be named module:function

    async def said(progress: Progress) -> Phrased:
        async with model_of(values, progress.fetched) as model:
            return await phrased(found, model)

    with Progress() as progress:
        return drive(said(progress))


def runs(
    pipeline: Annotated[str, typer.Argument(help="Only the runs of this pipeline.")] = "",
    stats: Annotated[
        bool, typer.Option("--stats", help="Which checks fail, and what retries mend and cost.")
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
        print_json({"runs": listed, **({"stats": counts.plain()} if stats else {})})
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
    seconds = Extra().plus(made for one in report.stages for made in one.attempts).seconds
    counts = (f"{passed}/{len(report.stages)}", attempts, again, seconds)
    return (report.run, report.pipeline, report.status, *counts, report.began)


def _print_counts(counts: Statistics) -> None:
    """One table of checks, one of stages."""
    cost = counts.cost
    tokens = f", {cost.tokens} tokens" if cost.tokens else ""
    spent = f"{retries(cost.attempts)} took {shown(cost.seconds)} s{tokens}"
    show(f"runs: {counts.runs}; {spent}")
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
    show("mended: those of them that passed in the end; retries, seconds, tokens: beyond the first")


def _counts(one: CheckCount) -> tuple[Any, ...]:
    judged = (one.name, one.judged, one.failed, _share(one.share))
    return (*judged, one.stages, one.recovered, _share(one.success), *_worth(one.cost))


def _share(found: Estimate | None) -> str:
    if found is None:
        return "-"
    value, low, high = (f"{100 * one:.0f}" for one in (found.value, found.low, found.high))
    return f"{value}% ({low}..{high})"


def _worth(cost: Extra) -> tuple[int, str, int]:
    return cost.attempts, f"{cost.seconds:.1f}", cost.tokens
