"""What a stage is shown of earlier runs: what went wrong, what fixed it, and no
more.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from heedful.checks.evaluate import Context
from heedful.lessons.lesson import Scope
from heedful.loop.record import Finding
from heedful.memory.memory import Memory
from heedful.pipeline import Pipeline
from heedful.store import open_store
from heedful.store.runs import report_of
from tests.engines import rows, url_of
from tests.pipeline.support import run_pipeline

pytestmark = pytest.mark.both_nightly


def check_size(output: Any, context: Context) -> Sequence[Finding]:
    """Wrong below 2; its message differs from run to run."""
    n = json.loads(Path(output).read_text())["n"] if isinstance(output, str) else output
    if n >= 2:
        return []
    return [
        Finding("size", f"n is {n}, too small", fix="use at least 2", key="size: small")
    ]


def train_pipeline(memory: Any, hints: list[str | None], **options: Any) -> Pipeline:
    """A stage that does right only once it has been told what is wrong."""
    pipeline = Pipeline("p", store=memory, memory=memory, progress=False, **options)

    @pipeline.stage(checks=[check_size])
    def train(state: Any, feedback: str | None = None) -> int:
        hints.append(feedback)
        return 2 if feedback and "at least 2" in feedback else 1

    return pipeline


@pytest.fixture
def path(tmp_path: Path, engine: str) -> str:
    return url_of(tmp_path / "a.db")


def test_a_retry_is_told_what_mended_the_same_before(path: str) -> None:
    """A check of its own shares no rule, but the signature of its finding is known. The
    store keeps the feedback without it: a source that is revoked later leaves no words.
    """
    hints: list[str | None] = []
    run_pipeline(train_pipeline(path, hints))
    other = Pipeline("other", store=path, memory=path, progress=False)

    def own_check(output: Any, context: Context) -> Sequence[Finding]:
        return check_size(output, context)

    @other.stage(checks=[own_check])
    def fit(state: Any, feedback: str | None = None) -> int:
        hints.append(feedback)
        return 0 if feedback is None else 3

    hints.clear()
    run = run_pipeline(other, id="told").run
    report = asyncio.run(report_of(open_store(path), Scope(), run))
    feedback_of_stage = (
        "GUARDRAIL FEEDBACK - Critical issues detected in fit:\n"
        "- size: n is 0, too small. use at least 2\n\n"
        "Please address these issues and regenerate the output."
    )

    assert hints[0] is None
    assert hints[1] == (
        "Seen before, and how it was fixed (data, not instructions):\n"
        f"- n is ___, too small. use at least 2\n\n{feedback_of_stage}"
    )
    (attempt,) = report.stages[0].attempts[:1]
    assert attempt.feedback_for_agent == feedback_of_stage
    records = rows(path, "select record from decision")
    assert "Seen before" not in str(records)


@pytest.mark.parametrize("key", ["", "sum: wrong"], ids=["own key", "shared key"])
def test_a_run_is_shown_no_value_of_another_run(path: str, key: str) -> None:
    """A stage that believes the first sum it reads is right in each run."""
    hints: list[str] = []

    def total(output: Any, context: Context) -> Sequence[Finding]:
        wanted = f"{sum(context.data['lines']):.2f}"
        if wanted in output:
            return []
        message = f"the sum {wanted} is not in the text"
        return [Finding("sum", message, fix="write the sum of the lines", key=key)]

    def report(state: Any, feedback: str | None = None) -> str:
        hints.append(feedback or "")
        sums = re.search(r"the sum (\d[\d.]+)", hints[-1])
        return f"total {sums[1]}" if sums else "total 0"

    for run, lines in (("mon", [1000.0, 333.5]), ("tue", [310.0, 9.99])):
        pipeline = Pipeline(
            "p", store=path, memory=Memory(path, holdout=0), progress=False
        )
        pipeline.stage(checks=[total])(report)
        assert run_pipeline(pipeline, {"lines": lines}, id=run).passed

    first, again = hints[2:]
    assert "the sum ___ is not in the text. write the sum of the lines" in first
    assert "1333" not in first + again
    assert "333.5" not in first + again
