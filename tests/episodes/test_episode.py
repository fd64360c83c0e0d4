"""Episodes: the digest, the trust of the words, and a finished loop as an episode."""

from dataclasses import fields, replace
from typing import Any, cast

import pytest

from heedful.episodes.episode import Episode, Event, Fault
from heedful.errors import InvalidInput
from heedful.loop.decide import Again, Decision, Done, Policy, Standing, decide
from heedful.loop.reasons import Stop
from heedful.loop.record import (
    Attempt,
    Candidate,
    Evaluation,
    Finding,
    Goal,
    Loop,
    Usage,
)
from heedful.loop.stop import MaxAttempts
from heedful.memory.loop_episodes import episode_of
from heedful.store.records import Head, StoredLoop

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
KEY = "AKIAIOSFODNN7EXAMPLE"


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


# Trust


# Loops


def attempt(number: int, text: str, *findings: Finding) -> Attempt:
    return Attempt(
        number,
        Candidate.of(text),
        evaluation=Evaluation(findings),
        usage=Usage(calls=1),
    )


def test_a_loop_is_its_attempts_and_what_was_wrong_with_them():
    wrong = Finding("words", "9 words", fix="write 5", evidence="…")
    note = Finding("style", "no verb", fix="use one", level="note")
    loop = Loop(
        "loop_1",
        (),
        attempts=(attempt(1, "a b", wrong, note), attempt(2, f"key {KEY}")),
    )
    episode = episode_of(loop, f"Be brief, {KEY}.", goal="5 words")
    assert episode.events == (
        Event("llm_response", "a b", id="attempt 1"),
        Event(
            "error_event",
            "write 5",
            error="9 words",
            code="words",
            id="attempt 1, finding 1",
        ),
        Event(
            "system_event", "no verb use one", code="style", id="attempt 1, finding 2"
        ),
        Event("llm_response", "key [redacted: aws_key]", id="attempt 2"),
    )
    assert episode.task == "Be brief, [redacted: aws_key]."
    assert episode.goal == "5 words"
    assert episode.outcome == "success"
    assert episode.fault is None
    assert episode.id == "loop_1"
    assert episode.source == "loop"


WRONG = attempt(1, "a", Finding("words", "too many"))
POLICY = Policy((MaxAttempts(1),))


@pytest.mark.parametrize(
    ("loop", "verdict", "outcome", "rule"),
    [
        (Loop("l", (), attempts=(WRONG,)), None, "failure", ""),
        (Loop("l", (), attempts=(Attempt(1, Candidate.of("a")),)), None, "failure", ""),
        (
            Loop("l", (Goal("s", 0.5),), attempts=(attempt(1, "a"),)),
            None,
            "failure",
            "",
        ),
        (Loop("l", (), attempts=(attempt(1, "a"),)), None, "success", ""),
        (Loop("l", (), attempts=(WRONG,)), Again(), "partial", ""),
        (Loop("l", (), attempts=(WRONG,), cancelled="by me"), None, "partial", ""),
        (
            Loop("l", (), attempts=(WRONG,)),
            decide(Loop("l", (), attempts=(WRONG,)), POLICY),
            "failure",
            "attempts",
        ),
        (
            Loop("l", (), attempts=(WRONG,), cancelled="me"),
            Done(1, False, stopped_by=(Stop("cancelled", f"by {KEY}"),)),
            "partial",
            "cancelled",
        ),
    ],
    ids=[
        "an error",
        "no evaluation",
        "a goal without a score",
        "passed",
        "it goes on",
        "cancelled",
        "attempts are used up",
        "cancelled with a verdict",
    ],
)
def test_the_outcome_of_a_loop_is_its_verdict(loop, verdict, outcome, rule):
    episode = episode_of(loop, verdict=verdict)
    assert episode.outcome == outcome
    assert (episode.fault.category if episode.fault else "") == rule
    assert KEY not in repr(episode)


@pytest.mark.parametrize(
    ("task", "text"),
    [("Sum up.", "Sum up."), ({"a": "ü"}, '{"a": "ü"}')],
    ids=["a text", "data"],
)
def test_a_stored_loop_brings_its_task_and_verdict(task, text):
    loop = Loop("l", (), attempts=(WRONG,))
    verdict = decide(loop, Policy((MaxAttempts(1),)))
    decision = Decision(1, verdict, standing=Standing(), at=0.0, decided=0.0)
    stored_loop = StoredLoop(
        id="l",
        head=Head(task=task),
        loop=loop,
        values=("a",),
        decisions=(decision,),
        journal={},
        epoch=1,
        created=0.0,
        updated=0.0,
    )
    assert episode_of(stored_loop).task == text
    assert episode_of(stored_loop, "Another").task == "Another"
    assert episode_of(stored_loop).events == episode_of(loop).events
    fault = episode_of(stored_loop).fault
    assert fault is not None
    assert fault.category == "attempts"


@pytest.mark.parametrize(
    ("type", "meant"),
    [
        ("toolcall", "tool_call"),
        ("Tool_Call", "tool_call"),
        ("tool_reponse", "tool_response"),
        ("user_messages", "user_message"),
    ],
)
def test_a_misspelt_type_of_an_event_is_refused(type: str, meant: str) -> None:
    with pytest.raises(InvalidInput, match=f"it must be spelt '{meant}'; the known"):
        Episode((Event("tool_call"), Event(type)))


@pytest.mark.parametrize("type", ["", "summary", "tool_message", "human_message"])
def test_another_word_is_a_type_of_an_event(type: str) -> None:
    assert Episode((Event(type),)).events[0].type == type
