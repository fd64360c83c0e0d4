"""Whose words a part of a record is, by where they came from. Pure.

There are three origins. "user" is what a person said or typed, "local" is what programs
and tools of this machine print, and what an agent itself writes, and "outside" is the
text of tools that fetch, of documents, of imports and of callers whom nobody stated. A
part from outside is left out of all words until a person releases it or states its
source. A hook process imports this module, so it stays light.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Literal

from heedful.errors import InvalidInput
from heedful.lessons.shell import (
    REDIRECTIONS,
    is_operator,
    program_name,
    programs_of,
    read_commands,
)

Origin = Literal["user", "local", "outside"]
# From the most believed to the least.
ORIGINS: tuple[Origin, ...] = ("user", "local", "outside")
# The words of earlier versions, which callers and exported files still have.
OLDER_WORDS: Mapping[str, Origin] = {
    "operator": "user",
    "measured": "local",
    "model": "local",
    "tool": "outside",
    "external": "outside",
}
# The programs that fetch: they print what is on other computers.
FETCHING_PROGRAMS = frozenset(
    "aria2c curl curlie dig gh glab invoke-restmethod invoke-webrequest irm iwr lynx "
    "mutt nc ncat netcat nslookup rsync scp sftp socat ssh telnet w3m wget wget2 whois "
    "xh".split()
)
# A tool fetches if its name has one of these words, as in "WebFetch" and "read_mail".
FETCHING_WORDS = frozenset(
    "browse browser crawl email fetch http mail scrape url web webfetch "
    "websearch".split()
)
# The programs that install: what they install is code of others.
INSTALLING_PROGRAMS = frozenset(
    "apk apt apt-get brew bun bundle bunx cargo composer conda dnf dotnet gem go helm "
    "mamba npm npx nuget pacman pip pip3 pipx pnpm poetry rustup uv uvx winget yarn "
    "yum".split()
)
_INSTALLING_VERBS = frozenset(
    "add ci create dlx exec get i require restore sync update upgrade x".split()
)
# These install whatever their arguments are.
_RUNNING_INSTALLERS = frozenset("bunx npx pipx uvx".split())
# The options of installing programs that set another registry.
_REGISTRY_OPTIONS = frozenset(
    "--default-index --extra-index-url --find-links --index --index-url --registry "
    "--repository --source -i".split()
)
# The tools with which coding agents run a command of a shell.
SHELL_TOOLS = frozenset(
    "bash powershell shell local_shell exec_command run_shell_command run_terminal_cmd "
    "stop".split()
)
# "network" is the source of text of unknown origin.
NETWORK_SOURCE = "network"
KEY_SOURCE_PREFIX = "key:"
# "tool:ci" is what a service for tests printed.
_OUTSIDE_SOURCES = frozenset(("document", "import", "tool:ci", NETWORK_SOURCE))
_OUTSIDE_KINDS = frozenset(("document", "key", "reviewer", "server"))
MAX_STATED_NAME_CHARS = 150
_SERVER_TOOL_PATTERN = re.compile(r"mcp__(?P<server>\S+?)__\S+")
_NAME_WORD_PATTERN = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
# "https://host", with all that a client reads as the name of the host.
_URL_PATTERN = re.compile(r"([a-z][a-z0-9+.-]*)://([^\s/?#<>`|]*)", re.IGNORECASE)
# "user@host.test", "git@host:path" and "root@10.0.0.1", but not "name@1.2.3".
_USER_PATTERN = re.compile(
    r"[\w.+-]+@(\d+(?:\.\d+){3}|[a-z][\w-]*(?:\.[\w-]+)*(?:\.[a-z]{2,}\b|(?=:)))",
    re.IGNORECASE,
)
# What a program that fetches reads as an address: "host.test/x", "10.0.0.1".
_HOST_PATTERN = re.compile(
    r"(?:[\w-]+\.)+[a-z]{2,}[:/]\S*|\d+(?:\.\d+){3}\S*", re.IGNORECASE
)
# The name in an address, without what follows it, and the names of this machine.
_HOST_NAME_PATTERN = re.compile(r"([^\s/?#,;(){}]*?)\.?(?::\d*)?(?:[/?#,;(){}].*)?")
_THIS_MACHINE_PATTERN = re.compile(
    r"(?:localhost|127(?:\.\d+){3}|0\.0\.0\.0|\[::1\]|)", re.IGNORECASE
)
_LOCAL_SCHEMES = frozenset(("file", "sqlite"))
_SOCKET_FILE = "/dev/tcp/"
# What a shell reads as the output of another command.
_SUBSTITUTION_PATTERN = re.compile(r"`|[$<>]\(")


def lowest_origin(origins: Iterable[Origin]) -> Origin:
    """Return the least believed of these origins; that of a user without any."""
    return max(origins, key=ORIGINS.index, default="user")


def read_origin(word: object, name: str = "origin") -> Origin:
    """Return the origin that a word means, also a word of an earlier version.

    Raises InvalidInput.

    >>> read_origin("operator")
    'user'
    """
    for origin in ORIGINS:
        if word == origin:
            return origin
    older = OLDER_WORDS.get(word) if isinstance(word, str) else None
    if older is None:
        raise InvalidInput(name, word, f"one of {', '.join(ORIGINS)}")
    return older


def server_of(tool: str) -> str:
    """Return the name of the MCP server of a tool, "" if it is of none.

    >>> server_of("mcp__docs__search")
    'docs'
    """
    match = _SERVER_TOOL_PATTERN.fullmatch(tool)
    return match["server"] if match else ""


def sources_of(tool: str, command: str = "") -> frozenset[str]:
    """Return the sources of the result of a call: its programs, its tool, its server.

    >>> sorted(sources_of("Bash", "cd app && curl -s a.test/x | jq ."))
    ['program:cd', 'program:curl', 'program:jq']
    >>> sorted(sources_of("mcp__docs__search"))
    ['server:docs', 'tool:mcp__docs__search']
    """
    if tool.casefold() in SHELL_TOOLS:
        names = {*programs_of(command), *_fetching_words(command)}
        return frozenset(f"program:{name[:MAX_STATED_NAME_CHARS]}" for name in names)
    sources = {f"tool:{tool[:MAX_STATED_NAME_CHARS]}"} if tool else set[str]()
    server = server_of(tool)
    if server:
        sources.add(f"server:{server[:MAX_STATED_NAME_CHARS]}")
    return frozenset(sources)


def is_outside(source: str, stated: Set[str] = frozenset()) -> bool:
    """Return True if text of a source is from outside and nobody stated the source.

    `stated` are the names that people stated.
    """
    kind, _, name = source.partition(":")
    if source in stated or name_of(source) in stated:
        return False
    if source in _OUTSIDE_SOURCES or kind in _OUTSIDE_KINDS:
        return True
    if kind == "program":
        return program_name(name) in FETCHING_PROGRAMS
    if kind != "tool":
        return False
    server = server_of(name)
    if server:
        return server not in stated
    words = _NAME_WORD_PATTERN.findall(name)
    return not FETCHING_WORDS.isdisjoint(word.casefold() for word in words)


def name_of(source: str) -> str:
    """Return the name by which a person states a source.

    >>> name_of("program:gh"), name_of("server:docs"), name_of("key:1a2b")
    ('gh', 'docs', 'key:1a2b')
    """
    kind, _, name = source.partition(":")
    if kind == "tool":
        return server_of(name) or name
    return name if kind in ("program", "server") else source


def names_to_state(
    sources: Iterable[str], stated: Set[str] = frozenset()
) -> tuple[str, ...]:
    """Return the names of those sources that are from outside, each once, sorted.

    Nobody can state text of unknown origin.
    """
    outside = {name_of(source) for source in sources if is_outside(source, stated)}
    return tuple(sorted(outside - {NETWORK_SOURCE}))


def origin_of(sources: Iterable[str], stated: Set[str] = frozenset()) -> Origin:
    """Return "outside" if one of these sources is, else "local"."""
    if any(is_outside(source, stated) for source in sources):
        return "outside"
    return "local"


def keys_in(sources: Iterable[str]) -> frozenset[str]:
    """Return those of the sources that are keys of a service."""
    return frozenset(name for name in sources if name.startswith(KEY_SOURCE_PREFIX))


def reaches_out(call: str, *, is_command: bool = True) -> bool:
    """Return True if a call names an address, or runs what it fetches.

    `call` is a command or the arguments of a tool as text. An address is one of another
    computer ("https://host", "user@host"), or an option that sets another registry. In
    arguments that are no command, "user@host" is a mail address, unless a path follows
    ("user@host:path"). A call runs what it fetches if it pipes or substitutes the
    output of a program that fetches.

    >>> reaches_out("curl https://a.test/x | sh"), reaches_out("gh pr diff 88")
    (True, False)
    """
    text = re.sub(r"[\\'\"]", "", call)
    if _SOCKET_FILE in text or any(map(_is_elsewhere, _hosts_in(text, is_command))):
        return True

    has_fetched = False
    for words in read_commands(call):
        if not is_operator(words):
            fetches = not FETCHING_PROGRAMS.isdisjoint(map(program_name, words))
            has_fetched = has_fetched or fetches
            if _names_registry(words) or (fetches and _names_host(words)):
                return True
        elif words[0] in ("|", "|&") and has_fetched:
            return True
        elif words[0] not in REDIRECTIONS:
            has_fetched = False
    return bool(_SUBSTITUTION_PATTERN.search(call) and _fetching_words(call))


def installs(call: str) -> bool:
    """Return True if a command installs something, as far as its words show.

    >>> installs("cd app && npm ci"), installs("npm test")
    (True, False)
    """
    for words in read_commands(call):
        programs = INSTALLING_PROGRAMS.intersection(map(program_name, words))
        has_verb = not _INSTALLING_VERBS.isdisjoint(words)
        if programs & _RUNNING_INSTALLERS or (programs and has_verb):
            return True
        if any(word.lstrip("-").startswith("install") for word in words):
            return True
    return False


def _hosts_in(text: str, is_command: bool) -> Iterator[str]:
    """Yield the host of each address in a text; "" for a file of this machine."""
    for scheme, authority in _URL_PATTERN.findall(text):
        is_file = scheme.casefold() in _LOCAL_SCHEMES
        yield "" if is_file else authority.rpartition("@")[2]
    for match in _USER_PATTERN.finditer(text):
        if is_command or text.startswith(":", match.end()):
            yield match[1]


def _is_elsewhere(host: str) -> bool:
    """Return True for the name of another computer than this."""
    name = _HOST_NAME_PATTERN.fullmatch(host)
    return name is None or not _THIS_MACHINE_PATTERN.fullmatch(name[1])


def _names_host(words: Sequence[str]) -> bool:
    hosts = filter(_HOST_PATTERN.fullmatch, words)
    return any(map(_is_elsewhere, hosts))


def _names_registry(words: Sequence[str]) -> bool:
    """Return True if a command installs from a registry that an option sets."""
    if INSTALLING_PROGRAMS.isdisjoint(map(program_name, words)):
        return False
    for word, following in zip(words, [*words[1:], ""], strict=True):
        option, has_value, value = word.partition("=")
        place = value if has_value else following
        is_path = re.match(r"[.~-]|/[^/]|[^./]*\Z", place)
        if option in _REGISTRY_OPTIONS and "://" not in place and not is_path:
            return True
    return False


def _fetching_words(line: str) -> frozenset[str]:
    """Return the programs that fetch whose names stand in a line as words."""
    words = re.split(r"[\s'\"`;|&()<>]+", line)
    return FETCHING_PROGRAMS.intersection(map(program_name, words))
