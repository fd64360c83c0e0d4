"""A check that an answer is JSON that fits a JSON Schema or a pydantic model.

A text is parsed first; words around the JSON are a finding, and the JSON is still
checked. A judge of the schema (`_make_schema_judge`) or the model (`_make_model_judge`)
then yields the problems of the value, each with a JSON path and a fix.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from heedful.checks.evaluate import Context, RemadeCheck, remade
from heedful.checks.text import read, shorten
from heedful.errors import InvalidInput
from heedful.faults import allowed_form
from heedful.loop.record import Finding, as_data
from heedful.redact import CUT_MARGIN_CHARS, MARK_START, redact, redact_start

if TYPE_CHECKING:
    from pydantic import BaseModel

# What to do about a value that a rule of a JSON Schema refuses, by the rule.
_SCHEMA_FIXES: Mapping[str, str] = {
    "additionalProperties": "leave out what the schema does not name",
    "const": "write {}",
    "enum": "write one of {}",
    "format": "write it in the format {}",
    "maxItems": "give at most {} items",
    "maxLength": "write at most {} characters",
    "maximum": "make it at most {}",
    "minItems": "give at least {} items",
    "minLength": "write at least {} characters",
    "minimum": "make it at least {}",
    "pattern": "make it match {}",
    "type": "make it of type {}",
}
MAX_SCHEMA_PROBLEMS = 10  # the most problems of a candidate that are listed
_JSON_SCHEMA_CHECK = "json_schema"
_BARE_JSON_FIX = (
    "answer with the bare JSON only: no ``` fences, no words before or after it"
)
# Yields the problems of a JSON value; called with the value and its JSON text.
Problems = Callable[[Any, str], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class JsonSchema(RemadeCheck):
    """A check that an answer is JSON, and that `problems(value, text)` yields none."""

    schema: "Mapping[str, Any] | type[BaseModel]"
    problems: Problems = field(repr=False, compare=False)
    name: ClassVar[str] = _JSON_SCHEMA_CHECK
    pure: ClassVar[bool] = True

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        """Return the findings about a text, or about data that can be JSON."""
        if isinstance(self.schema, type) and isinstance(candidate, self.schema):
            return []
        try:
            return self._judge(as_data(candidate))
        except RecursionError:
            return [
                _make_finding("the JSON is nested too deep", "nest it less", "depth")
            ]

    def _judge(self, candidate: Any) -> list[Finding]:
        """Return the findings about a candidate that is not nested too deep."""
        if isinstance(candidate, dict | list):
            try:
                candidate = json.dumps(candidate)
            except (TypeError, ValueError) as error:
                return [_not_data_finding(error)]

        text = read(_JSON_SCHEMA_CHECK, candidate)
        if isinstance(text, Finding):
            return [text]

        parsed = _parse_json(text)
        if isinstance(parsed, Finding):
            return [parsed]

        findings = parsed.findings
        try:
            json.dumps(parsed.value, allow_nan=False)
        except ValueError as error:
            findings.append(_not_data_finding(error))

        problems = self.problems(parsed.value, parsed.text)
        return [*findings, *islice(problems, MAX_SCHEMA_PROBLEMS)]


@remade
def json_schema(schema: "Mapping[str, Any] | type[BaseModel]") -> JsonSchema:
    """Check that the answer is JSON that fits a JSON Schema or a pydantic v2 model.

    A JSON Schema is given as a mapping. Text around the JSON, NaN and infinite numbers
    are findings; the JSON is still checked. A candidate that is a dict or list is
    checked as JSON; an instance of the pydantic model passes. Each problem is a finding
    with a JSON path; at most `MAX_SCHEMA_PROBLEMS` problems are listed. `format` is
    checked if the jsonschema library knows the format, `pattern` without a time limit.
    Raises InvalidInput for an invalid schema. The check raises InvalidInput for a
    `$ref` outside of it.
    """
    if isinstance(schema, Mapping):
        return JsonSchema(schema, _make_schema_judge(schema))
    if hasattr(schema, "model_validate_json"):
        return JsonSchema(schema, _make_model_judge(schema))
    raise InvalidInput(
        "schema", schema, "a JSON Schema as a mapping or a pydantic model class"
    )


def _make_finding(message: str, fix: str, key: str, severity: float = 0.8) -> Finding:
    """Return a finding of this check."""
    return Finding(
        _JSON_SCHEMA_CHECK,
        message,
        fix=fix,
        severity=severity,
        key=f"{_JSON_SCHEMA_CHECK}: {key}",
    )


class ParsedJson(NamedTuple):
    """The JSON value in a text, its own text, and what is wrong around it."""

    value: Any
    text: str
    findings: list[Finding]


def _parse_json(text: str) -> ParsedJson | Finding:
    """Return the JSON in a text, or the finding that there is none.

    Words before and after the JSON are another finding.
    """
    try:
        return ParsedJson(json.loads(text), text, [])
    except ValueError as error:
        refusal = error

    # From the first opening bracket to the last closing one there may be JSON.
    bracket = re.search(r"[{\[]", text)
    start = bracket.start() if bracket else 0
    end = max(text.rfind("}"), text.rfind("]")) + 1
    with suppress(ValueError):
        value = json.loads(text[start:end])

        outside = f"{text[:start].strip()} … {text[end:].strip()}".strip()
        message = f"there is text around the JSON: {shorten(outside, 60)}"
        finding = _make_finding(message, _BARE_JSON_FIX, "text around")
        return ParsedJson(value, text[start:end], [finding])

    position = getattr(refusal, "pos", 0)
    if position >= len(text.rstrip()) or "Unterminated string" in str(refusal):
        return _make_finding(
            f"the JSON breaks off after {len(text)} characters",
            "answer with complete JSON; make it shorter",
            "breaks off",
        )

    near = text[max(0, position - 10) : position + 20]
    # So few characters of a secret are not recognised.
    margin = CUT_MARGIN_CHARS
    if near not in redact(text[max(0, position - margin) : position + margin]):
        near = f"{MARK_START}text]"
    message = f"not JSON: {str(refusal)[:120]}, near {shorten(near, 40)}"
    return _make_finding(message, _BARE_JSON_FIX, "not JSON")


def _not_data_finding(error: Exception) -> Finding:
    """Return the finding that a value cannot be written as JSON."""
    fix = "use only finite numbers (no NaN), text, true, false, null, lists and objects"
    return _make_finding(
        f"not JSON data: {shorten(str(error), 120)}", fix, "not a number"
    )


def _problem_finding(
    parts: Iterable[str | int], message: str, kind: str, fix: str
) -> Finding:
    """Return the finding about the value at a path; `parts` are the keys of the path.

    `kind` is the rule that the value breaks.
    """
    path = "$"
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier():
            path += f".{part}"
        else:
            path += f"[{shorten(part, 60)}]"

    # The same mistake in two items of a list has one key.
    key = re.sub(r"\[[0-9]+\]", "[]", path)
    return _make_finding(f"at {path}: {message}", fix, f"{key} {kind}", severity=0.5)


def _make_schema_judge(schema: Mapping[str, Any]) -> Problems:
    """Return the function that judges values by a JSON Schema. Raises InvalidInput."""
    from jsonschema import exceptions, validators
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    draft = deepcopy(dict(schema))
    try:
        cls = validators.validator_for(draft, default=validators.Draft202012Validator)
        cls.check_schema(draft)
    except exceptions.SchemaError as error:
        fault = f"at {error.json_path}: {shorten(error.message, 200)}"
        raise InvalidInput(
            "schema", schema, f"a valid JSON Schema ({fault})"
        ) from error

    # Without a registry the library would fetch unknown references over the network.
    validator = cls(draft, registry=Registry(), format_checker=cls.FORMAT_CHECKER)

    def problems(value: Any, text: str) -> Iterator[Finding]:
        """Yield the problems of a value by the schema; its text is not needed."""
        try:
            for outer_error in validator.iter_errors(value):
                # For "anyOf", the error inside the likeliest alternative says more.
                error = exceptions.best_match([outer_error]) or outer_error

                rule = str(error.validator)
                kind = rule
                form = _SCHEMA_FIXES.get(rule, f"make it meet {rule} {{}}")
                fix = form.format(shorten(error.validator_value, 200))
                if rule == "required":
                    kind = redact_start(error.message, 240)  # it names the missing key
                    fix = "add it"

                yield _problem_finding(
                    error.absolute_path, redact_start(error.message, 240), kind, fix
                )
        except Unresolvable as unresolved:
            raise InvalidInput(
                "$ref", unresolved.ref, "a reference inside the schema"
            ) from unresolved

    return problems


def _make_model_judge(model: "type[BaseModel]") -> Problems:
    """Return the function that judges values by a pydantic model."""
    from pydantic import ValidationError

    def problems(value: Any, text: str) -> Iterator[Finding]:
        """Yield the problems of a JSON text by the model; its value is not needed."""
        try:
            model.model_validate_json(text)
        except ValidationError as error:
            for problem in error.errors(include_url=False):
                message, fix = _word_problem(problem)
                yield _problem_finding(problem["loc"], message, problem["type"], fix)

    return problems


def _word_problem(problem: Mapping[str, Any]) -> tuple[str, str]:
    """Return what is wrong with a value by a pydantic model, and how to fix it.

    A check of the model itself, and what heedful has no words for, say it in their own.
    """
    if problem["type"] == "missing":
        return "Field required", "add it"

    allowed = allowed_form(problem)
    if not allowed:
        message = redact_start(problem["msg"].removeprefix("Value error, "), 200)
        return f"{message}, it is {shorten(problem['input'])}", message
    return f"it is {shorten(problem['input'])}, not {allowed}", f"make it {allowed}"
