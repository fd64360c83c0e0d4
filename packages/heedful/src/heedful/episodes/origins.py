"""Where the words of the events of a run are from, and the fix that it found. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import chain

from heedful.episodes.course import (
    RESULT_EVENTS,
    SURROUNDING_EVENTS,
    Course,
    given_to,
)
from heedful.episodes.episode import Event
from heedful.lessons.action import command_of
from heedful.lessons.origin import (
    NETWORK_SOURCE,
    Origin,
    installs,
    is_outside,
    reaches_out,
    sources_of,
)
from heedful.lessons.words import plain_text

# With `strict`, what an agent has read so many events before a fix may be in it.
STRICT_EVENTS = 40


def sources_at(run: Course, position: int) -> frozenset[str]:
    """Return the sources of the words of an event: the user, a tool or programs.

    The words of a model have none.
    """
    event = run.events[position]
    if event.type == "summary":
        return frozenset()
    if event.origin not in ("", "tool"):
        return frozenset({NETWORK_SOURCE})
    if event.type in SURROUNDING_EVENTS and not event.origin:
        return frozenset({"user"})
    if event.type not in RESULT_EVENTS and not event.origin:
        return frozenset()

    call = run.act[position]
    calling = run.events[position if call is None else call]
    return sources_of(event.tool or calling.tool, command_of(given_to(calling)))


def sources_in(run: Course) -> frozenset[str]:
    """Return the sources of the words of a run."""
    return frozenset(
        chain.from_iterable(sources_at(run, n) for n in range(len(run.events)))
    )


def is_outside_at(run: Course, position: int, stated: Set[str]) -> bool:
    """Return True if the words of an event are from outside."""
    return any(is_outside(source, stated) for source in sources_at(run, position))


def fix_origin(
    run: Course, steps: Iterable[int], stated: Set[str], strict: bool
) -> Origin:
    """Return the origin of the calls that put a failure right.

    They are the agent's own words, unless one of them reaches out. If `strict`, they
    are from outside also if one installs something, or if the agent read something from
    outside shortly before the first of them.
    """
    steps = sorted(steps)
    if any(_reaches_out(run.events[step]) for step in steps):
        return "outside"
    if not strict or not steps:
        return "local"
    before = range(max(0, steps[0] - STRICT_EVENTS), steps[0])
    has_read = any(is_outside_at(run, position, stated) for position in before)
    texts = chain.from_iterable(_texts_of(run.events[step]) for step in steps)
    return "outside" if has_read or any(map(installs, texts)) else "local"


def _reaches_out(call: Event) -> bool:
    """Return True if a call names an address, or runs what it fetches."""
    is_command = command_of(given_to(call)) != ""
    return any(reaches_out(text, is_command=is_command) for text in _texts_of(call))


def _texts_of(call: Event) -> Iterator[str]:
    """Yield the arguments of a call as texts."""
    arguments = given_to(call)
    values = arguments.values() if isinstance(arguments, Mapping) else [arguments]
    yield from map(plain_text, values)
