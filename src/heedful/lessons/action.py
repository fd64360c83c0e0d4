"""Actions: the digests by which an action of an agent is found again. Pure.

The same action differs from run to run in its folders, so these are left out. A failure
is stored under the whole action, and under the name that its error quotes, together
with the word before this name. In recorded sessions that did not guide this choice,
other parts of an action, such as its program alone, announce the wrong failure, and so
do actions without their numbers.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Set
from dataclasses import KW_ONLY, dataclass
from itertools import chain, pairwise
from typing import Any

from heedful.lessons.lesson import State, Trust, digest_of, release_command
from heedful.lessons.lesson_check import LessonCheck
from heedful.redact import redact

# Arguments that hold a command. The other arguments of such a call only describe it.
COMMAND_ARGUMENTS = ("command", "cmd")
# A shell, as the first of the three words of "/bin/bash -c COMMAND".
_SHELL_PATTERN = re.compile(r"(?:.*/)?\w{0,4}sh")
# The line before the fix in a lesson from a session.
MEND_HEADING = "What put it right:"
MAX_ACTION_CHARS = 4_096  # characters of an action that are read
MAX_WORD_PAIRS = 128  # pairs of words that are compared
# A path without its last part: "/srv/ann/" in "/srv/ann/app".
_FOLDER_PATTERN = re.compile(r"(?:[~.\w@+-]*/)+(?=[\w.@+-])")
# A word of an action: "npm", "numpy.linalg", "build_docs". A number is not one.
_ACTION_WORD_PATTERN = re.compile(r"[A-Za-z_][\w.-]*\w")
# A text of 2 to 120 characters in quotes; each sort of quotes has a group of its own.
QUOTED_TEXT_PATTERN = re.compile(
    r"'([^'\n]{2,120})'|\"([^\"\n]{2,120})\"|`([^`\n]{2,120})`"
)


@dataclass(frozen=True, slots=True)
class Action:
    """An action of an agent: its `tool`, and its arguments as a `text` without secrets.

    A command has no `tool`: it is the same action whichever tool runs it.
    """

    tool: str
    text: str

    @property
    def whole(self) -> str:
        """The digest of the tool with all arguments, without folders."""
        words = _FOLDER_PATTERN.sub("", self.text).split()
        return digest_of("action", f"{self.tool} {' '.join(words)}")

    def digests(self, error: str = "") -> tuple[str, ...]:
        """Return the digests of the whole action and of its parts, each of them once.

        A part is a word, together with the word before it. If the action failed with an
        `error`, only the parts with the name that the error quotes are returned.
        """
        words = [word.lower() for word in _ACTION_WORD_PATTERN.findall(self.text)]
        pairs = list(pairwise(["", *words[:MAX_WORD_PAIRS]]))
        if error:
            name = _first_quoted(error, {word for _, word in pairs})
            pairs = [pair for pair in pairs if pair[1] == name]

        parts = [digest_of("part", f"{self.tool} {' '.join(pair)}") for pair in pairs]
        return tuple(dict.fromkeys([self.whole, *parts]))


def _first_quoted(error: str, names: Set[str]) -> str:
    """Return the first of the names that an error quotes; "" if it quotes none.

    The quoted text 'numpy.linalg' names "numpy.linalg", and "linalg" too.
    """
    # Each sort of quotes has a group; two of the three groups are empty.
    quoted = ["".join(groups).lower() for groups in QUOTED_TEXT_PATTERN.findall(error)]
    candidates = chain.from_iterable((text, text.rpartition(".")[2]) for text in quoted)
    return next((name for name in candidates if name in names), "")


def action(tool: str, arguments: Mapping[str, Any] | str) -> Action:
    """Return an action: a tool with its arguments, JSON data or the text of a command.

    >>> build = action("Bash", {"command": "npm run build --prefix /srv/ann/app"})
    >>> build.whole == action("bash", "npm run build --prefix /srv/app").whole
    True
    """
    command = command_of(arguments)
    if command:
        return Action("", redact(command[:MAX_ACTION_CHARS]))
    text = json.dumps(arguments, sort_keys=True, ensure_ascii=False, default=repr)
    return Action(tool.strip().lower(), redact(text[:MAX_ACTION_CHARS]))


def command_of(arguments: Mapping[str, Any] | str) -> str:
    """Return the command of a call; "" if its arguments have none.

    Arguments that are a text are the command. A command may also be a list of words; in
    ["bash", "-c", "make test"] only the last one counts.
    """
    if isinstance(arguments, str):
        return arguments.strip()

    commands = (arguments[name] for name in COMMAND_ARGUMENTS if arguments.get(name))
    command = next(commands, "")
    if isinstance(command, list | tuple):
        words = [str(word) for word in command]
        has_shell = len(words) == 3 and _SHELL_PATTERN.fullmatch(words[0])
        if has_shell and words[1].startswith("-"):
            return words[2].strip()
        return shlex.join(words)

    return command.strip() if isinstance(command, str) else ""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a finished run: its action, and the `error` with which it failed or "".

    `lesson` is the id of the lesson (of the kind `reflection`) about this failure;
    without one, the failure is not stored. `state` says in what state the step failed,
    such as the step before it. `at` is the time of its result in seconds since 1970, 0
    if unknown.
    """

    action: Action
    error: str = ""
    _: KW_ONLY
    lesson: int = 0
    state: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """A failure of an action that has not worked since.

    `what` says what happened, and `fix` what fixed it, or "". `trust` and
    `lesson_state` say how sure the fix is. The action failed in `runs` runs, last at
    the time `failed`, in seconds since 1970, and in the state `state`. `lesson` is the
    id of the lesson. If `whole` is false, only a part of the action failed.
    """

    lesson: int
    what: str
    _: KW_ONLY
    fix: str
    trust: Trust
    lesson_state: State
    runs: int
    failed: float
    state: str
    whole: bool

    def __str__(self) -> str:
        times = "once" if self.runs == 1 else f"in {self.runs} runs"
        subject = "this" if self.whole else "an action with this name"
        fix = "no fix is known"
        if self.fix:
            fix = f"fix ({self.lesson_state}, {self.trust}): {self.fix}"

        failure = f"{subject} failed {times} and has not worked since"
        return f"{failure}: {self.what}\n{fix}"


@dataclass(frozen=True, slots=True)
class ActionHistory:
    """The result of `Memory.before`; true if something speaks against the action.

    `failures` are the known failures, most frequent first. `waiting` are the ids of
    lessons about the action that wait in quarantine; their texts are not shown.
    `checks` are the checks of lessons that find something in the action.
    """

    failures: tuple[KnownFailure, ...] = ()
    waiting: tuple[int, ...] = ()
    checks: tuple[LessonCheck, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.failures or self.checks)

    @property
    def warnings(self) -> Mapping[int, str]:
        """What to say before the action, by the ids of lessons."""
        texts = {check.lesson: f"{check.about}: {check.text}" for check in self.checks}
        return texts | {failed.lesson: str(failed) for failed in self.failures}

    @property
    def release(self) -> str:
        """The command that releases the lessons that wait, or ""."""
        return release_command(self.waiting)
