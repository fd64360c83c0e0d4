"""Particulars of a session that its lessons leave out: folders, branches, ids, people.

A path below the root of the repository becomes relative to it, the branch that the
session is on becomes `<branch>`, and long ids become `<id>`. Personal data is masked as
`heedful.redact` does, and so are the names of people in ids. The root is given, or
derived from the paths in the session.
"""

import posixpath
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass

from heedful.episodes.course import ends, event_text, given_to
from heedful.episodes.episode import Event
from heedful.lessons.session_names import (
    NAME_END,
    MadeNames,
    branch_pattern,
    branches_in,
    names_by_call,
)
from heedful.redact import mask_personal, redact

# An absolute path of at least two folders, and a relative one of at least one.
_ABSOLUTE_PATH_PATTERN = re.compile(r"(?<![\w.~/:-])(?:/[\w.@+-]+){3,}")
_RELATIVE_PATH_PATTERN = re.compile(
    r"(?<![\w~/$.@:-])(?:\./)?((?:[\w.@+-]+/)+[\w.@+-]+)"
)
# A folder of the system is the root of no repository.
_SYSTEM_FOLDER_PATTERN = re.compile(r"/(?:tmp|usr|etc|opt|var)\b")
# The home folder of somebody.
_HOME_PATTERN = re.compile(r"/(?:Users|home)/[\w.-]+\b")
# A command of git or GitHub, in which any word may be a branch.
_GIT_COMMAND_PATTERN = re.compile(r"\b(?:git|gh)\s[^\n;&|`]*")
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# A digest has digits and letters; all of one sort may be a number or a word.
_DIGEST = r"(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{7,64}"
_DIGEST_PATTERN = re.compile(rf"(?<![\w./-])(?:{_UUID}|{_DIGEST}){NAME_END}")
# A value of a name such as "user_id".
_NAMED_ID_PATTERN = re.compile(
    r'(\\?"\w*(?:_id|Id)\\?":\s?\\?")([^"\\]{3,200})(?=\\?")'
)
# In such a value: a code in capitals, or three digits.
_ID_CODE_PATTERN = re.compile(r"\A(?=.*\d)[A-Z0-9]{6,}\Z|\d{3,}")
# The name of a person in JSON, or as Python prints it.
_PERSON_PATTERN = re.compile(
    r"(?:first|last|given|family)_?name\\?[\"']\s?:\s?\\?[\"']([^\"'\\]{2,60})",
    re.IGNORECASE,
)


def find_root(events: Sequence[Event]) -> str:
    """Return the root of the repository that a session worked in; "" if unknown.

    It is the folder under which most absolute paths of calls are written elsewhere in
    the session as relative ones. Without such a path, it is the folder that the paths
    have in common.
    """
    paths: list[str] = []
    relative: set[str] = set()
    for event in events:
        text = ends(event_text(event))
        if event.type == "tool_call":
            text = ends(str(given_to(event)))
            absolute = _ABSOLUTE_PATH_PATTERN.findall(text)
            paths += [
                path for path in absolute if not _SYSTEM_FOLDER_PATTERN.match(path)
            ]
        relative.update(_RELATIVE_PATH_PATTERN.findall(text))

    votes: Counter[str] = Counter()
    for path in paths:
        parts = path.split("/")
        for start in range(3, len(parts) - 1):
            if "/".join(parts[start:]) in relative:
                votes["/".join(parts[:start])] += 1
                break
    if votes:
        return max(votes, key=votes.__getitem__)

    common = posixpath.commonpath(paths) if len(set(paths)) > 1 else ""
    return common if common.count("/") > 2 else ""


@dataclass(frozen=True, slots=True)
class Particulars:
    """What the lessons of one session leave out.

    `root` is the folder of the repository, "" if unknown. `branches` are the branches
    that the session was on, each with the position of the event that says so. `names`
    are names of people, in lower case. `made_names` are those that calls made, each
    with the position of the call.
    """

    root: str = ""
    branches: Sequence[tuple[int, str]] = ()
    names: Set[str] = frozenset()
    made_names: Sequence[tuple[int, MadeNames]] = ()

    @classmethod
    def of(cls, events: Sequence[Event], root: str = "") -> "Particulars":
        """Return the particulars of a session; without a `root`, find it."""
        branches: list[tuple[int, str]] = []
        names: set[str] = set()
        for position, event in enumerate(events):
            text = ends(event_text(event))
            for name in _PERSON_PATTERN.findall(text):
                names.update(name.lower().split())

            branches += [(position, name) for name in branches_in(text)]
        calls = [n for n, event in enumerate(events) if event.type == "tool_call"]
        names_made = names_by_call(given_to(events[n]) for n in calls)
        return cls(
            root.rstrip("/") or find_root(events),
            branches,
            frozenset(names),
            [
                (call, made)
                for call, made in zip(calls, names_made, strict=True)
                if made
            ],
        )

    def made_until(self, position: int) -> MadeNames:
        """Return the names that the calls up to a position made."""
        names = MadeNames()
        for call, names_of_call in self.made_names:
            if call <= position:
                names |= names_of_call
        return names

    def relative(self, text: str) -> str:
        """Return a text with paths that are relative to the repository."""
        if self.root:
            root = re.escape(self.root)
            text = re.sub(rf"(?<![\w./-]){root}/(?=[\w.])", "", text)
            text = re.sub(rf"(?<![\w./-]){root}{NAME_END}", ".", text)
        return _HOME_PATTERN.sub("~", text)

    def leave_out(self, text: str, position: int) -> str:
        """Return a text without secrets, personal data and particulars.

        `position` is that of the failed call: its branch is the one that counts.
        """
        # What the call itself says about the branch comes with its result.
        before = bisect_right(self.branches, position + 1, key=lambda pair: pair[0])
        text = self.relative(redact(text))
        if before:
            text = _without_branch(text, self.branches[before - 1][1])

        text = _NAMED_ID_PATTERN.sub(self._without_id, text)
        return mask_personal(_DIGEST_PATTERN.sub("<id>", text))

    def ids_in(self, arguments: str) -> dict[str, str]:
        """Return what stands in place of each id in the JSON of arguments."""
        return {
            match[2]: self._without_id(match).removeprefix(match[1])
            for match in _NAMED_ID_PATTERN.finditer(arguments)
        }

    def _without_id(self, match: re.Match[str]) -> str:
        """Return a key with its id; what tells ids apart and names of people are out.

        What sort of id it is stays: "gift_card_4711" becomes "gift_card_<id>".
        """
        value = _ID_CODE_PATTERN.sub("<id>", match[2])
        for name in self.names:
            word = re.escape(name)
            value = re.sub(rf"(?i)(?<![a-z]){word}(?![a-z])", "<name>", value)
        return match[1] + value


def _without_branch(text: str, branch: str) -> str:
    """Return a text with `<branch>` in place of a branch.

    A branch with a plain word for a name is one only in commands of git.
    """
    pattern = branch_pattern(branch)
    if branch.isalnum():
        return _GIT_COMMAND_PATTERN.sub(
            lambda command: pattern.sub("<branch>", command[0]), text
        )
    return pattern.sub("<branch>", text)
