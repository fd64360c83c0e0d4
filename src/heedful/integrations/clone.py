"""What a project brings for agents beside settings of heedful: servers, instructions.

Anyone may have written the files of a clone. Its MCP servers are trusted, and its
instructions to agents may be repeated in lessons, only if a person has said so for the
very text: an approval is of a digest. Both are read as data and never run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from heedful.errors import UsageError
from heedful.lessons.scope import Trust
from heedful.sanitize import visible
from heedful.store.ownership import approvals
from heedful.store.workspace import project_top, read_project_file

# The files with MCP servers that agents read in a project, and the table of servers.
SERVER_FILES: Mapping[str, str] = {
    ".mcp.json": "mcpServers",
    ".cursor/mcp.json": "mcpServers",
    ".gemini/settings.json": "mcpServers",
    ".vscode/mcp.json": "servers",
    ".codex/config.toml": "mcp_servers",
}
# The files and folders with instructions that agents read without being asked.
INSTRUCTION_FILES = (
    "AGENTS.md",
    "CLAUDE.md",
    "GEMINI.md",
    ".claude/CLAUDE.md",
    ".cursorrules",
    ".windsurfrules",
    ".github/copilot-instructions.md",
)
INSTRUCTION_FOLDERS = (".cursor/rules", ".claude/rules")
# More of a kind than these are not asked for, and so not trusted.
MAX_CLONE_ITEMS = 20
MAX_SERVER_NAME_CHARS = 100
MAX_SHOWN_SERVER_CHARS = 160
SHOWN_DIGEST_CHARS = 12
_SERVER_PART = "server"


@dataclass(frozen=True, kw_only=True)
class CloneItem:
    """Something that a project brings: an MCP server, or a file of instructions.

    `source` is its name in matters of trust. `digest` is that of its text, and
    `is_refused` is True if the person said no to this text.
    """

    kind: Literal["server", "instructions"]
    path: str
    source: str
    text: str
    digest: str
    is_approved: bool = False
    is_refused: bool = False

    @property
    def name(self) -> str:
        """The path, and the server, as in "/project/.mcp.json [server:docs]"."""
        if self.kind == "server":
            return visible(f"{self.path} [{self.source}]")
        return visible(self.path)

    def __str__(self) -> str:
        digest = f"digest {self.digest[:SHOWN_DIGEST_CHARS]}"
        if self.kind == "server":
            beginning = visible(self.text)[:MAX_SHOWN_SERVER_CHARS]
            return f"{self.name} is an MCP server ({digest}): {beginning}"
        lines = len(self.text.splitlines())
        return f"{self.name} has {lines} lines of instructions to agents ({digest})"


def clone_items(folder: Path) -> list[CloneItem]:
    """Return the servers and the instructions that the project of a folder brings.

    A file that cannot be read is left out: what it brings is not trusted.
    """
    root = project_top(folder.resolve())
    items = [*_servers(root), *_instructions(root)]
    approved = approvals()
    return [_with_answer(item, approved) for item in items]


def _with_answer(
    item: CloneItem, approved: Mapping[str, Mapping[str, str]]
) -> CloneItem:
    """Return an item with what the person has answered about it."""
    return replace(
        item,
        is_approved=approved["files"].get(item.name) == item.digest,
        is_refused=approved["refused"].get(item.name) == item.digest,
    )


def server_trust(folder: Path) -> dict[str, Trust]:
    """Return the trust in the MCP servers of a project that a person approved."""
    names = approvals()["files"]
    # Most people have approved none, and a hook runs for each event.
    if not any(f"[{_SERVER_PART}:" in name for name in names):
        return {}
    servers = [item for item in clone_items(folder) if item.kind == "server"]
    # Nobody knows from which file an agent has a server.
    doubted = {item.source for item in servers if not item.is_approved}
    return {item.source: "measured" for item in servers if item.source not in doubted}


def foreign_instructions(folder: Path) -> dict[str, str]:
    """Return the instructions that no person has approved, by their sources."""
    return {
        item.source: item.text
        for item in clone_items(folder)
        if item.kind == "instructions" and not item.is_approved
    }


def _instructions(root: Path) -> Iterator[CloneItem]:
    """Yield the files of instructions at known places."""
    # A hook before a call reads no instructions.
    from heedful.lessons.waiting import FILE_SOURCE_PREFIX

    names = list(INSTRUCTION_FILES)
    for name in INSTRUCTION_FOLDERS:
        with suppress(OSError):
            files = sorted((root / name).iterdir())
            names += [f"{name}/{path.name}" for path in files[:MAX_CLONE_ITEMS]]

    for name in names[:MAX_CLONE_ITEMS]:
        text = _read(root, name)
        if text.strip():
            yield CloneItem(
                kind="instructions",
                path=str(root / name),
                source=f"{FILE_SOURCE_PREFIX}{name}",
                text=text,
                digest=_digest(text),
            )


def _servers(root: Path) -> Iterator[CloneItem]:
    """Yield the MCP servers of each file; a name in two files is two servers."""
    for name, table in SERVER_FILES.items():
        servers = _table_of(name, _read(root, name)).get(table)
        if not isinstance(servers, dict):
            continue

        for server, values in list(servers.items())[:MAX_CLONE_ITEMS]:
            is_name = 0 < len(server) <= MAX_SERVER_NAME_CHARS
            if not is_name or any(map(str.isspace, server)):
                continue
            text = json.dumps(values, sort_keys=True, default=str)
            yield CloneItem(
                kind="server",
                path=str(root / name),
                source=f"{_SERVER_PART}:{server}",
                text=text,
                digest=_digest(text),
            )


def _table_of(name: str, text: str) -> dict[str, Any]:
    """Return the JSON or TOML of a file; {} if it is neither."""
    with suppress(ValueError, RecursionError):
        if name.endswith(".toml"):
            import tomllib  # few projects have such a file

            return tomllib.loads(text)
        document = json.loads(text or "{}")
        if isinstance(document, dict):
            return document
    return {}


def _read(root: Path, name: str) -> str:
    """Return the text of a file of the project, "" if it cannot be read."""
    with suppress(OSError, UsageError):
        content = read_project_file(root / name, within=root)
        return content.decode("utf-8", "replace")
    return ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
