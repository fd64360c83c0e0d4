"""Each face of memory tells what `tell` says of what the search found."""

import asyncio
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, given, settings, strategies as st

from heedful.lessons import ranking
from heedful.lessons.telling import LessonCandidate, Situation, TellingBudget, tell
from heedful.memory.memory import MIN_LEG_CANDIDATES, Memory
from heedful.store import calls, search
from tests.hosts import patient_host
from tests.memory.agent_sessions import learn, step
from tests.store.support import in_memory

TASKS = (
    "weigh the parcel for Oslo",
    "weigh the parcel for Rome",
    "restart the mail server",
    "print the label",
)
# Stated by a person, or from outside, so that it waits.
ORIGINS = ("user", "local", "outside")
NOW = 2_000_000_000.0
taught = st.tuples(
    st.sampled_from(TASKS), st.sampled_from(ORIGINS), st.booleans(), st.integers(1, 2)
)


async def remember_all(memory: Memory, lessons: Sequence[tuple[Any, ...]]) -> None:
    for number, (task, origin, is_edited, times) in enumerate(lessons):
        words = f"{task}: rule {number}"
        for _ in range(times):
            lesson = await memory.remember(
                f"E{number}", task, lesson=words, origin=origin
            )
            if is_edited:
                words = f"{task}: other rule {number}"
                await memory.edit(lesson.id, words, by="ann")
                break


async def found_by_search(memory: Memory, task: str) -> Any:
    return await memory.store.read(
        memory.scope,
        search.search,
        task,
        space="",
        vector=None,
        limit=MIN_LEG_CANDIDATES,
    )


def records(situation: Situation, candidates: Sequence[LessonCandidate]) -> list[Any]:
    return [candidate.record for candidate in tell(situation, candidates).told]


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(taught, max_size=5), st.sampled_from(TASKS))
def test_recall_a_loop_and_a_host_tell_what_the_decision_says(lessons, task):
    async def compare() -> None:
        memory = Memory(in_memory(), holdout=0.0)
        await remember_all(memory, lessons)
        matches = await found_by_search(memory, task)
        candidates = ranking.candidates_for_prompt(matches, task, NOW)
        budget = ranking.prompt_budget()

        room = TellingBudget(lessons=5, unchecked=5)
        answers = records(
            Situation(moment="question", budget=room),
            ranking.candidates_for_question(matches, NOW),
        )
        recalled = await memory.recall(task)
        assert [match.id for match in recalled] == [match.id for match in answers]

        for_loop = records(
            Situation(moment="first attempt", task=task, budget=budget), candidates
        )
        briefing = await memory.brief(task, "loop")
        assert [m.id for m in briefing.found] == [match.id for match in for_loop]

        for_prompt = records(Situation(moment="prompt", budget=budget), candidates)
        advice = await patient_host(memory=memory).run("s1").recall(task)
        numbers = range(len(lessons))
        shown_rules = [n for n in numbers if f"rule {n}\n" in advice.text]
        assert len(shown_rules) == len(for_prompt)
        assert all(match.lesson in advice.text for match in for_prompt)
        assert bool(advice.silence) is not bool(for_prompt)
        await memory.store.close()

    asyncio.run(compare())


CALLS = ("make a", "make b", "npm run a", "npm run b --wide")
ERRORS = ("make: *** No rule to make target", "error: unknown option '--wide'", "")
sessions_of_steps = st.lists(
    st.tuples(st.sampled_from(CALLS), st.sampled_from(ERRORS)), min_size=1, max_size=4
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(sessions_of_steps, max_size=3), st.sampled_from(CALLS))
def test_before_a_call_each_face_tells_what_the_decision_says(sessions, command):
    async def compare() -> None:
        memory = Memory(in_memory(), holdout=0.0)
        for number, commands in enumerate(sessions):
            steps = [step("Bash", command, error) for command, error in commands]
            await learn(memory, f"s{number}", *steps)
        knowledge = await memory.store.read(
            memory.scope,
            calls.knowledge_of,
            "Bash",
            {"command": command},
            reader="",
            folder="",
            stated=frozenset(),
        )
        room = TellingBudget(unchecked=3)
        expected = records(
            Situation(moment="before call", budget=room), knowledge.candidates
        )
        history = await memory.before("Bash", {"command": command})
        assert list(history.failures) == expected

        run = patient_host(memory=memory).run("next")
        advice = await run.before("Bash", {"command": command})
        assert all(failure.text in advice.text for failure in expected)
        assert bool(advice) is bool(expected)
        again = await run.before("Bash", {"command": command})
        assert not again
        await memory.store.close()

    asyncio.run(compare())
