"""Calls over HTTP: what is tried again, under which key, and what comes back of an error."""

import asyncio
import logging

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider

import heedful
from heedful import errors, telemetry
from heedful.errors import HeedfulError, InvalidInput, Refused, Unreachable
from heedful.service.client import Client, refused
from heedful.service.problems import answer
from heedful.service.wire import TABLE

KEY = "heedful_k1_0123456789abcdef0123456789abcdef"
ERRORS = {
    errors.InvalidInput: InvalidInput("limit", -1, "an integer of at least 1"),
    errors.NotFound: errors.NotFound("loop", "a", "heedful.db"),
    errors.NotQuarantined: errors.NotQuarantined(3, "candidate"),
    errors.Changed: errors.Changed("lesson", "3", "now"),
    errors.QuotaExceeded: errors.QuotaExceeded("page", "entries", 11, 10, "release some"),
    errors.LeaseLost: errors.LeaseLost("another process drives loop a"),
    errors.OverrideRefused: errors.OverrideRefused("rule 'budget' cannot be overridden"),
}


class Service:
    """A service that gives these answers in turn, the last one for ever, and keeps what it got."""

    def __init__(self, *answers):
        self.answers, self.got = list(answers), []

    async def __call__(self, request):
        self.got.append(request)
        one = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(one, Exception):
            raise one
        return one

    def calls(self, retries=3, url="http://127.0.0.1:1", key=KEY, **more):
        transport = httpx.MockTransport(self)
        return Client(url, key, retries=retries, transport=transport, **more)


@pytest.fixture
def slept(monkeypatch):
    """The pauses that were made, in seconds, without making them."""
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return pauses


GOOD = httpx.Response(200, json={"well": "done"})
LOST = httpx.ReadError("the connection was reset")
BUSY = httpx.Response(503, headers={"retry-after": "2"}, text="busy")


async def ask(service, method="POST", **options):
    return await service.calls(**options).call(method, "seen", body={"text": "x"})


@pytest.mark.parametrize(
    "wrong",
    [
        LOST,
        httpx.ConnectTimeout("no connection"),
        httpx.RemoteProtocolError("the server left"),
        httpx.Response(429, text="slowly"),
        httpx.Response(500, text="oh"),
        httpx.Response(502, html="<h1>proxy</h1>"),
        httpx.Response(409, headers={"retry-after": "1"}, text="at work"),
        BUSY,
    ],
)
def test_what_may_pass_is_tried_again_under_the_same_key(wrong, slept):
    service = Service(wrong, wrong, GOOD)
    assert asyncio.run(ask(service)) == {"well": "done"}
    keys = {request.headers["idempotency-key"] for request in service.got}
    assert (len(service.got), len(keys), len(slept)) == (3, 1, 2)
    assert {request.content for request in service.got} == {b'{"text": "x"}'}


def test_two_calls_have_two_keys_and_only_a_post_has_one(slept):
    service = Service(GOOD)
    for method in ("POST", "POST", "PUT", "GET"):
        asyncio.run(ask(service, method))
    keys = [request.headers.get("idempotency-key") for request in service.got]
    assert len(set(keys[:2])) == 2
    assert keys[2:] == [None, None]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 428])
def test_what_stays_wrong_is_not_tried_again(status, slept):
    service = Service(httpx.Response(status, text="no"))
    with pytest.raises(Refused, match="no") as caught:
        asyncio.run(ask(service))
    assert (caught.value.status, len(service.got), slept) == (status, 1, [])


@pytest.mark.parametrize(("last", "kind"), [(LOST, Unreachable), (BUSY, Refused)])
def test_in_the_end_it_says_why(last, kind, slept):
    service = Service(last)
    with pytest.raises(kind):
        asyncio.run(ask(service, retries=4))
    assert (len(service.got), len(slept)) == (5, 4)


def test_retry_after_is_obeyed(slept):
    odd = httpx.Response(503, headers={"retry-after": "when we like"})
    asyncio.run(ask(Service(BUSY, odd, GOOD)))
    assert slept[0] >= 2 > slept[1]


def test_pauses_grow_and_nobody_waits_for_an_hour(slept):
    service = Service(LOST, LOST, LOST, LOST, httpx.Response(503, headers={"retry-after": "3600"}))
    with pytest.raises(Refused):
        asyncio.run(ask(service, retries=40))
    assert len(service.got) == 5
    assert all(pause <= bound for pause, bound in zip(slept, (0.2, 0.4, 0.8, 1.6), strict=True))


@pytest.mark.parametrize("kind", TABLE, ids=lambda kind: kind.__name__)
def test_every_error_comes_back_as_itself(kind):
    error = ERRORS.get(kind)
    if error is None:
        error = kind.__new__(kind)
        HeedfulError.__init__(error, "it was so")
        vars(error).update(kind="loop", id="a", package="x", field="f")
    response = answer(error, {"path": "/"}, {})
    back = refused(response.status_code, bytes(response.body).decode())
    assert type(back) is kind
    assert str(back)


def test_errors_know_what_they_knew():
    told = {}
    for kind, error in ERRORS.items():
        response = answer(error, {"path": "/"}, {})
        told[kind] = refused(response.status_code, bytes(response.body).decode())
    assert str(told[InvalidInput]) == str(ERRORS[InvalidInput])
    knew = {
        InvalidInput: ("field", "allowed"),
        errors.NotFound: ("kind", "id"),
        errors.NotQuarantined: ("id", "state"),
        errors.Changed: ("edition",),
        errors.QuotaExceeded: ("source", "count", "quota"),
    }
    for kind, names in knew.items():
        for name in names:
            assert getattr(told[kind], name) == getattr(ERRORS[kind], name)


@pytest.mark.parametrize("text", ["<html>", '"a text"', "[1]", '{"code": 3}', "{"])
def test_what_is_no_problem_is_told_as_it_is(text):
    error = refused(418, text)
    assert isinstance(error, Refused)
    assert (error.status, "418" in str(error)) == (418, True)


def test_an_answer_that_is_no_json_is_refused():
    with pytest.raises(Refused, match="no JSON"):
        asyncio.run(ask(Service(httpx.Response(200, html="<h1>a login page</h1>"))))


def test_an_answer_without_a_body_is_none():
    assert asyncio.run(ask(Service(httpx.Response(204)))) is None


@pytest.mark.parametrize("body", [float("nan"), {1, 2}, object()])
def test_what_is_no_json_is_not_sent(body):
    service = Service(GOOD)
    with pytest.raises(InvalidInput, match="JSON"):
        asyncio.run(service.calls().call("POST", "seen", body=body))
    assert service.got == []


def test_ids_cannot_leave_their_place_in_the_path():
    service = Service(GOOD)
    asyncio.run(service.calls().call("GET", "loops", "../keys?x=1#y", 3))
    assert service.got[0].url.raw_path == b"/v1/loops/..%2Fkeys%3Fx%3D1%23y/3"


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://heedful.example.com", KEY),
        ("http://10.0.0.7:8000", KEY),
        ("ftp://heedful.example.com", ""),
        ("heedful.example.com", ""),
        ("https://user:word@heedful.example.com", ""),
        ("https://heedful.example.com?key=word", ""),
        ("https://heedful.example.com", "word\n"),
        ("https://heedful.example.com", "wörd"),
    ],
)
def test_an_address_or_a_key_that_cannot_be_used_is_refused_without_telling_it(url, key):
    with pytest.raises(InvalidInput) as caught:
        Client(url, key)
    for secret in ("word", "wörd", KEY):
        assert secret not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://heedful.example.com",
        "http://localhost:8000",
        "http://127.0.0.9",
        "http://[::1]:8000/heedful/",
    ],
)
def test_a_key_is_sent_over_https_or_to_this_machine(url):
    service = Service(GOOD)
    asyncio.run(ask(service, url=url))
    assert service.got[0].headers["authorization"] == f"Bearer {KEY}"
    assert str(service.got[0].url).startswith(url.rstrip("/"))


def test_a_key_goes_elsewhere_where_that_is_said_and_follows_no_redirect():
    away = httpx.Response(307, headers={"location": "http://elsewhere.example.com/"})
    service = Service(away)
    one = service.calls(0, "http://10.0.0.7", insecure=True)
    with pytest.raises(Refused):
        asyncio.run(one.call("GET", "loops"))
    assert [request.url.host for request in service.got] == ["10.0.0.7"]


@pytest.mark.parametrize("wrong", [{"timeout": 0}, {"retries": -1}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        heedful.Client("http://127.0.0.1:1", **wrong)


def test_no_key_is_in_a_representation_or_a_log(caplog, slept):
    caplog.set_level(logging.DEBUG)
    service = Service(LOST, BUSY, httpx.Response(401, text="no"))
    client = heedful.Client("http://127.0.0.1:1", KEY, transport=httpx.MockTransport(service))
    with pytest.raises(Refused) as caught:
        asyncio.run(client.seen("TypeError", "x"))
    assert len(service.got) == 3
    told = [repr(client), str(vars(client)), str(caught.value), caplog.text]
    assert not any("0123456789" in one for one in told)


def test_any_event_loop_may_call():
    service = Service(GOOD)
    one = service.calls()
    for _ in range(2):
        assert asyncio.run(one.call("GET", "loops")) == {"well": "done"}
        assert heedful.run_sync(one.call("GET", "loops")) == {"well": "done"}
    heedful.run_sync(one.close())
    heedful.run_sync(one.close())
    assert heedful.run_sync(one.call("GET", "loops")) == {"well": "done"}
    heedful.run_sync(one.close())


def test_without_the_package_it_says_which_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "httpx", None)
    with pytest.raises(errors.PackageMissing, match=r"heedful\[client\]"):
        Client("http://127.0.0.1:1")


def test_a_call_is_part_of_the_trace_that_it_is_made_in():
    tracers, service = TracerProvider(), Service(GOOD)
    telemetry.begin(tracers=tracers)
    try:
        with tracers.get_tracer("test").start_as_current_span("a request of the host") as span:
            asyncio.run(ask(service))
    finally:
        telemetry.end()
        tracers.shutdown()
    asyncio.run(ask(service))
    traced, plain = (request.headers.get("traceparent") for request in service.got)
    assert f"{span.get_span_context().trace_id:032x}" in traced
    assert plain is None
