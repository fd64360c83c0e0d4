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
mended the kind earlier, whole: each successful edit between the failure and the same
command passing, or else the command that passed. Only mends that the recording holds
uncut count; `fix_cut` is the share left out. The baseline of both remembers each
failing output under its tool, and asks `seen` with the tool and the output.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
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
    20  # tool responses after a failure, in which a similar action counts as its mend
)
# Marks that the recorder itself set; the others were derived from the output
# afterwards.
RECORDED = ("exit_code", "error_flag", "valid_action", "error_field")
ARMS = {
    "before": "the hook",
    "again": "this command failed the last time it was used",
    "always": "always, once anything failed here",
}
# A session of one's own: its user and its tools are trusted.
TRUST: Mapping[str, Trust] = {"user": "operator", "tool": "measured"}
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
    at: float

    @property
    def key(self) -> Key:
        """What makes two calls the same: the tool and its arguments."""
        return self.tool, self.args

    @cached_property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments as an object; a shell command has the key `command`."""
        with suppress(ValueError):
            if isinstance(found := json.loads(self.args), dict):
                return found
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
        """Return True for the same file, or a command that is alike, as SESSIONS.md
        defines it.
        """
        if self.tool != other.tool:
            return False
        paths = [one.arguments.get("file_path") for one in (self, other)]
        if paths[0] and paths[0] == paths[1]:
            return True
        mine, theirs = (re.findall(r"[\w./-]+", one.args) for one in (self, other))
        both = set(mine) | set(theirs)
        overlap = len(set(mine) & set(theirs)) / len(both) if both else 1.0
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
        at = float(number) if start is None else start
        for event in row["events"]:
            if start is not None and "t" in event:
                at = start + event["t"]
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
                    at=at,
                )
                session.actions.append(action)
        session.end = at
        return session

    @property
    def episode(self) -> heedful.Episode:
        """The session as the agent's own hook hands it over, with the recorder's marks
        only.
        """
        events = []
        for event in self.row["events"]:
            said = event.get("output") or ""
            tool = event.get("tool", "")
            wrong = (
                said if event.get("failed") and event.get("rule") in RECORDED else ""
            )
            call = str(event.get("call", ""))
            args = event.get("args")
            if tool.lower() in EDITS and CUT.search(args or ""):  # no JSON any more
                named = re.findall(r'"(file_path|replace_all)": ?"?([^",]+)', args)
                args = {**dict(named), "new_string": args}
            events.append(
                heedful.Event(
                    event["type"],
                    said,
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


def mend(failure: Action) -> tuple[list[str], bool] | None:
    """Return what put a failure right, as texts that a lesson must hold, and whether it
    is cut.

    These are the edits before the same command passed, or else the changed command that
    passed.
    """
    later = failure.session.actions[failure.place + 1 :]
    again = (
        n
        for n, one in enumerate(later)
        if one.key == failure.key and one.failed is False
    )
    edits = [one for one in later[: next(again, 0)] if one.edits]
    changed = (
        one for one in later[:WITHIN] if one.failed is False and failure.similar(one)
    )
    if not edits:
        edits = [one for one in changed if one.key != failure.key][:1]
    parts = [
        part for one in edits for part in (_hunk(one) if one.edits else [one.command])
    ]
    return (parts, any(CUT.search(one.args) for one in edits)) if parts else None


def _hunk(edit: Action) -> list[str]:
    """Return the lines that an edit adds; if it adds none, the lines that it
    removes.
    """
    given = edit.arguments
    changes = given.get("edits") if isinstance(given.get("edits"), list) else [given]
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
    """The rows of each source; a source is the part of an environment's name before its
    project.
    """
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
        counts[source] += asyncio.run(_replayed(name, sessions))
    for source, found in counts.items():
        yield from _rows(f"sessions.{source}", found)
    yield from _rows("sessions.all", sum(counts.values(), Counter()))


def _rows(key: str, n: Counter[str]) -> Iterator[Row]:
    def share(part: str, whole: str) -> float:
        return n[part] / n[whole] if n[whole] else 0.0

    for arm, about in ARMS.items():
        hit = share(f"{arm}.hit", "could")
        false = share(f"{arm}.false", f"{arm}.shown")
        counts = (
            f"{about}: {n[f'{arm}.hit']} of {n['could']}, {n[f'{arm}.shown']} "
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
    counts = f"{n['given']} of {n['mended']} first failures mended uncut before"
    yield Row(
        key=f"{key}.fix_given",
        ours=share("given", "mended"),
        baseline=None,
        anchor=counts,
    )
    yield Row(key=f"{key}.fix_cut", ours=n["cut"] / max(1, n["cut"] + n["mended"]))
    counts = f"of {n['new']} first failures of a kind that is new in the environment"
    yield Row(
        key=f"{key}.new_known",
        ours=share("new_known", "new"),
        baseline=share("new_plain", "new"),
        anchor=counts,
    )


async def _replayed(name: str, sessions: Sequence[Session]) -> Counter[str]:
    """Replay one environment against one memory."""
    scope = heedful.Scope(project=name)
    own = TRUST
    memory = heedful.Memory(":memory:", scope, holdout=0, trust=own)
    plain = heedful.Memory(":memory:", scope, holdout=0)
    replay = _Replay(memory, plain)
    steps = [
        (one.at, 0, s.number, one.place, one) for s in sessions for one in s.actions
    ]
    ends: list[Any] = [(s.end, 1, s.number, 0, s) for s in sessions]
    for done, (*_, step) in enumerate(
        sorted([*steps, *ends], key=lambda each: each[:4])
    ):
        if isinstance(step, Session):
            await replay.learn(step)
        elif step.failed is not None:
            await replay.act(step)
        if done % 5_000 == 4_999:
            say(f"sessions {name}: {done + 1} of {len(steps) + len(ends)}")
    await memory.store.close()
    await plain.store.close()
    return replay.counts


class _Replay:
    """What is known so far of one environment, and what was counted."""

    def __init__(self, memory: heedful.Memory, plain: heedful.Memory) -> None:
        self.memory = memory
        self.plain = plain
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
        for one in session.actions:
            if one.failed and one.output.strip():
                await self.plain.remember(one.tool, one.output)
        self.last |= self.here.pop(session.number, {})

    def earlier(self, action: Action) -> list[Action]:
        """Return the failures of the same kind in other sessions of other tasks."""
        mine = action.session
        return [
            one
            for one in self.failures[action.kind]
            if one.session is not mine
            and (mine.task is None or one.session.task != mine.task)
        ]

    async def act(self, action: Action) -> None:
        """Ask before an action, look at what happens, and ask after a failure."""
        here = self.here[action.session.number]
        kinds = self.kinds[action.session.number]
        first = action.kind not in kinds
        known = self.earlier(action) if action.failed and first else []
        if action.key not in here:
            await self._announce(action, bool(known))
        if action.failed and first:
            if known:
                await self._after(action, known)
            else:
                self.counts["new"] += 1
                self.counts["new_known"] += bool(await self._seen(action))
                self.counts["new_plain"] += bool(
                    await self.plain.seen(action.tool, action.output)
                )
        here[action.key] = action
        if action.failed:
            kinds.add(action.kind)
            self.failures[action.kind].append(action)

    async def _announce(self, action: Action, could: bool) -> None:
        last = self.last.get(action.key)
        if last is not None and last.failed:
            self._count(
                "again", bool(action.failed) and last.kind == action.kind, could
            )
        if any(self.failures.values()):
            self._count("always", bool(action.failed), could)
        asked: dict[str, Any] = {
            "session_id": f"session {action.session.number}",
            "tool_name": action.tool,
        }
        asked |= {"tool_input": action.arguments, "tool_use_id": str(action.place)}
        if answer := (await reply("PreToolUse", asked, self.host)).answer:
            shown = answer["hookSpecificOutput"]["additionalContext"]
            right = bool(action.failed) and _quotes(shown, self.failures[action.kind])
            self._count("before", right, could)

    def _count(self, arm: str, right: bool, could: bool) -> None:
        self.counts[f"{arm}.shown"] += 1
        self.counts[f"{arm}.false"] += not right
        self.counts[f"{arm}.hit"] += right and could

    async def _seen(self, action: Action) -> tuple[Mapping[str, Any], ...]:
        """Return the lessons that `seen` knows for a raw output: by no name, or by the
        tool's.
        """
        for name in ("", action.tool):
            if found := await self.memory.seen(name, action.output):
                return found.lessons or ({},)
        return ()

    async def _after(self, action: Action, known: Sequence[Action]) -> None:
        lessons = await self._seen(action)
        self.counts["could"] += 1
        self.counts["known"] += bool(lessons)
        self.counts["plain"] += bool(await self.plain.seen(action.tool, action.output))
        mends = [each for each in map(mend, known) if each is not None]
        whole = [parts for parts, cut in mends if not cut]
        self.counts["cut"] += bool(mends) and not whole
        self.counts["mended"] += bool(whole)
        texts = [_plain(str(value)) for lesson in lessons for value in lesson.values()]
        held = (
            all(_plain(p) in text for p in parts) for parts in whole for text in texts
        )
        self.counts["given"] += any(held)


def _quotes(shown: str, failures: Sequence[Action]) -> bool:
    """Return True if a text quotes a line of the output of one of these failures."""
    lines = {_plain(line) for one in failures for line in one.output.splitlines()}
    plain = _plain(shown)
    return any(line in plain for line in lines if len(line) >= 12)
