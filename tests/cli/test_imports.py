"""`heedful import --from`: what earlier systems stored comes once, waits, and is found."""

from __future__ import annotations

import json
import os
import signal
from hashlib import sha256
from typing import Any

import pytest

import heedful
from heedful.compat import has_seen_error_before, query_reflections, retrieve_similar
from heedful.memory.memory import Memory
from tests import postgres as server
from tests.cli.support import following

OWN = ("--trust", "operator", "--by", "ada", "--why", "our old system")
PROMPT = "Ask politely for the report."
HASH = sha256(PROMPT.encode()).hexdigest()
ECHO = {"repetition_counts": {"overconfidence": 3}, "repeated_tags": ["overconfidence"]}
MISTAKE = {"prompt_hash": HASH, "prompt": PROMPT, "mistake": "no please", "correction": "Please."}


def lines(*rows: Any) -> str:
    return "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)


TRACES = [
    {"loop_id": "a", "rerun_reason": "alignment_threshold_not_met", "timestamp": 1_700_000_000},
    {"loop_id": "a_r1", "rerun_of": "a", **ECHO, "timestamp": "2026-01-31T12:00:00Z"},
    {"loop_id": "b", "rerun_reason": "bias_echo_detected", "force_finalize": True, **ECHO},
    {"loop_id": "c"},
    {"status": "completed"},
    {"loop_id": "d", "repeated_tags": 7},
    {"loop_id": "e", "timestamp": "noon"},
]
MEMORIES = f"""content,source,importance,layer,tags,project,metadata
Index the JOIN of large tables,engine,0.8,rm,"{{sql,slow}}",,"{{""outcome"": ""failure""}}"
Always set a timeout,,,,"[""strategy""]",default,
Detected conflict: seven,,0.6,,"reflection, self-correction, conflict, sig:0123456789abcdef",,
{"x" * 5_000},,,,,,
 ,,,,,,
text,,3,,,,
text,,much,,,,
text,{"s" * 501},,,,,
text,,,,[1],,
text,,,,,,[]
text,,,,,support,
text,,,,,,,a comma too many
"""
MISTAKES = [
    {**MISTAKE, "timestamp": "2026-01-31T12:00:00Z"},
    {**MISTAKE, "timestamp": "2026-01-31T12:00:00Z", "prompt_hash": ""},
    {**MISTAKE, "prompt_hash": HASH[:16], "correction": "\ud800 \x00"},
    "{bad",
    "[]",
    {**MISTAKE, "mistake": None},
    {**MISTAKE, "prompt": "x" * 1_000_000},
]
# The form, the file, its lessons by kind and times seen, and its refused rows with their fields.
FILES: Any = {
    "loop-trace": (
        json.dumps(TRACES),
        [("check", 2)],
        {5: "loop_id", 6: "repeated_tags", 7: "time"},
    ),
    "memories": (
        MEMORIES,
        [("error", 1), ("reflection", 1), ("reflection", 1), ("strategy", 1)],
        {6: "content", 7: "importance", 8: "importance", 9: "source", 10: "tags", 11: "metadata"}
        | {12: "project", 13: "row"},
    ),
    "reflexion": (lines(*MISTAKES), [("error", 3)], {4: "row", 5: "row", 6: "mistake", 7: "row"}),
}


@pytest.fixture
def bring(desk, monkeypatch):
    """Import a file, and return what was printed as JSON."""
    monkeypatch.setenv("HEEDFUL_EMBEDDER", "none")

    def imported(form: str, file: str = "it", *more: str, code: int = 1, stdin: str = "") -> Any:
        words = "import", file, "--from", form, "--json", *more
        done = desk.invoke(monkeypatch, *words, stdin=stdin)
        assert done.code == code, done
        return done.json

    imported.call = lambda *words: desk.invoke(monkeypatch, *words)  # type: ignore[attr-defined]
    return imported


@pytest.mark.parametrize("form", FILES)
def test_everything_comes_once_and_waits(desk, bring, form):
    text, lessons, refused = FILES[form]
    desk.write("it", text)
    tried = bring(form, "it", "--dry-run")
    assert not (desk.folder / "heedful.db").exists()
    found = tried["converted"]
    assert sorted((one["kind"], one["seen"]) for one in found["lessons"]) == lessons
    fields = {one["row"]: one["reason"].split()[0] for one in found["refused"]}
    assert fields == refused
    first = bring(form)
    assert (first["new"], first["known"]) == (len(lessons), 0)
    assert first["quarantined"] == tried["quarantined"] >= first["new"] == tried["new"]
    assert bring.call("recall", PROMPT).out.startswith("nothing related\n")
    bring.call("export", "one")
    again = bring(form, "it", "--dry-run"), bring(form)
    assert {(one["new"], one["known"]) for one in again} == {(0, len(lessons))}
    bring.call("export", "two")
    assert (desk.folder / "one").read_bytes() == (desk.folder / "two").read_bytes()
    done = bring.call("import", "it", "--from", form, "--dry-run")
    assert all(f" {row} \n" in done.out for row in refused)
    assert following(done.out)[:2] == ["import", "it"]
    gone = bring.call("quarantine", "revoke", first["source"], "--by", "ada", "--yes")
    assert (gone.code, bring.call("lessons").out[:9]) == (0, "no lesson")


def test_the_old_calls_find_what_an_operator_vouched_for(desk, bring):
    for form, (text, lessons, _) in FILES.items():
        desk.write("it", text)
        done = bring(form, "it", *OWN)
        assert (done["new"], done["quarantined"]) == (len(lessons), 0)
    memory = Memory(str(desk.folder / "heedful.db"))
    known = heedful.run_sync(retrieve_similar(memory, PROMPT))
    assert {one["correction"] for one in known} == {"Please.", "? ?"}
    assert (known[0]["mistake"], {one["prompt_hash"] for one in known}) == ("no please", {HASH})
    wanted = ("default", "default", "JOIN tables")
    (found,) = heedful.run_sync(query_reflections(*wanted, store=memory))
    assert (found["importance"], found["tags"]) == (0.8, ["sql", "slow"])
    assert heedful.run_sync(has_seen_error_before("0123456789abcdef", memory))
    assert heedful.run_sync(memory.seen("pessimist", "bias: overconfidence")).count == 2


def test_a_table_of_postgresql(desk, bring, postgres):
    create = "create table memories (content text, source text, importance numeric, layer text, "
    create += "tags text[], project text, metadata jsonb, created_at timestamptz, embedding text)"
    server.rows(postgres.superuser, f"{create}; grant select on memories to {server.SERVICE}")
    row = "('{}', 'engine', 0.9, 'rm', '{{sql}}', '{}', '{{\"a\": 1}}', '2026-01-31', 'v')"
    texts = [("Index the JOIN", "default"), ("Pay", "support"), (" ", "default")]
    values = ", ".join(row.format(*one) for one in texts)
    server.rows(postgres.superuser, f"insert into memories values {values}")
    secret = postgres.service.replace("@", ":hunter2@", 1)
    there = ("--db", postgres.service)
    ways = (("--dry-run",), (), ())
    tried, first, again = (bring("memories", secret, *way, *there) for way in ways)
    assert (first["new"], first["quarantined"], again["new"]) == (1, 1, 0)
    assert (tried["new"], tried["quarantined"]) == (1, 1)
    fields = [one["reason"].split()[0] for one in first["converted"]["refused"]]
    assert fields == ["project", "content"]
    assert "hunter2" not in json.dumps([first, again])
    (held,) = bring.call("quarantine", "list", "--json", *there).json["waiting"]
    assert (held["lesson"], held["tags"], held["trust"]) == ("Index the JOIN", ["sql"], "external")
    for change in ("revoke select on memories from heedful", "drop table memories"):
        server.rows(postgres.superuser, change)
        assert bring("memories", secret, *there, code=2)["error"]["type"] == "LineError"


WRONG: Any = {
    **dict.fromkeys(("", "\n\n", "\x00\x01", '{"a": 1}', "[]", "\ud800"), FILES),
    **dict.fromkeys(("content\n", 'content\n"' + "x" * 200_000), ("memories",)),
    "[" * 100_000: ("loop-trace", "reflexion"),
}


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_a_wrong_file_leaves_nothing(desk, bring, number):
    text, forms = list(WRONG.items())[number]
    desk.write("it", text.encode("utf-8", "surrogatepass"))
    for form in forms:
        assert bring(form, code=2)["error"]["type"] == "LineError"
    assert not (desk.folder / "heedful.db").exists()


PLACES = {
    "missing.csv": (2, "LineError"),
    ".": (2, "LineError"),
    "mysql://ann:hunter2@there/db": (2, "InvalidInput"),
    "postgresql://ann:hunter2@127.0.0.1:1/db": (4, "StoreUnavailable"),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_wrong_place_leaves_nothing(desk, bring, place):
    code, type = PLACES[place]
    error = bring("memories", place, code=code)["error"]
    assert (error["type"], "hunter2" in error["message"]) == (type, False)
    assert not (desk.folder / "heedful.db").exists()


def test_ctrl_c_while_it_reads_leaves_nothing(desk):
    os.mkfifo(desk.folder / "it")
    process = desk.start("import", "it", "--from", "reflexion", HEEDFUL_EMBEDDER="none")
    with open(desk.folder / "it", "wb") as pipe:  # opens when the command reads
        pipe.write(lines(MISTAKE).encode())
        pipe.flush()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert (process.returncode, "the same command" in said) == (130, True)
    assert not (desk.folder / "heedful.db").exists()
