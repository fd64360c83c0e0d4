"""Task files: JSON Lines, YAML or TOML with one schema, and errors that name the line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, time
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from heedful.checks.evaluate import Check
from heedful.checks.loading import load
from heedful.cli.lines import Entry, json_lines, text_of
from heedful.errors import InvalidInput, TaskFileError, UsageError
from heedful.loop.decide import Policy
from heedful.loop.policies import goal, policy
from heedful.loop.record import Goal, check_goals

# Values of one entry, those behind YAML aliases each time: a file of 1 kB can stand for 10⁹.
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
class Task:
    """One entry of a task file; `line` is where it begins, from 1, 0 where that is not known."""

    id: str
    task: str
    context: Any
    goals: tuple[Goal, ...]
    checks: tuple[Check, ...]
    policy: Policy | None
    line: int

    @property
    def family(self) -> str:
        """What its context says it belongs to; "" where it says nothing."""
        named = self.context.get("family") if isinstance(self.context, Mapping) else None
        return "" if named is None else str(named)


def read_tasks(path: Path) -> list[Task]:
    """The tasks of a .jsonl, .yaml, .yml or .toml file, in order, at least one.

    Checks are loaded, and modules that they name are looked for beside the file first. Raises
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
        return Task(
            _fitting(value, "id"),
            _fitting(value, "task"),
            value.get("context"),
            _goals(_fitting(value, "goals")),
            tuple(load(spec, folder=path.parent) for spec in _fitting(value, "checks")),
            policy(value["policy"]) if "policy" in value else None,
            entry.line,
        )
    except UsageError as error:
        raise TaskFileError(str(path), entry.line, str(error)) from error
    except RecursionError as error:
        raise TaskFileError(str(path), entry.line, "it is nested too deeply") from error


def _goals(written: list[Any]) -> tuple[Goal, ...]:
    goals = tuple(map(goal, written))
    check_goals(goals)
    return goals


def _fitting(value: Mapping[str, Any], key: str) -> Any:
    fits, allowed = FITTING[key]
    if not fits(value.get(key)):
        raise InvalidInput(key, value.get(key), allowed)
    return value[key]


def _plain(value: Any) -> Any:
    """The value as JSON would hold it, whichever format it came from. Raises InvalidInput."""
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
                return {_key(key): plain(each) for key, each in one.items()}
            case list() | tuple():
                return [plain(each) for each in one]
            case _:
                pass
        raise InvalidInput("a value", one, "what JSON knows: text, numbers, lists, objects")

    return plain(value)


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise InvalidInput("a key", key, "text (quote it)")
    return key


# libyaml is about ten times as quick; not every build has it.
_Yaml: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Yaml):  # type: ignore[misc]
    """Refuses a key that is given twice, of which YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping. Raises ConstructorError."""
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
    import tomllib

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
