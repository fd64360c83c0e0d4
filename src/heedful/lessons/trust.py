"""How far a text is trusted, in which state it is stored, and what may raise its trust.

The level of trust follows from the origin of a text, never from its content. A text derived from
other texts has their lowest trust. Only an operator or a measured outcome raises trust. Texts from
tools and from outside are quarantined until an operator releases them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from heedful.errors import InvalidInput
from heedful.lessons.lesson import ORDER, Example, Reflection, State, Trust, check_trust, clip

Action = Literal["release", "reject"]
RAISING = frozenset(ORDER[:2])
HELD = frozenset(ORDER[3:])
# The source of all that comes from other computers; its trust is always "external".
NETWORK = "network"
_SOURCE = re.compile(r"user|tool|(?:tool|program|key):\S{1,150}")
LOCAL = ("tool", "program:")  # the beginnings of the sources of what a tool or program wrote
SOURCES = "user, tool, tool:NAME, program:NAME or key:ID"
# Tools and programs that bring texts from other computers, and addresses of such texts.
_FETCHING_TOOL = re.compile(r"web|fetch|browse|https?|url|\Amcp__", re.IGNORECASE)
_FETCHING = re.compile(
    r"(?<![\w.-])(?:curl|wget|https?|ssh|scp|sftp|rsync|ftp|nc|ncat|telnet|lynx|w3m|aria2c|gh|glab)"
    r"(?![\w.=/:-])"
)
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://")
_QUOTED_ADDRESS = re.compile(r"['\"][a-z][a-z0-9+.-]{1,20}://")
_INNER = re.compile(r"\b\w*sh\s(?:.*\s)?-\w*c\b|\beval\b")
# Of a shell's command: what is data (here-documents, quoted texts), redirections, separators.
_DATA = re.compile(
    r"(?sm)<<-?\s*(['\"]?)(\w+)\1.*?^\s*\2\s*$|'[^']*'|\"(?:[^\"\\`$]|\\.|\$(?!\())*\""
)
_REDIRECTED = re.compile(r"(?:\d|&)?(?:>>?|<)(?:&\d|\s*[^\s;|&]+)")
_SET = re.compile(r"\w+=")
_SEPARATOR = re.compile(r"[;|&\n`()]+")
# Words of the shell before a program, and commands that bring no text of others.
_BEFORE = frozenset("if then else elif while until do ! { time exec".split())
_SILENT = frozenset(
    "cd pushd popd export set unset true false : echo printf exit wait sleep test [ [[ read local"
    " return for case esac done fi }".split()
)
KEY = "key:"  # the beginning of the source of all that came through a key of a service
# Words in a row that make a quotation. On recorded runs no word of a model shares 8 words with what
# users wrote in another run (6 words: up to 1.5 %).
RUN = 8
_WORD = re.compile(r"\w+")
LONGEST_TAG = 200  # characters of a tag of a lesson in quarantine
TAGS = 20  # tags of a lesson in quarantine


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of an example: all its sources, and the ids of its parents and of its children.

    `sightings` are the newest sightings of its lesson: `text`, `source`, `trust`, `loop`, and `at`,
    in seconds since 1970. `rulings` are the decisions of operators about it.
    """

    sources: tuple[str, ...] = ()
    parents: tuple[int, ...] = ()
    children: tuple[int, ...] = ()
    sightings: tuple[Mapping[str, Any], ...] = ()
    rulings: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class QuarantinedLesson:
    """An entry in quarantine: the lesson, its example and its source.

    `id` is the id of the example's row. `example` is None if the lesson has no example. `source` is
    the source of this entry, and `seen` counts the sightings of its pattern.
    """

    id: int
    kind: str
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
    """How many rows a revocation removes; `lessons` counts lessons that lose their last example.

    Loops, episodes and outcomes are those that a key wrote. `attempts` counts those of its loops,
    and in loops of others its first attempt with all that followed. `exposures` counts the lessons
    in prompts for which it recalled. `loop_ids` and `lesson_ids` name at most 50 of them.
    """

    examples: int = 0
    lessons: int = 0
    sightings: int = 0
    loops: int = 0
    attempts: int = 0
    episodes: int = 0
    outcomes: int = 0
    exposures: int = 0
    loop_ids: tuple[str, ...] = ()
    lesson_ids: tuple[int, ...] = ()


def lowest_trust(trusts: Iterable[Trust]) -> Trust:
    """Return the lowest of these levels of trust. Raises InvalidInput."""
    trusts = tuple(trusts)
    for trust in trusts:
        check_trust(trust)
    return max(trusts, key=ORDER.index)


def initial_state(trust: Trust, state: State = "candidate") -> State:
    """Return the state in which a lesson is stored: "quarantined" if untrusted, else `state`."""
    return "quarantined" if trust in HELD else state


def clip_reflection(one: Reflection) -> Reflection:
    """Return the reflection with example, context, error type and the first `TAGS` tags clipped."""
    example = one.example
    if example is not None:
        values = ((part.name, getattr(example, part.name)) for part in fields(example))
        texts: dict[str, Any] = {name: clip(v) for name, v in values if isinstance(v, str)}
        example = replace(example, **texts)
    tags = tuple(clip(tag)[:LONGEST_TAG] for tag in one.tags[:TAGS])
    kind, context = clip(one.error_type), clip(one.context)
    return replace(one, example=example, tags=tags, error_type=kind, context=context)


def check_statement(source: object, trust: object) -> None:
    """Raise InvalidInput unless an operator may state this trust of this source."""
    if not isinstance(source, str) or not _SOURCE.fullmatch(source):
        why = "; what comes from the network waits for a release" if source == NETWORK else ""
        raise InvalidInput("source", source, f"{SOURCES}{why}")
    check_trust(trust)


def find_quotations(texts: Iterable[str], others: Iterable[str]) -> dict[str, int]:
    """Map each text that quotes one of the `others` to the place of the first one, from 0.

    A text quotes another if `RUN` words in a row are in both, or if it is shorter and the other
    contains it as a whole, in words. Case and punctuation do not count. Takes linear time.

    >>> find_quotations(["npm i pads", "npm test"], ["If it fails, run `npm i pads`."])
    {'npm i pads': 0}
    """
    found = quotations(texts, ((other, frozenset({""})) for other in others))
    return {text: places[""] for text, places in found.items()}


def quotations(
    texts: Iterable[str], others: Iterable[tuple[str, frozenset[str]]]
) -> dict[str, dict[str, int]]:
    """Map each text that quotes one of the `others` to their sources, with their first places."""
    wanted: defaultdict[int, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for text in texts:
        words = _WORD.findall(text.casefold())
        for run in _runs(words, size := min(RUN, len(words))):
            if " " in run or len(run) > 5:  # a short word is in every text
                wanted[size][run].add(text)
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    known: defaultdict[str, set[str]] = defaultdict(set)  # the sources of a run
    for place, (other, sources) in enumerate(others if wanted else ()):
        words = _WORD.findall(other.casefold())
        for size, runs in wanted.items():
            for run in runs.keys() & {*_runs(words, size)}:
                for text in runs[run] if sources - known[run] else ():
                    found[text] = dict.fromkeys(sources, place) | found[text]
                known[run] |= sources
    return dict(found)


def _runs(words: list[str], size: int) -> Iterator[str]:
    return (" ".join(words[at : at + size]) for at in range(len(words) - size + 1))


def source_trust(source: str, stated: Mapping[str, Trust]) -> Trust:
    """Return the trust of a source; a tool or program without a statement has that of `tool`.

    What came through a key of a service has no more trust than a tool without a statement.
    """
    if not _SOURCE.fullmatch(source):
        return "external"
    if source.startswith(KEY):
        return stated.get(source, "tool")
    other: Trust = "external" if source == "user" else stated.get("tool", "tool")
    return stated.get(source, other)


def sources_of(tool: str, command: str, arguments: Iterable[str] = ()) -> frozenset[str]:
    """Return the sources of a tool's result: the programs of its `command`, or else the tool.

    If the command, the tool or one of its other `arguments` fetches from other computers, the
    network is a source, too. heedful cannot see what a program itself fetches.

    >>> sorted(sources_of("Bash", "cd app && curl -s a.test/x | python -m pytest -q 2>&1"))
    ['network', 'program:curl', 'program:python']
    """
    bare = without_data(command)
    fetches = (
        _FETCHING.search(command if _INNER.search(bare) else bare)
        or _ADDRESS.search(bare)
        or _QUOTED_ADDRESS.search(command)
        or _FETCHING_TOOL.search(tool)
        or any(map(_ADDRESS.match, arguments))
    )
    ran = [f"program:{name[:150]}" for name in programs(command)]
    named = ran or [f"tool:{tool[:150]}".removesuffix(":")]
    return frozenset([*named, NETWORK] if fetches else named)


def without_data(command: str) -> str:
    """Return a shell's command without its here-documents and quoted texts."""
    return _DATA.sub(" _ ", command)


def programs(command: str) -> list[str]:
    """Return the names of the programs that a shell's command runs, in their order."""
    found = dict[str, None]()
    for step in _SEPARATOR.split(_REDIRECTED.sub(" ", without_data(command))):
        words = (word.strip('"$') for word in step.split())
        name = next((w for w in words if w and w not in _BEFORE and not _SET.match(w)), "")
        if name and name not in _SILENT:
            found[name.rstrip("/").rpartition("/")[2]] = None
    return list(found)
