"""What a run was expected to come to, and how near it came: its answer and what it did. Pure."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from heedful.errors import InvalidInput
from heedful.loop.record import LARGEST, Finding, check_number
from heedful.memory.course import Course
from heedful.memory.deeds import done
from heedful.memory.episode import Event
from heedful.memory.judgement import MOST_TOLD, Judgement, found, named, quoted

# Numbers this near are one number written in two ways; `tolerance` is beside it.
RELATIVE = 1e-9

_NUMBER = re.compile(
    r"(?<![\w.-])-?+(?>(?:\d{1,3}+(?:,\d{3})+)|\d++)(?>(?:\.\d++)?)(?>(?:[eE][+-]?\d++)?)(?!\w)"
)
_ENDS = " .,;:!?\"'`*_“”‘’"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a run should have come to: its answer, the fields of it, the actions it should do.

    `answer` is a text, a number, or true, false, an object or a list as JSON; None: not known.
    `fields` are names that an answer in JSON must fill; by default those of `answer`. `actions` are
    tool_call events: tool and arguments count, without arguments any will do; () expects that
    nothing is done, None nothing in particular. Where `ordered`, their order counts. `reads` names
    the tools that change nothing: whether they are called is no matter of being correct. Numbers of
    an answer may differ by `tolerance`. Raises InvalidInput.
    """

    answer: Any = None
    fields: tuple[str, ...] = ()
    actions: tuple[Event, ...] | None = None
    ordered: bool = False
    reads: Collection[str] = ()
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        check_number("tolerance", self.tolerance, 0, LARGEST)
        answer = self.answer
        if isinstance(answer, float) and not math.isfinite(answer):
            raise InvalidInput("answer", answer, "a finite number")
        if isinstance(answer, str) and not answer.strip():
            raise InvalidInput("answer", answer, "text that is not empty")
        if not isinstance(answer, str | int | float | Mapping | list | tuple | None):
            raise InvalidInput("answer", answer, "text, a number or JSON data")
        for field, given in (("fields", self.fields), ("reads", self.reads)):
            if isinstance(given, str) or not all(isinstance(one, str) for one in given):
                raise InvalidInput(field, given, "a collection of names, such as a list")
        for one in self.actions or ():
            if not isinstance(one, Event) or one.type != "tool_call" or not one.tool:
                raise InvalidInput("actions", one, "made of Event('tool_call', tool=…)")


def reached(seen: Course, expected: Expected, omitted: int = 0) -> Iterator[Judgement]:
    """How correct and how complete a run is, held against what was expected of it."""
    at = answer_at(seen)
    text = "" if at is None else seen.events[at].content
    if expected.answer is not None:
        yield _correct(seen, at, text, expected)
    fields = expected.fields
    if not fields and isinstance(expected.answer, Mapping):
        fields = tuple(map(str, expected.answer))
    if fields:
        yield _complete(seen, at, text, fields)
    if expected.actions is not None:
        yield from done(seen, expected.actions, expected.ordered, expected.reads, omitted)


def answer_at(seen: Course) -> int | None:
    """Where the last words of an agent are, thoughts and calls of tools apart."""
    for at in reversed(range(len(seen.events))):
        event = seen.events[at]
        said = seen.roles[at] in ("said", "act") and event.type != "tool_call"
        if said and event.content.strip() and "part" not in event.meta:
            return at
    return None


def _correct(seen: Course, at: int | None, text: str, expected: Expected) -> Judgement:
    if at is None:
        what = "there is no answer"
        return Judgement("correctness", 0.0, what, (found(seen, "correctness", what, (), "error"),))
    wanted = expected.answer
    if isinstance(wanted, str):
        value, why = _same_text(text, wanted)
    elif isinstance(wanted, int | float) and not isinstance(wanted, bool):
        value, why = _same_number(text, wanted, expected.tolerance)
    else:
        value, why = _same_data(text, wanted, expected.tolerance)
    findings: tuple[Finding, ...] = ()
    if value == 0:
        # The expected answer is not told: a model is to work it out, not to copy it.
        what = f"{quoted(text)!r} is not the expected answer: {why}"
        findings = (found(seen, "correctness", what, (at,), "error"),)
    return Judgement("correctness", value, why, findings, named(seen, (at,)))


def _same_text(text: str, wanted: str) -> tuple[float | None, str]:
    given, asked = normal(text), normal(wanted)
    if given == asked:
        return 1.0, "the answer is the text that was expected"
    if re.search(rf"(?<!\w){re.escape(asked)}(?!\w)", given):
        return None, "the answer holds the text that was expected, and says more"
    return 0.0, "the answer does not hold the text that was expected"


def normal(text: str) -> str:
    """A text without case, compatibility forms, runs of spaces, and marks at its ends.

    >>> normal("**The  Hague.**"), normal("?")
    ('the hague', '?')
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    plain = " ".join(folded.split())
    return plain.strip(_ENDS) or plain


def _same_number(text: str, wanted: float, tolerance: float) -> tuple[float | None, str]:
    numbers = {float(one[0].replace(",", "")) for one in _NUMBER.finditer(text)}
    if not any(_near(one, wanted, tolerance) for one in numbers):
        return 0.0, "the answer does not hold the number that was expected"
    if len(numbers) > 1:
        return None, f"the answer holds {len(numbers)} numbers, the one expected among them"
    return 1.0, "the answer holds the number that was expected and no other"


def _near(one: float, wanted: float, tolerance: float) -> bool:
    try:
        return math.isclose(one, wanted, abs_tol=tolerance + RELATIVE * abs(wanted))
    except OverflowError:  # integers that no float holds
        return one == wanted


def _same_data(text: str, wanted: Any, tolerance: float) -> tuple[float | None, str]:
    data = _data(text.casefold() if isinstance(wanted, bool) else text)
    if data is _NONE:
        return 0.0, "the answer is not JSON"
    differing = list(_differing(data, wanted, tolerance, "the answer"))[:MOST_TOLD]
    if differing:
        return 0.0, f"not as expected: {', '.join(differing)}"
    return 1.0, "the answer is the data that was expected"


_NONE = object()


def _data(text: str) -> Any:
    """The JSON that a text is, or that its last code block holds; `_NONE` where there is none."""
    for part in (text, *text.split("```")[1::2][-1:]):
        try:
            return json.loads(part.removeprefix("json"))
        except (ValueError, RecursionError):
            continue
    return _NONE


def _differing(given: Any, wanted: Any, tolerance: float, path: str) -> Iterator[str]:
    """The paths at which two values of JSON differ."""
    if isinstance(wanted, Mapping) and isinstance(given, dict):
        for key in {**wanted, **given}:
            at = f"{path}.{quoted(str(key))}"
            if key in wanted and key in given:
                yield from _differing(given[key], wanted[key], tolerance, at)
            else:
                yield f"{at} ({'missing' if key in wanted else 'not expected'})"
    elif isinstance(wanted, list | tuple) and isinstance(given, list):
        if len(wanted) != len(given):
            yield f"{path} (has {len(given)} entries)"
            return
        for n, pair in enumerate(zip(given, wanted, strict=True)):
            yield from _differing(*pair, tolerance, f"{path}[{n}]")
    elif not _equal(given, wanted, tolerance):
        yield path


def _equal(given: Any, wanted: Any, tolerance: float) -> bool:
    """Whether two values are the same; true is no number."""
    if all(isinstance(one, int | float) and not isinstance(one, bool) for one in (given, wanted)):
        return _near(given, wanted, tolerance)
    return type(given) is type(wanted) and bool(given == wanted)


def _complete(seen: Course, at: int | None, text: str, fields: tuple[str, ...]) -> Judgement:
    data = _data(text)
    given = data if isinstance(data, dict) else {}
    lacking = [name for name in dict.fromkeys(fields) if given.get(name) in (None, "", [], {})]
    whole = len(set(fields))
    why = f"{whole - len(lacking)} of {whole} fields of the answer are filled"
    places = () if at is None else (at,)
    what = f"these fields are missing or empty: {quoted(', '.join(lacking))}"
    findings = (found(seen, "completeness", what, places, "error"),) if lacking else ()
    share = 1 - len(lacking) / whole
    return Judgement("completeness", share, why, findings, named(seen, places))
