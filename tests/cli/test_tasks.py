"""Task files: three formats, one schema, and errors that name the line."""

import json

import pytest

from heedful.checks.evaluate import Context
from heedful.cli.tasks import read_tasks
from heedful.errors import TaskFileError
from heedful.loop import policies
from heedful.loop.record import Goal

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
TOML = """
# two tasks
[[tasks]]
id = "a"
task = "Say hi"
context = {family = "x", day = 2020-01-02}
goals = ["length >= 0.5", {score = "drift", threshold = 0.25, direction = "at_most"}]
checks = [{name = "not_empty"}, {name = "contains", needles = ["hi"]}]
policy = "reflection"

[[tasks]]
id = "b"
task = "Say yo"
policy = {preset = "stage", unscored = "again"}
[[tasks.checks]]
name = "not_empty"
[[tasks.checks]]
name = "contains"
needles = ["hi"]
"""
CHECKS = [{"name": "not_empty"}, {"name": "contains", "needles": ["hi"]}]
GOALS = ["length >= 0.5", {"score": "drift", "threshold": 0.25, "direction": "at_most"}]
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
        "policy": {"preset": "stage", "unscored": "again"},
    },
]
JSONL = "\n" + "\n\n".join(json.dumps(entry) for entry in ENTRIES) + "\n"
FORMATS = {"t.yaml": YAML, "t.yml": YAML, "t.toml": TOML, "t.jsonl": JSONL, "T.JSONL": JSONL}
LINES = {".yaml": [3, 12], ".yml": [3, 12], ".toml": [3, 11], ".jsonl": [2, 4]}


@pytest.mark.parametrize("name", FORMATS)
def test_three_formats_one_schema(tmp_path, name):
    path = tmp_path / name
    path.write_text(FORMATS[name], "utf-8")
    a, b = read_tasks(path)
    assert [a.line, b.line] == LINES[path.suffix.lower()]
    assert (a.id, a.task, a.context) == ("a", "Say hi", {"family": "x", "day": "2020-01-02"})
    assert a.goals == (Goal("length", 0.5), Goal("drift", 0.25, "at_most"))
    assert [getattr(check, "name", "") for check in a.checks] == ["not_empty", "contains"]
    assert a.policy == policies.reflection
    assert (b.context, b.goals) == (None, ())
    assert b.policy is not None
    assert b.policy.rules == policies.stage.rules
    assert b.policy.unscored == "again"


GOOD = '{"id": "ok", "task": "t", "checks": [{"name": "not_empty"}]}\n'
BAD_LINES = {
    "not JSON": ("{", "not one JSON object"),
    "a list": ("[1]", "an object with id, task and checks"),
    "NaN": ('{"id": NaN}', "NaN is not JSON"),
    "a key twice": ('{"id": "a", "id": "b"}', "key 'id' is given twice"),
    "a deep nest": ("[" * 100_000 + "]" * 100_000, "nested|recursion"),
    "a number of 5,000 digits": ('{"id": ' + "1" * 5_000 + "}", "not one JSON object"),
    "an unknown key": ('{"id": "a", "tsak": "t"}', "a key is 'tsak'; it must be one of id, task"),
    "a number as id": ('{"id": 7, "task": "t"}', "quote a number"),
    "a long id": (json.dumps({"id": "x" * 201}), "1 to 200 printable"),
    "an empty task": ('{"id": "a", "task": " "}', "text that says what to do"),
    "no check": ('{"id": "a", "task": "t"}', "checks is None.*at least one"),
    "an unknown check": (
        '{"id": "a", "task": "t", "checks": [{"name": "nope"}]}',
        "no check is called 'nope'; there are: .*not_empty",
    ),
    "the id again": (GOOD, "id 'ok' is taken by the task of line 1"),
}


@pytest.mark.parametrize("what", BAD_LINES)
def test_a_bad_line_is_named(tmp_path, what):
    line, said = BAD_LINES[what]
    path = tmp_path / "t.jsonl"
    path.write_text(f"{GOOD}\n{line}\n", "utf-8")
    with pytest.raises(TaskFileError, match=said) as caught:
        read_tasks(path)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert caught.value.line == 3


BAD_FILES = {
    "empty.jsonl": (b"", 0, "holds no task"),
    "blank.jsonl": (b"\n \n", 0, "holds no task"),
    "empty.yaml": (b"# nothing\n", 0, "holds no task"),
    "empty.toml": (b"", 0, "holds no task"),
    "none.toml": (b"tasks = []\n", 0, "holds no task"),
    "latin.jsonl": (GOOD.encode() + b'{"id": "\xe4"}', 2, "byte 0xe4 is not UTF-8"),
    "latin.yaml": (b"- id: a\n  task: \xff\n", 2, "not UTF-8"),
    "broken.yaml": (b"- id: a\n  task: [\n", 3, "not YAML"),
    "control.yaml": (b"- id: a\n- \x01\n", 2, "not YAML"),
    "mapping.yaml": (b"# x\nid: a\n", 2, "a list of tasks"),
    "twice.yaml": (b"- id: a\n  task: t\n  id: b\n", 3, "key 'id' is given twice"),
    "number.yaml": (b"- id: 1\n  task: t\n", 1, "quote a number"),
    "key.yaml": (b"- id: a\n  task: t\n  context: {1: x}\n", 1, "a key is 1"),
    "tag.yaml": (b"- !!python/object:os.system {}\n", 1, "not YAML"),
    "binary.yaml": (b"- id: !!binary aGk=\n", 1, "a value is b'hi'"),
    "two.yaml": (b"- id: a\n---\n- id: b\n", 2, "not YAML"),
    "itself.yaml": (b"- &a [*a]\n", 1, "nested too deeply|too large"),
    "second.yaml": (b"- id: a\n  task: t\n  checks: [{name: not_empty}]\n- 7\n", 4, "a task is 7"),
    "broken.toml": (b'[[tasks]]\nid = "a"\ntask = \n', 3, "not TOML"),
    "other.toml": (b'title = "x"\n', 0, "'title' is not expected"),
    "single.toml": (b'[tasks]\nid = "a"\n', 0, "'tasks' is not expected"),
    "second.toml": (b'[[tasks]]\nid = "a"\n\n[[tasks]]\nid = "b"\nx = 1\n', 1, "task is None"),
    "tasks.csv": (b"id,task\n", 0, "must end in one of .jsonl"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_named(tmp_path, name):
    data, line, said = BAD_FILES[name]
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(TaskFileError, match=said) as caught:
        read_tasks(path)
    assert caught.value.line == line


def test_a_small_file_cannot_stand_for_a_billion_values(tmp_path):
    levels = ["&a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"&a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    path = tmp_path / "t.yaml"
    path.write_text("- id: a\n  task: t\n  context:\n" + "".join(f"  - {x}\n" for x in levels))
    with pytest.raises(TaskFileError, match="at most 1000000 values"):
        read_tasks(path)


def test_a_missing_file_and_a_folder(tmp_path):
    for path in (tmp_path / "none.jsonl", tmp_path / "folder.jsonl" / "x.jsonl"):
        with pytest.raises(TaskFileError, match="cannot be read"):
            read_tasks(path)


def test_a_check_beside_the_file(tmp_path):
    (tmp_path / "beside_it.py").write_text("def check(candidate, context):\n    return []\n")
    path = tmp_path / "t.jsonl"
    path.write_text('{"id": "a", "task": "t", "checks": [{"name": "beside_it:check"}]}\n')
    (task,) = read_tasks(path)
    assert task.checks[0]("x", Context("t")) == []
