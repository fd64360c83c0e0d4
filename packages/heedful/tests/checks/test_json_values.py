import json
import string

from hypothesis import given, strategies as st

from heedful.checks.json_values import read_json
from tests.linear import assert_linear
from tests.tables import cases

DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
PROSE = st.text(string.ascii_letters + " .,:;-'\n")


def is_object(json_value):
    return isinstance(json_value.value, dict)


def is_number(json_value):
    return type(json_value.value) in (int, float)


@given(PROSE, st.dictionaries(st.text(), DATA), PROSE)
def test_an_object_in_prose_is_read_as_it_is_alone(before, value, after):
    text = f"{before} {json.dumps(value)} {after}"
    reading = read_json(text, is_object)
    assert reading.json is not None
    assert reading.json.value == value


@given(st.dictionaries(st.text(), DATA, min_size=1), st.data())
def test_an_object_that_is_cut_anywhere_is_no_value(value, data):
    text = json.dumps(value)
    end = data.draw(st.integers(1, len(text) - 1))
    reading = read_json(f"Here: {text[:end]}", is_object)
    assert reading.json is None
    assert reading.is_cut


@cases(
    "text, number",
    {
        "alone": ("42", 42),
        "at the end of a sentence": ("The answer is 42.", 42),
        "the last": ("First 10, then -20.5 (so it is)", -20.5),
        "with a comma for thousands": ("It costs $12,500.", None),
        "in a date and a time": ("It was on 2026-01-31 at 10:30.", None),
        "in a version": ("Version v2 or 1.2.3", None),
    },
)
def test_a_number_in_a_sentence_is_a_value(text, number):
    reading = read_json(text, is_number)
    assert (reading.json and reading.json.value) == number


@cases(
    "part",
    {
        "braces": "{",
        "broken lists": "[0, x ",
        "objects without a colon": '{"a" ',
        "escaped quotes": '"\\',
        "texts that do not end": '["\\',
        "objects": "{}",
        "lists of words": "[1 x]",
        "nesting": '{"a":[',
    },
)
def test_a_hostile_text_is_read_in_linear_time(part):
    assert_linear(
        lambda text: read_json(text, lambda _: False), part, length=4_000, runs=3
    )
