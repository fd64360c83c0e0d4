"""Where memory as a whole is proven to hurt, it is shown to one loop in 40."""

from itertools import count
from typing import Any

import pytest

from heedful.lessons.briefing import HARMFUL_MEMORY
from heedful.lessons.lesson import Example, Lesson, Outcome
from heedful.lessons.signature import signature
from heedful.lessons.telling import LessonCandidate, TellingBudget
from heedful.memory.memory import Memory
from heedful.store import exposures, reminders
from heedful.store.store import Store

pytestmark = pytest.mark.both_nightly

TASK = "How heavy is the parcel with the number 9?"
MAX_LOOPS = 600


def lesson(name: str, task: str = TASK) -> Lesson:
    return Lesson(
        "check",
        signature(name, name),
        error_type=name,
        text=f"Mind the {name}",
        sighting=name,
        example=Example(f"{task} {name}", f"12 {name}"),
        state="verified",
    )


class Scene:
    """Loops one after the other, in which memory hurts or does not."""

    def __init__(self, store: Store, *lessons: str) -> None:
        self.memory = Memory(store, holdout=0.5)
        self.lessons = [lesson(name) for name in lessons]
        self.numbers = count()

    async def learn(self) -> None:
        await self.memory.store.write(
            self.memory.scope, exposures.remember, self.lessons
        )

    async def run_loop(self, hurts: bool) -> bool:
        """Run a loop that memory spoils, or saves; return if it was shown lessons."""
        loop = f"loop {next(self.numbers)}"
        briefing = await self.memory.brief(TASK, loop)
        outcome = Outcome(loop, hurts != bool(briefing.shown), calls=1)
        await self.memory.store.write(
            self.memory.scope,
            exposures.remember,
            (),
            exposures=briefing.exposures,
            outcome=outcome,
        )
        await self.memory.look((await self.past()).ended)
        return bool(briefing.shown)

    async def past(self, loop: str = "") -> Any:
        return await self.memory.store.read(self.memory.scope, exposures.past, loop)

    async def run_until(self, verdict: str, hurts: bool) -> None:
        """Run loops until the verdict on memory as a whole is this one."""
        for _ in range(MAX_LOOPS):
            await self.run_loop(hurts)
            if (await self.past()).verdict == verdict:
                return
        raise AssertionError(f"{MAX_LOOPS} loops, and the verdict is not {verdict!r}")

    async def rulings(self) -> list[str]:
        """Return the verdicts on memory as a whole, oldest first."""
        rulings = await self.memory.store.read(self.memory.scope, exposures.rulings, 99)
        subject = "memory as a whole"
        return [r["action"] for r in rulings if r["subject"] == subject][::-1]


async def play_harm(store: Store) -> Scene:
    """Return a scope in which memory hurts, by two lessons that go together."""
    scene = Scene(store, "unit", "comma")
    await scene.learn()
    await scene.run_until("hurts", hurts=True)
    return scene


async def test_memory_that_hurts_steps_aside_and_comes_back(store):
    scene = await play_harm(store)
    aside = [await scene.run_loop(hurts=True) for _ in range(100)]
    still_hurts = await scene.rulings()

    await scene.run_until("", hurts=False)
    shown_again = [await scene.run_loop(hurts=False) for _ in range(40)]

    assert sum(aside) <= 8
    assert still_hurts == ["hurts"]
    assert await scene.rulings() == ["hurts", "insufficient data"]
    assert sum(shown_again) >= 10


async def test_a_loop_says_why_it_is_shown_nothing_and_what_to_do(store):
    scene = await play_harm(store)
    briefings = [await scene.memory.brief(TASK, f"new {n}") for n in range(20)]
    briefing = next(briefing for briefing in briefings if not briefing.shown)

    assert HARMFUL_MEMORY.words in briefing.silence
    assert "heedful proof" in briefing.silence
    assert "holdout=0" in briefing.silence
    assert all(c.reason == HARMFUL_MEMORY for c in briefing.choices)


async def test_a_lesson_is_shown_to_one_session_in_40(store):
    scene = await play_harm(store)
    store = scene.memory.store
    scope = scene.memory.scope

    lessons = [LessonCandidate(name="", leg="call", lesson=id) for id in (1, 2)]
    announcements = [
        await store.write(
            scope,
            reminders.tell_session,
            session=f"session {number}",
            reader=f"session {number}",
            moment="before call",
            candidates=lessons,
            budget=TellingBudget(unchecked=2),
            share=0.1,
            at=float(number),
        )
        for number in range(200)
    ]

    shown_counts = [
        sum(place in announcement.told for announcement in announcements)
        for place in (0, 1)
    ]
    shown_both = sum(announcement.told == (0, 1) for announcement in announcements)
    assert all(0 < sessions < 12 for sessions in shown_counts)
    assert shown_both < min(shown_counts)
