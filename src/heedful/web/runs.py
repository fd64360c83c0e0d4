"""Runs of pipelines: one with its stages, and those that went on with a stage that
failed or that no check judged.
"""

import json
from dataclasses import replace

from heedful.service.review import may_review
from heedful.store import runs as run_store
from heedful.store.connection import token
from heedful.store.loop_names import find_loop
from heedful.web import figures
from heedful.web.site import READING, Document, SitePage, Visit

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


async def run(visit: Visit, id: str) -> Document:
    """Show a run: its stages with their attempts; the one that failed is open."""
    caller = visit.caller
    id = await caller.read(find_loop, id, "run")
    report = await run_store.report_of(caller.setup.store, caller.scope, id)
    if not may_review(caller):
        stages = [
            replace(stage, briefing=stage.briefing and stage.briefing.without_words())
            for stage in report.stages
        ]
        report = replace(report, stages=tuple(stages))
    sources = [f"loop:{id}/{stage.name}" for stage in report.stages]
    taught = await caller.read(
        figures.rows,
        "taught_by",
        token=token(caller.scope),
        sources=json.dumps(sources),
        limit=50,
    )
    return {"page": "run", "report": report, "taught": [row["id"] for row in taught]}


PAGES = (
    SitePage(
        address="/runs/{id:path}",
        template="happened",
        title="Run of a pipeline",
        make=run,
        may=READING,
    ),
)
