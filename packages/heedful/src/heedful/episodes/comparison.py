"""Calls compared: how alike two calls are, and in which arguments they differ. Pure."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from heedful.episodes.course import as_text, given_to, named_arguments
from heedful.episodes.episode import Event, call_arguments
from heedful.episodes.failures import hides_status
from heedful.episodes.looks import changes
from heedful.lessons.action import (
    COMMAND_ARGUMENTS,
    PATH_ARGUMENTS,
    QUOTED_TEXT_PATTERN,
    command_of,
    path_of,
)
from heedful.lessons.words import count_common
from heedful.validation import MAX_SHOWN_LINE_CHARS, Fields

MIN_WORD_CHARS = 4
# How alike two calls are that differ in few arguments, or in a value that the error or
# another call shows: less than calls with common words, which have at least 0.5.
FEW_ARGUMENTS_LIKENESS = 0.4
SHOWN_VALUE_LIKENESS = 0.3
# Where a command runs. What else is given with it is for people, or limits its time.
FOLDER_ARGUMENTS = ("workdir", "cwd", "dir_path", "directory")
# A file in a patch.
_PATCHED_FILE_PATTERN = re.compile(r"\*\*\* \w+ File: (.+?)(?:\\n|\n|$)")
_EXACT_WORD_PATTERN = re.compile(r"\w+")
# The share of their words that calls for one purpose have in common.
MIN_COMMON_SHARE = 0.25
# A word of letters: "read" and "file" in "read_file2".
LETTERS_PATTERN = re.compile(r"[^\W\d_]+")
# A word, or a value such as "2026-03-27", "x.y" or "882134".
TOKEN_PATTERN = re.compile(r"\w(?:[\w.@+-]*\w)?")


def text_of_call(event: Event) -> str:
    """Return the arguments of a call as one text."""
    return " ".join(leaves(event).values())


def leaves(event: Event) -> dict[str, str]:
    """Return the values of a call by their names; an inner one is "headers.Accept".

    Of a command it is the command, and the folder where it runs.
    """
    arguments = call_arguments(event)
    if not isinstance(arguments, Mapping):
        return named_arguments(event)
    values = dict(_inner_leaves("", arguments))
    if not command_of(arguments):
        return values
    return {
        name: value
        for name, value in values.items()
        if value and name in (*COMMAND_ARGUMENTS, *FOLDER_ARGUMENTS)
    }


def _inner_leaves(prefix: str, data: Fields) -> Iterator[tuple[str, str]]:
    """Yield the values of an object and of the objects in it, with their names."""
    for name, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from _inner_leaves(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", as_text(value)


def differ_in_few_arguments(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    """Return whether two calls share a value, and differ in one or two."""
    names = {**old, **new}
    changed = [name for name in names if old.get(name) != new.get(name)]
    return len(changed) < len(names) and len(changed) <= 2


def begin_alike(old: Event, new: Event) -> bool:
    """Return whether two calls may serve one purpose.

    They have the same arguments. If there are several, they share one that is not a
    flag; a single one that is a text begins with the same word and shares a quarter of
    its words.
    """
    old_leaves = leaves(old)
    new_leaves = leaves(new)
    if old_leaves.keys() != new_leaves.keys():
        return False
    if len(old_leaves) > 1:
        shared = [
            value for name, value in old_leaves.items() if new_leaves[name] == value
        ]
        return any(len(value) >= MIN_WORD_CHARS for value in shared if value != "false")

    old_words = text_of_call(old).lower().split()
    new_words = text_of_call(new).lower().split()
    if len(old_words) < 2 or len(new_words) < 2:
        return True
    share = _share_of_words(text_of_call(old), text_of_call(new))
    return old_words[0] == new_words[0] and share >= MIN_COMMON_SHARE


def likeness_of_calls(old: Event, new: Event, error: str) -> float:
    """Return how alike two calls of one tool are, 0..1; 0 if they serve two purposes.

    They share half of their words, and what differs is what the `error` of the old one
    is about; or they differ in few arguments, or in the sub-command, or in what the
    error names; or the new one is the old one with more words.
    """
    command = text_of_call(old).strip()
    has_all = " " in command and f" {command} " in f" {text_of_call(new)} "
    share = likeness(text_of_call(old), text_of_call(new))
    if has_all or _differ_in_subcommand(old, new):
        return max(share, FEW_ARGUMENTS_LIKENESS)
    if share > 0:
        return share if is_about_change(old, new, error) else 0.0
    if not _is_command(old) and differ_in_few_arguments(leaves(old), leaves(new)):
        return FEW_ARGUMENTS_LIKENESS
    # The error may name an argument that only one of them has, or show the new words.
    error_words = _words_in(error)
    names = _words_in(" ".join(leaves(old).keys() ^ leaves(new).keys()))
    new_words = _words_in(text_of_call(new)) - _words_in(command)
    is_shown = new_words != set() and new_words <= error_words
    if is_shown or not names.isdisjoint(error_words):
        return FEW_ARGUMENTS_LIKENESS
    return 0.0


def _differ_in_subcommand(old: Event, new: Event) -> bool:
    """Return whether two commands do something else with the same thing.

    One word is another, and no option or name: `helm install shop` and `helm upgrade
    shop`. The last word is the thing.
    """
    if not (_is_command(old) and _is_command(new)):
        return False
    words = text_of_call(old).split()
    new_words = text_of_call(new).split()
    changed = set(words) ^ set(new_words)
    is_one = len(changed) == 2 and len(words) == len(new_words)
    is_verb = all(re.fullmatch(r"[a-z]+(?:-[a-z]+)*", word) for word in changed)
    return is_one and is_verb and words[-1] == new_words[-1]


def _is_command(event: Event) -> bool:
    """Return whether an argument of a call is a command."""
    arguments = given_to(event)
    return isinstance(arguments, Mapping) and command_of(arguments) != ""


def is_about_change(old: Event, new: Event, error: str) -> bool:
    """Return whether an error is about what differs between two commands.

    It names a word that went or came, or words only came or only went. A change of
    other arguments needs no name.
    """
    if not (_is_command(old) and _is_command(new)):
        return True
    old_words = _words_in(text_of_call(old))
    new_words = _words_in(text_of_call(new))
    if old_words <= new_words or new_words <= old_words:
        return True
    return not (old_words ^ new_words).isdisjoint(_words_in(error))


def _words_in(text: str) -> set[str]:
    """Return the words of a text in lower case."""
    return set(_EXACT_WORD_PATTERN.findall(text.lower()))


def hides_failure(old: Event, new: Event) -> bool:
    """Return whether a command may fail as another did, and only not show it."""
    old_text = text_of_call(old)
    new_text = text_of_call(new)
    is_same_program = old_text.split()[:1] == new_text.split()[:1]
    if not (_is_command(old) and _is_command(new) and is_same_program):
        return False
    return hides_status(new_text) and not hides_status(old_text)


def is_edit(event: Event) -> bool:
    """Return whether a call changes a file: it has a patch, or its tool changes files.

    What the tool writes may be cut, so nothing is asked of that.
    """
    values = leaves(event).values()
    if any("*** Begin Patch" in value or value.startswith("@@") for value in values):
        return True
    arguments = given_to(event)
    is_of_file = not isinstance(arguments, Mapping) or path_of(arguments) != ""
    return is_of_file and changes(event.tool, "")


def edited_files(edit: Event) -> set[str]:
    """Return the names of the files that an edit changes, without their folders."""
    values = leaves(edit)
    paths = [value for name, value in values.items() if name in PATH_ARGUMENTS]
    paths += _PATCHED_FILE_PATTERN.findall("\n".join(values.values()))
    return {path.rpartition("/")[2].strip() for path in paths} - {""}


def concerns(edit: Event, error: str) -> bool:
    """Return whether an edit changes a file, or a word, that an error names.

    The error is in lower case.
    """
    if any(name.lower() in error for name in edited_files(edit)):
        return True
    quoted = " ".join(map("".join, QUOTED_TEXT_PATTERN.findall(error)))
    values = leaves(edit).items()
    written = [text for name, text in values if name not in PATH_ARGUMENTS]
    return not _words_in("\n".join(written)).isdisjoint(_words_in(quoted))


def tokens_of(text: str) -> set[str]:
    """Return the words and values of a text in lower case, without short words."""
    tokens = set(TOKEN_PATTERN.findall(text.lower()))
    numbers = {token for token in tokens if token.isdigit() and len(token) > 1}
    return numbers | {token for token in tokens if len(token) >= MIN_WORD_CHARS}


def differences(old: Event, new: Event) -> list[tuple[str, str | None, str | None]]:
    """Return the arguments that differ: name, old value, new value; None is absent.

    An argument in an object has a name such as "headers.Accept".
    """
    old_arguments = leaves(old)
    new_arguments = leaves(new)

    changes: list[tuple[str, str | None, str | None]] = []
    for name in {**old_arguments, **new_arguments}:
        was = old_arguments.get(name)
        now = new_arguments.get(name)
        if was != now:
            was, now = differing_parts(was, now)
            changes.append((name, was, now))

    return changes


def differing_parts(was: str | None, now: str | None) -> tuple[str | None, str | None]:
    """Return two texts, or the parts that differ of long ones, with a word around."""
    if not was or not now or max(len(was), len(now)) <= MAX_SHOWN_LINE_CHARS:
        return was, now

    old_words = was.split(" ")
    new_words = now.split(" ")
    # How many equal words are left out at the start and at the end.
    start = max(0, count_common(old_words, new_words) - 1)
    old_reversed = old_words[start:][::-1]
    new_reversed = new_words[start:][::-1]
    end = max(0, count_common(old_reversed, new_reversed) - 1)

    before = ["…"] if start else []
    after = ["…"] if end else []
    parts = [words[start : len(words) - end] for words in (old_words, new_words)]
    old_part, new_part = (" ".join([*before, *part, *after]) for part in parts)
    return old_part, new_part


def likeness(first: str, second: str) -> float:
    """Return how alike two calls are: the share of equal words, 0 below a half."""
    if first == second:
        return 1.0 if first else 0.0
    share = _share_of_words(first, second)
    return share if share >= 0.5 else 0.0


def _share_of_words(first: str, second: str) -> float:
    """Return the share of the words of two calls that both have.

    In calls that differ in few words, a word with a typo counts as equal.
    """
    words = set(LETTERS_PATTERN.findall(first.lower()))
    other_words = set(LETTERS_PATTERN.findall(second.lower()))

    lost = words - other_words
    new = other_words - words
    similar = 0
    if len(lost) < 4:
        similar = sum(bool(get_close_matches(word, new, 1)) for word in lost)

    same = len(words & other_words) + similar
    distinct = len(words | other_words) - similar
    return same / max(1, distinct)
