"""`heedful policy`, the setting `policy`, and what `heedful run` says of rules that cannot fire."""

import pytest

from heedful.loop.codec import policy_from
from heedful.loop.policies import PRESETS, policy
from heedful.loop.reach import reach
from tests.cli.support import task

TIRED = "fatigue cannot fire: 3 reruns reach 0.45 < 0.9"


@pytest.fixture
def ask(desk, monkeypatch):
    """`heedful policy` in an empty folder."""
    return lambda *arguments: desk.invoke(monkeypatch, "policy", *arguments)


def test_list(ask):
    done = ask("list")
    assert done.code == 0
    for preset in PRESETS.values():
        assert f" {preset.name} " in done.out
    assert "Fatigue(limit=0.5, increment=0.15, decay=0.05, most=1.0)" in done.out
    assert [policy_from(one) for one in ask("list", "--json").json["policies"]] == [
        *PRESETS.values()
    ]


def test_check_shows_the_shortest_history_of_each_rule(ask):
    done = ask("check", "stage, repeat")
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "policy stage, repeat: MaxAttempts(limit=3), Repeat(times=1, near=True)\n\n"
        "attempts can fire, first after attempt 3\n"
        "  attempt 1: a new candidate\n"
        "  attempt 2: a new candidate, better\n"
        "  attempt 3: a new candidate, better\n"
        "  => 3 of 3 attempts made\n\n"
        "repeat can fire, first after attempt 2\n"
        "  attempt 1: a new candidate\n"
        "  attempt 2: nearly the same candidate, no better\n"
        "  => attempt 2 repeats attempt 1\n"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("default", "  attempt 2: the same candidate, no better, nothing met\n"),
        ("stage, budget.calls=9", "  attempt 1: a new candidate, all of the budget\n"),
        ("stage, budget.calls=9", "  => 9 of 9 calls spent\n"),
        ("reflection", " of severity 0.299\n  => worst severity "),
        ("orchestrator", "  earlier loops of the scope: finding kept in 2 attempts\n"),
        ("orchestrator", "  => the same finding again: kept in 3 attempts\n"),
        ("orchestrator", "; goals alignment >= 0.75, drift <= 0.25\n"),
    ],
)
def test_what_matters_of_a_history_is_told(ask, text, said):
    assert said in ask("check", text).out


def test_a_rule_that_cannot_fire(ask):
    done = ask("check", "default, fatigue.limit=0.9")
    assert done.code == 1
    assert done.out.endswith(f"\n\n{TIRED}\n")


@pytest.mark.parametrize("name", PRESETS)
def test_check_as_json(ask, name):
    done = ask("check", name, "--json")
    chosen = policy(name)
    assert policy_from(done.json["policy"]) == chosen
    for told, found in zip(done.json["rules"], reach(chosen), strict=True):
        length = len(found.history.attempts) if found.history else 0
        assert (told["name"], told["can_fire"], told["proof"], told["attempts"]) == (
            found.name,
            found.history is not None,
            found.proof,
            length or None,
        )
        assert len(told["history"]) == length
        assert policy_from({"rules": [told["rule"]]}).rules == (found.rule,)
    assert done.code == (0 if all(one["can_fire"] for one in done.json["rules"]) else 1)


TABLES = {
    "text": ('policy = "thorough, fatigue"', "thorough, fatigue: MaxAttempts(limit=5), Repeat("),
    "a table": ('[policy]\npreset = "stage"\nunscored = "again"', "of its own: MaxAttempts(limit="),
}


@pytest.mark.parametrize("what", TABLES)
def test_the_setting_as_text_or_table(ask, desk, what):
    text, said = TABLES[what]
    desk.write("heedful.toml", text)
    assert ask("check").out.startswith(f"policy {said}")
    assert ask("check", "reflection").out.startswith("policy reflection: ")  # goes before it


BAD_SETTINGS = {
    "unknown": ('policy = "nope"', "no policy is called 'nope'; there are: default"),
    "a field": ("[policy]\nx = 1", "no rule or field of a policy is called 'x'"),
    "a bad file": ("policy = \nx", "heedful.toml cannot be read"),
}


@pytest.mark.parametrize("what", BAD_SETTINGS)
def test_a_bad_setting_says_where_it_is(ask, desk, what):
    text, said = BAD_SETTINGS[what]
    desk.write("heedful.toml", text)
    done = ask("check")
    assert (done.code, done.out, said in done.err) == (2, "", True), done
    assert "heedful.toml" in done.err
    assert len(done.err) < 300


def test_a_bad_setting_of_the_environment(ask, monkeypatch):
    monkeypatch.setenv("HEEDFUL_POLICY", "stage, nope")
    assert ask("check").err.endswith("\ngiven by HEEDFUL_POLICY in the environment\n")


def test_a_run_warns_of_rules_that_cannot_fire(desk):
    strict = {"policy": "stage, fatigue"}
    desk.tasks(task("red", **strict), task("green", **strict), task("blue"))
    desk.write("heedful.toml", 'policy = "default, fatigue.limit=0.9"\n')
    done = desk.heedful("run", "tasks.jsonl", "--model", "toy:answer", "--json")
    assert (done.code, len(done.json["rows"])) == (0, 3)
    first, second = (line for line in done.err.splitlines() if line.startswith("warning"))
    assert first == f"warning: policy default, fatigue.limit=0.9: {TIRED}"
    assert second.startswith("warning: policy stage, fatigue: fatigue cannot fire: attempts ends")
    quiet = desk.heedful("run", "tasks.jsonl", "--model", "toy:answer", "--policy", "default")
    assert quiet.err.count("warning") == 1
