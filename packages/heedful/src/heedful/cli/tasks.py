"""Files that users write: tasks as JSON Lines or YAML.

A format is parsed into entries, each with the line where it begins; an entry is then
checked against a shape. One error names all faults, each with its line.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from heedful.checks.evaluate import Check
from heedful.checks.loading import load
from heedful.display import counted
from heedful.episodes.trace_files import problem
from heedful.errors import LineError, UnknownName, UsageError
from heedful.faults import wrong_value
from heedful.loop.decide import Policy
from heedful.loop.policies import goal, policy
from heedful.loop.record import Goal, check_goals
from heedful.loop.stop import check_names
from heedful.redact import redact
from heedful.sanitize import clean
from heedful.validation import MAX_SHOWN_ITEMS, hex_digest

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


class EntryShape(BaseModel):
    """The base class of the entries of files.

    It forbids unknown keys and infinite numbers.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)


class TaskShape(EntryShape):
    """The shape of an entry in a task file."""

    # Printable; Unicode's category C is control characters and the like.
    id: str = Field(max_length=200, pattern=r"^\P{C}+$")
    task: str = Field(pattern=r"\S")
    context: JsonValue = None
    goals: list[Any] | None = None
    checks: list[Any] = Field(min_length=1)  # without a check, everything would pass
    policy: Any = None


Entry = tuple[int, Any]  # the line where an entry begins, from 1, and its value


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task of a file.

    `line` is the line where it begins, from 1. `key` is its memory key: tasks of one
    file with the same checks have the same.
    """

    id: str
    task: str
    context: Any
    goals: tuple[Goal, ...]
    checks: tuple[Check, ...]
    policy: Policy | None
    line: int
    key: str = ""

    @property
    def family(self) -> str:
        """The value of `family` in the task's context as text, or "" if it has none."""
        if not isinstance(self.context, Mapping):
            return ""
        family = self.context.get("family")
        return "" if family is None else str(family)


def read_tasks(path: Path) -> list[Task]:
    """Return the tasks of a .jsonl, .yaml or .yml file, at least one, in order.

    If a check names a module, the file's folder is searched first. Raises one LineError
    for all faults.
    """
    text = text_of(path)
    parse = _TASK_FILE_PARSERS.get(path.suffix.lower())
    if parse is None:
        endings = ", ".join(_TASK_FILE_PARSERS)
        raise LineError(str(path), 0, f"its name must end in one of {endings}")

    line_by_id: dict[str, int] = {}

    def parse_task(value: Any, line: int) -> Task:
        """Return the task of an entry, whose id no other has. Raises UsageError."""
        task = _parse_task(value, path, line)
        first_line = line_by_id.setdefault(task.id, line)
        if first_line != line:
            raise UsageError(
                f"id {task.id!r} is that of the task of line {first_line}; give another"
            )
        return task

    empty = "it has no task; give at least one with id and task"
    return parse_entries(path, parse(path, text), parse_task, empty)


def parse_entries(
    path: Path, entries: list[Entry], parse: Callable[[Any, int], T], empty: str
) -> list[T]:
    """Return what `parse` makes of each entry of a file and its line.

    Raises one LineError that says all faults, each on its line: 20 at most, and how
    many there are more. Without an entry, it says `empty`.
    """
    if not entries:
        raise LineError(str(path), 0, empty)

    parsed = []
    faults: list[LineError] = []
    for line, value in entries:
        try:
            parsed.append(parse(value, line))
        except UsageError as error:
            faults.append(LineError(str(path), line, str(error)))
    if not faults:
        return parsed

    first, *others = faults
    lines = [first.what, *map(str, others)]
    hidden = len(lines) - MAX_SHOWN_ITEMS
    if hidden > 0:
        lines[MAX_SHOWN_ITEMS:] = [f"… and {counted(hidden, 'more line')} with faults"]
    raise LineError(first.path, first.line, "\n".join(lines))


def _parse_task(value: Any, path: Path, line: int) -> Task:
    """Return the task of an entry. Raises UsageError."""
    shape = fit(TaskShape, value)
    goals = tuple(map(goal, shape.goals or ()))
    check_goals(goals)
    checks = [load(spec, folder=path.parent) for spec in shape.checks]
    return Task(
        id=shape.id,
        task=shape.task,
        context=shape.context,
        goals=goals,
        checks=tuple(checks),
        policy=None if shape.policy is None else policy(shape.policy),
        line=line,
        key=_memory_key(path, shape.checks, checks),
    )


def _memory_key(path: Path, specs: list[Any], checks: Sequence[Check]) -> str:
    """Return the memory key of the tasks of a file with these checks.

    It has the names of the checks, and a digest of what they are given.
    """
    names = f"{path.stem}: {', '.join(check_names(checks))}"
    document = json.dumps(specs, sort_keys=True, default=str)
    digest = hex_digest(document)[:8]
    return redact(f"{clean(names, 100)} {digest}")


def fit(shape: type[M], value: Any) -> M:
    """Return `value` as an instance of `shape`.

    Raises UsageError, which names each wrong field.
    """
    if isinstance(value, UsageError):
        raise value
    try:
        return shape.model_validate(value)
    except RecursionError as error:
        raise UsageError("it is nested too deeply") from error
    except ValidationError as error:
        lines = [_describe_fault(shape, fault) for fault in error.errors()]
        raise UsageError("; ".join(lines)) from error


def _describe_fault(shape: type[BaseModel], fault: Any) -> str:
    """Return which field of an entry is wrong, and what is wrong with it."""
    # Positions in lists count from 1.
    parts = [part + 1 if isinstance(part, int) else part for part in fault["loc"]]
    place = ".".join(map(str, parts)) or "it"
    if fault["type"] == "missing":
        return f"{place} is missing; it must be given"
    if fault["type"] == "extra_forbidden":
        return str(UnknownName("key", place, list(shape.model_fields)))
    return f"{place} is {wrong_value(fault)}"


# The loader of libyaml is about ten times as quick; not every build of PyYAML has it.
_Yaml: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Yaml):  # type: ignore[misc]
    """A YAML loader that keeps dates as text."""

    # YAML's forms of plain values by their first character, without those of dates.
    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, form) for tag, form in forms if not tag.endswith(":timestamp")]
        for first, forms in _Yaml.yaml_implicit_resolvers.items()
    }


def _parse_yaml(path: Path, text: str) -> list[Entry]:
    """Return the entries of a YAML list with their lines. Raises LineError."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return []

        if not isinstance(node, yaml.SequenceNode):
            line = node.start_mark.line + 1
            raise LineError(
                str(path), line, "it must be a list: begin each task with -"
            )

        return [
            (item.start_mark.line + 1, loader.construct_document(item))
            for item in node.value
        ]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 0
        message = getattr(error, "problem", None) or str(error)
        raise LineError(str(path), line, f"not YAML: {message}") from error
    except (ValueError, RecursionError) as error:
        raise LineError(str(path), 0, f"not YAML that can be read: {error}") from error


def text_of(path: Path) -> str:
    """Return the text of a file. Raises LineError."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        message = f"it cannot be read ({error.strerror or error}); check the path"
        raise LineError(str(path), 0, message) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        byte = error.object[error.start]
        message = f"byte {byte:#04x} is not UTF-8; save the file as UTF-8"
        raise LineError(str(path), line, message) from error


def _refuse_constant(name: str) -> Any:
    """Raise ValueError: Python reads NaN and Infinity, but they are not JSON."""
    raise ValueError(f"{name} is not JSON")


def json_lines(path: Path, text: str) -> list[Entry]:
    """Return the JSON object of each line that is not empty, with the line's number.

    A line that is no JSON has the error for a value, which `fit` raises.
    """
    entries: list[Entry] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue

        value: JsonValue | UsageError
        try:
            value = json.loads(line, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            message = f"not one JSON object on one line: {problem(error)}"
            value = UsageError(message)
        entries.append((number, value))

    return entries


_TASK_FILE_PARSERS = {
    ".jsonl": json_lines,
    ".yaml": _parse_yaml,
    ".yml": _parse_yaml,
}
