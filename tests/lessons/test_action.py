"""Actions: which calls are the same action, and which parts of a failed one are stored."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.lessons.action import action

BUILD = {"command": "npm run build --prefix /home/ann/app --port 8080"}
SAME: list[tuple[Any, Any]] = [
    (("Bash", BUILD), ("Bash", {**BUILD, "description": "Build it", "timeout": 9})),
    (("Bash", BUILD), ("shell", {"cmd": "npm run build  --prefix /srv/app --port 9"})),
    (("Bash", BUILD), ("", "npm run build --prefix ./app --port 1")),
    (("shell", {"command": ["bash", "-lc", "ls src"]}), ("shell", {"command": "ls src"})),
    (("shell", {"command": ["ls", "a b"]}), ("", "ls 'a b'")),
    (("Read", {"file_path": "/a/x.py", "limit": 10}), ("read", {"limit": 99, "file_path": "x.py"})),
]
DIFFERENT: list[tuple[Any, Any]] = [
    (("Bash", BUILD), ("Bash", {"command": "npm run lint --prefix /home/ann/app --port 8080"})),
    (("Read", {"file_path": "/a/x.py"}), ("Read", {"file_path": "/a/y.py"})),
    (("Read", {"file_path": "/a/x.py"}), ("Write", {"file_path": "/a/x.py"})),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_action_in_other_particulars(one, other):
    assert action(*one).whole == action(*other).whole


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_another_action(one, other):
    assert action(*one).whole != action(*other).whole


@pytest.mark.parametrize(
    ("error", "found", "missed"),
    [
        ("error: unrecognized subcommand 'bun'", "rtk bun lint", "bun lint"),
        ("Table 'shop.orders' doesn't exist", "select a from orders", "insert into orders"),
        ("it failed", "", "rtk bun lint"),
    ],
)
def test_of_a_failed_action_the_name_that_its_error_quotes_is_stored(error, found, missed):
    failed = action("", "rtk bun test && select count(*) from orders")
    stored = set(failed.digests(error))
    assert failed.whole in stored
    assert not stored & set(action("", missed).digests())
    assert bool(stored & set(action("", found).digests())) == bool(found)


@given(
    st.text(),
    st.one_of(st.text(), st.dictionaries(st.text(), st.text() | st.integers())),
    st.text(),
)
def test_any_call_and_error_have_digests(tool, arguments, error):
    made = action(tool, arguments)
    assert set(made.digests(error)) <= set(made.digests())


def test_no_secret_is_in_the_text():
    assert "AKIAIOSFODNN7EXAMPLE" not in action("", "aws --key AKIAIOSFODNN7EXAMPLE ls").text
