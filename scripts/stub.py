"""Write `src/heedful/__init__.pyi`, the public names for type checkers, from the table of names."""

from pathlib import Path

import heedful
from heedful import _HOMES, _MODULES

STUB = Path(heedful.__file__).with_suffix(".pyi")


def stub() -> str:
    """Return the text of the stub."""
    imports = [f"from {home} import {name} as {name}" for name, home in _HOMES.items()]
    modules = [(home.rpartition("."), name) for name, home in _MODULES.items()]
    imports += [f"from {room} import {last} as {name}" for (room, _, last), name in modules]
    head = "# Made by scripts/stub.py from the table in __init__.py."
    return "\n".join([head, *sorted(imports), "", "__all__: list[str]", "__version__: str", ""])


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
