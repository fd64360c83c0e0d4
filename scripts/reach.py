"""Print the folders of the tests that a change can reach, for `make test ARGS=…`.

`python -m scripts.reach BASE` looks at the files that differ between a commit and the
checkout. A change of a package reaches its tests, those of the packages that stand on
it, and `tests`, which stands on all; a change of any other file reaches all. Nothing is
printed where all is reached or the commit is unknown: `make test` then runs all.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from scripts.workspace import NAMES, ROOT, TESTS


def reached(files: Iterable[str]) -> tuple[Path, ...]:
    """Return the folders of the tests that changes of some files reach; all without a
    file.
    """
    lowest = min(map(_place, files), default=0)
    return TESTS[lowest:]


def _place(file: str) -> int:
    """Return the place of a file's package in the order of the packages; that of the
    first for any other file.
    """
    match PurePosixPath(file).parts:
        case ("packages", name, _, *_) if name in NAMES:
            return NAMES.index(name)
    return 0


def changed(base: str, root: Path = ROOT) -> list[str]:
    """Return the files that differ between a commit and HEAD; [] if it is unknown.

    Of a file that was moved, both paths count.
    """
    command = ["git", "diff", "--name-only", "--no-renames", "-z", base, "HEAD", "--"]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=False
    )
    if done.returncode:
        return []
    return done.stdout.rstrip("\0").split("\0")


def main() -> int:
    """Print the folders, separated by blanks."""
    folders = reached(changed(sys.argv[1]))
    if folders != TESTS:
        print(*(folder.relative_to(ROOT) for folder in folders))
    return 0


if __name__ == "__main__":
    sys.exit(main())
