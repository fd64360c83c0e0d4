"""Propose a check from the examples of a lesson, without a model. Pure.

The simplest construct that separates is chosen: all rejected outputs break it, and all
accepted ones keep it. The constructs, in this order: the fields of a JSON object, the
form of the whole answer, a bound that the lesson's words name, a word that they quote.
A construct begins as general as it can be, and gets narrower only if a rejected output
still fits. So it does not ask for more than the examples show:

- two accepted outputs may have a form in common by chance. So a form is proposed only
  if the lesson's words show one ("as in 7 kg"), name two of the outputs ("Y or N") or
  the case of letters ("lower case"), or if `MIN_UNBROKEN_CASES` accepted outputs have
  it;
- a bound or a word needs to be in the lesson's own words, since two long texts
  differ in many things by chance;
- what an answer must have is asked only of loops with the memory key of the lesson,
  because the answers of another function have another form.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
from typing import NamedTuple

from heedful.lessons.lesson_check import (
    UNITS,
    CheckKind,
    Rule,
    TextPiece,
    call_words,
    fits,
    json_types,
    letter_case,
    pieces,
)
from heedful.lessons.links import is_command
from heedful.lessons.mistake import Mistake, without_outside
from heedful.lessons.scope import MIN_UNBROKEN_CASES

MIN_EXAMPLES = 2  # outputs of each sort that a check is executed on, at least
MAX_SHOWN_WORDS = 8  # of an answer that the lesson shows
# A text in quotation marks, or characters outside words, such as "```".
_QUOTED_WORD_PATTERN = re.compile(
    r"'([^'\n]{1,60})'|\"([^\"\n]{1,60})\"|`([^`\n]{1,60})`|(?<!\S)([^\w\s]{1,9})(?!\S)"
)


class ReplacedCall(NamedTuple):
    """A command that failed in a run, and the one that worked instead."""

    failed: str
    worked: str

    @classmethod
    def of(cls, mistake: Mistake | None) -> "ReplacedCall | None":
        """Return the two commands of a mistake whose fix is another command."""
        if mistake is None:
            return None
        mistake = without_outside(mistake)
        if mistake.action is None or mistake.fix is None:
            return None
        if mistake.fix.kind not in ("command", "tool") or len(mistake.fix.calls) != 1:
            return None
        failed = mistake.action
        (worked,) = mistake.fix.calls
        if not (
            is_command(failed.tool, failed.text)
            and is_command(worked.tool, worked.text)
        ):
            return None
        return cls(failed.text, worked.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What a check is made from and executed on.

    `rejected` and `accepted` are outputs of a lesson, the accepted ones all different,
    and `harmless` are accepted ones of others. `text` has the lesson's words. `keyed`
    is true if the check judges only loops of one memory key. With `is_call`, the
    outputs are calls.
    """

    text: str
    rejected: tuple[str, ...]
    accepted: tuple[str, ...]
    harmless: tuple[str, ...] = ()
    keyed: bool = False
    is_call: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """A proposed check: its rule as data and in words."""

    kind: CheckKind
    rule: Rule
    about: str


def propose(material: Material) -> Proposed | None:
    """Return the simplest check that separates; None if no construct does.

    Each candidate is executed: it must find every rejected output, and nothing in an
    accepted or a harmless one.
    """
    constructs = (_calls,) if material.is_call else (_objects, _forms, _bounds, _words)
    for construct in constructs:
        for proposed in construct(material):
            if _separates(proposed, material):
                return proposed
    return None


def _separates(proposed: Proposed, material: Material) -> bool:
    """Return True if a check finds all rejected outputs and no accepted one."""
    fit = partial(fits, proposed.kind, proposed.rule)
    accepted = (*material.accepted, *material.harmless)
    return all(map(fit, accepted)) and not any(map(fit, material.rejected))


def _objects(material: Material) -> Iterator[Proposed]:
    """Yield the fields that all accepted JSON objects have; then no others."""
    objects = list(filter(None, map(json_types, material.accepted)))
    if not material.keyed or len(objects) < len(material.accepted):
        return

    allowed = {}
    for name in sorted(set.intersection(*map(set, objects))):
        allowed[name] = sorted({types[name] for types in objects})
    shape = f"a JSON object with {', '.join(allowed)}"
    for closed in (False, True):
        only = " and nothing else" if closed else ""
        yield Proposed(
            kind="object",
            rule={"fields": allowed, "closed": closed},
            about=f"the answer is not {shape}{only}",
        )


# What a form asks of the words at one place, from the widest form to the narrowest: the
# same word, the same case of letters, no more words, and no other sizes.
_NARROWINGS: Sequence[Sequence[str]] = (
    (),
    ("text",),
    ("case",),
    ("most",),
    ("text", "case", "most"),
    ("text", "case", "most", "sizes"),
)


def _forms(material: Material) -> Iterator[Proposed]:
    """Yield the form of the accepted outputs, from the widest to the narrowest."""
    if not material.keyed:
        return

    groups: dict[tuple[str, ...], list[list[TextPiece]]] = defaultdict(list)
    for text in material.accepted:
        parts = pieces(text)
        groups[tuple(piece.kind for piece in parts)].append(parts)

    # A form that one output alone has may be chance; so may many forms.
    if any(len(group) < MIN_EXAMPLES for group in groups.values()):
        return

    such_as = " or ".join(map(repr, sorted(material.accepted)[:2]))
    for narrowings in _NARROWINGS:
        forms = [
            [
                _piece_rule(column, narrowings, material.text)
                for column in zip(*group, strict=True)
            ]
            for group in groups.values()
        ]
        if _is_shown(forms, material):
            yield Proposed(
                kind="form",
                rule={"forms": forms},
                about=f"the answer has another form than accepted ones, {such_as}",
            )


def _is_shown(forms: Sequence[Sequence[Rule]], material: Material) -> bool:
    """Return True if forms are more than chance: the lesson says so, or many outputs.

    Words that the lesson quotes from a rejected output show nothing.
    """
    if len(material.accepted) + len(material.harmless) >= MIN_UNBROKEN_CASES:
        return True

    words = _bare_words(material.text)
    cases = {piece.get("case") for piece in chain.from_iterable(forms)}
    if not cases.isdisjoint(words):
        return True

    # With blanks around, a part of it is found by whole words.
    rejected = [f" {' '.join(_bare_words(text))} " for text in material.rejected]
    longest = max(len(text.split()) for text in material.accepted)
    lengths = range(1, min(longest, MAX_SHOWN_WORDS) + 1)
    named_words = set()
    for start, length in product(range(len(words)), lengths):
        text = " ".join(words[start : start + length])
        is_plain = text.replace(" ", "").isalpha()
        is_form = not is_plain and fits("form", {"forms": forms}, text)
        if not is_form and text not in material.accepted:
            continue
        if any(f" {text} " in output for output in rejected):
            continue
        if is_form:
            return True
        named_words.add(text)
    return len(named_words) >= MIN_EXAMPLES


def _bare_words(text: str) -> list[str]:
    """Return the words of a text without the quotes and stops around them."""
    return [word.strip("'\"`.,;:") for word in text.split()]


def _piece_rule(
    column: Sequence[TextPiece], narrowings: Sequence[str], words: str
) -> Rule:
    """Return what a form asks of the pieces at one place.

    A word that all accepted outputs have, and that the lesson's `words` say, is always
    asked for.
    """
    first = column[0]
    rule: dict[str, object] = {"kind": first.kind}
    if "sizes" in narrowings and first.kind in ("0", "a"):
        rule["sizes"] = sorted({len(piece.text) for piece in column})
    if first.kind != "a":
        return rule

    rule["joiners"] = sorted({piece.joiner for piece in column} - {""})
    is_said = re.search(rf"\b{re.escape(first.text)}\b", words)
    if len({piece.text for piece in column}) == 1 and ("text" in narrowings or is_said):
        rule["text"] = first.text
    cases = {letter_case(piece.text) for piece in column}
    if "case" in narrowings and len(cases) == 1:
        rule["case"] = cases.pop()
    if "most" in narrowings:
        rule["most"] = max(piece.words for piece in column)
    return rule


def _bounds(material: Material) -> Iterator[Proposed]:
    """Yield the bounds that the lesson's words name, the widest first.

    Its words may have more numbers, such as how many words are to be cut.
    """
    if not material.keyed:
        return
    numbers = sorted(set(map(int, re.findall(r"\d{1,9}", material.text))))
    units = [unit for unit in UNITS if unit in material.text.lower()]
    for unit in units:
        bounds = [
            *(("most", number) for number in reversed(numbers)),
            *(("least", number) for number in numbers),
        ]
        for bound, number in bounds:
            yield Proposed(
                kind="bound",
                rule={"unit": unit, bound: number},
                about=f"the answer must have at {bound} {number} {unit}",
            )


def _words(material: Material) -> Iterator[Proposed]:
    """Yield the words that the lesson quotes: first as forbidden, then as required."""
    quoted = ["".join(groups) for groups in _QUOTED_WORD_PATTERN.findall(material.text)]
    for wanted in (False, True):
        if wanted and not material.keyed:
            return
        for word in dict.fromkeys(filter(None, map(str.strip, quoted))):
            verb = "must have" if wanted else "must not have"
            yield Proposed(
                kind="word",
                rule={"word": word, "wanted": wanted},
                about=f"the answer {verb} {word!r}",
            )


def _calls(material: Material) -> Iterator[Proposed]:
    """Yield the words with which all rejected calls begin.

    Fewer words would forbid calls that nobody rejected.
    """
    words = []
    for column in zip(*map(call_words, material.rejected), strict=False):
        if len(set(column)) > 1:
            break
        words.append(column[0])

    if words:
        text = " ".join(words)
        yield Proposed(
            kind="call", rule={"words": text}, about=f"this call has {text!r}"
        )
