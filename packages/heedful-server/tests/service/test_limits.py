"""What a request may be: its size, form and rate; what every answer has."""

import asyncio
import gzip
import json
import logging
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import (
    ResourceSpans,
    ScopeSpans,
    Span,
    TracesData,
)

import heedful
from heedful.lessons.lesson import Scope
from heedful.store import keys
from heedful_server.middleware import RateLimit
from heedful_server.problems import Problem
from heedful_server.routes import operations
from heedful_server.setup import MAX_REFUSED_KEYS, MAX_REMEMBERED_CALLERS, RequestLimits
from tests.engines import change_rows
from tests.service.jobs import Handed
from tests.service.support import problem, served
from tests.tables import cases

LIMITS = RequestLimits(body=1000, traces=5000, rate=1000.0, burst=1000, answer=0.5)
JSON = {"content-type": "application/json"}
PACKED = {**JSON, "content-encoding": "gzip"}
ECHO = "/v1/test/echo"


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    with served(tmp_path_factory.mktemp("http"), limits=LIMITS) as api:

        @api.app.post(ECHO)
        async def echo(body: dict[str, Any]) -> dict[str, Any]:
            return {"keys": sorted(body), "size": len(json.dumps(body))}

        @api.app.get("/v1/test/fails")
        async def fails() -> None:
            raise ZeroDivisionError(
                "password=hunter2hunter2 sk-proj-abcdefghijklmnopqrstuvwx123456"
            )

        @api.app.get("/v1/test/slow")
        async def slow() -> None:
            await asyncio.sleep(60)

        @api.app.get("/v1/test/late")
        async def late() -> None:
            raise TimeoutError("of the route's own")

        yield api


def sent(api, *parts, pause=0.0, **headers):
    """The answer to a body in parts, of a length that nobody knows before."""

    async def pieces():
        for part in parts:
            yield part
            await asyncio.sleep(pause)

    return api.run(api.ask("POST", ECHO, content=pieces(), headers={**JSON, **headers}))


def test_a_body_has_a_size_which_is_counted_and_not_believed(api):
    assert api.post(ECHO, json={"a": 900 * "x"}).status_code == 200
    refusal = problem(api.post(ECHO, json={"a": 1000 * "x"}), 413, "body_too_large")
    assert "1000 bytes" in refusal["detail"]
    problem(sent(api, *20 * [100 * b" "]), 413, "body_too_large")
    small = {"content-length": "5", **JSON}
    problem(api.post(ECHO, content=2000 * b" ", headers=small), 413, "body_too_large")


def test_what_unpacks_to_more_is_refused(api):
    bomb = gzip.compress(10_000_000 * b" ")
    fine = gzip.compress(b'{"a": 1}')
    problem(api.post(ECHO, content=bomb, headers=PACKED), 413, "body_too_large")
    assert api.post(ECHO, content=fine, headers=PACKED).json()["keys"] == ["a"]
    for broken in (b"no", fine[:-5], fine + b"more"):
        problem(api.post(ECHO, content=broken, headers=PACKED), 400, "bad_request")
    other = {**PACKED, "content-encoding": "br"}
    problem(api.post(ECHO, content=fine, headers=other), 415, "unsupported_media_type")


def test_what_is_large_in_memory_alone_is_refused(api, tmp_path):
    dense = b'{"a": [' + 150 * b"[]," + b"[]]}"
    problem(api.post(ECHO, content=dense, headers=JSON), 413, "body_too_large")
    traces = {**PACKED, "content-type": "application/x-protobuf"}
    with served(tmp_path) as large_api:
        body = 50_001 * b"\x12\x00"  # spans, in a scope in a resource
        for tag in (b"\x12", b"\x0a"):
            n = len(body)
            body = tag + bytes([n & 127 | 128, n >> 7 & 127 | 128, n >> 14]) + body
        answer = large_api.post(
            "/v1/traces", content=gzip.compress(body), headers=traces
        )
        assert "at most 50000" in problem(answer, 400, "invalid_traces")["detail"]
        for spans, status in (
            (b"{}," * 840_000, 413),
            (b'{"name": "%s"},' % (9_000 * b"[{"), 200),
        ):
            body = b'{"resourceSpans": [{"scopeSpans": [{"spans": [%s{}]}]}]}' % spans
            assert (
                large_api.post("/v1/traces", content=body, headers=JSON).status_code
                == status
            )
        ids = b"\x0a\x10" + 16 * b"t" + b"\x12\x08" + 8 * b"s"
        dense = Span.FromString(ids + 600_000 * b"\x4a\x00")  # attributes without a key
        known = Span.FromString(ids)
        known.attributes.add(key="tool.name").value.string_value = "look"
        both = ScopeSpans(spans=[dense, known])
        sent = TracesData(
            resource_spans=[ResourceSpans(scope_spans=[both])]
        ).SerializeToString()
        answer = large_api.post(
            "/v1/traces", content=gzip.compress(sent), headers=traces
        )
        part = ExportTraceServiceResponse.FromString(answer.content).partial_success
        assert answer.status_code == 200
        assert part.rejected_spans == 1


def test_what_is_no_json_object_is_refused(api):
    for body in (b'{"a": -Infinity}', b'{"a": "\\ud800"}', b"[1]", b""):
        refusal = api.post(ECHO, content=body, headers=JSON).json()
        assert refusal["code"] in ("bad_request", "invalid_request"), body
    pair = api.post(ECHO, content=b'{"\\ud83d\\ude00": "NaN"}', headers=JSON)
    assert pair.json()["keys"] == ["😀"]


def test_a_body_comes_in_time_and_not_from_a_page_in_a_browser(api):
    problem(sent(api, b"{", pause=5), 504, "took_too_long")
    for kind in ("text/plain", ""):
        answer = api.post(ECHO, content=b"{}", headers={"content-type": kind})
        problem(answer, 415, "unsupported_media_type")


def test_a_key_has_a_rate(tmp_path):
    rates = RateLimit(2.0, 3)
    for _ in range(3):
        rates.take("a", 10.0)
    with pytest.raises(Problem) as refused:
        rates.take("a", 10.0)
    assert refused.value.status == 429
    assert refused.value.headers == {"Retry-After": "1"}
    rates.take("b", 10.0)  # which is another's
    rates.take("a", 10.5)
    with pytest.raises(Problem):
        rates.take("a", 10.9)
    slow = RateLimit(0.01, 1)
    for n in [*range(MAX_REMEMBERED_CALLERS + 10), 0]:  # the first is forgotten by then
        slow.take(str(n), 0.0)
    with pytest.raises(Problem, match="try again in 100 s"):
        slow.take("0", 0.0)
    with served(tmp_path, limits=RequestLimits(rate=0.001, burst=2)) as api:
        assert [api.get("/v1/keys").status_code for _ in range(3)] == [200, 200, 429]
        assert api.get("/v1/keys", key=api.key("admin")).status_code == 200
        assert [api.get("/healthz", key="").status_code for _ in range(5)] == [200] * 5


def test_what_fails_is_told_to_the_log_alone_and_without_secrets(api, caplog):
    key = api.key("read", "write")
    with caplog.at_level(logging.DEBUG, "heedful"):
        answer = api.get("/v1/test/fails?text=some-private-text")
        api.post(ECHO, json={"secret-of-mine": 1}, key=key)
        api.get(f"/v1/loops/{key}", key=key)
    refusal = problem(answer, 500, "internal_error")
    assert "ZeroDivisionError" not in str(refusal)
    for logged in (
        "ZeroDivisionError",
        answer.headers["x-request-id"],
        key.split("_")[1],
    ):
        assert logged in caplog.text
    for private in (
        "hunter2",
        "sk-proj",
        "private-text",
        "secret-of-mine",
        key.split("_")[2],
    ):
        assert private not in caplog.text + str(refusal)


def test_the_log_names_a_refused_key_by_its_id(api, caplog):
    _, id, secret = api.key("read").split("_")
    wrong = f"heedful_{id}_{secret[::-1]}"
    with caplog.at_level(logging.INFO, "heedful.http"):
        problem(api.delete("/v1/loops", key=wrong), 401, "key_refused")
    assert f" key={id} " in caplog.text
    assert secret[::-1] not in caplog.text


@cases(
    ("may", "revoked", "status"),
    {
        "the key is revoked": (("read",), True, 401),
        "the key has not the permission": (("write",), False, 403),
    },
)
def test_a_refused_request_is_logged_and_counted(
    tmp_path, caplog, may, revoked, status
):
    with served(tmp_path) as api:
        key = api.key(*may)
        _, id, secret = key.split("_")
        if revoked:
            api.run(api.setup.store.write(Scope("acme"), keys.revoke, id, "ops"))
        with caplog.at_level(logging.INFO, "heedful.http"):
            assert api.get("/v1/loops/private", key=key).status_code == status
        route = "/v1/loops/{id}"
        assert f"GET {route} {status} " in caplog.text
        assert f" key={id} " in caplog.text

        metrics = api.get("/metrics", key="").text
        labels = f'key="{id}",route="{route}",status="{status}"'
        assert f"heedful_refused_requests_total{{{labels}}} 1.0" in metrics
        assert f'method="GET",route="{route}",status="{status}"' in metrics
        assert secret not in metrics + caplog.text


def test_a_request_without_a_key_is_counted_by_its_route(tmp_path):
    with served(tmp_path) as api:
        api.get("/v1/loops/a", key="")
        metrics = api.get("/metrics", key="").text
    labels = 'key="-",route="/v1/loops/{id}",status="401"'
    assert f"heedful_refused_requests_total{{{labels}}} 1.0" in metrics


def test_metrics_name_a_bounded_number_of_refused_keys(tmp_path):
    with served(tmp_path) as api:
        for number in range(MAX_REFUSED_KEYS + 2):
            api.get("/v1/loops", key=f"heedful_{number:012x}_{64 * '0'}")
        metrics = api.get("/metrics", key="").text
    assert metrics.count("heedful_refused_requests_total{") == MAX_REFUSED_KEYS + 1
    labels = 'key="(other)",route="/v1/loops",status="401"'
    assert f"heedful_refused_requests_total{{{labels}}} 2.0" in metrics


def test_an_answer_takes_its_time_and_no_more(api):
    problem(api.get("/v1/test/slow"), 504, "took_too_long")
    problem(api.get("/v1/test/late"), 500, "internal_error")


@pytest.mark.parametrize("path", ["/healthz", "/v1/keys", "/v1/nothing"])
def test_every_answer_is_safe_and_has_the_id_of_its_request(api, path):
    for answer in (api.get(path), api.get(path, key=""), api.request("OPTIONS", path)):
        headers = answer.headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert not [name for name in headers if name.startswith("access-control")]
    for request_id, is_kept in (
        ("abc-1.2:3", True),
        ("a b", False),
        (65 * "a", False),
        ("AKIAIOSFODNN7EXAMPLE", False),
    ):
        answer = api.get(path, headers={"X-Request-Id": request_id})
        assert (answer.headers["x-request-id"] == request_id) is is_kept


def test_metrics_tell_of_nobody_and_count_a_verdict_once(tmp_path):
    with served(tmp_path) as api:
        api.request("PRIVATE", "/v1/private-name")
        api.request("PRIVATE", "/healthz")
        wrong = {"findings": [{"check": "a", "message": "b"}]}
        twice = {
            "rules": [{"rule": "all", "rules": 2 * [{"rule": "attempts", "limit": 1}]}]
        }
        for loop, policy, evaluations in (
            ("counted", "default", (wrong, {})),
            ("stopped", "default, attempts.limit=1", (wrong,)),
            ("both", twice, (wrong,)),
        ):
            api.put(f"/v1/loops/{loop}", json={"task": "a", "policy": policy})
            for n, evaluation in enumerate(evaluations, 1):
                for _ in range(2):
                    body = {"output": str(n), "evaluation": evaluation}
                    api.put(
                        f"/v1/loops/{loop}/attempts/{n}", json=body
                    ).raise_for_status()
        api.post(
            "/v1/loops/stopped/overrides",
            json={"rule": "attempts", "why": "it is close"},
        )
        text = api.get("/metrics", key="").text
        assert 'total{method="PUT",route="/v1/loops/{id}",status="201"} 3' in text
        assert 'route="(none)"' in text
        for outcome, times in (
            ("again", 2),
            ("passed", 1),
            ("attempts", 1),
            ("all", 1),
        ):
            assert f'heedful_decisions_total{{outcome="{outcome}"}} {times}.0' in text
        for private in ("acme", "main", "private", "tests", "+attempts"):
            assert private not in text.lower()


def test_without_keys_this_machine_alone_is_let_in(tmp_path):
    with served(tmp_path, open=True) as api:
        problem(api.get("/v1/keys", key=""), 401, "key_refused")  # one has been made
        for item in api.get("/v1/keys").json()["items"]:
            api.run(
                api.setup.store.write(Scope("acme"), keys.revoke, item["id"], "ops")
            )
        problem(
            api.get("/v1/keys", key=""), 401, "key_refused"
        )  # who revokes the last locks up
        change_rows(api.setup.store.url, "delete from key")
        for host in ("localhost:80", "127.0.0.1", "[::1]:8765"):
            assert (
                api.get("/v1/keys", key="", headers={"Host": host}).status_code == 200
            )
        elsewhere = [
            {"Host": host}
            for host in ("evil.example:8765", "127.0.0.1.evil.example", "")
        ]
        passed = ("Origin", "Via", "X-Forwarded-For")
        elsewhere += [{name: "http://localhost"} for name in passed]
        for headers in elsewhere:
            answer = api.get("/v1/keys", key="", headers=headers)
            problem(answer, 421, "misdirected_request")
        api.key("admin")
        problem(api.get("/v1/keys", key=""), 401, "key_refused")


def test_it_says_whether_it_lives_and_whether_it_is_ready(tmp_path, monkeypatch):
    monkeypatch.setattr(operations, "MAX_CACHE_SECONDS", 0.0)
    work = Handed()
    with served(tmp_path, work=work) as api:
        assert api.get("/healthz", key="").json() == {"status": "ok"}
        assert api.request("HEAD", "/healthz", key="").status_code == 200
        version = {"version": heedful.__version__, "embedder": "none"}
        ready = {"status": "ready", "store": "ok", "work": "ok", **version}
        assert api.get("/readyz", key="").json() == ready
        metrics = api.get("/metrics", key="").text
        assert "heedful_ready 1.0" in metrics
        assert f'heedful_build_info{{version="{heedful.__version__}"}} 1.0' in metrics
        problem(api.get("/v1/nothing", key=""), 401, "key_refused")
        problem(api.get("/v1/nothing"), 404, "unknown_path")
        problem(api.post("/healthz"), 405, "method_not_allowed")

        file = tmp_path / "heedful.db"
        moved = tmp_path / "moved.db"
        unused = api.key("admin")
        work.away = True
        unavailable = {"status": "unavailable", "work": "StoreUnavailable", **version}
        answer = api.get("/readyz", key="")
        assert answer.status_code == 503
        assert answer.json() == {**unavailable, "store": "ok"}
        assert api.request("HEAD", "/readyz", key="").status_code == 503
        assert "heedful_ready 0.0" in api.get("/metrics", key="").text
        work.away = False
        api.run(api.setup.store.close())
        file.rename(moved)
        file.mkdir()
        # A queue in a database that is away takes seconds to say so.
        answer = api.get("/readyz", key="")
        assert answer.status_code == 503
        assert answer.json() == {**unavailable, "store": "StoreUnavailable"}
        assert [
            api.get(path, key="").status_code for path in ("/healthz", "/metrics")
        ] == [200, 200]
        refused = api.get("/v1/keys", key=unused)
        detail = problem(refused, 503, "store_unavailable")["detail"]
        assert detail == "the store of the service failed; the log has the error"
        assert refused.headers["retry-after"] == "1"
        api.run(api.setup.store.close())
        file.rmdir()
        moved.rename(file)
        assert api.get("/readyz", key="").json() == ready
        assert api.get("/v1/keys").status_code == 200
