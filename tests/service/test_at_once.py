"""A call that several callers send at once with one idempotency key happens once.

Each call is sent several times at the same moment, to one service or to two that share
a store. What this leaves in the store must be what one call leaves.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from heedful.service.app import API_EXAMPLES
from heedful.store.keys import KEY_PERMISSIONS
from tests import engines
from tests.conftest import SOAK
from tests.service.support import PROJECT, Api, problem, served
from tests.tables import telling

pytestmark = pytest.mark.both_nightly
CALLERS_PER_SERVICE = 3
ROUNDS = 2 * SOAK  # in each of 20 rounds an override took effect several times
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


class Request(NamedTuple):
    """A request to a service."""

    method: str
    path: str
    body: Any


class Case(NamedTuple):
    """A call, and the requests that come before it."""

    call: Request
    before: Sequence[Request] = ()


@contextmanager
def services(folder: Path, count: int) -> Iterator[list[Api]]:
    """Return that many services, which share one store."""
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        yield [stack.enter_context(served(folder)) for _ in range(count)]


def example_of(route: str) -> Any:
    """Return the documented body of a route, such as `POST /v1/recall`."""
    return API_EXAMPLES[route]["request"]


def prepare(api: Api, case: Case) -> str:
    """Make the requests before the call; return a key that may do everything."""
    key = api.key(*KEY_PERMISSIONS)
    writer = api.key("write", outside=True)
    for method, path, body in case.before:
        sender = writer if path == "/v1/reflections" else key
        answer = api.request(method, path, json=body, key=sender)
        assert answer.is_success, answer.text
    return key


def call_at_once(apis: Sequence[Api], call: Request, key: str) -> list[httpx.Response]:
    """Send the call several times to each service, all at once."""
    headers = {"Idempotency-Key": "once"}

    async def send() -> list[httpx.Response]:
        """Send all of them before one is answered."""
        calls = (
            api.ask(call.method, call.path, json=call.body, key=key, headers=headers)
            for api in CALLERS_PER_SERVICE * list(apis)
        )
        return await asyncio.gather(*calls)

    return apis[0].run(send())


def check_once(folder: Path, case: Case, service_count: int) -> None:
    """Check that a call at once leaves, and answers, what a single call does."""
    method, path, body = case.call
    with services(folder / "single", 1) as [api]:
        key = prepare(api, case)
        single = api.request(method, path, json=body, key=key)
        assert single.is_success, single.text
        expected_counts = engines.rows(api.setup.store.url, COUNTS)

    with services(folder / "many", service_count) as apis:
        key = prepare(apis[0], case)
        answers = call_at_once(apis, case.call, key)
        repeated = apis[-1].request(
            method, path, json=body, key=key, headers={"Idempotency-Key": "once"}
        )
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


LOOP = Request("PUT", "/v1/loops/1", {"task": "a", "policy": "default"})
FAILED_ATTEMPT = {
    "output": "1",
    "evaluation": {"findings": [{"check": "a", "message": "b"}]},
}
STOPPED_LOOP = (
    Request("PUT", "/v1/loops/1", {"task": "a", "policy": "default, attempts.limit=1"}),
    Request("PUT", "/v1/loops/1/attempts/1", FAILED_ATTEMPT),
)
STOPPED_GUARDED_LOOP = (
    Request(
        "PUT", "/v1/loops/1", {"task": "a", "policy": "orchestrator, attempts.limit=1"}
    ),
    Request("PUT", "/v1/loops/1/attempts/1", FAILED_ATTEMPT),
)
COMPLETION = example_of("POST /orchestrator/loop-complete")
OVERRIDING_COMPLETION = {
    "loop_id": "1",
    "reflection_status": "done",
    "override_max_reruns": True,
    "override_by": "ops",
}
HELD_LESSON = Request(
    "POST", "/v1/reflections", {"error_type": "TypeError", "text": "a number"}
)


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
OVERRIDES = {
    "an override": Case(
        Request(
            "POST", "/v1/loops/1/overrides", {"rule": "attempts", "why": "one more"}
        ),
        STOPPED_LOOP,
    ),
    "an override of the earlier interface": Case(
        Request(
            "POST",
            "/orchestrator/override-guardrails/1",
            {"override_max_reruns": True, "override_by": "ops"},
        ),
        STOPPED_LOOP,
    ),
    "two overrides of the earlier interface": Case(
        Request(
            "POST",
            "/orchestrator/override-guardrails/1",
            {
                "override_max_reruns": True,
                "override_fatigue": True,
                "override_by": "ops",
            },
        ),
        STOPPED_GUARDED_LOOP,
    ),
}
OTHER_CALLS = {
    "a note on a loop": Case(
        Request("POST", "/v1/loops/1/notes", {"text": "ask again"}), [LOOP]
    ),
    "the right answer of a loop": Case(
        Request("POST", "/v1/loops/1/correction", {"accepted": "2"}), STOPPED_LOOP
    ),
    "a loop cancelled": Case(
        Request("POST", "/v1/loops/1/cancel", {"why": "b"}), [LOOP]
    ),
    "a loop cancelled after an attempt": Case(
        Request("POST", "/v1/loops/1/cancel", {"why": "b"}),
        [LOOP, Request("PUT", "/v1/loops/1/attempts/1", FAILED_ATTEMPT)],
    ),
    "a completed loop": Case(
        Request("POST", "/orchestrator/loop-complete", COMPLETION)
    ),
    "a completed loop with an override": Case(
        Request("POST", "/orchestrator/loop-complete", OVERRIDING_COMPLETION),
        STOPPED_GUARDED_LOOP,
    ),
    "a lesson": Case(
        Request("POST", "/v1/reflections", example_of("POST /v1/reflections"))
    ),
    "a known lesson": Case(HELD_LESSON, [HELD_LESSON]),
    "a lesson released": Case(
        Request("POST", "/v1/quarantine/1/release", {"why": "read"}), [HELD_LESSON]
    ),
    "a lesson rejected": Case(
        Request("POST", "/v1/quarantine/1/reject", {"why": "read"}), [HELD_LESSON]
    ),
    "a rejection taken back": Case(
        Request("POST", "/v1/quarantine/1/undo", {"why": "a mistake"}),
        [HELD_LESSON, Request("POST", "/v1/quarantine/1/reject", {"why": "read"})],
    ),
    "a source revoked": Case(
        Request("POST", "/v1/quarantine/revoke", {"source": "a", "why": "b"}),
        [Request("POST", "/v1/reflections", {**HELD_LESSON.body, "source": "a"})],
    ),
    "an episode": Case(
        Request("POST", "/v1/episodes", example_of("POST /v1/episodes"))
    ),
    "traces": Case(Request("POST", "/v1/traces", example_of("POST /v1/traces"))),
    "an event of a session": Case(
        Request("POST", "/v1/hooks/claude-code", FAILED_TOOL),
        [Request("POST", "/v1/hooks/claude-code", SESSION_START)],
    ),
    "a recall": Case(
        Request("POST", "/v1/recall", {"task": "a number", "loop": "2"}),
        [
            HELD_LESSON,
            Request("POST", "/v1/quarantine/1/release", {"why": "read"}),
        ],
    ),
    "an outcome": Case(
        Request(
            "POST", "/v1/outcomes", {"loop": "2", "right_at_once": True, "calls": 1}
        ),
        [
            HELD_LESSON,
            Request("POST", "/v1/quarantine/1/release", {"why": "read"}),
            Request("POST", "/v1/recall", {"task": "a number", "loop": "2"}),
        ],
    ),
    "texts offered": Case(
        Request("POST", "/v1/trials/offers", example_of("POST /v1/trials/offers"))
    ),
    "the end of a trial": Case(
        Request("POST", "/v1/trials/results", example_of("POST /v1/trials/results")),
        [Request("POST", "/v1/trials/offers", example_of("POST /v1/trials/offers"))],
    ),
    "a generated reflection": Case(
        Request(
            "POST",
            "/api/v1/reflections/generate",
            {
                **example_of("POST /api/v1/reflections/generate"),
                "project_id": PROJECT,
            },
        )
    ),
}
# Their answers are not stored: each of them is answered, and none takes effect.
READING_CALLS = {
    "a question": Case(Request("POST", "/v1/seen", example_of("POST /v1/seen"))),
    "an action asked for": Case(
        Request("POST", "/v1/before", example_of("POST /v1/before"))
    ),
    "a search": Case(
        Request("POST", "/v1/reflections/query", {"text": "a number"}), [HELD_LESSON]
    ),
    "a checked output": Case(
        Request("POST", "/v1/validate", example_of("POST /v1/validate"))
    ),
    "a replay": Case(
        Request("POST", "/v1/replay", {"policies": ["default"]}), STOPPED_LOOP
    ),
}
SERVICE_COUNTS = {1: "one service", 2: "two services"}


def rows_of(cases: Mapping[str, object], *telling_names: str) -> list[Any]:
    """Return a row for each case with one service, and one with two.

    `make test` runs a call of each kind of write, and one that only reads.
    """
    rows = {
        f"{name}, {words}": (case, count)
        for name, case in cases.items()
        for count, words in SERVICE_COUNTS.items()
    }
    return [
        pytest.param(*rows[row.id], id=row.id, marks=row.marks)
        for row in telling(rows, *telling_names)
    ]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("case", "service_count"),
    rows_of(
        OVERRIDES,
        "an override, one service",
        "an override, two services",
        "two overrides of the earlier interface, two services",
    ),
)
def test_an_override_sent_at_once_lifts_a_rule_once(tmp_path, case, service_count):
    for number in range(ROUNDS):
        check_once(tmp_path / str(number), case, service_count)


@pytest.mark.parametrize(
    ("case", "service_count"),
    rows_of(
        {**OTHER_CALLS, **READING_CALLS},
        "a completed loop with an override, two services",
        "a lesson, one service",
        "a lesson released, two services",
        "a source revoked, two services",
        "an event of a session, two services",
        "a recall, two services",
        "a question, two services",
    ),
)
def test_a_call_sent_at_once_takes_effect_once(tmp_path, case, service_count):
    check_once(tmp_path, case, service_count)


PAIRS = {
    "lessons": (
        HELD_LESSON,
        Request(*HELD_LESSON[:2], {"error_type": "E", "text": "c"}),
    ),
    "a lesson and a cancelled loop": (
        HELD_LESSON,
        Request("POST", "/v1/loops/1/cancel", {"why": "b"}),
    ),
}


@pytest.mark.parametrize(
    ("pair", "service_count"),
    rows_of(
        PAIRS, "lessons, two services", "a lesson and a cancelled loop, one service"
    ),
)
def test_of_two_calls_with_one_key_at_once_the_other_is_refused(
    tmp_path, pair, service_count
):
    before = [LOOP, Request("PUT", "/v1/loops/2", LOOP.body)]
    headers = {"Idempotency-Key": "once"}
    with services(tmp_path / "many", service_count) as apis:
        key = prepare(apis[0], Case(pair[0], before))

        async def send() -> list[httpx.Response]:
            """Send both calls before one is answered."""
            calls = (
                api.ask(
                    call.method, call.path, json=call.body, key=key, headers=headers
                )
                for api, call in zip([apis[0], apis[-1]], pair, strict=True)
            )
            return await asyncio.gather(*calls)

        answers = apis[0].run(send())
        counts = engines.rows(apis[0].setup.store.url, COUNTS)
        done, refused = sorted(answers, key=lambda answer: answer.status_code)
        assert done.is_success, done.text
        problem(refused, 422, "idempotency_key_reused")

    with services(tmp_path / "single", 1) as [api]:
        call = pair[answers.index(done)]
        prepare(api, Case(call, before))
        assert api.request(call.method, call.path, json=call.body).is_success
        assert engines.rows(api.setup.store.url, COUNTS) == counts


def test_every_route_that_a_caller_may_repeat_is_sent_at_once():
    routes = {name.split()[1] for name in API_EXAMPLES if name.startswith("POST ")}
    sent = [*OVERRIDES.values(), *OTHER_CALLS.values(), *READING_CALLS.values()]
    paths = [case.call.path.split("/") for case in sent]
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
