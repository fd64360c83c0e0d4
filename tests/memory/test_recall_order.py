"""What recall puts first where relevance is equal."""

from heedful.lessons.lesson import Example, Match
from heedful.lessons.ranking import rank


def found(id: int, task: str, *, verified: bool, seen: int) -> Match:
    return Match(id, id, Example(task, "1.60 m"), "check", verified, seen, 0.5, 0.0, cosine=0.9)


def test_an_answer_accepted_again_at_once_stays_verified():
    once, again = (
        found(1, "a task", verified=True, seen=1),
        found(2, "a task", verified=False, seen=9),
    )
    assert [one.id for one in rank("a task", [again, once], 5)] == [once.id]


def test_verified_goes_before_often_seen():
    verified, often = (
        found(1, "one", verified=True, seen=1),
        found(2, "two", verified=False, seen=9),
    )
    assert [one.id for one in rank("a task", [often, verified], 5)] == [verified.id, often.id]
