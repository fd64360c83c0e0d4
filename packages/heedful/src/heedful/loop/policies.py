"""The built-in policies (presets), and policies described as a preset with changes.

Use a preset as it is, or change parts of it with `policy` or `dataclasses.replace`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from heedful.errors import InvalidInput, UnknownName
from heedful.loop import stop
from heedful.loop.codec import rule_from, rule_to, rules_from
from heedful.loop.decide import Policy
from heedful.loop.record import Goal, Improvement
from heedful.loop.stop import STOP_RULES, All, NothingMet, Repeat, StopRule, rule_name
from heedful.validation import Document, Fields, check_integer, check_number, require

ALIGNMENT_SCORE = "alignment"
DRIFT_SCORE = "drift"
# `default` and `thorough` were chosen by replaying 1,476 recorded coding loops; the
# program `bench/quality/stop.py` of the lab prints the results. A loop stops at its
# first repeated candidate if no test passed so far, otherwise at the second, because a
# later attempt rarely passes.
_hopeless = All(Repeat(1, near=False), NothingMet())
default: Policy = Policy((stop.MaxAttempts(4), Repeat(2), _hopeless), name="default")
thorough: Policy = Policy((stop.MaxAttempts(5), Repeat(2, near=False)), name="thorough")
# The limits of orchestrators with reflection guardrails (docs/reference/policies.md).
orchestrator: Policy = Policy(
    (stop.MaxAttempts(4), stop.Fatigue(0.5), stop.Echo(3, across="scope")),
    improvement=Improvement(against="previous"),
    name="orchestrator",
    goals=(Goal(ALIGNMENT_SCORE, 0.75), Goal(DRIFT_SCORE, 0.25, "at_most")),
)
reflection: Policy = Policy(
    (stop.MaxAttempts(3), stop.Plateau(patience=1, floor=0.3)),
    improvement=Improvement(min_gain=0.1),
    name="reflection",
)
stage: Policy = Policy((stop.MaxAttempts(3),), name="stage")
PRESETS = {
    policy.name: policy
    for policy in (default, thorough, orchestrator, reflection, stage)
}


def preset(name: str) -> Policy:
    """Return the preset with this name. Raises UnknownName."""
    if name not in PRESETS:
        raise UnknownName("policy", name, sorted(PRESETS))
    return PRESETS[name]


# What a text or a mapping may set besides the rules: fields of both records.
_POLICY_FIELDS = Policy.__dataclass_fields__.keys() - {"improvement"}
_POLICY_FIELDS |= Improvement.__dataclass_fields__.keys()
# A score, a sign of comparison and a threshold, with or without spaces between them:
# `quality >= 0.8` or `drift≤0.25`.
_GOAL_PATTERN = re.compile(
    r"(?P<score>\S.*?)\s*(?P<sign>>=|<=|≥|≤)\s*(?P<threshold>\S+)"
)


def policy(value: str | Fields | Policy) -> Policy:
    """Return the policy that a text or a mapping describes; return a Policy unchanged.

    A text is the name of a preset and then changes: `thorough, attempts.limit=6,
    fatigue, -repeat, min_gain=0.1, quality >= 0.8`. A mapping may have the keys
    `preset` ("default" if absent), `rules`, `min_gain`, `against`, `unscored`,
    `on_failure`, `goals` and `name`. Another key names a rule; its value maps the
    rule's fields, or is false to remove the rule. Raises UnknownName, InvalidInput.

    >>> policy("default, attempts.limit=6").rules[0]
    MaxAttempts(limit=6)
    >>> policy("on_failure=take over").on_failure
    'take over'
    """
    if isinstance(value, Policy):
        return value

    if isinstance(value, str):
        return _read_policy(value)

    if not isinstance(value, Mapping):
        allowed = 'a preset, text such as "thorough, attempts.limit=6", or an object'
        raise InvalidInput("policy", value, allowed)

    changes = dict(value)
    base = preset(str(changes.pop("preset", "default")))
    return _change_policy(base, changes) if changes else base


def goal(value: Any) -> Goal:
    """Return the goal that a text, or a mapping with the fields of a Goal, describes.

    Raises InvalidInput.

    >>> goal("drift <= 0.25")
    Goal(score='drift', threshold=0.25, direction='at_most')
    """
    allowed = (
        'written like "alignment >= 0.75", or an object with score, threshold, '
        "direction"
    )
    fields: Any = _read_goal(value) if isinstance(value, str) else value
    require(isinstance(fields, Mapping), "a goal", value, allowed)

    score = fields.get("score")
    require(isinstance(score, str) and score, "a goal", value, allowed)
    # In an object the threshold is a number, not text.
    threshold = fields.get("threshold")
    if fields is value and isinstance(threshold, str | bool):
        raise InvalidInput("a goal", value, allowed)

    try:
        return Goal(**{**fields, "threshold": float(threshold)})
    except (TypeError, ValueError, KeyError, UnknownName) as error:
        raise InvalidInput("a goal", value, allowed) from error


def _read_goal(text: str) -> dict[str, str] | None:
    """Return the fields of a goal that is written as a comparison; None for others."""
    match = _GOAL_PATTERN.fullmatch(text.strip())
    if match is None:
        return None

    direction = "at_least" if match["sign"] in (">=", "≥") else "at_most"
    return {
        "score": match["score"],
        "threshold": match["threshold"],
        "direction": direction,
    }


def _read_policy(text: str) -> Policy:
    """Return the policy that a text describes: a preset, then changes.

    A text that begins with a change changes the default preset.
    """
    head, *parts = (part.strip() for part in text.split(","))
    if set("=<>≤≥") & set(head):
        parts.insert(0, head)
        head = "default"

    base = preset(head)

    changes: Document = {}
    goals = []
    for part in parts:
        name, equals, literal = (piece.strip() for piece in part.partition("="))
        rule, dot, field = name.partition(".")

        # Every part with another sign of comparison is a goal, even a malformed one.
        # Among the other parts, "-repeat" removes a rule, "repeat" adds it,
        # "repeat.times=3" changes one of its settings, and "attempts=5" sets a value.
        if set("<>≤≥") & set(name):
            goals.append(part)
        elif not equals and name.startswith("-"):
            changes[name.removeprefix("-")] = False
        elif not equals:
            changes[name] = changes.get(rule) or True
        elif dot:
            settings = changes.get(rule)
            if not isinstance(settings, dict):
                settings = {}
            changes[rule] = settings | {field: _read_literal(literal)}
        else:
            changes[name] = _read_literal(literal)

    if goals:
        changes.setdefault("goals", goals)

    return _change_policy(base, {"name": text.strip(), **changes}) if changes else base


def _read_literal(text: str) -> Any:
    """Parse a text as JSON; return any other text as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _change_policy(base: Policy, changes: Fields) -> Policy:
    """Return the policy `base` with these changes, as `policy` describes them.

    A new goal replaces the goal with its score and direction. Raises InvalidInput,
    UnknownName.
    """
    rules = rules_from(changes) if "rules" in changes else base.rules
    for rule, value in changes.items():
        if rule not in _POLICY_FIELDS:
            rules = _with_rule(rules, rule, value)

    goals = base.goals
    if "goals" in changes:
        goal_texts = changes["goals"]
        allowed = 'a list such as ["alignment >= 0.75"]'
        require(isinstance(goal_texts, list | tuple), "goals", goal_texts, allowed)
        new_goals = tuple(map(goal, goal_texts))
        replaced = {(goal.score, goal.direction) for goal in new_goals}
        others = [
            goal for goal in goals if (goal.score, goal.direction) not in replaced
        ]
        goals = (*others, *new_goals)

    gains = {
        field: changes[field] for field in ("min_gain", "against") if field in changes
    }

    name = changes.get("name", "")
    require(isinstance(name, str), "name", name, "text")
    return Policy(
        rules,
        replace(base.improvement, **gains),
        unscored=changes.get("unscored", base.unscored),
        name=name,
        goals=goals,
        on_failure=changes.get("on_failure", base.on_failure),
    )


def limit_attempts(policy: Policy, most: int) -> Policy:
    """Return the policy with a limit of `most` attempts, the first one included.

    Raises InvalidInput.
    """
    check_integer("max_attempts", most)
    return replace(
        policy,
        rules=_with_rule(policy.rules, "attempts", {"limit": most}),
        name=f"{policy.name}, attempts.limit={most}",
    )


def _with_rule(
    rules: tuple[StopRule, ...], name: str, value: Any
) -> tuple[StopRule, ...]:
    """Remove the rule called `name` if `value` is False, else change it or add it."""
    names = [rule_name(rule) for rule in rules]
    if value is False and (name in names or name in STOP_RULES):
        return tuple(rule for rule in rules if rule_name(rule) != name)

    if name not in STOP_RULES:
        valid_names = {*STOP_RULES, *names, *_POLICY_FIELDS} - {"rules"}
        raise UnknownName("rule or field of a policy", name, sorted(valid_names))

    allowed = (
        f"an object with the rule's fields, true or false; as text {name}, -{name}, or "
        "with a field, as in attempts.limit=2"
    )
    require(value is True or isinstance(value, Mapping), name, value, allowed)
    settings: Fields = {} if value is True else value
    if name not in names:
        return (*rules, rule_from({"rule": name, **settings}))

    return tuple(
        rule_from({**rule_to(rule), **settings}) if rule_name(rule) == name else rule
        for rule in rules
    )


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """The limits that decide when a loop runs again and when it must end.

    A loop passes if its alignment is at least `alignment_threshold` and its drift at
    most `drift_threshold`. It ends after `max_reruns` reruns, after
    `bias_repetition_threshold` occurrences of a bias tag, or when its fatigue reaches
    the lower of `fatigue_threshold` and `critical_threshold`. A rerun in which no score
    improves by `improvement_threshold` adds `base_increment` to the fatigue, up to
    `max_fatigue`; others subtract `decay_rate`. Raises InvalidInput.
    """

    alignment_threshold: float = 0.75
    drift_threshold: float = 0.25
    max_reruns: int = 3
    fatigue_threshold: float = 0.5
    bias_repetition_threshold: int = 3
    base_increment: float = 0.15
    improvement_threshold: float = 0.05
    decay_rate: float = 0.05
    critical_threshold: float = 0.5
    max_fatigue: float = 1.0

    def __post_init__(self) -> None:
        check_integer("max_reruns", self.max_reruns, least=0)
        check_integer("bias_repetition_threshold", self.bias_repetition_threshold)

        for name in ("alignment_threshold", "drift_threshold", "decay_rate"):
            check_number(name, getattr(self, name), low=0, high=1)
        check_number("base_increment", self.base_increment, low=0.001, high=1)
        for name in ("improvement", "fatigue", "critical"):
            threshold = getattr(self, f"{name}_threshold")
            check_number(f"{name}_threshold", threshold, low=0.001, high=1)
        check_number("max_fatigue", self.max_fatigue, self.fatigue_limit, high=1)

    @property
    def fatigue_limit(self) -> float:
        """The fatigue that ends a loop: the lower of the two thresholds."""
        return min(self.fatigue_threshold, self.critical_threshold)

    @property
    def policy(self) -> Policy:
        """The policy with these limits; with default limits, the preset
        `orchestrator`.
        """
        rules = (
            stop.MaxAttempts(self.max_reruns + 1),
            stop.Fatigue(
                limit=self.fatigue_limit,
                increment=self.base_increment,
                decay=self.decay_rate,
                most=self.max_fatigue,
            ),
            stop.Echo(self.bias_repetition_threshold, across="scope"),
        )
        goals = (
            Goal(ALIGNMENT_SCORE, self.alignment_threshold),
            Goal(DRIFT_SCORE, self.drift_threshold, "at_most"),
        )
        improvement = Improvement(self.improvement_threshold, "previous")
        return Policy(rules, improvement, name="orchestrator", goals=goals)
