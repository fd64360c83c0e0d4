"""Every command about memory, given a database or a text that is not as it should be."""

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from heedful import open_store
from heedful.lessons.signature import signature
from heedful.memory.memory import Memory
from heedful.store import sqlite
from heedful.store.sqlite import SCHEMA
from tests.cli.support import task
from tests.store.support import ended, python, rows

TEXT = "login failed for ada here"
DIGEST = signature("log", TEXT).digest
READS = (
    ("lessons",),
    ("seen", "log", TEXT),
    ("recall", "weigh a parcel"),
    ("patterns", "list"),
    ("prune", "--by", "ann", "--keep", "1", "--dry-run"),
)
WRITES = (
    ("patterns", "unmerge", DIGEST, "--by", "ann"),
    ("patterns", "remerge", DIGEST, "--by", "ann"),
    ("pin", "1", "--by", "ann"),
    ("prune", "--by", "ann", "--keep", "0"),
)


def name(arguments: tuple[str, ...]) -> str:
    return " ".join(arguments)


every = pytest.mark.parametrize("arguments", READS + WRITES, ids=name)


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

EVERY = (
    *(READS + WRITES),
    *(("loops",), ("why", "x"), ("log",), ("replay",), ("tune",), ("replay", "heedful.db")),
    ("override", "x", "attempts", "--by", "ann"),
    ("reflect", "--waiting"),
    ("proof",),
)


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
        refused(told(*arguments), code, said)
        assert content is None or path.read_bytes() == content, arguments
    if content is not None:
        done = desk.heedful("run", "tasks.jsonl", "--model", "toy:answer")
        assert (done.code, said in done.err, desk.calls()) == (4, True, []), done


@every
def test_a_locked_database_is_read_and_not_written(told, path, arguments, monkeypatch):
    monkeypatch.setattr(sqlite, "_open", {})
    monkeypatch.setattr(sqlite.in_file, "__defaults__", (0.05,))
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("begin immediate")
    try:
        done = told(*arguments)
    finally:
        db.close()
    if arguments in READS:
        assert done.code in (0, 1), done
    else:
        refused(done, 4, "another process holds the database for too long; try again")
    assert rows(path, "select count(*), sum(pinned), sum(apart) from reflection") == [(4, 0, 0)]


AS_NOBODY = """
import json, os, sys
from typer.testing import CliRunner
from heedful.cli.app import app

os.chdir(sys.argv[1])
os.environ["HEEDFUL_CACHE"] = "cache"
for arguments in json.loads(sys.argv[2]):  # as nobody Python's own files may be out of reach
    CliRunner().invoke(app, [*arguments, "--db", "other.db"])
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
for arguments in json.loads(sys.argv[2]):
    done = CliRunner().invoke(app, arguments)
    print(done.exit_code, done.stderr.strip() or "-", sep="\\t")
"""


def test_a_database_that_may_not_be_written(desk, path, tmp_path):
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    learnt(desk.folder / "other.db")
    path.chmod(0o444)
    given = json.dumps(READS + WRITES)
    lines = ended(python(AS_NOBODY, desk.folder, given)).splitlines()
    path.chmod(0o644)
    assert len(lines) == len(READS + WRITES)
    for line in lines:
        code, said = line.split("\t")
        assert code == "4", line
        assert "read-only" in said or "cannot be opened" in said
    assert rows(path, "select count(*) from reflection") == [(4,)]


FULL = """
import json, os, resource, sys
from typer.testing import CliRunner
from heedful.cli.app import app

os.chdir(sys.argv[1])
os.environ["HEEDFUL_CACHE"] = "cache"
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
for arguments in json.loads(sys.argv[2]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    done = CliRunner().invoke(app, arguments)
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    print(done.exit_code, done.stderr.strip() or "-", sep="\\t")
"""


def test_a_full_disk(desk, path):
    lines = ended(python(FULL, desk.folder, json.dumps(WRITES))).splitlines()
    assert len(lines) == len(WRITES)
    for line in lines:
        code, said = line.split("\t")
        assert (code, "disk" in said) == ("4", True), line
    assert rows(path, "select count(*), sum(pinned), sum(apart) from reflection") == [(4, 0, 0)]
    assert rows(path, "select count(*) from ruling") == [(0,)]
    assert rows(path, "pragma integrity_check") == [("ok",)]


def test_processes_at_once(desk, path):
    """One learns while others prune, pin and rule."""
    program = """
import asyncio, sys
from heedful import Memory, open_store

async def main(memory):
    for n in range(60):
        await memory.remember("log", f"login failed for {chr(97 + n % 26)}{chr(97 + n // 26)} here")

asyncio.run(main(Memory(open_store(sys.argv[1]))))
"""
    learning = python(program, path)
    commands = [desk.start(*arguments) for arguments in (*WRITES, *READS)]
    for process in commands:
        _, err = process.communicate(timeout=60)
        assert process.returncode in (0, 1, 3), err  # not found: what was pruned meanwhile
    ended(learning)
    assert rows(path, "select sum(lessons) from tally") == rows(
        path, "select count(*) from reflection"
    )
    assert rows(path, "pragma integrity_check") == [("ok",)]
    check = "insert into example_fts (example_fts, rank) values ('integrity-check', 1)"
    assert rows(path, check) == []


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
