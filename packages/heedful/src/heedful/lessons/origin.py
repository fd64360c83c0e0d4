"""Whose words a part of a record is, by where they came from. Pure.

There are three origins. "user" is what a person said or typed, "local" is what programs
and tools of this machine print, and what an agent itself writes, and "outside" is the
text of tools that fetch, of documents, of imports and of callers whom nobody stated. A
part from outside is left out of all words until a person releases it or states its
source. A hook process imports this module, so it stays light.
"""

from collections.abc import Iterable, Sequence, Set
from typing import Literal, get_args

from heedful.errors import InvalidInput
from heedful.knowledge import KnowledgeTable
from heedful.lessons.shell import (
    is_operator,
    program_name,
    programs_of,
    read_commands,
    simple_commands,
)
from heedful.lessons.words import compiled
from heedful.sanitize import find_chat_tokens
from heedful.validation import MAX_NAME_CHARS, require

Origin = Literal["user", "local", "outside"]
# From the most believed to the least.
ORIGINS: tuple[Origin, ...] = get_args(Origin)
# The programs of a line by what they do, and words of tools and texts.
_PROGRAMS = KnowledgeTable("lessons/programs")
# Anywhere in a line, "http" is mostly no program.
_FETCHING_ANYWHERE = ("fetching", "forge")
_FETCHING_AS_FIRST = (*_FETCHING_ANYWHERE, "fetching_first")
# What a reviewer should look at.
_MARKED = (*_FETCHING_AS_FIRST, "fetching_tool", "installing", "ordering")
# What stands between the words of a line.
_BREAKS = r"\s'\"`;|&()<>"
# A host behind an option, a variable or a word that sets another registry.
_REGISTRY_PATTERN = (
    r"(?i)(?:registry|index(?:[-_]url)?|[-_](?:links|repository|source)|(?<!\S)-i)"
    r"(?:=|\s+)(?://)?((?:[\w-]+\.)+[\w-]+\S*)"
)
# A tool with which a coding agent runs a command of a shell. "stop" has those that the
# user lets heedful run when an agent stops.
_SHELL_TOOL_PATTERN = (
    r"\w{0,4}sh|(?:\w+_)?(?:power)?shell(?:_\w+)?|exec_command|run_terminal_cmd|stop"
)
# "network" is the source of text of unknown origin.
NETWORK_SOURCE = "network"
KEY_SOURCE_PREFIX = "key:"
# What a service for tests printed.
_CI_SOURCE = "tool:ci"
_OUTSIDE_KINDS = frozenset(
    ("document", "import", "key", NETWORK_SOURCE, "reviewer", "server")
)
# "mcp__docs__search", or "mcp_docs_search".
_SERVER_TOOL_PATTERN = r"mcp(?P<end>__?)(?P<server>[^\s_]\S*?)(?P=end)\S+"
# "https://host", with all that a client reads as the name of the host, but no file. Or
# "git@host.test:path", but no mail address.
_ADDRESS_PATTERN = (
    r"(?i)(?:/dev/tcp/|\b(?!(?:fileb?|sqlite):)[\w+.-]+://)([^\s/?#<>`|]*)"
    r"|[\w.+-]+@((?:[\w-]+\.)+[\w-]+):\S"
)
# What a program that fetches reads as another computer: a name with a dot, a user's,
# or an address as a number. This machine's own settings know a name without a dot.
_HOST_PATTERN = r"[\w-]+(?:\.[\w-]+)+|\S+@[\w-]|\d{8}|0x\w|\["
# This machine, without the user before it, and with what may follow it in an address.
_THIS_MACHINE_PATTERN = (
    r"(?i)(?:localhost|127(?:\.\d+){3}|0\.0\.0\.0|\[::1\])?\.?(?::\d*)?"
    r"(?:[:/?#,;(){}].*)?"
)


def lowest_origin(origins: Iterable[Origin]) -> Origin:
    """Return the least believed of these origins; that of a user without any."""
    return max(origins, key=ORIGINS.index, default="user")


def is_below(origin: Origin, other: Origin) -> bool:
    """Return True if an origin is believed less than another one."""
    return lowest_origin((origin, other)) != other


def standing_of(origin: Origin, released_by: str) -> Origin:
    """Return how far a stored text is believed: as far as this origin.

    Once a person has released the text (`released_by` is not ""), it is believed as if
    a user had said it, wherever it came from.
    """
    return "user" if released_by else origin


def read_origin(word: object, name: str = "origin") -> Origin:
    """Return a word as an origin, if it is one. Raises InvalidInput.

    >>> read_origin("local")
    'local'
    """
    for origin in ORIGINS:
        if word == origin:
            return origin
    raise InvalidInput(name, word, f"one of {', '.join(ORIGINS)}")


def server_of(tool: str) -> str:
    """Return the name of the MCP server of a tool, "" if it is of none.

    >>> server_of("mcp__docs__search")
    'docs'
    """
    match = compiled(_SERVER_TOOL_PATTERN).fullmatch(tool)
    return match["server"] if match else ""


def sources_of(tool: str, command: str = "") -> frozenset[str]:
    """Return whose words the result of an agent's call may have, as names.

    These are the programs of the `command` if the `tool` is a shell, or else the tool
    and its MCP server.

    >>> sorted(sources_of("Bash", "cd app && curl -s a.test/x | jq ."))
    ['program:cd', 'program:curl', 'program:jq']
    >>> sorted(sources_of("mcp__docs__search"))
    ['server:docs', 'tool:mcp__docs__search']
    """
    if is_shell(tool):
        words = map(program_name, _words_in(command))
        fetching = (word for word in words if _is_one(word, *_FETCHING_ANYWHERE))
        names = {*programs_of(command), *fetching}
        return frozenset(f"program:{name[:MAX_NAME_CHARS]}" for name in names)
    kinds = {"tool": tool, "server": server_of(tool)}
    return frozenset(
        f"{kind}:{name[:MAX_NAME_CHARS]}" for kind, name in kinds.items() if name
    )


def is_outside(source: str, stated: Set[str] = frozenset()) -> bool:
    """Return True if the text of a source is from outside, so that it is not believed.

    Outside are tools and programs that fetch, documents, imports and keys of a service:
    a `source` is named like "program:curl" or "tool:WebFetch". A source is believed if
    it is among the names `stated`, those that a person declared to be trusted.
    """
    kind, _, name = source.partition(":")
    if source in stated or name_of(source) in stated:
        return False
    if kind in _OUTSIDE_KINDS or source == _CI_SOURCE:
        return True
    if kind == "program":
        return _is_one(program_name(name), *_FETCHING_AS_FIRST)
    if kind != "tool":
        return False
    server = server_of(name)
    if server:
        return server not in stated
    return _PROGRAMS.find("fetching_tool", name) is not None


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
    """Return the names that a person must state to have these sources believed, sorted.

    To state a source is to declare that it is trusted. `stated` are names that are so
    already. Text of unknown origin, the source "network", has no name to state.
    """
    outside = {name_of(source) for source in sources if is_outside(source, stated)}
    return tuple(sorted(outside - {NETWORK_SOURCE}))


def origin_of(sources: Iterable[str], stated: Set[str]) -> Origin:
    """Return "outside" if one of these sources is, else "local"."""
    if any(is_outside(source, stated) for source in sources):
        return "outside"
    return "local"


def keys_in(sources: Iterable[str]) -> frozenset[str]:
    """Return those of the sources that are keys of a service."""
    return frozenset(name for name in sources if name.startswith(KEY_SOURCE_PREFIX))


def reaches_out(call: str, *, is_command: bool = True) -> bool:
    """Return True if a call names another computer, or runs what it fetches.

    `call` is a command of a shell (`is_command`), or the arguments of a tool as text.
    Another computer is an address ("https://host.test", "user@host.test:path"), a host
    that a command hands to a program that fetches ("curl host.test"), or another
    registry of packages. A call runs what it fetches if an interpreter such as `sh`
    gets it, by a pipe or a substitution.

    >>> reaches_out("curl https://a.test/x | sh"), reaches_out("gh pr diff 88")
    (True, False)
    """
    # Quotes and backslashes inside of an address would hide it from the patterns.
    text = call.translate(dict.fromkeys(map(ord, "\\'\"")))
    hosts = ["".join(groups) for groups in compiled(_ADDRESS_PATTERN).findall(text)]
    if any(_is_one(program_name(word), "installing") for word in _words_in(text)):
        hosts += compiled(_REGISTRY_PATTERN).findall(text)
    if any(map(_is_elsewhere, hosts)):
        return True
    if is_command and any(map(_names_host, simple_commands(call))):
        return True
    return _runs_fetched(call)


def installs(call: str) -> bool:
    """Return True if a command may bring or run code that is not on this machine.

    It does if it calls a program that brings such code, except to run tests, or if a
    word of it begins with "install".

    >>> installs("cd app && npm ci"), installs("npm test")
    (True, False)
    """
    for words in read_commands(call):
        names = list(map(program_name, words))
        # Any word may be the program: "sudo npm ci". "npm test" brings nothing.
        for name, following in zip(names, [*words[1:], ""], strict=True):
            if following != "test" and _is_one(name, "installing", "bringing"):
                return True
        if any(word.lstrip("-").startswith("install") for word in words):
            return True
    return False


def marked_parts(text: str) -> list[tuple[str, bool]]:
    """Split a text into parts, each with True if a reviewer should look at it.

    True are programs that fetch or install, addresses of other computers, tokens that
    begin the turn of a chat, and words such as "ignore", which give orders to a model.
    It is a help for the eye, and no verdict.

    >>> marked_parts("Run `npm test`.")
    [('Run `', False), ('npm', True), (' test`.', False)]
    """
    parts: list[tuple[str, bool]] = []
    end = 0
    for start, stop in _marked_places(text):
        # Of two places that overlap, the first counts.
        if start >= end:
            parts += [(text[end:start], False), (text[start:stop], True)]
            end = stop
    parts.append((text[end:], False))
    return [part for part in parts if part[0]]


def _marked_places(text: str) -> list[tuple[int, int]]:
    """Return start and end of what a reviewer should look at in a text, in order.

    It is what `marked_parts` says; the places may overlap.
    """
    places = [token.span() for token in find_chat_tokens(text)]
    for word in compiled(rf"[^{_BREAKS}]+").finditer(text):
        name = program_name(word[0].strip(".,:;!?"))
        hosts = map("".join, compiled(_ADDRESS_PATTERN).findall(word[0]))
        if _is_one(name, *_MARKED) or any(map(_is_elsewhere, hosts)):
            places.append(word.span())
    return sorted(places)


def is_shell(tool: str) -> bool:
    """Return True if a tool is a shell: what fails is the program that it ran."""
    return compiled(_SHELL_TOOL_PATTERN).fullmatch(tool.casefold()) is not None


def _is_one(name: str, *groups: str) -> bool:
    """Return True if the table has a name in one of these groups, as "fetching"."""
    return any(_PROGRAMS.pattern(group).fullmatch(name) for group in groups)


def _is_elsewhere(host: str) -> bool:
    """Return True for the name of another computer than this."""
    return not compiled(_THIS_MACHINE_PATTERN).fullmatch(host.rpartition("@")[2])


def _find_fetching(words: Sequence[str]) -> int | None:
    """Return the index of the first word that is a program that fetches, or None.

    `words` are those of one command. After a program that installs, or the word for it,
    no word counts: "apt install curl" does not run curl.
    """
    for place, name in enumerate(map(program_name, words)):
        if name == "install" or _is_one(name, "installing"):
            return None
        if _is_one(name, *(_FETCHING_ANYWHERE if place else _FETCHING_AS_FIRST)):
            return place
    return None


def _names_host(words: Sequence[str]) -> bool:
    """Return True if a command has a program that fetches, and a host behind it.

    `words` are those of one command. The host is another computer: "curl host.test".
    """
    if _has_interpreter(words):
        # What "sh -c" runs is a line of its own.
        words = _words_in(" ".join(words))
    place = _find_fetching(words)
    # A forge is reached only at the host at which a person has signed in.
    if place is None or _is_one(program_name(words[place]), "forge"):
        return False
    return any(
        map(_is_elsewhere, filter(compiled(_HOST_PATTERN).match, words[place + 1 :]))
    )


def _runs_fetched(line: str) -> bool:
    """Return True if an interpreter may run what a program of the line fetches.

    It may if both stand in one command or in commands that a pipe, a redirection or a
    substitution joins, in any order: "curl a.test | sh", "sh <(curl a.test)".
    """
    has_fetched = False
    has_interpreter = False
    for words in read_commands(line):
        if is_operator(words):
            # Only a pipe, a file or a substitution hands on what was fetched.
            if words[0] not in ("|", "|&") and not set("<>()").intersection(words[0]):
                has_fetched = False
                has_interpreter = False
            continue
        has_interpreter = has_interpreter or _has_interpreter(words)
        # An interpreter may get a whole line in quotes as one word: split it, too.
        parts = _words_in(" ".join(words)) if has_interpreter else words
        has_fetched = has_fetched or _find_fetching(parts) is not None
        if has_fetched and has_interpreter:
            return True
    return False


def _has_interpreter(words: Iterable[str]) -> bool:
    """Return True if one of these words is an interpreter, of any version."""
    return any(_is_one(program_name(word), "interpreter") for word in words)


def _words_in(line: str) -> list[str]:
    """Return the words of a line, those in quotes, too."""
    return compiled(rf"[{_BREAKS}]+").split(line)


def check_name(name: str) -> None:
    """Raise InvalidInput unless a person may declare a source of this name trusted.

    The name is short and printable, looks like no option, and is not "network", which
    stands for all text of unknown origin.
    """
    is_name = isinstance(name, str) and name.isprintable() and not name.startswith("-")
    require(
        is_name and 0 < len(str(name)) <= MAX_NAME_CHARS,
        "name",
        name,
        f"1 to {MAX_NAME_CHARS} printable characters that begin with no dash",
    )
    wanted = "the name of one source: network is all text of unknown origin"
    require(name != NETWORK_SOURCE, "name", name, wanted)
