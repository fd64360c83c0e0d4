"""The runs of pipelines as they are stored: a loop for the run, and one for each of its stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heedful.errors import NotFound
from heedful.lessons.lesson import Scope
from heedful.loop.codec import policy_to
from heedful.loop.decide import Done, Policy
from heedful.loop.stop import MaxAttempts
from heedful.reports import Report, StageReport, stage_report
from heedful.store import loops
from heedful.store.records import Head, StoredLoop
from heedful.store.store import Store

# A run is a loop with one attempt each time that it comes to an end.
POLICY = Policy((MaxAttempts(1),), name="pipeline")


def head_of(pipeline: str, stages: Sequence[str]) -> Head:
    """The head of a run's loop."""
    task = {"pipeline": pipeline, "stages": list(stages)}
    return Head(task, (), policy_to(POLICY), kind="run")


def loop_of(run: str, stage: str) -> str:
    """The id of a stage's loop."""
    return f"{run}/{stage}"


def is_run(stored: StoredLoop) -> bool:
    """Whether a loop is the run of a pipeline."""
    return stored.head.kind == "run"


async def report_of(store: Store, scope: Scope, run: str) -> Report:
    """What a run has come to so far. Raises NotFound where there is none of that name."""
    stored = await store.read(scope, loops.read, run)
    if not is_run(stored):
        raise NotFound("run of a pipeline", run, "the store: it is a loop, heedful why tells it")
    return report_from(stored, await stages_of(store, scope, run, stored.head.task["stages"]))


async def stages_of(
    store: Store, scope: Scope, run: str, stages: Sequence[str]
) -> dict[str, StoredLoop]:
    """The loops of those stages that have begun."""
    found: dict[str, StoredLoop] = {}
    for name in stages:
        try:
            found[name] = await store.read(scope, loops.read, loop_of(run, name))
        except NotFound:
            continue
    return found


def report_from(run: StoredLoop, stages: Mapping[str, StoredLoop]) -> Report:
    """The report of a run from its loop and those of its stages."""
    names = run.head.task["stages"]
    reports = tuple(
        stage_report(stages[name], run.id)
        if name in stages
        else StageReport(name, "not_run", "not_run")
        for name in names
    )
    last = run.decisions[-1] if run.decisions else None
    ended = last.decided or last.at if last and isinstance(last.verdict, Done) else 0.0
    return Report(run.head.task["pipeline"], run.id, reports, run.created, ended)
