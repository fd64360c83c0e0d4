"""The declared type of candidates: read from answers, and restored as they were.

`Output` is a type with one adapter of pydantic, which reads, writes and restores its
values. What does not fit is a finding of the check "output". A value is stored only if
its data give the same value again: the same class, with the same values inside.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from heedful.checks.evaluate import Check, Evaluate
from heedful.checks.json_schemas import (
    Misfits,
    Problems,
    field_names,
    judge_text,
    limited,
    make_type_judge,
    schema_of,
    takes_list,
    type_problems,
)
from heedful.checks.json_values import Json
from heedful.checks.text import read
from heedful.errors import (
    CheckFailed,
    InvalidInput,
    NotJournalable,
    OutputChanged,
    UserCode,
)
from heedful.faults import json_path, kind_and_size, shorten
from heedful.lessons.scope import short_digest
from heedful.loop.record import OUTPUT_CHECK, Finding
from heedful.models.answers import CALL_KEY, CALLS_KEY
from heedful.models.contract import Answer, ToolCall
from heedful.validation import Document, Fields

if TYPE_CHECKING:
    from pydantic import TypeAdapter

BASE64_KEY = "$base64"  # in stored data, an object with this key alone is bytes
_PLAIN_TYPES = (str, int, float, bool, type(None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A declared type; `schema` is its JSON Schema, None if JSON Schema has none."""

    type: Any
    adapter: "TypeAdapter[Any]"
    schema: Fields | None
    misfits: Misfits
    problems: Problems

    @classmethod
    def of(cls, type: Any) -> "Output":
        """Return the declaration of a type. Raises InvalidInput."""
        if isinstance(type, Output):
            return type
        from pydantic import PydanticUserError, TypeAdapter

        try:
            adapter: TypeAdapter[Any] = TypeAdapter(_readable(type))
            adapter.rebuild()  # raises for a name that is not defined
        except (PydanticUserError, NameError, TypeError) as error:
            allowed = f"a type that pydantic reads, such as a class ({error})"
            raise InvalidInput("output", type, allowed) from error

        schema = schema_of(adapter.json_schema)
        misfits = Misfits(OUTPUT_CHECK, frozenset(field_names(schema)))
        return cls(
            type=type,
            adapter=adapter,
            schema=schema,
            misfits=misfits,
            problems=make_type_judge(misfits, adapter.validate_json),
        )

    @property
    def name(self) -> str:
        """The type as a person writes it."""
        return self.type.__qualname__ if isinstance(self.type, type) else str(self.type)

    @property
    def declaration(self) -> str:
        """Its name with a digest of its schema, as a store notes what was declared."""
        schema = json.dumps(self.schema, sort_keys=True, default=str)
        return f"{self.name} {short_digest(schema)}"

    def read(self, answer: Any) -> tuple[Any, list[Finding]]:
        """Return the value in an answer, or the answer itself, with the findings.

        With a finding of level error, the answer does not fit. Raises CheckFailed if
        code of the type fails.
        """
        with UserCode(partial(CheckFailed, OUTPUT_CHECK)):
            if isinstance(answer, str):
                return self._read_text(answer)
            return self._read_data(answer)

    def _read_text(self, answer: str) -> tuple[Any, list[Finding]]:
        """Return the value in a text, as `read` does.

        A type of texts takes the text as it is, any other the JSON in it first.
        """
        from pydantic import ValidationError

        is_text = self.schema is not None and self.schema.get("type") == "string"
        for text in (answer, answer.strip()):
            with suppress(ValidationError):
                if is_text:
                    return self.adapter.validate_python(text), []

        text_or_finding = read(OUTPUT_CHECK, answer)
        if isinstance(text_or_finding, Finding):
            return answer, [text_or_finding]

        fitting, findings = judge_text(OUTPUT_CHECK, answer, self.problems)
        if fitting is not None:
            return self.adapter.validate_json(fitting.text), findings
        if "{" in answer or "[" in answer:
            return answer, findings
        try:
            return self.adapter.validate_python(answer.strip()), []
        except ValidationError as error:
            if findings[0].key == f"{OUTPUT_CHECK}: not JSON":
                problems = type_problems(self.misfits, error, answer)
                findings = list(limited(OUTPUT_CHECK, problems))
            return answer, findings

    def _read_data(self, answer: Any) -> tuple[Any, list[Finding]]:
        """Return data or an object as a value of the type, as `read` does."""
        from pydantic import ValidationError

        try:
            return self.adapter.validate_python(answer), []
        except ValidationError as error:
            problems = type_problems(self.misfits, error, answer)

        with suppress(TypeError, ValueError, RecursionError):
            data = Json(answer, json.dumps(answer))
            problems = self.problems(data)
            findings = list(limited(OUTPUT_CHECK, problems))
            if not findings:
                return self.adapter.validate_json(data.text), []
            return answer, findings
        return answer, list(limited(OUTPUT_CHECK, problems))

    def read_call(self, call: ToolCall) -> tuple[Any, list[Finding]]:
        """Return the value in the arguments of a call, as `read` does.

        The longest class name that ends the name of the tool chooses the class of the
        value. Without one, the value is of the type, or any JSON for a type of lists.
        """
        tool = _plain_name(call.name)
        reader = _output_of_class(Any) if takes_list(self.schema) else self
        longest = ""
        for kind in _classes_in(self.type):
            name = _plain_name(kind.__name__)
            if tool.endswith(name) and len(name) > len(longest):
                longest = name
                reader = _output_of_class(kind)
        return reader.read(call.arguments)

    def plain(self, value: Any) -> Any:
        """Return a value as JSON data for a prompt or a memory, or as it is."""
        try:
            return self.adapter.dump_python(
                value, mode="json", by_alias=True, round_trip=True, warnings=False
            )
        except ValueError:  # bytes that are no text, or what pydantic does not write
            return value

    def dump(self, value: Any) -> Any:
        """Return JSON data that give the same value again. Raises NotJournalable."""
        member = self._member(name_of(type(value)))
        with UserCode(self._not_restored):
            data = member._to_data(value)
            difference = next(differences(value, member._from_data(data)), "")
        if difference:
            raise self._cannot_be_stored(difference)
        return data

    def restore(self, data: Any, type_name: str) -> Any:
        """Return the value that `dump` stored, of the class with this name.

        The class may have moved to another module. Raises OutputChanged if the value
        would be another one.
        """
        member = self._member(type_name)
        with UserCode(partial(self._changed, type_name, data)):
            value = member._from_data(data)
            difference = next(differences(data, member._to_data(value)), "")
        if not _has_name(type(value), type_name):
            difference = f"it is a {name_of(type(value))} now"
        if difference:
            raise self._changed(type_name, data, difference)
        return value

    def read_stored(self, answer: Any, declaration: str) -> Any:
        """Return the value in a stored answer that a type with `declaration` has read.

        Raises OutputChanged if it does not fit, or if another declaration has read a
        part of it that this type leaves out.
        """
        value, findings = self.read(answer)
        reason = ""
        if is_refused(findings):
            reason = findings[0].message
        elif declaration != self.declaration:
            data = self._data_in(answer)
            reason = next(_parts_left_out(data, self.plain(value)), "")
        if reason:
            declared_name = declaration.rpartition(" ")[0] or "output"
            raise self._changed(declared_name, answer, reason)
        return value

    def _data_in(self, answer: Any) -> Any:
        """Return the JSON data in a stored answer; None if it is another text."""
        if not isinstance(answer, str):
            return answer
        fitting, _ = judge_text(OUTPUT_CHECK, answer, self.problems)
        return None if fitting is None else fitting.value

    def _changed(self, stored_type: str, data: Any, reason: object) -> OutputChanged:
        """Return the error for a stored value that does not fit this type."""
        fields = ", ".join(dict.fromkeys(field_names(self.schema)))
        return OutputChanged(
            f"the stored {stored_type} {shorten(data, 200)} does not fit {self.name} "
            f"with the fields {fields or '(none)'}: {reason}; declare the type as it "
            "was, or give another id"
        )

    def _to_data(self, value: Any) -> Any:
        """Return a value as JSON data; bytes that are no text are in base64."""
        from pydantic_core import to_jsonable_python

        options: Document = {"by_alias": False, "round_trip": True, "warnings": "error"}
        try:
            # With the fallback, the difference says where a part is no JSON.
            text = self.adapter.dump_json(value, **options, fallback=lambda part: "")
        except ValueError:
            python_data = self.adapter.dump_python(value, **options)
            return to_jsonable_python(_encode_bytes(python_data))
        return json.loads(text)

    def _from_data(self, data: Any) -> Any:
        """Return the value in data of `_to_data`, whose fields have their own names."""
        decoded = _decode_bytes(data)
        if decoded == data:
            text = json.dumps(data)
            return self.adapter.validate_json(text, by_alias=False, by_name=True)
        return self.adapter.validate_python(decoded, by_alias=False, by_name=True)

    def _member(self, class_name: str) -> "Output":
        """Return the declaration of the class of a union that has this name.

        Alone, its data are never those of another class of the union.
        """
        for kind in _classes_in(self.type):
            if kind is not self.type and _has_name(kind, class_name):
                return _output_of_class(kind)
        return self

    def _not_restored(self, error: Any) -> NotJournalable:
        """Return the error for a value that pydantic does not write, or read again.

        Its text does not quote the value, as that of `error` does.
        """
        problems: list[dict[str, tuple[str, ...]]] = getattr(error, "errors", list)()
        places = [json_path(problem["loc"]) for problem in problems]
        reason = f"{type(error).__name__} at {', '.join(places) or '$'}"
        return self._cannot_be_stored(reason)

    def _cannot_be_stored(self, reason: str) -> NotJournalable:
        """Return the error for a value that would not come back as it is."""
        return NotJournalable(
            f"a candidate of type {self.name} cannot be stored: {reason}; declare a "
            "type whose values pydantic writes and reads again, as in output=Invoice, "
            "or run with store=None"
        )


def declared_output(type: Any) -> Output | None:
    """Return the declaration of a type; None without a type. Raises InvalidInput."""
    return None if type is None else Output.of(type)


def _readable(kind: Any) -> Any:
    """Return a type with the TypedDict classes that pydantic reads.

    Before Python 3.12 it refuses those of `typing`.
    """
    parts = get_args(kind)
    readable = tuple(map(_readable, parts))
    if readable != parts:
        origin: Any = get_origin(kind)
        if origin is UnionType:
            origin = Union
        return origin[readable]
    if type(kind).__module__ != "typing" or not is_typeddict(kind):
        return kind

    import typing_extensions

    hints = get_type_hints(kind, include_extras=True)
    fields = {name: _readable(hint) for name, hint in hints.items()}
    for name in kind.__optional_keys__:
        if get_origin(fields[name]) is not NotRequired:
            fields[name] = NotRequired[fields[name]]
    make: Any = typing_extensions.TypedDict
    return make(kind.__name__, fields)


def to_stored(value: Any, output: Output | None) -> tuple[Any, str]:
    """Return a candidate as JSON data, and the name of its class; "" for plain data.

    Without an `output` that it fits, its own class writes it. A text of a class that
    pydantic cannot read is stored as a plain text. Raises NotJournalable.
    """
    if type(value) is str:
        return value, ""
    with suppress(ValueError, RecursionError):
        if is_plain(value):
            json.dumps(value, allow_nan=False)
            return value, ""

    if output is None or is_refused(output.read(value)[1]):
        kind: Any = type(value)
        try:
            output = _output_of_class(kind)
        except NotJournalable:
            if isinstance(value, str):
                return str.__str__(value), ""
            raise
    return output.dump(value), name_of(type(value))


def from_stored(
    data: Any, type_name: str, output: Output | None, functions: Iterable[Any]
) -> Any:
    """Return the candidate that `to_stored` stored.

    Without an `output`, its class is found in what the `functions` declare to return.
    Raises OutputChanged if no class is declared, or if it has changed.
    """
    if not type_name:
        return data
    if output is not None:
        return output.restore(data, type_name)

    for function in functions:
        for kind in _classes_in(returned_type(function)):
            if _has_name(kind, type_name):
                return _output_of_class(kind).restore(data, type_name)

    raise OutputChanged(
        f"the loop has candidates of the class {type_name}, and its functions do not "
        f"declare it; resume it with output={type_name.rpartition('.')[2]}"
    )


def with_calls(answer: Answer, output: Output | None) -> Answer:
    """Return an answer with the value of a declared type that its calls give as text.

    Each call gives an item of a list, or the only call the value. If none is given, the
    text stays, and the answer says what is wrong with the calls.
    """
    if output is None or answer.finish != "tool_call" or not answer.calls:
        return answer
    is_list = takes_list(output.schema)
    if len(answer.calls) > 1 and not is_list:
        return answer

    values = []
    for call in answer.calls:
        value, findings = output.read_call(call)
        if is_refused(findings):
            # Another class of a union than the one that the name chose may take it.
            is_taken = not is_refused(output.read(answer.text)[1])
            fault = findings[0] if is_taken else None
            return replace(answer, fault=fault, finish="stop")
        values.append(value)

    text: Any = values
    if len(values) == 1:
        is_item = is_list and is_refused(output.read(values[0])[1])
        text = values if is_item else values[0]
    return replace(answer, text=text, finish="stop")


def remaining_fault(fault: Finding | None, judges: Iterable[Any]) -> Finding | None:
    """Return what is wrong with how an answer ended, if the judges do not want that.

    A judge with a schema wants the arguments of a call, those of several calls if its
    schema takes a list.
    """
    if fault is None:
        return None
    schemas = [judge.schema for judge in judges if hasattr(judge, "schema")]
    wanted = {CALL_KEY: bool(schemas), CALLS_KEY: any(map(takes_list, schemas))}
    return None if wanted.get(fault.key) else fault


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """The check that reports how an answer was read as the declared type."""

    findings: Sequence[Finding]
    name: ClassVar[str] = OUTPUT_CHECK
    pure: ClassVar[bool] = True

    def __call__(self, candidate: Any) -> Sequence[Finding]:
        """Return the findings."""
        return self.findings


def read_output(
    output: Output | None,
    value: Any,
    checks: Sequence[Check],
    evaluate: Evaluate | None,
    *,
    fault: Finding | None = None,
) -> tuple[Any, Sequence[Check], Evaluate | None]:
    """Return an answer, read as the declared type, and what judges it.

    What does not fit is judged by nothing else, nor is an answer whose `fault` is to
    have several calls. Raises CheckFailed.
    """
    if output is None:
        return value, checks, evaluate
    if fault is not None and fault.key == CALLS_KEY:
        return value, (OutputCheck([fault]),), None
    value, findings = output.read(value)
    reported = OutputCheck(findings)
    if is_refused(findings):
        return value, (reported,), None
    return value, (reported, *checks), evaluate


def _encode_bytes(part: Any) -> Any:
    """Return data with a dict of base64 in place of bytes."""
    if isinstance(part, bytes):
        return {BASE64_KEY: b64encode(part).decode()}
    if isinstance(part, dict):
        return {name: _encode_bytes(value) for name, value in part.items()}
    if isinstance(part, list | tuple | set | frozenset):
        return list(map(_encode_bytes, part))
    return part


def _decode_bytes(part: Any) -> Any:
    """Return JSON data with the bytes that `_encode_bytes` has replaced."""
    if isinstance(part, list):
        return list(map(_decode_bytes, part))
    if not isinstance(part, dict):
        return part
    if part.keys() == {BASE64_KEY} and isinstance(part[BASE64_KEY], str):
        return b64decode(part[BASE64_KEY])
    return {name: _decode_bytes(value) for name, value in part.items()}


def _parts_left_out(answer: Any, data: Any, path: str = "$") -> Iterator[str]:
    """Yield which parts of a stored answer are missing in the data of its value."""
    if isinstance(answer, dict) and isinstance(data, dict):
        for name, part in answer.items():
            if name not in data:
                yield f"{path}.{name} is in no field"
            else:
                yield from _parts_left_out(part, data[name], f"{path}.{name}")
    elif isinstance(answer, list) and isinstance(data, list):
        for index, (part, kept_part) in enumerate(zip(answer, data, strict=False)):
            yield from _parts_left_out(part, kept_part, f"{path}[{index}]")


def is_refused(findings: Iterable[Finding]) -> bool:
    """Return whether one of the findings is an error."""
    return any(finding.level == "error" for finding in findings)


def name_of(kind: type) -> str:
    """Return the full name of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _has_name(kind: type, type_name: str) -> bool:
    """Return whether a class has the name in a full name, in whatever module."""
    return kind.__name__ == type_name.rpartition(".")[2]


@lru_cache(256)
def _output_of_class(kind: Any) -> Output:
    """Return the declaration of a class that nobody declared. Raises NotJournalable."""
    try:
        return Output.of(kind)
    except InvalidInput as error:
        raise NotJournalable(
            f"a candidate of type {kind.__name__} cannot be stored; generate text, "
            "JSON data or a pydantic object, or run with store=None"
        ) from error


def returned_type(function: Any) -> Any:
    """Return the type that a function declares to return; None if it declares none."""
    # A name in the hints may not be defined, and the object may not be a function.
    with suppress(NameError, TypeError, AttributeError):
        return get_type_hints(function).get("return")
    return None


def _plain_name(name: str) -> str:
    """Return the name of a tool or class in small letters, without underscores."""
    return name.replace("_", "").lower()


def _classes_in(declared: Any) -> Iterator[type]:
    """Yield the classes in a declared type, such as those of a union or list."""
    kinds = [declared]
    while kinds:
        kind = kinds.pop()
        kinds += get_args(kind)
        if isinstance(kind, type):
            yield kind


def is_plain(value: Any) -> bool:
    """Return whether a value is of the types of JSON data, and not of subclasses.

    Raises RecursionError for a value that is nested too deep.
    """
    kind = type(value)
    if kind is list:
        return all(map(is_plain, value))
    if kind is dict:
        are_texts = all(type(key) is str for key in value)
        return are_texts and all(map(is_plain, value.values()))
    return kind in _PLAIN_TYPES


def differences(first: Any, second: Any, path: str = "$") -> Iterator[str]:
    """Yield where a value that came back differs from the first, in class or value.

    The values themselves are not quoted.
    """
    kind = kind_and_size(first)
    if type(first) is not type(second):
        yield f"at {path}: {kind} came back as {type(second).__name__}"
        return

    parts = _parts(first)
    other_parts = _parts(second)
    if parts is None or other_parts is None:
        if first != second:
            yield f"at {path}: {kind} came back with another value"
        return

    names = [(type(name), name) for name in parts]
    other_names = [(type(name), name) for name in other_parts]
    if names != other_names:
        yield f"at {path}: {kind} came back with other keys"
        return
    for name, part in parts.items():
        yield from differences(part, other_parts[name], f"{path}.{name}")


def _parts(value: Any) -> dict[Any, Any] | None:
    """Return what a value has inside, by name; None if nothing is known of it."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list | tuple):
        return dict(enumerate(value))

    kind = type(value)
    fields = getattr(kind, "model_fields", getattr(kind, "__dataclass_fields__", None))
    if fields is None:
        return None
    parts = {name: getattr(value, name, None) for name in fields}
    for name in ("__pydantic_extra__", "__pydantic_private__"):
        parts |= getattr(value, name, None) or {}
    return parts
