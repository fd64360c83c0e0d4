"""A trial of texts that heedful did not make: one decision for each loop and source,
stored before the texts are returned, and a proof from how the loops ended.
"""

import asyncio
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

import heedful
from heedful.errors import Conflict, InvalidInput, NotFound
from heedful.lessons.holdout import is_source_withheld
from heedful.memory import trial as trial_module
from heedful.memory.memory import Memory
from heedful.store import exposures, open_store
from heedful.store.store import Store
from tests.tables import cases

pytestmark = pytest.mark.both_nightly
RULES = ["Lengths are in metres.", "Dates are ISO 8601."]
NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1)


@pytest.fixture
def trial(store: Store) -> heedful.Trial:
    return heedful.Trial("mem0", store, holdout=0.5)


async def decide_loops(trial: heedful.Trial, count: int) -> list[bool]:
    """Offer the rules to `count` loops; return which were shown them."""
    return [bool(await trial.offer(f"loop/{n}", RULES)) for n in range(count)]


async def play(trial: heedful.Trial, count: int, helps: bool) -> None:
    """Play loops that pass if they were shown the rules, or (not `helps`) if not."""
    for number in range(count):
        loop = f"played/{number}"
        texts = await trial.offer(loop, RULES)
        await trial.end(loop, passed=bool(texts) == helps)


async def test_a_loop_gets_all_texts_or_none(trial):
    shares = [await trial.offer(f"loop/{n}", RULES) for n in range(40)]
    assert all(texts in ([], RULES) for texts in shares)
    assert [] in shares
    assert RULES in shares


async def test_a_second_offer_gets_the_same_decision(trial, store):
    first = await decide_loops(trial, 30)
    assert await decide_loops(trial, 30) == first

    other = heedful.Trial("mem0", store, holdout=0)
    assert await decide_loops(other, 30) == first


async def test_without_a_holdout_nothing_is_withheld(store):
    trial = heedful.Trial("mem0", store, holdout=0)
    assert all(await decide_loops(trial, 30))
    assert (await trial.prove()).conclusion == "insufficient data"


async def test_texts_are_kept_as_digests(trial):
    await trial.offer("loop/1", RULES)
    records = await trial.offered("loop/1")
    assert all(len(digest) == 16 for digest in records)
    assert not set(records) & set(RULES)


async def test_texts_are_kept_without_secrets_if_asked(store):
    secret = "the key is AKIAIOSFODNN7EXAMPLE"  # the example of Amazon's own pages
    trial = heedful.Trial("mem0", store, keep_texts=True)
    await trial.offer("loop/1", [RULES[0], secret])
    records = await trial.offered("loop/1")
    assert records[0] == RULES[0]
    assert "AKIAIOSFODNN7EXAMPLE" not in records[1]


async def test_later_texts_are_added_to_those_of_the_loop(store):
    trial = heedful.Trial("mem0", store, keep_texts=True)
    await trial.offer("loop/1", RULES[:1])
    await trial.offer("loop/1", RULES)
    assert await trial.offered("loop/1") == tuple(RULES)

    await trial.end("loop/1", passed=True)
    await trial.offer("loop/1", ["too late"])
    assert await trial.offered("loop/1") == tuple(RULES)


async def test_texts_are_no_lessons_and_no_exposures_of_memory(trial, store):
    await play(trial, 30, helps=True)
    memory = Memory(store)
    assert await memory.count() == 0
    assert await memory.recall(RULES[0]) == []
    proof = await memory.prove()
    assert proof.pooled.shown == 0
    assert proof.lessons == ()
    past = await store.read(memory.scope, exposures.past, "played/1")
    assert past.ended == 0


async def test_a_loop_without_texts_does_not_count_but_may_end(trial):
    assert await trial.offer("loop/1", []) == []
    assert await trial.offer("loop/2", ["", " \n"]) == []
    await trial.end("loop/1", passed=False)
    proof = await trial.prove()
    assert proof.shown + proof.withheld + proof.pending == 0


@cases(
    "helps, conclusion",
    {
        "texts that help are said to hurt": (True, "helps"),
        "texts that hurt are said to help": (False, "hurts"),
    },
)
async def test_the_proof_says_which_way(trial, helps, conclusion):
    await play(trial, 60, helps)
    proof = await trial.prove()
    assert proof.conclusion == conclusion
    assert proof.missing == 0
    assert proof.shown + proof.withheld == 60


async def test_a_loop_that_does_not_end_within_a_day_counts_as_not_passed(
    trial, monkeypatch
):
    await trial.offer("loop/1", RULES)
    assert (await trial.prove()).pending == 1
    monkeypatch.setattr(trial_module, "DAY_SECONDS", -1.0)
    proof = await trial.prove()
    assert proof.pending == 0
    assert proof.shown + proof.withheld == 1
    assert (proof.uplift.shown or 0) + (proof.uplift.withheld or 0) == 0


async def test_the_same_result_again_is_harmless_and_another_a_conflict(trial):
    await trial.offer("loop/1", RULES)
    await trial.end("loop/1", passed=True)
    await trial.end("loop/1", score=1)
    for wrong in ({}, {"passed": True, "score": 1.0}):  # no result, and two
        with pytest.raises(InvalidInput):
            await trial.end("loop/1", **wrong)
    with pytest.raises(Conflict, match="score 1 in the trial 'mem0', not 0"):
        await trial.end("loop/1", passed=False)


async def test_a_loop_that_was_offered_nothing_cannot_end(trial, store):
    await heedful.Trial("skills", store).offer("loop/1", RULES)
    with pytest.raises(NotFound, match="offer its texts before it ends"):
        await trial.end("loop/1", passed=True)


async def test_scopes_are_apart(trial, store):
    await play(trial, 20, helps=True)
    other = heedful.Trial("mem0", store, heedful.Scope("default", "other"))
    proof = await other.prove()
    assert proof.shown + proof.withheld == 0
    with pytest.raises(NotFound):
        await other.end("played/1", passed=True)


@given(seed=NAMES, loop=NAMES, source=NAMES, share=st.floats(0, 0.99))
def test_the_coin_depends_only_on_scope_loop_and_source(seed, loop, source, share):
    coin = is_source_withheld(seed, loop, source, share)
    assert coin == is_source_withheld(seed, loop, source, share)
    # A larger holdout withholds from the same loops, and from more.
    if coin:
        assert is_source_withheld(seed, loop, source, 0.995)


PROGRAM = """
import sys, heedful
trial = heedful.Trial("mem0", sys.argv[1], holdout=float(sys.argv[2]))
async def main():
    for n in range(40):
        print(len(await trial.offer(f"loop/{n}", ["a rule"])))
heedful.run_sync(main())
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "two.db"
    asyncio.run(open_store(str(path)).close())
    return str(path)


def test_two_processes_at_once_decide_the_same(file):
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, file, holdout],
            stdout=subprocess.PIPE,
            text=True,
        )
        for holdout in ("0.3", "0.7")
    ]
    outputs = []
    for program in programs:
        with closing(program.stdout) as output:  # type: ignore[type-var]
            outputs.append(output.read())  # type: ignore[union-attr]
        assert program.wait() == 0
    assert outputs[0] == outputs[1]
    assert set(outputs[0].split()) == {"0", "1"}


async def test_pairs_on_the_same_tasks_are_compared_task_by_task(trial, store):
    for number in range(30):
        right = (number % 10 > 2, number % 10 > 7)
        await store.write(
            trial.scope,
            trial_module.pair,
            trial.source,
            f"task {number}",
            score=1000 * right[0],
            without=1000 * right[1],
        )
    proof = await trial.prove()
    (listed,) = (await Memory(store, trial.scope).prove()).trials
    assert listed == proof
    assert proof.pairs == proof.shown == proof.withheld == 30
    assert proof.uplift.gain == pytest.approx(0.5)
    assert proof.conclusion == "helps"
