"""The list of work: runs of pipelines, and runs and sessions of agents."""

import json
from collections import Counter
from collections.abc import Sequence

from heedful.display import counted
from heedful.lessons.lesson import Scope
from heedful.lessons.scope import FAILED_OUTCOMES
from heedful.loop.runs import Report
from heedful.pages.attempt_table import worked
from heedful.pages.run_report import cut, unjudged
from heedful.store import episodes as episode_store, runs as run_store
from heedful.store.connection import MAX_READ_ROWS, Db, bulk
from heedful.validation import MAX_SHOWN_ROWS, MAX_STORED_TEXT_CHARS, Document
from heedful.wire import split_page
from heedful_server.arrivals import unknown_spans
from heedful_server.jobs import Work
from heedful_server.web import counts
from heedful_server.web.lists import facet, known_failures, table, unknown_filters
from heedful_server.web.loop_list import MADE_UP_ID_PART, loop_called
from heedful_server.web.site import Visit
from heedful_server.web.trace import RETRY_COMMAND

MAX_SOUGHT_RUNS = 100  # the newest ones of pipelines, among which a text is sought
QUIET_STATE_WORDS = {"quiet": "without a verdict"}
REFLECTIONS = {
    "waiting": "waiting",
    "reflected": "reflected on",
    "failed": "reflection failed",
}


async def work(visit: Visit) -> Document:
    """Show the newest runs: how each ended, where it failed, and by which finding."""
    text = visit.query_text("text").strip()
    state = visit.query_text("state")
    pipelines: list[Document] = []
    older_pipelines: object = None
    if not state:
        pipelines, older_pipelines = await _read_pipelines(visit, text)
    agents, older_agents = await _read_agents(visit, text, state)
    visit.following = await loop_called(visit, text, [*pipelines, *agents])
    paths = [row["path"] for row in agents if row["id"].startswith(text)]
    if len(paths) == 1 and MADE_UP_ID_PART.match(text):
        visit.following = visit.link(paths[0])

    state_counts = await visit.caller.read(episode_store.counts)
    rows = [*pipelines, *agents]
    failed = any(row["status"] == "failed" for row in rows)
    return {
        "heading": "Runs and traces",
        "search": "Search a pipeline, a task, a finding or an id",
        "facets": [
            facet(
                visit, "state", "Reflection", Counter(state_counts), labels=REFLECTIONS
            )
        ],
        "answer": {
            "kind": "stopped" if failed else "",
            "words": describe_work(pipelines, agents),
        },
        "tables": [
            _table(visit, "pipelines", pipelines, "attempts", older=older_pipelines),
            _table(visit, "agents", agents, "steps", older=older_agents),
        ],
        "nothing": {
            "words": "No run fits." if text or state else "Nothing has run yet.",
            "command": "heedful reflect FILE",
        },
        "pipelines": pipelines,
        "agents": agents,
        "failures": await known_failures(visit, limit=20),
        "unread": await visit.caller.read(unknown_spans),
        "start": worker_command(visit, state_counts.get("waiting", 0)),
        "before": "work_notes",
        "after": "work_failures",
        "unknown": unknown_filters(
            visit.query, "text", "state", "older_pipelines", "older_agents"
        ),
    }


def _table(
    visit: Visit, kind: str, rows: Sequence[Document], unit: str, older: object
) -> Document:
    """Return the table of some runs; `unit` says what it counts, attempts or steps.

    `older` is the cursor of older runs, None if there are none. Columns without values
    are left out.
    """
    next_page = ""
    if older:
        next_page = visit.turned(**{f"older_{kind}": str(older)})
    heads = {
        "path": "run",
        "state": "ended",
        "where": "failed at",
        "number": f"#{unit}",
        "seconds": "#time",
        "at": "began",
    }
    used = set[str]()
    for row in rows:
        used.update(name for name, value in row.items() if value)
        # The same column says how a run ended, and that nobody has reflected on it.
        if row.get("reflection") in ("waiting", "failed"):
            used.add("state")
    columns = [head for name, head in heads.items() if name in used]
    return table(kind, columns, title=kind.capitalize(), older=next_page)


async def _read_pipelines(visit: Visit, text: str) -> tuple[list[Document], object]:
    """Return the newest runs of pipelines with a text, and where older ones begin."""
    limit = MAX_SOUGHT_RUNS if text else MAX_SHOWN_ROWS
    before = visit.number("older_pipelines")
    newest = await visit.caller.read(counts.runs, limit + 1, before)
    runs, older = split_page(newest, limit, "n")
    rows = []
    for run in runs:
        report = await run_store.report_of(
            visit.caller.setup.store, visit.caller.scope, run["id"]
        )
        row = _pipeline_row(report)
        stages = [stage.name for stage in report.stages]
        words = [row["id"], row["words"], row["state"], row["finding"], *stages]
        if text.lower() in " ".join(words).lower():
            rows.append(row)
    return rows, older


def _pipeline_row(report: Report) -> Document:
    """Return what a list shows of a run of a pipeline."""
    failed = [stage for stage in report.stages if stage.status == "failed"]
    finding = ""
    if failed and failed[0].failure:
        finding = failed[0].failure.error
    elif failed and failed[0].attempts:
        finding = "; ".join(failed[0].attempts[-1].failed_checks_summary)
    status = {"halted": "failed"}.get(report.status, report.status)
    if status == "passed" and len(unjudged(report)) == len(report.stages):
        status = "quiet"
    return {
        "id": report.run,
        "path": f"/runs/{report.run}",
        "words": report.pipeline or report.run,
        "state": report.status,
        "status": status,
        "where": ", ".join(stage.name for stage in failed),
        "finding": cut(finding, 300),
        "number": sum(len(stage.attempts) for stage in report.stages),
        "seconds": worked(report) / 1000,
        "at": report.began,
    }


async def _read_agents(
    visit: Visit, text: str, state: str
) -> tuple[list[Document], object]:
    """Return the newest runs of agents with a text, and where older ones begin.

    A session is one run, its last part. Tasks and errors may be from outside, so a key
    that may not review gets neither.
    """
    may_review = visit.may("read")
    if text and not may_review:
        return [], None
    newest = await visit.caller.read(
        agent_runs,
        MAX_SHOWN_ROWS + 1,
        text=text,
        state=state,
        before=visit.number("older_agents"),
    )
    runs, older = split_page(newest, MAX_SHOWN_ROWS, "id")
    summaries: dict[str, Document] = {}
    if may_review:
        summaries = await visit.caller.read(
            counts.episodes, [run["digest"] for run in runs]
        )
    return [_agent_row(run, summaries.get(run["digest"], {})) for run in runs], older


def _agent_row(run: Document, summary: Document) -> Document:
    """Return what a list shows of a run of an agent, or of the parts of a session.

    `summary` has its task and steps, and is empty for a key without review rights.
    """
    failed = summary.get("failed")
    where = ""
    if failed:
        where = f"step {failed}"
        where += ", then recovered" if summary["recovered"] else ""
    has_recovered = not failed or summary["recovered"]
    status = "quiet"
    if run["outcome"] in FAILED_OUTCOMES:
        status = "failed"
    # A run that reports success after an unrecovered failure is not shown as passed.
    elif run["outcome"] == "success" and has_recovered:
        status = "passed"
    error = run["error"]
    task = run["task"] or summary.get("task", "")
    if not summary:
        error = error.partition(":")[0]
        task = ""
    name = run["name"] or run["session"] or run["digest"]
    return {
        "id": run["digest"],
        "path": f"/traces/{run['digest']}",
        "words": cut(task, MAX_STORED_TEXT_CHARS) or name,
        "parts": run["parts"],
        # A session of a coding agent has no verdict.
        "state": "" if run["session"] and status == "quiet" else run["outcome"],
        "status": status,
        "where": where,
        "finding": summary.get("failure", ""),
        "reflection": run["state"],
        "error": error,
        "number": summary.get("steps", 0),
        "seconds": summary.get("seconds"),
        "at": summary.get("began") or run["at"],
    }


def worker_command(visit: Visit, waiting: int) -> str:
    """Return the command that reflects on what waits; "" if a worker does."""
    is_missing = type(visit.caller.setup.work) is Work
    return RETRY_COMMAND if waiting and is_missing else ""


def describe_work(pipelines: Sequence[Document], agents: Sequence[Document]) -> str:
    """Return in one sentence how runs ended.

    >>> describe_work([{"status": "passed"}], [{"status": "failed"}, {"status": ""}])
    '1 run of a pipeline: none failed. 2 runs of agents: 1 failed.'
    """
    sentences = []
    for rows, one, many in (
        (pipelines, "run of a pipeline", "runs of pipelines"),
        (agents, "run of an agent", "runs of agents"),
    ):
        counts = Counter(row["status"] for row in rows)
        troubles = [
            f"{counts[status]} {QUIET_STATE_WORDS.get(status, status)}"
            for status in ("failed", "degraded", "open", "quiet")
            if counts[status]
        ]
        if rows:
            runs = counted(len(rows), one, many)
            if len(rows) == 1:
                troubles = [trouble.removeprefix("1 ") for trouble in troubles]
            sentences.append(f"{runs}: {', '.join(troubles) or 'none failed'}.")
    return " ".join(sentences)


@bulk
def agent_runs(
    db: Db, scope: Scope, limit: int, *, text: str, state: str, before: int
) -> list[Document]:
    """Return the newest runs of agents below the id `before`.

    A session is one run, its last part. With a `text`, only runs are returned that have
    it in their task, name or id.
    """
    # SQLite lowers only ASCII.
    spellings = dict.fromkeys((text.lower(), text, text.upper(), text.capitalize()))
    return counts.rows(
        db,
        scope,
        "agent_runs",
        spellings=json.dumps(list(spellings) if text else []),
        state=state,
        before=before,
        window=MAX_READ_ROWS,
        limit=limit,
    )
