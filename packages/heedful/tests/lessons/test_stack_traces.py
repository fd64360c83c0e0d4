"""Stack traces in a signature: what is one error in any notation, and what is not."""

from pathlib import Path

import pytest

from heedful.lessons.lesson import SIGNATURE_VERSION
from heedful.lessons.scope import MAX_READ_CHARS
from heedful.lessons.signature import signature
from tests.tables import cases, read_samples

SAMPLES = Path(__file__).parent / "samples"
# A trace of Python, and as Python 3.13 draws it in a terminal.
PLAIN = """Traceback (most recent call last):
  File "/a/b.py", line 3, in main
    total()
TypeError: no"""
COLOURED = """Traceback (most recent call last):
  File \x1b[35m"/a/b.py"\x1b[0m, line \x1b[35m3\x1b[0m, in \x1b[35mmain\x1b[0m
    \x1b[31mtotal\x1b[0m()
    \x1b[31m~~~~~\x1b[0m^^
\x1b[1;35mTypeError\x1b[0m: \x1b[35mno\x1b[0m"""
# A group of errors of Python, with the number of a line and an error.
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/a/b.py", line {}, in main
  |     raise ExceptionGroup("one", errors)
  | ExceptionGroup: one (1 sub-exception)
  +-+---------------- 1 ----------------
    | {}
    +------------------------------------"""
SAME = {
    **read_samples(SAMPLES / "same_traces.txt"),
    "colours of Python": (PLAIN, COLOURED),
    "a group of errors": (
        GROUP.format(3, "ValueError: no order 12"),
        GROUP.format(4, "ValueError: none for Ann"),
    ),
}
DIFFERENT = {
    **read_samples(SAMPLES / "different_traces.txt"),
    "the error of a group": (
        GROUP.format(3, "ValueError: no"),
        GROUP.format(3, "TypeError: no"),
    ),
}
MESSAGES = read_samples(SAMPLES / "trace_messages.txt")


@pytest.mark.parametrize("case", SAME)
def test_one_error_has_one_name_in_every_notation(case):
    patterns = {signature("E", text).pattern for text in SAME[case]}
    assert len(patterns) == 1


@pytest.mark.parametrize("case", DIFFERENT)
def test_another_error_has_another_name(case):
    first, second = (signature("E", text) for text in DIFFERENT[case])
    assert first.digest != second.digest


# The table has a frame of each library; Go writes it in two lines.
LIBRARY_FRAMES = {
    "of the table": "    at a (node:internal/modules/run_main:222:25)",
    "in two lines": "panic({0x45e0})\n\t/usr/local/go/src/runtime/panic.go:884 +0x1d",
    "with a margin": '  |   File "/usr/lib/python3.11/json/decoder.py", line 3, in a',
    "on Windows": '  File "C:\\Python311\\Lib\\json\\decoder.py", line 3, in decode',
}
OWN_FRAME = "TypeError: no\n    at pay (/srv/a.js:1:2)"


@cases("frame", LIBRARY_FRAMES)
def test_frames_of_libraries_are_no_part_of_a_name(frame):
    text = f"{OWN_FRAME}\n{frame}"
    assert signature("E", text).pattern == signature("E", OWN_FRAME).pattern


@pytest.mark.parametrize("case", MESSAGES)
def test_the_message_is_what_the_error_says(case):
    text, message = MESSAGES[case]
    assert signature("E", text).message == message


def test_a_trace_is_read_by_exceptions_and_frames():
    text = (
        "Traceback (most recent call last):\n"
        '  File "/srv/app.py", line 3, in main\n    pay(order)\n'
        '  File "/srv/bill.py", line 9, in pay\n    prices[name]\n'
        "KeyError: 'price'"
    )
    assert (
        signature("E", text).pattern
        == "KeyError: 'price' at main (app.py), pay (bill.py)"
    )


def test_a_masked_figure_of_a_message_is_a_particular():
    name = signature("E", OWN_FRAME.replace("no", "no order 12"))
    assert name.pattern == "TypeError at pay (a.js)"
    assert name.figures == "particulars"


def test_of_a_deep_stack_the_frames_next_to_the_error_count():
    def trace(depth):
        frames = [f"    at f{index}x (/srv/a.js:1:2)" for index in range(depth)]
        return "\n".join(["TypeError: no", *frames])

    assert signature("E", trace(3)).digest != signature("E", trace(4)).digest
    assert signature("E", trace(500)).digest == signature("E", trace(900)).digest
    assert len(signature("E", trace(900)).pattern) <= MAX_READ_CHARS


# Digests are stored. If these change, raise SIGNATURE_VERSION.
@cases(
    "text, digest",
    {
        "words": ("no order 12", "a8a95f5cf5c5af5c"),
        "an assertion": ("assert 5 == 4", "05bd3328f76e3952"),
        "a trace": ("TypeError: no\n    at pay (/srv/a.js:1:2)", "f5347d066608f0ea"),
    },
)
def test_a_version_has_its_digests(text, digest):
    name = signature("E", text)
    assert name.version == SIGNATURE_VERSION == 1
    assert name.digest == digest


NASTY = (
    "\n@/",
    "@/:1:1",
    "\n    at a.",
    "\n\tat a.b(",
    "\n^",
    "~^",
    "\ngoroutine 1 [\n",
    "\n1: a::",
    "\n#1 : a: ",
    "a.go:1 ",
    ".<a>b__",
    "$$",
    "Error: A.",
    "A.",
    ":1:1",
    "\nthread a panicked at 'a', ",
)


@pytest.mark.parametrize("part", NASTY, ids=repr)
@pytest.mark.parametrize("end", ["", "\n    at pay (/srv/a.js:1:2)"])
def test_64_kib_of_anything_like_a_trace_come_to_an_end(part, end):
    text = (part * (65_536 // len(part)))[:65_536] + end
    assert len(signature("E", text).pattern) <= 40 * MAX_READ_CHARS
