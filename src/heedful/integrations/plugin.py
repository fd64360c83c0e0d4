"""A plug-in folder for coding agents, and a marketplace that offers it.

Claude Code and Codex read different files of one folder; all of them are made here from
one version, one summary and the hooks of `install`. There is no `plugin.json` of Agent
Plugins beside them: Codex prefers it, then runs no hooks, and starts the server in the
folder of the plug-in, where it does not find the memory of a project.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from heedful.errors import UsageError
from heedful.integrations.file_changes import FileChange, check_within, read_text
from heedful.integrations.install import command, target_hooks
from heedful.integrations.places import TARGETS
from heedful.store.workspace import project_top

NAME = "heedful"
# A registry of MCP servers takes at most 100 characters.
SUMMARY = "Remembers what failed and what put it right, and says so when it matters."
PLUGIN_PLACE = f"plugins/{NAME}"
_TITLE = "heedful"
_LICENSE = "Apache-2.0"
_KEYWORDS = ("memory", "hooks", "mcp", "reflection")
_CATEGORY = "Coding"
_REGISTRY_SCHEMA = (
    "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
)
_SERVER_WORDS = ("mcp", "--approved-only")
_ACCOUNT_REGEX = re.compile(r"[A-Za-z0-9](?:-?[A-Za-z0-9]){0,38}")

Document = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Programs:
    """What a plug-in calls: the command of the hook process, and the MCP server."""

    hook: str = "heedful-hook"
    server: Sequence[str] = (NAME, *_SERVER_WORDS)


# A plug-in for other machines has no path of this one.
SHARED_PROGRAMS = Programs()


def local_programs() -> Programs:
    """Return the programs of this installation, which start in every folder."""
    server = shlex.split(command(True, NAME, "heedful.cli"))
    return Programs(hook=command(everywhere=True), server=[*server, *_SERVER_WORDS])


def plan_plugin(
    folder: Path,
    programs: Programs,
    *,
    skill: str,
    hooks: Mapping[str, Any] | None = None,
    owner: str = "",
) -> list[FileChange]:
    """Return the changes that write a plug-in: hooks, an MCP server and a skill.

    `hooks` are those of Claude Code, by default a command for each event. Raises
    UsageError if another plug-in is in the folder.
    """
    if hooks is None:
        hooks = target_hooks(TARGETS["claude-code"], programs.hook)
    codex_hooks = target_hooks(TARGETS["codex"], programs.hook)
    program, *words = programs.server
    manifest = _manifest(owner)
    documents: dict[str, Document] = {
        ".claude-plugin/plugin.json": manifest,
        ".codex-plugin/plugin.json": {
            **manifest,
            "skills": "./skills/",
            "mcpServers": "./.mcp.json",
            # Codex reads this file instead of hooks.json.
            "hooks": "./hooks/codex.json",
            "interface": {
                "displayName": _TITLE,
                "shortDescription": SUMMARY,
                "category": _CATEGORY,
            },
        },
        "hooks/hooks.json": {"description": SUMMARY, "hooks": hooks},
        # Some versions of Codex refuse a file of hooks with a description.
        "hooks/codex.json": {"hooks": codex_hooks},
        ".mcp.json": {"mcpServers": {NAME: {"command": program, "args": words}}},
    }
    changes = _plan_documents(folder, documents)
    path = folder / f"skills/{NAME}/SKILL.md"
    check_within(path, folder)
    return [*changes, FileChange(path, read_text(path), skill)]


def plan_marketplace(folder: Path, owner: str, skill: str) -> list[FileChange]:
    """Return the changes that write a marketplace with the plug-in, and `server.json`.

    `owner` is an account on GitHub. Raises UsageError if it cannot be one, if another
    marketplace is in the folder, or if a link leads from this project out of it.
    """
    if not _ACCOUNT_REGEX.fullmatch(owner):
        raise UsageError(
            f"{owner!r} is no account on GitHub; give letters, digits and single "
            "hyphens: --owner my-team"
        )

    project = project_top(Path.cwd())
    place = Path(os.path.abspath(folder))
    if place.is_relative_to(project):
        check_within(place, project)

    source = f"./{PLUGIN_PLACE}"
    documents: dict[str, Document] = {
        ".claude-plugin/marketplace.json": {
            "name": NAME,
            "owner": {"name": owner},
            "metadata": {"description": SUMMARY, "version": version(NAME)},
            "plugins": [{**_manifest(owner), "source": source, "category": _CATEGORY}],
        },
        ".agents/plugins/marketplace.json": {
            "name": NAME,
            "interface": {"displayName": _TITLE},
            "plugins": [
                {
                    "name": NAME,
                    "source": {"source": "local", "path": source},
                    "policy": {
                        "installation": "AVAILABLE",
                        "authentication": "ON_INSTALL",
                    },
                    "category": _CATEGORY,
                }
            ],
        },
        "server.json": _registry_entry(owner),
    }
    changes = _plan_documents(folder, documents)
    plugin = folder / PLUGIN_PLACE
    check_within(plugin, folder)
    return changes + plan_plugin(plugin, SHARED_PROGRAMS, skill=skill, owner=owner)


def registry_name(owner: str) -> str:
    """Return the name of the server in the registry of MCP servers."""
    return f"io.github.{owner}/{NAME}"


def _manifest(owner: str) -> Document:
    """Return what all manifests say about the plug-in."""
    manifest: Document = {
        "name": NAME,
        "version": version(NAME),
        "description": SUMMARY,
        "author": {"name": owner or NAME},
        "license": _LICENSE,
        "keywords": list(_KEYWORDS),
    }
    if owner:
        manifest["repository"] = _repository(owner)
    return manifest


def _repository(owner: str) -> str:
    return f"https://github.com/{owner}/{NAME}"


def _registry_entry(owner: str) -> Document:
    """Return the entry for the registry of MCP servers."""
    release = version(NAME)
    program, *options = _SERVER_WORDS
    return {
        "$schema": _REGISTRY_SCHEMA,
        "name": registry_name(owner),
        "description": SUMMARY,
        "repository": {"url": _repository(owner), "source": "github"},
        "version": release,
        "packages": [
            {
                "registryType": "pypi",
                "identifier": NAME,
                "version": release,
                "runtimeHint": "uvx",
                "runtimeArguments": [
                    {
                        "type": "named",
                        "name": "--with",
                        "value": f"{NAME}[mcp]=={release}",
                    }
                ],
                "transport": {"type": "stdio"},
                "packageArguments": [
                    {"type": "positional", "value": program},
                    *({"type": "named", "name": option} for option in options),
                ],
            }
        ],
    }


def _plan_documents(
    folder: Path, documents: Mapping[str, Document]
) -> list[FileChange]:
    """Return the changes that write JSON files. Raises UsageError."""
    changes: list[FileChange] = []
    for name, document in documents.items():
        path = folder / name
        check_within(path, folder)
        before = read_text(path)
        if before is not None and not _is_own(before):
            raise UsageError(
                f"{path} is not from heedful; move it away, or give another folder"
            )
        text = json.dumps(document, indent=2) + "\n"
        changes.append(FileChange(path, before, text))
    return changes


def _is_own(text: str) -> bool:
    """Return True if a file names no other plug-in and no other server."""
    try:
        document = json.loads(text)
    except ValueError:
        return False
    if not isinstance(document, dict):
        return False

    name = str(document.get("name", NAME))
    servers = document.get("mcpServers", {})
    return name.rpartition("/")[2] == NAME and (
        isinstance(servers, str) or set(servers) <= {NAME}
    )
