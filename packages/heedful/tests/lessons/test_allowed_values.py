"""A list of allowed values stays whole in a rule; what only looks like one does not."""

from heedful.lessons.finding_rules import mask_finding
from tests.tables import cases


@cases(
    "message, rejected, accepted, rule",
    {
        "an enumeration of a JSON schema": (
            "'high' is not one of ['P0', 'P1', 'P2']",
            '{"priority": "high"}',
            '{"priority": "P1"}',
            "___ is not one of ['P0', 'P1', 'P2']",
        ),
        "after the refused value in the same form": (
            "it is 'high', not 'P0', 'P1' or 'P2'",
            "high",
            "P0",
            "it is ___, not 'P0', 'P1' or 'P2'",
        ),
        "the last one after a comma": (
            "one of: open, done, lost",
            "finished",
            "lost",
            "one of: open, done, lost",
        ),
        "the last one after and": (
            "allowed are P0, P1, P2 and P3",
            "high",
            "P3",
            "allowed are P0, P1, P2 and P3",
        ),
        "values of several words": (
            "must be in review, being built or not started",
            "finished",
            "not started",
            "must be in review, being built or not started",
        ),
        "in double quotes": (
            'must be "in review" or "being built by us now"',
            "finished",
            "in review",
            'must be "in review" or "being built by us now"',
        ),
        "in backticks": (
            "must be `in review` or `being built by us now`",
            "finished",
            "in review",
            "must be `in review` or `being built by us now`",
        ),
        "a pair, and what came": (
            "expected open or closed, got shut",
            "shut",
            "open",
            "expected open or closed, got ___",
        ),
        "a pair of letters": ("answer with Y or N", "yes", "Y", "answer with Y or N"),
        "with strokes": (
            "the severity is P0 | P1 | P2",
            "high",
            "P2",
            "the severity is P0 | P1 | P2",
        ),
        "an item a line": (
            "allowed:\n- open\n- closed\n- lost",
            "shut",
            "closed",
            "allowed:\n- open\n- closed\n- lost",
        ),
        "a range that has the answer": (
            "the score must be between 1 and 5, got 7",
            "7",
            "3",
            "the score must be between 1 and 5, got ___",
        ),
        "a range that ends with the answer": (
            "the score must be between 1 and 5, got 7",
            "7",
            "5",
            "the score must be between 1 and 5, got ___",
        ),
        "a range of dates": (
            "it must be between 2026-01-01 and 2026-12-31",
            "2027-01-01",
            "2026-12-31",
            "it must be between 2026-01-01 and 2026-12-31",
        ),
    },
)
def test_a_list_of_allowed_values_stays_whole(message, rejected, accepted, rule):
    masked = mask_finding(
        message, "", task="a task", answers=[rejected, accepted], accepted=accepted
    )
    assert masked == rule


def test_a_value_that_the_task_names_stays_in_a_list():
    masked = mask_finding(
        "use the label bug, feature or question",
        "",
        task="a bug in the login",
        answers=["defect", "bug"],
        accepted="bug",
    )
    assert masked == "use the label bug, feature or question"


@cases(
    "message, task, rejected, accepted, rule",
    {
        "an address": (
            "the customer lives at Birch Lane, Utrecht, Holland",
            "a label",
            "Elm Road",
            "Birch Lane, Utrecht, Holland",
            "the customer lives at ___",
        ),
        "clauses": (
            "the letter to Anna, sent on Monday, lacks a date",
            "a letter to Anna",
            "Dear Anna",
            "Dear Anna, May 5",
            "the letter to ___, sent on Monday, lacks a date",
        ),
        "the people of the task": (
            "greet Anna, Tomas and Ines",
            "a letter to Anna, Tomas and Ines",
            "Hello",
            "Dear Anna, Tomas and Ines",
            "greet ___",
        ),
        "a person after a list": (
            "the price is in EUR, USD or GBP for Marek",
            "an offer to Marek",
            "12 PLN",
            "12 EUR",
            "the price is in EUR, USD or GBP for ___",
        ),
        "rows of a table": (
            "rows 3, 7 and 12 have no date",
            "the table",
            "a,b",
            "x,y",
            "rows ___ have no date",
        ),
        "the groups of a figure": (
            "revenue 1,250,400 is in no source",
            "the revenue",
            "1,250,400",
            "1,204,500",
            "revenue ___ is in no source",
        ),
        # A path looks the same. A second task tells.
        "without blanks": (
            "must be red/green/blue",
            "t",
            "pink",
            "green",
            "must be ___",
        ),
    },
)
def test_what_only_looks_like_a_list_is_particular(
    message, task, rejected, accepted, rule
):
    masked = mask_finding(
        message, "", task=task, answers=[rejected, accepted], accepted=accepted
    )
    assert masked == rule
