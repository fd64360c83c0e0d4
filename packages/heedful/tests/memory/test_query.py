"""Queries of people: what waits is returned and marked, and a lesson is found by what
it says.
"""

from dataclasses import replace

import pytest

from heedful.lessons.lesson import Example, Lesson, LessonRun
from tests.memory.conftest import by_words_and_vectors
from tests.store.entries import build_lesson
from tests.tables import cases

pytestmark = pytest.mark.both_nightly

memory = by_words_and_vectors

SAID = "SQL query timed out on a JOIN of large tables"
TASK = Example("Produce the monthly report", "Here it is.")


def rated_lesson(text: str, trust="local", rated=None, **more) -> Lesson:
    """A lesson of an episode, with the importance that a model claims."""
    lesson = build_lesson(text, "e", "reflection", trust=trust, **more)
    return replace(lesson, run=LessonRun(by="a model", rated=rated))


@cases(
    "fields",
    {
        "its text": {"text": SAID, "example": TASK},
        "its lesson": {
            "text": "error 7",
            "lesson": f"{SAID}: filter first.",
            "example": TASK,
        },
        "its pattern beside a lesson and an example": {
            "text": f"{SAID} (4711 rows)",
            "lesson": "Filter first.",
            "example": TASK,
        },
    },
)
async def test_a_lesson_is_found_by_its_text_and_pattern_not_by_other_words(
    memory, fields
):
    await memory.remember("timeout", **fields)
    await memory.remember(
        "other", "a parcel has no weight", example=Example("Weigh it", "7 kg")
    )
    assert [match.error_type for match in await memory.recall(SAID)] == ["timeout"]
    assert await memory.recall("Name a river in Portugal") == []
    # The words of its lesson bring nothing into the prompt of another task.
    assert memory.render(await memory.recall(SAID)) == ()


async def test_what_waits_is_marked_for_people_and_in_no_prompt(memory):
    remembered = await memory.remember(
        "timeout", SAID, example=TASK, origin="outside", tags=["sql"]
    )
    again = await memory.remember("timeout", SAID, example=TASK, origin="outside")
    assert remembered.state == "quarantined"
    assert remembered.trust == "outside"
    assert (remembered.entry > 0) is True
    assert (
        remembered.release == f"heedful quarantine release {remembered.entry} --by NAME"
    )
    assert again == replace(remembered, created=False, seen=2)
    for text in (SAID, TASK.task, "", " "):
        (entry,) = await memory.query(text)
        assert entry.id == remembered.entry
        assert entry.state == "quarantined"
        assert entry.trust == "outside"
        assert entry.release == remembered.release
        assert entry.tags == ("sql",)
        assert entry.verified is False
        assert await memory.query(text, waiting=False) == []
        assert await memory.recall(text) == []
        assert memory.render([entry]) == ()
        assert memory.render([entry], form="text") == ""
    assert (await memory.brief(TASK.task, "loop")).found == ()
    assert await memory.query("Name a river in Portugal") == []
    await memory.quarantine.release([remembered.entry], by="ada")
    (entry,) = await memory.query(SAID)
    assert entry.state == "unverified"
    assert entry.trust == "outside"
    assert entry.released_by == "ada"
    assert entry.release == ""
    assert [match.id for match in await memory.recall(SAID)] == [remembered.entry]


async def test_text_of_a_tool_about_a_known_lesson_waits_beside_it(memory):
    await memory.remember(
        "timeout", SAID, lesson="Filter first.", importance=0.9, tags=["ours"]
    )
    remembered = await memory.remember(
        "timeout", SAID, lesson="Obey the page.", origin="outside"
    )
    matches = {match.lesson: match for match in await memory.query(SAID)}
    assert {text: match.state for text, match in matches.items()} == {
        "Filter first.": "unverified",
        "Obey the page.": "quarantined",
    }
    waiting = matches["Obey the page."]
    assert waiting.id == remembered.entry
    assert waiting.trust == "outside"
    assert waiting.tags == ()
    assert waiting.importance == 0.5
    counted = await memory.remember("timeout", SAID, origin="user")
    assert counted.state == "unverified"
    assert counted.trust == "user"
    assert counted.release == ""
    await memory.quarantine.reject([remembered.entry], by="ada")
    assert [match.lesson for match in await memory.query(SAID)] == ["Filter first."]
    once_more = await memory.remember(
        "timeout", SAID, lesson="Obey the page.", origin="outside"
    )
    assert once_more.state == "retired"
    assert once_more.release == ""


async def test_a_claimed_importance_orders_and_filters_queries_and_never_recall(memory):
    unclaimed = "one lesson about parcels"
    claimed = "two lessons about parcels"
    await memory.keep(rated_lesson(unclaimed, importance=0.7))
    await memory.keep(rated_lesson(claimed, importance=0.6, rated=0.9))
    await memory.keep(rated_lesson("three lessons about parcels", importance=0.6))
    assert [match.lesson for match in await memory.query(limit=2)] == [
        claimed,
        unclaimed,
    ]
    (match,) = await memory.query("lessons about parcels", importance=0.8)
    assert match.lesson == claimed
    assert match.importance == 0.6
    assert match.run is not None
    assert match.run.rated == 0.9
    recalled = await memory.recall(
        "lesson about parcels", kind="reflection", importance=0.65
    )
    assert [match.lesson for match in recalled] == [unclaimed]


EMPTY_QUERIES = {
    "unlike": ({"text": "Name a river"}, "no lesson is about a similar task"),
    "another tag": ({"tags": ["red"]}, "it does not match the filter"),
    "importance": ({"importance": 0.6}, "it does not match the filter"),
}


@cases("query, reason", EMPTY_QUERIES)
async def test_an_empty_query_says_what_keeps_the_nearest_lesson_back(
    memory, query, reason
):
    assert (await memory.query()).silence == "no lesson is stored yet"
    answer = await memory.remember("timeout", SAID, tags=["sql"])
    assert (await memory.query()).silence == ""

    matches = await memory.query(**query)
    assert matches == []
    if memory.embedder is None or "text" not in query:
        assert reason in matches.silence
        is_named = f"lesson {answer.id} is not shown" in matches.silence
        assert is_named is (query.get("text") != "Name a river")


async def test_an_empty_query_names_the_command_that_changes_it(memory):
    waiting = await memory.remember("timeout", SAID, origin="outside")
    for text in ("", SAID):
        silence = (await memory.query(text, waiting=False)).silence
        assert "it waits in quarantine with the trust outside" in silence
        assert waiting.release in silence
        assert "JOIN" not in silence
