"""What a request may be: its size, form, rate and number; what every answer has."""

import asyncio
import gzip
import json
import logging
from typing import Any

import httpx
import pytest

from heedful.lessons.lesson import Scope
from heedful.service.middleware import KNOWN, RateLimit
from heedful.service.problems import Problem
from heedful.service.setup import Limits
from heedful.store import keys
from tests.engines import changed
from tests.service.support import problem, served

LIMITS = Limits(body=1000, traces=5000, rate=1000.0, burst=1000, seconds=0.2, answer=0.5)
WORDS = {"error_type": "TypeError", "text": "x"}


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    with served(tmp_path_factory.mktemp("http"), limits=LIMITS) as api:

        @api.app.post("/v1/test/echo")
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


def test_a_body_has_a_size(api):
    assert api.post("/v1/test/echo", json={"a": 900 * "x"}).status_code == 200
    told = problem(api.post("/v1/test/echo", json={"a": 1000 * "x"}), 413, "body_too_large")
    assert "1000 bytes" in told["detail"]


def test_the_size_is_counted_and_not_believed(api):
    async def parts():
        for _ in range(20):
            yield 100 * b" "

    async def chunked() -> Any:
        return await api.ask("POST", "/v1/test/echo", content=parts())

    problem(api.run(chunked()), 413, "body_too_large")
    small = {"content-length": "5", "content-type": "application/json"}
    answer = api.post("/v1/test/echo", content=2000 * b" ", headers=small)
    problem(answer, 413, "body_too_large")


def test_what_unpacks_to_more_is_refused(api):
    bomb = gzip.compress(10_000_000 * b" ")
    kind = {"content-type": "application/json", "content-encoding": "gzip"}
    answer = api.post("/v1/test/echo", content=bomb, headers=kind)
    problem(answer, 413, "body_too_large")
    fine = gzip.compress(b'{"a": 1}')
    assert api.post("/v1/test/echo", content=fine, headers=kind).json()["keys"] == ["a"]
    for broken in (b"no", fine[:-5], fine + b"more"):
        problem(api.post("/v1/test/echo", content=broken, headers=kind), 400, "bad_request")
    other = {**kind, "content-encoding": "br"}
    problem(api.post("/v1/test/echo", content=fine, headers=other), 415, "unsupported_media_type")


def test_what_is_large_in_memory_alone_is_refused(api, tmp_path):
    kind = {"content-type": "application/json"}
    dense = b'{"a": [' + 150 * b"[]," + b"[]]}"
    problem(api.post("/v1/test/echo", content=dense, headers=kind), 413, "body_too_large")
    packed = {**kind, "content-encoding": "gzip"}
    traces = {**packed, "content-type": "application/x-protobuf"}
    with served(tmp_path) as whole:
        thin = gzip.compress(b'{"task": "' + 3 * 2**20 * b"a" + b'"}')
        problem(whole.post("/v1/recall", content=thin, headers=packed), 413, "body_too_large")
        spans = 50_001 * b"\x12\x00"  # in a scope in a resource
        body = b"".join((b"\x12", _varint(len(spans)), spans))
        body = b"".join((b"\x0a", _varint(len(body)), body))
        answer = whole.post("/v1/traces", content=gzip.compress(body), headers=traces)
        assert "at most 50000" in problem(answer, 400, "invalid_traces")["detail"]


def _varint(n: int) -> bytes:
    return bytes([n & 127 | 128, n >> 7 & 127 | 128, n >> 14])


def test_a_body_that_does_not_come_is_not_waited_for(api):
    async def slowly():
        yield b"{"
        await asyncio.sleep(5)

    async def ask() -> Any:
        return await api.ask("POST", "/v1/test/echo", content=slowly())

    answer = api.run(ask())
    problem(answer, 408, "request_timeout")
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize("kind", ["text/plain", "", "application/x-www-form-urlencoded"])
def test_a_page_in_a_browser_cannot_send_json(api, kind):
    answer = api.post("/v1/test/echo", content=b"{}", headers={"content-type": kind})
    problem(answer, 415, "unsupported_media_type")
    assert answer.headers["accept"] == "application/json"


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": "\\ud800"}',
        b'{"a": "\xff\\ud800"}',
        '{"a": 1}'.encode("utf-16-le"),
    ],
)
def test_what_is_no_json_is_refused(api, body):
    headers = {"content-type": "application/json"}
    problem(api.post("/v1/test/echo", content=body, headers=headers), 400, "bad_request")


@pytest.mark.parametrize("body", [b"{", b"[1]", b"7", b'"x"', b"", 120 * b"[" + 120 * b"]"])
def test_what_is_json_of_another_kind_is_pointed_at(api, body):
    headers = {"content-type": "application/json; charset=utf-8"}
    answer = api.post("/v1/test/echo", content=body, headers=headers)
    assert answer.status_code in (400, 422)
    assert answer.json()["code"] in ("invalid_request", "bad_request")


def test_a_pair_of_surrogates_is_a_character(api):
    headers = {"content-type": "application/json"}
    body = b'{"\\ud83d\\ude00": "NaN"}'
    answer = api.post("/v1/test/echo", content=body, headers=headers)
    assert answer.json()["keys"] == ["😀"]


def test_a_key_has_a_rate():
    rates = RateLimit(2.0, 3)
    for _ in range(3):
        rates.take("a", 10.0)
    with pytest.raises(Problem) as told:
        rates.take("a", 10.0)
    assert (told.value.status, told.value.headers) == (429, {"Retry-After": "1"})
    rates.take("b", 10.0)  # which is another's
    rates.take("a", 10.5)
    with pytest.raises(Problem):
        rates.take("a", 10.9)
    for _ in range(3):
        rates.take("a", 1000.0)
    with pytest.raises(Problem):
        rates.take("a", 1000.0)
    slow = RateLimit(0.01, 1)
    slow.take("a", 0.0)
    with pytest.raises(Problem, match="try again in 100 s"):
        slow.take("a", 0.0)


def test_no_rate_is_no_limit_and_few_callers_are_known():
    free = RateLimit(0.0, 1)
    for _ in range(10):
        free.take("a")
    rates = RateLimit(1.0, 1)
    for n in range(KNOWN + 10):
        rates.take(str(n), 0.0)
    rates.take("0", 0.0)  # long forgotten


def test_the_rate_is_asked_before_the_body_is_read(tmp_path):
    limits = Limits(rate=0.001, burst=2)
    with served(tmp_path, limits=limits) as api:
        answers = [api.get("/v1/keys") for _ in range(3)]
        assert [one.status_code for one in answers] == [200, 200, 429]
        assert int(answers[-1].headers["Retry-After"]) > 900
        assert api.get("/v1/keys", key=api.key("admin")).status_code == 200
        assert [api.get("/healthz", key="").status_code for _ in range(5)] == [200] * 5


def test_so_many_at_a_time(tmp_path):
    with served(tmp_path, limits=Limits(concurrent=2)) as api:
        gate = asyncio.Event()

        @api.app.get("/v1/test/waits")
        async def waits() -> None:
            await gate.wait()

        async def scenario() -> list[httpx.Response]:
            held = [asyncio.create_task(api.ask("GET", "/v1/test/waits")) for _ in range(2)]
            await asyncio.sleep(0.1)
            busy = await api.ask("GET", "/v1/keys")
            healthy = await api.ask("GET", "/healthz")
            gate.set()
            return [busy, healthy, *await asyncio.gather(*held), await api.ask("GET", "/v1/keys")]

        busy, healthy, *others = api.run(scenario())
        problem(busy, 503, "busy")
        assert busy.headers["Retry-After"] == "1"
        assert healthy.status_code == 200
        assert [one.status_code for one in others] == [200, 200, 200]


def test_no_tenant_takes_all_the_places(tmp_path):
    with served(tmp_path, limits=Limits(concurrent=8)) as api:
        gate = asyncio.Event()
        other = api.key("admin", tenant="other", projects=())

        @api.app.get("/v1/test/waits")
        async def waits() -> None:
            await gate.wait()

        async def scenario() -> list[httpx.Response]:
            held = [asyncio.create_task(api.ask("GET", "/v1/test/waits")) for _ in range(7)]
            await asyncio.sleep(0.1)
            mine = await api.ask("GET", "/v1/keys")
            theirs = await api.ask("GET", "/v1/keys", key=other)
            gate.set()
            return [mine, theirs, *await asyncio.gather(*held), await api.ask("GET", "/v1/keys")]

        mine, *others = api.run(scenario())
        assert problem(mine, 429, "too_many_requests")
        assert mine.headers["Retry-After"] == "1"
        assert {one.status_code for one in others} == {200}


def test_what_fails_is_told_to_the_log_alone_and_without_secrets(api, caplog):
    with caplog.at_level(logging.INFO, "heedful.http"):
        answer = api.get("/v1/test/fails?text=some-private-text")
    told = problem(answer, 500, "internal_error")
    assert "hunter2" not in str(told)
    assert "ZeroDivisionError" not in str(told)
    assert "ZeroDivisionError" in caplog.text
    assert "hunter2" not in caplog.text
    assert "sk-proj" not in caplog.text
    assert "some-private-text" not in caplog.text
    assert answer.headers["x-request-id"] in caplog.text


def test_an_answer_takes_its_time_and_no_more(api):
    problem(api.get("/v1/test/slow"), 504, "took_too_long")
    problem(api.get("/v1/test/late"), 500, "internal_error")


def test_the_log_has_neither_keys_nor_bodies(api, caplog):
    key = api.key("read", "write")
    with caplog.at_level(logging.DEBUG, "heedful"):
        api.post("/v1/test/echo", json={"secret-of-mine": 1}, key=key)
        api.get(f"/v1/loops/{key}", key=key)
    assert key.split("_")[2] not in caplog.text
    assert "secret-of-mine" not in caplog.text
    assert key.split("_")[1] in caplog.text


@pytest.mark.parametrize("path", ["/healthz", "/v1/keys", "/v1/nothing", "/openapi.json"])
def test_every_answer_is_safe(api, path):
    for answer in (api.get(path), api.get(path, key=""), api.request("OPTIONS", path)):
        headers = answer.headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "server" not in headers
        assert not [name for name in headers if name.startswith("access-control")]


def test_a_request_has_the_id_that_it_came_with(api):
    for given, kept in (("abc-1.2:3", True), ("a b", False), (65 * "a", False)):
        answer = api.get("/healthz", headers={"X-Request-Id": given})
        assert (answer.headers["x-request-id"] == given) is kept


def test_metrics_tell_of_nobody(api):
    api.get("/v1/test/fails")
    api.get("/v1/private-name")
    api.request("PRIVATE", "/v1/private-name")
    text = api.get("/metrics", key="").text
    assert 'heedful_requests_total{method="GET",route="/v1/test/fails",status="500"}' in text
    assert 'route="(none)"' in text
    assert "heedful_request_seconds_bucket" in text
    assert "heedful_work_reached 1.0" in text
    assert "_created" not in text
    for private in ("acme", "main", "private", "tests"):
        assert private not in text.lower().replace("/v1/test", "")


def test_verdicts_are_counted_once(api):
    reports = [{"findings": [{"check": "a", "message": "b"}]}, {}]
    api.put("/v1/loops/counted", json={"task": "a"})
    for n in (1, 1, 2, 2):
        body = {"output": str(n), "evaluation": reports[n - 1]}
        assert api.put(f"/v1/loops/counted/attempts/{n}", json=body).status_code == 200
    policy = {"task": "a", "policy": "default, attempts.limit=1"}
    api.put("/v1/loops/stopped", json=policy)
    api.put("/v1/loops/stopped/attempts/1", json={"output": "1", "evaluation": reports[0]})
    api.post("/v1/loops/stopped/overrides", json={"rule": "attempts", "why": "it is close"})
    both = {"rules": [{"rule": "all", "rules": 2 * [{"rule": "attempts", "limit": 1}]}]}
    api.put("/v1/loops/both", json={"task": "a", "policy": both})
    api.put("/v1/loops/both/attempts/1", json={"output": "1", "evaluation": reports[0]})
    text = api.get("/metrics", key="").text
    assert "+attempts" not in text
    for outcome, times in (("again", 2), ("passed", 1), ("attempts", 1), ("all", 1)):
        assert f'heedful_decisions_total{{outcome="{outcome}"}} {times}.0' in text


def test_without_keys_this_machine_alone_is_let_in(tmp_path):
    with served(tmp_path, open=True) as api:
        problem(api.get("/v1/keys", key=""), 401, "key_refused")  # one has been made
        for one in api.get("/v1/keys").json()["items"]:
            api.run(api.setup.store.write(Scope("acme"), keys.revoke, one["id"]))
        problem(api.get("/v1/keys", key=""), 401, "key_refused")  # who revokes the last locks up
        changed(api.setup.store.url, "delete from key")
        assert api.get("/v1/keys", key="").status_code == 200
        made = {"name": "first", "may": ["admin"]}
        for host in ("localhost", "localhost:80", "127.0.0.1:8765", "[::1]:8765", "[::1]"):
            assert api.get("/v1/keys", key="", headers={"Host": host}).status_code == 200
        for host in ("evil.example", "evil.example:8765", "127.0.0.1.evil.example", ""):
            told = api.get("/v1/keys", key="", headers={"Host": host})
            problem(told, 421, "misdirected_request")
        for passed in ("Origin", "Forwarded", "Via", "X-Forwarded-For", "X-Real-IP"):
            told = api.get("/v1/keys", key="", headers={passed: "http://localhost"})
            problem(told, 421, "misdirected_request")
        answer = api.post("/v1/keys", json=made, key="")
        assert (answer.status_code, answer.json()["by"]) == (201, "local")
        problem(api.get("/v1/keys", key=""), 401, "key_refused")
