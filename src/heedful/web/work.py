"""The pages about work: policies replayed on recorded loops, pipelines, traces, and
health.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from heedful.errors import HeedfulError, InvalidInput, NotFound
from heedful.loop.decide import Policy
from heedful.loop.policies import PRESETS, policy
from heedful.loop.reach import reach
from heedful.loop.replay import (
    RECORDED_POLICY,
    Figures,
    RecordedLoop,
    compare,
    replay,
    with_policy_goals,
)
from heedful.memory.vectors import space_of
from heedful.pages.report import Point, frontier
from heedful.service.jobs import Work
from heedful.store import episodes as episode_store
from heedful.store import lessons
from heedful.store import runs as run_store
from heedful.store.connection import token
from heedful.traces.episode import Limits
from heedful.traces.messages import EpisodeReader
from heedful.traces.signals import signals
from heedful.web import figures
from heedful.web.pages import queues, since
from heedful.web.site import Document, Visit, action, cursor_links, page

MAX_WORK_ROWS = 50
# the newest loops on which policies are replayed
DEFAULT_REPLAY_LOOPS = 200
MAX_REPLAY_LOOPS = 1_000
MAX_REPLAY_POLICIES = 10
MAX_PIPELINE_RUNS = 20  # of a pipeline in a list
MAX_NAMED_FAILURES = 10  # the newest failures that are named
MAX_UNEMBEDDED_TEXTS = (
    5_000  # the newest texts of memory, of which those without a vector are counted
)


@page("/policies", "policies", "Policies")
async def policies(visit: Visit) -> Document:
    """Replay policies on recorded loops: what each would have cost and lost."""
    asked = [one for one in visit.query.get("policy", "").splitlines() if one.strip()]
    chosen = (asked or sorted(PRESETS))[:MAX_REPLAY_POLICIES]
    made: Document = {
        "asked": "\n".join(chosen),
        "filters": _filters(visit),
        "rows": [],
    }
    try:
        rows = await _replayed((await _recorded(visit))[0], chosen)
        reached = await asyncio.to_thread(_reach, visit.query.get("reach", ""))
    except HeedfulError as error:
        return {**made, "wrong": str(error)}
    marks = ["recorded", *map(str, range(1, len(rows)))]
    chart = frontier(list(map(_point, rows)), marks=marks)
    for row, (kind, _), notation in zip(
        rows, chart["dots"][1:], ["", *chosen], strict=False
    ):
        row |= {"notation": notation, "front": kind == "front"}
        row["loops_of"] = visit.link(
            "/policies/loops", second=notation, **made["filters"]
        )
    links = {row["policy"]: row["loops_of"] for row in rows[1:]}
    made |= {
        "chart": chart,
        "links": links,
        "long": figures.MAX_REDECIDED_ATTEMPTS,
        "reach": reached,
    }
    return {**made, "rows": rows}


def _filters(visit: Visit) -> dict[str, str]:
    """Return which recorded loops the address asks for."""
    return {
        name: visit.query.get(name, "") for name in ("limit", "days", "state", "key")
    }


async def _recorded(visit: Visit) -> tuple[list[RecordedLoop], dict[str, Any]]:
    """Return the recorded loops that the address asks for, and their tasks. Raises
    InvalidInput.
    """
    only = {name: visit.query.get(name, "") for name in ("state", "key")}
    limit = visit.number("limit", DEFAULT_REPLAY_LOOPS, MAX_REPLAY_LOOPS, least=1)
    return await visit.caller.read(
        figures.replayable, limit, since=since(visit), **only
    )


async def _replayed(
    recorded: Sequence[RecordedLoop], chosen: Sequence[str]
) -> list[Document]:
    """Return the figures of loops as recorded, then under each policy.

    Returns [] if there is no loop. Raises UsageError for a policy that is none.
    """
    policies = [policy(one) for one in chosen]
    aimed = with_policy_goals(recorded, policies)
    found = await asyncio.to_thread(compare, aimed, [RECORDED_POLICY, *policies])
    names = [RECORDED_POLICY.name, *chosen]
    return [
        {**one.plain(), "policy": name}
        for one, name in zip(found if recorded else (), names, strict=False)
    ]


def _point(row: Document) -> Point:
    names = set(Figures.__dataclass_fields__)
    return Point.of(Figures(**{k: v for k, v in row.items() if k in names}))


def _reach(notation: str) -> list[str]:
    """Return which rules of a policy can change a decision."""
    if not notation:
        return []
    try:
        return [str(one) for one in reach(policy(notation))]
    except HeedfulError as error:
        return [str(error)]


@page("/policies/loops", "compared", "Two policies, loop by loop")
async def compared(visit: Visit) -> Document:
    """Show on which recorded loops two policies differ; "" is what was recorded."""
    asked = [visit.query.get(name, "") for name in ("first", "second")]
    names = [one or RECORDED_POLICY.name for one in asked]
    made: Document = {
        "names": names,
        "filters": _filters(visit),
        "loops": 0,
        "rows": [],
    }
    try:
        chosen = [policy(one) if one else RECORDED_POLICY for one in asked]
        found, tasks = await _recorded(visit)
    except HeedfulError as error:
        return {**made, "wrong": str(error)}
    rows = await asyncio.to_thread(
        _differences, with_policy_goals(found, chosen), chosen
    )
    for row in rows[:MAX_WORK_ROWS]:
        row["task"] = tasks[row["id"]]
    return {
        **made,
        "loops": len(found),
        "rows": rows[:MAX_WORK_ROWS],
        "differ": len(rows),
    }


def _differences(
    recorded: Sequence[RecordedLoop], policies: Sequence[Policy]
) -> list[Document]:
    """Return the loops in which two policies make other attempts or keep another
    quality.
    """
    rows = []
    for one in reversed(recorded):
        ways = [
            {
                "attempts": made.attempts,
                "quality": one.worth(made.kept),
                "exact": made.exact,
            }
            for made in (replay(one.loop, each) for each in policies)
        ]
        if (
            ways[0]["attempts"] != ways[1]["attempts"]
            or ways[0]["quality"] != ways[1]["quality"]
        ):
            rows.append({"id": one.loop.id, "ways": ways})
    return rows


@page("/projects", "projects", "Projects")
async def projects(visit: Visit) -> Document:
    """Show the projects that the key may see."""
    known = await visit.caller.read(lessons.projects)
    may = visit.caller.key.projects
    names = may or tuple(one.project for one in known)
    return {
        "projects": sorted({*names, visit.caller.scope.project} if not may else names)
    }


@page("/pipelines", "pipelines", "Pipelines")
async def pipelines(visit: Visit) -> Document:
    """Show the newest runs of pipelines."""
    found = await visit.caller.read(
        figures.runs, MAX_PIPELINE_RUNS + 1, visit.number("cursor")
    )
    following = (
        str(found[MAX_PIPELINE_RUNS - 1]["n"])
        if len(found) > MAX_PIPELINE_RUNS
        else None
    )
    for one in found[:MAX_PIPELINE_RUNS]:
        report = await run_store.report_of(
            visit.caller.setup.store, visit.caller.scope, one["id"]
        )
        failed = [each.name for each in report.stages if each.status == "failed"]
        one |= {"state": report.status, "failed": failed}
    return {"runs": found[:MAX_PIPELINE_RUNS], **cursor_links(visit, following)}


@page("/pipelines/{id}", "pipeline", "Run of a pipeline")
async def pipeline(visit: Visit, id: str) -> Document:
    """Show a run: its stages on one line of time, each attempt, and what was fed
    back.
    """
    report = await run_store.report_of(visit.caller.setup.store, visit.caller.scope, id)
    return {"report": report}


@page("/traces", "traces", "Traces")
async def traces(visit: Visit) -> Document:
    """Show the episodes that agents sent."""
    state = visit.query.get("state", "")
    answer = await visit.get(
        "/v1/episodes",
        limit=MAX_WORK_ROWS,
        state=state,
        cursor=visit.query.get("cursor"),
    )
    counts: dict[Any, int] = await visit.caller.read(episode_store.counts)
    items = answer["items"]
    about = await visit.caller.read(figures.episodes, [one["digest"] for one in items])
    items = [{**one, **about.get(one["digest"], {})} for one in items]
    shown = {"episodes": items, "state": state, "counts": counts}
    return {**shown, **cursor_links(visit, answer["next"])}


@page("/traces/{digest}", "trace", "Trace")
async def trace(visit: Visit, digest: str) -> Document:
    """Show an episode as a timeline, with its failing events marked."""
    found = await visit.caller.read(figures.rows, "episode_of", digest=digest)
    if not found:
        raise NotFound("episode", digest, "the project")
    row = dict(found[0])
    episode = json.loads(row.pop("record")).get("episode", {})
    queue = type(visit.caller.setup.work) is not Work
    about = {name: episode.get(name) or "" for name in ("task", "goal", "fault")}
    signs = await asyncio.to_thread(_signals, episode)
    of = {"token": token(visit.caller.scope), "digest": row["digest"]}
    learnt = await visit.caller.read(
        figures.rows, "learnt_from", **of, limit=MAX_WORK_ROWS
    )
    about |= {"signals": signs, "learnt": list(map(dict, learnt))}
    return {**row, **about, "events": episode.get("events", []), "queue": queue}


def _signals(episode: Document) -> list[Document]:
    """Return the signs of a mistake in an episode, each with the number of its event,
    from 1.
    """
    read = EpisodeReader(Limits()).add(episode) if episode.get("events") else []
    return [
        {"event": sign.at + 1, "kind": sign.kind, "words": sign.words}
        for one in read
        for sign in signals(one)
    ]


@action("write")
async def reflect_now(visit: Visit) -> str:
    """Queue a run of an agent, so that a worker reflects on it next."""
    caller = visit.caller
    digest = visit.form.get("digest", "")
    if (state := await caller.read(episode_store.state, digest)) in (None, "reflected"):
        raise InvalidInput(
            "digest", digest, f"a run that waits or failed; its state is {state}"
        )
    await caller.setup.work.defer("reflect", caller.scope, digest=digest)
    return (
        "A worker reflects on it next; this page shows the result when it is loaded "
        "again."
    )


@page("/health", "health", "Spend and health")
async def health(visit: Visit) -> Document:
    """Show calls and cost, what waits, what failed, and what stopping saved."""
    setup = visit.caller.setup
    read = visit.caller.read
    failed = (
        await visit.get("/v1/episodes", state="failed", limit=MAX_NAMED_FAILURES)
    )["items"]
    space = space_of(setup.embedder)
    about = {
        "token": token(visit.caller.scope),
        "space": space,
        "limit": MAX_UNEMBEDDED_TEXTS,
    }
    (vectors,) = await read(figures.rows, "vectors", **about)
    recorded, _ = await read(figures.replayable, DEFAULT_REPLAY_LOOPS)
    rows = await _replayed(recorded, ["default, attempts.limit=8"])
    saved = {"recorded": rows[0], "lax": rows[1]} if rows else {}
    return {
        **await read(figures.home),
        "jobs": await queues(visit),
        "failed": [
            {k: one.get(k) for k in ("digest", "name", "error", "at")} for one in failed
        ],
        "vectors": {**dict(vectors), "space": space, "most": MAX_UNEMBEDDED_TEXTS},
        "episodes": await read(episode_store.counts),
        "saved": saved,
    }
