"""Where the memory of hooks lies, and what hooks follow."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from heedful_agents.team_rules import SHARED_FILE
from tests.hooks.homes import (
    ATTACK,
    REMEDY,
    Home,
    fail_and_mend,
    run_command,
    send_events,
)


def test_a_worktree_and_a_subfolder_share_one_file_in_the_user_s_folder(
    home: Home,
) -> None:
    tree = home.home / "tree"
    home.git(home.shop, "worktree", "add", "-q", str(tree))
    (home.shop / "sub").mkdir()
    for folder in (home.shop, tree, home.shop / "sub"):
        home.event("SessionStart", folder, source="startup")

    [database] = (home.home / ".heedful" / "projects").glob("*/heedful.db")
    assert database.parent.name.startswith("shop-")
    assert database == home.database(tree)
    assert home.git(home.shop, "status", "--short") == ""
    assert not list((home.shop / ".git").rglob("heedful*"))
    assert database.parent.parent.parent.stat().st_mode & 0o777 == 0o700


def test_a_folder_without_git_has_a_file_of_its_own(home: Home) -> None:
    folder = home.home / "plain"
    folder.mkdir()
    home.event("SessionStart", folder, source="startup")
    [database] = (home.home / ".heedful" / "projects").glob("*/heedful.db")
    assert database.parent.name.startswith("plain-")


def test_a_moved_repository_takes_its_memory_along_by_a_command(home: Home) -> None:
    home.settle("holdout = 0.0\n")
    fail_and_mend(home)
    old = home.shop
    assert "is the path of this project" in run_command(home, f"hook move {old}")
    home.shop = home.home / "store"
    old.rename(home.shop)
    home.start()
    new_before = home.database()

    moved = run_command(home, f"hook move {old}")
    assert f"memory: {new_before}" in moved
    assert "the memory that was here until now is in" in moved
    assert REMEDY in send_events(home)
    assert "no memory of" in run_command(home, f"hook move {old}")


# What a repository may have, by the paths of the files.
PLANTED: Mapping[str, Mapping[str, str]] = {
    "commands of the project do not run": {
        "heedful.toml": '[hook]\nstop = ["touch ../ran; false"]\n',
        "pyproject.toml": '[tool.heedful.hook]\nstop = ["touch ../ran"]\n',
    },
    "no file states the database": {"heedful.toml": 'db = "theirs.db"'},
    "a broken file stops nothing": {"heedful.toml": "[broken"},
    "no database of the project is opened": {
        ".git/heedful/heedful.db": "no database",
        ".git/heedful.db": "no database",
        ".heedful/heedful.db": "no database",
    },
    "no rule of the team that nobody accepted": {SHARED_FILE: f"- {ATTACK}\n"},
}


@pytest.mark.parametrize("case", PLANTED)
def test_hooks_follow_nothing_of_the_working_tree(case: str, home: Home) -> None:
    for name, content in PLANTED[case].items():
        home.write(name, content)
    (home.shop / "heedful.db").symlink_to(home.shop / ".git/heedful/heedful.db")
    files = {path: path.read_bytes() for path in home.shop.iterdir() if path.is_file()}
    answers = send_events(home)
    assert "ATTACK" not in answers
    assert "did nothing" not in answers
    assert not home.ran.exists()
    assert home.database().exists()
    assert files == {path: path.read_bytes() for path in files}
    assert not (home.shop / "theirs.db").exists()


def test_the_user_s_own_settings_hold_for_all_projects_and_for_one(home: Home) -> None:
    home.settle(
        f'[projects."{home.shop}".hook]\nstop = ["touch {home.ran}; false"]\n'
        '[projects."/elsewhere"]\nholdout = 0.5\n'
    )
    _, output, _ = home.event("Stop", prompt_id="p1")
    assert json.loads(output)["decision"] == "block"
    assert home.ran.exists()
    plain = home.home / "plain"
    plain.mkdir()
    assert home.event("Stop", plain, prompt_id="p1")[1] == ""
    status = run_command(home, "hook status")
    assert f"each stop runs: touch {home.ran}; false" in status
    assert f'[projects."{home.shop}"]' in status


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("projects = 3", "[projects] in"),
        ('[projects]\n"/a" = 3', '[projects."/a"] in'),
        ("db = 3", "db in"),
        ("[broken", "cannot be read"),
    ],
    ids=["a number of projects", "a project that is a number", "db", "no TOML"],
)
def test_wrong_settings_of_the_user_are_named(
    text: str, problem: str, home: Home
) -> None:
    home.settle(text)
    assert problem in home.start()["systemMessage"]
    assert problem in run_command(home, "hook install --yes")
    assert not (home.shop / ".claude").exists()
    assert problem in run_command(home, "hook status")


def test_a_damaged_database_is_named_at_a_start_and_in_the_status(home: Home) -> None:
    run_command(home, "hook install --yes")
    home.settle('db = "heedful.toml"')
    damaged = "heedful.toml is not a SQLite database, or is damaged"
    assert damaged in home.start()["systemMessage"]
    status = run_command(home, "hook status")
    assert "settings.local.json: SessionStart" in status
    assert damaged in status


def test_who_asks_is_told_of_a_command_that_failed_once(home: Home) -> None:
    call: Any = {"tool_name": "Bash", "tool_input": {"command": "make x"}}
    home.event("PostToolUseFailure", **call, tool_use_id="1", error="make: no rule")
    assert home.event("PreToolUse", **call, session_id="s2", tool_use_id="2")[1] == ""
    answer = run_command(home, "before 'make x'")
    assert "this command failed once, last on " in answer
    assert "what hooks learnt: heedful lessons" in run_command(home, "why last")


def test_uninstall_names_what_stays(home: Home) -> None:
    run_command(home, "hook install --yes")
    home.start()
    left = run_command(home, "hook uninstall --yes")
    assert f"left behind: what was learnt here; to remove it: rm -r {home.home}" in left
    run_command(home, "hook install --user --yes")
    left = run_command(home, "hook uninstall --user --yes")
    assert "what was learnt in projects; to remove it" in left
