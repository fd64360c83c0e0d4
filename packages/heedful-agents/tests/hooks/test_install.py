"""Settings of each agent: merged, never overwritten, and as before after a removal."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from heedful.errors import UsageError
from heedful_agents import install
from heedful_agents.agents import AGENTS
from heedful_agents.file_changes import FileChange, apply_all
from tests.cli.support import Desk
from tests.hooks.support import environment

SECTION = "## What earlier sessions taught\n\n- Rule: never use npm"
PLACES = [
    pytest.param(name, user, id=f"{name}, {'user' if user else 'project'}")
    for name, agent in AGENTS.items()
    for user in (False, True)
    if (agent.user if user else agent.project)
]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, and a user who works in it and has no agent."""
    folder = tmp_path / "shop"
    home = tmp_path / "home"
    home.mkdir()
    (folder / ".git").mkdir(parents=True)
    for name, value in environment(home, {"PATH": "/usr/bin:/bin"}).items():
        monkeypatch.setenv(name, value)
    for agent in AGENTS.values():
        if agent.home[0]:
            monkeypatch.delenv(agent.home[0], raising=False)
    monkeypatch.chdir(folder)
    return folder


def files_in(folder: Path) -> dict[str, bytes]:
    """Return the files in a folder, with their bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def put_in(name: str, user: bool = False) -> None:
    apply_all(install.plan(name, user, section=SECTION))


def take_out(name: str, user: bool = False) -> None:
    apply_all(install.plan_removals(name, user))


def path_of(name: str, user: bool = False) -> Path:
    return install.settings_paths(name, user)[0]


def run_hook_command(shop: Path, line: str, code: int = 0) -> Any:
    result = Desk(shop).heedful(
        f"hook {line}", HOME=str(shop.parent / "home"), PATH="/usr/bin:/bin"
    )
    assert result.code == code, result.err
    return result


@pytest.mark.parametrize(("name", "user"), PLACES)
def test_installed_hooks_are_found_and_removed_with_their_files(
    name: str, user: bool, shop: Path
) -> None:
    put_in(name, user)
    assert files_in(shop.parent)
    assert not any(install.plan(name, user, section=SECTION))
    commands = install.installed(name, path_of(name, user))
    assert set(commands) == set(AGENTS[name].events)

    take_out(name, user)
    assert files_in(shop.parent) == {}
    assert sorted(path.name for path in shop.iterdir()) == [".git"]


# Made-up settings: words of others, and hooks of others in the forms of agents.
_WORDS = st.sampled_from(["model", "ü", 'a "quoted" word', "hooks", "/* no */", "//"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner),
    max_leaves=6,
)
_OTHER_ENTRY = st.fixed_dictionaries(
    {"type": st.just("command"), "command": st.sampled_from(["./a.sh", "x || true"])}
)
_OTHER_ITEM = _OTHER_ENTRY | st.fixed_dictionaries(
    {"hooks": st.lists(_OTHER_ENTRY, max_size=2)}, optional={"matcher": _WORDS}
)
_EVENTS = st.dictionaries(
    st.sampled_from(["PreToolUse", "Stop", "preToolUse", "Notification"]),
    st.lists(_OTHER_ITEM, max_size=2),
    max_size=3,
)


@st.composite
def json_texts(draw: Any) -> str:
    """Return a made-up text of settings in JSON."""
    members = draw(st.dictionaries(_WORDS.filter(lambda w: w != "hooks"), _VALUES))
    if draw(st.booleans()):
        members = {**members, "hooks": draw(_EVENTS)}
    indent = draw(st.sampled_from([None, 2, 4, "\t"]))
    line_end = draw(st.sampled_from(["\n", "\r\n"]))
    text = json.dumps(members, indent=indent, ensure_ascii=draw(st.booleans()))
    last_end: str = draw(st.sampled_from(["", line_end]))
    return text.replace("\n", line_end) + last_end


TEXTS = st.lists(
    st.sampled_from(["a", " ", "\n", "\r\n", "# ü", "<!-- -->", "- heedful: end"])
).map("".join)


# One of each form of settings.
@pytest.mark.parametrize("name", ["claude-code", "cursor", "agents-md"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_removal_leaves_settings_byte_for_byte_as_they_were(
    name: str, shop: Path, data: st.DataObject
) -> None:
    path = path_of(name)
    text = data.draw(TEXTS if name == "agents-md" else json_texts())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    before = files_in(shop.parent)
    try:
        put_in(name)
        assert path.read_bytes() != text.encode()
        take_out(name)
        assert files_in(shop.parent) == before
    finally:
        for left in before.keys() | files_in(shop.parent).keys():
            (shop.parent / left).unlink(missing_ok=True)


def test_settings_behind_a_link_are_written_there_and_updated(shop: Path) -> None:
    home = shop.parent / "home"
    (home / ".claude").mkdir()
    path = home / ".claude/settings.json"
    path.symlink_to(home / "dotfile")
    (home / "dotfile").write_text('{\r\n\t"a": [1, 2]\r\n}', newline="")
    put_in("claude-code", user=True)
    assert b'\r\n\t],\r\n\t"hooks": {' in path.read_bytes()

    moved = path.read_text().replace(shlex.quote(sys.executable), "/gone/python")
    path.write_text(moved.replace("{", '{"own": 1,', 1))
    assert "/gone/python is gone" in run_hook_command(shop, "status").out
    put_in("claude-code", user=True)
    take_out("claude-code", user=True)
    assert install.installed("claude-code", path) == {}
    assert json.loads(path.read_bytes()) == {"own": 1, "a": [1, 2]}
    assert path.is_symlink()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("claude-code", "{", id="no end"),
        pytest.param("claude-code", "[1]", id="a list"),
        pytest.param("claude-code", '{"a": 1} // why', id="a comment"),
        pytest.param("cursor", '{"hooks": 3}', id="hooks are a number"),
        pytest.param(
            "gemini-cli", '{"hooks": {"AfterTool": 1}}', id="an event is a number"
        ),
        pytest.param("opencode", "mine", id="a plugin of others"),
    ],
)
def test_settings_that_are_wrong_stay_and_none_is_written(
    name: str, text: str, shop: Path
) -> None:
    path = path_of(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    before = files_in(shop.parent)
    result = run_hook_command(shop, f"install codex {name} --yes", code=2)
    assert path.name in result.err
    assert files_in(shop.parent) == before
    # A removal of others does not stop there.
    put_in("codex")
    run_hook_command(shop, "uninstall --all --yes")
    assert files_in(shop.parent) == before


def test_a_file_that_is_read_only_stays_with_all_others(shop: Path) -> None:
    path = path_of("claude-code")
    path.parent.mkdir()
    path.write_text("{}")
    change, _ = install.plan("claude-code", user=False)
    path.chmod(0o444)
    other = FileChange(shop / "new" / "other.json", None, "{}")
    with pytest.raises(UsageError, match="read-only"):
        apply_all([other, change])
    assert path.read_text() == "{}"
    assert not other.path.exists()


LOCAL = ".claude/settings.local.json"
SHARED = ".claude/settings.json"


def events_in(shop: Path) -> dict[str, list[str]]:
    """Return the events with hooks in each file of the project, by `hook status`."""
    settings = run_hook_command(shop, "status --json").json["settings"]
    return {
        str(Path(file).relative_to(shop)): events
        for file, events in settings.items()
        if events and Path(file).is_relative_to(shop)
    }


def test_a_path_of_this_machine_is_not_in_the_file_that_a_team_commits(
    shop: Path,
) -> None:
    (shop / ".claude").mkdir()
    (shop / SHARED).write_text('{"model": "opus"}')
    result = run_hook_command(shop, "install --yes")
    assert (shop / SHARED).read_text() == '{"model": "opus"}'
    assert sys.executable in (shop / LOCAL).read_text()
    assert "keep it out of git" in result.out
    assert "first word" in result.out


def test_hooks_with_a_path_move_out_of_the_file_that_a_team_commits(
    shop: Path,
) -> None:
    put_in("claude-code")
    text = '{\n  "model": "opus"'
    moved = (shop / LOCAL).read_text().replace("{", f"{text},", 1)
    (shop / LOCAL).unlink()
    (shop / SHARED).write_text(moved)
    assert list(events_in(shop)) == [SHARED]

    run_hook_command(shop, "install --yes")
    assert list(events_in(shop)) == [LOCAL]
    assert (shop / SHARED).read_text() == f"{text}\n}}\n"


def test_hooks_that_a_team_has_committed_stay_where_they_are(shop: Path) -> None:
    put_in("claude-code")
    run_hook_command(shop, "install --team --yes")
    assert list(events_in(shop)) == [SHARED]
    text = (shop / SHARED).read_text()
    assert sys.executable not in text
    assert "heedful-hook PreToolUse" in text

    result = run_hook_command(shop, "install --yes")
    assert "installed already" in result.out
    assert (shop / SHARED).read_text() == text
    run_hook_command(shop, "uninstall --yes")
    assert events_in(shop) == {}


def run_in_bare_shell(shop: Path, line: str, event: str) -> Any:
    """Run a command of a hook in a shell that knows no environment of Python."""
    return subprocess.run(
        ["/bin/sh", "-c", line],
        input=json.dumps({"hook_event_name": event, "session_id": "s", "cwd": "."}),
        cwd=shop,
        env={"PATH": "/usr/bin:/bin", "HOME": str(shop.parent / "home")},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


@pytest.mark.parametrize("event", AGENTS["claude-code"].events)
def test_an_installed_command_answers_in_any_shell_and_never_blocks(
    event: str, shop: Path
) -> None:
    line = install.agent_hooks("claude-code", install.command())[event][0]
    line = line["hooks"][0]["command"]
    done = run_in_bare_shell(shop, line, event)
    assert done.returncode == 0
    assert done.stderr == ""

    gone = line.replace(shlex.quote(sys.executable), "/gone/python")
    done = run_in_bare_shell(shop, gone, event)
    assert done.returncode == 0
    if event == "SessionStart":
        assert "install heedful again" in json.loads(done.stdout)["systemMessage"]
    else:
        assert done.stdout == ""


def test_all_installs_the_agents_that_are_seen_and_says_which(shop: Path) -> None:
    (shop / ".qwen").mkdir()
    (shop / ".github").mkdir()
    (shop.parent / "home" / ".codex").mkdir()
    result = run_hook_command(shop, "install --all --yes")
    assert set(files_in(shop)) >= {".qwen/settings.json", ".codex/hooks.json"}
    assert "--agent codex" not in result.err
    assert "qwen-code: the folder" in result.err
    assert "Codex: a failed call" in result.out
    assert "next: confirm each hook" in result.out

    run_hook_command(shop, "uninstall --all --yes")
    assert not any(name.startswith((".qwen", ".codex")) for name in files_in(shop))


def test_the_agents_that_are_seen_are_installed_by_default(shop: Path) -> None:
    (shop / ".cursor").mkdir()
    (shop / ".vscode").mkdir()
    assert "precedes" not in run_hook_command(shop, "install --yes").out
    assert list(files_in(shop)) == [".cursor/hooks.json"]
    (shop.parent / "home" / ".codex").mkdir()
    assert "in Codex, precedes" in run_hook_command(shop, "install --yes").out
    run_hook_command(shop, "uninstall --yes")
    assert files_in(shop) == {}


def test_own_settings_stand_in_the_folder_that_the_environment_names(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(shop.parent / "mine"))
    put_in("claude-code", user=True)
    assert list(files_in(shop.parent)) == ["mine/settings.json"]


def test_an_agent_that_also_reads_settings_of_another_is_named(shop: Path) -> None:
    run_hook_command(shop, "install --yes")
    result = run_hook_command(shop, "install copilot --yes")
    assert "Copilot in VS Code and its command line also reads" in result.out


def test_the_list_and_the_status_say_what_is_installed(shop: Path) -> None:
    run_hook_command(shop, "install claude-code cursor --yes")
    rows = run_hook_command(shop, "install --list --json").json["agents"]
    assert [row["agent"] for row in rows] == list(AGENTS)
    row = next(row for row in rows if row["agent"] == "cursor")
    events = list(AGENTS["cursor"].events)
    assert list(row["installed"].values()) == [events]
    assert row["cannot"] == list(AGENTS["cursor"].cannot)
    assert row["source"].startswith("https://")

    files = run_hook_command(shop, "status --json").json["settings"]
    assert files[str(shop / ".cursor/hooks.json")] == events
    (shop / ".cursor/hooks.json").write_text('{"heedful')
    result = run_hook_command(shop, "install --list")
    assert ".cursor/hooks.json:1: it is not JSON" in result.err


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        pytest.param("codex claude --yes", "'claude-code'?", id="a wrong name"),
        pytest.param("agents-md --user --yes", "without --user", id="no own settings"),
        pytest.param("codex", "nothing was written", id="nobody agrees"),
    ],
)
def test_an_installation_that_is_refused_writes_nothing(
    line: str, reason: str, shop: Path
) -> None:
    assert reason in run_hook_command(shop, f"install {line}", code=2).err
    assert files_in(shop) == {}


def test_the_section_of_a_text_has_the_rules_and_follows_them(shop: Path) -> None:
    path = shop / "AGENTS.md"
    path.write_text("# Ours\n\nBe kind.\n")
    run_hook_command(shop, "install agents-md --yes")
    assert "Nothing is known yet." in path.read_text()

    added = Desk(shop).heedful(
        "rules add 'never use npm' --by ann", HOME=str(shop.parent / "home")
    )
    assert added.code == 0, added.err
    path.write_text(path.read_text() + "\nAnd brief.\n")
    run_hook_command(shop, "install agents-md --yes")
    text = path.read_text()
    assert text.count("heedful: begin") == 1
    assert "- Rule: never use npm" in text
    run_hook_command(shop, "uninstall agents-md --yes")
    assert path.read_text() == "# Ours\n\nBe kind.\n\nAnd brief.\n"


def test_two_agents_that_read_one_text_share_its_section(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(AGENTS, "another", AGENTS["agents-md"])
    run_hook_command(shop, "install agents-md another --yes")
    result = run_hook_command(shop, "uninstall --all --yes")
    assert result.out.count("removed ") == 1
    assert files_in(shop) == {}
