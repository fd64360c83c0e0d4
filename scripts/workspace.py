"""The workspace: five packages, and beside them what none of them has."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# In the order in which they are installed: each stands on those before it.
NAMES = (
    "heedful",
    "heedful-server",
    "heedful-agents",
    "heedful-frameworks",
    "heedful-compat",
)
PACKAGES = tuple(ROOT / "packages" / name for name in NAMES)
# The folder of the modules of each.
SOURCES = tuple(
    package / "src" / name.replace("-", "_")
    for name, package in zip(NAMES, PACKAGES, strict=True)
)
LIBRARY = SOURCES[0]
# The folders with tests: those of each package, and those of the whole.
TESTS = (*(package / "tests" for package in PACKAGES), ROOT / "tests")
OWN_NAME = re.compile(r"heedful\b")


def project(folder: Path) -> dict[str, Any]:
    """Return what the `pyproject.toml` of a folder says."""
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


def required(extras: set[str] | None = None) -> Iterator[str]:
    """Yield what the packages require of others, with the named extras, or all."""
    for package in PACKAGES:
        declared = project(package)["project"]
        lists = [declared["dependencies"]]
        for extra, requirements in declared["optional-dependencies"].items():
            if extras is None or extra in extras:
                lists.append(requirements)
        for requirements in lists:
            for requirement in requirements:
                if not OWN_NAME.match(requirement):
                    yield requirement


def is_outdated(data: Path, folders: Iterable[Path]) -> bool:
    """Return whether a module of the folders is newer than data that were measured."""
    measured = data.stat().st_mtime
    modules = [path for folder in folders for path in folder.rglob("*.py")]
    return any(path.stat().st_mtime > measured for path in modules)


def group(name: str) -> list[str]:
    """Return the requirements of a dependency group, without those it includes."""
    lines = project(ROOT)["dependency-groups"][name]
    return [line for line in lines if isinstance(line, str)]
