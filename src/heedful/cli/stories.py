"""A stored loop as a story: what was asked, shown, answered and said about each answer."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from heedful.lessons.lesson import Scope
from heedful.loop.codec import policy_from
from heedful.loop.decide import Done
from heedful.loop.explain import explain
from heedful.loop.feedback import clean
from heedful.loop.record import Attempt
from heedful.store import loops
from heedful.store.store import Store

_SHOWN = """
select json_extract(e.record, '$.task'), json_extract(e.record, '$.accepted')
from exposure x, json_each(x.examples) s join example e on e.id = s.value
where x.tenant = ? and x.project = ? and x.loop = ? and x.shown order by e.id
"""


class Try(NamedTuple):
    """One answer, and what was wrong with it; nothing where it was accepted."""

    answer: str
    wrong: tuple[str, ...]


class Shown(NamedTuple):
    """An earlier task and its accepted answer, as they stood before the task."""

    task: str
    accepted: str


@dataclass(frozen=True, slots=True)
class Story:
    """How one loop went; `stopped` is the rule that ended it and why, "" where it passed."""

    loop: str
    task: str
    tries: tuple[Try, ...]
    shown: tuple[Shown, ...]
    passed: bool
    stopped: str
    explanation: str

    @property
    def arm(self) -> str:
        """Of which arm it is: "with" or "without" memory."""
        return self.loop.partition("-")[0]

    @property
    def at_once(self) -> bool:
        """Whether the first answer was accepted."""
        return self.passed and len(self.tries) == 1

    @property
    def marks(self) -> str:
        """One mark an attempt: ✗ for a rejected one, ✓ for the accepted one, ■ for a stop."""
        return "✗" * (len(self.tries) - self.passed) + ("✓" if self.passed else "■")


async def story(store: Store, scope: Scope, loop: str) -> Story:
    """The story of a loop that has ended. Raises NotFound, StoreError."""
    stored = await store.read(scope, loops.read, loop)
    done = stored.verdicts[-1]
    stops = done.stopped_by if isinstance(done, Done) else ()
    return Story(
        loop,
        str(stored.head.task),
        tuple(
            Try(str(value), tuple(_wrong(attempt)))
            for value, attempt in zip(stored.values, stored.loop.attempts, strict=True)
        ),
        tuple(_shown(Path(store.url), scope, loop)),
        isinstance(done, Done) and done.passed,
        f"{stops[0].rule}: {stops[0].detail}" if stops else "",
        str(explain(stored.loop, policy_from(stored.head.policy))),
    )


def kinds(without: Story, memory: Story) -> Iterator[tuple[str, Story, Story]]:
    """What the two stories of one task show, by kind, the telling one first.

    "corrected": put right after it was told, "knew": right at once with examples where without it
    was not, "stopped": not solved.
    """
    if memory.passed and not memory.at_once:
        yield "corrected", memory, without
    if memory.at_once and memory.shown and not without.at_once:
        yield "knew", memory, without
    if memory.stopped:
        yield "stopped", memory, without
    elif without.stopped:
        yield "stopped", without, memory


def _wrong(attempt: Attempt) -> Iterator[str]:
    for finding in attempt.evaluation.errors if attempt.evaluation else ():
        yield f"{finding.message.rstrip('. ')}. {finding.fix}".strip()


def _shown(path: Path, scope: Scope, loop: str) -> list[Shown]:
    """The examples that stood in the prompt of a loop, from its file; none where it has no file."""
    if not path.is_file():
        return []
    address = f"{path.resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as db:
        rows = db.execute(_SHOWN, (scope.tenant, scope.project, loop)).fetchall()
    return [Shown(*row) for row in rows]


def cut(text: str, most: int) -> str:
    """The beginning of a text, on one line without control characters.

    >>> cut("the unit comes first", 9)
    'the unit…'
    """
    line = clean(text, 4 * most)
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"
