"""Show a run of a pipeline stage by stage: what failed, what was fed back, how it ended."""

from __future__ import annotations

from heedful.cli.output import following, print_json, show, table
from heedful.loop.feedback import clean
from heedful.loop.record import format_score
from heedful.pipeline.questions import AttemptCost, describe_run, describe_stage, find_stage
from heedful.store.runs import AttemptReport, Report, StageReport

CANDIDATE = 400
HEADS = ("stage", "state", "failed", "attempts", "kept", "seconds", "tokens")


def tell(report: Report, stage: str | None, db: str, json: bool) -> None:
    """Show a run, or one stage of it by its name or number. Raises UnknownName."""
    chosen = [find_stage(report, stage)] if stage else report.stages
    if json:
        run = {"pipeline": report.pipeline, "run": report.run}
        print_json({**run, **chosen[0].plain()} if stage else report.plain())
        return
    show(describe_run(report))
    if not stage:
        table(HEADS, [_row(report, one) for one in chosen], text=3)
    for one in chosen:
        if stage or len(one.attempts) > 1 or one.action != "passed" or _warned(one):
            _tell_stage(report, one, whole=bool(stage))
    show()
    show(following("ask", report.run, _question(report, chosen[0] if stage else None), db=db))


def _row(report: Report, stage: StageReport) -> tuple[object, ...]:
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


def _tell_checks(made: AttemptReport, *, whole: bool) -> None:
    for one in made.checks:
        if one.status == "passed" and not whole:
            continue
        status = one.status.replace("_", " ")
        fix = f" -> {clean(one.suggestion, CANDIDATE)}" if one.suggestion else ""
        said = f": {clean(one.message, CANDIDATE)}" if one.message else ""
        show(f"    {clean(one.check_name, 200)} {status}{said}{fix}")


def _question(report: Report, stage: StageReport | None) -> str:
    """A question that has an answer here."""
    listed = (stage,) if stage else report.stages
    again = [one for one in listed if len(one.attempts) > 1]
    number = report.stages.index(again[0] if again else listed[0]) + 1 if listed else 0
    if again:
        return f"why was stage {number} retried?"
    return f"what happened in stage {number}?" if number else "did it pass?"
