"""Every command about memory, given a database or a text that is not as it should be."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from heedful import open_store
from heedful.lessons.signature import signature
from heedful.memory.memory import Memory
from heedful.store.sqlite import SCHEMA
from tests.cli.support import task

TEXT = "login failed for ada here"
DIGEST = signature("log", TEXT).digest
EVERY = (
    *("lessons", "recall parcel", "patterns list", "pin 1 --by ann", "prune --by ann --keep 0"),
    *(f"patterns unmerge {DIGEST} --by ann", f"patterns remerge {DIGEST} --by ann", "seen log x"),
    *("loops", "why x", "log", "replay", "tune", "replay heedful.db", "reflect --waiting", "proof"),
    "override x attempts --by ann",
)


def learnt(path: Path) -> None:
    async def scenario() -> None:
        memory = Memory(open_store(str(path)))
        for one in ("ada", "bo", "cy", "di"):
            await memory.remember("log", f"login failed for {one} here")
        await memory.store.close()

    asyncio.run(scenario())


@pytest.fixture
def path(desk):
    learnt(desk.folder / "heedful.db")
    return desk.folder / "heedful.db"


@pytest.fixture
def told(desk, monkeypatch):
    return lambda *arguments, stdin="": desk.invoke(monkeypatch, *arguments, stdin=stdin)


def refused(done: Any, code: int, *words: str) -> None:
    assert done.code == code, done
    assert done.out == ""
    assert done.err.startswith("heedful: ")
    assert "Traceback" not in done.err
    assert any(word in done.err for word in words), done.err


# -- databases


def newer(content: bytes) -> bytes:
    return content[:60] + (SCHEMA + 1).to_bytes(4, "big") + content[64:]


def foreign(content: bytes) -> bytes:
    return content[:68] + b"them" + content[72:]


BAD = {
    "not there": (lambda content: None, 3, "no database 'heedful.db'"),
    "text": (lambda content: b"no database " * 99, 4, "damaged or no database"),
    "bytes": (lambda content: bytes(range(256)) * 16, 4, "damaged or no database"),
    "zeros": (lambda content: bytes(5_000), 4, "damaged or no database"),
    "damaged": (lambda content: content[:4096] + b"\x5a" * (len(content) - 4096), 4, "damaged"),
    "truncated": (lambda content: content[: len(content) // 2], 4, "damaged"),
    "newer": (newer, 4, f"schema {SCHEMA + 1}, this heedful knows {SCHEMA}"),
    "another program's": (foreign, 4, "another program's database"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_database_is_refused_and_left_as_it_is(told, path, desk, what):
    make, code, said = BAD[what]
    content = make(path.read_bytes())
    desk.tasks(task("red"))
    for arguments in EVERY:
        for end in ("", "-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        refused(told(*arguments.split()), code, said)
        assert content is None or path.read_bytes() == content, arguments
    if content is not None:
        done = desk.heedful("run", "tasks.jsonl", "--model", "toy:answer")
        assert (done.code, said in done.err, desk.calls()) == (4, True, []), done


# -- texts

TEXTS = {
    "empty": b"",
    "blank": b" \n\t ",
    "1 MB": b"x" * 1_000_000,
    "1 MB of words": b"disk full at node " * 55_000,
    "binary": bytes(range(256)) * 4_000,
    "not UTF-8": b"\xff\xfe\xfa" * 5_000,
    "brackets": b"[" * 65_536,
    "nested JSON": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "quotes": b"'\"`" * 20_000,
    "colons": b"a:" * 32_768,
    "hexadecimal": b"deadbeef0" * 7_000,
    "paths": b"/a" * 32_768,
    "digits and dots": b"1." * 32_768,
    "syntax": b'" OR 1=1; -- AND (NEAR* ^ scope:x',
    "markup": b"[bold]x[/bold] <|im_start|>system {{x}} %s \x1b[31m",
}


@pytest.mark.parametrize("what", TEXTS)
def test_any_text_is_asked_for(path, told, what):
    for arguments, codes in ((("seen", "log", "-"), (0, 1)), (("recall", "-"), (0,))):
        done = told(*arguments, "--json", stdin=TEXTS[what])
        assert done.code in codes, done
        assert done.json
        assert done.err == ""
