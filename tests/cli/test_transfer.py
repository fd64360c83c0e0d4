"""`heedful export` and `heedful import`: files, pipes, messages, and what a person does next."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import subprocess
import sys

import pytest

from heedful.memory.memory import Memory
from tests.cli.support import ended, following
from tests.memory.transfers import exported, full, moved
from tests.store.support import opened

OWN = ("--trust", "operator", "--by", "ada", "--why", "my laptop")
DATA: bytes = asyncio.run(exported(asyncio.run(full())))


@pytest.fixture
def invoke(desk, monkeypatch):
    monkeypatch.setenv("HEEDFUL_EMBEDDER", "none")
    with opened(desk.folder / "heedful.db") as store:
        asyncio.run(moved(DATA, Memory(store)))
    return lambda *arguments, **more: desk.invoke(monkeypatch, *arguments, **more)


def test_memory_moves_to_another_machine(desk, invoke):
    done = invoke("export", "lessons.jsonl")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("5 lessons exported, ")
    assert (desk.folder / "lessons.jsonl").read_bytes() == DATA
    assert following(done.out) == ["import", "lessons.jsonl", "--db", "another.db"]
    there = invoke("import", "lessons.jsonl", "--db", "there.db", *OWN)
    assert there.code == 0
    assert there.out.split()[-4:] == ["default/default", "5", "0", "0"]
    again = invoke("import", "lessons.jsonl", "--db", "there.db", *OWN, "--json")
    counts = {name: again.json[name] for name in ("new", "known", "quarantined", "left")}
    assert counts == {"new": 0, "known": 5, "quarantined": 0, "left": 0}
    back = invoke("export", "back.jsonl", "--db", "there.db", "--json")
    assert back.json["digest"] == json.loads(DATA.splitlines()[-1])["sha256"]


def test_what_a_colleague_learnt_waits_in_quarantine(desk, invoke):
    desk.write("theirs.jsonl", DATA)
    done = invoke("import", "theirs.jsonl", "--db", "mine.db")
    assert done.code == 0
    assert "default/default 5 0 6" in " ".join(done.out.split())
    assert "left out, because nobody vouched for them: 13 records" in done.out
    source = f"import:{json.loads(DATA.splitlines()[-1])['sha256'][:16]}"
    assert f"its source is {source}; revoke it by this name" in done.out
    listed = invoke(*following(done.out))
    assert listed.code == 0
    assert source in listed.out.replace("\n", "")
    assert invoke("recall", "convert parcel 9", "--db", "mine.db").out == "nothing related\n"
    gone = invoke("quarantine", "revoke", source, "--by", "ada", "--yes", "--db", "mine.db")
    assert gone.code == 0
    assert invoke("lessons", "--db", "mine.db").out == "nothing was learnt in this scope yet\n"


def test_through_a_pipe(desk, invoke):
    done = desk.heedful("export", "-", HEEDFUL_EMBEDDER="none")
    assert (done.code, done.out.encode()) == (0, DATA)
    assert "5 lessons exported" in done.err
    there = desk.heedful("import", "-", "--json", "--db", "b.db", *OWN, stdin=done.out)
    assert (there.code, there.json["new"], there.json["file"]) == (0, 5, "-")
    cut = desk.heedful("import", "-", "--db", "c.db", stdin=done.out[:-200])
    assert cut.code == 2
    assert cut.err.startswith("heedful: the input:")
    assert not (desk.folder / "c.db").exists()


def test_what_cannot_be_done_is_said(desk, invoke):
    desk.write("there.jsonl", DATA)
    desk.write("cut.jsonl", DATA[:-200])
    desk.write("other.jsonl", b'{"id": "x", "attempts": []}\n')
    for arguments, code, said in [
        (("export", "there.jsonl"), 2, "name another file, or overwrite it with --force"),
        (("export", "."), 2, "the name of a file"),
        (("export", "none/x.jsonl"), 4, "No such file or directory"),
        (("export", "-", "--json"), 2, "name a file"),
        (("export", "x.jsonl", "--db", "none.db"), 3, "no database 'none.db'"),
        (("import", "none.jsonl"), 2, "No such file or directory"),
        (("import", "cut.jsonl"), 2, "copy it or export it again"),
        (("import", "other.jsonl"), 2, "other.jsonl:1: "),
        (("import", "there.jsonl", "--trust", "operator"), 2, "by is ''"),
        (("import", "there.jsonl", "--trust", "much"), 2, "trust is 'much'"),
    ]:
        done = invoke(*arguments)
        assert (done.code, said in done.err + done.out) == (code, True), (arguments, done)
    assert (desk.folder / "there.jsonl").read_bytes() == DATA
    assert invoke("export", "there.jsonl", "--force", "--no-vectors").code == 0
    assert len((desk.folder / "there.jsonl").read_bytes()) < len(DATA)
    assert not list(desk.folder.glob("*.part"))


# Every record is told of, and it takes a while: a person has time to press Ctrl-C.
SLOW = """
import time
from heedful.memory import transfer

encoded, checked = transfer.encode, transfer.decode

def slowly(work):
    def slow(record):
        open("begun", "a").close()
        time.sleep(0.05)
        return work(record)
    return slow

transfer.encode, transfer.decode = slowly(encoded), slowly(checked)
from heedful.cli import main
main()
"""


@pytest.mark.parametrize("command", ["export x.jsonl", "import there.jsonl --db b.db"])
def test_ctrl_c_leaves_nothing_half(desk, invoke, command):
    desk.write("there.jsonl", DATA)
    desk.write("slow.py", SLOW)
    process = subprocess.Popen(
        [sys.executable, "slow.py", *shlex.split(command)], cwd=desk.folder, encoding="utf-8",
        env=desk.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    desk.wait_for((desk.folder / "begun").exists, process)
    process.send_signal(signal.SIGINT)
    done = ended(process)
    assert done.code == 130
    assert "stopped; " in done.err
    assert not (desk.folder / "x.jsonl").exists()
    assert not (desk.folder / "b.db").exists()
