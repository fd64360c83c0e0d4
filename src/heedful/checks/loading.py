"""Make checks from what a task file says: `{"name": "words", "at_most": 50}`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial, update_wrapper
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from runpy import run_path
from types import ModuleType, SimpleNamespace
from typing import Any

from heedful.errors import InvalidInput, UnknownName

Check = Callable[..., Any]

FACTORIES = (
    *("characters", "constant", "contains", "critic", "critics", "deviation", "equals"),
    *("excludes", "finite", "grounding", "insights", "json_schema", "not_empty", "precision"),
    *("predictions", "python_tests", "ranges", "regex", "results", "rows", "spread", "words"),
)
"""The factories in `heedful.checks`, sorted."""


def known() -> tuple[str, ...]:
    """Return the short names of the checks that come with heedful, sorted."""
    return FACTORIES


def load(spec: Mapping[str, Any], folder: Path | None = None) -> Check:
    """Make the check that a task file asks for: `name`, and the arguments of its factory.

    `name` is a short name (see `known`) or `module:function`; a module in `folder`, where the task
    file is, goes before an installed one. The function is called with the arguments and returns the
    check; a function of `(candidate, context)` is itself the check, with further arguments bound.
    Raises UnknownName for an unknown name, and InvalidInput for a missing, unknown or wrong
    argument and for a module that cannot be imported.
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
    with _user_code("module of a check", name, "importable"):
        owner = _import(module, None if name in FACTORIES else folder)
        factory: Check | None = getattr(owner, function, None)
    if factory is None:
        there = [key for key, value in vars(owner).items() if callable(value) and key[0] != "_"]
        raise UnknownName(f"function of {module}", function, sorted(there))
    if not callable(factory):
        raise InvalidInput("name of a check", name, "the name of a function")
    return factory


@contextmanager
def _user_code(field: str, value: object, allowed: str) -> Iterator[None]:
    """Turn whatever the user's code raises inside this block into InvalidInput."""
    try:
        yield
    except (Exception, SystemExit) as error:  # user code
        why = f"{allowed} ({type(error).__name__}: {error})"
        raise InvalidInput(field, value, why) from error


def _import(module: str, folder: Path | None) -> ModuleType | SimpleNamespace:
    """Import a module; a file of that name in `folder` goes before an installed module."""
    if folder is not None:
        stem = folder.resolve().joinpath(*module.split("."))
        for path in (stem.with_suffix(".py"), stem / "__init__.py"):
            if path.is_file():
                return _run_file(path, path.stat().st_mtime_ns)
    return import_module(module)


@cache
def _run_file(path: Path, changed: int) -> SimpleNamespace:
    """Return what a file defines; run it again only after it `changed`.

    It is no entry of `sys.modules`, because it may have the name of another module.
    """
    sys.path.insert(0, str(path.parent))  # for what it imports from its folder
    try:
        return SimpleNamespace(**run_path(str(path), run_name=f"_heedful_check_{path.stem}"))
    finally:
        sys.path.remove(str(path.parent))


def made(name: str, factory: Check, arguments: dict[str, Any]) -> Check:
    """Call the factory with the arguments; a function that is itself a check gets them bound.

    Raises InvalidInput.
    """
    try:
        parameters = signature(factory).parameters
    except (TypeError, ValueError) as error:  # some functions written in C have no signature
        raise InvalidInput("name of a check", name, f"a Python function ({error})") from error
    missing = _missing(name, parameters, arguments)
    places: Any = ()
    for p in parameters.values():
        if p.kind is Parameter.VAR_POSITIONAL:  # a task file has them as a list, under their name
            places = arguments.pop(p.name, ())
    places = places if isinstance(places, list | tuple) else (places,)
    if len(missing) == 2:  # the candidate and the context: it is the check itself
        # It keeps its name, and whether it is pure.
        return update_wrapper(partial(factory, **arguments), factory) if arguments else factory
    if missing:
        raise InvalidInput(f"{missing[0]} of check {name!r}", None, "given: it is required")
    wrong: InvalidInput | None = None
    check: Check | None = None
    with _user_code(f"arguments of check {name!r}", arguments, "arguments that it takes"):
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
    """Return the parameters that lack a value. Raises InvalidInput for an unknown argument."""
    open_ended = any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())
    for argument, value in arguments.items():
        if argument not in parameters and not open_ended:
            listed = f"left out; it takes {', '.join(parameters) or 'no arguments'}"
            raise InvalidInput(f"{argument} of check {name!r}", value, listed)
    optional = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    needed = [p for p in parameters.values() if p.default is p.empty and p.kind not in optional]
    return [p.name for p in needed if p.name not in arguments]
