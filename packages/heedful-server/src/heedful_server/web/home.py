"""Home: how loops went in one sentence, what needs a person, and each memory key."""

import time
from collections.abc import Sequence
from dataclasses import asdict

from heedful.errors import StoreError
from heedful.lessons.lesson import Scope
from heedful.lessons.scope import DAY_SECONDS, name_tenant
from heedful.memory import quarantine
from heedful.store import lessons, reminders
from heedful.store.connection import Db, Row, token
from heedful.store.recent import (
    FailureCause,
    count_keys,
    group_causes,
    read_recent,
    sum_loops,
)
from heedful.validation import MAX_LISTED_ITEMS, MAX_SHOWN_ITEMS, Document
from heedful_server.web import counts
from heedful_server.web.first_loop import begin
from heedful_server.web.lists import known_failures, short_names
from heedful_server.web.loop_list import recent_loops
from heedful_server.web.memory_pages import read_proof
from heedful_server.web.site import Visit

NEED_SECONDS = 7 * 86_400.0  # a loop that stopped before this time needs nobody


async def home(visit: Visit) -> Document:
    """Show how loops and sessions went, and what needs a person."""
    read = visit.caller.read
    newest = await recent_loops(visit.caller)
    causes = group_causes(newest.loops)
    totals = sum_loops(newest.loops)
    proof = (await read_proof(visit)).answer
    needs = await list_needs(visit, causes)
    sessions = await read(reminders.figures)
    past_words = totals.sentence
    if not newest.loops:
        past_words = f"in agents’ sessions, {sessions.words}" if sessions.words else ""
    keys = count_keys(newest.loops)
    # Many keys of one loop each say no more than the loops.
    if len(keys) > MAX_SHOWN_ITEMS:
        keys = [key for key in keys if key.loops > 1]
    return {
        "answer": say_home(past_words, proof, needs),
        "totals": totals.plain,
        "window": len(newest.loops) if newest.oldest else 0,
        "proof": {name: proof[name] for name in ("sentence", "verdict", "words")},
        "needs": needs,
        "causes": [asdict(cause) for cause in causes],
        "sessions": sessions.words,
        "reminders": asdict(sessions),
        "failures": await known_failures(visit, MAX_LISTED_ITEMS),
        "keys": [key.plain for key in keys[:MAX_SHOWN_ITEMS]],
        "key_names": short_names([key.key for key in keys]),
        "more_keys": max(0, len(keys) - MAX_SHOWN_ITEMS),
        "lessons": await read(lessons.count),
        "projects": await list_projects(visit),
        "begin": begin(visit),
    }


def say_home(past_words: str, proof: Document, needs: Sequence[Document]) -> str:
    """Return one sentence: how loops went, what memory does, and what needs you."""
    facts = [past_words] if past_words else []
    uplift = proof["pooled"]["uplift"]
    if uplift["gain"] is not None or proof["trials"]:
        words = proof["words"]
        figure = words["figure"][:1].lower() + words["figure"][1:]
        facts.append(f"memory: {figure} {words['about']}")
    number = len(needs)
    waits = {0: "nothing needs you", 1: "1 thing needs you"}
    facts.append(waits.get(number, f"{number} things need you"))
    sentence = "; ".join(facts)
    return sentence[:1].upper() + sentence[1:]


async def list_needs(visit: Visit, causes: Sequence[FailureCause]) -> list[Document]:
    """Return the rows about what needs a person.

    A row says `what` it is, what it is `about`, the `number` of cases, and `since`
    when. It has the `path` of its page, and perhaps a `command`.
    """
    now = time.time()
    needs = [_cause(cause) for cause in causes if cause.last >= now - NEED_SECONDS]
    if visit.may("read"):
        needs += await visit.caller.read(_waiting_texts)
    needs += await visit.caller.read(_broken_loops)
    needs += group_errors(
        await visit.rows("failures", limit=100),
        reviews=visit.may("read"),
    )
    reviews = await visit.rows("reviews", limit=100)
    needs += [
        _need(
            row["text"],
            about="lesson that hurts: edit or retire it",
            path=f"/lessons/{row['id']}",
            since=row["at"],
        )
        for row in reviews
    ]
    unheeded = await visit.rows("unheeded", least=3, limit=100)
    needs += [
        _need(
            row["text"],
            about=f"lesson told {row['told']} times, again {row['again']} times: "
            "reword it",
            path=f"/lessons/{row['id']}",
            number=row["again"],
            since=row["at"],
        )
        for row in unheeded
    ]
    needs += await troubled_queues(visit)
    overrides = await visit.rows("overrides", now=now, soon=now + DAY_SECONDS, limit=20)
    needs += [
        _need(
            f"{row['id']}: {row['rule']}",
            about=f"override by {row['by']} expires soon",
            path=f"/loops/{row['id']}",
        )
        for row in overrides
    ]
    return needs


def _need(
    words: str,
    *,
    about: str,
    path: str = "",
    number: int = 1,
    since: float = 0.0,
    command: str = "",
) -> Document:
    """Return a row of what needs a person."""
    return {
        "what": words,
        "about": about,
        "path": path,
        "number": number,
        "since": since,
        "command": command,
    }


def _cause(cause: FailureCause) -> Document:
    """Return the row about the loops that stopped for one cause."""
    path = f"/loops/{cause.loop}"
    parts = [f"check {cause.check}"] if cause.check else []
    if cause.stage:
        run, stage = cause.loop.split("/")[:2]
        path = f"/runs/{run}"
        last = "the last one " if cause.loops > 1 else ""
        parts.append(f"{last}stage {stage} of run {run}")
    need = _need(
        cause.finding,
        about=", ".join(parts) or "stopped",
        path=path,
        number=cause.loops,
        since=cause.since,
    )
    if cause.loops > 1:
        need |= {"path": "/loops", "query": {"cause": cause.signature}}
    return need


def _waiting_texts(db: Db, scope: Scope) -> list[Document]:
    """Return a row about the texts that wait in quarantine, none if none wait."""
    place = {"scope": token(scope), "state": "quarantined"}
    number = quarantine.count_waiting(db, scope)
    if not number:
        return []
    (row,) = db.select("min(at) as since", "example", place)
    words = "A text waits" if number == 1 else "Texts wait"
    return [
        _need(
            f"{words} until somebody decides",
            about="quarantine",
            path="/inbox",
            number=number,
            since=row["since"],
        )
    ]


def _broken_loops(db: Db, scope: Scope) -> list[Document]:
    """Return a row about each open loop whose driver failed."""
    rows = counts.rows(db, scope, "broken", limit=100)
    loops = read_recent(db, scope, numbers=[row["n"] for row in rows]).loops
    return [
        _need(
            loop.id,
            about="open loop whose driver failed: run it again, or cancel it",
            path=f"/loops/{loop.id}",
            since=loop.updated,
        )
        for loop in loops
    ]


def group_errors(failures: Sequence[Row], *, reviews: bool) -> list[Document]:
    """Return a row about each error of reflections, the most frequent first.

    The words after a colon may be from outside, so only who `reviews` gets them.
    """
    groups = dict[str, Document]()
    for row in failures:
        error = row["error"]
        if not reviews:
            error = error.partition(":")[0]
        new = _need(
            error,
            about="reflection failed",
            path=f"/traces/{row['digest']}",
            number=0,
            since=row["last"],
        )
        group = groups.setdefault(error, new)
        group["number"] += row["number"]
        group["since"] = min(group["since"], row["last"])
    return sorted(groups.values(), key=lambda group: -group["number"])


async def troubled_queues(visit: Visit) -> list[Document]:
    """Return a row about the failed jobs and one about the stalled jobs of each queue.

    If the queues do not answer, one row says why. Only a visitor at this machine sees
    more than the name of the error, because its text says where the store is.
    """
    try:
        workload = await visit.caller.setup.work.workload()
    except StoreError as error:
        reason = str(error) if visit.is_here else type(error).__name__
        return [_need(reason, about="the queue of jobs does not answer")]
    commands = {
        "failed": name_tenant("heedful worker jobs", visit.caller.scope.tenant),
        "stalled": "heedful worker",
    }
    return [
        _need(
            depth.queue,
            about=f"jobs {depth.state}",
            number=depth.number,
            command=commands[depth.state],
        )
        for depth in workload.depths
        if depth.state in commands
    ]


async def list_projects(visit: Visit) -> list[Document]:
    """Return the projects that the key may see.

    `totals` says how their newest loops went. It is None for a single project, or if
    there are more than `MAX_SHOWN_ITEMS`.
    """
    names = set(visit.caller.key.projects)
    if not names:
        names = {
            visit.caller.scope.project,
            *(scope.project for scope in await visit.caller.read(lessons.projects)),
        }
    projects: list[Document] = []
    for name in sorted(names):
        totals = None
        if 1 < len(names) <= MAX_SHOWN_ITEMS:
            newest = await recent_loops(visit.caller.within(name))
            totals = sum_loops(newest.loops).plain
        projects.append({"name": name, "totals": totals})
    return projects
