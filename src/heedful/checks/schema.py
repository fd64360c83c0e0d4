"""A check that an answer is JSON that fits a JSON Schema or a pydantic model.

A text is parsed first; words around the JSON are a finding, and the JSON is still
checked. `_by_schema` and `_by_model` then yield the problems of the value, each with a
JSON path and a fix.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from heedful.checks.evaluate import Context
from heedful.checks.text import read, shorten
from heedful.errors import InvalidInput
from heedful.loop.record import Finding, as_data

if TYPE_CHECKING:
    from pydantic import BaseModel

MAX_SCHEMA_PROBLEMS = 10  # the most problems of a candidate that are listed
_JSON_SCHEMA_CHECK = "json_schema"
_BARE_JSON_FIX = (
    "answer with the bare JSON only: no ``` fences, no words before or after it"
)
Problems = Callable[[Any, str], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """A check that an answer is JSON, and that `problems(value, text)` yields none."""

    schema: "Mapping[str, Any] | type[BaseModel]"
    problems: Problems = field(repr=False, compare=False)
    name: ClassVar[str] = _JSON_SCHEMA_CHECK
    pure: ClassVar[bool] = True

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        if isinstance(self.schema, type) and isinstance(candidate, self.schema):
            return []
        try:
            candidate = as_data(candidate)
            if isinstance(candidate, dict | list):
                try:
                    candidate = json.dumps(candidate)
                except (TypeError, ValueError) as error:
                    return [_not_data(error)]
            text = read(_JSON_SCHEMA_CHECK, candidate)
            return [text] if isinstance(text, Finding) else self._judge(text)
        except RecursionError:
            return [_finding("the JSON is nested too deep", "nest it less", "depth")]

    def _judge(self, text: str) -> list[Finding]:
        value, part, findings = _parse(text)
        if part is None:
            return findings
        try:
            json.dumps(value, allow_nan=False)
        except ValueError as error:
            findings.append(_not_data(error))
        return [*findings, *islice(self.problems(value, part), MAX_SCHEMA_PROBLEMS)]


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
        return JsonSchema(schema, _by_schema(schema))
    if hasattr(schema, "model_validate_json"):
        return JsonSchema(schema, _by_model(schema))
    raise InvalidInput(
        "schema", schema, "a JSON Schema as a mapping or a pydantic model class"
    )


def _finding(message: str, fix: str, key: str, severity: float = 0.8) -> Finding:
    return Finding(
        _JSON_SCHEMA_CHECK,
        message,
        fix=fix,
        severity=severity,
        key=f"{_JSON_SCHEMA_CHECK}: {key}",
    )


def _parse(text: str) -> tuple[Any, str | None, list[Finding]]:
    """Return the JSON value in a text, its JSON part (or None), and findings."""
    try:
        return json.loads(text), text, []
    except ValueError as error:
        refused = error

    bracket = re.search(r"[{\[]", text)
    start = bracket.start() if bracket else 0
    end = max(text.rfind("}"), text.rfind("]")) + 1
    with suppress(ValueError):
        value = json.loads(text[start:end])
        outside = shorten(f"{text[:start].strip()} … {text[end:].strip()}".strip(), 60)
        around = _finding(
            f"there is text around the JSON: {outside}", _BARE_JSON_FIX, "text around"
        )
        return value, text[start:end], [around]

    position = getattr(refused, "pos", 0)
    if position >= len(text.rstrip()) or "Unterminated string" in str(refused):
        finding = _finding(
            f"the JSON breaks off after {len(text)} characters",
            "answer with complete JSON; make it shorter",
            "breaks off",
        )
    else:
        near = shorten(text[max(0, position - 10) : position + 20], 40)
        message = f"not JSON: {str(refused)[:120]}, near {near}"
        finding = _finding(message, _BARE_JSON_FIX, "not JSON")
    return None, None, [finding]


def _not_data(error: Exception) -> Finding:
    fix = "use only finite numbers (no NaN), text, true, false, null, lists and objects"
    return _finding(f"not JSON data: {shorten(str(error), 120)}", fix, "not a number")


def _problem(parts: Iterable[str | int], message: str, kind: str, fix: str) -> Finding:
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
    return _finding(f"at {path}: {message}", fix, f"{key} {kind}", severity=0.5)


def _by_schema(schema: Mapping[str, Any]) -> Problems:
    from jsonschema import exceptions, validators
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    draft = deepcopy(dict(schema))
    try:
        cls = validators.validator_for(draft, default=validators.Draft202012Validator)
        cls.check_schema(draft)
    except exceptions.SchemaError as error:
        where = f"at {error.json_path}: {shorten(error.message, 200)}"
        raise InvalidInput(
            "schema", schema, f"a valid JSON Schema ({where})"
        ) from error
    # Without a registry the library would fetch unknown references over the network.
    validator = cls(draft, registry=Registry(), format_checker=cls.FORMAT_CHECKER)

    def problems(value: Any, text: str) -> Iterator[Finding]:
        try:
            for first_error in validator.iter_errors(value):
                error = exceptions.best_match([first_error]) or first_error
                rule = str(error.validator)
                if rule == "required":
                    kind = error.message
                    fix = "add it"
                else:
                    kind = rule
                    fix = f"make it meet {rule} {shorten(error.validator_value, 200)}"
                yield _problem(
                    error.absolute_path, error.message[:240], kind[:240], fix
                )
        except Unresolvable as lost:
            raise InvalidInput(
                "$ref", lost.ref, "a reference inside the schema"
            ) from lost

    return problems


def _by_model(model: "type[BaseModel]") -> Problems:
    from pydantic import ValidationError

    def problems(value: Any, text: str) -> Iterator[Finding]:
        try:
            model.model_validate_json(text)
        except ValidationError as error:
            for line in error.errors(include_url=False, include_context=False):
                message = line["msg"][:200]
                fix = message
                if line["type"] == "missing":
                    fix = "add it"
                else:
                    message += f", it is {shorten(line['input'])}"
                yield _problem(line["loc"], message, line["type"], fix)

    return problems
