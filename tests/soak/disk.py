"""A disk whose power fails: what a program did to the files of a folder, and what could
be left of it.

`record` runs a program under strace, which sees each call of the system with its data.
`Disk` repeats the calls up to any moment. What was synced by then is on the disk. Each
later write, and each later change of a folder, is there or not by a coin: in any order,
and a write also in part, by sectors.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.store.support import unmeasured

MAX_RECORDING_SECONDS = 600.0
STRACE = shutil.which("strace")
SECTOR_BYTES = 512
CHANCES = (0.0, 0.1, 0.5, 0.9, 1.0)  # that a write without a sync is kept
TORN_SHARE = 0.3  # of the writes that are kept

WRITES = ("write", "pwrite64")
SYNCS = ("fsync", "fdatasync")
# Calls that change files in ways that a `Disk` cannot repeat.
REFUSED = (
    *("creat", "writev", "pwritev", "pwritev2", "fallocate", "copy_file_range"),
    *("sendfile", "renameat2", "symlink", "symlinkat", "truncate", "rmdir"),
)
NAMES = (
    *("open", "openat", "unlink", "unlinkat", "rename", "renameat"),
    *("link", "linkat", "mkdir", "mkdirat"),
)
TRACED = (*WRITES, *SYNCS, *REFUSED, *NAMES, "close", "ftruncate")

CALL = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+)")
BEGUN = re.compile(r"(\d+) +(\w+)\((.*) <unfinished \.\.\.>")
RESUMED = re.compile(r"(\d+) +<\.\.\. (\w+) resumed>(.*)\) += (-?\d+)")
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


class Call(NamedTuple):
    """A call of the system: `begun` and `ended` are its lines in the recording."""

    name: str
    arguments: str
    answer: int
    begun: int
    ended: int

    @property
    def texts(self) -> list[bytes]:
        """The paths or the data that were passed."""
        escapes = TEXT.findall(self.arguments)
        return [bytes.fromhex(text.replace("\\x", "")) for text in escapes]

    @property
    def numbers(self) -> list[int]:
        """The descriptor, the size and the place, without what is between quotes."""
        return [int(n) for n in re.findall(r"\d+", TEXT.sub("", self.arguments))]


def record(arguments: Sequence[object], folder: Path) -> list[Call]:
    """Run `python` with these arguments to its end, and return its calls in order."""
    assert STRACE is not None
    log = folder.with_suffix(".strace")
    options = [
        "-f",
        "--seccomp-bpf",
        "-qq",
        "-xx",
        "-s",
        "100000000",
        "-e",
        "signal=none",
        "-o",
        log,
    ]
    result = subprocess.run(
        [
            *(STRACE, *map(str, options), "-e", f"trace={','.join(TRACED)}"),
            *(sys.executable, "-W", "error", *map(str, arguments)),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=MAX_RECORDING_SECONDS,
        env={**unmeasured(), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert result.returncode == 0, result.stderr
    return list(_calls(log.read_text().splitlines()))


def _calls(lines: Sequence[str]) -> Iterator[Call]:
    open_calls: dict[str, tuple[str, str, int]] = {}
    for number, line in enumerate(lines):
        if match := BEGUN.fullmatch(line):
            process, name, arguments = match.groups()
            open_calls[process] = name, arguments, number
        elif match := RESUMED.match(line):
            process, name, more, answer = match.groups()
            _, arguments, since = open_calls.pop(process)
            yield Call(name, arguments + more, int(answer), since, number)
        elif match := CALL.match(line):
            _, name, arguments, answer = match.groups()
            yield Call(name, arguments, int(answer), number, number)


@dataclass(eq=False, slots=True)
class _File:
    """A file or folder: what is on the disk, and what is not yet.

    Of a file, a change is a place and data, or a size without data. Of a folder, it is
    a name and the file that has it, or None if it has none any more.
    """

    content: bytearray = field(default_factory=bytearray)
    entries: dict[str, _File] = field(default_factory=dict)
    names: dict[str, _File] = field(default_factory=dict)  # as the program sees them
    is_folder: bool = False
    end: int = 0  # where `write` goes on
    changes: list[tuple[int, bytes | None]] = field(default_factory=list)
    renames: list[tuple[tuple[str, _File | None], ...]] = field(default_factory=list)

    def sync(self, changes: int, renames: int) -> None:
        """Bring the first of the changes to the disk."""
        for place, data in self.changes[:changes]:
            write(self.content, place, data)
        for change in self.renames[:renames]:
            rename(self.entries, change)
        del self.changes[:changes]
        del self.renames[:renames]


def write(content: bytearray, place: int, data: bytes | None) -> None:
    """Write data at a place, or cut the file there if there are none."""
    if len(content) < place:
        content.extend(bytes(place - len(content)))
    if data is None:
        del content[place:]
    else:
        content[place : place + len(data)] = data


def rename(
    entries: dict[str, _File], change: Sequence[tuple[str, _File | None]]
) -> None:
    for name, file in change:
        if file is None:
            entries.pop(name, None)
        else:
            entries[name] = file


def load(path: Path) -> _File:
    """A file or folder that is on the disk, with all that is in it."""
    if not path.is_dir():
        return _File(content=bytearray(path.read_bytes()))
    folder = _File(is_folder=True)
    folder.entries = {child.name: load(child) for child in path.iterdir()}
    folder.names = dict(folder.entries)
    return folder


class Disk:
    """The folder at `root` as it is now, and as recorded calls will change it.

    Without `syncs_files` or `syncs_folders`, the disk lies: it says that it has synced.
    """

    def __init__(
        self, root: Path, *, syncs_files: bool = True, syncs_folders: bool = True
    ) -> None:
        self.root = root
        self.folder = load(root)
        self.output = ""  # what the program has written until now
        self._syncs_files = syncs_files
        self._syncs_folders = syncs_folders
        self._opened: dict[int, _File] = {}
        self._syncing: dict[int, tuple[_File, int, int]] = {}

    def run(self, calls: Sequence[Call], cuts: Sequence[int]) -> Iterator[int]:
        """Repeat the calls, and stop at each of the lines where the power fails."""
        steps: dict[int, list[tuple[Call, bool]]] = defaultdict(list)
        for call in calls:
            steps[call.begun].append((call, True))
            steps[call.ended].append((call, False))
        for line in range(max(steps) + 1):
            if line in cuts:
                yield line
            for call, begins in steps[line]:
                if begins:
                    self._begin(call)
                else:
                    self._end(call)

    def _begin(self, call: Call) -> None:
        """What was written before a sync began is what it syncs.

        A descriptor that is closed may be another file's before the call has ended.
        """
        if call.name == "close":
            self._opened.pop(call.numbers[0], None)
        if call.name == "write" and call.numbers[0] == 1:
            self.output += call.texts[0].decode()
        if call.name in SYNCS and (file := self._opened.get(call.numbers[0])):
            self._syncing[call.begun] = (file, len(file.changes), len(file.renames))

    def _end(self, call: Call) -> None:
        if call.answer < 0:
            return
        if call.name in REFUSED:
            assert not self._names(call), f"cannot be repeated: {call}"
            assert call.numbers[0] not in self._opened, f"cannot be repeated: {call}"
        elif call.name in SYNCS:
            self._sync(*self._syncing.pop(call.begun, (None, 0, 0)))
        elif call.name in NAMES:
            self._change_names(call)
        elif call.name == "close":
            pass
        elif file := self._opened.get(call.numbers[0]):
            self._change(file, call)

    def _sync(self, file: _File | None, changes: int, renames: int) -> None:
        if file is None:
            return
        if self._syncs_folders if file.is_folder else self._syncs_files:
            file.sync(changes, renames)

    def _change(self, file: _File, call: Call) -> None:
        if call.name == "ftruncate":
            file.changes.append((call.numbers[1], None))
            return
        data = call.texts[0][: call.answer]
        if call.name == "write":
            file.changes.append((file.end, data))
            file.end += len(data)
        else:
            file.changes.append((call.numbers[-1], data))

    def _names(self, call: Call) -> list[tuple[_File, str]]:
        """The folders and names in them that a call is about; none elsewhere."""
        places = []
        for text in call.texts:
            path = Path(os.fsdecode(text))
            if path == self.root or not path.is_relative_to(self.root):
                continue
            folder = self.folder
            for name in path.relative_to(self.root).parts[:-1]:
                folder = folder.names[name]
            places.append((folder, path.name))
        return places

    def _change_names(self, call: Call) -> None:
        if call.name in ("open", "openat"):
            self._open(call)
            return

        places = self._names(call)
        if not places:
            return
        folder, name = places[0]
        if call.name.startswith("mkdir"):
            self._rename(folder, (name, _File(is_folder=True)))
        elif call.name.startswith("unlink"):
            self._rename(folder, (name, None))
        else:
            file = folder.names[name]
            other, new_name = places[1]
            assert other is folder, f"cannot be repeated: {call}"
            change: list[tuple[str, _File | None]] = [(new_name, file)]
            if call.name.startswith("rename"):
                change.append((name, None))
            self._rename(folder, *change)

    def _rename(self, folder: _File, *change: tuple[str, _File | None]) -> None:
        folder.renames.append(change)
        rename(folder.names, change)

    def _open(self, call: Call) -> None:
        self._opened.pop(call.answer, None)
        path = os.fsdecode(call.texts[0])
        if path == str(self.root):
            self._opened[call.answer] = self.folder
        for folder, name in self._names(call):
            if name not in folder.names:
                assert "O_CREAT" in call.arguments, f"not recorded: {call}"
                self._rename(folder, (name, _File()))
            file = folder.names[name]
            file.end = 0
            if "O_TRUNC" in call.arguments:
                file.changes.append((0, None))
            self._opened[call.answer] = file

    def leave(self, target: Path, chance: random.Random) -> None:
        """Write what a power cut now could leave of the folder to `target`."""
        share = chance.choice(CHANCES)
        _leave(self.folder, target, chance=chance, share=share)


def _leave(folder: _File, target: Path, *, chance: random.Random, share: float) -> None:
    target.mkdir()
    entries = dict(folder.entries)
    for change in folder.renames:
        if chance.random() < share:
            rename(entries, change)
    for name, file in entries.items():
        if file.is_folder:
            _leave(file, target / name, chance=chance, share=share)
        elif not name.endswith("-shm"):  # SQLite makes it again
            target.joinpath(name).write_bytes(_left(file, chance, share))


def _left(file: _File, chance: random.Random, share: float) -> bytes:
    content = bytearray(file.content)
    for place, data in file.changes:
        if chance.random() >= share:
            continue
        if data is None or chance.random() >= TORN_SHARE:
            write(content, place, data)
            continue
        for begin, sector in _sectors(place, data):
            if chance.random() < 0.5:
                write(content, begin, sector)
    return bytes(content)


def _sectors(place: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    """A write by the sectors of the disk that it reaches."""
    end = place + len(data)
    while place < end:
        stop = min(end, (place // SECTOR_BYTES + 1) * SECTOR_BYTES)
        yield place, data[len(data) - (end - place) : len(data) - (end - stop)]
        place = stop
