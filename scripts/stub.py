"""Write the stubs of packages with lazy names, for type checkers, from their tables of names."""

from pathlib import Path
from types import ModuleType

import heedful
from heedful import checks

PACKAGES = (heedful, checks)


def stub_path(package: ModuleType) -> Path:
    """Return where the stub of a package is."""
    return Path(str(package.__file__)).with_suffix(".pyi")


def stub(package: ModuleType) -> str:
    """Return the text of the stub of a package."""
    imports = [f"from {home} import {name} as {name}" for name, home in package._HOMES.items()]
    for name, home in getattr(package, "_MODULES", {}).items():
        room, _, last = home.rpartition(".")
        imports.append(f"from {room} import {last} as {name}")
    version = ["__version__: str"] if package is heedful else []
    head = "# Made by scripts/stub.py from the table in __init__.py."
    return "\n".join([head, *sorted(imports), "", "__all__: list[str]", *version, ""])


if __name__ == "__main__":
    for package in PACKAGES:
        stub_path(package).write_text(stub(package), encoding="utf-8")
