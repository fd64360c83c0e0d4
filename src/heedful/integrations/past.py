"""What an agent has read apart from the stored events of its run.

Its session may have begun before these events do: it was resumed or swept, or its
oldest events were trimmed. And it reads the instructions of a clone when it begins; a
branch that is left takes them away, so their texts are kept as events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from heedful.episodes.episode import Event, Limits
from heedful.episodes.sources import EARLIER_TURNS_SOURCE, UNREAD_CODE
from heedful.integrations.agents import hex_digest
from heedful.memory.memory import Memory
from heedful.redact import redact
from heedful.store import episodes, preconditions

if TYPE_CHECKING:
    from heedful.integrations.host import Host, HostRun

# The code of an event with a piece of instructions.
INSTRUCTIONS_CODE = "instructions"
MAX_KEPT_INSTRUCTIONS_CHARS = 400_000  # of all files


def instruction_events(foreign: Mapping[str, str | None]) -> Iterator[Event]:
    """Yield the events that keep instructions that nobody has approved.

    `foreign` maps their sources to their texts, as in `Host`. Instructions that cannot
    be kept whole have an event that says so.
    """
    room = MAX_KEPT_INSTRUCTIONS_CHARS
    for source, text in foreign.items():
        # Words that were taken for a secret cannot be found again.
        if text is None or len(text) > room or redact(text) != text:
            yield _event_of(source, code=UNREAD_CODE, text=text or "")
            continue
        room -= len(text)
        length = Limits().content
        # The entry of a server has no text.
        for start in range(0, max(len(text), 1), length):
            part = text[start : start + length]
            yield _event_of(source, code=INSTRUCTIONS_CODE, text=text, content=part)


def _event_of(source: str, code: str, text: str, content: str = "") -> Event:
    """Return an event about instructions, which are named like a tool.

    In the place of the id of a call, it has the digest of the whole text.
    """
    return Event(
        "system_event",
        content,
        tool=source,
        code=code,
        call=hex_digest(f"{source}\n{text}"),
        origin="external",
    )


async def foreign_texts(
    memory: Memory,
    session: str,
    events: Sequence[Mapping[str, Any]],
    host: Host,
) -> dict[str, str | None]:
    """Return all foreign texts of a run, by their sources: now, and as it began.

    A text is None if nobody knows it.
    """
    naming = [
        event["content"] if event["type"] == "user_message" else event["arguments"]
        for event in events
    ]
    texts = {
        **await asyncio.to_thread(host.foreign_tracked),
        **host.foreign,
        **await asyncio.to_thread(host.foreign_named, naming),
    }
    for event in filter(is_of_instructions, events):
        source = event["tool"]
        text = texts.get(source, "")
        if text is None or event["code"] == UNREAD_CODE:
            texts[source] = None
        else:
            texts[source] = text + event["content"]
    if await memory.store.read(memory.scope, preconditions.has_past, session):
        texts[EARLIER_TURNS_SOURCE] = None
    return texts


async def keep_repeated(run: HostRun, texts: Sequence[str]) -> None:
    """Keep instructions of subfolders that rules of a user may repeat: these wait."""
    from heedful.lessons.trust import find_quotations

    tracked = await asyncio.to_thread(run.host.foreign_tracked)
    repeated = {
        source: text
        for source, text in tracked.items()
        if text is None or find_quotations(texts, [text])
    }
    for event in instruction_events(repeated):
        await run.learn(event)


async def keep_named(run: HostRun, words: Any) -> None:
    """Keep the instructions beside what a call or a prompt names, as they are now."""
    memory = run.host.own_memory
    named_texts = await asyncio.to_thread(run.host.foreign_named, [words])
    if memory is None or not named_texts:
        return

    digests = await memory.store.read(memory.scope, episodes.kept_instructions, run.id)
    for event in instruction_events(named_texts):
        if event.call not in digests:
            await run.learn(event)


def is_of_instructions(event: Mapping[str, Any]) -> bool:
    """Return True for an event about instructions, which is no step of a run."""
    is_kept = event.get("code") in (INSTRUCTIONS_CODE, UNREAD_CODE)
    return is_kept and event["origin"] == "external"
