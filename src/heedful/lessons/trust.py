"""How far a text is trusted, in which state it is stored, and what may raise its trust.

The level of trust follows from the origin of a text, never from its content. A text
derived from other texts has their lowest trust. Only an operator or a measured outcome
raises trust. Texts from tools and from outside are quarantined until an operator
releases them.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal

from heedful.errors import InvalidInput
from heedful.lessons.lesson import (
    TRUST_ORDER,
    Example,
    Lesson,
    State,
    Trust,
    check_trust,
    clip,
)
from heedful.lessons.scope import server_source
from heedful.lessons.shell import ADDRESS_PATTERN, program_name, read_command
from heedful.sanitize import plain_text

Action = Literal["release", "reject"]
TRUST_RAISING_VERIFICATION = frozenset(TRUST_ORDER[:2])
QUARANTINE_TRUST = frozenset(TRUST_ORDER[3:])
# The source of all that comes from other computers; its trust is always "external".
NETWORK_SOURCE = "network"
# A source whose trust may be stated: "user", "tool:Read", "program:make".
_SOURCE_PATTERN = re.compile(
    r"user|tool|program|(?:tool|program|server|reviewer|key):\S{1,150}"
)
SOURCE_FORMS = (
    "user, tool, tool:NAME, program, program:NAME, server:NAME, reviewer:LOGIN or "
    "key:ID"
)
# The beginnings of the source of what a reviewer said, and of the lessons that come
# from what was said about a change.
REVIEWER_SOURCE_PREFIX = "reviewer:"
CHANGE_SOURCE_PREFIX = "episode:change "
# The tools with which coding agents run a command of a shell; "stop" is heedful's own.
SHELL_TOOLS = frozenset(
    "bash powershell shell local_shell exec_command run_shell_command run_terminal_cmd "
    "stop".split()
)
# The tools of coding agents that work on this machine alone. A statement about "tool"
# covers these; any other tool, and each program, is trusted by its own name only.
LOCAL_TOOLS = SHELL_TOOLS | frozenset(
    "apply_patch edit glob grep list list_directory ls multiedit notebookedit patch "
    "read read_file replace search_file_content taskcreate tasklist taskupdate "
    "todowrite write write_file".split()
)
# A tool of an MCP server, which is a program of others: "mcp__docs__search".
_SERVER_TOOL_PREFIX = "mcp__"
_SERVER_TOOL_PATTERN = re.compile(r"mcp__(?P<server>\S{1,100}?)__\S+")
# A statement about one of these covers several sources.
GROUP_SOURCES = frozenset(("tool", "program"))
# What a person vouches for who trusts the own words, the agent's tools on this machine
# and the programs that it runs.
OWN_TRUST: Mapping[str, Trust] = {
    "user": "operator",
    "tool": "measured",
    "program": "measured",
}
# Programs that print what is on other computers, also without an address in their
# command. A statement about "program" does not cover them.
FETCHING_PROGRAMS = frozenset(
    "acli aria2c aws axel az curl curlie dig docker docker-compose elinks flyctl ftp "
    "gcloud gh glab grpcurl helm heroku host http https hub invoke-restmethod "
    "invoke-webrequest irm iwr jira kubectl lftp links lynx mail mongosh mosh mutt "
    "mysql nc ncat nerdctl netcat nslookup oc openssl podman podman-compose psql "
    "rclone redis-cli rsh rsync scp sftp socat ssh svn tea telnet vercel w3m wget "
    "wget2 whois xh".split()
)
# Those of them that are also words of other commands: "pytest -k http", "cargo -p hub".
ORDINARY_WORDS = frozenset("ftp host http https hub links mail tea".split())
# What stands between the words of a command, also of one in quotes.
_WORD_END_PATTERN = re.compile(r"[\s'\"`;|&()<>]+")
# The beginning of the source of all that came through a key of a service.
KEY_SOURCE_PREFIX = "key:"
# Words in a row that make a quotation. On recorded runs no word of a model shares 8
# words with what users wrote in another run (6 words: up to 1.5 %).
MIN_QUOTATION_WORDS = 8
MIN_QUOTED_WORD_CHARS = 6  # a shorter word is in every text
# A word, for which "_" is a blank, as it is in the "_pads_" of Markdown.
_QUOTATION_WORD_PATTERN = re.compile(r"[^\W_]+")
# How code and HTTP say whose words a run has.
MEMORY_TRUST_ARGUMENT = "pass Memory(…, trust={levels})"
HTTP_TRUST_ARGUMENT = "send trust=operator with a key that may approve"
MAX_QUARANTINE_TAG_CHARS = 200  # characters of a tag of a lesson in quarantine
MAX_QUARANTINE_TAGS = 20  # tags of a lesson in quarantine


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of an example: its sources, and the ids of its parents and children.

    `sightings` are the newest sightings of its lesson: `text`, `source`, `trust`,
    `loop`, and `at`, in seconds since 1970. `rulings` are the decisions of operators
    about it.
    """

    sources: tuple[str, ...] = ()
    parents: tuple[int, ...] = ()
    _: KW_ONLY
    children: tuple[int, ...] = ()
    sightings: tuple[Mapping[str, Any], ...] = ()
    rulings: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class QuarantinedLesson:
    """An entry in quarantine: the lesson, its example and its source.

    `id` is the id of the example's row. `example` is None if no prompt shows its words.
    `source` is the source of this entry, and `seen` counts the sightings of its
    pattern.
    """

    id: int
    kind: str
    _: KW_ONLY
    error_type: str
    signature: str
    pattern: str
    lesson: str
    example: Example | None
    state: State
    trust: Trust
    source: str
    tags: tuple[str, ...]
    importance: float
    seen: int
    at: float
    provenance: Provenance = field(default_factory=Provenance)


@dataclass(frozen=True, slots=True)
class RevocationResult:
    """How many rows a revocation of a source removes.

    `lessons` counts the lessons that lose their last example, `prompts` the loops whose
    stored prompts had its words.

    If the source is a key of a service, `loops`, `episodes` and `outcomes` are those
    that it wrote. `attempts` counts those of its loops, and in loops of others its
    first attempt with all that followed. `exposures` counts the lessons in prompts for
    which it recalled, and the offers of its trials. `loop_ids` and `lesson_ids` name at
    most 50 of them, and `reopened` as many loops of others that it had added to.
    """

    examples: int = 0
    lessons: int = 0
    _: KW_ONLY
    sightings: int = 0
    prompts: int = 0
    loops: int = 0
    attempts: int = 0
    episodes: int = 0
    outcomes: int = 0
    exposures: int = 0
    loop_ids: tuple[str, ...] = ()
    lesson_ids: tuple[int, ...] = ()
    reopened: tuple[str, ...] = ()


def lowest_trust(trusts: Iterable[Trust]) -> Trust:
    """Return the lowest of these levels of trust. Raises InvalidInput."""
    trusts = tuple(trusts)
    for trust in trusts:
        check_trust(trust)
    return max(trusts, key=TRUST_ORDER.index)


def initial_state(trust: Trust, state: State = "unverified") -> State:
    """Return the state of a new lesson: "quarantined" if untrusted, else `state`."""
    return "quarantined" if trust in QUARANTINE_TRUST else state


def clip_lesson(lesson: Lesson) -> Lesson:
    """Return a lesson for quarantine, with all its texts clipped.

    Tags after the first `MAX_QUARANTINE_TAGS` are left out.
    """
    example = lesson.example
    if example is not None:
        example = replace(
            example,
            task=clip(example.task),
            accepted=clip(example.accepted),
            rejected=clip(example.rejected),
            wrong=clip(example.wrong),
            evidence=clip(example.evidence),
            context=clip(example.context),
        )

    tags = [clip(tag) for tag in lesson.tags[:MAX_QUARANTINE_TAGS]]
    return replace(
        lesson,
        example=example,
        tags=tuple(tag[:MAX_QUARANTINE_TAG_CHARS] for tag in tags),
        error_type=clip(lesson.error_type),
        context=clip(lesson.context),
    )


def check_statement(source: object, trust: object) -> None:
    """Raise InvalidInput unless an operator may state this trust of this source."""
    if not isinstance(source, str) or not is_statable(source):
        why = ""
        if source == NETWORK_SOURCE:
            why = "; what comes from the network waits for a release"
        raise InvalidInput("source", source, f"{SOURCE_FORMS}{why}")
    check_trust(trust)


def is_statable(source: str) -> bool:
    """Return True if an operator may state the trust of a source by this name."""
    return bool(_SOURCE_PATTERN.fullmatch(source))


def find_quotations(
    texts: Iterable[str],
    others: Iterable[str],
    min_chars: int = MIN_QUOTED_WORD_CHARS,
) -> dict[str, int]:
    """Map each text that quotes one of `others` to the position of the first of these.

    A text quotes another if `MIN_QUOTATION_WORDS` words in a row are in both, or if it
    is shorter and the other contains it as a whole, in words. A single word must have
    `min_chars` characters. Case, punctuation, accents and what is drawn as nothing do
    not count. Takes linear time.

    >>> find_quotations(["npm i pads", "npm test"], ["If it fails, run `npm i pads`."])
    {'npm i pads': 0}
    """
    texts_and_sources = ((other, frozenset({""})) for other in others)
    quoted = quotations(texts, texts_and_sources, min_chars)
    return {text: places[""] for text, places in quoted.items()}


def quotations(
    texts: Iterable[str],
    others: Iterable[tuple[str, frozenset[str]]],
    min_chars: int = MIN_QUOTED_WORD_CHARS,
) -> dict[str, dict[str, int]]:
    """Map each text that quotes one of `others` to the sources of what it quotes.

    `others` are texts with their sources. Each source is mapped to the position of the
    first of its texts that is quoted.
    """
    # The texts that each run of words is from, by the number of words of the run.
    texts_by_run: defaultdict[int, defaultdict[str, set[str]]] = defaultdict(
        lambda: defaultdict(set)
    )
    for text in texts:
        words = _QUOTATION_WORD_PATTERN.findall(plain_text(text))
        size = min(MIN_QUOTATION_WORDS, len(words))
        for run in _runs(words, size):
            if " " in run or len(run) >= min_chars:
                texts_by_run[size][run].add(text)
    if not texts_by_run:
        return {}

    quoted: defaultdict[str, dict[str, int]] = defaultdict(dict)
    # The sources in which each run was found: another text of the same source changes
    # nothing.
    run_sources: defaultdict[str, set[str]] = defaultdict(set)
    for position, (other, sources) in enumerate(others):
        readings = _readings(other)
        for size, runs in texts_by_run.items():
            for run in runs.keys() & _runs_of_readings(readings, size):
                if sources <= run_sources[run]:
                    continue

                run_sources[run] |= sources
                for text in runs[run]:
                    quoted[text] = dict.fromkeys(sources, position) | quoted[text]
    return dict(quoted)


def _readings(text: str) -> list[list[str]]:
    r"""Return the words of a text as it may be read, once for each way to read it.

    Nobody knows whether `\notes` is a word or the end of a line and another word, and
    whether its reader sees the signs of `no<b>tes</b>`.
    """
    plain_texts = {plain_text(text), plain_text(text, markup=False)}
    if "\\" in text:
        plain_texts.add(plain_text(text, escapes=False))
    return [_QUOTATION_WORD_PATTERN.findall(reading) for reading in plain_texts]


def _runs_of_readings(readings: list[list[str]], size: int) -> set[str]:
    """Return the runs of `size` words in the readings of a text."""
    runs = set[str]()
    for words in readings:
        runs.update(_runs(words, size))
    return runs


def _runs(words: list[str], size: int) -> Iterator[str]:
    """Return each run of `size` neighbouring words, joined by blanks."""
    starts = range(len(words) - size + 1)
    return (" ".join(words[start : start + size]) for start in starts)


def source_trust(source: str, stated: Mapping[str, Trust]) -> Trust:
    """Return the trust of a source: the stated one, or else a default.

    By default, the user, a reviewer and an MCP server are "external", a local tool of a
    coding agent has the trust stated for `tool`, a program that fetches nothing that
    for `program`, and a tool of a server that of the server. Any other tool, any other
    program and a key of a service are trusted as a tool without a statement.
    """
    if not _SOURCE_PATTERN.fullmatch(source):
        return "external"

    kind, _, name = source.partition(":")
    if source == "user" or kind in ("server", "reviewer"):
        return stated.get(source, "external")
    if source in GROUP_SOURCES:  # without a name nobody can say anything of it
        return "tool"

    default: Trust = "tool"
    server = server_of(name) if kind == "tool" else ""
    if server:
        default = stated.get(server, default)
    elif kind == "tool" and name.casefold() in LOCAL_TOOLS:
        default = stated.get("tool", default)
    elif kind == "program" and program_name(name) not in FETCHING_PROGRAMS:
        default = stated.get("program", default)
    return stated.get(source, default)


def server_of(tool: str) -> str:
    """Return the source of the MCP server of a tool, "" if it is of none.

    >>> server_of("mcp__docs__search")
    'server:docs'
    """
    match = _SERVER_TOOL_PATTERN.fullmatch(tool)
    return server_source(match["server"]) if match else ""


def trust_hint(untrusted: Sequence[str], argument: str = MEMORY_TRUST_ARGUMENT) -> str:
    """Return the argument and the commands that state the trust of these sources.

    `{levels}` in `argument` stands for the sources with their trust.
    """
    levels = {source: own_trust(source) for source in untrusted}
    if not levels or not all(map(is_statable, levels)):
        return ""  # text from the network waits, even if a person vouches for the rest
    commands = [
        shlex.join(["heedful", "trust", "set", source, level, "--waiting"])
        for source, level in levels.items()
    ]
    return (
        "the lessons wait, because nobody says whose words these are; if they are your "
        f"own, {argument.format(levels=levels)}, or run: {'; '.join(commands)}"
    )


def own_trust(source: str) -> Trust:
    """Return the trust that people give to a source of their own."""
    return "operator" if source == "user" else "measured"


def untrusted_sources(
    sources: Iterable[str], stated: Mapping[str, Trust]
) -> tuple[str, ...]:
    """Return the sources whose words wait in quarantine, under the `stated` trust."""
    trusts = {source: source_trust(source, stated) for source in sorted(set(sources))}
    return tuple(name for name, trust in trusts.items() if trust in QUARANTINE_TRUST)


def keys_in(sources: Iterable[str]) -> frozenset[str]:
    """Return those of the sources that are keys of a service."""
    return frozenset(name for name in sources if name.startswith(KEY_SOURCE_PREFIX))


def sources_of(
    tool: str, command: str, arguments: Iterable[str] = ()
) -> frozenset[str]:
    """Return the sources of a tool's result: its command's programs, or else the tool.

    Only the tools of coding agents that run a shell (`SHELL_TOOLS`) are read this way.
    The network is a source, too, if it is unclear which programs the command runs, as
    in the language of PowerShell, if there is no command, or if the command or one of
    the tool's other `arguments` has an address. A tool of an MCP server depends on the
    server, too. A fetching program is a source wherever its name stands before other
    words: any program may run it. heedful cannot see what a program itself fetches.

    >>> sorted(sources_of("Bash", "cd app && curl -s a.test/x | python -m app -q 2>&1"))
    ['program:curl', 'program:python']
    >>> sorted(sources_of("Bash", "gtimeout 30 gh issue view 5"))
    ['program:gh', 'program:gtimeout']
    """
    name = tool.casefold()
    if name not in SHELL_TOOLS:
        sources = {f"tool:{tool[:150]}".removesuffix(":")}
        has_address = any(map(ADDRESS_PATTERN.search, arguments))
        server = server_of(tool)
        if server:
            sources.add(server)
        is_foreign = name.startswith(_SERVER_TOOL_PREFIX) and not server
        if is_foreign or (has_address and name not in LOCAL_TOOLS):
            sources.add(NETWORK_SOURCE)
        return frozenset(sources)

    line = read_command(command)
    sources = {f"program:{program[:150]}" for program in line.programs}
    words = _WORD_END_PATTERN.split(command)[:-1]
    # A path with this end is a folder or a file, unless it is one of the machine.
    names = {
        program_name(word.rpartition("/")[2] if word.startswith("/") else word)
        for word in words
    }
    # On recorded sessions, one in 3,575 commands has such a name and does not run it.
    run_names = names & (FETCHING_PROGRAMS - ORDINARY_WORDS)
    sources.update(f"program:{name}" for name in run_names)
    if not sources:
        sources = {f"tool:{tool[:150]}"}
    is_read = line.clear and name != "powershell"
    if line.address or not is_read or not command.strip():
        sources.add(NETWORK_SOURCE)
    return frozenset(sources)
