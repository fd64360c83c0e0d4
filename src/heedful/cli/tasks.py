"""Files that people write: tasks as JSON Lines, YAML or TOML; every error names its line."""

from __future__ import annotations

import gzip
import json
import re
import tomllib
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, time
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from heedful.checks.evaluate import Check
from heedful.checks.loading import load
from heedful.errors import InvalidInput, LineError, TaskFileError, UsageError
from heedful.loop.decide import Policy
from heedful.loop.policies import goal, policy
from heedful.loop.record import Goal, check_goals

# Values of one entry, counted at every YAML alias: a file of 1 kB can stand for 10⁹.
MOST_VALUES = 1_000_000
LONGEST_ID = 200
KEYS = ("id", "task", "context", "goals", "checks", "policy")
FITTING: Mapping[str, tuple[Callable[[Any], object], str]] = {
    "id": (
        lambda id: isinstance(id, str) and 0 < len(id) <= LONGEST_ID and id.isprintable(),
        f"text of 1 to {LONGEST_ID} printable characters (quote a number)",
    ),
    "task": (lambda task: isinstance(task, str) and task.strip(), "text that says what to do"),
    "goals": (lambda goals: isinstance(goals, list), "a list"),
    "checks": (
        lambda checks: isinstance(checks, list) and checks,
        'a list of at least one, such as [{"name": "not_empty"}]: without a check, all pass',
    ),
}
_AT_LINE = re.compile(r"at line (\d+)")
_TOML_HEAD = re.compile(r"""\s*\[\[\s*(tasks|"tasks"|'tasks')\s*\]\]""")


@dataclass(frozen=True)
class Entry:
    """An entry of a file and the line where it begins, from 1; 0 if the line is unknown."""

    line: int
    value: Any


@dataclass(frozen=True)
class Task:
    """A task of a file; `line` is where it begins, from 1, or 0 if the line is unknown."""

    id: str
    task: str
    context: Any
    goals: tuple[Goal, ...]
    checks: tuple[Check, ...]
    policy: Policy | None
    line: int

    @property
    def family(self) -> str:
        """Return the family that its context names, or ""."""
        named = self.context.get("family") if isinstance(self.context, Mapping) else None
        return "" if named is None else str(named)


def read_tasks(path: Path) -> list[Task]:
    """Read the tasks of a .jsonl, .yaml, .yml or .toml file, in order, at least one.

    Checks are loaded; the modules that they name are looked for beside the file first. Raises
    TaskFileError with the line.
    """
    readers: Mapping[str, Callable[[Path, str], list[Entry]]] = {
        ".jsonl": partial(json_lines, kind=TaskFileError),
        ".yaml": _yaml,
        ".yml": _yaml,
        ".toml": _toml,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        kinds = ", ".join(readers)
        raise TaskFileError(str(path), 0, f"its name must end in one of {kinds}")
    entries = reader(path, text_of(path, TaskFileError))
    if not entries:
        raise TaskFileError(str(path), 0, "it holds no task; give at least one with id and task")
    tasks: dict[str, Task] = {}
    for entry in entries:
        task = _task(path, entry)
        if task.id in tasks:
            what = f"id {task.id!r} is taken by the task of line {tasks[task.id].line}"
            raise TaskFileError(str(path), entry.line, f"{what}; give another")
        tasks[task.id] = task
    return list(tasks.values())


def _task(path: Path, entry: Entry) -> Task:
    try:
        value = _plain(entry.value)
        if not isinstance(value, dict):
            raise InvalidInput("a task", value, "an object with id, task and checks")
        for key in value:
            if key not in KEYS:
                raise InvalidInput("a key", key, f"one of {', '.join(KEYS)}")
        value = {"goals": [], **{key: given for key, given in value.items() if given is not None}}
        id, task = _fit(value, "id"), _fit(value, "task")
        goals = tuple(map(goal, _fit(value, "goals")))
        check_goals(goals)
        return Task(
            id,
            task,
            value.get("context"),
            goals,
            tuple(load(spec, folder=path.parent) for spec in _fit(value, "checks")),
            policy(value["policy"]) if "policy" in value else None,
            entry.line,
        )
    except UsageError as error:
        raise TaskFileError(str(path), entry.line, str(error)) from error
    except RecursionError as error:
        raise TaskFileError(str(path), entry.line, "it is nested too deeply") from error


def _fit(value: Mapping[str, Any], key: str) -> Any:
    fits, allowed = FITTING[key]
    if not fits(value.get(key)):
        raise InvalidInput(key, value.get(key), allowed)
    return value[key]


def _plain(value: Any) -> Any:
    """Return the value as JSON would hold it, whatever its format. Raises InvalidInput."""
    room = iter(range(MOST_VALUES))

    def plain(one: Any) -> Any:
        if next(room, None) is None:
            raise InvalidInput("a task", "too large", f"made of at most {MOST_VALUES} values")
        match one:
            case None | bool() | int() | float() | str():
                return one
            case date() | time():
                return one.isoformat()
            case Mapping():
                for key in one:
                    if not isinstance(key, str):
                        raise InvalidInput("a key", key, "text (quote it)")
                return {key: plain(each) for key, each in one.items()}
            case list() | tuple():
                return [plain(each) for each in one]
            case _:
                pass
        raise InvalidInput("a value", one, "JSON data: text, numbers, lists, objects")

    return plain(value)


# The formats. libyaml is about ten times as quick; not every build has it.
_Yaml: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Yaml):  # type: ignore[misc]
    """Refuses duplicate keys, because YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping. Raises ConstructorError."""
        keys = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in keys:
                what = f"key {key.value!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, what, key.start_mark)
            keys.add((key.tag, str(key.value)))
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        return made


def _yaml(path: Path, text: str) -> list[Entry]:
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is not None and not isinstance(node, yaml.SequenceNode):
            line = node.start_mark.line + 1
            raise TaskFileError(str(path), line, "the file must be a list of tasks: begin with -")
        return [
            Entry(item.start_mark.line + 1, loader.construct_document(item))
            for item in (node.value if node else ())
        ]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = mark.line + 1 if mark else text.count("\n", 0, getattr(error, "position", 0)) + 1
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise TaskFileError(str(path), line, f"not YAML: {what}") from error
    except (ValueError, RecursionError) as error:
        raise TaskFileError(str(path), 0, f"not YAML that can be read: {error}") from error


def _toml(path: Path, text: str) -> list[Entry]:
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        found = _AT_LINE.search(str(error))
        line = int(found[1]) if found else 0
        raise TaskFileError(str(path), line, f"not TOML: {error}") from error
    others = sorted(document.keys() - {"tasks"})
    tasks = document.get("tasks", [])
    if others or not isinstance(tasks, list):
        what = f"{others[0] if others else 'tasks'!r} is not expected; write each task as [[tasks]]"
        raise TaskFileError(str(path), 0, what)
    heads = [n for n, line in enumerate(text.split("\n"), 1) if _TOML_HEAD.match(line)]
    lines = heads if len(heads) == len(tasks) else [0] * len(tasks)
    return list(map(Entry, lines, tasks))


def text_of(path: Path, kind: type[LineError]) -> str:
    """Read a file as text, unpacked if its name ends in .gz. Raises `kind`."""
    try:
        data = path.read_bytes()
    except OSError as error:
        what = f"it cannot be read ({error.strerror or error}); check the path"
        raise kind(str(path), 0, what) from error
    try:
        data = gzip.decompress(data) if path.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error) as error:
        what = f"it is no whole gzip file ({error}); fetch it again, or take .gz off its name"
        raise kind(str(path), 0, what) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = f"byte {data[error.start]:#04x} is not UTF-8; save the file as UTF-8"
        raise kind(str(path), line, what) from error


def json_lines(path: Path, text: str, kind: type[LineError]) -> list[Entry]:
    """Parse the JSON object of every line that is not empty. Raises `kind`."""
    entries = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line, object_pairs_hook=_refuse_twice, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            what = str(error)
            if isinstance(error, RecursionError):
                what = "it is nested too deeply"
            elif isinstance(error, json.JSONDecodeError):  # its own line is always 1
                what = f"{error.msg} (column {error.colno})"
            raise kind(str(path), number, f"not one JSON object on one line: {what}") from error
        entries.append(Entry(number, value))
    return entries


def _refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} is given twice")
    return made


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
