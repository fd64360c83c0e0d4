"""Checks by name, as task files give them: `{"name": "words", "at_most": 50}`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import ModuleType
from typing import Any

from errata.errors import InvalidInput, UnknownName

Check = Callable[..., Any]

FACTORIES: Mapping[str, str] = {
    "characters": "errata.checks.text:characters",
    "contains": "errata.checks.text:contains",
    "equals": "errata.checks.text:equals",
    "excludes": "errata.checks.text:excludes",
    "json_schema": "errata.checks.schema:json_schema",
    "not_empty": "errata.checks.text:not_empty",
    "python_tests": "errata.checks.program:python_tests",
    "regex": "errata.checks.pattern:regex",
    "words": "errata.checks.text:words",
}
"""The factory behind each short name, as `module:function`."""

# What importing or calling a user's module may raise where that module is to blame.
_BROKEN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)


def known() -> tuple[str, ...]:
    """The short names of the checks that come with errata, sorted."""
    return tuple(sorted(FACTORIES))


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
    return _made(name, _factory(name, folder), arguments)


def _factory(name: str, folder: Path | None) -> Check:
    module_name, colon, function = FACTORIES.get(name, name).partition(":")
    if not colon:
        raise UnknownName("check", name, known())
    parts = [*module_name.split("."), function]
    if not all(part.isidentifier() for part in parts):
        raise InvalidInput("name of a check", name, "a short name or module:function")
    module = _module(module_name, None if name in FACTORIES else folder, name)
    found = getattr(module, function, None)
    if found is None:
        names = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
        raise UnknownName(f"function of {module_name}", function, sorted(names))
    if not callable(found):
        raise InvalidInput("name of a check", name, "the name of a function")
    made: Check = found
    return made


def _module(name: str, folder: Path | None, check: str) -> ModuleType:
    try:
        path = _beside(name, folder) if folder is not None else None
        return import_module(name) if path is None else _from_file(path)
    except _BROKEN as error:
        why = f"importable ({type(error).__name__}: {error})"
        raise InvalidInput("module of a check", check, why) from error


def _beside(name: str, folder: Path) -> Path | None:
    stem = folder.resolve().joinpath(*name.split("."))
    places = (stem.with_suffix(".py"), stem / "__init__.py")
    return next((place for place in places if place.is_file()), None)


def _from_file(path: Path) -> ModuleType:
    """The module of a file, run once for each version of the file."""
    stat = path.stat()
    version = f"{path}:{stat.st_mtime_ns}:{stat.st_size}"
    private = f"_errata_check_{sha256(version.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"
    if private in sys.modules:
        return sys.modules[private]
    spec = spec_from_file_location(private, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is not a Python module")
    module = module_from_spec(spec)
    sys.modules[private] = module
    sys.path.insert(0, str(path.parent))  # for what the module itself imports from its folder
    done = False
    try:
        spec.loader.exec_module(module)
        done = True
    finally:
        sys.path.remove(str(path.parent))
        if not done:
            del sys.modules[private]
    return module


def _made(name: str, factory: Check, arguments: dict[str, Any]) -> Check:
    try:
        shape = signature(factory)
    except (TypeError, ValueError):  # some functions written in C do not tell
        shape = Signature([Parameter("arguments", Parameter.VAR_KEYWORD)])
    if _is_check(shape, arguments):
        return _bound(factory, arguments)
    several = [p.name for p in shape.parameters.values() if p.kind is Parameter.VAR_POSITIONAL]
    _refuse_arguments(name, shape, arguments)
    given = arguments.pop(several[0], ()) if several else ()
    try:
        check = factory(*([given] if isinstance(given, str) else given), **arguments)
    except InvalidInput as error:
        raise InvalidInput(
            f"{error.field} of check {name!r}", error.value, error.allowed
        ) from error
    except _BROKEN as error:
        why = f"arguments that it takes ({type(error).__name__}: {error})"
        raise InvalidInput(f"arguments of check {name!r}", arguments, why) from error
    if not callable(check):
        raise InvalidInput(f"what {name!r} returns", check, "a check: callable(candidate, context)")
    return check  # type: ignore[no-any-return]


def _is_check(shape: Signature, arguments: Mapping[str, Any]) -> bool:
    """Whether it takes a candidate and a context itself, next to the arguments."""
    required = [
        p
        for p in shape.parameters.values()
        if p.default is Parameter.empty and p.kind in _BY_PLACE and p.name not in arguments
    ]
    if len(required) != 2:
        return False
    try:
        shape.bind(None, None, **arguments)
    except TypeError:
        return False
    return True


_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def _bound(check: Check, arguments: Mapping[str, Any]) -> Check:
    if not arguments:
        return check
    bound = partial(check, **arguments)
    fields = {
        "name": getattr(check, "name", getattr(check, "__name__", "check")),
        "pure": getattr(check, "pure", False),
    }
    for key, value in fields.items():
        setattr(bound, key, value)
    return bound


def _refuse_arguments(name: str, shape: Signature, arguments: Mapping[str, Any]) -> None:
    parameters = shape.parameters.values()
    takes = [p.name for p in parameters if p.kind is not Parameter.VAR_KEYWORD]
    anything = len(takes) < len(parameters)
    listed = ", ".join(takes) or "no arguments"
    for argument, value in arguments.items():
        if argument not in takes and not anything:
            raise InvalidInput(
                f"{argument} of check {name!r}", value, f"left out; it takes {listed}"
            )
    for p in parameters:
        several = p.kind is Parameter.VAR_POSITIONAL
        if several and not isinstance(arguments.get(p.name, ()), str | list | tuple):
            raise InvalidInput(f"{p.name} of check {name!r}", arguments[p.name], "text or a list")
        optional = p.default is not Parameter.empty or p.kind is Parameter.VAR_KEYWORD
        if p.name not in arguments and not (optional or (several and name not in FACTORIES)):
            raise InvalidInput(f"{p.name} of check {name!r}", None, "given: it is required")
