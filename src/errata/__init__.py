"""errata: the reflection engine for LLM agents and pipelines.

It knows when an agent should think again, when it must stop, and that the same mistake is not made
twice.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Where each public name lives. A name is imported when it is first used, so that `import errata`
# costs next to nothing.
_HOMES = {
    "Again": "errata.loop.decide",
    "All": "errata.loop.stop",
    "Answer": "errata.protocols",
    "Attempt": "errata.loop.record",
    "AttemptReport": "errata.reports",
    "Attribution": "errata.memory.attribution",
    "Briefing": "errata.memory.briefing",
    "Budget": "errata.loop.stop",
    "Candidate": "errata.loop.record",
    "Change": "errata.loop.change",
    "Checked": "errata.reports",
    "Claim": "errata.memory.grounded",
    "Client": "errata.client.client",
    "Comparison": "errata.memory.proof",
    "Context": "errata.protocols",
    "Decision": "errata.decisions",
    "Difference": "errata.memory.difference",
    "Done": "errata.loop.decide",
    "Draft": "errata.memory.drafting",
    "Dream": "errata.memory.dreaming",
    "Dreams": "errata.memory.dreaming",
    "Echo": "errata.loop.stop",
    "Effect": "errata.memory.proof",
    "Embedder": "errata.protocols",
    "Episode": "errata.memory.episode",
    "ErrataError": "errata.errors",
    "Evaluation": "errata.loop.record",
    "Event": "errata.memory.episode",
    "Example": "errata.memory.learn",
    "Expected": "errata.memory.expected",
    "Explanation": "errata.loop.explain",
    "Exported": "errata.memory.transfer",
    "Exposure": "errata.memory.proof",
    "Fatigue": "errata.loop.stop",
    "Fault": "errata.memory.episode",
    "Figures": "errata.loop.replay",
    "Filter": "errata.protocols",
    "Finding": "errata.loop.record",
    "Found": "errata.protocols",
    "Goal": "errata.loop.record",
    "Guardrails": "errata.guardrails",
    "Held": "errata.memory.trust",
    "Imported": "errata.memory.transfer",
    "Improvement": "errata.loop.record",
    "Loop": "errata.loop.record",
    "MaxAttempts": "errata.loop.stop",
    "Memory": "errata.memory.memory",
    "Merge": "errata.memory.templates",
    "Message": "errata.protocols",
    "Model": "errata.protocols",
    "NotPassed": "errata.errors",
    "NothingMet": "errata.loop.stop",
    "Outcome": "errata.memory.proof",
    "Override": "errata.loop.record",
    "Pipeline": "errata.pipeline",
    "Plateau": "errata.loop.stop",
    "Policy": "errata.loop.decide",
    "Prompts": "errata.memory.prompts",
    "Proof": "errata.memory.proof",
    "Proposal": "errata.memory.consolidate",
    "Provenance": "errata.memory.trust",
    "Quarantine": "errata.memory.quarantine",
    "Quota": "errata.memory.trust",
    "Reach": "errata.loop.reach",
    "Reasoning": "errata.decisions",
    "Recorded": "errata.loop.replay",
    "Reflected": "errata.memory.reflect",
    "Reflection": "errata.memory.learn",
    "Remembered": "errata.protocols",
    "Removed": "errata.memory.trust",
    "Repeat": "errata.loop.stop",
    "RepeatedStep": "errata.memory.repeats",
    "Replayed": "errata.loop.replay",
    "Report": "errata.reports",
    "Result": "errata.result",
    "Run": "errata.drive",
    "Scope": "errata.protocols",
    "Screening": "errata.memory.screen",
    "Seen": "errata.lessons",
    "Sighting": "errata.memory.trust",
    "Signal": "errata.memory.signal",
    "Signature": "errata.memory.signature",
    "Spaces": "errata.memory.places",
    "StageReport": "errata.reports",
    "Standing": "errata.decisions",
    "Stop": "errata.loop.stop",
    "StopRule": "errata.loop.stop",
    "Store": "errata.protocols",
    "Suspect": "errata.memory.attribution",
    "Templates": "errata.memory.templates",
    "Trigger": "errata.loop.decide",
    "Tuned": "errata.tuning",
    "Usage": "errata.protocols",
    "Writer": "errata.generate",
    "appraise": "errata.appraising",
    "attribute": "errata.memory.attribution",
    "compare": "errata.loop.replay",
    "consolidate": "errata.memory.dreaming",
    "context": "errata.usercode",
    "decide": "errata.loop.decide",
    "episode_of": "errata.memory.episode",
    "explain": "errata.loop.explain",
    "keep_dreaming": "errata.memory.dreaming",
    "open_model": "errata.models",
    "open_store": "errata.store",
    "override": "errata.overrides",
    "policy": "errata.configured",
    "proof": "errata.memory.proof",
    "reach": "errata.loop.reach",
    "reasoning": "errata.decisions",
    "reflect": "errata.memory.reflect",
    "reflect_waiting": "errata.memory.reflect",
    "repeated_step": "errata.memory.repeats",
    "replay": "errata.loop.replay",
    "run": "errata.drive",
    "run_sync": "errata.portal",
    "screen": "errata.memory.screen",
    "self_correcting": "errata.decorator",
    "self_rated": "errata.memory.drafting",
    "signals": "errata.memory.signals",
    "signature": "errata.memory.signature",
    "targeted": "errata.generate",
    "tune": "errata.tuning",
}
_ROOMS = {"checks": "errata.checks", "errors": "errata.errors", "models": "errata.models"}
_ROOMS |= {"policies": "errata.loop.policies", "testing": "errata.testing"}
_ROOMS |= {"traces": "errata.traces"}

if TYPE_CHECKING:
    from errata.guardrails import Guardrails
    from errata.pipeline import Pipeline
    from errata.reports import AttemptReport, Checked, Report, StageReport

    __version__: str
    from errata import checks as checks
    from errata import errors as errors
    from errata import models as models
    from errata import traces as traces
    from errata.appraising import appraise
    from errata.client.client import Client
    from errata.configured import policy
    from errata.decisions import Decision, Reasoning, Standing, reasoning
    from errata.decorator import self_correcting
    from errata.drive import Run, run
    from errata.errors import ErrataError, NotPassed
    from errata.generate import Writer, targeted
    from errata.lessons import Seen
    from errata.loop import policies as policies
    from errata.loop.change import Change
    from errata.loop.decide import Again, Done, Policy, Trigger, decide
    from errata.loop.explain import Explanation, explain
    from errata.loop.reach import Reach, reach
    from errata.loop.record import (
        Attempt,
        Candidate,
        Evaluation,
        Finding,
        Goal,
        Improvement,
        Loop,
        Override,
    )
    from errata.loop.replay import Figures, Recorded, Replayed, compare, replay
    from errata.loop.stop import (
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
    from errata.memory.attribution import Attribution, Suspect, attribute
    from errata.memory.briefing import Briefing
    from errata.memory.consolidate import Proposal
    from errata.memory.difference import Difference
    from errata.memory.drafting import Draft, self_rated
    from errata.memory.dreaming import Dream, Dreams, consolidate, keep_dreaming
    from errata.memory.episode import Episode, Event, Fault, episode_of
    from errata.memory.expected import Expected
    from errata.memory.grounded import Claim
    from errata.memory.learn import Example, Reflection
    from errata.memory.memory import Memory
    from errata.memory.places import Spaces
    from errata.memory.prompts import Prompts
    from errata.memory.proof import Comparison, Effect, Exposure, Outcome, Proof, proof
    from errata.memory.quarantine import Quarantine
    from errata.memory.reflect import Reflected, reflect, reflect_waiting
    from errata.memory.repeats import RepeatedStep, repeated_step
    from errata.memory.screen import Screening, screen
    from errata.memory.signal import Signal
    from errata.memory.signals import signals
    from errata.memory.signature import Signature, signature
    from errata.memory.templates import Merge, Templates
    from errata.memory.transfer import Exported, Imported
    from errata.memory.trust import Held, Provenance, Quota, Removed, Sighting
    from errata.models import open_model
    from errata.overrides import override
    from errata.portal import run_sync
    from errata.protocols import (
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
    from errata.result import Result
    from errata.store import open_store
    from errata.tuning import Tuned, tune
    from errata.usercode import context

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
    "ErrataError",
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
        value = import_module("importlib.metadata").version("errata")
    else:
        raise AttributeError(f"module 'errata' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *_ROOMS])
