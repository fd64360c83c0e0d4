"""Write the stubs of packages with lazy names, for type checkers, from their tables of
names.
"""

from pathlib import Path
from types import ModuleType

import heedful
from heedful import checks

PACKAGES = (heedful, checks)


def stub_path(package: ModuleType) -> Path:
    """Return where the stub of a package is."""
    return Path(str(package.__file__)).with_suffix(".pyi")


def stub(package: ModuleType) -> str:
    """Return the text of the stub of a package: imports by module, and `__all__`."""
    rooms: dict[str, list[str]] = {}
    for name, home in package._HOMES.items():
        rooms.setdefault(home, []).append(name)
    for name, home in getattr(package, "_MODULES", {}).items():
        room, _, last = home.rpartition(".")
        rooms.setdefault(room, []).append(f"{last} as {name}")
    lines = ["# Made by scripts/stub.py from the table in __init__.py."]
    lines += [
        f"from {room} import {', '.join(sorted(rooms[room]))}" for room in sorted(rooms)
    ]
    lines.append(f"__all__ = {list(package.__all__)}")
    version = ["__version__: str"] if package is heedful else []
    return "\n".join([*lines, *version, ""])


if __name__ == "__main__":
    for package in PACKAGES:
        stub_path(package).write_text(stub(package), encoding="utf-8")
