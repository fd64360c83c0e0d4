"""Reliability: what tracks of calls become, and how surely calls fail."""

from __future__ import annotations

import pytest

from heedful.lessons.preconditions import Precondition
from heedful.lessons.reliability import (
    MIN_SPOKEN_BOUND,
    Form,
    FormTests,
    Replay,
    Step,
    Track,
    lower_bound,
)
from heedful.lessons.shipped_tests import SHIPPED_TESTS

WORD = Precondition("word", ("--up", "git push"))
UNREAD = Precondition("unread file", ("Edit", ""))
FAILS = Step((WORD,), ("unknown option '--up'",))
WORKS = Step((WORD,))
FAILS_OTHERWISE = Step((WORD,), ("no network",))


@pytest.mark.parametrize(
    ("steps", "track"),
    [
        pytest.param([FAILS], Track(failed=1), id="a failure"),
        pytest.param([FAILS, FAILS], Track(failed=1), id="one session counts once"),
        pytest.param([WORKS, FAILS], Track(1, 0, 1), id="it worked before"),
        pytest.param([FAILS, WORKS], Track(1, 1, 1), id="it works since"),
        pytest.param([FAILS_OTHERWISE], None, id="another failure says nothing"),
    ],
)
def test_a_session_counts(steps: list[Step], track: Track | None) -> None:
    replay = Replay(tracks={})
    replay.run(steps)
    assert replay.tracks.get(WORD) == track


@pytest.mark.parametrize(
    ("steps", "tests"),
    [
        pytest.param([FAILS], FormTests(1, 1), id="held"),
        pytest.param([WORKS], FormTests(0, 1), id="passed"),
        pytest.param([FAILS_OTHERWISE], None, id="failed otherwise"),
        pytest.param([FAILS, WORKS, WORKS], FormTests(1, 1), id="once a session"),
    ],
)
def test_a_session_tests_what_was_known_before(
    steps: list[Step], tests: FormTests | None
) -> None:
    replay = Replay(tracks={WORD: Track(failed=1)})
    replay.run(steps)
    assert replay.tests.get(Form("word", 1)) == tests
    assert replay.tests.get(Form("", 1)) == tests


def test_the_session_itself_tests_nothing_that_it_added() -> None:
    replay = Replay(tracks={WORD: Track(failed=1)}, again=frozenset({WORD}))
    replay.run([FAILS])
    assert not replay.tests
    assert replay.tracks[WORD].failed == 1


def test_the_state_of_a_session_is_tested_without_a_track() -> None:
    replay = Replay(tracks={})
    replay.run([Step((UNREAD,), ("File has not been read yet.",)), Step((UNREAD,))])
    assert replay.tests == {Form("unread file", variant=UNREAD.words): FormTests(1, 2)}


def test_memory_speaks_of_what_never_passed_and_not_of_what_did() -> None:
    never_passed = Form("word", 1)
    has_passed = Form("word", 1, has_passed=True)
    assert lower_bound(never_passed, {}, SHIPPED_TESTS) >= MIN_SPOKEN_BOUND
    assert lower_bound(has_passed, {}, SHIPPED_TESTS) < MIN_SPOKEN_BOUND
    assert lower_bound(Form("word"), {}, SHIPPED_TESTS) == 0


def test_without_tests_elsewhere_a_project_speaks_after_its_own() -> None:
    form = Form("word", 1)
    assert lower_bound(form, {form: FormTests(2, 2)}, {}) == 0
    assert lower_bound(form, {form: FormTests(9, 9)}, {}) >= MIN_SPOKEN_BOUND


def test_the_tests_of_a_project_outweigh_those_made_elsewhere() -> None:
    form = Form("table", 1)
    tests = {form: FormTests(0, 50), Form("", 1): FormTests(0, 50)}
    assert lower_bound(form, tests, SHIPPED_TESTS) < MIN_SPOKEN_BOUND
