"""The answers of loop guardrails, in the fields of earlier systems.

Each answer joins groups of facts about one decision on a stored loop. The facts have
the names that callers read.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from heedful.loop import codec, decide, record, stop
from heedful.loop.policies import ALIGNMENT_SCORE, DRIFT_SCORE
from heedful.store.loops import NOTED_FINDING_PREFIX as BIAS_PREFIX
from heedful.store.records import StoredLoop
from heedful.validation import Document, Fields

# The names of rules in these answers; other rules keep their names.
RERUN_END_REASONS: Mapping[str, str] = {
    "attempts": "max_reruns_reached",
    "echo": "bias_echo_detected",
    "fatigue": "fatigue_threshold_exceeded",
}
# Who overrides a limit if the caller does not say; answers name nobody then.
UNNAMED_ACTOR = "unnamed"


class Records(list[Document]):
    """The records that a query found.

    `silence` is "" if there are records. Otherwise, it says why the nearest lesson is
    missing, and which command changes that.
    """

    def __init__(self, records: Iterable[Document], silence: str) -> None:
        super().__init__(records)
        self.silence = silence


class Record(Fields):
    """A dataclass whose fields are also the keys of a mapping."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[Document]

    @classmethod
    def fields_in(cls, value: object) -> Document:
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


def select(fields: Fields, *names: str) -> Document:
    """Return the fields with these names."""
    return {name: fields[name] for name in names}


def select_echo(fields: Fields) -> Document:
    """Return the fields of `echo_fields` that a reflection has."""
    return select(fields, "bias_echo", "repeated_tags", "repetition_counts")


class LoopView:
    """The latest decision on a stored loop, with the fields of the answers in groups.

    With `number`, it is the latest decision about that attempt. `following` is the name
    of the next attempt. Before the first decision, `decision` is "finalize", counts are
    0, flags are False, lists are empty, and what only a decision can give is None.
    """

    def __init__(
        self, stored: StoredLoop, following: str, number: int | None = None
    ) -> None:
        self.stored = stored
        self._following = following
        self.policy = codec.policy_from(stored.head.policy)
        self.loop = replace(stored.loop, improves=self.policy.improvement)

        self.decision: decide.Decision | None = None
        for decision in stored.decisions:
            if number is None or decision.attempt == number:
                self.decision = decision

        self.number = number or 0
        verdict: decide.Verdict | None = None
        if self.decision is not None:
            self.number = self.decision.attempt
            verdict = self.decision.verdict

        self.again = isinstance(verdict, decide.Again)
        self.stopped_by: list[str] = []
        self._best: int | None = None
        if isinstance(verdict, decide.Done):
            self.stopped_by = [rule_stop.rule for rule_stop in verdict.stopped_by]
            self._best = verdict.best if self.stopped_by else None
        self._lifted_stops = verdict.lifted if verdict else ()

        # A rerun that was only requested has no attempt yet.
        attempts = self.loop.attempts[self.number - 1 : self.number]
        self.attempt = attempts[0] if attempts else None
        self.labels: Mapping[str, str] = self.attempt.labels if self.attempt else {}

        self._standing = self.decision.standing if self.decision else decide.Standing()

    def name(self, number: int) -> str:
        """Return the name of the attempt with this number."""
        if number > len(self.loop.attempts):
            return self._following
        return name_of(self.stored, number)

    def limit_lifted_by(self, at: float) -> str:
        """Return who overrode the limit of reruns in this decision.

        If nobody did, returns who overrides it at the time `at`, "" for nobody.
        """
        for lifted_stop in self._lifted_stops:
            if lifted_stop.rule == "attempts":
                return lifted_stop.by

        for override in self.loop.overrides:
            if override.rule == "attempts" and override.lifts(at):
                return override.by

        return ""

    @cached_property
    def decided(self) -> Document:
        """What was decided and why, the number of reruns, and who overrode a limit.

        If a rule ended the loop, `best_loop_id` is the name of its best attempt.
        """
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
        best = {}
        if self._best is not None:
            best["best_loop_id"] = self.name(self._best)

        return {
            "decision": "rerun" if self.again else "finalize",
            "original_loop_id": self.loop.id,
            "new_loop_id": next_name,
            **self.reasons,
            "rerun_number": rerun_count,
            "rerun_count": rerun_count,
            "max_reruns": max_reruns,
            "force_finalize": bool(self.stopped_by),
            "overridden": bool(self._lifted_stops),
            "overridden_by": ", ".join(filter(None, map(named_actor, actors))) or None,
            **best,
        }

    @property
    def is_at_limit(self) -> bool:
        """True if the loop has used up its reruns."""
        max_reruns = self.decided["max_reruns"]
        return max_reruns is not None and self.decided["rerun_count"] >= max_reruns

    @property
    def reasons(self) -> Document:
        """Why the loop runs again or ended, and what triggered the decision."""
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

    @property
    def fatigue(self) -> Document:
        """The fields of `fatigue_fields`."""
        return fatigue_fields(
            self._standing.fatigue,
            before=round(self._standing.fatigue - self._standing.change, 3),
            policy=self.policy,
            improved=self.number > 1 and self.loop.improved[self.number - 1],
        )

    @property
    def echo(self) -> Document:
        """The fields of `echo_fields`."""
        threshold = decide.rule_of(self.policy, stop.Echo).times
        # A bias tag that occurred once is listed only if the first is an echo already.
        min_times = min(2, threshold)
        counts = {
            key.removeprefix(BIAS_PREFIX): times
            for key, times in self._standing.echoes.items()
            if times >= min_times
        }

        return echo_fields(counts, threshold)

    @property
    def evaluation(self) -> record.Evaluation:
        """The evaluation of the decided attempt, empty without one."""
        evaluation = self.attempt.evaluation if self.attempt else None
        return evaluation or record.Evaluation()

    @property
    def bias_tags(self) -> list[Document]:
        """The bias tags of the decided attempt."""
        return [
            bias_tag(finding)
            for finding in self.evaluation.findings
            if finding.key.startswith(BIAS_PREFIX)
        ]

    @property
    def scores(self) -> Document:
        """The scores of the decided attempt, and the persona that gave them."""
        evaluation = self.evaluation
        scores = {name: float(score) for name, score in evaluation.scores.items()}
        # A summary without a score is valid if it is not empty.
        text = self.attempt.candidate.text if self.attempt else None
        has_text = bool(text and text.strip())
        summary_valid = bool(scores.get("summary_valid", has_text))

        return {
            "alignment_score": scores.get(ALIGNMENT_SCORE),
            "drift_score": scores.get(DRIFT_SCORE),
            "summary_valid": summary_valid,
            "reflection_persona": self.labels.get("reflection_persona"),
        }


def bias_tag(finding: record.Finding) -> Document:
    """Return the bias tag of a finding."""
    tag = finding.key.removeprefix(BIAS_PREFIX)
    return {"tag": tag, "severity": finding.severity}


def fatigue_fields(
    level: float, before: float, policy: decide.Policy, improved: bool
) -> Document:
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


def echo_fields(counts: Mapping[str, int], threshold: int) -> Document:
    """Return the fields about bias tags.

    `counts` says how many attempts had each tag; from `threshold` on, it is an echo.
    """
    repeated = [tag for tag, times in counts.items() if times >= threshold]
    return {
        "repeated_tags": repeated,
        "repetition_counts": dict(counts),
        "threshold": threshold,
        "bias_echo": bool(repeated),
        "trigger": "pessimist" if repeated else None,
        "action": "halt_loop" if repeated else None,
    }
