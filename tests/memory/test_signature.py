"""The name of an error: what is masked, and what tells two errors apart."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.memory.signature import MOST, Signature, signature

SAME = {
    "measured numbers": ("took 12.5 seconds", "took 900 seconds"),
    "counts": ("3 of 10 rows failed", "7 of 12 rows failed"),
    "signed and exponents": ("loss is -1.5e-3 now", "loss is 2e10 now"),
    "units without a space": ("after 250ms", "after 3s"),
    "sizes": ("file of 10 MB is too large", "file of 2048 kB is too large"),
    "percent": ("disk 93% full", "disk 99.5% full"),
    "paths": ('File "/mnt/ada/x.py", line 3, in f', 'File "/srv/bo/y/z.py", line 99, in f'),
    "relative paths": ("cannot read ./a/b.csv", "cannot read ../c.csv"),
    "windows paths": (r"cannot open C:\Users\ada\x.txt", r"cannot open D:\y.txt"),
    "addresses": ("<Thing object at 0x7f14ab>", "<Thing object at 0x00ff12>"),
    "uuids": (
        "job 123e4567-e89b-12d3-a456-426614174000 lost",
        "job 00000000-1111-2222-3333-444455556666 lost",
    ),
    "hashes": ("commit deadbeef1234 is bad", "commit 0123456789abcdef is bad"),
    "hosts": ("refused by 10.0.0.7:5432", "refused by 192.168.1.1"),
    "web addresses": ("GET https://a.example/x?y=1 failed", "GET http://b.example failed"),
    "mail": ("no user ada@example.com", "no user bo.x@mail.example.org"),
    "times": ("at 2026-01-31T12:00:00Z it broke", "at 2025-12-01 08:15:59,123 it broke"),
    "clock": ("at 12:00:01 it broke", "at 23:59:59.5 it broke"),
    "space": ("too   many\n spaces", "too many spaces"),
    "actual in a comment": ("assert f(3) == 4  # got 5", "assert f(3) == 4  # got 17"),
    "actual of pytest": (
        "E       assert 5 == 4\nE        +  where 5 = f(3)",
        "E       assert 17 == 4\nE        +  where 17 = f(3)",
    ),
    "actual text of pytest": (
        "E   AssertionError: assert 'ab' == 'abc'\nE     +  where 'ab' = name(x=1)",
        "E   AssertionError: assert 'zz' == 'abc'\nE     +  where 'zz' = name(x=1)",
    ),
    "two actual values": (
        "assert 5 == 6\n +  where 5 = f(3)\n +  and   6 = g(4)",
        "assert 7 == 9\n +  where 7 = f(3)\n +  and   9 = g(4)",
    ),
    "actual alone": ("AssertionError: assert 5 == 4", "AssertionError: assert 6 == 4"),
    "actual list": ("assert [1, 2] == [1, 3]", "assert [9] == [1, 3]"),
    "in a traceback": (
        '  File "/a/b.py", line 3, in test\n    assert f(3) == 4\nAssertionError: got 5',
        '  File "/c/d.py", line 9, in test\n    assert f(3) == 4\nAssertionError: got 6',
    ),
}
DIFFERENT = {
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
    "case of a name": ("no attribute Value", "no attribute value"),
}


@pytest.mark.parametrize("what", SAME)
def test_particulars_are_masked(what):
    one, two = (signature("E", text) for text in SAME[what])
    assert one.pattern == two.pattern
    assert one.digest == two.digest
    assert one.exact != two.exact


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_distinguishes_is_kept(what):
    one, two = (signature("KeyError", text) for text in DIFFERENT[what])
    assert one.digest != two.digest


def test_pytest_and_the_source_name_the_same_assertion():
    source = signature("E", "assert f(3) == 4")
    assert signature("E", "E   assert 5 == 4\nE    +  where 5 = f(3)") == Signature(
        signature("E", "E   assert 5 == 4\nE    +  where 5 = f(3)").exact,
        source.pattern,
        source.digest,
    )


def test_the_type_tells_apart_too():
    assert signature("KeyError", "'a'").digest != signature("ValueError", "'a'").digest


def test_the_exact_digest_is_the_compatible_one():
    want = hashlib.sha256(b"conflict:the text").hexdigest()[:16]
    assert signature("conflict", "  The TEXT\n").exact == want


def test_the_pattern_is_readable():
    text = "after 12.5 s at 10.0.0.7 on /srv/x: 0xdead, id deadbeef01 (ada@example.com)"
    assert signature("E", text).pattern == (
        "after <N> at <HOST> on <PATH>: <ADDRESS>, id <ID> (<MAIL>)"
    )


@given(st.text(max_size=300), st.text(max_size=20))
def test_any_text_has_a_signature_and_always_the_same(text, kind):
    one = signature(kind, text)
    assert one == signature(kind, text)
    assert re.fullmatch("[0-9a-f]{16}", one.exact)
    assert re.fullmatch("[0-9a-f]{16}", one.digest)
    assert one.pattern == " ".join(one.pattern.split())


@given(st.integers(), st.integers(0, 10**9), st.floats(allow_nan=False, allow_infinity=False))
def test_no_number_is_left_in_prose(a, b, c):
    text = f"it took {a} of {b} with a loss of {c:.6f} in the end"
    assert signature("E", text).pattern == "it took <N> of <N> with a loss of <N> in the end"


NASTY = [
    "1,",
    "1.",
    "a@",
    "a.b",
    "/",
    "a/",
    "../",
    "0x",
    "0",
    "f",
    "deadbeef",
    "1111-",
    "'",
    '"',
    "#",
    "assert ",
    "assert 1 == [",
    "assert (",
    "assert '",
    "\n + where 1 = ",
    " = ",
    "E   ",
    "E   assert 1 == 1\nE   +  where 1 = 1 1 1 1\n",
    "\n",
    "http://",
    "12:00:",
    "1.1.1.",
    "C:\\",
    "[",
    "([{",
    "\ud800",
]


@pytest.mark.parametrize("part", NASTY, ids=repr)
@pytest.mark.parametrize("end", ["", "x", "!", "\n# 1"])
def test_64_kib_of_anything_come_to_an_end(part, end):
    text = (part * (65_536 // len(part)))[:65_536] + end
    one = signature("E", text)
    assert len(one.pattern) <= 40 * MOST


@given(st.lists(st.sampled_from(NASTY), min_size=1, max_size=30), st.integers(1, 400))
def test_mixtures_of_nasty_parts_come_to_an_end(parts, times):
    assert signature("E", "".join(parts) * times).digest


def test_a_long_text_is_read_at_both_ends():
    middle = "x" * 100_000
    assert signature("E", f"a{middle}z") == Signature(
        signature("E", f"a{middle}z").exact, *_rest(f"a{middle}x" + middle + "z")
    )
    assert signature("E", f"a{middle}z").digest != signature("E", f"b{middle}z").digest
    assert signature("E", f"a{middle}z").digest != signature("E", f"a{middle}y").digest


def _rest(text: str) -> tuple[str, str]:
    one = signature("E", text)
    return one.pattern, one.digest
