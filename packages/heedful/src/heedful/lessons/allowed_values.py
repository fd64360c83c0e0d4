"""Lists of allowed values in what a check says: "one of P0, P1 or P2". Pure.

Such a list is true for every task, although the accepted answer stands in it. Any list
of names may be one, so the loop decides: the accepted answer has one of the members, or
a number between them, and at least one member stands neither in it nor in the task.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from unicodedata import category

from heedful.lessons.signature import STRING_REGEX
from heedful.lessons.words import compiled

# The words that join members, as in "open, done or lost".
_JOIN_REGEX = r"(?:or|and)\s+"
# A comma without a blank may stand in a number: "1,204,500".
_SEPARATOR_REGEX = (
    rf"(?:(?:[,;]\s|\s[|/]\s|\n)\s*(?:[-*•]\s+)?(?:{_JOIN_REGEX})?|\s+{_JOIN_REGEX})"
)
_SEPARATOR_PATTERN = rf"({_SEPARATOR_REGEX})"
_QUOTED_MEMBER_REGEX = rf"(?:{STRING_REGEX}|`[^`\n]+`)"
# Signs that end a member; some of them end it only before a blank.
_CLOSING_SIGNS = r"\s,;()\[\]{}'\"`|"
_WORD_REGEX = (
    rf"(?!{_JOIN_REGEX})[\w@#$€%<>+-](?:[^{_CLOSING_SIGNS}]*[^{_CLOSING_SIGNS}:.!?])?"
)
_NUMBER_PATTERN = r"\d+(?:\.\d+)?"
# Two values are a list only if a word joins them: a pair with a comma may be a place.
MIN_MEMBERS = 3


@dataclass(frozen=True, slots=True)
class _List:
    """The members of a list, and where it stands in its text."""

    members: tuple[str, ...]
    start: int
    end: int


def allowed_spans(
    text: str, task: str, accepted: str, values: Sequence[str]
) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each list of allowed values in a text.

    `text` is what a check said, such as "one of P0, P1 or P2", about an answer to the
    `task`. `accepted` is the accepted answer, "" if there is none, and `values` are the
    values in it, which may be of several words.
    """
    for candidate in _lists_in(text, values):
        if _is_allowed(candidate.members, task, accepted):
            yield candidate.start, candidate.end


def _is_allowed(members: Sequence[str], task: str, accepted: str) -> bool:
    """Return True if the members of a list are allowed values, not what was expected.

    At least one of them stands neither in the task nor in the accepted answer. If there
    is an accepted answer, it has one of them. Of numbers, they are only limits: a
    number of the accepted answer must lie between them.
    """
    names = [member.strip("'\"`") for member in members]
    # If all stand in the loop, the list may be the expected answer itself.
    new_names = [name for name in names if not find_name(name, f"{task}\n{accepted}")]
    if not new_names:
        return False

    numbers = compiled(_NUMBER_PATTERN)
    if all(map(numbers.fullmatch, names)):
        limits = [float(name) for name in names]
        values = map(float, numbers.findall(accepted))
        return any(min(limits) <= value <= max(limits) for value in values)
    return not accepted or any(find_name(name, accepted) for name in names)


def _lists_in(text: str, values: Sequence[str]) -> Iterator[_List]:
    """Yield the lists of a text: "P0, P1 or P2" and the like.

    The members of one list look alike, and are at least `MIN_MEMBERS`, or two that a
    word such as "or" joins. `values` of several words may be members as a whole.
    """
    phrases = [value for value in values if " " in value and value in text]
    for run in re.finditer(_run_pattern(phrases), text):
        # Members have even places, and what separates them odd ones.
        parts = compiled(_SEPARATOR_PATTERN).split(run[0])
        # Where each part starts in the text, and where the last one ends.
        starts = [run.start()]
        for part in parts:
            starts.append(starts[-1] + len(part))
        places = range(0, len(parts), 2)
        # Members of one list begin alike: all with a capital, or all with a digit.
        for _, group in groupby(places, key=lambda place: category(parts[place][0])):
            first, *others = group
            last = others[-1] if others else first
            is_joined = any(
                compiled(_JOIN_REGEX).search(parts[place - 1]) for place in others
            )
            if len(others) + 1 >= MIN_MEMBERS or is_joined:
                members = tuple(parts[first : last + 1 : 2])
                yield _List(members, starts[first], starts[last + 1])


def _run_pattern(phrases: Sequence[str]) -> str:
    """Return the regular expression of a list: members with separators between them.

    The first and the last member are a quotation, a word, or one of the `phrases`. The
    members between are a quotation, or one to three words.
    """
    # A phrase may begin with another one: the longer one is tried first.
    longest_first = sorted(phrases, key=len, reverse=True)
    member = "|".join(
        [*map(re.escape, longest_first), _QUOTED_MEMBER_REGEX, _WORD_REGEX]
    )
    inner = rf"{_QUOTED_MEMBER_REGEX}|{_WORD_REGEX}(?: {_WORD_REGEX}){{0,2}}"
    return (
        rf"(?<!\w)(?:{member})(?:{_SEPARATOR_REGEX}(?:{inner}))*"
        rf"{_SEPARATOR_REGEX}(?:{member})"
    )


def find_name(part: str, text: str) -> list[tuple[int, int]]:
    """Return the start and the end of each place where `part` stands in a text.

    It stands there as words of its own, not within a longer word or name.
    """
    if not part or part not in text:
        return []
    # Not within a name: "fix" does not stand in "fix/login".
    before = r"(?<!\w)(?<!\w[-./@:])" if part[0].isalnum() else ""
    after = r"(?!\w)(?![-./@:]\w)" if part[-1].isalnum() else ""
    pattern = f"{before}{re.escape(part)}{after}"
    return [match.span() for match in re.finditer(pattern, text)]
