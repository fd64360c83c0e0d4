"""Settings of each agent: merged, never overwritten, and as before after a removal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from heedful.errors import UsageError
from heedful.integrations import install
from heedful.integrations.agents import AGENTS
from heedful.integrations.file_changes import FileChange, apply_all
from heedful.integrations.places import TARGETS, settings_file
from scripts.agents_table import PAGE, written
from tests.cli.support import Desk
from tests.hooks.support import environment

SECTION = "## What earlier sessions taught\n\n- Rule: never use npm"
RUN = "heedful-hook"
PLACES = [
    pytest.param(name, user, id=f"{name}, {'user' if user else 'project'}")
    for name, target in TARGETS.items()
    for user in (False, True)
    if (target.user if user else target.project)
]
# One of each form of settings; `make soak` tries the others with made-up settings, too.
TRIED_PLACES = (
    "claude-code, project",
    "cursor, project",
    "agents-md, project",
)
MADE_UP_PLACES = [
    pytest.param(
        *place.values,
        id=place.id,
        marks=() if place.id in TRIED_PLACES else pytest.mark.nightly,
    )
    for place in PLACES
    if TARGETS[str(place.values[0])].form != "plugin"
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
    for target in TARGETS.values():
        if target.home[0]:
            monkeypatch.delenv(target.home[0], raising=False)
    monkeypatch.chdir(folder)
    return folder


def files_in(folder: Path) -> dict[str, bytes]:
    """Return the files in a folder, with their bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def put_in(name: str, user: bool) -> None:
    apply_all(install.plan_target(name, user, run=RUN, text=SECTION))


def take_out(name: str, user: bool) -> None:
    apply_all(install.plan_removal(name, user))


@pytest.mark.parametrize(("name", "user"), PLACES)
def test_installed_hooks_are_found_and_removed_with_their_files(
    name: str, user: bool, shop: Path
) -> None:
    put_in(name, user)
    assert files_in(shop.parent)
    assert not any(install.plan_target(name, user, run=RUN, text=SECTION))
    if TARGETS[name].agent:
        commands = install.target_commands(name, user)
        assert set(commands) == set(AGENTS[TARGETS[name].agent].events)

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
_EVENT_NAMES = st.sampled_from(
    ["PreToolUse", "Stop", "preToolUse", "BeforeTool", "Notification"]
)
_EVENTS = st.dictionaries(_EVENT_NAMES, st.lists(_OTHER_ITEM, max_size=2), max_size=3)
_LINE_ENDS = st.sampled_from(["\n", "\r\n"])


@st.composite
def json_texts(draw: Any) -> str:
    """Return a made-up text of settings in JSON."""
    members = draw(st.dictionaries(_WORDS.filter(lambda w: w != "hooks"), _VALUES))
    if draw(st.booleans()):
        members = {**members, "hooks": draw(_EVENTS)}
    keys = draw(st.permutations(list(members)))
    document = {key: members[key] for key in keys}

    indent = draw(st.sampled_from([None, 2, 4, "\t"]))
    text = json.dumps(document, indent=indent, ensure_ascii=draw(st.booleans()))
    line_end = draw(_LINE_ENDS)
    start = draw(st.sampled_from(["", "\ufeff", line_end]))
    end = draw(st.sampled_from(["", line_end, line_end * 2]))
    text = text.replace("\n", line_end)
    return f"{start}{text}{end}"


TEXTS = st.lists(
    st.sampled_from(["a", " ", "\n", "\r\n", "# ü", "<!-- -->", "- heedful: end"])
).map("".join)


def texts_for(name: str) -> st.SearchStrategy[str]:
    return TEXTS if TARGETS[name].form == "section" else json_texts()


@pytest.mark.parametrize(("name", "user"), MADE_UP_PLACES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_removal_leaves_settings_byte_for_byte_as_they_were(
    name: str, user: bool, shop: Path, data: st.DataObject
) -> None:
    path = settings_file(TARGETS[name], shop, user)
    assert path is not None
    text = data.draw(texts_for(name))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    before = files_in(shop.parent)
    try:
        put_in(name, user)
        if TARGETS[name].agent:
            assert install.target_commands(name, user)
        assert path.read_bytes() != text.encode()
        take_out(name, user)
        assert files_in(shop.parent) == before
    finally:
        for left in before.keys() | files_in(shop.parent).keys():
            (shop.parent / left).unlink(missing_ok=True)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"a" 1}',
        "[1]",
        '{"a":1,}',
        '{"a": 1} // why',
        "nul",
        '{"hooks": 3}',
        '{"hooks": {"Stop": 1}}',
    ],
    ids=[
        "no end",
        "no colon",
        "a list",
        "a comma at the end",
        "a comment",
        "half a word",
        "hooks are a number",
        "an event is a number",
    ],
)
def test_settings_that_are_wrong_or_read_only_stay(text: str, shop: Path) -> None:
    path = shop / "settings.json"
    wanted = install.target_hooks(TARGETS["claude-code"], "heedful-hook")
    path.write_text(text)
    with pytest.raises(UsageError, match="nothing was changed"):
        install.plan_install(path, wanted)
    path.write_text("{}")
    change = install.plan_install(path, wanted)
    path.chmod(0o444)
    other = FileChange(shop / "new" / "other.json", None, "{}")
    with pytest.raises(UsageError, match="read-only"):
        apply_all([other, change])
    assert path.read_text() == "{}"
    assert other.path.exists() is False


MALFORMED = [
    pytest.param("qwen-code", ".qwen/settings.json", "{", id="JSON without an end"),
    pytest.param("codex", ".codex/hooks.json", '{"a": 1,}', id="a comma too many"),
    pytest.param("cursor", ".cursor/hooks.json", '{"hooks": 3}', id="hooks a number"),
    pytest.param(
        "gemini-cli",
        ".gemini/settings.json",
        '{"hooks": {"AfterTool": 1}}',
        id="an event a number",
    ),
    pytest.param(
        "opencode", ".opencode/plugins/heedful.ts", "mine", id="a plugin of others"
    ),
]


@pytest.mark.parametrize(("name", "file", "text"), MALFORMED)
def test_malformed_settings_stay_and_none_of_the_files_is_written(
    name: str, file: str, text: str, shop: Path
) -> None:
    path = shop / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    home = {"HOME": str(shop.parent / "home")}
    before = files_in(shop.parent)
    result = Desk(shop).heedful(
        f"hook install claude-code {name} --yes", **home, PATH="/usr/bin:/bin"
    )
    assert result.code == 2
    assert path.name in result.err
    assert files_in(shop.parent) == before


def run_hook_command(shop: Path, line: str) -> Any:
    result = Desk(shop).heedful(
        f"hook {line}", HOME=str(shop.parent / "home"), PATH="/usr/bin:/bin"
    )
    assert result.code == 0, result.err
    return result


def test_all_installs_the_agents_that_are_seen_and_says_which(shop: Path) -> None:
    (shop / ".qwen").mkdir()
    (shop / ".github").mkdir()
    (shop.parent / "home" / ".codex").mkdir()
    result = run_hook_command(shop, "install --all --yes")
    assert set(files_in(shop)) >= {".qwen/settings.json", ".codex/hooks.json"}
    assert "--agent codex" in result.err
    assert "qwen-code: the folder" in result.err
    assert "Codex: a failed call" in result.out
    assert "next: confirm each hook" in result.out

    run_hook_command(shop, "uninstall --all --yes")
    assert not any(name.startswith((".qwen", ".codex")) for name in files_in(shop))


def test_a_removal_does_not_stop_at_malformed_settings_of_others(shop: Path) -> None:
    run_hook_command(shop, "install codex --yes")
    (shop / ".cursor").mkdir()
    (shop / ".cursor/hooks.json").write_text("{")
    run_hook_command(shop, "uninstall --all --yes")
    assert not (shop / ".codex").exists()
    assert (shop / ".cursor/hooks.json").read_text() == "{"


def test_agents_that_share_a_file_have_it_once(shop: Path) -> None:
    result = run_hook_command(shop, "install vscode copilot-cli --yes")
    [path] = files_in(shop / ".github")
    assert path == "hooks/heedful.json"
    assert result.out.count("wrote ") == 1
    for title in ("VS Code", "Copilot CLI"):
        assert f"{title}, unconfirmed: " in result.out


def test_an_agent_that_also_reads_settings_of_another_is_named(shop: Path) -> None:
    run_hook_command(shop, "install --yes")
    result = run_hook_command(shop, "install copilot-cli --yes")
    assert "Copilot CLI also reads" in result.out


def test_the_list_says_what_is_installed_and_what_each_cannot_do(shop: Path) -> None:
    run_hook_command(shop, "install cursor --yes")
    rows = run_hook_command(shop, "install --list --json").json["agents"]
    assert [row["agent"] for row in rows] == list(TARGETS)
    row = next(row for row in rows if row["agent"] == "cursor")
    assert list(row["installed"].values()) == [list(AGENTS["cursor"].events)]
    assert row["cannot"] == list(TARGETS["cursor"].cannot)
    assert row["source"].startswith("https://")


def test_the_status_names_the_settings_of_each_agent(shop: Path) -> None:
    run_hook_command(shop, "install claude-code cursor --yes")
    status = run_hook_command(shop, "status --json").json
    settings = status["settings"]
    assert settings[str(shop / ".cursor/hooks.json")] == list(AGENTS["cursor"].events)

    (shop / ".cursor/hooks.json").write_text('{"heedful')
    result = run_hook_command(shop, "install --list")
    assert ".cursor/hooks.json:1: it is not JSON" in result.err


def test_a_wrong_name_of_an_agent_is_refused_before_anything_is_written(
    shop: Path,
) -> None:
    result = Desk(shop).heedful("hook install codex codx --yes")
    assert result.code == 2
    assert "codx: no such agent" in result.err
    assert files_in(shop) == {}


def test_an_agent_without_settings_of_the_user_is_installed_in_projects(
    shop: Path,
) -> None:
    home = str(shop.parent / "home")
    result = Desk(shop).heedful("hook install agents-md --user --yes", HOME=home)
    assert result.code == 2
    assert "has no such settings; without --user" in result.err


def test_the_section_of_a_text_has_the_rules_and_follows_them(shop: Path) -> None:
    path = shop / "AGENTS.md"
    path.write_text("# Ours\n\nBe kind.\n")
    run_hook_command(shop, "install agents-md --yes")
    assert "Nothing is known yet." in path.read_text()
    run_hook_command(shop, "install agents-md --yes")
    assert path.read_text().count("heedful: begin") == 1

    added = Desk(shop).heedful(
        "rules add 'never use npm' --by ann", HOME=str(shop.parent / "home")
    )
    assert added.code == 0, added.err
    path.write_text(path.read_text() + "\nAnd brief.\n")
    run_hook_command(shop, "install agents-md --yes")
    text = path.read_text()
    assert "- Rule: never use npm" in text
    assert text.startswith("# Ours\n\nBe kind.\n")
    assert text.endswith("\nAnd brief.\n")
    run_hook_command(shop, "uninstall agents-md --yes")
    assert path.read_text() == "# Ours\n\nBe kind.\n\nAnd brief.\n"


def test_the_table_of_agents_in_the_docs_is_not_stale() -> None:
    page = PAGE.read_text("utf-8")
    assert written(page) == page, "run python -m scripts.agents_table --write"
    assert all(f"[`{name}`]" in page for name in TARGETS)
