"""Five stages that forecast tomorrow's maximum temperature in Seattle, checked and
corrected.

    python packages/heedful/examples/forecast/forecast.py --run mine
    python packages/heedful/examples/forecast/forecast.py --run mine --model embedded

The stages `train` and `insights` stand in for an agent: without feedback they invent
results, and they fix what the feedback names. With a model, `insights` is a prompt and
the model writes the text. Needs heedful[demo], which has the data set.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from importlib.util import find_spec
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

import heedful
from heedful import Pipeline
from heedful.checks import contains, grounding, insights as cites, numbers
from heedful.checks.evaluate import Check, Context
from heedful.drive.generate import Writer
from heedful.errors import PackageMissing
from heedful.loop.record import Finding
from heedful.memory.memory import Memory
from heedful.models.contract import Model

MEASURED = ("temp_max", "temp_min", "precipitation", "wind")
FEATURES = (*MEASURED, "season_sin", "season_cos")
NEEDS = ("vega_datasets", "pyarrow", "narwhals")
TEST = ("2015-01-01", "2015-12-31")
# The days that a model writes about in the demonstration. They are chosen: here the
# embedded model errs at first and corrects itself. README.md beside this file says how
# often it does.
QUARTER = ("2013-10-01", "2013-12-31")
Table = Mapping[str, Sequence[Any]]
State = dict[str, Any]


# The stages. Each writes files to state["folder"] and returns text and numbers for the
# next stages; the journal keeps these over a crash.


def load(state: State) -> dict[str, Any]:
    """Write the data set as Parquet."""
    with weather().open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    days = [
        date.fromisoformat(row["date"].replace("/", "-")).isoformat() for row in rows
    ]
    table: Table = {
        "date": days,
        **{name: [float(row[name]) for row in rows] for name in MEASURED},
    }
    path = write(state, "weather.parquet", table)
    return {"path": path, "days": len(days), "first": days[0], "last": days[-1]}


def features(state: State) -> dict[str, Any]:
    """Write what is known on a day, and `y`, the maximum temperature of the next
    day.
    """
    table = read(state["load"]["path"])
    days = [date.fromisoformat(day) for day in table["date"]]
    angle = (
        2 * np.pi * np.array([day.timetuple().tm_yday for day in days[:-1]]) / 365.25
    )
    predicted_days = [(day + timedelta(days=1)).isoformat() for day in days[:-1]]
    table_of_features = {
        "date": predicted_days,
        **{name: table[name][:-1] for name in MEASURED},
        "season_sin": np.sin(angle),
        "season_cos": np.cos(angle),
        "y": table["temp_max"][1:],
    }
    path = write(state, "features.parquet", table_of_features)
    return {"path": path, "columns": ["date", *FEATURES, "y"]}


def split(state: State) -> dict[str, Any]:
    """Split by time: the days before the test are the training set."""
    table = read(state["features"]["path"])
    first, last = state["test"]
    days = np.array(table["date"])
    parts = {"train": days < first, "test": (days >= first) & (days <= last)}
    paths = {}
    for name, part in parts.items():
        rows = {column: np.array(values)[part] for column, values in table.items()}
        paths[name] = write(state, f"{name}.parquet", rows)
    return paths


def train(state: State, feedback: str | None = None) -> dict[str, Any]:
    """Predict and measure, as a stand-in for an agent that fixes what the feedback
    names.

    Without feedback it invents predictions in kelvin. If their spread is rejected, it
    fits a model to the data; if they lie far from the actual values, it checks the
    unit.
    """
    time.sleep(state["pause"])
    hint = feedback or ""
    test = read(state["split"]["test"])
    if "variance_hallucination" in hint or "constant_predictions" in hint:
        yhat = fitted(read(state["split"]["train"]), test)
    else:
        yhat = np.random.default_rng(7).normal(14.0, 0.2, len(test["y"]))
    if "hallucination_detection" not in hint:
        yhat = yhat + 273.15
    table = {"date": test["date"], "y": test["y"], "yhat": yhat}
    metrics = measured(table)
    overall = metrics["errors"][0]
    return {
        "results": write(state, "results.parquet", table),
        "R2": metrics["R2"],
        "MAE": overall["MAE"],
        "RMSE": overall["RMSE"],
    }


def insights(state: State, feedback: str | None = None) -> str:
    """Describe the run, as a stand-in for an agent that fixes what the feedback
    names.
    """
    hint = feedback or ""
    metrics = measured(read(state["train"]["results"]))
    overall, *months = metrics["errors"]
    worst = max(months, key=lambda month: month["MAE"])["name"]
    claims = (
        (
            "metrics that the run has",
            "The forecast has a low MAPE.",
            "The forecast has an MAE of {MAE}.",
        ),
        ("number", "R² is 0.97.", "R² is {R2}."),
        (
            "columns that exist",
            "The column `humidity` explains most.",
            "{worst} has the largest MAE.",
        ),
    )
    sentences = []
    for named, invented, right in claims:
        sentences.append(right if named in hint else invented)
    text = " ".join(sentences)
    return text.format(worst=worst, MAE=overall["MAE"], R2=metrics["R2"])


def insights_prompt(state: State) -> str:
    """Return the same task for a model: the metrics, and what to write about them."""
    rows = measured(read(state["train"]["results"]))["errors"]
    lines = "\n".join(
        f"{row['name']}: MAE {row['MAE']}, RMSE {row['RMSE']}" for row in rows
    )
    return (
        f"{lines}\n\nThese are the errors of a weather forecast in degrees Celsius. "
        "Complete these two sentences: The overall MAE is … degrees. The month with "
        "the largest MAE is …, with an MAE of … degrees."
    )


# Parts of the stages.


def weather() -> Path:
    """Return the file of the data set without importing its package. Raises
    PackageMissing.
    """
    missing = [name for name in NEEDS if find_spec(name) is None]
    if missing:
        raise PackageMissing("the forecast", ", ".join(missing), "demo")
    package = find_spec("vega_datasets")
    folders = (package.submodule_search_locations if package else None) or [""]
    return Path(folders[0], "_data", "seattle-weather.csv")


def write(state: State, name: str, table: Table) -> str:
    """Write a table as Parquet into the folder of the run; return its path."""
    import pyarrow as pa
    from pyarrow import parquet

    path = Path(state["folder"], name)
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(
        pa.table({key: pa.array(column) for key, column in table.items()}), path
    )
    return str(path)


def read(path: str) -> dict[str, Any]:
    """Return the columns of a Parquet file as lists."""
    from pyarrow import parquet

    columns: dict[str, Any] = parquet.read_table(path).to_pydict()
    return columns


def fitted(train: Table, test: Table) -> Any:
    """Predict the days of `test` by least squares on those of `train`."""

    def matrix(table: Table) -> Any:
        return np.column_stack(
            [*(table[name] for name in FEATURES), np.ones(len(table["y"]))]
        )

    weights, *_ = np.linalg.lstsq(matrix(train), np.array(train["y"]), rcond=None)
    return matrix(test) @ weights


def measured(results: Table) -> dict[str, Any]:
    """Return R² over all days, and the errors overall and by month, rounded."""
    y = np.array(results["y"])
    yhat = np.array(results["yhat"])
    months = np.array([f"{date.fromisoformat(day):%B}" for day in results["date"]])
    parts = {"overall": np.full(len(y), True)} | {
        name: months == name for name in months
    }
    rows = [
        {"name": str(name), **errors((yhat - y)[part])} for name, part in parts.items()
    ]
    rest = float(((yhat - y) ** 2).sum() / ((y - y.mean()) ** 2).sum())
    return {"R2": round(1 - rest, 2), "errors": rows}


def errors(off: Any) -> dict[str, Any]:
    """Return the mean absolute and the root mean square error, rounded to 0.01
    degrees.
    """
    return {
        "MAE": round(float(np.abs(off).mean()), 2),
        "RMSE": round(sqrt((off**2).mean()), 2),
    }


# The checks: one of our own, and what those of heedful read.


def apart(output: Mapping[str, str], context: Context) -> Iterable[Finding]:
    """Find days that are in the training set and in the test set."""
    both = set(read(output["train"])["date"]) & set(read(output["test"])["date"])
    if both:
        what = f"{len(both)} days are in both parts, first {min(both)}"
        yield Finding(
            "apart", what, fix="split by date", key="apart: days in both parts"
        )


def path(output: Mapping[str, Any], state: State) -> str:
    """Return the path of the file that a stage wrote."""
    return str(output["path"])


def results(output: Any, state: State) -> str:
    """Return the path of the predictions."""
    return str(state["train"]["results"])


def evidence(output: Any, state: State) -> dict[str, Any]:
    """Return the facts that the text about a run may state."""
    return measured(read(results(output, state))) | {"unit": "degrees Celsius"}


def columns(output: Any, state: State) -> list[str]:
    """Return the names of all columns."""
    return [*state["features"]["columns"], "yhat"]


def pipeline(
    memory: Memory,
    reports: Path,
    model: Model | None = None,
    progress: bool | None = None,
) -> Pipeline:
    """Return the five stages; they use the store of `memory` and write reports to
    `reports`.
    """
    stages = Pipeline(
        "forecast",
        progress=progress,
        memory=memory,
        store=memory.store,
        reports=reports,
    )
    stages.stage(
        checks=[numbers.results(path, at_least_rows=1000), numbers.finite(path)]
    )(load)
    stages.stage(
        checks=[numbers.finite(path, FEATURES), numbers.ranges(path, y=(-20, 50))]
    )(features)
    stages.stage(checks=[apart])(split)
    stages.stage(checks=[numbers.predictions(results, "y", "yhat")], retries=2)(train)
    grounded: Sequence[Check] = [cites(evidence, columns, results), grounding(evidence)]
    if model is None:
        stages.stage(checks=grounded, retries=2)(insights)
    else:
        writer = Writer(model, "You report figures exactly.", max_tokens=80)
        stages.stage(
            name="insights",
            model=writer,
            checks=[contains("largest MAE"), *grounded],
            retries=2,
        )(insights_prompt)
    return stages


def remembering(folder: Path) -> Memory:
    """Return the memory in a folder, which is created if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    # Without a holdout, so that the second run always shows what memory does.
    return Memory(str(folder / "heedful.db"), holdout=0)


def begun(folder: Path, pause: float = 0.0, test: tuple[str, str] = TEST) -> State:
    """Return the first state of a run: the folder for its files, and the days of the
    test.
    """
    return {"folder": str(folder), "pause": pause, "test": list(test)}


def main() -> None:
    """Run the pipeline; with the name of an interrupted run, continue it."""
    parser = argparse.ArgumentParser(
        description="Forecast tomorrow's maximum temperature."
    )
    parser.add_argument("--run", default="", help="the name of the run")
    parser.add_argument(
        "--out", type=Path, default=Path("out/forecast"), help="the folder"
    )
    parser.add_argument("--model", help="who writes the insights [a stand-in]")
    parser.add_argument(
        "--pause", type=float, default=0.0, help="seconds that training takes"
    )
    options = parser.parse_args()
    model = heedful.open_model(options.model) if options.model else None
    stages = pipeline(remembering(options.out), options.out, model, progress=True)
    state = begun(options.out / (options.run or "latest"), options.pause)
    report = heedful.run_sync(stages.run(state, id=options.run))
    print(state["insights"])
    print(f"report: {options.out / report.stem}.html")


if __name__ == "__main__":
    main()
