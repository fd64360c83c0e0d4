"""`heedful policy`, the setting `policy`, and what `heedful run` says of rules that cannot fire."""

import pytest

from heedful.loop.codec import policy_from
from heedful.loop.policies import PRESETS, policy
from heedful.loop.reach import reach
from heedful.loop.stop import MaxAttempts
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


def test_a_history_that_is_too_long_is_no_proof(ask):
    done = ask("check", "stage, attempts.limit=1000")
    assert done.code == 1
    assert "attempts: no history of up to 100 attempts was found, and no proof" in done.out


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


BAD = {
    "an unknown preset": ("nope", "no policy is called 'nope'; there are: default, orchestrator,"),
    "nothing": ("", "no policy is called ''"),
    "upper case": ("Default", "no policy is called 'Default'"),
    "an unknown rule": ("stage, nope", "no rule or field of a policy is called 'nope'; there are"),
    "a trailing comma": ("stage,", "no rule or field of a policy is called ''"),
    "an unknown field": ("stage, attempts.limt=3", "attempts.limt is 3; it must be one of limit"),
    "a limit": ("stage, attempts.limit=0", "attempts.limit is 0; it must be an integer of at lea"),
    "a text": ("stage, attempts.limit=many", "attempts.limit is 'many'; it must be an integer"),
    "NaN": ("stage, min_gain=NaN", "min_gain is nan; it must be a number in 0.001..1e+12"),
    "Infinity": ("stage, fatigue.limit=Infinity", "fatigue.limit is inf; it must be a number in"),
    "a budget": ("stage, budget.tokens=-5", "budget.tokens is -5; it must be a number in 1e-09.."),
    "an empty budget": ("stage, budget", "budget is 'empty'; it must be given tokens, cost"),
    "against": ("stage, against=x", "against is 'x'; it must be best or previous"),
    "unscored": ("stage, unscored=x", "unscored is 'x'; it must be stop or again"),
    "goals apart": ("stage, q >= 2, q <= 1", "threshold of q >= 2 is 2.0; it must be at most 1: "),
    "no rule": ("stage, -attempts", "rules is (); it must be at least one stop rule: a loop must"),
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("json_too", [False, True])
def test_a_bad_policy_is_a_clear_error(ask, what, json_too):
    text, said = BAD[what]
    done = ask("check", text, *(["--json"] if json_too else []))
    told = done.json["error"]["message"] if json_too else done.err
    assert (done.code, said in told) == (2, True), done
    assert json_too or done.out == ""


TABLES = {
    "text": ('policy = "thorough, fatigue"', "thorough, fatigue: MaxAttempts(limit=5), Repeat("),
    "a table": ('[policy]\npreset = "stage"\nunscored = "again"', "of its own: MaxAttempts(limit="),
    "an empty table": ("[policy]", "default: MaxAttempts(limit=4)"),
    "a name": ('[policy]\npreset = "stage"\nname = "mine"', "mine: MaxAttempts(limit=3)"),
    "a rule": ("[policy.fatigue]\nlimit = 0.2", "of its own: MaxAttempts(limit=4), Repeat("),
}


@pytest.mark.parametrize("what", TABLES)
def test_the_setting_as_text_or_table(ask, desk, what):
    text, said = TABLES[what]
    desk.write("heedful.toml", text)
    assert ask("check").out.startswith(f"policy {said}")
    assert ask("check", "reflection").out.startswith("policy reflection: ")  # goes before it


def test_the_table_of_pyproject_and_the_environment(ask, desk, monkeypatch):
    desk.write("pyproject.toml", '[tool.heedful.policy]\npreset = "thorough"\n')
    assert ask("check", "--json").json["policy"]["rules"][0] == {"rule": "attempts", "limit": 5}
    monkeypatch.setenv("HEEDFUL_POLICY", "stage, attempts.limit=7")
    assert ask("check").out.startswith("policy stage, attempts.limit=7: MaxAttempts(limit=7)\n")


BAD_SETTINGS = {
    "a number": (
        "policy = 5",
        "policy in heedful.toml is 5; it must be a policy as text of 1 to 1",
    ),
    "a list": ("policy = [1]", "policy in heedful.toml is [1]; it must be a policy as text"),
    "empty": ('policy = ""', "policy in heedful.toml is ''; it must be a policy as text of 1 to"),
    "long": (f'policy = "{"x" * 2000}"', "policy in heedful.toml is 'xxx"),
    "unknown": ('policy = "nope"', "no policy is called 'nope'; there are: default"),
    "a field": ("[policy]\nx = 1", "no rule or field of a policy is called 'x'"),
    "a limit": ("[policy.fatigue]\nlimit = 2", "fatigue.limit is 2; it must be a number in 0.00"),
    "a preset": ("[policy]\npreset = 3", "no policy is called '3'"),
    "a name": ("[policy]\nname = 3", "name is 3; it must be text"),
    "goals": ('[policy]\ngoals = "q >= 1"', "goals is 'q >= 1'; it must be a list such as"),
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


def test_help(ask):
    done = ask("--help")
    assert done.code == 0
    for part in ("list", "check", "prove that each of their rules can fire"):
        assert part in done.out
    assert "[POLICY]" in ask("check", "--help").out
    assert ask().code == 2
    assert ask("nope").code == 2


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


def test_a_run_keeps_the_policy_of_the_table(desk):
    desk.tasks(task("never"))
    desk.write("heedful.toml", '[policy]\npreset = "stage"\nattempts = {limit = 2}\n')
    assert desk.heedful("run", "tasks.jsonl", "--model", "toy:answer").code == 1
    document = desk.heedful("why", "tasks-1/never", "--json").json
    assert policy_from(document["policy"]).rules == (MaxAttempts(2),)
    assert len(document["attempts"]) == 2
