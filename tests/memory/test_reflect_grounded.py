"""Sentences against the events that they cite."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful import Episode, Event, Fault
from heedful.memory.draft import MOST_CITED, claim, sentences

EPISODE = Episode(
    (
        Event("tool_call", tool="read_file", arguments={"path": "a.txt"}, agent="Ann", id="e1"),
        Event("tool_response", "Error: no such file, 1,200 rows of Ernest Hemingway", id="e2"),
        Event("llm_response", "It is as good   as DONE.", id="e3"),
    ),
    "failure",
    "Count the rows of Table 7",
    fault=Fault("timeout_error", "after 30 s"),
)


@pytest.mark.parametrize(
    ("text", "events", "unsupported"),
    [
        ("It read a.txt with read_file.", (0,), ()),
        ("The agent Ann read it.", (0,), ()),
        ("It found 1200 rows.", (1,), ()),
        ("It found 1,200.0 rows of Ernest Hemingway.", (1,), ()),
        ("It found 1200 rows.", (0,), ("1200",)),
        ("It found 12 rows of Mark Twain.", (1,), ("12", "Mark Twain")),
        ("It said 'as good as done'.", (2,), ()),
        ("It said “as … done”.", (2,), ()),
        ("It said “nearly … done”.", (2,), ("nearly … done",)),
        ("It called write_file.", (0,), ("write_file",)),
        ("Table 7 was to be counted, within 30 s.", (0,), ()),
        ("Nothing was done about it.", (0,), ()),
        ("Hemingway was found.", (1,), ()),
        ("So Twain was found.", (1,), ("Twain",)),
    ],
)
def test_numbers_names_and_quotations_must_stand_in_what_is_cited(text, events, unsupported):
    found = claim(text, events, EPISODE)
    assert found.unsupported == unsupported
    assert found.grounded is (not unsupported)


def test_events_that_do_not_exist_are_not_cited():
    assert claim("It failed.", (-1, 0, 0, 3), EPISODE).events == (0,)
    assert not claim("It failed.", (7,), EPISODE).grounded
    many = Episode(tuple(Event("x") for _ in range(30)))
    assert len(claim("It failed.", range(30), many).events) == MOST_CITED


def test_citations_are_taken_out():
    text = "It failed [e2]. It stood (events 1 and 3). A list [of things] (see 2)."
    assert sentences(text) == ["It failed.", "It stood.", "A list [of things] (see 2)."]


@given(st.text())
def test_any_text_is_read(text):
    assert all(one.strip() == one for one in sentences(text))
    found = claim(text, (0,), EPISODE)
    assert found.grounded is (bool(found.events) and not found.unsupported)


@given(st.text(min_size=1))
def test_an_event_holds_what_it_says(text):
    episode = Episode((Event("llm_response", text),))
    assert claim(text, (0,), episode).unsupported == ()
