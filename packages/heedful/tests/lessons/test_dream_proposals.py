"""Which rules contradict each other, and which of them stands."""

from typing import Any

import pytest

from heedful.lessons.dream_proposals import (
    NUMBERS_DIFFER,
    ONE_NEGATES,
    PERSON_OUTCOME,
    DreamLesson,
    Proposal,
    find_superseded,
)
from heedful.lessons.signature import signature, strategy_signature
from tests.tables import cases

NOW = 1_000_000_000.0


def lesson(id: int, text: str, **fields: Any) -> DreamLesson:
    fields = {"kind": "error", "signature": f"{id:016x}", **fields}
    fields = {"state": "unverified", "trust": "user", "last_seen": NOW + id, **fields}
    return DreamLesson(id=id, text=text, **fields)


def rule(id: int, text: str, failure: str = "timeout", **fields: Any) -> DreamLesson:
    """A strategy of the reflection on this failure; a higher id was seen later."""
    reflection = signature("error", failure)
    kind = {
        "kind": "strategy",
        "signature": strategy_signature(reflection).digest,
        "failure": reflection.digest,
        **fields,
    }
    return lesson(id, text, **kind)


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ("Retry the call", "Do not retry the call", ONE_NEGATES),
        ("Do not retry the call", "Never retry the call", ""),
        ("Retry at most 3 times", "Retry at most 5 times", NUMBERS_DIFFER),
        # A number that only one gives.
        ("Retry the call", "Never read the page before you ask", ""),
        ("Use kilograms", "Use pounds", ""),
        ("", "", ""),
    ],
)
def test_of_rules_for_one_failure_that_contradict_the_newer_one_stands(
    first, second, why
):
    proposals = [*find_superseded([rule(1, first), rule(2, second)])]
    expected = []
    if why:
        expected = [Proposal("supersede", (1,), survivor=2, why=why)]
    assert proposals == expected


AGAINST = "Never retry the call"
TIMEOUT = signature("error", "timeout").digest


@cases(
    "lessons, expected",
    {
        "rules of two failures": (
            [rule(1, "Retry 3 times"), rule(2, "Retry 5 times", "no such file")],
            [],
        ),
        "rules of one failure": (
            [rule(n, f"Retry {n} times") for n in (3, 4, 5)],
            [(5, 4), (5, 3)],
        ),
        "lessons that are no rules": (
            [
                lesson(1, "Retry the call", signature="a", kind="check"),
                *(
                    lesson(2, AGAINST, signature="a", kind=kind)
                    for kind in ("reflection", "error")
                ),
            ],
            [],
        ),
        "a check and a rule": (
            [
                lesson(1, "Retry the call", signature=TIMEOUT, kind="check"),
                rule(2, AGAINST),
            ],
            [(2, 1)],
        ),
        "a rule that is trusted otherwise": (
            [rule(1, "Retry the call"), rule(2, AGAINST, trust="local")],
            [],
        ),
    },
)
def test_each_rule_is_compared_with_the_newest_for_its_failure(lessons, expected):
    for those in (lessons, lessons[::-1]):
        proposals = find_superseded(those)
        assert [(p.survivor, *p.members) for p in proposals] == expected


def test_a_pinned_rule_is_left_to_a_person():
    rules = [rule(1, "Retry the call", pinned=True), rule(2, AGAINST)]
    (proposal,) = find_superseded(rules)
    assert proposal.outcome == PERSON_OUTCOME
