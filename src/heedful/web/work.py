"""The pages about work: policies replayed on loops, pipelines, traces, and health."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from heedful.errors import HeedfulError, InvalidInput, UsageError
from heedful.loop.decide import Policy
from heedful.loop.policies import PRESETS, policy
from heedful.loop.reach import reach
from heedful.loop.replay import (
    RECORDED_POLICY,
    Comparable,
    Figures,
    RecordedLoop,
    comparable,
    compare,
    replay,
    with_policy_goals,
)
from heedful.loop.runs import Report
from heedful.memory.vectors import space_of
from heedful.pages.report import Point, frontier, say_front, worked
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
from heedful.web import figures, found_traces
from heedful.web.days import read_home
from heedful.web.loops import (
    failed_episodes,
    project_names,
    queues,
    saved_calls,
    since,
)
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
from heedful.web.table import Table, time_of

MAX_WORK_ROWS = 50
# Policies are replayed on the newest loops; the address of a page can ask for more.
DEFAULT_REPLAY_LOOPS = 200
MAX_REPLAY_LOOPS = 1_000
MAX_REPLAY_POLICIES = 10
MAX_PIPELINE_RUNS = 20  # of a pipeline in a list
MAX_NAMED_FAILURES = 10  # the newest failures that are named
# Signs of a mistake are looked for in this many characters of each text of an episode.
MAX_SIGN_CHARS = 2_000
# The newest texts of memory; those without a vector are counted.
MAX_UNEMBEDDED_TEXTS = 5_000


async def policies(visit: Visit) -> Document:
    """Replay policies on recorded loops: what each would have cost and lost."""
    lines = visit.query.get("policy", "").splitlines()
    notations = [line for line in lines if line.strip()][:MAX_REPLAY_POLICIES]

    filters = _filters(visit)
    text = "\n".join(notations or PRESETS)
    facts: Document = {"asked": text, "filters": filters, "rows": []}
    try:
        recorded, _, unread = await _read_recorded(visit)
        chosen = [policy(notation) for notation in notations]
        compared = await offload(comparable, recorded, chosen, PRESETS.values())
        reachable = await offload(_reach, visit.query.get("reach", ""))
    except UsageError as error:
        return {**facts, "wrong": str(error)}

    names = notations or [preset.name for preset in compared.policies]
    replayed = await _replay_policies(compared, names)
    # A preset has its name; others have their numbers in the table below the chart.
    marks = ["recorded"]
    for number, name in enumerate(names, 1):
        marks.append(name if name in PRESETS else str(number))
    points = [Point.of(result) for result in replayed]
    chart = frontier(points, marks=marks)
    dots = chart["dots"][1:]  # without the oracle's

    rows = []
    # The first row is what was recorded, which has no notation.
    for result, dot, notation in zip(replayed, dots, ["", *names], strict=False):
        row = result.plain()
        row["notation"] = notation
        row["front"] = dot[0] == "front"
        row["loops_of"] = visit.link("/policies/loops", second=notation, **filters)
        rows.append(row)

    return {
        **facts,
        "asked": "\n".join(names),
        "notes": list(compared.notes),
        "sentence": say_front(points[1:]),
        "chart": chart,
        "links": {row["policy"]: row["loops_of"] for row in rows[1:]},
        "long": figures.MAX_REDECIDED_ATTEMPTS,
        "reach": reachable,
        "rows": rows,
        "unread": unread,
    }


def _filters(visit: Visit) -> dict[str, str]:
    """Return which recorded loops the address asks for."""
    names = ("limit", "days", "state", "key")
    return {name: visit.query.get(name, "") for name in names}


async def _read_recorded(visit: Visit) -> figures.Replayable:
    """Return the loops that the address asks for. Raises InvalidInput."""
    return await visit.caller.read(
        figures.replayable,
        visit.number("limit", DEFAULT_REPLAY_LOOPS, MAX_REPLAY_LOOPS, least=1),
        since=since(visit),
        state=visit.query.get("state", ""),
        key=visit.query.get("key", ""),
    )


async def _replay_policies(compared: Comparable, names: Sequence[str]) -> list[Figures]:
    """Return the figures of loops as recorded, then under each policy, by its name.

    Returns [] if there is no loop.
    """
    if not compared.loops:
        return []

    figures = await offload(
        compare, compared.loops, [RECORDED_POLICY, *compared.policies]
    )
    titles = [RECORDED_POLICY.name, *names]
    return [
        replace(row, policy=title) for row, title in zip(figures, titles, strict=True)
    ]


def _reach(notation: str) -> list[str]:
    """Return which rules of a policy can change a decision, or what is wrong with it.

    Returns [] if `notation` is "".
    """
    if not notation:
        return []
    try:
        return list(map(str, reach(policy(notation))))
    except HeedfulError as error:
        return [str(error)]


async def compared(visit: Visit) -> Document:
    """Show on which recorded loops two policies differ.

    The address has their notations; "" stands for what was recorded.
    """
    notations = [visit.query.get(name, "") for name in ("first", "second")]
    recorded_name = RECORDED_POLICY.name
    facts: Document = {
        "names": [notation or recorded_name for notation in notations],
        "filters": _filters(visit),
        "loops": 0,
        "rows": [],
    }

    policies = []
    try:
        for notation in notations:
            chosen = policy(notation) if notation else RECORDED_POLICY
            policies.append(chosen)
        recorded, tasks, unread = await _read_recorded(visit)
    except UsageError as error:
        return {**facts, "wrong": str(error)}

    loops = with_policy_goals(recorded, policies)
    rows = await offload(_differences, loops, policies)
    for row in rows[:MAX_WORK_ROWS]:
        row["task"] = tasks[row["id"]]

    return {
        **facts,
        "loops": len(recorded),
        "rows": rows[:MAX_WORK_ROWS],
        "differ": len(rows),
        "totals": _totals(rows),
        "unread": unread,
    }


def _differences(
    recorded: Sequence[RecordedLoop], policies: Sequence[Policy]
) -> list[Document]:
    """Return the loops to which two policies give other attempts or another quality.

    Those come first on which the second policy loses most quality, then those on which
    it takes most attempts more; those that a replay cannot tell come last. `change` has
    what the second has more, None if the record ends too early.
    """
    rows = []
    for loop in reversed(recorded):
        ways = []
        for rules in policies:
            result = replay(loop.loop, rules)
            ways.append(
                {
                    "attempts": result.attempts,
                    "quality": loop.worth(result.kept),
                    # What was recorded is what happened, however a loop ended.
                    "exact": result.exact or rules is RECORDED_POLICY,
                }
            )

        first, second = ways
        if any(first[name] != second[name] for name in ("attempts", "quality")):
            change = None
            if first["exact"] and second["exact"]:
                change = {
                    name: second[name] - first[name] for name in ("attempts", "quality")
                }
            rows.append({"id": loop.loop.id, "ways": ways, "change": change})
    return sorted(rows, key=_loss)


def _loss(row: Document) -> tuple[bool, float, int]:
    """Return the place of a row of two policies: the greatest loss has the first."""
    change = row["change"]
    if change is None:
        return True, 0.0, 0
    return False, change["quality"], -change["attempts"]


def _totals(rows: Sequence[Document]) -> Document:
    """Return on how many loops the second of two policies loses and gains quality.

    `attempts` are those that it takes more on all loops of which a replay can tell.
    """
    changes = [row["change"] for row in rows if row["change"] is not None]
    return {
        "loses": sum(change["quality"] < 0 for change in changes),
        "gains": sum(change["quality"] > 0 for change in changes),
        "unknown": len(rows) - len(changes),
        "attempts": sum(change["attempts"] for change in changes),
    }


async def projects(visit: Visit) -> Document:
    """Show the projects that the key may see."""
    return {"projects": await project_names(visit)}


async def runs(visit: Visit) -> Document:
    """Show the newest runs of pipelines: their attempts, stages, time and cost."""
    chosen = visit.query.get("pipeline", "")
    rows = await visit.caller.read(
        figures.runs, MAX_PIPELINE_RUNS + 1, visit.number("cursor"), chosen
    )
    runs, cursor = split_page(rows, MAX_PIPELINE_RUNS, "n")
    for run in runs:
        report = await run_store.report_of(
            visit.caller.setup.store, visit.caller.scope, run["id"]
        )
        run |= _run_figures(report)

    pipelines = await visit.caller.read(
        figures.rows, "pipelines", limit=figures.MAX_FIGURE_LOOPS
    )
    return {
        "runs": runs,
        "pipeline": chosen,
        "pipelines": [dict(row) for row in pipelines],
        **page_links(visit, cursor),
    }


def _run_figures(report: Report) -> Document:
    """Return what a list shows of a run; the parts of its stages add up to 1."""
    usage = report.usage
    total = worked(report)
    stages = [
        {
            "name": stage.name,
            "status": stage.status,
            "seconds": worked(stage) / 1000,
            "part": worked(stage) / total if total else 0.0,
        }
        for stage in report.stages
    ]
    return {
        "state": report.status,
        "failed": [stage.name for stage in report.stages if stage.status == "failed"],
        "stages": stages,
        "attempts": sum(len(stage.attempts) for stage in report.stages),
        "seconds": total / 1000,
        "calls": usage.calls,
        "tokens": usage.tokens,
        "cost": usage.cost,
    }


async def pipeline(visit: Visit, id: str) -> Document:
    """Show a run: its stages on one line of time, its attempts, and their feedback."""
    caller = visit.caller
    id = await caller.read(find_loop, id)
    report = await run_store.report_of(caller.setup.store, caller.scope, id)
    return {"report": report}


async def traces(visit: Visit) -> Document:
    """Show the episodes that agents sent: how each ended, how long, what it taught."""
    state = visit.query.get("state", "")
    text = visit.query.get("text", "")
    cursor: object = None
    if text:
        # Tasks are words of others, which nobody has reviewed.
        visit.needs("read")
        rows = await visit.caller.read(
            found_traces.found_episodes,
            MAX_WORK_ROWS + 1,
            text=text,
            state=state,
            before=visit.number("cursor"),
        )
        episodes, cursor = split_page(rows, MAX_WORK_ROWS, "id")
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
    if visit.may("read"):
        summaries = await visit.caller.read(figures.episodes, digests)
    learnt = await visit.caller.read(found_traces.lessons_learnt, digests)
    episodes = [
        {
            **episode,
            "lessons": learnt.get(episode["digest"], 0),
            **summaries.get(episode["digest"], {}),
        }
        for episode in episodes
    ]

    return {
        "episodes": episodes,
        "state": state,
        "text": text,
        "searched": found_traces.MAX_SEARCHED_EPISODES,
        "counts": await visit.caller.read(episode_store.counts),
        **page_links(visit, cursor),
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
        **{name: episode.get(name) or "" for name in ("task", "goal", "fault")},
        "signals": signs,
        "steps": steps,
        "failed": sum(step["failed"] for step in steps),
        "learnt": [dict(lesson) for lesson in learnt],
        "events": episode["events"],
        "queue": type(visit.caller.setup.work) is not Work,
    }


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


async def health(visit: Visit) -> Document:
    """Show calls and cost, what waits, what failed, and the calls that memory saved."""
    read = visit.caller.read
    space = space_of(visit.caller.setup.embedder)
    (vectors,) = await read(
        figures.rows,
        "vectors",
        token=token(visit.caller.scope),
        space=space,
        limit=MAX_UNEMBEDDED_TEXTS,
    )

    return {
        **await read_home(visit.caller.setup.store, visit.caller.scope),
        "jobs": await queues(visit),
        "failed": await failed_episodes(visit, MAX_NAMED_FAILURES),
        "vectors": {**dict(vectors), "space": space, "most": MAX_UNEMBEDDED_TEXTS},
        "episodes": await read(episode_store.counts),
        "saved": await saved_calls(visit),
    }


RUN_TABLE = Table(
    rows="runs",
    columns={
        "run": "id",
        "pipeline": "pipeline",
        "state": "state",
        "failed stages": "failed",
        "stages": lambda row: len(row["stages"]),
        "attempts": "attempts",
        "calls": "calls",
        "tokens": "tokens",
        "cost": "cost",
        "seconds": "seconds",
        "began": time_of("created"),
        "changed": time_of("updated"),
    },
    most=200,  # the report of each run is read
)
TRACE_TABLE = Table(
    rows="episodes",
    columns={
        "digest": "digest",
        "run": "name",
        "session": "session",
        "task": "task",
        "outcome": "outcome",
        "steps": "steps",
        "step that failed": "failed",
        "seconds": "seconds",
        "reflection": "state",
        "lessons": "lessons",
        "error of the reflection": "error",
        "stored": time_of("at"),
    },
)
PAGES = (
    SitePage(
        address="/policies",
        template="policies",
        title="Policies",
        make=policies,
        may=READING,
    ),
    SitePage(
        address="/policies/loops",
        template="compared",
        title="Two policies, loop by loop",
        make=compared,
        may=READING,
    ),
    SitePage(
        address="/projects",
        template="projects",
        title="Projects",
        make=projects,
        may=READING,
    ),
    SitePage(
        address="/runs",
        template="runs",
        title="Runs",
        make=runs,
        may=READING,
        table=RUN_TABLE,
    ),
    SitePage(
        address="/runs/{id:path}",
        template="pipeline",
        title="Run of a pipeline",
        make=pipeline,
        may=READING,
    ),
    SitePage(
        address="/traces",
        template="traces",
        title="Traces",
        make=traces,
        may=READING,
        table=TRACE_TABLE,
    ),
    SitePage(
        address="/traces/{digest:path}",
        template="trace",
        title="Trace",
        make=trace,
        may=REVIEWING,
    ),
    SitePage(
        address="/health",
        template="health",
        title="Spend and health",
        make=health,
        may=READING,
    ),
)
ACTIONS = (SiteAction(reflect_now, ("write",)),)
