"""A database with runs of pipelines, and a loop that is none."""

import asyncio
from pathlib import Path

import heedful
from heedful import Pipeline
from heedful.checks import text as checks
from heedful.checks.evaluate import Context
from heedful.loop.record import Finding
from heedful.testing import ScriptedModel

MEANS = (
    "predictions appear hallucinated: mean 1234.56 against 89.23, 15.3 standard "
    "deviations"
)


def means(candidate: dict[str, float], context: Context) -> list[Finding]:
    """Predictions far from what they predict."""
    fix = "verify that the model uses the actual data"
    wrong = Finding("hallucination_detection", MEANS, fix=fix)
    return [wrong] if candidate["mean"] > 100 else []


def cites(candidate: str, context: Context) -> list[Finding]:
    """Metrics that the run does not have."""
    return [
        Finding("insight_hallucination", "MAE is cited, and the run has no metrics")
    ]


async def run_pipelines(path: str) -> None:
    pipeline = Pipeline("forecast", store=path, progress=False)

    @pipeline.stage(checks=[checks.not_empty()])
    def load(state: object) -> str:
        return "ten rows"

    @pipeline.stage(checks=[means])
    def train(state: object, feedback: str | None = None) -> dict[str, float]:
        return {"mean": 90.1 if feedback else 1234.56}

    @pipeline.stage(checks=[cites])
    def insights(state: object) -> str:
        return "MAE is small"

    for number in (1, 2):
        await pipeline.run({}, id=f"forecast-{number}")
    other = Pipeline("nightly", store=path, progress=False)
    other.stage(name="copy", checks=[checks.not_empty()])(lambda state: "copied")
    await other.run({}, id="nightly-1")
    model = ScriptedModel("red")
    await heedful.run(
        "Say red",
        generate=model,
        checks=[checks.contains("red")],
        store=path,
        id="forecast/say",
    )
    await heedful.open_store(path).close()


def store_runs(folder: Path) -> bytes:
    """Return a database with two runs of forecast, one of nightly, and a loop."""
    path = folder / "heedful.db"
    asyncio.run(run_pipelines(str(path)))
    return path.read_bytes()
