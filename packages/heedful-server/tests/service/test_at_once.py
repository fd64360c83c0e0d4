"""A call that several callers send at once with one idempotency key happens once.

Each call is sent several times at the same moment, to one service or to two that share
a store. What this leaves in the store must be what one call leaves.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from conftest import SOAK
from heedful.store.keys import KEY_PERMISSIONS
from heedful_server.app import api_examples
from tests import engines
from tests.service.support import PROJECT, Api, problem, served
from tests.tables import cases

pytestmark = pytest.mark.both_nightly
CALLERS_PER_SERVICE = 3
ROUNDS = 2 * SOAK  # in each of 20 rounds an override took effect several times
ONCE = {"Idempotency-Key": "once"}
# What a call can leave in a store.
COUNTS = """
select
  (select count(*) from loop), (select count(*) from attempt),
  (select count(*) from decision), (select count(*) from override),
  (select count(*) from lesson), (select coalesce(sum(seen), 0) from lesson),
  (select count(*) from occurrence), (select count(*) from example),
  (select count(*) from ruling), (select count(*) from refused),
  (select count(*) from exposure), (select count(*) from outcome),
  (select count(*) from trial), (select count(*) from trial where ended is not null),
  (select count(*) from episode), (select count(*) from event),
  (select count(*) from trace), (select count(*) from span),
  (select count(*) from audit where action <> 'key.create')
"""
Call = tuple[str, str, Any]


class Case(NamedTuple):
    """A path that is posted to, the body, and the calls that come before it."""

    path: str
    body: Any
    before: Sequence[Call] = ()


@contextmanager
def services(folder: Path, count: int) -> Iterator[list[Api]]:
    """Return that many services, which share one store."""
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        yield [stack.enter_context(served(folder)) for _ in range(count)]


def prepare(api: Api, case: Case) -> str:
    """Make the requests before the call; return a key that may do everything."""
    key = api.key(*KEY_PERMISSIONS)
    writer = api.key("write", outside=True)
    for method, path, body in case.before:
        sender = writer if path == "/v1/reflections" else key
        answer = api.request(method, path, json=body, key=sender)
        assert answer.is_success, answer.text
    return key


def check_once(folder: Path, case: Case, service_count: int) -> None:
    """Check that a call at once leaves, and answers, what a single call does."""
    with services(folder / "single", 1) as [api]:
        key = prepare(api, case)
        single = api.post(case.path, json=case.body, key=key)
        assert single.is_success, single.text
        expected_counts = engines.rows(api.setup.store.url, COUNTS)

    with services(folder / "many", service_count) as apis:
        key = prepare(apis[0], case)

        async def send() -> list[httpx.Response]:
            """Send all of them before one is answered."""
            calls = (
                api.ask("POST", case.path, json=case.body, key=key, headers=ONCE)
                for api in CALLERS_PER_SERVICE * apis
            )
            return await asyncio.gather(*calls)

        answers = apis[0].run(send())
        repeated = apis[-1].post(case.path, json=case.body, key=key, headers=ONCE)
        counts = engines.rows(apis[0].setup.store.url, COUNTS)

    assert counts == expected_counts
    assert repeated.status_code == single.status_code
    is_replayed = case not in READING_CALLS.values()
    assert ("Idempotent-Replayed" in repeated.headers) == is_replayed
    for answer in answers:
        if answer.status_code == 409:
            assert answer.headers["Retry-After"] == "1", answer.text
        else:
            assert answer.status_code == single.status_code, answer.text
            assert answer.content == repeated.content or not is_replayed


LOOP: Call = ("PUT", "/v1/loops/1", {"task": "a", "policy": "default"})
FINDING = {"check": "a", "message": "b"}
FAILED_ATTEMPT: Call = (
    "PUT",
    "/v1/loops/1/attempts/1",
    {"output": "1", "evaluation": {"findings": [FINDING]}},
)


def stopped_loop(policy: str) -> list[Call]:
    """Return the calls after which a loop has made its only attempt."""
    loop = {"task": "a", "policy": f"{policy}, attempts.limit=1"}
    return [("PUT", "/v1/loops/1", loop), FAILED_ATTEMPT]


HELD_LESSON: Call = (
    "POST",
    "/v1/reflections",
    {"error_type": "TypeError", "text": "a number"},
)
READ = {"why": "read"}
RELEASED_LESSON = [HELD_LESSON, ("POST", "/v1/quarantine/1/release", READ)]
LIFT = {"override_max_reruns": True, "override_by": "ops"}
COMPLETION = {"loop_id": "1", "reflection_status": "done", **LIFT}
QUESTION = {"task": "a number", "loop": "2"}
OUTCOME = {"loop": "2", "right_at_once": True, "calls": 1}
SESSION_START = {
    "hook_event_name": "SessionStart",
    "session_id": "5b1e",
    "source": "startup",
}
FAILED_TOOL = {
    "hook_event_name": "PostToolUse",
    "session_id": "5b1e",
    "tool_name": "Bash",
    "tool_input": {"command": "npm run build"},
    "tool_response": {"stderr": "error TS2304: no name 'x'", "exit_code": 2},
    "tool_use_id": "toolu_1",
}


def documented(path: str, *before: Call, **changes: Any) -> Case:
    """Return the call of a path with its documented body."""
    body = api_examples()[f"POST {path}"]["request"]
    return Case(path, {**body, **changes}, before)


OLD_OVERRIDE = "/orchestrator/override-guardrails/1"
OVERRIDES = {
    "an override": Case(
        "/v1/loops/1/overrides",
        {"rule": "attempts", "why": "one more"},
        stopped_loop("default"),
    ),
    "an override of the earlier interface": Case(
        OLD_OVERRIDE, LIFT, stopped_loop("default")
    ),
    "two overrides of the earlier interface": Case(
        OLD_OVERRIDE, {**LIFT, "override_fatigue": True}, stopped_loop("orchestrator")
    ),
}
OFFERS = "/v1/trials/offers"
WRITING_CALLS = {
    "a note on a loop": Case("/v1/loops/1/notes", {"text": "ask again"}, [LOOP]),
    "the right answer of a loop": Case(
        "/v1/loops/1/correction", {"accepted": "2"}, stopped_loop("default")
    ),
    "a loop cancelled": Case("/v1/loops/1/cancel", {"why": "b"}, [LOOP]),
    "a completed loop": documented("/orchestrator/loop-complete"),
    "a completed loop with an override": Case(
        "/orchestrator/loop-complete", COMPLETION, stopped_loop("orchestrator")
    ),
    "a lesson": documented("/v1/reflections"),
    "a known lesson": Case("/v1/reflections", HELD_LESSON[2], [HELD_LESSON]),
    "a lesson released": Case("/v1/quarantine/1/release", READ, [HELD_LESSON]),
    "a lesson rejected": Case("/v1/quarantine/1/reject", READ, [HELD_LESSON]),
    "a rejection taken back": Case(
        "/v1/quarantine/1/undo",
        {"why": "a mistake"},
        [HELD_LESSON, ("POST", "/v1/quarantine/1/reject", READ)],
    ),
    "a source revoked": Case(
        "/v1/quarantine/revoke",
        {"source": "a", "why": "b"},
        [("POST", "/v1/reflections", {**HELD_LESSON[2], "source": "a"})],
    ),
    "a lesson forgotten": Case(
        "/v1/forget",
        {"lesson": 1, "why": "a"},
        [("POST", "/v1/reflections", {**HELD_LESSON[2], "source": "a"})],
    ),
    "an episode": documented("/v1/episodes"),
    "traces": documented("/v1/traces"),
    "an event of a session": Case(
        "/v1/hooks/claude-code",
        FAILED_TOOL,
        [("POST", "/v1/hooks/claude-code", SESSION_START)],
    ),
    "a recall": Case("/v1/recall", QUESTION, RELEASED_LESSON),
    "an outcome": Case(
        "/v1/outcomes", OUTCOME, [*RELEASED_LESSON, ("POST", "/v1/recall", QUESTION)]
    ),
    "texts offered": documented(OFFERS),
    "the end of a trial": documented(
        "/v1/trials/results", ("POST", OFFERS, documented(OFFERS).body)
    ),
    "a generated reflection": documented(
        "/api/v1/reflections/generate", project_id=PROJECT
    ),
}
# Their answers are not stored: each of them is answered, and none takes effect.
READING_CALLS = {
    "a question": documented("/v1/seen"),
    "an action asked for": documented("/v1/before"),
    "a search": Case("/v1/reflections/query", {"text": "a number"}, [HELD_LESSON]),
    "a checked output": documented("/v1/validate"),
    "a replay": Case("/v1/replay", {"policies": ["default"]}, stopped_loop("default")),
}
# `make test` runs one call of each kind, and `make soak` all.
TELLING = (
    "a completed loop with an override",
    "a lesson released",
    "a source revoked",
    "an event of a session",
    "a recall",
    "a question",
)


@pytest.mark.soak
@pytest.mark.parametrize("service_count", [1, 2])
@pytest.mark.parametrize("name", OVERRIDES)
def test_an_override_sent_at_once_lifts_a_rule_once(tmp_path, name, service_count):
    for number in range(ROUNDS):
        check_once(tmp_path / str(number), OVERRIDES[name], service_count)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in TELLING else pytest.mark.nightly)
        for name in [*WRITING_CALLS, *READING_CALLS]
    ],
)
def test_a_call_sent_at_once_takes_effect_once(tmp_path, name):
    check_once(tmp_path, {**WRITING_CALLS, **READING_CALLS}[name], service_count=2)


@cases(
    "pair",
    {
        "lessons": (HELD_LESSON, (*HELD_LESSON[:2], {"error_type": "E", "text": "c"})),
        "a lesson and a cancelled loop": (
            HELD_LESSON,
            ("POST", "/v1/loops/1/cancel", {"why": "b"}),
        ),
    },
)
def test_of_two_calls_with_one_key_at_once_the_other_is_refused(tmp_path, pair):
    with services(tmp_path / "many", 2) as apis:
        key = prepare(apis[0], Case("", None, [LOOP]))

        async def send() -> list[httpx.Response]:
            """Send both calls before one is answered."""
            calls = (
                api.ask(method, path, json=body, key=key, headers=ONCE)
                for api, (method, path, body) in zip(apis, pair, strict=True)
            )
            return await asyncio.gather(*calls)

        answers = apis[0].run(send())
        counts = engines.rows(apis[0].setup.store.url, COUNTS)
        done, refused = sorted(answers, key=lambda answer: answer.status_code)
        assert done.is_success, done.text
        problem(refused, 422, "idempotency_key_reused")

    with services(tmp_path / "single", 1) as [api]:
        method, path, body = pair[answers.index(done)]
        prepare(api, Case("", None, [LOOP]))
        assert api.request(method, path, json=body).is_success
        assert engines.rows(api.setup.store.url, COUNTS) == counts


def test_every_route_that_a_caller_may_repeat_is_sent_at_once():
    routes = {name.split()[1] for name in api_examples() if name.startswith("POST ")}
    sent = [*OVERRIDES.values(), *WRITING_CALLS.values(), *READING_CALLS.values()]
    paths = [case.path.split("/") for case in sent]
    missing = {
        route for route in routes if not any(_fits(route, path) for path in paths)
    }
    assert missing == {"/api/v1/reflections/query"}


def _fits(route: str, path: Sequence[str]) -> bool:
    """Return whether a path, in parts, is one of a route such as `/v1/loops/{id}`."""
    parts = route.split("/")
    return len(parts) == len(path) and all(
        part == name or part.startswith("{")
        for part, name in zip(parts, path, strict=True)
    )
