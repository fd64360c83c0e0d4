"""`json_schema`: the answer is JSON that fits a JSON Schema or a pydantic model."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from errata.checks.reading import read, shorten
from errata.errors import InvalidInput, UsageError
from errata.loop.record import Finding
from errata.protocols import Context

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from pydantic import BaseModel

MOST = 10
"""Problems of one candidate that are listed; a note says when there are more."""

_LOOKED_AT = 200
_NAME = "json_schema"
_BARE = "answer with the bare JSON only: no ``` fences, no words before or after it"
_FIXES = {
    "type": "make it of type {}",
    "enum": "use one of {}",
    "const": "make it {}",
    "required": "add it",
    "additionalProperties": "leave them out",
    "unevaluatedProperties": "leave them out",
    "minimum": "make it at least {}",
    "maximum": "make it at most {}",
    "exclusiveMinimum": "make it greater than {}",
    "exclusiveMaximum": "make it less than {}",
    "minLength": "make it at least {} characters long",
    "maxLength": "make it at most {} characters long",
    "pattern": "make it match {}",
    "format": "write it in the format {}",
    "minItems": "give at least {} items",
    "maxItems": "give at most {} items",
    "uniqueItems": "leave out the repeated items",
}
_NAMED_BY_LIBRARY = ("required", "additionalProperties", "unevaluatedProperties")

Problem = tuple[str, str, str, str]  # path, what is wrong, kind, fix
Problems = Callable[[Any, str | None], Iterable[Problem]]


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """The answer is JSON that fits `schema`; made by `json_schema`."""

    schema: Mapping[str, Any] | type[BaseModel]
    problems: Problems = field(repr=False, compare=False)
    name: str = field(default=_NAME, init=False)
    pure: bool = field(default=True, init=False)

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        if isinstance(candidate, dict | list) or _instance(candidate, self.schema):
            value, text, findings = candidate, None, list[Finding]()
        else:
            text, findings = read(_NAME, candidate)
            if text is None:
                return findings
            value, text, found = _parse(text)
            findings += found
            if text is None:
                return findings
        known = {finding.key for finding in findings}
        findings += [finding for finding in _not_data(value) if finding.key not in known]
        try:
            problems = list(islice(self.problems(value, text), _LOOKED_AT))
        except RecursionError:
            return [*findings, _finding("the JSON is nested too deep", "nest it less", "depth")]
        return findings + _listed(problems)


def json_schema(schema: Mapping[str, Any] | type[BaseModel]) -> JsonSchema:
    """The answer is JSON that fits a JSON Schema (a mapping) or a pydantic v2 model class.

    Text must be JSON and nothing else; text around it, a key written twice, NaN and infinite
    numbers are findings, and what can be read is checked all the same. A dict or list (or an
    instance of the model) is checked as it is. One finding a problem with its JSON path, at most
    `MOST`. `format` is checked for the formats that the jsonschema library knows. Raises
    InvalidInput for a schema that is none, or that refers outside itself, and UsageError where the
    jsonschema library is not installed.
    """
    if isinstance(schema, Mapping):
        return JsonSchema(schema, _by_schema(schema))
    if hasattr(schema, "model_validate_json"):
        return JsonSchema(schema, _by_model(schema))
    raise InvalidInput("schema", schema, "a JSON Schema as a mapping or a pydantic model class")


def _instance(candidate: Any, schema: Any) -> bool:
    return isinstance(schema, type) and isinstance(candidate, schema)


def _finding(what: str, fix: str, key: str, severity: float = 0.8) -> Finding:
    return Finding(_NAME, what, fix, severity=severity, key=f"{_NAME}: {key}")


def _listed(problems: Sequence[Problem]) -> list[Finding]:
    found: dict[tuple[str, str], Finding] = {}
    for path, what, kind, fix in problems:
        # The place in a list is a particular: the same mistake in another item is the same mistake.
        key = re.sub(r"\[[0-9]+\]", "[]", path) + " " + kind
        found.setdefault((path, kind), _finding(f"at {path}: {what}", fix, key, 0.5))
    listed = list(found.values())
    if len(listed) > MOST:
        more = f"{len(listed) - MOST}{'+' * (len(problems) >= _LOOKED_AT)} more problems"
        note = Finding(_NAME, f"{more} are not listed", level="note", key=f"{_NAME}: more problems")
        return [*listed[:MOST], note]
    return listed


# Reading JSON


def _parse(text: str) -> tuple[Any, str | None, list[Finding]]:
    """The value, the part of the text that holds it (None: nothing could be read), findings."""
    twice: list[str] = []
    words: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(items)
        if len(value) < len(items):
            twice.extend(key for key, times in Counter(k for k, _ in items).items() if times > 1)
        return value

    def constant(word: str) -> float:
        words.append(word)
        return float(word)

    decoder = json.JSONDecoder(object_pairs_hook=pairs, parse_constant=constant)
    try:
        value, part, findings = _decode(decoder, text, (twice, words))
    except RecursionError:
        return None, None, [_finding("the JSON is nested too deep", "nest it less", "depth")]
    for key in dict.fromkeys(twice):
        what = f"the key {shorten(key)} appears twice in one object"
        findings.append(_finding(what, "write each key once", f"twice {key}"))
    for word in dict.fromkeys(words):
        fix = "use a finite number or null"
        findings.append(_finding(f"{word} is not JSON", fix, "not a number"))
    return value, part, findings


def _decode(
    decoder: json.JSONDecoder, text: str, seen: tuple[list[str], ...]
) -> tuple[Any, str | None, list[Finding]]:
    try:
        return decoder.decode(text), text, []
    except ValueError as error:
        refused = error
    for notes in seen:
        notes.clear()
    found = _inside(decoder, text, seen)
    if found is None:
        return None, None, [_not_json(refused, text)]
    value, start, end = found
    outside = shorten((text[:start].strip() + " … " + text[end:].strip()).strip(), 60)
    around = _finding(f"there is text around the JSON: {outside}", _BARE, "text around")
    return value, text[start:end], [around]


def _inside(
    decoder: json.JSONDecoder, text: str, seen: tuple[list[str], ...]
) -> tuple[Any, int, int] | None:
    """The longest JSON object or list that begins at one of the first brackets of the text."""
    best: tuple[Any, int, int] | None = None
    notes: list[list[str]] = []
    after = 0
    for bracket in islice(re.finditer(r"[{\[]", text), MOST):
        if bracket.start() < after:
            continue
        try:
            value, after = decoder.raw_decode(text, bracket.start())
        except ValueError:
            continue
        finally:
            taken = [list(lines) for lines in seen]
            for lines in seen:
                lines.clear()
        if best is None or after - bracket.start() > best[2] - best[1]:
            best, notes = (value, bracket.start(), after), taken
    for lines, kept in zip(seen, notes, strict=False):
        lines.extend(kept)
    return best


def _not_json(error: ValueError, text: str) -> Finding:
    fix = _BARE if "```" in text else "answer with valid JSON only"
    if not isinstance(error, json.JSONDecodeError):
        return _finding(f"not JSON: {shorten(str(error), 120)}", fix, "not JSON")
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
        what = f"the JSON breaks off after {len(text)} characters"
        return _finding(what, "answer with complete JSON; make it shorter", "breaks off")
    where = f"line {error.lineno}, column {error.colno}"
    near = shorten(text[max(0, error.pos - 10) : error.pos + 20], 40)
    return _finding(f"not JSON: {error.msg} at {where}, near {near}", fix, "not JSON")


def _not_data(value: Any) -> list[Finding]:
    """What is in a value that JSON cannot carry."""
    if hasattr(value, "model_validate_json"):
        return []
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        fix = "leave out what is not a whole Unicode character"
        return [_finding("a text in the JSON holds lone surrogates", fix, "lone surrogates")]
    except RecursionError:
        return [_finding("the JSON is nested too deep", "nest it less", "depth")]
    except (ValueError, TypeError) as error:
        fix = "use only finite numbers, text, true, false, null, lists and objects"
        return [_finding(f"not JSON data: {shorten(str(error), 120)}", fix, "not a number")]
    return []


def _path(parts: Iterable[str | int]) -> str:
    path = "$"
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if part.isidentifier() else f"[{shorten(part, 60)}]"
    return path


# JSON Schema


def _by_schema(schema: Mapping[str, Any]) -> Problems:
    try:
        from jsonschema import exceptions, validators
        from referencing import Registry
    except ImportError as error:
        what = "json_schema with a mapping needs the jsonschema library: pip install jsonschema"
        raise UsageError(what) from error
    own = deepcopy(dict(schema))
    try:
        cls = validators.validator_for(own, default=validators.Draft202012Validator)
        cls.check_schema(own)
    except exceptions.SchemaError as error:
        at = f"at {_path(error.absolute_path)}: {shorten(error.message, 200)}"
        raise InvalidInput("schema", own, f"a valid JSON Schema ({at})") from error
    _refuse_loose_ends(own)
    # A registry of its own: without one the library would fetch unknown references by network.
    validator = cls(own, registry=Registry(), format_checker=cls.FORMAT_CHECKER)

    def problems(value: Any, text: str | None) -> Iterator[Problem]:
        for error in validator.iter_errors(value):
            yield _problem(exceptions.best_match([error]) or error)

    return problems


def _refuse_loose_ends(schema: Mapping[str, Any]) -> None:
    from referencing import Registry, Resource, exceptions, jsonschema

    draft = jsonschema.DRAFT202012
    resource = Resource[Any].from_contents(schema, default_specification=draft)
    base = resource.id() or ""
    registry: Registry[Any] = Registry()
    resolver = registry.with_resource(base, resource).crawl().resolver(base_uri=base)
    inner = [part for part in _mappings(schema) if part is not schema and "$id" in part]
    for part in _mappings(schema):
        reference = part.get("$ref")
        if not isinstance(reference, str) or (inner and reference.startswith("#")):
            continue  # relative to the part with the `$id`: the library resolves it when it is met
        try:
            resolver.lookup(reference)
        except exceptions.Unresolvable as error:
            raise InvalidInput("$ref", reference, "a place inside the schema") from error


def _mappings(schema: Any) -> Iterator[Mapping[str, Any]]:
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            yield part
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)


def _problem(error: ValidationError) -> Problem:
    kind = str(error.validator)
    asked = shorten(error.validator_value, 200)
    if kind in _NAMED_BY_LIBRARY:
        what = error.message[:240]
        kind = what if kind == "required" else kind
    elif kind == "type":
        what = f"{shorten(error.instance)} is not of type {asked}"
    else:
        what = f"{shorten(error.instance)} does not meet {kind} {asked}"
    fix = _FIXES.get(str(error.validator), "make it meet {kind} {}")
    return _path(error.absolute_path), what, kind, fix.format(asked, kind=kind)


# pydantic


def _by_model(model: type[BaseModel]) -> Problems:
    from pydantic import ValidationError

    def problems(value: Any, text: str | None) -> Iterator[Problem]:
        try:
            if text is None:
                model.model_validate(value)
            else:
                model.model_validate_json(text)
        except ValidationError as error:
            for line in error.errors(include_url=False, include_context=False):
                seen = "" if line["type"] == "missing" else f", it is {shorten(line['input'])}"
                what = line["msg"][:200]
                fix = "add it" if line["type"] == "missing" else what
                yield _path(line["loc"]), what + seen, line["type"], fix

    return problems
