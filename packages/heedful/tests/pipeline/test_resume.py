"""Interrupted anywhere and resumed, a run ends as if nothing had happened."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings, strategies as st

from heedful.checks.evaluate import Context
from heedful.errors import StageFailed, StoreUnavailable
from heedful.lessons.lesson import Scope
from heedful.loop.record import Finding
from heedful.loop.runs import Report
from heedful.pipeline import Pipeline
from heedful.store import loops
from heedful.store.runs import report_of
from heedful.store.sqlite import BUSY_TIMEOUT_SECONDS, File, in_file
from heedful.store.store import Store
from tests.pipeline.support import without_times


class Crashing(Store):
    """A store whose claims and commits fail where they are told to, before they land or
    after.
    """

    def __init__(self, before: set[int], after: set[int]) -> None:
        super().__init__(":memory:", File(":memory:", BUSY_TIMEOUT_SECONDS))
        self.before = before
        self.after = after
        self.writes = 0

    async def write(self, scope: Scope, work: Any, /, *args: Any, **more: Any) -> Any:
        if work not in (loops.claim, loops.commit):
            return await super().write(scope, work, *args, **more)
        self.writes += 1
        number = self.writes
        if number in self.before:
            raise StoreUnavailable(f"write {number} failed")
        value = await super().write(scope, work, *args, **more)
        if number in self.after:
            raise StoreUnavailable(f"write {number} landed, and its answer was lost")
        return value


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One stage: what checks say of each attempt, what it does, and where it raises
    once.
    """

    outcomes: tuple[str, ...]
    does: str
    exhausted: Any
    unvalidated: Any
    raises: frozenset[tuple[int, str]]


@dataclass
class Recording:
    """What was called, how often."""

    finished: Counter[tuple[int, int]] = field(default_factory=Counter)
    raised: set[tuple[int, int, str]] = field(default_factory=set)
    fed: dict[tuple[int, int], set[str | None]] = field(default_factory=dict)


OUTCOMES = st.sampled_from(["ok", "ok", "fail", "fail", "two", "warn", "raise"])
plans = st.lists(
    st.builds(
        Plan,
        outcomes=st.tuples(OUTCOMES, OUTCOMES, OUTCOMES),
        does=st.sampled_from(["returns", "changes", "drops", "both"]),
        exhausted=st.sampled_from(["continue", "continue", "best", "halt"]),
        unvalidated=st.sampled_from(["continue", "continue", "halt"]),
        raises=st.frozensets(
            st.tuples(st.integers(1, 3), st.sampled_from(["early", "late"])), max_size=2
        ),
    ),
    min_size=1,
    max_size=5,
)


def pipeline_of(
    plans: Sequence[Plan], store: Any, recording: Recording, crashes: bool
) -> Pipeline:
    pipeline = Pipeline("p", store=store, progress=False)
    for number, plan in enumerate(plans):
        add_stage(pipeline, number, plan=plan, recording=recording, crashes=crashes)
    return pipeline


def add_stage(
    pipeline: Pipeline, number: int, plan: Plan, recording: Recording, crashes: bool
) -> None:
    def crash(attempt: int, when: str) -> None:
        where = (number, attempt, when)
        if crashes and (attempt, when) in plan.raises and where not in recording.raised:
            recording.raised.add(where)
            raise ConnectionError("lost")

    def stage(state: dict[str, Any], feedback: str | None = None) -> Any:
        attempt = (
            1 if feedback is None else int(feedback.partition("attempt ")[2][0]) + 1
        )
        recording.fed.setdefault((number, attempt), set()).add(feedback)
        crash(attempt, "early")
        if plan.does != "returns":
            state["shared"].append([number, attempt, len(state["shared"])])
            state["last"] = {"by": number, "at": attempt}
        if plan.does == "drops":
            state.pop(f"s{number - 1}", None)
        crash(attempt, "late")
        recording.finished[number, attempt] += 1
        return (
            {"made": [number, attempt, state["last"]]}
            if plan.does in ("returns", "both")
            else None
        )

    def check(output: Any, context: Context) -> list[Finding]:
        outcome = plan.outcomes[context.attempt - 1]
        if "raise" in plan.outcomes[: context.attempt]:  # what is broken stays so
            raise RuntimeError("the check is broken")
        level: Any = "warning" if outcome == "warn" else "error"
        count = {"ok": 0, "two": 2}.get(outcome, 1)
        visible = sorted(
            (name, output[name]) for name in output if name != "guardrail_reports"
        )
        fed = (
            context.data["guardrail_reports"].get(f"s{number}_feedback", "")
            == context.hint
        )
        text = f"attempt {context.attempt} shows {fed} {visible!r}"[:200]
        return [
            Finding(f"c{n}", text, fix="do better", level=level) for n in range(count)
        ]

    how: Any = {"on_exhausted": plan.exhausted, "on_unvalidated": plan.unvalidated}
    pipeline.stage(name=f"s{number}", checks=[check], **how)(stage)


def first_state() -> dict[str, Any]:
    return {"shared": [], "last": None, "s0": "before"}


def plain_report(report: Report) -> Any:
    return without_times(report), without_times(report.state)


async def until_done(
    plans: Sequence[Plan], store: Crashing, recording: Recording
) -> Report:
    for _ in range(40):
        try:
            return await pipeline_of(
                plans, store, recording=recording, crashes=True
            ).run(first_state(), id="r")
        except (StageFailed, StoreUnavailable):
            continue
    raise AssertionError("it never came to an end")


@settings(max_examples=15)
@given(
    plans=plans,
    before=st.sets(st.integers(1, 30), max_size=3),
    after=st.sets(st.integers(1, 30), max_size=3),
)
def test_interrupted_anywhere_it_ends_the_same(
    plans: list[Plan], before: set[int], after: set[int]
) -> None:
    quiet = Recording()
    loud = Recording()
    still = Recording()
    volatile = asyncio.run(
        pipeline_of(plans, None, quiet, crashes=False).run(first_state(), id="r")
    )

    async def scenario() -> None:
        store = in_file(":memory:")
        undisturbed = await pipeline_of(plans, store, still, crashes=False).run(
            first_state(), id="r"
        )
        assert plain_report(undisturbed) == plain_report(volatile)
        await store.close()
        crashing = Crashing(before, after)
        report = await until_done(plans, crashing, loud)
        assert plain_report(report) == plain_report(volatile)
        assert "shows False" not in str(
            report.plain()
        )  # checks find what was fed back, too
        assert await report_of(crashing, Scope(), "r") == report
        crashing.before = set()
        crashing.after = set()
        again = await pipeline_of(plans, crashing, loud, crashes=True).run(
            first_state(), id="r"
        )
        assert again == report
        assert plain_report(again) == plain_report(report)
        await crashing.close()

    asyncio.run(scenario())
    assert still.finished == quiet.finished
    assert set(quiet.finished.values()) <= {1}
    assert loud.finished.keys() == quiet.finished.keys()
    # Only what was not yet written down when it failed is done again.
    assert loud.finished.total() <= quiet.finished.total() + len(before)
    assert loud.fed == quiet.fed
    assert all(len(hint) == 1 for hint in loud.fed.values())
