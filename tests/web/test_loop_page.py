"""The page of a loop: what memory did stands on top, what is sure is folded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import heedful
from heedful import Finding
from heedful.lessons.lesson import Scope
from heedful.web.told import describe_memory, list_outcomes, split_lessons
from tests.service.support import read_data
from tests.web.support import Browser, browsing, words_of
from tests.web.test_pairs import record_loop


@pytest.fixture
def browser(tmp_path):
    with browsing(tmp_path) as browser:
        yield browser.open(browser.api._all)


def choice(
    outcome: str, number: int, lesson: int = 0, form: str = "rule"
) -> dict[str, Any]:
    """Return what a page has of one choice of memory."""
    return {"outcome": outcome, "n": number, "lesson": lesson, "form": form}


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [
        pytest.param([], "", id="nothing"),
        pytest.param([choice("closest", 1)], "", id="only known"),
        pytest.param([choice("told", 1, 2)], "It was shown lesson 2.", id="shown"),
        pytest.param(
            [choice("told", 1, 2), choice("told", 3, 5, "example")],
            "It was shown 1 rule and 3 examples of lessons 2 and 5.",
            id="two lessons",
        ),
        pytest.param(
            [choice("told", 3)], "It was shown 3 rules of memory.", id="no lesson"
        ),
        pytest.param(
            [choice("withheld", 3, 2), choice("withheld", 1, 4)],
            "Withheld at random: 4 rules of lessons 2 and 4.",
            id="withheld",
        ),
    ],
)
def test_what_memory_did_is_one_sentence(choices: list[dict[str, Any]], sentence: str):
    assert describe_memory(choices) == sentence


def test_each_lesson_of_the_sentence_about_memory_is_a_link():
    sentence = describe_memory([choice("told", 2, 2), choice("withheld", 3, 5)])
    several = describe_memory([choice("told", 1, 7), choice("told", 1, 9)])
    assert split_lessons(sentence)[1::2] == ["lesson 2", "lesson 5"]
    assert split_lessons(several)[1::2] == ["7", "9"]
    assert split_lessons("It was shown 3 rules of memory.")[1::2] == []


def test_outcomes_are_in_plain_words():
    choices = [choice("withheld", 1), choice("missed", 1), choice("closest", 1)]
    assert list_outcomes(choices) == "1 withheld at random, 2 known but not used"


def test_the_attempts_stand_before_the_side_column(browser: Browser):
    record_loop(browser.api, "one", ["a", "b"])
    page = browser.get("/loops/one").text
    assert page.index('id="attempt-1"') < page.index("<aside")


def test_a_passed_loop_folds_its_rules_and_does_not_say_that_it_passed(
    browser: Browser,
):
    record_loop(browser.api, "one", ["a"], passes=True)
    page = browser.get("/loops/one").text
    assert '<details id="why"><summary>How near each rule is' in page
    assert "It would have passed" not in page
    tried = browser.get("/loops/one?attempts.limit=3").text
    assert "It would have passed at attempt 1" in tried


@pytest.mark.parametrize(
    ("usage", "text"),
    [
        pytest.param({}, "1 attempt, usage not reported", id="nothing"),
        pytest.param({"calls": 2}, "2 calls, tokens not reported", id="calls"),
    ],
)
def test_usage_that_nobody_reported_is_not_0(browser: Browser, usage, text):
    record_loop(browser.api, "one", ["a"], passes=True, usage=usage)
    page = words_of(browser.get("/loops/one").text)
    assert text in page
    assert "0 calls" not in page
    assert "0 calls" not in words_of(browser.get("/spend").text)
    assert "0 calls" not in words_of(browser.get("/loops").text)


def no_vowel(output: Any, context: Any) -> Iterator[Finding]:
    if set(output) & set("aeiou"):
        yield Finding("vowels", "it has a vowel")


def short(output: Any, context: Any) -> list[Finding]:
    return []


@pytest.mark.both
def test_a_passing_attempt_names_the_checks_that_ran(browser: Browser):
    answers = iter(["a", "b"])
    api = browser.api
    run = heedful.run(
        "answer",
        generate=lambda task, hint: next(answers),
        checks=[no_vowel, short],
        store=api.setup.store,
        scope=Scope("acme", "main"),
    )
    loop = api.run(run).loop
    first, second = browser.data(f"/loops/{loop.id}")["made"]
    page = words_of(browser.get(f"/loops/{loop.id}").text)
    # Which of both checks reports as `vowels` is not known.
    assert first["checked"] == []
    assert second["checked"] == ["no_vowel", "short"]
    assert "✓ no_vowel passed ✓ short passed" in page
    assert "No finding" not in page


@pytest.mark.both
def test_a_check_has_the_name_in_its_findings(browser: Browser):
    record_loop(browser.api, "one", ["a", "b"], passes=True)
    page = words_of(browser.get("/loops/one").text)
    assert browser.data("/loops/one")["made"][1]["checked"] == ["pytest"]
    assert "✓ pytest passed" in page


@pytest.mark.both
def test_a_matrix_has_a_row_for_each_check_that_ran(browser: Browser):
    api = browser.api
    run = heedful.run(
        "answer",
        generate=lambda task, hint: "b",
        checks=[no_vowel, short],
        store=api.setup.store,
        scope=Scope("acme", "main"),
    )
    loop = browser.data(f"/loops/{api.run(run).loop.id}")
    rows = [row for row in loop["matrix"]["rows"] if row["about"] == "check"]
    assert [row["name"] for row in rows] == ["no_vowel", "short"]
    assert [row["cells"][0]["text"] for row in rows] == ["✓", "✓"]


def test_an_open_loop_says_what_would_stop_it(browser: Browser):
    record_loop(browser.api, "one", ["a"])
    page = words_of(browser.get("/loops/one").text)
    assert "What would stop it Stopped: a limit of 1 attempt instead of 4" in page
    assert "policy default" in page
    assert "1 line" not in page


def test_each_rule_has_one_row(browser: Browser):
    record_loop(browser.api, "one", ["a", "b"])
    readings = browser.data("/loops/one")["readings"]
    names = [reading["rule"] for reading in readings]
    assert names == ["attempts", "repeat", "repeat+nothing_met: repeat"]
    assert [rule["rule"] for rule in readings[2]["only_if"]] == ["nothing_met"]

    # Whether a check passed beside the failing one was not reported.
    page = words_of(browser.get("/loops/one").text)
    assert "nothing passed yet (not known: no report counts what passed; a ✓" in page


def test_what_was_masked_says_so_with_its_kind(browser: Browser):
    secret = "AKIAIOSFODNN7EXAMPLE"
    record_loop(browser.api, "one", [f"use {secret}"], task=f"call with {secret}")
    page = browser.get("/loops/one").text
    mark = (
        '<span class="masked" title="heedful masked this: aws key">'
        "[redacted: aws_key]</span>"
    )
    assert secret not in page
    assert f"<h1>call with {mark}</h1>" in page
    assert f"use {mark}</pre>" in page


def test_a_loop_that_passed_after_a_retry_says_what_failed_first(browser: Browser):
    record_loop(browser.api, "one", ["a", "b"], passes=True)
    page = words_of(browser.get("/loops/one").text)
    assert "Passed at attempt 2, after: wrong." in page


def test_the_best_of_equal_attempts_says_that_it_came_first(browser: Browser):
    path = "/v1/loops/equal"
    read_data(browser.api.put(path, json={"task": "sum", "policy": "default"}), 201)
    for number, checks in enumerate((["a", "b"], ["a"], ["c"]), 1):
        findings = [{"check": check, "message": "wrong"} for check in checks]
        attempt = {"output": str(number), "evaluation": {"findings": findings}}
        read_data(browser.api.put(f"{path}/attempts/{number}", json=attempt))

    page = words_of(browser.get("/loops/equal").text)
    assert "Attempt 2 is the best: attempt 3 is as good, and it came first." in page


def test_memory_is_led_by_the_words_of_a_lesson(browser: Browser):
    api = browser.api
    wrong = {"check": "unit", "message": "no unit", "fix": "name it"}
    for name in ("first", "second"):
        body = {"task": "weigh it", "memory_key": "weights"}
        read_data(api.put(f"/v1/loops/{name}", json=body), 201)
        read_data(api.post("/v1/recall", json={"task": "weigh it", "loop": name}))
        for number, findings in enumerate(([wrong], []), 1):
            report = {"output": f"{number} kg", "evaluation": {"findings": findings}}
            read_data(api.put(f"/v1/loops/{name}/attempts/{number}", json=report))

    choice, *_ = browser.data("/loops/second")["told"]
    page = browser.get("/loops/second").text
    assert choice["words"] == "name it"
    assert "name it" not in choice["said"]
    assert f'/lessons/{choice["lesson"]}?project=main">name it</a>' in page
