"""`heedful replay`: figures by hand and as `compare` has them, and what is said of them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

import heedful
from heedful.testing import ScriptedModel
from tests.cli.support import COMMAND, SECONDS, Done, ended, following, record

LOOPS = (
    record("a", "x", "y!"),
    record("b", "x", "x", "x"),
    record("c", "u", "v", "w!"),
    record("d", "x!"),
)
TWO = "stage, attempts.limit=2"
HEADS = "policy attempts ÷ oracle solved lost quality regret cannot tell".split()


@pytest.fixture
def replay(desk, monkeypatch):
    """`heedful replay` in a folder with recorded loops."""
    desk.records(*LOOPS)
    return lambda *arguments: desk.invoke(monkeypatch, "replay", *arguments)


def lines(done: Done) -> dict[str, list[str]]:
    """The rows of the table by their first words."""
    told = [line.split("  ") for line in done.out.splitlines() if line.startswith(" ")]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in told]
    return {line[0]: line[1:] for line in cells if line}


def test_the_figures_by_hand(replay):
    done = replay("loops.jsonl", "--policy", "default", "--policy", TWO)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("4 loops, 9 attempts; 3 loops can be solved\n")
    rows = lines(done)
    # An oracle makes 2, 1, 3 and 1 attempts: 7. Two attempts at most lose c, and cost 2, 2, 2, 1.
    assert rows["as recorded"] == ["9", "1.286", "3", "0", "0.750", "2", "0"]
    assert rows["default"] == ["9", "1.286", "3", "0", "0.750", "2", "0"]
    assert rows[TWO] == ["7", "1.000", "2", "1", "0.500", "1", "0"]
    assert "cannot tell:" not in done.out


def test_what_the_record_cannot_tell(replay):
    done = replay("loops.jsonl", "--policy", "default, -repeat")
    assert lines(done)["default, -repeat"][-1] == "1"  # b goes on after its third attempt
    assert "\ncannot tell: the record of so many loops does not say how" in done.out


def test_calls_and_tokens_only_where_they_say_more(replay, desk):
    heads = next(line for line in replay("loops.jsonl").out.splitlines() if "attempts  " in line)
    assert heads.split() == " ".join(HEADS).split()
    usage = {"calls": 3, "prompt_tokens": 10, "completion_tokens": 5}
    desk.records({"attempts": [{"candidate": "x", "passed": True, "usage": usage}]})
    done = replay("loops.jsonl", "--policy", "stage")
    assert lines(done)["stage"] == ["1", "1.000", "3", "15", "1", "0", "1.000", "0", "0"]
    assert done.out.startswith("1 loop, 1 attempt; 1 loop can be solved\n")


def scored(id: str, *pairs: tuple[float, float], **more: Any) -> dict[str, Any]:
    scores = [{"alignment": a, "drift": d} for a, d in pairs]
    return {"id": id, "attempts": [{"candidate": str(s), "scores": s} for s in scores], **more}


def test_a_preset_whose_goals_are_not_scored_is_left_out(replay, desk):
    said = "orchestrator is left out: its goals are not scored here"
    assert said in replay("loops.jsonl").out
    assert said in replay("loops.jsonl", "--json").json["notes"]
    desk.records(scored("a", (0.5, 0.5), (0.8, 0.2)), LOOPS[0])
    assert said in replay("loops.jsonl").out  # one loop is enough
    desk.records(scored("a", (0.5, 0.5), (0.8, 0.2)))
    done = replay("loops.jsonl")
    assert said not in done.out
    assert lines(done)["orchestrator"][:3] == ["2", "1.000", "1"]


def test_goals_of_the_policies_count_where_loops_have_none(replay, desk):
    """0.5 is too little at the first attempt: without the goal it would pass there."""
    desk.records(scored("a", (0.5, 0.5), (0.8, 0.2), (0.9, 0.1)), scored("b", (0.5, 0), (0.6, 0)))
    policies = ("--policy", "stage, alignment >= 0.75", "--policy", "stage, attempts.limit=1")
    document = replay("loops.jsonl", *policies, "--json").json
    assert document["recorded"]["attempts"] == 4
    assert [(one["attempts"], one["solved"], one["oracle"]) for one in document["policies"]] == [
        *((4, 1, 3), (2, 0, 3)),
    ]
    assert document["notes"] == [
        "2 of 2 loops have no goals: they count as if they had alignment >= 0.75"
    ]
    other = ("--policy", "stage, drift <= 0.1")
    said = "the policies have different goals: a loop that has none is solved where checks pass"
    assert said in replay("loops.jsonl", *policies, *other, "--json").json["notes"]


def test_loops_keep_goals_of_their_own(replay, desk):
    desk.records(scored("a", (0.5, 0.5), (0.8, 0.2), goals=["alignment >= 0.5"]), LOOPS[0])
    done = replay("loops.jsonl", "--policy", "stage, alignment >= 0.75")
    said = "stage, alignment >= 0.75: 1 of 2 loops keep goals of their own instead of alignment >="
    assert said in done.out
    assert lines(done)["as recorded"][:3] == ["3", "1.000", "2"]
    same = replay("loops.jsonl", "--policy", "stage, alignment >= 0.5")
    assert "of their own" not in same.out


def test_rules_that_compare_findings_need_some(replay, desk):
    said = "6 attempts with nothing but passed = false count as the same finding each time"
    for rule in ("echo", "plateau.novelty=true"):
        assert f"stage, {rule}: {said}" in replay("loops.jsonl", "--policy", f"stage, {rule}").out
    assert said not in replay("loops.jsonl", "--policy", "default, plateau").out
    why = [{"check": "c", "message": "m"}]
    desk.records({"attempts": [{"candidate": "x", "findings": why}]})
    assert "same finding" not in replay("loops.jsonl", "--policy", "stage, echo").out
    said = "echo counts within each loop, not over the loops before it"
    assert said in replay("loops.jsonl", "--policy", "stage, echo.across=scope").out


def test_the_next_command_can_be_typed(replay, desk, monkeypatch):
    desk.records(*LOOPS, *LOOPS, name="my loops.jsonl")
    first = replay("my loops.jsonl", "--policy", TWO)
    again = following(first.out)
    assert again == ["replay", "my loops.jsonl", "--policy", TWO, "--plot", "front.png"]
    drawn = desk.invoke(monkeypatch, *again)
    assert (drawn.code, drawn.err) == (0, "written: front.png\n")
    assert drawn.out.splitlines()[:-1] == first.out.splitlines()[:-1]
    assert (desk.folder / "front.png").read_bytes().startswith(b"\x89PNG")
    assert following(drawn.out) == ["tune", "my loops.jsonl"]


async def _store(path: str) -> None:
    store = heedful.open_store(path)
    options: dict[str, Any] = {"store": store, "checks": [heedful.checks.contains("red")]}
    for id, answers in (("a", ["blue", "red"]), ("b", [*"pqrs"]), ("c", ["red"])):
        model = ScriptedModel(*answers)
        await heedful.Run(f"Say {id}", generate=model, id=f"r/{id}", **options).finish()
    session = heedful.Run("Say d", generate=ScriptedModel("x", "y"), id="r/d", **options)
    await session.step()
    await store.close()


@pytest.fixture
def stored(desk, monkeypatch):
    """`heedful` in a folder whose database has four loops, one of them open."""
    asyncio.run(_store(str(desk.folder / "heedful.db")))
    return lambda *arguments: desk.invoke(monkeypatch, *arguments)


def test_a_database(stored):
    done = stored("replay", "--policy", "stage", "--policy", "default")
    assert done.out.startswith("4 loops, 8 attempts; 2 loops can be solved\n")
    rows = lines(done)
    assert rows["stage"][:1] + rows["stage"][-1:] == ["7", "1"]  # 2, 3, 1 and 1, which is open
    assert rows["default"][:1] + rows["default"][-1:] == ["8", "1"]
    for same in (("heedful.db",), ("heedful.db", "--last", "100")):
        assert stored("replay", *same, "--policy", "default").out.startswith("4 loops, 8 ")
    assert stored("replay", "--last", "1", "--json").json["recorded"]["attempts"] == 1
    few = stored("replay", "--last", "3", "--policy", "stage")
    assert following(few.out) == [
        *("replay", "--last", "3", "--policy", "stage", "--plot", "front.png"),
    ]


NO_LOOPS = {
    "none.jsonl": (2, "none.jsonl: it cannot be read (No such file or directory); check the path"),
    "none.db": (3, "no database 'none.db' in this folder"),
    "folder": (4, "cannot be opened"),
    "folder.jsonl": (2, "folder.jsonl: it cannot be read (Is a directory)"),
    "empty.jsonl": (2, "empty.jsonl: it holds no loop; give at least one with attempts"),
    "empty.db": (3, "no loop of scope 'default/default' in empty.db has an attempt; heedful run m"),
    "lines.json": (4, "file of one loop a line must end in .jsonl or .jsonl.gz"),
    "bad.jsonl": (2, "bad.jsonl:1: not one JSON object on one line"),
    "": (2, "--db is ''; it must have at least 1 character"),
}


@pytest.mark.parametrize("command", ["replay", "tune"])
@pytest.mark.parametrize("name", NO_LOOPS)
@pytest.mark.parametrize("json_too", [False, True])
def test_where_there_are_no_loops(desk, monkeypatch, command, name, json_too):
    for folder in ("folder", "folder.jsonl"):
        (desk.folder / folder).mkdir()
    for file, text in (("empty.jsonl", ""), ("empty.db", ""), ("bad.jsonl", "{\n")):
        desk.write(file, text)
    desk.records(*LOOPS, name="lines.json")
    code, said = NO_LOOPS[name]
    done = desk.invoke(monkeypatch, command, name, *(["--json"] if json_too else []))
    told = done.json["error"]["message"] if json_too else done.err
    assert (done.code, said in told, "Traceback" in done.err) == (code, True, False), done
    assert json_too or done.out == ""


def test_without_matplotlib_there_is_a_table_but_no_picture(replay, desk, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert replay("loops.jsonl").code == 0
    done = replay("loops.jsonl", "--plot", "x.png")
    assert (done.code, done.out) == (2, "")
    assert "the picture needs matplotlib: pip install 'heedful[report]'" in done.err
    assert not (desk.folder / "x.png").exists()


def test_nothing_that_can_be_solved_is_no_picture(replay, desk):
    desk.records(LOOPS[1])
    assert replay("loops.jsonl").out.startswith("1 loop, 3 attempts; 0 loops can be solved\n")
    done = replay("loops.jsonl", "--plot", "x.png")
    assert (done.code, done.out) == (2, "")
    assert "no recorded loop can be solved: there is nothing to draw; omit --plot" in done.err


@pytest.mark.parametrize("json_too", [False, True])
def test_ctrl_c(desk, json_too):
    fifo = desk.folder / "loops.jsonl"
    os.mkfifo(fifo)
    arguments = ("replay", "loops.jsonl", *(["--json"] if json_too else []))
    process = desk.start(*arguments)
    with fifo.open("wb", buffering=0) as writer:
        writer.write(b" " * 200_000)  # more than a pipe holds: it is being read now
        process.send_signal(signal.SIGINT)
    done = ended(process)
    assert done.code == 130
    if json_too:
        assert json.loads(done.out)["error"] == {"type": "Interrupted", "message": "interrupted"}
    assert done.err == ("" if json_too else "heedful: interrupted\n")


def test_a_result_that_cannot_be_written(desk):
    desk.records(*LOOPS)
    for more in ([], ["--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [*COMMAND, "replay", "loops.jsonl", *more],
                cwd=desk.folder,
                env=desk.environment(),
                stdout=full,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                timeout=SECONDS,
                check=False,
            )
        assert (done.returncode, "Traceback" in done.stderr) == (4, False)
        assert "No space left on device" in done.stderr
