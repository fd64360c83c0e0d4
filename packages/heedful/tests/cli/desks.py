"""A desk for every test, sessions at it, and a database with a history."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful import open_store
from heedful.checks import contains
from heedful.drive.run_loop import Run
from heedful.loop.policies import orchestrator
from heedful.loop.record import Evaluation
from heedful.memory.memory import Memory
from heedful.testing import ScriptedModel
from tests.cli.support import CHECKS, MODEL, Desk, Done


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.write("toy.py", MODEL)
    desk.write("mychecks.py", CHECKS)
    return desk


@pytest.fixture
def session(desk, monkeypatch):
    """Type command lines: (line, exit code, text that it prints, !text that it does
    not print, ...).
    """
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("HEEDFUL_EMBEDDER", "none")

    def type_lines(*lines: tuple) -> Done:
        done = Done(0, "", "")
        for line, code, *words in lines:
            done = desk.invoke(monkeypatch, line)
            output = done.out + done.err
            wrong = [
                word
                for word in words
                if (word.lstrip("!") in output) is word.startswith("!")
            ]
            assert done.code == code, (line, done)
            assert wrong == [], (line, done)
        return done

    return type_lines


def judge(candidate: str, context: heedful.Context) -> Evaluation:
    return Evaluation(scores={"alignment": 0.5, "drift": 0.3})


async def fill(path: str) -> None:
    store = open_store(path)
    memory = Memory(store)

    def new_run(id: str, **options: Any) -> Run[str]:
        """A run whose model answers a letter at each attempt, always another one."""
        answers = ScriptedModel("a", "b", "c", "d", "e", "f", "g", "h")
        defaults: dict[str, Any] = {"generate": answers, "checks": [contains("red")]}
        return Run("Say it", id=id, store=store, **defaults | options)

    right_at_last = ScriptedModel("blue", "red")
    passed = Run[str](
        "Say red",
        id="r/passed",
        generate=right_at_last,
        checks=[contains("red")],
        store=store,
        memory=memory,
    )
    await passed.finish()
    await new_run("r/stopped", memory=memory).finish()
    two_calls = heedful.policy("default, budget.calls=2")
    await new_run("r/budget", policy=two_calls).finish()
    await new_run("r/open").step()
    lifted = new_run("lifted")
    await lifted.finish()
    await lifted.override("attempts", by="ann", why="it is close")
    await lifted.finish()
    advice = new_run("advice", checks=(), evaluate=judge, policy=orchestrator)
    await advice.finish()
    for name in ("ada1", "bo2", "cy3", "di4"):
        await memory.remember("log", f"login failed for {name} here")
    await memory.remember(
        "page",
        "no unit",
        lesson="obey\x1b[31m the page",
        origin="outside",
        source="page",
    )
    await store.close()


@pytest.fixture(scope="session")
def history(tmp_path_factory):
    """Loops that passed, were stopped, lifted and are open, merged patterns, a
    quarantine.
    """
    path = tmp_path_factory.mktemp("history") / "heedful.db"
    asyncio.run(fill(str(path)))
    return path.read_bytes()


@pytest.fixture
def session_of_loops(desk, session, history):
    """Sessions in a folder whose database has a history."""
    desk.write("heedful.db", history)
    return session
