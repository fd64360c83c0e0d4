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
        """Return the command that a mistake was, and the one that put it right.

        Returns None unless both are known, and each is one command of a shell. What
        the mistake quotes from outside sources is not used.
        """
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
    """Return the simplest check that tells rejected outputs from accepted ones.

    Each candidate is executed on the outputs of the material: it must refuse every
    rejected one, and no accepted or harmless one. Returns None if no candidate does.
    """
    # The simplest construct stands first, and each yields its widest check first.
    constructs = (
        (_call_checks,)
        if material.is_call
        else (_object_checks, _form_checks, _bound_checks, _word_checks)
    )
    for construct in constructs:
        for proposed in construct(material):
            if _separates(proposed, material):
                return proposed
    return None


def _separates(proposed: Proposed, material: Material) -> bool:
    """Return True if a check refuses all rejected outputs, and none of the others."""
    keeps_rule = partial(fits, proposed.kind, proposed.rule)
    harmless = (*material.accepted, *material.harmless)
    return all(map(keeps_rule, harmless)) and not any(
        map(keeps_rule, material.rejected)
    )


def _object_checks(material: Material) -> Iterator[Proposed]:
    """Yield two checks of a JSON object, made from the accepted outputs.

    The first asks for the fields that all of them have, with the types that these had.
    The second also forbids other fields. Yields nothing unless all accepted outputs are
    JSON objects with fields, and the check judges only loops of one memory key: the
    answers of another function may have another form.
    """
    # For each output, the types of its fields by their names.
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
# same word, and the same case of letters.
_NARROWINGS: Sequence[Sequence[str]] = (
    (),
    ("text",),
    ("case",),
    ("text", "case"),
)


def _form_checks(material: Material) -> Iterator[Proposed]:
    """Yield checks of the form of an answer, from the widest form to the narrowest.

    A form says for each piece of the text (a number, a word, a blank, a character) what
    it must be. It is made from the accepted outputs: those with the same kinds of
    pieces in the same order give one form. Yields nothing unless the check judges only
    loops of one memory key: the answers of another function may have another form.
    """
    if not material.keyed:
        return

    # The outputs, each as its pieces, by the kinds of the pieces.
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
        if _is_more_than_chance(forms, material):
            yield Proposed(
                kind="form",
                rule={"forms": forms},
                about=f"the answer has another form than accepted ones, {such_as}",
            )


def _is_more_than_chance(forms: Sequence[Sequence[Rule]], material: Material) -> bool:
    """Return True if the accepted outputs have these forms not just by chance.

    So it is if the outputs are many, or if the words of the lesson name the case of
    letters that a form asks for ("lower"), show an answer of such a form, or name two
    of the accepted outputs. Words that also stand in a rejected output show nothing.
    """
    if len(material.accepted) + len(material.harmless) >= MIN_UNBROKEN_CASES:
        return True

    words = _bare_words(material.text)
    cases = {piece.get("case") for piece in chain.from_iterable(forms)}
    if not cases.isdisjoint(words):
        return True

    # Blanks at both ends, so that only whole words of an output are found in it.
    rejected = [f" {' '.join(_bare_words(text))} " for text in material.rejected]
    longest = max(len(text.split()) for text in material.accepted)
    lengths = range(1, min(longest, MAX_SHOWN_WORDS) + 1)
    named_words = set()
    for start, length in product(range(len(words)), lengths):
        text = " ".join(words[start : start + length])
        # Words of letters alone fit too many forms to show one.
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
    column: Sequence[TextPiece], narrowings: Sequence[str], lesson_text: str
) -> Rule:
    """Return what a form asks of the piece of a text at one place.

    `column` has the piece at this place of each accepted output; all are of one kind.
    `narrowings` say what besides the kind is asked for: the same "text", or the same
    "case" of letters. A word that all outputs have is always asked for if it also
    stands in `lesson_text`.
    """
    first = column[0]
    rule: dict[str, object] = {"kind": first.kind}
    if first.kind != "a":
        return rule

    rule["joiners"] = sorted({piece.joiner for piece in column} - {""})
    in_lesson = re.search(rf"\b{re.escape(first.text)}\b", lesson_text)
    if len({piece.text for piece in column}) == 1 and (
        "text" in narrowings or in_lesson
    ):
        rule["text"] = first.text
    cases = {letter_case(piece.text) for piece in column}
    if "case" in narrowings and len(cases) == 1:
        rule["case"] = cases.pop()
    return rule


def _bound_checks(material: Material) -> Iterator[Proposed]:
    """Yield checks of the length of an answer, the widest bounds first.

    A bound is at most or at least a number of words, lines or characters. The lesson
    must name the number and the unit. Its words may have more numbers, such as how many
    words are to be cut, so each is tried. Yields nothing unless the check judges only
    loops of one memory key, that is of one function.
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


def _word_checks(material: Material) -> Iterator[Proposed]:
    """Yield a check for each word that the lesson quotes: that answers lack it.

    Then yield for each that answers have it, but only if the check judges only loops of
    one memory key, that is of one function.
    """
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


def _call_checks(material: Material) -> Iterator[Proposed]:
    """Yield a check that forbids the words with which all rejected calls begin.

    It is one check of all these words: fewer would forbid calls that nobody rejected.
    Yields nothing if the calls begin with different words.
    """
    words = []
    # Each column has the words at one place, one of each call.
    for column in zip(*map(call_words, material.rejected), strict=False):
        if len(set(column)) > 1:
            break
        words.append(column[0])

    if words:
        text = " ".join(words)
        yield Proposed(
            kind="call", rule={"words": text}, about=f"this call has {text!r}"
        )
