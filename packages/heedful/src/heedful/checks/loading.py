"""Make checks from the entries of a task file: `{"name": "words", "at_most": 50}`.

A name is that of a factory of heedful, or `module:function`. Such a function is a check
if two of its parameters are left for the candidate and the context; otherwise it is a
factory that returns a check.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial, update_wrapper
from importlib import import_module
from inspect import Parameter, Signature, signature
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

from heedful import checks
from heedful.errors import InvalidInput, UnknownName, UsageError, UserCode
from heedful.models import names_function
from heedful.validation import Document, Fields, require

Check = Callable[..., Any]

_IMPORT_ERRORS = (Exception, SystemExit)  # a module may try to end the program
# Functions of `heedful.checks` that make no check.
_NON_CHECK_NAMES = ("calibrate", "ground", "known", "load")


def known() -> tuple[str, ...]:
    """Return the short names of the checks that come with heedful, sorted."""
    return tuple(
        name
        for name in checks.__all__
        if name.islower() and name not in _NON_CHECK_NAMES
    )


def names_code(spec: object) -> bool:
    """Return whether an entry of a task file names a Python function.

    It does by its name, or by the model of a critic; so may the members of a panel.
    """
    if isinstance(spec, Sequence) and not isinstance(spec, str):
        return any(map(names_code, spec))
    if not isinstance(spec, Mapping):
        return False

    has_own_function = ":" in str(spec.get("name"))
    has_own_model = names_function(str(spec.get("model")))
    return has_own_function or has_own_model or names_code(spec.get("members"))


def load(spec: Fields, folder: Path | None = None) -> Check:
    """Make the check for an entry of a task file: `spec` has a `name` and arguments.

    `name` is a short name (see `known`) or `module:function`. A module in `folder`, the
    folder of the task file, precedes an installed module. If its function requires two
    parameters besides the given arguments, the candidate and the context, it is the
    check, with the arguments bound. Otherwise it is called with the arguments and
    returns the check. What has a short name is always called. Raises UnknownName, and
    InvalidInput for a wrong value or a module that cannot be imported.
    """
    require(isinstance(spec, Mapping), "check", spec, 'an object with a "name"')
    name = spec.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidInput(
            "name of a check", name, f"one of {', '.join(known())}, module:function"
        )
    arguments = {str(key): value for key, value in spec.items() if key != "name"}
    return bind_check(name, _find_factory(name, folder), arguments)


def _find_factory(name: str, folder: Path | None) -> Check:
    """Return the function with this name. Raises UnknownName, InvalidInput."""
    if name in known():
        return getattr(checks, name)  # type: ignore[no-any-return]

    module_name, colon, function_name = name.partition(":")
    if not colon:
        raise UnknownName("check", name, known())
    parts = module_name.split(".")
    if not all(part.isidentifier() for part in (*parts, function_name)):
        raise InvalidInput("name of a check", name, "a short name or module:function")

    to_error = partial(_invalid_input, "module of a check", name, "importable")
    with UserCode(to_error, _IMPORT_ERRORS):
        module = _import(parts, folder)

    factory: Check | None = getattr(module, function_name, None)
    if not callable(factory):
        functions = [
            key
            for key, value in vars(module).items()
            if callable(value) and key[0] != "_"
        ]
        raise UnknownName(
            f"function of {module_name}", function_name, sorted(functions)
        )
    return factory


def _import(parts: Sequence[str], folder: Path | None) -> Any:
    """Import a module of `folder`, or else an installed one."""
    if folder is not None:
        file = folder.resolve().joinpath(*parts).with_suffix(".py")
        if file.is_file():
            return _run_file(file, file.stat().st_mtime_ns)
    return import_module(".".join(parts))


@cache
def _run_file(path: Path, changed: int) -> SimpleNamespace:
    """Run a file and return the names that it defines.

    The result is cached until `changed`, the time of the file's last change, differs.
    The file is not added to `sys.modules`, because it may have the name of another
    module.
    """
    sys.path.insert(0, str(path.parent))  # the file may import its neighbours
    try:
        return SimpleNamespace(
            **run_path(str(path), run_name=f"_heedful_check_{path.stem}")
        )
    finally:
        sys.path.remove(str(path.parent))


def bind_check(name: str, factory: Check, arguments: Document) -> Check:
    """Return the check that `factory` makes from the arguments, as `load` does.

    Raises UnknownName, InvalidInput.
    """
    try:
        parameters = signature(factory)
    except (TypeError, ValueError) as error:
        # Some functions written in C have no signature.
        raise InvalidInput(
            "name of a check", name, f"a Python function ({error})"
        ) from error
    positional = _take_positional(parameters, arguments)
    try:
        parameters.bind_partial(*positional, **arguments)
    except TypeError as error:
        names = list(parameters.parameters)
        for argument in arguments:
            if argument not in names:
                raise UnknownName(
                    f"argument of check {name!r}", argument, names
                ) from error
        raise InvalidInput(
            f"what {name!r} is given", arguments, f"arguments that it takes ({error})"
        ) from error

    variable = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    # The required parameters without an argument.
    missing = [
        parameter.name
        for parameter in parameters.parameters.values()
        if parameter.default is Parameter.empty
        and parameter.kind not in variable
        and parameter.name not in arguments
    ]
    # The candidate and the context; what has a short name is a factory.
    if len(missing) == 2 and name not in known():
        if not arguments:
            return factory
        # The copy has the same name and the same `pure`.
        return update_wrapper(partial(factory, **arguments), factory)
    if missing:
        raise InvalidInput(
            f"{missing[0]} of check {name!r}", None, "given: it is required"
        )

    check = _call_factory(name, factory, positional, arguments)
    require(
        callable(check),
        f"what {name!r} returns",
        check,
        "a check: callable(candidate, context)",
    )
    return check


def _take_positional(parameters: Signature, arguments: Document) -> tuple[Any, ...]:
    """Remove the arguments of a parameter such as `*needles`, and return them.

    In a task file they are a list, or one value: {"name": "contains", "needles": "x"}.
    """
    for parameter in parameters.parameters.values():
        if parameter.kind is Parameter.VAR_POSITIONAL:
            values = arguments.pop(parameter.name, ())
            return tuple(values) if isinstance(values, list | tuple) else (values,)
    return ()


def _call_factory(
    name: str, factory: Check, positional: tuple[Any, ...], arguments: Document
) -> Check:
    """Return what the factory makes; its errors name the check."""
    field = f"what {name!r} is given"
    to_error = partial(_invalid_input, field, arguments, "arguments that it takes")
    with UserCode(to_error, _IMPORT_ERRORS):
        try:
            check: Check = factory(*positional, **arguments)
        except InvalidInput as error:
            field = f"{error.field} of check {name!r}"
            raise InvalidInput(field, error.value, error.allowed) from error
        except UsageError as error:
            raise to_error(error) from error
    return check


def _invalid_input(
    field: str, value: object, allowed: str, error: BaseException
) -> InvalidInput:
    """Return the error about user code that failed because of a task file."""
    return InvalidInput(field, value, f"{allowed} ({type(error).__name__}: {error})")
