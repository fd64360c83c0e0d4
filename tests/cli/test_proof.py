"""`heedful proof`: what it says at every stage, what it brings back, and its picture."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from heedful.cli.output import NoPictures
from heedful.cli.pictures import draw_intervals as draw
from heedful.lessons.lesson import Example, Exposure, Outcome, Reflection, Scope
from heedful.lessons.proof import prove_cases
from heedful.lessons.ranking import FIRST
from heedful.lessons.signature import signature
from heedful.memory.memory import Memory
from heedful.store import exposures
from heedful.store.sqlite import in_file
from heedful.store.store import Store
from tests.cli.support import Desk, following, task

SCOPE = Scope()
TEXTS = {"bad": "Dates go day first", "good": "Write metres", "new": "No full stop \x1b[31m"}


def lesson(name: str) -> Reflection:
    text, mark = TEXTS[name], signature(name, name)
    return Reflection("check", mark, name, text, text, example=Example(text, "x"), state="verified")


@dataclass(frozen=True)
class World:
    """A database beside the task files, filled as loops would fill it."""

    desk: Desk

    def fill(self, *made: tuple[str, int, int, int, int], share: float = 0.5) -> None:
        """Of each lesson: right and wrong where shown, and where withheld."""

        async def all() -> None:
            store = in_file(str(self.desk.folder / "heedful.db"))
            await store.write(SCOPE, exposures.remember, [lesson(name) for name in TEXTS])
            for name, *counts in made:
                await self._exposed(store, name, counts, share)
            await store.close()

        asyncio.run(all())

    async def _exposed(self, store: Store, name: str, counts: Sequence[int], share: float) -> None:
        digest = signature(name, name).digest
        kinds = [(True, True), (True, False), (False, True), (False, False)]
        for (shown, right), n in zip(kinds, counts, strict=True):
            for k in range(n):
                loop = f"{name} {shown} {right} {k}"
                one = Exposure(f"check/{digest}", loop, shown, digest, share)
                end = Outcome(loop, right, 1 if right else 3, frozenset() if right else {digest})  # type: ignore[arg-type]
                await store.write(SCOPE, exposures.remember, (), exposures=[one], outcome=end)
                await Memory(store, holdout=share).look(loop)


@pytest.fixture
def world(desk):
    return World(desk)


HARM = ("bad", 5, 60, 40, 10)
HELP = ("good", 60, 0, 0, 50)


def test_nothing_was_shown_yet(world, monkeypatch):
    world.fill()
    done = world.desk.invoke(monkeypatch, "proof")
    assert done.code == 0
    assert done.out == (
        "no lesson was put into the prompt of a loop yet\nNext: heedful recall TASK\n"
    )


def test_harm_and_help_are_said_with_figures(world, monkeypatch):
    world.fill(HARM, HELP)
    done = world.desk.invoke(monkeypatch, "proof")
    assert done.code == 0, done.err
    whole, bad, good, *_ = done.out.split("\n\n")
    assert whole.startswith("memory as a whole\n  insufficient data: shown 125, withheld 100\n")
    assert bad.splitlines()[:2] == [
        "lesson 1, retired: Dates go day first",
        "  hurts: shown 65, withheld 50",
    ]
    assert "right at once   8 % against 80 %    gain −72 points, between −" in bad
    assert "its error again 92 % against 20 %   gain −72 points, between −" in bad
    assert "calls a loop    2.8 against 1.4     gain −1.4, between −" in bad
    assert good.splitlines()[1] == "  helps: shown 60, withheld 50"
    assert "insufficient data" not in good
    assert following(done.out) == ["proof", "--restore", "1", "--by", "NAME"]


def test_a_lesson_that_a_proof_retired_is_brought_back(world, monkeypatch):
    world.fill(HARM)
    again = ("proof", "--restore", "1", "--by", "ada", "--why", "a new model")
    done = world.desk.invoke(monkeypatch, *again)
    assert (done.code, following(done.out)) == (0, ["proof"])
    states = json.loads(world.desk.invoke(monkeypatch, "lessons", "--json").out)["lessons"]
    assert {one["state"] for one in states} == {"verified"}
    after = world.desk.invoke(monkeypatch, "proof")
    assert "retired" not in after.out
    assert after.out.startswith("memory as a whole\n  hurts: shown 65, withheld 50\n")
    assert "lesson 1" not in after.out  # nothing has come since
    assert world.desk.invoke(monkeypatch, *again).code == 3  # it is back already
    assert world.desk.invoke(monkeypatch, "proof", "--restore", "1").code == 2


def test_json_holds_everything(world, monkeypatch):
    world.fill(HARM, HELP)
    document = world.desk.invoke(monkeypatch, "proof", "--json", "--limit", "1").json
    assert document.keys() == {"pooled", "lessons", "pending", "ended", "holdout"}
    (bad,) = document["lessons"]
    assert (bad["id"], bad["state"], bad["conclusion"]) == (1, "retired", "hurts")
    assert (bad["helped"], bad["hurt"], bad["pinned"]) == (5, 60, 0)
    assert bad["uplift"]["low"] < bad["uplift"]["gain"] < bad["uplift"]["high"] < 0
    assert 0.5 <= bad["useful"] < 1
    assert (document["pending"], document["ended"], document["holdout"]) == (0, 225, 0.1)
    assert document["pooled"]["conclusion"] == "insufficient data"


@pytest.mark.parametrize(
    ("loops", "holdout", "said"),
    [
        (3, "0.1", f"the first {FIRST} loops are shown everything; 3 have ended"),
        (3, "0", "the holdout is off (the setting holdout is 0)"),
        (FIRST, "0.1", "nothing was withheld so far"),
    ],
)
def test_it_says_why_there_is_nothing_to_compare_with(world, monkeypatch, loops, holdout, said):
    world.fill(("new", loops, 0, 0, 0), share=0.0)
    monkeypatch.setenv("HEEDFUL_HOLDOUT", holdout)
    done = world.desk.invoke(monkeypatch, "proof")
    assert said in done.out
    assert f"insufficient data: shown {loops}, withheld 0\n" in done.out
    assert "\x1b" not in done.out


def test_a_lesson_that_is_gone_is_still_told(world, monkeypatch):
    world.fill(HELP)

    async def forget() -> None:
        store = in_file(str(world.desk.folder / "heedful.db"))
        await store.write(Scope(), lambda db, _: db.execute("delete from reflection"))
        await store.close()

    asyncio.run(forget())
    out = world.desk.invoke(monkeypatch, "proof").out
    assert f"a lesson that is gone: check/{signature('good', 'good').digest}\n  helps" in out


def test_loops_under_way_are_told(world, monkeypatch):
    async def begin() -> None:
        store = in_file(str(world.desk.folder / "heedful.db"))
        await store.write(
            SCOPE, exposures.remember, (), exposures=[Exposure("check/a", "l", True, "a")]
        )
        await store.close()

    asyncio.run(begin())
    assert world.desk.invoke(monkeypatch, "proof").out.startswith("1 loop under way, not counted")


def test_the_picture(world, monkeypatch):
    world.fill(HARM, HELP)
    done = world.desk.invoke(monkeypatch, "proof", "--plot", "uplift.png")
    assert (done.code, done.err) == (0, "picture uplift.png\n")
    assert (world.desk.folder / "uplift.png").read_bytes().startswith(b"\x89PNG")


def test_a_pinned_lesson_that_hurts_may_be_unpinned(world, monkeypatch):
    world.fill(HARM)
    again = ("proof", "--restore", "1", "--by", "ada")
    assert world.desk.invoke(monkeypatch, *again).code == 0
    assert world.desk.invoke(monkeypatch, "pin", "1", "--by", "ada").code == 0
    world.fill(("bad", 10, 160, 120, 20))
    done = world.desk.invoke(monkeypatch, "proof")
    assert following(done.out) == ["pin", "1", "--undo", "--by", "NAME"]


def test_the_picture_takes_any_name_and_no_data(monkeypatch):
    empty = prove_cases({}, 0).pooled
    assert draw([("$x$ 中\x07", empty)], "cost in $").startswith(b"\x89PNG")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NoPictures, match="heedful\\[report\\]"):
        draw([], "none")


def test_numbers_that_contradict_the_coin_are_told(world, monkeypatch):
    world.fill(("good", 0, 0, 60, 0))
    out = world.desk.invoke(monkeypatch, "proof").out
    assert "withheld 60; not a random draw" in out


def test_a_run_withholds_as_the_settings_say(desk):
    ask = "Please say the following word aloud: word{}"
    desk.tasks(*(task(f"word{n}", task=ask.format(n)) for n in range(FIRST + 12)))
    options: dict[str, Any] = {"HEEDFUL_EMBEDDER": "none"}
    run = ("run", "tasks.jsonl", "--model", "toy:answer", "--holdout", "0.99")
    assert desk.heedful(*run, **options).code == 0
    document = desk.heedful("proof", "--json", "--limit", "99").json
    withheld = sum(one["withheld"] for one in document["lessons"])
    assert withheld >= 5
    assert document["ended"] > FIRST
    last = f"tasks-1/word{FIRST + 11}"
    arms = [one["shown"] for one in desk.heedful("why", last, "--json").json["exposures"]]
    said = f"{arms.count(True)} lessons shown, {arms.count(False)} withheld to see whether it helps"
    assert arms.count(False) > 1
    assert said in desk.heedful("why", last).out
    assert "from memory: 3 lessons shown\n" in desk.heedful("why", "tasks-1/word9").out
    assert "from memory" not in desk.heedful("why", "tasks-1/word0").out
