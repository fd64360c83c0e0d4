"""Budgets of runs: by hand, and as an adapter asks; the conformance suite has more."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from heedful import All, Budget, Done, MaxAttempts, Policy, Usage
from heedful.errors import UsageUnknown
from heedful.integrations import Host
from heedful.integrations.attempts import Attempts, checked_host
from heedful.integrations.host import Advice, HostRun
from heedful.testing.conformance import TASK, severity
from tests.hosts import patient_host
from tests.tables import cases

COST_IN_ALL = Policy((MaxAttempts(3), All(Budget(cost=1.0), MaxAttempts(2))))


def host_with(budget: str, **options: Any) -> Host:
    """Return a host without a memory whose policy has a budget."""
    return patient_host(
        memory=None, strict=True, policy=f"default, budget.{budget}", **options
    )


async def find(run: HostRun) -> Advice:
    """Ask about a call of a tool, and return the advice."""
    return await run.before("find", {"order": "A-1"}, "call-1")


async def test_a_call_by_hand_is_denied_once_the_budget_is_spent() -> None:
    run = host_with("calls=2").run("one", TASK)
    assert run.spend(Usage(1)) is None
    assert not (await find(run)).denies
    stop = run.spend({"prompt_tokens": 9, "completion_tokens": 1})
    assert stop is not None
    assert stop.rule == "budget"
    advice = await find(run)
    assert advice.denies
    assert "2 of 2 calls spent" in advice.text
    assert run.call_advice["call-1"] == [advice.text]


@cases(
    ("budget", "spent"),
    {
        "calls that nobody counts": ("calls=6", []),
        "tokens that nobody counts": ("tokens=60", [Usage(1)]),
        "cost that nobody counts": ("cost=6", [Usage(1, 10)]),
    },
)
async def test_a_budget_by_hand_that_nobody_counts_is_refused(
    budget: str, spent: list[Usage]
) -> None:
    run = host_with(budget).run("one", TASK)
    run.spent = sum(spent, run.spent)
    with pytest.raises(UsageUnknown, match=r"run\.spend") as refusal:
        await find(run)
    assert refusal.value.units == (budget.partition("=")[0],)


async def test_time_needs_no_report() -> None:
    run = host_with("seconds=0.000001").run("one", TASK)
    assert (await find(run)).denies


async def test_earlier_attempts_have_spent_of_the_budget() -> None:
    run = host_with("calls=3", checks=[severity]).run("one", TASK)
    assert run.spend(Usage(2)) is None
    await run.verdict("high")
    assert run.loop is not None
    assert run.loop.loop.usage.calls == 2
    assert run.spend(Usage(1)) is not None


@cases(
    "policy",
    {"alone": "default, budget.cost=0.5", "beside another rule": COST_IN_ALL},
)
def test_a_host_refuses_a_unit_that_its_framework_does_not_report(policy: Any) -> None:
    host = patient_host(memory=None, policy=policy)
    with pytest.raises(UsageUnknown, match=r"Desk reports no cost.* limit calls") as no:
        checked_host(host, "Desk", ("calls",))
    assert no.value.units == ("cost",)


async def test_a_model_that_reports_no_tokens_is_refused_at_the_second_request() -> (
    None
):
    attempts = Attempts(run=host_with("tokens=60").run("one", TASK))
    await attempts.begin()
    assert attempts.early_answer() == ""
    attempts.count(Usage(1))
    with pytest.raises(UsageUnknown):
        attempts.early_answer()


async def test_the_best_answer_ends_a_run_whose_budget_is_spent() -> None:
    host = host_with("calls=3", checks=[severity])
    attempts = Attempts(run=host.run("one", TASK))
    await attempts.begin()
    attempts.count(Usage(1))
    assert await attempts.judge("high")
    attempts.count(Usage(3))
    assert attempts.early_answer(["I look for it."]) == "high"
    assert not await attempts.judge("high")
    verdict = await attempts.end()
    assert isinstance(verdict, Done)
    assert verdict.best == 1
    assert verdict.stopped_by[0].rule == "budget"


class Refund(BaseModel):
    """An answer with what JSON does not have."""

    order: str
    sum: Decimal
    due: date


@dataclass
class Picture:
    data: bytes


@cases(
    "output",
    {
        "a class with a date and a decimal": Refund(
            order="7", sum=Decimal("9.50"), due=date(2026, 5, 3)
        ),
        "bytes that are no text": b"\x89PNG",
        "an object with bytes": Picture(b"\x89PNG"),
        "a list of objects": [Picture(b"\xff")],
    },
)
async def test_a_check_gets_the_output_as_it_is(output: Any) -> None:
    judged = []

    def keep(candidate: Any, context: Any) -> bool:
        judged.append(candidate)
        return True

    run = patient_host(memory=None, strict=True, checks=[keep]).run("one", TASK)
    assert await run.verdict(output) == Done(1, passed=True)
    assert judged[0] is output
    assert run.best is output
