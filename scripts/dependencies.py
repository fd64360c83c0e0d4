"""Count the distributions that `pip install heedful` installs: at most 8 direct, 28 in
all.
"""

from __future__ import annotations

import sys
from importlib.metadata import requires

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

MAX_DIRECT = 8
MAX_ALL = 28


Wanted = tuple[str, frozenset[str]]  # a distribution, and its extras


def needed(name: str, extras: frozenset[str] = frozenset()) -> set[Wanted]:
    """Return the requirements of one distribution on this machine, with the extras they
    ask for.
    """
    requirements: set[Wanted] = set()
    for line in requires(name) or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is not None:
            environments = [{"extra": extra} for extra in extras or {""}]
            if not any(map(marker.evaluate, environments)):
                continue
        name = canonicalize_name(requirement.name)
        requirements.add((name, frozenset(requirement.extras)))
    return requirements


def main() -> int:
    """Count the distributions; return 1 if there are too many."""
    direct = needed("heedful")
    installed = set(direct)
    waiting = list(direct)
    while waiting:
        name, extras = waiting.pop()
        new = needed(name, extras) - installed
        installed |= new
        waiting += new
    names = sorted({name for name, _ in installed})
    print(
        f"{len(direct)} direct (at most {MAX_DIRECT}), {len(names)} in all (at most "
        f"{MAX_ALL}):"
    )
    print(" ".join(names))
    return 1 if len(direct) > MAX_DIRECT or len(names) > MAX_ALL else 0


if __name__ == "__main__":
    sys.exit(main())
