"""Names that a session gives to what it makes: branches, folders and files. Pure.

Another session gives other names. So an error is known by its text without them: an
error that names a branch of the session, or a file of it that the call names, too.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import pairwise
from operator import or_

from heedful.knowledge import KnowledgeTable
from heedful.lessons.action import arguments_of, command_of, path_of
from heedful.lessons.mistake import Mistake
from heedful.lessons.shell import simple_commands
from heedful.validation import Fields, typed_frozen

# Options after which git takes the name of a branch that it makes; also as capitals.
_BRANCH_OPTIONS = frozenset({"-b", "-c"})
BRANCH_COMMANDS = frozenset({"checkout", "switch", "branch", "worktree"})
# The whole text of a file that a call writes.
_CONTENT_ARGUMENTS = frozenset({"content", "file_text"})
# What git says about branches.
_GIT = KnowledgeTable("lessons/branches")
# What ends a name in a text: it is no part of a longer name or path.
NAME_END = r"(?![\w/-]|\.\w)"
# What stands in calls and errors in place of a file that a session has made.
FILE_MASK = "<file>"
# A name in an error: a quoted text, or a word with a digit or a mark inside.
_NAME_PATTERN = re.compile(
    r"(?<!\w)([\"'`]).{1,100}?\1(?!\w)|\S*(?:\d|[\w<>][./@_:][\w<>])\S*"
)
# An error is known without its names if it has so many other words.
MIN_ERROR_WORDS = 3


def branch_pattern(branch: str) -> re.Pattern[str]:
    """Return the pattern of a branch, also of one of the remote `origin`."""
    return re.compile(
        rf"(?:(?<![\w.-])(?<!\w/)|(?<=\borigin/)){re.escape(branch)}{NAME_END}"
    )


def branches_in(text: str) -> list[str]:
    """Return the branches that git says are checked out, or a command makes."""
    return list(map("".join, _GIT.pattern("branch").findall(text)))


@typed_frozen(slots=True)
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

        Branches that the error itself says are checked out count as well. A plain word
        may be a name by chance: it is no file, and a branch only if the call runs git.
        """
        runs_git = "git" in call or "gh " in call
        branches = (
            name
            for name in self.branches.union(branches_in(error))
            if name in error and (runs_git or not name.isalnum())
        )
        files = (
            name
            for name in self.files
            if name in error and name in call and not name.isalnum()
        )
        return MadeNames(frozenset(branches), frozenset(files))

    def masked(self, text: str) -> str:
        """Return `text` with `<branch>` and `FILE_MASK` in place of the names.

        Two sessions then have the same text of one error.
        """
        # The longest name first, as it may contain a shorter one.
        for branch in sorted(self.branches, key=len, reverse=True):
            text = branch_pattern(branch).sub("<branch>", text)
        for name in sorted(self.files, key=len, reverse=True):
            # The name with the folders before it; not as a part of a longer name.
            path_pattern = (
                rf"(?<![\w./-])(?:[\w.@+-]*/)*{re.escape(name)}(?![\w-]|\.\w)"
            )
            text = re.sub(path_pattern, FILE_MASK, text)
        return text


def without_names(error: str) -> str:
    """Return an error without its names, "" if too few words are left.

    >>> without_names('no matches for kind "Pool" in "pool.yaml"')
    'no matches for kind  in '
    """
    words = _NAME_PATTERN.sub("", error)
    is_enough = len(re.findall(r"[^\W\d_]{2,}", words)) >= MIN_ERROR_WORDS
    return words if is_enough else ""


def fits_other_names(mistake: Mistake) -> bool:
    """Return whether the fix of a command helps after the same error of other names.

    The fix has no name that the error has. What is in place of the command keeps its
    words: those of another call stand there then.
    """
    fix = mistake.fix
    action = mistake.action
    if fix is None or action is None or not (fix.calls and action.text):
        return False
    words = _bare_words(action.text)
    fix_words = _bare_words(" ".join(call.whole for call in fix.calls))
    new_text = " ".join(word for word in fix_words if word not in words)
    if fix.kind != "step":
        kept_words = {*words[1:]} or {*words}
        if fix.kind == "edit" or not kept_words <= {*_bare_words(fix.calls[-1].text)}:
            return False
    names = [match[0].strip("\"'`") for match in _NAME_PATTERN.finditer(mistake.error)]
    return not any(name in new_text for name in names)


def _bare_words(text: str) -> list[str]:
    """Return the words of a text without quotes around them."""
    return [word.strip("\"'`") for word in text.split()]


def made_names(calls: Iterable[Fields | str]) -> MadeNames:
    """Return all names that calls make, given by their arguments in their order."""
    return reduce(or_, names_by_call(calls), MadeNames())


def names_by_call(calls: Iterable[Fields | str]) -> Iterator[MadeNames]:
    """Yield for each call, given by its arguments, the names that it makes.

    These are branches, folders and files of commands of a shell, and a file that a call
    writes whole. Such a file is new if no call before it was about its path.
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
            names |= _names_made_by(words)
        yield names


def _names_made_by(words: Sequence[str]) -> MadeNames:
    """Return the names that a simple command makes, given by its words.

    `mkdir` and `touch` make folders and files, `git` makes branches and work trees.
    """
    program = words[0] if words else ""
    names = [word for word in words[1:] if word[:1] != "-"]
    if program in ("mkdir", "touch"):
        return MadeNames(files=_last_parts(names))
    if program != "git" or BRANCH_COMMANDS.isdisjoint(words):
        return MadeNames()

    # "git -C app switch -c fix": the command of git may stand after options.
    start = min(words.index(name) for name in BRANCH_COMMANDS.intersection(words))
    rest = words[start + 1 :]
    branches = {
        name for option, name in pairwise(rest) if option.lower() in _BRANCH_OPTIONS
    }
    # "git branch fix" needs no option.
    if words[start] == "branch" and rest and rest[0][:1] != "-":
        branches.add(rest[0])
    folders = list[str]()
    if words[start] == "worktree" and list(rest[:1]) == ["add"]:
        folders = [word for word in rest[1:] if "/" in word and word not in branches]
    return MadeNames(frozenset(branches), _last_parts(folders[:1]))


def _last_parts(paths: Sequence[str]) -> frozenset[str]:
    """Return the last parts of paths, without those too short to be found in a text."""
    names = (path.rstrip("/").rpartition("/")[2] for path in paths)
    return frozenset(name for name in names if len(name) > 2)
