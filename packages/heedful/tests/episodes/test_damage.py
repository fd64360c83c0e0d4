"""Any bytes give episodes, bounded and without secrets, or one typed error with the
line.
"""

import codecs
import gzip
import json
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from heedful.episodes import reading as traces, write
from heedful.episodes.episode import Episode, Limits
from heedful.episodes.readers.otlp import from_json
from heedful.episodes.spans import episodes as spans_episodes, pieces
from heedful.episodes.trace_files import files_in
from heedful.errors import InvalidInput, TraceFileError
from heedful.sanitize import redact_ends
from tests.episodes.runs import (
    CLAUDE,
    FILES,
    OWN,
    Data,
    document,
    genai,
    lines,
    openinference,
    read_spans,
)

if sys.version_info >= (3, 14):
    import zipfile
else:
    from backports.zstd import zipfile
from tests.episodes.test_chats import ASSISTANT, CHATS, USER, request
from tests.tables import cases


def refused(data: bytes, *before: str, **more: Any) -> TraceFileError:
    """Read a damaged file; `before` are the digests of the episodes before the
    damage.
    """
    episodes: list[Episode] = []
    with pytest.raises(TraceFileError) as caught:
        episodes.extend(traces.read(data, **more))
    assert [episode.digest for episode in episodes] == [*before]
    return caught.value


@cases(
    "data, line, said",
    {
        "empty": (b"", 0, "it is empty; give at least one episode"),
        "a list of others": (
            b'[{"a": 1}]',
            1,
            "a list of 1: an object with the keys a",
        ),
        "an object of others": (
            b'{"a": 1, "b": 2}',
            1,
            "no known format has an object with the keys a, b",
        ),
        "plain text": (
            b"hello",
            1,
            "not JSON: it begins with 'hello'; the formats are heedful, .{,160}$",
        ),
        "a misspelt type of an event": (
            b'{"events": [{"type": "toolcall", "tool": "x"}]}',
            1,
            "must be spelt 'tool_call'",
        ),
        "no UTF-8": (
            b'{"events": "\xff"}',
            1,
            "byte 0xff is not UTF-8; convert the file: iconv",
        ),
        "too deep": (b'{"events": ' + b"[" * 100_000, 1, "nested too deeply"),
        "half a protobuf": (b"\x0a\x02\x08", 0, "whole OTLP protobuf"),
        "half a zip": (b"PK\x03\x04", 0, "cannot be unpacked"),
    },
)
def test_what_is_no_file_of_traces(data, line, said):
    error = refused(data)
    assert error.line == line
    assert error.path == "the traces"
    assert re.search(said, str(error))


@cases(
    "value, said",
    {
        "events": ({"events": {}}, "no known format has"),
        "a type": (
            {"events": [{"type": 1, "tool": "x"}]},
            "type is 1; it must be text",
        ),
        "a time before 1970": (
            {"events": [{"type": "x", "content": "", "at": -1}]},
            "it must be seconds since 1970",
        ),
        "an outcome": (
            {"events": [], "outcome": "great"},
            "outcome is 'great'; it must be one of success",
        ),
        "tools": (
            {"events": [], "tools": "look"},
            "tools is 'look'; it must be a list of names",
        ),
        "a content": (
            [{"role": "user", "content": 1}],
            "content is 1; it must be a list of objects",
        ),
        "a call without a function": (
            [{"role": "assistant", "tool_calls": [{"id": "x"}]}],
            "function is {'id': 'x'}; it must be an object with a name",
        ),
        "a time of a span": (
            document([{"startTimeUnixNano": "soon"}]),
            "startTimeUnixNano is 'soon'",
        ),
    },
)
def test_a_wrong_value_is_named_with_its_line(value, said):
    data = b"\n" + lines([value])
    error = refused(data)
    assert error.line == 2
    assert said in str(error)


@pytest.mark.parametrize("name", ["own", "claude", "genai lines", "chat messages"])
@cases(
    "damage, reason",
    {
        "a log": (b"Connection lost", "not JSON: it begins with"),
        "no UTF-8": (b'{"b": "\xff"}', "is not UTF-8"),
    },
)
def test_what_cannot_be_read_is_skipped_and_named(name, damage, reason):
    data = FILES[name]
    [episode] = traces.read(data)
    line = data.count(b"\n") + 1
    before, after = data.split(b"\n", 1)
    for content, place in (
        (data + damage, line),
        (damage + b"\n" + data, 1),
        (before + b"\n" + damage + b"\n" + after, 2),
    ):
        trace = traces.read(content)
        assert [same.digest for same in trace] == [episode.digest]
        [skipped] = trace.skipped
        assert skipped.line == place
        assert reason in str(skipped)


def packed(compression: int = zipfile.ZIP_STORED, **files: bytes) -> bytes:
    """Return a zip of files."""
    archive = BytesIO()
    with zipfile.ZipFile(archive, "w", compression) as zipped:
        for name, content in files.items():
            zipped.writestr(name.replace("__", "/"), content)
    return archive.getvalue()


PRETTY = json.dumps(OWN, indent=1).encode()
PRETTY_ARRAY = json.dumps([OWN, OWN, OWN], indent=1).encode()


@cases(
    "data, count",
    {
        "a byte order mark": (codecs.BOM_UTF8 + FILES["own"], 1),
        "UTF-16": (FILES["own"].decode().encode("utf-16"), 1),
        "packed": (gzip.compress(FILES["own"]), 1),
        "a zip": (packed(a=FILES["own"], b__c=FILES["claude"]), 2),
        "a zip by Zstandard": (packed(zipfile.ZIP_ZSTANDARD, a=PRETTY), 1),
        "RFC 7464": (b"\x1e" + PRETTY + b"\n\x1e" + PRETTY, 2),
        "values of many lines": (PRETTY + PRETTY + b"\n" + PRETTY, 3),
        "after a log": (b"a log\n" + PRETTY + b"\nb\n" + PRETTY, 2),
        "an array of runs": (lines([[OWN, OWN]]), 2),
        "an object of runs": (lines([{"data": [OWN], "n": [1]}]), 1),
        "runs by their ids": (lines([{"a": OWN, "b": OWN}]), 2),
        "an array that is cut": (b"[\n" + FILES["own"] + b",\n{", 1),
        "an array of many lines that is cut": (PRETTY_ARRAY[:-40], 2),
        "an array of a line, cut": (lines([[OWN, OWN]])[:-40], 1),
    },
)
def test_files_as_they_come(data, count):
    trace = traces.read(data)
    assert len(list(trace)) == count


def test_what_is_no_trace_in_a_zip_is_named():
    trace = traces.read(packed(README=b"Read me.", a=FILES["own"]))
    assert len(list(trace)) == 1
    [skipped] = trace.skipped
    assert "README" in skipped.file
    assert "it begins with 'Read me.'" in skipped.reason


def test_a_packed_file_that_is_cut_gives_what_is_whole():
    noise = "".join(map(chr, range(32, 127))) * 9
    data = gzip.compress(lines([OWN] * 3000 + [{"events": [], "id": noise}]))
    trace = traces.read(data[: len(data) // 2])
    assert len(list(trace)) > 100
    assert "cannot be unpacked" in trace.skipped[-1].reason


def test_a_folder_stands_for_the_files_in_it(tmp_path, monkeypatch):
    (tmp_path / "a" / ".git").mkdir(parents=True)
    for name in ("b.jsonl", "a/c.jsonl", "a/.git/config", ".history.md"):
        (tmp_path / name).write_bytes(FILES["own"])
    names = [name for name, _ in files_in([tmp_path])]
    files = (".history.md", "a/c.jsonl", "b.jsonl")
    assert names == [tmp_path / file for file in files]

    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(FILES["own"])))
    [(path, file)] = files_in([Path("-")])
    assert str(path) == "-"
    assert len(list(traces.read(file))) == 1


def test_protobuf_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.trace.v1.trace_pb2", None)
    assert "pip install './packages/heedful[traces]'" in str(
        refused(FILES["genai protobuf"])
    )


# Any damage

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=9,
)


def survives(data: bytes) -> None:
    with suppress(TraceFileError):
        for episode in traces.read(data, limits=Limits(events=9, content=400)):
            assert len(episode.digest) == 64
            [again] = traces.read(b"".join(write([episode])))
            assert again.digest == episode.digest


@given(
    st.sampled_from([b"", *FILES.values()]),
    st.integers(0, 9_999),
    st.binary(max_size=40),
)
def test_any_bytes_and_any_damage_to_bytes(data, position, noise):
    position = min(position, len(data))
    survives(data[:position] + noise + data[position + len(noise) :])


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    keys = range(len(value)) if isinstance(value, list) else ()
    for key in value if isinstance(value, dict) else keys:
        yield from places(value[key], (*path, key))


VALUES: dict[str, Any] = {
    "own": OWN,
    "genai": document(genai()),
    "structured": document(read_spans("genai structured")),
    "openinference": document(openinference()),
    "chat": json.loads(FILES["chat object"]),
    "log": request([USER], ASSISTANT) | {"reward": 1, "scores": {"a": "C"}},
    **{name: {"messages": chat, "x": 1} for name, chat in CHATS.items()},
    **{f"claude {place}": entry for place, entry in enumerate(CLAUDE)},
}
PLACES = [
    (name, path) for name, value in VALUES.items() for path in places(value) if path
]


@given(st.sampled_from(PLACES), JSON, st.booleans())
def test_any_value_in_any_place(place, value, inside):
    name, path = place
    root: Data = json.loads(json.dumps(VALUES[name]))
    parent: Any = root
    for key in path[:-1]:
        parent = parent[key]
    # Attributes hold JSON as text, which is damaged apart.
    parent[path[-1]] = json.dumps(value) if inside else value
    survives(lines([root]))
    if "resourceSpans" in root:  # what waits in a store, too
        with suppress(InvalidInput):
            spans = list(from_json(root))
            accepted, refused = pieces(spans)
            assert len(accepted) + refused.total() == len(spans)
            assert all(
                len(episode.digest) == 64 for episode in spans_episodes(accepted)
            )


# What is too long, and what is secret

KEY = "AKIAIOSFODNN7EXAMPLE"


def read(events: list[Data], limits: Limits = Limits(), **more: Any) -> Episode:
    [episode] = traces.read(lines([{"events": events, **more}]), limits=limits)
    return episode


@cases(
    "count, most, kept",
    {
        "as many as the limit": (100, 100, range(1, 101)),
        "a limit of one": (9, 1, [1]),
        "a head and a tail": (1_000, 21, [*range(1, 12), *range(991, 1_001)]),
    },
)
def test_of_a_long_episode_the_head_and_the_tail_are_kept(count, most, kept):
    events = [{"type": "tool_response", "content": str(n)} for n in range(1, count + 1)]
    episode = read(events, Limits(events=most), omitted=5)
    assert [int(event.content) for event in episode.events] == [*kept]
    assert episode.omitted == 5 + count - len(kept)


@cases(
    "text",
    {
        "just too long": "x" * 201,
        "no ASCII": "ä" * 99_999,
        "only secrets": f"{KEY} " * 9_000,
    },
)
def test_a_long_text_is_cut_in_its_middle_with_a_mark_and_without_half_a_secret(text):
    cut = redact_ends(text, 200)
    assert len(cut) <= 200
    head, mark, tail = cut.split("\n")
    assert mark.endswith("characters are left out]")
    assert len(head) == len(tail) == 70
    assert redact_ends(cut, 200) == cut
    assert "AKIA" not in cut
    for before in range(0, 60, 7):
        assert "AKIA" not in redact_ends("-" * before + f" {KEY} " + text, 200)


def test_texts_data_and_names_are_all_cut():
    long = "y" * 5_000
    event: Data = dict.fromkeys(
        ("type", "content", "tool", "error", "id", "call"), long
    )
    event |= {"arguments": {"a": long}, "meta": {"b": [long]}}
    episode = read([event], Limits(content=1_000), task=long, session=long)
    [event_read] = episode.events
    texts = [event_read.content, event_read.error, event_read.arguments, episode.task]
    assert max(len(str(text)) for text in texts) <= 1_000
    names = [event_read.type, event_read.tool, event_read.id, event_read.call]
    assert max(map(len, [*names, episode.session])) <= 200
    assert isinstance(event_read.arguments, str)
    assert event_read.arguments.startswith('{"a": "yyy')
    assert event_read.meta["cut"].startswith('{"b": ["yyy')
    assert read([event], Limits(content=1_000)).events == (event_read,)


@pytest.mark.parametrize("name", FILES)
def test_no_secret_enters_an_episode(name):
    data = FILES[name]
    for text in (
        "Where is order A-17?",
        "A-17: shipped on Monday",
        "I will look the order up.",
    ):
        data = data.replace(text.encode(), KEY.ljust(len(text)).encode())
    [episode] = traces.read(data)
    assert "AKIA" not in repr(episode)
    assert "aws_key" in repr(episode)


def test_a_long_line_or_document_is_an_error_with_what_was_before_it():
    good: Data = {"events": []}
    long = {"events": [{"type": "x", "content": "y" * 2_000}]}
    trace = traces.read(lines([good, long, good]), limits=Limits(bytes=1_000))
    assert len(list(trace)) == 2
    [skipped] = trace.skipped
    assert skipped.line == 2
    assert "longer than 1000 bytes" in skipped.reason
    for name in ("chat document", "genai protobuf"):
        with pytest.raises(TraceFileError, match="longer than 800 bytes"):
            list(traces.read(FILES[name], limits=Limits(bytes=800)))


@cases(
    "name, value",
    {
        "no event": ("events", 0),
        "too little content": ("content", 399),
        "a text": ("bytes", "9"),
    },
)
def test_limits_are_checked(name, value):
    with pytest.raises(InvalidInput, match=f"limits.{name} is"):
        Limits(**{name: value})
    assert Limits(events=1, content=400, bytes=1).events == 1


def test_values_of_many_lines_may_be_longer_than_a_piece_of_the_file():
    run = {"events": [{"type": "tool_call", "tool": "ls"}], "task": "x" * 90}
    document = "\n".join(json.dumps(run, indent=1) for _ in range(800))
    trace = traces.read(document.encode())
    assert len(list(trace)) == 800
    assert list(trace.skipped) == []
