"""Checks by name, as task files give them: `{"name": "words", "at_most": 50}`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial, update_wrapper
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from runpy import run_path
from typing import Any

from heedful.errors import InvalidInput, UnknownName

Check = Callable[..., Any]

FACTORIES = (
    *("characters", "constant", "contains", "critic", "critics", "deviation", "equals"),
    *("excludes", "finite", "grounding", "insights", "json_schema", "leakage", "not_empty"),
    *("precision", "predictions", "python_tests", "ranges", "regex", "results", "rows"),
    *("skill", "spread", "words"),
)
"""The factories in `heedful.checks`, sorted."""


def known() -> tuple[str, ...]:
    """The short names of the checks that come with heedful, sorted."""
    return FACTORIES


def load(spec: Mapping[str, Any], folder: Path | None = None) -> Check:
    """The check that a task file asks for: `name` and the arguments of its factory.

    `name` is a short name (see `known`) or `module:function`; a module in `folder`, the task file's
    own, goes before an installed one. A function is called with the arguments and answers with the
    check; one that takes `(candidate, context)` itself is the check, further arguments bound.
    Raises UnknownName for a name that nothing answers to, and InvalidInput for a missing, unknown
    or wrong argument and for a module that cannot be imported.
    """
    if not isinstance(spec, Mapping):
        raise InvalidInput("check", spec, 'an object with a "name"')
    name = spec.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidInput("name of a check", name, f"one of {', '.join(known())}, module:function")
    arguments = {str(key): value for key, value in spec.items() if key != "name"}
    return made(name, _factory(name, folder), arguments)


def _factory(name: str, folder: Path | None) -> Check:
    full = f"heedful.checks:{name}" if name in FACTORIES else name
    module, colon, function = full.partition(":")
    if not colon:
        raise UnknownName("check", name, known())
    if not all(part.isidentifier() for part in (*module.split("."), function)):
        raise InvalidInput("name of a check", name, "a short name or module:function")
    with _theirs("module of a check", name, "importable"):
        names = _names(module, function, None if name in FACTORIES else folder)
    if function not in names:
        there = [key for key, value in names.items() if callable(value) and key[0] != "_"]
        raise UnknownName(f"function of {module}", function, sorted(there))
    if not callable(names[function]):
        raise InvalidInput("name of a check", name, "the name of a function")
    made: Check = names[function]
    return made


@contextmanager
def _theirs(field: str, value: object, allowed: str) -> Iterator[None]:
    """The user's code runs within this alone: whatever it raises is an InvalidInput."""
    try:
        yield
    except (Exception, SystemExit) as error:  # user code
        why = f"{allowed} ({type(error).__name__}: {error})"
        raise InvalidInput(field, value, why) from error


def _names(module: str, function: str, folder: Path | None) -> Mapping[str, Any]:
    """Return what a module defines; a function may be imported when it is first used."""
    if folder is not None:
        stem = folder.resolve().joinpath(*module.split("."))
        for path in (stem.with_suffix(".py"), stem / "__init__.py"):
            if path.is_file():
                return _ran(path, path.stat().st_mtime_ns)
    loaded = import_module(module)
    lazy = {function: getattr(loaded, function)} if hasattr(loaded, function) else {}
    return {**vars(loaded), **lazy}


@cache
def _ran(path: Path, changed: int) -> Mapping[str, Any]:
    """What a file defines, run once for each time it `changed`: it may be called like another."""
    sys.path.insert(0, str(path.parent))  # for what it imports from its folder
    try:
        return run_path(str(path), run_name=f"_heedful_check_{path.stem}")
    finally:
        sys.path.remove(str(path.parent))


def made(name: str, factory: Check, arguments: dict[str, Any]) -> Check:
    """The check of that name: what its factory makes of the arguments, or itself, these bound.

    Raises InvalidInput.
    """
    try:
        parameters = signature(factory).parameters
    except (TypeError, ValueError) as error:  # some functions written in C do not tell
        raise InvalidInput("name of a check", name, f"a Python function ({error})") from error
    missing = _missing(name, parameters, arguments)
    places: Any = ()
    for p in parameters.values():
        if p.kind is Parameter.VAR_POSITIONAL:  # a task file gives them as a list, under their name
            places = arguments.pop(p.name, ())
    places = places if isinstance(places, list | tuple) else (places,)
    if len(missing) == 2:  # the candidate and the context: it is the check itself
        return _bound(factory, arguments)
    if missing:
        raise InvalidInput(f"{missing[0]} of check {name!r}", None, "given: it is required")
    wrong: InvalidInput | None = None
    check: Check | None = None
    with _theirs(f"arguments of check {name!r}", arguments, "arguments that it takes"):
        try:
            check = factory(*places, **arguments)
        except InvalidInput as error:
            wrong = error
    if wrong is not None:
        raise InvalidInput(
            f"{wrong.field} of check {name!r}", wrong.value, wrong.allowed
        ) from wrong
    if not callable(check):
        raise InvalidInput(f"what {name!r} returns", check, "a check: callable(candidate, context)")
    return check


def _missing(
    name: str, parameters: Mapping[str, Parameter], arguments: Mapping[str, Any]
) -> list[str]:
    """The parameters that need a value and have none; raises InvalidInput for unknown arguments."""
    open_ended = any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())
    for argument, value in arguments.items():
        if argument not in parameters and not open_ended:
            listed = f"left out; it takes {', '.join(parameters) or 'no arguments'}"
            raise InvalidInput(f"{argument} of check {name!r}", value, listed)
    optional = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    needed = [p for p in parameters.values() if p.default is p.empty and p.kind not in optional]
    return [p.name for p in needed if p.name not in arguments]


def _bound(check: Check, arguments: Mapping[str, Any]) -> Check:
    """The check with further arguments bound; it keeps its name and whether it is pure."""
    return update_wrapper(partial(check, **arguments), check) if arguments else check
