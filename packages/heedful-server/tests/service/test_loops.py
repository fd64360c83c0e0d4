"""Loops over HTTP: begun, reported, overridden, explained, listed, cancelled and
replayed.
"""

import asyncio
import tracemalloc
from typing import Any
from urllib.parse import quote

import pytest

from heedful.checks import words
from heedful.errors import ModelTimeout
from heedful.store import loop_notes, loops as loop_store
from heedful.testing import FixedEmbedder, ScriptedModel
from heedful_server import request_checks
from heedful_server.setup import LIMITS_MIB_BYTES, MAX_HEAVY_CALLS
from tests.service.support import Api, problem, record, right, served, wrong
from tests.tables import cases

pytestmark = pytest.mark.both_nightly
UNIT = {"check": "unit", "message": "no unit", "fix": "name the unit"}
LOOP = "/v1/loops/loop"
HEAD: dict[str, Any] = {"task": "Weigh it.", "policy": "default, attempts.limit=2"}


@pytest.fixture
def api(tmp_path):
    with served(tmp_path, checks={"short": words(at_most=2)}) as api:
        yield api


@pytest.fixture
def loop(api: Api) -> Api:
    """A service with an open loop of at most two attempts."""
    record(api, "loop", **HEAD)
    return api


def report(api: Api, number: int, body: Any) -> Any:
    """Report an attempt of the loop; return the answer."""
    return api.put(f"{LOOP}/attempts/{number}", json=body)


def checked(output: Any, *checks: Any) -> dict[str, Any]:
    """Return the report of an output that the service has to judge."""
    return {"output": output, "checks": list(checks)}


def deep(levels: int) -> Any:
    return [deep(levels - 1)] if levels else 1


# -- begun


def test_a_loop_is_begun_once(api):
    body = {**HEAD, "goals": ["quality >= 0.75"], "context": {"unit": "kg"}}
    first = api.put(LOOP, json=body)
    same = api.put(LOOP, json=body)
    assert first.status_code == 201
    assert same.status_code == 200
    assert first.json() == same.json()
    goal = {"score": "quality", "threshold": 0.75, "direction": "at_least"}
    begun = {"id": "loop", "state": "open", "task": "Weigh it.", "goals": [goal]}
    assert first.json().items() >= {**begun, "context": {"unit": "kg"}}.items()
    for other in (HEAD, {**body, "task": "another"}):
        problem(api.put(LOOP, json=other), 409, "conflict")

    no_goals = {**HEAD, "goals": [], "policy": "orchestrator"}
    for _ in range(2):
        assert api.put(LOOP + "-2", json=no_goals).json()["goals"] == []


@cases(
    ("body", "code"),
    {
        "an unknown policy": ({"policy": "nope"}, "unknown_name"),
        "a goal without a threshold": ({"goals": ["quality"]}, "invalid_input"),
        "a task nested too deeply": ({"task": deep(101)}, "invalid_request"),
        "a name that cannot be shown": ({"model": "a\nb"}, "invalid_input"),
    },
)
def test_what_cannot_be_begun_is_told_why(api, body, code):
    assert problem(api.put(LOOP, json={**HEAD, **body}), 422, code)["detail"]
    problem(api.get(LOOP), 404, "not_found")


@pytest.mark.parametrize("name", ["a/explain", "a/../b", "."])
def test_an_id_that_no_route_reads_is_refused(api, name):
    done = {"loop_id": name, "reflection_status": "done", "alignment_score": 0.9}
    answer = api.post("/orchestrator/loop-complete", json=done)
    assert answer.status_code == 422
    assert "no route reads it" in answer.text
    if "." not in name:  # httpx resolves the others
        refused = api.put(f"/v1/loops/{name}", json=HEAD)
        assert "no route reads it" in str(problem(refused, 422, "invalid_request"))


def test_ids_may_hold_slashes_and_anything_printable(api):
    for name in ("run/task 1", "ünï→", "a?b#c", "%2F"):
        path = quote(name, safe="")
        assert record(api, path, wrong("12"))["decision"] == "again"
        assert api.get(f"/v1/loops/{path}").json()["id"] == name
        assert api.get(f"/v1/loops/{path}/explain").json()["lines"][0]["attempt"] == 1


# -- reported


def test_attempts_are_decided_until_one_passes(loop):
    usage = {"calls": 2, "prompt_tokens": 5}
    first = report(loop, 1, wrong("12", UNIT, usage=usage, model="small-1b")).json()
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
    last = report(loop, 2, right(deep(100), model="large-70b")).json()
    wanted = {"decision": "done", "best": 2, "passed": True, "state": "passed"}
    assert last.items() >= wanted.items()
    record_of_loop = loop.get(LOOP).json()
    assert [item["output"] for item in record_of_loop["made"]] == ["12", deep(100)]
    models = [item["model"] for item in record_of_loop["made"]]
    assert models == ["small-1b", "large-70b"]
    assert record_of_loop.items() >= {"calls": 2, "tokens": 5, "best": 2}.items()
    reasons = [item["reason"] for item in record_of_loop["decisions"]]
    assert reasons == ["unit_failed", "passed"]


@cases(
    ("body", "code"),
    {
        "nobody judged it": ({"output": "12"}, "invalid_input"),
        "a score too large": (
            {"evaluation": {"scores": {"a": 1e13}}},
            "invalid_request",
        ),
        "an unknown field": (wrong("x", {**UNIT, "levle": "note"}), "invalid_request"),
        "an output nested too deeply": ({"output": deep(101)}, "invalid_request"),
        "a digest that is none": ({"digest": "a\0"}, "invalid_request"),
        "nothing": ({}, "invalid_request"),
        "usage without an output": (
            {"output": None, "digest": "", "checks": [], "usage": {"calls": 1}},
            "invalid_request",
        ),
    },
)
def test_what_is_no_report_is_refused_and_ends_no_loop(loop, body, code):
    problem(report(loop, 1, body), 422, code)
    assert report(loop, 1, wrong("12")).json()["decision"] == "again"


# -- checks


def test_named_checks_judge_an_output(loop):
    checks = [{"name": "contains", "needles": ["kg"]}, {"name": "short"}]
    body = checked("it weighs 12", *checks)
    first = report(loop, 1, body).json()
    assert first["evaluated_by"] == ["contains", "words"]
    assert [reason["code"] for reason in first["reasons"]] == ["contains", "words"]
    assert report(loop, 1, body).json() == first
    other = report(loop, 1, checked("it weighs 12", checks[0]))
    problem(other, 409, "attempt_conflict")
    last = report(loop, 2, {**checked("12 kg", *checks), "evaluation": {}}).json()
    assert last["passed"] is True
    assert last["evaluated_by"] == ["contains", "words", "report"]


@cases(
    ("check", "status", "code"),
    {
        "code": ({"name": "python_tests", "tests": "assert True"}, 422, "unknown_name"),
        "a function by its path": ({"name": "os:system"}, 422, "unknown_name"),
        "an option of a check of the operator": (
            {"name": "short", "at_most": 1000},
            422,
            "invalid_input",
        ),
        "a critic without a judge": (
            {"name": "critic", "role": "pessimist"},
            503,
            "model_unavailable",
        ),
        "a check too large": (
            {"name": "contains", "needles": ["ab"] * 20_000},
            422,
            "invalid_input",
        ),
        "a wrong schema": (
            {"name": "json_schema", "schema": {"type": 3}},
            422,
            "invalid_request",
        ),
        "a schema of another place": (
            {"name": "json_schema", "schema": {"$ref": "http://a.test/x.json"}},
            500,
            "check_failed",
        ),
        "a file of the machine": (
            {"name": "predictions", "results": "/etc/passwd"},
            422,
            "invalid_input",
        ),
    },
)
def test_only_checks_that_are_allowed_are_run(loop, check, status, code):
    problem(report(loop, 1, checked("1", check)), status, code)
    assert loop.get(LOOP).json()["attempts"] == 0


def test_checks_that_wait_for_a_process_hold_no_thread(loop):
    turns = loop.setup.turns
    body = checked("abab", {"name": "regex", "pattern": "(ab)+"})

    async def scenario() -> None:
        for _ in range(MAX_HEAVY_CALLS):
            await turns.acquire()
        reports = (loop.ask("PUT", f"{LOOP}/attempts/1", json=body) for _ in range(8))
        waiting = list(map(asyncio.create_task, reports))
        explained = await loop.ask("GET", f"{LOOP}/explain")
        assert explained.status_code == 200
        assert not any(answer.done() for answer in waiting)
        waiting.pop().cancel()
        for _ in range(MAX_HEAVY_CALLS):
            turns.release()
        answers = await asyncio.gather(*waiting)
        assert {answer.status_code for answer in answers} == {200}

    loop.run(scenario())


LONG_PATTERN = f"(a+)+b|{'|'.join(f'name {n}' for n in range(200))}"


def schema(pattern: str) -> dict[str, Any]:
    return {"name": "json_schema", "schema": {"items": {"pattern": pattern}}}


LIST = [30 * "a" + "b"]
REGEX = {"name": "regex", "pattern": LONG_PATTERN}


@cases(
    ("name", "reports"),
    {
        "a schema": (
            "json_schema",
            [checked(LIST, schema("^kg$")), checked(LIST, schema("^(a+)+$"))],
        ),
        "a long pattern": ("regex", [checked("x", REGEX), checked(50 * "a", REGEX)]),
    },
)
def test_a_check_judges_in_a_process_that_ends_in_time(
    loop, monkeypatch, name, reports
):
    for number, body in enumerate(reports, 1):
        report(loop, number, body)
        # The process of the first is there, so no start of one counts.
        monkeypatch.setattr(request_checks, "CHECK_TIMEOUT_SECONDS", 0.3)
    attempts = loop.get(LOOP).json()["made"]
    first, second = [item["evaluation"]["findings"][0]["key"] for item in attempts]
    assert first.startswith(name)
    assert second == f"{name} time-out"


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("[!-\uffff]", id="letters"),
        pytest.param(r"[!-\uffff]", id="escapes", marks=pytest.mark.nightly),
    ],
)
def test_a_pattern_that_compiles_for_long_is_refused(loop, pattern, monkeypatch):
    monkeypatch.setattr(request_checks, "CHECK_START_SECONDS", 2)
    check = {"name": "regex", "pattern": f"(?i){5_000 * pattern}"}
    refused = problem(report(loop, 1, checked("x", check)), 422, "invalid_input")
    assert "too complex" in refused["detail"]


def test_critics_ask_the_judge_of_the_service_and_its_failure_blames_no_attempt(
    tmp_path,
):
    model = ScriptedModel(ModelTimeout("no answer in 5 s"), forever=True)
    critic = {"name": "critic", "role": "alignment"}
    with served(tmp_path, model=model, embedder=FixedEmbedder()) as api:
        record(api, "loop", task="a", goals=["alignment >= 0.75"])
        refused = report(api, 1, checked("x", critic))
        assert "HEEDFUL_JUDGE" in problem(refused, 503, "model_unavailable")["detail"]
    with served(tmp_path, judge=model) as api:
        foreign = {**critic, "model": "openai:gpt-5"}
        several = {"name": "critics", "members": [foreign]}
        many = {"name": "critics", "members": [critic] * 17}
        for check in (foreign, several, many):
            problem(report(api, 1, checked("x", check)), 422, "invalid_input")
        problem(report(api, 1, checked("x", critic)), 504, "model_timeout")
        assert api.get(LOOP).json()["attempts"] == 0


# -- what a person does


def test_an_override_is_that_of_the_key_and_in_the_audit(loop):
    report(loop, 1, wrong("12"))
    assert report(loop, 2, wrong("13")).json()["decision"] == "done"
    lift = {"rule": "attempts", "why": "it is close"}
    refused = loop.post(f"{LOOP}/overrides", json={**lift, "rule": "budget"})
    problem(refused, 409, "override_refused")
    answer = loop.post(f"{LOOP}/overrides", json=lift)
    lifting = answer.json()
    assert answer.status_code == 201
    assert lifting["attempt"] == 2
    assert lifting["state"] == "open"
    (lifted,) = lifting["lifted"]
    (entry, *_) = loop.get("/v1/audit").json()["items"]
    assert lifted["rule"] == "attempts"
    assert lifted["by"] == entry["by"]
    assert entry["by"].startswith("tests (")
    assert entry["action"] == "loop.override"
    assert entry["subject"] == "loop"


def test_notes_stand_with_the_loop_without_secrets_and_in_the_audit(loop, monkeypatch):
    path = f"{LOOP}/notes"
    first = loop.post(path, json={"text": " The source was offline. "})
    secret = "sk-proj-" + 48 * "a1"
    second = loop.post(path, json={"text": f"Use {secret}"})
    assert first.status_code == second.status_code == 201
    (entry, *_) = loop.get("/v1/audit").json()["items"]
    assert entry["action"] == "loop.note"
    assert entry["subject"] == "loop"
    for text in ("", "  ", 4_001 * "x"):
        assert loop.post(path, json={"text": text}).status_code == 422
    monkeypatch.setattr(loop_notes, "MAX_LOOP_NOTES", 2)
    assert loop.post(path, json={"text": "one more"}).status_code == 422
    problem(loop.post("/v1/loops/none/notes", json={"text": "x"}), 404, "not_found")

    notes = loop.get(LOOP).json()["notes"]
    assert notes == [first.json(), second.json()]
    assert notes[0]["text"] == "The source was offline."
    assert notes[0]["by"] == entry["by"]
    assert secret not in notes[1]["text"]
    assert secret not in loop.get("/v1/audit").text


def test_a_loop_is_cancelled(loop):
    report(loop, 1, wrong("12"))
    cancelled = loop.post(f"{LOOP}/cancel", json={"why": "enough"}).json()
    (stop,) = cancelled["stopped_by"]
    assert stop["rule"] == "cancelled"
    assert stop["detail"].endswith(": enough") is True
    assert loop.post(f"{LOOP}/cancel", json={}).json() == cancelled
    problem(report(loop, 2, wrong("13")), 409, "loop_ended")


# -- listed and replayed


def test_a_list_reads_no_outputs_and_a_page_has_a_size(api, monkeypatch):
    monkeypatch.setattr(loop_store, "MAX_LISTING_BYTES", 400 * 1024)
    large = 300_000 * "x"
    for number in range(4):
        texts = ("Weigh it.", large) if number < 2 else (large, "x")
        record(api, f"large {number}", right(texts[1]), task=texts[0])
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
    others = [loop["id"] for loop in last_page["items"]]
    assert others == ["large 2", "large 1", "large 0"]
    assert last_page["next"] is None
    assert api.get("/v1/loops/large 0").json()["made"][0]["output"] == large


def test_policies_are_replayed(api):
    problem(api.post("/v1/replay", json={"policies": ["default"]}), 404, "not_found")
    record(api, "loop", wrong("12"), right("12 kg"), **HEAD)
    policies = ["default, attempts.limit=1", {"rules": [{"rule": "attempts"}]}]
    replay = api.post("/v1/replay", json={"policies": policies}).json()
    assert replay["recorded"]["loops"] == 1
    assert replay["recorded"]["attempts"] == 2
    first, second = replay["policies"]
    assert first["policy"] == "default, attempts.limit=1"
    assert first["attempts"] == first["lost"] == 1
    assert second["policy"] == "policy 2"
    assert second["attempts"] == 2
    assert second["lost"] == 0
