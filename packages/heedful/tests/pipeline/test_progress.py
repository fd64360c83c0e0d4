"""What is said while a pipeline runs: which attempt, what failed, how it goes on."""

import io
import logging
import re
import sys
from typing import Any

import pytest

from heedful.checks.evaluate import Context
from heedful.loop.record import Finding
from heedful.pipeline import Pipeline
from heedful.validation import MAX_SHOWN_LINE_CHARS
from tests.pipeline.support import check_that_fails, check_that_raises, run_pipeline

SECONDS = re.compile(r"\d+\.\d\d s")


def four_stages(progress: bool | None, **options: Any) -> Pipeline:
    pipeline = Pipeline("forecast", store=None, progress=progress, **options)
    pipeline.stage(name="load")(lambda state: 1)
    pipeline.stage(name="train", checks=[check_that_fails(1)])(lambda state: 1)
    pipeline.stage(name="say", checks=[check_that_fails(1, 2, 3)], retries=1)(
        lambda state: 1
    )
    pipeline.stage(name="show", checks=[check_that_raises(1)])(lambda state: 1)
    return pipeline


SAID = """\
pipeline forecast, run r: 4 stages
[1/4] stage load: attempt 1 of 3 …
[1/4] stage load: ? attempt 1 unchecked in … s
[2/4] stage train: attempt 1 of 3 …
[2/4] stage train: ✗ attempt 1 failed in … s
      ✗ looks: attempt 1 is wrong
      retrying with feedback
      stage train has no parameter 'feedback': its feedback is only in the state
[2/4] stage train: attempt 2 of 3 …
[2/4] stage train: ✓ attempt 2 passed in … s
[3/4] stage say: attempt 1 of 2 …
[3/4] stage say: ✗ attempt 1 failed in … s
      ✗ looks: attempt 1 is wrong
      retrying with feedback
      stage say has no parameter 'feedback': its feedback is only in the state
[3/4] stage say: attempt 2 of 2 …
[3/4] stage say: ✗ attempt 2 failed in … s
      ✗ looks: attempt 2 is wrong
      Max retries reached for say, continuing despite failures
[4/4] stage show: attempt 1 of 3 …
[4/4] stage show: ? attempt 1 not validated in … s
      stage show: check 'broken' raised RuntimeError: 'the check is broken' (…)
      stage show: fix the check and run with a new id
      stage show is not validated, continuing despite failures
pipeline forecast, run r: degraded (say, show) in … s
"""


def shorten(text: str) -> str:
    """Return lines of progress without seconds and without numbers of lines."""
    return re.sub(r"\(\w+\.py:\d+\)", "(…)", SECONDS.sub("… s", text))


def test_what_is_said(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "heedful"):
        run_pipeline(four_stages(True), {}, id="r")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert shorten(captured.err) == SAID
    logged = [shorten(record.getMessage()) for record in caplog.records]
    assert [line.strip() for line in logged] == [
        line.strip() for line in SAID.splitlines()
    ]
    assert [r.levelname for r in caplog.records if r.levelno > logging.INFO] == [
        "WARNING"
    ] * 6


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_told_and_a_program_without_one_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    run_pipeline(four_stages(None), {}, id="r")
    assert shorten(screen.getvalue()) == SAID
    monkeypatch.setattr(sys, "stderr", None)
    for progress in (None, True):
        assert run_pipeline(four_stages(progress)).degraded


def test_nobody_forges_a_line(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def check(output: Any, context: Context) -> list[Finding]:
        text = "bad\n[9/9] all: ✓ attempt 1 passed\x1b[2J\r" + "x" * 5_000
        return [Finding("c\nd", text)]

    pipeline = Pipeline("p", store=None, progress=True)
    pipeline.stage(name="s", checks=[check], retries=0)(lambda state: 1)
    with caplog.at_level(logging.INFO, "heedful"):
        run_pipeline(pipeline)
    for lines in (
        capsys.readouterr().err.splitlines(),
        [r.getMessage() for r in caplog.records],
    ):
        assert len(lines) == 6
        assert all(
            line.isprintable() and len(line) <= MAX_SHOWN_LINE_CHARS + 10
            for line in lines
        )
        assert not any(line.startswith("[9/9]") for line in lines)
