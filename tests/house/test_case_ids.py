"""Every case of a parametrized test has an id that says what it is.

Where a case has none, pytest makes one up of the name of the parameter and a number,
such as `answer3`, which tells nobody what failed. This looks at the tests that were
collected with it, so a run of the whole suite looks at them all.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def has_made_up_id(id: str, parameters: Iterable[str]) -> bool:
    """Tell whether a part of the id is a parameter's name and a number."""
    names = "|".join(map(re.escape, parameters))
    return re.search(rf"(?:^|-)(?:{names})\d+(?:-|$)", id) is not None


@pytest.mark.parametrize(
    ("id", "made_up"),
    [
        pytest.param("answer3", True, id="a name and a number"),
        pytest.param("case0-True", True, id="at the beginning"),
        pytest.param("postgres-case12", True, id="at the end"),
        pytest.param("a-case0-b", True, id="in the middle"),
        pytest.param("echo counts once", False, id="words"),
        pytest.param("float32", False, id="another word with a number"),
        pytest.param("case0 of two", False, id="words that begin like it"),
        pytest.param("case", False, id="a name without a number"),
    ],
)
def test_an_id_is_made_up_or_not(id, made_up):
    assert has_made_up_id(id, ["answer", "case"]) is made_up


def test_every_case_has_an_id_that_says_something(request):
    unnamed = {
        item.nodeid
        for item in request.session.items
        if TESTS in item.path.parents
        and hasattr(item, "callspec")
        and has_made_up_id(item.callspec.id, item.callspec.params)
    }
    assert sorted(unnamed) == []
