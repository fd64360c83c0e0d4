"""`heedful run` as a user runs it."""

import json
import re
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
    assert "task 'red' did not end (nor did 1 more: blue)" in done.err
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


def test_a_traceback_only_on_request(desk):
    desk.tasks(TASKS[0])
    for done in (
        desk.heedful("run", "tasks.jsonl", "--model", "toy:raises", "--debug"),
        desk.heedful("--debug", "run", "tasks.jsonl", "--model", "toy:raises"),
        desk.heedful("run", "tasks.jsonl", "--model", "toy:raises", HEEDFUL_DEBUG="1"),
    ):
        assert done.code == 5
        assert "Traceback" in done.err


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
    first = desk.start("run", "tasks.jsonl", "--model", "toy:slow")
    try:
        desk.wait_for(desk.calls, first)
        second = desk.heedful(*RUN, "--resume")
    finally:
        first.kill()
        ended(first)
    assert second.code == 4
    assert "is being driven by another process" in second.err
    assert desk.heedful(*RUN, "--resume").code == 0  # a killed process holds nothing
    assert len(desk.calls()) == 1 + 4


def test_text_of_any_kind(desk):
    odd = "naïve\u202e\x1b[31m\ud800😀"
    desk.write("tasks.jsonl", json.dumps(task("red", context=odd) | {"task": f"{odd} red"}))
    done = desk.heedful(*RUN, "--json")
    assert done.code == 0
    assert "\x1b" not in desk.heedful("why", "tasks-1/red", PYTHONIOENCODING="ascii").out


def test_many_tasks_that_did_not_pass_are_counted(desk):
    desk.tasks(*({**task("red"), "id": f"n{n}", "task": "never"} for n in range(25)))
    done = desk.heedful("run", "tasks.jsonl", "--model", "toy:nothing", "--db", "a b.db")
    assert done.out.count("✗") == 20
    assert "and 5 more" in done.out
    assert "Next: heedful why tasks-1/n0 --db 'a b.db'" in done.out
