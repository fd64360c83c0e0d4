"""What an episode shows of its own mistakes, found without a model. Pure."""

from __future__ import annotations

from heedful.memory.claims import claimed
from heedful.memory.conduct import brought
from heedful.memory.course import Course, course
from heedful.memory.episode import Episode
from heedful.memory.failures import failed
from heedful.memory.signal import Signal


def signals(episode: Episode) -> tuple[Signal, ...]:
    """The signals of an episode, in the order of their decisive events.

    Linear in the number of events, of each of which 8,000 characters are read.

    >>> from heedful.memory.episode import Event
    >>> calls = Event("tool_call", tool="read"), Event("tool_response", "Error: no such file")
    >>> [str(one) for one in signals(Episode(calls))]
    ['event 0: fails first here: Error: no such file']
    """
    return of(course(episode))


def of(seen: Course) -> tuple[Signal, ...]:
    """The signals of an episode that has been read."""
    found = (*failed(seen), *claimed(seen), *brought(seen))
    return tuple(sorted(found, key=lambda one: (one.at, one.kind)))
