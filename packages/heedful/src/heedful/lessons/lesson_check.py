"""Checks that lessons became, and how they judge a text. Pure.

A check says what the accepted outputs of a lesson have and the rejected ones lack, or
the other way round: a form, the fields of a JSON object, a bound, a word, the words of
a call. It is data, never code: no expression of it is compiled or run, and judging
takes time in proportion to the text. A fixed expression splits the text into pieces,
and the rest compares pieces, so a text of others cannot make it slow.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from heedful.lessons.origin import Origin
from heedful.lessons.scope import State
from heedful.lessons.words import compiled
from heedful.validation import MAX_SHOWN_TEXT_CHARS, typed_frozen

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
    "cash_withdrawal".
    """

    kind: str
    text: str
    joiner: str = ""


def pieces(text: str) -> list[TextPiece]:
    """Split a text into numbers, words, white space and single other characters.

    The kinds of these pieces are "0", "a", " " and the character itself. White space at
    the ends of the text is left out. Words that the same character joins, such as "_",
    are one piece.
    """
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
    """Add a word at the end of the pieces of a text, or join it to words before it.

    It is joined if one character stands between them, the same as between the words
    that are joined already: after "cash_withdrawal" and "_", "fee" joins them.
    """
    if len(parts) > 1:
        words, joiner = parts[-2:]
        # `joiner` must be one character, and no number ("0") and no word ("a").
        is_joined = words.joiner in ("", joiner.text) and joiner.kind not in ("0", "a")
        if words.kind == "a" and is_joined:
            text = f"{words.text}{joiner.text}{word}"
            parts[-2:] = [TextPiece("a", text, joiner=joiner.text)]
            return
    parts.append(TextPiece("a", word))


def letter_case(text: str) -> str:
    """Return the case of the letters of a text: lower, upper, title or mixed."""
    cases = ("lower", "upper", "title")
    return next((case for case in cases if getattr(text, f"is{case}")()), "mixed")


def _fits_form(rule: Rule, text: str) -> bool:
    """Return True if the text has one of the forms of a rule.

    A form is a list of rules, one for each piece (number, word, character) of the text.
    """
    if len(text) > MAX_SHOWN_TEXT_CHARS:  # it is prose
        return False
    parts = pieces(text)
    return any(
        len(form) == len(parts) and all(map(_fits_piece, form, parts))
        for form in rule["forms"]
    )


def _fits_piece(rule: Rule, piece: TextPiece) -> bool:
    """Return True if a piece, such as a number or a word, fits the rule for its place.

    The rule may fix the kind of the piece, its text, its `joiners` between words, and
    the case of its letters. What the rule omits may have any value, but words are
    joined only by those characters that the rule has.
    """
    return (
        rule["kind"] == piece.kind
        and rule.get("text", piece.text) == piece.text
        and piece.joiner in ("", *rule.get("joiners", ()))
        and rule.get("case") in (None, letter_case(piece.text))
    )


def json_types(text: str) -> dict[str, str] | None:
    """Return the name of the Python type of each field of a JSON object, by its name.

    Return None if the text is not a JSON object.
    """
    try:
        # All numbers are of one type: 3 stands for 3.0 in JSON.
        value = json.loads(text, parse_int=float)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return {name: type(field).__name__ for name, field in value.items()}


def _fits_object(rule: Rule, text: str) -> bool:
    """Return True if the text is a JSON object with the fields of a rule.

    `fields` of the rule has the allowed types of each field. If it is `closed`, the
    object may have no other field.
    """
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
    """Return True if a text keeps the rule of a check.

    The kind says what the rule is about: the fields of a JSON "object", the "form" of
    the text (its numbers, words and characters), a "bound" of its length in some unit,
    a "word" that it has or lacks, or words that a "call" must not have.
    """
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
        case "call":
            # It lacks the words that the rule forbids, one behind the other. Blanks at
            # the ends let them match whole words only.
            return f" {rule['words']} " not in f" {' '.join(call_words(text))} "


@typed_frozen(slots=True, kw_only=True)
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
        """Return True if a call of a tool breaks the rule.

        `text` is the command or the arguments. Only calls of the tool whose error
        taught the check are judged, and commands of the shell, for which `tool` is "",
        always.
        """
        is_judged = not tool or self.error_type.strip().lower() == tool.strip().lower()
        return is_judged and self.refuses(text)

    def retired(self, now: float) -> str:
        """Return why an accepted check no longer judges; "" if it still does.

        It no longer judges if too many of its findings were wrong, or if it has found
        nothing for long. `now` is the time in seconds since 1970.
        """
        if self.false_alarms > MAX_FALSE_ALARM_SHARE * self.hits:
            return f"{self.false_alarms} of {self.hits} findings were false alarms"
        if now - max(self.decided, self.last_hit) > MAX_QUIET_SECONDS:
            return f"no finding in {MAX_QUIET_SECONDS / 86_400:.0f} days"
        return ""


class Alarm(NamedTuple):
    """A finding of a lesson's check in one attempt, and whether it was wrong."""

    lesson: int
    is_false: bool = False
