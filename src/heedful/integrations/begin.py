"""Begin a run whose id the host derives, and keep what its model read before.

In a framework, each turn of a conversation is a run, and the model still has the turns
before it in its messages. Their words are not the agent's own: an adapter gives them to
`Earlier`, which stores them with their sources as events of the run. The words of tools
that the provider of a model runs are not its own either, and no hook of a framework
sees their calls: they are `provider_events`. What heedful cannot read counts as a text
that was cut: a fix that may repeat it waits.

What the code around an agent adds to a request, such as documents in its prompt, is no
event either: `Earlier.added` finds it among the lines that the run does not know.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from heedful.episodes.episode import Event, json_data
from heedful.errors import Conflict
from heedful.integrations.host import Advice, HostRun
from heedful.integrations.words import marked, words_in
from heedful.memory.memory import Memory
from heedful.redact import redact
from heedful.sanitize import UNREAD_MARK
from heedful.store import episodes

# An event holds 8,000 characters, and redaction may add some to a piece of a text.
MAX_PIECE_CHARS = 7_000
# What two neighbouring pieces both have, so that one of them has a quotation whole.
OVERLAP_CHARS = 500
# The rest of a longer argument says nothing about where a result comes from.
MAX_CALL_ARGUMENT_CHARS = 1_000
# Storing longer conversations would take too long: heedful does not read them.
MAX_EARLIER_CHARS = 1_000_000
MAX_PROVIDER_CHARS = 100_000
# Where a tool of a provider writes what it told the model.
OUTPUT_KEYS = frozenset(
    "output outputs result results content tools error code_execution_result "
    "tool_response".split()
)
# Stands for words that heedful has not read.
UNREAD_EVENT = Event("system_event", code="unread")
# A response names the pages of a search, and does not have their words.
_UNSEEN_OUTPUT_PATTERN = re.compile(r"(?i)encrypted_content|web_?search|grounding")


async def begin_run(
    open: Callable[[str, str], HostRun], id: str, task: str
) -> tuple[HostRun, Advice]:
    """Begin or continue a run, and recall; `open` returns the run of an id and a task.

    An id of an ended run or of another task gets a random suffix.
    """
    run = open(id, task)
    with suppress(Conflict):
        advice = await run.recall()
        if not run.judges or (run.loop and not run.loop.ended):
            return run, advice

    run = open(f"{id}~{secrets.token_hex(4)}", task)
    return run, await run.recall()


def know(run: HostRun, values: Iterable[Any]) -> None:
    """Note what is said in a run itself, as `Earlier.know`."""
    if run.earlier is not None:
        run.earlier.know(values)


async def learn_added(run: HostRun, values: Iterable[Any], trusted: str = "") -> None:
    """Store the words of a request that its run does not know, as `Earlier.added`."""
    memory = run.host.own_memory
    if run.earlier is None or memory is None:
        return

    events = run.earlier.added(values, trusted)
    if events:
        # Whose words they are depends on who wrote them first.
        earlier = run.earlier.store(memory, run.id)
        await run.host.guarded("keep the turns before", earlier, otherwise=None)
        await run.learn(*events)


class Earlier:
    """What a model has in its messages when a run begins.

    A prompt of a user or a system has the user as its source. The result of a call that
    the agent made has the tool or the programs of the call, so that it is trusted as in
    the run in which it was made. All other words have the network, also those of the
    agent: it may repeat what stood in messages that are gone. It `is_unread` if it is
    kept where heedful cannot read it, and `is_stored` if the run has the events. An
    adapter lets it `know` what is said in the run, so that it finds what is `added`.
    """

    def __init__(self) -> None:
        self.is_unread: bool = False
        self.is_stored: bool = False
        self._calls: dict[str, tuple[str, Any]] = {}
        self._typed: list[str] = []
        self._others: list[str] = []
        self._results: list[tuple[str, Mapping[str, Any], str]] = []
        # Hashes, because a run may have a million characters.
        self._known: set[int] = set()
        # The system prompts of its requests, as the framework has them.
        self.prompts: list[Any] = []

    def know(self, values: Iterable[Any]) -> None:
        """Note messages and results of the run itself, which need no other event."""
        for text in map(words_in, values):
            self._known.add(hash(text))
            self._known.update(map(hash, _lines(text)))
        # A mark stands for other words in each text.
        self._known.discard(hash(UNREAD_MARK))

    def added(self, values: Iterable[Any], trusted: str = "") -> list[Event]:
        """Return the lines of a request that are new to the run, as events.

        Nobody knows who wrote them. `trusted` is the prompt that the developer wrote.
        """
        trusted_lines = _lines(trusted)
        new_lines: list[str] = []
        for text in map(words_in, values):
            if hash(text) not in self._known:
                new_lines += _lines(text)
        new_lines = [
            line
            for line in new_lines
            if line not in trusted_lines and hash(line) not in self._known
        ]
        self.know(new_lines)
        if sum(map(len, new_lines)) > MAX_EARLIER_CHARS:
            return [UNREAD_EVENT]
        return _external_events(["\n".join(new_lines)])

    def add(
        self,
        text: str,
        *,
        is_typed: bool,
        content: Any = "",
        calls: Iterable[tuple[str, str, Any]] = (),
        results: Iterable[tuple[str, str]] = (),
        provided: Iterable[Any] = (),
    ) -> None:
        """Add a message: its text, and what it has beside the text.

        `content` is all that a model reads of a prompt, which counts if it is not
        typed. Beside it are `calls` with their ids, tools and arguments, the `results`
        of calls with their ids, and what tools of the provider said.
        """
        if is_typed and text:
            self.typed(text)
        words = "" if is_typed else marked(text, content)
        if words:
            self.said(words)
        for call, tool, arguments in calls:
            self.called(call, tool, arguments)
        for call, result in results:
            self.returned(call, result)
        for item in provided:
            self.ran(item)

    def typed(self, text: str) -> None:
        """Add a message of the user, or of the system."""
        texts = self._typed if len(text) <= MAX_PIECE_CHARS else self._others
        texts.append(text)

    def said(self, text: str) -> None:
        """Add the words of anybody else."""
        self._others.append(text)

    def ran(self, item: Any) -> None:
        """Add what a tool of the provider said."""
        self._others.append(_provider_text(item))

    def called(self, call: str, tool: str, arguments: Any) -> None:
        """Note a call of the agent, whose words count with its result."""
        self._calls[call] = tool, arguments

    def returned(self, call: str, text: str) -> None:
        """Add the result of a call; one without its call has the network as source."""
        if call not in self._calls:
            self.said(text)
            return

        tool, arguments = self._calls[call]
        arguments = json_data(arguments)
        if not isinstance(arguments, Mapping):
            arguments = {"command": str(arguments)}
        short_arguments = {
            name: _shorten(argument) for name, argument in arguments.items()
        }
        self._results.append((tool, short_arguments, text))

    async def store(self, memory: Memory, run: str) -> None:
        """Store the events of a run, once. Raises StoreError."""
        if not self.is_stored:
            # Redaction takes a tenth of a second for 400,000 characters.
            rows = await asyncio.to_thread(self._rows)
            await memory.store.write(memory.scope, episodes.append_events, run, rows)
            self.is_stored = True

    def _rows(self) -> list[dict[str, Any]]:
        """Return the events as rows of the store.

        The same words have the same id, so that they count once if a run that goes on
        stores them again. A long conversation is one event without words, with which
        heedful says that it has not read it.
        """
        texts = [*self._typed, *self._others, *(text for _, _, text in self._results)]
        if self.is_unread or sum(map(len, texts)) > MAX_EARLIER_CHARS:
            return [episodes.event_row(UNREAD_EVENT)]

        events = [_event(text) for text in self._typed]
        events += _external_events(self._others)
        for tool, arguments, text in self._results:
            events += [
                _event(piece, tool=tool, arguments=arguments, origin="tool")
                for piece in _pieces(text)
            ]
        return list(map(episodes.event_row, events))


def provider_events(items: Iterable[Any]) -> list[Event]:
    """Return what tools that a provider ran told its model, as events of the run.

    Give the items of a response that are neither text, nor thoughts, nor a call.
    """
    return _external_events(map(_provider_text, items))


def _lines(text: str) -> list[str]:
    """Return the lines of a text that have words."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def _shorten(argument: Any) -> Any:
    """Return an argument, of a long one the beginning: it names a site or a program."""
    text = str(argument)
    if len(text) <= MAX_CALL_ARGUMENT_CHARS:
        return argument
    return text[:MAX_CALL_ARGUMENT_CHARS]


def _external_events(texts: Iterable[str]) -> list[Event]:
    """Return texts whose author is not known as events."""
    text = "\n\n".join(texts)
    if not text.strip():
        return []
    return [_event(piece, origin="external") for piece in _pieces(text)]


def _provider_text(item: Any) -> str:
    """Return an item of a response as text; a mark says if it has not all words."""
    from pydantic_core import to_jsonable_python

    data = to_jsonable_python(item, bytes_mode="base64", fallback=repr)
    text = json.dumps(data, ensure_ascii=False)
    has_output = isinstance(data, Mapping) and any(map(data.get, OUTPUT_KEYS))
    is_cut = len(text) > MAX_PROVIDER_CHARS
    if is_cut or not has_output or _UNSEEN_OUTPUT_PATTERN.search(text):
        text = f"{text[:MAX_PROVIDER_CHARS]}\n{UNREAD_MARK}"
    return text


def _event(text: str, **fields: Any) -> Event:
    """Return an event with words from outside of the run."""
    content = json.dumps([text, fields], default=repr)
    digest = hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()
    return Event("system_event", text, call=f"earlier {digest[:32]}", **fields)


def _pieces(text: str) -> Iterator[str]:
    """Yield the pieces of a text that fit into an event, redacted before it is cut."""
    if len(text) > MAX_PIECE_CHARS:
        text = redact(text)
    step = MAX_PIECE_CHARS - OVERLAP_CHARS
    for start in range(0, max(1, len(text) - OVERLAP_CHARS), step):
        yield text[start : start + MAX_PIECE_CHARS]
