"""Long texts and episodes are cut with a mark, and no secret enters an episode."""

from __future__ import annotations

from typing import Any

import pytest

from heedful.errors import InvalidInput, TraceFileError
from heedful.traces import reading as traces
from heedful.traces.episode import DEEPEST, Episode, Limits, shorten
from tests.traces.runs import FILES, Data, lines

KEY = "AKIAIOSFODNN7EXAMPLE"


def read(events: list[Data], limits: Limits = Limits(), **more: Any) -> Episode:
    [episode] = traces.read(lines([{"events": events, **more}]), limits=limits)
    return episode


def test_of_a_long_episode_the_head_and_the_tail_are_kept():
    def read_events(count: int, most: int, **more: Any) -> Episode:
        events = [{"type": "tool_response", "content": str(n)} for n in range(1, count + 1)]
        return read(events, Limits(events=most), **more)

    for count in (0, 1, 99, 100):
        episode = read_events(count, 100)
        assert (len(episode.events), episode.omitted) == (count, 0)
    assert read_events(9, 1).omitted == 8
    episode = read_events(1_000, 21, omitted=5)
    kept = [int(event.content) for event in episode.events]
    assert kept == [*range(1, 12), *range(991, 1_001)]
    assert episode.omitted == 5 + 979


@pytest.mark.parametrize("text", ["x" * 201, "ä" * 99_999, f"{KEY} " * 9_000])
def test_a_long_text_is_cut_in_its_middle_with_a_mark_and_without_half_a_secret(text):
    cut = shorten(text, 200)
    assert len(cut) <= 200
    head, mark, tail = cut.split("\n")
    assert mark.endswith("characters are left out]")
    assert len(head) == len(tail) == 70
    assert shorten(cut, 200) == cut
    assert "AKIA" not in cut
    for before in range(0, 60, 7):
        assert "AKIA" not in shorten("-" * before + f" {KEY} " + text, 200)


def test_texts_data_and_names_are_all_cut():
    long = "y" * 5_000
    event: Data = dict.fromkeys(("type", "content", "tool", "error", "id", "call"), long)
    event |= {"arguments": {"a": long}, "meta": {"b": [long]}}
    episode = read([event], Limits(content=1_000), task=long, session=long)
    [one] = episode.events
    assert max(map(len, (one.content, one.error, str(one.arguments), episode.task))) <= 1_000
    assert max(map(len, (one.type, one.tool, one.id, one.call, episode.session))) <= 200
    assert isinstance(one.arguments, str)
    assert one.arguments.startswith('{"a": "yyy')
    assert one.meta["cut"].startswith('{"b": ["yyy')
    assert read([event], Limits(content=1_000)).events == (one,)


def test_data_that_is_very_deep_is_text():
    deep: Any = {"end": 1}
    for _ in range(DEEPEST + 1):
        deep = [deep]
    [one] = read([{"type": "x", "arguments": {"a": deep}, "meta": {"b": deep}}]).events
    assert isinstance(one.arguments, str)
    assert set(one.meta) == {"cut"}
    whole = b'{"events": [{"type": "x", "meta": {"a": ' + b"[" * 400 + b"]" * 400 + b"}}]}"
    [episode] = traces.read(whole)
    assert set(episode.events[0].meta) == {"cut"}


@pytest.mark.parametrize("name", FILES)
def test_no_secret_enters_an_episode(name):
    data = FILES[name]
    for text in ("Where is order A-17?", "A-17: shipped on Monday", "I will look the order up."):
        data = data.replace(text.encode(), KEY.ljust(len(text)).encode())
    assert KEY.encode() in data
    [episode] = traces.read(data)
    text = repr(episode)
    assert "AKIA" not in text
    assert "aws_key" in text


def test_ids_that_hold_secrets_still_tell_calls_apart():
    keys = [KEY, KEY.replace("7", "8")]
    events = [
        {"type": kind, "call": key} for key in keys for kind in ("tool_call", "tool_response")
    ]
    first, answer, second, other = read(events).events
    assert (first.call, second.call) == (answer.call, other.call)
    assert first.call != second.call
    assert "AKIA" not in first.call


def test_a_long_line_or_document_is_an_error_with_what_was_before_it():
    good: Data = {"events": []}
    long = {"events": [{"type": "x", "content": "y" * 2_000}]}
    found = traces.read(lines([good, long, good]), limits=Limits(bytes=1_000))
    assert next(found).events == ()
    with pytest.raises(TraceFileError, match="longer than 1000 bytes") as error:
        next(found)
    assert error.value.line == 2
    for name in ("chat document", "genai protobuf"):
        with pytest.raises(TraceFileError, match="longer than 800 bytes"):
            list(traces.read(FILES[name], limits=Limits(bytes=800)))


@pytest.mark.parametrize(("name", "value"), [("events", 0), ("content", 399), ("bytes", "9")])
def test_limits_are_checked(name, value):
    with pytest.raises(InvalidInput, match=f"limits.{name} is"):
        Limits(**{name: value})
