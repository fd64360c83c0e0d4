"""The page of a trace: what a run of an agent did, and what it taught."""

import json
from collections.abc import Sequence

from heedful.display import counted
from heedful.episodes.episode import Limits
from heedful.episodes.readers.heedful import EpisodeReader
from heedful.episodes.signals import signals
from heedful.errors import InvalidInput
from heedful.lessons.scope import FAILED_OUTCOMES, source_of
from heedful.pages.run_report import cut
from heedful.store import episodes as episode_store
from heedful.store.connection import token
from heedful.store.offload import offload
from heedful.validation import MAX_SHOWN_ROWS, Document
from heedful_server.jobs import Work
from heedful_server.web import counts
from heedful_server.web.site import Visit
from heedful_server.web.steps import first_error, steps_of, time_span

RETRY_COMMAND = "heedful worker --once"
NO_MODEL_ERROR = "ModelUnavailable"


async def trace(visit: Visit, digest: str) -> Document:
    """Show an episode as a timeline, with its failing events marked."""
    read = visit.caller.read
    row, episode = await read(counts.episode, digest)
    sources = [
        source_of(row["digest"][:16]),
        source_of(row["session"] or row["digest"]),
    ]
    learnt = await visit.rows(
        "learnt_from",
        token=token(visit.caller.scope),
        sources=json.dumps(sources),
        limit=MAX_SHOWN_ROWS,
    )

    lessons_told = await visit.rows(
        "told_in", session=row["session"], limit=MAX_SHOWN_ROWS
    )
    signs = await offload(_signals, episode)
    steps = steps_of(episode["events"], [sign["event"] for sign in signs])
    began, seconds = time_span(episode["events"])
    failing = [number for number, step in enumerate(steps, 1) if step["failed"]]
    # A trace that only waits has the error "".
    first = ""
    if row["error"].startswith(NO_MODEL_ERROR):
        first = "set a model if none is set, then"
    return {
        **row,
        "page": "trace",
        "sentence": describe_trace(
            row, steps=steps, events=episode["events"], lessons=learnt
        ),
        "task": episode.get("task") or row["task"],
        "signals": signs,
        "steps": steps,
        "run_failed": row["outcome"] in FAILED_OUTCOMES,
        "failed": len(failing),
        "failing": failing[0] if failing else 0,
        "began": began,
        "seconds": seconds,
        "learnt": learnt,
        "told": lessons_told,
        "events": episode["events"],
        "queue": type(visit.caller.setup.work) is not Work,
        "cure": {"first": first, "command": RETRY_COMMAND},
    }


def describe_trace(
    episode: Document,
    *,
    steps: Sequence[Document],
    events: Sequence[Document],
    lessons: Sequence[Document],
) -> str:
    """Return in one sentence how a run of an agent went, and what came of it."""
    failed = [step for step in steps if step["failed"]]
    sentence = "The run ended"
    if episode["session"] and not steps:
        sentence = "The session ended"
    if episode["outcome"] in FAILED_OUTCOMES:
        sentence = "The run failed"
    elif episode["outcome"] == "success":
        sentence = "The run says success" if failed else "The run succeeded"
    if steps:
        sentence += f" after {counted(len(steps), 'step')}"
    if failed:
        first = failed[0]
        error = first_error(first, events)
        place = f"step {steps.index(first) + 1}, {first['name']}"
        words = f"{place}, failed"
        if len(failed) > 1:
            words = f"{counted(len(failed), 'step')} failed, first {place}"
        link = " although" if episode["outcome"] == "success" else ";"
        sentence += f"{link} {words}: {cut(error, 160)}"

    ends = {
        "reflected": f"It taught {counted(len(lessons), 'lesson')}",
        "failed": "The reflection on it failed",
    }
    ending = ends.get(episode["state"], "Nobody has reflected on it yet")
    if episode["state"] == "reflected" and not lessons:
        ending = _why_no_lesson(episode, is_whole=bool(steps))
    held_back = sum(lesson["state"] == "quarantined" for lesson in lessons)
    if held_back and episode["state"] == "reflected":
        part = "held back"
        if held_back < len(lessons):
            part = f"{held_back} of them {part}"
        ending += f", {part} until a person releases it"
    return f"{sentence}. {ending}"


def _why_no_lesson(episode: Document, *, is_whole: bool) -> str:
    """Return why a trace that was reflected on has no lesson.

    `is_whole` says that its events are stored; the page adds the error of its record.
    """
    if episode["error"]:
        return "It taught no lesson"
    if is_whole:
        return "No lesson is stored: it taught none, or they are gone since"
    if not (episode["name"] or episode["session"]):
        return "Its lessons are gone: their source was revoked"
    return "It taught no lesson"


def _signals(episode: Document) -> list[Document]:
    """Return an episode's signs of a mistake, each with its event's number from 1."""
    if not episode["events"]:
        return []

    rows: list[Document] = []
    # Signs of a mistake are looked for at the beginning of each text.
    for part in EpisodeReader(Limits(content=2_000)).add(episode):
        rows += [
            {"event": sign.at + 1, "kind": sign.kind, "words": sign.words}
            for sign in signals(part)
        ]
    return rows


async def reflect_now(visit: Visit) -> str:
    """Queue a run of an agent, so that a worker reflects on it next."""
    caller = visit.caller
    digest = visit.form_text("digest")
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
