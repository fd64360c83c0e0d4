"""How far measures are off: what is nearer is better, and counts as progress."""

from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import given

import heedful
from heedful import checks
from heedful.checks.evaluate import Context
from heedful.errors import InvalidInput
from heedful.loop.explain import explain
from heedful.loop.policies import preset
from heedful.loop.record import Evaluation, Finding, Improvement, Loop
from tests.loop import support
from tests.loop.support import finding, loop_from


def measured(*distances: float | None, key: str = "size", **fields) -> Loop:
    """A loop whose attempts have one error each, off by these distances."""
    return loop_from(
        [Evaluation((finding(key, off_by=value, **fields),)) for value in distances]
    )


def said(*messages: str) -> Loop:
    """A loop whose attempts have one error each, which says nothing but a text."""
    return loop_from([Evaluation((Finding("own", text),)) for text in messages])


def both(size: float, other: str, off_by: float, severity: float = 0.5) -> Evaluation:
    """An evaluation with two measured errors, the second under the key `other`."""
    second = finding(other, off_by=off_by, severity=severity)
    return Evaluation((finding("size", off_by=size), second))


@pytest.mark.parametrize(
    ("loop", "best"),
    [
        pytest.param(measured(3.5, 1.05, 0.3, 0.025, 0.2), 4, id="the nearest"),
        pytest.param(measured(0.2, 0.2), 1, id="as near: the earlier"),
        pytest.param(
            loop_from(
                [
                    Evaluation((finding("size", off_by=0.1, severity=0.2),)),
                    Evaluation((finding("size", off_by=0.05, severity=0.9),)),
                ]
            ),
            2,
            id="before the severity",
        ),
        pytest.param(
            loop_from(
                [
                    Evaluation((finding("size", off_by=9.0),)),
                    Evaluation((finding("size", off_by=0.1), finding("name"))),
                ]
            ),
            1,
            id="after the number of errors",
        ),
        pytest.param(
            loop_from(
                [
                    Evaluation((finding("size", off_by=9.0),), {"quality": 0.7}),
                    Evaluation((finding("size", off_by=0.1),), {"quality": 0.6}),
                ],
                goals=(support.QUALITY,),
            ),
            1,
            id="after the goals",
        ),
        pytest.param(
            loop_from(
                [
                    Evaluation((finding("size", off_by=9.0, severity=0.3),)),
                    Evaluation((finding("weight", off_by=0.1, severity=0.4),)),
                ]
            ),
            1,
            id="not between findings of different keys",
        ),
        pytest.param(
            loop_from([both(0.4, "weight", 9.0), both(0.3, "price", 99.0)]),
            2,
            id="the keys that both have decide",
        ),
        pytest.param(
            loop_from([both(0.4, "weight", 0.1), both(0.1, "weight", 0.3)]),
            2,
            id="the sum over the keys",
        ),
        pytest.param(
            loop_from(
                [
                    Evaluation((Finding("size", "90 letters", off_by=8.0),)),
                    Evaluation((Finding("size", "11 letters", off_by=0.1),)),
                ]
            ),
            2,
            id="the figure is no part of the key",
        ),
        pytest.param(measured(0.3, None), 1, id="not measured is not nearer"),
        pytest.param(measured(0.3, 0.1, level="warning"), 1, id="only errors"),
        pytest.param(
            said("900 letters, at most 200", "410 letters, at most 200"),
            2,
            id="in a text, the figure that stays is the limit",
        ),
        pytest.param(
            said("wants at least 30 words, has 3", "wants at least 30 words, has 28"),
            2,
            id="in a text, the limit first and from below",
        ),
        pytest.param(
            said("1,900.5 ms > 1,000", "1,200.5 ms > 1,000"),
            2,
            id="in a text, figures with separators",
        ),
        pytest.param(
            said("19 of 20 rows are empty", "3 of 20 rows are empty"),
            1,
            id="in a text, a part of a whole says not which is better",
        ),
        pytest.param(
            said("3 of at least 30 words", "28 of at least 30 words"),
            2,
            id="in a text, a part of what is wanted",
        ),
        pytest.param(
            said("3/20 failed", "7/20 failed"), 1, id="in a text, a fraction neither"
        ),
        pytest.param(
            said("900 letters, at most 200", "800 words, at most 200"),
            1,
            id="not between different texts",
        ),
        pytest.param(
            said("9 letters, at most 4", "8 letters, at most 5"),
            1,
            id="not between different limits",
        ),
        pytest.param(
            said("row 1: 9 is over 4", "row 1: 8 is over 4"),
            1,
            id="three figures say nothing",
        ),
    ],
)
def test_the_best_attempt_is_nearest_to_its_limit(loop, best):
    assert loop.best == best


@pytest.mark.parametrize(
    ("distances", "improved"),
    [
        pytest.param((0.3, 0.025, 0.015), (True, True, True), id="near the limit"),
        pytest.param((0.3, 0.29, 0.28), (True, False, False), id="little by little"),
        pytest.param((0.2, 0.19), (True, True), id="just enough"),
        pytest.param((0.2, 0.1901), (True, False), id="just too little"),
        pytest.param(
            (0.2, 0.3, 0.25), (True, False, False), id="only against the best"
        ),
    ],
)
def test_an_attempt_improves_if_it_is_nearer_by_a_share_of_the_distance(
    distances, improved
):
    assert measured(*distances).improved == improved


def test_the_share_is_the_min_gain_of_the_policy():
    first, second = (attempt.evaluation for attempt in measured(0.2, 0.19).attempts)
    assert first is not None
    assert second is not None
    assert not Improvement(0.1)(first, second, ())


@pytest.mark.parametrize("value", [-0.1, nan, inf, -inf, True, "far", 1e13])
def test_a_distance_is_a_finite_number_of_at_least_0(value):
    with pytest.raises(InvalidInput, match="off_by"):
        Finding("size", "too large", off_by=value)


def test_an_explanation_says_how_far_it_is_off():
    loop = measured(0.025, 0.0)
    first, second = explain(loop, preset("default")).lines
    assert first.wrong == ("size (2.5 % off)",)
    assert second.wrong == ("size",)


@given(support.loops())
def test_the_best_of_the_first_attempts_is_that_of_a_loop_that_ends_there(loop):
    assert loop.best == loop.upto(len(loop.attempts)).best
    for end in range(len(loop.attempts)):
        shorter = replace(loop, attempts=loop.attempts[:end])
        assert loop.upto(end).best == shorter.best
        assert loop.upto(end).improved == shorter.improved


NESTED = {
    "type": "object",
    "properties": {
        "price": {"maximum": 50},
        "name": {"type": "string", "maxLength": 4},
        "tags": {"type": "array", "minItems": 4},
    },
}


@pytest.mark.parametrize(
    ("check", "candidate", "off_by"),
    [
        pytest.param(checks.words(at_most=4), "a b c d e", 0.25, id="words at most"),
        pytest.param(checks.words(at_least=4), "a b c", 0.25, id="words at least"),
        pytest.param(checks.characters(at_most=200), "x" * 205, 0.025, id="characters"),
        pytest.param(checks.json_schema(NESTED), '{"price": 60}', 0.2, id="maximum"),
        pytest.param(
            checks.json_schema(NESTED), '{"name": "abcdef"}', 0.5, id="maxLength"
        ),
        pytest.param(checks.json_schema(NESTED), '{"tags": [1]}', 0.75, id="minItems"),
        pytest.param(
            checks.json_schema(NESTED), '{"name": 3}', None, id="another rule"
        ),
        pytest.param(checks.ranges(x=(0, 2)), {"x": [1, 1, 1, 4]}, 0.125, id="ranges"),
        pytest.param(checks.finite(), {"x": [1, None, 2, 3]}, 0.25, id="missing cells"),
        pytest.param(
            checks.rows(key="n"), {"n": [1, 1, 2, 3]}, 0.25, id="keys that are repeated"
        ),
    ],
)
def test_a_check_that_measures_says_how_far_it_is_off(check, candidate, off_by):
    findings = check(candidate, Context("task"))
    assert [item.off_by for item in findings] == [off_by]


def test_fewer_values_outside_are_better_and_of_as_many_the_nearer_ones():
    judge = checks.ranges(x=(0, 200))
    tables = ([300, 300, 1], [900, 1, 1], [260, 1, 1], [205, 1, 1])
    context = Context("task")
    distances = [judge({"x": table}, context)[0].off_by for table in tables]
    shares = [distance or 0.0 for distance in distances]
    assert shares == sorted(shares, reverse=True)
    assert len(set(distances)) == 4


async def test_the_nearest_of_several_candidates_is_that_of_the_attempt():
    result = await heedful.run(
        "Say it briefly.",
        generate=lambda task, hint: ["long " * 9, "long " * 6, "long " * 8],
        checks=[checks.words(at_most=5)],
        policy="attempts.limit=1",
        store=None,
    )
    assert result.candidate == "long " * 6


async def test_a_loop_goes_on_while_its_answers_get_nearer():
    lengths = iter((900, 410, 260, 205, 203, 240))
    result = await heedful.run(
        "Sum it up.",
        generate=lambda task, hint: "x" * next(lengths),
        checks=[checks.characters(at_most=200)],
        policy="reflection, attempts.limit=9",
        store=None,
    )
    assert result.best == 5
    assert len(result.loop.attempts) == 6


SAME = [
    pytest.param("failed at 10:15:02", "failed at 11:40:59", id="clock time"),
    pytest.param("[09:01] failed", "[09:02] failed", id="hours and minutes"),
    pytest.param(
        "at 2031-04-05T06:07:08Z: reset",
        "at 2031-05-06T07:08:09.123Z: reset",
        id="date",
    ),
    pytest.param("timed out after 30.02 s", "timed out after 29.9 s", id="duration"),
    pytest.param(
        "job 0b7e9a52-1f2d-4c3b-8a90-64d1f0a2b3c4 is gone",
        "job 1c8fab63-20de-4d4c-9ba1-75e201b3c4d5 is gone",
        id="UUID",
    ),
    pytest.param("commit 4fe2b19", "commit 90ac7d3", id="hexadecimal id"),
    pytest.param(
        "request req_9XkQ27bLm", "request req_3bTz81cRw", id="letters and digits"
    ),
    pytest.param("<Cart at 0x7f10a>", "<Cart at 0x55d3c>", id="address in memory"),
    pytest.param("10.1.2.3:5001 refused", "10.1.2.9:60312 refused", id="IP address"),
    pytest.param(
        "/tmp/tmpab_1x/out.csv", "/tmp/tmpq9rt0/out.csv", id="temporary folder"
    ),
    pytest.param(
        r"C:\Temp\tmpk2l3\out.csv", r"C:\Temp\tmpz8y7\out.csv", id="folder of Windows"
    ),
    pytest.param("/var/f/T/tmpa1b2c3d4", "/var/f/T/tmpz9y8x7w6", id="temporary file"),
]
OTHER = [
    pytest.param("cell 3 is empty", "cell 7 is empty", id="number"),
    pytest.param("12,088 rows", "9,086 rows", id="figure with separator"),
    pytest.param(
        "app.py:12:34: undefined", "app.py:14:20: undefined", id="line of a file"
    ),
    pytest.param("src/a.py fails", "src/b.py fails", id="path"),
    pytest.param("2031-04 is missing", "2031-05 is missing", id="month"),
    pytest.param("2031-04-05 is missing", "2031-05-06 is missing", id="date of a row"),
    pytest.param("needs 1.2.3", "needs 1.3.0", id="version"),
    pytest.param("no key 'alpha'", "no key 'beta'", id="name"),
    pytest.param("/tmp/work/a.py fails", "/tmp/work/b.py fails", id="file in a folder"),
]


@pytest.mark.parametrize(("first", "second"), SAME)
def test_the_same_error_with_another_particular_has_the_same_key(first, second):
    assert Finding("tests", first).key == Finding("tests", second).key


@pytest.mark.parametrize(("first", "second"), OTHER)
def test_another_error_has_another_key(first, second):
    assert Finding("tests", first).key != Finding("tests", second).key
