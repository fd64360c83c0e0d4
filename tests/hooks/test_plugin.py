"""The plug-in for others: each file fits the schema of the program that reads it."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from heedful.errors import UsageError
from heedful.integrations.agents import AGENTS
from heedful.integrations.mcp import MCP_TOOLS
from heedful.integrations.plugin import plan_marketplace
from tests.hooks.hostile import Home, run_command

SCHEMAS = Path(__file__).parent / "plugin_schemas"
PROJECT = Path(__file__).parents[2] / "pyproject.toml"
PLUGIN = "plugins/heedful"
# What is read by whom: the file, and the schema that it fits.
FILES = {
    f"{PLUGIN}/.claude-plugin/plugin.json": "claude-plugin",
    f"{PLUGIN}/hooks/hooks.json": "claude-hooks",
    f"{PLUGIN}/.mcp.json": "claude-mcp",
    f"{PLUGIN}/.codex-plugin/plugin.json": "codex-plugin",
    f"{PLUGIN}/hooks/codex.json": "codex-hooks",
    f"{PLUGIN}/skills/heedful/SKILL.md": "skill",
    ".claude-plugin/marketplace.json": "claude-marketplace",
    ".agents/plugins/marketplace.json": "codex-marketplace",
    "server.json": "server",
}


@pytest.fixture(scope="module")
def publisher(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Home:
    """A user who has written a marketplace with the plug-in."""
    home = Home(tmp_path_factory.mktemp("publisher"), repository)
    home.take()
    run_command(home, "hook plugin offer --owner my-team --yes")
    return home


@pytest.fixture(scope="module")
def offer(publisher: Home) -> Path:
    return publisher.clone / "offer"


def schema(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((SCHEMAS / f"{name}.json").read_text())
    return document


def read(path: Path) -> dict[str, Any]:
    """Return a JSON file, or the head of a skill."""
    text = path.read_text()
    if path.suffix == ".md":
        text = text.split("---\n")[1]
    document: dict[str, Any] = yaml.safe_load(text)
    return document


def files_in(folder: Path) -> set[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix() for path in files}


def faults(document: Any, name: str) -> list[str]:
    validator = Draft7Validator(schema(name))
    return [error.message for error in validator.iter_errors(document)]


def test_each_file_fits_its_schema(offer: Path) -> None:
    assert files_in(offer) == set(FILES)
    for name, kind in FILES.items():
        assert faults(read(offer / name), kind) == []


@pytest.mark.parametrize("name", sorted(FILES.values()))
def test_a_schema_says_where_it_is_from_and_refuses_a_typing_error(
    name: str, offer: Path
) -> None:
    [file] = [file for file, kind in FILES.items() if kind == name]
    document = read(offer / file)
    assert faults({**document, "nmae": "x"}, name)
    Draft7Validator.check_schema(schema(name))
    comment = schema(name)["$comment"]
    assert re.match("(published|own): .*https://", comment)


@pytest.mark.parametrize(
    ("file", "change"),
    [
        pytest.param(
            "server.json", {"description": "x" * 101}, id="a description of 101"
        ),
        pytest.param("server.json", {"name": "heedful"}, id="a name without account"),
        pytest.param(
            ".claude-plugin/marketplace.json", {"owner": {}}, id="an owner without name"
        ),
        pytest.param(
            f"{PLUGIN}/.codex-plugin/plugin.json",
            {"hooks": "./../hooks.json"},
            id="hooks outside of the plug-in",
        ),
        pytest.param(
            f"{PLUGIN}/hooks/codex.json", {"description": "x"}, id="a description"
        ),
    ],
)
def test_a_file_that_its_reader_refuses_does_not_fit(
    file: str, change: dict[str, Any], offer: Path
) -> None:
    assert faults({**read(offer / file), **change}, FILES[file])


def test_all_files_have_the_version_and_the_name_of_the_project(offer: Path) -> None:
    project = tomllib.loads(PROJECT.read_text())["project"]
    manifests = [
        read(offer / f"{PLUGIN}/.claude-plugin/plugin.json"),
        read(offer / f"{PLUGIN}/.codex-plugin/plugin.json"),
        *read(offer / ".claude-plugin/marketplace.json")["plugins"],
    ]
    for manifest in manifests:
        assert manifest["version"] == project["version"]
        assert manifest["name"] == project["name"]
        assert manifest["license"] == project["license"]
        assert manifest["repository"] == "https://github.com/my-team/heedful"

    server = read(offer / "server.json")
    [package] = server["packages"]
    assert server["name"] == "io.github.my-team/heedful"
    assert server["version"] == package["version"] == project["version"]
    assert package["identifier"] == project["name"]
    assert "mcp" in project["optional-dependencies"]
    assert package["runtimeArguments"][0]["value"] == (
        f"heedful[mcp]=={project['version']}"
    )


def test_the_hooks_are_those_of_each_agent_and_never_fail(offer: Path) -> None:
    for file, agent in (("hooks.json", "claude-code"), ("codex.json", "codex")):
        hooks = read(offer / PLUGIN / "hooks" / file)["hooks"]
        assert list(hooks) == list(AGENTS[agent].events)
        for event, [group] in hooks.items():
            words = group["hooks"][0]["command"].split()
            option = ["--agent", agent] * (agent != "claude-code")
            assert words == ["heedful-hook", event, *option, "||", "true"]


def test_the_files_that_manifests_name_are_there(offer: Path) -> None:
    codex = read(offer / f"{PLUGIN}/.codex-plugin/plugin.json")
    for name in ("skills", "mcpServers", "hooks"):
        assert (offer / PLUGIN / codex[name]).exists()
    [entry] = read(offer / ".agents/plugins/marketplace.json")["plugins"]
    assert (offer / entry["source"]["path"] / ".codex-plugin").is_dir()
    [entry] = read(offer / ".claude-plugin/marketplace.json")["plugins"]
    assert (offer / entry["source"] / ".claude-plugin").is_dir()


def test_nothing_in_it_names_this_machine(publisher: Home, offer: Path) -> None:
    for name in FILES:
        text = (offer / name).read_text()
        assert str(publisher.home) not in text
        assert sys.executable not in text
        assert sys.prefix not in text


def test_no_manifest_turns_the_hooks_of_codex_off(offer: Path) -> None:
    """Codex prefers a plugin.json of Agent Plugins, and then runs no hooks."""
    assert not (offer / PLUGIN / "plugin.json").exists()


def test_the_skill_names_tools_that_there_are(offer: Path) -> None:
    text = (offer / PLUGIN / "skills/heedful/SKILL.md").read_text()
    rows = [line.split("|")[2].strip() for line in text.splitlines() if "|" in line]
    tools = {row.strip("`") for row in rows if row.startswith("`")}
    assert tools == {"recall_lessons", "seen_error", "remember"}
    assert tools <= {function.__name__ for function in MCP_TOOLS}


def test_writing_again_changes_nothing(publisher: Home, offer: Path) -> None:
    assert files_in(offer)
    screen = run_command(publisher, "hook plugin offer --owner my-team")
    assert "written already" in screen
    assert "mcp-name: io.github.my-team/heedful" in screen


def test_a_preview_writes_nothing(home: Home) -> None:
    home.take()
    screen = run_command(home, "hook plugin offer --owner my-team --dry-run")
    assert "would write" in screen
    assert not (home.clone / "offer").exists()


@pytest.mark.parametrize("owner", ["", "a b", "-a", "a--b", "../x", "a" * 40])
def test_an_owner_that_is_no_account_is_refused(owner: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no account on GitHub"):
        plan_marketplace(tmp_path, owner, "")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        pytest.param(
            ".claude-plugin/marketplace.json", '{"name": "mine"}', id="a marketplace"
        ),
        pytest.param("server.json", '{"name": "io.github.me/mine"}', id="a server"),
        pytest.param(
            f"{PLUGIN}/.mcp.json", '{"mcpServers": {"mine": {}}}', id="servers"
        ),
        pytest.param("server.json", "{", id="a malformed file"),
        pytest.param("server.json", "[]", id="a list"),
    ],
)
def test_files_of_others_stay(file: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    with pytest.raises(UsageError, match="is not from heedful"):
        plan_marketplace(tmp_path, "my-team", "")
    assert files_in(tmp_path) == {file}


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "offer"
    folder.mkdir()
    (folder / "plugins").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="outside of"):
        plan_marketplace(folder, "my-team", "")


def test_a_link_of_the_project_is_no_folder_for_it(home: Home) -> None:
    home.take()
    outside = home.home / "outside"
    outside.mkdir()
    (home.clone / "offer").symlink_to(outside)
    screen = run_command(home, "hook plugin offer --owner my-team --yes")
    assert "outside of" in screen
    assert files_in(outside) == set()


def test_the_plugin_of_this_machine_has_the_hooks_of_codex_too(home: Home) -> None:
    home.take()
    run_command(home, f"hook install --yes --plugin {home.home / 'plug'}")
    for file in ("hooks/codex.json", ".codex-plugin/plugin.json", ".mcp.json"):
        name = FILES[f"{PLUGIN}/{file}"]
        assert faults(read(home.home / "plug" / file), name) == []
