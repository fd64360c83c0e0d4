"""heedful beside an agent that somebody else's framework runs: five verbs for all.

`recall` what fits a task, ask `before` an action, ask whether an error was `seen`, get
a `verdict` on an output, and `learn` from what happened. This module knows no
framework. A call that fails or takes too long says nothing, so the agent continues
without it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from heedful.episodes.episode import Ended, Event
from heedful.errors import Conflict, NotFound
from heedful.integrations.reminders import (
    mark_of,
    measure_checks,
    settle_reminders,
)
from heedful.integrations.session_rules import (
    hear_rules,
    rules_everywhere,
    rules_of_session,
)
from heedful.lessons import ranking
from heedful.lessons.action import (
    MAX_MOMENT_CHARS,
    action,
    facts,
    fitting_texts,
)
from heedful.lessons.briefing import explain_unshown
from heedful.lessons.call_marks import ActionHistory
from heedful.lessons.lesson import Matches
from heedful.lessons.scope import Scope
from heedful.lessons.silence import say
from heedful.lessons.user_rules import NAMED_HEADING, names_in, rules_text
from heedful.loop.decide import Done, Policy, Verdict
from heedful.loop.record import Candidate, Evaluation, Finding, Goal
from heedful.loop.stop import Stop
from heedful.memory.files import aged_text
from heedful.memory.memory import (
    Memory,
    log_failure,
    open_memory,
)
from heedful.memory.vectors import load_embedder
from heedful.models.contract import Message
from heedful.redact import redact
from heedful.store import (
    calls,
    episodes,
    exposures,
    open_store,
    reminders,
    session_marks,
    user_rules,
)
from heedful.store.connection import Db, resumable
from heedful.store.store import Store
from heedful.validation import check_number, refuses_unknown_options, require

if TYPE_CHECKING:  # a hook process imports only what its event needs
    from heedful.checks.evaluate import Check
    from heedful.checks.refusal import Refusing
    from heedful.drive.report import ReportedLoop
    from heedful.lessons.patterns import Seen
    from heedful.memory.sessions import Learned

T = TypeVar("T")
_log = logging.getLogger("heedful")


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
    lessons: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text)

    def below(self, text: str) -> Advice:
        """Return the advice with a text above it, if there is one."""
        if not text:
            return self
        lines = filter(None, [text, self.text])
        return replace(self, text="\n".join(lines), silence="")


@refuses_unknown_options
@dataclass(eq=False, kw_only=True)
class Host:
    """heedful for the runs of one agent: its memory, its checks, and when it must stop.

    `memory` is a Memory, a Store, its name, or None. `checks`, `refuse`, `goals`,
    `policy`, `memory_key`, `model` and `context` are those of `open_loop`; without
    checks and goals no run gets a verdict. A lookup takes at most `seconds`, the first
    one also the time in which the embedder is loaded. Errors of heedful are logged and
    not raised, except with `strict`. Tools in `polls` wait for something, so an agent
    may repeat their calls. `root` is the folder of the repository in which the runs
    work, if any: lessons name files relative to it. `everywhere` is the database of the
    user's own memory, whose rules hold in all projects, if it is not `memory`.
    """

    memory: Memory | Store | str | None = "heedful.db"
    checks: Sequence[Check] = ()
    refuse: Refusing = ()
    goals: Sequence[Goal | str] = ()
    policy: Policy | str = "default"
    memory_key: str | None = None
    model: str = ""
    context: Any = None
    scope: Scope | None = None
    seconds: float = 2.0
    strict: bool = False
    polls: Collection[str] = ()
    root: str = ""
    everywhere: str = ""

    def __post_init__(self) -> None:
        check_number("seconds", self.seconds, low=0.001, high=3_600.0)
        allowed = "a collection of tool names, such as a list"
        require(not isinstance(self.polls, str), "polls", self.polls, allowed)
        self.own_memory: Memory | None = None
        self.own_scope: Scope = self.scope or Scope()
        if self.memory is not None:
            self.own_memory = open_memory(self.memory, self.scope)
            self.own_scope = self.own_memory.scope

        memory = self.own_memory
        self.store: Store = memory.store if memory else open_store(":memory:")
        self._is_started = False

    async def start(self) -> None:
        """Load the embedder, so that no lookup waits for it; the first one calls this.

        Takes at most 10 s.
        """
        memory = self.own_memory
        if memory is None or self._is_started:
            return

        self._is_started = True
        work = load_embedder(memory.embedder)
        await self.guarded("load the embedder", work, None, limited=False)

    def run(self, id: str = "", task: Any = "") -> HostRun:
        """Return the run of an agent; the `id` of an earlier run continues that run.

        Without a `task`, an earlier run that was judged keeps its task.
        """
        return HostRun(host=self, id=id or f"run-{os.urandom(8).hex()}", task=task)

    async def sweep(self) -> None:
        """End runs without an event for a day: they were killed or lost."""
        memory = self.own_memory
        if memory is None:
            return

        before = time.time() - exposures.ABANDONED_LOOP_SECONDS
        for id in await memory.store.read(memory.scope, episodes.abandoned, before):
            await self.run(id)._finish(memory)

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
class HostRun:
    """One run of an agent, from its task to its last output; `Host.run` returns one.

    The events of the run are in the store, so that another process can go on with the
    same `id`. `outputs` are those of the attempts, as the host gave them.
    `call_advice` has the advice about calls, by their ids. `room` is how many
    characters of lessons the host can show now: what it cannot show is not recorded as
    shown. `unjudged` says why the last output has no verdict, if heedful failed.
    """

    host: Host
    id: str
    task: Any = ""
    loop: ReportedLoop | None = None
    outputs: list[Any] = field(default_factory=list)
    call_advice: dict[str, list[str]] = field(default_factory=dict)
    room: int = MAX_MOMENT_CHARS
    unjudged: Done | None = None

    async def opening(self) -> Advice:
        """Return a brief for a task yet unknown: what cost earlier sessions most calls.

        It has at most ten lines, and none where nothing came back.
        """
        return await self._ask("begin", self._look_for_opening)

    async def _look_for_opening(self, memory: Memory) -> Advice:
        """Return the brief, and announce its lessons."""
        from heedful.integrations import brief  # only the start of a session needs it

        rules = await self._aged(await brief.read_team_rules(memory))
        lines = await brief.read_failures(memory)
        texts = {line.lesson: line.text for line in lines if line.lesson}
        present = await self._aged(texts)
        announced = await self._announce([*rules, *present])
        ids = announced | {reminders.UNLEARNT_LESSON}
        stated = await rules_of_session(memory, self.id, self.host.everywhere)
        # What no call can match is told now or never.
        stated = sorted(stated, key=lambda rule: bool(names_in(rule.text)))
        rule_texts = [rule.text for rule in stated]
        rule_texts += [rules[id] for id in rules if id in announced]
        told_lines = [line for line in lines if line.lesson in ids]
        told_ids = [id for id in rules if id in announced]
        told_ids += [line.lesson for line in told_lines if line.has_fix and line.lesson]
        await self._announce((), marks=user_rules.told_lessons(told_ids))
        text = brief.brief_text(rule_texts, list(map(str, told_lines)))
        if not text:
            is_withheld = bool(rules or present)
            return Advice(silence=say("withheld" if is_withheld else "nothing known"))
        return Advice(text=facts({1: text}, label="brief"), lessons=announced)

    async def rules(self) -> str:
        """Return the rules of the user that hold in this run, as text; "" without any.

        A run that was shown them, as its opening shows them, gets none.
        """
        memory = self.host.own_memory
        if memory is None or not self.room:
            return ""
        everywhere = self.host.everywhere
        work = rules_of_session(memory, self.id, everywhere, again=False)
        rules = await self.host.guarded("read the rules of the user", work, ())
        return rules_text(rules)

    async def rules_about(
        self, tool: str, arguments: Mapping[str, Any] | str
    ) -> Advice:
        """Return the rules of the user that name a call; each is told once in a run."""

        async def look(memory: Memory) -> Advice:
            return await self._add_rules(memory, tool, arguments, Advice())

        return await self._ask("ask about the rules of the user", look)

    async def _add_rules(
        self,
        memory: Memory,
        tool: str,
        arguments: Mapping[str, Any] | str,
        advice: Advice,
    ) -> Advice:
        """Return the advice after the rules that name a call, if there is room."""
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

    async def recall(self, task: Any = None, call: str = "") -> Advice:
        """Return what memory has for the task; `call` is the id of its message, if any.

        If the run goes on after an end of its process, also return the last feedback.
        Rules in the words of the user are stored; a person reads so in the `notes`.
        """
        self.task = self.task if task is None else task
        await self.host.start()
        advice = await self.host.guarded(
            "recall", self._recall(call), Advice(silence=say("slow"))
        )
        memory = self.host.own_memory
        if memory is not None and isinstance(self.task, str):
            work = hear_rules(memory, self.id, self.task)
            notes = await self.host.guarded("store a rule of the user", work, [])
            for note in notes:
                _log.info(note)
            advice = replace(advice, notes=tuple(notes))
        self.room = min(self.room, MAX_MOMENT_CHARS - len(advice.text))
        return advice

    async def before(
        self,
        tool: str,
        arguments: Mapping[str, Any] | str,
        call: str = "",
        agent: str = "",
    ) -> Advice:
        """Return how calls like this one failed, and what fixed them.

        Also returns the rules of the user that name it.

        `call` is the id of the call, `agent` the name of the agent if the run has
        several. Each failure is told once in a run.
        """
        fields = {"command": arguments} if isinstance(arguments, str) else arguments
        event = Event("tool_call", agent=agent, tool=tool, arguments=fields, call=call)

        async def look(memory: Memory) -> Advice:
            """Return advice from earlier failures of this call."""
            history = await memory.store.read(
                memory.scope,
                calls.history_of,
                tool,
                arguments,
                session=self.id,
                folder=self.host.root,
                stated=memory.stated,
            )
            marks = [f"told {digest}" for digest in history.marks]
            advice = await self._offer(history, history.warnings, event, marks)
            return await self._add_rules(memory, tool, arguments, advice)

        return await self._ask("ask about an action", look, call)

    async def seen(
        self,
        tool: str,
        error: str,
        call: str = "",
        agent: str = "",
        arguments: Mapping[str, Any] | str | None = None,
    ) -> Advice:
        """Return the one thing that helps after this error of a tool, if it is known.

        That is the contract of the tool, or the lesson that says what fixed the error;
        the first of these that applies, unless it was told before the call. `call` and
        `agent` are as in `before`; without its `arguments`, those of the call count.
        """
        # The stored event has up to `Limits.content` characters of the error, as the
        # file of a session has: pytest names the error at the end of its output.
        event = Event("tool_response", agent=agent, tool=tool, call=call, error=error)

        async def look(memory: Memory) -> Advice:
            """Return advice about this error; a line without a lesson comes first."""
            from heedful.integrations import remedies  # only failed calls need it

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
                await self._announce((), [event], marks=marks)
                return Advice(text=remedy.line, silence=remedy.silence)

            seen, lessons = await failure.find_lesson()
            if await self._known(memory, lessons):
                await self._announce((), [event])
                return Advice(silence=say("told"))
            marks = user_rules.told_lessons(lessons)
            return await self._offer(seen, lessons, event, marks)

        return await self._ask("ask about an error", look, call)

    async def verdict(
        self,
        output: Any,
        usage: Any = None,
        attempt: int | None = None,
        *,
        misfit: str = "",
    ) -> Verdict | None:
        """Check an output and decide; None without checks and goals, or on a failure.

        A `misfit` says why the output is not of the type that the agent must answer
        with: no check reads such an output, it is refused. Checks have no time limit
        here. After the end of the loop, return the last verdict. An output with which
        an earlier process stopped also returns it when it is reported again: the output
        with the same number or, if the host does not count its `attempt`, an equal one.
        """
        if not self.judges:
            return None
        return await self.host.guarded(
            "judge an output",
            work=self._judge(output, usage, attempt, misfit),
            otherwise=None,
            limited=False,
            tell=self._set_unjudged,
        )

    async def _judge(
        self, output: Any, usage: Any, attempt: int | None, misfit: str
    ) -> Verdict | None:
        """Report an output that is new to the loop; return the last verdict."""
        loop = self.loop or await self._open()
        data = _plain_data(output)
        attempts = loop.loop.attempts

        if attempt is not None:
            is_new = attempt > len(attempts)
        else:
            # The first output of this process may be the last of an earlier process.
            digest = Candidate.of(data).digest
            is_last = bool(attempts) and attempts[-1].candidate.digest == digest
            is_new = bool(self.outputs) or not is_last

        if is_new and loop.ended:
            return loop.verdict

        fields: dict[str, Any] = {}
        if usage is not None:
            fields["usage"] = usage
        if misfit:
            finding = Finding("output type", misfit, fix="answer with this type only")
            fields.update(evaluation=Evaluation(findings=(finding,)), checks=())
        if is_new:
            await loop.report(data, **fields)

        self.outputs.append(output)
        return loop.verdict

    def _set_unjudged(self, reason: str) -> None:
        """Note the failure of heedful for which the last output has no verdict."""
        rule = Stop("unjudged", f"not judged: {reason}")
        self.unjudged = Done(None, passed=False, stopped_by=(rule,))

    @property
    def next(self) -> int | None:
        """The number of the next attempt, None before the loop is open.

        It is for a host that may have been restarted.
        """
        return len(self.loop.loop.attempts) + 1 if self.loop else None

    @property
    def judges(self) -> bool:
        """True if the host has checks or goals."""
        return bool(self.host.checks or self.host.goals)

    @property
    def best(self) -> Any:
        """The best output, as the host gave it; None before the first verdict."""
        if self.loop is None:
            return None
        loop = self.loop.loop
        if not loop.best:
            return None

        # The first attempts may be those of an earlier process.
        earlier_attempts = len(loop.attempts) - len(self.outputs)
        index = loop.best - 1 - earlier_attempts
        return self.outputs[index] if index >= 0 else self.loop.candidate

    async def learn(self, *events: Event, ends: Ended | None = None) -> Learned | None:
        """Keep events; if the run `ends`, store what it teaches and forget its events.

        Learns from errors and from what fixed them, never from an output that was
        rejected. If heedful fails, returns None.
        """
        is_end = ends is not None
        return await self.host.guarded(
            "learn from a run" if is_end else "keep events",
            work=self._keep(events, ends=is_end),
            otherwise=None,
            limited=not is_end,
        )

    async def _keep(
        self, events: Sequence[Event], *, ends: bool = False
    ) -> Learned | None:
        """Store events; if the run ends, return what it taught."""
        await self._announce((), events)
        memory = self.host.own_memory
        if not ends or memory is None:
            return None

        learned = await self._finish(memory)
        await self.host.sweep()
        return learned

    async def study(self, *, ends: bool = False) -> Learned | None:
        """Store what the run has taught so far. Raises StoreError.

        A run that goes on teaches something by its failures only. Returns None if there
        is no memory.
        """
        from heedful.episodes.reading import read
        from heedful.memory.sessions import Learned, learn_session

        memory = self.host.own_memory
        if memory is None:
            return None

        events = await self.events()
        # The keys of the service by which the events came.
        keys = frozenset(event.pop("via") for event in events) - {""}
        if not events:
            return Learned()

        document = {"session": self.id, "outcome": "partial", "events": events}
        file = json.dumps(document).encode()
        session, *_ = await asyncio.to_thread(lambda: list(read(file)))
        return await learn_session(
            session,
            memory=memory,
            sources=keys,
            root=self.host.root,
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
            action=action(tool, arguments),
        )

    async def events(self) -> list[dict[str, Any]]:
        """Return the events, but of each call only the last report and the last result.

        Of other events with the same type, agent and call, each text is kept once: the
        prompts of a turn share its id.
        """
        memory = self.host.own_memory
        if memory is None:
            return []

        rows = await memory.store.read(memory.scope, episodes.session_events, self.id)

        last_rows: dict[object, dict[str, Any]] = {}
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

    async def _open(self) -> ReportedLoop:
        """Open the loop of the run; without a task, the run has that of its loop."""
        from heedful.drive.report import open_loop
        from heedful.store import loops

        host = self.host
        if self.task == "":
            with suppress(NotFound):
                stored_loop = await host.store.read(host.own_scope, loops.read, self.id)
                self.task = stored_loop.head.task

        self.loop = await open_loop(
            self.id,
            _plain_data(self.task),
            memory=host.own_memory,
            memory_key=host.memory_key,
            model=host.model,
            checks=host.checks,
            refuse=host.refuse,
            goals=host.goals,
            policy=host.policy,
            store=host.store,
            scope=host.scope,
            context=host.context,
        )
        return self.loop

    async def _ask(
        self,
        purpose: str,
        look: Callable[[Memory], Coroutine[Any, Any, Advice]],
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

    async def _recall(self, call: str) -> Advice:
        """Keep the task as an event; return the hint of the loop, or lessons on it."""
        text = self.task
        if not isinstance(text, str):
            text = json.dumps(text, default=repr)
        await self._announce((), [Event("user_message", text, call=call)])

        if self.judges:
            loop = await self._open()
            return Advice(
                text=loop.hint,
                examples=loop.briefing.examples,
                silence=loop.briefing.silence,
            )

        memory = self.host.own_memory
        if memory is None or not self.room:
            return Advice(silence=say("no memory or room"))

        recalled = await memory.recall(text, ranking.MAX_PROMPT_LESSONS)
        # Before any call, a failure without what put it right helps nobody.
        matches = Matches(
            (match for match in recalled if match.meta.get("mended", True)),
            recalled.silence,
        )
        texts = {m.lesson_id: m.lesson or m.example.task for m in matches}
        records = await self._known(memory, texts)
        news = [match for match in matches if match.lesson_id not in records]
        chosen = ranking.choose(news, now=time.time(), advice=True)
        ids = [choice.lesson_id for choice in chosen]
        announced = await self._announce(ids, marks=user_rules.told_lessons(ids))
        choices = [choice for choice in chosen if choice.lesson_id in announced]
        turns = ranking.as_messages(choices)

        silence = ""
        if records and not news:
            silence = say("told")
        elif not choices:
            silence = matches.silence or explain_unshown(text, matches, "both", chosen)

        return Advice(
            text=ranking.as_text(turns, secrets.randbits(64), choices),
            examples=turns,
            silence=silence or ("" if choices else say("withheld")),
        )

    async def _known(
        self, memory: Memory, lessons: Mapping[int, str]
    ) -> frozenset[int]:
        """Return the lessons that the run was told."""
        return await memory.store.read(
            memory.scope, user_rules.known_lessons, self.id, list(lessons)
        )

    async def _offer(
        self,
        history: ActionHistory | Seen,
        lessons: Mapping[int, str],
        event: Event,
        marks: Sequence[str] = (),
    ) -> Advice:
        """Return the lessons that have room and are not withheld; keep the event.

        `marks` say what was told in the session.
        """
        aged = await self._aged(lessons)
        fit = fitting_texts(aged, self.room)
        announced = await self._announce(
            list(fit),
            [event],
            marks=marks if fit else (),
            mark=mark_of(history),
        )
        texts = {id: text for id, text in fit.items() if id in announced}
        if texts:
            return Advice(text=facts(texts), lessons=frozenset(texts))
        if history.release:
            # The command that releases what waits in quarantine.
            return Advice(silence=say("waits", release=history.release))
        return Advice(silence=say("withheld" if fit else "nothing known"))

    async def _aged(self, texts: Mapping[int, str]) -> dict[int, str]:
        """Return the texts of lessons; each says which of its files changed since.

        A lesson whose files are all gone rests: it is left out.
        """
        memory = self.host.own_memory
        if memory is None or not texts or not self.host.root:
            return dict(texts)

        mistakes = await memory.store.read(memory.scope, calls.mistakes, list(texts))
        aged: dict[int, str] = {}
        for id, text in texts.items():
            digests = mistakes[id].files if id in mistakes else {}
            aged_lesson = aged_text(self.host.root, text, digests)
            if aged_lesson:
                aged[id] = aged_lesson
        return aged

    async def _announce(
        self,
        lessons: Sequence[int],
        events: Sequence[Event] = (),
        *,
        marks: Sequence[str] = (),
        mark: str = "",
    ) -> frozenset[int]:
        """Record events, and lessons as shown or withheld; return those to be shown.

        `mark` is the digest of what is told without a lesson, if anything is.
        """
        memory = self.host.own_memory
        rows = [episodes.event_row(event) for event in events]
        if memory is None or not (lessons or rows or marks):
            return frozenset()

        too_late = False

        try:
            return await memory.store.write(
                memory.scope,
                _record_events,
                self.id,
                rows,
                lessons=lambda: () if too_late else lessons,
                share=memory.holdout,
                marks=marks,
                mark=mark,
                root=self.host.root,
            )
        except asyncio.CancelledError:
            # The write still waits for its turn, and its answer would not be shown.
            too_late = True
            raise

    async def _finish(self, memory: Memory) -> Learned | None:
        """Store what the run taught and whether lessons helped; forget its events.

        Its id stays known, because it may go on.
        """
        until = time.time()
        events = await self.events()
        await settle_reminders(memory, self.id, events, self.host.root)
        await measure_checks(memory, events)
        learned = await self.study(ends=True)
        await memory.store.write(
            memory.scope, episodes.forget_session, self.id, until=until
        )
        return learned


@resumable(result=frozenset[int])
def _record_events(
    db: Db,
    scope: Scope,
    session: str,
    rows: Sequence[Mapping[str, Any]],
    lessons: Callable[[], Sequence[int]],
    share: float,
    marks: Sequence[str] = (),
    mark: str = "",
    root: str = "",
) -> frozenset[int]:
    """Record events, and lessons as shown or withheld; return those to be shown.

    `lessons` returns them when the write begins. `mark` is the digest of what is told
    without a lesson, and `root` the folder of the repository.
    """
    session_marks.mark(db, scope, session, marks)
    # A call before a lesson was shown is not an opportunity to follow it.
    episodes.append_events(db, scope, session, rows, root=root)
    return reminders.remind(
        db,
        scope,
        session,
        lessons=lessons(),
        mark=mark,
        share=share,
        at=time.time(),
    )


def _plain_data(value: Any) -> Any:
    """Return JSON data of dataclasses and pydantic objects; a text stays as it is."""
    if isinstance(value, str):
        return value

    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, fallback=repr)
