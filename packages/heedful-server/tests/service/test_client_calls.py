"""Calls over HTTP: what is tried again, under which key, where it may go, and what it
may say.
"""

import asyncio
import logging

import httpx
import pytest

from heedful import errors
from heedful.client import Client
from heedful.errors import (
    CertificateNotTrusted,
    InvalidInput,
    Refused,
    StoreInDoubt,
    Unreachable,
)
from tests.tables import cases

KEY = "heedful_k1_0123456789abcdef0123456789abcdef"
HERE = "http://127.0.0.1:1"
GOOD = httpx.Response(200, json={"well": "done"})
LOST = httpx.ReadError("the connection was reset")
BUSY = httpx.Response(503, headers={"retry-after": "2"}, text="busy")


class Service:
    """A service that gives these answers in turn, the last one for ever, and keeps what
    it got.
    """

    def __init__(self, *answers):
        self.answers = list(answers)
        self.got = []

    async def __call__(self, request):
        self.got.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self, url=HERE, retries=3, **more):
        return Client(
            url, KEY, retries=retries, transport=httpx.MockTransport(self), **more
        )


@pytest.fixture
def slept(monkeypatch):
    """The pauses that were made, in seconds, without making them."""
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return pauses


async def ask(service, method="POST", *path, body=None, **options):
    return await service.client(**options).call(
        method, *path or ("seen",), body=body or {"a": 1}
    )


PASSING = {
    "no connection": LOST,
    "a connection that broke": httpx.RemoteProtocolError("the server left"),
    "too many requests": httpx.Response(429, text="slowly"),
    "a failure of the server": httpx.Response(500, text="slowly"),
    "the same at work": httpx.Response(
        409, headers={"retry-after": "1"}, text="at work"
    ),
}


@pytest.mark.parametrize("wrong", PASSING.values(), ids=PASSING.keys())
def test_what_may_pass_is_tried_again_under_the_same_key(wrong, slept):
    service = Service(wrong, wrong, GOOD)
    for method in ("POST", "POST", "PUT"):
        assert asyncio.run(ask(service, method)) == {"well": "done"}
    keys = [request.headers.get("idempotency-key") for request in service.got]
    assert [keys[0] == key for key in keys] == [True] * 3 + [
        False
    ] * 2  # one for each POST
    assert keys[4] is None
    assert [request.content for request in service.got] == 5 * [b'{"a": 1}']
    assert len(slept) == 2


IN_DOUBT = httpx.Response(503, json={"code": "store_in_doubt", "detail": "lost"})


def test_a_call_whose_write_stays_in_doubt_names_its_key(slept):
    service = Service(IN_DOUBT)
    with pytest.raises(StoreInDoubt) as doubt:
        asyncio.run(service.client().remember("E", "the build fails"))
    assert {request.headers["idempotency-key"] for request in service.got} == {
        doubt.value.key
    }
    assert f"call again with key={doubt.value.key!r}" in str(doubt.value)


def test_a_caller_gives_the_key_of_a_call(slept):
    service = Service(IN_DOUBT)
    with pytest.raises(StoreInDoubt) as doubt:
        asyncio.run(service.client().remember("E", "the build fails", key="order-7"))
    assert doubt.value.key == "order-7"
    assert service.got[0].headers["idempotency-key"] == "order-7"


@cases(
    ("ask",),
    {
        "an offer": (lambda client: client.offer("mem", "L", ["a"]),),
        "a report": (lambda client: client.report("L", 1, output="12"),),
    },
)
def test_a_call_that_may_be_repeated_names_no_key(ask, slept):
    with pytest.raises(StoreInDoubt, match="make the same call again") as doubt:
        asyncio.run(ask(Service(IN_DOUBT).client()))
    assert doubt.value.key == ""


@pytest.mark.parametrize("status", [400, 401, 409, 422])
def test_what_stays_wrong_is_not_tried_again(status, slept):
    service = Service(httpx.Response(status, text="no"))
    with pytest.raises(Refused, match="no") as caught:
        asyncio.run(ask(service))
    assert caught.value.status == status
    assert len(service.got) == 1
    assert slept == []


@cases(("last", "kind"), {"unreachable": (LOST, Unreachable), "busy": (BUSY, Refused)})
def test_in_the_end_it_says_why(last, kind, slept):
    service = Service(last)
    with pytest.raises(kind) as caught:
        asyncio.run(ask(service, retries=4))
    assert "Error" not in str(caught.value)  # the words of httpx are for programs
    if kind is Unreachable:
        assert "it broke off (retries: 4); check" in str(caught.value)
    assert len(service.got) == 5
    assert len(slept) == 4


def test_a_certificate_that_is_not_trusted_is_named_and_not_tried_again(slept):
    words = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"
    service = Service(httpx.ConnectError(words))
    with pytest.raises(CertificateNotTrusted, match=r"create_default_context\(cafile"):
        asyncio.run(ask(service))
    assert len(service.got) == 1
    assert slept == []


def test_pauses_grow_and_retry_after_is_kept_but_nobody_waits_for_an_hour(slept):
    odd = httpx.Response(503, headers={"retry-after": "when we like"})
    hour = httpx.Response(503, headers={"retry-after": "3600"})
    with pytest.raises(Refused):
        asyncio.run(ask(Service(LOST, LOST, LOST, odd, BUSY, hour), retries=40))
    assert len(slept) == 5
    assert all(
        bound / 2 <= pause <= bound
        for pause, bound in zip(slept, (0.2, 0.4, 0.8, 1.6), strict=False)
    )
    assert slept[4] >= 2


def test_a_client_outlasts_the_restart_of_a_service(slept):
    client = Client(HERE, KEY, transport=httpx.MockTransport(Service(LOST)))
    with pytest.raises(Unreachable, match="retries: 7"):
        asyncio.run(client.call("GET", "loops"))
    assert 11 <= sum(slept) <= 23


def test_an_answer_is_json_or_empty():
    with pytest.raises(Refused, match="not JSON"):
        asyncio.run(ask(Service(httpx.Response(200, html="<h1>a login page</h1>"))))
    assert asyncio.run(ask(Service(httpx.Response(204)))) is None
    with pytest.raises(Refused, match="not a valid Remembered"):
        asyncio.run(Service(GOOD).client().remember("a", "b"))


@cases("body", {"not a number": float("nan"), "a set": {1, 2}})
def test_what_is_no_json_is_not_sent(body):
    service = Service(GOOD)
    with pytest.raises(InvalidInput, match="JSON"):
        asyncio.run(ask(service, body=body))
    assert service.got == []


def test_ids_cannot_leave_their_place_in_the_path():
    service = Service(GOOD)
    asyncio.run(ask(service, "GET", "loops", "../keys?x=1#y", 3))
    assert service.got[0].url.raw_path == b"/v1/loops/..%2Fkeys%3Fx%3D1%23y/3"


@cases(
    ("url", "key", "options"),
    {
        "a key without TLS": ("http://heedful.example.com", KEY, {}),
        "another protocol": ("ftp://heedful.example.com", "", {}),
        "a password in the address": ("https://user:word@heedful.example.com", "", {}),
        "a query in the address": ("https://heedful.example.com?key=word", "", {}),
        "a key with a line feed": ("https://heedful.example.com", "word\n", {}),
        "a key beyond ASCII": ("https://heedful.example.com", "wörd", {}),
        "no time": (HERE, "", {"timeout": 0}),
    },
)
def test_what_cannot_be_used_is_refused_without_telling_secrets(url, key, options):
    with pytest.raises(InvalidInput) as caught:
        Client(url, key, **options)
    for secret in ("word", "wörd", KEY):
        assert secret not in str(caught.value)


@cases(
    ("url", "insecure"),
    {
        "https": ("https://heedful.example.com", False),
        "localhost": ("http://localhost:8000", False),
        "a loopback address of IPv6": ("http://[::1]:8000/heedful/", False),
        "insecure on demand": ("http://10.0.0.7", True),
    },
)
def test_a_key_is_sent_over_https_or_to_this_machine_and_follows_no_redirect(
    url, insecure
):
    service = Service(
        httpx.Response(307, headers={"location": "http://elsewhere.example.com/"})
    )
    with pytest.raises(Refused):
        asyncio.run(ask(service, url=url, insecure=insecure))
    (request,) = service.got
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert str(request.url).startswith(url.rstrip("/"))


def test_no_key_is_in_a_representation_or_a_log(caplog, slept):
    caplog.set_level(logging.DEBUG)
    client = Service(LOST, BUSY, httpx.Response(401, text="no")).client()
    with pytest.raises(Refused) as caught:
        asyncio.run(client.seen("TypeError", "x"))
    texts = [repr(client), str(vars(client)), str(caught.value), caplog.text]
    assert not any("0123456789" in text for text in texts)


def test_without_the_package_it_says_which_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "httpx", None)
    with pytest.raises(
        errors.PackageMissing, match=r"pip install './packages/heedful\[client\]'"
    ):
        Client(HERE)
