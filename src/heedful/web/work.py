"""The pages about work: runs of pipelines, and traces of agents."""

from __future__ import annotations

from collections.abc import Sequence

from heedful.errors import InvalidInput
from heedful.pages.report import counted, cut, text
from heedful.service.jobs import Work
from heedful.service.wire import split_page
from heedful.store import episodes as episode_store
from heedful.store import runs as run_store
from heedful.store.connection import token
from heedful.store.loop_names import find_loop
from heedful.store.offload import offload
from heedful.traces.episode import Limits
from heedful.traces.messages import EpisodeReader
from heedful.traces.signals import signals
from heedful.web import figures
from heedful.web.site import (
    READING,
    REVIEWING,
    Document,
    SiteAction,
    SitePage,
    Visit,
    page_links,
)
from heedful.web.steps import steps_of

MAX_WORK_ROWS = 50
MAX_SENTENCE_ERROR_CHARS = 160  # of the first error of a trace
MAX_PIPELINE_RUNS = 20  # of a pipeline in a list
# Signs of a mistake are looked for in this many characters of each text of an episode.
MAX_SIGN_CHARS = 2_000


async def runs(visit: Visit) -> Document:
    """Show the newest runs of pipelines."""
    rows = await visit.caller.read(
        figures.runs, MAX_PIPELINE_RUNS + 1, visit.number("cursor")
    )
    runs, cursor = split_page(rows, MAX_PIPELINE_RUNS, "n")

    for run in runs:
        report = await run_store.report_of(
            visit.caller.setup.store, visit.caller.scope, run["id"]
        )
        run["state"] = report.status
        run["failed"] = [
            stage.name for stage in report.stages if stage.status == "failed"
        ]
    return {"runs": runs, **page_links(visit, cursor)}


async def pipeline(visit: Visit, id: str) -> Document:
    """Show a run: its stages on one line of time, its attempts, and their feedback."""
    caller = visit.caller
    id = await caller.read(find_loop, id)
    report = await run_store.report_of(caller.setup.store, caller.scope, id)
    return {"report": report}


async def traces(visit: Visit) -> Document:
    """Show the episodes that agents sent."""
    state = visit.query.get("state", "")
    answer = await visit.get(
        "/v1/episodes",
        limit=MAX_WORK_ROWS,
        state=state,
        cursor=visit.query.get("cursor"),
    )

    summaries: dict[str, Document] = {}
    if visit.may("read"):
        digests = [episode["digest"] for episode in answer["items"]]
        summaries = await visit.caller.read(figures.episodes, digests)
    episodes = [
        {**episode, **summaries.get(episode["digest"], {})}
        for episode in answer["items"]
    ]

    return {
        "episodes": episodes,
        "state": state,
        "counts": await visit.caller.read(episode_store.counts),
        **page_links(visit, answer["next"]),
    }


async def trace(visit: Visit, digest: str) -> Document:
    """Show an episode as a timeline, with its failing events marked."""
    read = visit.caller.read
    row, episode = await read(figures.episode, digest)
    learnt = await read(
        figures.rows,
        "learnt_from",
        token=token(visit.caller.scope),
        digest=row["digest"],
        limit=MAX_WORK_ROWS,
    )

    signs = await offload(_signals, episode)
    steps = steps_of(episode["events"], [sign["event"] for sign in signs])
    return {
        **row,
        "sentence": describe_trace(
            row, steps=steps, events=episode["events"], lessons=len(learnt)
        ),
        **{name: episode.get(name) or "" for name in ("task", "goal", "fault")},
        "signals": signs,
        "steps": steps,
        "failed": sum(step["failed"] for step in steps),
        "learnt": [dict(lesson) for lesson in learnt],
        "events": episode["events"],
        "queue": type(visit.caller.setup.work) is not Work,
    }


def describe_trace(
    episode: Document,
    *,
    steps: Sequence[Document],
    events: Sequence[Document],
    lessons: int,
) -> str:
    """Return in one sentence how a run of an agent went, and what came of it."""
    outcomes = {"error": "The run failed", "success": "The run succeeded"}
    sentence = outcomes.get(episode["outcome"], "The run ended")
    failed = [step for step in steps if step["failed"]]
    if steps:
        sentence += f" after {counted(len(steps), 'step')}"
    if failed:
        first = failed[0]
        errors = [events[number - 1].get("error") for number in first["numbers"]]
        error = text(next(filter(None, errors)))
        place = f"step {steps.index(first) + 1}, {first['name']}"
        sentence += (
            f"; {counted(len(failed), 'step')} failed, first {place}: "
            f"{cut(error, MAX_SENTENCE_ERROR_CHARS)}"
        )

    ends = {
        "reflected": f"It taught {counted(lessons, 'lesson')}",
        "failed": "The reflection on it failed",
    }
    ending = ends.get(episode["state"], "Nobody has reflected on it yet")
    return f"{sentence}. {ending}"


def _signals(episode: Document) -> list[Document]:
    """Return an episode's signs of a mistake, each with its event's number from 1."""
    if not episode["events"]:
        return []

    rows: list[Document] = []
    for part in EpisodeReader(Limits(content=MAX_SIGN_CHARS)).add(episode):
        rows += [
            {"event": sign.at + 1, "kind": sign.kind, "words": sign.words}
            for sign in signals(part)
        ]
    return rows


async def reflect_now(visit: Visit) -> str:
    """Queue a run of an agent, so that a worker reflects on it next."""
    caller = visit.caller
    digest = visit.form.get("digest", "")
    state = await caller.read(episode_store.state, digest)
    if state in (None, "reflected"):
        raise InvalidInput(
            "digest", digest, f"a run that waits or failed; its state is {state}"
        )

    await caller.setup.work.defer("reflect", caller.scope, digest=digest)
    return (
        "A worker reflects on it next; this page shows the result when it is loaded "
        "again."
    )


PAGES = (
    SitePage(
        address="/runs",
        template="runs",
        title="Runs",
        make=runs,
        may=READING,
    ),
    SitePage(
        address="/runs/{id:path}",
        template="pipeline",
        title="Run of a pipeline",
        make=pipeline,
        may=READING,
    ),
    SitePage(
        address="/traces", template="traces", title="Traces", make=traces, may=READING
    ),
    SitePage(
        address="/traces/{digest:path}",
        template="trace",
        title="Trace",
        make=trace,
        may=REVIEWING,
    ),
)
ACTIONS = (SiteAction(reflect_now, ("write",)),)
