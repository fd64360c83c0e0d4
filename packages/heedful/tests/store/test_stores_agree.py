"""Whatever happens to a memory, SQLite and PostgreSQL give the same answers and the
same export.
"""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from heedful.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    QuotaExceeded,
    RollbackRefused,
)
from heedful.lessons.briefing import Briefing
from heedful.lessons.lesson import Example, Exposure, Filter, Lesson, Outcome, Scope
from heedful.lessons.origin import ORIGINS
from heedful.lessons.signature import signature
from heedful.loop.decide import Again, Done
from heedful.memory import (
    dream as dreaming,
    memory as remembering,
    quarantine,
    transfer,
)
from heedful.memory.dream import Dreams, consolidate
from heedful.memory.memory import Memory
from heedful.memory.reflect import reflect
from heedful.memory.vectors import count_spaces
from heedful.store import (
    calls,
    episode_lessons,
    episodes,
    exposures,
    forgetting,
    lessons,
    loops as loop_store,
    retention,
    rulings,
    search,
    session_marks,
)
from heedful.store.records import MemoryEntry
from heedful.store.sqlite import in_file
from heedful.testing import FixedEmbedder
from tests.engines import check_derived, engine
from tests.memory.reflections import FAILED, MENDED, with_task
from tests.memory.transfers import export_bytes, import_foreign, import_own
from tests.store.support import report

ONE = Scope("ada", "cups")
OTHER = Scope("ada", "mugs")
DAY = 86_400.0
# Each says nearly what the one before says, so that patterns are grouped and lessons
# are merged.
TEXTS = [
    f"write the colour of {thing} on its own white label{more}"
    for thing in ("cup 7", "cup 9", "each mug", "the Gläser 😀 \0")
    for more in ("", ", then")
]
few = st.integers(0, len(TEXTS) - 1)
trusts = st.sampled_from(ORIGINS)
flags = st.booleans()
sources = st.sampled_from(["", "page", "tool x"])


CLOCKED = (
    calls,
    dreaming,
    episode_lessons,
    episodes,
    exposures,
    forgetting,
    lessons,
    retention,
    quarantine,
    session_marks,
    loop_store,
    rulings,
    remembering,
    transfer,
)


class Clock:
    """Of the store and of the memory, set by hand: each look at it is later."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        self.now += 1
        return self.now


class Told:
    """One memory, and what its answers are apart from ids, which are those of its
    database.
    """

    def __init__(self, store: Any) -> None:
        self.memory = Memory(store, ONE, FixedEmbedder(), max_entries=9, quota=4)
        self.words = Memory(store, ONE)
        self.scope = ONE
        self.store = store

    async def remember(
        self, n: int, trust: Any, source: str, worked: bool, pinned: bool
    ) -> Any:
        example = Example(f"paint {TEXTS[n]}", f"painted {n}") if worked else None
        waiting = await self.store.read(ONE, quarantine.newest_waiting)
        parents = [entry.id for entry in waiting[:1]] if pinned and worked else []
        answer = await self.memory.remember(
            f"E{n % 2}",
            TEXTS[n],
            lesson=f"lesson {n}" if pinned else "",
            example=example,
            origin=trust,
            source=source,
            tags=["a", f"t{n % 3}"],
            importance=n / 9,
            pinned=pinned and trust == "user",
            derived_from=parents,
        )
        return answer.created, answer.seen, answer.id == 0

    async def loop(self, n: int, again: bool, shown: bool, right: bool) -> Any:
        """A loop that was shown what is found for it, and what came of it."""
        matches = await self.memory.recall(TEXTS[n], 2)
        exposures = [
            Exposure(
                f"{match.kind}/{match.signature}",
                f"loop {n}",
                shown=shown,
                signature=match.signature,
                share=0.5,
                together=again,
                examples=(match.id,),
            )
            for match in {match.lesson_id: match for match in matches}.values()
        ]
        mark = signature("check", TEXTS[n])
        lesson = Lesson(
            "check",
            mark,
            error_type="check",
            text=f"do {n}",
            sighting=TEXTS[n],
            loop=f"loop {n}",
            example=Example(TEXTS[n], f"done {n}"),
            state="verified",
        )
        verdict = Again() if again else Done(1, right)
        outcome = (
            None
            if again
            else Outcome(
                f"loop {n}", right, calls=n + 1, signatures=frozenset({mark.digest})
            )
        )
        entry = report(f"loop {n}", 1, TEXTS[n], verdict)
        memory = MemoryEntry(
            lessons=[lesson],
            outcome=outcome,
            briefing=Briefing(exposures=tuple(exposures)),
        )
        await self.store.write(ONE, loop_store.commit, entry, "nobody", memory)
        stored_loop = await self.store.read(ONE, loop_store.read, f"loop {n}")
        return (
            stored_loop.loop,
            stored_loop.values,
            stored_loop.verdicts,
            stored_loop.epoch,
        )

    async def settle(self, n: int, release: bool) -> Any:
        waiting = sorted(
            entry.id for entry in await self.store.read(ONE, quarantine.newest_waiting)
        )
        ids = waiting[: n % 3] or [1_000_000]
        act = (
            self.memory.quarantine.release if release else self.memory.quarantine.reject
        )
        await act(ids, by="ada", why=f"of {n}")

    async def revoke(self, source: str, dry: bool) -> Any:
        removed = await self.memory.quarantine.revoke(
            source or "loop:loop 1", by="ada", why="wrong", dry_run=dry
        )
        return removed.counts, removed.loop_ids, removed.reopened

    async def forget(self, n: int, source: str, dry: bool) -> Any:
        target: dict[str, Any] = {"person": source or "ada"}
        if n == 0:
            target = {"loop": "loop 1"}
        if n == 1:
            target = {"before": 3 * DAY}
        if n == 2:
            ids = sorted(row["id"] for row in await self.memory.top(99))
            target = {"lesson": ids[0] if ids else 1}
        forgotten = await self.memory.forget(**target, by="ada", dry_run=dry)
        return forgotten.counts, len(forgotten.shared)

    async def prune(self, n: int, keep: int) -> Any:
        gone = await self.memory.prune(by="ada", unused_for=n * DAY, keep=keep)
        return [(row["signature"], row["why"], row["text"]) for row in gone]

    async def pin(self, n: int, pinned: bool) -> Any:
        ids = sorted(row["id"] for row in await self.memory.top(99))
        await self.store.write(
            ONE, lessons.pin, ids[n % len(ids)] if ids else 1, pinned, "ada", ""
        )

    async def dream(self, undo: bool) -> Any:
        if undo:
            log = await Dreams(self.words).log()
            return await Dreams(self.words).rollback(
                log[0].id if log else 1, by="ada", why="no"
            )
        report_of_dream = await consolidate(self.words)
        return (
            report_of_dream.before,
            report_of_dream.after,
            len(report_of_dream.done),
        )

    async def reflect(self, n: int, mended: bool, confirmed: bool) -> Any:
        episode = with_task(TEXTS[n], MENDED if mended else FAILED)
        reflected = await reflect(
            episode, memory=self.memory, origin="user" if confirmed else "outside"
        )
        lesson = reflected and reflected.lesson
        return lesson and lesson.text

    async def prove(self, n: int) -> Any:
        names = [
            f"{row['kind']}/{row['signature']}" for row in await self.memory.top(99)
        ]
        proof = await self.memory.prove()
        await self.store.write(
            ONE, exposures.conclude, dict.fromkeys(names[:2], 0.5 + n / 9), []
        )
        return proof, await self.store.read(ONE, exposures.evidence)

    async def move(self, owned: bool, back: bool) -> Any:
        """Out of one project and into another."""
        here = self.memory
        there = Memory(self.store, OTHER, FixedEmbedder())
        source, other = (there, here) if back else (here, there)
        done = await (import_own if owned else import_foreign)(
            await export_bytes(source), other
        )
        return done.new, done.known, done.quarantined

    async def clear(self, n: int) -> Any:
        return await self.memory.clear() if n == 0 else await self.memory.count()

    async def all(self) -> Any:
        """What both scopes tell, in every way there is to ask."""
        answers: list[Any] = []
        for scope in (ONE, OTHER):
            memory = Memory(self.store, scope, FixedEmbedder())
            # A dream has a number, which SQLite gives again to the next one after the
            # last is gone.
            exported_bytes = re.sub(rb"dream/\d+", b"dream", await export_bytes(memory))
            answers += [
                exported_bytes.splitlines()[:-1],
                await memory.count(),
                await count_spaces(memory),
            ]
            ruled = _bare(await self.store.read(scope, exposures.rulings, 99))
            answers += [
                [{**item, "subject": item["subject"].split("/")[0]} for item in ruled]
            ]
            answers.append(_bare(await memory.top(99)))
            for n, text in enumerate(TEXTS[::2]):
                seen = await memory.seen(f"E{n % 2}", text)
                answers += [seen.count, _bare(seen.lessons), seen.group]
                for only in (
                    Filter(),
                    Filter(("a", "t1"), "all"),
                    Filter(importance=0.4),
                ):
                    answers.append(_found(await self._search(memory, text, only)))
            action = await memory.before("price", {"item": "pot"})
            answers += [
                [replace(item, lesson=0) for item in action.failures],
                len(action.waiting),
            ]
            waiting = await self.store.read(scope, quarantine.newest_waiting)
            answers += [
                [
                    (item.lesson, item.source, item.tags, item.example)
                    for item in waiting
                ]
            ]
            for item in waiting[:3]:
                whence = await self.store.read(scope, quarantine.provenance, item)
                answers += [whence.sources, len(whence.parents), whence.sightings]
            answers.append(
                [
                    item.report
                    if hasattr(item, "report")
                    else (item.by, item.at, item.undone, item.before)
                    for item in await Dreams(memory).log()
                ]
            )
        loops, _ = await self.store.read(ONE, loop_store.newest, 99)
        return [*answers, [(item.id, item.loop, item.decisions) for item in loops]]

    async def _search(self, memory: Memory, text: str, only: Filter) -> Any:
        (vector,) = await FixedEmbedder().embed([text])
        return await self.store.read(
            memory.scope, search.search, text, "fixed/64", vector, 5, only
        )


def _bare(rows: Any) -> list[dict[str, Any]]:
    """Without ids; `record` may hold one."""
    return [
        {k: v for k, v in row.items() if k not in ("id", "rule_of", "entry", "record")}
        for row in rows
    ]


def _found(rows: Any) -> list[Any]:
    return sorted(
        (
            match.example.task,
            match.lesson,
            match.seen,
            match.verified,
            match.useful,
            match.tags,
            match.cosine and round(match.cosine, 5),
            match.keyword and round(match.keyword, 9),
            round(match.coverage, 9),
        )
        for match in rows
    )


steps = st.lists(
    st.one_of(
        st.tuples(st.just("remember"), few, trusts, sources, flags, flags),
        st.tuples(st.just("remember"), few, trusts, sources, flags, flags),
        st.tuples(st.just("loop"), few, flags, flags, flags),
        st.tuples(st.just("settle"), few, flags),
        st.tuples(st.just("revoke"), sources, flags),
        st.tuples(st.just("forget"), few, sources, flags),
        st.tuples(st.just("prune"), st.integers(0, 3), st.integers(-1, 4)),
        st.tuples(st.just("pin"), few, flags),
        st.tuples(st.just("dream"), flags),
        st.tuples(st.just("reflect"), few, flags, flags),
        st.tuples(st.just("prove"), few),
        st.tuples(st.just("move"), flags, flags),
        st.tuples(st.just("clear"), few),
    ),
    min_size=6,
    max_size=24,
)


@contextmanager
def both() -> Iterator[tuple[Told, Told]]:
    own_store = in_file(":memory:")
    with engine.lent(":memory:") as store:
        try:
            yield Told(own_store), Told(store)
        finally:
            asyncio.run(own_store.close())


async def answer(memory: Told, step: tuple[Any, ...]) -> Any:
    """What came of a step; of what fails its kind, since the words tell ids."""
    try:
        return await getattr(memory, step[0])(*step[1:])
    except (InvalidInput, NotFound, Conflict, RollbackRefused, QuotaExceeded) as error:
        return type(error)


@settings(max_examples=10)
@given(history=steps)
def test_histories_come_to_the_same(clock: Clock, history: list[tuple[Any, ...]]):
    async def scenario(sqlite: Told, postgres: Told) -> None:
        for n, step in enumerate([*history, ("all",)]):
            answers = []
            for memory in (sqlite, postgres):
                clock.now = n * DAY
                answers.append(await answer(memory, step))
            assert answers[0] == answers[1], step
        await check_derived(postgres.store)

    with both() as stores:
        asyncio.run(scenario(*stores))


@pytest.fixture(scope="module")
def clock() -> Iterator[Clock]:
    hands = Clock()
    with pytest.MonkeyPatch.context() as patch:
        for module in CLOCKED:
            patch.setattr(module, "time", hands)
        yield hands
