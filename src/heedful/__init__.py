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
    "Answer": "heedful.models.contract",
    "Attempt": "heedful.loop.record",
    "Briefing": "heedful.lessons.ranking",
    "Budget": "heedful.loop.stop",
    "Candidate": "heedful.loop.record",
    "Change": "heedful.loop.explain",
    "CheckResult": "heedful.store.runs",
    "Claim": "heedful.memory.draft",
    "Client": "heedful.service.client",
    "Comparison": "heedful.lessons.proof",
    "Context": "heedful.checks.evaluate",
    "Decision": "heedful.loop.decide",
    "Difference": "heedful.lessons.words",
    "Done": "heedful.loop.decide",
    "Draft": "heedful.memory.draft",
    "Dream": "heedful.memory.dream",
    "Dreams": "heedful.memory.dream",
    "Echo": "heedful.loop.stop",
    "Effect": "heedful.lessons.proof",
    "Embedder": "heedful.models.contract",
    "Episode": "heedful.traces.episode",
    "Evaluation": "heedful.loop.record",
    "Event": "heedful.traces.episode",
    "Example": "heedful.lessons.lesson",
    "Expected": "heedful.traces.appraisal",
    "Explanation": "heedful.loop.explain",
    "Exported": "heedful.memory.transfer",
    "Exposure": "heedful.lessons.lesson",
    "Fatigue": "heedful.loop.stop",
    "Fault": "heedful.traces.episode",
    "Figures": "heedful.loop.replay",
    "Filter": "heedful.lessons.lesson",
    "Finding": "heedful.loop.record",
    "Found": "heedful.lessons.lesson",
    "Goal": "heedful.loop.record",
    "Guardrails": "heedful.pipeline",
    "HeedfulError": "heedful.errors",
    "Imported": "heedful.memory.transfer",
    "Improvement": "heedful.loop.record",
    "Loop": "heedful.loop.record",
    "MaxAttempts": "heedful.loop.stop",
    "Memory": "heedful.memory.memory",
    "Merge": "heedful.lessons.patterns",
    "Message": "heedful.models.contract",
    "Model": "heedful.models.contract",
    "NotPassed": "heedful.errors",
    "NothingMet": "heedful.loop.stop",
    "Outcome": "heedful.lessons.lesson",
    "Override": "heedful.loop.record",
    "Pipeline": "heedful.pipeline",
    "Plateau": "heedful.loop.stop",
    "Policy": "heedful.loop.decide",
    "Prompts": "heedful.memory.prompts",
    "Proof": "heedful.lessons.proof",
    "Proposal": "heedful.lessons.consolidate",
    "Provenance": "heedful.lessons.trust",
    "Quarantine": "heedful.memory.quarantine",
    "QuarantinedLesson": "heedful.lessons.trust",
    "Quota": "heedful.lessons.trust",
    "Reach": "heedful.loop.reach",
    "Reasoning": "heedful.loop.decide",
    "Recorded": "heedful.loop.replay",
    "Reflected": "heedful.memory.reflect",
    "Reflection": "heedful.lessons.lesson",
    "Remembered": "heedful.lessons.lesson",
    "Repeat": "heedful.loop.stop",
    "RepeatedStep": "heedful.traces.signals",
    "Replayed": "heedful.loop.replay",
    "Report": "heedful.store.runs",
    "Result": "heedful.drive.drive",
    "RevocationResult": "heedful.lessons.trust",
    "Run": "heedful.drive.drive",
    "Scope": "heedful.lessons.lesson",
    "Seen": "heedful.lessons.patterns",
    "Sighting": "heedful.lessons.trust",
    "Signal": "heedful.traces.signals",
    "Signature": "heedful.lessons.lesson",
    "Spaces": "heedful.memory.spaces",
    "StageAttempt": "heedful.store.runs",
    "StageReport": "heedful.store.runs",
    "Standing": "heedful.loop.decide",
    "Stop": "heedful.loop.stop",
    "StopRule": "heedful.loop.stop",
    "Store": "heedful.store.store",
    "Templates": "heedful.lessons.patterns",
    "Trigger": "heedful.loop.decide",
    "Tuned": "heedful.loop.replay",
    "Usage": "heedful.loop.record",
    "Writer": "heedful.drive.generate",
    "appraise": "heedful.traces.appraisal",
    "compare": "heedful.loop.replay",
    "consolidate": "heedful.memory.dream",
    "context": "heedful.checks.evaluate",
    "decide": "heedful.loop.decide",
    "episode_of": "heedful.memory.reflect",
    "explain": "heedful.loop.explain",
    "keep_dreaming": "heedful.memory.dream",
    "open_model": "heedful.models",
    "open_store": "heedful.store",
    "override": "heedful.drive.report",
    "policy": "heedful.loop.policies",
    "proof": "heedful.lessons.proof",
    "reach": "heedful.loop.reach",
    "reasoning": "heedful.loop.decide",
    "reflect": "heedful.memory.reflect",
    "reflect_waiting": "heedful.memory.reflect",
    "repeated_step": "heedful.traces.signals",
    "replay": "heedful.loop.replay",
    "run": "heedful.drive.drive",
    "run_sync": "heedful.drive.portal",
    "self_correcting": "heedful.drive.portal",
    "self_rated": "heedful.memory.draft",
    "signals": "heedful.traces.signals",
    "signature": "heedful.lessons.signature",
    "targeted": "heedful.drive.generate",
    "tune": "heedful.loop.replay",
}
_ROOMS = {"checks": "heedful.checks", "errors": "heedful.errors", "models": "heedful.models"}
_ROOMS |= {"policies": "heedful.loop.policies", "testing": "heedful.testing"}
_ROOMS |= {"traces": "heedful.traces"}

if TYPE_CHECKING:
    from heedful.pipeline import Guardrails, Pipeline
    from heedful.store.runs import CheckResult, Report, StageAttempt, StageReport

    __version__: str
    from heedful import checks as checks
    from heedful import errors as errors
    from heedful import models as models
    from heedful import traces as traces
    from heedful.checks.evaluate import Context, context
    from heedful.drive.drive import Result, Run, run
    from heedful.drive.generate import Writer, targeted
    from heedful.drive.portal import run_sync, self_correcting
    from heedful.drive.report import override
    from heedful.errors import HeedfulError, NotPassed
    from heedful.lessons.consolidate import Proposal
    from heedful.lessons.lesson import (
        Example,
        Exposure,
        Filter,
        Match,
        Outcome,
        Reflection,
        Remembered,
        Scope,
        Signature,
    )
    from heedful.lessons.patterns import Merge, Seen, Templates
    from heedful.lessons.proof import Comparison, Effect, Proof, proof
    from heedful.lessons.ranking import Briefing
    from heedful.lessons.signature import signature
    from heedful.lessons.trust import (
        Provenance,
        QuarantinedLesson,
        Quota,
        RevocationResult,
        Sighting,
    )
    from heedful.lessons.words import Difference
    from heedful.loop import policies as policies
    from heedful.loop.decide import (
        Again,
        Decision,
        Done,
        Policy,
        Reasoning,
        Standing,
        Trigger,
        decide,
        reasoning,
    )
    from heedful.loop.explain import Change, Explanation, explain
    from heedful.loop.policies import policy
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
        Usage,
    )
    from heedful.loop.replay import (
        Figures,
        RecordedLoop,
        ReplayResult,
        TuningResult,
        compare,
        replay,
        tune,
    )
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
    from heedful.memory.draft import Claim, Draft, self_rated
    from heedful.memory.dream import Dream, Dreams, consolidate, keep_dreaming
    from heedful.memory.memory import Memory
    from heedful.memory.prompts import Prompts
    from heedful.memory.quarantine import Quarantine
    from heedful.memory.reflect import Reflected, episode_of, reflect, reflect_waiting
    from heedful.memory.spaces import Spaces
    from heedful.memory.transfer import Exported, Imported
    from heedful.models import open_model
    from heedful.models.contract import Answer, Embedder, Message, Model
    from heedful.service.client import Client
    from heedful.store import open_store
    from heedful.store.store import Store
    from heedful.traces.appraisal import Expected, appraise
    from heedful.traces.episode import Episode, Event, Fault
    from heedful.traces.signals import RepeatedStep, Signal, repeated_step, signals

__all__ = [
    "Again",
    "All",
    "Answer",
    "Attempt",
    "Briefing",
    "Budget",
    "Candidate",
    "Change",
    "CheckResult",
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
    "QuarantinedLesson",
    "Quota",
    "Reach",
    "Reasoning",
    "Recorded",
    "Reflected",
    "Reflection",
    "Remembered",
    "Repeat",
    "RepeatedStep",
    "Replayed",
    "Report",
    "Result",
    "RevocationResult",
    "Run",
    "Scope",
    "Seen",
    "Sighting",
    "Signal",
    "Signature",
    "Spaces",
    "StageAttempt",
    "StageReport",
    "Standing",
    "Stop",
    "StopRule",
    "Store",
    "Templates",
    "Trigger",
    "Tuned",
    "Usage",
    "Writer",
    "appraise",
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
