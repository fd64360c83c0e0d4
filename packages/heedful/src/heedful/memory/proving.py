"""Prove by exposures and outcomes which lessons help, and act on what is proven."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from heedful.lessons import proof
from heedful.lessons.scope import Scope
from heedful.memory import trial
from heedful.store import exposures, ladders
from heedful.store.store import Store


async def prove(store: Store, scope: Scope, model: str, holdout: float) -> proof.Proof:
    """Return what is proven about the lessons of a scope, in loops of a `model` if any.

    Without a `holdout`, the forecast is 0 loops. See `Memory.prove`.
    """
    evidence = await store.read(scope, exposures.evidence)
    proven = await asyncio.to_thread(proof.prove, evidence, model)
    figures = await store.read(scope, ladders.figures, model)
    tried = () if model else await store.read(scope, trial.proven)
    recent = await store.read(scope, exposures.count_recent, model)
    forecast = proof.forecast_verdict(proven.pooled, holdout, *recent)
    return replace(proven, ladders=figures, trials=tried, forecast=forecast)


async def conclude(store: Store, scope: Scope) -> Sequence[str]:
    """Retire the lessons that hurt, and return their names; see `Memory.look`."""
    evidence = await store.read(scope, exposures.evidence)
    # With many lessons this takes seconds.
    cases = evidence.cases_of()
    proven = await asyncio.to_thread(proof.find_proven, cases)
    unfit = await asyncio.to_thread(proof.find_unfit, evidence)
    pooled = await asyncio.to_thread(proof.compare_pooled, cases)
    if pooled.conclusion == "hurts":
        # If a lesson was retired or edited, the harm may have been its own, and
        # what hurt long ago may help now.
        recent = await store.read(scope, exposures.evidence, recent=True)
        pooled = proof.compare_pooled(recent.cases_of())

    useful = {str(lesson.lesson): proof.usefulness(lesson) for lesson in proven}
    return await store.write(
        scope,
        exposures.conclude,
        useful,
        proof.hurting(proven),
        unfit=unfit,
        pooled=pooled,
    )
