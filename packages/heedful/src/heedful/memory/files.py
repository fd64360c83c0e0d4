"""Files that lessons are about: their digests, and what became of them since.

A lesson from a session says how a file was when it was learnt, if the process that
learns can read it. Only regular files of the repository are read.
"""

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from heedful.validation import MAX_READ_BYTES


def file_digest(root: str, path: str) -> str:
    """Return the SHA-256 of a file below `root` in hex; "" if it cannot be read.

    Files outside `root` and large ones are not read.
    """
    with suppress(OSError, ValueError):
        top = Path(root).resolve()
        place = (top / path).resolve()
        # A path with ".." or a link may lead out of the repository.
        is_inside = place.is_relative_to(top) and place.is_file()
        if is_inside and place.stat().st_size <= MAX_READ_BYTES:
            return hashlib.sha256(place.read_bytes()).hexdigest()
    return ""


def file_digests(root: str, paths: Iterable[str]) -> dict[str, str]:
    """Return the digests of the files that can be read, by their paths from `root`.

    `paths` begin with `root` or are relative to it. Only the first ten count: a lesson
    is about a few files.
    """
    digests: dict[str, str] = {}
    for path in list(dict.fromkeys(paths))[:10]:
        relative = path.removeprefix(f"{root.rstrip('/')}/")
        digest = file_digest(root, relative)
        if digest:
            digests[relative] = digest
    return digests


def aged_text(root: str, text: str, digests: Mapping[str, str]) -> str:
    """Return the text of a lesson, with a note of the files that changed since.

    `digests` are those of the files below `root` when the lesson was learnt, by their
    paths. Returns "" if none of these files is there any more, so that the lesson is
    not shown.
    """
    if not root or not digests:
        return text

    present = [path for path in digests if (Path(root) / path).exists()]
    if not present:
        return ""
    changed = [path for path in present if file_digest(root, path) != digests[path]]
    if not changed:
        return text
    names = ", ".join(changed)
    verb = "has" if len(changed) == 1 else "have"
    return f"{text}\n({names} {verb} changed since this was learnt: check first.)"
