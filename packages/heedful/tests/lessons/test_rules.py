"""A rule has what is true for the next task, and no particular of its own."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from heedful.checks.evaluate import Context
from heedful.lessons.declarations import declared_by
from heedful.lessons.finding_rules import (
    Declared,
    cases_of_rule,
    constant_rule,
    mask_finding,
    says_enough,
)
from heedful.lessons.lesson import Example
from heedful.lessons.loop_lessons import learn
from heedful.loop.record import Attempt, Candidate, Evaluation, Finding, Loop
from heedful.loop.stop import requirement_of
from tests.tables import cases, read_samples

TEAMS = ("@billing", "@shipping")
QUEUE_OF = {"a task": "refunds"}


def literal(answer: str, context: Context) -> list[Finding]:
    return [Finding("c", f"{answer!r} is no date", fix="write YYYY-MM-DD")]


def counted(answer: str, context: Context) -> list[Finding]:
    return [Finding("c", f"{answer!r} has {len(answer.split())} words")]


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


@cases(
    "check, rejected, accepted, rule",
    {
        "code": (literal, "May 5", "2025-05-05", "___ is no date. write YYYY-MM-DD"),
        "a stop word of the code between two values": (
            counted,
            "May 5",
            "2025-05-05",
            "___ has ___ words",
        ),
        "an argument": (
            partial(parameter, limit=12),
            "a b",
            "12 words",
            "the text is long. write at most 12 words",
        ),
        "a whole list of the module": (
            constant,
            "sales",
            "@billing",
            "no such team. use one of @billing, @shipping",
        ),
        "one of a list, and it is the answer": (
            chosen,
            "sales",
            "@shipping",
            "wrong team here. use the team ___",
        ),
        "a table of answers": (
            looked_up,
            "sales",
            "refunds",
            "wrong queue here. the queue is ___",
        ),
        "a function of the module": (
            helped,
            "7",
            "7 kg",
            "no unit in ___. write the number and kg",
        ),
        "an argument that is the answer": (
            partial(bound, expected="seven"),
            "eight",
            "seven",
            "another number. write this: ___",
        ),
        "an argument that stands in the task": (
            partial(bound, expected="a task"),
            "eight",
            "this is a task",
            "another number. write this: ___",
        ),
        "a field of a field": (
            Style(Words("team-a/")),
            "x",
            "team-a/x",
            "no prefix here. begin with team-a/",
        ),
        "a captured value": (
            captured("team-a/"),
            "x",
            "team-a/x",
            "no prefix here. begin with team-a/",
        ),
        "a sentence in a dictionary": (
            signed_by_table,
            "Sure.",
            "Sure. ref: the code X",
            "not signed. end with ref: and the code",
        ),
        "a sentence in a list": (
            signed_by_list,
            "Sure.",
            "Sure. ref: the code X",
            "not signed. end with ref: and the code",
        ),
    },
)
def test_a_single_failure_teaches_what_its_check_declares(
    check, rejected, accepted, rule
):
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


def test_a_docstring_stays_whole_though_an_answer_has_its_words():
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


# The message and the fix of a finding, the task, the accepted answer, and the rule.
FINDINGS = read_samples(Path(__file__).parent / "samples" / "findings.txt")


@cases("message, fix, task, accepted, rule", FINDINGS)
def test_a_text_from_outside_teaches_what_is_in_no_task_and_no_answer(
    message, fix, task, accepted, rule
):
    masked = mask_finding(
        message, fix, task=task, answers=["nonsense", accepted], accepted=accepted
    )
    assert masked == rule


def sighting(task: str, fix: str, rule: str = "wrong queue") -> Example:
    return Example(task, "", wrong="wrong queue", fix=fix, rule=rule)


@cases(
    "sightings, rule",
    {
        "one task": ([sighting("1", "use a_b")], "wrong queue"),
        "the same task twice": (
            [sighting("1", "use a_b"), sighting("1", "use a_b")],
            "wrong queue",
        ),
        "a second task confirms": (
            [sighting("2", "use a_b"), sighting("1", "use a_b")],
            "wrong queue. use a_b",
        ),
        "a third task refutes": (
            [
                sighting("3", "use c"),
                sighting("2", "use a_b"),
                sighting("1", "use a_b"),
            ],
            "wrong queue. use ___",
        ),
        "findings without common words": (
            [Example("2", "", wrong="x y z", rule="x"), sighting("1", "use a_b")],
            "x",
        ),
    },
)
def test_a_second_task_tells_the_rule_from_the_particulars(sightings, rule):
    assert constant_rule(sightings) == rule


@cases(
    "message, fix, task, accepted, rule",
    {
        "an allowed value": (
            "'high' is no priority",
            "begin with P1",
            "Acme cannot pay",
            "P1: the shop is down",
            "'high' is no priority. begin with P1",
        ),
        "the form of a value": (
            "not a label",
            "begin with LIT-",
            "a label for 4 litres",
            "LIT-4",
            "not a label. begin with LIT-",
        ),
        "an example that is like the answer": (
            "not a date",
            "write it as in 2026-01-31",
            "the rent of March",
            "2026-03-02",
            "not a date. write it as in 2026-01-31",
        ),
        "a name of the task": (
            "Anna Berg is not greeted",
            "begin with Dear Anna",
            "a letter to Anna Berg",
            "Dear Anna Berg",
            "___ is not greeted. begin with Dear ___",
        ),
        "a name of the task in a quotation": (
            "'Dear Anna' lacks a comma",
            "",
            "a letter to Anna Berg",
            "Yours",
            "'Dear ___' lacks a comma",
        ),
        "a plain word of the task in the answer": (
            "greet marek first",
            "",
            "a letter to marek",
            "Dear marek",
            "greet ___ first",
        ),
        "a figure of the message": (
            "the sum is 291",
            "add the lines",
            "sum up",
            "219",
            "the sum is ___. add the lines",
        ),
    },
)
def test_if_the_refused_answer_is_unknown_only_the_task_is_particular(
    message, fix, task, accepted, rule
):
    masked = mask_finding(
        message,
        fix,
        task=task,
        answers=["", accepted],
        accepted=accepted,
        knows_refused=False,
    )
    assert masked == rule


def label(amount: int, unit: str, prefix: str) -> Example:
    """Return the sighting of a check of labels, as one failure teaches it."""
    return Example(
        f"the label for {amount} {unit}",
        "",
        wrong=f"wrong form for {unit}",
        fix=f"begin with {prefix}",
        rule="wrong form for ___. begin with ___",
    )


def queue(ticket: str, name: str) -> Example:
    """Return the sighting of a check that knows the queue of each ticket."""
    return Example(
        ticket, "", wrong=f"the right queue is {name}", rule="the right queue is ___"
    )


def greeting(number: int, name: str) -> Example:
    """Return the sighting of a check that looks for the customer of a letter."""
    return Example(
        f"letter {number} to {name}",
        "",
        wrong=f"the letter does not greet {name}",
        fix=f"begin with Dear {name}",
        rule="the letter does not greet ___. begin with Dear ___",
    )


@cases(
    "own, others, rule",
    {
        "a value for each unit": (
            [label(3, "l", "LIT-"), label(4, "l", "LIT-")],
            [label(5, "m", "MTR"), label(6, "m", "MTR")],
            "wrong form for l. begin with LIT-",
        ),
        "the unit in capitals": (
            [label(3, "kg", "KG:"), label(4, "kg", "KG:")],
            [label(5, "m", "MTR")],
            "wrong form for kg. begin with KG:",
        ),
        "one task of the unit": (
            [label(3, "l", "LIT-")],
            [label(5, "m", "MTR"), label(6, "m", "MTR")],
            "wrong form for ___. begin with ___",
        ),
        "two values for the unit": (
            [label(3, "l", "LIT-"), label(4, "l", "LTR-")],
            [label(5, "m", "MTR")],
            "wrong form for ___. begin with ___",
        ),
        "a queue that no word of the ticket names": (
            [queue("the card is lost", "cards"), queue("the card is torn", "cards")],
            [queue("no cash came out", "cash")],
            "the right queue is ___",
        ),
        "a queue that the ticket names": (
            [queue("lost cards", "cards"), queue("torn cards", "cards")],
            [queue("no cash", "cash")],
            "the right queue is ___",
        ),
        "a customer of two letters": (
            [greeting(1, "Anna"), greeting(2, "Anna")],
            [greeting(3, "Tomas")],
            "the letter does not greet ___. begin with Dear ___",
        ),
    },
)
def test_what_came_back_for_one_word_of_the_task_is_a_rule_about_it(own, others, rule):
    assert constant_rule(cases_of_rule(own, [*own, *others])) == rule


@cases(
    "rule, is_told",
    {
        "no blank": ("be brief", True),
        "a blank among words": ("the letter does not greet ___", True),
        "a blank and one word": ("write ___", False),
        "stop words between blanks": ("___ is not in the ___", False),
        "as many blanks as words": ("expected ___, got ___", False),
        "a condition and a value": (
            "'___' has the wrong form for ___. for ___, begin with ___",
            False,
        ),
        "words of the check": ("branch ___ is gone. run: git push origin ___", True),
    },
)
def test_a_rule_needs_more_words_of_its_own_than_blanks(rule, is_told):
    assert says_enough(rule) == is_told


def test_the_text_of_a_lesson_has_no_punctuation_of_stored_objects():
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


def test_nothing_of_the_user_runs_to_read_what_a_check_declares():
    class Raising:
        @property
        def limit(self) -> int:
            raise AssertionError("the property of a check was read")

        def __call__(self, answer: str, context: Context) -> list[Finding]:
            return []

    assert declared_by([Raising(), print, Raising]) == Declared()
