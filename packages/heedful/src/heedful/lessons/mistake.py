"""Mistakes and their fixes, as records. Pure.

A `Mistake` says which action failed, or which check refused, with which error, and what
put it right. Every part has an origin of its own. The record is what is stored, sent
and exported; `render` turns it into words, and nobody reads those words back.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from itertools import product, starmap
from typing import Any, Literal, TypeVar

from heedful.lessons.origin import Origin, is_below, lowest_origin
from heedful.lessons.words import compiled, count_common
from heedful.validation import Document, Fields, typed_frozen

T = TypeVar("T")
# What put a failed call right: steps before the same call, another command or other
# arguments of the same tool, a path that was found, edits of files, waiting, or a call
# of another tool.
FixKind = Literal["step", "command", "arguments", "path", "edit", "waiting", "tool"]


@typed_frozen(slots=True, kw_only=True)
class Call:
    """A call of an agent: the tool, and its command or its arguments as a text.

    Or the `arguments` that tell it apart, each a name and a value.
    """

    tool: str = ""
    text: str = ""
    arguments: tuple[tuple[str, str], ...] = ()

    @property
    def whole(self) -> str:
        """Its command, or the values of its arguments."""
        return self.text or " ".join(value for _, value in self.arguments)

    @property
    def given(self) -> Mapping[str, str]:
        """Its arguments as a mapping; those of a command are the command."""
        return {"command": self.text} if self.text else dict(self.arguments)


@typed_frozen(slots=True, kw_only=True)
class Fix:
    """What put a failed call right.

    `calls` are what to do, in order: the steps before the same call; the call that
    worked in its place, last; or the edits, each with the difference as its text.
    `changes` are in place of that last call the arguments that it has, each a name and
    a value, None for one that it lacks. `words` are those of a person. If the user
    `was_asked` first, a cure was allowed in that run only. A fix `is_proven` if its run
    succeeded. `digest` is that by which the command of the last call is found again, ""
    without one.
    """

    kind: FixKind
    calls: tuple[Call, ...] = ()
    changes: tuple[tuple[str, str | None], ...] = ()
    words: str = ""
    was_asked: bool = False
    is_proven: bool = False
    origin: Origin = "local"
    digest: str = ""

    def has(self, call: Call) -> bool:
        """Return True if a call is one of the fix, or has all its changes."""
        changes = set(self.changes)
        return call in self.calls or (changes != set() and changes <= {*call.arguments})

    @property
    def only_waits(self) -> bool:
        """True if there is nothing to call: the failure passed by itself."""
        return self.kind == "waiting" and not self.calls

    @property
    def may_be_told(self) -> bool:
        """True unless it is from outside; to wait is always told, as nobody's words."""
        return self.origin != "outside" or self.only_waits


@typed_frozen(slots=True, kw_only=True)
class Mistake:
    """What went wrong, as a record: an action or a check, the error, and the fix.

    `signature` is the digest of the error's signature, and `error` the line that names
    it. Of the calls in `maybe` it is not known which put it right, until a second run
    has one of them, too: as a fix of the `maybe_kind`. `vain` are the calls that were
    tried without effect. `evidence` are the ids of the events that show it, and `files`
    the digests of the files that it is about, by their paths. So many `times` the run
    had this failure; until it was put right, `tries` calls failed in `steps` steps.
    `words` are a person's own, or a model's: they are shown in place of the rendered
    ones, beside the fix.
    """

    action: Call | None = None
    check: str = ""
    signature: str = ""
    error: str = ""
    fix: Fix | None = None
    maybe: tuple[Call, ...] = ()
    maybe_kind: FixKind = "step"
    vain: tuple[Call, ...] = ()
    evidence: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    words: str = ""
    action_origin: Origin = "local"
    maybe_origin: Origin = "local"
    error_origin: Origin = "local"
    words_origin: Origin = "user"
    times: int = 1
    tries: int = 1
    steps: int = 0

    def __post_init__(self) -> None:
        # Without their particulars, a call that failed may look like the one that
        # worked: then it was not vain.
        if self.fix is not None and self.vain:
            vain = tuple(call for call in self.vain if not self.fix.has(call))
            object.__setattr__(self, "vain", vain)

    @property
    def calls_lost(self) -> int:
        """How many calls it cost: those that failed, and the others until the fix."""
        return max(self.times, self.tries, self.steps)

    @property
    def origin(self) -> Origin:
        """The lowest origin of its parts: it is trusted as little as the least of them.

        A part that is missing counts as the user's.
        """
        words_origin = self.words_origin if self.words else "user"
        fix_origin = self.fix.origin if self.fix else "user"
        return lowest_origin(
            (self.action_origin, self.error_origin, words_origin, fix_origin)
        )

    @property
    def calls(self) -> tuple[Call, ...]:
        """The call that failed, those tried in vain, and those of the fix."""
        action = (self.action,) if self.action is not None else ()
        return (*action, *self.vain, *(self.fix.calls if self.fix else ()))


def with_origin(mistake: Mistake, origin: Origin) -> Mistake:
    """Return a mistake all of whose parts have this origin."""
    return replace(
        mistake,
        action_origin=origin,
        maybe_origin=origin,
        error_origin=origin,
        words_origin=origin,
        fix=mistake.fix and replace(mistake.fix, origin=origin),
    )


def without_outside(mistake: Mistake) -> Mistake:
    """Return a mistake without its parts from outside, which nobody has reviewed.

    The calls tried in vain go with the action. The origins of the parts stay.
    """
    hides_action = mistake.action_origin == "outside"
    may_tell_fix = mistake.fix is not None and mistake.fix.may_be_told
    return replace(
        mistake,
        action=None if hides_action else mistake.action,
        vain=() if hides_action else mistake.vain,
        error="" if mistake.error_origin == "outside" else mistake.error,
        words="" if mistake.words_origin == "outside" else mistake.words,
        maybe=() if mistake.maybe_origin == "outside" else mistake.maybe,
        fix=mistake.fix if may_tell_fix else None,
    )


# Figures and ids, but not the words that they are joined to by a hyphen.
_VARYING_PATTERN = r"\w*\d\w*|…"


def merged(mistake: Mistake, stored: Mistake) -> Mistake:
    """Return one mistake of a new and a stored record of it, part by part.

    Of error, fix and words, the part that is believed more stays; of equals, the new
    one. But a fix of a run that failed does not replace that of a run that succeeded.
    A fix comes with the call and the error of its own run. Figures and ids that differ
    between the two become "…".
    """
    main = mistake  # its action, error and fix are taken
    other = stored
    if stored.fix and (mistake.fix is None or _is_better(stored.fix, mistake.fix)):
        main = replace(stored, files=mistake.files)
        other = mistake
    # Both fixes are believed alike: the new one without what varies.
    elif stored.fix and mistake.fix and stored.fix.is_proven == mistake.fix.is_proven:
        changes = _mask_varying_values(mistake.fix.changes, stored.fix.changes)
        main = replace(mistake, fix=replace(mistake.fix, changes=changes))

    parts: Document = {}
    if is_below(main.error_origin, other.error_origin):
        parts |= {"error": other.error, "error_origin": other.error_origin}
    elif main.error_origin == other.error_origin:
        parts["error"] = _mask_varying(main.error, other.error)
    if main.action and other.action and main.action_origin != "outside":
        arguments = _mask_varying_values(main.action.arguments, other.action.arguments)
        parts["action"] = replace(main.action, arguments=arguments)
    keeps_words = stored.words and (
        not mistake.words or is_below(mistake.words_origin, stored.words_origin)
    )
    author = stored if keeps_words else mistake
    return replace(main, words=author.words, words_origin=author.words_origin, **parts)


def _is_better(stored_fix: Fix, fix: Fix) -> bool:
    """Return True if a stored fix is believed more than another one.

    Of two with one origin, that is the one with something to call, or the one whose run
    succeeded.
    """
    if stored_fix.origin != fix.origin:
        return is_below(fix.origin, stored_fix.origin)
    if stored_fix.only_waits != fix.only_waits:
        return fix.only_waits
    return stored_fix.is_proven and not fix.is_proven


def _mask_varying(text: str, other: str) -> str:
    """Return a text with "…" in place of the figures and ids that another one lacks.

    Texts with different numbers of words are not compared.

    >>> _mask_varying("no order ORD-4711, 2 tries", "no order ORD-4712, 2 tries")
    'no order ORD-…, 2 tries'
    """
    parts = text.split(" ")
    others = other.split(" ")
    if len(parts) != len(others):
        return text
    return " ".join(map(_mask_varying_word, parts, others))


def _mask_varying_word(word: str, other: str) -> str:
    """Return a word, with "…" in place of figures or ids if another word varies."""
    if word == other or not compiled(_VARYING_PATTERN).search(word + other):
        return word
    frame = compiled(_VARYING_PATTERN).sub("…", word)
    # If the words differ in more than figures, nothing of the word stays.
    return frame if frame == compiled(_VARYING_PATTERN).sub("…", other) else "…"


def _mask_varying_values(
    values: Sequence[Any], others: Sequence[Any]
) -> tuple[Any, ...]:
    """Return pairs of a name and a value, with "…" for what varies between two runs.

    `others` are the pairs of the other run. A value that it lacks stays, and so does
    None.
    """
    by_name = dict(others)
    return tuple(
        (name, value and _mask_varying(value, by_name.get(name) or value))
        for name, value in values
    )


def confirmed(mistake: Mistake, earlier: Mistake) -> Mistake:
    """Return a mistake whose fix is what may have been its fix in two runs.

    In neither run it was known what put it right: one of several steps, or another
    program. What both runs have becomes the fix. A mistake that has a fix, or no such
    call, is returned as it is.
    """
    if mistake.fix is not None or mistake.maybe_kind != earlier.maybe_kind:
        return mistake
    common = tuple(call for call in mistake.maybe if call in earlier.maybe)
    if mistake.maybe_kind not in ("step", "edit"):
        calls = product(mistake.maybe, earlier.maybe)
        common = tuple(filter(None, starmap(_same_program, calls)))[:1]
    if not common:
        return mistake
    origin = lowest_origin((mistake.maybe_origin, earlier.maybe_origin))
    fix = Fix(kind=mistake.maybe_kind, calls=common, origin=origin)
    return replace(mistake, fix=fix, maybe=())


def _same_program(call: Call, other: Call) -> Call | None:
    """Return a call of the program that two calls have in common, None without one.

    Of two commands it has the words with which both begin: "uv add …".

    >>> _same_program(Call(text="uv add a"), Call(text="uv add b c")).text
    'uv add …'
    """
    if call == other or (call.tool != other.tool and not call.text):
        return call if call == other else None
    words = call.text.split()
    number = count_common(words, other.text.split())
    if not number:
        return None if call.text else replace(call, arguments=())
    return replace(call, text=" ".join([*words[:number], "…"]))


def adds_fix(mistake: Mistake | None, stored: Mistake | None) -> bool:
    """Return True if a mistake has a fix, and the stored one has none, or waits."""
    if mistake is None or mistake.fix is None or stored is None:
        return False
    return stored.fix is None or (stored.fix.only_waits and not mistake.fix.only_waits)


def with_words(mistake: Mistake | None, words: str, origin: Origin) -> Mistake:
    """Return a mistake with a person's own words; its fix stays."""
    return replace(mistake or Mistake(), words=words, words_origin=origin)


def to_data(record: Mistake | Fix | Call) -> Document:
    """Return a mistake, or a part of one, as data for JSON.

    Fields that are empty or have their default value are left out.
    """
    data: Document = {}
    for item in fields(record):
        value = getattr(record, item.name)
        if value == item.default or value in ("", (), {}):
            continue
        if isinstance(value, Call | Fix):
            value = to_data(value)
        elif item.name in _CALL_LISTS:
            value = [to_data(call) for call in value]
        data[item.name] = value
    return data


def from_data(data: Fields) -> Mistake:
    """Return the mistake that `to_data` wrote. Raises TypeError for another field."""
    return _from_data(Mistake, data)


def _from_data(kind: type[T], data: Fields) -> T:
    """Return the record of a class `kind` that `to_data` wrote, with its parts.

    Raises TypeError for a field that the class lacks.
    """
    values: Document = {}
    for name, value in data.items():
        if name in _PARTS and value is not None:
            value = _from_data(_PARTS[name], value)
        elif name in _CALL_LISTS:
            value = tuple(_from_data(Call, call) for call in value)
        # JSON has lists in place of tuples, also of pairs.
        elif isinstance(value, list | tuple):
            value = tuple(tuple(v) if isinstance(v, list) else v for v in value)
        values[name] = value
    return kind(**values)


# The fields that hold a record, and those that hold several calls.
_PARTS: Mapping[str, type] = {"action": Call, "fix": Fix}
_CALL_LISTS = frozenset({"calls", "maybe", "vain"})


def from_json(text: str) -> Mistake | None:
    """Return the mistake in the JSON of a store; None for ""."""
    return from_data(json.loads(text)) if text else None
