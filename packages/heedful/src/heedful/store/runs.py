"""Read the runs of pipelines: a run is a loop, and so is each stage, as `RUN/STAGE`."""

from collections.abc import Sequence
from dataclasses import replace

from heedful.errors import NotFound
from heedful.lessons.scope import Scope
from heedful.loop.explain import describe_failures
from heedful.loop.record import text_of
from heedful.loop.runs import Report, StageReport, loop_id
from heedful.store import loops
from heedful.store.records import StoredLoop
from heedful.store.store import Store


async def report_of(store: Store, scope: Scope, run: str) -> Report:
    """Return the report of a stored run of a pipeline, which may still be open.

    It has each stage of the pipeline; one that has not begun is "not_run". Raises
    NotFound if there is no such run, also if the id `run` is that of another loop.
    """
    stored_loop = await store.read(scope, loops.read, run)
    if not stored_loop.is_run:
        raise NotFound(
            "run of a pipeline", run, "the store: it is a loop; heedful why explains it"
        )

    names = stored_loop.head.task["stages"]
    stage_loops = await store.read(scope, loops.read_stages, run)
    stages = dict(stage_loops)
    failure = stored_loop.last_failure
    reports = []
    for name in names:
        report = StageReport(name, "not_run", action="not_run")
        if name in stages:
            report = stages[name].stage_report(run)
        if failure is not None and failure.stage == name:
            report = replace(report, status="failed", action="raised", failure=failure)
        reports.append(report)

    ended = 0.0  # the run is still open
    if stored_loop.ended:
        last = stored_loop.decisions[-1]
        # Without the time of the decision, that of its record is near enough.
        ended = last.decided or last.at
    return Report(
        stored_loop.head.task["pipeline"],
        run,
        stages=tuple(reports),
        began=stored_loop.created,
        ended=ended,
        earlier=loops.usage_besides(
            stage_loops, [stages[name].id for name in names if name in stages]
        ),
    )


async def report_any(store: Store, scope: Scope, id: str) -> tuple[Report, str]:
    """Return the report of a run of a pipeline, or of any other loop, by its id.

    The second part of the result is "" for a run. For a loop, whose report is that of
    one task, it says in words what failed and why the loop ended. Raises NotFound.
    """
    stored_loop = await store.read(scope, loops.read, id)
    if stored_loop.is_run:
        return await report_of(store, scope, id), ""
    loop = stored_loop.loop
    stage = replace(stored_loop.stage_report(id), kept=loop.best)
    failed = describe_failures(loop)
    report = Report(
        text_of(stored_loop.head.task) or id,
        id,
        stages=(stage,),
        began=stored_loop.created,
        ended=stored_loop.updated if stored_loop.ended else 0.0,
        noun="task",
    )
    opening = "Not solved" if stored_loop.shown_state == "stopped" else "What failed"
    words = f"{opening}: {failed}. " if failed else ""
    return report, f"{words}{stored_loop.explain().sentence}"


async def tasks_of(
    store: Store, scope: Scope, run: str, tasks: Sequence[str]
) -> dict[str, StoredLoop]:
    """Return the stored loops of a run of `tasks` that have begun, by the task's id."""
    names = {loop_id(run, name): name for name in tasks}
    stored_loops = await store.read(scope, loops.read_many, list(names))
    return {names[loop.id]: loop for loop in stored_loops}
