"""The answers of loop guardrails, in the fields of earlier systems, made from a stored
loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from heedful.loop import codec, decide, record, stop
from heedful.loop.limits import ALIGNMENT_SCORE, DRIFT_SCORE
from heedful.store.loops import BIAS_PREFIX
from heedful.store.records import StoredLoop

RERUN_END_REASONS: Mapping[
    str, str
] = {  # the names of rules in these answers; other rules keep their names
    "attempts": "max_reruns_reached",
    "echo": "bias_echo_detected",
    "fatigue": "fatigue_threshold_exceeded",
}
# The fields of the answers, each of which is in `LoopView.facts` or added by its
# function.
REFLECTION_FIELDS = (
    "alignment_score drift_score summary_valid reflection_persona bias_echo "
    "repeated_tags "
    "repetition_counts reflection_fatigue agent_results"
).split()
DECISION_FIELDS = (
    "decision original_loop_id new_loop_id rerun_reason rerun_reason_detail "
    "rerun_trigger "
    "rerun_number rerun_count max_reruns force_finalize overridden overridden_by"
).split()
STATUS_FIELDS = (
    "loop_id rerun_count max_reruns rerun_limit_reached bias_echo reflection_fatigue "
    "fatigue_threshold_exceeded force_finalize rerun_reason rerun_trigger "
    "alignment_score "
    "drift_score summary_valid reflection_persona"
).split()
LIMIT_FIELDS = "rerun_count max_reruns limit_reached force_finalize overridden overridden_by".split()
TRACE_FIELDS = (
    "loop_id status timestamp rerun_of rerun_depth rerun_count max_reruns bias_echo "
    "repeated_tags "
    "repetition_counts threshold trigger action reflection_fatigue previous_fatigue "
    "fatigue_increment fatigue_increased improvement_detected threshold_exceeded "
    "rerun_reason "
    "rerun_reason_detail rerun_trigger force_finalize overridden_by "
    "orchestrator_persona "
    "reflection_persona"
).split()


class Record(Mapping[str, Any]):
    """A dataclass whose fields are also the keys of a mapping."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __getitem__(self, name: str) -> Any:
        if name not in self.__dataclass_fields__:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dataclass_fields__)

    def __len__(self) -> int:
        return len(self.__dataclass_fields__)


def name_of(stored: StoredLoop, number: int) -> str:
    """Return an existing attempt's name: the loop's id, the reported name, or `ID_r1`,
    `ID_r2` …
    """
    name = stored.loop.attempts[number - 1].reported_as
    return stored.id if number == 1 else name or f"{stored.id}_r{number - 1}"


class LoopView:
    """The latest decision on a stored loop; with `number`, the latest decision about
    that attempt.

    `following` is the name of the next attempt. `facts` has all fields of the answers.
    Before the first decision, values are None, counts are 0 and flags are False.
    """

    def __init__(
        self, stored: StoredLoop, following: str, number: int | None = None
    ) -> None:
        self.stored: StoredLoop = stored
        self.policy: decide.Policy = codec.policy_from(stored.head.policy)
        self.loop: record.Loop = replace(stored.loop, improves=self.policy.improvement)
        decisions = [
            each for each in stored.decisions if number in (None, each.attempt)
        ]
        self.decision: decide.Decision | None = decisions[-1] if decisions else None
        self.number: int = self.decision.attempt if self.decision else number or 0
        verdict = self.decision.verdict if self.decision else None
        self.again: bool = isinstance(verdict, decide.Again)
        stops = verdict.stopped_by if isinstance(verdict, decide.Done) else ()
        self.stopped_by: list[str] = [each.rule for each in stops]
        self._lifted = verdict.lifted if verdict else ()
        self._following = following
        self.facts: dict[str, Any] = {
            **self._limits(),
            **self._wear(),
            **self._judged(),
        }

    def answer(self, fields: Iterable[str], **more: Any) -> dict[str, Any]:
        """Return the facts with these names; those in `more` have priority."""
        facts = self.facts | more
        return {name: facts[name] for name in fields}

    def name(self, number: int) -> str:
        """Return the name of the attempt with this number."""
        return (
            self._following
            if number > len(self.loop.attempts)
            else name_of(self.stored, number)
        )

    def lifted_by(self, rule: str, at: float) -> str:
        """Return the actor who overrode `rule` in this decision or overrides it at
        `at`, or "".
        """
        actors = [lift.by for lift in self._lifted if lift.rule == rule]
        actors += [
            each.by
            for each in self.loop.overrides
            if each.rule == rule and each.lifts(at)
        ]
        return actors[0] if actors else ""

    def _limits(self) -> dict[str, Any]:
        rules = stop.flat(self.policy.rules)
        limits = [
            rule.limit - 1 for rule in rules if isinstance(rule, stop.MaxAttempts)
        ]
        most = min(limits, default=None)
        count = max(0, self.number - 1) + self.again
        reason = ""
        detail = ""
        triggers = []
        for why in decide.reasoning(
            self.loop, [self.decision] if self.decision else []
        ):
            reason = "" if why.decided == "passed" else why.reason
            detail = why.detail
            triggers = list(dict.fromkeys(each.code for each in why.triggers))
            if why.decided == "stopped":
                reason = RERUN_END_REASONS.get(reason, reason)
                detail = f"Forced finalization due to {reason}"
        return {
            "decision": "rerun" if self.again else "finalize",
            "original_loop_id": self.loop.id,
            "new_loop_id": self.name(self.number + 1) if self.again else None,
            "rerun_reason": reason or None,
            "rerun_reason_detail": detail or None,
            "rerun_trigger": triggers,
            "rerun_number": count,
            "rerun_count": count,
            "max_reruns": most,
            "rerun_limit_reached": most is not None and count >= most,
            "force_finalize": bool(self.stopped_by),
            "overridden": bool(self._lifted),
            "overridden_by": ", ".join(dict.fromkeys(lift.by for lift in self._lifted))
            or None,
        }

    def _wear(self) -> dict[str, Any]:
        """Return the fields about repeated bias tags and fatigue (0.0 before the first
        rerun).
        """
        worn = self.decision.standing if self.decision else decide.Standing()
        improved = self.number > 1 and self.loop.improved[self.number - 1]
        tired = fatigue(
            worn.fatigue, round(worn.fatigue - worn.change, 3), self.policy, improved
        )
        most = decide.rule_of(self.policy, stop.Echo).times
        echoes = {
            key.removeprefix(BIAS_PREFIX): n
            for key, n in worn.echoes.items()
            if n >= min(2, most)
        }
        tired["fatigue_threshold_exceeded"] = tired["threshold_exceeded"]
        return {**echo(echoes, most), **tired}

    def _judged(self) -> dict[str, Any]:
        made = self.loop.attempts if self.number else ()
        attempt = made[self.number - 1] if made else None
        evaluation = (attempt and attempt.evaluation) or record.Evaluation()
        scores = {name: float(score) for name, score in evaluation.scores.items()}
        text, labels = (
            (attempt.candidate.text, attempt.labels) if attempt else (None, {})
        )
        biases = [
            each for each in evaluation.findings if each.key.startswith(BIAS_PREFIX)
        ]
        tags = [
            {"tag": one.key.removeprefix(BIAS_PREFIX), "severity": one.severity}
            for one in biases
        ]
        return {
            "alignment_score": scores.get(ALIGNMENT_SCORE),
            "drift_score": scores.get(DRIFT_SCORE),
            # A summary without a score is valid if it is not empty.
            "summary_valid": bool(scores.get("summary_valid", text and text.strip())),
            "agent_results": {
                "pessimist": {"bias_analysis": {"bias_tags_detail": tags}}
            },
            "orchestrator_persona": labels.get("orchestrator_persona"),
            "reflection_persona": labels.get("reflection_persona"),
        }


def fatigue(
    level: float, before: float, policy: decide.Policy, improved: bool
) -> dict[str, Any]:
    """Return the fields about fatigue: its level, its change, and whether it ends the
    loop.
    """
    return {
        "reflection_fatigue": level,
        "previous_fatigue": before,
        "fatigue_increment": round(level - before, 3),
        "fatigue_increased": level > before,
        "improvement_detected": improved,
        "threshold_exceeded": level >= decide.rule_of(policy, stop.Fatigue).limit,
    }


def echo(counts: Mapping[str, int], threshold: int) -> dict[str, Any]:
    """Return the fields about bias tags; a tag that occurs `threshold` times is an
    echo.
    """
    repeated = [tag for tag, times in counts.items() if times >= threshold]
    return {
        "bias_repetition": bool(repeated),
        "repeated_tags": repeated,
        "repetition_counts": dict(counts),
        "threshold": threshold,
        "bias_echo": bool(repeated),
        "trigger": "pessimist" if repeated else None,
        "action": "halt_loop" if repeated else None,
    }
