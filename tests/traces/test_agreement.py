"""The same run, told in every format, is the same steps; and an import is the same twice."""

from __future__ import annotations

import gzip
import random

import pytest

from heedful.loop.record import Usage
from heedful.traces import reading as traces
from heedful.traces import write
from heedful.traces.episode import Episode
from heedful.traces.signals import answered
from tests.traces.runs import (
    EXPECTED,
    FILES,
    QUESTION,
    TRACE,
    claude,
    document,
    genai,
    lines,
    openinference,
    steps,
)


def only(data: bytes, **more: object) -> Episode:
    [episode] = traces.read(data, **more)  # type: ignore[arg-type]
    return episode


@pytest.mark.parametrize("name", FILES)
def test_the_same_run_in_every_format_is_the_same_steps(name, tmp_path):
    episode = only(FILES[name])
    assert steps(episode) == EXPECTED
    assert episode.task == QUESTION
    assert episode.outcome == "partial"  # nobody said how it ended
    assert answered(episode.events) == {3: 4, 5: 6}
    assert len({event.id for event in episode.events}) == len(EXPECTED)
    again = only(b"".join(write([episode])))
    assert (again.digest, again.events) == (episode.digest, episode.events)
    path = tmp_path / "run.gz"
    path.write_bytes(gzip.compress(FILES[name]))
    assert [packed.digest for packed in traces.read(path)] == [episode.digest]


@pytest.mark.parametrize(
    "entries",
    [claude(), [document(genai())], [document(openinference())]],
    ids=["claude", "genai", "openinference"],
)
def test_what_a_file_holds_twice_counts_once(entries):
    assert only(lines([*entries, *entries])).digest == only(lines(entries)).digest


@pytest.mark.parametrize("spans", [genai(), openinference()])
@pytest.mark.parametrize("seed", range(10))
def test_spans_in_any_order_are_the_same_episode(spans, seed):
    mixed = random.Random(seed).sample(spans, len(spans))
    assert (
        only(lines([document([one]) for one in mixed])).digest
        == only(lines([document(spans)])).digest
    )


@pytest.mark.parametrize("format", ["otlp", "auto"])
def test_requests_with_their_lengths_before_them_are_read(format):
    request = FILES["genai protobuf"]
    framed = b"".join(len(one).to_bytes(4, "big") + one for one in (request, request))
    episode = only(framed, format=format)
    assert (steps(episode), episode.id) == (EXPECTED, TRACE)


@pytest.mark.parametrize("name", ["genai document", "genai protobuf"])
def test_what_spans_say_beside_the_steps(name):
    episode, start = only(FILES[name]), 1_769_860_801.0
    assert (episode.session, episode.source) == ("conversation-1", "otlp")
    assert episode.usage == Usage(3, 30, 21, seconds=11)
    assert [event.agent for event in episode.events] == ["", "", *6 * ["clerk"]]
    failed = episode.events[4]
    assert (failed.error, failed.code, failed.content) == ("no order A17", "LookupError", "")
    times = [event.at for event in episode.events[:4]]
    assert times == [start, start, start + 1, start + 1]


def test_what_sessions_and_openinference_say_beside_the_steps():
    episode = only(FILES["openinference protobuf"])
    assert (episode.usage.cost, episode.tools) == (0.75, ("find_order",))
    episode = only(FILES["claude"])
    names = (episode.id, episode.session, episode.source)
    assert names == ("session-1", "session-1", "claude-code")
    assert episode.usage == Usage(2, 30, 14)
    assert [event.id for event in episode.events][:2] == ["uuid-0", "uuid-1"]
    assert episode.events[0].at == 1_769_860_800.5
    assert episode.events[4].error == "no order A17"
