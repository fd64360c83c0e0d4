"""Episodes: the digest, the trust of the words, and a finished loop as an episode."""

from dataclasses import fields, replace
from typing import Any, cast

import pytest

from heedful.episodes.episode import Episode, Event, Fault
from heedful.errors import InvalidInput

EVENT = Event(
    "tool_call",
    "c",
    agent="a",
    tool="t",
    arguments={"b": 1, "a": [2]},
    call="k",
    error="e",
    id="i",
    code="o",
    at=1.5,
    meta={"m": 1},
)
EPISODE = Episode(
    (EVENT,),
    "error",
    task="t",
    goal="g",
    fault=Fault("c", "m", "x"),
    id="i",
    session="s",
    tools=("t",),
    omitted=3,
    source="chat",
)


# Digest


def test_a_digest_covers_everything_but_the_source():
    changed: dict[str, Any] = {
        "outcome": "failure",
        "task": "u",
        "goal": "h",
        "id": "j",
    }
    changed |= {"events": (), "fault": None, "tools": (), "omitted": 4}
    changed |= {"session": "r"}
    assert {part.name for part in fields(Episode)} == {*changed, "source"}
    others = [replace(EPISODE, **{name: value}) for name, value in changed.items()]
    for part in fields(Event):
        other: Any = {"arguments": {"b": 2}, "at": 2.5, "meta": {}}.get(
            part.name, "other"
        )
        others.append(replace(EPISODE, events=(replace(EVENT, **{part.name: other}),)))
    digests = {episode.digest for episode in (EPISODE, *others)}
    assert len(digests) == len(others) + 1
    assert {len(digest) for digest in digests} == {64}
    with pytest.raises(
        InvalidInput, match="outcome is 'great'; it must be one of success"
    ):
        replace(EPISODE, outcome=cast("Any", "great"))
    same = replace(EVENT, arguments={"a": [2], "b": 1})
    assert replace(EPISODE, source="otlp", events=(same,)).digest == EPISODE.digest
    timed = [replace(EPISODE, events=(replace(EVENT, at=time),)) for time in (2, 2.0)]
    assert timed[0].digest == timed[1].digest


@pytest.mark.parametrize(
    ("type", "meant"),
    [
        ("toolcall", "tool_call"),
        ("Tool_Call", "tool_call"),
        ("tool_reponse", "tool_response"),
        ("user_messages", "user_message"),
    ],
)
def test_a_misspelt_type_of_an_event_is_refused(type, meant):
    with pytest.raises(InvalidInput, match=f"it must be spelt '{meant}'; the known"):
        Episode((Event("tool_call"), Event(type)))


@pytest.mark.parametrize("type", ["", "summary", "tool_message", "human_message"])
def test_another_word_is_a_type_of_an_event(type):
    assert Episode((Event(type),)).events[0].type == type
