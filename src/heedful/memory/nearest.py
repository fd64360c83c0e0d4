"""The nearest existing path: where a file may be that a call did not find.

Names of files are compared, and none is opened. The search stays in the repository,
follows no link, and ends after `MAX_SEARCH_SECONDS` or `MAX_SEARCHED_ENTRIES`.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import chain

# The names of files must be this much alike, 0..1: "cart.go" and "carts.go".
MIN_NAME_LIKENESS = 0.6
MAX_SEARCH_SECONDS = 0.005
MAX_SEARCHED_ENTRIES = 20_000
MAX_PATH_CHARS = 300
# Folders that hold no file that somebody asks for by a wrong name.
_SKIPPED_FOLDERS = frozenset(
    ".git .hg .jj .svn .tox .venv venv .mypy_cache .pytest_cache .ruff_cache "
    "__pycache__ node_modules".split()
)
# Every folder may have a file of such a name, so another one is not meant.
_COMMON_NAMES = frozenset(
    "__init__ __main__ index main mod readme README conftest Makefile package".split()
)
# A path that is told is one that a person could have typed: names of files may be
# chosen by others.
_TYPED_PATH_PATTERN = re.compile(r"[\w@+.,=~/-]{1,300}")
# A file that may hold secrets is never proposed.
_SECRET_NAME_PATTERN = re.compile(
    r"(?i)\.env\b|\.(?:pem|key|p12|pfx|kdbx|keystore)\Z|id_[a-z]+\d*\Z"
    r"|credential|secret|password|\.netrc|\.npmrc|\.pypirc"
)
# Clearly nearer than the next one, or the names say nothing.
MIN_LIKENESS_LEAD = 0.05


@dataclass(slots=True)
class _Search:
    """A search below a root that ends at a time or after so many entries."""

    root: str
    deadline: float = field(
        default_factory=lambda: time.monotonic() + MAX_SEARCH_SECONDS
    )
    entries: int = 0

    @property
    def is_over(self) -> bool:
        """True if the search has taken what it may take."""
        return self.entries >= MAX_SEARCHED_ENTRIES or time.monotonic() >= self.deadline

    def scan(self, folder: str) -> tuple[list[str], list[str]]:
        """Return the names of the files and of the folders in a folder, without links.

        There are fewer if the search is over.
        """
        files: list[str] = []
        folders: list[str] = []
        with suppress(OSError), os.scandir(f"{self.root}/{folder}") as entries:
            for entry in entries:
                self.entries += 1
                if self.is_over:
                    break
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    files.append(entry.name)
        return files, folders


def nearest_path(root: str, path: str) -> str:
    """Return the path from `root` of what is most likely meant by an absent path.

    That is the nearest file or folder of the same name, else the name in the same
    folder that is most like it; "" if there is none, or if the path exists.
    """
    relative = _inside(root, path)
    if not relative or os.path.lexists(os.path.join(root, relative)):
        return ""

    search = _Search(root.rstrip("/"))
    folder, _, name = relative.rpartition("/")
    is_there = _is_plain_folder(search.root, folder)
    beside = _like_name(search, folder, name) if is_there else ""
    same = (
        ""
        if os.path.splitext(name)[0] in _COMMON_NAMES
        else _same_name(search, folder, name)
    )
    for candidate in (same, beside):
        is_secret = _SECRET_NAME_PATTERN.search(candidate.rpartition("/")[2])
        if _TYPED_PATH_PATTERN.fullmatch(candidate) and not is_secret:
            return candidate
    return ""


def _inside(root: str, path: str) -> str:
    """Return a path relative to the root; "" if it leads out of it, or is too long."""
    if not root or not path or len(path) > MAX_PATH_CHARS or "\0" in path:
        return ""
    root = root.rstrip("/")
    if path.startswith(f"{root}/"):
        path = path[len(root) + 1 :]
    if os.path.isabs(path) or path.startswith("~"):
        return ""
    relative = os.path.normpath(path)
    return "" if relative == "." or relative.startswith("..") else relative


def _like_name(search: _Search, folder: str, name: str) -> str:
    """Return the path in a folder whose name is most like `name`, clearly so."""
    names = chain.from_iterable(search.scan(folder))
    ranked = sorted(((_likeness(name, other), other) for other in names), reverse=True)
    if not ranked or ranked[0][0] < MIN_NAME_LIKENESS:
        return ""
    if len(ranked) > 1 and ranked[0][0] - ranked[1][0] < MIN_LIKENESS_LEAD:
        return ""
    return _join(folder, ranked[0][1])


def _likeness(name: str, other: str) -> float:
    """Return how much two names are alike; of files, with the same ending or none."""
    stem, ending = os.path.splitext(name)
    other_stem, other_ending = os.path.splitext(other)
    if stem == other_stem:
        return 1.0
    if ending != other_ending:
        return 0.0
    return name_likeness(stem, other_stem)


def _is_plain_folder(root: str, folder: str) -> bool:
    """Return whether a folder is reached from the root without a link."""
    place = root
    for part in filter(None, folder.split("/")):
        place = os.path.join(place, part)
        if os.path.islink(place):
            return False
    return os.path.isdir(place)


def _same_name(search: _Search, folder: str, name: str) -> str:
    """Return the path below the root with this name that is nearest to a folder.

    The search begins there, and goes on around it. Two at the same distance are none.
    """
    while folder and not _is_plain_folder(search.root, folder):
        folder = folder.rpartition("/")[0]
    searched = set[str]()
    while True:
        matches = _names_below(search, folder, name, searched)
        if len(matches) == 1:
            return matches[0]
        if matches or not folder or search.is_over:
            return ""
        folder = folder.rpartition("/")[0]


def _names_below(search: _Search, top: str, name: str, searched: set[str]) -> list[str]:
    """Return the paths with this name below a folder that was not `searched` before."""
    matches: list[str] = []
    waiting = deque([top])
    while waiting and not search.is_over:
        folder = waiting.popleft()
        if folder in searched:
            continue
        searched.add(folder)
        files, folders = search.scan(folder)
        matches += [
            _join(folder, other) for other in (*files, *folders) if other == name
        ]
        waiting += [
            _join(folder, other) for other in folders if other not in _SKIPPED_FOLDERS
        ]
    return matches


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def name_likeness(name: str, other: str) -> float:
    """Return how much the names of two files are alike, 0..1."""
    if name == other:
        return 1.0
    return SequenceMatcher(None, name.lower(), other.lower(), autojunk=False).ratio()
