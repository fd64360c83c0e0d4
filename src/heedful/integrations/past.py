"""What an agent has read apart from the stored events of its run.

Its session may have begun before these events do: it was resumed or swept, or its
oldest events were trimmed. And it reads the instructions of a clone when it begins; a
branch that is left takes them away, so their texts are kept as events.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from heedful.memory.memory import Memory
from heedful.redact import redact
from heedful.store import preconditions
from heedful.traces.episode import Event, Limits

INSTRUCTIONS_CODE = "instructions"
EARLIER_TURNS_SOURCE = "earlier:turns"
# Of longer instructions none are kept: then nobody knows what the agent read.
MAX_KEPT_INSTRUCTIONS_CHARS = 400_000


def beginning_of(
    code: str, foreign: Mapping[str, str | None]
) -> tuple[list[Event], list[str]]:
    """Return the events and the marks of a session that begins in the way of a code.

    `foreign` are instructions that nobody has approved, by their sources, as in `Host`.
    A session with instructions that cannot be kept whole is marked.
    """
    events = [Event("system_event", code=code)]
    texts = {source: text for source, text in foreign.items() if text is not None}
    size = sum(map(len, texts.values()))
    is_kept = len(texts) == len(foreign) and size <= MAX_KEPT_INSTRUCTIONS_CHARS
    # Words that were taken for a secret cannot be found again.
    if not is_kept or any(redact(text) != text for text in texts.values()):
        return events, [preconditions.past_mark(time.time())]

    length = Limits().content
    for source, text in texts.items():
        events += [
            Event(
                "system_event",
                text[start : start + length],
                tool=source,
                code=INSTRUCTIONS_CODE,
                origin="external",
            )
            for start in range(0, len(text), length)
        ]
    return events, []


async def foreign_texts(
    memory: Memory,
    session: str,
    events: Sequence[Mapping[str, Any]],
    foreign: Mapping[str, str | None],
) -> dict[str, str | None]:
    """Return all foreign texts of a run, by their sources: now, and as it began.

    Text is None if nobody knows it.
    """
    texts = dict(foreign)
    for event in events:
        if is_of_instructions(event):
            source = event["tool"]
            text = texts.get(source, "")
            texts[source] = None if text is None else text + event["content"]
    if await memory.store.read(memory.scope, preconditions.has_past, session):
        texts[EARLIER_TURNS_SOURCE] = None
    return texts


def is_of_instructions(event: Mapping[str, Any]) -> bool:
    """Return True for an event that keeps instructions, which nobody said."""
    return event.get("code") == INSTRUCTIONS_CODE and event["origin"] == "external"
