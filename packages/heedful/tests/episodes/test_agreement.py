"""One run gives the same steps in every format; reading what was written changes
nothing.
"""

import random
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from heedful.episodes import reading as traces, write
from heedful.episodes.course import answered
from heedful.episodes.episode import EPISODE_OUTCOMES, Episode, Event, Fault
from tests.episodes import runs
from tests.episodes.runs import (
    CLAUDE,
    EXPECTED,
    FILES,
    document,
    genai,
    lines,
    openinference,
)
from tests.tables import cases


def only(data: bytes) -> Episode:
    [episode] = traces.read(data)
    return episode


@pytest.mark.parametrize("name", FILES)
def test_the_same_run_in_every_format_is_the_same_steps(name, tmp_path):
    episode = only(FILES[name])
    assert runs.steps(episode) == EXPECTED
    assert episode.task == runs.QUESTION
    assert episode.outcome == "partial"  # nobody said how it ended
    assert answered(episode.events) == {3: 4, 5: 6}
    assert len({event.id for event in episode.events}) == len(EXPECTED)
    again = only(b"".join(write([episode])))
    assert again.digest == episode.digest
    assert again.events == episode.events
    path = tmp_path / "run"
    path.write_bytes(FILES[name])
    assert [read.digest for read in traces.read(path)] == [episode.digest]


@cases(
    "entries",
    {
        "claude": CLAUDE,
        "genai": [document(genai())],
        "openinference": [document(openinference())],
    },
)
def test_what_a_file_holds_twice_counts_once(entries):
    assert only(lines([*entries, *entries])).digest == only(lines(entries)).digest


@cases("spans", {"genai": genai(), "openinference": openinference()})
@pytest.mark.parametrize("seed", range(10), ids=lambda n: f"seed {n}")
def test_spans_in_any_order_are_the_same_episode(spans, seed):
    mixed = [document([step]) for step in random.Random(seed).sample(spans, len(spans))]
    assert only(lines(mixed)).digest == only(lines([document(spans)])).digest


@pytest.mark.parametrize("name", ["genai document", "genai protobuf"])
def test_what_spans_say_beside_the_steps(name):
    episode = only(FILES[name])
    start = 1_769_860_801.0
    assert episode.session == "conversation-1"
    assert episode.source == "otlp"
    assert [event.agent for event in episode.events] == ["", "", *6 * ["clerk"]]
    failed = episode.events[4]
    assert failed.error == "no order A17"
    assert failed.code == "LookupError"
    assert failed.content == ""
    times = [event.at for event in episode.events[:4]]
    assert times == [start, start, start + 1, start + 1]


def test_what_sessions_and_openinference_say_beside_the_steps():
    episode = only(FILES["openinference protobuf"])
    assert episode.tools == ("find_order",)
    episode = only(FILES["claude"])
    names = (episode.id, episode.session, episode.source)
    assert names == ("session-1", "session-1", "claude-code")
    assert [event.id for event in episode.events][:2] == ["uuid-0", "uuid-1"]
    assert episode.events[0].at == 1_769_860_800.5
    assert episode.events[4].error == "no order A17"


# Too short for a secret, and for a cut.
TEXT = st.text(max_size=7)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
    ),
    max_leaves=6,
)
OBJECT = st.dictionaries(TEXT, DATA, max_size=3)
TYPE = st.sampled_from(["tool_call", "tool_response", "llm_response", "my own"])
AT = st.none() | st.floats(0, 4e9)
ARGUMENTS = st.none() | TEXT | OBJECT
EVENT = st.builds(
    Event,
    TYPE,
    TEXT,
    agent=TEXT,
    tool=TEXT,
    arguments=ARGUMENTS,
    call=TEXT,
    error=TEXT,
    id=TEXT,
    code=TEXT,
    at=AT,
    meta=OBJECT,
)
EVENTS = st.lists(EVENT, max_size=5).map(
    lambda events: tuple(replace(event, id=f"id {n}") for n, event in enumerate(events))
)
FAULT = st.builds(Fault, TEXT, TEXT, TEXT)
TOOLS = st.lists(TEXT, max_size=3, unique=True)
COUNT = st.integers(0, 9)
EPISODE = st.builds(
    Episode,
    EVENTS,
    st.sampled_from(EPISODE_OUTCOMES),
    task=TEXT,
    goal=TEXT,
    fault=st.none() | FAULT,
    id=TEXT,
    session=TEXT,
    tools=TOOLS.map(tuple),
    omitted=COUNT,
    source=st.sampled_from(["", "loop", "otlp"]),
)


@given(st.lists(EPISODE, min_size=1, max_size=3))
def test_what_is_written_is_read_as_it_was_but_for_its_source(episodes):
    lines = list(write(episodes))
    assert all(line.isascii() and line.count(b"\n") == 1 for line in lines)
    read = list(traces.read(b"".join(lines)))
    assert read == [replace(episode, source="heedful") for episode in episodes]
    assert [episode.digest for episode in read] == [
        episode.digest for episode in episodes
    ]
