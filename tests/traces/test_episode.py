"""An episode: its digest, whom its words are from, and a finished loop as one."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from heedful.errors import InvalidInput
from heedful.loop.decide import Again, Done, Policy, decide
from heedful.loop.record import Attempt, Candidate, Evaluation, Finding, Goal, Loop, Usage
from heedful.loop.stop import MaxAttempts, Stop
from heedful.memory.reflect import episode_of
from heedful.store.records import Head, StoredLoop
from heedful.traces.episode import Episode, Event, Fault, trust_of

EVENT = Event(
    "tool_call", "c", "a", "t", {"b": 1, "a": [2]}, "k", "e", "i", "o", at=1.5, meta={"m": 1}
)
EPISODE = Episode(
    (EVENT,), "error", "t", "g", Fault("c", "m", "x"), "i", "s", ("t",), Usage(1), 3, "chat"
)
KEY = "AKIAIOSFODNN7EXAMPLE"


# Digest


def test_a_digest_says_all_but_where_an_episode_was_read_from():
    changed: dict[str, Any] = {
        "outcome": "failure",
        "task": "u",
        "goal": "h",
        "id": "j",
        "session": "r",
    }
    changed |= {"events": (), "fault": None, "tools": (), "usage": Usage(2), "omitted": 4}
    assert {part.name for part in fields(Episode)} == {*changed, "source"}
    assert len(EPISODE.digest) == 64
    others = {replace(EPISODE, **{name: value}).digest for name, value in changed.items()}
    assert len(others | {EPISODE.digest}) == len(changed) + 1
    assert replace(EPISODE, source="otlp").digest == EPISODE.digest


@pytest.mark.parametrize("name", [part.name for part in fields(Event)])
def test_a_digest_says_all_of_every_event(name):
    other: Any = {"arguments": {"b": 2}, "at": 2.5, "meta": {}}.get(name, "other")
    changed = replace(EPISODE, events=(replace(EVENT, **{name: other}),))
    assert changed.digest != EPISODE.digest


def test_the_order_of_keys_is_no_difference():
    event = replace(EVENT, arguments={"a": [2], "b": 1})
    assert replace(EPISODE, events=(event,)).digest == EPISODE.digest


def test_a_time_or_a_cost_without_a_fraction_is_the_same_number():
    whole, part = (
        replace(EPISODE, events=(replace(EVENT, at=one),), usage=Usage(cost=one))
        for one in (2, 2.0)
    )
    assert whole.digest == part.digest


def test_an_outcome_is_one_of_five():
    with pytest.raises(InvalidInput, match="outcome is 'great'; it must be one of success"):
        replace(EPISODE, outcome="great")  # type: ignore[arg-type]


# Trust


@pytest.mark.parametrize(
    ("type", "trust", "own"),
    [
        ("tool_call", "model", "model"),
        ("llm_response", "model", "model"),
        ("tool_response", "tool", "tool"),
        ("error_event", "tool", "model"),
        ("user_message", "external", "external"),
        ("system_event", "external", "external"),
        ("llm_call", "external", "external"),
        ("operator", "external", "external"),
        ("measured", "external", "external"),
    ],
)
def test_trust_is_that_of_the_type_and_no_file_can_claim_more(type, trust, own):
    event = Event(type, agent="operator", meta={"trust": "operator"})
    assert trust_of(event) == trust
    assert trust_of(event, own=True) == own


# Loops


def attempt(number: int, text: str, *findings: Finding) -> Attempt:
    return Attempt(number, Candidate.of(text), Evaluation(findings), Usage(calls=1))


def test_a_loop_is_its_attempts_and_what_was_wrong_with_them():
    wrong = Finding("words", "9 words", "write 5", evidence="…")
    note = Finding("style", "no verb", "use one", level="note")
    loop = Loop("loop_1", (), (attempt(1, "a b", wrong, note), attempt(2, f"key {KEY}")))
    episode = episode_of(loop, f"Be brief, {KEY}.", goal="5 words")
    assert episode.events == (
        Event("llm_response", "a b", id="attempt 1"),
        Event("error_event", "write 5", error="9 words", code="words", id="attempt 1, finding 1"),
        Event("system_event", "no verb use one", code="style", id="attempt 1, finding 2"),
        Event("llm_response", "key [redacted: aws_key]", id="attempt 2"),
    )
    assert (episode.task, episode.goal) == ("Be brief, [redacted: aws_key].", "5 words")
    assert (episode.outcome, episode.fault, episode.usage.calls) == ("success", None, 2)
    assert (episode.id, episode.source) == ("loop_1", "loop")


WRONG = attempt(1, "a", Finding("words", "too many"))
POLICY = Policy((MaxAttempts(1),))


@pytest.mark.parametrize(
    ("loop", "verdict", "outcome", "rule"),
    [
        (Loop("l", (), (WRONG,)), None, "failure", ""),
        (Loop("l"), None, "failure", ""),
        (Loop("l", (), (Attempt(1, Candidate.of("a")),)), None, "failure", ""),
        (Loop("l", (Goal("s", 0.5),), (attempt(1, "a"),)), None, "failure", ""),
        (Loop("l", (), (attempt(1, "a"),)), None, "success", ""),
        (Loop("l", (), (WRONG,)), Again(), "partial", ""),
        (Loop("l", (), (WRONG,), cancelled="by me"), None, "partial", ""),
        (Loop("l", (), (WRONG,)), decide(Loop("l", (), (WRONG,)), POLICY), "failure", "attempts"),
        (Loop("l", (), (WRONG,)), Done(1, True), "success", ""),
        (
            Loop("l", (), (WRONG,), cancelled="me"),
            Done(1, False, (Stop("cancelled", f"by {KEY}"),)),
            "partial",
            "cancelled",
        ),
    ],
)
def test_the_outcome_of_a_loop_is_its_verdict(loop, verdict, outcome, rule):
    episode = episode_of(loop, verdict=verdict)
    assert episode.outcome == outcome
    assert (episode.fault.category if episode.fault else "") == rule
    assert KEY not in repr(episode)


@pytest.mark.parametrize(("task", "told"), [("Sum up.", "Sum up."), ({"a": "ü"}, '{"a": "ü"}')])
def test_a_stored_loop_brings_its_task_and_verdict(task, told):
    loop = Loop("l", (), (WRONG,))
    stored = StoredLoop("l", Head(task), loop, ("a",), (), {}, 1, 0.0, 0.0)
    assert episode_of(stored).task == told
    assert episode_of(stored, "Another").task == "Another"
    assert episode_of(stored).events == episode_of(loop).events
