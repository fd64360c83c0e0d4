"""The name of an error: what is masked, and what tells two errors apart."""

import hashlib
import re

import pytest
from hypothesis import given, strategies as st

from heedful.lessons.signature import (
    CLAIM_ERROR_TYPES,
    signature,
)

SAME = {
    "the wrong one of two figures": (
        "the Q3 growth is 4.2, not 12",
        "the Q3 growth is 4.2, not 9",
    ),
    "one address instead of another": (
        "connected to 10.0.0.7:80 instead of 10.0.0.8:80",
        "connected to 10.0.1.7:81 instead of 10.0.1.8:81",
    ),
    "signed and exponents": ("loss is -1.5e-3 now", "loss is 2e10 now"),
    "sizes": ("file of 10 MB is too large", "file of 2048 kB is too large"),
    "versions": ("this needs v1.2.3 or later", "this needs v20 or later"),
    "paths": (
        'File "/mnt/ada/x.py", line 3, in f',
        'File "/srv/bo/y/z.py", line 99, in f',
    ),
    "numbers and ids in the name of a file": (
        "no '/tmp/run-7/out-3fa9c1.csv'",
        "no '/tmp/run-8/out-99ff00.csv'",
    ),
    "what a terminal draws over": ("no a", "1/9\r9/9\r\x1b[2Kno a"),
    "durations": ("timed out after 10m0s", "timed out after 1h2m3s"),
    "pods": ("pod web-6f499d645b-vvmnl died", "pod web-7c9d8f6b5d-xkqpz died"),
    "paths in a folder": (
        "cannot read src/a.py:3: no",
        "cannot read lib/b/c.py:12:7: no",
    ),
    "addresses": ("<Thing object at 0x7f14ab>", "<Thing object at 0x00ff12>"),
    "hashes": ("commit deadbeef1234 is bad", "commit 0123456789abcdef is bad"),
    "web addresses": (
        "GET https://a.example/x?y=1 failed",
        "GET http://b.example failed",
    ),
    "times": (
        "at 2026-01-31T12:00:00Z it broke",
        "at 2025-12-01 08:15:59,123 it broke",
    ),
    "clock": ("at 12:00:01 it broke", "at 23:59:59.5 it broke"),
    "actual in a comment": ("assert f(3) == 4  # got 5", "assert f(3) == 4  # got 17"),
    "actual alone": ("AssertionError: assert 5 == 4", "AssertionError: assert 6 == 4"),
    "a host by its name": (
        "cannot reach db1.acme.org:5432",
        "cannot reach mail.acme.co.uk:25",
    ),
    "ids of services": (
        "request req_011CSHoEeqs5C35K2 failed",
        "request req_9zX8yW7vU6tS5rQ4p failed",
    ),
    "what Kubernetes adds to a name": (
        'the job "mailer-x2b9k" is gone',
        'the job "mailer-4htz7" is gone',
    ),
    "a colour whose escape a log has lost": (
        "[1;33mdeploy failed[0m: no such stage",
        "deploy failed: no such stage",
    ),
    "JSON": (
        '{"error": {"code": 429, "message": "wait 12 s"}, "id": 8}',
        '{"id": 4, "error": {"message": "wait 3 s", "code": 429}}',
    ),
    "the time of a request": (
        'GET https://a.example/x "HTTP/1.1" status 503 in 12 ms',
        'GET https://a.example/y "HTTP/1.1" status 503 in 3.4 s',
    ),
    "Jest": (
        "expect(received).toBe(expected)\n\nExpected: 4\nReceived: 5",
        "expect(received).toBe(expected)\n\nExpected: 4\nReceived: {}",
    ),
    "Chai": (
        "AssertionError: expected 5 to equal 4",
        "AssertionError: expected 'x' to equal 4",
    ),
    "Go tests": (
        "cart_test.go:12: Total(x) = 5; want 4",
        "cart_test.go:40: Total(x) = 7; want 4",
    ),
    "Rust": (
        "assertion `left == right` failed\n  left: Some(5)\n right: Some(4)",
        "assertion `left == right` failed\n  left: None\n right: Some(4)",
    ),
    "a trace of Java": tuple(
        f"""Exception in thread "pool-3-thread-{n}" \
java.lang.IllegalStateException: no order {n}
\tat com.acme.Orders.open(Orders.java:{n})
\tat com.acme.Orders$$Lambda$14/0x000000080006{n}.run(Unknown Source)
Caused by: java.net.ConnectException: \
Connection refused: db1.acme.internal/10.0.0.{n}:5432
\tat com.acme.Db.connect(Db.java:{n + 5}) ~[acme-db-1.2.{n}.jar:1.2.{n}]
\t... {n} more"""
        for n in (12, 7)
    ),
    "in a traceback": (
        (
            '  File "/a/b.py", line 3, in test\n    assert f(3) == 4\n'
            "AssertionError: got 5"
        ),
        (
            '  File "/c/d.py", line 9, in test\n    assert f(3) == 4\n'
            "AssertionError: got 6"
        ),
    ),
}
DIFFERENT = {
    "the number of an error": ("make: *** [a] Error 1", "make: *** [a] Error 2"),
    "the file that is the error": ("no file 'src/a.py'", "no file 'src/b.py'"),
    "two packages": ("no match for zod@9.9.9", "no match for vite@9.9.9"),
    "the right figure after was": (
        "growth was 4.2 %, not 12 %",
        "growth was 5.1 %, not 12 %",
    ),
    "the right count": ("it has 4 pages rather than 5", "it has 6 pages rather than 5"),
    "a name": ("name 'x' is not defined", "name 'y' is not defined"),
    "numbers in names": ("no column q1", "no column q2"),
    "the expression": ("assert f(3) == 4  # got 5", "assert f(4) == 4  # got 5"),
    "the operator": ("assert f(3) == 4", "assert f(3) != 4"),
    "the expected value of pytest": (
        "assert 5 == 4\n +  where 5 = f(3)",
        "assert 5 == 7\n +  where 5 = f(3)",
    ),
    "the source in a traceback": ("    assert f(3) == 4", "    assert f(3) == 5"),
    "an exit code": (
        "the command ended with exit code 1",
        "the command ended with exit code 137",
    ),
    "a code in JSON": ('{"error": {"code": 404}}', '{"error": {"code": 500}}'),
    "a return code": ('{"changed": true, "rc": 4}', '{"changed": true, "rc": 5}'),
    "the expected value in JSON": (
        '["assert f(1) == 2 # 3"]',
        '["assert f(1) == 4 # 3"]',
    ),
    "methods": (
        "at acme.orders.Order.get(A.java:3)",
        "at acme.orders.Order.set(A.java:3)",
    ),
    "a key of JSON": ('{"a": 1}', '{"b": 1}'),
    "a name in key=value": ("status=failed n=1", "status=lost n=1"),
    "the constraint": (
        'violates unique constraint "users_email_key"',
        'violates unique constraint "users_name_key"',
    ),
    "the cause": (
        "RuntimeError: no\nCaused by: java.io.IOException: no",
        "RuntimeError: no\nCaused by: java.net.ConnectException: no",
    ),
    "the expected value of Jest": (
        "Expected: 4\nReceived: 5",
        "Expected: 6\nReceived: 5",
    ),
    "the expected value of Chai": ("expected 5 to equal 4", "expected 5 to equal 6"),
    "the expected value of Rust": (
        "assertion `left == right` failed\n  left: 5\n right: 4",
        "assertion `left == right` failed\n  left: 5\n right: 6",
    ),
    "a package and a host": (
        "cannot import org.acme.orders",
        "cannot import org.acme.prices",
    ),
    "case of a name": ("no attribute Value", "no attribute value"),
}


@pytest.mark.parametrize("case", SAME)
def test_particulars_are_masked(case):
    first, second = (signature("E", text) for text in SAME[case])
    assert first.pattern == second.pattern
    assert first.digest == second.digest
    assert first.exact != second.exact


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_distinguishes_is_kept(case):
    first, second = (signature("KeyError", text) for text in DIFFERENT[case])
    assert first.digest != second.digest


# Two claims of one form -> whether they are one error.
CLAIMS = {
    "shares": ("revenue grew by 12 %", "revenue grew by 9 %", False),
    "amounts": ("the total is 1,250.50 euros", "the total is 1,350.50 euros", False),
    "durations": ("the call ended after 30 s", "the call ended after 45 s", True),
    "addresses": ("it runs at 10.0.0.7", "it runs at 10.0.0.9", True),
    "dates": ("as of 2026-01-31", "as of 2026-02-01", True),
    "ids": ("in job_3fa9c1d2", "in job_77aa01ce", True),
}


@pytest.mark.parametrize("error_type", sorted(CLAIM_ERROR_TYPES))
@pytest.mark.parametrize("case", CLAIMS)
def test_a_claim_keeps_its_figures_and_no_particulars(case, error_type):
    first, second, is_one = CLAIMS[case]
    digests = {signature(error_type, text).digest for text in (first, second)}
    assert (len(digests) == 1) is is_one
    assert signature("E", first).digest == signature("E", second).digest


@pytest.mark.parametrize(
    ("error_type", "text", "figures"),
    [
        pytest.param("E", "it is 4.2, not 12", "content", id="a correction"),
        pytest.param("conflict", "it is 4.2", "content", id="a claim"),
        pytest.param("E", "exit status 127", "content", id="the number of an error"),
        pytest.param("E", "after 30 s", "particulars", id="a duration"),
        pytest.param("E", "it failed", "", id="no figure"),
    ],
)
def test_a_signature_says_what_its_figures_are(error_type, text, figures):
    assert signature(error_type, text).figures == figures


def test_the_exact_digest_is_the_compatible_one():
    want = hashlib.sha256(b"conflict:the text").hexdigest()[:16]
    assert signature("conflict", "  The TEXT\n").exact == want


def test_the_pattern_is_readable():
    text = "after 12.5 s at 10.0.0.7 on /srv/x: 0xdead, id deadbeef01 (ada@example.com)"
    assert signature("E", text).pattern == (
        "after <N> at <N> on <PATH>/x: <N>, id <N> (<HOST>)"
    )


@given(st.text(max_size=300), st.text(max_size=20))
def test_any_text_has_a_signature_and_always_the_same(text, kind):
    name = signature(kind, text)
    assert name == signature(kind, text)
    assert re.fullmatch("[0-9a-f]{16}", name.exact)
    assert re.fullmatch("[0-9a-f]{16}", name.digest)
    assert name.pattern == " ".join(name.pattern.split())


@given(
    st.integers(),
    st.integers(0, 10**9),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_no_number_is_left_in_prose(a, b, c):
    text = f"it took {a} of {b} with a loss of {c:.6f} in the end"
    assert (
        signature("E", text).pattern
        == "it took <N> of <N> with a loss of <N> in the end"
    )


def test_json_that_is_none_and_deep_json_are_read_as_text():
    for text in (
        "[1, 2",
        "{not json}",
        "[" * 2_000 + "]" * 2_000,
        "[" + "9" * 4_000 + "]",
        "[]",
    ):
        assert signature("E", text) == signature("E", text)
    assert signature("E", "{not 12}").pattern == "{not <N>}"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("assert f(3) == 4", "E   assert 5 == 4\nE    +  where 5 = f(3)"),
        (f"a{'x' * 100_000}z", f"a{'x' * 200_000}z"),
    ],
    ids=["pytest and the source", "a long text is read at both ends"],
)
def test_two_forms_have_one_name(first, second):
    assert signature("E", first).pattern == signature("E", second).pattern
    assert signature("E", first).digest == signature("E", second).digest
    assert signature("E", f"b{first[1:]}").digest != signature("E", first).digest
    assert signature("E", f"{first[:-1]}y").digest != signature("E", first).digest
