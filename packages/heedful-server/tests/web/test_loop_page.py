"""The page of a loop: why it ended, what each attempt changed, and what memory did."""

import json
import re
from collections import Counter
from html import unescape
from typing import Any

import pytest

import heedful
from heedful import Finding, Pipeline, Rung
from heedful.lessons.lesson import Scope
from heedful.loop.codec import policy_to
from heedful.store import loops
from heedful.store.head import HEAD_DATA, HEAD_TEXTS, Head
from heedful.testing import ScriptedModel
from heedful.validation import MAX_SHOWN_ITEMS
from heedful_server.web.loop_memory import describe_memory
from tests.cli.support import Desk
from tests.service.support import read_data, record, right, wrong
from tests.tables import cases
from tests.web.support import ATTACK, SCOPE, USAGE, Browser, words_of

pytestmark = pytest.mark.both_nightly
UNIT = {"check": "unit", "message": "no unit", "fix": "name it"}
LINES = [f"line {number} of an answer: value {number * 7}" for number in range(1, 303)]
OLD = "\n".join(LINES)
NEW = OLD.replace("value 2114", "value 9999")


def read_page(browser: Browser, loop: str) -> str:
    """Return the words of the page of a loop."""
    return words_of(browser.get(f"/loops/{loop}").text)


def run(browser: Browser, id: str, **options: Any) -> None:
    """Run a loop in the store of the pages."""
    store = browser.api.setup.store
    browser.api.run(
        heedful.run("Weigh it.", id=id, store=store, scope=SCOPE, **options)
    )


# -- how it began


def test_the_page_shows_every_field_with_which_a_loop_began(browser: Browser):
    texts = {field: f"its {field}" for field in HEAD_TEXTS if field != "kind"}
    rules = policy_to(heedful.policies.default)
    head = Head(task="Weigh it.", policy=rules, **texts)  # type: ignore[arg-type]
    store = browser.api.setup.store
    browser.api.run(store.write(SCOPE, loops.begin, "texts", head))
    page = read_page(browser, "texts")
    for field, text in texts.items():
        assert f"· {field.replace('_', ' ')} {text}" in page

    assert HEAD_DATA == ["goals", "policy"]
    record(browser.api, "data", right("a"), goals=["mass >= 0.8"], policy="stage")
    page = read_page(browser, "data")
    assert "mass ≥ 0.8" in page
    assert "policy stage" in page


# -- why it ended


def test_a_page_and_its_data_open_with_the_same_sentence(browser: Browser):
    record(browser.api, "four", *map(wrong, "abcd"))
    data = browser.data("/loops/four")
    assert data["sentence"] == (
        "Stopped after attempt 4: all 4 attempts are made. One more attempt would need "
        "a limit of 5 attempts instead of 4."
    )
    assert data["failed"] == "unit failed in all 4 attempts (wrong)"
    page = read_page(browser, "four")
    assert f"Not solved: {data['failed']}. {data['sentence']}" in page
    answer = read_data(browser.api.get("/v1/loops/four/explain"))
    assert answer["sentence"] == data["sentence"]


@cases(
    ("failures", "said"),
    {
        "two checks": (
            ("form", "words"),
            "form failed in attempt 1 (wrong); words failed in attempt 2",
        ),
        "a check twice": (("form", "form"), "form failed in 2 of 3 attempts (wrong)"),
    },
)
def test_a_loop_that_passed_names_the_checks_that_failed_first(
    browser: Browser, failures: tuple[str, ...], said: str
):
    reports = [wrong(number, check) for number, check in enumerate(failures)]
    record(browser.api, "long", *reports, right("answer"))
    assert browser.data("/loops/long")["failed"] == said
    assert f"Passed at attempt 3. Before, {said}." in read_page(browser, "long")


def test_attempts_that_repeat_others_are_named_and_none_is_the_best(browser: Browser):
    record(browser.api, "same", *map(wrong, "abaa"))
    data = browser.data("/loops/same")
    page = read_page(browser, "same")
    assert data["repeats"] == "attempts 3 and 4 repeat attempt 1"
    assert f"{data['failed']}; {data['repeats']}." in page
    assert data["tied"]
    assert data["matrix"]["best"] is None
    assert page.count("repeats 1") == 2
    assert "None is better than the others." in page


def test_each_rule_that_may_be_suspended_has_its_own_reason(browser: Browser):
    near = "the whole answer is on the staff list"
    finding = {"findings": [{"check": "c", "message": "wrong"}], "met": 0.0}
    outputs = (near, "b", near.replace("is ", ""), "b")
    reports = ({"output": output, "evaluation": finding} for output in outputs)
    record(browser.api, "one", *reports)
    stops = browser.data("/loops/one")["latest"]["stopped_by"]
    assert {"repeat", "repeat+nothing_met"} <= {stop["rule"] for stop in stops}

    verdict, _, form = read_page(browser, "one").partition("Let it go on")
    assert "no test or check has passed so far" in verdict
    assert "the answer repeats attempt 2 (a cycle of 2), the 2nd of 2" in verdict
    assert "all attempts made nothing passed yet repeated answer Decisions" in form


def test_several_rules_are_overridden_at_once(browser: Browser):
    record(browser.api, "one", *map(wrong, ("five", "5", "5", "5")))
    lift = {"id": "one", "why": "close", "decisions": "1"}
    note = browser.do("override", lift, rule="attempts,repeat")
    assert note.startswith("attempts and repeat are suspended for 1 decision; the loop")
    loop = browser.data("/loops/one")
    assert loop["state"] == "open"
    assert [item["rule"] for item in loop["overrides"]] == ["attempts", "repeat"]
    override = r"Override of repeat by tests \(\w+\): close"
    assert re.search(override, read_page(browser, "one"))


@cases(
    ("usage", "text"),
    {
        "nothing": ({}, "1 attempt, usage not reported"),
        "calls": ({"calls": 2}, "2 calls, tokens not reported"),
    },
)
def test_usage_that_nobody_reported_is_not_0(browser: Browser, usage, text):
    record(browser.api, "one", right("a", usage=usage))
    page = read_page(browser, "one")
    assert text in page
    assert "0 calls" not in page


def test_what_was_masked_says_so_with_its_kind(browser: Browser):
    secret = "AKIAIOSFODNN7EXAMPLE"
    record(browser.api, "one", wrong(f"use {secret}"), task=f"call with {secret}")
    page = browser.get("/loops/one").text
    mark = (
        '<span class="masked" title="heedful masked this: aws key">'
        "[redacted: aws_key]</span>"
    )
    assert secret not in page
    assert f"<h1>call with {mark}</h1>" in page
    assert f"use {mark}</pre>" in page


def test_a_passing_attempt_names_the_checks_that_ran(browser: Browser):
    def no_vowel(output: str) -> Finding | None:
        return Finding("vowels", "it has a vowel") if "a" in output else None

    def short(output: str) -> None:
        """Find nothing."""

    answers = iter(["a", "b"])
    generate = lambda task, hint: next(answers)  # noqa: E731
    run(browser, "words", generate=generate, checks=[no_vowel, short])
    first, second = browser.data("/loops/words")["tried"]["attempts"]
    # Which of both checks reports as `vowels` is not known.
    assert [check["check_name"] for check in first["checks"]] == ["vowels"]
    assert [check["check_name"] for check in second["checks"]] == ["no_vowel", "short"]
    assert "✓ Passed: no_vowel, short" in read_page(browser, "words")


def test_an_attempt_says_what_was_wrong_with_its_other_candidates(browser: Browser):
    def short(output: str) -> str:
        return f"{output} is long" if len(output) > 1 else ""

    run(browser, "a", generate=lambda task: ["<b>", "c"], checks=[short])
    assert "best of 2 (others: <b> is long)" in read_page(browser, "a")


def test_the_page_names_the_check_that_raised(browser: Browser):
    def no_dates(answer: str) -> None:
        raise OSError("bad <b>date</b>")

    with pytest.raises(heedful.errors.CheckFailed):
        run(browser, "cite", generate=lambda task: "1 May", checks=[no_dates])
    page = read_page(browser, "cite")
    raised = "check 'no_dates' raised OSError: 'bad <b>date</b>'"
    assert f"Attempt 1 failed: {raised}" in page
    assert "fix the check and run again" in page
    assert raised in browser.data("/loops/cite")["sentence"]


def test_an_attempt_whose_answer_is_unknown_says_so_and_repeats_none(browser: Browser):
    def weigh(task: str, hint: str) -> str:
        raise ValueError(f"{len(hint)} kg")

    run(browser, "weigh", generate=weigh, max_attempts=2)
    page = read_page(browser, "weigh")
    assert page.count("It has no text.") == 2
    assert "repeats 1" not in page


def test_a_stopped_loop_leads_to_one_of_its_key_that_passed(browser: Browser):
    failures = [wrong("a")] * 3
    record(browser.api, "failed", *failures, memory_key="sorting")
    record(browser.api, "alone", *failures, memory_key="other")
    record(browser.api, "no key", *failures)
    record(browser.api, "passed", right("b"), memory_key="sorting", model="large")

    assert "memory key sorting · model large" in read_page(browser, "passed")
    assert "Same key, passed: passed." in read_page(browser, "failed")
    for other in ("alone", "no key", "passed"):
        assert "Same key" not in read_page(browser, other)


@pytest.mark.sqlite
def test_a_right_answer_is_given_once_on_the_page_or_by_command(
    browser: Browser, tmp_path
):
    record(browser.api, "wrong", *map(wrong, "abcd"), memory_key="sort")
    form = {"id": "wrong", "accepted": "a, b, c"}
    assert (
        browser.do("correct", form, why="x") == "The next loops are told this answer."
    )
    assert browser.do("correct", form, why="x") == "It is known already."
    assert [row["trust"] for row in browser.data("/lessons")["lessons"]] == ["user"]
    refused = {**form, "accepted": "a", "token": browser.token}
    assert browser.post("/do/correct", refused).status_code == 422

    record(browser.api, "other", *map(wrong, "abcd"), memory_key="other")
    scope = {"HEEDFUL_TENANT": "acme", "HEEDFUL_PROJECT": "main"}
    line = "loops correct other 'a, b, c' --by ann --json"
    for lessons in ([1], []):
        done = Desk(tmp_path).heedful(line, HEEDFUL_DB="heedful.db", **scope)
        assert done.json["lessons"] == lessons


@pytest.mark.parametrize("path", ["/loops/failed", "/runs/{run}"])
def test_a_page_to_send_is_one_file_with_its_data(browser: Browser, path: str):
    record(browser.api, "failed", *map(wrong, "abb"))
    store = browser.api.setup.store
    pipeline = Pipeline("p", store=store, scope=SCOPE, progress=False)
    pipeline.stage(name="load")(lambda state: {"a": 1})
    path = path.format(run=browser.api.run(pipeline.run({})).run)
    id = path.rpartition("/")[2]
    link = f'href="/ui/send/{id}?project=main" download="{id}.html"'
    assert link in browser.get(path).text
    page = browser.get(f"/send/{id}").text
    for foreign in ("<script", "src=", 'href="/'):
        assert foreign not in page
    assert "Attempt 1" in page
    assert "execution_time_ms" in unescape(page)
    is_open = id == "failed"
    assert ('"ended": null' in unescape(page)) is is_open


# -- the matrix of attempts


def row_texts(data: dict[str, Any], about: str) -> list[str]:
    """Return the texts of the first row of a matrix that is about something."""
    rows = (row for row in data["matrix"]["rows"] if row["about"] == about)
    return [cell.get("text", "") for cell in next(rows)["cells"]]


def test_a_matrix_has_a_row_for_each_goal_and_check(browser: Browser):
    reports = []
    for number, output in enumerate(("it is P1", "it is P2", "new\nit is P2"), 1):
        report = wrong(output, "pytest", ATTACK, usage=USAGE)
        report["evaluation"]["scores"] = {"quality": 0.1 * number}
        reports.append(report)
    record(browser.api, "loop", *reports, goals=["quality >= 0.8"])
    data = browser.data("/loops/loop")
    matrix = data["matrix"]
    assert matrix["columns"] == [1, 2, 3]
    names = [row["name"] for row in matrix["rows"]]
    assert names == ["quality ≥ 0.8", "pytest", ATTACK, "answer", "decision"]
    assert row_texts(data, "check") == ["0.1 ✗", "0.2 ✗", "0.3 ✗"]
    assert row_texts(data, "change") == ["begins", "changed", "changed"]
    assert row_texts(data, "decision") == ["again", "again", "again"]
    (changes,) = (row["cells"] for row in matrix["rows"] if row["about"] == "change")
    assert changes[0]["new"] == "it is P1"
    assert changes[1]["gone"] == "P1"
    assert changes[1]["new"] == "P2"
    assert "<script>alert" not in browser.get("/loops/loop").text


def test_a_mark_that_a_check_passed_stands_only_where_somebody_recorded_it(
    browser: Browser,
):
    record(browser.api, "one", wrong("1", "facts", "tone"), wrong("2", "facts"))
    failed: dict[str, Any] = dict(wrong("1", "span"))
    failed["evaluation"]["met"] = 0
    passed = {"output": "2", "evaluation": {"met": 1}}
    record(browser.api, "two", failed, passed, policy="thorough")
    expected: dict[str, Any] = {
        "one": {"facts": ["✗", "✗"], "tone": ["✗", ""]},
        "two": {"span": "✗✓"},
    }
    for loop, marks in expected.items():
        rows = browser.data(f"/loops/{loop}")["matrix"]["rows"]
        for row in rows:
            if row["about"] == "check":
                cells = [cell.get("text", "") for cell in row["cells"]]
                assert cells == list(marks[row["name"]])


def test_checks_beyond_the_rows_of_a_matrix_are_counted(browser: Browser):
    checks = [f"check {n}" for n in range(MAX_SHOWN_ITEMS + 3)]
    record(browser.api, "loop", wrong("a", *checks), wrong("b", *checks))
    assert browser.data("/loops/loop")["matrix"]["unshown"] == 3
    assert "3 more checks below" in browser.get("/loops/loop").text


def test_a_loop_without_attempts_shows_its_goals_and_no_matrix(browser: Browser):
    record(browser.api, "new", goals=["quality >= 0.8"])
    data = browser.data("/loops/new")
    assert data["sentence"] == "Open: no attempt has been judged yet."
    assert data["matrix"]["columns"] == []
    assert "Goals: quality ≥ 0.8" in browser.get("/loops/new").text


LONG_LOOP_ATTEMPTS = 10_000


def fill_long_loop(db: Any, scope: Scope, name: str, best: int) -> None:
    """Write a stopped loop of `LONG_LOOP_ATTEMPTS` attempts into its tables."""
    (row,) = db.select("n", "loop", {"tenant": scope.tenant, "id": name})
    figures = {"count": LONG_LOOP_ATTEMPTS, "limit": LONG_LOOP_ATTEMPTS}
    stop = {"rule": "attempts", "figures": figures}
    end = {"verdict": "done", "best": best, "passed": False, "stopped_by": [stop]}
    for number in range(1, LONG_LOOP_ATTEMPTS + 1):
        record = {"number": number, "candidate": {"digest": f"d{number}"}}
        record["evaluation"] = {"findings": [{"check": "pytest", "message": "wrong"}]}
        values = {
            "n": row["n"],
            "number": number,
            "record": json.dumps(record),
            "value": json.dumps(f"answer {number}"),
        }
        db.execute(
            "insert into attempt (loop, number, record, text, value, created) "
            "values (:n, :number, :record, '', :value, 1)",
            values,
        )
    db.execute(
        "insert into decision (loop, seq, attempt, record, created) "
        "values (:n, 1, :number, :record, 1)",
        {"n": row["n"], "number": LONG_LOOP_ATTEMPTS, "record": json.dumps(end)},
    )
    db.execute("update loop set state = 'stopped' where n = :n", {"n": row["n"]})


def test_a_matrix_of_a_long_loop_has_the_first_the_best_and_the_last(browser: Browser):
    record(browser.api, "long")
    store = browser.api.setup.store
    browser.api.run(store.write(SCOPE, fill_long_loop, "long", 7))

    data = browser.data("/loops/long")
    last = range(LONG_LOOP_ATTEMPTS - MAX_SHOWN_ITEMS + 1, LONG_LOOP_ATTEMPTS + 1)
    assert data["matrix"]["columns"] == [1, 7, *last]
    # What stood before attempt 7 and before the last ones is not on the page.
    assert row_texts(data, "change") == ["begins", "", "", *9 * ["changed"]]
    assert "from=9981" in browser.get("/loops/long").text
    earlier = browser.data("/loops/long?from=20")["matrix"]["columns"]
    assert earlier == [1, 7, *range(20, 30)]


# -- what each attempt changed


def attempt_of(browser: Browser, number: int) -> str:
    """Return the HTML of an attempt on the page of the loop `changes`."""
    page = browser.get("/loops/changes").text
    begin = page.index(f'id="attempt-{number}"')
    end = page.find(f'id="attempt-{number + 1}"', begin)
    return page[begin : end if end > 0 else page.index("<aside", begin)]


def test_what_changed_is_marked_and_what_is_unchanged_is_folded(browser: Browser):
    place = OLD.index("value 700")
    fault = {"check": "high", "message": "too high", "span": [place, place + 9]}
    reports = wrong(OLD), wrong(NEW, fault)
    record(browser.api, "changes", *reports)
    second = attempt_of(browser, 2)
    assert re.findall("<del>(.*?)</del>", second) == ["2114"]
    assert re.findall("<ins>(.*?)</ins>", second) == ["9999"]
    assert "line 301 of an answer" in second
    assert "line 5 of an answer" not in second
    # The place of a fault is not folded.
    assert "high: too high" in second
    assert "value 700</mark>" in second


def test_an_answer_that_is_repeated_is_one_line(browser: Browser):
    record(browser.api, "changes", *map(wrong, ("one P1", "one P2", "one P1")))
    third = attempt_of(browser, 3)
    assert "The same answer as" in third
    assert 'href="#attempt-1"' in third
    assert "output of attempt 3" not in third


@cases(
    ("old", "new", "words"),
    {
        "many lines": (
            "\n".join(f"{number} {number % 7}" for number in range(6_000)),
            "\n".join(f"{number} {number % 5}" for number in range(6_000)),
            "too many to compare; the old ones stand first",
        ),
        "a change in what is not read": (
            "x" * 1_000_000,
            "x" * 999_999 + "y",
            "(digest ",
        ),
    },
)
def test_a_bound_of_the_comparison_is_said(browser, old: str, new: str, words: str):
    record(browser.api, "changes", wrong(old), wrong(new))
    second = attempt_of(browser, 2)
    assert words in second
    assert len(second) < 200_000


# -- several generators


def test_a_loop_shows_who_made_each_attempt_and_why_it_climbed(browser: Browser):
    reports = [
        wrong("a", usage={"calls": 1, "prompt_tokens": 10, "cost": 0.25}),
        right("b", usage={"calls": 1, "prompt_tokens": 10, "cost": 0.5}),
    ]
    head: Any = {"policy": "default, attempts.limit=1", "rungs": ["small", "large"]}
    record(browser.api, "climbed", *reports, **head)
    page = browser.get("/loops/climbed").text
    data = browser.data("/loops/climbed")
    for words in ("rung 1 (small)", "rung 2 (large)", "to rung 2"):
        assert words in page
    assert [attempt["rung"] for attempt in data["tried"]["attempts"]] == [1, 2]
    assert [rung["cost"] for rung in data["rungs"]] == [0.25, 0.5]
    [row] = browser.data("/loops")["loops"]
    [item] = read_data(browser.api.get("/v1/loops"))["items"]
    assert row["rung"] == item["rung"] == "rung 2 (large)"
    assert row["cost"] == item["cost"] == 0.75


def test_a_loop_says_which_rung_has_spent_its_limit(browser: Browser):
    limited = Rung(ScriptedModel("wrong", "wrong"), "small", calls=1)
    for id in ("first", "ended"):
        checks = [lambda candidate: "not right"]
        policy = "default, attempts.limit=1"
        run(browser, id, generate=limited, checks=checks, policy=policy)
    [sentence] = browser.data("/loops/ended")["closed"]
    assert sentence.startswith("rung 1 (small): 1 of 1 calls spent, the limit of")
    assert f"Closed: {sentence}." in browser.get("/loops/ended").text
    assert "Closed:" not in browser.get("/loops/first").text
    explained = read_data(browser.api.get("/v1/loops/ended/explain"))
    assert explained["closed"] == [sentence]


# -- what memory did


def choice(
    outcome: str, number: int, lesson: int = 0, form: str = "rule"
) -> dict[str, Any]:
    """Return what a page has of one choice of memory."""
    row = {"outcome": outcome, "n": number, "lesson": lesson, "form": form}
    return {**row, "name": f"check/{lesson}", "reason": "it is old"}


@cases(
    ("choices", "sentence"),
    {
        "nothing": ([], ""),
        "only known": ([choice("closest", 1)], ""),
        "two lessons": (
            [choice("told", 1, 2), choice("told", 3, 5, "example")],
            "It was shown 1 rule and 3 examples of lessons 2 and 5.",
        ),
        "no lesson": ([choice("told", 3)], "It was shown 3 rules of memory."),
        "withheld": (
            [choice("withheld", 3, 2), choice("withheld", 1, 4)],
            "Known, but withheld at random: 4 rules of lessons 2 and 4.",
        ),
        "in vain": (
            [choice("told", 1, 7)],
            "It was shown 1 rule of lesson 7. The error of lesson 7 came again.",
        ),
        "missed": ([choice("missed", 1, 7)], "It was not shown lesson 7: it is old."),
    },
)
def test_what_memory_did_is_one_sentence(choices: list[dict[str, Any]], sentence: str):
    assert describe_memory(choices, Counter({"check/7": 2})) == sentence


@pytest.fixture
def weighing(browser: Browser) -> Browser:
    """Add a loop that fixed its unit, and two that were shown its lesson."""
    for name, outputs in (
        ("first", ["1"]),
        ("second", ["2"]),
        ("third", ["3", "30", "3", "3"]),
    ):
        api = browser.api
        head = {"task": "weigh it", "memory_key": "scales"}
        record(api, name, **head)
        read_data(api.post("/v1/recall", json={"task": "weigh it", "loop": name}))
        reports = [wrong(output, UNIT) for output in outputs]
        if name != "third":
            reports.append(right(f"{outputs[0]} kg"))
        for number, report in enumerate(reports, 1):
            read_data(api.put(f"/v1/loops/{name}/attempts/{number}", json=report))
    return browser


def test_the_page_has_the_whole_text_that_memory_put_into_the_prompt(weighing: Browser):
    data = weighing.data("/loops/third")
    page = weighing.get("/loops/third").text
    folded = page.partition('<details id="prompt">')[2].strip()
    answer = read_data(weighing.api.get("/v1/loops/third"))
    assert "--- accepted answer" in data["prompt"]
    assert "1 kg" in data["prompt"]
    assert answer["briefing"]["prompt"] == data["prompt"]
    assert re.match(r"<summary>What the prompt got, about \d+ tokens<", folded)
    lesson = data["told"][0]["lesson"]
    assert f"The error of lesson {lesson} came again." in words_of(page)


def test_a_page_keeps_the_words_that_a_loop_was_shown_after_an_edit(weighing: Browser):
    (before, *_) = weighing.data("/loops/third")["told"]
    id = before["lesson"]
    edition = weighing.data(f"/lessons/{id}")["lesson"]["edition"]
    form = {"id": str(id), "edition": edition, "why": "plainer"}
    weighing.do("amend", form, change="edit", text="write kg")
    (after, *_) = weighing.data("/loops/third")["told"]
    assert before["reworded"] is False
    assert after["reworded"] is True
    assert "name it" in after["words"]
    assert "(reworded since)" in read_page(weighing, "third")


def test_a_stopped_loop_names_the_lesson_that_a_passed_one_was_told(weighing: Browser):
    reports = [wrong("9", UNIT)] * 3
    record(weighing.api, "untold", *reports, task="weigh it", memory_key="scales")
    same_key = weighing.data("/loops/untold")["same_key"]
    assert same_key["id"] == "second"
    (lesson,) = same_key["lessons"]
    sentence = f"Same key, passed: second; this loop was not told lesson {lesson}."
    assert sentence in read_page(weighing, "untold")
