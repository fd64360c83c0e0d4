"""What loops were shown and came to, in SQL: written once, counted once."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from heedful.lessons.lesson import (
    Exposure,
    Lesson,
    Outcome,
    Scope,
    Signature,
)
from heedful.lessons.proof import (
    MAX_COUNTED_CALLS,
    Case,
    Cases,
    Comparison,
    prove_cases,
)
from heedful.lessons.scope import DAY_SECONDS
from heedful.store import (
    exposures as exposure_store,
    lessons as lesson_store,
    retention,
)
from heedful.store.connection import Db
from heedful.store.exposures import evidence, expose
from heedful.store.store import Store
from tests.store.support import SCOPE, opened, rows

pytestmark = pytest.mark.both_nightly

NOW = 10 * DAY_SECONDS


def lesson(name: str, **fields: Any) -> Lesson:
    verified = Lesson(
        "check",
        Signature("", name, digest=name),
        error_type="E",
        text=f"lesson {name}",
        sighting=name,
        state="verified",
    )
    return replace(verified, **fields)


def exposure_of(name: str, loop: str, shown: bool = True, **fields: Any) -> Exposure:
    return Exposure(f"check/{name}", loop, shown=shown, signature=name, **fields)


async def write(
    store: Store,
    exposures: Sequence[Exposure] = (),
    outcome: Outcome | None = None,
    lessons: Sequence[Lesson] = (),
    scope: Scope = SCOPE,
) -> None:
    await store.write(
        scope, exposure_store.remember, lessons, exposures=exposures, outcome=outcome
    )


async def conclude(
    store: Store, useful: dict[str, float], comparisons: Sequence[Comparison] = ()
) -> list[str]:
    return await store.write(SCOPE, exposure_store.conclude, useful, comparisons)


async def restore(store: Store, id: int, by: str, why: str) -> None:
    await store.write(SCOPE, exposure_store.restore, id, by, why)


def compare_hurting(name: str) -> Comparison:
    cases: Cases = {
        f"check/{name}": {
            (0.1, True, False, False, 1, None): 200,
            (0.1, False, True, False, 1, None): 40,
        }
    }
    (comparison,) = prove_cases(cases, 0).lessons
    assert comparison.conclusion == "hurts"
    return comparison


# -- what is counted


NAMES = ("aaaa", "bbbb", "aaaabbbb")
opportunity = st.fixed_dictionaries(
    {
        "shown": st.lists(st.booleans(), min_size=1, max_size=3),
        "share": st.sampled_from([0.0, 0.1, 0.5]),
        "together": st.booleans(),
        "began": st.floats(0, NOW),
        "lasted": st.none()
        | st.floats(-DAY_SECONDS, 2 * DAY_SECONDS),  # a clock may jump back
        "right": st.booleans(),
        "calls": st.integers(0, 20),
        "wrong": st.frozensets(st.sampled_from(NAMES)),
        "model": st.sampled_from(["", "small-1b", "large-70b"]),
        "climbed": st.sampled_from([None, False, True]),
        "cost": st.integers(0, 4),
    }
)


def build_loop(
    loop: str, draw: dict[str, Any]
) -> tuple[list[Exposure], Outcome | None, Outcome | None]:
    """The exposures of a loop, its outcome as it was stored, and as it counts."""
    share = draw["share"]
    together = draw["together"] and draw["share"] > 0
    arms = draw["shown"] if not together else draw["shown"][:1] * len(draw["shown"])
    exposures = [
        exposure_of(name, loop, arm or not share, share=share, together=together)
        for name, arm in zip(NAMES, arms, strict=False)
    ]
    end = Outcome(
        loop,
        draw["right"],
        calls=draw["calls"],
        signatures=draw["wrong"],
        model=draw["model"],
        climbed=draw["climbed"],
        cost=float(draw["cost"]),
    )
    if draw["lasted"] is not None and draw["lasted"] <= DAY_SECONDS:
        return exposures, end, end
    late = draw["lasted"] is not None
    # These loops are not stored: only an outcome names their model, and nothing says
    # that they had a ladder.
    given_up = Outcome(
        loop,
        False,
        calls=MAX_COUNTED_CALLS,
        signatures=frozenset(NAMES),
        model=draw["model"] if late else "",
    )
    counted_outcome = (
        given_up if late or (share and draw["began"] + DAY_SECONDS < NOW) else None
    )
    return exposures, end if late else None, counted_outcome


def count_cases(
    ranked: Sequence[Exposure], end: Outcome
) -> Iterator[tuple[str | int | None, Case]]:
    """A case of each lesson with its own coin, and of memory where one coin decided for
    all.
    """
    first = ranked[0]
    calls = min(end.calls, MAX_COUNTED_CALLS)
    alone = len(ranked) == 1
    recurred = [exposure.signature in end.signatures for exposure in ranked]

    def result(again: bool) -> tuple[bool, bool, int]:
        return end.right_at_once, again, calls

    for exposure, again in zip(ranked, recurred, strict=True):
        if alone or not first.together:
            yield (
                exposure.lesson,
                (exposure.share, exposure.shown, *result(again), end.climbed),
            )
    if alone or first.together or not first.share:
        yield None, (first.share, first.shown, *result(any(recurred)), end.climbed)


@given(st.lists(opportunity, max_size=12))
def test_the_database_counts_each_case_once(draws: list[dict[str, Any]]):
    cases: dict[str, dict[Any, Counter[Case]]] = defaultdict(
        lambda: defaultdict(Counter)
    )
    costs = Counter[tuple[str, float, bool]]()
    waiting = 0
    with opened(":memory:") as store:

        def fill(db: Db, scope: Scope) -> Any:
            nonlocal waiting
            for n, draw in enumerate(draws):
                loop = f"l{n}"
                ranked, stored_outcome, end = build_loop(loop, draw)
                expose(
                    db, scope=SCOPE, exposures=ranked, outcome=None, now=draw["began"]
                )
                expose(
                    db,
                    scope=Scope(project="other"),
                    exposures=ranked,
                    outcome=stored_outcome,
                    now=draw["began"],
                )
                expose(
                    db,
                    scope=SCOPE,
                    exposures=(),
                    outcome=stored_outcome,
                    now=draw["began"] + (draw["lasted"] or 0),
                )
                if end is not None:
                    for name, case in count_cases(ranked, end):
                        cases[end.model][name][case] += 1
                        if name is None:
                            costs[end.model, case[0], case[1]] += int(end.cost)
                waiting += end is None and draw["began"] + DAY_SECONDS >= NOW
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(exposure_store, "time", SimpleNamespace(time=lambda: NOW))
                return evidence(db, SCOPE)

        counted = asyncio.run(store.write(Scope(), fill))
    assert counted.cases == cases
    counted_costs = Counter[tuple[str, float, bool]]()
    for model, sums in counted.costs.items():
        for cost in sums:
            counted_costs[model, cost.share, cost.shown] += int(cost.cost)
    assert +counted_costs == +costs
    assert sum(counted.pending.values()) == waiting


# -- retired, and brought back


async def test_harm_retires_once_and_on_record(store, path):
    await write(
        store, lessons=[lesson("a"), lesson("b", state="unverified"), lesson("q")]
    )
    await write(
        store, lessons=[lesson("p", pinned=True), lesson("x", state="quarantined")]
    )
    await write(store, lessons=[lesson("o", trust="user")])
    names = ["a", "b", "o", "p", "x", "gone"]
    comparisons = [compare_hurting(name) for name in names]
    retired = await conclude(store, {"check/o": 0.5}, comparisons)
    assert retired == ["check/a", "check/b"]
    assert await conclude(store, {"check/o": 0.5}, comparisons) == []
    states = dict(rows(path, "select signature, state from lesson"))
    expected = {"a": "retired", "b": "retired", "q": "verified", "p": "verified"}
    assert states == {**expected, "x": "quarantined", "o": "verified"}
    assert rows(path, "select useful from lesson where signature = 'o'") == [(1.0,)]
    # What an operator wrote or pinned is put before a person, once.
    *reviews, first, last = await store.read(SCOPE, exposure_store.rulings, 9)
    assert [
        (ruling["action"], ruling["subject"]) for ruling in (*reviews, first, last)
    ] == [
        ("review", "check/p"),
        ("review", "check/o"),
        ("retire", "check/b"),
        ("retire", "check/a"),
    ]
    ((id,),) = rows(path, "select id from lesson where signature = 'o'")
    await store.write(SCOPE, lesson_store.pin, id, False, "ada", "it is old")
    assert await conclude(store, {}, comparisons) == ["check/o"]
    assert last["why"].startswith(
        "shown 200, withheld 40: right at the first try 0 % against 100 %; −100"
    )
    assert last["record"]["uplift"]["gain"] == -1
    assert abs(last["at"] - time.time()) < 60


# -- other words, and lessons that come back


WORDS = "use metres"


def lesson_by(trust: str, text: str = "lesson a") -> Lesson:
    return replace(lesson("a", state="unverified", trust=trust), text=text)


async def show_and_retire(store: Store, learnt: Lesson) -> None:
    await write(
        store, [exposure_of("a", "before")], Outcome("before", False, calls=1), [learnt]
    )
    await conclude(store, {"check/a": 0.55}, [compare_hurting("a")])


def read_worth(path: Any) -> tuple[Any, ...]:
    """State, words and rank of the only lesson, and the rulings on its worth, oldest
    first.
    """
    say = (
        "select action, by, why from ruling where action in ('retire', 'restore') "
        "order by id"
    )
    rulings = [
        ruling if ruling[0] == "restore" else ruling[:2] for ruling in rows(path, say)
    ]
    return *rows(path, "select state, text, useful from lesson")[0], rulings


RETIRED = ("retire", "proof")


@pytest.mark.parametrize(
    ("trust", "text"),
    [
        pytest.param("user", "lesson a", id="an operator says the same"),
        pytest.param("local", "lesson a", id="a measurement says the same"),
        pytest.param("local", WORDS, id="a measurement says something else"),
    ],
)
@pytest.mark.parametrize("gone", [True, False])
async def test_what_a_proof_retired_stays_so_until_somebody_brings_it_back(
    store, path, trust, text, gone
):
    await show_and_retire(store, lesson_by("local"))
    if gone:
        await store.write(SCOPE, retention.prune, 0.0, 0, "ada")
        assert rows(path, "select * from lesson") == []
    await write(store, lessons=[lesson_by(trust, text)])
    state, *_, rulings = read_worth(path)
    assert state == "retired"
    assert rulings == [RETIRED]
    ((id,),) = rows(path, "select id from lesson")
    await restore(store, id, "ada", "it was the model")
    state, *_, rulings = read_worth(path)
    assert state == "unverified"
    assert rulings == [RETIRED, ("restore", "ada", "it was the model")]
    await write(store, lessons=[lesson_by(trust, text)])
    assert read_worth(path)[0] == "unverified"
    counted = await store.read(SCOPE, exposure_store.evidence)
    assert "check/a" not in counted.cases_of()
