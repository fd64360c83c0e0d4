"""The rules in what a user says, in his own words. Pure.

A sentence that begins with a plain marker is a rule: "never …", "use … not …". The
table `user_rules.toml` has the markers, in English.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from heedful.lessons.rule_parts import RULE_TABLE, parts_of
from heedful.lessons.user_rules import RulePart, RuleParts, StatedRule
from heedful.lessons.words import compiled
from heedful.sanitize import sanitize
from heedful.validation import MAX_SHOWN_LINE_CHARS

# A message with more sentences that may be rules is a document.
MAX_MESSAGE_RULES = 5
_CODE_BLOCK_PATTERN = r"(?s)```.*?(?:```|\Z)"
# A dot in a path or a number ends no sentence.
_RULE_END_PATTERN = r"(?<=[.!?;])\s+|\n+"
# The groups of the table with how a rule begins; the first one that matches counts.
_START_KINDS = ("choice", "rule", "banned", "order")
# Between what may stand before a rule and the rule.
_GAP_PATTERN = r"\b[\s,:!—–-]*"


def when_told(rule: str) -> str:
    """Return when agents are told a rule, in words."""
    parts = parts_of(rule)
    forbidden = " or ".join(map(str, parts.forbidden))
    wanted = " or ".join(map(str, parts.wanted))
    if forbidden:
        return f"told at the start, and before each call with {forbidden}"
    if wanted:
        return f"told at the start only; a call with {wanted} keeps it"
    return "told at the start only: no call shows whether it is kept"


def supersedes(rule: str, older_rule: str) -> bool:
    """Return True if a rule ends an older one, because both are about one thing.

    They are if one names all that the other names, in any direction.
    """
    names = _subjects(parts_of(rule))
    older_names = _subjects(parts_of(older_rule))
    if not (names and older_names):
        return False
    return names <= older_names or older_names <= names


def _subjects(parts: RuleParts) -> set[RulePart]:
    """Return what a rule is about, in lower case."""
    every_part = (*parts.forbidden, *parts.wanted)
    return {
        replace(part, words=tuple(map(str.lower, part.words))) for part in every_part
    }


def read_rules(message: str) -> tuple[str, ...]:
    """Return the sentences of a user's message that are rules, in their order.

    A correction, a sentence that refuses an answer, comes first. Code between fences is
    skipped. A message with more than `MAX_MESSAGE_RULES` is a document, and has none.

    >>> read_rules("No, we use pnpm, never npm. Thanks!")
    ('No, we use pnpm, never npm.',)
    >>> read_rules("Don't worry.")
    ()
    """
    # The notices of an agent begin with a tag.
    if message.lstrip().startswith("<"):
        return ()
    text = compiled(_CODE_BLOCK_PATTERN).sub("\n", message)
    correction = read_correction(text)
    rules = dict.fromkeys(filter(None, [correction]))
    for sentence in compiled(_RULE_END_PATTERN).split(text):
        rule = sentence.strip().removeprefix("- ")
        # The correction is in the list already.
        if rule not in correction and _is_rule(rule):
            rules[rule] = None
    return tuple(rules) if len(rules) <= MAX_MESSAGE_RULES else ()


def _is_rule(sentence: str) -> bool:
    """Return True if a sentence is short and begins as a rule, such as "never" does.

    Questions and quotations are no rules. Nor is what is said for the moment, such as
    "don't do that", unless the sentence forbids a program, a path or the like.
    """
    is_asked_or_quoted = compiled(r"(?s)>|.*\w\?\Z").match(sentence)
    if is_asked_or_quoted or len(sentence) > MAX_SHOWN_LINE_CHARS:
        return False
    if RULE_TABLE.pattern("passing", r"(?i)\b", r"\b").search(sentence):
        return False
    start = _start_pattern().match(sentence)
    if start is None:
        return False
    if start["choice"]:
        return True
    if start["rule"]:
        return not start["momentary"] or _forbids(sentence)
    if start["banned"]:
        return _forbids(sentence)
    # "don't refund him" names nothing that a call shows.
    forbidden = parts_of(sentence).forbidden
    is_about_code = "`" in sentence or any(part.is_code for part in forbidden)
    is_about_use = RULE_TABLE.pattern("want", r"(?i)\b", r"\b").search(sentence)
    return bool(forbidden and (is_about_code or is_about_use))


def _forbids(sentence: str) -> bool:
    """Return True if a sentence forbids what a call shows."""
    return bool(parts_of(sentence).forbidden)


@cache
def _start_pattern() -> re.Pattern[str]:
    """Return a pattern for how a rule begins, after what may stand before it.

    The group that matches says which kind of start it is.
    """
    before = "|".join(RULE_TABLE.pattern(name).pattern for name in ("refusal", "lead"))
    starts = "|".join(
        f"(?P<{kind}>{RULE_TABLE.pattern(kind).pattern})" for kind in _START_KINDS
    )
    pronoun = RULE_TABLE.pattern("momentary").pattern
    return re.compile(
        rf"(?i)(?:(?:{before}){_GAP_PATTERN})*(?:{starts})(?!\w)"
        rf"(?P<momentary> {pronoun}\b)?"
    )


def read_correction(message: str) -> str:
    """Return the rule with which a user's message refuses an answer; "" without one.

    The message begins with a refusal, such as "No", and then says what holds always.
    A sentence about the user himself, or about this answer only, is no rule.

    >>> read_correction("That's wrong: ACME is billed in euros. Do it again.")
    "That's wrong: ACME is billed in euros."
    >>> read_correction("No, my address is Elm Street.")
    ''
    """
    refusal = _refusal_pattern().match(message)
    if refusal is None:
        return ""
    statement, *_ = compiled(_RULE_END_PATTERN).split(message[refusal.end() :])
    # A verb such as "must" or "is" says what holds in general; a word such as "my" or
    # "now" is about the speaker or the moment, and so is a figure.
    start = _start_pattern().match(statement)
    begins_as_rule = start is not None and (start["rule"] or start["choice"])
    general = RULE_TABLE.pattern("general", r"(?i)\b", r"\b")
    is_general = begins_as_rule or general.search(statement)
    moment = RULE_TABLE.pattern("moment", r"(?i)[\d?]|^the(?:re)?\b|\b", r"\b")
    if not is_general or moment.search(statement):
        return ""
    correction = f"{refusal[0]}{statement}".strip()
    return correction if len(correction) <= MAX_SHOWN_LINE_CHARS else ""


@cache
def _refusal_pattern() -> re.Pattern[str]:
    """Return a pattern for how a correction begins.

    "No, you must never …" is about the agent, but not about the moment.
    """
    refusal = RULE_TABLE.pattern("refusal").pattern
    return re.compile(
        rf"(?i)\s*(?:{refusal}\s*[,.:!—–-]\s*)+"
        r"(?:you (?:\w+ ){0,2}(?=(?:always|never)\b))?"
    )


def stored_lines(rules: Sequence[StatedRule]) -> list[str]:
    """Return the lines that tell a person which of his rules were stored.

    Each says when agents are told the rule, and by which command it is removed; further
    lines name the older rules that it ends.
    """
    lines = []
    for stated in rules:
        when = when_told(stated.text)
        lines.append(
            f"heedful keeps your rule “{sanitize(stated.text)}” ({when}); remove it: "
            f"heedful rules retire {stated.id} --by NAME"
        )
        lines += [f"It ends your rule “{sanitize(text)}”." for text in stated.ended]
    return lines
