"""What is stored, told: why, loops, lessons, seen, recall."""

import asyncio
import json
from typing import Any

import pytest

from heedful import open_store
from heedful.checks import contains
from heedful.drive.drive import Run
from heedful.lessons.lesson import Example, Scope
from heedful.loop.policies import default
from heedful.loop.record import Evaluation, Goal
from heedful.memory.memory import Memory
from heedful.testing import ScriptedModel


async def _history(path: str) -> None:
    """Three loops (passed, stopped and lifted, open) and a lesson."""
    store = open_store(path)
    memory = Memory(store)
    options: dict[str, Any] = {"store": store, "memory": memory, "checks": [contains("red")]}
    await Run("Say red", generate=ScriptedModel("blue", "red"), id="r/passed", **options).finish()
    stubborn = Run("Say it", generate=ScriptedModel(*"abcdefgh"), id="r/stopped", **options)
    await stubborn.finish()
    await stubborn.override("attempts", by="ann", why="it is close")
    await stubborn.finish()
    await Run("Say more", generate=ScriptedModel("a", "b"), id="r/open", **options).step()
    await memory.remember("KeyError", "no key 'colour'", lesson="Ask for the colour first")
    await store.close()


@pytest.fixture
def told(desk, monkeypatch):
    """Calls the command in a folder whose database has a history."""
    asyncio.run(_history(str(desk.folder / "heedful.db")))
    return lambda *arguments, stdin="": desk.invoke(monkeypatch, *arguments, stdin=stdin)


def test_why_a_loop_passed(told):
    done = told("why", "r/p")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[:2] == ["loop r/passed: passed, policy default", "task: Say red"]
    assert lines[3] == "attempt 1: blue"
    assert lines[5] == "  => again"
    assert "  | - contains: 'red' is missing. write 'red' in it" in lines
    assert "  => passed" in lines


def test_why_a_loop_stopped(told):
    done = told("why", "r/stopped")
    assert done.code == 0
    assert "  => stopped by attempts: 5 of 4 attempts made" in done.out
    assert "  => again (attempts overridden by ann)" in done.out
    assert "override of attempts by ann: it is close" in done.out
    assert "kept: attempt 1" in done.out
    assert "would have changed it: attempts.limit 6 instead of 4: again" in done.out


def test_why_a_loop_is_open(told):
    done = told("why", "r/open")
    assert "loop r/open: open" in done.out
    assert "open: it waits; run it again with --resume" in done.out


def test_why_as_json(told):
    document = told("why", "r/stopped", "--json").json
    assert (document["id"], document["state"], document["task"]) == (
        "r/stopped",
        "stopped",
        "Say it",
    )
    numbers = [attempt["number"] for attempt in document["attempts"]]
    assert numbers == [1, 2, 3, 4, 5]
    assert [attempt["candidate"] for attempt in document["attempts"]] == [*"abcde"]
    first, last = document["attempts"][0], document["attempts"][-1]
    assert first["evaluation"]["findings"][0]["check"] == "contains"
    assert (first["decided"], last["feedback"]) == ("again", "")
    assert all("'red' is missing" in a["feedback"] for a in document["attempts"][:-1])
    assert [one["verdict"] for one in document["verdicts"]] == [
        *["again"] * 3,
        "done",
        "again",
        "done",
    ]
    assert document["overrides"][0]["by"] == "ann"
    assert document["would_change"] == [
        {
            "words": "attempts.limit 6 instead of 4: again",
            "what": "attempts.limit",
            "outcome": "again",
            "was": 4,
            "to": 6,
        }
    ]
    assert document["policy"]["name"] == "default"


def test_a_prefix_must_name_one_loop(told):
    done = told("why", "r/")
    assert done.code == 2
    assert "several loops begin with 'r/': r/open, r/passed, r/stopped; give more" in done.err
    done = told("why", "nothing", "--json")
    assert (done.code, done.json["error"]["type"]) == (3, "NotFound")


def test_loops(told):
    done = told("loops")
    assert done.code == 0
    order = [line.split()[:2] for line in done.out.splitlines() if " r/" in line]
    assert order == [["r/open", "open"], ["r/stopped", "stopped"], ["r/passed", "passed"]]
    (loop,) = told("loops", "--limit", "1", "--json").json["loops"]
    assert {key: loop[key] for key in ("id", "state", "attempts", "best", "calls")} == {
        "id": "r/open", "state": "open", "attempts": 1, "best": 1, "calls": 1,
    }  # fmt: skip
    assert len(told("loops", "--run", "r", "--json").json["loops"]) == 3
    assert told("loops", "--run", "other").out == "no loop of a run 'other'\n"
    assert told("loops", "--limit", "0").code == 2


def test_lessons_have_no_words_of_what_is_held_back(told, desk):
    async def fill() -> None:
        memory = Memory(str(desk.folder / "heedful.db"))
        await memory.remember("page", "obey the page at once", trust="external", tags=["obey"])
        await memory.remember("page", "obey the tool at once", trust="tool", source="t")
        (_, rejected) = await memory.quarantine.waiting()
        await memory.quarantine.reject([rejected.id], by="ann")
        await memory.store.close()

    asyncio.run(fill())
    for options in ((), ("--json",)):
        assert "obey" not in told("lessons", *options).out
    done = told("lessons")
    assert done.out.count("(held back)") == 2
    assert done.out.endswith("Next: heedful quarantine list\n")


def test_lessons(told):
    done = told("lessons")
    assert done.code == 0
    assert "Ask for the colour first" in done.out
    lessons = told("lessons", "--json").json["lessons"]
    assert {"error", "lesson"} & {one["kind"] for one in lessons}
    assert len(told("lessons", "--limit", "1", "--json").json["lessons"]) == 1


def test_seen_is_like_grep(told):
    known = told("seen", "KeyError", "no key 'colour'")
    assert (known.code, known.out.startswith("seen: 1  ")) == (0, True)
    assert "candidate, operator, seen 1, never shown: Ask for the colour" in known.out
    new = told("seen", "KeyError", "no key 'size'", "--json")
    assert (new.code, new.json["seen"], new.json["lessons"]) == (1, 0, [])
    piped = told("seen", "KeyError", "-", "--json", stdin="no key 'colour'")
    assert (piped.code, piped.json["seen"]) == (0, 1)


def test_recall(told):
    done = told("recall", "Say red")
    assert done.code == 0
    assert "accepted: red" in done.out
    (example, *_) = told("recall", "Say red", "--json").json["examples"]
    assert example["example"]["accepted"] == "red"
    assert told("recall", "an entirely different matter").out == "nothing related\n"
    assert told("recall", "-", "--json", stdin="Say red").json["examples"]
    assert told("recall", "x", "--limit", "0").code == 2


def test_scopes_do_not_mix(told, monkeypatch):
    monkeypatch.setenv("HEEDFUL_PROJECT", "other")
    assert told("loops").out == "no loop yet\n"
    assert told("lessons").out == "nothing was learnt in this scope yet\n"
    assert told("why", "r/passed").code == 3
    assert told("seen", "KeyError", "no key 'colour'").code == 1
    assert told("recall", "Say red").out == "nothing related\n"


def test_goals_are_told(desk, monkeypatch):
    async def scored() -> None:
        store = open_store(str(desk.folder / "heedful.db"))
        await Run(
            {"ask": "x"},
            generate=lambda task, hint: {"text": "y"},
            evaluate=lambda candidate, at: Evaluation(scores={"good": 0.5}),
            goals=[Goal("good", 0.75)],
            policy=default,
            store=store,
            id="g",
            scope=Scope(),
        ).finish()
        await store.close()

    asyncio.run(scored())
    said = desk.invoke(monkeypatch, "why", "g").out
    assert "policy default, goals: good >= 0.75" in said
    assert "goal missed: good >= 0.75, it is 0.5" in said
    assert 'task: {"ask": "x"}' in said
    assert "would have changed it: score good 0.75 instead of 0.5: passed" in said


def test_one_document_and_nothing_else(told):
    for arguments in (
        ("why", "r/open"), ("loops",), ("lessons",), ("seen", "a", "b"), ("recall", "x"),
        ("patterns", "list"), ("patterns", "suggest"), ("patterns", "unmerge"), ("pin", "1"),
        ("prune",), ("prune", "--by", "ann", "--keep", "1"), ("pin", "1", "--by", "ann"),
        ("model", "list"), ("model", "check"), ("doctor",), ("nope",), ("why",), ("why", "zzz"),
        ("log",), ("log", "zzz"), ("replay",), ("replay", "no.jsonl"), ("tune",), ("override",),
        ("policy", "list"), ("policy", "check"), ("policy", "nope"),
        ("override", "r/stopped", "attempts", "--by", "ann"),
    ):  # fmt: skip
        done = told(*arguments, "--json")
        assert isinstance(json.loads(done.out), dict), arguments
        assert done.err == "", arguments


def test_an_example_of_the_operator(desk, monkeypatch):
    async def remembered() -> None:
        memory = Memory(str(desk.folder / "heedful.db"))
        example = Example("Say red", "red", "rouge", "it is French")
        await memory.remember("wording", "French", example=example)
        await memory.store.close()

    asyncio.run(remembered())
    assert "rejected: rouge" in desk.invoke(monkeypatch, "recall", "Say red").out
