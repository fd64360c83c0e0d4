"""Names that a session gives to what it makes: branches, folders and files. Pure.

Another session gives other names. So an error is known by its text without them: an
error that names a branch of the session, or a file of it that the call names, too.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from heedful.lessons.action import arguments_of, command_of, path_of
from heedful.lessons.shell import simple_commands
from heedful.validation import Fields

# Options after which git takes the name of a branch that it makes; also as capitals.
_BRANCH_OPTIONS = frozenset({"-b", "-c", "-m", "--create"})
_BRANCH_COMMANDS = frozenset({"checkout", "switch", "branch", "worktree"})
_MAKING_PROGRAMS = frozenset({"mkdir", "touch"})
# The whole text of a file that a call writes.
_CONTENT_ARGUMENTS = frozenset({"content", "contents", "file_text"})
# What git says about the branch that is checked out, or a command that makes one.
BRANCH_PATTERN = re.compile(
    r"(?m)^On branch (?P<on>\S+)$|\[rejected\] +(?P<pushed>\S+) -> (?P=pushed)(?!\S)"
    r"|The current branch (?P<current>\S+) has no upstream"
    r"|Your branch is [^\n]*'origin/(?P<remote>[^']+)'"
    r"|Switched to (?:a new )?branch '(?P<other>[^']+)'"
    r"|branch '(?P<tracking>[^']+)' set up to track"
    r"|git (?:checkout -b|switch -c|branch -m) (?P<made>[\w./-]+)"
)
# What stands in calls and errors in place of a file that a session has made.
FILE_MASK = "<file>"


def branch_pattern(branch: str) -> re.Pattern[str]:
    """Return the pattern of a branch, also of one of the remote `origin`."""
    return re.compile(
        rf"(?:(?<![\w.-])(?<!\w/)|(?<=\borigin/)){re.escape(branch)}(?![\w/-]|\.\w)"
    )


@dataclass(frozen=True, slots=True)
class MadeNames:
    """Names of the branches and of the files that a session has made."""

    branches: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()

    def __or__(self, other: "MadeNames") -> "MadeNames":
        return MadeNames(self.branches | other.branches, self.files | other.files)

    def __bool__(self) -> bool:
        return bool(self.branches or self.files)

    def named_in(self, error: str, call: str) -> "MadeNames":
        """Return the names that occur in the error; a file must occur in the call too.

        The error itself may say which branch is checked out. A plain word is a branch
        only if the call runs git.
        """
        checked_out = BRANCH_PATTERN.findall(error)
        runs_git = "git" in call or "gh " in call
        branches = (
            name
            for name in self.branches.union(*checked_out)
            if name and name in error and (runs_git or not name.isalnum())
        )
        files = (name for name in self.files if name in error and name in call)
        return MadeNames(frozenset(branches), frozenset(files))

    def masked(self, text: str) -> str:
        """Replace the names in `text` with `<branch>` and `FILE_MASK`."""
        for branch in sorted(self.branches, key=len, reverse=True):
            text = branch_pattern(branch).sub("<branch>", text)
        for name in sorted(self.files, key=len, reverse=True):
            # The name with the folders before it; not as a part of a longer name.
            path_pattern = (
                rf"(?<![\w./-])(?:[\w.@+-]*/)*{re.escape(name)}(?![\w-]|\.\w)"
            )
            text = re.sub(path_pattern, FILE_MASK, text)
        return text


def made_names(calls: Iterable[Fields | str]) -> MadeNames:
    """Return the names that calls with these arguments make, in their order."""
    names = MadeNames()
    for names_of_call in names_by_call(calls):
        names |= names_of_call
    return names


def names_by_call(calls: Iterable[Fields | str]) -> Iterator[MadeNames]:
    """Yield for each call the names that it makes.

    A file that a call writes whole is new if no call before it was about its path.
    """
    paths: set[str] = set()
    for call in calls:
        arguments = arguments_of(call)
        path = path_of(arguments)
        is_new = path not in paths and not _CONTENT_ARGUMENTS.isdisjoint(arguments)
        paths.add(path)
        if is_new and path:
            yield MadeNames(files=_last_parts([path]))
            continue
        names = MadeNames()
        for words in simple_commands(command_of(arguments)):
            names |= _made_by(words)
        yield names


def _made_by(words: Sequence[str]) -> MadeNames:
    """Return the names that a simple command makes."""
    program = words[0] if words else ""
    names = [word for word in words[1:] if word[:1] != "-"]
    if program in _MAKING_PROGRAMS:
        return MadeNames(files=_last_parts(names))
    if program != "git" or _BRANCH_COMMANDS.isdisjoint(words):
        return MadeNames()

    start = min(words.index(name) for name in _BRANCH_COMMANDS.intersection(words))
    rest = words[start + 1 :]
    branches = {
        name for option, name in pairwise(rest) if option.lower() in _BRANCH_OPTIONS
    }
    if words[start] == "branch" and rest and rest[0][:1] != "-":
        branches.add(rest[0])
    folders = list[str]()
    if words[start] == "worktree" and list(rest[:1]) == ["add"]:
        folders = [word for word in rest[1:] if "/" in word and word not in branches]
    return MadeNames(frozenset(branches), _last_parts(folders[:1]))


def _last_parts(paths: Sequence[str]) -> frozenset[str]:
    """Return the last parts of paths."""
    names = (path.rstrip("/").rpartition("/")[2] for path in paths)
    return frozenset(name for name in names if len(name) > 2)
