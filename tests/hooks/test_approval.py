"""What a clone brings is shown and asked for, and nothing is written outside of it."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
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
from tests.hooks.support import answer_at_terminal, approve_all, environment


def test_install_asks_for_what_a_clone_brings(home: Home) -> None:
    home.plant_database()
    plant_settings(home)
    code, screen = answer_at_terminal(
        home.clone, home.home, "hook install", ["y", "n", "n", "none"]
    )
    assert code == 0
    assert f"command 1 at each stop: {home.marker()}" in screen
    assert '"tool": "measured"' in screen
    assert "heedful.db is ignored: git tracks it" in screen
    output = send_events(home)
    assert "heedful.toml [rules] is ignored" in output
    assert "heedful.toml [trust] is ignored" in output
    assert not home.ran.exists()


def test_each_part_is_approved_by_itself(home: Home) -> None:
    plant_settings(home)
    answer_at_terminal(home.clone, home.home, "hook approve", ["y", "n"])
    output = send_events(home)
    assert home.ran.exists()
    assert "[rules]" not in output
    assert "heedful.toml [trust] is ignored" in output


UNASKED = ["hook install --yes", "hook install --yes --trust make", "hook approve"]


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
    pytest.param(".claude/settings.json", "../../outside/a.json", id="the file is one"),
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


def test_a_plugin_is_written_into_its_folder_only(home: Home) -> None:
    home.take()
    folder = home.clone / "plugin"
    folder.mkdir()
    (folder / "hooks").symlink_to(home.home)
    screen = run_command(home, "hook install --yes --plugin plugin")
    assert "outside of" in screen
    assert not (home.home / "hooks.json").exists()


def test_the_server_of_the_plugin_runs_nothing_of_a_clone(home: Home) -> None:
    """It starts with each session, in whatever folder that is."""
    pytest.importorskip("mcp", reason="make integrations installs it")
    home.plant_database()
    home.write("evil.py", f"import os; os.system({home.marker()!r})\n")
    home.commit("heedful.toml", 'model = "evil:x"\n[checks.x]\nname = "evil:x"\n')
    home.take()
    plugin = home.home / "plugin"
    run_command(home, f"hook install --yes --plugin {plugin}")
    server = json.loads((plugin / ".mcp.json").read_text())["mcpServers"]["heedful"]
    call = {"name": "seen", "arguments": {"error": ERROR}}
    messages: list[dict[str, Any]] = [
        {
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "a", "version": "1"},
            },
        },
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
        {"id": 3, "method": "tools/call", "params": call},
    ]
    lines = [json.dumps({"jsonrpc": "2.0", **message}) for message in messages]
    done = subprocess.run(
        [server["command"], *server["args"]],
        cwd=home.clone,
        env=environment(home.home),
        input="\n".join(lines) + "\n",
        capture_output=True,
        check=False,
        encoding="utf-8",
    )
    assert not home.ran.exists()
    assert "evil" not in done.stdout + done.stderr
    assert "ATTACK" not in done.stdout
    assert '"id":1' in done.stdout.replace(" ", "")


ASKED = ["before 'npx jest'", "seen 'Cannot find module'", "recall 'run the tests'"]


@pytest.mark.parametrize("line", ASKED)
def test_what_an_agent_asks_by_itself_is_not_the_clone(line: str, home: Home) -> None:
    """The skill of the plugin names these commands."""
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
