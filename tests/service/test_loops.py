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
from heedful.service.setup import LIMITS_MIB_BYTES, MAX_CHECK_PROCESSES
from heedful.testing import FixedEmbedder, ScriptedModel
from tests.engines import IN_SOAK
from tests.service.support import Api, problem, served

pytestmark = IN_SOAK
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
    begun(api, name)
    return name


@pytest.mark.parametrize("name", ["a/explain", "a/../b", "."])
def test_an_id_that_no_route_reads_is_refused(api, name):
    done = {"loop_id": name, "reflection_status": "done", "alignment_score": 0.9}
    assert api.post("/orchestrator/loop-complete", json=done).status_code == 422
    if "." not in name:  # httpx resolves the others
        problem(begun(api, name), 422, "invalid_request")


def begun(api: Api, id: str, **more: Any) -> Any:
    body = {"task": "Weigh it.", "policy": "default, attempts.limit=2", **more}
    return api.put(f"/v1/loops/{id}", json=body)


def told(
    api: Api, id: str, n: int, output: Any = "12", judged: Any = WRONG, **more: Any
) -> Any:
    key = more.pop("key", None)
    body = {
        "output": output,
        **more,
        **({} if judged is None else {"evaluation": judged}),
    }
    return api.put(f"/v1/loops/{id}/attempts/{n}", json=body, key=key)


def deep(levels: int) -> Any:
    return [deep(levels - 1)] if levels else 1


def test_a_loop_is_begun_once(api):
    more: dict[str, Any] = {"goals": ["quality >= 0.75"], "context": {"unit": "kg"}}
    first = begun(api, "begun", **more)
    same = begun(api, "begun", **more)
    assert first.status_code == 201
    assert same.status_code == 200
    plain = first.json()
    assert plain == same.json()
    assert plain["id"] == "begun"
    assert plain["state"] == "open"
    assert plain["task"] == "Weigh it."
    assert plain["goals"] == [
        {"score": "quality", "threshold": 0.75, "direction": "at_least"}
    ]
    assert plain["context"] == {"unit": "kg"}
    assert plain["made"] == []
    problem(begun(api, "begun"), 409, "conflict")
    problem(begun(api, "begun", **more, task="another"), 409, "conflict")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"task": "t", "policy": "nope"}, "unknown_name"),
        (
            {"task": "t", "policy": {"rules": [{"rule": "mine", "custom": True}]}},
            "invalid_input",
        ),
        ({"task": "t", "goals": ["quality"]}, "invalid_input"),
        ({"task": deep(101)}, "invalid_request"),
    ],
)
def test_what_cannot_be_begun_is_told_why(api, body, code):
    assert problem(api.put("/v1/loops/refused", json=body), 422, code)["detail"]
    problem(api.get("/v1/loops/refused"), 404, "not_found")


def test_ids_may_hold_slashes_and_anything_printable(api):
    for name in ("run/task 1", "ünï→", "a?b#c", "%2F"):
        path = quote(name, safe="")
        assert begun(api, path).json()["id"] == name
        assert told(api, path, n=1).json()["decision"] == "again"
        assert api.get(f"/v1/loops/{path}/explain").json()["lines"][0]["attempt"] == 1


def test_attempts_are_decided_until_one_passes(api, id):
    first = told(api, id, n=1, usage={"calls": 2, "prompt_tokens": 5}).json()
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
        "evaluated_by": ["report"],
        "release": "",
    }
    last = told(api, id, n=2, output=deep(100), judged=RIGHT).json()
    wanted = {"decision": "done", "best": 2, "passed": True, "state": "passed"}
    assert last.items() >= wanted.items()
    shown = api.get(f"/v1/loops/{id}").json()
    assert [one["output"] for one in shown["made"]] == ["12", deep(100)]
    assert shown["calls"] == 2
    assert shown["tokens"] == 5
    assert shown["best"] == 2
    assert [one["reason"] for one in shown["decisions"]] == ["unit_failed", "passed"]


@pytest.mark.parametrize(
    "body",
    [
        {"evaluation": {"scores": {"a": 1e13}}},
        {"evaluation": {"passed": False}},
        {"evaluation": {"findings": [{**WRONG["findings"][0], "levle": "note"}]}},
        {"output": deep(101)},
        {"digest": "a\0"},
        {},
        {"output": None, "digest": "", "checks": [], "usage": {"calls": 1}},
    ],
)
def test_what_is_no_report_is_refused_and_ends_no_loop(api, id, body):
    problem(api.put(f"/v1/loops/{id}/attempts/1", json=body), 422, "invalid_request")
    assert told(api, id, n=1).json()["decision"] == "again"


def test_named_checks_judge_an_output(api, id):
    checks = [{"name": "contains", "needles": ["kg"]}, {"name": "short"}]
    first = told(api, id, n=1, output="it weighs 12", judged=None, checks=checks).json()
    assert first["evaluated_by"] == ["contains", "words"]
    assert [one["code"] for one in first["reasons"]] == ["contains", "words"]
    assert (
        told(api, id, n=1, output="it weighs 12", judged=None, checks=checks).json()
        == first
    )
    problem(
        told(api, id, n=1, output="it weighs 12", judged=None, checks=checks[:1]),
        409,
        "attempt_conflict",
    )
    last = told(api, id, n=2, output="12 kg", judged=RIGHT, checks=checks).json()
    assert last["passed"] is True
    assert last["evaluated_by"] == ["contains", "words", "report"]


@pytest.mark.parametrize(
    ("check", "status", "code"),
    [
        ({"name": "python_tests", "tests": "assert True"}, 422, "unknown_name"),
        ({"name": "os:system"}, 422, "unknown_name"),
        ({"name": "words"}, 422, "invalid_input"),
        ({"name": "short", "at_most": 1000}, 422, "invalid_input"),
        ({"name": "critic", "role": "pessimist"}, 503, "model_unavailable"),
        ({"name": "contains", "needles": ["ab"] * 20_000}, 422, "invalid_input"),
        ({"name": "json_schema", "schema": {"type": 3}}, 422, "invalid_request"),
        ({"name": "predictions", "results": "/etc/passwd"}, 422, "invalid_input"),
    ],
)
def test_only_checks_that_are_allowed_are_run(api, id, check, status, code):
    problem(told(api, id, n=1, output="x", judged=None, checks=[check]), status, code)
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
        assert not any(one.done() for one in waiting)
        waiting.pop().cancel()
        for _ in range(MAX_CHECK_PROCESSES):
            turns.release()
        assert {one.status_code for one in await asyncio.gather(*waiting)} == {200}

    api.run(scenario())


def test_a_schema_judges_in_a_process_that_ends_in_time(api, id):
    for n, pattern in enumerate(("^kg$", "^(a+)+$"), 1):
        check = {"name": "json_schema", "schema": {"items": {"pattern": pattern}}}
        told(api, id, n=n, output=[30 * "a" + "b"], judged=None, checks=[check])
    made = api.get(f"/v1/loops/{id}").json()["made"]
    keys = [one["evaluation"]["findings"][0]["key"] for one in made]
    assert keys == ["json_schema: $[] pattern", "json_schema time-out"]


def test_critics_ask_the_judge_of_the_service_and_its_failure_blames_no_attempt(
    tmp_path,
):
    model = ScriptedModel(ModelTimeout("no answer in 5 s"), forever=True)
    critic = {"name": "critic", "role": "alignment"}
    with served(tmp_path, model=model, embedder=FixedEmbedder()) as api:
        begun(api, "a", goals=["alignment >= 0.75"])
        wrong = problem(
            told(api, id="a", n=1, output="x", judged=None, checks=[critic]),
            503,
            "model_unavailable",
        )
        assert "HEEDFUL_JUDGE" in wrong["detail"]
    with served(tmp_path, judge=model) as api:
        own = {**critic, "model": "openai:gpt-5"}
        several = {"name": "critics", "members": [own]}
        many = {"name": "critics", "members": [critic] * 17}
        for wrong in (own, several, many):
            problem(
                told(api, id="a", n=1, output="x", judged=None, checks=[wrong]),
                422,
                "invalid_input",
            )
        problem(
            told(api, id="a", n=1, output="x", judged=None, checks=[critic]),
            504,
            "model_timeout",
        )
        assert api.get("/v1/loops/a").json()["attempts"] == 0


def test_an_override_reopens_a_loop_and_is_consumed(api, id):
    told(api, id, n=1)
    assert told(api, id, n=2, output="13").json()["decision"] == "done"
    path = f"/v1/loops/{id}/overrides"
    lift = {"rule": "attempts", "why": "it is close"}
    problem(api.post(path, json={**lift, "rule": "budget"}), 409, "override_refused")
    answer = api.post(path, json=lift)
    plain = answer.json()
    assert answer.status_code == 201
    assert plain["attempt"] == 2
    assert plain["state"] == "open"
    (lifted,) = plain["lifted"]
    (entry, *_) = api.get("/v1/audit").json()["items"]
    assert lifted["rule"] == "attempts"
    assert lifted["by"] == entry["by"]
    assert entry["by"].startswith("tests (")
    assert entry["action"] == "loop.override"
    assert entry["subject"] == id
    told(api, id, n=3, output="14")
    shown = api.get(f"/v1/loops/{id}").json()
    assert [one["used"] for one in shown["overrides"]] == [1]
    assert shown["state"] == "stopped"
    assert shown["stopped_by"] == ["attempts"]


def test_a_loop_is_cancelled(api, id):
    told(api, id, n=1)
    plain = api.post(f"/v1/loops/{id}/cancel", json={"why": "enough"}).json()
    (stop,) = plain["stopped_by"]
    assert stop["rule"] == "cancelled"
    assert stop["detail"].endswith(": enough") is True
    assert api.post(f"/v1/loops/{id}/cancel", json={}).json() == plain
    problem(told(api, id, n=2), 409, "loop_ended")


@pytest.mark.both
def test_a_list_reads_no_outputs_and_a_page_has_a_size(api):
    for n, large in enumerate(("output", "output", "task", "task")):
        begun(
            api, f"large {n}", **({"task": 3_000_000 * "x"} if large == "task" else {})
        )
        body = {
            "output": 3_000_000 * "x" if large == "output" else "x",
            "evaluation": RIGHT,
        }
        assert api.put(f"/v1/loops/large {n}/attempts/1", json=body).status_code == 200
    listed = list[str]()
    page = {"next": ""}
    while page["next"] is not None:
        tracemalloc.start()
        page = api.get(
            "/v1/loops", params={"cursor": page["next"]} if listed else {}
        ).json()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 20 * LIMITS_MIB_BYTES
        listed.append(" ".join(one["id"] for one in page["items"]))
    assert listed == ["large 3", "large 2 large 1 large 0"]
    assert api.get("/v1/loops/large 0").json()["made"][0]["output"] == 3_000_000 * "x"


def test_policies_are_replayed(api):
    problem(api.post("/v1/replay", json={"policies": ["default"]}), 404, "not_found")
    begun(api, "a")
    told(api, "a", n=1)
    told(api, id="a", n=2, output="12 kg", judged=RIGHT)
    asked = {
        "policies": ["default, attempts.limit=1", {"rules": [{"rule": "attempts"}]}]
    }
    plain = api.post("/v1/replay", json=asked).json()
    assert plain["recorded"]["loops"] == 1
    assert plain["recorded"]["attempts"] == 2
    rows = [(one["policy"], one["attempts"], one["lost"]) for one in plain["policies"]]
    assert rows == [("default, attempts.limit=1", 1, 1), ("policy 2", 2, 0)]
