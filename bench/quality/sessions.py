"""Sessions: what memory of finished sessions knows before a tool runs, and after it
failed.

Each environment is replayed in order of time; memory learns a session when it ends. The
terms are those of SESSIONS.md: a failure is *first* if its kind is new in its session;
it *could be known* if another session of the environment (in benchmarks: of another
task) failed with the same kind earlier. `failed: null` counts as nothing. A call that
was made before in the same session is not asked about again, since the agent has seen
its result.

announced_before: what the hook `PreToolUse` of a coding agent adds, asked as the agent
asks it. known_after: of the first failures that could be known, the share whose raw
output `seen` knows. fix_given: the share where a lesson that it returns holds what
fixed the kind earlier, whole: each successful edit between the failure and the same
command passing, or else the command that passed. Only fixes that the recording holds
uncut count; `fix_cut` is the share left out. The baseline of both remembers each
failing output under its tool, and asks `seen` with the tool and the output.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import heedful
from bench.quality.answers import say
from bench.quality.rows import Row, read
from heedful.integrations.hooks import reply
from heedful.integrations.host import Host
from heedful.lessons.lesson import Trust
from heedful.lessons.trust import sources_of

CUT = re.compile(r"\.\.\.\[\d+ cut\]\.\.\.")
EDITS = (
    "edit",
    "write",
    "multiedit",
    "notebookedit",
    "apply_patch",
    "str_replace",
    "replace",
)
WITHIN = (
    20  # tool responses after a failure, in which a similar action counts as its fix
)
# Marks that the recorder itself set; the others were derived from the output
# afterwards.
RECORDED = ("exit_code", "error_flag", "valid_action", "error_field")
ARMS = {
    "before": "the hook",
    "again": "this command failed the last time it was used",
    "always": "always, once anything failed here",
}
# Programs and tools of the recordings that bring pages; nobody states trust in them.
FETCHING_SOURCES = frozenset(
    "program:curl program:gh program:ssh program:wget tool:WebFetch tool:WebSearch "
    "network".split()
)
Key = tuple[str, str]


@dataclass(kw_only=True)
class Action:
    """A tool call with its response."""

    session: Session
    place: int
    tool: str
    args: str
    output: str
    failed: bool | None
    kind: str
    time: float

    @property
    def key(self) -> Key:
        """What makes two calls the same: the tool and its arguments."""
        return self.tool, self.args

    @cached_property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments as an object; a shell command has the key `command`."""
        with suppress(ValueError):
            data = json.loads(self.args)
            if isinstance(data, dict):
                return data
        return {"command": self.args}

    @property
    def command(self) -> str:
        """The command of a shell tool, else all arguments."""
        return str(self.arguments.get("command", self.args))

    @property
    def edits(self) -> bool:
        """True for a successful call of a tool that changes files."""
        return self.tool.lower() in EDITS and self.failed is False

    def similar(self, other: Action) -> bool:
        """Return True for the same file or a command alike, as in SESSIONS.md."""
        if self.tool != other.tool:
            return False
        path = self.arguments.get("file_path")
        if path and path == other.arguments.get("file_path"):
            return True

        mine = re.findall(r"[\w./-]+", self.args)
        theirs = re.findall(r"[\w./-]+", other.args)
        both = set(mine) | set(theirs)
        overlap = 1.0
        if both:
            overlap = len(set(mine) & set(theirs)) / len(both)
        return overlap >= (0.2 if mine[:2] == theirs[:2] else 0.5)


@dataclass(kw_only=True)
class Session:
    """A recorded session; `end` is when memory learns it."""

    number: int
    row: Mapping[str, Any]
    actions: list[Action] = field(default_factory=list)
    end: float = 0.0

    @property
    def task(self) -> str | None:
        """The key of its task in a benchmark."""
        return self.row.get("task_key")

    @classmethod
    def of(cls, number: int, row: Mapping[str, Any]) -> Session:
        """Pair the calls of a session with their responses."""
        session = cls(number=number, row=row)
        calls = dict[int, str]()
        start = (
            datetime.fromisoformat(row["start"]).timestamp() if "start" in row else None
        )
        time = float(number) if start is None else start
        for event in row["events"]:
            if start is not None and "t" in event:
                time = start + event["t"]
            if event["type"] == "tool_call":
                calls[event["call"]] = event.get("args") or ""
            elif event["type"] == "tool_response":
                args = calls.get(event["call"], "")
                failed = event["failed"]
                place = len(session.actions)
                action = Action(
                    session=session,
                    place=place,
                    tool=event["tool"],
                    args=args,
                    output=event["output"],
                    failed=failed,
                    kind=event.get("kind", ""),
                    time=time,
                )
                session.actions.append(action)
        session.end = time
        return session

    @property
    def episode(self) -> heedful.Episode:
        """The session as the agent's own hook hands it over, with the recorder's marks
        only.
        """
        events = []
        for event in self.row["events"]:
            output = event.get("output") or ""
            tool = event.get("tool", "")
            wrong = (
                output if event.get("failed") and event.get("rule") in RECORDED else ""
            )
            call = str(event.get("call", ""))
            args = event.get("args")
            if tool.lower() in EDITS and CUT.search(args or ""):  # no JSON any more
                pairs = re.findall(r'"(file_path|replace_all)": ?"?([^",]+)', args)
                args = {**dict(pairs), "new_string": args}
            events.append(
                heedful.Event(
                    event["type"],
                    output,
                    agent="",
                    tool=tool,
                    arguments=args,
                    call=call,
                    error=wrong,
                )
            )
        return heedful.Episode(
            tuple(events), "partial", task=self.row["task"], id=self.row["id"]
        )


def find_fix(failure: Action) -> tuple[list[str], bool] | None:
    """Return the texts that fixed a failure, and whether the recording cut them.

    These are the edits before the same command passed, or else the changed command that
    passed.
    """
    later = failure.session.actions[failure.place + 1 :]
    edits: list[Action] = []
    for place, action in enumerate(later):
        if action.key == failure.key and action.failed is False:
            edits = [before for before in later[:place] if before.edits]
            break
    if not edits:
        for action in later[:WITHIN]:
            passed = action.failed is False and failure.similar(action)
            if passed and action.key != failure.key:
                edits = [action]
                break

    parts: list[str] = []
    for action in edits:
        parts += _hunk(action) if action.edits else [action.command]
    if not parts:
        return None
    return parts, any(CUT.search(action.args) for action in edits)


def _hunk(edit: Action) -> list[str]:
    """Return the lines that an edit adds; if it adds none, those that it removes."""
    arguments = edit.arguments
    changes = (
        arguments.get("edits")
        if isinstance(arguments.get("edits"), list)
        else [arguments]
    )
    lines: list[str] = []
    for change in changes or []:
        old = str(change.get("old_string", "")).splitlines()
        new = str(
            change.get("new_string", change.get("content", edit.args))
        ).splitlines()
        added = [line for line in new if line not in old]
        lines += added or [line for line in old if line not in new]
    return [line for line in lines if line.strip()]


def _plain(text: str) -> str:
    return " ".join(text.split())


def run(data: Path, split: str) -> Iterator[Row]:
    """Yield the rows of each source: an environment's name up to its project."""
    environments: dict[str, list[Session]] = defaultdict(list)
    for number, row in enumerate(read(data, "agent_sessions", split)):
        environments[row["environment"]].append(Session.of(number, row))
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for name, sessions in environments.items():
        source = (
            sessions[0].row["repo"]
            if "start" in sessions[0].row
            else name.split("/")[0]
        )
        counts[source] += asyncio.run(_replay(name, sessions))
    for source, count in counts.items():
        yield from _rows(f"sessions.{source}", count)
    yield from _rows("sessions.all", sum(counts.values(), Counter()))


def _rows(key: str, n: Counter[str]) -> Iterator[Row]:
    def share(part: str, total: str) -> float:
        return n[part] / n[total] if n[total] else 0.0

    for arm, arm_name in ARMS.items():
        hit = share(f"{arm}.hit", "could")
        false = share(f"{arm}.false", f"{arm}.shown")
        counts = (
            f"{arm_name}: {n[f'{arm}.hit']} of {n['could']}, {n[f'{arm}.shown']} "
            "announcements"
        )
        yield Row(key=f"{key}.announced_{arm}", ours=hit, baseline=None, anchor=counts)
        yield Row(key=f"{key}.false_{arm}", ours=false)
    counts = f"{n['known']} of {n['could']} first failures"
    yield Row(
        key=f"{key}.known_after",
        ours=share("known", "could"),
        baseline=share("plain", "could"),
        anchor=counts,
    )
    counts = f"{n['given']} of {n['fixed']} first failures fixed uncut before"
    yield Row(
        key=f"{key}.fix_given",
        ours=share("given", "fixed"),
        baseline=None,
        anchor=counts,
    )
    yield Row(key=f"{key}.fix_cut", ours=n["cut"] / max(1, n["cut"] + n["fixed"]))
    counts = f"of {n['new']} first failures of a kind that is new in the environment"
    yield Row(
        key=f"{key}.new_known",
        ours=share("new_known", "new"),
        baseline=share("new_plain", "new"),
        anchor=counts,
    )


def state_trust(sessions: Sequence[Session]) -> Mapping[str, Trust]:
    """Return the trust that the user of sessions of one's own states.

    The user is trusted, and by name each tool and program, except those that fetch.
    """
    sources = {"tool"}
    for session in sessions:
        for action in session.actions:
            sources |= sources_of(action.tool, action.command)
    trusted = sources - FETCHING_SOURCES
    return {"user": "operator", **dict.fromkeys(trusted, "measured")}


async def _replay(name: str, sessions: Sequence[Session]) -> Counter[str]:
    """Replay one environment against one memory."""
    scope = heedful.Scope(project=name)
    trust = state_trust(sessions)
    memory = heedful.Memory(":memory:", scope, holdout=0, trust=trust)
    baseline = heedful.Memory(":memory:", scope, holdout=0)
    replay = _Replay(memory, baseline)
    # An action comes before an end of the same time.
    steps: list[tuple[tuple[float, int, int, int], Action | Session]] = []
    for session in sessions:
        steps += [
            ((action.time, 0, session.number, action.place), action)
            for action in session.actions
        ]
        steps.append(((session.end, 1, session.number, 0), session))
    steps.sort(key=lambda step: step[0])

    for done, (_, step) in enumerate(steps):
        if isinstance(step, Session):
            await replay.learn(step)
        elif step.failed is not None:
            await replay.act(step)
        if done % 5_000 == 4_999:
            say(f"sessions {name}: {done + 1} of {len(steps)}")
    await memory.store.close()
    await baseline.store.close()
    return replay.counts


class _Replay:
    """What is known so far of one environment, and what was counted."""

    def __init__(self, memory: heedful.Memory, baseline: heedful.Memory) -> None:
        self.memory = memory
        self.baseline = baseline
        self.host = Host(memory=memory, strict=True)
        self.counts: Counter[str] = Counter()
        self.failures: dict[str, list[Action]] = defaultdict(list)  # by kind
        self.last: dict[Key, Action] = {}  # of finished sessions
        self.here: dict[int, dict[Key, Action]] = defaultdict(
            dict
        )  # of running sessions
        self.kinds: dict[int, set[str]] = defaultdict(set)  # that failed in a session

    async def learn(self, session: Session) -> None:
        """Let memory learn a finished session. The tools are the environment's own."""
        await heedful.learn_session(session.episode, memory=self.memory)
        for action in session.actions:
            if action.failed and action.output.strip():
                await self.baseline.remember(action.tool, action.output)
        self.last |= self.here.pop(session.number, {})

    def earlier(self, action: Action) -> list[Action]:
        """Return the failures of the same kind in other sessions of other tasks."""
        mine = action.session
        return [
            failure
            for failure in self.failures[action.kind]
            if failure.session is not mine
            and (mine.task is None or failure.session.task != mine.task)
        ]

    async def act(self, action: Action) -> None:
        """Ask before an action, look at what happens, and ask after a failure."""
        here = self.here[action.session.number]
        kinds = self.kinds[action.session.number]
        is_first = bool(action.failed) and action.kind not in kinds
        earlier = self.earlier(action) if is_first else []
        if action.key not in here:
            await self._announce(action, bool(earlier))
        if earlier:
            await self._count_known(action, earlier)
        elif is_first:
            await self._count_new(action)
        here[action.key] = action
        if action.failed:
            kinds.add(action.kind)
            self.failures[action.kind].append(action)

    async def _announce(self, action: Action, could: bool) -> None:
        failed = bool(action.failed)
        last = self.last.get(action.key)
        if last is not None and last.failed:
            right = failed and last.kind == action.kind
            self._count("again", right=right, could=could)
        if any(self.failures.values()):
            self._count("always", right=failed, could=could)
        payload = {
            "session_id": f"session {action.session.number}",
            "tool_name": action.tool,
            "tool_input": action.arguments,
            "tool_use_id": str(action.place),
        }
        answer = (await reply("PreToolUse", payload, self.host)).answer
        if answer:
            text = answer["hookSpecificOutput"]["additionalContext"]
            right = failed and _quotes(text, self.failures[action.kind])
            self._count("before", right=right, could=could)

    def _count(self, arm: str, right: bool, could: bool) -> None:
        self.counts[f"{arm}.shown"] += 1
        if not right:
            self.counts[f"{arm}.false"] += 1
        elif could:
            self.counts[f"{arm}.hit"] += 1

    async def _seen(self, action: Action) -> tuple[Mapping[str, Any], ...]:
        """Return what `seen` knows for an output, with no name or the tool's."""
        for name in ("", action.tool):
            sightings = await self.memory.seen(name, action.output)
            if sightings:
                return sightings.lessons or ({},)
        return ()

    async def _seen_by_baseline(self, action: Action) -> bool:
        return bool(await self.baseline.seen(action.tool, action.output))

    async def _count_new(self, action: Action) -> None:
        """Count a first failure whose kind is new in the environment."""
        self.counts["new"] += 1
        if await self._seen(action):
            self.counts["new_known"] += 1
        if await self._seen_by_baseline(action):
            self.counts["new_plain"] += 1

    async def _count_known(self, action: Action, earlier: Sequence[Action]) -> None:
        """Count a first failure that could be known, and whether its fix was given."""
        lessons = await self._seen(action)
        self.counts["could"] += 1
        if lessons:
            self.counts["known"] += 1
        if await self._seen_by_baseline(action):
            self.counts["plain"] += 1

        fixes = [fix for fix in map(find_fix, earlier) if fix is not None]
        uncut = [parts for parts, is_cut in fixes if not is_cut]
        if not uncut:
            if fixes:
                self.counts["cut"] += 1
            return
        self.counts["fixed"] += 1
        if any(_holds(lessons, parts) for parts in uncut):
            self.counts["given"] += 1


def _holds(lessons: Iterable[Mapping[str, Any]], parts: Sequence[str]) -> bool:
    """Return True if one text of the lessons holds all parts of a fix."""
    for lesson in lessons:
        for value in lesson.values():
            text = _plain(str(value))
            if all(_plain(part) in text for part in parts):
                return True
    return False


def _quotes(text: str, failures: Sequence[Action]) -> bool:
    """Return True if a text quotes a line of the output of one of these failures."""
    plain_text = _plain(text)
    for failure in failures:
        for line in map(_plain, failure.output.splitlines()):
            if len(line) >= 12 and line in plain_text:
                return True
    return False
