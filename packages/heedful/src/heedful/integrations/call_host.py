"""heedful beside the calls of an agent that somebody else's framework runs.

What hooks of a call need, and no more: a hook process starts for each event. A call
that fails or takes too long says nothing, so the agent continues without it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from heedful.episodes.episode import Arguments, Event
from heedful.errors import Conflict
from heedful.integrations.session_rules import rules_everywhere, rules_of_session
from heedful.lessons.call_marks import whole_call
from heedful.lessons.reasons import say
from heedful.lessons.render import MAX_MOMENT_CHARS, facts, fitting_texts
from heedful.lessons.scope import Scope
from heedful.lessons.user_rules import NAMED_HEADING, names_in, rules_text
from heedful.memory.call_memory import CallMemory, log_failure
from heedful.memory.files import aged_text
from heedful.redact import redact
from heedful.store import (
    calls,
    episodes,
    open_store,
    reminders,
    session_marks,
    user_rules,
)
from heedful.store.connection import Db, resumable
from heedful.store.store import Store
from heedful.validation import Document, Fields, check_number

if TYPE_CHECKING:
    from heedful.models.contract import Message

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What memory says at one moment of a run; false if it says nothing.

    `text` is for the user's part of a prompt: facts between random delimiters, at most
    9,500 characters. `examples` are worked examples as chat turns, for hosts that can
    place turns before the task; `text` has them, too. `silence` is the reason if
    nothing is said. A person reads `notes`, such as the rule that was just stored.
    """

    text: str = ""
    examples: tuple[Message, ...] = ()
    silence: str = ""
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text)

    def below(self, text: str) -> Advice:
        """Return the advice with a text above it, if there is one."""
        if not text:
            return self
        return replace(
            self, text="\n".join(filter(None, [text, self.text])), silence=""
        )


@dataclass(eq=False, kw_only=True)
class CallHost:
    """heedful for the calls of an agent: its memory, and how long a look-up may take.

    The fields are those of `Host`.
    """

    memory: CallMemory | Store | str | None = "heedful.db"
    scope: Scope | None = None
    seconds: float = 2.0
    strict: bool = False
    root: str = ""
    everywhere: str = ""
    own_memory: CallMemory | None = field(init=False)
    memory_type: ClassVar[type[CallMemory]] = CallMemory

    def __post_init__(self) -> None:
        check_number("seconds", self.seconds, low=0.001, high=3_600.0)
        self.own_memory = self._open_memory()
        memory = self.own_memory
        self.own_scope: Scope = memory.scope if memory else self.scope or Scope()
        self.store: Store = memory.store if memory else open_store(":memory:")

    def _open_memory(self) -> CallMemory | None:
        """Return the memory, None if the host has none."""
        if isinstance(self.memory, Store | str):
            return CallMemory(self.memory, self.scope)
        return self.memory

    def run(self, id: str = "", task: Any = "") -> CallRun:
        """Return the run of an agent; the `id` of an earlier run continues that run.

        Without a `task`, an earlier run that was judged keeps its task.
        """
        return CallRun(host=self, id=id, task=task)

    async def guarded(
        self,
        what: str,
        work: Coroutine[Any, Any, T],
        otherwise: T,
        limited: bool = True,
        tell: Callable[[str], None] = lambda _: None,
    ) -> T:
        """Return the result of `work`, or `otherwise` if it fails or takes too long.

        Logs the error, as "heedful could not `what`", and calls `tell` with its text;
        raises it if `strict`. The limit is `seconds`, none if not `limited`.
        """
        limit = asyncio.timeout(self.seconds if limited else None)
        try:
            async with limit:
                return await work
        except Exception as error:  # the edge to the host, which must not fail by us
            if self.strict:
                raise

            hint = ""
            text = redact(f"{type(error).__name__}: {error}")
            if type(error) is Conflict:
                hint = " (its id has another task or policy: use a new id)"
            elif limit.expired():
                text = f"it takes more than {self.seconds:g} s: Host(seconds=…)"
            line = " ".join(text.split())[:1_000]

            log_failure(f"heedful could not {what}{hint}: {line}", error)
            tell(line)
            return otherwise


@dataclass(eq=False, kw_only=True)
class CallRun:
    """The calls of one run of an agent; the fields are those of `HostRun`.

    Each question reads memory by `_ask`, within the time limit of the host. `_offer`
    chooses what is said, and `_record` writes it down before anybody reads it. What a
    run was told is a *mark* of its session, so that no later process says it again.
    """

    host: CallHost
    id: str = ""
    task: Any = ""
    call_advice: dict[str, list[str]] = field(default_factory=dict)
    room: int = MAX_MOMENT_CHARS

    def __post_init__(self) -> None:
        self.id = self.id or f"run-{os.urandom(8).hex()}"

    async def opening(self) -> Advice:
        """Return a brief for a task yet unknown: what cost earlier sessions most calls.

        It has at most ten lines, and none where nothing came back.
        """
        return await self._ask("begin", self._brief)

    async def rules_about(self, tool: str, arguments: Arguments) -> Advice:
        """Return the rules of the user that name a call; each is told once in a run."""

        async def rules(memory: CallMemory) -> Advice:
            return await self._with_rules(Advice(), memory, tool, arguments)

        return await self._ask("ask about the rules of the user", rules)

    async def before(
        self,
        tool: str,
        arguments: Arguments,
        call: str = "",
        agent: str = "",
    ) -> Advice:
        """Return how calls like this one failed, and what fixed them.

        Also returns the rules of the user that name it. `call` is the id of the call,
        `agent` the name of the agent if the run has several. Each failure is told once
        in a run.
        """
        fields = {"command": arguments} if isinstance(arguments, str) else arguments
        event = Event("tool_call", agent=agent, tool=tool, arguments=fields, call=call)

        async def look(memory: CallMemory) -> Advice:
            history = await memory.store.read(
                memory.scope,
                calls.history_of,
                tool,
                arguments,
                session=self.id,
                folder=self.host.root,
                stated=memory.stated,
            )
            unlearnt = [
                failure.digest
                for failure in history.failures
                if failure.lesson == reminders.UNLEARNT_LESSON
            ]
            advice = await self._offer(
                memory,
                history.warnings,
                [event],
                marks=[f"told {digest}" for digest in history.marks],
                unlearnt=next(iter(unlearnt), ""),
                release=history.release,
            )
            return await self._with_rules(advice, memory, tool, arguments)

        return await self._ask("ask about an action", look, call)

    async def seen(
        self,
        tool: str,
        error: str,
        call: str = "",
        agent: str = "",
        arguments: Arguments | None = None,
    ) -> Advice:
        """Return the one thing that helps after this error of a tool, if it is known.

        That is the contract of the tool, or the lesson that says what fixed the error;
        the first of these that applies, unless it was told before the call. `call` and
        `agent` are as in `before`; without its `arguments`, those of the call count.
        """
        # The stored event has up to `Limits.content` characters of the error, as the
        # file of a session has: pytest names the error at the end of its output.
        event = Event("tool_response", agent=agent, tool=tool, call=call, error=error)

        async def look(memory: CallMemory) -> Advice:
            from heedful.memory import remedies  # only failed calls need it

            failure = remedies.FailureInquiry(
                memory=memory,
                session=self.id,
                folder=self.host.root,
                tool=tool,
                error=error,
                call=call,
                given=arguments,
            )
            remedy = await failure.find_remedy()
            if remedy.silence or 0 < len(remedy.line) <= self.room:
                marks = [remedy.mark] if remedy.mark else []
                await self._record([event], marks=marks)
                return Advice(text=remedy.line, silence=remedy.silence)

            seen, lessons = await failure.find_lesson()
            if await self._known(memory, lessons):
                await self._record([event])
                return Advice(silence=say("told"))

            marks = user_rules.told_lessons(lessons)
            return await self._offer(
                memory, lessons, [event], marks=marks, release=seen.release
            )

        return await self._ask("ask about an error", look, call)

    async def keep(self, *events: Event) -> None:
        """Keep events of the run."""
        await self.host.guarded(
            "keep events", self._record(events), otherwise=frozenset()
        )

    async def course(self, tool: str, arguments: Any, call: str) -> tuple[bool, bool]:
        """Return whether a call is kept, and whether its tool or action failed last."""
        memory = self.host.own_memory
        if memory is None:
            return True, False

        return await memory.store.read(
            memory.scope,
            episodes.course_of,
            session=self.id,
            tool=tool,
            call=call,
            action=whole_call(tool, arguments),
        )

    async def events(self) -> list[Document]:
        """Return the events, but of each call only the last report and the last result.

        Of other events with the same type, agent and call, each text is kept once: the
        prompts of a turn share its id.
        """
        memory = self.host.own_memory
        if memory is None:
            return []

        rows = await memory.store.read(memory.scope, episodes.session_events, self.id)

        last_rows: dict[object, Document] = {}
        for number, row in enumerate(rows):
            key: object = number
            if row.get("call"):
                key = (
                    row["type"],
                    row["agent"],
                    row["call"],
                    "" if row["type"].startswith("tool_") else row["content"],
                )
            last_rows[key] = row

        return list(last_rows.values())

    async def _ask(
        self,
        purpose: str,
        look: Callable[[CallMemory], Coroutine[Any, Any, Advice]],
        call: str = "",
    ) -> Advice:
        """Return what `look` finds in memory; keep it as the advice about a call."""
        memory = self.host.own_memory
        if memory is None:
            return Advice(silence=say("no memory"))

        silent = Advice(silence=say("slow"))
        advice = await self.host.guarded(purpose, look(memory), silent)
        if advice and call:
            self.call_advice.setdefault(call, []).append(advice.text)
        return advice

    async def _brief(self, memory: CallMemory) -> Advice:
        """Return the brief, with the rules of the user; announce its lessons."""
        # Only the start of a session needs it.
        from heedful.memory import session_brief

        rules = await self._aged(memory, await session_brief.read_team_rules(memory))
        failures = await session_brief.read_failures(memory)
        texts = {line.lesson: line.text for line in failures if line.lesson}
        lessons = [*rules, *await self._aged(memory, texts)]

        announced = await self._record(lessons=lessons)
        ids = announced | {reminders.UNLEARNT_LESSON}
        team_rules = {id: text for id, text in rules.items() if id in announced}
        lines = [line for line in failures if line.lesson in ids]
        fixes = [line.lesson for line in lines if line.has_fix and line.lesson]
        await self._record(marks=user_rules.told_lessons([*team_rules, *fixes]))

        own_rules = await rules_of_session(memory, self.id, self.host.everywhere)
        # What no call can match is told now or never.
        own_rules = sorted(own_rules, key=lambda rule: bool(names_in(rule.text)))
        rule_texts = [*(rule.text for rule in own_rules), *team_rules.values()]
        text = session_brief.brief_text(rule_texts, list(map(str, lines)))
        if text:
            return Advice(text=facts({1: text}, label="brief"))
        return _silent(withheld=bool(lessons))

    async def _with_rules(
        self,
        advice: Advice,
        memory: CallMemory,
        tool: str,
        arguments: Arguments,
    ) -> Advice:
        """Return the advice below the rules that name a call, if there is room."""
        rules = await memory.store.read(
            memory.scope,
            user_rules.about_call,
            tool,
            arguments,
            session=self.id,
            rules=await rules_everywhere(memory, self.host.everywhere),
        )
        if not rules or not self.room:
            return advice

        marks = list(chain.from_iterable(rules.values()))
        await memory.store.write(
            memory.scope, user_rules.tell, self.id, rules=list(rules), marks=marks
        )
        return advice.below(rules_text(list(rules), NAMED_HEADING))

    async def _known(
        self, memory: CallMemory, lessons: Iterable[int]
    ) -> frozenset[int]:
        """Return those of the lessons that the run was told."""
        return await memory.store.read(
            memory.scope, user_rules.known_lessons, self.id, list(lessons)
        )

    async def _offer(
        self,
        memory: CallMemory,
        lessons: Mapping[int, str],
        events: Sequence[Event] = (),
        *,
        marks: Sequence[str],
        unlearnt: str = "",
        release: str = "",
    ) -> Advice:
        """Return the lessons that have room and are not withheld; keep the events.

        `marks` say what is told, `unlearnt` is the mark of what is told without a
        lesson. `release` is the command that releases what waits in quarantine.
        """
        fit = fitting_texts(await self._aged(memory, lessons), self.room)
        announced = await self._record(
            events,
            lessons=list(fit),
            marks=marks if fit else (),
            unlearnt=unlearnt,
        )
        texts = {id: text for id, text in fit.items() if id in announced}
        if texts:
            return Advice(text=facts(texts))
        if release:
            return Advice(silence=say("waits", release=release))
        return _silent(withheld=bool(fit))

    async def _aged(
        self, memory: CallMemory, texts: Mapping[int, str]
    ) -> dict[int, str]:
        """Return the texts of lessons; each says which of its files changed since.

        A lesson whose files are all gone rests: it is left out.
        """
        root = self.host.root
        if not texts or not root:
            return dict(texts)

        mistakes = await memory.store.read(memory.scope, calls.mistakes, list(texts))
        files = {id: mistake.files for id, mistake in mistakes.items()}
        aged = {id: aged_text(root, texts[id], files.get(id, {})) for id in texts}
        return {id: text for id, text in aged.items() if text}

    async def _record(
        self,
        events: Sequence[Event] = (),
        *,
        lessons: Sequence[int] = (),
        marks: Sequence[str] = (),
        unlearnt: str = "",
    ) -> frozenset[int]:
        """Record events, and lessons as shown or withheld; return those to be shown.

        The arguments are those of `_offer`.
        """
        memory = self.host.own_memory
        if memory is None or not (lessons or events or marks):
            return frozenset()

        too_late = False
        try:
            return await memory.store.write(
                memory.scope,
                _write_record,
                self.id,
                [episodes.event_row(event) for event in events],
                lessons=lambda: () if too_late else lessons,
                share=memory.holdout,
                marks=marks,
                unlearnt=unlearnt,
                root=self.host.root,
            )
        except asyncio.CancelledError:
            # The write still waits for its turn, and its answer would not be shown.
            too_late = True
            raise


def _silent(*, withheld: bool) -> Advice:
    """Return that the draw left out what is known, or that nothing is known."""
    return Advice(silence=say("withheld" if withheld else "nothing known"))


@resumable(result=frozenset[int], counts=True)
def _write_record(
    db: Db,
    scope: Scope,
    session: str,
    rows: Sequence[Fields],
    *,
    lessons: Callable[[], Sequence[int]],
    share: float,
    marks: Sequence[str],
    unlearnt: str,
    root: str,
) -> frozenset[int]:
    """Record events, and lessons as shown or withheld; return those to be shown.

    `lessons` returns them when the write begins; `share` of them are withheld. `root`
    is the folder of the repository.
    """
    session_marks.mark(db, scope, session, marks)
    # A call before a lesson was shown is not an opportunity to follow it.
    episodes.append_events(db, scope, session, rows, root=root)
    return reminders.remind(
        db,
        scope,
        session,
        lessons=lessons(),
        mark=unlearnt,
        share=share,
        at=time.time(),
    )
