"""heedful: the reflection engine for LLM agents and pipelines.

It knows when an agent should think again, when it must stop, and that the same mistake is not made
twice.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Where each public name lives. A name is imported when it is first used, so that `import heedful`
# costs next to nothing.
_HOMES = {
    "Again": "heedful.loop.decide",
    "All": "heedful.loop.stop",
    "Answer": "heedful.protocols",
    "Attempt": "heedful.loop.record",
    "AttemptReport": "heedful.store.runs",
    "Attribution": "heedful.memory.attribution",
    "Briefing": "heedful.memory.briefing",
    "Budget": "heedful.loop.stop",
    "Candidate": "heedful.loop.record",
    "Change": "heedful.loop.change",
    "Checked": "heedful.store.runs",
    "Claim": "heedful.memory.grounded",
    "Client": "heedful.client.client",
    "Comparison": "heedful.memory.proof",
    "Context": "heedful.protocols",
    "Decision": "heedful.decisions",
    "Difference": "heedful.memory.difference",
    "Done": "heedful.loop.decide",
    "Draft": "heedful.memory.drafting",
    "Dream": "heedful.memory.dreaming",
    "Dreams": "heedful.memory.dreaming",
    "Echo": "heedful.loop.stop",
    "Effect": "heedful.memory.proof",
    "Embedder": "heedful.protocols",
    "Episode": "heedful.memory.episode",
    "Evaluation": "heedful.loop.record",
    "Event": "heedful.memory.episode",
    "Example": "heedful.memory.learn",
    "Expected": "heedful.memory.expected",
    "Explanation": "heedful.loop.explain",
    "Exported": "heedful.memory.transfer",
    "Exposure": "heedful.memory.proof",
    "Fatigue": "heedful.loop.stop",
    "Fault": "heedful.memory.episode",
    "Figures": "heedful.loop.replay",
    "Filter": "heedful.protocols",
    "Finding": "heedful.loop.record",
    "Found": "heedful.protocols",
    "Goal": "heedful.loop.record",
    "Guardrails": "heedful.pipeline",
    "HeedfulError": "heedful.errors",
    "Held": "heedful.memory.trust",
    "Imported": "heedful.memory.transfer",
    "Improvement": "heedful.loop.record",
    "Loop": "heedful.loop.record",
    "MaxAttempts": "heedful.loop.stop",
    "Memory": "heedful.memory.memory",
    "Merge": "heedful.memory.templates",
    "Message": "heedful.protocols",
    "Model": "heedful.protocols",
    "NotPassed": "heedful.errors",
    "NothingMet": "heedful.loop.stop",
    "Outcome": "heedful.memory.proof",
    "Override": "heedful.loop.record",
    "Pipeline": "heedful.pipeline",
    "Plateau": "heedful.loop.stop",
    "Policy": "heedful.loop.decide",
    "Prompts": "heedful.memory.prompts",
    "Proof": "heedful.memory.proof",
    "Proposal": "heedful.memory.consolidate",
    "Provenance": "heedful.memory.trust",
    "Quarantine": "heedful.memory.quarantine",
    "Quota": "heedful.memory.trust",
    "Reach": "heedful.loop.reach",
    "Reasoning": "heedful.decisions",
    "Recorded": "heedful.loop.replay",
    "Reflected": "heedful.memory.reflect",
    "Reflection": "heedful.memory.learn",
    "Remembered": "heedful.protocols",
    "Removed": "heedful.memory.trust",
    "Repeat": "heedful.loop.stop",
    "RepeatedStep": "heedful.memory.repeats",
    "Replayed": "heedful.loop.replay",
    "Report": "heedful.store.runs",
    "Result": "heedful.result",
    "Run": "heedful.drive",
    "Scope": "heedful.protocols",
    "Screening": "heedful.memory.screen",
    "Seen": "heedful.lessons",
    "Sighting": "heedful.memory.trust",
    "Signal": "heedful.memory.signal",
    "Signature": "heedful.memory.signature",
    "Spaces": "heedful.memory.places",
    "StageReport": "heedful.store.runs",
    "Standing": "heedful.decisions",
    "Stop": "heedful.loop.stop",
    "StopRule": "heedful.loop.stop",
    "Store": "heedful.protocols",
    "Suspect": "heedful.memory.attribution",
    "Templates": "heedful.memory.templates",
    "Trigger": "heedful.loop.decide",
    "Tuned": "heedful.tuning",
    "Usage": "heedful.protocols",
    "Writer": "heedful.generate",
    "appraise": "heedful.appraising",
    "attribute": "heedful.memory.attribution",
    "compare": "heedful.loop.replay",
    "consolidate": "heedful.memory.dreaming",
    "context": "heedful.usercode",
    "decide": "heedful.loop.decide",
    "episode_of": "heedful.memory.episode",
    "explain": "heedful.loop.explain",
    "keep_dreaming": "heedful.memory.dreaming",
    "open_model": "heedful.models",
    "open_store": "heedful.store",
    "override": "heedful.overrides",
    "policy": "heedful.configured",
    "proof": "heedful.memory.proof",
    "reach": "heedful.loop.reach",
    "reasoning": "heedful.decisions",
    "reflect": "heedful.memory.reflect",
    "reflect_waiting": "heedful.memory.reflect",
    "repeated_step": "heedful.memory.repeats",
    "replay": "heedful.loop.replay",
    "run": "heedful.drive",
    "run_sync": "heedful.portal",
    "screen": "heedful.memory.screen",
    "self_correcting": "heedful.decorator",
    "self_rated": "heedful.memory.drafting",
    "signals": "heedful.memory.signals",
    "signature": "heedful.memory.signature",
    "targeted": "heedful.generate",
    "tune": "heedful.tuning",
}
_ROOMS = {"checks": "heedful.checks", "errors": "heedful.errors", "models": "heedful.models"}
_ROOMS |= {"policies": "heedful.loop.policies", "testing": "heedful.testing"}
_ROOMS |= {"traces": "heedful.traces"}

if TYPE_CHECKING:
    from heedful.pipeline import Guardrails, Pipeline
    from heedful.store.runs import AttemptReport, Checked, Report, StageReport

    __version__: str
    from heedful import checks as checks
    from heedful import errors as errors
    from heedful import models as models
    from heedful import traces as traces
    from heedful.appraising import appraise
    from heedful.client.client import Client
    from heedful.configured import policy
    from heedful.decisions import Decision, Reasoning, Standing, reasoning
    from heedful.decorator import self_correcting
    from heedful.drive import Run, run
    from heedful.errors import HeedfulError, NotPassed
    from heedful.generate import Writer, targeted
    from heedful.lessons import Seen
    from heedful.loop import policies as policies
    from heedful.loop.change import Change
    from heedful.loop.decide import Again, Done, Policy, Trigger, decide
    from heedful.loop.explain import Explanation, explain
    from heedful.loop.reach import Reach, reach
    from heedful.loop.record import (
        Attempt,
        Candidate,
        Evaluation,
        Finding,
        Goal,
        Improvement,
        Loop,
        Override,
    )
    from heedful.loop.replay import Figures, Recorded, Replayed, compare, replay
    from heedful.loop.stop import (
        All,
        Budget,
        Echo,
        Fatigue,
        MaxAttempts,
        NothingMet,
        Plateau,
        Repeat,
        Stop,
        StopRule,
    )
    from heedful.memory.attribution import Attribution, Suspect, attribute
    from heedful.memory.briefing import Briefing
    from heedful.memory.consolidate import Proposal
    from heedful.memory.difference import Difference
    from heedful.memory.drafting import Draft, self_rated
    from heedful.memory.dreaming import Dream, Dreams, consolidate, keep_dreaming
    from heedful.memory.episode import Episode, Event, Fault, episode_of
    from heedful.memory.expected import Expected
    from heedful.memory.grounded import Claim
    from heedful.memory.learn import Example, Reflection
    from heedful.memory.memory import Memory
    from heedful.memory.places import Spaces
    from heedful.memory.prompts import Prompts
    from heedful.memory.proof import Comparison, Effect, Exposure, Outcome, Proof, proof
    from heedful.memory.quarantine import Quarantine
    from heedful.memory.reflect import Reflected, reflect, reflect_waiting
    from heedful.memory.repeats import RepeatedStep, repeated_step
    from heedful.memory.screen import Screening, screen
    from heedful.memory.signal import Signal
    from heedful.memory.signals import signals
    from heedful.memory.signature import Signature, signature
    from heedful.memory.templates import Merge, Templates
    from heedful.memory.transfer import Exported, Imported
    from heedful.memory.trust import Held, Provenance, Quota, Removed, Sighting
    from heedful.models import open_model
    from heedful.overrides import override
    from heedful.portal import run_sync
    from heedful.protocols import (
        Answer,
        Context,
        Embedder,
        Filter,
        Found,
        Message,
        Model,
        Remembered,
        Scope,
        Store,
        Usage,
    )
    from heedful.result import Result
    from heedful.store import open_store
    from heedful.tuning import Tuned, tune
    from heedful.usercode import context

__all__ = [
    "Again",
    "All",
    "Answer",
    "Attempt",
    "AttemptReport",
    "Attribution",
    "Briefing",
    "Budget",
    "Candidate",
    "Change",
    "Checked",
    "Claim",
    "Client",
    "Comparison",
    "Context",
    "Decision",
    "Difference",
    "Done",
    "Draft",
    "Dream",
    "Dreams",
    "Echo",
    "Effect",
    "Embedder",
    "Episode",
    "Evaluation",
    "Event",
    "Example",
    "Expected",
    "Explanation",
    "Exported",
    "Exposure",
    "Fatigue",
    "Fault",
    "Figures",
    "Filter",
    "Finding",
    "Found",
    "Goal",
    "Guardrails",
    "HeedfulError",
    "Held",
    "Imported",
    "Improvement",
    "Loop",
    "MaxAttempts",
    "Memory",
    "Merge",
    "Message",
    "Model",
    "NotPassed",
    "NothingMet",
    "Outcome",
    "Override",
    "Pipeline",
    "Plateau",
    "Policy",
    "Prompts",
    "Proof",
    "Proposal",
    "Provenance",
    "Quarantine",
    "Quota",
    "Reach",
    "Reasoning",
    "Recorded",
    "Reflected",
    "Reflection",
    "Remembered",
    "Removed",
    "Repeat",
    "RepeatedStep",
    "Replayed",
    "Report",
    "Result",
    "Run",
    "Scope",
    "Screening",
    "Seen",
    "Sighting",
    "Signal",
    "Signature",
    "Spaces",
    "StageReport",
    "Standing",
    "Stop",
    "StopRule",
    "Store",
    "Suspect",
    "Templates",
    "Trigger",
    "Tuned",
    "Usage",
    "Writer",
    "appraise",
    "attribute",
    "compare",
    "consolidate",
    "context",
    "decide",
    "episode_of",
    "explain",
    "keep_dreaming",
    "open_model",
    "open_store",
    "override",
    "policy",
    "proof",
    "reach",
    "reasoning",
    "reflect",
    "reflect_waiting",
    "repeated_step",
    "replay",
    "run",
    "run_sync",
    "screen",
    "self_correcting",
    "self_rated",
    "signals",
    "signature",
    "targeted",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in _ROOMS:
        value = import_module(_ROOMS[name])
    elif name == "__version__":
        value = import_module("importlib.metadata").version("heedful")
    else:
        raise AttributeError(f"module 'heedful' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *_ROOMS])
