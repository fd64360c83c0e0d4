"""Any bytes give episodes, or one typed error with the line."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import InvalidInput, TraceFileError, UnknownName
from heedful.traces import episode as traces_episode
from heedful.traces import messages as traces_messages
from heedful.traces import reading as traces
from heedful.traces.episode import Episode
from heedful.traces.otlp import from_json
from heedful.traces.spans import episodes as spans_episodes
from heedful.traces.spans import pieces
from tests.traces.runs import FILES, Data, claude, document, genai, lines, openinference, own


def drained(found: Iterator[Episode]) -> tuple[list[Episode], TraceFileError | None]:
    episodes: list[Episode] = []
    try:
        episodes.extend(found)
    except TraceFileError as error:
        return episodes, error
    return episodes, None


def refused(data: bytes, **more: Any) -> TraceFileError:
    episodes, error = drained(traces.read(data, **more))
    assert error is not None
    assert episodes == []
    return error


@pytest.mark.parametrize(
    ("data", "line", "said"),
    [
        (b"", 0, "it is empty; give at least one episode"),
        (b"{}", 1, "the first value is {}; it must be of a known format"),
        (b"[]", 1, "of a known format"),
        (b"hello", 1, r"not JSON: Expecting value \(column 1\)"),
        (b'\n{\n "events":\n [}\n]', 4, "not JSON"),
        (b'{"events": NaN}', 1, "NaN is not JSON"),
        (b'{\n"events": []\n}\n{\n}', 4, "another value begins here; put each on a line"),
        (b'{"events": "\xff"}', 1, "can't decode byte 0xff"),
        (b'{"events": ' + b"[" * 100_000, 1, "nested too deeply"),
        (b"\x00\x01\x02\x03", 0, "ends in the midst of a message"),
        (b"\x7f\x01\x02\x03", 0, "a message is longer than"),
        (b"\x0a\x02\x08", 0, "whole OTLP protobuf"),
        (gzip.compress(FILES["own"])[:-20], 0, "cannot be read to its end"),
    ],
)
def test_what_is_no_file_of_traces(data, line, said):
    error = refused(data)
    assert (error.line, error.path) == (line, "the traces")
    with pytest.raises(TraceFileError, match=said):
        raise error


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"events": {}}, "events is {}; it must be a list of objects"),
        ({"events": [{}]}, "type of an event is None"),
        ({"events": [{"type": 1}]}, "type is 1; it must be text"),
        ({"events": [{"type": "x", "error": 1}]}, "error is 1; it must be text"),
        ({"events": [{"type": "x", "meta": 1}]}, "meta is 1; it must be an object"),
        ({"events": [{"type": "x", "at": -1}]}, "it must be seconds since 1970"),
        ({"events": [{"type": "x", "at": "yesterday"}]}, "it must be seconds since 1970"),
        ({"events": [], "outcome": "great"}, "outcome is 'great'; it must be one of success"),
        ({"events": [], "error": "no"}, "error is 'no'; it must be an object"),
        ({"events": [], "tools": "look"}, "tools is 'look'; it must be a list of names"),
        ({"events": [], "usage": {"dollars": 1}}, "it must be an object of calls"),
        ({"events": [], "usage": {"calls": -1}}, "calls is -1; it must be a number"),
        ({"events": [], "omitted": 1.5}, "omitted is 1.5; it must be a whole number"),
        ([{"role": 1}], "role is 1; it must be text"),
        ([{"role": "user", "content": 1}], "content is 1; it must be a list of objects"),
        ([{"role": "assistant", "tool_calls": [{"id": "x"}]}], "function is None"),
        ({"type": "user", "message": "hi"}, "message is 'hi'; it must be an object"),
        ({"type": "user", "message": {}, "timestamp": "now"}, "seconds since 1970"),
        (document([{"startTimeUnixNano": "soon"}]), "startTimeUnixNano is 'soon'"),
        (document([{"traceId": 7}]), "traceId is 7; it must be text"),
        (document([{"status": 7}]), "status is 7"),
    ],
)
def test_a_wrong_value_is_named_with_its_line(value, said):
    data = b"\n" + lines([value])
    error = refused(data)
    assert error.line == 2
    assert said in str(error)


@pytest.mark.parametrize("name", ["own", "claude", "genai lines", "chat messages", "protobuf"])
def test_what_is_whole_before_a_cut_is_given(name):
    request = FILES["genai protobuf"]
    whole = FILES.get(name) or len(request).to_bytes(4, "big") + request
    [known] = traces.read(whole)
    episodes, error = drained(traces.read(whole + (whole[:50] if name == "protobuf" else b'{"ty')))
    assert [one.digest for one in episodes] == [known.digest]
    assert error is not None
    if name == "protobuf":
        assert "ends in the midst" in str(error)
    else:
        assert error.line == FILES[name].count(b"\n") + 1
        assert "not JSON" in str(error)
    for first in (own(), [{"role": "user"}], claude()[1], document([])):
        _, error = drained(traces.read(lines([first, {"else": 1}])))
        assert error is not None
        assert error.line == 2


def test_a_file_that_is_not_there_and_a_format_that_is_not_known(tmp_path):
    with pytest.raises(TraceFileError, match="No such file") as error:
        list(traces.read(tmp_path / "none.jsonl"))
    assert error.value.path == str(tmp_path / "none.jsonl")
    with pytest.raises(UnknownName, match="no trace format is called 'csv'; there are: auto, heed"):
        traces.read(b"", format="csv")
    assert refused(FILES["own"], format="chat").line == 1


def test_protobuf_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.trace.v1.trace_pb2", None)
    assert "pip install 'heedful[traces]'" in str(refused(FILES["genai protobuf"]))


# Any damage

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=9,
)


def survives(data: bytes) -> None:
    with suppress(TraceFileError):
        for episode in traces.read(data, limits=traces_episode.Limits(events=9, content=400)):
            assert len(episode.digest) == 64
            [again] = traces.read(b"".join(traces_messages.write([episode])))
            assert again.digest == episode.digest


@given(st.sampled_from(sorted(FILES)), st.data())
def test_any_bytes_and_any_damage_to_bytes(name, data):
    whole = bytearray(FILES[name])
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(whole)))
        end = min(len(whole), start + data.draw(st.integers(0, 40)))
        whole[start:end] = data.draw(st.binary(max_size=9))
    survives(bytes(whole))
    noise = data.draw(st.binary(max_size=60))
    for some in (noise, b"\x0a" + noise, gzip.compress(noise)):
        survives(some)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner: Any = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    for key, one in inner:
        yield from places(one, (*path, key))


VALUES: dict[str, Any] = {
    "own": own(),
    "genai": document(genai()),
    "structured": document(genai(as_json=False)),
    "openinference": document(openinference()),
    "chat": json.loads(FILES["chat object"]),
    **{f"claude {place}": entry for place, entry in enumerate(claude())},
}
PLACES = [(name, path) for name, value in VALUES.items() for path in places(value) if path]


@given(st.sampled_from(PLACES), JSON, st.booleans())
def test_any_value_in_any_place(place, value, inside):
    name, path = place
    whole: Data = json.loads(json.dumps(VALUES[name]))
    at: Any = whole
    for key in path[:-1]:
        at = at[key]
    # Attributes hold JSON as text, which is damaged apart.
    at[path[-1]] = json.dumps(value) if inside else value
    survives(lines([whole]))
    if "resourceSpans" in whole:  # what waits in a store, too
        with suppress(InvalidInput):
            spans = list(from_json(whole))
            kept, refused = pieces(spans)
            assert len(kept) + refused.total() == len(spans)
            assert all(len(episode.digest) == 64 for episode in spans_episodes(kept))
