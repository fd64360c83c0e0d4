"""Recall over a real database: lessons of any script, their context, filters; the
index.
"""

import asyncio
from dataclasses import replace

import pytest

import heedful
from heedful.lessons.loop_lessons import learn
from heedful.loop.record import Attempt, Candidate, Evaluation, Finding, Loop
from heedful.memory.memory import Memory
from heedful.testing import FixedEmbedder
from tests.memory.conftest import by_words_and_vectors
from tests.store.support import opened
from tests.tables import cases

pytestmark = pytest.mark.both_nightly


memory = by_words_and_vectors


@pytest.fixture
def store():
    with opened(":memory:") as opened_store:
        yield opened_store


async def test_what_stood_around_it_is_found_as_words_but_has_no_part_in_the_meaning(
    store,
):
    memory = Memory(store, embedder=FixedEmbedder())
    await memory.remember("a", "yes, gladly", context="shall we visit Lisbon")
    await memory.remember("b", "yes, gladly so", context="is tea ready")
    (match,) = await memory.recall("visit Lisbon")
    assert match.error_type == "a"
    assert match.example.task == "yes, gladly"
    (cosine,) = [
        other_match.cosine
        for other_match in await memory.recall("yes, gladly")
        if other_match.id == 1
    ]
    assert cosine == pytest.approx(1)


async def test_what_is_quarantined_neither_crowds_out_nor_makes_words_common(memory):
    await memory.remember("good", "retry the billing upload once")
    before = await memory.recall("billing upload broken today")
    for n in range(120):
        text = f"billing upload billing upload {n}"
        await memory.remember(f"bad {n}", text, origin="outside")
    assert await memory.recall("billing upload broken today") == before
    assert [match.error_type for match in before] == ["good"]


@cases(
    "filters, error_types",
    {
        "no filter": ({}, {"a", "b", "c"}),
        "a tag": ({"tags": ["red"]}, {"a", "b"}),
        "either of two tags": ({"tags": ("red", "blue")}, {"a", "b", "c"}),
        "both of two tags": ({"tags": ["red", "blue"], "match": "all"}, {"b"}),
        "a wildcard is no tag": ({"tags": ["%"]}, set()),
        "kind": ({"kind": "error"}, {"a", "b", "c"}),
        "error type": ({"error_type": "b"}, {"b"}),
        "an error type is no SQL": ({"error_type": "b' or 1 = 1 --"}, set()),
        "importance at the bound": ({"importance": 0.5}, {"a", "b"}),
        "since the future": ({"since": 1e12}, set()),
        "all filters": (
            {"tags": ["blue"], "importance": 0.5, "error_type": "b", "kind": "error"},
            {"b"},
        ),
    },
)
async def test_a_filter_lets_through_what_it_says(memory, filters, error_types):
    for name, tags, importance in [
        ("a", ["red"], 0.9),
        ("b", ["red", "blue"], 0.5),
        ("c", ["blue"], 0.1),
    ]:
        text = f"the parcel has weight {name}"
        await memory.remember(name, text, tags=tags, importance=importance)
    matches = await memory.recall("parcel weight", **filters)
    assert {match.error_type for match in matches} == error_types
    assert all(match.tags for match in matches)


@pytest.mark.both_nightly
async def test_a_filter_finds_the_one_that_passes_among_many_that_do_not(memory):
    await memory.remember("rare", "the parcel has weight one")
    for number in range(120):
        await memory.remember(f"common{number}", "the parcel has weight two")
    lessons = await memory.recall("parcel weight", error_type="rare")
    assert [lesson.error_type for lesson in lessons] == ["rare"]


# Rendering and logs


async def test_what_is_held_back_is_in_the_log_and_in_the_notice_of_a_loop(caplog):
    memory = heedful.Memory(":memory:", holdout=0)

    async def run(task: str) -> heedful.Result:
        return await heedful.run(
            task,
            generate=lambda task, hint: "P1" if hint else "high",
            checks=[lambda answer: [] if answer == "P1" else ["use P1"]],
            memory=memory,
            memory_key=task,
        )

    await run("weigh the parcel in Oslo")
    with caplog.at_level("INFO", "heedful"):
        result = await run("weigh a verse about rain, and sing it in the evening")
    assert result.briefing is not None
    [message] = [record.getMessage() for record in caplog.records]
    assert result.briefing.silence in message
    nearest = "shown nothing: lesson 1 is not shown: it is about another task; to "
    assert result.briefing.notice.startswith(nearest)


def test_the_log_says_what_became_of_it_and_no_word_of_it(caplog):
    async def scenario() -> None:
        memory = heedful.Memory(":memory:", max_entries=1)
        for _ in range(2):
            await memory.remember("page", "a word of it", pinned=True)
        await memory.remember("other", "a word of another", origin="local")

    with caplog.at_level("INFO", "heedful"):
        asyncio.run(scenario())
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        "stored: lesson 1",
        "duplicate: lesson 1, seen 2 times",
        "skipped",
    ]


# Lessons without outputs

TASK = "p: train"


def loop_of(*attempts: tuple[str, tuple[Finding, ...]], id: str = "r/train") -> Loop:
    recorded = tuple(
        Attempt(n, Candidate.of(text), evaluation=Evaluation(findings))
        for n, (text, findings) in enumerate(attempts, 1)
    )
    return Loop(id, attempts=recorded)


WRONG = Finding("size", "n is 1", fix="use 2", key="size: small")
BARE = replace(WRONG, fix="")


@cases(
    "attempts, texts",
    {
        "the fix and the change": (
            [("a", (WRONG,)), ("b", ())],
            ["n is 1. use 2. Accepted: a -> b"],
        ),
        "the change where there is no fix": (
            [("a", (BARE,)), ("b", ())],
            ["n is 1. Accepted: a -> b"],
        ),
        "the finding where nothing else is known": (
            [("a", (BARE,)), ("a", ())],
            ["n is 1."],
        ),
        "nothing from an accepted first try": ([("a", ())], []),
        "no change that is too long": (
            [("a" * 5_000, (WRONG,)), ("b" * 5_000, ())],
            ["n is 1. use 2"],
        ),
    },
)
def test_what_is_learnt_without_outputs(attempts, texts):
    lessons = learn(loop_of(*attempts), TASK, outputs=False)
    assert [lesson.text.replace("'", "") for lesson in lessons] == texts
    for lesson in lessons:
        assert lesson.example is not None
        assert lesson.example.accepted == ""
        assert lesson.example.rejected == ""
        assert lesson.example.task == TASK
        assert lesson.state == "verified"
