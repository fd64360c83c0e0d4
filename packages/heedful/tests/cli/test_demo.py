"""`heedful demo` as a user runs it, with models that follow a script; its report and
statistics.
"""

import json
import re
import shlex
import sys
from typing import Any

import pytest

from tests.cli.support import Desk

# Right where it was told how, or sees an answer in the right form; "stubborn" tasks
# never are.
FOLLOWER = """
import os, time
from heedful import Answer, Usage

def follower(messages):
    with open("calls.log", "a", encoding="utf-8") as file:
        file.write(messages[-1].content.splitlines()[-1] + "\\n")
    time.sleep(float(os.environ.get("SLEEP", "0")))
    task = messages[-1].content
    lines = task.splitlines()
    openings = ("Write the label", "Say what", "Tea for")
    asked = [line for line in lines if line.startswith(openings)] or lines
    word = asked[0].split()[-1]
    shown = any(m.role == "assistant" and m.content.endswith("!") for m in messages)
    right = ("exclamation" in task or shown) and "stubborn" not in task
    answer = word + "!" if right else word
    return Answer(answer, Usage(1, len(task), completion_tokens=5))
"""
RULES = """
from heedful import Finding

MESSAGE = "<b>no mark</b> <script>alert(1)</script> <img src=https://example.com/x.png>"

class Bang:
    pure = True

    def __init__(self, expected):
        self.expected = expected

    def __call__(self, candidate, context):
        if candidate == self.expected:
            return []
        return [Finding("bang", MESSAGE, fix="Add an exclamation mark")]

def bang(word):
    return Bang(word)
"""
DEMO = "demo --model toys:follower --tasks house.jsonl --out out"
SAID = {
    "shop": "Write the label as this shop does",
    "stubborn": "Say what a stubborn mule said",
    "easy": "Tea for",
}


def house(per_family: int = 6) -> list[dict[str, Any]]:
    """Tasks of a family that can be learnt, one that cannot, and one that needs no
    learning.
    """
    tasks = []
    for n in range(per_family):
        for family, right in (
            ("shop", f"red{n}!"),
            ("stubborn", f"blue{n}!"),
            ("easy", f"tea{n}"),
        ):
            word = right.rstrip("!")
            wording = f"{SAID[family]}: {word}"
            checks = [{"name": "bangs:bang", "word": right}]
            entry = {"id": f"{family}-{n}", "task": wording, "checks": checks}
            tasks.append({**entry, "context": {"family": family}})
    return tasks


def furnish(desk: Desk) -> Desk:
    desk.write("toys.py", FOLLOWER)
    desk.write("bangs.py", RULES)
    desk.tasks(house(), name="house.jsonl")
    return desk


@pytest.fixture
def shop(desk, monkeypatch):
    # Drawing the picture takes as long as all the rest.
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    return furnish(desk)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A shop after one demonstration without a picture, and how it ended."""
    desk = furnish(Desk(tmp_path_factory.mktemp("shop")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib", None)
        done = desk.heedful(DEMO)
    assert done.code == 0, done.err
    return desk, done


def figure(document, group, part="all tasks"):
    (entry,) = [
        entry
        for entry in document["figures"]
        if entry["group"] == group and entry["part"] == part
    ]
    return entry


def test_both_arms_and_what_they_show(finished, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    desk, _ = finished
    call_count = len(desk.calls())
    document = desk.heedful(f"{DEMO} --json").json
    assert len(desk.calls()) == call_count  # run again it asks no more
    learnt = figure(document, "shop")
    hopeless = figure(document, "stubborn")
    assert learnt["without"]["at_once"]["value"] == 0
    assert learnt["memory"]["at_once"]["value"] == pytest.approx(3 / 4)
    assert figure(document, "shop", "second half")["memory"]["at_once"]["value"] == 1
    assert (
        learnt["without"]["solved"]["value"] == learnt["memory"]["solved"]["value"] == 1
    )
    assert learnt["without"]["calls"] == 8
    assert learnt["memory"]["calls"] == 5
    assert hopeless["memory"]["solved"]["value"] == 0
    assert figure(document, "easy")["gain"]["value"] == 0
    assert figure(document, "all families")["memory"]["tasks"] == 12
    assert call_count == sum(
        row["calls"] for rows in document["rows"].values() for row in rows
    )


def test_the_files_it_writes_and_the_commands_it_ends_with(finished):
    desk, done = finished
    out = desk.folder / "out"
    for word in (
        "It was wrong, got feedback, and corrected itself",
        "Now the first try is right",
        "recalled  Write the label as this shop does: red0 → red0!",
        "<b>no mark</b> <script>",
    ):
        assert word in done.err
    page = (out / "report.html").read_text("utf-8")
    assert "&lt;b&gt;no mark&lt;/b&gt;" in page
    assert page.count("&lt;script&gt;alert(1)") > 3
    for text in ("<b>no mark", "<script", "<img src=http", "<link", "<iframe"):
        assert text not in page
    assert not re.findall(r' (?:src|href)="', page)
    assert "Content-Security-Policy" in page
    assert "What it has learnt" in page
    assert (
        len(json.loads((out / "result.json").read_text("utf-8"))["rows"]["with"]) == 12
    )
    for word in ("insufficient data", "all families", "second half (6 tasks)"):
        assert word in done.out
    assert re.search(
        r"families without a gain at the first try\n  stubborn, easy *\n", done.out
    )
    next_commands = done.out.partition("Next:\n")[2]
    opens, why = [line for line in next_commands.splitlines() if "--db" in line]
    assert shlex.split(opens)[-3] == "ui"
    result = desk.heedful(why[why.index("why") :])
    assert result.code == 0
    assert "red0!" in result.out


# With --recorded


@pytest.fixture(scope="module")
def shown_again(tmp_path_factory):
    """A desk without a model, after the recorded run, and how it ended."""
    desk = Desk(tmp_path_factory.mktemp("recorded"))
    done = desk.heedful("demo --recorded --model none")
    assert done.code == 0, done.err
    return desk, done


def test_a_recording_tells_five_tasks_and_the_sum(shown_again):
    _, done = shown_again
    line = re.compile(r"^ *\d+/63 (\S+) +without (\S+) +with (\S+)", re.MULTILINE)
    assert line.findall(done.err) == [
        ("weight-01", "✗✓", "✗✓"),
        ("ticket-01", "✗✗✗■", "✗✗✗■"),
        ("weight-02", "✗✓", "✓"),
        ("ticket-02", "✗✓", "✗✓"),
        ("ticket-03", "✗✓", "✓"),
    ]
    assert "58 more tasks with --all" in done.err
    assert "It was wrong, got feedback, and corrected itself" in done.err
    assert "stopped   the answer repeats attempt 1" in done.err
    assert "all families, second half (36 tasks)" in done.out
    assert "67 % (54–77)" in done.out
    assert "temperature" not in done.out
    assert [line for line in (done.err + done.out).splitlines() if len(line) > 80] == []


def test_all_of_a_recording_are_its_tasks_and_families(desk):
    done = desk.heedful("demo --recorded --all --model none")
    assert "63/63 name-07" in done.err
    assert "more tasks with --all" not in done.err
    assert re.search(r"^ temperature +without", done.out, re.MULTILINE)


def test_a_recording_leaves_the_files_of_a_run(shown_again):
    desk, _ = shown_again
    out = desk.folder / "out" / "recorded"
    result = json.loads((out / "result.json").read_text("utf-8"))
    assert figure(result, "all families")["gain"]["low"] > 0
    assert "a recording of" in (out / "report.html").read_text("utf-8")
    assert (out / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("option", ["--full", "--pipeline", "--db x.db"])
def test_a_recording_cannot_be_of_something_else(desk, option):
    refused = desk.heedful(f"demo --recorded {option}")
    assert refused.code == 2
    assert "--recorded" in refused.err


def test_a_folder_that_takes_no_results_is_named_with_what_to_do(desk):
    desk.write("taken", "")
    for kind in ("", " --recorded", " --pipeline"):
        refused = desk.heedful(f"demo{kind} --model none --out taken")
        assert refused.code == 2
        assert "taken: File exists; name another folder" in refused.err


# With --pipeline

MODELS = """
def reviser(messages):
    task = messages[-1].content
    right = "write 1.75 for" in task
    overall = 1.75 if right else 1.23
    return f"December has the largest MAE. The overall MAE is {overall}."
"""
PIPELINE = "demo --pipeline --model scribes:reviser"
STAGES = ["load", "features", "split", "train", "insights"]


@pytest.fixture(scope="module")
def piped(tmp_path_factory):
    """A desk after one demonstration of a pipeline, and how it ended."""
    desk = Desk(tmp_path_factory.mktemp("pipeline"))
    desk.write("scribes.py", MODELS)
    done = desk.heedful(PIPELINE)
    assert done.code == 0, done.err
    return desk, done


def test_it_shows_runs_reports_and_what_to_type_next(piped):
    room, done = piped
    assert "stand in for an agent" in done.err
    assert (
        "✗ hallucination_detection: predictions appear hallucinated: the mean of"
        in done.err
    )
    assert "retrying with feedback" in done.err
    rows = [
        line.split()[0] for line in done.out.splitlines() if "passed at attempt" in line
    ]
    assert rows[:5] == STAGES
    assert re.search(r"train +passed at attempt 2 +hallucination_detection", done.out)
    assert "lessons learnt; the next run recalls them" in done.out
    assert "insights by the model: passed at attempt 2" in done.out
    assert "✗ grounding: number '1.23' is contradicted" in done.out
    assert "report   out/pipeline/forecast-1.html" in done.out
    _, line = [line for line in done.out.splitlines() if "--db out/pipeline" in line]
    why = room.heedful(line[line.index("why ") :])
    assert why.code == 0, why.err
    assert "36.84 standard deviations" in why.out


def test_the_second_time_it_is_right_at_once(piped):
    room, _ = piped
    again = room.heedful(PIPELINE)
    assert "recalled for train, insights" in again.out
    assert "attempts now 5, in forecast-1 7" in again.out
    assert "retrying" not in again.err.partition("a model writes")[0]
