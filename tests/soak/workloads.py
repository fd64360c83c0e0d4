"""What is done to a store while its power fails or its server crashes, and what must
then be true of it. Each acknowledgement is a line of the output.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import heedful
from heedful.checks.evaluate import Context
from heedful.drive.report import AttemptReport, open_loop
from heedful.drive.report import report as send_report
from heedful.loop.decide import Done
from heedful.loop.record import Evaluation, Finding
from heedful.loop.stop import MaxAttempts
from heedful.memory.memory import Memory
from heedful.store import loops, open_store
from heedful.store.store import Store
from tests.store.support import SCOPE, report

LONG = "long " * 2_000  # so that SQLite's log is full in the middle of the work
ATTEMPTS = 3  # that a loop which this program drives needs
STAGES = ("load", "publish")


def say(*words: object) -> None:
    """Write a line in one piece, however Python buffers."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def generate(task: str, hint: str) -> str:
    return f"{task} at {heedful.context().attempt}"


def is_third(candidate: str, context: Context) -> list[Finding]:
    wrong = Finding("third", "not the third", fix="try again", key="third")
    return [] if candidate.endswith(f"at {ATTEMPTS}") else [wrong]


is_third.pure = True  # type: ignore[attr-defined]


async def drive(store: Store, memory: Memory, id: str) -> heedful.Result[str]:
    """Drive a loop that passes at its third attempt and teaches one lesson."""
    return await heedful.run(
        f"task of {id}",
        generate=generate,
        checks=[is_third],
        policy=heedful.Policy((MaxAttempts(5),)),
        id=id,
        store=store,
        memory=memory,
    )


async def run_pipeline(store: Store, memory: Memory, folder: Path, id: str) -> Any:
    """Run a pipeline of two stages whose first needs two attempts."""
    logging.getLogger("heedful").addHandler(logging.NullHandler())
    stages = heedful.Pipeline(
        "p", store=store, memory=memory, reports=folder / "reports", progress=False
    )

    def is_second(output: Any, context: Context) -> Sequence[Finding]:
        if context.loop_id.endswith(STAGES[1]) or context.attempt == 2:
            return []
        return [Finding("second", "not the second", fix="again", key="second")]

    def stage(state: dict[str, Any], feedback: str | None = None) -> Any:
        return {"rows": 1 if feedback is None else 2}

    is_second.pure = True  # type: ignore[attr-defined]
    for name in STAGES:
        stages.stage(name=name, checks=[is_second])(stage)
    return await stages.run({"log": []}, id=id)


async def commit(store: Store, id: str, attempts: int, text: str) -> None:
    """Commit the attempts of a loop without a driver's help."""
    for number in range(1, attempts + 1):
        entry = report(id, number, f"{id} {number} {text}")
        await store.write(SCOPE, loops.commit, entry, "me")
        say("commit", id, number)


async def tell(store: Store, id: str, attempts: int) -> None:
    """Report attempts, as a program does that runs its loops itself."""
    policy = heedful.Policy((MaxAttempts(99),))
    await open_loop(id, "task", store=store, scope=SCOPE, policy=policy)
    wrong = Evaluation((Finding("unit", "no unit"),))
    for number in range(1, attempts + 1):
        attempt_report = AttemptReport(f"{id} {number}", evaluation=wrong)
        await send_report(
            store, scope=SCOPE, id=id, number=number, attempt_report=attempt_report
        )
        say("report", id, number)


async def remember(memory: Memory, times: int) -> None:
    for n in range(times):
        lesson = await memory.remember(
            "ValueError", f"line {n}: could not convert {n}.5 to int"
        )
        say("seen", lesson.seen)


async def work(url: str, folder: str, name: str, rounds: str) -> None:
    """Do all of it, in rounds that close the store; say what is acknowledged.

    A number of rounds below 0 is without end.
    """
    round = 0
    while round != int(rounds):
        round += 1
        of_round = f"{name}-{round}"
        store = open_store(url)
        memory = Memory(store)

        async def driven(store: Store, memory: Memory, id: str) -> None:
            say("begin", id)
            await drive(store, memory, id)
            say("passed", id)

        async def piped(store: Store, memory: Memory, id: str) -> None:
            say("pipe", id)
            await run_pipeline(store, memory, Path(folder), id)
            say("piped", id)

        await asyncio.gather(
            *(
                commit(store, f"{of_round}-c{n}", 6, LONG * (n == 0))
                for n in range(3)
            ),
            tell(store, f"{of_round}-t", 4),
            remember(memory, 5),
            *(driven(store, memory, f"{of_round}-d{n}") for n in range(2)),
            piped(store, memory, f"{of_round}-p"),
        )
        await store.close()


@dataclass
class Acknowledged:
    """What the lines of `work` say."""

    attempts: set[tuple[str, int]] = field(default_factory=set)
    begun: set[str] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)
    piping: set[str] = field(default_factory=set)
    piped: set[str] = field(default_factory=set)
    seen: int = 0

    @classmethod
    def of(cls, output: str) -> Acknowledged:
        """Read the lines; the last of a killed program may be torn."""
        acknowledged = cls()
        for line in output.rpartition("\n")[0].splitlines():
            kind, *words = line.split()
            if kind in ("commit", "report"):
                acknowledged.attempts.add((words[0], int(words[1])))
            elif kind == "seen":
                acknowledged.seen = max(acknowledged.seen, int(words[0]))
            else:
                field_name = {"begin": "begun", "pipe": "piping"}.get(kind, kind)
                getattr(acknowledged, field_name).add(words[0])
        return acknowledged

    def __or__(self, other: Acknowledged) -> Acknowledged:
        return Acknowledged(
            attempts=self.attempts | other.attempts,
            begun=self.begun | other.begun,
            passed=self.passed | other.passed,
            piping=self.piping | other.piping,
            piped=self.piped | other.piped,
            seen=max(self.seen, other.seen),
        )

    def __len__(self) -> int:
        sets = (self.attempts, self.passed, self.piped)
        return self.seen + sum(map(len, sets))


@dataclass
class Damage:
    """What is not as it was acknowledged, in words."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)

    def __add__(self, other: Damage) -> Damage:
        return Damage(
            lost=self.lost + other.lost,
            doubled=self.doubled + other.doubled,
            torn=self.torn + other.torn,
        )


Select = Callable[[str], list[tuple[Any, ...]]]

SEEN = "select seen from lesson where error_type = 'ValueError'"
SIGHTINGS = (
    "select count(*) from occurrence o join lesson l on l.id = o.lesson_id"
    " where l.error_type = 'ValueError'"
)
ATTEMPTS_STORED = (
    "select l.id, a.number from attempt a join loop l on l.n = a.loop"
    " order by l.id, a.number"
)
DECISIONS_STORED = (
    "select l.id, d.attempt from decision d join loop l on l.n = d.loop"
    " order by l.id, d.attempt"
)
LEARNT = (
    "select l.seen, (select count(*) from occurrence o where o.lesson_id = l.id),"
    " (select count(distinct loop) from occurrence o where o.lesson_id = l.id)"
    " from lesson l where l.kind = 'check'"
)


def find_damage(select: Select, acknowledged: Acknowledged, in_flight: int) -> Damage:
    """Compare what is stored with what was acknowledged, before anything goes on.

    At most `in_flight` sightings may be stored without an acknowledgement.
    """
    damage = Damage()
    attempts = select(ATTEMPTS_STORED)
    missing = acknowledged.attempts - set(attempts)
    damage.lost += [f"attempt {number} of {id}" for id, number in missing]
    if attempts != select(DECISIONS_STORED):
        damage.torn.append("an attempt without its decision, or a decision alone")
    for id, count in Counter(id for id, _ in attempts).items():
        if (id, count) not in attempts:
            damage.torn.append(f"an attempt of {id} before the last")

    ended = {id for (id,) in select("select id from loop where state = 'passed'")}
    wanting = (acknowledged.passed | acknowledged.piped) - ended
    damage.lost += [f"the end of {id}" for id in wanting]

    [seen] = [seen for (seen,) in select(SEEN)] or [0]
    [(sightings,)] = select(SIGHTINGS)
    if seen < acknowledged.seen:
        damage.lost.append(f"{acknowledged.seen - seen} sightings")
    if seen > acknowledged.seen + in_flight:
        damage.doubled.append(f"{seen} sightings of {acknowledged.seen}")
    if seen != sightings:
        damage.torn.append(f"{seen} sightings with {sightings} rows")
    for counted, rows, in_loops in select(LEARNT):
        if not counted == rows == in_loops:
            damage.torn.append(f"a lesson of {in_loops} loops seen {counted} times")

    [(lessons,)] = select("select count(*) from lesson")
    [tallied] = [n for (n,) in select("select lessons from tally")] or [0]
    if lessons != tallied:
        damage.torn.append(f"{lessons} lessons that are counted as {tallied}")
    return damage


async def resume(store: Store, folder: Path, acknowledged: Acknowledged) -> Damage:
    """Go on after the damage, and return what is not as if nothing had happened."""
    damage = Damage()
    memory = Memory(store)
    seen = await memory.remember("ValueError", "line 9: could not convert 9.5 to int")
    if acknowledged.seen and seen.created:
        damage.lost.append("the lesson")

    for id in sorted(acknowledged.begun):
        result = await drive(store, memory, id)
        stored = await store.read(SCOPE, loops.read, id)
        numbers = [attempt.number for attempt in stored.loop.attempts]
        if numbers != [1, 2, 3] or not isinstance(stored.verdict, Done):
            damage.torn.append(f"{id} ended as {result.verdict} after {numbers}")
        if stored.journal:
            damage.torn.append(f"{id} has steps that are left")
    for id in sorted(acknowledged.piping):
        result = await run_pipeline(store, memory, folder, id)
        attempts = [len(stage.attempts) for stage in result.stages]
        if attempts != [2, 1]:
            damage.torn.append(f"{id} ended after {attempts} attempts")
    return damage


def find_torn_files(folder: Path) -> list[str]:
    """The report files that are not whole under the names of whole files."""
    torn = []
    for path in folder.rglob("[!.]*.json"):
        try:
            json.loads(path.read_text())
        except ValueError:
            torn.append(f"{path.name}: {path.stat().st_size} bytes")
    for path in folder.rglob("[!.]*.html"):
        if not path.read_text().rstrip().endswith("</html>"):
            torn.append(f"{path.name}: {path.stat().st_size} bytes")
    return torn


def main() -> None:
    _, *arguments = sys.argv
    asyncio.run(work(*arguments))


if __name__ == "__main__":
    main()
