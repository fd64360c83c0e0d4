"""Substitutions: what gave way in a call that failed, and what worked in its place.

Pure. A call failed because of what it took for granted, and soon after it a call passed
that took something else for granted: another word of the same command, another path of
a like name, another value of the same argument. Such a `Substitution` can be told after
the same failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from heedful.lessons.action import COMMAND_ARGUMENTS, PATH_ARGUMENTS, command_of
from heedful.lessons.preconditions import (
    MAX_READ_COMMAND_CHARS,
    Precondition,
    Surroundings,
    find_blamed,
    preconditions_of,
    whole_command,
)

MAX_CHANGED_WORDS = 6
MAX_CHANGED_CHARS = 200
# The names of files must be this much alike, 0..1: "cart.go" and "carts.go".
MIN_NAME_LIKENESS = 0.6
# The argument of a substitution in a command, whatever the tool calls it.
COMMAND = "command"
# An argument that has a text to be written.
_WRITTEN_ARGUMENT_PATTERN = re.compile(
    r"(?:new|old|file)_(?:string|str|source|text)|content|patch|edits|input"
)
# What stands between commands, or leads their output elsewhere.
_OPERATOR_PATTERN = re.compile(r"&&|\|\|?|;|>")
# A number, a digest or a masked particular belongs to one session.
_SESSION_WORD_PATTERN = re.compile(
    r"\d{3,}|(?<![\w-])(?=[a-f]*\d)[0-9a-f]{7,40}(?![\w-])|<\w+>|\*{3}|…|_{3}"
)
# Words by which a call destroys something, or gets around a person or a check.
_DANGEROUS_WORD_PATTERN = re.compile(
    r"(?i)(?:.*/)?(?:rm|rmdir|dd|mkfs|kill|pkill|killall|shred|truncate|sudo|doas|su"
    r"|reset|clean|drop|eval|exec|source|xargs)\Z"
    r"|.*(?:force|delete|remove|hard|purge|prune|destroy|wipe|overwrite|no-?verify"
    r"|skip|unsafe|insecure|privileged|dangerous|exec)"
    r"|-[a-z]*[fy][a-z]*\Z|--yes\b"
)


@dataclass(frozen=True, slots=True)
class Substitution:
    """In an `argument`, the words `old` give way to the words `new`.

    The argument of a command is `COMMAND`; every other value is one word. Paths are
    relative to the repository.
    """

    argument: str
    old: tuple[str, ...]
    new: tuple[str, ...]

    def __str__(self) -> str:
        old = " ".join(self.old)
        if not self.new:
            return f"without `{old}`"
        return f"`{' '.join(self.new)}` in place of `{old}`"

    def apply(self, arguments: Mapping[str, Any], folder: str) -> dict[str, Any] | None:
        """Return the arguments of a call with the new words; None if it has not the old
        ones, once.

        `folder` is the root of the repository.
        """
        if self.argument != COMMAND:
            value = arguments.get(self.argument)
            relative = Surroundings(folder).relative
            if not isinstance(value, str) or (relative(value),) != self.old:
                return None
            new_value = self.new[0]
            if value != self.old[0] and value.startswith(f"{folder}/"):
                new_value = f"{folder}/{new_value}"
            return {**arguments, self.argument: new_value}

        for name in COMMAND_ARGUMENTS:
            command = arguments.get(name)
            if isinstance(command, str) and command:
                replaced = self._replace_words(command, folder)
                return None if replaced is None else {**arguments, name: replaced}
        return None

    def _replace_words(self, command: str, folder: str) -> str | None:
        """Return a command with the new words; all else stays as it is written."""
        matches = list(re.finditer(r"\S+", command[:MAX_READ_COMMAND_CHARS]))
        words = [_relative_word(match[0], folder) for match in matches]
        count = len(self.old)
        starts = [
            start
            for start in range(len(words) - count + 1)
            if tuple(words[start : start + count]) == self.old
        ]
        if len(starts) != 1:
            return None

        first = starts[0]
        replaced = matches[first : first + count]
        is_absolute = any(folder and f"{folder}/" in match[0] for match in replaced)
        new_words = self.new
        if is_absolute:
            new_words = tuple(
                f"{folder}/{word}" if "/" in word and word[:1] not in "/-" else word
                for word in self.new
            )
        before = command[: replaced[0].start()]
        after = command[replaced[-1].end() :]
        if not new_words:
            return f"{before.rstrip()}{after}" if before.strip() else after.lstrip()
        return f"{before}{' '.join(new_words)}{after}"


@dataclass(frozen=True, slots=True)
class Replacement:
    """A substitution that worked in a session, and what was blamed before.

    `sources` are those of the texts that it is drawn from: it is trusted no more than
    they are.
    """

    substitution: Substitution
    preconditions: tuple[Precondition, ...]
    sources: tuple[str, ...] = ()


def find_replacement(
    failed: tuple[str, Mapping[str, Any]],
    passed: tuple[str, Mapping[str, Any]],
    errors: Sequence[str],
    folder: str = "",
) -> Replacement | None:
    """Return what a call that passed has in the place of what an error blames.

    Each call is a tool with its arguments. Only a path may be that of another tool,
    which then does not write.
    """
    tool, arguments = failed
    other_tool, other_arguments = passed
    substitution = find_substitution(arguments, other_arguments, folder)
    if substitution is None:
        return None
    is_path = substitution.argument in PATH_ARGUMENTS
    if (tool != other_tool and not is_path) or (is_path and writes(other_arguments)):
        return None

    surroundings = Surroundings(folder)
    needs = preconditions_of(tool, arguments, surroundings)
    other_needs = frozenset(preconditions_of(other_tool, other_arguments, surroundings))
    preconditions = [need for need in needs if need not in other_needs]
    # A folder that is absent says nothing about the name of a file.
    exact = [p for p in preconditions if p.template not in ("folder", "whole file")]
    blamed = tuple(find_blamed(exact, errors))
    return Replacement(substitution, blamed) if blamed else None


def is_dangerous(word: str) -> bool:
    """Return whether a word of a command destroys something, or gets around a check."""
    return _DANGEROUS_WORD_PATTERN.match(word) is not None


def writes(arguments: Mapping[str, Any]) -> bool:
    """Return whether a call has a text to be written."""
    return any(map(_WRITTEN_ARGUMENT_PATTERN.fullmatch, arguments))


def find_substitution(
    failed: Mapping[str, Any], passed: Mapping[str, Any], folder: str = ""
) -> Substitution | None:
    """Return in what a call that passed differs from one that failed.

    It is None if they differ in more than one place, in more than `MAX_CHANGED_WORDS`
    words, or in something that belongs to one session, such as a number.
    """
    if command_of(failed) or command_of(passed):
        change = _changed_words(command_of(failed), command_of(passed), folder)
    else:
        change = _changed_path(failed, passed, folder) or _changed_value(failed, passed)
    if change is None:
        return None
    text = " ".join((*change.old, *change.new))
    is_particular = _SESSION_WORD_PATTERN.search(text) is not None
    if is_particular or len(text) > MAX_CHANGED_CHARS or not text.isprintable():
        return None
    return change


def _changed_words(old: str, new: str, folder: str) -> Substitution | None:
    """Return the words in which two commands differ, if they stand in one place."""
    is_long = max(len(old), len(new)) > MAX_READ_COMMAND_CHARS
    is_same = whole_command(old, folder) == whole_command(new, folder)
    if not old or not new or is_long or is_same:
        return None

    old_words = [_relative_word(word, folder) for word in old.split()]
    new_words = [_relative_word(word, folder) for word in new.split()]
    matcher = SequenceMatcher(None, old_words, new_words, autojunk=False)
    changes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    if len(changes) != 1:
        return None
    ((_, start, end, new_start, new_end),) = changes
    # Another command is no substitution.
    if end - start == len(old_words) or (end - start) + (new_end - new_start) > (
        MAX_CHANGED_WORDS
    ):
        return None
    # What is only added stands behind the word before it, or before the first one.
    if start == end:
        start = max(0, start - 1)
        new_start = max(0, new_start - 1)
        end = max(end, start + 1)
        new_end = max(new_end, new_start + 1)
        if old_words[start] not in new_words[new_start:new_end]:
            new_end += 1
    old_piece = old_words[start:end]
    new_piece = new_words[new_start:new_end]
    # To leave out a command of several, or its errors, is another thing.
    is_shortened = any(map(_OPERATOR_PATTERN.search, (*old_piece, *new_piece)))
    if is_shortened and "cd" not in (*old_piece, *new_piece):
        return None
    if not _is_variant(old_piece, new_piece):
        return None
    return Substitution(COMMAND, tuple(old_piece), tuple(new_piece))


def _is_variant(old: Sequence[str], new: Sequence[str]) -> bool:
    """Return whether words are a variant of others: the same but for options, or alike.

    "npm test" is no variant of "npm ci": what is done is another thing.
    """
    gone = [word for word in old if word not in new and word[:1] != "-"]
    came = [word for word in new if word not in old and word[:1] != "-"]
    if not gone or not came:
        return True
    return all(_best_likeness(word, gone) >= MIN_NAME_LIKENESS for word in came)


def _best_likeness(path: str, others: Sequence[str]) -> float:
    """Return how much the name of a path is like that of the most similar one."""
    name = _name_of(path)
    return max(name_likeness(name, _name_of(other)) for other in others)


def _name_of(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _changed_path(
    failed: Mapping[str, Any], passed: Mapping[str, Any], folder: str
) -> Substitution | None:
    """Return another path of a like name, whatever the tools call it."""
    relative = Surroundings(folder).relative
    old = next(_paths_of(failed), None)
    new = next(_paths_of(passed), None)
    if old is None or new is None or relative(old[1]) == relative(new[1]):
        return None
    if name_likeness(_name_of(old[1]), _name_of(new[1])) < MIN_NAME_LIKENESS:
        return None
    # A tool that reads a file has no use for its folder.
    if relative(old[1]).startswith(f"{relative(new[1])}/"):
        return None
    return Substitution(old[0], (relative(old[1]),), (relative(new[1]),))


def _paths_of(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the names and the values of the arguments that are paths."""
    for name in PATH_ARGUMENTS:
        value = arguments.get(name)
        if isinstance(value, str) and value:
            yield name, value


def name_likeness(name: str, other: str) -> float:
    """Return how much the names of two files are alike, 0..1."""
    if name == other:
        return 1.0
    return SequenceMatcher(None, name.lower(), other.lower(), autojunk=False).ratio()


def _changed_value(
    failed: Mapping[str, Any], passed: Mapping[str, Any]
) -> Substitution | None:
    """Return the one short argument in which two calls differ."""
    changed = [
        name
        for name in failed.keys() | passed.keys()
        if failed.get(name) != passed.get(name)
    ]
    if len(changed) != 1 or changed[0] in PATH_ARGUMENTS:
        return None
    values = [failed.get(changed[0]), passed.get(changed[0])]
    texts = [value for value in values if isinstance(value, str) and value]
    is_word = len(texts) == 2 and all(len(text.split()) <= 3 for text in texts)
    if not is_word or _WRITTEN_ARGUMENT_PATTERN.fullmatch(changed[0]):
        return None
    return Substitution(changed[0], (texts[0],), (texts[1],))


def _relative_word(word: str, folder: str) -> str:
    """Return a word of a command with its path relative to the repository."""
    return word.replace(f"{folder}/", "") if folder else word
