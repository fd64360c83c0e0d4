"""Whose database hooks follow: the user's own, whatever git puts into its place."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import pytest

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
from tests.hooks.support import answer_at_terminal, approve_all


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
    pytest.param(merge, id="git merge"),
    pytest.param(checkout, id="git checkout"),
    pytest.param(switch, id="git switch"),
    pytest.param(reset, id="git reset after a pull"),
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


def test_a_stated_database_that_a_pull_replaced_is_not_followed(home: Home) -> None:
    home.take()
    (home.clone / "heedful.toml").write_text('db = "memory.db"')
    approve_all(home.clone, home.home)
    send_events(home)
    remember(home.clone / "memory.db", OWN)
    assert "OWN" in send_events(home)

    home.plant_database("memory.db")
    home.commit()
    pull(home)
    output = send_events(home)
    assert "ATTACK" not in output
    assert "memory.db is ignored: git tracks it" in output

    home.git(home.clone, "rm", "-q", "--cached", "memory.db")
    output = send_events(home)
    assert "ATTACK" not in output
    assert "is not the database that you approved" in output


def test_a_database_with_the_identity_of_the_user_s_own_is_not_followed(
    home: Home,
) -> None:
    """An attacker who has read the user's file cannot pass for it by way of git."""
    home.take()
    (home.clone / "heedful.toml").write_text('db = "memory.db"')
    approve_all(home.clone, home.home)
    send_events(home)
    with closing(sqlite3.connect(home.clone / "memory.db")) as db:
        (identity,) = db.execute("select id from identity").fetchone()

    path = home.plant_database("memory.db")
    with closing(sqlite3.connect(path)) as db:
        db.execute("update identity set id = ?", (identity,))
        db.commit()
    home.commit()
    pull(home)
    output = send_events(home)
    assert "ATTACK" not in output
    assert "git tracks it" in output


def test_a_database_of_the_user_is_adopted_once_and_kept(home: Home) -> None:
    """A database that a program made in the project is followed after one question."""
    home.take()
    remember(home.clone / "heedful.db", OWN)
    output = send_events(home)
    assert "OWN" not in output
    assert "heedful hook approve" in output

    code, screen = answer_at_terminal(home.clone, home.home, "hook approve", ["y"])
    assert code == 0
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
        home.clone, home.home, "hook install", ["y", "y", "y", "none"]
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
