"""What an attempt keeps of many findings, and what counts those that it does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful.checks.evaluate import MAX_KEPT_FINDINGS, Context, evaluated
from heedful.lessons.lesson import Scope
from heedful.loop.record import Evaluation, Finding
from heedful.pages.run_report import html
from heedful.pipeline import Pipeline
from heedful.store.runs import report_of
from heedful.store.store import Store
from heedful.validation import MAX_SHOWN_ROWS
from tests.tables import cases

MANY = 5_000


def findings(count: int, check: str = "rows", **options: Any) -> list[Finding]:
    return [Finding(check, f"row {n} is empty", **options) for n in range(count)]


async def judge(check: Any = None, evaluate: Any = None) -> Evaluation:
    checks = [check] if check else []
    return await evaluated("x", Context("t"), checks, evaluate)


def check_of(answer: list[Finding]) -> Any:
    return lambda candidate: answer


async def test_reports_and_store_keep_the_first_findings_and_count_all(
    store: Store, tmp_path: Path
) -> None:
    hints: list[str | None] = []
    pipeline = Pipeline("p", store=store, reports=tmp_path / "r", progress=False)

    def check(rows: int) -> Iterator[Finding]:
        yield from findings(MANY) if rows == 1 else ()

    @pipeline.stage(checks=[check])
    def load(state: Any, feedback: str | None = None) -> int:
        hints.append(feedback)
        return len(hints)

    report = await pipeline.run({}, id="r")
    first = report.stages[0].attempts[0]
    assert len(first.checks) == MAX_KEPT_FINDINGS
    others = MANY - MAX_KEPT_FINDINGS
    assert first.checks[-1].details["more"] == others
    assert f"(and {others:,} more)" in first.checks[-1].message
    assert await report_of(store, Scope(), "r") == report

    hint = hints[1] or ""
    listed = hint.count("- rows: row")
    assert f"- and {MANY - listed} more." in hint
    written = json.loads((tmp_path / "r" / first.file).read_text())
    assert len(written["checks"]) == MAX_KEPT_FINDINGS
    counts = [1 + check["details"].get("more", 0) for check in written["checks"]]
    assert sum(counts) == MANY
    assert f"{MANY - MAX_SHOWN_ROWS:,} more checks" in html(report)


@cases(
    "judges",
    {
        "by a check": {"check": check_of(findings(MANY))},
        "by an evaluator": {
            "evaluate": lambda candidate, context: Evaluation(tuple(findings(MANY)))
        },
    },
)
async def test_many_findings_are_counted(judges: dict[str, Any]) -> None:
    evaluation = await judge(**judges)
    assert len(evaluation.findings) == MAX_KEPT_FINDINGS
    assert evaluation.findings[0].message == "row 0 is empty"
    assert evaluation.findings[-1].more == MANY - MAX_KEPT_FINDINGS


async def test_few_findings_are_kept_as_they_are() -> None:
    few = [*findings(60, level="warning"), *findings(40)]
    evaluation = await judge(check_of(few))
    assert list(evaluation.findings) == few


async def test_no_level_and_no_check_is_left_out_for_another() -> None:
    many = [
        *findings(MANY, level="note"),
        *findings(MANY, "rows"),
        Finding("total", "the total is wrong"),
        *findings(MANY, "rows", severity=0.9),
    ]
    evaluation = await judge(check_of(many))
    assert len(evaluation.errors) == MAX_KEPT_FINDINGS
    assert {error.check for error in evaluation.errors} == {"rows", "total"}
    assert evaluation.severities[0] == 900
    count = sum(1 + error.more for error in evaluation.errors)
    assert count == 2 * MANY + 1


@pytest.mark.parametrize("fewer", [MANY - 1, MAX_KEPT_FINDINGS + 1])
async def test_the_attempt_with_fewer_errors_is_the_best(fewer: int) -> None:
    counts = iter([MANY, fewer, MANY])

    def check(candidate: str) -> list[Finding]:
        return findings(next(counts))

    result = await heedful.run(
        "t",
        generate=lambda task, hint: f"answer {'x' * 3 * len(hint)}",
        checks=[check],
        policy="attempts.limit=3, -repeat, -plateau, -fatigue, -echo",
        store=None,
    )
    assert result.verdict.best == 2


async def test_the_checks_of_a_stage_share_the_limit(store: Store) -> None:
    pipeline = Pipeline("p", store=store, progress=False)
    checks = [check_of(findings(MANY)), check_of([Finding("total", "is wrong")])]
    pipeline.stage(name="s", checks=checks, retries=0)(lambda state: 1)
    report = await pipeline.run({})
    failed = report.stages[0].attempts[0].failed
    assert len(failed) == MAX_KEPT_FINDINGS
    assert {check.check_name for check in failed} == {"rows", "total"}
    assert sum(1 + check.details.get("more", 0) for check in failed) == MANY + 1
