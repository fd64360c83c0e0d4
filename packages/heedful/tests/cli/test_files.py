"""Task files and files of recorded loops: what they hold, and errors that name line and
field.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from heedful.cli.replay_command import read_file
from heedful.cli.tasks import read_tasks
from heedful.errors import LineError
from heedful.loop import policies
from heedful.loop.record import Attempt, Candidate, Evaluation, Finding, Goal, Usage

CHECKS = [{"name": "not_empty"}, {"name": "contains", "needles": ["hi"]}]
GOALS = ["length >= 0.5", {"score": "drift", "threshold": 0.25, "direction": "at_most"}]
YAML = """
# two tasks
- id: a
  task: Say hi
  context: {family: x, day: 2020-01-02}
  goals: [length >= 0.5, {score: drift, threshold: 0.25, direction: at_most}]
  checks: &same
    - name: not_empty
    - {name: contains, needles: [hi]}
  policy: reflection

- {id: b, task: Say yo, checks: *same, policy: {preset: stage, unscored: again}}
"""
ENTRIES = [
    {
        "id": "a",
        "task": "Say hi",
        "context": {"family": "x", "day": "2020-01-02"},
        "goals": GOALS,
        "checks": CHECKS,
        "policy": "reflection",
    },
    {
        "id": "b",
        "task": "Say yo",
        "checks": CHECKS,
        "goals": None,
        "policy": {"preset": "stage", "unscored": "again"},
    },
]
JSONL = "\n" + "\n\n".join(json.dumps(entry) for entry in ENTRIES) + "\n"


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [("t.yaml", YAML, [3, 12]), ("T.JSONL", JSONL, [2, 4])],
    ids=["YAML", "JSONL"],
)
def test_all_formats_give_the_same_tasks(tmp_path, name, text, lines):
    (tmp_path / name).write_text(text, "utf-8")
    a, b = read_tasks(tmp_path / name)
    assert [a.line, b.line] == lines
    assert a.id == "a"
    assert a.task == "Say hi"
    assert a.context == {"family": "x", "day": "2020-01-02"}
    assert a.goals == (Goal("length", 0.5), Goal("drift", 0.25, "at_most"))
    assert [getattr(check, "name", "") for check in a.checks] == [
        "not_empty",
        "contains",
    ]
    assert a.policy == policies.reflection
    assert b.context is None
    assert b.goals == ()
    assert (b.policy and b.policy.unscored) == "again"


GOOD = '{"id": "ok", "task": "t", "checks": [{"name": "not_empty"}]}\n'
BAD_TASKS = {
    "not JSON": ("{", "not one JSON object"),
    "a deep nest": ("[" * 100_000 + "]" * 100_000, "nested|recursion"),
    "an unknown key": (
        GOOD.strip()[:-1] + ', "tsak": "t"}',
        "no key is called 'tsak' .did you mean 'task'",
    ),
    "no check": ('{"id": "a", "task": "t"}', "checks is missing; it must be given"),
    "the id again": (GOOD, "id 'ok' is that of the task of line 1; give another"),
    "NaN": ('{"id": NaN}', "NaN is not JSON"),
    "a number of 5,000 digits": ('{"id": ' + "1" * 5_000 + "}", "not one JSON object"),
    "a number as id": ('{"id": 7, "task": "t"}', "id is 7; it must be a text"),
    "an unknown check": (
        '{"id": "a", "task": "t", "checks": [{"name": "nope"}]}',
        "no check is called 'nope'; there are: .*not_empty",
    ),
}


@pytest.mark.parametrize("case", BAD_TASKS)
def test_a_bad_task_is_named_by_its_line(tmp_path, case):
    line, message = BAD_TASKS[case]
    path = tmp_path / "t.jsonl"
    path.write_text(f"{GOOD}\n{line}\n", "utf-8")
    with pytest.raises(LineError, match=message) as caught:
        read_tasks(path)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert caught.value.line == 3


def test_of_many_faults_the_first_are_named(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text("{\n" * 30, "utf-8")
    with pytest.raises(LineError) as caught:
        read_tasks(path)
    lines = str(caught.value).split("\n")
    assert len(lines) == 11
    assert lines[-1] == "… and 20 more lines with faults"


BAD_FILES = {
    "empty.yaml": (b"# nothing\n", 0, "has no task"),
    "broken.yaml": (b"- id: a\n  task: [\n", 3, "not YAML"),
    "tag.yaml": (b"- !!python/object:os.system {}\n", 1, "not YAML"),
    "second.yaml": (
        b"- id: a\n  task: t\n  checks: [{name: not_empty}]\n- 7\n",
        4,
        "it is 7",
    ),
    "none.jsonl": (None, 0, "cannot be read"),
    "latin.jsonl": (GOOD.encode() + b'{"id": "\xe4"}', 2, "byte 0xe4 is not UTF-8"),
    "mapping.yaml": (b"# x\nid: a\n", 2, "it must be a list"),
    "itself.yaml": (b"- &a [*a]\n", 1, "it must be a JSON object"),
    "tasks.csv": (b"id,task\n", 0, "must end in one of .jsonl"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_named(tmp_path, name):
    data, line, message = BAD_FILES[name]
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(LineError, match=message) as caught:
        read_tasks(tmp_path / name)
    assert caught.value.line == line


# Recorded loops

ANSWER = {"candidate": "x", "passed": False}
WHY = {"check": "tests", "message": "case 1 fails"}


def line(*attempts: Any, **more: Any) -> str:
    return json.dumps({"id": "a", "attempts": attempts or [ANSWER], **more})


def read(path: Path, text: str) -> Any:
    file = path / "loops.jsonl"
    file.write_bytes(text.encode("utf-8"))
    return read_file(file)


def test_every_field_arrives(tmp_path):
    finding = {
        **WHY,
        "fix": "look",
        "severity": 0.9,
        "key": "k",
        "level": "error",
        "persistent": True,
        "evidence": "e",
        "span": [1, 2],
    }
    usage = {
        "calls": 2,
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "cost": 0.5,
        "seconds": 6,
    }
    first = {
        "candidate": "some text",
        "findings": [finding],
        "scores": {"q": 0.5},
        "met": 0.25,
        "usage": usage,
        "quality": 0.5,
    }
    second = {"candidate": {"b": 1, "a": [2]}, "scores": {"q": 1}, "quality": 1}
    goals = ["q >= 0.8", {"score": "q", "threshold": 2, "direction": "at_most"}]
    (recorded,) = read(
        tmp_path, line(first, second, goals=goals, task={"any": "thing"})
    )
    expected_finding = Finding(
        "tests",
        "case 1 fails",
        fix="look",
        level="error",
        severity=0.9,
        key="k",
        persistent=True,
        evidence="e",
        span=(1, 2),
    )
    evaluation = Evaluation((expected_finding,), {"q": 0.5}, met=0.25)
    assert recorded.loop.attempts == (
        Attempt(
            1,
            Candidate.of("some text"),
            evaluation=evaluation,
            usage=Usage(2, 3, completion_tokens=4, cost=0.5, seconds=6),
            judged_by=("recorded",),
        ),
        Attempt(
            2,
            Candidate.of(second["candidate"]),
            evaluation=Evaluation((), {"q": 1}),
            usage=Usage(calls=1),
            judged_by=("recorded",),
        ),
    )
    assert recorded.loop.goals == (Goal("q", 0.8), Goal("q", 2, "at_most"))
    assert recorded.loop.id == "a"
    assert recorded.quality == (0.5, 1)


AT_MOST = {"direction": "at_most"}
BAD_RECORDS: dict[str, tuple[str, str]] = {
    "an unknown key": (line(x=1), "no key is called 'x'"),
    "no attempt": ('{"attempts": []}', "it must be not empty"),
    "no candidate": (line(ANSWER, {"passed": True}), "attempts.2.candidate is missing"),
    "a quality for one attempt of two": (
        line(ANSWER, {**ANSWER, "quality": 1}),
        "one number for each of 2 attempts",
    ),
    "a goal of another form": (
        line(goals=["q > 1"]),
        "a goal is 'q > 1'; it must be written like \"alignment",
    ),
    "goals that contradict each other": (
        line(goals=["q >= 0.8", {"score": "q", "threshold": 0.5, **AT_MOST}]),
        "it must be at most 0.5: another goal is q",
    ),
    "neither passed nor findings": (
        line({"candidate": "x", "met": 1}),
        "attempt 1 needs either passed, or findings and scores",
    ),
    "a share over 1": (
        line({**ANSWER, "met": 1.5}),
        "attempts.1.met is 1.5; it must be at most 1",
    ),
    "a level that is none": (
        line({"candidate": "x", "findings": [{**WHY, "level": "bad"}]}),
        "findings.1.level is 'bad'",
    ),
}


@pytest.mark.parametrize("case", BAD_RECORDS)
def test_a_bad_record_names_its_line_and_field(tmp_path, case):
    bad, message = BAD_RECORDS[case]
    with pytest.raises(LineError) as caught:
        read(tmp_path, f"{line()}\n\n{bad}\n{line()}\n")
    assert str(caught.value).startswith(f"{tmp_path / 'loops.jsonl'}:3: ")
    assert message in str(caught.value)
