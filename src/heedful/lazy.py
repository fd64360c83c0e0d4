"""The lazy names of packages: a name is imported at its first use, so that a package loads fast.

The table of a package is the only list of its names; `scripts/stub.py` makes `__init__.pyi` from it
for type checkers.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

Lookup = Callable[[str], Any]


def lazy(
    package: str, table: Mapping[str, str], modules: Mapping[str, str] | None = None
) -> tuple[dict[str, str], Lookup, Callable[[], list[str]]]:
    """Return the module of each name, and the `__getattr__` and the `__dir__` of the package.

    `table` maps a module of the package to its names, separated by blanks. `modules` maps names to
    modules that are public as a whole.
    """
    homes = {name: f"{package}.{home}" for home, names in table.items() for name in names.split()}
    whole = modules or {}

    def look_up(name: str) -> Any:
        if name in homes:
            value = getattr(import_module(homes[name]), name)
        elif name in whole:
            value = import_module(whole[name])
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    return homes, look_up, lambda: sorted({*vars(sys.modules[package]), *homes, *whole})
