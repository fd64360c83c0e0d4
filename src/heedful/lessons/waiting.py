"""Why lessons wait in quarantine, in words, and the command that ends it. Pure.

A lesson waits because of those of its sources that nobody vouches for. What came from
the network, or with a project, waits until a person reads and releases it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from heedful.lessons.lesson import Trust
from heedful.lessons.scope import ENTRY_MARK, SERVER_PREFIX
from heedful.lessons.trust import (
    NETWORK_SOURCE,
    OWN_TRUST,
    is_statable,
    untrusted_sources,
)
from heedful.sanitize import visible

# The beginning of the name of a session among the sources of what derives from it.
SESSION_SOURCE_PREFIX = "episode:"
READ_COMMAND = "heedful quarantine list"
OWN_COMMAND = "heedful hook trust own"
MAX_REASON_SOURCES = 4
APPROVE_COMMAND = "heedful hook approve"
_SOURCE_WORDS: Mapping[str, str] = {
    "tool": "the tool {name}",
    "program": "the program {name}",
    "server": "the MCP server {name}",
    "reviewer": "the reviewer {name}",
    "key": "the key {name} of the service",
    "file": "{name}, which came with the project",
    "earlier": "what the agent read in earlier turns",
}


@dataclass(frozen=True, slots=True)
class WaitReason:
    """Why lessons wait: their untrusted `sources`, most lessons first.

    `command` is the one to run next.
    """

    sources: tuple[str, ...] = ()
    command: str = READ_COMMAND

    def __str__(self) -> str:
        if not self.sources:
            return "nobody has reviewed it"
        words = [describe_source(source) for source in self.sources]
        left_out = len(words) - MAX_REASON_SOURCES
        if left_out > 0:
            words = [*words[:MAX_REASON_SOURCES], f"{left_out} more"]
        *others, last = words
        if others:
            last = f"{', '.join(others)} or {last}"
        return f"nobody vouches for {last}"


def describe_source(source: str) -> str:
    """Return the words for a source in a sentence.

    >>> describe_source("program:pytest")
    'the program pytest'
    """
    if source == "user":
        return "your own words"
    if source == NETWORK_SOURCE:
        return "what came from the network"
    kind, _, name = source.partition(":")
    return _SOURCE_WORDS.get(kind, "{kind}:{name}").format(
        kind=visible(kind), name=visible(name)
    )


def is_entry(source: str) -> bool:
    """Return True for the entry of an MCP server in a file of a project."""
    return source.startswith(SERVER_PREFIX) and ENTRY_MARK in source


def explain_wait(names: Iterable[str], stated: Mapping[str, Trust]) -> WaitReason:
    """Return why lessons with these sources wait, under the `stated` trust.

    Each of `names` is the source of a lesson, or several with ", " between them.
    """
    counts = Counter[str]()
    for name in names:
        sources = set(name.split(", ")) - {""}
        counts.update(
            source
            for source in untrusted_sources(sources, stated)
            if not source.startswith(SESSION_SOURCE_PREFIX)
        )
    # An entry says it of its server, too.
    for entry in filter(is_entry, list(counts)):
        del counts[entry.rpartition(ENTRY_MARK)[0]]
    # The order of equal counts is that of the names.
    ranked = sorted(counts, key=lambda source: (-counts[source], source))
    return WaitReason(tuple(ranked), _command_for(ranked, stated))


def _command_for(sources: list[str], stated: Mapping[str, Trust]) -> str:
    """Return the command that ends the wait because of untrusted sources."""
    if any(map(is_entry, sources)):
        return APPROVE_COMMAND
    statable = [source for source in sources if is_statable(source)]
    if not statable:
        return READ_COMMAND

    others = untrusted_sources(statable, {**OWN_TRUST, **stated})
    if not others:
        return OWN_COMMAND
    # A name is enough for a program.
    words = [source.removeprefix("program:") for source in others]
    if len(others) < len(statable):
        words.insert(0, "own")
    return visible(f"heedful hook trust {','.join(words)}")
