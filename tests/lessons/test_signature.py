"""The name of an error: what is masked, and what tells two errors apart."""

import hashlib
import re

import pytest
from hypothesis import given, strategies as st

from heedful.lessons.signature import CLAIM_ERROR_TYPES, MAX_SIGNATURE_CHARS, signature
from tests.tables import cases

SAME = {
    "the wrong one of two figures": (
        "the Q3 growth is 4.2, not 12",
        "the Q3 growth is 4.2, not 9",
    ),
    "a figure before not": ("job 7 failed, not retried", "job 8 failed, not retried"),
    "one address instead of another": (
        "connected to 10.0.0.7:80 instead of 10.0.0.8:80",
        "connected to 10.0.1.7:81 instead of 10.0.1.8:81",
    ),
    "measured numbers": ("took 12.5 seconds", "took 900 seconds"),
    "signed and exponents": ("loss is -1.5e-3 now", "loss is 2e10 now"),
    "units without a space": ("after 250ms", "after 3s"),
    "sizes": ("file of 10 MB is too large", "file of 2048 kB is too large"),
    "sizes without bytes": ("heap of 512M is full", "heap of 2G is full"),
    "versions": ("this needs v1.2.3 or later", "this needs v20 or later"),
    "percent": ("disk 93% full", "disk 99.5% full"),
    "paths": (
        'File "/mnt/ada/x.py", line 3, in f',
        'File "/srv/bo/y/z.py", line 99, in f',
    ),
    "folders of a file": ("cannot read ./a/b.csv", "cannot read /srv/bo/b.csv"),
    "numbers and ids in the name of a file": (
        "no '/tmp/run-7/out-3fa9c1.csv'",
        "no '/tmp/run-8/out-99ff00.csv'",
    ),
    "styles of a terminal": ("error[E1]: no a", "\x1b[31merror[E1]\x1b[0m: no a"),
    "what a terminal draws over": ("no a", "1/9\r9/9\r\x1b[2Kno a"),
    "ends of lines": ("no a\nno b", "no a\r\nno b"),
    "durations": ("timed out after 10m0s", "timed out after 1h2m3s"),
    "durations in words": ("done in 1 min 3 s", "done in 47 s"),
    "pods": ("pod web-6f499d645b-vvmnl died", "pod web-7c9d8f6b5d-xkqpz died"),
    "versions of a package": ("no match for zod@9.9.9", "no match for zod@1.4.0"),
    "paths in a folder": (
        "cannot read src/a.py:3: no",
        "cannot read lib/b/c.py:12:7: no",
    ),
    "windows paths": (r"cannot open C:\Users\ada\x.txt", r"cannot open D:\x.txt"),
    "addresses": ("<Thing object at 0x7f14ab>", "<Thing object at 0x00ff12>"),
    "uuids": (
        "job 123e4567-e89b-12d3-a456-426614174000 lost",
        "job 00000000-1111-2222-3333-444455556666 lost",
    ),
    "hashes": ("commit deadbeef1234 is bad", "commit 0123456789abcdef is bad"),
    "hosts": ("refused by 10.0.0.7:5432", "refused by 192.168.1.1"),
    "web addresses": (
        "GET https://a.example/x?y=1 failed",
        "GET http://b.example failed",
    ),
    "mail": ("no user ada@example.com", "no user bo.x@mail.example.org"),
    "times": (
        "at 2026-01-31T12:00:00Z it broke",
        "at 2025-12-01 08:15:59,123 it broke",
    ),
    "dates in words": (
        "at Sun Jul 10 03:55:15 it broke",
        "at Mar  2 13:05:59 it broke",
    ),
    "clock": ("at 12:00:01 it broke", "at 23:59:59.5 it broke"),
    "space": ("too   many\n spaces", "too many spaces"),
    "actual in a comment": ("assert f(3) == 4  # got 5", "assert f(3) == 4  # got 17"),
    "actual of pytest": (
        "E       assert 5 == 4\nE        +  where 5 = f(3)",
        "E       assert 17 == 4\nE        +  where 17 = f(3)",
    ),
    "actual alone": ("AssertionError: assert 5 == 4", "AssertionError: assert 6 == 4"),
    "actual list": ("assert [1, 2] == [1, 3]", "assert [9] == [1, 3]"),
    "a host by its name": (
        "cannot reach db1.acme.org:5432",
        "cannot reach mail.acme.co.uk:25",
    ),
    "less than": ("took <1 sec", "took 17 sec"),
    "ids of services": (
        "request req_011CSHoEeqs5C35K2 failed",
        "request req_9zX8yW7vU6tS5rQ4p failed",
    ),
    "long numbers in names": ("lost block_1608999687919", "lost block_88125463"),
    "what Kubernetes adds to a name": (
        'the job "mailer-x2b9k" is gone',
        'the job "mailer-4htz7" is gone',
    ),
    "the time of the kernel": (
        "[    8.120034] usb 1-2: reset failed",
        "[81234.500001] usb 1-2: reset failed",
    ),
    "a colour whose escape a log has lost": (
        "[1;33mdeploy failed[0m: no such stage",
        "deploy failed: no such stage",
    ),
    "key=value": (
        'level=error msg="connection refused" attempt=3 took=12ms',
        'level=error msg="connection refused" attempt=7 took=1.5s',
    ),
    "JSON": (
        '{"error": {"code": 429, "message": "wait 12 s"}, "id": 8}',
        '{"id": 4, "error": {"message": "wait 3 s", "code": 429}}',
    ),
    "failed assertions in JSON, in any order": (
        '["assert f(1) == 2 # got: 3", "assert f(\'[x]\') == [4] # got: None"]',
        '["assert f(\'[x]\') == [4] # got: [5]", "assert f(1) == 2 # got: 9"]',
    ),
    "the time of a request": (
        'GET https://a.example/x "HTTP/1.1" status 503 in 12 ms',
        'GET https://a.example/y "HTTP/1.1" status 503 in 3.4 s',
    ),
    "a difference of pytest": (
        (
            "E   assert [1, 5] == [1, 2]\nE     At index 1 diff: 5 != 2\nE     "
            "Use -v to get more diff"
        ),
        (
            "E   assert [3, 2] == [1, 2]\nE     At index 0 diff: 3 != 1\nE     "
            "Use -v to get more diff"
        ),
    ),
    "Jest": (
        "expect(received).toBe(expected)\n\nExpected: 4\nReceived: 5",
        "expect(received).toBe(expected)\n\nExpected: 4\nReceived: {}",
    ),
    "JUnit": (
        "assert: expected: <4> but was: <5>",
        "assert: expected: <4> but was: <null>",
    ),
    "Chai": (
        "AssertionError: expected 5 to equal 4",
        "AssertionError: expected 'x' to equal 4",
    ),
    "node:assert": ("AssertionError: 5 !== 4", "AssertionError: null !== 4"),
    "Go tests": (
        "cart_test.go:12: Total(x) = 5; want 4",
        "cart_test.go:40: Total(x) = 7; want 4",
    ),
    "testify": ("expected: 4\n actual  : 5", "expected: 4\n actual  : 77"),
    "Rust": (
        "assertion `left == right` failed\n  left: Some(5)\n right: Some(4)",
        "assertion `left == right` failed\n  left: None\n right: Some(4)",
    ),
    "a trace of Python": tuple(
        f'''Traceback (most recent call last):
  File "{path}/a.py", line {line}, in run
    value = table[key]
KeyError: 'price'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "{path}/a.py", line {line + 40}, in main
    run()
  [Previous line repeated {line * 3} more times]
RuntimeError: no price at 0x{line:x}'''
        for path, line in (("/srv/one", 41), ("/mnt/ada/two", 7))
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
    "the status of an answer": ("returned error: 404", "returned error: 503"),
    "the file that is the error": ("no file 'src/a.py'", "no file 'src/b.py'"),
    "the script that is the error": ("sh: ./a.sh: denied", "sh: ./b.sh: denied"),
    "two packages": ("no match for zod@9.9.9", "no match for vite@9.9.9"),
    "the right one of two figures": (
        "the Q3 growth is 4.2, not 12",
        "the Q3 growth is 5.1, not 12",
    ),
    "the right figure after was": (
        "growth was 4.2 %, not 12 %",
        "growth was 5.1 %, not 12 %",
    ),
    "the right figure with its measure": (
        "revenue is 81.4 million euros instead of 90 million euros",
        "revenue is 81.9 million euros instead of 90 million euros",
    ),
    "the right count": ("it has 4 pages rather than 5", "it has 6 pages rather than 5"),
    "the key": ("'a'", "'b'"),
    "a name": ("name 'x' is not defined", "name 'y' is not defined"),
    "words": ("connection refused", "connection reset"),
    "numbers in names": ("no column q1", "no column q2"),
    "versions in names": ("utf8 codec", "utf16 codec"),
    "the expression": ("assert f(3) == 4  # got 5", "assert f(4) == 4  # got 5"),
    "the expected value": ("assert f(3) == 4  # got 5", "assert f(3) == 5  # got 5"),
    "the operator": ("assert f(3) == 4", "assert f(3) != 4"),
    "the expression of pytest": (
        "assert 5 == 4\n +  where 5 = f(3)",
        "assert 5 == 4\n +  where 5 = f(9)",
    ),
    "the expected value of pytest": (
        "assert 5 == 4\n +  where 5 = f(3)",
        "assert 5 == 7\n +  where 5 = f(3)",
    ),
    "the expected value alone": ("assert 5 == 4", "assert 5 == 3"),
    "the source in a traceback": ("    assert f(3) == 4", "    assert f(3) == 5"),
    "the status of HTTP": (
        "GET /x failed with status 404",
        "GET /x failed with status 500",
    ),
    "an exit code": (
        "the command ended with exit code 1",
        "the command ended with exit code 137",
    ),
    "a success": (
        "the command ended with exit code 0",
        "the command ended with exit code 1",
    ),
    "a code in JSON": ('{"error": {"code": 404}}', '{"error": {"code": 500}}'),
    "a code of Windows": (
        "(Exception from HRESULT: 0x80070020)",
        "(Exception from HRESULT: 0x80004005)",
    ),
    "a return code": ('{"changed": true, "rc": 4}', '{"changed": true, "rc": 5}'),
    "errno": ("[Errno 2] no", "[Errno 13] no"),
    "the expected value in JSON": (
        '["assert f(1) == 2 # 3"]',
        '["assert f(1) == 4 # 3"]',
    ),
    "words with a slash": ("read/write error", "I/O error"),
    "methods": (
        "at acme.orders.Order.get(A.java:3)",
        "at acme.orders.Order.set(A.java:3)",
    ),
    "how many assertions failed": (
        '["assert f(1) == 2"]',
        '["assert f(1) == 2", "assert f(2) == 3"]',
    ),
    "a key of JSON": ('{"a": 1}', '{"b": 1}'),
    "a word in JSON": ('{"error": "not found"}', '{"error": "forbidden"}'),
    "a name in key=value": ("status=failed n=1", "status=lost n=1"),
    "the table of SQL": (
        "SELECT a FROM t WHERE b = 'x'",
        "SELECT a FROM u WHERE b = 'x'",
    ),
    "the constraint": (
        'violates unique constraint "users_email_key"',
        'violates unique constraint "users_name_key"',
    ),
    "the frame": ("at total (/app/a.js:1:2)", "at sum (/app/a.js:1:2)"),
    "the cause": (
        "RuntimeError: no\nCaused by: java.io.IOException: no",
        "RuntimeError: no\nCaused by: java.net.ConnectException: no",
    ),
    "the expected value of unittest": (
        "AssertionError: 5 != 4",
        "AssertionError: 5 != 6",
    ),
    "the expected value of Jest": (
        "Expected: 4\nReceived: 5",
        "Expected: 6\nReceived: 5",
    ),
    "the expected value of JUnit": (
        "expected: <4> but was: <5>",
        "expected: <6> but was: <5>",
    ),
    "the expected value of Chai": ("expected 5 to equal 4", "expected 5 to equal 6"),
    "the expected value of Go": ("Total(x) = 5; want 4", "Total(x) = 5; want 6"),
    "the expected value of Rust": (
        "assertion `left == right` failed\n  left: 5\n right: 4",
        "assertion `left == right` failed\n  left: 5\n right: 6",
    ),
    "a hash within a string": ("assert f('a#b') == 1", "assert f('a#c') == 1"),
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


@cases(
    "error_type, text, figures",
    {
        "a correction": ("E", "it is 4.2, not 12", "content"),
        "a claim": ("conflict", "it is 4.2", "content"),
        "the number of an error": ("E", "exit status 127", "content"),
        "a duration": ("E", "after 30 s", "particulars"),
        "no figure": ("E", "it failed", ""),
    },
)
def test_a_signature_says_what_its_figures_are(error_type, text, figures):
    assert signature(error_type, text).figures == figures


def test_the_type_tells_apart_too():
    assert signature("KeyError", "'a'").digest != signature("ValueError", "'a'").digest


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


NASTY = [
    *"1, 1. a@ a.b / ../ 0x f deadbeef 1111- ' # [ ([{".split(),
    *"C:\\ http:// 12:00: a1b2 a_".split(),
    *(
        "assert ",
        "assert 1 == [",
        "assert (",
        "assert '",
        "\n + where 1 = ",
        " = ",
        "code: 4",
    ),
    *("E   assert 1 == 1\nE   +  where 1 = 1 1 1 1\n", "\ud800", "\n"),
]


@pytest.mark.parametrize("part", NASTY, ids=repr)
@pytest.mark.parametrize("end", ["", "x", "!", "\n# 1"])
def test_64_kib_of_anything_come_to_an_end(part, end):
    text = (part * (65_536 // len(part)))[:65_536] + end
    name = signature("E", text)
    assert len(name.pattern) <= 40 * MAX_SIGNATURE_CHARS


@cases(
    "text",
    {
        "empty": "",
        "blank": " \n",
        "zeros": "\0" * 100,
        "binary": bytes(range(256)).decode("latin-1") * 40,
        "a megabyte": "kW3 é٣ " * 150_000,
    },
)
def test_bad_input_has_a_bounded_pattern(text):
    assert len(signature("E", text).pattern) <= 4 * MAX_SIGNATURE_CHARS
    assert signature("E", "").pattern == ""


@cases(
    "first, second",
    {
        "pytest and the source": (
            "assert f(3) == 4",
            "E   assert 5 == 4\nE    +  where 5 = f(3)",
        ),
        "a long text is read at both ends": (
            f"a{'x' * 100_000}z",
            f"a{'x' * 200_000}z",
        ),
    },
)
def test_two_forms_have_one_name(first, second):
    assert signature("E", first).pattern == signature("E", second).pattern
    assert signature("E", first).digest == signature("E", second).digest
    assert signature("E", f"b{first[1:]}").digest != signature("E", first).digest
    assert signature("E", f"{first[:-1]}y").digest != signature("E", first).digest
