"""What a project brings for agents beside settings of heedful: servers, instructions.

Anyone may have written the files of a clone. Its MCP servers are trusted, and its
instructions to agents may be repeated in lessons, only if a person has said so for the
very text: an approval is of a digest. Both are read as data and never run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice, product
from pathlib import Path
from typing import Any, Literal

from heedful.errors import UsageError
from heedful.integrations.agents import AGENTS
from heedful.lessons.scope import ANY_SERVER, ENTRY_MARK, Trust, server_source
from heedful.redact import redact
from heedful.sanitize import visible
from heedful.store.ownership import approvals
from heedful.store.workspace import project_top, read_project_file, run_git

# The files with MCP servers that agents read in a project, and the table of servers: of
# agents that name the server in the names of its tools.
SERVER_FILES: Mapping[str, str] = {
    ".mcp.json": "mcpServers",
    ".cursor/mcp.json": "mcpServers",
    ".factory/mcp.json": "mcpServers",
    ".gemini/settings.json": "mcpServers",
    ".qwen/settings.json": "mcpServers",
    ".qwen/settings.local.json": "mcpServers",
    ".vscode/mcp.json": "servers",
    ".codex/config.toml": "mcp_servers",
}
# The files and folders with instructions that agents read without being asked: those of
# the agents with hooks, and of others that a session may be of.
_PLACES = chain.from_iterable(agent.instructions for agent in AGENTS.values())
_OTHER_PLACES = (
    "AGENT.md",
    ".junie/guidelines.md",
    ".junie/AGENTS.md",
    ".roo/rules/",
    ".windsurf/rules/",
)
_ALL_PLACES = tuple(dict.fromkeys([*_PLACES, *_OTHER_PLACES]))
INSTRUCTION_FILES = tuple(name for name in _ALL_PLACES if not name.endswith("/"))
# How the source of such a file ends, in a folder or at the root.
_FILE_ENDS = (
    *(f"/{name}" for name in INSTRUCTION_FILES),
    *(f":{name}" for name in INSTRUCTION_FILES),
)
INSTRUCTION_FOLDERS = tuple(name[:-1] for name in _ALL_PLACES if name.endswith("/"))
# The folders of agents in a project, and those in each with texts that an agent reads
# when it needs one. Such a folder is one thing to approve.
_FOLDERS = chain.from_iterable(agent.folders for agent in AGENTS.values())
AGENT_FOLDERS = tuple(dict.fromkeys(_FOLDERS))
PROMPT_FOLDERS = (
    "agent",
    "agents",
    "chatmodes",
    "command",
    "commands",
    "droids",
    "mode",
    "modes",
    "output-styles",
    "prompts",
    "recipes",
    "skill",
    "skills",
)
# In the folders of agents, a text in another folder may be one that an agent reads. It
# has one of these ends.
PROMPT_ENDINGS = (".md", ".mdc")
TEXT_ENDINGS = (*PROMPT_ENDINGS, ".toml", ".txt", ".yaml", ".yml")
# These folders have no such texts, but whole projects. In those of a host of
# repositories, most texts are for people.
PROJECT_FOLDERS = frozenset(("node_modules", "worktrees"))
SHARED_FOLDERS = frozenset((".github",))
# Beside this file, a skill has files of any kind, which the agent reads with its tools.
SKILL_FILE = "/skill.md"
SKILL_FOLDERS = ("/skill", "/skills")
# Settings of agents that may name files with instructions or have prompts, and how they
# do.
AGENT_SETTINGS = (
    ".claude/settings.json",
    ".codex/config.toml",
    ".gemini/settings.json",
    ".kilo/kilo.json",
    ".kilo/kilo.jsonc",
    ".opencode/opencode.json",
    ".opencode/opencode.jsonc",
    ".qwen/settings.json",
    ".qwen/settings.local.json",
    ".vscode/settings.json",
    "kilo.json",
    "kilo.jsonc",
    "opencode.json",
    "opencode.jsonc",
)
# The names in a folder that has something for agents.
PLACE_NAMES = frozenset(
    name.split("/")[0].casefold()
    for name in (
        *INSTRUCTION_FILES,
        *INSTRUCTION_FOLDERS,
        *AGENT_FOLDERS,
        *AGENT_SETTINGS,
    )
)
_NAMING_KEY = (
    "(?:contextFileName|fileName|project_doc_fallback_filenames|prompt|template"
    r"|extraKnownMarketplaces|[\w.]*instructions\w*)"
)
_NAMING_KEY_PATTERN = re.compile(rf'"{_NAMING_KEY}":')
# Where settings cannot be parsed, as with comments, a key may have any escapes.
_UNPARSED_NAMING_KEY_PATTERN = re.compile(rf"""{_NAMING_KEY}["']?\s*:|\\u""")
# The texts in these folders may define MCP servers. A text of YAML may have escapes.
SUBAGENT_FOLDERS = frozenset(
    ("agent", "agents", "chatmodes", "droids", "mode", "modes")
)
_SERVERS_KEY_PATTERN = re.compile(
    r"""mcp[-_]?servers|"[^"\\]*\\[xu\s]""", re.IGNORECASE
)
# The path of another file whose text an agent reads in the place of this one: without
# the marks of a sentence behind it, and as all up to a blank that is not escaped.
_IMPORT_PATTERNS = (
    re.compile(r"(?<!\S)@([\w.-][\w./-]*[\w-])"),
    re.compile(r"(?<!\S)@((?:\\.|[^\s\\])+)"),
)
# If calls name more folders, heedful reads none of them.
MAX_NAMED_FOLDERS = 2_000
# More files of a folder and more imported files are not asked for, and so not trusted;
# of a file with more servers, none is.
MAX_CLONE_ITEMS = 20
# A folder of prompts with more files, or with longer texts, is not read.
MAX_FOLDER_FILES = 1_000
MAX_FOLDER_CHARS = 2**20
# Of longer instructions the rest is not read: a session does not wait for it.
MAX_INSTRUCTIONS_CHARS = 2**22
MAX_SERVER_NAME_CHARS = 100
MAX_SHOWN_SERVER_CHARS = 160
SHOWN_DIGEST_CHARS = 12
_SERVER_PART = "server"
# The beginning of the source of what repeats a file of instructions.
FILE_SOURCE_PREFIX = "file:"
_ANY_FILE = f"{FILE_SOURCE_PREFIX}*"  # of more folders than heedful reads


@dataclass(frozen=True, kw_only=True)
class CloneItem:
    """Something that a project brings: an MCP server, or a file of instructions.

    `source` is its name in matters of trust. `digest` is that of its text, and
    `is_refused` is True if the person said no to this text. With `is_unread`, the
    agent may read what heedful has not read, so nobody can be asked about it. Settings
    with `names_files` name instructions: until they are approved, nobody knows which.
    """

    kind: Literal["server", "instructions"]
    path: str
    source: str
    text: str
    digest: str
    is_approved: bool = False
    is_refused: bool = False
    is_unread: bool = False
    names_files: bool = False

    @property
    def name(self) -> str:
        """The path, and the server, as in "/project/.mcp.json [server:docs]"."""
        if self.kind == "server" and not self.is_unread:
            return visible(f"{self.path} [{self.source}]")
        return visible(self.path)

    def __str__(self) -> str:
        digest = f"digest {self.digest[:SHOWN_DIGEST_CHARS]}"
        if self.kind == "server" and self.is_unread:
            return (
                f"{self.name} may have MCP servers that heedful cannot read, so no "
                "server of the project is trusted"
            )
        if self.kind == "server":
            text = redact(visible(_with_command_first(self.text)))
            more = len(text) - MAX_SHOWN_SERVER_CHARS
            end = f" … {more} more characters" if more > 0 else ""
            beginning = text[:MAX_SHOWN_SERVER_CHARS] + end
            return f"{self.name} is an MCP server ({digest}): {beginning}"
        if self.is_unread:
            return (
                f"{self.name} has instructions to agents that heedful cannot read, so "
                "new fixes and rules wait"
            )
        if self.names_files:
            return f"{self.name} may name files with instructions to agents ({digest})"
        lines = len(self.text.splitlines())
        return f"{self.name} has {lines} lines of instructions to agents ({digest})"


def _with_command_first(text: str) -> str:
    """Return the entry of a server, beginning with what runs: its end is not shown."""
    values = json.loads(text)
    if not isinstance(values, dict):
        return text
    first = {key: values[key] for key in ("command", "url") if key in values}
    return json.dumps({**first, **values})


def clone_items(folder: Path) -> list[CloneItem]:
    """Return the servers and instructions that the project brings for this folder.

    An agent reads those of its folder and of each folder above it, up to the root.
    """
    folder = folder.resolve()
    root = project_top(folder)
    servers = _servers(root, folder)
    return _with_answers([*servers, *_instructions(root, _places(root, folder))])


def _with_answers(items: Iterable[CloneItem]) -> list[CloneItem]:
    """Return the items with what the person has answered about each."""
    answers = approvals()
    approved = answers["files"]
    refused = answers["refused"]
    return [
        replace(
            item,
            is_approved=not item.is_unread and approved.get(item.name) == item.digest,
            is_refused=not item.is_unread and refused.get(item.name) == item.digest,
        )
        for item in items
    ]


def server_trust(folder: Path) -> dict[str, Trust]:
    """Return the trust in the MCP servers of a project that a person approved.

    What waits because of an entry (`foreign_texts_of`) is trusted with the entry.
    """
    names = approvals()["files"]
    # Most people have approved none, and a hook runs for each event.
    if not any(f"[{_SERVER_PART}:" in name for name in names):
        return {}
    folder = folder.resolve()
    root = project_top(folder)
    instructions = _instructions(root, _places(root, folder))
    items = _server_items(root, folder, instructions)
    doubted = {_server_of(item) for item in items if not item.is_approved}
    # Nobody knows from which file an agent has a server.
    if ANY_SERVER in doubted:
        return {}
    approved = [item for item in items if item.is_approved]
    trusted = set(map(_server_of, approved)) - doubted - {ANY_SERVER}
    trusted.update(map(_entry_source, approved))
    return dict.fromkeys(trusted, "measured")


def _server_items(
    root: Path, folder: Path, instructions: Iterable[CloneItem]
) -> list[CloneItem]:
    """Return what defines MCP servers: their entries, and texts for subagents."""
    texts = [
        item
        for item in instructions
        if Path(item.path).name.casefold() in SUBAGENT_FOLDERS
        and _SERVERS_KEY_PATTERN.search(item.text)
    ]
    return _with_answers([*_servers(root, folder), *texts])


def _server_of(item: CloneItem) -> str:
    """Return the source of the servers that something defines."""
    is_known = item.kind == "server" and not item.is_unread
    return item.source if is_known else ANY_SERVER


def _entry_source(item: CloneItem) -> str:
    """Return the source of what a server says that a project defines in these words."""
    digest = "unread" if item.is_unread else item.digest[:SHOWN_DIGEST_CHARS]
    return f"{_server_of(item)}{ENTRY_MARK}{digest}"


class _NamedFolders:
    """The names of folders that a text has, and not in longer words."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = set(re.findall(r"\w+", text))
        self._known: dict[str, bool] = {}

    def has(self, name: str) -> bool:
        """Return True if the text has the name."""
        if name not in self._known:
            self._known[name] = self._find(_without_escapes(name))
        return self._known[name]

    def _find(self, name: str) -> bool:
        # A search in the whole text takes long.
        if not self._words.issuperset(re.findall(r"\w+", name)):
            return False
        pattern = rf"(?<!\w){re.escape(name)}(?!\w)"
        return name in self._words or re.search(pattern, self._text) is not None


def _without_escapes(text: str) -> str:
    """Return a text without signs before others, in one form of its letters."""
    return unicodedata.normalize("NFC", text.replace("\\", "")).casefold()


def _entries_of(folder: Path) -> dict[str, bool]:
    """Map each name in a folder except ".git" to whether it is a folder."""
    try:
        with os.scandir(folder) as entries:
            return {
                entry.name: entry.is_dir() for entry in entries if entry.name != ".git"
            }
    except OSError:
        return {}  # nobody can read it


def _instructed_folders(root: Path) -> set[Path]:
    """Return the folders of a repository in which git tracks files for agents."""
    files = [*INSTRUCTION_FILES, *AGENT_SETTINGS]
    folders = [*INSTRUCTION_FOLDERS, *AGENT_FOLDERS]
    patterns = [
        *(f":(glob)**/{name}" for name in files),
        *(f":(glob)**/{name}/**" for name in folders),
    ]
    listed = run_git(root, ["ls-files", "-z", "--", *patterns]) or ""
    # Of "shop/.claude/skills/a.md" it is "shop".
    ends = "|".join([*map(re.escape, files), *(f"{re.escape(n)}/.+" for n in folders)])
    place_of = re.compile(rf"(?:(.+?)/)?(?:{ends})", re.DOTALL).fullmatch
    matches = filter(None, map(place_of, listed.split("\0")))
    return {Path(match[1] or ".") for match in matches}


def _instructions(root: Path, places: Sequence[Path]) -> Iterator[CloneItem]:
    """Yield the instructions in folders of a project, the last unread if too long."""
    size = 0
    for item in _all_instructions(root, places):
        size += len(item.text)
        if size > MAX_INSTRUCTIONS_CHARS:
            yield replace(item, text="", is_unread=True)
            return
        yield item


def _all_instructions(root: Path, places: Sequence[Path]) -> Iterator[CloneItem]:
    """Yield the files of instructions in folders of a project, and what they import.

    A folder with more files than are read is yielded as unread.
    """
    names: list[str] = []
    for place in places:
        files = [(place / name).as_posix() for name in INSTRUCTION_FILES]
        names += [name for name in files if not os.path.isdir(root / name)]

    for place, known_folder in product(places, INSTRUCTION_FOLDERS):
        rules = (place / known_folder).as_posix()
        files = list(islice(_files_below(root, rules), MAX_CLONE_ITEMS + 1))
        names += files[:MAX_CLONE_ITEMS]
        if len(files) > MAX_CLONE_ITEMS:
            yield _instructions_item(root, rules, text=None)

    most_names = len(names) + MAX_CLONE_ITEMS
    yield from _known_prompts(root, places, names)
    for name in names:
        text = _read(root, name)
        if text is None or text.strip():
            yield _instructions_item(root, name, text=text)

        for imported in _imports(root, name, text or ""):
            if imported not in names:
                names.append(imported)  # the loop comes to it
        if len(names) > most_names:
            yield _instructions_item(root, name, text=None)
            return


def _known_prompts(
    root: Path, places: Sequence[Path], names: list[str]
) -> Iterator[CloneItem]:
    """Yield what is read when an agent needs it, and settings that name instructions.

    Adds to `names` the files that prompts import.
    """
    for place, agent in product(places, AGENT_FOLDERS):
        for _, folders, files in islice(os.walk(root / place / agent), 1):
            texts = [name for name in files if name.casefold().endswith(PROMPT_ENDINGS)]
            if agent not in SHARED_FOLDERS:
                paths = [(place / agent / name).as_posix() for name in sorted(texts)]
                names += [path for path in paths if path not in names]
            for folder in sorted(folders):
                if _may_have_prompts(agent, folder):
                    path = (place / agent / folder).as_posix()
                    yield from _prompts(root, path, names)
    for place, settings in product(places, AGENT_SETTINGS):
        yield from _naming_settings(root, (place / settings).as_posix())


def _may_have_prompts(agent: str, folder: str) -> bool:
    """Return True if a folder in that of an agent may have texts that it reads."""
    name = folder.casefold()
    if name in PROMPT_FOLDERS:
        return True
    is_known = f"{agent}/{name}" in INSTRUCTION_FOLDERS
    return not (is_known or agent in SHARED_FOLDERS or name in PROJECT_FOLDERS)


def _prompts(root: Path, folder: str, names: list[str]) -> Iterator[CloneItem]:
    """Yield a folder of prompts, if it has any; add to `names` what they import."""
    files = list(islice(_files_below(root, folder), MAX_FOLDER_FILES + 1))
    is_whole = len(files) <= MAX_FOLDER_FILES
    if os.path.basename(folder).casefold() not in PROMPT_FOLDERS:
        files = [name for name in files if name.casefold().endswith(TEXT_ENDINGS)]
    if folder.endswith(SKILL_FOLDERS):
        files = [name for name in files if _is_skill(root, name)]
    text = ""
    for name in files:
        prompt = _read(root, name)
        if prompt is None or len(text) + len(prompt) > MAX_FOLDER_CHARS:
            is_whole = False
            break
        text += f"{prompt}\n"
        imported = dict.fromkeys(_imports(root, name, prompt))
        names += [path for path in imported if path not in names]
    if text.strip() or not is_whole:
        yield _instructions_item(root, folder, text=text if is_whole else None)


def _is_skill(root: Path, name: str) -> bool:
    """Return True for the text of a skill, and for a link, which may lead to one."""
    return name.lower().endswith(SKILL_FILE) or os.path.islink(root / name)


def _naming_settings(root: Path, name: str) -> Iterator[CloneItem]:
    """Yield settings that may name files with instructions."""
    text = _read(root, name)
    table = _table_of(name, text or "")
    is_naming = (
        _NAMING_KEY_PATTERN.search(json.dumps(table, default=str))
        if table
        else _UNPARSED_NAMING_KEY_PATTERN.search(text or "")
    )
    if text is None:
        yield _instructions_item(root, name, text=None)
    elif is_naming:
        yield replace(_instructions_item(root, name, text=text), names_files=True)


def _files_below(root: Path, folder: str) -> Iterator[str]:
    """Yield the files in a folder and below it, and the links, which are not followed.

    Their names are relative to `root`.
    """
    for place, folders, files in os.walk(root / folder):
        folders.sort()
        links = [name for name in folders if os.path.islink(f"{place}/{name}")]
        for name in sorted([*files, *links]):
            yield Path(place, name).relative_to(root).as_posix()


def _imports(root: Path, name: str, text: str) -> Iterator[str]:
    """Yield the files that a text imports by a path relative to its own file."""
    for path in chain.from_iterable(found.findall(text) for found in _IMPORT_PATTERNS):
        unescaped = re.sub(r"\\(.)", r"\1", path)
        imported = os.path.normpath(root / name / ".." / unescaped)
        if os.path.isfile(imported):
            yield Path(os.path.relpath(imported, root)).as_posix()


def _instructions_item(root: Path, name: str, text: str | None) -> CloneItem:
    """Return a file of instructions; its text is None if it was not read whole."""
    return CloneItem(
        kind="instructions",
        path=os.path.normpath(root / name),
        source=f"{FILE_SOURCE_PREFIX}{name}",
        text=text or "",
        digest=_digest(text or ""),
        is_unread=text is None,
    )


def _servers(root: Path, folder: Path) -> Iterator[CloneItem]:
    """Yield the MCP servers of each file; a name in two files is two servers.

    A file whose servers are not all known is yielded as unread.
    """
    for place, (file, key) in product(_places(root, folder), SERVER_FILES.items()):
        name = (place / file).as_posix()
        text = _read(root, name)
        table = _table_of(name, text or "")
        servers = table.get(key, {})
        is_whole = (
            isinstance(servers, dict)
            and len(servers) <= MAX_CLONE_ITEMS
            and all(0 < len(server) <= MAX_SERVER_NAME_CHARS for server in servers)
        )
        is_parsed = text is not None and (table or not text.strip())
        if not is_whole or not is_parsed:
            yield CloneItem(
                kind="server",
                path=os.path.normpath(root / name),
                source=_SERVER_PART,
                text="",
                digest="",
                is_unread=True,
            )
            continue

        for server, values in servers.items():
            text = json.dumps(values, sort_keys=True, default=str)
            yield CloneItem(
                kind="server",
                path=os.path.normpath(root / name),
                source=server_source(server),
                text=text,
                digest=_digest(text),
            )


def _places(root: Path, folder: Path) -> list[Path]:
    """Return the folders whose files an agent reads in a folder, relative to the root.

    Some agents read the folders above a repository, too. The home folder and those
    above it are left out: they do not belong to the project.
    """
    others = {Path.home(), *Path.home().parents, Path(folder.anchor)}
    above = [place for place in root.parents if place not in others]
    outside = [Path(os.path.relpath(place, root)) for place in reversed(above)]
    return [*outside, *_inner_places(root, folder)]


def _inner_places(root: Path, folder: Path) -> list[Path]:
    """Return the folders from the root down to a folder, relative to the root."""
    places = [folder, *folder.parents]
    inside = [place.relative_to(root) for place in places if place.is_relative_to(root)]
    return inside[::-1]


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


def _read(root: Path, name: str) -> str | None:
    """Return the text of a file of the project, "" without one, None if unreadable."""
    # Most of the names are those of no file, and a session waits.
    if not os.path.lexists(root / name):
        return ""
    try:
        outer = root / "/".join(part for part in name.split("/") if part == "..")
        return read_project_file(root / name, within=outer).decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UsageError, UnicodeDecodeError):
        return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
