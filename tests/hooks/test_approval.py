"""What a clone brings is shown and asked for, and nothing is written outside of it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from heedful.store.workspace import read_table
from tests.hooks.hostile import (
    ERROR,
    OWN,
    Home,
    plant_settings,
    remember,
    run_command,
    send_events,
    settings_of,
    teach,
)
from tests.hooks.support import answer_at_terminal, approve_all


def test_install_asks_for_what_a_clone_brings(home: Home) -> None:
    home.plant_database()
    plant_settings(home)
    code, screen = answer_at_terminal(
        home.clone, home.home, "hook install", ["y", "n", "n", "n"]
    )
    assert code == 0
    assert f"command 1 at each stop: {home.marker()}" in screen
    assert '"tool": "measured"' in screen
    assert "heedful.db is ignored: git tracks it" in screen
    # What was refused is not told at each start, but can be found.
    assert send_events(home).strip() == ""
    assert not home.ran.exists()
    status = run_command(home, "hook status")
    assert "heedful.toml [rules] is ignored" in status
    assert "heedful.toml [trust] is ignored" in status


def test_each_part_is_approved_by_itself(home: Home) -> None:
    plant_settings(home)
    answer_at_terminal(home.clone, home.home, "hook approve", ["y", "n"])
    output = send_events(home)
    assert home.ran.exists()
    assert output.strip() == ""
    assert "heedful.toml [trust] is ignored" in run_command(home, "hook status")


def test_what_was_refused_is_asked_for_again_and_told_after_a_change(
    home: Home,
) -> None:
    plant_settings(home)
    answer_at_terminal(home.clone, home.home, "hook approve", ["", "n"])
    assert home.event("SessionStart", source="startup")[1] == ""
    path = home.clone / "heedful.toml"
    path.write_text(path.read_text() + 'user = "operator"\n')
    output = home.event("SessionStart", source="startup")[1]
    assert "heedful.toml [trust] is ignored" in output
    assert "[rules]" not in output

    answer_at_terminal(home.clone, home.home, "hook approve", ["y", "n"])
    home.event("Stop", prompt_id="p1")
    assert home.ran.exists()


def test_an_approval_of_an_earlier_version_has_changed(home: Home) -> None:
    """It was of whole files, whose commands ran at each stop."""
    plant_settings(home)
    folder = home.home / ".heedful"
    folder.mkdir()
    approved = {"files": {str(home.clone / "heedful.toml"): "a digest"}, "trust": {}}
    (folder / "approved.json").write_text(json.dumps(approved))
    output = home.event("Stop", prompt_id="p1")[1]
    assert "heedful.toml [rules] is ignored: it is not as you approved it" in output


def test_an_error_in_the_approvals_loses_none(home: Home) -> None:
    home.take()
    folder = home.home / ".heedful"
    folder.mkdir()
    path = folder / "approved.json"
    path.write_text('{"trust": {"program:make": "measured"},}')
    output = home.event("SessionStart", source="startup")[1]
    assert "approved.json cannot be read" in output
    assert "correct it" in output
    assert path.read_text() == '{"trust": {"program:make": "measured"},}'


def test_many_known_databases_cost_no_approval(home: Home) -> None:
    home.take()
    folder = home.home / ".heedful"
    folder.mkdir()
    place = f"/gone/{'x' * 100}"
    places = dict.fromkeys((f"{number:032x}" for number in range(10_000)), place)
    path = folder / "approved.json"
    path.write_text(json.dumps({"databases": places, "trust": {"tool": "measured"}}))
    assert home.event("SessionStart", source="startup")[1] == ""
    approved = json.loads(path.read_text())
    database = str(home.clone / ".git" / "heedful" / "heedful.db")
    assert list(approved["databases"].values()) == [database]
    assert approved["trust"] == {"tool": "measured"}


def test_without_a_home_commands_work_and_hooks_say_so(home: Home) -> None:
    home.take()
    home.home = home.home / "README"
    home.home.write_text("no folder")
    output = home.event("SessionStart", source="startup")[1]
    assert "set HOME to a folder of yours" in output
    screen = run_command(home, "trust set program:make measured --by me --why x")
    assert "program:make" in screen
    assert (home.clone / ".git" / "heedful" / "heedful.db").exists()


def test_trust_is_recorded_where_hooks_look(home: Home) -> None:
    """Not in the project that a refused settings file names."""
    home.commit("heedful.toml", 'project = "p2"\n')
    home.take()
    answer_at_terminal(home.clone, home.home, "hook install", ["y", "y", "n"])
    assert "program is measured" in run_command(home, "hook status")


def test_sessions_are_learnt_where_hooks_look(home: Home) -> None:
    """Not in a database that a refused settings file names, nor in the clone's."""
    home.plant_database("evil.db")
    home.plant_database()
    home.commit("heedful.toml", 'db = "evil.db"\nforget = "1s"\nproject = "p2"\n')
    home.take()
    name = re.sub(r"[^A-Za-z0-9]", "-", str(home.clone))
    folder = home.home / ".claude" / "projects" / name
    folder.mkdir(parents=True)
    lines = [json.dumps({**row, "cwd": str(home.clone)}) for row in SESSION]
    (folder / "a.jsonl").write_text("\n".join(lines) + "\n")

    answers = ["y", "n", "n", "y", "n"]
    code, screen = answer_at_terminal(home.clone, home.home, "hook install", answers)
    assert code == 0
    assert "heedful.toml [memory] is ignored" in screen
    assert home.git(home.clone, "status", "--short") == "?? .claude/\n"
    database = home.clone / ".git" / "heedful" / "heedful.db"
    with closing(sqlite3.connect(database)) as db:
        assert db.execute("select distinct project from lesson").fetchall() == [
            ("default",)
        ]

    database.unlink()
    clone = home.clone
    home.clone = home.home
    run_command(home, f"learn-sessions {folder}")
    assert home.git(clone, "status", "--short") == "?? .claude/\n"
    assert database.exists()

    home.clone = clone
    screen = run_command(home, f"learn-sessions {folder}")
    assert "heedful.toml [memory] is ignored" in screen


SESSION: list[dict[str, Any]] = [
    {
        "type": "user",
        "sessionId": "s9",
        "uuid": "1",
        "timestamp": "2026-01-01T00:00:00Z",
        "message": {"role": "user", "content": "run the tests"},
    },
    {
        "type": "assistant",
        "sessionId": "s9",
        "uuid": "2",
        "timestamp": "2026-01-01T00:00:01Z",
        "message": {
            "role": "assistant",
            "content": [
                {
                    "type": "tool_use",
                    "id": "t1",
                    "name": "Bash",
                    "input": {"command": "npx jest"},
                }
            ],
        },
    },
    {
        "type": "user",
        "sessionId": "s9",
        "uuid": "3",
        "timestamp": "2026-01-01T00:00:02Z",
        "message": {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "is_error": True,
                    "content": "Exit code 1\nError: Cannot find module PRIVATE",
                }
            ],
        },
    },
]


WRONG_VALUES = [
    pytest.param("db = 5", id="a database that is a number"),
    pytest.param('db = "a\\u0000b"', id="a database with a zero byte"),
    pytest.param("hook = 3", id="rules that are a number", marks=pytest.mark.nightly),
    pytest.param('trust = "x"', id="trust that is text"),
    pytest.param(
        "tenant = [1]", id="a tenant that is a list", marks=pytest.mark.nightly
    ),
    pytest.param('holdout = "x"', id="a share that is text", marks=pytest.mark.nightly),
]


@pytest.mark.parametrize("line", WRONG_VALUES)
def test_wrong_values_are_named(line: str, home: Home) -> None:
    home.commit("heedful.toml", f"{line}\n")
    home.take()
    code, screen = answer_at_terminal(home.clone, home.home, "hook approve", [])
    name = line.partition(" ")[0]
    assert code == 2
    assert f"{name} in {home.clone}/heedful.toml is " in screen
    assert "it must be" in screen


UNASKED = [
    "hook install --yes",
    pytest.param("hook install --yes --trust make", marks=pytest.mark.nightly),
    "hook approve",
]


@pytest.mark.parametrize("line", UNASKED)
def test_nothing_is_approved_without_a_person(line: str, home: Home) -> None:
    home.plant_database()
    plant_settings(home)
    screen = run_command(home, line)
    assert home.marker() in screen
    assert "heedful hook approve" in screen
    output = send_events(home)
    assert not home.ran.exists()
    assert "ATTACK" not in output
    assert "heedful.toml [rules] is ignored" in output


def test_what_is_shown_is_what_runs(home: Home) -> None:
    """Nothing of a command is hidden by control characters, blanks or its length."""
    hidden = f"make{' ' * 3_000}; {home.marker()} #\x1b[2K\x1b[1A\u202e\u200b\nx"
    home.commit("heedful.toml", f"[hook]\nstop = [{json.dumps(hidden)}]\n")
    home.take()
    screen = run_command(home, "hook approve")
    assert "\x1b" not in screen
    assert "\u202e" not in screen
    escapes = r"\x1b[2K\x1b[1A\u202e\u200b\nx"
    assert f"make[3000 blanks]; {home.marker()} #{escapes}" in screen
    assert f"({len(hidden)} characters)" in screen


def test_an_approval_is_of_what_was_shown(home: Home) -> None:
    """A file that changes while the question is open is not what is approved."""
    home.commit("heedful.toml", '[hook]\nstop = ["true"]\n')
    home.take()
    path = home.clone / "heedful.toml"
    code, screen = answer_at_terminal(
        home.clone,
        home.home,
        "hook approve",
        ["y"],
        meanwhile=lambda: path.write_text(settings_of(home)),
    )
    assert code == 0
    assert "command 1 at each stop: true" in screen
    output = send_events(home)
    assert not home.ran.exists()
    assert "it is not as you approved it" in output


def test_an_approval_is_of_one_place(home: Home) -> None:
    """The same text in another folder is not approved: it may mean another program."""
    plant_settings(home)
    approve_all(home.clone, home.home)
    shutil.copytree(home.clone, home.home / "other")
    home.clone = home.home / "other"
    assert "heedful.toml [rules] is ignored" in send_events(home)
    assert not home.ran.exists()


LINKS = [
    pytest.param(".claude", "../outside", id="the folder is a link"),
    pytest.param(
        ".claude/settings.json",
        "../../outside/a.json",
        id="the file is one",
        marks=pytest.mark.nightly,
    ),
]


@pytest.mark.parametrize(("name", "target"), LINKS)
def test_install_writes_nothing_outside_of_the_project(
    name: str, target: str, home: Home
) -> None:
    path = home.remote / name
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(target)
    home.commit()
    home.take()
    outside = home.home / "outside"
    outside.mkdir()
    (outside / "a.json").write_text("{}")
    (outside / "settings.json").write_text("{}")
    for line in ("hook install --yes", "hook uninstall --yes", "hook status"):
        assert "outside of" in run_command(home, line)
    assert sorted(path.name for path in outside.iterdir()) == [
        "a.json",
        "settings.json",
    ]
    assert (outside / "a.json").read_text() == "{}"
    assert (outside / "settings.json").read_text() == "{}"


def test_the_backup_of_settings_follows_no_link(home: Home) -> None:
    home.commit(".claude/settings.json", '{"a": 1}')
    backup = home.remote / ".claude" / "settings.json.before-heedful"
    backup.symlink_to("../../victim")
    home.commit()
    home.take()
    victim = home.home / "victim"
    victim.write_text("mine")
    run_command(home, "hook install --yes")
    assert victim.read_text() == "mine"


ASKED = [
    "seen 'Cannot find module'",
    pytest.param("before 'npx jest'", marks=pytest.mark.nightly),
    pytest.param("recall 'run the tests'", marks=pytest.mark.nightly),
]


@pytest.mark.parametrize("line", ASKED)
def test_what_an_agent_asks_by_itself_is_not_the_clone(line: str, home: Home) -> None:
    """The instructions of an agent may name these commands."""
    home.plant_database()
    home.plant_database("stated.db")
    home.commit("heedful.toml", 'db = "stated.db"\n')
    home.take()
    folder = home.home / ".heedful"
    folder.mkdir()
    remember(folder / "heedful.db", OWN)
    output = run_command(home, f"{line} --approved-only")
    assert "ATTACK" not in output
    assert "stated.db" not in output
    assert "Traceback" not in output


def test_what_an_agent_asks_by_itself_is_the_user_s_own(home: Home) -> None:
    home.plant_database()
    home.commit()
    home.take()
    teach(home)
    line = f"seen {shlex.quote(ERROR)} --approved-only"
    assert "OWN" in run_command(home, line)
    assert "ATTACK" in run_command(home, f"seen {shlex.quote(ERROR)}")


def test_settings_within_the_project_may_be_a_link(home: Home) -> None:
    home.write("shared/heedful.toml", 'project = "shared"\n')
    (home.remote / "heedful.toml").symlink_to("shared/heedful.toml")
    home.commit()
    home.take()
    assert read_table(home.clone / "heedful.toml") == {"project": "shared"}
