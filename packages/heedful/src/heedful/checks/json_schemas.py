"""A check that an answer is JSON that fits a JSON Schema or a pydantic model.

The JSON is read wherever it stands in a text; words around it are a note. A judge of
the schema (`_make_schema_judge`) or of the type (`make_type_judge`) then yields the
problems of the value, each with a JSON path and a fix.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from heedful.checks.evaluate import Context, RemadeCheck, over_http, remade
from heedful.checks.json_values import Json, read_json
from heedful.checks.refusal import distance_of_problem, distance_of_rule
from heedful.checks.text import read
from heedful.errors import InvalidInput
from heedful.faults import allowed_form, json_path, path_kind, shorten, word_problem
from heedful.loop.record import Finding, as_data
from heedful.redact import redact_start
from heedful.validation import MAX_SHOWN_ITEMS, MAX_SHOWN_TEXT_CHARS, Document, Fields

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

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
_BARE_JSON_FIX = (
    "answer with the bare JSON only: no ``` fences, no words before or after it"
)
# Yields the problems of a JSON value.
Problems = Callable[[Json], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class JsonSchema(RemadeCheck):
    """A check that an answer is JSON, and that `problems(json)` yields none."""

    schema: "Fields | type[BaseModel]"
    problems: Problems = field(repr=False, compare=False)
    name: ClassVar[str] = "json_schema"
    pure: ClassVar[bool] = True

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        """Return the findings about a text, or about data that can be JSON."""
        if isinstance(self.schema, type) and isinstance(candidate, self.schema):
            return []
        try:
            candidate = as_data(candidate)
            if isinstance(candidate, dict | list):
                candidate = json.dumps(candidate)
        except (TypeError, ValueError) as error:
            return [_not_data_finding(self.name, error)]
        except RecursionError:
            return [_depth_finding(self.name)]

        text = read(self.name, candidate)
        if isinstance(text, Finding):
            return [text]
        _, findings = judge_text(self.name, text, self.problems)
        return findings


@over_http("process")
@remade
def json_schema(schema: "Fields | type[BaseModel]") -> JsonSchema:
    """Check that the answer is JSON that fits a JSON Schema or a pydantic v2 model.

    A JSON Schema is given as a mapping. The JSON may stand anywhere in the answer: the
    last value that fits counts, and text around it is a note. NaN and infinite numbers
    are findings. A candidate that is a dict or list is checked as JSON; an instance of
    the pydantic model passes. Each problem is a finding with a JSON path; of more than
    `MAX_SHOWN_ITEMS` the others are counted. `format` is checked if the jsonschema
    library knows the format, `pattern` without a time limit. Raises InvalidInput for an
    invalid schema. The check raises InvalidInput for a `$ref` outside of it.
    """
    if isinstance(schema, Mapping):
        return JsonSchema(schema, _make_schema_judge(schema))
    if hasattr(schema, "model_validate_json"):
        type_schema = schema_of(schema.model_json_schema)
        misfits = Misfits(JsonSchema.name, frozenset(field_names(type_schema)))
        return JsonSchema(schema, make_type_judge(misfits, schema.model_validate_json))
    raise InvalidInput(
        "schema", schema, "a JSON Schema as a mapping or a pydantic model class"
    )


def judge_text(
    check: str, text: str, problems: Problems
) -> tuple[Json | None, list[Finding]]:
    """Return the JSON in a text that fits, or None, and the findings of a check.

    If the JSON fits, the only finding may be a note about the text around it.
    """
    try:
        reading = read_json(text, lambda json: not any(problems(json)))
    except RecursionError:
        return None, [_depth_finding(check)]
    if reading.is_cut:
        message = f"the JSON breaks off after {len(text)} characters"
        fix = "answer with complete JSON; make it shorter"
        return None, [make_finding(check, message, fix, "breaks off")]
    if reading.json is None:
        message = f"not JSON: {str(reading.error)[:120]}"
        return None, [make_finding(check, message, _BARE_JSON_FIX, "not JSON")]

    findings = list(limited(check, problems(reading.json)))
    fitting = None if findings else reading.json
    if reading.around:
        message = f"there is text around the JSON: {shorten(reading.around, 60)}"
        note = make_finding(check, message, _BARE_JSON_FIX, "text around")
        findings.append(replace(note, level="note"))
    return fitting, findings


def limited(check: str, problems: Iterator[Finding]) -> Iterator[Finding]:
    """Yield the first problems, and a finding that counts and names the others."""
    yield from islice(problems, MAX_SHOWN_ITEMS)

    others = [problem.key.removeprefix(f"{check}: ") for problem in problems]
    if others:
        names = redact_start("; ".join(dict.fromkeys(others)), MAX_SHOWN_TEXT_CHARS)
        message = f"and {len(others)} more: {names}"
        # A warning: what it names is no rule of its own.
        yield replace(make_finding(check, message, "", "more"), level="warning")


def make_finding(
    check: str, message: str, fix: str, key: str, rule: str | None = None
) -> Finding:
    """Return a finding of a check of JSON; the fix is the rule if there is no other."""
    if rule is None:
        rule = fix
    return Finding(
        check, message, fix=fix, severity=0.8, key=f"{check}: {key}", rule=rule
    )


def _depth_finding(check: str) -> Finding:
    """Return the finding that a value is nested too deep."""
    return make_finding(check, "the JSON is nested too deep", "nest it less", "depth")


def _not_data_finding(check: str, error: Exception) -> Finding:
    """Return the finding that a value cannot be written as JSON."""
    message = f"not JSON data: {shorten(str(error), 120)}"
    fix = "use only finite numbers (no NaN), text, true, false, null, lists and objects"
    return make_finding(check, message, fix, "not a number")


@dataclass(frozen=True, slots=True)
class Misfits:
    """Makes the findings of a check about values that do not fit a type.

    `names` are those that the type gives to its fields. Other names in a path are data,
    which a rule leaves out.
    """

    check: str
    names: frozenset[str]

    def finding(
        self,
        parts: Sequence[str | int],
        message: str,
        *,
        kind: str,
        fix: str,
        is_rule: bool = True,
        off_by: float | None = None,
    ) -> Finding:
        """Return the finding about the value at a path; `parts` are its keys.

        `kind` is the rule that the value breaks. The fix says it, if it `is_rule`.
        `off_by` is how far the value is from the limit of the rule.
        """
        path = json_path(parts)
        rule = ""
        if is_rule:
            rule_path = json_path([part if part in self.names else 0 for part in parts])
            rule = f"at {path_kind(rule_path)}: {fix}"
        key = f"{path_kind(path)} {kind}"
        message = f"at {path}: {message}"
        finding = make_finding(self.check, message, fix, key=key, rule=rule)
        return replace(finding, severity=0.5, off_by=off_by)

    def missing(self, parts: Sequence[str | int]) -> Finding:
        """Return the finding that the value at a path is missing."""
        return self.finding(parts, "Field required", kind="missing", fix="add it")


def field_names(schema: Any) -> Iterator[str]:
    """Yield the names of fields in a JSON Schema."""
    if isinstance(schema, list):
        schema = dict(enumerate(schema))
    if isinstance(schema, Mapping):
        for keyword, part in schema.items():
            if keyword in ("properties", "required"):
                yield from map(str, part)
            yield from field_names(part)


def _leads_into(value: Any, path: Sequence[str | int]) -> bool:
    """Return whether all parts of a path are keys of the data.

    In a union, pydantic adds the name of a type to it.
    """
    for part in path:
        try:
            value = value[part]
        except (TypeError, LookupError):
            return False
    return True


def _number_problems(check: str, json_value: Json) -> Iterator[Finding]:
    """Yield the finding about numbers that JSON does not have, NaN and infinity."""
    try:
        json.dumps(json_value.value, allow_nan=False)
    except ValueError as error:
        yield _not_data_finding(check, error)


def _make_schema_judge(schema: Fields) -> Problems:
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
    misfits = Misfits(JsonSchema.name, frozenset(field_names(draft)))

    def problems(json_value: Json) -> Iterator[Finding]:
        """Yield the problems of a value by the schema."""
        yield from _number_problems(misfits.check, json_value)
        try:
            for outer_error in validator.iter_errors(json_value.value):
                # For "anyOf", the error inside the likeliest alternative says more.
                error = exceptions.best_match([outer_error]) or outer_error

                rule = str(error.validator)
                if rule == "required":
                    # Only the message says which key is missing.
                    message = error.message
                    keys: Any = error.validator_value
                    missing = [key for key in keys if message.startswith(repr(key))]
                    yield misfits.missing([*error.absolute_path, *missing])
                    continue

                form = _SCHEMA_FIXES.get(rule, f"make it meet {rule} {{}}")
                yield misfits.finding(
                    error.absolute_path,
                    redact_start(error.message, 240),
                    kind=rule,
                    fix=form.format(shorten(error.validator_value, 200)),
                    off_by=distance_of_rule(error),
                )
        except Unresolvable as unresolved:
            raise InvalidInput(
                "$ref", unresolved.ref, "a reference inside the schema"
            ) from unresolved

    return problems


def takes_list(schema: "Fields | type[BaseModel] | None") -> bool:
    """Return whether a list fits a JSON Schema, or one of its alternatives."""
    if not isinstance(schema, Mapping):
        return False
    alternatives = [schema, *schema.get("anyOf", ()), *schema.get("oneOf", ())]
    return any(alternative.get("type") == "array" for alternative in alternatives)


def schema_of(make_schema: Callable[[], Document]) -> Document | None:
    """Return the JSON Schema of a type of pydantic; None if JSON Schema has none."""
    from pydantic import PydanticUserError

    try:
        return make_schema()
    except PydanticUserError:
        return None


def make_type_judge(misfits: Misfits, validate: Callable[[str], Any]) -> Problems:
    """Return the function that judges values by a type of pydantic.

    `validate` reads an object from JSON text.
    """
    from pydantic import ValidationError

    def problems(json_value: Json) -> Iterator[Finding]:
        """Yield the problems of a JSON text by the type."""
        yield from _number_problems(misfits.check, json_value)
        try:
            validate(json_value.text)
        except ValidationError as error:
            yield from type_problems(misfits, error, json_value.value)

    return problems


def type_problems(
    misfits: Misfits, error: "ValidationError", value: Any
) -> Iterator[Finding]:
    """Yield the problems of a value in an error of pydantic.

    A check of the model itself, and what heedful has no words for, say it in their own,
    which may quote the value: that is no rule. Nor is what only one of several types
    asks for.
    """
    for problem in error.errors(include_url=False):
        path = problem["loc"]
        message, fix = word_problem(problem)
        within = path[:-1] if problem["type"] == "missing" else path
        yield misfits.finding(
            path,
            message,
            kind=problem["type"],
            fix=fix,
            is_rule=bool(allowed_form(problem)) and _leads_into(value, within),
            off_by=distance_of_problem(problem),
        )
