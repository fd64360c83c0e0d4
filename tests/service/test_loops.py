"""Loops over HTTP: begun, reported, overridden, explained, listed, cancelled and
replayed.
"""

import asyncio
import tracemalloc
from itertools import count
from typing import Any
from urllib.parse import quote

import pytest

from heedful.checks import words
from heedful.errors import ModelTimeout
from heedful.service import request_checks
from heedful.service.setup import LIMITS_MIB_BYTES, MAX_CHECK_PROCESSES
from heedful.store import loop_notes, loops as loop_store
from heedful.testing import FixedEmbedder, ScriptedModel
from tests.service.support import Api, problem, served

pytestmark = pytest.mark.both_nightly
WRONG = {"findings": [{"check": "unit", "message": "no unit", "fix": "name the unit"}]}
RIGHT: dict[str, Any] = {}
_numbers = count(1)


@pytest.fixture
def api(tmp_path):
    with served(tmp_path, checks={"short": words(at_most=2)}) as api:
        yield api


@pytest.fixture
def id(api: Api) -> str:
    name = f"loop {next(_numbers)}"
    open_loop(api, name)
    return name


@pytest.mark.parametrize("name", ["a/explain", "a/../b", "."])
def test_an_id_that_no_route_reads_is_refused(api, name):
    done = {"loop_id": name, "reflection_status": "done", "alignment_score": 0.9}
    answer = api.post("/orchestrator/loop-complete", json=done)
    assert answer.status_code == 422
    assert "no route reads it" in answer.text
    if "." not in name:  # httpx resolves the others
        refused = problem(open_loop(api, name), 422, "invalid_request")
        assert "no route reads it" in str(refused)


def open_loop(api: Api, id: str, **more: Any) -> Any:
    body = {"task": "Weigh it.", "policy": "default, attempts.limit=2", **more}
    return api.put(f"/v1/loops/{id}", json=body)


def report(
    api: Api, id: str, n: int, output: Any = "12", judged: Any = WRONG, **more: Any
) -> Any:
    key = more.pop("key", None)
    body = {
        "output": output,
        **more,
        **({} if judged is None else {"evaluation": judged}),
    }
    return api.put(f"/v1/loops/{id}/attempts/{n}", json=body, key=key)


def test_an_attempt_that_nobody_judged_is_refused_and_the_loop_stays_open(api):
    open_loop(api, "unjudged")
    answer = problem(report(api, "unjudged", 1, judged=None), 422, "invalid_input")
    assert "evaluation is None; it must be given, or checks" in answer["detail"]
    assert report(api, "unjudged", 1).json()["decision"] == "again"


def deep(levels: int) -> Any:
    return [deep(levels - 1)] if levels else 1


def test_a_loop_is_begun_once(api):
    goals = ["quality >= 0.75"]
    context = {"unit": "kg"}
    first = open_loop(api, "begun", goals=goals, context=context)
    same = open_loop(api, "begun", goals=goals, context=context)
    assert first.status_code == 201
    assert same.status_code == 200
    loop = first.json()
    assert loop == same.json()
    assert loop["id"] == "begun"
    assert loop["state"] == "open"
    assert loop["task"] == "Weigh it."
    assert loop["goals"] == [
        {"score": "quality", "threshold": 0.75, "direction": "at_least"}
    ]
    assert loop["context"] == {"unit": "kg"}
    assert loop["made"] == []
    problem(open_loop(api, "begun"), 409, "conflict")
    problem(
        open_loop(api, "begun", goals=goals, context=context, task="another"),
        409,
        "conflict",
    )


@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param(
            {"task": "t", "policy": "nope"}, "unknown_name", id="an unknown policy"
        ),
        pytest.param(
            {"task": "t", "goals": ["quality"]},
            "invalid_input",
            id="a goal without a threshold",
        ),
        pytest.param(
            {"task": deep(101)}, "invalid_request", id="a task nested too deeply"
        ),
    ],
)
def test_what_cannot_be_begun_is_told_why(api, body, code):
    assert problem(api.put("/v1/loops/refused", json=body), 422, code)["detail"]
    problem(api.get("/v1/loops/refused"), 404, "not_found")


def test_ids_may_hold_slashes_and_anything_printable(api):
    for name in ("run/task 1", "ünï→", "a?b#c", "%2F"):
        path = quote(name, safe="")
        assert open_loop(api, path).json()["id"] == name
        assert report(api, path, n=1).json()["decision"] == "again"
        assert api.get(f"/v1/loops/{path}/explain").json()["lines"][0]["attempt"] == 1


def test_attempts_are_decided_until_one_passes(api, id):
    first = report(api, id, n=1, usage={"calls": 2, "prompt_tokens": 5}).json()
    assert first == {
        "decision": "again",
        "attempt": 1,
        "best": 1,
        "passed": False,
        "state": "open",
        "reasons": [{"code": "unit", "detail": "no unit", "reason": "unit_failed"}],
        "feedback": "The last answer was not accepted:\n- unit: no unit. name the unit",
        "stopped_by": [],
        "lifted": [],
        "rung": 1,
        "climbed": [],
        "evaluated_by": ["report"],
        "release": "",
    }
    last = report(api, id, n=2, output=deep(100), judged=RIGHT).json()
    wanted = {"decision": "done", "best": 2, "passed": True, "state": "passed"}
    assert last.items() >= wanted.items()
    loop = api.get(f"/v1/loops/{id}").json()
    assert [item["output"] for item in loop["made"]] == ["12", deep(100)]
    assert loop["calls"] == 2
    assert loop["tokens"] == 5
    assert loop["best"] == 2
    assert [item["reason"] for item in loop["decisions"]] == ["unit_failed", "passed"]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"evaluation": {"scores": {"a": 1e13}}}, id="a score too large"),
        pytest.param({"output": deep(101)}, id="an output nested too deeply"),
        pytest.param({"digest": "a\0"}, id="a digest that is none"),
        pytest.param({}, id="nothing"),
        pytest.param(
            {"output": None, "digest": "", "checks": [], "usage": {"calls": 1}},
            id="usage without an output",
        ),
    ],
)
def test_what_is_no_report_is_refused_and_ends_no_loop(api, id, body):
    problem(api.put(f"/v1/loops/{id}/attempts/1", json=body), 422, "invalid_request")
    assert report(api, id, n=1).json()["decision"] == "again"


def test_named_checks_judge_an_output(api, id):
    checks = [{"name": "contains", "needles": ["kg"]}, {"name": "short"}]
    first = report(
        api, id, n=1, output="it weighs 12", judged=None, checks=checks
    ).json()
    assert first["evaluated_by"] == ["contains", "words"]
    assert [reason["code"] for reason in first["reasons"]] == ["contains", "words"]
    assert (
        report(api, id, n=1, output="it weighs 12", judged=None, checks=checks).json()
        == first
    )
    problem(
        report(api, id, n=1, output="it weighs 12", judged=None, checks=checks[:1]),
        409,
        "attempt_conflict",
    )
    last = report(api, id, n=2, output="12 kg", judged=RIGHT, checks=checks).json()
    assert last["passed"] is True
    assert last["evaluated_by"] == ["contains", "words", "report"]


@pytest.mark.parametrize(
    ("check", "status", "code"),
    [
        pytest.param(
            {"name": "python_tests", "tests": "assert True"},
            422,
            "unknown_name",
            id="code",
        ),
        pytest.param(
            {"name": "os:system"}, 422, "unknown_name", id="a function by its path"
        ),
        pytest.param(
            {"name": "short", "at_most": 1000},
            422,
            "invalid_input",
            id="an option of a check of the operator",
        ),
        pytest.param(
            {"name": "critic", "role": "pessimist"},
            503,
            "model_unavailable",
            id="a critic without a judge",
        ),
        pytest.param(
            {"name": "contains", "needles": ["ab"] * 20_000},
            422,
            "invalid_input",
            id="a check too large",
        ),
        pytest.param(
            {"name": "predictions", "results": "/etc/passwd"},
            422,
            "invalid_input",
            id="a file of the machine",
        ),
    ],
)
def test_only_checks_that_are_allowed_are_run(api, id, check, status, code):
    problem(report(api, id, n=1, output="x", judged=None, checks=[check]), status, code)
    assert api.get(f"/v1/loops/{id}").json()["attempts"] == 0


def test_checks_that_wait_for_a_process_hold_no_thread(api, id):
    turns = api.setup.turns
    body = {"output": "abab", "checks": [{"name": "regex", "pattern": "(ab)+"}]}

    async def scenario() -> None:
        for _ in range(MAX_CHECK_PROCESSES):
            await turns.acquire()
        reports = (
            api.ask("PUT", f"/v1/loops/{id}/attempts/1", json=body) for _ in range(8)
        )
        waiting = list(map(asyncio.create_task, reports))
        explained = await api.ask("GET", f"/v1/loops/{id}/explain")
        assert explained.status_code == 200
        assert not any(answer.done() for answer in waiting)
        waiting.pop().cancel()
        for _ in range(MAX_CHECK_PROCESSES):
            turns.release()
        assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {
            200
        }

    api.run(scenario())


def test_a_schema_judges_in_a_process_that_ends_in_time(api, id, monkeypatch):
    for n, pattern in enumerate(("^kg$", "^(a+)+$"), 1):
        check = {"name": "json_schema", "schema": {"items": {"pattern": pattern}}}
        report(api, id, n=n, output=[30 * "a" + "b"], judged=None, checks=[check])
        # The process of the first is there, so no start of one counts.
        monkeypatch.setattr(request_checks, "CHECK_TIMEOUT_SECONDS", 0.3)
    attempts = api.get(f"/v1/loops/{id}").json()["made"]
    keys = [attempt["evaluation"]["findings"][0]["key"] for attempt in attempts]
    assert keys == ["json_schema: $[] pattern", "json_schema time-out"]


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("(?i)" + "[!-\uffff]" * 5_000, id="letters"),
        pytest.param(
            "(?i)" + r"[!-\uffff]" * 5_000, id="escapes", marks=pytest.mark.nightly
        ),
    ],
)
def test_a_pattern_that_compiles_for_long_is_refused(api, id, pattern, monkeypatch):
    monkeypatch.setattr(request_checks, "CHECK_START_SECONDS", 2)
    check = {"name": "regex", "pattern": pattern}
    answer = report(api, id, n=1, output="x", judged=None, checks=[check])
    assert "too complex" in problem(answer, 422, "invalid_input")["detail"]


def test_a_schema_that_refers_to_another_place_is_named(api, id):
    check = {"name": "json_schema", "schema": {"$ref": "http://a.test/x.json"}}
    answer = report(api, id, n=1, output="1", judged=None, checks=[check])
    detail = answer.json()["detail"]
    assert "$ref is 'http://a.test/x.json'; it must be a reference inside" in detail


def test_critics_ask_the_judge_of_the_service_and_its_failure_blames_no_attempt(
    tmp_path,
):
    model = ScriptedModel(ModelTimeout("no answer in 5 s"), forever=True)
    critic = {"name": "critic", "role": "alignment"}
    with served(tmp_path, model=model, embedder=FixedEmbedder()) as api:
        open_loop(api, "a", goals=["alignment >= 0.75"])
        wrong = problem(
            report(api, id="a", n=1, output="x", judged=None, checks=[critic]),
            503,
            "model_unavailable",
        )
        assert "HEEDFUL_JUDGE" in wrong["detail"]
    with served(tmp_path, judge=model) as api:
        foreign = {**critic, "model": "openai:gpt-5"}
        several = {"name": "critics", "members": [foreign]}
        many = {"name": "critics", "members": [critic] * 17}
        for wrong in (foreign, several, many):
            problem(
                report(api, id="a", n=1, output="x", judged=None, checks=[wrong]),
                422,
                "invalid_input",
            )
        problem(
            report(api, id="a", n=1, output="x", judged=None, checks=[critic]),
            504,
            "model_timeout",
        )
        assert api.get("/v1/loops/a").json()["attempts"] == 0


def test_an_override_reopens_a_loop_and_is_consumed(api, id):
    report(api, id, n=1)
    assert report(api, id, n=2, output="13").json()["decision"] == "done"
    path = f"/v1/loops/{id}/overrides"
    lift = {"rule": "attempts", "why": "it is close"}
    problem(api.post(path, json={**lift, "rule": "budget"}), 409, "override_refused")
    answer = api.post(path, json=lift)
    lifting = answer.json()
    assert answer.status_code == 201
    assert lifting["attempt"] == 2
    assert lifting["state"] == "open"
    (lifted,) = lifting["lifted"]
    (entry, *_) = api.get("/v1/audit").json()["items"]
    assert lifted["rule"] == "attempts"
    assert lifted["by"] == entry["by"]
    assert entry["by"].startswith("tests (")
    assert entry["action"] == "loop.override"
    assert entry["subject"] == id
    report(api, id, n=3, output="14")
    loop = api.get(f"/v1/loops/{id}").json()
    assert [override["used"] for override in loop["overrides"]] == [1]
    assert loop["state"] == "stopped"
    assert loop["stopped_by"] == ["attempts"]


@pytest.mark.both_nightly
def test_notes_stand_with_the_loop_without_secrets_and_in_the_audit(api, id):
    report(api, id, n=1)
    path = f"/v1/loops/{id}/notes"
    first = api.post(path, json={"text": " The source was offline. "})
    secret = "sk-proj-" + 48 * "a1"
    second = api.post(path, json={"text": f"Use {secret}"})
    assert first.status_code == 201
    assert second.status_code == 201
    (entry, *_) = api.get("/v1/audit").json()["items"]
    assert entry["action"] == "loop.note"
    assert entry["subject"] == id

    notes = api.get(f"/v1/loops/{id}").json()["notes"]
    assert notes == [first.json(), second.json()]
    assert notes[0]["text"] == "The source was offline."
    assert notes[0]["by"] == entry["by"]
    assert secret not in notes[1]["text"]
    assert secret not in api.get("/v1/audit").text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="no text"),
        pytest.param("  ", id="blanks"),
        pytest.param(2_001 * "x", id="a long text"),
    ],
)
def test_a_note_needs_a_text(api, id, text):
    answer = api.post(f"/v1/loops/{id}/notes", json={"text": text})
    assert answer.status_code == 422
    assert api.get(f"/v1/loops/{id}").json()["notes"] == []


def test_a_loop_has_a_limited_number_of_notes(api, id, monkeypatch):
    monkeypatch.setattr(loop_notes, "MAX_LOOP_NOTES", 2)
    codes = [
        api.post(f"/v1/loops/{id}/notes", json={"text": str(number)}).status_code
        for number in range(3)
    ]
    assert codes == [201, 201, 422]


def test_a_loop_is_cancelled(api, id):
    report(api, id, n=1)
    cancelled = api.post(f"/v1/loops/{id}/cancel", json={"why": "enough"}).json()
    (stop,) = cancelled["stopped_by"]
    assert stop["rule"] == "cancelled"
    assert stop["detail"].endswith(": enough") is True
    assert api.post(f"/v1/loops/{id}/cancel", json={}).json() == cancelled
    problem(report(api, id, n=2), 409, "loop_ended")


@pytest.mark.both_nightly
def test_a_list_reads_no_outputs_and_a_page_has_a_size(api, monkeypatch):
    monkeypatch.setattr(loop_store, "MAX_LISTING_BYTES", 400 * 1024)
    large = 300_000 * "x"
    for n, task, output in (
        (0, "Weigh it.", large),
        (1, "Weigh it.", large),
        (2, large, "x"),
        (3, large, "x"),
    ):
        open_loop(api, f"large {n}", task=task)
        body = {"output": output, "evaluation": RIGHT}
        assert api.put(f"/v1/loops/large {n}/attempts/1", json=body).status_code == 200
    api.get("/v1/loops?limit=1")  # what the first request loads is loaded
    tracemalloc.start()
    page = api.get("/v1/loops").json()
    first_peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    last_page = api.get("/v1/loops", params={"cursor": page["next"]}).json()
    last_peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert first_peak < LIMITS_MIB_BYTES
    assert last_peak < LIMITS_MIB_BYTES
    assert [loop["id"] for loop in page["items"]] == ["large 3"]
    assert [loop["id"] for loop in last_page["items"]] == [
        "large 2",
        "large 1",
        "large 0",
    ]
    assert last_page["next"] is None
    assert api.get("/v1/loops/large 0").json()["made"][0]["output"] == large


def test_policies_are_replayed(api):
    problem(api.post("/v1/replay", json={"policies": ["default"]}), 404, "not_found")
    open_loop(api, "a")
    report(api, "a", n=1)
    report(api, id="a", n=2, output="12 kg", judged=RIGHT)
    request = {
        "policies": ["default, attempts.limit=1", {"rules": [{"rule": "attempts"}]}]
    }
    replay = api.post("/v1/replay", json=request).json()
    assert replay["recorded"]["loops"] == 1
    assert replay["recorded"]["attempts"] == 2
    rows = [
        (policy["policy"], policy["attempts"], policy["lost"])
        for policy in replay["policies"]
    ]
    assert rows == [("default, attempts.limit=1", 1, 1), ("policy 2", 2, 0)]
