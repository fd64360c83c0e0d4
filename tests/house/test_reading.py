"""The count of reading habits finds each habit, and takes no good code for one."""

import pytest

from scripts import reading

HABITS = {
    "a star of a packed tuple": ("f(*values)", "packed_call"),
    "two stars of a bag": ("f(**options)", "packed_keywords"),
    "five positions of a function": (
        "def f(): ...\nf(1, a, b, c, d)",
        "many_positions",
    ),
    "four positions of a class": ("class F: ...\nF(a, b, c, d)", "many_positions"),
    "a bare flag in second place": ("def f(): ...\nf(a, True)", "bare_flag"),
    "a bare number in third place": ("def f(): ...\nf(a, b, 3)", "bare_flag"),
    "three names from a tuple": ("a, b, c = x, y, z", "wide_assignment"),
    "two names from a tuple": ("a, b = x, y", "pair_assignment"),
    "a list times a condition": ("[x] * (a > b)", "times_bool"),
    "a length plus a condition": ("len(x) + (a > b)", "times_bool"),
    "a count that grows by a condition": ("n += a > b", "times_bool"),
    "a bag of anything": ("options: dict[str, Any] = {}", "any_bag"),
    "a condition in a condition": ("a if b else c if d else e", "nested_condition"),
    "a condition as an argument": ("f(a if b else c)", "condition_in_call"),
    "two loops in a comprehension": ("[a for b in c for a in b]", "deep_comprehension"),
    "a comprehension in another": ("[[a for a in b] for b in c]", "deep_comprehension"),
    "an assignment in an expression": ("if (a := b): ...", "walrus"),
    "a long lambda": (f"lambda: {'a' * 60}", "lambda_long"),
    "two tuples compared": ("(a, b) == (c, d)", "tuple_compare"),
    "a local without a name": ("made = 1", "vague_name"),
    "a parameter without a name": ("def _f(it): ...", "vague_name"),
    "a check turned off": ("import a  # noqa: F401", "noqa"),
}
GOOD = {
    "the function's own arguments": "def f(*args, **kwargs):\n    g(*args, **kwargs)",
    "a star for alike values": "max(*values)",
    "four positions": "def f(): ...\nf(a, b, c, d)",
    "a call of somebody else's": "other(a, b, c, d, e, f)",
    "a flag by keyword": "def f(): ...\nf(a, quiet=True)",
    "a swap": "a, b = b, a",
    "what a call returns": "a, b = f()",
    "a number times a number": "a * b",
    "a field of a record": "class A:\n    made: Any",
    "a condition of its own": "a = b if c else d",
    "a parameter of a public function": "def f(it): ...",
    "a parameter of a constructor": "def __init__(self, it): ...",
    "a mark inside a text": "text = '# noqa'",
    "a statement": "lesson = recall(task)",
}


def habits(path):
    survey = reading.survey(path)
    return [habit for habit, places in survey.places.items() if places]


@pytest.mark.parametrize(("source", "habit"), HABITS.values(), ids=HABITS)
def test_a_habit_is_found_once(tmp_path, source, habit):
    path = tmp_path / "a.py"
    path.write_text(source, encoding="utf-8")
    assert habits(path) == [habit]
    assert len(reading.survey(path).places[habit]) == 1


@pytest.mark.parametrize("source", GOOD.values(), ids=GOOD)
def test_good_code_has_no_habit(tmp_path, source):
    path = tmp_path / "a.py"
    path.write_text(source, encoding="utf-8")
    assert habits(path) == []
