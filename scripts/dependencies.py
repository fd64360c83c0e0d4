"""Count the distributions that `pip install heedful` installs: at most 8 direct, 28 in
all.
"""

from __future__ import annotations

import sys
from importlib.metadata import requires

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

DIRECT = 8
ALL = 28


def needed(
    name: str, extras: frozenset[str] = frozenset()
) -> set[tuple[str, frozenset[str]]]:
    """The requirements of one distribution on this machine, with the extras they ask
    for.
    """
    found: set[tuple[str, frozenset[str]]] = set()
    for line in requires(name) or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(
            marker.evaluate({"extra": extra}) for extra in extras or {""}
        ):
            found.add(
                (canonicalize_name(requirement.name), frozenset(requirement.extras))
            )
    return found


def main() -> int:
    """Count the distributions; return 1 if there are too many."""
    direct = needed("heedful")
    every = set(direct)
    waiting = list(direct)
    while waiting:
        new = needed(*waiting.pop()) - every
        every |= new
        waiting += new
    names = sorted({name for name, _ in every})
    print(
        f"{len(direct)} direct (at most {DIRECT}), {len(names)} in all (at most {ALL}):"
    )
    print(" ".join(names))
    return 1 if len(direct) > DIRECT or len(names) > ALL else 0


if __name__ == "__main__":
    sys.exit(main())
