"""Two loops beside each other: how they ended, their answers, and who offers them."""

import re
from typing import Any

import pytest

import heedful
from heedful import Finding, Memory
from heedful.lessons.holdout import FIRST_LOOPS_WITHOUT_HOLDOUT
from heedful.lessons.lesson import Scope
from tests.service.support import Api, read_data
from tests.web.support import ATTACK, Browser, browsing, words_of

pytestmark = pytest.mark.both_nightly
USAGE = {"calls": 1, "prompt_tokens": 90, "completion_tokens": 10, "cost": 0.002}


@pytest.fixture
def browser(tmp_path):
    with browsing(tmp_path) as browser:
        yield browser.open(browser.api._all)


def grounded(answer: str) -> Finding | None:
    """Report a guess, under a name that is not that of this check."""
    if answer == "guess":
        return Finding("grounding", "no source", fix="name the source")
    return None


def record_loop(
    api: Api,
    name: str,
    outputs: list[str],
    *,
    task: str = "sort",
    key: str = "",
    passes: bool = False,
    usage: dict[str, Any] = USAGE,
) -> None:
    """Record a loop whose attempts have these outputs; the last one may pass."""
    body: dict[str, Any] = {"task": task, "policy": "default", "memory_key": key}
    read_data(api.put(f"/v1/loops/{name}", json=body), 201)
    for number, output in enumerate(outputs, 1):
        findings = [{"check": "pytest", "message": "wrong"}]
        if passes and number == len(outputs):
            findings = []
        body = {
            "output": output,
            "evaluation": {"findings": findings},
            "usage": usage,
        }
        read_data(api.put(f"/v1/loops/{name}/attempts/{number}", json=body))


def run_with_memory(
    browser: Browser, name: str, outputs: list[str], holdout: float = 0.0
) -> None:
    """Run a loop with a nameless check, whose memory a coin may withhold."""
    answers = iter(outputs)
    store = browser.api.setup.store
    loop = heedful.run(
        name,
        generate=lambda task, hint: next(answers),
        checks=[lambda answer, context: grounded(answer)],
        memory=Memory(store, Scope("acme", "main"), holdout=holdout),
        memory_key="sources",
        store=store,
        id=name,
    )
    browser.api.run(loop)


@pytest.mark.parametrize(
    ("passes", "sentence"),
    [
        pytest.param(
            (False, True),
            "The same task: only B passed. B took 2 attempts fewer and 200 tokens "
            "fewer.",
            id="one of them passed",
        ),
        pytest.param(
            (True, True),
            "The same task: both passed. B took 2 attempts fewer and 200 tokens fewer.",
            id="both passed",
        ),
        pytest.param(
            (False, False),
            "The same task: neither passed. B took 2 attempts fewer and 200 tokens "
            "fewer.",
            id="none passed",
        ),
    ],
)
def test_two_loops_are_compared_in_one_sentence(
    browser: Browser, passes: tuple[bool, bool], sentence: str
):
    record_loop(browser.api, "long", ["a", "b", "c", "d"], passes=passes[0])
    record_loop(browser.api, "short", ["a", "e"], passes=passes[1])
    path = "/loops/compare{}?a=long&b=short"
    assert browser.get(path.format(".json")).json()["sentence"] == sentence
    assert sentence in browser.get(path.format("")).text


def test_both_matrices_and_figures_are_on_the_page(browser: Browser):
    record_loop(browser.api, "one", ["a", "b"])
    record_loop(browser.api, "two", ["a"], task="other", passes=True)
    pair = browser.data("/loops/compare?a=one&b=two")
    assert [loop["matrix"]["columns"] for loop in pair["loops"]] == [[1, 2], [1]]
    rows = {row["name"]: row["values"] for row in pair["rows"]}
    assert rows["state"] == ["open", "passed"]
    assert rows["tokens"] == [200, 100]
    assert pair["sentence"].startswith("Different tasks: only B passed.")


def test_answers_and_checks_of_two_tasks_are_not_compared(browser: Browser):
    usage = {**USAGE, "seconds": 2.0}
    record_loop(browser.api, "one", ["a b c"], usage=usage)
    usage = {**USAGE, "seconds": 2.5}
    path = "/v1/loops/two"
    body: dict[str, Any] = {"task": "other", "policy": "default"}
    read_data(browser.api.put(path, json=body), 201)
    evaluation = {"findings": [{"check": "lint", "message": "x"}]}
    body = {"output": "a b d", "evaluation": evaluation, "usage": usage}
    read_data(browser.api.put(f"{path}/attempts/1", json=body))

    address = "/loops/compare?a=one&b=two"
    pair = browser.data(address)
    page = browser.get(address).text.partition('scope="row">answer<')[2]
    checks = [
        [row["name"] for row in loop["matrix"]["rows"] if row["about"] == "check"]
        for loop in pair["loops"]
    ]
    assert checks == [["pytest"], ["lint"]]
    assert pair["sentence"] == "Different tasks: neither passed."
    assert ">a b c</pre>" in page
    assert ">a b d</pre>" in page


@pytest.mark.parametrize(
    ("tasks", "keys", "sentence", "marked"),
    [
        pytest.param(
            ("add 2 to 40", "add 3 to 40"),
            ("", ""),
            "The same task with other numbers: neither passed.",
            "add 2 3 to 40",
            id="other numbers",
        ),
        pytest.param(
            ("sort the list", "sort the heap"),
            ("app.sort", "app.sort"),
            "The same memory key, another task: neither passed.",
            "sort the list heap",
            id="the same key",
        ),
        pytest.param(
            ("sort the list", "sort the heap"),
            ("app.sort", "app.other"),
            "Different tasks: neither passed.",
            "",
            id="nothing in common",
        ),
    ],
)
def test_what_two_tasks_have_in_common_is_said_and_marked(
    browser: Browser,
    tasks: tuple[str, str],
    keys: tuple[str, str],
    sentence: str,
    marked: str,
):
    record_loop(browser.api, "one", ["a"], task=tasks[0], key=keys[0])
    record_loop(browser.api, "two", ["a"], task=tasks[1], key=keys[1])
    pair = browser.data("/loops/compare?a=one&b=two")
    assert pair["sentence"].startswith(sentence)
    words = " ".join(part.strip() for _, _, part in pair["tasks"])
    assert words == marked


def test_how_two_tasks_differ_is_marked_where_a_table_cuts_them(browser: Browser):
    begin = 40 * "sort "
    for name, task in (("one", "list"), ("two", "heap")):
        record_loop(browser.api, name, ["a"], task=f"{begin}the {task}", key="sort")
    page = browser.get("/loops/compare?a=one&b=two").text
    marks = re.search(r'aria-label="what is other in the task of B">(.*?)</pre>', page)
    assert marks is not None
    assert words_of(marks[1]).endswith("the list heap")


def test_usage_that_was_not_recorded_is_not_said_to_be_0(browser: Browser):
    record_loop(browser.api, "one", ["a", "b"])
    record_loop(browser.api, "two", ["a"], passes=True, usage={"calls": 1})
    pair = browser.data("/loops/compare?a=one&b=two")
    rows = {row["name"]: row for row in pair["rows"]}

    assert pair["sentence"] == (
        "The same task: only B passed. Only A failed pytest. B took 1 attempt fewer."
    )
    assert rows["tokens"]["values"] == [200, None]
    assert rows["cost"]["values"][1] is None
    assert not rows["tokens"]["same"]
    page = browser.get("/loops/compare?a=one&b=two").text
    assert page.count("not reported") == 2


def test_answers_are_compared_by_line(browser: Browser):
    record_loop(browser.api, "one", ["worse", "a\nb"])
    record_loop(browser.api, "two", ["x", "a\nc"], passes=True)
    pair = browser.data("/loops/compare?a=one&b=two&a_attempt=2")
    assert [loop["attempt"] for loop in pair["loops"]] == [2, 2]
    assert pair["change"]["parts"] == [
        ["same", "", "a\n"],
        ["gone", "", "b"],
        ["new", "", "c"],
    ]

    other = browser.data("/loops/compare?a=one&b=two&a_attempt=2&b_attempt=1")
    assert [loop["attempt"] for loop in other["loops"]] == [2, 1]
    assert ["new", "", "x"] in other["change"]["parts"]


def test_checks_of_either_loop_are_rows_of_both(browser: Browser):
    record_loop(browser.api, "one", ["a", "b"])
    record_loop(browser.api, "two", ["a"], passes=True)
    pair = browser.data("/loops/compare?a=one&b=two")

    checks = [
        [
            cell["text"]
            for row in loop["matrix"]["rows"]
            if row["name"] == "pytest"
            for cell in row["cells"]
        ]
        for loop in pair["loops"]
    ]
    assert checks == [["✗", "✗"], ["✓"]]


def test_a_check_that_reports_under_another_name_has_one_row(browser: Browser):
    answers = {"one": "guess", "two": "source"}
    for name in answers:
        loop = heedful.run(
            name,
            generate=lambda task, hint: answers[task],
            checks=[grounded],
            store=browser.api.setup.store,
            scope=Scope("acme", "main"),
            id=name,
        )
        browser.api.run(loop)
    loops = browser.data("/loops/compare?a=one&b=two")["loops"]
    rows = [
        [row for row in loop["matrix"]["rows"] if row["about"] == "check"]
        for loop in loops
    ]
    # Each loop has the name of its own page.
    names = [[row["name"] for row in of_loop] for of_loop in rows]
    assert names == [["grounding"], ["grounded"]]
    assert rows[1][0]["cells"][0]["text"] == "✓"


def test_a_check_has_the_name_that_other_loops_of_its_key_report(browser: Browser):
    run_with_memory(browser, "one", ["guess", "source"])
    run_with_memory(browser, "two", ["source"])
    (attempt,) = browser.data("/loops/two")["made"]
    assert attempt["checked"] == ["grounding"]
    for page in ("/loops/two", "/loops/compare?a=one&b=two"):
        data = browser.data(page)
        grid = data["matrix"] if "matrix" in data else data["loops"][1]["matrix"]
        checks = [row for row in grid["rows"] if row["about"] == "check"]
        assert [row["name"] for row in checks] == ["grounding"]
        assert checks[0]["cells"][0]["text"] == "✓"


def test_memory_that_only_one_of_two_loops_was_shown_comes_first(browser: Browser):
    run_with_memory(browser, "teacher", ["guess", "source"])
    # No coin withholds anything from the first loops.
    for number in range(FIRST_LOOPS_WITHOUT_HOLDOUT):
        run_with_memory(browser, f"early {number}", ["source"])
    run_with_memory(browser, "withheld", ["source"], holdout=0.999)
    pair = browser.data("/loops/compare?a=withheld&b=early+0")
    differing = [row["name"] for row in pair["rows"] if not row["same"]]
    assert differing[0] == "memory"
    words = " B was shown memory, A was not (withheld at random). B took"
    assert words in pair["sentence"]
    # The reason is the same for each lesson: it is said once.
    for address in ("/loops/withheld", "/loops/compare?a=withheld&b=early+0"):
        page = words_of(browser.get(address).text)
        assert page.count("left out at random, to measure whether it helps") == 1
        assert "1 lesson withheld at random" in page


def test_a_lesson_that_one_loop_was_shown_and_the_other_broke_is_named(
    browser: Browser,
):
    run_with_memory(browser, "breaks it", ["guess", "source"])
    run_with_memory(browser, "shown", ["source"])
    address = "/loops/compare?a=breaks+it&b=shown"
    pair = browser.data(address)
    cause = " Only B was shown lesson 1 (no source. name the source); A broke it."
    assert cause in pair["sentence"]
    assert pair["only_shown"][0] == []
    assert [choice["lesson"] for choice in pair["only_shown"][1]] == [1]
    page = words_of(browser.get(address).text)
    assert re.search(
        "shown only here no lesson lesson 1 ?: no source. name the source", page
    )

    swapped = browser.data("/loops/compare?a=shown&b=breaks+it")
    cause = " Only A was shown lesson 1 (no source. name the source); B broke it."
    assert cause in swapped["sentence"]


def test_the_kept_one_of_equal_attempts_is_compared(browser: Browser):
    record_loop(browser.api, "one", ["a", "b", "c"], task="sort the list")
    record_loop(browser.api, "two", ["x"], passes=True)
    pair = browser.data("/loops/compare?a=one&b=two")
    page = words_of(browser.get("/loops/compare?a=one&b=two").text)

    assert pair["loops"][0]["tied"]
    assert "None is better than the others; attempt 1, the first, is kept." in page
    assert "answer of attempt 1 a x" in page
    assert [loop["attempt"] for loop in pair["loops"]] == [1, 1]
    assert "A sort the list " in page


def test_two_answers_stand_in_two_columns_each_with_its_own_changes(browser: Browser):
    begin = 30 * "sort "
    record_loop(browser.api, "one", [f"{begin}by name"])
    record_loop(browser.api, "two", [f"{begin}by date"], passes=True)
    page = browser.get("/loops/compare?a=one&b=two").text
    answers = page.partition('<div class="pair sides neutral">')[2]
    answers = answers.partition("</div>")[0]
    first, second = answers.split("</section>")[:2]

    assert "Attempt 1 of A" in first
    assert "<del" in first
    assert "<ins" not in first
    assert "Attempt 1 of B" in second
    assert "<ins" in second
    assert "<del" not in second


def test_equal_answers_are_said_to_be_equal(browser: Browser):
    record_loop(browser.api, "one", ["a"])
    record_loop(browser.api, "two", ["a"])
    page = browser.get("/loops/compare?a=one&b=two").text
    assert "The same answer, word for word." in page


def test_answers_that_are_too_long_are_not_called_equal(browser: Browser):
    record_loop(browser.api, "one", [70_000 * "y" + "1"])
    record_loop(browser.api, "two", [70_000 * "y" + "2"])
    change = browser.data("/loops/compare?a=one&b=two")["change"]
    assert change["same"] is False
    assert change["unread"] > 0
    page = browser.get("/loops/compare?a=one&b=two").text
    assert "which are not compared" in page


def test_a_loop_leads_to_others_of_its_task_and_then_of_its_key(browser: Browser):
    record_loop(browser.api, "key", ["a"], task="b", key="k")
    record_loop(browser.api, "one", ["a"], task="a", key="k")
    record_loop(browser.api, "task", ["a"], task="a", key="other")
    record_loop(browser.api, "stranger", ["a"], task="c")
    page = browser.data("/loops/one")
    assert [other["id"] for other in page["others"]] == ["task", "key"]
    assert "/ui/loops/compare?project=main&amp;a=one&amp;b=task" in (
        browser.get("/loops/one").text
    )
    offer = browser.data("/loops/compare?a=one")
    assert offer["others"] == page["others"]
    page_of_stranger = browser.get("/loops/stranger").text
    assert "/ui/loops/compare?project=main&amp;a=stranger" in page_of_stranger


def test_a_loop_leads_to_its_task_with_other_numbers_and_its_check_passed(
    browser: Browser,
):
    record_loop(browser.api, "key", ["a"], task="b", key="k")
    record_loop(browser.api, "check", ["a", "b"], task="c", passes=True)
    record_loop(browser.api, "numbers", ["a"], task="case 2 of a")
    record_loop(browser.api, "one", ["a"], task="case 1 of a", key="k")
    record_loop(browser.api, "failed too", ["a"], task="d")
    others = browser.data("/loops/one")["others"]
    assert [(other["id"], other["why"]) for other in others] == [
        ("numbers", "the same task with other numbers"),
        ("check", "pytest failed there, too"),
        ("key", "the same memory key"),
    ]
    page = words_of(browser.get("/loops/one").text)
    assert "passed, 2 attempts, pytest failed there, too" in page


def test_texts_of_two_loops_are_data(browser: Browser):
    record_loop(browser.api, "one", [ATTACK], task=ATTACK)
    record_loop(browser.api, "two", [f"{ATTACK} 2"], task=f"{ATTACK} 2")
    page = browser.get("/loops/compare?a=one&b=two").text
    assert "<script>alert" not in page
    assert "<img" not in page


@pytest.mark.parametrize(
    ("query", "status"),
    [
        pytest.param("", 200, id="no loop"),
        pytest.param("a=none&b=one", 404, id="a loop that is not there"),
        pytest.param("a=one&b=one&a_attempt=2", 422, id="an attempt not made"),
        pytest.param("a=one&b=one&a_attempt=x", 422, id="no number"),
    ],
)
def test_what_cannot_be_compared_is_refused(browser: Browser, query: str, status: int):
    record_loop(browser.api, "one", ["a"])
    assert browser.get(f"/loops/compare?{query}").status_code == status


def test_a_loop_without_attempts_can_be_compared(browser: Browser):
    record_loop(browser.api, "one", ["a"])
    record_loop(browser.api, "new", [])
    page = browser.get("/loops/compare?a=one&b=new").text
    assert "One of them has no stored answer." in page


def test_two_attempts_of_one_loop_lead_to_their_page(browser: Browser):
    record_loop(browser.api, "one", ["a", "b", "c"])
    address = "/loops/compare?a=one&b=one&a_attempt=1"
    page = browser.get(f"{address}&b_attempt=3&project=main")
    assert page.url.path == "/ui/loops/one"
    assert "against=1&attempt=3" in str(page.url)
    page = browser.get(f"{address}&b_attempt=1&project=main")
    assert page.url.path == "/ui/loops/one"
    assert "against" not in str(page.url)
