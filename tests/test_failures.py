"""The failures of docs/failures.md: every run is read and reflected on, and the page is
current.
"""

import pytest

from bench.quality import failures

CASES = failures.reflect_on_cases()


def test_the_failures_are_forty_of_many_tools():
    assert len({case.id for case in CASES}) == len(CASES) == 40
    assert len({case.failure["tool"] for case in CASES}) >= 14
    assert all(case.failure["source"].startswith("https://") for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_every_failure_has_a_task_steps_and_a_lesson(case):
    types = [event.type for event in case.episode.events]
    assert case.episode.task
    assert types.count("tool_call") == types.count("tool_response") >= 2
    assert case.lesson


def test_the_page_is_current():
    text = failures.PAGE.read_text(encoding="utf-8")
    assert text == failures.render_page(text, CASES, failures.read_verdicts()), (
        "make quality ONLY=failures"
    )
