"""Checks that lessons became, and how they judge a text. Pure.

A check says what the accepted outputs of a lesson have and the rejected ones lack, or
the other way round: a form, the fields of a JSON object, a bound, a word, the words of
a call. It is data, never code: no expression of it is compiled or run, and judging
takes time in proportion to the text. A fixed expression splits the text into pieces,
and the rest compares pieces, so a text of others cannot make it slow.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from heedful.lessons.origin import Origin
from heedful.lessons.scope import State
from heedful.lessons.words import compiled
from heedful.validation import MAX_SHOWN_TEXT_CHARS

Rule = Mapping[str, Any]  # what a check asks for
CheckKind = Literal["object", "form", "bound", "word", "call"]
CheckState = Literal["proposed", "accepted", "rejected", "retired"]
# The check of a finding that a lesson's check made: this word and the lesson's id.
LESSON_CHECK_PREFIX = "lesson "
# A check is retired if it was wrong more often than this, or has found nothing for so
# long.
MAX_FALSE_ALARM_SHARE = 0.2
MAX_QUIET_SECONDS = 30 * 86_400.0
# A number with its sign and its fraction, a word (as `w2`), white space, or any other
# character. Splitting takes one pass: no text fits in two ways.
_PIECE_PATTERN = r"(?s)(?:(?<![\w.)\]])[-+])?\d+(?:[.,]\d+)*|[^\W\d_][^\W_]*|\s+|."
# A word of a call: "npm", "--watch", "src/app.py".
_COMMAND_WORD_PATTERN = r"[\w@./=+~-]+"
UNITS: Mapping[str, Callable[[str], int]] = {
    "words": lambda text: len(text.split()),
    "lines": lambda text: len(text.splitlines()),
    "characters": len,
}


class TextPiece(NamedTuple):
    """A piece of a text: a number ("0"), words ("a"), white space (" ") or a character.

    Words that the same character joins are one piece: its `joiner`, such as "_" in
    "cash_withdrawal", and how many `words` it has.
    """

    kind: str
    text: str
    joiner: str = ""
    words: int = 1


def pieces(text: str) -> list[TextPiece]:
    """Return the pieces of a text, without white space at its ends."""
    parts: list[TextPiece] = []
    for piece in compiled(_PIECE_PATTERN).findall(text.strip()):
        if piece[0].isalpha():
            _add_word(parts, piece)
        elif piece[-1].isdigit():
            parts.append(TextPiece("0", piece))
        elif piece.isspace():
            parts.append(TextPiece(" ", " "))
        else:
            parts.append(TextPiece(piece, piece))
    return parts


def _add_word(parts: list[TextPiece], word: str) -> None:
    """Add a word, or join it to the words before it."""
    if len(parts) > 1:
        words, joiner = parts[-2:]
        is_joined = words.joiner in ("", joiner.text) and joiner.kind not in ("0", "a")
        if words.kind == "a" and is_joined:
            text = f"{words.text}{joiner.text}{word}"
            count = words.words + 1
            parts[-2:] = [TextPiece("a", text, joiner=joiner.text, words=count)]
            return
    parts.append(TextPiece("a", word))


def letter_case(text: str) -> str:
    """Return the case of the letters of a text: lower, upper, title or mixed."""
    cases = ("lower", "upper", "title")
    return next((case for case in cases if getattr(text, f"is{case}")()), "mixed")


def _fits_form(rule: Rule, text: str) -> bool:
    """Return True if the text has one of the forms of a rule."""
    if len(text) > MAX_SHOWN_TEXT_CHARS:  # it is prose
        return False
    parts = pieces(text)
    return any(
        len(form) == len(parts) and all(map(_fits_piece, form, parts))
        for form in rule["forms"]
    )


def _fits_piece(rule: Rule, piece: TextPiece) -> bool:
    """Return True if a piece fits its rule; what the rule omits may have any value."""
    size = len(piece.text)
    return (
        rule["kind"] == piece.kind
        and rule.get("text", piece.text) == piece.text
        and size in rule.get("sizes", [size])
        and piece.joiner in ("", *rule.get("joiners", ()))
        and rule.get("case") in (None, letter_case(piece.text))
        and piece.words <= rule.get("most", piece.words)
    )


def json_types(text: str) -> dict[str, str] | None:
    """Return the type of each field; None if the text is not a JSON object."""
    try:
        value = json.loads(text, parse_int=float)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return {name: type(field).__name__ for name, field in value.items()}


def _fits_object(rule: Rule, text: str) -> bool:
    """Return True if the text is a JSON object with the fields of a rule."""
    types = json_types(text)
    if types is None:
        return False
    fields = rule["fields"]
    has_fields = all(types.get(name) in allowed for name, allowed in fields.items())
    has_others = not types.keys() <= fields.keys()
    return has_fields and not (rule["closed"] and has_others)


def call_words(text: str) -> list[str]:
    """Return the words of a command, or of arguments as JSON, without quotes."""
    return compiled(_COMMAND_WORD_PATTERN).findall(text)


def fits(kind: CheckKind, rule: Rule, text: str) -> bool:
    """Return True if a text keeps the rule of a check."""
    match kind:
        case "object":
            return _fits_object(rule, text)
        case "form":
            return _fits_form(rule, text)
        case "bound":
            size = UNITS[rule["unit"]](text)
            return bool(rule.get("least", size) <= size <= rule.get("most", size))
        case "word":
            return (rule["word"].casefold() in text.casefold()) is bool(rule["wanted"])
        case "call":  # it lacks the words that the rule forbids, in their order
            return f" {rule['words']} " not in f" {' '.join(call_words(text))} "


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonCheck:
    """A check that a lesson became.

    `lesson` is the id of the lesson, `text` its words. `error_type` is the check or the
    tool that found its mistake, and `taught_by` are the names of the loop's checks that
    can find it again. `kind` and `rule` say what is checked, and `about` says it in
    words. The check judges loops of its `memory_key`; a "call" judges the calls of an
    agent. It was executed on outputs: `failed` counts the rejected outputs of the
    lesson, `passed` its accepted outputs, and `harmless` the accepted outputs of other
    lessons.

    Only a check in the state "accepted" judges. `by` accepted or rejected it at the
    time `decided`, and said `why`. Since then it has found something `hits` times, last
    at the time `last_hit`; `false_alarms` counts the wrong findings. Times are in
    seconds since 1970. The lesson has the trust `trust` and the state `lesson_state`;
    if it is from outside, `released_by` released it, "" if nobody did.
    """

    lesson: int
    kind: CheckKind
    rule: Rule
    about: str
    memory_key: str = ""
    state: CheckState = "proposed"
    failed: int = 0
    passed: int = 0
    harmless: int = 0
    hits: int = 0
    false_alarms: int = 0
    last_hit: float = 0.0
    decided: float = 0.0
    by: str = ""
    why: str = ""
    text: str = ""
    error_type: str = ""
    taught_by: tuple[str, ...] = ()
    trust: Origin = "local"
    released_by: str = ""
    lesson_state: State = "unverified"

    @property
    def is_unreviewed(self) -> bool:
        """True if the lesson is from outside, and nobody has released it."""
        return self.trust == "outside" and not self.released_by

    @property
    def name(self) -> str:
        """The name under which its findings are reported."""
        return f"{LESSON_CHECK_PREFIX}{self.lesson}"

    def refuses(self, text: str) -> bool:
        """Return True if a text breaks the rule; an empty one does not."""
        return bool(text.strip()) and not fits(self.kind, self.rule, text)

    def refuses_call(self, tool: str, text: str) -> bool:
        """Return True if a call of a tool breaks the rule; "" is the shell.

        A command is judged whatever tool runs it.
        """
        is_judged = not tool or self.error_type.strip().lower() == tool.strip().lower()
        return is_judged and self.refuses(text)

    def retired(self, now: float) -> str:
        """Return why an accepted check no longer judges; "" if it does."""
        if self.false_alarms > MAX_FALSE_ALARM_SHARE * self.hits:
            return f"{self.false_alarms} of {self.hits} findings were false alarms"
        if now - max(self.decided, self.last_hit) > MAX_QUIET_SECONDS:
            return f"no finding in {MAX_QUIET_SECONDS / 86_400:.0f} days"
        return ""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A finding of a lesson's check in one attempt, and whether it was wrong."""

    lesson: int
    is_false: bool = False
