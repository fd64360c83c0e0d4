"""Runs of pipelines and traces of agents: where they failed, and what they taught."""

import re
from typing import Any

import pytest

import heedful
from heedful import Episode, Event, Finding, Memory, Pipeline, reflect
from heedful.lessons import render
from heedful.lessons.mistake import Fix, Mistake
from heedful.memory.sessions import learn_session
from heedful.pages.run_report import lasted
from heedful_server.web import work
from heedful_server.web.steps import steps_of
from tests.engines import change_rows
from tests.episodes.runs import ROOT, document, span
from tests.service.support import read_data
from tests.tables import cases
from tests.web.support import ATTACK, SCOPE, Browser, words_of

pytestmark = pytest.mark.both_nightly


def pipeline_of(browser: Browser, name: str = "load") -> Pipeline:
    store = browser.api.setup.store
    return Pipeline(name, store=store, scope=SCOPE, progress=False)


def test_the_loop_of_a_run_is_the_page_of_the_run(browser):
    pipeline = pipeline_of(browser)
    pipeline.stage(name="first")(lambda state: {"a": 1})
    run = browser.api.run(pipeline.run({})).run
    answer = browser.get(f"/loops/{run}")
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/ui/runs/{run}?project=main"
    assert browser.data(f"/loops/{run}") == browser.data(f"/runs/{run}")
    assert browser.get(f"/loops/{run}/first").status_code == 200

    (row,) = browser.data("/work")["pipelines"]
    assert row["state"] == "passed"
    assert row["status"] == "quiet"
    page = words_of(browser.get(f"/runs/{run}").text)
    assert "No check judged this run: its 1 stage went through unchecked." in page


def test_a_run_whose_stage_raised_is_failed_with_its_error(browser):
    pipeline = pipeline_of(browser)

    @pipeline.stage
    def fetch(state):
        raise ConnectionError("the host is gone")

    with pytest.raises(heedful.errors.StageFailed):
        browser.api.run(pipeline.run({}, id="night"))

    (row,) = browser.data("/work")["pipelines"]
    assert row["state"] == "failed"
    assert row["where"] == "fetch"
    assert row["finding"].startswith("ConnectionError: 'the host is gone'")
    page = words_of(browser.get("/runs/night").text)
    assert "Failed: fetch raised ConnectionError: 'the host is gone'" in page
    (stage,) = browser.data("/loops?text=fetch")["loops"]
    assert stage["state"] == "failed"
    assert "the host is gone" in stage["finding"]


def count_rows(state: dict[str, int]) -> list[Finding]:
    """Find that there are too few rows."""
    return [Finding("rows", f"only {state['rows']} rows")]


def test_a_run_says_where_and_why_it_failed_and_how_long_it_took(browser):
    pipeline = pipeline_of(browser)
    pipeline.stage(name="first", checks=[count_rows])(lambda state: {"rows": 7})
    report = browser.api.run(pipeline.run({}))
    (run,) = browser.data("/work")["pipelines"]
    page = words_of(browser.get("/work").text)
    assert run["state"] == report.status
    assert run["number"] == len(report.stages[0].attempts)
    assert run["where"] == "first"
    assert run["finding"] == "rows: only 7 rows"
    assert run["finding"] in page
    assert "1 run of a pipeline: degraded." in page
    total = lasted(1000 * run["seconds"])
    assert total in page
    assert total in words_of(browser.get(f"/runs/{run['id']}").text)


def test_runs_are_searched_and_go_on(browser, monkeypatch):
    for name in ("mail", "load"):
        pipeline = pipeline_of(browser, name)
        pipeline.stage(name="read")(lambda state: {"a": 1})
        browser.api.run(pipeline.run({}))
    runs = browser.data("/work")["pipelines"]
    assert [run["words"] for run in runs] == ["load", "mail"]
    (run,) = browser.data("/work?text=MAIL")["pipelines"]
    assert run["words"] == "mail"
    assert "No run fits." in words_of(browser.get("/work?text=zzz").text)

    monkeypatch.setattr(work, "MAX_SHOWN_ROWS", 1)
    table = browser.data("/work")["tables"][0]
    (older,) = browser.data(table["older"].removeprefix("/ui"))["pipelines"]
    assert older["words"] == "mail"


# -- steps of a trace


def call(tool: str, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_call", "tool": tool, "arguments": {"x": 1}, **fields}


def response(tool: str, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_response", "tool": tool, "content": "done", **fields}


PARALLEL = [
    call("a", call="1"),
    call("b", call="2"),
    response("b", call="2"),
    response("a", call="1"),
]
ANSWER = [{"type": "llm_call"}, {"type": "llm_response", "content": "hi"}]


@cases(
    ("events", "numbers"),
    {
        "a response after its call": ([call("sh"), response("sh")], [[1, 2]]),
        "two calls at a time, by their ids": (PARALLEL, [[1, 4], [2, 3]]),
        "a response of another tool": ([call("a"), response("b")], [[1], [2]]),
        "a second response": ([call("a"), response("a"), response("a")], [[1, 2], [3]]),
        "a model's answer": (ANSWER, [[1, 2]]),
        "no event": ([], []),
    },
)
def test_a_response_is_in_the_step_of_its_call(
    events: list[dict[str, Any]], numbers: list[list[int]]
):
    assert [step["numbers"] for step in steps_of(events)] == numbers


def test_a_step_has_its_time_and_fails_with_its_response_or_is_suspect_by_a_sign():
    events = [call("a", at=100.0), response("a", at=102.0, error="no"), call("b")]
    first, second = steps_of(events, suspects=[3])
    assert first["seconds"] == 2
    assert second["seconds"] is None
    assert first["failed"]
    assert not first["suspect"]
    assert second["suspect"]
    assert not second["failed"]


def send(browser: Browser, *events: Any, **fields: Any) -> None:
    body = {"events": list(events), "outcome": "error", **fields}
    read_data(browser.api.post("/v1/episodes", json=body), 202)


def test_failures_of_a_trace_are_open_and_other_steps_are_folded(browser):
    failed = response("write", error=ATTACK, content=ATTACK)
    send(
        browser,
        *(call("read"), response("read")),
        *(call("write", arguments=ATTACK), failed),
    )
    episode = browser.data("/work")["agents"][0]
    assert episode["where"] == "step 2 write"
    assert episode["finding"] == ATTACK[:200]
    facts = browser.data(f"/traces/{episode['id']}")
    assert [step["numbers"] for step in facts["steps"]] == [[1, 2], [3, 4]]
    assert facts["failed"] == 1
    ended = "The run failed after 2 steps; step 2, write, failed: "
    assert facts["sentence"].startswith(ended)

    page = browser.get(f"/traces/{episode['id']}").text
    folded, opened = page.split("<details")[1:3]
    assert " open>" not in folded.partition("<summary")[0]
    assert " open>" in opened.partition("<summary")[0]
    assert "<script>alert" not in page
    assert '<a href="#t2">step 2</a>' in page


@cases(
    ("later", "words"),
    {
        "it worked later": ("sh", "step 1 sh, then recovered"),
        "it did not": ("ls", "step 1 sh"),
    },
)
def test_a_run_recovered_only_if_what_failed_worked_later(browser, later, words):
    failed = response("sh", error="no")
    send(browser, call("sh"), failed, call(later), response(later), outcome="success")
    [row] = browser.data("/work")["agents"]
    assert words in words_of(browser.get("/work").text)
    # What ended with a failed step is not marked as right.
    assert (row["status"] == "passed") == (later == "sh")


# -- what a trace taught


def change_episode(browser: Browser, change: str) -> str:
    """Change what is stored of the only episode; return the words of its page."""
    change_rows(browser.api.setup.store.url, f"update episode set {change}")
    (row,) = browser.data("/work")["agents"]
    return words_of(browser.get(f"/traces/{row['id']}").text)


@cases(
    ("error", "cure"),
    {
        "no model": (
            "ModelUnavailable: no model answers",
            "Next: set a model if none is set, then heedful worker --once",
        ),
        "another error": ("away: secret words", "Next: heedful worker --once"),
    },
)
def test_a_trace_has_the_command_that_reflects_again(browser, error: str, cure: str):
    send(browser, response("sh", error="x"), id="a")
    page = change_episode(browser, f"state = 'failed', error = '{error}'")
    assert cure in page
    assert f"its reflection: {error}" in words_of(browser.get("/work").text)
    browser.open(browser.api.key("recall"))
    assert error.partition(":")[2] not in browser.get("/home").text


@cases(
    ("change", "why"),
    {
        "its record says why": (
            "error = 'the words left out the cause'",
            "It taught no lesson: the words left out the cause.",
        ),
        "revoked": (
            "name = '', record = '{}'",
            "Its lessons are gone: their source was revoked.",
        ),
        "removed": (
            "tries = 1",
            "No lesson is stored: it taught none, or they are gone since.",
        ),
    },
)
def test_a_trace_that_taught_nothing_says_why(browser, change: str, why: str):
    send(browser, response("sh", error="x"), id="a")
    assert why in change_episode(browser, f"state = 'reflected', {change}")


def test_what_failed_stands_above_the_list_with_what_put_it_right(browser):
    events = (
        Event("tool_call", tool="find", arguments={"order": "A17"}),
        Event("tool_response", tool="find", error="no order A17; an id has a dash"),
        Event("tool_call", tool="find", arguments={"order": "A-17"}),
        Event("tool_response", "left on Monday", tool="find"),
    )
    memory = Memory(browser.api.setup.store, SCOPE)
    for task in ("Where is A17?", "Where is my order A17?"):
        run = Episode(events, "success", task=task)
        browser.api.run(reflect(run, memory=memory))
    [failure] = browser.data("/work")["failures"]
    assert failure["error"] == "no order A17; an id has a dash"
    fix = Fix(kind="arguments", changes=(("order", "A-17"),))
    [words] = render.fix_lines(Mistake(fix=fix))
    assert failure["fixed_by"] == words
    assert failure["runs"] == 2
    assert failure["told"] == "will be"
    assert words in words_of(browser.get("/work").text)


def learn(browser: Browser, session: str, task: str, parts: int) -> None:
    """Learn a session of a coding agent several times while it grows."""
    memory = Memory(browser.api.setup.store, SCOPE)
    events = [Event("user_message", task)]
    for number in range(parts):
        command = {"command": f"pip install x{number}"}
        events += [
            Event("tool_call", tool="Bash", arguments=command),
            Event("tool_response", tool="Bash", error=f"externally managed {number}"),
        ]
        run = Episode(tuple(events), "success", task=task, session=session)
        browser.api.run(learn_session(run, memory=memory))


def test_a_session_is_one_row_with_its_prompt(browser):
    learn(browser, "5f3a-1", "Fix the cart", parts=3)
    learn(browser, "5f3a-2", "Add a button", parts=1)
    button, cart = browser.data("/work")["agents"]
    assert button["words"] == "Add a button"
    assert [button["parts"], cart["parts"]] == [1, 3]
    assert cart["words"] == "Fix the cart"
    assert browser.data("/traces/5f3a-1")["digest"] == cart["id"]
    (match,) = browser.data("/work?text=BUTTON")["agents"]
    assert match["id"] == button["id"]
    browser.open(browser.api.key("recall"))
    assert "Add a button" not in browser.get("/work").text


def test_traces_are_found_by_their_task_and_say_how_long_they_took(browser):
    for task in ("Übersetze den Satz", "Fix the build"):
        send(browser, call("sh", at=5), response("sh", at=9), task=task)
    (trace,) = browser.data("/work?text=übersetze")["agents"]
    assert trace["words"] == "Übersetze den Satz"
    # A call and its response are one step, as on the page of the trace.
    assert trace["number"] == 1
    assert trace["seconds"] == 4
    assert trace["at"] == 5
    assert browser.data("/work?text=nothing")["agents"] == []


def test_the_list_says_how_many_spans_were_not_understood(browser):
    assert "not understood" not in words_of(browser.get("/work").text)
    unknown = span(ROOT, "", "GET /", (0, 1), {"http.request.method": "GET"})
    read_data(browser.api.post("/v1/traces", json=document([unknown])))
    page = words_of(browser.get("/work").text)
    assert re.search("Of 1 span, 1 not understood, last", page)
