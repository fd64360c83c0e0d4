"""`docs/openapi.json`, what the service says of itself; with `--check` it has to be
there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from heedful.store.sqlite import in_file
from heedful_server.app import application
from heedful_server.setup import Setup

FILE = Path(__file__).resolve().parent.parent / "docs" / "openapi.json"


def described() -> str:
    """The description of the service as it is in this checkout."""
    spec = application(Setup(store=in_file(":memory:"))).openapi()
    return json.dumps(spec, indent=1, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the file, or with `--check` compare it; return 1 if it differs."""
    text = described()
    if "--check" not in arguments:
        FILE.write_text(text, encoding="utf-8")
        return 0
    if FILE.is_file() and FILE.read_text(encoding="utf-8") == text:
        return 0
    print(
        f"{FILE.name} is not what the service says of itself: python scripts/openapi.py"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
