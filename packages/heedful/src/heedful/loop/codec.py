"""Convert records of a loop to JSON data and back, without loss except for user code.

`to_document` and `from_document` use the fields of the dataclasses. A document omits
fields that have their default value, except fields in `_REQUIRED_FIELDS`. Documents of
verdicts and rules also say which verdict or rule it is. For a rule that is user code
only the name is stored.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from heedful.errors import InvalidInput, UnknownName
from heedful.loop import decide
from heedful.loop.decide import Again, Decision, Done, Policy, Standing, Verdict
from heedful.loop.record import (
    Attempt,
    Evaluation,
    Goal,
    Improvement,
    Loop,
    Override,
)
from heedful.loop.stop import STOP_RULES, All, Stop, StopRule, rule_name
from heedful.redact import redact, redact_data
from heedful.validation import Document, Fields

T = TypeVar("T")
_SCALAR_TYPES = frozenset((str, int, float, bool, type(None)))
# Fields that are written even with their default value. Other records always have their
# fields without a default or with a default factory.
_REQUIRED_FIELDS: Mapping[type, frozenset[str]] = {
    Attempt: frozenset(("evaluation", "usage", "repeats")),
    Evaluation: frozenset(("findings", "scores")),
    Goal: frozenset(Goal.__dataclass_fields__),
    Override: frozenset(Override.__dataclass_fields__),
    decide.Trigger: frozenset(decide.Trigger.__dataclass_fields__),
    Stop: frozenset(),
    decide.LiftedStop: frozenset(),
    Again: frozenset(("reasons", "feedback", "lifted")),
    Done: frozenset(Done.__dataclass_fields__),
}


def to_document(record: Any, *, redacts: bool = False) -> Document:
    """Return a record and all records inside it as JSON data.

    With `redacts`, the data have no secrets: they are what `redact_data` would return,
    because no field of a record has the name of a secret.
    """
    document = {}
    kind: Any = type(record)  # mypy: a class is not Hashable
    for name, default in _omitted_values(kind):
        value = getattr(record, name)
        # Most have the very object that is their default.
        if value is not default and value != default:
            if type(value) not in _SCALAR_TYPES:
                value = _plain_value(value, redacts)
            elif redacts and value and type(value) is str:
                value = redact(value)
            document[name] = value

    return document


def from_document(kind: type[T], document: Fields) -> T:
    """Return the record of type `kind` that `to_document` turned into `document`.

    Unknown fields, which a newer version may have written, are ignored.
    """
    values = {}
    for name, read in _find_readers(kind).items():  # type: ignore[arg-type]
        if name in document:
            values[name] = read(document[name]) if read else document[name]
    return kind(**values)


@cache
def _omitted_values(kind: type) -> tuple[tuple[str, Any], ...]:
    """Map each field to the value that documents omit; MISSING if they omit none."""
    required = _REQUIRED_FIELDS.get(kind)
    defaults = []
    for field in fields(kind):
        default: object = field.default
        if required is not None and callable(field.default_factory):
            default = field.default_factory()
        if required is not None and field.name in required:
            default = MISSING

        defaults.append((field.name, default))

    return tuple(defaults)


def _plain_value(value: Any, redacts: bool) -> Any:
    """Return the value of a field as JSON data, as `to_document` does."""
    if hasattr(value, "__dataclass_fields__"):
        # What a check returns is redacted at once.
        is_clean = isinstance(value, Evaluation)
        return to_document(value, redacts=redacts and not is_clean)
    if isinstance(value, (tuple, list)):
        if any(map(is_dataclass, value)):
            return [_plain_value(item, redacts) for item in value]
        value = [_plain_value(item, redacts=False) for item in value]
    elif isinstance(value, (dict, Mapping)):
        value = dict(value)
    return redact_data(value) if redacts and value else value


@cache
def _find_readers(kind: Any) -> Mapping[str, Callable[[Any], Any] | None]:
    """Return for each field the function that reads its value; None for plain JSON."""
    hints = get_type_hints(kind)
    return {field.name: _find_reader(hints[field.name]) for field in fields(kind)}


def _find_reader(hint: Any) -> Callable[[Any], Any] | None:
    """Return the function that reads a value of this type from JSON data.

    It is None if the JSON data are the value.
    """
    arguments = [kind for kind in get_args(hint) if kind not in (type(None), ...)]
    if isinstance(hint, type) and is_dataclass(hint):
        return partial(from_document, hint)

    if get_origin(hint) is tuple:
        read_item = _find_reader(arguments[0])
        if read_item is None:
            return tuple
        return lambda values: tuple(map(read_item, values))

    if get_origin(hint) in (Union, UnionType) and len(arguments) == 1:
        read = _find_reader(arguments[0])
        if read is not None:
            return lambda value: None if value is None else read(value)

    return None


def verdict_to(verdict: Verdict, *, redacts: bool = False) -> Document:
    """Return a verdict as JSON data; its key `verdict` is "again" or "done"."""
    return {
        "verdict": "again" if isinstance(verdict, Again) else "done",
        **to_document(verdict, redacts=redacts),
    }


def verdict_answer(verdict: Verdict) -> Document:
    """Return a verdict as JSON data for a reader: each stop has its `detail` in words.

    `verdict_from` reads it, too.
    """
    document = verdict_to(verdict)
    for name in ("stopped_by", "climbed", "lifted"):
        if name in document:
            stops = zip(document[name], getattr(verdict, name), strict=True)
            document[name] = [{**row, "detail": stop.detail} for row, stop in stops]
    return document


def verdict_from(document: Fields) -> Verdict:
    """Return the verdict that `verdict_to` wrote."""
    kind: type[Again | Done] = Again if document["verdict"] == "again" else Done
    return from_document(kind, document)


def decision_to(
    verdict: Verdict, standing: Standing | None, decided: float = 0.0
) -> Document:
    """Return a verdict, the loop's standing and the time of both as JSON data.

    It has no secrets.
    """
    document = verdict_to(verdict, redacts=True)
    if standing is not None:
        document |= to_document(standing, redacts=True)
    if decided:
        document["decided"] = decided
    return document


def decision_from(document: Fields, attempt: int, at: float) -> Decision:
    """Return the decision that `decision_to` wrote, made after `attempt` and recorded
    `at`.
    """
    standing = from_document(Standing, document)
    return Decision(
        attempt,
        verdict_from(document),
        standing=standing,
        at=at,
        decided=document.get("decided", at),
    )


def rule_to(rule: StopRule) -> Document:
    """Return a built-in rule with its settings as JSON data; user code only by name."""
    if isinstance(rule, All):
        return {"rule": "all", "rules": [rule_to(member) for member in rule.rules]}

    name = rule_name(rule)
    # A rule of the user's own may have the same name.
    if type(rule) is not STOP_RULES.get(name):
        return {"rule": name, "custom": True}

    settings = {field: getattr(rule, field) for field in rule.__slots__}
    return {"rule": name, **{field: v for field, v in settings.items() if v != ()}}


def rule_from(document: Fields) -> StopRule:
    """Return the built-in rule that `document` describes. Raises InvalidInput."""
    settings = dict(document)
    name = settings.pop("rule", "")
    if name == "all":
        return All(*rules_from(settings))
    if not isinstance(name, str) or name not in STOP_RULES:
        raise InvalidInput("rule", name, f"one of {', '.join(sorted(STOP_RULES))}")

    try:
        return STOP_RULES[name](**settings)
    except InvalidInput as error:
        field = f"{name}.{error.field.removeprefix(name).strip()}".rstrip(".")
        raise InvalidInput(field, error.value, error.allowed) from error
    except (TypeError, UnknownName) as error:
        raise InvalidInput(
            f"rule {name}", settings, f"settings of this rule ({error})"
        ) from error


def rules_from(document: Fields) -> tuple[StopRule, ...]:
    """Return the built-in rules that `document["rules"]` lists. Raises InvalidInput."""
    return tuple(map(rule_from, _listed_rules(document)))


def policy_to(policy: Policy) -> Document:
    """Return a policy as JSON data, with user code by name only."""
    better = policy.improvement
    document: Document = {
        "name": policy.name,
        "rules": list(map(rule_to, policy.rules)),
    }
    document |= {"min_gain": better.min_gain, "unscored": policy.unscored}

    if better.against != "best":
        document["against"] = better.against
    if policy.on_failure != "raise":
        document["on_failure"] = policy.on_failure
    if policy.goals:
        document["goals"] = [to_document(goal) for goal in policy.goals]

    return document


def policy_from(document: Fields) -> Policy:
    """Return the policy that `document` describes, without rules that are user code."""
    rules = _listed_rules(document)
    shipped = tuple(rule_from(rule) for rule in rules if not _has_own_code(rule))
    goals = tuple(from_document(Goal, goal) for goal in document.get("goals", ()))
    if rules and not shipped:
        shipped = (_never_stop,)
    return Policy(
        shipped,
        from_document(Improvement, document),
        unscored=document.get("unscored", "stop"),
        name=document.get("name", ""),
        goals=goals,
        on_failure=document.get("on_failure", "raise"),
    )


def is_complete(document: Fields) -> bool:
    """Return True if `policy_from` restores the whole policy: it has no user code."""
    return not any(map(_has_own_code, _listed_rules(document)))


def _listed_rules(document: Fields) -> Sequence[Fields]:
    """Return the rules in the document of a policy. Raises InvalidInput."""
    rules = document.get("rules")
    if not isinstance(rules, list | tuple) or not all(
        isinstance(rule, Mapping) for rule in rules
    ):
        raise InvalidInput(
            "rules", rules, 'a list of objects such as {"rule": "attempts"}'
        )
    return rules


def _has_own_code(document: Fields) -> bool:
    """Return whether a rule, or a member of it, is user code."""
    return bool(document.get("custom")) or any(
        map(_has_own_code, document.get("rules", ()))
    )


def _never_stop(loop: Loop) -> None:
    """Never stop the loop; this replaces user code, which cannot be restored."""
