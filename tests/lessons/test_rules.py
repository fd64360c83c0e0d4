"""A rule has what is true for the next task, and no particular of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from heedful.checks.evaluate import Context
from heedful.lessons.finding_rules import (
    Declared,
    constant_rule,
    declared_by,
    mask_finding,
)
from heedful.lessons.lesson import Example
from heedful.lessons.loop_lessons import learn
from heedful.loop.record import Attempt, Candidate, Evaluation, Finding, Loop
from heedful.loop.stop import requirement_of

TEAMS = ("@billing", "@shipping")
QUEUE_OF = {"a task": "refunds"}


def literal(answer: str, context: Context) -> list[Finding]:
    return [Finding("c", f"{answer!r} is no date", fix="write YYYY-MM-DD")]


def parameter(answer: str, context: Context, *, limit: int) -> list[Finding]:
    return [Finding("c", "the text is long", fix=f"write at most {limit} words")]


def constant(answer: str, context: Context) -> list[Finding]:
    return [Finding("c", "no such team", fix=f"use one of {', '.join(TEAMS)}")]


def chosen(answer: str, context: Context) -> list[Finding]:
    return [Finding("c", "wrong team here", fix=f"use the team {TEAMS[1]}")]


def looked_up(answer: str, context: Context) -> list[Finding]:
    return [Finding("c", "wrong queue here", fix=f"the queue is {QUEUE_OF['a task']}")]


def helped(answer: str, context: Context) -> list[Finding]:
    return [_find_wrong_unit(answer)]


def _find_wrong_unit(answer: str) -> Finding:
    return Finding("c", f"no unit in {answer}", fix="write the number and kg")


def bound(answer: str, context: Context, expected: str) -> list[Finding]:
    return [Finding("c", "another number", fix=f"write this: {expected}")]


@dataclass(frozen=True)
class Words:
    prefix: str


@dataclass(frozen=True)
class Style:
    words: Words

    def __call__(self, answer: str, context: Context) -> list[Finding]:
        return [Finding("c", "no prefix here", fix=f"begin with {self.words.prefix}")]


RULE_TABLE = {"sign": "end with ref: and the code"}
RULE_LIST = ["greet first", "end with ref: and the code"]


def signed_by_table(answer: str, context: Context) -> Iterator[Finding]:
    if "ref:" not in answer:
        yield Finding("signed", "not signed", fix=RULE_TABLE["sign"])


def signed_by_list(answer: str, context: Context) -> Iterator[Finding]:
    if "ref:" not in answer:
        yield Finding("signed", "not signed", fix=RULE_LIST[1])


def captured(prefix: str) -> Callable[[str, Context], list[Finding]]:
    def check(answer: str, context: Context) -> list[Finding]:
        return [Finding("c", "no prefix here", fix=f"begin with {prefix}")]

    return check


@pytest.mark.parametrize(
    ("check", "rejected", "accepted", "rule"),
    [
        pytest.param(
            literal,
            "May 5",
            "2025-05-05",
            "___ is no date. write YYYY-MM-DD",
            id="code",
        ),
        pytest.param(
            partial(parameter, limit=12),
            "a b",
            "12 words",
            "the text is long. write at most 12 words",
            id="an argument",
        ),
        pytest.param(
            constant,
            "sales",
            "@billing",
            "no such team. use one of @billing, @shipping",
            id="a whole list of the module",
        ),
        pytest.param(
            chosen,
            "sales",
            "@shipping",
            "wrong team here. use the team ___",
            id="one of a list, and it is the answer",
        ),
        pytest.param(
            looked_up,
            "sales",
            "refunds",
            "wrong queue here. the queue is ___",
            id="a table of answers",
        ),
        pytest.param(
            helped,
            "7",
            "7 kg",
            "no unit in ___. write the number and kg",
            id="a function of the module",
        ),
        pytest.param(
            partial(bound, expected="seven"),
            "eight",
            "seven",
            "another number. write this: ___",
            id="an argument that is the answer",
        ),
        pytest.param(
            partial(bound, expected="a task"),
            "eight",
            "this is a task",
            "another number. write this: ___",
            id="an argument that stands in the task",
        ),
        pytest.param(
            Style(Words("team-a/")),
            "x",
            "team-a/x",
            "no prefix here. begin with team-a/",
            id="a field of a field",
        ),
        pytest.param(
            captured("team-a/"),
            "x",
            "team-a/x",
            "no prefix here. begin with team-a/",
            id="a captured value",
        ),
        pytest.param(
            signed_by_table,
            "Sure.",
            "Sure. ref: the code X",
            "not signed. end with ref: and the code",
            id="a sentence in a dictionary",
        ),
        pytest.param(
            signed_by_list,
            "Sure.",
            "Sure. ref: the code X",
            "not signed. end with ref: and the code",
            id="a sentence in a list",
        ),
    ],
)
def test_a_single_failure_teaches_what_its_check_declares(
    check: Any, rejected: str, accepted: str, rule: str
) -> None:
    [finding] = check(rejected, Context("a task"))
    masked = mask_finding(
        finding.message,
        finding.fix,
        task="a task",
        answers=[rejected, accepted],
        accepted=accepted,
        declared=declared_by([check]),
    )
    assert masked == rule


def test_a_docstring_stays_whole_though_an_answer_has_its_words() -> None:
    def adds_up(candidate: str) -> bool:
        """The total is the sum of the amounts.

        It stands at the end.
        """
        return candidate.endswith("7 EUR")

    message = requirement_of(adds_up)
    masked = mask_finding(
        message,
        "",
        task="add 3 EUR and 4 EUR",
        answers=["the total: 8 EUR", "the total: 7 EUR"],
        accepted="the total: 7 EUR",
        declared=declared_by([adds_up]),
    )
    assert masked == message.rstrip(".")


@pytest.mark.parametrize(
    ("message", "fix", "task", "accepted", "rule"),
    [
        pytest.param(
            "wrong queue",
            "it is card_arrival",
            "where is my card",
            "card_arrival",
            "wrong queue",
            id="a value of the answer",
        ),
        pytest.param(
            "expected 6.26", "", "sum them", "6.26", "expected ___", id="a figure"
        ),
        pytest.param(
            "src/app/main.py:3: unused import",
            "remove it",
            "clean up",
            "x = 1",
            "___: unused import. remove it",
            id="a path",
        ),
        pytest.param(
            "the letter is rude",
            "greet Anna Berg first",
            "a letter to Anna Berg",
            "A letter " * 30,
            "the letter is rude. greet ___ first",
            id="a name of the task",
        ),
        pytest.param(
            "the report has no summary",
            "add a summary of the report",
            "write a report",
            "The report and its summary. " * 9,
            "the report has no summary. add a summary of the report",
            id="plain words of a long answer stay",
        ),
        pytest.param(
            "no greeting",
            "begin with 'Hello you'",
            "a mail",
            "Hello you, all is well",
            "no greeting. begin with ___",
            id="a quotation of the answer",
        ),
        pytest.param(
            "tags are lower case",
            "write it in lower case",
            "a tag",
            "lamp",
            "tags are lower case. write it in lower case",
            id="what stands in no task and no answer",
        ),
        pytest.param(
            "at $.age: Field required",
            "add it",
            "who is Ada",
            '{"name": "Ada", "age": 36}',
            "at $.age: Field required. add it",
            id="a key of the answer is no value",
        ),
        pytest.param("6.26", "write 6.26", "sum", "6.26", "write ___", id="no words"),
        pytest.param("'a b'", "", "sum", "a b", "", id="nothing but a particular"),
    ],
)
def test_a_text_from_outside_teaches_what_is_in_no_task_and_no_answer(
    message: str, fix: str, task: str, accepted: str, rule: str
) -> None:
    masked = mask_finding(
        message, fix, task=task, answers=["nonsense", accepted], accepted=accepted
    )
    assert masked == rule


def sighting(task: str, fix: str, rule: str = "wrong queue") -> Example:
    return Example(task, "", wrong="wrong queue", fix=fix, rule=rule)


@pytest.mark.parametrize(
    ("sightings", "rule"),
    [
        pytest.param([sighting("1", "use a_b")], "wrong queue", id="one task"),
        pytest.param(
            [sighting("1", "use a_b"), sighting("1", "use a_b")],
            "wrong queue",
            id="the same task twice",
        ),
        pytest.param(
            [sighting("2", "use a_b"), sighting("1", "use a_b")],
            "wrong queue. use a_b",
            id="a second task confirms",
        ),
        pytest.param(
            [
                sighting("3", "use c"),
                sighting("2", "use a_b"),
                sighting("1", "use a_b"),
            ],
            "wrong queue. use ___",
            id="a third task refutes",
        ),
        pytest.param(
            [Example("2", "", wrong="x y z", rule="x"), sighting("1", "use a_b")],
            "x",
            id="findings without common words",
        ),
    ],
)
def test_a_second_task_tells_the_rule_from_the_particulars(
    sightings: Sequence[Example], rule: str
) -> None:
    assert constant_rule(sightings) == rule


def test_the_text_of_a_lesson_has_no_punctuation_of_stored_objects() -> None:
    wrong = Evaluation((Finding("queue", "wrong queue"),))
    texts = [
        '{"queue": "software", "rerun": false}',
        '{"queue": "hardware", "rerun": false}',
    ]
    attempts = (
        Attempt(1, Candidate.of(texts[0]), evaluation=wrong),
        Attempt(2, Candidate.of(texts[1]), evaluation=Evaluation(())),
    )
    [lesson] = learn(Loop("l", attempts=attempts), "a task", memory_key="k")
    assert lesson.text == "wrong queue. Accepted: queue: software -> hardware"
    assert lesson.example is not None
    assert lesson.example.rule == "wrong queue"


def test_nothing_of_the_user_runs_to_read_what_a_check_declares() -> None:
    class Raising:
        @property
        def limit(self) -> int:
            raise AssertionError("the property of a check was read")

        def __call__(self, answer: str, context: Context) -> list[Finding]:
            return []

    assert declared_by([Raising(), print, Raising]) == Declared()
