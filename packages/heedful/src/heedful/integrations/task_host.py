"""heedful beside an agent that gets a task: what memory has for it, and its rules.

A host for prompts needs this; judging outputs, and learning from runs, is in `host`.
"""

from __future__ import annotations

import json
import logging
import secrets
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from heedful.episodes.episode import Event
from heedful.integrations.call_host import (
    Advice,
    CallHost,
    CallRun,
    rules_of_session,
)
from heedful.lessons import ranking, render
from heedful.lessons.reasons import say
from heedful.lessons.render import MAX_MOMENT_CHARS
from heedful.lessons.rule_reading import read_rules, stored_lines
from heedful.lessons.scope import source_of
from heedful.lessons.telling import LessonCandidate, Tell, check_tell
from heedful.lessons.user_rules import RULE_TYPE, rules_text
from heedful.memory.call_memory import CallMemory
from heedful.memory.memory import Memory, open_memory
from heedful.models.embedding import load_embedder
from heedful.store import user_rules
from heedful.store.store import Store

_log = logging.getLogger("heedful")


@dataclass(eq=False, kw_only=True)
class TaskHost(CallHost):
    """heedful for the tasks of an agent; the fields are those of `Host`."""

    memory: Memory | Store | str | None = "heedful.db"
    own_memory: Memory | None = field(init=False)
    memory_type: ClassVar[type[CallMemory]] = Memory
    tell: Tell = "both"
    _is_started: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        check_tell(self.tell)
        super().__post_init__()

    def _open_memory(self) -> Memory | None:
        """Return the memory, None if the host has none."""
        if self.memory is None:
            return None
        return open_memory(self.memory, self.scope)

    async def start(self) -> None:
        """Load the embedder, so that no lookup waits for it; the first one calls this.

        Takes at most 10 s.
        """
        memory = self.own_memory
        if memory is None or self._is_started:
            return

        self._is_started = True
        await self.guarded(
            "load the embedder", load_embedder(memory.embedder), None, limited=False
        )

    def run(self, id: str = "", task: Any = "") -> PromptRun:
        """Return the run of an agent; the `id` of an earlier run continues that run.

        Without a `task`, an earlier run that was judged keeps its task.
        """
        return PromptRun(host=self, id=id, task=task)


@dataclass(eq=False, kw_only=True)
class PromptRun(CallRun):
    """One run of an agent with a task; the fields are those of `HostRun`."""

    host: TaskHost

    async def rules(self) -> str:
        """Return the rules of the user that hold in this run, as text; "" without any.

        A run that was shown them, as its opening shows them, gets none.
        """
        memory = self.host.own_memory
        if memory is None or not self.room:
            return ""
        work = rules_of_session(memory, self.id, self.id, self.host, again=False)
        rules = await self.host.guarded("read the rules of the user", work, ())
        return rules_text(rules)

    async def recall(self, task: Any = None, call: str = "") -> Advice:
        """Return what memory has for the task; `call` is the id of its message, if any.

        If the run goes on after an end of its process, also return the last feedback.
        Rules in the words of the user are stored; a person reads so in the `notes`.
        """
        self.task: Any = self.task if task is None else task
        await self.host.start()
        advice = await self.host.guarded(
            "recall", self._recall(call), Advice(silence=say("slow"))
        )
        memory = self.host.own_memory
        if memory is not None and isinstance(self.task, str):
            work = hear_rules(memory, self.id, self.task, self.host.root)
            notes = await self.host.guarded("store a rule of the user", work, [])
            for note in notes:
                _log.info(note)
            advice = replace(advice, notes=tuple(notes))
        self.room: int = min(self.room, MAX_MOMENT_CHARS - len(advice.text))
        return advice

    async def _recall(self, call: str) -> Advice:
        """Keep the task as an event; return what memory has for it."""
        text = self.task
        if not isinstance(text, str):
            text = json.dumps(text, default=repr)
        event = Event("user_message", text, call=call)
        await self.write([event])
        return await self._advise(text)

    async def _advise(self, task: str) -> Advice:
        """Return lessons on the task, and record them as shown or withheld."""
        memory = self.host.own_memory
        if memory is None or not self.room:
            return Advice(silence=say("no memory or room"))

        candidates = [
            _known_by_session(candidate)
            for candidate in await memory.candidates(task, self.host.tell)
        ]
        chosen, announcement = await self._record(
            "prompt",
            candidates,
            reader=self.id,
            budget=ranking.prompt_budget(),
        )
        choices = [candidate.record for candidate in chosen]
        if choices:
            turns = render.as_messages(choices)
            text = render.as_text(turns, secrets.randbits(64), choices)
            return Advice(text=text, examples=turns)

        if announcement.has_withheld or any(c.could_help for c in candidates):
            return Advice(silence=announcement.silence)
        # Nothing is near: the silence names what came nearest.
        matches = await memory.recall(task, 1)
        return Advice(silence=matches.silence or announcement.silence)


def _known_by_session(candidate: LessonCandidate) -> LessonCandidate:
    """Return a candidate; a rule of a user is known to who was shown all of them."""
    if candidate.record.error_type != RULE_TYPE:
        return candidate
    return replace(candidate, known_by=frozenset([user_rules.SHOWN_MARK]))


async def hear_rules(
    memory: Memory, session: str, message: str, root: str
) -> list[str]:
    """Store the rules in a message of the user; return what he reads about them.

    `root` is the folder of the repository.
    """
    if not read_rules(message):
        return []
    source = source_of(session)
    rules = await memory.user_rules.hear(message, source=source, root=root)
    return stored_lines(rules)
