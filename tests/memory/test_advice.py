"""Lessons without outputs: what of a loop is learnt, and what of that is told to whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from heedful.lessons.learn import learn
from heedful.lessons.lesson import Example, Scope
from heedful.loop.record import Attempt, Candidate, Evaluation, Finding, Loop
from heedful.memory.memory import Memory
from heedful.store import exposures
from tests.engines import in_memory

TASK = "p: train"


def loop_of(*attempts: tuple[str, tuple[Finding, ...]], id: str = "r/train") -> Loop:
    made = tuple(
        Attempt(n, Candidate.of(text), Evaluation(found))
        for n, (text, found) in enumerate(attempts, 1)
    )
    return Loop(id, attempts=made)


WRONG = Finding("size", "n is 1", "use 2", key="size: small")
BARE = replace(WRONG, fix="")


@pytest.mark.parametrize(
    ("attempts", "texts"),
    [
        ([("a", (WRONG,)), ("b", ())], ["n is 1. use 2 Accepted: a -> b"]),
        ([("a", (BARE,)), ("b", ())], ["n is 1. Accepted: a -> b"]),
        ([("a", (WRONG,)), ("a", ())], ["n is 1. use 2"]),  # a file, say, was written anew
        ([("a", (BARE,)), ("a", ())], ["n is 1."]),
        ([("a", ())], []),  # an accepted first try teaches nothing without its output
        ([("a", (WRONG,)), ("b", (WRONG,))], []),
        ([("a" * 5_000, (WRONG,)), ("b" * 5_000, ())], ["n is 1. use 2"]),
    ],
    ids=str,
)
def test_what_is_learnt_without_outputs(attempts: Any, texts: list[str]) -> None:
    found = learn(loop_of(*attempts), TASK, outputs=False)
    assert [one.text.replace("'", "") for one in found] == texts
    for one in found:
        assert one.example is not None
        assert (one.example.accepted, one.example.rejected, one.example.task) == ("", "", TASK)
        assert one.state == "verified"


async def test_what_mended_one_stage_is_no_advice_to_another() -> None:
    store = in_memory()
    memory = Memory(store)
    lessons = learn(loop_of(("a", (WRONG,)), ("b", ())), TASK, outputs=False)
    await store.write(Scope(), exposures.remember, lessons)
    await memory.remember("other", "an operator says: train on all of p", lesson="train p so")
    example = Example(TASK, "accepted", "rejected", "wrong")
    await memory.remember("third", "an example", example=example)
    own = await memory.brief(TASK, "a", examples=False)
    assert {one.error_type for one in own.advice} >= {"size"}
    assert own.examples == ()
    assert {one.error_type for one in own.advice} <= {"size", "other"}
    other = await memory.brief("p: training", "b", examples=False)
    assert "size" not in {one.error_type for one in other.advice}
    usual = await memory.brief(TASK, "c")
    assert usual.advice == ()
    assert [turn.role for turn in usual.examples] == ["user", "assistant"]
    await store.close()
