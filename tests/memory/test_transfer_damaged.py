"""A damaged export is told by its line and nothing of it is written; an export is whole or none."""

from __future__ import annotations

import asyncio
import json
import os
from io import BytesIO, RawIOBase
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import ExportFileError, InvalidInput, StoreError, StoreUnavailable
from heedful.lessons.export import LONGEST_LINE, encode_line
from heedful.lessons.lesson import Example
from heedful.memory.memory import Memory
from heedful.store import exposures
from tests.memory import transfers
from tests.memory.transfers import HEADER, do, everything, exported, fresh, moved, records, sealed
from tests.store.support import opened

DATA: bytes = do(exported(do(everything())))
LINES = DATA.splitlines(keepends=True)
LAST = json.loads(LINES[-1])


def refused(data: bytes) -> ExportFileError:
    """The error of an import that nothing may be left of."""

    async def scenario() -> ExportFileError:
        memory = fresh()
        with pytest.raises(ExportFileError) as error:
            await moved(data, memory)
        assert await memory.count() == 0
        assert await memory.store.read(memory.scope, exposures.rulings, 9) == []
        await memory.store.close()
        return error.value

    found: ExportFileError = do(scenario())
    return found


@pytest.mark.parametrize("kept", range(len(LINES)))
def test_cut_behind_any_line(kept):
    error = refused(b"".join(LINES[:kept]))
    assert error.line == kept
    assert "the file ends before the line that closes it; copy it or export it again" in str(error)


@given(st.integers(0, len(DATA) - 2), st.integers(1, 255))
def test_any_byte_flipped(at, by):
    data = bytearray(DATA)
    data[at] ^= by
    error = refused(bytes(data))
    # Told where it is, unless what stands there still makes sense; then the last line tells.
    where = DATA.count(b"\n", 0, at) + 1
    assert error.line in (where, where + 1, data.count(b"\n"), data.count(b"\n") + 1)


@given(st.integers(1, len(DATA) - 2))
def test_cut_anywhere(at):
    refused(DATA[:at])


NESTED = json.loads('{"a":' * 20 + "1" + "}" * 20)


def closed(change: Any) -> bytes:
    """An export with other records, closed as it should be."""
    made = records(DATA)
    changed = change(made)
    return sealed(made if changed is None else changed)


def with_field(kind: str, name: str, value: Any) -> bytes:
    def change(made: list[transfers.Plain]) -> None:
        next(one for one in made if one["is"] == kind)[name] = value

    return closed(change)


@pytest.mark.parametrize(
    ("data", "line", "said"),
    [
        (b"", 0, "the file ends before"),
        (b"\n", 1, "no JSON object"),
        (b"\x00" * 100, 1, "no JSON object"),
        (b'{"id": "x", "attempts": []}\n', 1, "an object whose `is` is one of heedful memory"),
        (b"[1, 2]\n", 1, "an object whose `is`"),
        (LINES[1] + DATA, 1, "it is no export of heedful"),
        (DATA + b"\n", len(LINES) + 1, "nothing may follow the last line"),
        (DATA + DATA, len(LINES) + 1, "nothing may follow the last line"),
        (LINES[0] * 2 + DATA, 2, "it is a second first line"),
        (LINES[0] + LINES[1] * 2, 3, "out of place, or a duplicate"),
        (b"".join([LINES[0], *reversed(LINES[1:-1]), LINES[-1]]), 3, "out of place"),
        (
            b"".join(LINES[:-2]) + LINES[-1],
            len(LINES) - 1,
            "a line above was changed, added or lost",
        ),
        (b"".join([LINES[0], LINES[2], *LINES[3:]]), 2, "out of place"),
        (LINES[0] + b'{"is":"lesson","kind":"\xff"}\n', 2, "byte 0xff is not UTF-8"),
        (LINES[0] + b'{"is": "ruling", "at": NaN}\n', 2, "NaN is not JSON"),
        (LINES[0] + b"[" * 100_000 + b"\n", 2, "nested too deeply"),
        (LINES[0] + b'{"is": "lesson", "seen": ' + b"9" * 5_000 + b"}\n", 2, "digits"),
        (LINES[0] + b"x" * 10_000_000 + b"\n", 2, "no JSON object"),
        (LINES[0] + b" " * (LONGEST_LINE + 1) + b"\n", 2, "it is longer than 64 MB"),
        (
            with_field("heedful memory", "version", 2),
            1,
            "version of the heedful memory is 2; it must be 1",
        ),
        (
            with_field("lesson", "seen", -1),
            2,
            "seen of the lesson is -1; it must be a whole number",
        ),
        (with_field("lesson", "seen", True), 2, "seen of the lesson is True"),
        (with_field("lesson", "seen", 10**400), 2, "seen of the lesson is 1000"),
        (with_field("lesson", "last_seen", 1e300), 2, "a time in seconds since 1970"),
        (with_field("lesson", "kind", "a/b"), 2, "without a slash"),
        (with_field("lesson", "state", "loved"), 2, "one of verified, candidate"),
        (with_field("lesson", "trust", ["operator"]), 2, "one of operator, measured"),
        (with_field("lesson", "importance", 1.1), 2, "a number of 0 to 1"),
        (with_field("lesson", "tags", "a"), 2, "a list of texts"),
        (
            with_field("lesson", "extra", 1),
            2,
            "field of the lesson is 'extra'; it must be one of kind",
        ),
        (with_field("lesson", "signature", "0" * 16), 2, "it must be that of its pattern, "),
        (with_field("lesson", "listed", {"seen": 1}), 2, "an object of counts"),
        (with_field("example", "digest", "../.."), 3, "16 hex digits"),
        (with_field("example", "example", {"task": "t"}), 3, "with task and accepted"),
        (with_field("example", "example", {"task": "t", "accepted": 7}), 3, "an object of texts"),
        (with_field("example", "vector", {"space": "a/2", "data": "AAAA"}), 3, "base64 of as many"),
        (with_field("example", "vector", {"space": "a/1", "data": "AAD/fw=="}), 3, "base64"),
        (with_field("example", "vector", {"space": "a/1", "data": "!"}), 3, "base64"),
        (with_field("example", "vector", {"space": "a/1"}), 3, "base64"),
        (with_field("sighting", "told", []), None, "a list of objects of source, trust, parents"),
        (with_field("lineage", "parents", ["x"]), None, "a list of kind/signature/digest"),
        (with_field("lesson", "meta", []), 2, "an object at most 16 deep"),
        (with_field("lesson", "meta", NESTED), 2, "an object at most 16 deep"),
        (with_field("link", "relation", "owns"), None, "one of became, strategy"),
        (with_field("link", "child", "../x"), None, "kind/signature"),
        (with_field("loop", "exposures", []), None, "a list of objects of lesson, shown"),
        (with_field("loop", "outcome", {"calls": 1}), None, "null or an object of right_at_once"),
        (with_field("ruling", "action", "import"), None, "text, but not import"),
        (
            with_field("ruling", "record", NESTED),
            None,
            "16 deep",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_line(data, line, said):
    error = refused(data)
    assert said in str(error)
    assert line is None or error.line == line
    assert str(error).startswith(f"the input:{error.line}: " if error.line else "the input: ")


def test_every_field_must_be_there():
    """Each record without each of its fields."""
    made = records(DATA)
    kinds = {one["is"]: number for number, one in enumerate(made)}
    for kind, number in kinds.items():
        for name in made[number].keys() - {"meta"}:  # which only some have
            less = {key: value for key, value in made[number].items() if key != name}
            error = refused(sealed([*made[:number], less, *made[number + 1 :]]))
            assert error.line == number + 1, (kind, name)


def test_the_last_line_may_lack_its_end():
    """As editors save it, and files that were written on Windows are none of ours."""
    assert do(moved(DATA.rstrip(b"\n"), fresh())).new > 0
    refused(DATA.replace(b"\n", b"\r\n"))


async def test_an_import_of_nothing_is_none(tmp_path):
    memory = fresh()
    done = await moved(sealed([HEADER]), memory)
    assert (done.new, done.known, done.written) == (0, 0, {})
    for path, said in [
        (tmp_path, "Is a directory"),
        (tmp_path / "none.jsonl", "No such file or directory"),
    ]:
        with pytest.raises(ExportFileError, match=said) as error:
            await memory.import_(path)
        assert (error.value.line, error.value.path) == (0, str(path))


class Pipe(RawIOBase):
    """What can be read once, as standard input is."""

    def __init__(self, data: bytes) -> None:
        self._data = BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._data.readinto(buffer)


async def test_what_can_be_read_once_is_kept_until_it_is_checked():
    memory = fresh()
    pipe: Any = Pipe(DATA)
    done = await memory.import_(pipe, trust="operator", by="ada", why="mine")
    assert await exported(memory) == DATA
    assert done.new > 0


class Changing(BytesIO):
    """A file that somebody writes while it is read the second time."""

    def __init__(self, data: bytes, then: bytes) -> None:
        super().__init__(data)
        self._then, self._begun = then, 0

    def seek(self, at: int, whence: int = 0) -> int:
        self._begun += (at, whence) == (0, 0)
        if self._begun == 2:
            self._begun += 1
            super().seek(0)
            self.truncate()
            self.write(self._then)
        return super().seek(at, whence)


def test_a_file_that_changes_while_it_is_read_is_told():
    other = sealed([*records(DATA)[:2]])
    with pytest.raises(ExportFileError, match="it was changed while it was read"):
        do(fresh().import_(Changing(DATA, other)))
    with pytest.raises(ExportFileError, match="the file ends before"):
        do(fresh().import_(Changing(DATA, LINES[0])))


# -- writing


class Full(BytesIO):
    """A disk with so much room."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self._room:
            raise OSError(28, "No space left on device")
        return super().write(data)


def test_a_full_disk_is_told():
    memory = do(everything())
    with pytest.raises(StoreUnavailable, match="the export cannot be written"):
        do(memory.export(Full(2_000)))
    assert do(exported(memory))  # the store goes on


async def test_a_file_is_not_overwritten_by_accident(tmp_path):
    memory, path = await everything(), tmp_path / "lessons.jsonl"
    await memory.export(path)
    before = path.read_bytes()
    await memory.remember("E", "one more")
    with pytest.raises(InvalidInput, match="a name that is free, unless force is given"):
        await memory.export(path)
    assert path.read_bytes() == before
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    done = await memory.export(link, force=True)
    assert link.is_symlink()
    assert path.read_bytes() == await exported(memory)
    assert path.stat().st_size == done.bytes
    with pytest.raises(InvalidInput, match="the name of a file"):
        await memory.export(tmp_path, force=True)
    with pytest.raises(StoreUnavailable, match="No such file or directory"):
        await memory.export(tmp_path / "none" / "x")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="the name of a file"):
        await memory.export(tmp_path / "pipe", force=True)
    names = {"lessons.jsonl", "link.jsonl", "pipe"}
    assert {one.name for one in tmp_path.iterdir()} == names


@pytest.mark.parametrize("alone", [True, False])
def test_what_goes_wrong_in_the_middle_leaves_nothing(tmp_path, alone):
    """By the caller, or since the caller no longer waits; the store goes on."""
    folder = tmp_path / "out"
    folder.mkdir()

    def give_up(what: str, done: int, total: int) -> None:
        if done == 2:
            raise ZeroDivisionError

    async def scenario(memory: Memory) -> None:
        await moved(DATA, memory)
        with pytest.raises(ZeroDivisionError):
            await memory.export(folder / "x", progress=give_up)
        assert list(folder.iterdir()) == []
        going = asyncio.Event()
        loop = asyncio.get_running_loop()

        def told(what: str, done: int, total: int) -> None:
            loop.call_soon_threadsafe(going.set)

        task = asyncio.create_task(memory.export(folder / "x", progress=told))
        await going.wait()
        task.cancel()
        done = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(done[0], asyncio.CancelledError) or (folder / "x").exists()
        assert {one.name for one in folder.iterdir()} <= {"x"}
        assert await memory.count() > 0

    with opened(":memory:" if alone else tmp_path / "a.db") as store:
        do(scenario(Memory(store)))


async def test_an_entry_that_no_line_holds_is_told():
    memory = fresh()
    await memory.remember("E", "x", example=transfers.PARCEL)
    made = encode_line({"x": "y"})
    assert made == b'{"x":"y"}\n'
    huge = "\U0001f600" * (LONGEST_LINE // 12 + 1)  # 12 bytes each, as escapes
    await memory.remember("E", "y", example=Example(huge, "a"))
    with pytest.raises((InvalidInput, StoreError), match="at most 67108864 bytes long"):
        await exported(memory)


def test_what_was_learnt_is_nobody_elses_to_read(tmp_path):
    path = Path(tmp_path) / "lessons.jsonl"
    do(do(everything()).export(path))
    assert path.stat().st_mode & 0o077 == 0  # what was learnt is nobody else's to read
