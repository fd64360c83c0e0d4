"""A pipeline whose stages have changed resumes its runs: stages are matched by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from heedful import errors
from heedful.lessons.lesson import Scope
from heedful.pipeline import Pipeline
from heedful.store import loops
from heedful.store.runs import report_of
from heedful.store.store import Store
from tests.tables import cases


def pipeline_of(names: str, calls: list[str], store: Store) -> Pipeline:
    """Return a pipeline of stages: with "!" one raises, with "-" it changes nothing."""
    pipeline = Pipeline("p", store=store, progress=False)
    for word in names.split():
        add_stage(pipeline, word, calls)
    return pipeline


def add_stage(pipeline: Pipeline, word: str, calls: list[str]) -> None:
    name = word.strip("!-")

    def stage(state: Any) -> Any:
        calls.append(name)
        if word.endswith("!"):
            raise OSError("the disk is full")
        return None if word.endswith("-") else name.upper()

    pipeline.stage(name=name)(stage)


async def run_changed(store: Store, before: str, after: str) -> list[str]:
    """Return what is called when a run goes on with other stages."""
    try:
        await pipeline_of(before, [], store).run({}, id="r")
    except errors.StageFailed:
        assert "!" in before
    calls: list[str] = []
    report = await pipeline_of(after, calls, store).run({}, id="r")
    names = after.replace("-", "").split()
    assert [stage.name for stage in report.stages] == names
    assert report.status == "passed"
    assert await report_of(store, Scope(), "r") == report
    return calls


pytestmark = pytest.mark.both_nightly
CHANGES = {
    "added between": ("a c!", "a x c", "x c", "stage x is new"),
    "added after": ("a", "a x", "x", "stage x is new"),
    "added before: what follows has another input": ("a c!", "x a c", "x a c", "x is"),
    "added, and leaves the state as it is": ("a c", "a x- c", "x", "stage x is new"),
    "added before one that is done": ("a c", "a x c", "x c", "stage x is new"),
    "removed": ("a b c!", "a c", "c", "stage b is gone"),
    "removed, and it had failed": ("a b!", "a", "", "stage b is gone"),
    "removed, and a stage after it is done": ("a b c", "a c", "c", "stage b is gone"),
    "renamed": ("a b c!", "a d c", "d c", "stage d is new, stage b is gone"),
    "in another order": ("a b c!", "b a c", "b a c", "the order of its stages has ch"),
    "all of them are others": ("a b!", "c d", "c d", "d is new, stage a is gone"),
}


@cases(("before", "after", "called", "words"), CHANGES)
async def test_what_is_done_is_kept_and_what_is_new_runs(
    store: Store,
    before: str,
    after: str,
    called: str,
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert await run_changed(store, before, after) == called.split()
    assert words in caplog.text


@cases("stages", {"unchanged": "a b c", "changed twice": "a x c"})
async def test_a_run_that_went_on_with_other_stages_is_done(
    store: Store, stages: str
) -> None:
    await run_changed(store, "a b c", "a x c")
    calls: list[str] = []
    await pipeline_of(stages, calls, store).run({}, id="r")
    assert calls == {"a x c": [], "a b c": ["c"]}[stages]


async def test_what_the_stage_did_before_its_input_changed_stays_stored(
    store: Store,
) -> None:
    await run_changed(store, "a c", "a x c")
    newest, _ = await store.read(Scope(), loops.newest, 10)
    assert [loop.id for loop in newest] == ["r/c/2", "r/x", "r/c", "r/a", "r"]


async def test_a_failed_stage_goes_on_where_only_others_changed(store: Store) -> None:
    hints: list[str | None] = []

    def pipeline(names: Sequence[str], fails: bool) -> Pipeline:
        pipeline = Pipeline("p", store=store, progress=False)
        for name in names:
            pipeline.stage(name=name)(lambda state: None)

        @pipeline.stage(checks=[lambda number: number > 1])
        def count(state: Any, feedback: str | None = None) -> int:
            hints.append(feedback)
            if fails and feedback:
                raise OSError("the disk is full")
            return len(hints)

        return pipeline

    with pytest.raises(errors.StageFailed):
        await pipeline(["a"], fails=True).run({}, id="r")
    report = await pipeline(["a", "x"], fails=False).run({}, id="r")
    assert [attempt.attempt for attempt in report.stage("count").attempts] == [1, 2]
    assert hints[2] == hints[1]
