"""Actions: which calls are the same action, and which parts of a failed one are
stored.
"""

import pytest

from heedful.lessons.action import action

BUILD = {"command": "npm run build --prefix /srv/ann/app --port 8080"}
CALLS = [
    pytest.param(
        ("Bash", BUILD),
        ("Bash", {**BUILD, "description": "Build it", "timeout": 9}),
        True,
        id="description and timeout",
    ),
    pytest.param(
        ("Bash", BUILD),
        ("", "npm run build --prefix ./app --port 8081"),
        False,
        id="no tool",
    ),
    pytest.param(
        ("shell", {"command": ["ls", "a b"]}),
        ("", "ls 'a b'"),
        True,
        id="a list as one text",
    ),
    pytest.param(
        ("Bash", BUILD),
        ("", "npm run lint --prefix /srv/ann/app --port 8080"),
        False,
        id="another command",
    ),
    pytest.param(
        ("Read", {"path": "/a/x.py"}),
        ("Write", {"path": "/a/x.py"}),
        False,
        id="another tool",
    ),
]


@pytest.mark.parametrize(("first", "second", "same"), CALLS)
def test_the_same_action_in_other_particulars_or_another_action(first, second, same):
    assert (action(*first).whole == action(*second).whole) == same


def test_no_secret_is_in_the_text():
    assert (
        "AKIAIOSFODNN7EXAMPLE"
        not in action("", "aws --key AKIAIOSFODNN7EXAMPLE ls").text
    )
