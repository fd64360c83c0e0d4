"""Limits of tokens and cost that cannot be kept, because no answer reports any."""

from typing import Any

import pytest

import heedful
from heedful import Rung, Usage
from heedful.errors import UsageUnknown
from tests.tables import cases

RIGHT = heedful.checks.contains("right")


def policy(*parts: str) -> heedful.Policy:
    return heedful.policy(", ".join(["attempts.limit=5", "-repeat", *parts]))


class Writing:
    """A function that is called, and what it answers each time."""

    def __init__(self, *extra: Any, last: str = "right") -> None:
        self.extra = extra
        self.last = last
        self.calls = 0

    def __call__(self, task: str) -> Any:
        self.calls += 1
        text = self.last if self.calls == 4 else f"no {'x' * self.calls**2}"
        return (text, *self.extra) if self.extra else text


class Unreadable(ValueError):
    def __init__(self, completion: Any = None) -> None:
        super().__init__("not a colour")
        self.completion = completion


class Raising:
    """A function that refuses each of its answers, and what its exceptions carry."""

    def __init__(self, usage: Usage | None = None) -> None:
        self.usage = usage
        self.calls = 0

    def __call__(self, task: str) -> Any:
        self.calls += 1
        if self.usage is None:
            raise Unreadable
        raise Unreadable(heedful.Answer(f"no {'x' * self.calls**2}", self.usage))


async def drive(generate: Any, rules: heedful.Policy, **options: Any) -> Any:
    return await heedful.run(
        "t", generate=generate, checks=[RIGHT], policy=rules, **options
    )


REFUSED = {
    "tokens of a text": (Writing(), "budget.tokens=100", ("tokens",)),
    "cost beside tokens": (Writing(Usage(1, 9)), "budget.cost=1", ("cost",)),
    "tokens of what it refused": (Raising(), "budget.tokens=100", ("tokens",)),
    "cost of what it refused": (Raising(), "budget.cost=1", ("cost",)),
}


@cases(("generate", "limit", "units"), REFUSED)
async def test_a_limit_of_what_nobody_reports_is_refused(generate, limit, units, store):
    with pytest.raises(UsageUnknown) as raised:
        await drive(generate, policy(limit), store=store, id="a")
    assert generate.calls == 1
    assert raised.value.units == units
    assert "leave the limit out" in str(raised.value)


KEPT = {
    "calls and seconds": (Writing(), "budget.calls=9, budget.seconds=60"),
    "tokens": (Writing(Usage(1, 9)), "budget.tokens=99"),
    "cost": (Writing(Usage(cost=0.1)), "budget.cost=9"),
    "a price": (Rung(Writing(Usage(1, 9)), price=0.001), "budget.cost=9"),
}


@cases(("generate", "limit"), KEPT)
async def test_a_limit_that_is_counted_is_kept(generate, limit):
    result = await drive(generate, policy(limit), store=None)
    assert result.passed


async def test_a_budget_counts_the_answers_in_exceptions():
    result = await drive(Raising(Usage(1, 9)), policy("budget.tokens=18"), store=None)
    assert [stop.rule for stop in result.stopped_by] == ["budget"]
    assert result.usage.calls == 2
    assert result.usage.tokens == 18


async def test_a_report_without_what_the_policy_limits_is_refused(store):
    loop = await heedful.open_loop(
        "a", "t", checks=[RIGHT], policy=policy("budget.tokens=99"), store=store
    )
    with pytest.raises(UsageUnknown):
        await loop.report("wrong")
    assert not loop.loop.attempts
    await loop.report("wrong", usage=Usage(1, 9))
    assert len(loop.loop.attempts) == 1
