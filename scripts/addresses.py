"""No committed file names a machine's folders or a package registry.

A registry is the installer's choice, and a path of one machine is wrong on every other.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Written in pieces, so that this file does not contain what it looks for.
FOLDERS = ("home", "root", "Users", "work", "opt")
HOSTS = (
    ("pypi", "org"),
    ("files", "pythonhosted", "org"),
    ("registry", "npmjs", "org"),
    ("deb", "debian", "org"),
)
# A folder counts where a path begins: not in `./opt/`, `src/opt/` or
# `example.com/home/`.
MACHINE_PATH = re.compile(r"(?<![\w.~*})\]-])/(?:" + "|".join(FOLDERS) + r")/")
REGISTRY = re.compile(
    "|".join(re.escape(".".join(parts)) for parts in HOSTS), re.IGNORECASE
)


def committed() -> list[Path]:
    """The files in the repository, and those that the next `git add` would add."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return [
        ROOT / name
        for name in listing.stdout.split("\0")
        if name and (ROOT / name).is_file()
    ]


def problems(path: Path) -> Iterator[str]:
    """Yield the lines of one text file that name a machine or a registry."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    for number, line in enumerate(text.splitlines(), 1):
        for pattern in (MACHINE_PATH, REGISTRY):
            match = pattern.search(line)
            if match:
                place = path.relative_to(ROOT).as_posix()
                yield f"{place}:{number}: {match[0]!r} in {line[:120]!r}"


def main() -> int:
    """Print every finding; return 1 if there is any."""
    files = committed()
    lines: list[str] = []
    for path in files:
        lines += problems(path)
    print("\n".join(lines) or f"{len(files)} files name no machine and no registry")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
