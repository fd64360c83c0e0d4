"""A desk for every test, and sessions at it."""

import shlex
from pathlib import Path

import pytest

from tests.cli.support import CHECKS, MODEL, Desk, Done


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.write("toy.py", MODEL)
    desk.write("mychecks.py", CHECKS)
    return desk


@pytest.fixture
def session(desk, monkeypatch):
    """Types command lines: each with its exit code and what it prints, or with ! does not print."""
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("HEEDFUL_EMBEDDER", "none")

    def typed(*lines: tuple) -> Done:
        done = Done(0, "", "")
        for line, code, *words in lines:
            done = desk.invoke(monkeypatch, *shlex.split(line))
            said = done.out + done.err
            wrong = [word for word in words if (word.lstrip("!") in said) is word.startswith("!")]
            assert (done.code, wrong) == (code, []), (line, done)
        return done

    return typed
