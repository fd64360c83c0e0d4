"""The lasting names of functions and checks: the same in every process that runs them.

A memory key is the lasting name of a function that makes candidates. A rule is told to
every function that one check guards, and `check_id` says whether two checks are one.
"""

import functools
import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from heedful.lessons.lesson import short_digest

MAX_MEMORY_KEY_CHARS = 200


def key_of(function: Any) -> str:
    """Return the memory key of a function: its module and its qualified name.

    For a script the module is the name of its file, for a cell of a notebook
    `__main__`. Returns "" for functions without a lasting name: lambdas, and objects
    that are not functions.
    """
    while isinstance(function, functools.partial):
        function = function.func

    function = inspect.unwrap(function)
    if not inspect.isroutine(function) or function.__name__ == "<lambda>":
        return ""
    return _name_in_module(function)


def _name_in_module(value: Any) -> str:
    """Return the module and the qualified name of a function or class."""
    module = getattr(value, "__module__", None)
    if module == "__main__":
        module = _name_of_script(value)
    if not module:
        return ""
    return f"{module}.{value.__qualname__}"[-MAX_MEMORY_KEY_CHARS:]


def _name_of_script(value: Any) -> str:
    """Return the name of the script's module; "" if another file has the function.

    In a notebook and other interactive sessions there is no script. Every run of a cell
    is a file of its own, but the name of its function stays.
    """
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if not file:
        return main.__name__

    script = Path(file)
    if Path(inspect.getfile(value)).name != script.name:
        return ""

    # `python -m package.module` knows the full name, `python script.py` does not.
    return str(getattr(main.__spec__, "name", script.stem))


def check_id(check: Callable[..., Any]) -> str:
    """Return what names a check in every function that it guards.

    A ready-made check is named by its factory and its arguments, a function by its
    place in its module. Return "" for lambdas, closures and other objects: two of them
    may differ in what they refer to.
    """
    own_id = getattr(check, "check_id", None)
    return _module_level_name(check) if own_id is None else own_id


def call_id(
    factory: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]
) -> str:
    """Return the name of a check that a factory has made of these arguments.

    Return "" if an argument is neither JSON data, nor a schema, nor of a module.
    """
    call = inspect.signature(factory).bind(*arguments, **options)
    call.apply_defaults()
    try:
        text = json.dumps(call.arguments, default=_as_json, sort_keys=True)
    # A class may have no JSON Schema, and data may be nested too deep.
    except (TypeError, ValueError, RuntimeError):
        return ""
    return f"{factory.__name__} {short_digest(text)}"


def _as_json(argument: Any) -> Any:
    """Return an argument as JSON data: the schema of a model, or a lasting name.

    Raises TypeError for all else.
    """
    if hasattr(argument, "model_json_schema"):
        return argument.model_json_schema()
    name = _module_level_name(argument)
    return name or os.fspath(argument)


def _module_level_name(value: Any) -> str:
    """Return the name of a function or class that its module has under this name."""
    member: Any = sys.modules.get(getattr(value, "__module__", None) or "")
    for part in getattr(value, "__qualname__", "").split("."):
        member = getattr(member, part, None)
    return _name_in_module(value) if member is value and value is not None else ""
