"""Records of a loop <-> plain JSON data, exact in both directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from heedful.errors import InvalidInput
from heedful.loop.decide import (
    Again,
    Decision,
    Done,
    LiftedStop,
    Policy,
    Standing,
    Trigger,
    Verdict,
)
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
    rule_name,
)

Plain = dict[str, Any]
RULES: Mapping[str, Callable[..., StopRule]] = {
    rule.name: rule for rule in (MaxAttempts, Budget, Echo, Repeat, Fatigue, Plateau, NothingMet)
}


def sparse(record: Any) -> Plain:
    """The fields of a flat dataclass that differ from their defaults, by name."""
    blank = {f.name: f.default for f in fields(record)}
    values = {f.name: getattr(record, f.name) for f in fields(record)}
    return {k: v for k, v in values.items() if v != blank[k]}


def finding_to(finding: Finding) -> Plain:
    """A finding as JSON data."""
    plain = sparse(finding)
    if finding.span is not None:
        plain["span"] = list(finding.span)
    return plain


def finding_from(plain: Mapping[str, Any]) -> Finding:
    """The inverse of `finding_to`."""
    span = plain.get("span")
    return Finding(**{**plain, "span": tuple(span) if span else None})


def evaluation_to(evaluation: Evaluation | None) -> Plain | None:
    """An evaluation as JSON data, None where the attempt was not evaluated."""
    if evaluation is None:
        return None
    findings = [finding_to(f) for f in evaluation.findings]
    plain: Plain = {"findings": findings, "scores": dict(evaluation.scores)}
    if evaluation.usage != Usage():
        plain["usage"] = sparse(evaluation.usage)
    extra = {"preference": evaluation.preference or None, "met": evaluation.met}
    return plain | {name: value for name, value in extra.items() if value is not None}


def evaluation_from(plain: Mapping[str, Any] | None) -> Evaluation | None:
    """The inverse of `evaluation_to`."""
    if plain is None:
        return None
    findings = tuple(map(finding_from, plain["findings"]))
    usage, preference = Usage(**plain.get("usage", {})), plain.get("preference", 0.0)
    return Evaluation(findings, dict(plain["scores"]), usage, preference, plain.get("met"))


def attempt_to(attempt: Attempt) -> Plain:
    """An attempt as JSON data, with its candidate's digest and text."""
    return {
        "number": attempt.number,
        "candidate": sparse(attempt.candidate) | {"digest": attempt.candidate.digest},
        "evaluation": evaluation_to(attempt.evaluation),
        "usage": sparse(attempt.usage),
        "repeats": attempt.repeats,
        **({"labels": dict(attempt.labels)} if attempt.labels else {}),
        **({"greedy": True} if attempt.greedy else {}),
        **({"report": attempt.report} if attempt.report else {}),
        **({"reported_as": attempt.reported_as} if attempt.reported_as else {}),
        **({"judged_by": list(attempt.judged_by)} if attempt.judged_by else {}),
        **({} if attempt.vouched else {"vouched": False}),
    }


def attempt_from(plain: Mapping[str, Any]) -> Attempt:
    """The inverse of `attempt_to`."""
    return Attempt(
        plain["number"],
        Candidate(**plain["candidate"]),
        evaluation_from(plain["evaluation"]),
        Usage(**plain["usage"]),
        plain["repeats"],
        plain.get("labels", {}),
        plain.get("greedy", False),
        plain.get("report", ""),
        plain.get("reported_as", ""),
        tuple(plain.get("judged_by", ())),
        plain.get("vouched", True),
    )


def goal_to(goal: Goal) -> Plain:
    """A goal as JSON data."""
    return asdict(goal)


def goal_from(plain: Mapping[str, Any]) -> Goal:
    """The inverse of `goal_to`."""
    return Goal(**plain)


def override_to(override: Override) -> Plain:
    """An override as JSON data."""
    return asdict(override)


def verdict_to(verdict: Verdict) -> Plain:
    """A verdict as JSON data; `verdict` is "again" or "done"."""
    lifted = [
        {"rule": one.stop.rule, "detail": one.stop.detail, "by": one.by, "override": one.override}
        for one in verdict.lifted
    ]
    if isinstance(verdict, Again):
        reasons = [asdict(r) for r in verdict.reasons]
        return {
            "verdict": "again",
            "reasons": reasons,
            "feedback": verdict.feedback,
            "lifted": lifted,
        }
    return {
        "verdict": "done",
        "best": verdict.best,
        "passed": verdict.passed,
        "stopped_by": [asdict(s) for s in verdict.stopped_by],
        "lifted": lifted,
    }


def verdict_from(plain: Mapping[str, Any]) -> Verdict:
    """The inverse of `verdict_to`."""
    lifted = tuple(
        LiftedStop(Stop(one["rule"], one["detail"]), one["by"], one["override"])
        for one in plain["lifted"]
    )
    if plain["verdict"] == "again":
        reasons = tuple(Trigger(**r) for r in plain["reasons"])
        return Again(reasons, plain["feedback"], lifted)
    stops = tuple(Stop(**s) for s in plain["stopped_by"])
    return Done(plain["best"], plain["passed"], stops, lifted)


def decision_to(verdict: Verdict, standing: Standing | None, decided: float = 0.0) -> Plain:
    """A verdict, how worn the loop was then and when that was, as JSON data."""
    when = {"decided": decided} if decided else {}
    return verdict_to(verdict) | (sparse(standing) if standing is not None else {}) | when


def decision_from(plain: Mapping[str, Any], attempt: int, at: float) -> Decision:
    """The inverse of `decision_to`, with what stands beside it in a store."""
    worn = (plain.get("fatigue", 0.0), plain.get("change", 0.0), plain.get("echoes", {}))
    return Decision(attempt, verdict_from(plain), Standing(*worn), at, plain.get("decided", at))


def rule_to(rule: StopRule) -> Plain:
    """A shipped rule with its settings; of a rule of the user's only the name."""
    if isinstance(rule, All):
        return {"rule": "all", "rules": [rule_to(r) for r in rule.rules]}
    name = rule_name(rule)
    if type(rule) is RULES.get(name):  # not one of the user's own of that name
        return {"rule": name, **asdict(rule)}
    return {"rule": name, "custom": True}


def rule_from(plain: Mapping[str, Any]) -> StopRule:
    """The shipped rule that `plain` describes. Raises InvalidInput naming the rule or field."""
    settings = {k: v for k, v in plain.items() if k != "rule"}
    name = plain.get("rule", "")
    if name == "all":
        return All(*map(rule_from, _rules(settings)))
    if name not in RULES:
        raise InvalidInput("rule", name, f"one of {', '.join(sorted(RULES))}")
    try:
        return RULES[name](**settings)
    except TypeError as error:
        raise InvalidInput(f"rule {name}", settings, f"given known settings ({error})") from error


def policy_to(policy: Policy) -> Plain:
    """A policy as JSON data; rules of the user's are named, not kept."""
    better = policy.improvement if type(policy.improvement) is Improvement else None
    plain: Plain = {
        "name": policy.name,
        "rules": [rule_to(r) for r in policy.rules],
        "min_gain": better.min_gain if better else None,
        "unscored": policy.unscored,
    }
    if better and better.against != "best":
        plain["against"] = better.against
    return plain | ({"goals": list(map(goal_to, policy.goals))} if policy.goals else {})


def policy_from(plain: Mapping[str, Any]) -> Policy:
    """The policy that `plain` describes, without rules that are the user's own code."""
    rules = _rules(plain)
    known = [rule for rule in rules if not _own(rule)]
    none_left = (_silent,) if rules else ()
    return Policy(
        tuple(map(rule_from, known)) or none_left,
        improvement_from(plain),
        plain.get("unscored", "stop"),
        plain.get("name", ""),
        tuple(map(goal_from, plain.get("goals", ()))),
    )


def improvement_from(plain: Mapping[str, Any]) -> Improvement:
    """What counts as improvement under the policy that `plain` describes."""
    gain, against = plain.get("min_gain"), plain.get("against", "best")
    return Improvement(against=against) if gain is None else Improvement(gain, against)


def is_complete(plain: Mapping[str, Any]) -> bool:
    """Whether `policy_from` gives all of the policy: nothing of it is code of the user's own."""
    return plain.get("min_gain") is not None and not any(map(_own, _rules(plain)))


def _rules(plain: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    rules = plain.get("rules")
    if not isinstance(rules, list | tuple):
        raise InvalidInput("rules", rules, "a list of rules")
    return rules


def _own(plain: Mapping[str, Any]) -> bool:
    """Whether code of the user's own is in the rule."""
    return bool(plain.get("custom")) or any(map(_own, plain.get("rules", ())))


def _silent(loop: Loop) -> None:
    """Stands where all rules were the user's own: what they said is in the stored verdict."""
