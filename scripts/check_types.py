"""Check the types of all Python with mypy: the frameworks' with the settings of their
package, all else with those of the workspace.

The names of what is checked are the arguments.
"""

from __future__ import annotations

import subprocess
import sys

from scripts.workspace import ROOT

MYPY = (sys.executable, "-m", "mypy")
FRAMEWORKS = "packages/heedful-frameworks"


def main(names: list[str]) -> int:
    """Print what mypy says; return 1 if it finds an error."""
    settings = f"{FRAMEWORKS}/pyproject.toml"
    commands = (
        (*MYPY, "--exclude", f"^{FRAMEWORKS}/", *names),
        (*MYPY, "--config-file", settings, FRAMEWORKS),
    )
    # One after the other: both use one cache.
    codes = [
        subprocess.run(command, cwd=ROOT, check=False).returncode
        for command in commands
    ]
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
