"""Sessions: what the hooks tell an agent, at which moment, and whether it was right.

Each environment is replayed in order of time through the hooks of a coding agent: the
session's start, each prompt, each call, each result, and the end, when memory learns.
The terms are those of SESSIONS.md: a failure is *first* if its kind is new in its
session; it *could be known* if another session of the environment (in benchmarks: of
another task) failed with the same kind earlier. `failed: null` counts as nothing, and
no hook hears of it. What a text must say to be about a failure, and what to help after
it, stands in `relevance`; what counts as a mend, in `recordings`.

- announced: of the first failures that could be known and whose call is asked about,
  the share whose announcement *held*. A call that was made before in the session is not
  asked about, since the agent has seen its result; `announced_of_all` counts it.
- passed, failed_otherwise: shares of the announcements whose call passed, or failed
  with another error. Only the first is false. The baseline of these three is "this
  command failed the last time it was used".
- prevented: the share of all that could be known of which the session was told before
  the call was written: at its start, with a prompt, at an earlier call. explained: the
  share announced at the call, where nothing was told before. An agent reads an
  announcement together with the result.
- known_after: of the same, the share after which a text is shown, or with an
  announcement that held; new_known is the share of first failures of a new kind after
  which a text is shown. usable: of those with a mend in the recording that are not the
  work itself, the share whose text holds one.
- brief_kept: the calls lost by failures that the brief of their session is about, as a
  share of those of the best ten lines by hindsight. Only failures count of which two
  other sessions had failed before; a line of hindsight is a kind of failure.
- quiet_lines: the lines told in all in 30 sessions, drawn by a seed, in which no
  failure is of a kind that was seen before, in a memory of their own. quiet_among: the
  lines that all such sessions were told among the others, beside their briefs.

The recordings do not show when an agent compacts its context, so a session is told to
have been compacted only where its messages say so. There is no disk behind the paths.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import heedful
from bench.quality.answers import say
from bench.quality.recordings import (
    Action,
    Prompt,
    Session,
    by_environment,
    find_mends,
)
from bench.quality.relevance import helps, is_about, lines_of
from bench.quality.rows import Row, read
from heedful.integrations.host import Host
from heedful.integrations.task_host import TaskHost
from heedful_agents import session_hooks, session_work

CLASSES = ("file", "environment", "work")
COMPACTED = "This session is being continued from a previous conversation"
HINDSIGHT_LINES = 10
QUIET_SESSIONS = 30
DUMPED_TEXTS = 60
MAX_DUMPED_FAILURES = 10
SEED = 20_261_123
ROOT = Path(__file__).resolve().parents[3]
Bound = Literal["at least", "at most"]
# Written before the hooks knew the marks of calls.
EXPECTED: Mapping[str, tuple[Bound, float]] = {
    "sessions.coding.announced_of_all": ("at least", 0.13),
    "sessions.coding.passed": ("at most", 0.10),
    "sessions.sql.announced_of_all": ("at least", 0.75),
    "sessions.sql.passed": ("at most", 0.04),
    "sessions.bash.passed": ("at most", 0.0),
    "sessions.coding.known_after": ("at least", 0.58),
    "sessions.sql.known_after": ("at least", 0.88),
    "sessions.coding.new_known": ("at most", 0.10),
    "sessions.sql.new_known": ("at most", 0.10),
    "sessions.coding.usable": ("at least", 0.50),
    "sessions.coding.brief_kept": ("at least", 0.60),
    "sessions.sql.brief_kept": ("at least", 0.65),
    "sessions.coding.brief_longest": ("at most", 10.0),
    "sessions.coding.quiet_lines": ("at most", 1.0),
    "sessions.minutes": ("at most", 10.0),
}
Moment = Literal["start", "prompt", "before", "after"]
CallOutcome = Literal["", "held", "failed_otherwise", "passed"]


@dataclass(frozen=True, kw_only=True)
class AgentText:
    """A text that an agent is shown.

    `place` is the number of calls before it, and `action` the call that it comes with,
    if any.
    """

    moment: Moment
    text: str
    session: Session
    place: int = 0
    action: Action | None = None


@dataclass(kw_only=True)
class SessionCourse:
    """What happened in a session; quiet means that no failure is of an old kind."""

    session: Session = field(repr=False)
    texts: list[AgentText] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    calls: dict[tuple[str, str], Action] = field(default_factory=dict)
    is_quiet: bool = True

    @property
    def brief(self) -> str:
        """What the session was told at its start."""
        texts = [text.text for text in self.texts if text.moment == "start"]
        return "\n".join(texts)

    @property
    def brief_lines(self) -> int:
        """The lines of its longest brief: it has a second one after a compaction."""
        briefs = [text.text for text in self.texts if text.moment == "start"]
        return max((len(lines_of(brief)) for brief in briefs), default=0)

    @property
    def other_lines(self) -> int:
        """How many lines the session was told beside its briefs."""
        texts = [text.text for text in self.texts if text.moment != "start"]
        return sum(len(lines_of(text)) for text in texts)

    @property
    def lines(self) -> int:
        """How many lines the session was told in all."""
        return sum(len(lines_of(text.text)) for text in self.texts)


@dataclass(kw_only=True)
class Tally:
    """What was counted in the environments of one source.

    `costs` maps an environment and a kind of failure to the calls lost after two
    sessions had shown it.
    """

    counts: Counter[str] = field(default_factory=Counter)
    costs: Counter[tuple[str, str]] = field(default_factory=Counter)
    courses: list[SessionCourse] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add what was counted elsewhere."""
        self.counts += other.counts
        self.costs += other.costs
        self.courses += other.courses

    @property
    def best_cost(self) -> int:
        """The calls lost to the worst ten kinds of each environment."""
        costs: dict[str, list[int]] = defaultdict(list)
        for (environment, _), cost in self.costs.items():
            costs[environment].append(cost)
        worst = (sorted(values)[-HINDSIGHT_LINES:] for values in costs.values())
        return sum(map(sum, worst))


def run(data: Path, split: str, dump: Path | None = None) -> Iterator[Row]:
    """Yield the rows of each source, and of each repository if there are several.

    With `dump`, write texts that were shown with what led to them.
    """
    if dump is not None and dump.resolve().is_relative_to(ROOT):
        raise SystemExit(f"{dump} is in the project, and a dump quotes the data sets")

    start = time.monotonic()
    environments = by_environment(list(read(data, "agent_sessions", split)))
    tallies: dict[str, Tally] = {}
    for name, sessions in environments.items():
        replay = asyncio.run(replay_environment(name, sessions))
        source = sessions[0].source
        keys = [source, name] if source == "coding" else [source]
        for key in keys:
            tallies.setdefault(key, Tally()).add(replay)
    if sum("/" in key for key in tallies) == 1:
        tallies = {key: tally for key, tally in tallies.items() if "/" not in key}

    for source, tally in tallies.items():
        yield from list_rows(f"sessions.{source}", tally)
        yield replay_quiet(f"sessions.{source}", tally)
    minutes = (time.monotonic() - start) / 60
    cpu_minutes = time.process_time() / 60
    yield _row("sessions.minutes", minutes, f"{cpu_minutes:.1f} minutes of CPU")
    if dump is not None:
        write_dump(dump, tallies)


async def replay_environment(name: str, sessions: Sequence[Session]) -> Tally:
    """Replay the sessions of one environment against one memory.

    Nobody has stated anything, as after an installation.
    """
    memory = heedful.Memory(":memory:", heedful.Scope(project=name), holdout=0)
    replay = _Replay(name, memory)
    # A step comes before an end of the same time.
    steps: list[tuple[tuple[float, int, int, int], Prompt | Action | Session]] = []
    for session in sessions:
        steps += [
            ((step.time, 0, session.number, place), step)
            for place, step in enumerate(session.steps)
        ]
        steps.append(((session.end, 1, session.number, 0), session))
    steps.sort(key=lambda step: step[0])

    for done, (_, step) in enumerate(steps):
        if isinstance(step, Session):
            await replay.end(step)
        else:
            await replay.take(step)
        if done % 5_000 == 4_999:
            say(f"sessions {name}: {done + 1} of {len(steps)}")
    await memory.store.close()
    return replay.tally


class _Replay:
    """What is known so far of one environment, and what was counted."""

    def __init__(self, environment: str, memory: heedful.Memory) -> None:
        self.environment = environment
        self.memory = memory
        self.tally = Tally()
        self.counts = self.tally.counts
        self.failures: dict[str, list[Action]] = defaultdict(list)  # by kind
        self.last: dict[tuple[str, str], Action] = {}  # of finished sessions
        self.courses: dict[int, SessionCourse] = {}  # of running sessions

    async def take(self, step: Prompt | Action) -> None:
        """Hand a step to the hooks; a session begins with its first step."""
        session = step.session
        if session.number not in self.courses:
            self.courses[session.number] = SessionCourse(session=session)
            await self._start(session, session.begins)
        if isinstance(step, Action):
            if step.failed is not None:
                await self._call(step)
            return

        if step.text.startswith(COMPACTED):
            await self._start(session, "compact")
        answer = await self._ask("UserPromptSubmit", session, {"prompt": step.text})
        text = AgentText(
            moment="prompt", text=answer, session=session, place=step.place
        )
        self._tell(text)

    async def end(self, session: Session) -> None:
        """Let memory learn a finished session."""
        await self._ask("SessionEnd", session, {})
        new_course = SessionCourse(session=session)
        course = self.courses.pop(session.number, new_course)
        self.tally.courses.append(course)
        self.counts["sessions"] += 1
        if course.brief:
            self.counts["briefs"] += 1
            self.counts["brief_lines"] += course.brief_lines
        self.last |= course.calls

    async def _start(self, session: Session, how: str) -> None:
        answer = await self._ask("SessionStart", session, {"source": how})
        self._tell(AgentText(moment="start", text=answer, session=session))

    async def _ask(
        self, event: str, session: Session, fields: Mapping[str, Any]
    ) -> str:
        """Hand an event to the hook, do the work that it leaves, return what it shows.

        The fields are those of Claude Code; `cwd` is the root of the repository.
        """
        payload = {
            "session_id": f"session {session.number}",
            "hook_event_name": event,
            **fields,
        }
        if session.root:
            payload["cwd"] = session.root
        # However busy the machine is, what is told must not depend on it.
        host = TaskHost(
            memory=self.memory,
            strict=True,
            root=session.root,
            seconds=3_600.0,
        )
        reply = await session_hooks.reply(event, payload, host)
        if reply.work:
            learner = Host(
                memory=self.memory, strict=True, root=session.root, seconds=3_600.0
            )
            await session_work.work(learner, reply.session, reply.work)

        output = (reply.answer or {}).get("hookSpecificOutput", {})
        texts = [
            output.get("additionalContext"),
            output.get("permissionDecisionReason"),
        ]
        return "\n".join(filter(None, texts))

    def _tell(self, text: AgentText) -> None:
        if text.text:
            self.courses[text.session.number].texts.append(text)

    def earlier(self, action: Action) -> list[Action]:
        """Return the failures of the same kind in other sessions of other tasks."""
        mine = action.session
        return [
            failure
            for failure in self.failures[action.kind]
            if failure.session is not mine
            and (mine.task is None or failure.session.task != mine.task)
        ]

    async def _call(self, action: Action) -> None:
        """Ask before a call, and hand over its result; count what the agent is told."""
        course = self.courses[action.session.number]
        earlier = self.earlier(action) if action.failed else []
        is_first = bool(action.failed) and action.kind not in course.kinds
        texts_before = list(course.texts)
        fields = {
            "tool_name": action.tool,
            "tool_input": action.arguments,
            "tool_use_id": str(action.place),
        }
        before = await self._ask("PreToolUse", action.session, fields)
        outcome = self._announce(action, earlier, before)
        after = await self._hand_over(action, fields)

        if is_first and earlier:
            # What is announced about the failure is not said again after it.
            announced = before if outcome == "held" else ""
            told = "\n".join(filter(None, (announced, after)))
            self._count_known(action, earlier, told)
            is_prevented = any(
                is_about(text.text, action, earlier) for text in texts_before
            )
            self._count("prevented", is_prevented)
            self._count("explained", outcome == "held" and not is_prevented)
        elif is_first:
            self._count("new")
            self._count("new_known", after != "")

        course.calls[action.key] = action
        if action.failed:
            self._count_cost(action, earlier, course.brief)
            course.is_quiet = course.is_quiet and is_first and not earlier
            course.kinds.add(action.kind)
            self.failures[action.kind].append(action)

    def _count(self, name: str, is_counted: bool = True) -> None:
        if is_counted:
            self.counts[name] += 1

    def _announce(
        self, action: Action, earlier: Sequence[Action], before: str
    ) -> CallOutcome:
        """Count what is announced before a call; return how that ended, "" if nothing.

        A call that was made before in the session is counted apart.
        """
        course = self.courses[action.session.number]
        outcome: CallOutcome = "passed"
        if action.failed:
            is_right = is_about(before, action, earlier)
            outcome = "held" if is_right else "failed_otherwise"
        text = AgentText(
            moment="before",
            text=before,
            session=action.session,
            place=action.place,
            action=action,
        )
        self._tell(text)
        if action.key in course.calls:
            self._count("repeated_shown", before != "")
            self._count("repeated_passed", before != "" and not action.failed)
            return ""

        could = bool(earlier) and action.kind not in course.kinds
        self._count("could_asked", could)
        last = self.last.get(action.key)
        if last is not None and last.failed:
            again: CallOutcome = "passed"
            if action.failed:
                again = "held" if last.kind == action.kind else "failed_otherwise"
            self._count_announcement("again", again, could)
        if not before:
            return ""
        self._count_announcement("before", outcome, could)
        self._count(f"{action.failure_class}.announced", could and outcome == "held")
        return outcome

    def _count_announcement(self, arm: str, outcome: CallOutcome, could: bool) -> None:
        self._count(f"{arm}.shown")
        self._count(f"{arm}.{outcome}")
        self._count(f"{arm}.hit", could and outcome == "held")

    async def _hand_over(self, action: Action, fields: Mapping[str, Any]) -> str:
        """Hand over the result of a call; return what the hook shows after it."""
        event = "PostToolUse"
        name = "stdout" if "command" in action.arguments else "content"
        result: Mapping[str, Any] = {"tool_response": {name: action.output}}
        if action.is_reported:
            event = "PostToolUseFailure"
            result = {"error": action.output}
        answer = await self._ask(event, action.session, {**fields, **result})
        text = AgentText(
            moment="after",
            text=answer,
            session=action.session,
            place=action.place + 1,
            action=action,
        )
        self._tell(text)
        return answer

    def _count_known(
        self, action: Action, earlier: Sequence[Action], after: str
    ) -> None:
        """Count a first failure that could be known, and what is said with it."""
        for part in ("", f"{action.failure_class}."):
            self._count(f"{part}could")
            self._count(f"{part}known", after != "")
        mends = find_mends(action, earlier)
        if mends:
            is_usable = after != "" and helps(after, action, mends)
            for part in ("", f"{mends[0].form}."):
                self._count(f"{part}mendable")
                self._count(f"{part}usable", is_usable)

    def _count_cost(
        self, action: Action, earlier: Sequence[Action], brief: str
    ) -> None:
        """Count what a failure cost that two other sessions had shown."""
        if len({failure.session.number for failure in earlier}) < 2:
            return
        self.tally.costs[self.environment, action.kind] += action.cost
        saved = 0
        if brief and is_about(brief, action, earlier):
            saved = action.cost
        parts = ["", "work."] if action.failure_class == "work" else [""]
        for part in parts:
            self.counts[f"{part}brief_cost"] += action.cost
            self.counts[f"{part}brief_kept"] += saved


def list_rows(key: str, tally: Tally) -> Iterator[Row]:
    """Yield the rows of a source."""
    n = tally.counts
    yield from _list_announced(key, n)
    counts = f"{n['known']} of {n['could']} first failures that could be known"
    yield _share(f"{key}.known_after", n["known"], n["could"], counts)
    counts = f"{n['new_known']} of {n['new']} first failures of a new kind"
    yield _share(f"{key}.new_known", n["new_known"], n["new"], counts)
    forms = ", ".join(
        f"{form} {n[f'{form}.usable']} of {n[f'{form}.mendable']}"
        for form in ("substitution", "path", "contract")
    )
    failures = n["file.could"] + n["environment.could"]
    counts = f"{n['mendable']} of {failures} have a mend: {forms}"
    yield _share(f"{key}.usable", n["usable"], n["mendable"], counts)

    for name in CLASSES:
        could = n[f"{name}.could"]
        if could == n["could"] or not could:
            continue
        counts = f"{n[f'{name}.announced']} of {could} first failures"
        yield _share(f"{key}.{name}.announced", n[f"{name}.announced"], could, counts)
        counts = f"{n[f'{name}.known']} of {could}"
        yield _share(f"{key}.{name}.known_after", n[f"{name}.known"], could, counts)
    yield from _list_brief(key, tally)


def _list_announced(key: str, n: Mapping[str, int]) -> Iterator[Row]:
    """Yield the rows about what is told before a call is made."""
    counts = (
        f"{n['before.hit']} of {n['could_asked']} asked, {n['could']} in all; "
        f"{n['before.shown']} announcements; at repeated calls "
        f"{n['repeated_shown']}, {n['repeated_passed']} of these passed"
    )
    for name, total in (("announced", "could_asked"), ("announced_of_all", "could")):
        baseline = n["again.hit"] / max(1, n[total])
        share = n["before.hit"] / max(1, n[total])
        yield _row(f"{key}.{name}", share, counts, baseline)
    for outcome in ("passed", "failed_otherwise"):
        counts = f"{n[f'before.{outcome}']} of {n['before.shown']} announcements"
        baseline = n[f"again.{outcome}"] / max(1, n["again.shown"])
        share = n[f"before.{outcome}"] / max(1, n["before.shown"])
        yield _row(f"{key}.{outcome}", share, counts, baseline)
    for name in ("prevented", "explained"):
        counts = f"{n[name]} of {n['could']} first failures"
        yield _share(f"{key}.{name}", n[name], n["could"], counts)


def _list_brief(key: str, tally: Tally) -> Iterator[Row]:
    """Yield the rows about the brief, and about sessions without an old failure."""
    n = tally.counts
    best = tally.best_cost
    counts = (
        f"{n['brief_kept']} of {best} calls of the best lines, {n['brief_cost']} of "
        f"all; the work itself: {n['work.brief_kept']} of {n['work.brief_cost']}"
    )
    yield _share(f"{key}.brief_kept", n["brief_kept"], best, counts)
    lines = n["brief_lines"] / max(1, n["briefs"])
    yield _row(f"{key}.brief_lines", lines, f"in each of {n['briefs']} briefs")
    longest = max((course.brief_lines for course in tally.courses), default=0)
    yield _row(f"{key}.brief_longest", longest, "lines")
    none = n["sessions"] - n["briefs"]
    counts = f"{none} of {n['sessions']} sessions have none"
    yield _share(f"{key}.brief_none", none, n["sessions"], counts)

    quiet = [course for course in tally.courses if course.is_quiet]
    lines = sum(course.other_lines for course in quiet)
    counts = f"lines beside the briefs in {len(quiet)} quiet sessions among the others"
    yield _row(f"{key}.quiet_among", lines, counts)


def replay_quiet(key: str, tally: Tally) -> Row:
    """Return the row about quiet sessions that have a memory of their own.

    None of them repeats a failure of another, so that no rule qualifies for a brief.
    """
    quiet = [course.session for course in tally.courses if course.is_quiet]
    drawn = random.Random(SEED).sample(quiet, min(QUIET_SESSIONS, len(quiet)))
    alone = asyncio.run(replay_environment("quiet", drawn))
    lines = sum(course.lines for course in alone.courses)
    counts = f"lines in {len(drawn)} of {len(quiet)} sessions, replayed by themselves"
    return _row(f"{key}.quiet_lines", lines, counts)


def _share(key: str, part: int, total: int, anchor: str) -> Row:
    return _row(key, part / max(1, total), anchor)


def _row(key: str, figure: float, anchor: str, baseline: float | None = None) -> Row:
    """Return a row that names what is expected of it, if anything is."""
    if key in EXPECTED:
        bound, value = EXPECTED[key]
        anchor = f"{anchor}; expected {bound} {value:g}"
    return Row(key=key, ours=figure, baseline=baseline, anchor=anchor)


def write_dump(path: Path, tallies: Mapping[str, Tally]) -> None:
    """Write texts that were shown, drawn by a seed, as JSON lines for blind reading.

    They are those of coding sessions; if there are none, of all sources. Each stands
    with the task, its own call, the calls around it, and the next failures of the
    session. What the measure thinks of it is left out.
    """
    chosen = [tallies["coding"]] if "coding" in tallies else [*tallies.values()]
    texts: list[AgentText] = []
    for tally in chosen:
        for course in tally.courses:
            texts += course.texts
    drawn = random.Random(SEED).sample(texts, min(DUMPED_TEXTS, len(texts)))
    lines = [json.dumps(_describe(text), ensure_ascii=False) for text in drawn]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _describe(text: AgentText) -> Mapping[str, Any]:
    """Return a text that was shown with its context."""
    action = text.action
    actions = text.session.actions
    later = actions[text.place :]
    failures = [call for call in later if call.failed and call is not action]
    return {
        "session": text.session.row["id"],
        "task": text.session.row["task"],
        "moment": text.moment,
        "calls_before": [
            describe_call(call)
            for call in actions[: text.place][-3:]
            if call is not action
        ],
        "call": "" if action is None else describe_call(action),
        "error": action.output if action is not None and action.failed else "",
        "text": text.text,
        "calls_after": [
            describe_call(call) for call in later[:3] if call is not action
        ],
        "failures_after": [
            f"{describe_call(call)}: {call.error}"
            for call in failures[:MAX_DUMPED_FAILURES]
        ],
    }


def describe_call(action: Action) -> str:
    """Return a call and how it ended, in one line."""
    ends = {True: "failed", False: "passed", None: "unknown"}
    return f"{action.tool} {action.args} ({ends[action.failed]})"
