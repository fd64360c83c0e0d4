"""`heedful tune`: what is chosen, how it is told, and what is wrong."""

import asyncio

import pytest

import heedful
from heedful.cli.records import read_file as from_file
from heedful.loop.codec import policy_from
from heedful.testing import ScriptedModel
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
    rows = {
        f"chosen, on these {these}": found.chosen_on,
        f"chosen, on the other {others}": found.reported_on,
        f"now, on the other {others}": found.before,
    }
    for name, one in rows.items():
        (line,) = [line for line in done.out.splitlines() if line.startswith(f" {name} ")]
        told = line.removeprefix(f" {name}").split()
        ratio, quality = f"{one.attempts / one.oracle:.3f}", f"{one.quality:.3f}"
        numbers = (one.attempts, ratio, one.solved, 0, quality, one.regret, 0)
        assert told == list(map(str, numbers))
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


def test_json_has_the_figures_of_tune(tune, desk):
    done = tune("loops.jsonl", "--json", "--keep", "0.5", "--policy", "thorough")
    recorded = from_file(desk.folder / "loops.jsonl")
    found = heedful.tune(recorded, heedful.policies.thorough, 0.5)
    assert (done.code, done.err) == (0, "")
    document = done.json
    assert policy_from(document["policy"]) == found.policy
    assert (document["tried"], document["notes"]) == (found.tried, [])
    for name in ("chosen_on", "reported_on", "before"):
        one = getattr(found, name)
        told = {key: document[name][key] for key in ("policy", "loops", "attempts", "quality")}
        assert told == {
            "policy": one.policy,
            "loops": one.loops,
            "attempts": one.attempts,
            "quality": one.quality,
        }


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


async def _store(path: str) -> None:
    store = heedful.open_store(path)
    for n in range(12):
        answers = [answer.rstrip("!") for answer in ANSWERS[n % 3]]
        generate = ScriptedModel(*answers)
        checks = [heedful.checks.contains("right")]
        id = f"r/{n}"
        await heedful.run("Say it", generate=generate, checks=checks, store=store, id=id)
    await store.close()


def test_a_database(desk, monkeypatch):
    asyncio.run(_store(str(desk.folder / "heedful.db")))
    done = desk.invoke(monkeypatch, "tune", "--policy", "thorough")
    assert done.code == 0
    assert " of 12 loops\n" in done.out
    few = desk.invoke(monkeypatch, "tune", "--last", "2")
    assert (few.code, "loops is 2; it must be more" in few.err) == (2, True)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_too_few_loops(tune, desk, count):
    desk.records(*(record(str(n), "x!") for n in range(count)))
    done = tune("loops.jsonl")
    assert (done.code, done.out) == (2, "")
    assert f"loops is {count}; it must be more: by their ids the halves have" in done.err
