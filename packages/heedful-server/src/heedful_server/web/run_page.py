"""A run of a pipeline with its stages, and a loop or a run as one page to send."""

import json
from dataclasses import replace

from heedful.loop.runs import Report
from heedful.pages.run_report import json_text
from heedful.store import runs as run_store
from heedful.store.connection import token
from heedful.store.loop_names import find_loop
from heedful.validation import Document
from heedful_server.review import may_review
from heedful_server.web.site import Visit


async def run(visit: Visit, id: str) -> Document:
    """Show a run: its stages with their attempts; the one that failed is open."""
    caller = visit.caller
    id = await caller.read(find_loop, id, "run")
    report = await run_store.report_of(caller.setup.store, caller.scope, id)
    report = _as_seen(visit, report)
    sources = [f"loop:{id}/{stage.name}" for stage in report.stages]
    taught = await visit.rows(
        "learnt_from",
        token=token(caller.scope),
        sources=json.dumps(sources),
        limit=50,
    )
    return {"page": "run", "report": report, "taught": [row["id"] for row in taught]}


async def send(visit: Visit, id: str) -> Document:
    """Make a page of a loop or a run that has its data, and needs nothing else."""
    id = await visit.caller.read(find_loop, id)
    report, sentence = await run_store.report_any(
        visit.caller.setup.store, visit.caller.scope, id
    )
    report = _as_seen(visit, report)
    return {
        "report": report,
        "sentence": sentence,
        "data": json_text(report.plain()),
    }


def _as_seen(visit: Visit, report: Report) -> Report:
    """Return a report, without the words of lessons if the visitor may not review."""
    if may_review(visit.caller):
        return report
    stages = [
        replace(stage, briefing=stage.briefing and stage.briefing.without_words())
        for stage in report.stages
    ]
    return replace(report, stages=tuple(stages))
