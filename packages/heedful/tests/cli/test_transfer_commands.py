"""`heedful export` and `heedful import`: files, pipes, messages, and what a person does
next.
"""

import asyncio
import json

import pytest

from heedful.memory.memory import Memory
from tests.cli.support import next_line
from tests.memory.transfers import export_bytes, fill_memory, import_own
from tests.store.support import opened

DATA: bytes = asyncio.run(export_bytes(asyncio.run(fill_memory())))


@pytest.fixture
def invoke(desk, monkeypatch):
    monkeypatch.setenv("HEEDFUL_EMBEDDER", "none")
    with opened(desk.folder / "heedful.db") as store:
        asyncio.run(import_own(DATA, Memory(store)))
    return lambda line: desk.invoke(monkeypatch, line)


def test_what_a_colleague_learnt_waits_in_quarantine(desk, invoke):
    desk.write("theirs.jsonl", DATA)
    done = invoke("import theirs.jsonl --db mine.db")
    assert done.code == 0
    assert "default/default 5 0 6" in " ".join(done.out.split())
    source = f"import:{json.loads(DATA.splitlines()[-1])['sha256'][:16]}"
    assert f"to remove these lessons, revoke their source {source}" in done.out
    listed = invoke(next_line(done.out))
    assert listed.code == 0
    assert source in listed.out.replace("\n", "")
    recalled = invoke("recall 'convert parcel 9' --db mine.db")
    assert recalled.out.endswith("Next: heedful quarantine list --db mine.db\n")
    gone = invoke(f"quarantine revoke {source} --by ada --yes --db mine.db")
    assert gone.code == 0
    assert (
        invoke("lessons --db mine.db").out
        == "no lesson in project 'default' of mine.db\n"
    )


def test_a_cut_file_is_refused(desk, invoke):
    desk.write("cut.jsonl", DATA[:-200])
    cut = invoke("import cut.jsonl --db c.db")
    assert cut.code == 2
    assert "cut.jsonl:" in cut.err
    assert not (desk.folder / "c.db").exists()


def test_the_command_that_an_error_names_reads_the_same_database(desk, invoke):
    desk.write("theirs.jsonl", DATA)
    invoke("import theirs.jsonl --db mine.db")
    missing = invoke("lessons 99 --db mine.db")
    assert missing.code == 3
    assert "heedful lessons shows the ids (add --db mine.db)" in missing.err
