"""The doors of heedful: where another distribution adds something to it.

A door is a group of entry points. A distribution names what it adds in its
`pyproject.toml`, and heedful finds it when it is installed:

    [project.entry-points."heedful.readers"]
    my-agent = "my_package:MyReader"

An entry point is imported when it is needed, and never by `import heedful`.
`heedful-server` and `heedful-agents` use no other way. This is the only list of doors.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from heedful.validation import Fields

if TYPE_CHECKING:
    from heedful.episodes.readers.base import Reader
    from heedful.lessons.scope import Scope

T = TypeVar("T")


@dataclass(frozen=True)
class Door(Generic[T]):
    """A group of entry points, and what each of them is: a `T`."""

    group: str

    def load(self, name: str) -> T | None:
        """Return what an installed distribution adds under a name, None without one."""
        place = _places(self.group).get(name)
        return None if place is None else _load(place)

    def load_all(self) -> dict[str, T]:
        """Return what all installed distributions add, by its name."""
        return {name: _load(place) for name, place in _places(self.group).items()}


@cache
def _places(group: str) -> dict[str, str]:
    """Return the entry points of a group: by its name, the `module:attribute` of each.

    `importlib.metadata` takes as long as all else of `heedful --help`.
    """
    places: dict[str, str] = {}
    for text in _entry_texts():
        in_group = False
        for line in text.splitlines():
            name, is_entry, place = line.partition("=")
            if line.startswith("["):
                in_group = line.strip() == f"[{group}]"
            elif in_group and is_entry:
                places.setdefault(name.strip(), place.strip())
    return dict(sorted(places.items()))


@cache
def _entry_texts() -> list[str]:
    """Return the entry points of all installed distributions, those of each as text."""
    files: dict[str, str] = {}
    for folder in filter(os.path.isdir, sys.path):
        for name in os.listdir(folder):
            if name.endswith((".dist-info", ".egg-info")):
                # Python imports the first of a distribution that is installed twice.
                files.setdefault(
                    name.partition("-")[0], f"{folder}/{name}/entry_points.txt"
                )

    return [
        Path(file).read_text("utf-8") for file in files.values() if os.path.isfile(file)
    ]


def _load(place: str) -> Any:
    """Return what an entry point names."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


@dataclass(frozen=True, kw_only=True)
class CommandSet:
    """Commands of `heedful`.

    `package` is the package of their modules. `groups` has the titles of `heedful
    --help`, below them the name of each command with its `module:attribute` and its
    summary. `options` has the names of the shared options of a command, or of one below
    it, separated by blanks.
    """

    package: str
    groups: Mapping[str, Mapping[str, tuple[str, str]]]
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        """The names of the commands."""
        return frozenset(chain.from_iterable(self.groups.values()))


class JobQueue(Protocol):
    """A queue of jobs that workers do."""

    async def defer(self, task: str, scope: Scope, **arguments: Any) -> Any:
        """Put a job on the queue."""
        ...

    async def workload(self) -> Any:
        """Return what is in the queue: a `heedful_server.jobs.Workload`."""
        ...


# Commands of the command line. The functions are imported when a command runs.
COMMANDS: Door[CommandSet] = Door("heedful.commands")

# Readers of files of traces, by their formats. `heedful.testing` has the cases that a
# reader must pass. They are asked after the readers of heedful, but before that of
# chats, because runs of many formats have a chat in them.
READERS: Door[type[Reader]] = Door("heedful.readers")

# Settings that replace those of the command line: a function of a folder. "hooks" has
# those of `--as-hooks`.
SETTINGS: Door[Callable[[Path], Fields]] = Door("heedful.settings")

# The queue of the jobs of a database, for the scheme of its address: a function that
# opens it.
QUEUES: Door[Callable[[str], AbstractAsyncContextManager[JobQueue]]] = Door(
    "heedful.queues"
)

# Routes of the service: a `heedful_server.routes.RouteGroup`.
ROUTERS: Door[Any] = Door("heedful.routers")

# Jobs that workers of the service do, by their names: a `heedful_server.jobs.JobKind`.
JOBS: Door[Any] = Door("heedful.jobs")
