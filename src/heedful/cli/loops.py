"""`heedful why`, `ask`, `runs`, `loops`, `log` and `override`: stored loops and
pipeline runs.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict, replace
from typing import Annotated, Any

from typer import Argument, Option

from heedful.cli import settings
from heedful.cli.output import (
    TextTable,
    answer,
    call,
    columns,
    counted,
    emit,
    following,
    page,
)
from heedful.errors import NotFound, UsageError
from heedful.loop import codec
from heedful.loop.decide import (
    Again,
    Done,
    Reasoning,
    latest_verdict,
    reasoning,
    state_after,
)
from heedful.loop.record import format_score
from heedful.loop.runs import Report
from heedful.memory.memory import Memory
from heedful.pages import markdown, questions
from heedful.sanitize import clean
from heedful.store import loops
from heedful.store.records import StoredLoop
from heedful.store.runs import report_of

MAX_AMBIGUOUS_IDS = 10
MAX_TASK_CELL_CHARS = 80
MAX_CANDIDATE_CHARS = 400  # characters of a candidate that are shown


def why(
    loop: Annotated[
        str, Argument(help="The id of a loop or run, its beginning, or `last`.")
    ],
    stage: Annotated[
        str | None, Argument(help="The name or number of a stage.")
    ] = None,
) -> int:
    """Explain why a loop, or a run of a pipeline, continued and why it stopped.

    It shows the attempts, what was wrong, the feedback, and what would have changed the
    result.
    """

    async def read(memory: Memory) -> Report | StoredLoop:
        newest, _ = await memory.store.read(
            memory.scope, loops.newest, int(loop == "last")
        )
        if loop == "last" and not newest:
            raise NotFound("loop", loop, f"{settings.where()}, which has no loop yet")
        stored = await loop_of(memory, newest[0].id if newest else loop)
        if stored.head.stage is not None and newest:
            stored = await loop_of(memory, stored.head.stage.run)
        if stored.is_run:
            return await report_of(memory.store, memory.scope, stored.id)
        if stage is not None:
            raise UsageError(
                f"loop {stored.id!r} is not a run of a pipeline: it has no stages"
            )
        return stored

    found = settings.ask(read)
    if not isinstance(found, Report):
        explanation = found.explain()
        known = {"stored": found, "explanation": explanation, "text": _text}
        state = state_after(latest_verdict(found.decisions))
        made = ((one.attempt, one.verdict) for one in found.decisions)
        fed = {
            number: verdict.feedback
            for number, verdict in made
            if isinstance(verdict, Again)
        }
        document = dict[str, Any]()
        if call().json:
            from heedful.service.schemas import explanation_record, loop_record

            document = {**loop_record(found), **explanation_record(explanation)}
        return answer(document, page("why", **known, state=state, fed=fed))
    one = questions.find_stage(found, stage) if stage else None
    about = (
        questions.describe_stage(found, one) if one else questions.describe_run(found)
    )
    said = markdown(replace(found, stages=(one,)) if one else found, escape=False)
    run = {"pipeline": found.pipeline, "run": found.run}
    document = run | one.plain() if one else found.plain()
    return answer(document, f"{about}\n\n{said}", following("ask", found.run))


def _text(value: Any) -> str:
    return clean(
        value if isinstance(value, str) else json.dumps(value), MAX_CANDIDATE_CHARS
    )


async def loop_of(memory: Memory, name: str) -> StoredLoop:
    """Return the loop with the id `name`, or the only loop whose id begins with `name`.

    `last` is the newest run; a run comes before its own stages. Raises NotFound,
    UsageError.
    """
    try:
        return await memory.store.read(memory.scope, loops.read, name)
    except NotFound as error:
        if name == "last":
            if runs := await newest_runs(memory, 1):
                return runs[0]
            raise NotFound("run of a pipeline", name, settings.where()) from None
        found, _ = await memory.store.read(
            memory.scope, loops.newest, limit=200, prefix=name
        )
        if not found:
            hint = "heedful loops and heedful runs list them"
            raise NotFound("loop", name, f"{error.where}; {hint}") from None
    ends = tuple(f"{one.id}/" for one in found if one.is_run)
    found = [one for one in found if not one.id.startswith(ends)] if ends else found
    if len(found) == 1:
        return await memory.store.read(memory.scope, loops.read, found[0].id)
    ids = ", ".join(sorted(one.id for one in found)[:MAX_AMBIGUOUS_IDS])
    more = ", …" if len(found) > MAX_AMBIGUOUS_IDS else ""
    raise UsageError(
        f"several loops begin with {name!r}: {ids}{more}; give more of the id"
    )


async def newest_runs(
    memory: Memory, limit: int, pipeline: str = ""
) -> list[StoredLoop]:
    """Return the newest runs, newest first, of the named pipeline or of all
    pipelines.
    """
    most = 8 * limit
    while True:
        found, _ = await memory.store.read(memory.scope, loops.newest, most)
        runs = [
            one
            for one in found
            if one.is_run and pipeline in ("", one.head.task["pipeline"])
        ]
        if len(runs) >= limit or len(found) < most:
            return runs[:limit]
        most *= 4


def ask(
    run: Annotated[str, Argument(help="The id of a run, its beginning, or `last`.")],
    question: Annotated[str, Argument(help="The question. [a summary]")] = "",
) -> int:
    """Answer a question about a run of a pipeline, such as why a stage was retried.

    heedful looks for keywords in the question; it asks no model. The answer cites the
    run's reports.
    """

    async def read(memory: Memory) -> Report:
        stored = await loop_of(memory, run)
        if not stored.is_run:
            hint = f"heedful why {stored.id} explains it, heedful runs lists runs"
            raise UsageError(f"loop {stored.id!r} is not the run of a pipeline; {hint}")
        return await report_of(memory.store, memory.scope, stored.id)

    report = settings.ask(read)
    found = questions.answer(report, question)
    stages = {fact.stage for fact in found.facts if fact.stage}
    then = following("why", report.run, *(stages if len(stages) == 1 else ()))
    record = {"pipeline": report.pipeline, "run": report.run, **found.plain()}
    return answer(record, f"{found}\n", then)


RUN_COLUMNS = columns("run pipeline state passed attempts retries seconds began")
CHECK_COLUMNS = columns("check runs failed stages recovered", check="name")
CHECK_COLUMNS_LEGEND = """\
failed: attempts that failed; stages: ended stages with a failed attempt; recovered: such stages
that passed"""


def runs(
    pipeline: Annotated[str, Argument(help="Only the runs of this pipeline.")] = "",
    stats: Annotated[
        bool, Option("--stats", help="Also count failures and costs.")
    ] = False,
    limit: settings.Limit = 20,
) -> int:
    """List the newest runs of pipelines. With --stats, also count failures, retries and
    costs.
    """

    async def read(memory: Memory) -> list[Report]:
        listed = await newest_runs(memory, limit, pipeline)
        return [await report_of(memory.store, memory.scope, one.id) for one in listed]

    reports = settings.ask(read)
    rows = list(map(_run_row, reports))
    then = following("why", reports[0].run) if reports else ""
    empty = (
        f"no run of a pipeline{f' {pipeline!r}' if pipeline else ''} in "
        f"{settings.where()}"
    )
    if not stats:
        return emit(rows, RUN_COLUMNS, key="runs", text=3, empty=empty, then=then)
    counts = questions.statistics(reports)
    retries = "1 retry" if counts.retries == 1 else f"{counts.retries} retries"
    cost = f"{format_score(counts.seconds)} s, {counts.tokens} tokens"
    failed = [one for one in counts.checks if one.failed]
    table = [TextTable(CHECK_COLUMNS, failed), CHECK_COLUMNS_LEGEND] if failed else []
    lines = (f"runs: {counts.runs}; {retries} took {cost}", *table, then)
    return answer({"runs": rows, "stats": counts}, *(lines if reports else [empty]))


def _run_row(report: Report) -> dict[str, Any]:
    made = [attempt for stage in report.stages for attempt in stage.attempts]
    passed = sum(stage.action == "passed" for stage in report.stages)
    row: dict[str, Any] = {
        "run": report.run,
        "pipeline": report.pipeline,
        "state": report.status,
    }
    row |= {"passed": f"{passed}/{len(report.stages)}", "attempts": len(made)}
    row["retries"] = sum(max(0, len(stage.attempts) - 1) for stage in report.stages)
    return row | {"seconds": questions.cost(made)[1], "began": report.began}


def _short(id: str) -> str:
    """Return the beginning of an id that heedful made up, which is enough to name the
    loop.
    """
    return re.sub(r"\A([0-9a-f]{8})[0-9a-f]{24}\Z", r"\1", id)


LOOP_COLUMNS = columns(
    "loop task state stopped_by attempts best calls tokens updated",
    loop=lambda row: _short(row["id"]),
    task=lambda row: clean(
        _text(row["task"]["pipeline"] if row["kind"] == "run" else row["task"]),
        MAX_TASK_CELL_CHARS,
    ),
    stopped_by=lambda row: ", ".join(row["stopped_by"][:1]),
    best=lambda row: row["best"] or 0,
)


def list_loops(limit: settings.Limit = 50) -> int:
    """List the newest loops with their tasks. An open loop still runs, or was
    interrupted.
    """
    found, _ = settings.ask(
        lambda memory: memory.store.read(memory.scope, loops.newest, limit)
    )
    rows = [
        {**one.summary(), "task": one.head.task, "kind": one.head.kind} for one in found
    ]
    return emit(
        rows, LOOP_COLUMNS, key="loops", text=4, empty=f"no loop in {settings.where()}"
    )


DECISION_COLUMNS = columns(
    "loop decided why overridden_by attempt fatigue echoes at",
    loop=lambda one: _short(one.loop),
    why=lambda one: (
        f"{one.reason}: {one.detail}"
        if one.decided == "stopped"
        else ", ".join(dict.fromkeys(trigger.reason for trigger in one.triggers))
    ),
    overridden_by=lambda one: ", ".join(
        f"{each.rule}: {each.by}" for each in one.lifted
    ),
    fatigue=lambda one: (
        f"{one.standing.fatigue:.2f}"
        + (f" ({one.standing.change:+.2f})" if one.standing.change else "")
    ),
    echoes=lambda one: max(one.standing.echoes.values(), default=0),
)


def log(
    loop: Annotated[str, Argument(help="Only loops whose ids begin with this.")] = "",
    limit: settings.Limit = 20,
) -> int:
    """List decisions: why a loop continued or stopped, and who overrode which rule."""

    async def read(memory: Memory) -> list[StoredLoop]:
        found, _ = await memory.store.read(memory.scope, loops.newest, limit, loop)
        if loop and not found:
            raise NotFound("loop that begins with", loop, memory.store.url)
        return found

    stored = settings.ask(read)
    told = {one.id: one.briefing for one in stored if one.briefing}
    found = [made for one in stored for made in reasoning(one.loop, one.decisions)]
    then = following("why", found[-1 if loop else 0].loop) if found else ""
    shown = dict(DECISION_COLUMNS)
    if told:
        shown["memory"] = lambda one: told[one.loop].summary if one.loop in told else ""

    def document(one: Reasoning) -> dict[str, Any]:
        brief = told[one.loop].plain() if one.loop in told else None
        return {**asdict(one), "rerun": one.rerun, "briefing": brief}

    empty = f"no decision in {settings.where()}"
    return emit(
        found, shown, key="decisions", text=4, empty=empty, then=then, document=document
    )


def override(
    loop: Annotated[str, Argument(help="The id of a loop, or its beginning.")],
    rule: Annotated[str, Argument(help="The rule to suspend, such as attempts.")],
    by: settings.By,
    why: settings.Why = "",
    decisions: Annotated[
        int,
        Option(min=1, max=settings.MAX_OPTION_INTEGER, help="For how many decisions."),
    ] = 1,
    expires: Annotated[
        str | None, Option(help="For how long: 30m, 2h, 1d. [no end]")
    ] = None,
) -> int:
    """Suspend a stop rule for a loop. If the rule stopped the loop, the loop opens
    again.

    The override and its reason are recorded. `heedful run --resume` continues the loop.
    """
    from heedful.drive.report import override as lift

    until = (
        None
        if expires is None
        else time.time() + settings.seconds("--expires", expires)
    )
    options: Any = {"by": by, "why": why, "decisions": decisions, "until": until}
    stored = settings.ask(lambda memory: loop_of(memory, loop))
    verdict = settings.ask(
        lambda memory: lift(
            stored.id, rule, **options, store=memory.store, scope=memory.scope
        )
    )
    run, _, task = stored.id.rpartition("/")
    end = "is open; resume it in the program that ran it"
    if isinstance(verdict, Done):
        end = (
            f"is still stopped by {', '.join(stop.rule for stop in verdict.stopped_by)}"
        )
    elif run and task:
        end = f"is open; heedful run TASKS --run {run} --resume continues it"
    lifted = f"{rule} is suspended for {counted(decisions, 'decision')}"
    document = {"loop": stored.id, "rule": rule, **options, **codec.verdict_to(verdict)}
    words = f"{lifted}; loop {clean(stored.id, 200)} {end}"
    return answer(document, words, following("why", stored.id))
