"""The page of a loop: what memory did stands on top, what is sure is folded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest

import heedful
from heedful import Finding, Pipeline
from heedful.lessons.lesson import Scope
from heedful.web.loop_memory import describe_memory
from tests.service.support import read_data
from tests.web.support import Browser, record_loop, words_of


def choice(
    outcome: str, number: int, lesson: int = 0, form: str = "rule"
) -> dict[str, Any]:
    """Return what a page has of one choice of memory."""
    row = {"outcome": outcome, "n": number, "lesson": lesson, "form": form}
    return {**row, "name": f"check/{lesson}", "obstacle": "it is old"}


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [
        pytest.param([], "", id="nothing"),
        pytest.param(
            [choice("told", 1, 2)], "It was shown 1 rule of lesson 2.", id="shown"
        ),
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
            "Known, but withheld at random: 4 rules of lessons 2 and 4.",
            id="withheld",
        ),
        pytest.param(
            [choice("told", 1, 7)],
            "It was shown 1 rule of lesson 7. The error of lesson 7 came again.",
            id="in vain",
        ),
        pytest.param(
            [choice("missed", 1, 7)],
            "It was not shown lesson 7: it is old.",
            id="missed",
        ),
    ],
)
def test_what_memory_did_is_one_sentence(choices: list[dict[str, Any]], sentence: str):
    assert describe_memory(choices, Counter({"check/7": 2})) == sentence


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
    assert "0 calls" not in words_of(browser.get("/loops").text)


def no_vowel(output: Any, context: Any) -> Iterator[Finding]:
    if set(output) & set("aeiou"):
        yield Finding("vowels", "it has a vowel")


def short(output: Any, context: Any) -> list[Finding]:
    return []


@pytest.mark.both_nightly
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
    first, second = browser.data(f"/loops/{loop.id}")["tried"]["attempts"]
    page = words_of(browser.get(f"/loops/{loop.id}").text)
    # Which of both checks reports as `vowels` is not known.
    assert [check["check_name"] for check in first["checks"]] == ["vowels"]
    assert [check["check_name"] for check in second["checks"]] == ["no_vowel", "short"]
    assert "✓ Passed: no_vowel, short" in page


def test_each_rule_that_may_be_suspended_has_its_own_reason(browser: Browser):
    read_data(browser.api.put("/v1/loops/one", json={"task": "sort"}), 201)
    wrong = {"findings": [{"check": "c", "message": "wrong"}], "met": 0.0}
    near = "the whole answer is on the staff list"
    outputs = (near, "b", near.replace("is ", ""), "b")
    for number, output in enumerate(outputs, 1):
        attempt = {"output": output, "evaluation": wrong}
        address = f"/v1/loops/one/attempts/{number}"
        read_data(browser.api.put(address, json=attempt))
    stops = browser.data("/loops/one")["latest"]["stopped_by"]
    assert {"repeat", "repeat+nothing_met"} <= {stop["rule"] for stop in stops}

    page = words_of(browser.get("/loops/one").text)
    verdict, _, form = page.partition("Let it go on")
    assert "no test or check has passed so far" in verdict
    assert "the answer repeats attempt 2 (a cycle of 2), the 2nd of 2" in verdict
    assert "all attempts made nothing passed yet repeated answer Decisions" in form


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


@pytest.mark.parametrize(
    ("failures", "said"),
    [
        pytest.param(
            ("form", "words"),
            "form failed in attempt 1 (wrong); words failed in attempt 2",
            id="two checks",
        ),
        pytest.param(
            ("form", "form"),
            "form failed in 2 of 3 attempts (wrong)",
            id="the same check twice",
        ),
    ],
)
def test_a_loop_that_passed_names_the_checks_that_failed_first(
    browser: Browser, failures: tuple[str, ...], said: str
):
    path = "/v1/loops/long"
    policy = {"attempts": {"limit": 9}}
    body = {"task": "sum", "policy": policy}
    read_data(browser.api.put(path, json=body), 201)
    for number, check in enumerate((*failures, ""), 1):
        finding = {"check": check, "message": "wrong"}
        attempt = {
            "output": f"answer {number}",
            "evaluation": {"findings": [finding] if check else []},
        }
        address = f"{path}/attempts/{number}"
        read_data(browser.api.put(address, json=attempt))
    assert browser.data("/loops/long")["failed"] == said
    sentence = f"Passed at attempt {len(failures) + 1}. Before, {said}."
    assert sentence in words_of(browser.get("/loops/long").text)


UNIT_FINDING = {"check": "unit", "message": "no unit", "fix": "name it"}


def report_weights(
    browser: Browser,
    name: str,
    outputs: list[str],
    task: str = "weigh it",
    finding: dict[str, str] = UNIT_FINDING,
) -> None:
    """Report a loop that was shown memory; only an answer with "kg" passes."""
    api = browser.api
    body = {"task": task, "memory_key": task}
    read_data(api.put(f"/v1/loops/{name}", json=body), 201)
    read_data(api.post("/v1/recall", json={"task": task, "loop": name}))
    for number, output in enumerate(outputs, 1):
        findings = [] if "kg" in output else [finding]
        report = {"output": output, "evaluation": {"findings": findings}}
        read_data(api.put(f"/v1/loops/{name}/attempts/{number}", json=report))


@pytest.fixture
def weighing(browser: Browser) -> Browser:
    """Add a loop that fixed its unit, and two that were shown its lesson."""
    report_weights(browser, "first", ["1", "1 kg"])
    report_weights(browser, "second", ["2", "2 kg"])
    report_weights(browser, "third", ["3", "30", "3", "3"])
    return browser


def edit_lesson(browser: Browser, id: int) -> None:
    """Give a lesson the words "write kg"."""
    lesson = browser.data(f"/lessons/{id}")["lesson"]
    form = {"id": str(id), "edition": lesson["edition"], "why": "plainer"}
    browser.do("amend", form, change="edit", text="write kg")


def check_words_then(browser: Browser, form: str, words: str) -> None:
    """Check that a loop's page keeps the words that it was shown after an edit."""
    before = browser.data("/loops/third")["told"]
    edit_lesson(browser, before[0]["lesson"])
    after = browser.data("/loops/third")["told"]
    page = words_of(browser.get("/loops/third").text)

    assert {choice["form"] for choice in after} == {form}
    assert {choice["reworded"] for choice in before} == {False}
    assert {choice["reworded"] for choice in after} == {True}
    assert all(words in choice["words"] for choice in after)
    assert "(reworded since)" in page


def test_memory_has_the_words_that_the_lesson_of_an_example_had(weighing: Browser):
    check_words_then(weighing, "example", "name it")


def test_the_sentence_on_top_names_attempts_that_repeat_others(weighing: Browser):
    data = weighing.data("/loops/third")
    page = words_of(weighing.get("/loops/third").text)
    assert data["repeats"] == "attempts 3 and 4 repeat attempt 1"
    assert f"{data['failed']}; {data['repeats']}." in page


# -- several rules stopped a loop


@pytest.fixture
def stopped_twice(browser: Browser) -> Browser:
    """Add a loop that two rules stopped at once."""
    record_loop(browser.api, "one", ["five", "5", "5", "5"])
    return browser


@pytest.mark.both_nightly
def test_several_rules_are_overridden_at_once(stopped_twice: Browser):
    note = stopped_twice.do(
        "override", id="one", rule="attempts,repeat", why="close", decisions="1"
    )
    loop = stopped_twice.data("/loops/one")

    assert note.startswith("attempts and repeat are suspended for 1 decision; the loop")
    assert loop["state"] == "open"
    assert [item["rule"] for item in loop["overrides"]] == ["attempts", "repeat"]


# -- what the prompt got


@pytest.mark.both_nightly
def test_the_page_has_the_whole_text_that_memory_put_into_the_prompt(weighing: Browser):
    prompt = weighing.data("/loops/third")["prompt"]
    page = weighing.get("/loops/third").text
    folded = page.partition('<details id="prompt">')[2].strip()
    answer = read_data(weighing.api.get("/v1/loops/third"))

    assert "--- accepted answer" in prompt
    assert "1 kg" in prompt
    assert answer["briefing"]["prompt"] == prompt
    assert re.match(r"<summary>What the prompt got, about \d+ tokens<", folded)
    assert prompt.splitlines()[0] in folded


# -- a limit that holds only while something else does


@pytest.mark.both_nightly
def test_the_page_names_the_check_that_raised(browser: Browser):
    reasons = ["a first one", "bad <b>date</b>"]

    def no_dates(answer: str) -> None:
        raise OSError(reasons[0])

    for _ in range(2):
        loop = heedful.run(
            "cite",
            generate=lambda task, hint: "1 May",
            checks=[no_dates],
            store=browser.api.setup.store,
            scope=Scope("acme", "main"),
            id="cite",
        )
        with pytest.raises(heedful.errors.CheckFailed):
            browser.api.run(loop)
        reasons.reverse()
    page = words_of(browser.get("/loops/cite").text)

    raised = "check 'no_dates' raised OSError: 'bad <b>date</b>'"
    assert f"Attempt 1 failed: {raised}" in page
    assert "a first one" not in page
    assert "fix the check and run again" in page
    assert "No attempt has been judged yet." in page
    assert raised in browser.data("/loops/cite")["sentence"]


def test_an_attempt_whose_answer_is_unknown_says_so_and_repeats_none(browser: Browser):
    def weigh(task: str, hint: str) -> str:
        raise ValueError(f"{len(hint)} kg")

    loop = heedful.run(
        "Weigh it.",
        generate=weigh,
        store=browser.api.setup.store,
        scope=Scope("acme", "main"),
        id="weigh",
        max_attempts=2,
    )
    browser.api.run(loop)
    page = words_of(browser.get("/loops/weigh").text)
    assert page.count("It has no text.") == 2
    assert "repeats 1" not in page


@pytest.mark.both_nightly
def test_a_stopped_loop_leads_to_one_of_its_key_that_passed(browser: Browser):
    wrong = ["a", "a", "a"]
    record_loop(browser.api, "failed", wrong, key="sorting")
    record_loop(browser.api, "alone", wrong, key="other")
    record_loop(browser.api, "no key", wrong)
    record_loop(browser.api, "passed", ["b"], passes=True, key="sorting")
    record_loop(browser.api, "unkeyed", ["b"], passes=True)

    page = browser.get("/loops/failed").text
    assert "Same key, passed: passed." in words_of(page)
    assert 'href="/ui/loops/passed?project=main"' in page
    for other in ("alone", "no key", "passed"):
        text = words_of(browser.get(f"/loops/{other}").text)
        assert "Same key" not in text


@pytest.mark.both_nightly
def test_a_stopped_loop_names_the_lesson_that_a_passed_one_was_told(weighing: Browser):
    api = weighing.api
    body = {"task": "weigh it", "memory_key": "weigh it"}
    read_data(api.put("/v1/loops/untold", json=body), 201)
    for number in (1, 2, 3):
        report = {"output": "9", "evaluation": {"findings": [UNIT_FINDING]}}
        read_data(api.put(f"/v1/loops/untold/attempts/{number}", json=report))
    same_key = weighing.data("/loops/untold")["same_key"]
    page = words_of(weighing.get("/loops/untold").text)
    assert same_key["id"] == "second"
    (lesson,) = same_key["lessons"]
    sentence = f"Same key, passed: second; this loop was not told lesson {lesson}."
    assert sentence in page


@pytest.mark.parametrize("path", ["/loops/failed", "/runs/{run}"])
def test_a_page_to_send_is_one_file_with_its_data(browser: Browser, path: str):
    record_loop(browser.api, "failed", ["a", "b", "b"])
    store = browser.api.setup.store
    pipeline = Pipeline("p", store=store, scope=Scope("acme", "main"), progress=False)
    pipeline.stage(name="load")(lambda state: {"a": 1})
    run = browser.api.run(pipeline.run({})).run
    path = path.format(run=run)
    id = path.rpartition("/")[2]
    assert (
        f'href="/ui/send/{id}?project=main" download="{id}.html"'
        in browser.get(path).text
    )
    page = browser.get(f"/send/{id}").text
    assert "<script" not in page
    assert "src=" not in page
    assert 'href="/' not in page
    assert "Attempt 1" in page
    assert "execution_time_ms" in unescape(page)
