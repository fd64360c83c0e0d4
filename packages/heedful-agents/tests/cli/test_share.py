"""`heedful rules share`: what it writes and leaves alone, and how git merges it."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from heedful.memory.memory import Memory
from heedful_agents.team_rules import ATTRIBUTES_FILE, SHARED_FILE, read_rules
from tests.cli.support import Desk

GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=0"]


def git(folder: Path, line: str) -> str:
    """Run a command of git in a folder; return what it prints."""
    done = subprocess.run(
        [*GIT, *line.split()],
        cwd=folder,
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    return done.stdout


def remember(folder: Path, *texts: str) -> None:
    """Store rules that a person wrote."""
    memory = Memory(str(folder / "heedful.db"))

    async def write() -> None:
        for text in texts:
            await memory.remember("", text)
        await memory.store.close()

    asyncio.run(write())


@pytest.fixture
def repository(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The repository of a user who has a home of their own."""
    monkeypatch.setenv("HOME", str(desk.folder / "home"))
    git(desk.folder, "init -q -b main")
    git(desk.folder, "commit -q --allow-empty -m x")
    return desk.folder


def texts_in(folder: Path) -> set[str]:
    """Return the texts of the rules in the file."""
    return {rule.text for rule in read_rules((folder / SHARED_FILE).read_bytes())}


def test_reviewed_rules_are_written_beside_those_of_others(session, repository):
    path = repository / SHARED_FILE
    path.parent.mkdir()
    path.write_text("- By hand, by a colleague.\n")
    remember(repository, "Use pnpm, never npm.")
    session(
        (
            "rules share --dry-run --db heedful.db",
            0,
            "+ Use pnpm, never npm. |",
            "would get 2 rules, 1 new",
        ),
        ("rules share --db heedful.db", 0, "has 2 rules, 1 new", "git add .heedful"),
        ("rules share --db heedful.db", 0, "nothing new to share"),
    )
    assert texts_in(repository) == {"Use pnpm, never npm.", "By hand, by a colleague."}
    assert "merge=union" in (repository / ATTRIBUTES_FILE).read_text()
    assert {file.name for file in path.parent.iterdir()} == {
        "rules.md",
        ".gitattributes",
    }


@pytest.mark.parametrize(
    ("content", "error"),
    [
        pytest.param(b"- \xff", "rules.md cannot be read", id="no UTF-8"),
        pytest.param(b"<<<<<<< HEAD", "rules.md:1: a rule begins with", id="conflict"),
    ],
)
def test_a_damaged_file_is_named_and_left_alone(session, repository, content, error):
    path = repository / SHARED_FILE
    path.parent.mkdir()
    path.write_bytes(content)
    remember(repository, "Use pnpm, never npm.")
    session(("rules share --db heedful.db", 2, error))
    assert path.read_bytes() == content


def test_nothing_is_written_outside_of_the_repository(session, repository, tmp_path):
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (repository / ".heedful").symlink_to(outside)
    remember(repository, "Use pnpm, never npm.")
    session(("rules share --db heedful.db", 2, "outside of"))
    assert list(outside.iterdir()) == []


def test_a_pipe_in_its_place_is_an_error(session, repository):
    (repository / ".heedful").mkdir()
    os.mkfifo(repository / SHARED_FILE)
    remember(repository, "Use pnpm, never npm.")
    session(("rules share --db heedful.db", 2, "is not a regular file"))


def test_outside_of_a_repository_there_is_no_file(session, desk):
    session(("rules share --db heedful.db", 2, "is in no git repository"))
