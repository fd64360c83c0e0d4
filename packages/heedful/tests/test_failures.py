"""The failures of docs/appendix/failures.md: every run is read and reflected on, and
the page is current.
"""

import pytest

from bench.quality import failures


@pytest.fixture(scope="module")
def cases():
    return failures.reflect_on_cases()


def test_the_failures_are_forty_of_many_tools(cases):
    assert len({case.id for case in cases}) == len(cases) == 40
    assert len({case.failure["tool"] for case in cases}) >= 14
    assert all(case.failure["source"].startswith("https://") for case in cases)


def test_every_failure_has_a_task_steps_and_a_lesson(cases):
    for case in cases:
        types = [event.type for event in case.episode.events]
        assert case.episode.task, case.id
        assert types.count("tool_call") == types.count("tool_response") >= 2, case.id
        assert case.lesson, case.id


def test_the_page_is_current(cases):
    text = failures.PAGE.read_text("utf-8")
    assert text == failures.render_page(text, cases, failures.read_verdicts()), (
        "make quality ONLY=failures"
    )
