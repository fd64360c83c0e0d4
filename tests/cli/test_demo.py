"""`heedful demo` as a user runs it, with models that follow a script."""

from __future__ import annotations

import json
import re
import shlex
import signal
import sys
from typing import Any

import pytest

from examples.demo.lab import families, plan
from heedful.errors import WeightsError
from tests.cli.support import Desk, ended
from tests.store.support import rows

# Right where it was told how, or sees an answer in the right form; "stubborn" tasks never are.
FOLLOWER = """
import os, time
from heedful import Answer, Usage

def follower(messages):
    with open("calls.log", "a", encoding="utf-8") as file:
        file.write(messages[-1].content.splitlines()[-1] + "\\n")
    time.sleep(float(os.environ.get("SLEEP", "0")))
    task = messages[-1].content
    lines = task.splitlines()
    said = [line for line in lines if line.startswith(("Write the label", "Say what", "Tea for"))]
    word = (said or lines)[0].split()[-1]
    shown = any(m.role == "assistant" and m.content.endswith("!") for m in messages)
    right = ("exclamation" in task or shown) and "stubborn" not in task
    return Answer(word + "!" if right else word, Usage(1, len(task), 5))
"""
RULES = """
from heedful import Finding

class Bang:
    pure = True

    def __init__(self, expected):
        self.expected = expected

    def __call__(self, candidate, context):
        if candidate == self.expected:
            return []
        return [Finding("bang", "<b>no mark</b>", "Add an exclamation mark")]

def bang(word):
    return Bang(word)
"""
DEMO = ("demo", "--model", "toys:follower", "--tasks", "house.jsonl", "--out", "out")
SAID = {
    "shop": "Write the label as this shop does",
    "stubborn": "Say what a stubborn mule said",
    "easy": "Tea for",
}


def house(each: int = 6) -> list[dict[str, Any]]:
    """Tasks of a family that can be learnt, one that cannot, and one that needs no learning."""
    tasks = []
    for n in range(each):
        for family, right in (("shop", f"red{n}!"), ("stubborn", f"blue{n}!"), ("easy", f"tea{n}")):
            word = right.rstrip("!")
            about = f"{SAID[family]}: {word}"
            checks = [{"name": "bangs:bang", "word": right}]
            one = {"id": f"{family}-{n}", "task": about, "checks": checks}
            tasks.append({**one, "context": {"family": family}})
    return tasks


def furnish(desk: Desk) -> Desk:
    desk.write("toys.py", FOLLOWER)
    desk.write("bangs.py", RULES)
    desk.tasks(*house(), name="house.jsonl")
    return desk


@pytest.fixture
def shop(desk, monkeypatch):
    """A shop where no picture is drawn, which takes as long as the rest."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    return furnish(desk)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A shop after one demonstration, and how it ended."""
    desk = furnish(Desk(tmp_path_factory.mktemp("shop")))
    done = desk.heedful(*DEMO)
    assert done.code == 0, done.err
    return desk, done


def calls_of(desk) -> int:
    return len(desk.calls())


def figure(document, group, part="all tasks"):
    (found,) = [f for f in document["figures"] if (f["group"], f["part"]) == (group, part)]
    return found


def test_both_arms_and_what_they_show(finished):
    desk, _ = finished
    made = calls_of(desk)
    document = desk.heedful(*DEMO, "--json").json
    assert calls_of(desk) == made  # run again it asks no more
    learnt, hopeless = figure(document, "shop"), figure(document, "stubborn")
    assert learnt["without"]["at_once"]["value"] == 0
    assert learnt["memory"]["at_once"]["value"] == pytest.approx(5 / 6)
    assert figure(document, "shop", "second half")["memory"]["at_once"]["value"] == 1
    assert learnt["without"]["solved"]["value"] == learnt["memory"]["solved"]["value"] == 1
    assert (learnt["without"]["calls"], learnt["memory"]["calls"]) == (12, 7)
    assert hopeless["memory"]["solved"]["value"] == 0
    assert figure(document, "easy")["gain"]["value"] == 0
    assert figure(document, "all families")["memory"]["tasks"] == 18
    assert made == sum(row["calls"] for rows in document["rows"].values() for row in rows)


def test_the_files_it_writes_and_the_commands_it_ends_with(finished):
    desk, done = finished
    out = desk.folder / "out"
    assert (out / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    page = (out / "report.html").read_text("utf-8")
    assert "&lt;b&gt;no mark&lt;/b&gt;" in page
    assert "<b>no mark" not in page
    assert len(json.loads((out / "result.json").read_text("utf-8"))["rows"]["with"]) == 18
    for word in ("insufficient data", "all families", "second half (9 tasks)"):
        assert word in done.out
    assert re.search(r"families without a gain at once\n  stubborn, easy *\n", done.out)
    shown = done.out.partition("Next:\n")[2]
    commands = [shlex.split(line) for line in shown.splitlines() if "--db" in line]
    names = ("lessons", "why", "recall")
    ran = [
        desk.heedful(*line[line.index(name) :]) for name, line in zip(names, commands, strict=True)
    ]
    assert [one.code for one in ran] == [0, 0, 0]
    assert "red0!" in ran[-1].out


def test_the_story_is_told_on_the_way(finished):
    err = finished[1].err
    assert "It was wrong, was told what is wrong, and put it right" in err
    assert "Now it is right at once" in err
    assert "recalled  Write the label as this shop does: red0 → red0!" in err
    assert "stopped   repeat: attempt 3 repeats attempt 1" in err
    assert re.search(r"^ 4/18 shop-1 +without ✗✓ +with ✓ +saw 1 earlier answer$", err, re.MULTILINE)
    assert "<b>no mark</b>. Add an exclamation mark" in err


def test_fresh_it_asks_again(shop):
    shop.tasks(*house(2), name="house.jsonl")
    assert shop.heedful(*DEMO).code == 0
    made = calls_of(shop)
    fresh = shop.heedful(*DEMO, "--json", "--fresh")
    assert calls_of(shop) == 2 * made
    assert "--fresh" not in fresh.json["settings"]["command"]


def test_another_plan_is_kept_apart(shop):
    shop.tasks(*house(8)[::3], name="house.jsonl")
    whole = shop.heedful(*DEMO, "--json", "--full").json
    made = calls_of(shop)
    smaller = shop.heedful(*DEMO, "--json").json
    assert figure(smaller, "shop")["memory"]["tasks"] == 7
    assert calls_of(shop) > made
    assert len(list((shop.folder / "out").glob("demo*.db"))) == 2
    made = calls_of(shop)
    assert shop.heedful(*DEMO, "--json", "--full").json["figures"] == whole["figures"]
    assert shop.heedful(*DEMO, "--json").json["figures"] == smaller["figures"]
    assert calls_of(shop) == made


def test_nothing_is_withheld(shop):
    shop.tasks(*house(22)[::3], name="house.jsonl")
    assert shop.heedful(*DEMO, "--full").code == 0
    (db,) = (shop.folder / "out").glob("demo*.db")
    assert rows(db, "select distinct share, shown from exposure") == [(0.0, 1)]
    assert rows(db, "select max(n) > 20 from outcome") == [(1,)]


def test_interrupted_it_goes_on(shop):
    process = shop.start(*DEMO, SLEEP="0.05")
    shop.wait_for(lambda: calls_of(shop) > 8, process)
    process.send_signal(signal.SIGINT)
    stopped = ended(process)
    assert stopped.code == 130
    assert re.search(r"The same command continues:\n  .*demo --model toys:follower", stopped.err)
    done = shop.heedful(*DEMO, "--json")
    assert done.code == 0
    total = sum(row["calls"] for rows in done.json["rows"].values() for row in rows)
    assert total <= calls_of(shop) <= total + 1  # at most the one in flight


def test_without_matplotlib_the_rest_is_there(shop):
    done = shop.heedful(*DEMO)
    assert done.code == 0
    assert "pip install 'heedful[report]'" in done.err
    assert not (shop.folder / "out" / "learning_curve.png").exists()
    page = (shop.folder / "out" / "report.html").read_text("utf-8")
    assert "Learning curve" not in page
    assert "picture" not in done.out


def test_a_bad_task_file_and_a_bad_model(shop):
    assert shop.heedful("demo", "--tasks", "none.jsonl", "--out", "out").code == 2
    assert shop.heedful(*DEMO, "--model", "toys:nobody").code == 2


def test_the_examples_that_come_along():
    tasks = plan(None, "toys:follower", full=True).tasks
    by_family = families(tasks)
    assert len(by_family) >= 6
    assert all(len(members) >= 40 for members in by_family.values())
    chosen = plan(None, "toys:follower", per_family=2).tasks
    assert [task.id for task in chosen[: len(by_family)]] == [m[0].id for m in by_family.values()]
    assert len(chosen) == 2 * len(by_family)


@pytest.fixture
def fetched(monkeypatch, tmp_path, capsys):
    """Runs `_fetched` with a fetch that never leaves this machine; answers names and words."""
    import asyncio

    from examples.demo.lab import fetch as _fetched
    from heedful.cli.settings import settings
    from heedful.models import weights

    def run(model, failing=(), **more):
        asked: list[str] = []

        async def fetch(one, *, cache, progress):
            asked.append(one.name)
            if one.name in failing:
                raise WeightsError(one.name, "no source")
            (cache / f"{one.name}.{one.extension}").write_bytes(b"")

        monkeypatch.setattr(weights, "fetch", fetch)
        monkeypatch.chdir(tmp_path)
        embedder = asyncio.run(_fetched(settings(model=model, cache=tmp_path, **more)))
        return embedder, asked, capsys.readouterr().err

    return run


def test_it_says_what_it_downloads(fetched):
    embedder, asked, said = fetched("embedded")
    assert embedder.name == "minilm-int8"
    assert asked == ["qwen2.5-coder-0.5b-instruct-q4_k_m", "minilm-int8", "minilm-tokenizer"]
    assert "to download once, 515 MB" in said
    assert "(491 MB, Apache-2.0)" in said
    assert fetched("embedded")[2] == ""  # now all is there


def test_without_the_embedder_it_compares_words(fetched):
    embedder, _, said = fetched("embedded:smollm2", failing=["minilm-tokenizer"])
    assert embedder is None
    assert "recall compares words: weights 'minilm-tokenizer': no source" in said


def test_without_the_model_it_does_not_begin(fetched):
    with pytest.raises(WeightsError):
        fetched("embedded:smollm2", failing=["smollm2-135m-instruct-q4_1"])
