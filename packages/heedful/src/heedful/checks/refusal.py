"""Which exceptions of a user's function refuse an answer, and what they say about it.

ValueError, AssertionError and their subclasses refuse, and so do the errors in
`LIBRARY_READERS` and the classes that a caller names with `refuse`. Errors of heedful
never do. Any other exception is a fault of the function. A refusing exception becomes
findings, one for each problem. If the function made the answer itself, the exception
may also carry the answer.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from heedful.errors import HeedfulError, place_of
from heedful.faults import allowed_form, json_path, path_kind, word_problem
from heedful.loop.finding_key import relative_distance
from heedful.loop.record import ANSWER_CHECK, Finding, Usage
from heedful.models.answers import CALL_KEY, answer_of, unfinished
from heedful.redact import redact, redact_start
from heedful.validation import MAX_SHOWN_ITEMS, MAX_SHOWN_TEXT_CHARS, Fields

# How the names of rules of a JSON Schema end that limit a number or a length.
_SIZE_RULE_ENDINGS = ("imum", "length", "items", "properties")
Refusing = Sequence[type[Exception]]
_log = logging.getLogger("heedful")


class RaisedProblem(NamedTuple):
    """What is wrong and how to fix it; `kind` is the same for the same mistake.

    `rule` says what holds for every answer, if the problem does.
    """

    message: str
    fix: str = ""
    kind: str = ""
    rule: str = ""
    off_by: float | None = None


def _distance(value: Any, limit: Any) -> float | None:
    """Return how far a number, or the length of a value, is from a limit, if it is."""
    size = len(value) if isinstance(value, Sized) else value
    if isinstance(size, int | float) and isinstance(limit, int | float):
        return relative_distance(size, limit)
    return None


def distance_of_problem(problem: Fields) -> float | None:
    """Return how far a value is from the limit that a pydantic type sets for it."""
    context = problem.get("ctx", {})
    value = context.get("actual_length", problem["input"])
    for name, limit in context.items():
        is_length = name.endswith("_length") and name != "actual_length"
        if is_length or name in ("ge", "gt", "le", "lt"):
            return _distance(value, limit)
    return None


def distance_of_rule(error: Any) -> float | None:
    """Return how far a value is from the limit that a JSON Schema sets for it."""
    if str(error.validator).lower().endswith(_SIZE_RULE_ENDINGS):
        return _distance(error.instance, error.validator_value)
    return None


def _read_text(error: BaseException) -> Iterator[RaisedProblem]:
    """Yield the message of an exception, or its type if it has none."""
    message = str(error)
    name = type(error).__name__
    if isinstance(error, KeyError):  # its text is only the key
        message = f"{name}: {message}"
    yield RaisedProblem(message or f"it was refused ({name})")


def _read_json_error(error: Any) -> Iterator[RaisedProblem]:
    """Yield the problem of a text that is no JSON."""
    fix = "answer with the bare, complete JSON only: no ``` fences, no other words"
    yield RaisedProblem(f"not JSON: {error}", fix, "not JSON", rule=fix)


def _read_pydantic_error(error: Any) -> Iterator[RaisedProblem]:
    """Yield each problem of a value that does not fit a pydantic type."""
    for problem in error.errors(include_url=False):
        message, fix = word_problem(problem)
        path = json_path(problem["loc"])
        kind = f"{path_kind(path)} {problem['type']}"
        # A check of the model itself may quote the value.
        rule = f"at {path_kind(path)}: {fix}" if allowed_form(problem) else ""
        yield RaisedProblem(
            f"at {path}: {message}",
            fix,
            kind,
            rule=rule,
            off_by=distance_of_problem(problem),
        )


def _read_schema_error(error: Any) -> Iterator[RaisedProblem]:
    """Yield the problem of a value that breaks a JSON Schema."""
    path = json_path(error.absolute_path)
    kind = f"{path_kind(path)} {error.validator}"
    if error.validator == "required":
        kind += f" {error.message}"
    yield RaisedProblem(
        f"at {path}: {error.message}", kind=kind, off_by=distance_of_rule(error)
    )


def _read_table_errors(errors: Any) -> Iterator[RaisedProblem]:
    """Yield each problem of a data frame that breaks a schema of pandera."""
    for error in errors.schema_errors:
        yield RaisedProblem(str(error))


def _read_cause(error: BaseException) -> Iterator[RaisedProblem]:
    """Yield the problems of the error for which a library has given up retrying."""
    cause = error.__cause__
    while cause is not None:
        read = _reader_of(cause)
        if read is not None:
            yield from read(cause)
            return
        cause = cause.__cause__
    yield RaisedProblem(str(error))


# The errors of libraries that are about an answer, by package and class, so that no
# library is imported and no module of it has to stay where it is; each with what reads
# its problems.
LIBRARY_READERS: Mapping[str, Callable[[Any], Iterator[RaisedProblem]]] = {
    "json.JSONDecodeError": _read_json_error,
    "pydantic_core.ValidationError": _read_pydantic_error,
    "jsonschema.ValidationError": _read_schema_error,
    "pandera.SchemaError": _read_text,
    "pandera.SchemaErrors": _read_table_errors,
    "instructor.InstructorRetryException": _read_cause,
    "instructor.IncompleteOutputException": _read_text,
    "pydantic_ai.ModelRetry": _read_text,
    "pydantic_ai.UnexpectedModelBehavior": _read_cause,
    "openai.LengthFinishReasonError": _read_text,
    "openai.ContentFilterFinishReasonError": _read_text,
    "guardrails.ValidationError": _read_text,
}


def _reader_of(error: object) -> Callable[[Any], Iterator[RaisedProblem]] | None:
    """Return what reads the error of a library; None for any other error."""
    for kind in type(error).__mro__:
        package = kind.__module__.partition(".")[0]
        read = LIBRARY_READERS.get(f"{package}.{kind.__name__}")
        if read is not None:
            return read
    return None


def refuses(error: object, others: Refusing = ()) -> bool:
    """Return True if an exception refuses an answer; `others` are further classes."""
    if isinstance(error, HeedfulError):
        return False
    if isinstance(error, (ValueError, AssertionError, *others)):
        return True
    return _reader_of(error) is not None


def describe_place(error: BaseException) -> str:
    """Return the type of an exception and the line of the user's code that raised."""
    name = type(error).__name__
    place = place_of(error)
    return f"{name} at {place}" if place else name


def findings_of(
    error: BaseException, check: str, message_if_silent: str = ""
) -> list[Finding]:
    """Return the findings of a check that raised a refusing exception.

    At most `MAX_SHOWN_ITEMS` problems have a finding each; a last one counts the rest.
    `message_if_silent` stands for the message of an exception that has none. The log
    gets the place.
    """
    raised = describe_place(error)
    read = _reader_of(error) or _read_text
    problems = list(read(error))
    if message_if_silent and not str(error):
        problems = [RaisedProblem(message_if_silent)]

    findings = []
    for problem in problems[:MAX_SHOWN_ITEMS]:
        message = redact_start(problem.message, MAX_SHOWN_TEXT_CHARS)
        key = f"{check}: {redact(problem.kind)}" if problem.kind else ""
        findings.append(
            Finding(
                check,
                message,
                fix=redact(problem.fix),
                key=key,
                raised=raised,
                rule=problem.rule,
                off_by=problem.off_by,
            )
        )

    more = len(problems) - MAX_SHOWN_ITEMS
    if more > 0:
        findings.append(Finding(check, f"and {more} more problems", raised=raised))
    _log.info("heedful: %s refused an answer: %s", check, raised)
    return findings


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedAnswer:
    """The answer of a function that raised a refusing exception instead of returning.

    `value` is the refused text or data, None if the exception does not carry it.
    """

    value: Any
    findings: tuple[Finding, ...]
    usage: Usage
    model: str


def refused_answer(error: BaseException) -> RefusedAnswer:
    """Return the answer that a refusing exception of its function is about."""
    completion = getattr(error, "last_completion", None)
    if completion is None:
        completion = getattr(error, "completion", None)
    answer = answer_of(completion)

    findings = findings_of(error, ANSWER_CHECK)
    value = _refused_value(error)
    usage = Usage(calls=1)
    model = ""
    if answer is not None:
        value = answer.text
        usage = answer.usage
        model = answer.model
        fault = unfinished(answer)
        # A function that read the arguments of a call had asked for it.
        if fault is not None and fault.key != CALL_KEY:
            findings = [replace(fault, raised=findings[0].raised)]
    return RefusedAnswer(
        value=value,
        findings=tuple(findings),
        usage=usage,
        model=model,
    )


def _refused_value(error: Any) -> Any:
    """Return the whole text or data that a parser refused, None if it is unknown."""
    read = _reader_of(error)
    if read is _read_json_error:
        return error.doc
    if read is not _read_pydantic_error:
        return None
    for problem in error.errors(include_url=False):
        value = problem["input"]
        if not problem["loc"] and isinstance(value, str | dict | list):
            return value
    return None
