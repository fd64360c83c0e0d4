"""Which runs of pipelines went on with a stage that failed or that no check judged."""

from __future__ import annotations

from heedful.store import runs as run_store
from heedful.web import figures
from heedful.web.site import Document, Visit

MAX_LOOKED_RUNS = 20  # the newest ones, whose stages the first page reads


async def degraded_runs(visit: Visit, since: float) -> list[Document]:
    """Return the newest runs since a time that are degraded, with those stages."""
    newest = await visit.caller.read(figures.runs, MAX_LOOKED_RUNS, 0)
    runs = []
    for run in newest:
        if run["created"] < since:
            continue
        store = visit.caller.setup.store
        report = await run_store.report_of(store, visit.caller.scope, run["id"])
        if report.status == "degraded":
            runs.append({**run, "stages": list(report.degraded)})
    return runs
