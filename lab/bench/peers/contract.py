"""What the program of a peer is asked, and the lines that it prints.

Every program runs in the environment of its peer, so this module needs nothing but the
standard library. A program gets one JSON object, a `Work`, as its argument and prints
one JSON object, a `Line`, for each figure. What a library itself prints goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a program has to do: a kind of work, how often, and in which folder.

    `inputs` is the folder with the lessons and the queries. `worker` is the number of
    the process, if several do the same.
    """

    kind: str
    folder: str
    times: int = 1
    inputs: str = ""
    worker: int = 0

    @property
    def file(self) -> str:
        """The path of the database, where the peer keeps one file."""
        return f"{self.folder}/store.db"


@dataclass(frozen=True, kw_only=True)
class Line:
    """A figure of a program, or a text: why something failed."""

    figure: str
    value: float = 0.0
    text: str = ""

    def as_json(self) -> str:
        """Return the line as a program prints it."""
        return json.dumps(asdict(self))


Program = Callable[[Work], Iterable[Line]]


def serve(programs: Mapping[str, Program]) -> None:
    """Do the work that the command line names, and print its lines."""
    work = Work(**json.loads(sys.argv[1]))
    stdout = os.dup(1)
    os.dup2(2, 1)
    with open(stdout, "w", encoding="utf-8") as out:
        for line in programs[work.kind](work):
            print(line.as_json(), file=out, flush=True)


def spread(prefix: str, seconds: Sequence[float]) -> Iterator[Line]:
    """Yield the smallest and the median value in milliseconds."""
    yield Line(figure=f"{prefix}_fastest_ms", value=min(seconds) * 1e3)
    yield Line(figure=f"{prefix}_median_ms", value=median(seconds) * 1e3)


def describe(error: Exception) -> str:
    """Return the type of an error and the first line of its text."""
    first_line = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first_line}"[:200]
