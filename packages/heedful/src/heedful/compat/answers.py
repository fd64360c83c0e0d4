"""The answers of loop guardrails, in the fields of earlier systems.

Each answer is a selection of the facts about one decision on a stored loop. The facts
have the names that callers read, so an answer is only a list of names.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

from heedful.loop import codec, decide, record, stop
from heedful.loop.policies import ALIGNMENT_SCORE, DRIFT_SCORE
from heedful.store.loops import NOTED_FINDING_PREFIX as BIAS_PREFIX
from heedful.store.records import StoredLoop

# The names of rules in these answers; other rules keep their names.
RERUN_END_REASONS: Mapping[str, str] = {
    "attempts": "max_reruns_reached",
    "echo": "bias_echo_detected",
    "fatigue": "fatigue_threshold_exceeded",
}
# Who overrides a limit if the caller does not say; answers name nobody then.
UNNAMED_ACTOR = "unnamed"
# The names of the fields of each answer. Each field is in `LoopView.facts`, or the
# function that gives the answer adds it.
REFLECTION_FIELDS = """
    alignment_score drift_score summary_valid reflection_persona bias_echo repeated_tags
    repetition_counts reflection_fatigue agent_results
""".split()
DECISION_FIELDS = """
    decision original_loop_id new_loop_id rerun_reason rerun_reason_detail rerun_trigger
    rerun_number rerun_count max_reruns force_finalize overridden overridden_by
""".split()
STATUS_FIELDS = """
    loop_id rerun_count max_reruns rerun_limit_reached bias_echo reflection_fatigue
    fatigue_threshold_exceeded force_finalize rerun_reason rerun_trigger alignment_score
    drift_score summary_valid reflection_persona
""".split()
TRACE_FIELDS = """
    loop_id status timestamp rerun_of rerun_depth rerun_count max_reruns bias_echo
    repeated_tags repetition_counts threshold trigger action reflection_fatigue
    previous_fatigue fatigue_increment fatigue_increased improvement_detected
    threshold_exceeded rerun_reason rerun_reason_detail rerun_trigger force_finalize
    overridden_by orchestrator_persona reflection_persona
""".split()


class Records(list[dict[str, Any]]):
    """The records that a query found.

    `silence` is "" if there are records. Otherwise, it says why the nearest lesson is
    missing, and which command changes that.
    """

    def __init__(self, records: Iterable[dict[str, Any]], silence: str) -> None:
        super().__init__(records)
        self.silence = silence


class Record(Mapping[str, Any]):
    """A dataclass whose fields are also the keys of a mapping."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @classmethod
    def fields_in(cls, value: object) -> dict[str, Any]:
        """Return the fields that a mapping or an object has, by their names."""
        names = cls.__dataclass_fields__
        if isinstance(value, Mapping):
            return {name: value[name] for name in names if name in value}
        return {name: getattr(value, name) for name in names if hasattr(value, name)}

    def __getitem__(self, name: str) -> Any:
        if name not in self.__dataclass_fields__:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dataclass_fields__)

    def __len__(self) -> int:
        return len(self.__dataclass_fields__)


def name_of(stored: StoredLoop, number: int) -> str:
    """Return the name of a stored attempt.

    Attempt 1 has the loop's id, any other its reported name, else `ID_r1`, `ID_r2` …
    """
    if number == 1:
        return stored.id
    reported_name = stored.loop.attempts[number - 1].reported_as
    return reported_name or f"{stored.id}_r{number - 1}"


def named_actor(actor: str) -> str | None:
    """Return who overrode a limit; None if the caller did not say."""
    return actor if actor not in ("", UNNAMED_ACTOR) else None


class LoopView:
    """The latest decision on a stored loop, with all fields of the answers as `facts`.

    With `number`, it is the latest decision about that attempt. `following` is the name
    of the next attempt. Before the first decision, `decision` is "finalize", counts are
    0, flags are False, lists are empty, and what only a decision can give is None.
    """

    def __init__(
        self, stored: StoredLoop, following: str, number: int | None = None
    ) -> None:
        self.stored: StoredLoop = stored
        self._following = following
        self.policy: decide.Policy = codec.policy_from(stored.head.policy)
        self.loop: record.Loop = replace(stored.loop, improves=self.policy.improvement)

        self.decision: decide.Decision | None = None
        for decision in stored.decisions:
            if number is None or decision.attempt == number:
                self.decision = decision

        self.number: int = number or 0
        verdict: decide.Verdict | None = None
        if self.decision is not None:
            self.number = self.decision.attempt
            verdict = self.decision.verdict

        self.again: bool = isinstance(verdict, decide.Again)
        self.stopped_by: list[str] = []
        if isinstance(verdict, decide.Done):
            self.stopped_by = [rule_stop.rule for rule_stop in verdict.stopped_by]
        self._lifted_stops = verdict.lifted if verdict else ()

        self.facts: dict[str, Any] = {
            **self._decision_facts(),
            **self._reason_facts(),
            **self._echo_and_fatigue_facts(),
            **self._evaluation_facts(),
        }

    def answer(
        self, fields: Iterable[str], more: Mapping[str, Any] = MappingProxyType({})
    ) -> dict[str, Any]:
        """Return the facts with these names; those in `more` have priority."""
        facts = self.facts | dict(more)
        return {name: facts[name] for name in fields}

    def name(self, number: int) -> str:
        """Return the name of the attempt with this number."""
        if number > len(self.loop.attempts):
            return self._following
        return name_of(self.stored, number)

    def lifted_by(self, rule: str, at: float) -> str:
        """Return who overrode `rule` in this decision.

        If nobody did, returns who overrides it at the time `at`, "" for nobody.
        """
        for lifted_stop in self._lifted_stops:
            if lifted_stop.rule == rule:
                return lifted_stop.by

        for override in self.loop.overrides:
            if override.rule == rule and override.lifts(at):
                return override.by

        return ""

    def _decision_facts(self) -> dict[str, Any]:
        """Return what was decided, the number of reruns, and who overrode a limit."""
        rerun_limits = [
            rule.limit - 1
            for rule in stop.flat(self.policy.rules)
            if isinstance(rule, stop.MaxAttempts)
        ]
        max_reruns = min(rerun_limits, default=None)

        rerun_count = max(0, self.number - 1)
        next_name = None
        if self.again:
            # The rerun that was decided counts, too.
            rerun_count += 1
            next_name = self.name(self.number + 1)

        actors = dict.fromkeys(lifted_stop.by for lifted_stop in self._lifted_stops)

        return {
            "decision": "rerun" if self.again else "finalize",
            "original_loop_id": self.loop.id,
            "new_loop_id": next_name,
            "rerun_number": rerun_count,
            "rerun_count": rerun_count,
            "max_reruns": max_reruns,
            "rerun_limit_reached": max_reruns is not None and rerun_count >= max_reruns,
            "force_finalize": bool(self.stopped_by),
            "overridden": bool(self._lifted_stops),
            "overridden_by": ", ".join(filter(None, map(named_actor, actors))) or None,
        }

    def _reason_facts(self) -> dict[str, Any]:
        """Return why the loop runs again or ended, and what triggered the decision."""
        reason = ""
        detail = ""
        codes: dict[str, None] = {}
        if self.decision is not None:
            (why,) = decide.reasoning(self.loop, [self.decision])
            codes = dict.fromkeys(trigger.code for trigger in why.triggers)
            detail = why.detail
            if why.decided != "passed":
                reason = why.reason
            if why.decided == "stopped":
                reason = RERUN_END_REASONS.get(reason, reason)
                detail = f"Forced finalization due to {reason}"

        return {
            "rerun_reason": reason or None,
            "rerun_reason_detail": detail or None,
            "rerun_trigger": list(codes),
        }

    def _echo_and_fatigue_facts(self) -> dict[str, Any]:
        """Return the fields of `echo_fields` and of `fatigue_fields`."""
        standing = self.decision.standing if self.decision else decide.Standing()
        fatigue = fatigue_fields(
            standing.fatigue,
            before=round(standing.fatigue - standing.change, 3),
            policy=self.policy,
            improved=self.number > 1 and self.loop.improved[self.number - 1],
        )

        threshold = decide.rule_of(self.policy, stop.Echo).times
        # A bias tag that occurred once is listed only if the first is an echo already.
        min_times = min(2, threshold)
        counts = {
            key.removeprefix(BIAS_PREFIX): times
            for key, times in standing.echoes.items()
            if times >= min_times
        }

        return {
            **echo_fields(counts, threshold),
            **fatigue,
            "fatigue_threshold_exceeded": fatigue["threshold_exceeded"],
        }

    def _evaluation_facts(self) -> dict[str, Any]:
        """Return the scores, the bias tags and the personas of the decided attempt."""
        evaluation = record.Evaluation()
        text: str | None = None
        labels: Mapping[str, str] = {}
        if self.number and self.loop.attempts:
            attempt = self.loop.attempts[self.number - 1]
            evaluation = attempt.evaluation or evaluation
            text = attempt.candidate.text
            labels = attempt.labels

        scores = {name: float(score) for name, score in evaluation.scores.items()}
        bias_tags = [
            {"tag": finding.key.removeprefix(BIAS_PREFIX), "severity": finding.severity}
            for finding in evaluation.findings
            if finding.key.startswith(BIAS_PREFIX)
        ]
        # A summary without a score is valid if it is not empty.
        has_text = bool(text and text.strip())
        summary_valid = bool(scores.get("summary_valid", has_text))

        return {
            "alignment_score": scores.get(ALIGNMENT_SCORE),
            "drift_score": scores.get(DRIFT_SCORE),
            "summary_valid": summary_valid,
            "agent_results": {
                "pessimist": {"bias_analysis": {"bias_tags_detail": bias_tags}}
            },
            "orchestrator_persona": labels.get("orchestrator_persona"),
            "reflection_persona": labels.get("reflection_persona"),
        }


def fatigue_fields(
    level: float, before: float, policy: decide.Policy, improved: bool
) -> dict[str, Any]:
    """Return the fields about fatigue: its level, and its change since `before`.

    `threshold_exceeded` says whether the level reaches the limit of the policy.
    """
    return {
        "reflection_fatigue": level,
        "previous_fatigue": before,
        "fatigue_increment": round(level - before, 3),
        "fatigue_increased": level > before,
        "improvement_detected": improved,
        "threshold_exceeded": level >= decide.rule_of(policy, stop.Fatigue).limit,
    }


def echo_fields(counts: Mapping[str, int], threshold: int) -> dict[str, Any]:
    """Return the fields about bias tags.

    `counts` says how many attempts had each tag; from `threshold` on, it is an echo.
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
