"""Every case of a parametrized test has an id that says what it is.

Where a case has none, pytest makes one up of the name of the parameter and a number,
such as `answer3`, which tells nobody what failed. This looks at the tests that were
collected with it, so a run of the whole suite looks at them all.
"""

import re
from collections.abc import Iterable
from pathlib import Path

TESTS = Path(__file__).parents[1]


def has_made_up_id(id: str, parameters: Iterable[str]) -> bool:
    """Tell whether a part of the id is a parameter's name and a number."""
    names = "|".join(map(re.escape, parameters))
    return re.search(rf"(?:^|-)(?:{names})\d+(?:-|$)", id) is not None


def test_every_case_has_an_id_that_says_something(request):
    unnamed = {
        item.nodeid
        for item in request.session.items
        if TESTS in item.path.parents
        and hasattr(item, "callspec")
        and has_made_up_id(item.callspec.id, item.callspec.params)
    }
    assert sorted(unnamed) == []
