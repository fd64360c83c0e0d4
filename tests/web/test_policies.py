"""The page of policies: advice first, then the rules of each policy in plain words."""

from __future__ import annotations

import re
from html import escape, unescape

import pytest

import heedful
from heedful.lessons.lesson import Scope
from heedful.loop.policies import policy
from heedful.loop.sentence import describe_policy
from tests.service.support import read_data
from tests.web.support import Browser, browsing, words_of
from tests.web.test_pairs import record_loop

SOLVED_LOOPS = 20


@pytest.fixture
def browser(tmp_path):
    with browsing(tmp_path) as browser:
        for number in range(SOLVED_LOOPS):
            record_loop(browser.api, f"solved {number}", ["a"], passes=True)
        record_loop(browser.api, "lost", ["a", "b", "c", "d"])
        yield browser.open(browser.api._all)


@pytest.mark.both_nightly
def test_the_page_advises_what_loses_nothing_and_costs_less(browser: Browser):
    query = "?policy=default,+attempts.limit%3D2"
    data = browser.get(f"/policies.json{query}").json()
    page = words_of(browser.get(f"/policies{query}").text)

    advice = data["advice"]
    assert advice["policy"] == "default, attempts.limit=2"
    assert advice["sentence"].endswith(
        "loses no correct answer and costs 8 % less than recorded"
    )
    assert advice["sentence"] in page
    assert advice["trade"]["solved"] == SOLVED_LOOPS
    assert "It may still lose up to" in page
    assert data["rows"][1]["rules"][0] == "at most 2 attempts"
    # The table has the figure of the sentence.
    assert data["rows"][1]["trade"]["change"] == "8 % less"
    assert "8 % less 0 1" in page
    # Which loops, and how many of them differ, is in sight.
    assert "On the newest 21 loops, since " in page
    assert "correct answers lost, of 20 loops that differ" in page
    (changed,) = [row for row in data["rows"] if row["differing"]]
    totals = browser.data(f"/policies/loops?second={changed['notation']}")["totals"]
    assert totals["fewer"] == changed["differing"] == 1
    assert (
        f'href="{escape(changed["loops_of"])}"' in browser.get(f"/policies{query}").text
    )


def test_a_policy_of_which_the_record_cannot_tell_is_not_sure(browser: Browser):
    address = "/policies?policy=thorough%0Astage"
    recorded, thorough, stage = browser.data(address)["rows"]
    page = browser.get(address).text
    drawing = page.partition("</svg>")[0]

    assert recorded["dot"] == "dot"
    assert thorough["dot"] == "unsure"
    assert not thorough["front"]
    assert thorough["trade"]["loops"] == SOLVED_LOOPS
    assert stage["dot"] == "front"
    assert drawing.count('<circle class="unsure"') == 1
    assert "Not sure: some loops were recorded with fewer attempts" in page


def test_the_page_advises_no_policy_that_it_marks_as_not_sure(browser: Browser):
    record_loop(browser.api, "short", ["a"])
    cancel = {"why": "enough"}
    read_data(browser.api.post("/v1/loops/short/cancel", json=cancel))
    address = "/policies?policy=default,+attempts.limit%3D2"
    data = browser.data(address)
    page = words_of(browser.get(address).text)

    assert data["rows"][1]["dot"] == "unsure"
    assert data["advice"]["policy"] == ""
    assert "The record cannot tell whether default, attempts.limit=2 loses" in page
    assert "too short for 1 of 22 loops, and 1 more recorded under" in page


@pytest.mark.parametrize(
    ("policies", "bar"),
    [
        pytest.param("default", "plain", id="nothing is lost"),
        pytest.param("default,+attempts.limit%3D1", "warns", id="answers are lost"),
        pytest.param("thorough", "warns", id="not known"),
    ],
)
def test_the_bar_warns_only_of_answers_that_are_lost_or_not_known(
    browser: Browser, policies: str, bar: str
):
    record_loop(browser.api, "retried", ["a", "b"], passes=True)
    address = f"/policies?policy={policies}"
    assert not browser.data(address)["advice"]["policy"]
    assert f'<p class="answer {bar}">' in browser.get(address).text


def test_a_policy_that_is_not_sure_is_drawn_at_its_own_place(browser: Browser):
    page = browser.get("/policies?policy=thorough%0Astage").text
    drawing = page.partition("</svg>")[0]
    (thorough,) = re.findall(r'<circle class="unsure" cx="([^"]+)"', drawing)
    (recorded,) = re.findall(r'<circle class="dot" cx="([^"]+)"', drawing)
    assert thorough == recorded


def test_policies_that_are_alike_have_a_sentence_instead_of_a_drawing(browser: Browser):
    page = browser.get("/policies?policy=thorough").text
    assert "<circle" not in page
    assert "All alike: as far as the record tells" in page


def test_without_enough_loops_the_page_says_how_many_are_missing(tmp_path):
    with browsing(tmp_path) as browser:
        record_loop(browser.api, "solved", ["a"], passes=True)
        browser.open(browser.api._all)
        page = words_of(browser.get("/policies").text)

    assert "No advice yet: it needs 20 loops with a correct answer" in page


def test_a_loop_by_loop_comparison_counts_each_kind_of_change(browser: Browser):
    page = words_of(browser.get("/policies/loops?second=stage").text)
    assert "stage against what was recorded" in page
    assert "1 no worse, with fewer attempts" in page
    assert "20 no difference" in page
    assert "at most 3 attempts" in page


def test_a_cost_that_only_some_attempts_reported_says_of_how_many(browser: Browser):
    record_loop(browser.api, "free", ["a", "b", "c", "d"], usage={"calls": 1})
    sentence = browser.data("/policies/loops?second=stage")["sentence"]
    assert "takes 2 fewer attempts than recorded" in sentence
    assert "(cost known for 1 of 2: $0.0020 less)" in sentence


def test_a_record_that_ends_too_early_is_not_said_to_be_the_same(browser: Browser):
    query = "?first=default&second=thorough"
    sentence = "They do the same on 20 of the newest 21 loops: the record cannot tell"
    data = browser.data(f"/policies/loops{query}")
    page = words_of(browser.get(f"/policies/loops{query}").text)

    why = "it ends before thorough would stop; only loops recorded under it can tell"
    assert data["sentence"] == f"{sentence} for 1: {why}"
    assert data["totals"]["same"] == SOLVED_LOOPS
    assert data["totals"]["unknown"] == 1
    assert data["sentence"] in page
    assert "1 cannot tell" in page


@pytest.mark.parametrize(
    ("notation", "words"),
    [
        pytest.param("stage", ["at most 3 attempts"], id="attempts"),
        pytest.param(
            "reflection",
            [
                "at most 3 attempts",
                "after 1 attempt without improvement or below a severity of 0.3",
            ],
            id="plateau",
        ),
        pytest.param(
            "thorough",
            ["at most 5 attempts", "at the 2nd exactly repeated answer"],
            id="repeat",
        ),
        pytest.param(
            "orchestrator",
            [
                "at most 4 attempts",
                "at a fatigue of 0.5",
                "when a finding comes back in 3 attempts",
                "goal alignment >= 0.75",
                "goal drift <= 0.25",
            ],
            id="echo, fatigue and goals",
        ),
        pytest.param(
            "stage, budget.tokens=500, budget.cost=0.5",
            ["at most 3 attempts", "a budget of 500 tokens and 0.5 $"],
            id="budget",
        ),
        pytest.param(
            "stage, repeat.times=1",
            [
                "at most 3 attempts",
                "at the 1st repeated answer (the 2nd at temperature 0)",
            ],
            id="the limit of repeats that holds",
        ),
        pytest.param(
            "stage, repeat.times=11",
            ["at most 3 attempts", "at the 11th repeated answer"],
            id="ordinals",
        ),
    ],
)
def test_a_policy_is_said_in_plain_words(notation: str, words: list[str]):
    assert describe_policy(policy(notation)) == words


@pytest.mark.parametrize("name", ["stage", "reflection", "thorough", "orchestrator"])
def test_both_pages_have_the_same_figures_of_a_policy(browser: Browser, name: str):
    (_, row) = browser.data(f"/policies?policy={name}")["rows"]
    totals = browser.data(f"/policies/loops?second={name}")["totals"]

    assert totals["loses"] == row["trade"]["lost"]
    assert totals["unknown"] == row["loops"] - row["trade"]["loops"]
    trade = row["trade"]
    assert totals["attempts"] == trade["attempts"] - trade["recorded_attempts"]


def test_without_scores_for_the_goals_of_a_policy_nothing_is_said_to_be_lost(
    browser: Browser,
):
    address = "/policies/loops?second=orchestrator"
    data = browser.data(address)
    page = words_of(browser.get(address).text)

    assert data["sentence"] == (
        "The record cannot tell for 21 of 21 loops: no scores for its goals "
        "(alignment, drift) are recorded"
    )
    assert data["sentence"] in page
    assert [row["change"] for row in data["rows"]] == [None] * 21
    assert "loses" not in page


def test_loops_of_which_the_record_cannot_tell_are_listed(browser: Browser):
    rows = browser.data("/policies/loops?first=default&second=thorough")["rows"]
    assert [row["id"] for row in rows] == ["lost"]
    assert rows[0]["change"] is None


@pytest.mark.both_nightly
def test_without_a_choice_the_page_compares_policies_that_differ(browser: Browser):
    data = browser.data("/policies/loops")
    assert data["names"][0] == "as recorded"
    assert data["names"][1] in ("reflection", "stage")
    assert data["totals"]["fewer"] == 1


def test_what_the_record_cannot_tell_is_folded_below_what_it_can(browser: Browser):
    record_loop(browser.api, "gained", ["a", "b", "c", "d"], passes=True)
    address = "/policies/loops?first=stage&second=thorough"
    rows = browser.data(address)["rows"]
    page = browser.get(address).text
    before, _, folded = page.partition('<details id="unknown">')

    assert [row["id"] for row in rows] == ["gained", "lost"]
    assert "gained" in before
    assert "1 loop of which the record cannot tell" in folded


def test_policies_and_two_policies_leave_out_open_loops(browser: Browser):
    record_loop(browser.api, "open", ["a"])
    two = "/policies/loops?second=stage"
    data = browser.data(two)
    row = browser.data("/policies?policy=stage")["rows"][1]
    body = {"policies": ["stage"]}
    replayed = read_data(browser.api.post("/v1/replay", json=body))

    assert data["not_ended"] == 1
    assert data["loops"] == SOLVED_LOOPS + 1
    assert data["totals"]["unknown"] == 0
    assert row["loops"] == SOLVED_LOOPS + 1
    assert row["trade"]["loops"] == SOLVED_LOOPS + 1
    assert replayed["recorded"]["loops"] == SOLVED_LOOPS + 1
    for address in (two, "/policies"):
        page = words_of(browser.get(address).text)
        assert "1 open loop left out: it has not ended." in page


# -- loops that nothing judged

NOT_JUDGED = "2 loops not judged and left out"


@pytest.fixture
def unjudged(browser: Browser) -> Browser:
    """Add two loops without a check."""
    for name in ("silent", "quiet"):
        loop = heedful.run(
            name,
            generate=lambda task, hint: "a",
            store=browser.api.setup.store,
            scope=Scope("acme", "main"),
            id=name,
        )
        browser.api.run(loop)
    return browser


def test_policies_count_no_loop_that_nothing_judged(unjudged: Browser):
    address = "/policies?policy=stage"
    data = unjudged.data(address)
    page = words_of(unjudged.get(address).text)

    for row in data["rows"]:
        assert row["loops"] == SOLVED_LOOPS + 1
        assert row["trade"]["solved"] == SOLVED_LOOPS
    assert NOT_JUDGED in page


def test_two_policies_count_no_loop_that_nothing_judged(unjudged: Browser):
    address = "/policies/loops?second=stage"
    data = unjudged.data(address)
    page = words_of(unjudged.get(address).text)

    assert data["not_judged"] == 2
    assert data["totals"]["same"] == SOLVED_LOOPS
    assert NOT_JUDGED in page


def test_a_replay_over_http_counts_no_loop_that_nothing_judged(unjudged: Browser):
    body = {"policies": ["stage"]}
    answer = read_data(unjudged.api.post("/v1/replay", json=body))
    assert answer["recorded"]["loops"] == SOLVED_LOOPS + 1
    assert answer["recorded"]["solved"] == SOLVED_LOOPS


@pytest.mark.parametrize("path", ["/policies", "/policies/loops"])
def test_one_click_clears_the_filters_of_policies(browser: Browser, path: str):
    page = browser.get(f"{path}?second=stage&days=7&state=stopped").text
    (clear,) = re.findall(r'<a class="all" href="/ui([^"]+)"', page)
    cleared = browser.data(unescape(clear))

    assert cleared["filters"] == {"limit": "", "days": "", "state": "", "key": ""}
    assert "filters that hold" not in browser.get(unescape(clear)).text
    assert "second=stage" in clear
