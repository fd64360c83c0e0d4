"""heedful beside the calls of an agent that somebody else's framework runs.

What hooks of a call need, and no more: a hook process starts for each event. A call
that fails or takes too long says nothing, so the agent continues without it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from heedful.episodes.episode import Arguments, Event
from heedful.errors import Conflict
from heedful.lessons.call_marks import whole_call
from heedful.lessons.commands import release_command
from heedful.lessons.reasons import say
from heedful.lessons.render import MAX_MOMENT_CHARS, facts
from heedful.lessons.scope import MAX_PROMPT_LESSONS, Scope, reader_of
from heedful.lessons.telling import LessonCandidate, Moment, TellingBudget
from heedful.lessons.user_rules import (
    BROKEN_HEADING,
    DENIED_HEADING,
    StatedRule,
    TellingCode,
    rules_text,
)
from heedful.memory.call_memory import CallMemory, log_failure
from heedful.memory.files import aged_text
from heedful.redact import redact
from heedful.sanitize import cut_middle
from heedful.store import (
    calls,
    episodes,
    open_store,
    reminders,
    session_marks,
    user_rules,
)
from heedful.store.connection import Db, holds, resumable
from heedful.store.inline import is_inline
from heedful.store.store import Store
from heedful.validation import (
    MAX_SHOWN_ITEMS,
    Document,
    Fields,
    check_number,
    typed_frozen,
)

if TYPE_CHECKING:
    from heedful.models.contract import Message

T = TypeVar("T")


@typed_frozen(slots=True, kw_only=True)
class Advice:
    """What memory says at one moment of a run; false if it says nothing.

    `text` is for the user's part of a prompt: facts between random delimiters, at most
    9,500 characters. `examples` are worked examples as chat turns, for hosts that can
    place turns before the task; `text` has them, too. `silence` is the reason if
    nothing is said. A person reads `notes`, such as the rule that was just stored. If
    it `denies` the call, the call must not run: a rule of the user forbids it, or the
    budget of the run is spent.
    """

    text: str = ""
    examples: tuple[Message, ...] = ()
    silence: str = ""
    notes: tuple[str, ...] = ()
    denies: bool = False

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
        raises it if `strict`. The limit is `seconds`, none if not `limited`. An inline
        run has no such limit: it waits only for locks, and not long.
        """
        limit: asyncio.Timeout | None = None
        try:
            if is_inline():
                return await work
            import asyncio

            limit = asyncio.timeout(self.seconds if limited else None)
            async with limit:
                return await work
        except Exception as error:  # the edge to the host, which must not fail by us
            if self.strict:
                raise

            hint = ""
            text = redact(f"{type(error).__name__}: {error}")
            if type(error) is Conflict:
                hint = " (its id has another task or policy: use a new id)"
            elif limit is not None and limit.expired():
                text = f"it takes more than {self.seconds:g} s: Host(seconds=…)"
            line = " ".join(text.split())[:1_000]

            log_failure(f"heedful could not {what}{hint}: {line}", error)
            tell(line)
            return otherwise


@dataclass(eq=False, kw_only=True)
class CallRun:
    """The calls of one run of an agent; the fields are those of `HostRun`.

    Each question reads memory by `_ask`, within the time limit of the host. `_offer`
    hands what it found to `tell`, and `_record` writes down what is told before anybody
    reads it. What an agent was told is a *mark*, so that no later process says it
    again.
    """

    host: CallHost
    id: str = ""
    task: Any = ""
    call_advice: dict[str, list[str]] = field(default_factory=dict)
    room: int = MAX_MOMENT_CHARS

    def __post_init__(self) -> None:
        self.id = self.id or f"run-{os.urandom(8).hex()}"

    async def opening(self, agent: str = "") -> Advice:
        """Return a brief for a task yet unknown: what cost earlier sessions most calls.

        It has at most ten lines, and none where nothing came back. `agent` is the name
        of the agent that begins, if the run has several.
        """

        brief = partial(self._brief, reader=reader_of(self.id, agent))
        return await self._ask("begin", brief)

    async def rules_about(
        self, tool: str, arguments: Arguments, call: str = "", agent: str = ""
    ) -> Advice:
        """Return the rules of the user that a call breaks, or has just broken.

        `call` and `agent` are as in `before`.
        """
        event = Event(
            "tool_call", agent=agent, tool=tool, arguments=arguments, call=call
        )
        rules = partial(self._with_rules, advice=Advice(), event=event, deny=False)
        return await self._ask("ask about the rules of the user", rules)

    async def before(
        self,
        tool: str,
        arguments: Arguments,
        call: str = "",
        agent: str = "",
        deny: bool = False,
    ) -> Advice:
        """Return how calls like this one failed, and what fixed them.

        Also returns the rules of the user that it breaks; if one of them is to deny
        calls, or all are (`deny`), the advice does. `call` is the id of the call,
        `agent` the name of the agent if the run has several. Each failure is told once
        to an agent, as long as it remembers, and a rule at each call.
        """
        fields = {"command": arguments} if isinstance(arguments, str) else arguments
        event = Event("tool_call", agent=agent, tool=tool, arguments=fields, call=call)
        reader = reader_of(self.id, agent)

        async def look(memory: CallMemory) -> Advice:
            knowledge = await memory.store.read(
                memory.scope,
                calls.knowledge_of,
                tool,
                arguments,
                reader=reader,
                folder=self.host.root,
                stated=memory.stated,
            )
            advice = await self._offer(
                memory,
                "before call",
                knowledge.candidates,
                [event],
                reader=reader,
                release=release_command(knowledge.waiting),
            )
            return await self._with_rules(memory, advice, event, deny=deny)

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
            candidates, release = await failure.find_candidates()
            return await self._offer(
                memory,
                "after failure",
                candidates,
                [event],
                reader=reader_of(self.id, agent),
                release=release,
                lessons=1,
            )

        return await self._ask("ask about an error", look, call)

    async def keep(self, *events: Event) -> None:
        """Keep events of the run."""
        work = self.write(events)
        await self.host.guarded("keep events", work, otherwise=None)

    async def write(self, events: Sequence[Event]) -> None:
        """Keep events of the run, however long it takes. Raises StoreError."""
        await self._record(
            "question", (), events, reader=self.id, budget=TellingBudget()
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

    async def _brief(self, memory: CallMemory, reader: str) -> Advice:
        """Return the brief, with the rules of the user; announce its lessons."""
        # Only the start of a session needs it.
        from heedful.memory import session_brief

        failures = await self._aged(memory, await session_brief.read_failures(memory))
        team_rules = await self._aged(
            memory, await session_brief.read_team_rules(memory)
        )
        candidates, announcement = await self._record(
            "session start",
            [*team_rules, *failures],
            reader=reader,
            budget=session_brief.BRIEF_BUDGET,
        )
        lines = [str(c.record) for c in candidates if c.leg == "brief"]
        team_texts = [c.text for c in candidates if c.leg != "brief"]

        own_rules = await rules_of_session(memory, self.id, reader, self.host)
        rule_texts = [*(rule.line for rule in own_rules), *team_texts]
        text = session_brief.brief_text(rule_texts, lines)
        if text:
            return Advice(text=facts({1: text}, label="brief"))
        return _silent(announcement)

    async def _with_rules(
        self, memory: CallMemory, advice: Advice, event: Event, *, deny: bool
    ) -> Advice:
        """Return the advice below the rules that a call breaks, if there is room.

        `event` is the call. The agent is told at each such call.
        """
        everywhere = await rules_everywhere(memory, self.host.everywhere)
        rules = await memory.store.read(
            memory.scope,
            user_rules.broken_by,
            event.tool,
            event.arguments or {},
            rules=everywhere,
        )
        rules = fresh_rules(self.host.root, rules)
        denies = any(deny or rule.denied for rule in rules)
        # Without room for advice, a call may still be denied.
        if not denies and not (rules and self.room):
            return advice

        code: TellingCode = "rules denied" if denies else "rules told"
        heading = DENIED_HEADING if denies else BROKEN_HEADING
        await tell_rules(
            memory, self.id, rules, code=code, call=event.call, agent=event.agent
        )
        return replace(advice.below(rules_text(rules, heading)), denies=denies)

    async def _offer(
        self,
        memory: CallMemory,
        moment: Moment,
        candidates: Sequence[LessonCandidate],
        events: Sequence[Event] = (),
        *,
        reader: str,
        release: str = "",
        lessons: int = MAX_PROMPT_LESSONS,
    ) -> Advice:
        """Return what is told of the candidates at a moment; keep the events.

        There is room for so many `lessons`. `release` is the command that releases what
        waits in quarantine.
        """
        candidates, announcement = await self._record(
            moment,
            await self._aged(memory, candidates),
            events,
            reader=reader,
            budget=TellingBudget(
                lessons=min(lessons, self.room),
                unchecked=lessons,
                size=self.room,
                measure=_measure_texts,
            ),
        )
        if candidates:
            texts = {c.lesson: cut_middle(c.text, self.room) for c in candidates}
            return Advice(text=facts(texts))
        return _silent(announcement, release)

    async def _aged(
        self, memory: CallMemory, candidates: Sequence[LessonCandidate]
    ) -> list[LessonCandidate]:
        """Return candidates; the text of each says which of its files changed since."""
        root = self.host.root
        ids = {candidate.lesson for candidate in candidates} - {0}
        if not ids or not root:
            return list(candidates)

        mistakes = await memory.store.read(memory.scope, calls.mistakes, ids)
        files = {id: mistake.files for id, mistake in mistakes.items()}
        aged_candidates = []
        for candidate in candidates:
            text = aged_text(root, candidate.text, files.get(candidate.lesson, {}))
            has_files = text != "" or candidate.text == ""
            aged_candidates.append(replace(candidate, text=text, has_files=has_files))
        return aged_candidates

    async def _record(
        self,
        moment: Moment,
        candidates: Sequence[LessonCandidate] = (),
        events: Sequence[Event] = (),
        *,
        reader: str,
        budget: TellingBudget,
    ) -> tuple[list[LessonCandidate], reminders.Announcement]:
        """Record events, and what the reader is told of the candidates; return both."""
        memory = self.host.own_memory
        if memory is None or not (candidates or events):
            return [], reminders.Announcement(silence=say("nothing known"))

        too_late = False
        try:
            announcement = await memory.store.write(
                memory.scope,
                _write_record,
                self.id,
                [episodes.event_row(event) for event in events],
                reader=reader,
                moment=moment,
                candidates=lambda: () if too_late else candidates,
                budget=budget,
                share=memory.holdout,
                root=self.host.root,
            )
        finally:
            # If this task was cancelled, the write may still wait for its turn, and its
            # answer would not be shown.
            too_late = True
        return [candidates[place] for place in announcement.told], announcement


async def rules_everywhere(memory: CallMemory, everywhere: str) -> Sequence[StatedRule]:
    """Return the rules for all projects of the user; `everywhere` is their database."""
    if not everywhere or not _is_made(everywhere):
        return ()
    return await open_store(everywhere).read(
        Scope(memory.scope.tenant), user_rules.in_force
    )


def _is_made(database: str) -> bool:
    """Return whether a database has its file."""
    return Path(database).exists()


async def rules_of_session(
    memory: CallMemory,
    session: str,
    reader: str,
    host: CallHost,
    again: bool = True,
) -> Sequence[StatedRule]:
    """Return the rules that hold in a session, and note that its reader was shown them.

    Unless `again`, a reader that was shown them and remembers it gets none.
    """
    store = memory.store
    scope = memory.scope
    marks = {user_rules.SHOWN_MARK}
    known_marks = await store.read(scope, session_marks.find, reader, marks)
    if known_marks and not again:
        return ()
    others = await rules_everywhere(memory, host.everywhere)
    rules = [*await store.read(scope, user_rules.in_force), *others]
    rules = fresh_rules(host.root, {rule.digest: rule for rule in rules}.values())
    await tell_rules(
        memory,
        session,
        rules[:MAX_SHOWN_ITEMS],
        code="rules at start",
        reader=reader,
    )
    return rules


def fresh_rules(root: str, rules: Iterable[StatedRule]) -> list[StatedRule]:
    """Return rules whose files are still there, with a note of those that changed.

    `root` is the folder of the files. First come the rules that no call can break,
    which are told now or never; last those that the user has not said for long.
    """
    noted_rules = []
    for rule in rules:
        text = aged_text(root, rule.text, rule.files)
        if text:
            noted_rules.append(replace(rule, note=text.removeprefix(rule.text)))
    return sorted(noted_rules, key=lambda rule: (rule.is_old, rule.forbids))


async def tell_rules(
    memory: CallMemory,
    session: str,
    rules: Sequence[StatedRule],
    *,
    code: TellingCode,
    call: str = "",
    agent: str = "",
    reader: str = "",
) -> None:
    """Record that a session is told rules; `reader` is who is shown them at the start.

    `call` is the id of the call before which an `agent` is told.
    """
    events = []
    if rules:
        digests = " ".join(rule.digest for rule in rules)
        event = Event("system_event", digests, code=code, call=call, agent=agent)
        events = [episodes.event_row(event)]
    await memory.store.write(
        memory.scope, _write_telling, session, events, reader=reader
    )


@holds()
@resumable(result=None, counts=True)
def _write_telling(
    db: Db, scope: Scope, session: str, events: Sequence[Fields], *, reader: str
) -> None:
    """Add the event that says which rules were told, and mark who was shown them."""
    if reader:
        session_marks.mark(db, scope, reader, [user_rules.SHOWN_MARK])
    episodes.append_events(db, scope, session, events)


def _measure_texts(candidates: Sequence[LessonCandidate]) -> int:
    """Return the characters of texts; the first is cut if it alone is too long."""
    if len(candidates) == 1:
        return 0
    return sum(len(candidate.text) for candidate in candidates)


def _silent(announcement: reminders.Announcement, release: str = "") -> Advice:
    """Return why nothing is told: what is known was withheld, waits, or was told."""
    if release and not announcement.has_withheld:
        return Advice(silence=say("waits", release=release))
    return Advice(silence=announcement.silence)


@resumable(result=reminders.Announcement, counts=True)
def _write_record(
    db: Db,
    scope: Scope,
    session: str,
    rows: Sequence[Fields],
    *,
    reader: str,
    moment: Moment,
    candidates: Callable[[], Sequence[LessonCandidate]],
    budget: TellingBudget,
    share: float,
    root: str,
) -> reminders.Announcement:
    """Record events, and what the reader is told, which is returned.

    `candidates` returns them when the write begins; `share` of the lessons is withheld.
    `root` is the folder of the repository.
    """
    # A call before a lesson was shown is not an opportunity to follow it.
    episodes.append_events(db, scope, session, rows, root=root)
    return reminders.tell_session(
        db,
        scope,
        session,
        reader=reader,
        moment=moment,
        candidates=candidates(),
        budget=budget,
        share=share,
        at=time.time(),
    )
