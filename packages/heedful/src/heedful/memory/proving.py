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
    """Return what the outcomes of loops prove about the lessons of a scope.

    The proof compares loops that were shown lessons with those that were not. With a
    `model`, only loops whose attempts it made count, and no trials. `holdout` is the
    share of loops from which lessons are withheld: the forecast of how many more loops
    a verdict needs depends on it, and is 0 loops without one. See `Memory.prove`.
    """
    evidence = await store.read(scope, exposures.evidence)
    # With many lessons this takes seconds, in which the event loop must go on.
    proven = await asyncio.to_thread(proof.prove, evidence, model)
    figures = await store.read(scope, ladders.figures, model)
    # A trial does not know which model made the attempts of its loops.
    trials = () if model else await store.read(scope, trial.proven)
    recent, days = await store.read(scope, exposures.count_recent, model)
    forecast = proof.forecast_verdict(proven.pooled, holdout, recent, days)
    return replace(proven, ladders=figures, trials=trials, forecast=forecast)


async def conclude(store: Store, scope: Scope) -> Sequence[str]:
    """Retire the lessons that provably hurt, and return their names.

    Also stores how useful each lesson is for the order of search results, which lessons
    are not shown to which models because they hurt their loops, and whether memory as
    a whole helps or hurts. See `Memory.look`.
    """
    evidence = await store.read(scope, exposures.evidence)
    cases = evidence.cases_of()
    # With many lessons these take seconds, in which the event loop must go on.
    proven = await asyncio.to_thread(proof.find_proven, cases)
    hurting_by_model = await asyncio.to_thread(proof.find_unfit, evidence)
    whole = await asyncio.to_thread(proof.compare_pooled, cases)
    if whole.conclusion == "hurts":
        # If a lesson was retired or edited, the harm may have been its own, and
        # what hurt long ago may help now.
        recent = await store.read(scope, exposures.evidence, recent=True)
        whole = proof.compare_pooled(recent.cases_of())

    useful = {str(lesson.lesson): proof.usefulness(lesson) for lesson in proven}
    return await store.write(
        scope,
        exposures.conclude,
        useful,
        proof.hurting(proven),
        unfit=hurting_by_model,
        pooled=whole,
    )
