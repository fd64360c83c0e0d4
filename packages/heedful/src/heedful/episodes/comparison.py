"""Calls compared: how alike two calls are, and in which arguments they differ. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise

from heedful.episodes.course import as_text, given_to, named_arguments
from heedful.episodes.episode import Event, call_arguments
from heedful.episodes.looks import changes
from heedful.lessons.action import (
    PATH_ARGUMENTS,
    QUOTED_TEXT_PATTERN,
    WRITTEN_ARGUMENTS,
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
# What an agent says of a command for people.
DESCRIPTION_ARGUMENT = "description"
# A file in a patch.
_PATCHED_FILE_PATTERN = re.compile(r"\*\*\* \w+ File: (.+?)(?:\\n|\n|$)")
# A command with one of these passes though a part of it fails; with a pipe, too: its
# status is that of its last program.
_MASK_PATTERN = re.compile(r"[2&]>\s*/dev/null|\|\|\s*(?:true\b|:|echo\b)")
_PIPE_PATTERN = re.compile(rf"{_MASK_PATTERN.pattern}|(?<!\|)\|(?!\|)")
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
    """Return the values of a call by their names; an inner one is "headers.Accept"."""
    arguments = call_arguments(event)
    if not isinstance(arguments, Mapping):
        return named_arguments(event)
    values = dict(_inner_leaves("", arguments))
    if command_of(arguments):
        values.pop(DESCRIPTION_ARGUMENT, None)
    return values


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


def shows_new_values(error: str, old: Event, new: Event) -> bool:
    """Return whether an error shows all new values of a call, or the form they have.

    "Ids look like T-1001" shows the form of T-42 after a call with 42.
    """
    words = [word.strip("'\"`“”‘’(),;<>[]{}.:!?") for word in error.lower().split()]
    changes = differences(old, new)
    return bool(changes) and all(
        value is not None and _shows_value(words, (was or "").lower(), value.lower())
        for _, was, value in changes
    )


def _shows_value(words: Sequence[str], old: str, new: str) -> bool:
    """Return whether one of the words of an error is a new value, or has its form.

    A new value that contains the old one has the form of what surrounds the old one.
    """
    if len(new) > 1 and new in words:
        return True

    inner = re.search(rf"(?<!\w){re.escape(old)}(?!\w)", new) if old else None
    if inner is None:
        return False
    start = new[: inner.start()]
    end = new[inner.end() :]
    return any(
        word.startswith(start) and word.endswith(end) and word != old for word in words
    )


def likeness_of_calls(old: Event, new: Event, error: str) -> float:
    """Return how alike two calls of one tool are, 0..1; 0 if they serve two purposes.

    They share half of their words, differ in few arguments, in one that the `error` of
    the old one names, or in the program that it misses, or it shows the new values.
    """
    share = likeness(text_of_call(old), text_of_call(new))
    if share > 0:
        return share if is_about_change(old, new, error) else 0.0
    if differ_in_few_arguments(leaves(old), leaves(new)) or _contains_command(old, new):
        return FEW_ARGUMENTS_LIKENESS
    if _differ_in_named_argument(old, new, error):
        return FEW_ARGUMENTS_LIKENESS
    if _replaces_missing_program(old, new, error):
        return FEW_ARGUMENTS_LIKENESS
    if begin_alike(old, new) and shows_new_values(error, old, new):
        return SHOWN_VALUE_LIKENESS
    return 0.0


def _differ_in_named_argument(old: Event, new: Event, error: str) -> bool:
    """Return whether an error names an argument that only one of two calls has."""
    names = leaves(old).keys() ^ leaves(new).keys()
    return not _words_in(" ".join(names)).isdisjoint(_words_in(error))


def _is_command(event: Event) -> bool:
    """Return whether the one argument of a call is a command."""
    arguments = given_to(event)
    is_named = isinstance(arguments, Mapping) and command_of(arguments) != ""
    return is_named and len(leaves(event)) == 1


def _contains_command(old: Event, new: Event) -> bool:
    """Return whether a command has another one of several words whole in it."""
    command = text_of_call(old).strip()
    return " " in command and f" {command} " in f" {text_of_call(new)} "


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


def _replaces_missing_program(old: Event, new: Event, error: str) -> bool:
    """Return whether a command is another one with the program that the error misses.

    A shell wrote "yarn: not found" or "command not found: yarn".
    """
    program, _, rest = text_of_call(old).strip().partition(" ")
    new_program, _, new_rest = text_of_call(new).strip().partition(" ")
    if not rest[:1].isalnum() or not new_rest.endswith(rest) or program == new_program:
        return False
    error_words = error.lower().replace(":", " ").split()
    return "not found" in error.lower() and program.lower() in error_words


def hides_failure(old: Event, new: Event) -> bool:
    """Return whether a command may fail as another did, and only not show it."""
    if not (_is_command(old) and _is_command(new)):
        return False
    old_text = text_of_call(old)
    new_text = text_of_call(new)
    is_same_program = old_text.split()[:1] == new_text.split()[:1]
    pattern = _PIPE_PATTERN if is_same_program else _MASK_PATTERN
    return len(pattern.findall(new_text)) > len(pattern.findall(old_text))


def is_edit(event: Event) -> bool:
    """Return whether a call changes a file: it has a text to be written, or a patch."""
    names = leaves(event)
    is_patch = any(
        "*** Begin Patch" in value or value.startswith("@@") for value in names.values()
    )
    if is_patch or any(
        name in WRITTEN_ARGUMENTS or name.startswith("edits") for name in names
    ):
        return True
    # What it writes may be cut.
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


def replaces(later: Event, earlier: Event) -> bool:
    """Return whether an edit takes back all the words that an earlier edit wrote.

    An edit is a call in which two arguments in a row are alike: the old text and the
    new one. Both edits have another argument in common, such as a path.
    """
    if not leaves(earlier).items() & leaves(later).items():
        return False
    earlier_old, earlier_new = _edited_texts(earlier)
    later_old, later_new = _edited_texts(later)
    written = _words_only_in(earlier_new, earlier_old)
    removed = _words_only_in(later_old, later_new)
    return bool(written) and written <= removed


def _edited_texts(event: Event) -> tuple[str, str]:
    """Return the old and the new text of an edit, "" and "" for another call."""
    for old, new in pairwise(leaves(event).values()):
        if old and new and old != new and likeness(old, new):
            return old, new
    return "", ""


def _words_only_in(text: str, other: str) -> set[str]:
    """Return the words that a text has and another lacks."""
    words = set(_EXACT_WORD_PATTERN.findall(text))
    return words - set(_EXACT_WORD_PATTERN.findall(other))


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
