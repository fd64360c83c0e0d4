"""Records as people see them: one line, one screen of text, HTML in a notebook."""

from __future__ import annotations

from typing import Any

import pytest

import heedful
from heedful.display import SCREEN_COLUMNS, SCREEN_LINES
from heedful.lessons.loop_lessons import learn

HOSTILE = "<script>alert(1)</script>\x1b[31m" + "long " * 200


def severity(answer: str) -> list[str]:
    """Find what is wrong with a severity."""
    return [] if answer.startswith("P") else [f"use P0 to P3 {HOSTILE}"]


async def make_records() -> dict[str, Any]:
    """Return one record of each kind that people look at."""
    memory = heedful.Memory(":memory:")
    pipeline = heedful.Pipeline("triage", store=None)

    @pipeline.stage(checks=[severity], retries=2)
    def stage(state: Any, feedback: str = "") -> str:
        return "P1" if feedback else HOSTILE

    report = await pipeline.run({})
    result: Any = None
    for task in (f"a bug in login {HOSTILE}", "an empty cart"):
        result = await heedful.run(
            task,
            generate=lambda task, hint: "P1" if hint else HOSTILE,
            checks=[severity],
            store=None,
            memory=memory,
            memory_key="severities",
        )
    stopped = await heedful.run(
        "t", generate=lambda task, hint: HOSTILE, checks=[severity], store=None
    )
    matches = await memory.recall("a bug in login")
    return {
        "passed result": result,
        "stopped result": stopped,
        "explanation": result.explain(),
        "report": report,
        "matches": matches,
        "no match": await heedful.Memory(":memory:").recall("t"),
        "match": matches[0],
        "lesson": learn(stopped.loop, "t", memory_key="severities")[0],
        "proof": await memory.prove(),
    }


KINDS = [
    "passed result",
    "stopped result",
    "report",
    "matches",
    "no match",
    "match",
    "lesson",
    "proof",
]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_record_fits_one_screen(kind: str) -> None:
    record = (await make_records())[kind]
    assert len(repr(record)) <= 2 * SCREEN_COLUMNS
    lines = str(record).splitlines()
    assert lines[0]
    assert len(lines) <= SCREEN_LINES
    assert max(map(len, lines)) <= SCREEN_COLUMNS
    assert "\x1b" not in str(record)


@pytest.mark.parametrize("kind", [*KINDS, "explanation"])
async def test_the_html_of_a_record_is_escaped_and_styles_itself_only(kind) -> None:
    record = (await make_records())[kind]
    html = record._repr_html_()
    assert "<script>" not in html
    assert "\x1b" not in html
    assert html.count("<style>@scope (.heedful-cell) {") == 1
    assert ":root" not in html  # it would be the notebook
    for outside in ("http://", "https://", "<link", "src="):
        assert outside not in html


async def test_a_loop_without_checks_says_that_nothing_judged_it() -> None:
    result = await heedful.run("t", generate=lambda *_: "x", memory=":memory:")
    assert "silent: no memory key" in str(result.explain())
    assert "silent: no memory key" in str(result.explain()._repr_html_())
    assert result.passed
    assert not result.judged
    assert "judged=False" in repr(result)
    assert "nothing judged it" in str(result.explain())
    assert "nothing judged it. Pass checks" in str(result)
    assert "nothing judged it" in str(result._repr_html_())
