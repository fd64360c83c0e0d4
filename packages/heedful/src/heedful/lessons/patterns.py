"""Groups of patterns that differ only in a particular that no mask recognises.

A signature masks what looks like a particular. The name of a user or a computer looks
like any other word. It can be recognised only if many patterns differ in nothing else,
and some of its values have a digit: "test9", "boris", "ftp1". Words without, such as
"started" and "stopped", say what happened. `Templates` finds these positions as IPLoM
(Makanju, Zincir-Heywood, Milios, KDD 2009) and Brain (Yu et al., IEEE TSC 2023) do: it
splits the patterns by error type, first word and length, and then by the position with
the fewest values. It stops when the remaining patterns differ only in particulars.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import chain, groupby, islice

from heedful.lessons.commands import release_command
from heedful.lessons.lesson import Signature
from heedful.lessons.scope import lesson_name, told_mark
from heedful.lessons.signature import STRING_REGEX
from heedful.lessons.telling import (
    LessonCandidate,
    Situation,
    Telling,
    TellingBudget,
    tell,
)
from heedful.validation import Fields

PATTERN_HOLE = "<*>"
# A place with at least `MIN_PARTICULAR_VALUES` values, one of them with a digit, holds
# a particular. A pattern must keep at least `MIN_PATTERN_WORDS` words if its masks are
# left out, and a template as many words as places differ.
MIN_PARTICULAR_VALUES = 4
MIN_PATTERN_WORDS = 2
MAX_SCOPE_PATTERNS = 2_048  # patterns kept for a scope
MAX_PATTERN_CHARS = 1_024  # characters of a pattern
# A token of a pattern: a quoted text, a name with its "=", or a word. `user="a b" is
# out` has the tokens `user=`, `"a b"`, `is` and `out`.
_PATTERN_TOKEN_PATTERN = re.compile(
    rf"(?<!\w)(?:{STRING_REGEX}|`[^`]{{1,100}}`)|(?=\S)[^\s=]*=?"
)
# A mask of a signature: "<N>", "<PATH>".
MASK_PATTERN = re.compile(r"<[A-Z]+>")
# Never a particular: quoted text, an unmasked number, punctuation, an exception, "not".
_FIXED_TOKEN_PATTERN = re.compile(
    r"['\"`].+|(?:(?!<)[\d\W])+|[\w.$]*(?:Error|Exception)\W?|(?i:not)"
)
Tokens = tuple[str, ...]
# What all patterns of a group have in common: the error type and the first word.
_Key = tuple[str, str]
# The groups of several patterns of each key, by their templates.
_Groups = dict[_Key, dict[Tokens, "Merge"]]


@dataclass(frozen=True, slots=True)
class Merge:
    """A group of patterns: its name, its template, and the digests of the patterns."""

    group: str
    template: str
    members: tuple[str, ...]


@dataclass(frozen=True)
class Templates:
    """The patterns of one scope and their groups; immutable.

    The groups depend on the patterns but not on their order. The order only decides the
    name of a group, which is the digest that was learnt first. Patterns with different
    error types, exceptions, quoted texts or unmasked numbers are never merged, and
    assertions are never merged at all. At most `MAX_SCOPE_PATTERNS` are stored; further
    ones are only matched with the groups.

    >>> from heedful import signature
    >>> names = ("ada", "bo", "cy", "test9")
    >>> users = [signature("log", f"login failed for {name}") for name in names]
    >>> templates = Templates().learn(*users)
    >>> templates.group(users[3]) == users[0].digest
    True
    >>> templates.merge(users[3]).template
    'login failed for <*>'
    """

    # The patterns by the digests of their signatures, for each key.
    branches: Mapping[_Key, Mapping[str, str]] = field(default_factory=dict)
    # The groups of the keys that were asked for.
    _groups: _Groups = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def learn(self, *signatures: Signature) -> "Templates":
        """Return the templates with the patterns of these signatures added in order.

        A pattern is the text of an error, with masks such as "<N>" for particulars.
        Patterns that are known, or that may not be grouped, are left out; so are those
        for which there is no room in `MAX_SCOPE_PATTERNS`.
        """
        new = {
            pattern.digest: pattern
            for pattern in filter(is_learnable, signatures)
            if pattern.digest not in self.branches.get(_key(pattern), ())
        }
        room = MAX_SCOPE_PATTERNS - sum(map(len, self.branches.values()))

        branches = {key: dict(branch) for key, branch in self.branches.items()}
        for pattern in islice(new.values(), room):
            branches.setdefault(_key(pattern), {})[pattern.digest] = pattern.pattern
        return replace(self, branches=branches) if new else self

    def group(self, pattern: Signature) -> str:
        """Return the name of the signature's group, or else the signature's digest."""
        merge = self.merge(pattern)
        return merge.group if merge else pattern.digest

    def merge(self, pattern: Signature) -> Merge | None:
        """Return the group of patterns to which a signature belongs, None without one.

        The patterns of a group, that is errors with masks such as "<N>", differ only in
        particulars. A pattern that was not learnt belongs to the group whose template
        it fits, and is its last member.
        """
        if not is_learnable(pattern):
            return None

        groups = self._groups_of(_key(pattern))
        for merge in groups.values():
            if pattern.digest in merge.members:
                return merge

        # The pattern was not learnt, or has no group.
        tokens = _parse(pattern.pattern)
        for template, merge in groups.items():
            if _fits(tokens, template):
                return replace(merge, members=(*merge.members, pattern.digest))
        return None

    def seen_with(self, pattern: Signature) -> Merge | None:
        """Return the group of a signature, with only the patterns of the same error.

        Those differ from it only in masks and in words with a digit, never in a plain
        word, which may say another thing. Return None if no other pattern is left.
        """
        merge = self.merge(pattern)
        if merge is None:
            return None
        branches = self.branches.get(_key(pattern), {})
        # Its own pattern may not be learnt: it stands for itself.
        members = tuple(
            digest
            for digest in merge.members
            if _is_same_error(pattern.pattern, branches.get(digest, pattern.pattern))
        )
        return replace(merge, members=members) if len(members) > 1 else None

    def _groups_of(self, key: _Key) -> dict[Tokens, Merge]:
        """Return the groups of a key by their templates; they are formed only once.

        A key is what all patterns of a group have in common: the error type and the
        first word. Patterns that differ only in particulars, such as the name of a
        user, are one group. Its name is the digest that was learnt first.
        """
        if key in self._groups:
            return self._groups[key]

        patterns = self.branches.get(key, {})
        digests_by_row = defaultdict[Tokens, list[str]](list)
        for digest, pattern in patterns.items():
            digests_by_row[_parse(pattern)].append(digest)
        # Sorted, so that the groups do not depend on the order of learning.
        sorted_rows = sorted(digests_by_row, key=lambda row: (len(row), row))
        learning_order = {digest: place for place, digest in enumerate(patterns)}

        groups = self._groups.setdefault(key, {})
        for _, same_length in groupby(sorted_rows, len):
            for template, members in _group_rows(list(same_length)):
                digests = chain.from_iterable(digests_by_row[row] for row in members)
                in_order = tuple(sorted(digests, key=learning_order.__getitem__))
                if len(in_order) > 1:
                    groups[template] = Merge(in_order[0], " ".join(template), in_order)
        return groups


def _key(pattern: Signature) -> _Key:
    """Return the error type and the first word of a pattern, "" for a masked word."""
    first = pattern.pattern.partition(" ")[0]
    return pattern.error_type, "" if "<" in first else first


def is_learnable(pattern: Signature) -> bool:
    """Return True if a pattern may be grouped: short, and no failed assertion."""
    text = pattern.pattern
    asserts = "<ACTUAL>" in text or "assert" in f"{pattern.error_type} {text}".lower()
    return len(text) <= MAX_PATTERN_CHARS and not asserts


def _fits(tokens: Tokens, template: Tokens) -> bool:
    """Return True if a pattern has a template's tokens, and particulars in its holes.

    Both are given as tokens. A hole is a place of a template where its patterns differ.
    One particular may be a name of two words: "boris zhang".
    """
    if len(tokens) == len(template):
        return all(map(_fits_place, tokens, template))
    if len(tokens) != len(template) + 1:
        return False
    # The pattern has a token more: try each hole as two, for a name of two words.
    for place, expected in enumerate(template):
        # A mask is no part of a name.
        is_name = expected == PATTERN_HOLE not in tokens[place : place + 2]
        widened = (*template[:place], PATTERN_HOLE, *template[place:])
        if is_name and all(map(_fits_place, tokens, widened)):
            return True
    return False


def _fits_place(token: str, expected: str) -> bool:
    """Return True if a token is the expected one, or a particular in a hole."""
    is_particular = not _FIXED_TOKEN_PATTERN.fullmatch(token)
    return token == expected or (expected == PATTERN_HOLE and is_particular)


def _is_same_error(pattern: str, other: str) -> bool:
    """Return True if two patterns differ only in words with a digit, or in masks.

    Such words are particulars: "test9". Plain words may say what happened.
    """
    tokens = _parse(pattern, keeps_names=True)
    others = _parse(other, keeps_names=True)
    return len(tokens) == len(others) and all(
        token == another or bool(_has_digit(token) and _has_digit(another))
        for token, another in zip(tokens, others, strict=True)
    )


def _has_digit(token: str) -> bool:
    """Return True if a token has a digit, in quotes or not, and no mask."""
    return any(map(str.isdecimal, token)) and not MASK_PATTERN.search(token)


def _parse(pattern: str, *, keeps_names: bool = False) -> Tokens:
    """Return the tokens of a pattern; what stands for a particular becomes a hole.

    A token is a word or a quoted text; a mask, such as "<N>", stands for a particular.
    If too few words would remain, return the tokens with their masks. With
    `keeps_names`, a mask within a name is no hole: "<PATH>a.py", "left-pad@<N>".
    """
    tokens = tuple(_PATTERN_TOKEN_PATTERN.findall(pattern))
    template: list[str] = []
    for token in tokens:
        # A figure in parentheses says the one before it in another measure: "1190 bytes
        # (1.16 KB)". Lines with and without it are one pattern.
        if token == "(<N>)":
            continue
        unmasked = MASK_PATTERN.sub("", token)
        is_name = keeps_names or token[0] in "'\"`"
        if unmasked != token and not (is_name and any(map(str.isalpha, unmasked))):
            token = PATTERN_HOLE

        # What continues a list of particulars is part of the hole before it: another
        # one, a bracket or a comma. How long a list is, is a particular too.
        is_listed = token == PATTERN_HOLE or not token.strip("()[],")
        if template[-1:] != [PATTERN_HOLE] or not is_listed:
            template.append(token)

    return tuple(template) if _count_words(template) >= MIN_PATTERN_WORDS else tokens


def _count_words(tokens: Iterable[str]) -> int:
    """Return how many of the tokens are words, with signs behind them: "failed:"."""
    return sum(
        token.isascii() and token.rstrip(".!?,:;=").isalpha() for token in tokens
    )


def _group_rows(rows: Sequence[Tokens]) -> Iterator[tuple[Tokens, Set[Tokens]]]:
    """Group rows (patterns as tokens) of one length that differ only in particulars.

    Yield for each group its template, with holes for particulars, and its rows. Rows
    that differ in more are split at one place, and each part is grouped by itself.
    """
    columns = [set(column) for column in zip(*rows, strict=True)]
    varying = [place for place, tokens in enumerate(columns) if len(tokens) > 1]
    common = [next(iter(tokens)) for tokens in columns if len(tokens) == 1]

    # The tokens at each varying place that are never particulars, such as "not".
    fixed_tokens = {
        place: set(filter(_FIXED_TOKEN_PATTERN.fullmatch, columns[place]))
        for place in varying
    }
    # The places where the rows differ, but not in particulars only: these say that
    # something else happened.
    meaningful = [
        place
        for place in varying
        if fixed_tokens[place] or not _are_particulars(columns[place])
    ]
    # With more holes than common words, rows of different errors would be one group.
    if not meaningful and _count_words(common) >= len(varying):
        template = tuple(
            PATTERN_HOLE if place in varying else token
            for place, token in enumerate(rows[0])
        )
        yield template, set(rows)
        return

    # Split the rows by the place with the fewest tokens; particulars stay together.
    split = min(meaningful or varying, key=lambda place: (len(columns[place]), place))
    parts: dict[str, list[Tokens]] = defaultdict(list)
    for row in rows:
        is_particular = fixed_tokens[split] and row[split] not in fixed_tokens[split]
        parts["" if is_particular else row[split]].append(row)
    for part in parts.values():
        yield from _group_rows(part)


def _are_particulars(tokens: Set[str]) -> bool:
    """Return True if the tokens at one place of many patterns are particulars.

    They are if one of them is a hole, or if there are `MIN_PARTICULAR_VALUES` or more
    and one has a digit. Words of a language say what happened, however many there are:
    started, stopped.
    """
    if PATTERN_HOLE in tokens:
        return True
    return len(tokens) >= MIN_PARTICULAR_VALUES and any(map(_has_digit, tokens))


def candidates_of(lessons: Sequence[Fields]) -> list[LessonCandidate]:
    """Return the lessons about an error, which are data, as candidates to be told.

    A check that refused an answer has been put right once an answer was accepted.
    """
    return [
        LessonCandidate(
            name=lesson_name(lesson["kind"], lesson["signature"]),
            leg="error",
            record=lesson,
            text=lesson["text"],
            lesson=lesson["id"],
            near=1 / (place + 1),
            state=lesson["state"],
            only_refuses=lesson["kind"] == "check" and lesson["state"] != "verified",
            marks=frozenset([told_mark(lesson["id"])]),
        )
        for place, lesson in enumerate(lessons)
    ]


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of `Memory.seen`; true if the error was seen before.

    `count` is the number of sightings. If the pattern belongs to a `group`, count and
    lessons are those of the whole group. The lessons of the pattern itself come first,
    then those seen most often; there are at most 50. In a text with several lines,
    `lines` are the errors that are known; count and lessons are those of all these
    errors.
    """

    count: int
    lessons: tuple[Fields, ...] = ()
    _: KW_ONLY
    group: Merge | None = None
    lines: tuple[str, ...] = ()

    @property
    def told(self) -> tuple[Fields, ...]:
        """The lessons that an agent is told: none that waits or has ended."""
        return tuple(candidate.record for candidate in self._telling.told)

    @property
    def silence(self) -> str:
        """Why an agent is told no lesson; "" if it is."""
        return self._telling.silence

    @property
    def _telling(self) -> Telling:
        candidates = candidates_of(self.lessons)
        room = len(candidates)
        situation = Situation(
            moment="question", budget=TellingBudget(lessons=room, unchecked=room)
        )
        return tell(situation, candidates)

    @property
    def release(self) -> str:
        """The command that releases the lessons that wait in quarantine, or ""."""
        return release_command([lesson.get("entry", 0) for lesson in self.lessons])

    def __bool__(self) -> bool:
        return self.count > 0
