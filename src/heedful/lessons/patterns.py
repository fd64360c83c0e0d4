"""Groups of patterns that differ only in a particular that no mask recognises.

A signature masks what looks like a particular. The name of a user, a state or a service
looks like any other word. It can be recognised only if many patterns differ in nothing
else. `Templates` finds these positions as IPLoM (Makanju, Zincir-Heywood, Milios, KDD
2009) and Brain (Yu et al., IEEE TSC 2023) do: it splits the patterns by error type,
first word and length, and then by the position with the fewest values. It stops when
the remaining patterns differ only where there are many values.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import chain, groupby, islice
from typing import Any

from heedful.lessons.lesson import Signature, release_command

PATTERN_HOLE = "<*>"
# A place with at least `MIN_PARTICULAR_VALUES` values holds a particular. A pattern
# must keep at least `MIN_PATTERN_WORDS` words if its masks are left out, and a template
# as many words as places differ.
MIN_PARTICULAR_VALUES = 4
MIN_PATTERN_WORDS = 2
MAX_SCOPE_PATTERNS = 2_048  # patterns kept for a scope
MAX_PATTERN_CHARS = 1_024  # characters of a pattern
MAX_PATTERN_TOKENS = 64  # tokens of a pattern that is compared
_PATTERN_TOKEN_PATTERN = re.compile(
    r"(?<!\w)(?:'[^']{1,100}'|\"[^\"]{1,100}\"|`[^`]{1,100}`)|[^\s=]+=?|=+"
)
_PATTERN_WORD_PATTERN = re.compile(r"[A-Za-z]+[.!?,:;=]?")
MASK_PATTERN = re.compile(r"<[A-Z]+>")
# What continues a list of particulars, whose length is a particular too.
_LIST_TOKEN_PATTERN = re.compile(r"<\*>|[()\[\],]+")
# Never a particular: quoted text, an unmasked number, punctuation, an exception, a
# negation.
_FIXED_TOKEN_PATTERN = re.compile(
    r"['\"`].+|\d+\W?|[^\w<]+|[\w.$]*(?:Error|Exception)\W?|(?i:not|no|never)"
)
Tokens = tuple[str, ...]
_Key = tuple[str, str]  # error type and first word
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
    >>> names = ("ada", "bo", "cy", "di")
    >>> users = [signature("log", f"login failed for {name}") for name in names]
    >>> templates = Templates().learn(*users)
    >>> templates.group(users[3]) == users[0].digest
    True
    >>> templates.merges()[0].template
    'login failed for <*>'
    """

    branches: Mapping[_Key, Mapping[str, str]] = field(default_factory=dict)
    apart: frozenset[str] = frozenset()
    _groups: _Groups = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def learn(self, *signatures: Signature) -> Templates:
        """Return the templates with the patterns of these signatures added in order."""
        new = {
            (_key(pattern), pattern.digest): pattern.pattern
            for pattern in filter(is_learnable, signatures)
            if pattern.digest not in self.branches.get(_key(pattern), ())
        }
        room = MAX_SCOPE_PATTERNS - sum(map(len, self.branches.values()))
        grown = {key: {**self.branches.get(key, {})} for key, _ in new}
        for (key, digest), pattern in islice(new.items(), room):
            grown[key][digest] = pattern
        return replace(self, branches={**self.branches, **grown}) if new else self

    def group(self, pattern: Signature) -> str:
        """Return the name of the signature's group, or else the signature's digest."""
        merge = self.merge(pattern)
        return merge.group if merge else pattern.digest

    def merge(self, pattern: Signature) -> Merge | None:
        """Return the group of the signature, or None if it has no group."""
        if not is_learnable(pattern) or pattern.digest in self.apart:
            return None
        tokens = _parsed(pattern.pattern)
        groups = self._grouped(_key(pattern))
        for merge in groups.values():
            if pattern.digest in merge.members:
                return merge if len(merge.members) > 1 else None
        for template, merge in groups.items():
            pairs = list(zip(tokens, template, strict=False))
            fits = (
                a == b or (b == PATTERN_HOLE and not _FIXED_TOKEN_PATTERN.fullmatch(a))
                for a, b in pairs
            )
            if len(tokens) == len(template) and all(fits):
                return replace(merge, members=(*merge.members, pattern.digest))
        return None

    def merges(self) -> tuple[Merge, ...]:
        """Return every group of several patterns."""
        groups = chain.from_iterable(
            self._grouped(key).values() for key in self.branches
        )
        return tuple(merge for merge in groups if len(merge.members) > 1)

    def unmerge(self, *digests: str) -> Templates:
        """Return the templates with these patterns excluded from all groups."""
        return replace(self, apart=self.apart | set(digests))

    def _grouped(self, key: _Key) -> dict[Tokens, Merge]:
        if key not in self._groups:
            branch = self.branches.get(key, {}).items()
            parsed = {
                d: _parsed(pattern) for d, pattern in branch if d not in self.apart
            }
            rows = {row for row in parsed.values() if len(row) <= MAX_PATTERN_TOKENS}
            groups = self._groups[key] = {}
            for _, alike in groupby(sorted(rows, key=lambda row: (len(row), row)), len):
                for template, merged in _grown(list(alike)):
                    members = set(merged)
                    digests = tuple(d for d, row in parsed.items() if row in members)
                    groups[template] = Merge(digests[0], " ".join(template), digests)
        return self._groups[key]


def _key(pattern: Signature) -> _Key:
    first = pattern.pattern.partition(" ")[0]
    return pattern.error_type, "" if "<" in first else first


def is_learnable(pattern: Signature) -> bool:
    """Return True if a pattern may be grouped: short, and no failed assertion."""
    text = pattern.pattern
    asserts = "<ACTUAL>" in text or "assert" in f"{pattern.error_type} {text}".lower()
    return len(text) <= MAX_PATTERN_CHARS and not asserts


def _parsed(pattern: str) -> Tokens:
    """Return a pattern's tokens, masks as holes unless too few words would remain."""
    tokens = tuple(_PATTERN_TOKEN_PATTERN.findall(pattern))
    opened = [""]
    for token in tokens:
        bare = MASK_PATTERN.sub("", token)
        quotes = token[0] in "'\"`" and any(map(str.isalpha, bare))
        token = token if quotes or bare == token else PATTERN_HOLE
        if opened[-1] != PATTERN_HOLE or not _LIST_TOKEN_PATTERN.fullmatch(token):
            opened.append(token)
    return tuple(opened[1:]) if _words(opened) >= MIN_PATTERN_WORDS else tokens


def _words(tokens: Iterable[str]) -> int:
    return sum(1 for token in tokens if _PATTERN_WORD_PATTERN.fullmatch(token))


def _grown(rows: Sequence[Tokens]) -> Iterator[tuple[Tokens, Sequence[Tokens]]]:
    """Group rows that differ only in particulars; yield a template and its rows."""
    columns = [set(column) for column in zip(*rows, strict=True)]
    varying = [place for place, values in enumerate(columns) if len(values) > 1]
    fixed = {
        place: set(filter(_FIXED_TOKEN_PATTERN.fullmatch, columns[place]))
        for place in varying
    }
    # Places where the rows differ, but in too few values to be particulars.
    meaningful = [
        place
        for place in varying
        if fixed[place]
        or not (
            PATTERN_HOLE in columns[place]
            or len(columns[place]) >= MIN_PARTICULAR_VALUES
        )
    ]
    common = _words(next(iter(values)) for values in columns if len(values) == 1)
    if not varying or (not meaningful and common >= len(varying)):
        template = tuple(
            PATTERN_HOLE if place in fixed else token
            for place, token in enumerate(rows[0])
        )
        yield template, rows
        return

    split = min(meaningful or varying, key=lambda place: (len(columns[place]), place))
    parts: dict[str, list[Tokens]] = defaultdict(list)
    for row in rows:
        particular = fixed[split] and row[split] not in fixed[split]
        parts["" if particular else row[split]].append(row)
    for part in parts.values():
        yield from _grown(part)


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
    lessons: tuple[Mapping[str, Any], ...] = ()
    _: KW_ONLY
    group: Merge | None = None
    lines: tuple[str, ...] = ()

    @property
    def release(self) -> str:
        """The command that releases the lessons that wait in quarantine, or ""."""
        return release_command([lesson.get("entry", 0) for lesson in self.lessons])

    def __bool__(self) -> bool:
        return self.count > 0
