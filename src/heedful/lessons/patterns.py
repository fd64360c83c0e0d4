"""Groups of patterns: patterns that differ only in a particular which no mask recognises.

A signature masks what looks like a particular. A user, a state or a service looks like any word; it
shows as a particular only when many patterns differ in nothing else. `Templates` finds such places
as IPLoM (Makanju, Zincir-Heywood, Milios, KDD 2009) and Brain (Yu et al., IEEE TSC 2023) do: by
error type, first word and length, then by the place with the fewest values, until the remaining
patterns differ only in places that hold many values.

`suggest_merges` lists lessons that mean nearly the same, for a person to judge; it merges nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from heedful.errors import InvalidInput
from heedful.lessons.lesson import Signature, digest_of

HOLE = "<*>"
# A place with at least `MANY` values holds a particular. A template must keep at least `WORDS`
# words if masks or several places differ (and twice as many as places), `LEFT` if one place does.
MANY = 4
WORDS = 3
LEFT = 2
# Patterns kept for a scope, characters of one, and tokens of one that is compared.
MOST_PATTERNS = 2_048
LONGEST = 1_024
MOST_TOKENS = 64
SHOWN = 4
_TOKEN = re.compile(
    r" ?(?:(?<!\w)(?:'[^']{1,100}'|\"[^\"]{1,100}\"|`[^`]{1,100}`)(?!\w)"
    r"|(?:<[A-Z]+>|[^\s=:,;()\[\]{}\"'`|<>])+|\S)"
)
_WORD = re.compile(r" ?[A-Za-z]+[.!?]?")
_MASK = re.compile(r"<(?:[A-Z]+|\*)>")
_DIGITS = re.compile(r"\d+")
# Never a particular: quoted text, a number that was not masked, an exception or a similar name, an
# errno, a negation, an adverb of frequency, punctuation.
_FIXED = re.compile(
    r" ?(?:['\"`].+|\d+\W?|[^\w<]"
    r"|[\w.$]*(?:Error|Exception|Warning|Failure|Fault|Panic|Interrupt|Exit|StopIteration)s?\d*\W?"
    r"|(?:\w+[.$])+[A-Z][A-Za-z]*\W?|E[A-Z]{2,}\d*\W?"
    r"|(?i:not|no|never|now|always|still|already|yet|often|sometimes|seldom|rarely|usually|again))"
)
# Nor what follows a word for an expectation, with any of `_BETWEEN` between the two.
_WANTED = frozenset(
    (
        *("want", "wants", "wanted", "expect", "expects", "expected", "expecting", "desired"),
        *("equal", "equals", "be"),
    )
)
_BETWEEN = frozenset(":=<([\"'`)") | {"is", "to", "a", "an", "the"}
# Nor the name of what was raised: after a word of `_RAISED`, after a colon if a word of `_PANICS`
# precedes, and before a colon or at the end if a word of `_TRACES` precedes.
_RAISED = frozenset(("caught", "raise", "raised", "raises", "threw", "throws", "thrown"))
_PANICS = frozenset(("panic", "panicked", "unwrap", "unwrap()", "caused"))
_TRACES = _PANICS | {"traceback", "exception"}
Tokens = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Merge:
    """A group of patterns: its name, its template, the digests of its patterns, and the reasons."""

    group: str
    template: str
    members: tuple[str, ...]
    why: tuple[str, ...]


@dataclass(frozen=True)
class Branch:
    """The patterns of one error type with the same first word, by digest, in the order learnt."""

    patterns: Mapping[str, str]
    apart: frozenset[str] = frozenset()

    def plus(self, one: Signature) -> Branch:
        """Return the branch with one more pattern; the others are not parsed again."""
        more = replace(self, patterns={**self.patterns, one.digest: one.pattern})
        vars(more)["parsed"] = {**self.parsed, one.digest: _parsed(one.pattern)}
        return more

    @cached_property
    def parsed(self) -> Mapping[str, tuple[Tokens, Tokens]]:
        """By digest, the tokens of the pattern as they are, and with holes for its masks."""
        return {digest: _parsed(text) for digest, text in self.patterns.items()}

    @cached_property
    def merges(self) -> tuple[Merge, ...]:
        """The groups that have more than one pattern."""
        together = {one: both for one, both in self.parsed.items() if one not in self.apart}
        members: dict[Tokens, list[str]] = defaultdict(list)
        why: dict[Tokens, list[str]] = defaultdict(list)
        for digest, template in _templates(together, why).items():
            members[template].append(digest)
        return tuple(
            Merge(those[0], "".join(one), tuple(those), tuple(why[one] or ["other masks"]))
            for one, those in members.items()
            if len(those) > 1
        )

    @cached_property
    def groups(self) -> Mapping[str, Merge]:
        """By digest, the groups of the patterns that are merged."""
        return {digest: merge for merge in self.merges for digest in merge.members}


@dataclass(frozen=True)
class Templates:
    """The patterns of one scope and their groups; a frozen value.

    The groups depend on which patterns were learnt, not on the order; the order only names a group,
    by the digest learnt first. Patterns with different error types, exceptions, quoted texts or
    unmasked numbers are never merged, and assertions are merged with nothing. At most `most`
    patterns are kept; further ones are grouped by those.

    >>> from heedful import signature
    >>> user = [signature("log", f"login failed for {name}") for name in ("ada", "bo", "cy", "di")]
    >>> known = Templates().learn(*user)
    >>> known.group(user[3]) == user[0].digest
    True
    >>> known.merges()[0].template, known.merges()[0].why
    ('login failed for <*>', ("4 values after 'for': ada, bo, cy, di",))
    """

    branches: Mapping[tuple[str, str], Branch] = field(default_factory=dict)
    most: int = MOST_PATTERNS

    def __len__(self) -> int:
        """Count the patterns."""
        return sum(len(branch.patterns) for branch in self.branches.values())

    def learn(self, *signatures: Signature) -> Templates:
        """Return the templates with these patterns added, in order; itself if none is new."""
        room = self.most - len(self)
        new: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        for one in signatures:
            key = _key(one.error_type, one.pattern)
            known = one.digest in self._branch(key).patterns or one.digest in new.get(key, ())
            if room > 0 and not known and is_learnable(one):
                new[key][one.digest] = one.pattern
                room -= 1
        grown = {
            key: replace(self._branch(key), patterns={**self._branch(key).patterns, **more})
            for key, more in new.items()
        }
        return replace(self, branches={**self.branches, **grown}) if grown else self

    def group(self, one: Signature) -> str:
        """Return the name of a signature's group, its own digest if it is alone. Learns nothing."""
        merge = self.merge(one)
        return merge.group if merge else one.digest

    def merge(self, one: Signature) -> Merge | None:
        """Return a signature's group of several patterns; None if it is alone. Learns nothing."""
        if not is_learnable(one):
            return None
        branch = self._branch(_key(one.error_type, one.pattern))
        branch = branch if one.digest in branch.patterns else branch.plus(one)
        return branch.groups.get(one.digest)

    def merges(self) -> tuple[Merge, ...]:
        """List every group of several patterns, with the reasons."""
        return tuple(merge for branch in self.branches.values() for merge in branch.merges)

    def unmerge(self, *digests: str) -> Templates:
        """Return the templates with these patterns kept out of all groups from now on.

        Raises InvalidInput for a digest that was not learnt.
        """
        wanted = frozenset(digests)
        known = {one for branch in self.branches.values() for one in branch.patterns}
        if wanted - known:
            raise InvalidInput("digest", min(wanted - known), "the digest of a learnt pattern")
        return replace(
            self,
            branches={
                key: replace(branch, apart=branch.apart | (wanted & set(branch.patterns)))
                for key, branch in self.branches.items()
            },
        )

    def rows(self) -> tuple[tuple[str, str, bool], ...]:
        """Return plain data in the order learnt: error type, pattern, and if it is kept apart."""
        return tuple(
            (key[0], pattern, digest in branch.apart)
            for key, branch in self.branches.items()
            for digest, pattern in branch.patterns.items()
        )

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str, bool]], most: int = MOST_PATTERNS) -> Templates:
        """Restore the templates from the rows."""
        given = [
            (Signature("", text, digest_of(kind, text), kind), out) for kind, text, out in rows
        ]
        known = cls(most=len(given)).learn(*(one for one, _ in given))
        return replace(known.unmerge(*(one.digest for one, out in given if out)), most=most)

    def _branch(self, key: tuple[str, str]) -> Branch:
        return self.branches.get(key, _EMPTY)


_EMPTY = Branch({})


def _key(error_type: str, pattern: str) -> tuple[str, str]:
    first = pattern.partition(" ")[0]
    return error_type, "" if "<" in first else first


def is_learnable(one: Signature) -> bool:
    """Return True if a pattern can be grouped: it is not too long and not an assertion."""
    return (
        len(one.pattern) <= LONGEST
        and "<ACTUAL>" not in one.pattern
        and "assert" not in f"{one.error_type} {one.pattern}".lower()
    )


def _templates(
    parsed: Mapping[str, tuple[Tokens, Tokens]], why: dict[Tokens, list[str]]
) -> dict[str, Tokens]:
    """Return the template of each pattern, by digest, and add the reasons for merges to `why`."""
    by_length: dict[int, dict[Tokens, list[Tokens]]] = defaultdict(lambda: defaultdict(list))
    for those, opened in parsed.values():
        if len(those) <= MOST_TOKENS:
            by_length[len(those)][opened].append(those)
    moved: dict[Tokens, Tokens] = {}
    for members in by_length.values():
        for template, merged, reasons in _grown(sorted(members), members):
            moved |= dict.fromkeys(merged, template)
            why[template] += reasons
    grown = {digest: moved.get(one, one) for digest, (_, one) in parsed.items()}
    within = _within_words(set(grown.values()))
    for narrow, wide in within.items():
        why[wide] += [*why[narrow], f"{''.join(narrow)!r} holds within a word what is there a word"]
    return {digest: within.get(one, one) for digest, one in grown.items()}


def _parsed(pattern: str) -> tuple[Tokens, Tokens]:
    tokens = _tokens(pattern)
    return tokens, _opened(tokens)


def _tokens(pattern: str) -> Tokens:
    """Split a pattern, with one hole for a list of masked tokens or of similar numbers."""
    tokens = _TOKEN.findall(pattern)
    kept: list[str] = []
    before = ""
    for token in tokens:
        shape = HOLE if _is_masked(token) else _DIGITS.sub("0", token.strip())
        if shape == before and "0" in shape.replace(HOLE, "0") and not _FIXED.fullmatch(token):
            at = -2 if kept[-1] == "," else -1
            kept[at:] = [_hole(kept[at])]
        else:
            kept.append(token)
        before = before if token == "," else shape
    return tuple(kept if _words(tokens) >= WORDS else tokens)


def _opened(tokens: Tokens) -> Tokens:
    """Put a hole in place of every token with a mask, if enough words remain to recognise it by."""
    opened = tuple(_hole(token) if _is_masked(token) else token for token in tokens)
    return opened if _words(opened) >= WORDS else tokens


def _is_masked(token: str) -> bool:
    bare = _MASK.sub("", token)
    quoted = token.strip()[0] in "'\"`"
    return bare != token and not (quoted and any(map(str.isalpha, bare)))


def _hole(token: str) -> str:
    return f" {HOLE}" if token[0] == " " else HOLE


def _words(tokens: Iterable[str]) -> int:
    return sum(1 for token in tokens if _WORD.fullmatch(token))


def _grown(
    templates: Sequence[Tokens], members: Mapping[Tokens, Sequence[Tokens]]
) -> Iterator[tuple[Tokens, Sequence[Tokens], list[str]]]:
    """Merge templates that differ only in particulars: yield result, merged and reasons."""
    held = [set(place) for place in zip(*templates, strict=True)]
    vary = [at for at, values in enumerate(held) if len(values) > 1]
    if not vary:
        return
    seen = {at: {those[at] for one in templates for those in members[one]} for at in vary}
    fixed = {at: _fixed(held[at], templates[0], at) for at in vary}
    bad = [at for at in vary if not _is_particular(at, held[at], seen[at], fixed[at])]
    left = _words(next(iter(values)) for values in held if len(values) == 1)
    if not bad and left >= (LEFT if len(vary) == 1 else max(WORDS, 2 * len(vary))):
        first = templates[0]
        into = tuple(_hole(token) if at in seen else token for at, token in enumerate(first))
        yield into, templates, [_reason(first[at - 1] if at else "", seen[at]) for at in vary]
        return
    _, at = min((len(held[at]), at) for at in bad or vary)
    parts: dict[str, list[Tokens]] = defaultdict(list)
    for one in templates:
        parts[one[at] if one[at] in fixed[at] or not fixed[at] else ""].append(one)
    for part in parts.values():
        yield from _grown(part, members)


def _fixed(held: set[str], template: Tokens, at: int) -> set[str]:
    """Return the values at a place of a template that are never particulars."""
    if _is_named(template, at):
        return {token for token in held if token.strip() != HOLE}
    return {token for token in held if _FIXED.fullmatch(token)}


def _is_named(template: Tokens, at: int) -> bool:
    """Return True if the place holds what was expected or what was raised."""
    before = [token.strip().lower() for token in template[:at]]
    if before[-2:] in (["=", "="], ["!", "="]):
        return True
    said = next((token for token in reversed(before[-4:]) if token not in _BETWEEN), "")
    if said in _WANTED or before[-1:] in [[one] for one in _RAISED]:
        return True
    after = template[at + 1 : at + 2]
    if before[-1:] == [":"] and not _PANICS.isdisjoint(before):
        return True
    return after in ((), (":",)) and not _TRACES.isdisjoint(before)


def _is_particular(at: int, held: set[str], seen: set[str], fixed: set[str]) -> bool:
    """Return True if a place holds a particular: it is masked elsewhere, or has many values."""
    if HOLE in held or f" {HOLE}" in held:
        return all(token.strip().isdecimal() for token in fixed)
    return at > 0 and not fixed and len(seen) >= MANY


def _reason(before: str, seen: Iterable[str]) -> str:
    values = sorted(token.strip() for token in seen)
    more = ", …" if len(values) > SHOWN else ""
    return f"{len(values)} values after {before.strip()!r}: {', '.join(values[:SHOWN])}{more}"


def _within_words(templates: Iterable[Tokens]) -> dict[Tokens, Tokens]:
    """Map each template with holes inside words to the template with holes for whole words."""
    alike: dict[Tokens, list[tuple[Tokens, Tokens]]] = defaultdict(list)
    for one in sorted(templates):
        words = tuple("".join(one).split(" "))
        if sum(1 for word in words if _WORD.fullmatch(word)) >= LEFT:
            alike[tuple(map(_coarse, words))].append((words, one))
    return {
        narrow: wide
        for coarse, those in alike.items()
        for words, wide in those
        if words == coarse
        for _, narrow in those
        if narrow != wide
    }


def _coarse(word: str) -> str:
    return HOLE + (word[-1] if word[-1] in ",;:." else "") if HOLE in word else word


# The cosine from which two lessons may be one.
ALIKE = 0.85
_FACTS = ("id", "kind", "signature", "error_type", "text", "state", "seen")


def suggest_merges(
    lessons: Sequence[Mapping[str, Any]],
    vectors: Sequence[Sequence[float]],
    known: Iterable[Mapping[str, Any]],
) -> list[Mapping[str, Any]]:
    """List pairs of lessons of one error type that are alike, most alike first, with their cosine.

    `vectors` have length 1, one for each lesson. Left out are pairs of one group and patterns kept
    apart (`known`, as the store lists patterns), and assertions, which are never merged.
    """
    import numpy as np

    if not lessons:
        return []
    group = {
        one["signature"]: None if entry["apart"] else number
        for number, entry in enumerate(known)
        for one in entry["patterns"]
    }
    matrix = np.asarray(vectors, dtype="<f4")
    likeness = np.triu(matrix @ matrix.T, k=1)
    order = np.argsort(-likeness, axis=None, kind="stable")[: int((likeness >= ALIKE).sum())]
    pairs = (divmod(int(at), len(lessons)) for at in order)
    return [
        {
            "cosine": round(float(likeness[a, b]), 4),
            "lessons": [{fact: lessons[at][fact] for fact in _FACTS} for at in (a, b)],
        }
        for a, b in pairs
        if _may_be_one(lessons[a], lessons[b], group)
    ]


def _may_be_one(
    one: Mapping[str, Any], other: Mapping[str, Any], group: Mapping[str, int | None]
) -> bool:
    names = [one["signature"], other["signature"]]
    groups = [group.get(name, name) for name in names]
    return (
        one["error_type"] == other["error_type"]
        and None not in groups
        and groups[0] != groups[1]
        and all(
            is_learnable(Signature("", it["pattern"], it["signature"], it["error_type"]))
            for it in (one, other)
        )
    )


@dataclass(frozen=True, slots=True)
class Seen:
    """The answer of `Memory.seen`: true if the error is known, with its count and lessons.

    With a `group`, its pattern is one of several: count and lessons are those of the whole group,
    the lessons of the pattern itself first, then the most often seen, at most 50.
    """

    count: int
    lessons: tuple[Mapping[str, Any], ...] = ()
    group: Merge | None = None

    def __bool__(self) -> bool:
        return self.count > 0
