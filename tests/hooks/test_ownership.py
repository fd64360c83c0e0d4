"""Whose database hooks follow: the user's own, whatever git puts into its place."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from heedful.store.ownership import prepare_database
from heedful.store.workspace import is_tracked
from tests.hooks.hostile import (
    ATTACK,
    OWN,
    Home,
    Plant,
    remember,
    run_command,
    send_events,
    settings_of,
    teach,
)
from tests.hooks.support import answer_at_terminal, approve_all, run_event


def pull(home: Home) -> None:
    home.git(home.clone, "pull", "-q")


def merge(home: Home) -> None:
    home.git(home.clone, "fetch", "-q")
    home.git(home.clone, "merge", "-q", "origin/main")


def checkout(home: Home) -> None:
    home.git(home.clone, "fetch", "-q")
    home.git(home.clone, "checkout", "-q", "origin/main")


def switch(home: Home) -> None:
    home.git(home.clone, "fetch", "-q")
    home.git(home.clone, "switch", "-q", "-c", "new", "origin/main")


def reset(home: Home) -> None:
    """Leave the attacker's file in the folder as one that git does not track."""
    pull(home)
    home.git(home.clone, "reset", "-q", "HEAD~1")


def pull_log(home: Home) -> None:
    """Pull an empty log, too, as the user's log would damage the attacker's file."""
    home.commit("heedful.db-wal", b"")
    pull(home)


WAYS = [
    pytest.param(pull, id="git pull"),
    pytest.param(merge, id="git merge", marks=pytest.mark.nightly),
    pytest.param(checkout, id="git checkout", marks=pytest.mark.nightly),
    pytest.param(switch, id="git switch", marks=pytest.mark.nightly),
    pytest.param(reset, id="git reset after a pull", marks=pytest.mark.nightly),
    pytest.param(pull_log, id="git pull with an empty log"),
]


@pytest.mark.parametrize("way", WAYS)
def test_git_never_exchanges_the_memory(way: Plant, home: Home) -> None:
    home.take()
    teach(home)
    assert "OWN" in send_events(home)
    home.plant_database()
    home.commit()
    way(home)
    assert (home.clone / "heedful.db").is_symlink() is False

    output = send_events(home)
    assert "ATTACK" not in output
    assert "OWN" in output
    assert "heedful.db is ignored: " in output
    assert "heedful.db is ignored: " in run_command(home, "hook status")
    run_command(home, "hook install --yes")
    assert "heedful.db is ignored: " in run_command(home, "doctor")


def test_no_stated_database_is_followed_among_the_files_of_a_repository(
    home: Home,
) -> None:
    """A pull could bring another one, or only a log that overwrites what it has."""
    home.take()
    teach(home)
    (home.clone / "heedful.toml").write_text('db = "memory.db"')
    approve_all(home.clone, home.home)
    remember(home.clone / "memory.db", "among the files")
    output = send_events(home)
    assert "among the files" not in output
    assert "OWN" in output
    assert "memory.db is ignored: git writes files there" in output

    code, screen = answer_at_terminal(home.clone, home.home, "hook approve", [])
    assert code == 0
    assert "hooks cannot follow it; state a place outside of the repository" in screen
    assert send_events(home).count("ignored") == 0

    (home.clone / "memory.db").unlink()
    home.plant_database("memory.db")
    home.commit()
    pull(home)
    output = send_events(home)
    assert "ATTACK" not in output
    assert "memory.db is ignored: git tracks it" in output


def test_a_stated_database_in_the_folder_of_git_is_followed(home: Home) -> None:
    home.take()
    (home.clone / "heedful.toml").write_text('db = ".git/memory.db"')
    approve_all(home.clone, home.home)
    assert home.event("SessionStart", source="startup")[1] == ""
    remember(home.clone / ".git" / "memory.db", OWN)
    assert "OWN" in home.event("SessionStart", source="startup")[1]


def test_the_name_of_the_link_states_the_memory_itself(home: Home) -> None:
    home.take()
    (home.clone / "heedful.toml").write_text('db = "heedful.db"')
    approve_all(home.clone, home.home)
    teach(home)
    output = send_events(home)
    assert "OWN" in output
    assert "ignored" not in output


@pytest.mark.parametrize("is_in_file", [True, False], ids=["file", "variable"])
def test_a_stated_database_in_a_folder_without_git_is_followed(
    is_in_file: bool, home: Home
) -> None:
    home.clone.mkdir()
    more = {"HEEDFUL_DB": str(home.clone / "memory.db")}
    if is_in_file:
        more = {}
        (home.clone / "heedful.toml").write_text('db = "memory.db"')
        approve_all(home.clone, home.home)
    start = {"source": "startup"}
    run_event(home.clone, home.home, "SessionStart", start, more)
    remember(home.clone / "memory.db", OWN)
    done = run_event(home.clone, home.home, "SessionStart", start, more)
    assert "OWN" in done.out

    # As an archive could bring it, extracted over the folder.
    (home.clone / "memory.db-journal").write_bytes(b"a log")
    done = run_event(home.clone, home.home, "SessionStart", start, more)
    assert "OWN" not in done.out
    assert "a log (-journal) lies beside it" in done.out


def test_a_database_of_the_user_is_adopted_once_and_kept(home: Home) -> None:
    """A database that a program made in the project is followed after one question."""
    home.take()
    remember(home.clone / "heedful.db", OWN)
    output = send_events(home)
    assert "OWN" not in output
    assert "heedful hook approve" in output

    code, screen = answer_at_terminal(home.clone, home.home, "hook approve", ["y"])
    assert code == 0
    assert "in the place of what hooks stored until now, which is kept" in screen
    assert f"database: {home.clone}/.git/heedful/heedful.db" in screen
    assert (home.clone / "heedful.db").is_symlink()
    output = send_events(home)
    assert "OWN" in output
    assert "ignored" not in output

    home.plant_database()
    home.commit()
    pull(home)
    output = send_events(home)
    assert "OWN" in output
    assert "ATTACK" not in output


def test_a_database_that_the_user_refuses_is_not_asked_for_again(home: Home) -> None:
    home.take()
    remember(home.clone / "heedful.db", OWN)
    answer_at_terminal(home.clone, home.home, "hook approve", ["n"])
    assert send_events(home).strip() == ""
    assert (home.clone / "heedful.db").is_symlink() is False
    # Who changes his mind is asked again.
    answer_at_terminal(home.clone, home.home, "hook approve", ["y"])
    assert "OWN" in home.event("SessionStart", source="startup")[1]


def test_a_database_that_hooks_use_is_not_exchanged(home: Home) -> None:
    """All is as it was if it is open, so what hooks have stored is told on."""
    home.take()
    teach(home)
    (home.clone / "heedful.db").unlink()
    remember(home.clone / "heedful.db", "of a program")
    target = home.clone / ".git" / "heedful" / "heedful.db"
    with closing(sqlite3.connect(target)) as db:
        db.execute("begin immediate")
        code, screen = answer_at_terminal(home.clone, home.home, "hook approve", ["y"])
    assert code == 2
    assert "is open in another program" in screen
    assert sorted(path.name for path in target.parent.glob("*.db")) == ["heedful.db"]
    assert (home.clone / "heedful.db").is_symlink() is False
    assert "OWN" in home.event("SessionStart", source="startup")[1]


def test_a_database_on_another_disk_is_not_moved(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.take()
    teach(home)
    (home.clone / "heedful.db").unlink()
    remember(home.clone / "heedful.db", "of a program")

    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    code, screen = answer_at_terminal(home.clone, home.home, "hook approve", ["y"])
    assert code == 2
    assert "nothing is changed" in screen
    assert "OWN" in home.event("SessionStart", source="startup")[1]
    assert (home.clone / "heedful.db").is_symlink() is False


PLACES = [
    pytest.param("tree", id="in another worktree"),
    pytest.param(
        "clone/pkg", id="in a folder of the repository", marks=pytest.mark.nightly
    ),
]


@pytest.mark.parametrize("place", PLACES)
def test_only_the_database_at_the_root_takes_the_place_of_the_memory(
    place: str, home: Home
) -> None:
    home.take()
    teach(home)
    home.git(home.clone, "worktree", "add", "-q", str(home.home / "tree"))
    home.clone = home.home / place
    home.clone.mkdir(exist_ok=True)
    remember(home.clone / "heedful.db", "of a program")
    before = (home.clone / "heedful.db").read_bytes()
    code, screen = answer_at_terminal(home.clone, home.home, "hook approve", ["y"])
    assert code == 0
    assert "hooks cannot follow it" in screen
    assert (home.clone / "heedful.db").read_bytes() == before
    output = home.event("SessionStart", source="startup")[1]
    assert "OWN" in output
    assert "of a program" not in output


def test_a_database_with_the_log_of_another_is_not_adopted(home: Home) -> None:
    home.take()
    path = home.clone / "heedful.db"
    remember(path, OWN)
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table own (x)")
        db.executemany("insert into own values (?)", [("x" * 100,)] * 5_000)
        db.commit()
        db.execute("pragma wal_checkpoint(truncate)")
        db.execute("pragma wal_autocheckpoint = 0")
        db.execute("create index own_x on own (x)")
        db.commit()
        shutil.copyfile(f"{path}-wal", home.home / "log")
    path.unlink()
    remember(path, ATTACK)
    shutil.copyfile(home.home / "log", f"{path}-wal")

    code, screen = answer_at_terminal(home.clone, home.home, "hook approve", ["y"])
    assert code == 2
    assert "is damaged, perhaps by a log of another database" in screen
    assert "ATTACK" not in send_events(home)


def test_a_project_of_one_s_own_asks_nothing(home: Home) -> None:
    """Settings that the user approved hold, in a folder that was moved, too."""
    home.take()
    (home.clone / "heedful.toml").write_text(settings_of(home))
    code, screen = answer_at_terminal(
        home.clone, home.home, "hook install", ["y", "n", "y", "y"]
    )
    assert code == 0
    assert home.marker() in screen
    assert (home.clone / ".claude" / "settings.json").exists()

    teach(home)
    output = send_events(home)
    assert "OWN" in output
    assert "ignored" not in output
    assert home.ran.exists()
    home.git(home.clone, "clean", "-fdxq", "-e", "heedful.toml")
    assert "OWN" in send_events(home)

    (home.clone / "heedful.toml").unlink()
    moved = home.home / "moved"
    home.clone.rename(moved)
    home.clone = moved
    output = send_events(home)
    assert "OWN" in output
    assert "ignored" not in output


def test_a_worktree_shares_the_database(home: Home) -> None:
    home.take()
    teach(home)
    home.git(home.clone, "worktree", "add", "-q", str(home.home / "tree"))
    home.clone = home.home / "tree"
    output = send_events(home)
    assert "OWN" in output
    assert "ignored" not in output


def take_worktree_of_bare(home: Home) -> Path:
    git = home.home / "project.git"
    home.git(home.home, "clone", "-q", "--bare", str(home.remote), str(git))
    home.git(git, "worktree", "add", "-q", str(home.home / "tree"))
    home.clone = home.home / "tree"
    return git


def take_worktree_of_submodule(home: Home) -> Path:
    outer = home.home / "outer"
    outer.mkdir()
    home.git(outer, "init", "-q")
    home.git(outer, "submodule", "add", "-q", str(home.remote), "sub")
    home.git(outer / "sub", "worktree", "add", "-q", str(home.home / "tree"))
    home.clone = home.home / "tree"
    return outer / ".git" / "modules" / "sub"


TAKES = [
    pytest.param(take_worktree_of_bare, id="of a bare repository"),
    pytest.param(
        take_worktree_of_submodule, id="of a submodule", marks=pytest.mark.nightly
    ),
]


@pytest.mark.parametrize("take", TAKES)
def test_a_worktree_without_a_main_one_has_a_memory(
    take: Callable[[Home], Path], home: Home
) -> None:
    git = take(home)
    assert home.event("SessionStart", source="startup")[1] == ""
    remember(git / "heedful" / "heedful.db", OWN)
    assert "OWN" in home.event("SessionStart", source="startup")[1]
    assert "OWN" in run_command(home, "lessons")
    run_command(home, "hook install --yes")
    assert (home.clone / ".claude" / "settings.json").exists()
    assert not (git.parent / ".claude").exists()


def test_git_ignores_the_link_before_it_is_there(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.take()

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "symlink_to", end)
    with pytest.raises(KeyboardInterrupt):
        prepare_database(str(home.clone / ".git" / "heedful" / "heedful.db"))
    exclude = home.clone / ".git" / "info" / "exclude"
    assert "/heedful.db*" in exclude.read_text().splitlines()


def test_commands_in_the_folder_find_the_database_of_the_hooks(home: Home) -> None:
    home.take()
    teach(home)
    assert "OWN" in run_command(home, "lessons")
    (home.clone / "heedful.db").unlink()
    assert "OWN" in run_command(home, "lessons")


def test_a_file_is_tracked_in_any_case_of_its_name(home: Home) -> None:
    home.take()
    assert is_tracked(home.clone / "README")
    assert is_tracked(home.clone / "readme")
    assert not is_tracked(home.clone / "heedful.db")
    assert not is_tracked(home.home / "heedful.db")
