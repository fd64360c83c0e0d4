"""What comes back to mind, and how it is written into a prompt."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from heedful.lessons.lesson import Match
from heedful.lessons.render import as_messages, as_text
from heedful.models.contract import tokens
from tests.lessons.support import build_match, choose, rank
from tests.tables import cases


def ids(ranked: Iterable[Match]) -> list[int]:
    return [match.id for match in ranked]


# The thresholds as numbers: a test that compared with the constants could not fail.


@pytest.mark.parametrize(
    ("cosine", "related", "chosen"),
    [(-1.0, 0, 0), (0.41, 0, 0), (0.43, 1, 0), (0.44, 1, 0), (0.46, 1, 1), (1.0, 1, 1)],
)
def test_how_near_a_meaning_must_lie(cosine, related, chosen):
    ranked = rank(
        [build_match(1, "some task", cosine=cosine, keyword=1.0)],
        limit=5,
    )
    assert len(ranked) == related
    assert len(choose(ranked)) == chosen


@cases("cosine", {"no vectors": None, "unlike vectors": 0.0})
@cases("coverage, related", {"too few": (0.35, 0), "enough": (0.37, 1)})
def test_what_share_of_the_words_is_related(cosine, coverage, related):
    ranked = rank(
        [build_match(1, "some task", cosine=cosine, coverage=coverage)],
        limit=5,
    )
    assert len(ranked) == related
    assert choose(ranked) == []


@cases("overlap, related", {"few": (0.39, 0), "enough": (0.41, 1), "all": (1.0, 1)})
def test_how_many_words_must_be_shared_without_meanings(overlap, related):
    match = build_match(1, "some task", overlap=overlap)
    ranked = rank([match], limit=5)
    assert len(ranked) == related
    assert len(choose(ranked)) == related


def test_by_relevance_then_importance_then_verified_then_seen_then_newer():
    near = build_match(1, "a", cosine=0.9)
    often = build_match(2, "b", cosine=0.8, seen=9)
    newer = build_match(4, "c", cosine=0.8, seen=3)
    older = build_match(3, "d", cosine=0.8, seen=3)
    important = build_match(5, "e", cosine=0.8, importance=0.9)
    unsure = build_match(6, "f", cosine=0.8, verified=False, seen=99)
    assert ids(rank([older, unsure, newer, often, important, near], limit=9)) == [
        1,
        5,
        2,
        4,
        3,
        6,
    ]
    assert ids(rank([older, unsure, newer, often, important, near], limit=2)) == [
        1,
        5,
    ]
    assert ids(rank([replace(unsure, example=older.example), older], limit=9)) == [3]


finds = st.builds(
    build_match,
    st.integers(1, 99),
    st.sampled_from(["convert to kg", "convert to kg now", "name a river", "kg", ""]),
    st.sampled_from(["1 kg", "2 kg"]),
    verified=st.booleans(),
    seen=st.integers(1, 9),
    cosine=st.none() | st.floats(-1, 1),
    keyword=st.none() | st.floats(0, 1),
    coverage=st.floats(0, 1),
)


@given(st.lists(finds, max_size=12), st.integers(1, 9), st.randoms())
def test_rank_is_bounded_deterministic_and_adds_nothing(matches, limit, random):
    ranked = rank(matches, limit)
    assert len(ranked) <= limit
    assert all(replace(match, overlap=0.0) in matches for match in ranked)
    assert all(match.overlap == 0 for match in ranked if match.cosine is not None)
    assert all(0 <= match.relevance <= 1 for match in ranked)
    pairs = [(match.example.task, match.example.accepted) for match in ranked]
    assert len(pairs) == len(set(pairs))
    unique = list({match.id: match for match in matches}.values())
    shuffled = list(unique)
    random.shuffle(shuffled)
    assert rank(shuffled, limit) == rank(unique, limit)


@cases(
    "verified, chosen",
    {
        "none": ([], []),
        "all verified": ([True] * 5, [0, 1, 2]),
        "none verified": ([False] * 5, [0]),
        "the first two not verified": ([False, False, True, True, True], [0, 2, 3]),
        "two in the middle not verified": ([True, True, False, False, True], [0, 1, 2]),
        "one of two not verified": ([True, False, False, True], [0, 1, 3]),
    },
)
def test_three_at_most_and_one_of_them_not_verified(verified, chosen):
    ranked = [
        build_match(n, f"task {n}", verified=v, cosine=1 - n / 100)
        for n, v in enumerate(verified)
    ]
    assert [match.id for match in choose(ranked)] == chosen


def test_what_does_not_fit_is_left_out_whole():
    long = build_match(1, "one", accepted="x. " * 400, cosine=1.0)
    short = build_match(2, "two", accepted="y. " * 250, cosine=0.9)
    shorter = build_match(3, "three", accepted="z. " * 100, cosine=0.8)
    assert ids(choose([long, short, shorter])) == [2]
    assert ids(choose([long, short, shorter], budget=2_000)) == [1, 2, 3]
    assert ids(choose([long, short, shorter], budget=300)) == [3]
    assert choose([long, short, shorter], budget=10) == []
    (task, accepted) = as_messages([long])
    assert task.content == "one"
    assert accepted.content == "x. " * 400


@given(st.lists(finds, max_size=12), st.integers(0, 300), st.integers(0, 2**64 - 1))
def test_the_budget_holds_all_that_the_text_form_sends(matches, budget, seed):
    ranked = rank(matches, limit=99)
    chosen = choose(ranked, budget=budget, advice=True, seed=seed)
    assert tokens(as_text(as_messages(chosen), seed, chosen)) <= budget
