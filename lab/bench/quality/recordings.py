"""Recorded sessions of agents, as SESSIONS.md describes them: their calls in order of
time, the folder in which they worked, and what put a failure right.

What puts a failure right is a `Mend` of one of three forms, and nothing else counts:

- substitution: the words that the agent changed in the same command, which then passed;
- path: the file with a like name that the agent opened after it asked for an absent
  one;
- contract: what a file tool demands, as the step that the agent took before the tool
  worked (Read, before Edit), or the arguments that it changed.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Literal

import heedful
from heedful.episodes.error_lines import error_line, named_errors

CUT = re.compile(r"\.\.\.\[\d+ cut\]\.\.\.")
# A field with a text in JSON that the recording cut.
TEXT_FIELD = re.compile(r'"(\w+)":\s*("(?:[^"\\]|\\.)*")')
# A path from the root of a repository, in a command or an argument.
RELATIVE_PATH = re.compile(r"(?<![\w/~$.-])(?:\./)?((?:[\w.-]+/)+[\w.-]+\.\w+)")
EDITS = (
    "edit",
    "write",
    "multiedit",
    "notebookedit",
    "apply_patch",
    "str_replace",
    "replace",
)
PATH_ARGUMENTS = ("file_path", "path", "notebook_path")
# Tool responses after a failure, in which a similar call counts as its mend.
WITHIN_CALLS = 20
# The calls that one failure may have cost, itself not counted.
MAX_LOST_CALLS = 5
# A command with more changed words is another command.
MAX_CHANGED_WORDS = 6
MIN_NAME_LIKENESS = 0.6
# A mark that the agent's harness set, so that its hook hears of a failure. The others
# were derived from the output, and the hook hears of a call that worked.
REPORTED_RULES = frozenset(
    {"exit_code", "error_flag", "valid_action", "error_field", "error_text"}
)
ABSENT_ERROR = re.compile(
    r"does not exist|doesn't exist|no such file or directory(?!, posix)", re.IGNORECASE
)
# What differs from one use of a command to the next: numbers and digests.
PARTICULAR = re.compile(r"\d{3,}|\b(?=[a-f]*\d)[0-9a-f]{7,40}\b")
COMMAND_WORD = re.compile(r"[^\s\"'`;|&()<>,{}]+")

FailureClass = Literal["file", "environment", "work"]
# SESSIONS.md classes the failures of coding sessions. The benchmarks have neither file
# tools nor tests: what failed there is a database, a shell or a service.
CLASSES: Mapping[str, FailureClass] = {
    "file_tool": "file",
    "work": "work",
    "environment": "environment",
    "": "environment",
}
MendForm = Literal["substitution", "path", "contract"]


@dataclass(frozen=True, kw_only=True)
class Mend:
    """What puts a failure right. A text holds it if it has all its `words`."""

    form: MendForm
    words: tuple[str, ...]


@dataclass(kw_only=True)
class Action:
    """A tool call with its response. `time` is in seconds since 1970."""

    # Without it, the text of a call has the whole session, which the event loop prints.
    session: Session = field(repr=False)
    place: int
    tool: str
    args: str
    output: str
    failed: bool | None
    kind: str
    rule: str
    failure_class: FailureClass
    time: float

    @property
    def key(self) -> tuple[str, str]:
        """What makes two calls the same: the tool and its arguments."""
        return self.tool, self.args

    @cached_property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments as an object; a shell command has the key `command`.

        JSON that the recording cut has the texts that stand whole before the cut.
        """
        with suppress(ValueError):
            data = json.loads(self.args)
            if isinstance(data, dict):
                return data
        if self.args.startswith('{"'):
            beginning = CUT.split(self.args)[0]
            fields = {}
            for name, text in TEXT_FIELD.findall(beginning):
                with suppress(ValueError):  # an escape that JSON lacks
                    fields[name] = json.loads(text, strict=False)
            return fields
        return {"command": self.args}

    @property
    def command(self) -> str:
        """The command of a shell tool, else all arguments."""
        return str(self.arguments.get("command", self.args))

    @property
    def path(self) -> str:
        """The file or folder of a file tool, from the root of the repository; or ""."""
        values = [self.arguments.get(name) for name in PATH_ARGUMENTS]
        path = next((value for value in values if isinstance(value, str)), "")
        return self.session.relative(path)

    @property
    def is_reported(self) -> bool:
        """True if the agent's harness itself says that the call failed."""
        return bool(self.failed) and self.rule in REPORTED_RULES

    @cached_property
    def error(self) -> str:
        """The line that names the failure, as heedful reads it."""
        return " ".join(error_line(self.output).split())

    @cached_property
    def error_words(self) -> str:
        """The words that name the failure, as heedful tells them."""
        return " ".join(named_errors(self.output)[0].split())

    @property
    def later(self) -> Sequence[Action]:
        """The next calls of the session, among which its mend may be."""
        return self.session.actions[self.place + 1 :][:WITHIN_CALLS]

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

    @cached_property
    def mending(self) -> int | None:
        """How many calls lie between the failure and a similar call that passed."""
        for place, action in enumerate(self.later):
            if action.failed is False and self.similar(action):
                return place
        return None

    @property
    def cost(self) -> int:
        """The failing call, and the calls until it was mended, at most five."""
        return 1 + min(self.mending or 0, MAX_LOST_CALLS)


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A message of the user; `place` is the number of calls before it."""

    session: Session = field(repr=False)
    place: int
    text: str
    time: float


@dataclass(kw_only=True)
class Session:
    """A recorded session.

    `steps` are its messages and calls in order, and `actions` the calls alone. `end` is
    when memory learns it. `root` is the folder of its repository, "" if unknown.
    """

    number: int
    row: Mapping[str, Any] = field(repr=False)
    steps: list[Prompt | Action] = field(default_factory=list, repr=False)
    actions: list[Action] = field(default_factory=list, repr=False)
    end: float = 0.0
    root: str = ""

    @property
    def task(self) -> str | None:
        """The key of its task in a benchmark."""
        return self.row.get("task_key")

    @property
    def source(self) -> str:
        """Where it comes from: coding, sql, bash, or the name of a benchmark."""
        if "start" in self.row:
            return "coding"
        family = str(self.row["environment"]).split("/")[0]
        return family.removeprefix("intercode-").removesuffix("-bench")

    @property
    def begins(self) -> Literal["startup", "resume"]:
        """How the session began: a recording that opens with an answer goes on."""
        first = self.row["events"][0]["type"]
        return "startup" if first == "user_message" else "resume"

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
            if event["type"] == "user_message":
                prompt = Prompt(
                    session=session,
                    place=len(session.actions),
                    text=event["output"],
                    time=time,
                )
                session.steps.append(prompt)
            elif event["type"] == "tool_call":
                calls[event["call"]] = event.get("args") or ""
            elif event["type"] == "tool_response":
                action = Action(
                    session=session,
                    place=len(session.actions),
                    tool=event["tool"],
                    args=calls.get(event["call"], ""),
                    output=event["output"],
                    failed=event["failed"],
                    kind=event.get("kind", ""),
                    rule=event.get("rule") or "",
                    failure_class=CLASSES[event.get("class") or ""],
                    time=time,
                )
                session.actions.append(action)
                session.steps.append(action)
        session.end = time
        return session

    @property
    def episode(self) -> heedful.Episode:
        """The session as a file of the agent has it, with the recorder's marks only."""
        events = []
        for event in self.row["events"]:
            output = event.get("output") or ""
            tool = event.get("tool", "")
            error = ""
            if event.get("failed") and event.get("rule") in REPORTED_RULES:
                error = output
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
                    call=str(event.get("call", "")),
                    error=error,
                )
            )
        return heedful.Episode(
            tuple(events), "partial", task=self.row["task"], id=self.row["id"]
        )

    def relative(self, path: str) -> str:
        """Return a path from the root of the repository; others stay as they are."""
        path = path.rstrip("/")
        if self.root and path.startswith(f"{self.root}/"):
            return path[len(self.root) + 1 :]
        return path.removeprefix("./")


def find_roots(sessions: Sequence[Session]) -> None:
    """Set the root of each session of an environment.

    The recordings lack `cwd`. A root is what stands before a path that commands of the
    environment name from the root; the most frequent one counts. A session without one
    has the longest root of the others that its paths begin with.
    """
    relative_paths = Counter[str]()
    for session in sessions:
        for action in session.actions:
            relative_paths.update(RELATIVE_PATH.findall(action.args[:2_000]))
    paths_by_session: dict[int, list[str]] = {}
    for session in sessions:
        paths = [action.path for action in session.actions if action.path[:1] == "/"]
        paths_by_session[session.number] = paths
        votes = Counter(filter(None, (_before(path, relative_paths) for path in paths)))
        if votes:
            session.root = votes.most_common(1)[0][0]

    roots = {session.root for session in sessions if session.root}
    for session in sessions:
        if not session.root:
            session.root = _longest_root(roots, paths_by_session[session.number])


def _longest_root(roots: Iterable[str], paths: Sequence[str]) -> str:
    """Return the longest root that one of the paths begins with, or ""."""
    folders = set[str]()
    for path in paths:
        folders.update(map(str, PurePosixPath(path).parents))
    return max(folders.intersection(roots), key=len, default="")


def _before(path: str, relative_paths: Mapping[str, int]) -> str:
    """Return what stands before the longest end of a path that is known, or ""."""
    parts = path.split("/")
    for start in range(2, len(parts) - 1):
        if relative_paths.get("/".join(parts[start:]), 0) > 1:
            return "/".join(parts[:start])
    return ""


def find_mends(failure: Action, earlier: Sequence[Action]) -> list[Mend]:
    """Return what would put a failure right.

    `earlier` are the failures of the same kind in other sessions: their substitutions
    count, and the path and the contract that this session itself then used.
    """
    if failure.failure_class == "work":
        return []
    if failure.path and ABSENT_ERROR.search(failure.error):
        return [*_find_path(failure)]
    if failure.failure_class == "file":
        return [*_find_contract(failure)]
    mends = (_find_substitution(action) for action in earlier)
    return [mend for mend in mends if mend is not None]


def _find_path(failure: Action) -> Iterator[Mend]:
    """Yield the next file with a like name that the session opened."""
    name = PurePosixPath(failure.path).name
    for action in failure.later:
        if action.failed is not False or not action.path or action.tool == "Write":
            continue
        other = PurePosixPath(action.path).name
        likeness = SequenceMatcher(None, name, other).ratio()
        if action.path != failure.path and likeness >= MIN_NAME_LIKENESS:
            yield Mend(form="path", words=(action.path,))
            return


def _find_contract(failure: Action) -> Iterator[Mend]:
    """Yield the step between the failure and a call on the same file that passed.

    Without such a step, yield each argument that the call changed.
    """
    tools: list[str] = []
    for action in failure.later:
        if action.failed is not False or action.path != failure.path:
            continue
        if action.tool != failure.tool:
            tools.append(action.tool)
            continue
        yield from (Mend(form="contract", words=(tool,)) for tool in tools)
        if not tools:
            mine = failure.arguments
            theirs = action.arguments
            changed = [name for name in theirs if theirs[name] != mine.get(name)]
            yield from (Mend(form="contract", words=(name,)) for name in changed)
        return


def _find_substitution(failure: Action) -> Mend | None:
    """Return the words that changed in the similar command that passed, if any.

    Particulars are left out. If no word came, the words that went are the change.
    """
    if failure.mending is None:
        return None
    passing = failure.later[failure.mending]
    old_words = COMMAND_WORD.findall(failure.command)
    new_words = COMMAND_WORD.findall(passing.command)
    changed = [word for word in new_words if word not in old_words]
    if not changed:
        changed = [word for word in old_words if word not in new_words]
    words = [word for word in dict.fromkeys(changed) if not PARTICULAR.search(word)]
    is_cut = CUT.search(failure.args) or CUT.search(passing.args)
    if is_cut or not 0 < len(changed) <= MAX_CHANGED_WORDS or not words:
        return None
    return Mend(form="substitution", words=tuple(words))


def by_environment(
    rows: Sequence[Mapping[str, Any]],
) -> Mapping[str, Sequence[Session]]:
    """Return the sessions of each environment, with their roots."""
    environments: dict[str, list[Session]] = defaultdict(list)
    for number, row in enumerate(rows):
        environments[row["environment"]].append(Session.of(number, row))
    for sessions in environments.values():
        find_roots(sessions)
    return environments
