"""A desk for every test, sessions at it, and a database with a history."""

import asyncio
import shlex
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful import open_store
from heedful.checks import contains
from heedful.drive.drive import Run
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
    """Types command lines: each with its exit code and what it prints, or with ! does
    not print.
    """
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("HEEDFUL_EMBEDDER", "none")

    def typed(*lines: tuple) -> Done:
        done = Done(0, "", "")
        for line, code, *words in lines:
            done = desk.invoke(monkeypatch, *shlex.split(line))
            output = done.out + done.err
            wrong = [
                word
                for word in words
                if (word.lstrip("!") in output) is word.startswith("!")
            ]
            assert (done.code, wrong) == (code, []), (line, done)
        return done

    return typed


def judged(candidate: str, context: heedful.Context) -> Evaluation:
    return Evaluation(scores={"alignment": 0.5, "drift": 0.3})


async def fill(path: str) -> None:
    store = open_store(path)
    memory = Memory(store)

    def made(id: str, *answers: str, task: str = "Say it", **more: Any) -> Run[str]:
        options: dict[str, Any] = {"store": store, "checks": [contains("red")], **more}
        return Run(task, generate=ScriptedModel(*answers), id=id, **options)

    await made("r/passed", "blue", "red", task="Say red", memory=memory).finish()
    await made("r/stopped", *"abcdefgh", memory=memory).finish()
    await made(
        "r/budget", *"abc", policy=heedful.policy("default, budget.calls=2")
    ).finish()
    await made("r/open", "a", "b").step()
    lifted = made("lifted", *"abcdefgh")
    await lifted.finish()
    await lifted.override("attempts", by="ann", why="it is close")
    await lifted.finish()
    judge: dict[str, Any] = {"checks": (), "evaluate": judged, "policy": orchestrator}
    await made("advice", *"abcdefgh", **judge).finish()
    for name in ("ada", "bo", "cy", "di"):
        await memory.remember("log", f"login failed for {name} here")
    page: dict[str, Any] = {"trust": "external", "source": "page"}
    await memory.remember("page", "no unit", lesson="obey\x1b[31m the page", **page)
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
