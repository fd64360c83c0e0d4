"""What is written is read as it was."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from heedful.loop.record import Usage
from heedful.traces import messages as traces
from heedful.traces import reading as traces_reading
from heedful.traces.episode import ENDED, Episode, Event, Fault

# Too short for a secret, and for a cut.
TEXT = st.text(max_size=7)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
OBJECT = st.dictionaries(TEXT, DATA, max_size=3)
EVENT = st.builds(
    Event,
    type=st.sampled_from(["tool_call", "tool_response", "llm_response", "my own"]),
    content=TEXT,
    agent=TEXT,
    tool=TEXT,
    arguments=st.none() | TEXT | OBJECT,
    call=TEXT,
    error=TEXT,
    code=TEXT,
    at=st.none() | st.floats(0, 4e9),
    meta=OBJECT,
)
EPISODE = st.builds(
    Episode,
    events=st.lists(EVENT, max_size=5).map(
        lambda events: tuple(replace(one, id=f"id {n}") for n, one in enumerate(events))
    ),
    outcome=st.sampled_from(ENDED),
    task=TEXT,
    goal=TEXT,
    fault=st.none() | st.builds(Fault, TEXT, TEXT, TEXT),
    id=TEXT,
    session=TEXT,
    tools=st.lists(TEXT, max_size=3, unique=True).map(tuple),
    usage=st.builds(Usage, st.integers(0, 9), st.integers(0, 9), st.just(0), st.floats(0, 9)),
    omitted=st.integers(0, 99),
    source=st.sampled_from(["", "loop", "otlp"]),
)


@given(st.lists(EPISODE, min_size=1, max_size=3))
def test_what_is_written_is_read_as_it_was_but_for_its_source(episodes):
    lines = list(traces.write(episodes))
    assert all(line.isascii() and line.count(b"\n") == 1 for line in lines)
    read = list(traces_reading.read(b"".join(lines)))
    assert read == [replace(one, source="heedful") for one in episodes]
    assert [one.digest for one in read] == [one.digest for one in episodes]
