"""Make checks from what a task file says: `{"name": "words", "at_most": 50}`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache, partial, update_wrapper
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

from heedful import checks
from heedful.checks.evaluate import user_code
from heedful.errors import InvalidInput, UnknownName, UsageError

Check = Callable[..., Any]

_ANY = (Exception, SystemExit)  # of a module that ends the program
_OTHERS = ("ground", "known", "load", "ungrounded")


def known() -> tuple[str, ...]:
    """Return the short names of the checks that come with heedful, sorted."""
    return tuple(name for name in checks.__all__ if name.islower() and name not in _OTHERS)


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
    if name in known():
        return getattr(checks, name)  # type: ignore[no-any-return]
    module, colon, function = name.partition(":")
    if not colon:
        raise UnknownName("check", name, known())
    if not all(part.isidentifier() for part in (*module.split("."), function)):
        raise InvalidInput("name of a check", name, "a short name or module:function")

    def failed(error: BaseException) -> InvalidInput:
        why = f"importable ({type(error).__name__}: {error})"
        return InvalidInput("module of a check", name, why)

    file = folder and folder.resolve().joinpath(*module.split(".")).with_suffix(".py")
    with user_code(failed, _ANY):
        if file and file.is_file():  # it goes before an installed module
            owner: Any = _run_file(file, file.stat().st_mtime_ns)
        else:
            owner = import_module(module)
    factory: Check | None = getattr(owner, function, None)
    if not callable(factory):
        there = [key for key, value in vars(owner).items() if callable(value) and key[0] != "_"]
        raise UnknownName(f"function of {module}", function, sorted(there))
    return factory


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
        takes = signature(factory)
    except (TypeError, ValueError) as error:  # some functions written in C have no signature
        raise InvalidInput("name of a check", name, f"a Python function ({error})") from error
    places: Any = ()
    missing: list[str] = []
    for p in takes.parameters.values():
        if p.kind is Parameter.VAR_POSITIONAL:  # a task file has them as a list, under their name
            places = arguments.pop(p.name, ())
        elif p.default is p.empty and p.kind is not p.VAR_KEYWORD and p.name not in arguments:
            missing.append(p.name)
    places = places if isinstance(places, list | tuple) else (places,)
    try:
        takes.bind_partial(*places, **arguments)
    except TypeError as error:
        listed = ", ".join(takes.parameters) or "none"
        allowed = f"some of {listed} ({error})"
        raise InvalidInput(f"arguments of check {name!r}", arguments, allowed) from error
    if len(missing) == 2:  # the candidate and the context: it is the check itself
        # It keeps its name, and whether it is pure.
        return update_wrapper(partial(factory, **arguments), factory) if arguments else factory
    if missing:
        raise InvalidInput(f"{missing[0]} of check {name!r}", None, "given: it is required")
    return _call(name, factory, places, arguments)


def _call(name: str, factory: Check, places: Any, arguments: dict[str, Any]) -> Check:
    def failed(error: BaseException) -> InvalidInput:
        why = f"arguments that it takes ({type(error).__name__}: {error})"
        return InvalidInput(f"arguments of check {name!r}", arguments, why)

    with user_code(failed, _ANY):
        try:
            check: Check = factory(*places, **arguments)
        except InvalidInput as error:
            field = f"{error.field} of check {name!r}"
            raise InvalidInput(field, error.value, error.allowed) from error
        except UsageError as error:
            raise failed(error) from error
    if not callable(check):
        raise InvalidInput(f"what {name!r} returns", check, "a check: callable(candidate, context)")
    return check
