"""`heedful run` as a user runs it."""

import json
import re
import sqlite3
import stat
import subprocess

import pytest

from tests.cli.support import COMMAND, SECONDS, ended, rows, task

TASKS = (task("red", context={"family": "colours"}), task("green"), task("never"))
RUN = ("run", "tasks.jsonl", "--model", "toy:answer")


def test_a_run_in_words(desk):
    desk.tasks(*TASKS)
    done = desk.heedful(*RUN, "--no-memory")
    assert done.code == 1
    total = next(line.split() for line in done.out.splitlines() if "tasks-1" in line)
    assert total[:6] == ["tasks-1", "3", "0", "2", "7", "105"]
    assert "colours" in done.out
    assert "✗ never: stopped by repeat after 3 attempts" in done.out
    assert "Next: heedful why tasks-1/never\n" in done.out
    lines = done.err.splitlines()
    assert lines[0] == "run tasks-1: 3 tasks, model toy:answer, heedful.db"
    assert lines[1].startswith("1/3 ✓ red  2 attempts, calls: 2,")
    assert lines[3].startswith("3/3 ✗ never  3 attempts, calls: 3,")
    why = desk.heedful("why", "tasks-1/never")
    assert why.code == 0
    assert "fed back:\n  | The last answer was not accepted:" in why.out


def test_a_run_as_json(desk):
    desk.tasks(*TASKS[:2])
    done = desk.heedful(*RUN, "--json", "--jobs", "2")
    assert done.code == 0
    document = done.json
    seconds = document.pop("seconds")
    assert sum(row["seconds"] for row in document.pop("rows")) == pytest.approx(seconds, abs=0.01)
    assert document == {
        "run": "tasks-1", "db": "heedful.db", "model": "toy:answer",
        "tasks": 2, "at_once": 0, "solved": 2, "calls": 4, "tokens": 60,
    }  # fmt: skip
    assert rows(done)[0] == {
        "id": "red", "loop": "tasks-1/red", "group": "colours", "passed": True, "at_once": False,
        "attempts": 2, "calls": 2, "tokens": 30, "stopped_by": "", "candidate": "red",
    }  # fmt: skip


def test_names_of_runs(desk):
    desk.tasks(TASKS[0])
    assert [desk.heedful(*RUN, "--json").json["run"] for _ in range(2)] == ["tasks-1", "tasks-2"]
    assert desk.heedful(*RUN, "--run", "mine", "--json").json["run"] == "mine"
    again = desk.heedful(*RUN, "--run", "mine")
    assert again.code == 2
    assert "run 'mine' exists; add --resume" in again.err
    assert desk.heedful(*RUN, "--resume", "--json").json["run"] == "tasks-2"
    none = desk.heedful(*RUN, "--resume", "--run", "other")
    assert (none.code, "no run 'other' in heedful.db" in none.err) == (3, True)
    for bad in ("a/b", "", "x" * 201):
        assert desk.heedful(*RUN, "--run", bad).code == 2


def test_what_has_ended_is_not_run_again(desk):
    desk.tasks(*TASKS)
    first = desk.heedful(*RUN, "--json")
    made = desk.calls()
    again = desk.heedful(*RUN, "--resume", "--json")
    assert rows(again) == rows(first)
    assert desk.calls() == made


def test_a_resumed_run_goes_on_with_new_tasks_and_refuses_changed_ones(desk):
    desk.tasks(TASKS[0])
    desk.heedful(*RUN)
    desk.tasks(*TASKS[:2])
    assert [r["id"] for r in rows(desk.heedful(*RUN, "--resume", "--json"))] == ["red", "green"]
    desk.tasks({**TASKS[0], "task": "Say blue"})
    done = desk.heedful(*RUN, "--resume")
    assert done.code == 2
    assert "is about another task" in done.err


def test_nothing_to_resume(desk):
    desk.tasks(TASKS[0])
    done = desk.heedful(*RUN, "--resume")
    assert (done.code, "no database 'heedful.db'" in done.err) == (3, True)
    assert not (desk.folder / "heedful.db").exists()
    desk.heedful(*RUN, "--run", "mine")
    done = desk.heedful(*RUN, "--resume")
    assert (done.code, "no run 'tasks-…'" in done.err) == (3, True)


def test_goals_are_met_by_checks_that_score(desk):
    more = {"checks": [{"name": "mychecks:length"}], "goals": ["length >= 0.5"]}
    arguments = ("run", "tasks.jsonl", "--model", "toy:at_once")
    desk.tasks({**task("red"), **more}, {**task("lengthy"), **more})
    done = desk.heedful(*arguments, "--json")
    assert (done.code, [row["passed"] for row in rows(done)]) == (1, [False, True])
    assert "goal missed: length >= 0.5, it is 0.3" in desk.heedful("why", "tasks-1/red").out
    desk.tasks({**task("red"), **more, "goals": ["length >= 0.5", "clarity >= 1"]})
    done = desk.heedful(*arguments, "--json")
    assert {row["stopped_by"] for row in rows(done)} == {"unscored"}
    desk.tasks({**task("red"), **more, "goals": ["long"]})
    assert desk.heedful(*arguments).code == 2


def test_memory_brings_back_what_was_accepted(desk):
    desk.tasks(*TASKS[:2])
    assert desk.heedful(*RUN).code == 0
    lessons = desk.heedful("lessons", "--json").json["lessons"]
    assert lessons
    assert desk.heedful(*RUN, "--no-memory", "--db", "other.db").code == 0
    assert desk.heedful("lessons", "--db", "other.db", "--json").json == {"lessons": []}


BAD_MODELS = {
    "toy:rubbish": (5, "returned int, not str or Answer"),
    "toy:raises": (5, "raised ValueError: the model fell over"),
    "toy:huge": (5, "answered 10000000 bytes"),
    "toy:slow": (5, "no answer within|no result within"),
    "toy:nothing": (1, "stopped by attempts|stopped by repeat"),
    "toy:nowhere": (2, "there are: .*toy:answer"),
    "nowhere:x": (2, "no module 'nowhere'"),
    "nope": (2, "no model is called 'nope'; there are: embedded"),
    "embedded:nope": (2, "nope"),
}


@pytest.mark.parametrize("model", BAD_MODELS)
def test_a_bad_model_is_a_clear_error(desk, model):
    code, said = BAD_MODELS[model]
    desk.tasks(*TASKS[:2])
    done = desk.heedful("run", "tasks.jsonl", "--model", model, "--timeout", "1")
    assert done.code == code
    assert re.search(said, done.out + done.err)
    assert "Traceback" not in done.err
    assert (desk.folder / "heedful.db").exists() is (code != 2)
    if code == 5:
        again = f"heedful run tasks.jsonl --model {model} --timeout 1 --run tasks-1 --resume"
        assert again in done.err


def test_a_failed_call_can_be_resumed(desk):
    desk.tasks(*TASKS[:2])
    failed = desk.heedful("run", "tasks.jsonl", "--model", "toy:raises", "--json")
    assert failed.code == 5
    assert failed.json["error"]["type"] == "ModelError"
    assert (failed.json["run"], failed.json["rows"]) == ("tasks-1", [])
    done = desk.heedful(*RUN, "--resume", "--json")
    # the call that failed was one, too
    assert (done.code, done.json["run"], done.json["calls"]) == (0, "tasks-1", 5)


def test_a_check_that_raises_stops_its_own_task_alone(desk):
    broken = {**task("red"), "checks": [{"name": "mychecks:raises"}]}
    desk.tasks(broken, TASKS[1], {**broken, "id": "blue"})
    done = desk.heedful(*RUN)
    assert done.code == 1
    assert "check 'raises' raised ZeroDivisionError: 'the check fell over'" in done.err
    assert "task 'red' did not end (so did 1 more: blue)" in done.err
    assert [line.split()[:4] for line in done.out.splitlines() if "tasks-1" in line] == [
        ["tasks-1", "1", "0", "1"]
    ]
    calls = desk.calls()
    assert desk.heedful(*RUN, "--resume").code == 1
    assert desk.calls() == calls  # their answers were journalled


def test_a_model_that_ends_the_process_is_told(desk):
    desk.tasks(TASKS[0])
    done = desk.heedful("run", "tasks.jsonl", "--model", "toy:exits", "--json")
    assert done.code == 1
    assert "called sys.exit(0)" in done.json["error"]["message"]
    assert "--run tasks-1 --resume" in done.json["error"]["message"]


BAD_INPUT = {
    "no file": (("run", "none.jsonl"), 2, "none.jsonl: it cannot be read"),
    "a bad line": (("run", "bad.jsonl"), 2, "bad.jsonl:1: not one JSON object"),
    "an empty file": (("run", "empty.jsonl"), 2, "holds no task"),
    "an unknown policy": ((*RUN, "--policy", "nope"), 2, "no policy is called 'nope'"),
    "no jobs": ((*RUN, "--jobs", "0"), 2, "--jobs is 0; it must be greater than or equal to 1"),
    "no time": ((*RUN, "--timeout", "0"), 2, "--timeout is 0.0"),
    "text for a number": ((*RUN, "--jobs", "x"), 2, "--jobs"),
    "an unknown option": ((*RUN, "--nope"), 2, "No such option"),
    "an unknown command": (("nope",), 2, "No such command 'nope'"),
    "no argument": (("run",), 2, "Missing argument"),
    "no such loop": (("why", "nope"), 3, "database|no loop"),
}


@pytest.mark.parametrize("what", BAD_INPUT)
@pytest.mark.parametrize("json_too", [False, True])
def test_bad_input_is_a_clear_error(desk, what, json_too, monkeypatch):
    arguments, code, said = BAD_INPUT[what]
    desk.tasks(TASKS[0])
    desk.write("bad.jsonl", "{\n")
    desk.write("empty.jsonl", "")
    done = desk.invoke(monkeypatch, *arguments, *(["--json"] if json_too else []))
    assert done.code == code
    told = done.json["error"]["message"] if json_too else done.err
    assert re.search(said, told)
    assert "Traceback" not in done.err
    if not json_too:
        assert done.out == ""


def test_a_traceback_only_on_request(desk):
    desk.tasks(TASKS[0])
    for done in (
        desk.heedful("run", "tasks.jsonl", "--model", "toy:raises", "--debug"),
        desk.heedful("--debug", "run", "tasks.jsonl", "--model", "toy:raises"),
        desk.heedful("run", "tasks.jsonl", "--model", "toy:raises", HEEDFUL_DEBUG="1"),
    ):
        assert done.code == 5
        assert "Traceback" in done.err


def newer(path):
    db = sqlite3.connect(path)
    db.execute(f"pragma application_id = {0x68656564}")
    db.execute("pragma user_version = 99")
    db.close()


def foreign(path):
    db = sqlite3.connect(path)
    db.execute("create table t (x)")
    db.close()


BAD_DATABASES = {
    "of a newer version": (newer, "upgrade heedful"),
    "of another program": (foreign, "another program's database"),
    "no database": (lambda path: path.write_bytes(b"hello " * 500), "no database"),
    "a folder": (lambda path: path.mkdir(), "cannot be opened"),
}


@pytest.mark.parametrize("what", BAD_DATABASES)
def test_a_bad_database_is_a_clear_error(desk, what, monkeypatch):
    make, said = BAD_DATABASES[what]
    make(desk.folder / "heedful.db")
    desk.tasks(TASKS[0])
    done = desk.heedful(*RUN)
    assert (done.code, said in done.err) == (4, True), done
    for arguments in (
        ("loops",), ("why", "x"), ("seen", "KeyError", "x"), ("recall", "x"), ("log",), ("replay",),
        ("tune",), ("replay", "heedful.db"), ("override", "x", "attempts", "--by", "ann"),
    ):  # fmt: skip
        done = desk.invoke(monkeypatch, *arguments)
        assert (done.code, said in done.err) == (4, True), done
    assert desk.calls() == []


def test_a_database_below_a_file(desk):
    desk.tasks(TASKS[0])
    done = desk.heedful(*RUN, "--db", "tasks.jsonl/heedful.db")
    assert (done.code, "cannot be opened" in done.err) == (4, True)
    assert desk.heedful("loops", "--db", "tasks.jsonl/heedful.db").code == 3


def test_a_full_disk_loses_nothing(desk):
    desk.tasks(*(task(f"word{n}", context="x" * 100) for n in range(40)))
    script = 'ulimit -f 600; exec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *COMMAND, *RUN],
        cwd=desk.folder,
        env={k: v for k, v in desk.environment().items() if not k.startswith("COVERAGE")},
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 4, done
    assert "--run tasks-1 --resume" in done.stderr
    made = len(desk.calls())
    whole = desk.heedful(*RUN, "--resume", "--json")
    assert (whole.code, whole.json["solved"]) == (0, 40)
    assert len(desk.calls()) - 80 <= 1
    assert made < len(desk.calls())
    assert desk.heedful("doctor", "--model", "toy:answer").code == 0


def test_two_processes_on_one_database(desk):
    desk.tasks(*TASKS[:2])
    started = [desk.start(*RUN, "--json", SLEEP="0.05") for _ in range(3)]
    done = [ended(process) for process in started]
    assert [one.code for one in done] == [0, 0, 0], done
    assert sorted(one.json["run"] for one in done) == ["tasks-1", "tasks-2", "tasks-3"]
    assert len(desk.heedful("loops", "--json").json["loops"]) == 6


def test_two_processes_on_one_run(desk):
    desk.tasks(*TASKS[:2])
    first = desk.start(*RUN, SLEEP="0.5")
    desk.wait_for(desk.calls, first)
    second = desk.heedful(*RUN, "--resume")
    assert second.code == 4
    assert "is being driven by another process" in second.err
    assert ended(first).code == 0
    assert len(desk.calls()) == 4


def test_a_task_of_one_megabyte(desk):
    desk.tasks({**task("red"), "task": "x" * 1_000_000 + "\nSay red"})
    done = desk.heedful("run", "tasks.jsonl", "--model", "toy:answer", "--json")
    assert (done.code, done.json["tasks"]) == (0, 1)
    assert len(desk.heedful("why", "tasks-1/red").out) < 10_000


def test_text_of_any_kind(desk):
    odd = "naïve\u202e\x1b[31m\ud800😀"
    desk.write("tasks.jsonl", json.dumps(task("red", context=odd) | {"task": f"{odd} red"}))
    done = desk.heedful(*RUN, "--json")
    assert done.code == 0
    assert "\x1b" not in desk.heedful("why", "tasks-1/red", PYTHONIOENCODING="ascii").out


def test_a_read_only_file(desk):
    desk.tasks(TASKS[0])
    desk.heedful(*RUN)
    (desk.folder / "heedful.db").chmod(stat.S_IRUSR)
    assert desk.heedful("loops", "--json").code == 0


def test_many_tasks_that_did_not_pass_are_counted(desk):
    desk.tasks(*({**task("red"), "id": f"n{n}", "task": "never"} for n in range(25)))
    done = desk.heedful("run", "tasks.jsonl", "--model", "toy:nothing", "--db", "a b.db")
    assert done.out.count("✗") == 20
    assert "and 5 more" in done.out
    assert "Next: heedful why tasks-1/n0 --db 'a b.db'" in done.out
