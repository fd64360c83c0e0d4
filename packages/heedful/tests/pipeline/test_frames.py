"""Data frames in reports, and packages that are missing: no stage passes by
accident.
"""

import sys
from importlib import import_module
from typing import Any

import pytest

from heedful import errors
from heedful.checks import grounding
from tests.pipeline.support import check_that_fails, run_stage
from tests.tables import cases


def make_frame(kind: str, ys: list[float]) -> Any:
    """Return a frame of two columns; its package is imported when a test needs it."""
    package = import_module(kind)
    if kind == "numpy":
        return package.array([[y, 1.0] for y in ys])
    make = package.table if kind == "pyarrow" else package.DataFrame
    return make({"y": ys, "name": ["a"] * len(ys)})


@cases(
    ("values", "count"),
    {"other frames": ([1.0, 2.0, 3.0], 3), "equal frames": ([1.0, 1.0, 1.0], 2)},
)
def test_only_equal_frames_are_a_repeat(values: list[float], count: int) -> None:
    policy = "stage, attempts.limit=3, repeat.times=1"
    left = list(values)
    report = run_stage(
        lambda _: make_frame("polars", [left.pop(0)]),
        check_that_fails(1, 2, 3),
        policy=policy,
    )
    assert len(report.stages[0].attempts) == count


def absent(output: Any, context: Any) -> list[Any]:
    raise ModuleNotFoundError("No module named 'forecasts'")


@cases(
    "check",
    {
        "a check of the user": absent,
        "a check of heedful": grounding(
            lambda text, state: make_frame("pandas", [1.0])
        ),
    },
)
def test_a_check_without_its_package_halts_the_run(
    check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "narwhals", None)
    with pytest.raises(errors.CheckFailed, match=r"forecasts|narwhals"):
        run_stage(lambda state: "y is 1.", check)
