"""The pages about work: runs of pipelines, and traces of agents."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from operator import itemgetter
from typing import Any

from heedful.lessons.lesson import Scope
from heedful.lessons.render import FailureRow
from heedful.lessons.scope import FAILED_OUTCOMES
from heedful.loop.runs import Report, StageReport
from heedful.pages.report import counted, cut, unjudged, worked
from heedful.service.jobs import Work
from heedful.service.wire import split_page
from heedful.store import aging, episodes as episode_store, runs as run_store
from heedful.store.connection import Db, bulk, token
from heedful.web import figures
from heedful.web.lists import sort_links, unknown_filters
from heedful.web.loops import MADE_UP_ID_PART, loop_called
from heedful.web.site import (
    READING,
    Document,
    SitePage,
    Visit,
    page_links,
)
from heedful.web.trace import RETRY_COMMAND

MAX_WORK_ROWS = 50
MAX_SHOWN_FAILURES = 20
MAX_PIPELINE_RUNS = 20  # of a pipeline in a list
MAX_SORTED_RUNS = 100  # the newest ones, among which runs are sought and sorted
# What each order of the runs compares; without one, the newest come first.
RUN_ORDERS: Mapping[str, Callable[[Document], Any]] = {
    "state": itemgetter("failed", "unchecked"),
    "attempts": itemgetter("attempts"),
    "time": itemgetter("seconds"),
    "cost": itemgetter("cost"),
    "began": itemgetter("created"),
}
MIN_STAGE_WIDTH = 0.08  # of a short stage, as a share of the bar of its run
MAX_SEARCHED_EPISODES = 1_000  # the newest ones, in whose tasks a search looks


async def runs(visit: Visit) -> Document:
    """Show the newest runs of pipelines: their attempts, stages, time and cost.

    Those with a text, and all orders but the newest first, are looked for among the
    newest `MAX_SORTED_RUNS`.
    """
    chosen = visit.query.get("pipeline", "")
    text = visit.query.get("text", "").strip()
    sort = visit.query.get("sort") or "-began"
    is_whole = not text and sort == "-began"
    row_limit = MAX_PIPELINE_RUNS if is_whole else MAX_SORTED_RUNS
    rows = await visit.caller.read(
        figures.runs, row_limit + 1, visit.number("cursor"), chosen
    )
    runs, cursor = split_page(rows, row_limit, "n")
    for run in runs:
        report = await run_store.report_of(
            visit.caller.setup.store, visit.caller.scope, run["id"]
        )
        run |= _run_figures(report)
        # From begin to end: its attempts take only a part of this time.
        run["wall"] = run["updated"] - run["created"] if report.ended else None

    pipelines = await visit.caller.read(
        figures.rows, "pipelines", limit=figures.MAX_FIGURE_LOOPS
    )
    groups = [_pipeline_figures(dict(row), runs) for row in pipelines]

    order = RUN_ORDERS.get(sort.removeprefix("-"), RUN_ORDERS["began"])
    runs = [run for run in runs if text.lower() in _sought_words(run)]
    runs.sort(key=order, reverse=sort.startswith("-"))
    visit.following = await loop_called(visit, text, runs)
    return {
        "runs": runs,
        "sentence": describe_runs(runs),
        "pipeline": chosen,
        "text": text,
        "sorts": sort_links(visit, sort, RUN_ORDERS),
        "sought": MAX_SORTED_RUNS if cursor and not is_whole else 0,
        "unknown": unknown_filters(visit.query, "pipeline", "text"),
        "pipelines": groups,
        **page_links(visit, cursor),
    }


def _sought_words(run: Document) -> str:
    """Return the words of a run that a search looks at, in lower case."""
    stages = [stage["name"] for stage in run["stages"]]
    words = [run["id"], run["pipeline"] or "", run["state"], run["reason"], *stages]
    return " ".join(words).lower()


def _pipeline_figures(row: Document, runs: Sequence[Document]) -> Document:
    """Return how those of some runs ended that are of one pipeline, newest first.

    `row` has its name and the number of all its runs.
    """
    of_pipeline = [run for run in runs if run["pipeline"] == row["pipeline"]]
    states = [run["state"] for run in of_pipeline]
    seconds = sum(run["seconds"] for run in of_pipeline)
    return {
        **row,
        "shown": len(states),
        "passed": states.count("passed"),
        "seconds": seconds / len(states) if states else None,
        "last": states[0] if states else "",
        "last_unchecked": len(of_pipeline[0]["unchecked"]) if states else 0,
    }


def describe_runs(runs: Sequence[Document]) -> str:
    """Return in one sentence how runs of pipelines ended.

    >>> describe_runs([{"state": "passed", "unchecked": ["load"]}])
    '1 run passed; 1 stage has no check'
    """
    silent = sum(len(run["unchecked"]) for run in runs)
    doubt = ""
    if silent:
        verb = "has" if silent == 1 else "have"
        doubt = f"; {counted(silent, 'stage')} {verb} no check"
    if len(runs) == 1:
        return f"1 run {runs[0]['state']}{doubt}"
    states = Counter(run["state"] for run in runs)
    ends = ", ".join(f"{number:,} {state}" for state, number in states.most_common())
    return f"{counted(len(runs), 'run')}: {ends}{doubt}"


def _run_figures(report: Report) -> Document:
    """Return what a list shows of a run; the parts of its stages add up to 1.

    The part of a short stage is larger than its time, so that it is seen.
    """
    usage = report.usage
    total = worked(report)
    widths = [
        max(worked(stage) / (total or 1), MIN_STAGE_WIDTH) for stage in report.stages
    ]
    stages = [
        {
            "name": stage.name,
            "status": stage.status,
            "seconds": worked(stage) / 1000,
            "part": width / sum(widths),
            "failed": _failed_share(stage),
            "attempts": len(stage.attempts),
        }
        for stage, width in zip(report.stages, widths, strict=True)
    ]
    failed = [stage for stage in report.stages if stage.status == "failed"]
    reason = ""
    if failed and failed[0].attempts:
        checks = failed[0].attempts[-1].failed_checks_summary
        reason = f"{failed[0].name} failed by {'; '.join(checks)}"
    return {
        "state": report.status,
        "failed": [stage.name for stage in failed],
        "reason": cut(reason, 300),
        "unchecked": unjudged(report),
        "stages": stages,
        "attempts": sum(len(stage.attempts) for stage in report.stages),
        "seconds": total / 1000,
        "calls": usage.calls,
        "tokens": usage.tokens,
        "cost": usage.cost,
    }


def _failed_share(stage: StageReport) -> float:
    """Return which share of the time of a stage its failed attempts took."""
    times = [
        attempt.execution_time_ms
        for attempt in stage.attempts
        if attempt.overall_status == "failed"
    ]
    return sum(times) / (worked(stage) or 1.0)


async def traces(visit: Visit) -> Document:
    """Show the episodes that agents sent: how each ended, how long, what it taught."""
    state = visit.query.get("state", "")
    text = visit.query.get("text", "")
    cursor: object = None
    if text:
        # Tasks are words of others, which nobody has reviewed.
        visit.needs("read")
        rows = await visit.caller.read(
            found_episodes,
            MAX_WORK_ROWS + 1,
            text=text,
            state=state,
            before=visit.number("cursor"),
        )
        episodes, cursor = split_page(rows, MAX_WORK_ROWS, "id")
        digests = [row["digest"] for row in rows if row["digest"].startswith(text)]
        if len(digests) == 1 and MADE_UP_ID_PART.match(text):
            visit.following = visit.link(f"/traces/{digests[0]}")
    else:
        answer = await visit.get(
            "/v1/episodes",
            limit=MAX_WORK_ROWS,
            state=state,
            cursor=visit.query.get("cursor"),
        )
        episodes = answer["items"]
        cursor = answer["next"]

    digests = [episode["digest"] for episode in episodes]
    summaries: dict[str, Document] = {}
    failures: Sequence[FailureRow] = ()
    if visit.may("read"):
        summaries = await visit.caller.read(figures.episodes, digests)
        failures = await visit.caller.read(aging.failures, MAX_SHOWN_FAILURES)
    learnt = await visit.caller.read(lessons_learnt, digests)
    episodes = [
        {
            **episode,
            "lessons": learnt.get(episode["digest"], 0),
            "run_failed": episode.get("outcome") in FAILED_OUTCOMES,
            **summaries.get(episode["digest"], {}),
        }
        for episode in episodes
    ]

    counts = await visit.caller.read(episode_store.counts)
    return {
        "failures": [{**asdict(row), "told": row.told} for row in failures],
        "unread": await visit.caller.read(episode_store.unknown_spans),
        "episodes": episodes,
        "sentence": describe_traces(episodes),
        "state": state,
        "text": text,
        "unknown": unknown_filters(visit.query, "state", "text"),
        "searched": MAX_SEARCHED_EPISODES,
        "counts": counts,
        "start": worker_command(visit, counts.get("waiting", 0)),
        **page_links(visit, cursor),
    }


def worker_command(visit: Visit, waiting: int) -> str:
    """Return the command that reflects on what waits; "" if a worker does."""
    is_missing = type(visit.caller.setup.work) is Work
    return RETRY_COMMAND if waiting and is_missing else ""


def describe_traces(episodes: Sequence[Document]) -> str:
    """Return in words how runs of agents went, and the reflections on them.

    >>> describe_traces([{"run_failed": True, "state": "failed"}])
    '1 trace: 1 run failed. Reflections: 1 failed'
    """
    if not episodes:
        return "No traces"
    failed = sum(episode["run_failed"] for episode in episodes)
    states = Counter(episode.get("state", "waiting") for episode in episodes)
    traces = counted(len(episodes), "trace")
    runs = "no run failed"
    if failed:
        runs = f"{counted(failed, 'run')} failed"
    waits = [
        f"{states[name]:,} {name}" for name in ("failed", "waiting") if states[name]
    ]
    reflections = f". Reflections: {', '.join(waits)}" if waits else ""
    return f"{traces}: {runs}{reflections}"


PAGES = (
    SitePage(
        address="/runs",
        template="runs",
        title="Runs",
        make=runs,
        may=READING,
    ),
    SitePage(
        address="/traces",
        template="traces",
        title="Traces",
        make=traces,
        may=READING,
    ),
)


@bulk
def found_episodes(
    db: Db, scope: Scope, limit: int, *, text: str, state: str, before: int
) -> list[Document]:
    """Return those of the newest episodes that have a text in their task or name.

    A part of an id finds its episode, too.
    """
    episode_rows = figures.rows(
        db,
        scope,
        "found_episodes",
        # JSON in a column has escapes; the task that the statement reads has none.
        spellings=spellings_of(text),
        state=state,
        before=before,
        window=MAX_SEARCHED_EPISODES,
        limit=limit,
    )
    return [dict(row) for row in episode_rows]


def spellings_of(text: str) -> str:
    """Return as JSON how a text may be spelt: SQLite lowers only ASCII."""
    spellings = (text.lower(), text, text.upper(), text.capitalize())
    return json.dumps(list(dict.fromkeys(spellings)))


def lessons_learnt(db: Db, scope: Scope, digests: Sequence[str]) -> dict[str, int]:
    """Return how many lessons were learnt from each episode, by digest."""
    sources = {f"episode:{digest[:16]}": digest for digest in digests}
    counts = figures.rows(
        db,
        scope,
        "learnt_counts",
        token=token(scope),
        sources=json.dumps(list(sources)),
    )
    return {sources[row["source"]]: row["lessons"] for row in counts}
