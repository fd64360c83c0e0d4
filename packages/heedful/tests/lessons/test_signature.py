"""The name of an error: what is masked, and what tells two errors apart."""

import hashlib
import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from heedful.lessons.scope import MAX_READ_CHARS
from heedful.lessons.signature import CLAIM_ERROR_TYPES, signature
from tests.tables import cases, read_samples

SAMPLES = Path(__file__).parent / "samples"
# Pairs of errors of tools that are one error, and of those that are two.
SAME = {
    **read_samples(SAMPLES / "same_errors.txt"),
    "styles of a terminal": ("error[E1]: no a", "\x1b[31merror[E1]\x1b[0m: no a"),
    "what a terminal draws over": ("no a", "1/9\r9/9\r\x1b[2Kno a"),
    "ends of lines": ("no a\nno b", "no a\r\nno b"),
}
DIFFERENT = read_samples(SAMPLES / "different_errors.txt")


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
    assert len(name.pattern) <= 40 * MAX_READ_CHARS


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
    assert len(signature("E", text).pattern) <= 4 * MAX_READ_CHARS
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
