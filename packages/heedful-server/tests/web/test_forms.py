"""Forms with fields that no page sends: each is refused with words, never a fault."""

from collections.abc import Iterator

import pytest

from heedful_server.web.site_map import ACTIONS
from tests.tables import cases
from tests.web.support import Browser, browsing, fill

# The fields that each action reads.
FIELDS = {
    "amend": ("id", "change", "edition", "text", "why"),
    "cancel": ("id", "why"),
    "correct": ("id", "accepted", "why"),
    "note": ("id", "text"),
    "override": ("id", "rule", "decisions", "why"),
    "reflect_now": ("digest",),
    "reject": ("id", "why"),
    "release": ("id", "why", "back", "project"),
    "revoke": ("source", "why"),
    "revoke_key": ("id",),
    "trust": ("names", "why"),
    "undo": ("id", "names"),
}


@pytest.fixture
def browser(tmp_path) -> Iterator[Browser]:
    with browsing(tmp_path) as browser:
        fill(browser.api)
        yield browser.open(browser.api._all)


def test_each_action_of_the_pages_is_tried():
    actions = [action.__name__ for group in ACTIONS.values() for action in group]
    assert sorted(FIELDS) == sorted(actions)


@cases(
    "value",
    {
        "a word": "x",
        "nothing": "",
        "numbers as JSON": "[1]",
        "an object as JSON": '{"a": 1}',
        "deep nesting": "[" * 20_000,
        "a large number": "9" * 40,
        "a control character": "a\0b",
        "a line break": "a\r\nb: c",
        "no ASCII": "é",
        "half a character": "%FF",
        "an address without an end": "http://[",
    },
)
def test_no_value_of_a_field_is_a_fault(browser, value):
    form = {"id": "1", "why": "read", "change": "pin", "token": browser.token}
    faults = []
    for action, fields in FIELDS.items():
        for field in fields:
            answer = browser.post(f"/do/{action}", {**form, field: value})
            if answer.status_code >= 500:
                faults.append((action, field))
    assert faults == []


@pytest.mark.parametrize("action", ["trust", "undo"])
@cases("names", {"no JSON": "x", "deep nesting": "[" * 20_000, "numbers": "[1]"})
def test_names_that_are_no_list_of_texts_are_refused(browser, action, names):
    form = {"token": browser.token, "names": names, "why": "ours"}
    answer = browser.post(f"/do/{action}", form)
    assert answer.status_code == 422
    assert "the names of sources, as a JSON list" in answer.text
