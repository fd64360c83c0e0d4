"""An earlier commit as a wheel, to run beside this one on the same packages and
interpreter.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path


def install_wheel(ref: str, folder: str) -> str:
    """Build the wheel of a commit, and return the folder in which it is unpacked."""
    site = Path(folder, f"before-{ref}").resolve()
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory() as place:
        tree = f"{place}/tree"
        subprocess.run(
            ["git", "worktree", "add", "--quiet", "--detach", tree, ref], check=True
        )
        try:
            build = [
                "wheel",
                "--no-deps",
                "--no-build-isolation",
                "--wheel-dir",
                place,
                tree,
            ]
            subprocess.run([*pip, *build], check=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], check=True)
        wheels = [str(wheel) for wheel in Path(place).glob("*.whl")]
        subprocess.run(
            [*pip, "install", "--no-deps", "--target", str(site), *wheels], check=True
        )
    return str(site)
