"""The shipped policies. A preset is a value: take it, or `dataclasses.replace` parts of it."""

from __future__ import annotations

from heedful.errors import UnknownName
from heedful.loop.decide import Policy
from heedful.loop.record import Goal, Improvement
from heedful.loop.stop import All, Echo, Fatigue, MaxAttempts, NothingMet, Plateau, Repeat

# Both come out of replaying 1,476 recorded coding loops; bench/quality/stop.py prints the table and
# what each rule is for. A candidate that was seen before is hopeless where nothing was ever met;
# where something was, it is seldom mended: there the second repeat stops.
default: Policy = Policy(
    (MaxAttempts(4), Repeat(2), All(Repeat(1, near=False), NothingMet())), name="default"
)
thorough: Policy = Policy((MaxAttempts(5), Repeat(2, near=False)), name="thorough")
# The limits that orchestrators with reflection guardrails are used to (docs/reference.md).
orchestrator: Policy = Policy(
    (MaxAttempts(4), Fatigue(0.5), Echo(3, across="scope")),
    improvement=Improvement(against="previous"),
    name="orchestrator",
    goals=(Goal("alignment", 0.75), Goal("drift", 0.25, "at_most")),
)
reflection: Policy = Policy(
    (MaxAttempts(3), Repeat(), Plateau(patience=None, novelty=True, floor=0.3)),
    improvement=Improvement(min_gain=0.1),
    name="reflection",
)
stage: Policy = Policy((MaxAttempts(3),), name="stage")

PRESETS = {policy.name: policy for policy in (default, thorough, orchestrator, reflection, stage)}


def preset(name: str) -> Policy:
    """The shipped policy of that name. Raises UnknownName."""
    if name not in PRESETS:
        raise UnknownName("policy", name, sorted(PRESETS))
    return PRESETS[name]
