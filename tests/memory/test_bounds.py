"""What memory writes and shows is bounded, and a place that comes later is kept."""

from __future__ import annotations

import heedful
from heedful.lessons.learn import MOST, learn
from heedful.lessons.lesson import Match
from heedful.loop.record import Attempt, Candidate


def found(id: int, task: str, accepted: str) -> Match:
    return Match(
        id, id, heedful.Example(task, accepted), "check", True, 1, 0.5, 0.0, 0.9 - id / 100
    )


def test_a_loop_gives_at_most_so_many_lessons_the_most_severe():
    findings = tuple(
        heedful.Finding("c", f"wrong {n}", key=f"key {n}", severity=n / 100) for n in range(60)
    )
    attempts = (
        Attempt(1, Candidate.of("bad"), heedful.Evaluation(findings)),
        Attempt(2, Candidate.of("good"), heedful.Evaluation()),
    )
    lessons = learn(heedful.Loop("a", attempts=attempts), "task")
    assert len(lessons) == MOST
    assert {one.sighting for one in lessons} == {f"wrong {n}" for n in range(40, 60)}
