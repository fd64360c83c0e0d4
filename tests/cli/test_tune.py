"""`heedful tune`: what is chosen, how it is told, and what is wrong."""

import pytest

import heedful
from heedful.cli.replay import read_file as from_file
from tests.cli.support import following, record

ANSWERS = (["right!"], ["a", "right!"], ["a", "b", "right!"], ["stuck"] * 4)
CHOSEN = "stage, repeat.times=1, attempts.limit=3"


@pytest.fixture
def tune(desk, monkeypatch):
    """`heedful tune` in a folder with forty loops, of which a quarter are stuck."""
    desk.records(*(record(str(n), *ANSWERS[n % 4]) for n in range(40)))
    return lambda *arguments: desk.invoke(monkeypatch, "tune", *arguments)


def test_the_choice_in_words(tune, desk):
    done = tune("loops.jsonl")
    found = heedful.tune(from_file(desk.folder / "loops.jsonl"), heedful.policies.default)
    assert (done.code, done.err) == (0, "")
    these, others = found.chosen_on.loops, found.before.loops
    assert these + others == 40
    assert done.out.startswith(f"135 policies tried on {these} of 40 loops\nchosen: {CHOSEN}\n")
    for name in (
        f"chosen, on these {these}",
        f"chosen, on the other {others}",
        "now, on the other",
    ):
        assert f"\n {name} " in done.out
    assert f'to use it, write in heedful.toml: policy = "{CHOSEN}"' in done.out


def test_what_is_written_can_be_used(tune, desk, monkeypatch):
    done = tune("loops.jsonl")
    assert following(done.out) == [
        "replay",
        "loops.jsonl",
        "--policy",
        "default",
        "--policy",
        CHOSEN,
    ]
    again = desk.invoke(monkeypatch, *following(done.out))
    assert (again.code, f" {CHOSEN} " in again.out) == (0, True)
    (line,) = [line for line in done.out.splitlines() if line.startswith("to use it")]
    desk.write("heedful.toml", line.partition(": ")[2])
    after = tune("loops.jsonl")
    assert f"{CHOSEN} stays: no cheaper one keeps 0.99 of the" in after.out
    assert following(after.out) == ["replay", "loops.jsonl"]


def test_the_policy_now_is_the_option_or_the_setting(tune, desk):
    assert "now, on the other" in tune("loops.jsonl").out
    assert tune("loops.jsonl", "--json").json["before"]["policy"] == "default"
    desk.write("heedful.toml", '[policy]\npreset = "thorough"\nfatigue = {limit = 0.9}\n')
    assert tune("loops.jsonl", "--json").json["before"]["policy"] == "as it is"
    assert following(tune("loops.jsonl").out) == ["replay", "loops.jsonl", "--policy", CHOSEN]
    named = tune("loops.jsonl", "--json", "--policy", "stage").json
    assert named["before"]["policy"] == "stage"


def test_nothing_to_choose_by(tune, desk):
    desk.records(*(record(str(n), "a", "b") for n in range(20)))
    done = tune("loops.jsonl")
    assert done.code == 0
    said = "default stays: none of these loops can be solved, there is nothing to choose by"
    assert said in done.out
    assert "chosen" not in done.out
    assert "cannot tell: the record of so many loops" in done.out
