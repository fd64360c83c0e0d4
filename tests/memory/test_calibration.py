"""The thresholds of recall as numbers: a test that compared with the constants could not fail."""

from __future__ import annotations

from pathlib import Path

import pytest

import heedful
from heedful.lessons.lesson import Match
from heedful.lessons.ranking import COSINE, COVERAGE, PROMPT_COSINE, PROMPT_WORDS, choose, rank

ROOT = Path(__file__).parents[2]


def found(task: str, cosine: float | None, coverage: float = 0.0) -> Match:
    example = heedful.Example(task, "answer")
    return Match(1, 1, example, "check", True, 1, 0.5, 0.0, cosine, coverage=coverage)


@pytest.mark.parametrize(
    ("cosine", "related", "shown"),
    [(0.37, 0, 0), (0.41, 0, 0), (0.43, 1, 0), (0.44, 1, 0), (0.46, 1, 1), (0.57, 1, 1)],
)
def test_how_near_a_meaning_must_lie(cosine, related, shown):
    ranked = rank("other words", [found("some task", cosine)], 5)
    assert (len(ranked), len(choose(ranked))) == (related, shown)


@pytest.mark.parametrize("cosine", [None, 0.0])
@pytest.mark.parametrize(("coverage", "related"), [(0.29, 0), (0.31, 1)])
def test_what_share_of_the_words_is_related(cosine, coverage, related):
    ranked = rank("other words", [found("some task", cosine, coverage)], 5)
    assert (len(ranked), choose(ranked)) == (related, [])


@pytest.mark.parametrize(
    ("task", "shown"),
    [("one two x y z w", 0), ("one two three x y z", 1), ("one two three four five six", 1)],
)
def test_how_many_words_must_be_shared_without_meanings(task, shown):
    ranked = rank("one two three four five six", [found(task, None)], 5)
    assert (len(ranked), len(choose(ranked))) == (shown, shown)


def test_the_thresholds_are_those_of_the_reference():
    said = " ".join((ROOT / "docs" / "reference.md").read_text(encoding="utf-8").split())
    assert f"a cosine of at least {COSINE:.2f}, or {COVERAGE:.2f} of the words" in said
    assert f"a cosine of at least {PROMPT_COSINE:.2f}, or without an embedder" in said
    assert f"a word overlap of at least {PROMPT_WORDS:.2f}" in said
