"""The rules that end a loop, and why one ended.

A rule is a callable that takes a loop and returns why it must end, or None: a rule of
heedful returns a `Stop` with the figures that it saw, and a rule of a user's own may
return a text. The name of a rule is its attribute `name` or the name of the function.
Each rule alone stops a loop; `All` stops only if all of its members stop.

All about a rule of heedful stands in its class: `words` say what it stops loops for,
`say` makes a sentence of the figures of a stop, `limits` are the words for its numbers
in an explanation, and `meter` is what a page shows of it. A rule with `final` ends a
loop on any rung of its ladder, and an override may suspend any other rule. The
`counted_units` of a rule are those that it cannot count unless answers report them. Its
place in `RULES` is its precedence in a verdict.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, is_dataclass, replace
from functools import reduce
from typing import Any, ClassVar, Literal

from heedful.errors import InvalidInput
from heedful.loop.ladder import REPORTED_UNITS, Allowance
from heedful.loop.record import (
    Attempt,
    Evaluation,
    Loop,
    Usage,
    format_score,
    thousandths,
)
from heedful.sanitize import clean
from heedful.validation import (
    MAX_SCORE,
    check_integer,
    check_number,
    refuses_unknown_options,
    require,
    typed_frozen,
)

StopRule = Callable[[Loop], "Stop | str | None"]
Figures = Mapping[str, Any]  # JSON data


@typed_frozen(slots=True)
class Stop:
    """Why the rule with the name `rule` stops a loop.

    `figures` are what a rule of heedful saw. `text` is the reason that a rule of a
    user's own or a person gave. `members` are the stops of the members of an `All`, or
    of a rule under another name.
    """

    rule: str
    text: str = ""
    _: KW_ONLY
    figures: Figures = field(default_factory=dict, hash=False)
    members: "tuple[Stop, ...]" = ()

    @property
    def detail(self) -> str:
        """The reason in words."""
        if self.members:
            return " and ".join(member.detail for member in self.members)
        rule: Any = _RULES_BY_NAME.get(self.rule)
        return rule.say(self.figures) if rule and self.figures else self.text

    def __str__(self) -> str:
        return self.detail


def join_spent(
    spent: Mapping[str, float | None], limits: Mapping[str, float | None]
) -> str:
    """Return in words what was spent of each limit.

    >>> join_spent({"calls": 2, "cost": 0.5}, {"calls": 2})
    '2 of 2 calls spent'
    """
    parts = [
        f"{spent[unit]:.12g} of {limit:.12g} {unit}" for unit, limit in limits.items()
    ]
    return f"{', '.join(parts)} spent"


def requirement_of(check: Callable[..., object]) -> str:
    """Return what a function demands, by the first line of its docstring, or ""."""
    documentation = (check.__doc__ or "").strip() if inspect.isroutine(check) else ""
    return f"must hold: {documentation.splitlines()[0]}" if documentation else ""


def rule_name(rule: Callable[..., object]) -> str:
    """Return the name of a rule or check, as it appears in records."""
    name = getattr(rule, "name", None) or getattr(rule, "__name__", None)
    return str(name or type(rule).__name__)


def ask(rule: StopRule, loop: Loop) -> Stop | None:
    """Return why a rule stops a loop, under the name of the rule; None if it does not.

    Raises InvalidInput if it is a rule of a user's own that returns something else.
    """
    reason = rule(loop)
    if reason is None or reason == "":
        return None

    name = rule_name(rule)
    if isinstance(reason, str):
        return Stop(name, reason)
    if not isinstance(reason, Stop):
        allowed = "a text that says why the loop must end, or None"
        raise InvalidInput(f"the result of rule {name!r}", reason, allowed)
    return reason if reason.rule == name else Stop(name, members=(reason,))


def check_names(checks: Iterable[Callable[..., object]]) -> tuple[str, ...]:
    """Return the names of checks in reports; a check may list several in `names`."""
    names: list[str] = []
    for check in checks:
        own_names = getattr(check, "names", ()) or [rule_name(check)]
        names += map(str, own_names)
    return tuple(names)


@refuses_unknown_options
@dataclass(frozen=True, slots=True)
class MaxAttempts:
    """Stop after `limit` attempts, including the first, or after as many calls in a row
    that ended with their process. In a loop with a ladder, the limit is that of each
    rung, unless `rungs` has one for each.
    """

    limit: int = 4
    rungs: tuple[int, ...] = field(default=(), repr=False)
    name: ClassVar[str] = "attempts"
    words: ClassVar[str] = "all attempts made"
    limits: ClassVar[Mapping[str, str]] = {
        "limit": "a limit of {to} attempt{s} instead of {was}"
    }

    def __post_init__(self) -> None:
        check_integer("limit", self.limit)
        object.__setattr__(self, "rungs", tuple(self.rungs))
        for limit in self.rungs:
            check_integer("rungs", limit)

    def limit_of(self, rung: int) -> int:
        """Return the limit of a rung, counted from 1."""
        if not self.rungs:
            return self.limit
        return self.rungs[min(rung, len(self.rungs)) - 1]

    @staticmethod
    def say(figures: Figures) -> str:
        """Return the sentence of a stop with these figures."""
        if "died" in figures:
            return (
                f"{figures['died']} calls, one after another, ended with their process "
                f"and left no answer; {figures['limit']} attempts are allowed"
            )
        count = figures["count"]
        if count != figures["limit"]:
            return f"{count} of {figures['limit']} attempts made"
        if count == 1:
            return "the only attempt is made"
        return f"all {count} attempts are made"

    def meter(self, loop: Loop) -> tuple[float, float]:
        """Return the value that the rule compares, and its limit."""
        return len(loop.attempts), self.limit_of(loop.rung)

    def __call__(self, loop: Loop) -> Stop | None:
        limit = self.limit_of(loop.rung)
        count = len(loop.attempts)
        if loop.died >= limit:
            return Stop(self.name, figures={"died": loop.died, "limit": limit})
        if count < limit:
            return None
        return Stop(self.name, figures={"count": count, "limit": limit})


def died_out(rules: Iterable[StopRule], loop: Loop) -> bool:
    """Return True if a limit of attempts ends the loop for the calls that died."""
    limits = (rule for rule in rules if isinstance(rule, MaxAttempts))
    return any(0 < limit.limit_of(loop.rung) <= loop.died for limit in limits)


@refuses_unknown_options
@dataclass(frozen=True, slots=True)
class Budget:
    """Stop when the loop's tokens, cost, seconds or model calls reach a limit.

    None means no limit. Calls, tokens and cost are counted when an answer is there, so
    the last one may exceed the limit; `seconds` end an attempt that still runs. Failed
    calls count, too. If no answer reports limited tokens or cost, `UsageUnknown` is
    raised before the second call.
    """

    tokens: int | None = None
    cost: float | None = None
    _: KW_ONLY
    seconds: float | None = None
    calls: int | None = None
    name: ClassVar[str] = "budget"
    words: ClassVar[str] = "budget spent"
    limits: ClassVar[Mapping[str, str]] = {
        "tokens": "a budget of {to} token{s} instead of {was}",
        "cost": "a budget of {to} $ instead of {was}",
        "seconds": "a budget of {to} second{s} instead of {was}",
        "calls": "a budget of {to} call{s} instead of {was}",
    }
    final: ClassVar[bool] = True

    def __post_init__(self) -> None:
        limits = self._limits()
        allowed = "one or more of tokens, cost, seconds, calls"
        require(limits, "budget", "empty", allowed)
        for unit, limit in limits.items():
            check_number(f"budget {unit}", limit, low=1e-9, high=MAX_SCORE)

    @property
    def counted_units(self) -> list[str]:
        """The limited units that only an answer can report."""
        return [unit for unit in REPORTED_UNITS if unit in self._limits()]

    def _limits(self) -> dict[str, float]:
        """Return the limits that are set, by their unit."""
        limits = {unit: getattr(self, unit) for unit in self.limits}
        return {unit: limit for unit, limit in limits.items() if limit is not None}

    @staticmethod
    def say(figures: Figures) -> str:
        """Return the sentence of a stop with these figures."""
        return join_spent(figures["spent"], figures["limits"])

    def __call__(self, loop: Loop) -> Stop | None:
        return self.reached(loop.usage)

    def reached(self, usage: Usage) -> Stop | None:
        """Return the stop of a loop that has used so much, None while it may go on."""
        limits = self._limits()
        spent = {unit: getattr(usage, unit) for unit in limits}
        reached = {unit: n for unit, n in limits.items() if spent[unit] >= n}
        if not reached:
            return None
        return Stop(self.name, figures={"spent": spent, "limits": reached})

    def unreported(self, usage: Usage) -> list[str]:
        """Return the limited units that a usage does not report, without seconds."""
        units = self._limits().keys() - {"seconds"}
        return sorted(unit for unit in units if not getattr(usage, unit))


def uncounted(
    limits: Collection[StopRule | Allowance | None], attempts: Iterable[Attempt]
) -> list[str]:
    """Return the `counted_units` of these limits that no answer reports.

    A draft is no answer. Without answers, all is well.
    """
    answers = [attempt for attempt in attempts if not attempt.draft]
    if not answers:
        return []
    units: set[str] = set()
    for rule in limits:
        units.update(getattr(rule, "counted_units", ()))
    for answer in answers:
        units = {unit for unit in units if not answer.reports(unit)}
    return [unit for unit in REPORTED_UNITS if unit in units]


@refuses_unknown_options
@dataclass(frozen=True, slots=True)
class Fatigue:
    """Stop when fatigue, a number in 0..`most`, reaches `limit`.

    It is 0 after the first attempt. Then each attempt without improvement adds
    `increment`, and each improvement subtracts `decay`.
    """

    limit: float = 0.3
    increment: float = 0.15
    _: KW_ONLY
    decay: float = 0.05
    most: float = 1.0
    name: ClassVar[str] = "fatigue"
    words: ClassVar[str] = "too many attempts without improvement"
    limits: ClassVar[Mapping[str, str]] = {
        "limit": "a limit of fatigue of {to} instead of {was}",
        "increment": (
            "a fatigue of {to} instead of {was} for an attempt without improvement"
        ),
        "decay": "{to} less fatigue for an improvement instead of {was}",
    }

    def __post_init__(self) -> None:
        check_number("limit", self.limit, low=0.001, high=1)
        check_number("most", self.most, self.limit, high=1)
        check_number("increment", self.increment, low=0.001, high=1)
        check_number("decay", self.decay, low=0, high=1)

    def level(self, loop: Loop) -> float:
        """Return the fatigue (0..`most`) after the last attempt."""
        return reduce(self.after, loop.improved[1:], 0.0)

    def after(self, level: float, better: bool) -> float:
        """Return the fatigue after an attempt, `better` if it improved.

        The fatigue before the attempt was `level`.
        """
        change = -thousandths(self.decay) if better else thousandths(self.increment)
        new_level = max(0, thousandths(level) + change)
        return min(thousandths(self.most), new_level) / 1000

    def meter(self, loop: Loop) -> tuple[float, float]:
        """Return the value that the rule compares, and its limit."""
        return self.level(loop), self.limit

    @staticmethod
    def say(figures: Figures) -> str:
        """Return the sentence of a stop with these figures."""
        return (
            "too many attempts without improvement "
            f"(fatigue {figures['level']:.2f}, limit {figures['limit']:.2f})"
        )

    def __call__(self, loop: Loop) -> Stop | None:
        level = self.level(loop)
        if thousandths(level) < thousandths(self.limit):
            return None
        return Stop(self.name, figures={"level": level, "limit": self.limit})


@refuses_unknown_options
@dataclass(frozen=True, slots=True)
class Echo:
    """Stop when a finding of the last attempt is in `times` attempts.

    Only attempts since the last improvement count; if the finding is persistent, all
    do. With `across="scope"`, only persistent findings count, such as bias tags, but
    also in the 20 newest other loops of the scope. An error with another time, id,
    address or temporary path is the same finding, unless its check sets its `key`.
    """

    times: int = 3
    across: Literal["loop", "scope"] = "loop"
    name: ClassVar[str] = "echo"
    words: ClassVar[str] = "the same finding again"
    unit: ClassVar[str] = "attempts"
    limits: ClassVar[Mapping[str, str]] = {
        "times": ("a limit of {to} attempt{s} with the same finding instead of {was}")
    }

    def __post_init__(self) -> None:
        check_integer("times", self.times)
        require(
            self.across in ("loop", "scope"), "across", self.across, "loop or scope"
        )

    def counts(self, loop: Loop) -> dict[str, int]:
        """Count the attempts with each key of a finding in the last attempt."""
        last = loop.last_evaluation
        if last is None or not last.keys:
            return {}

        # A judge gives the same reason in loops about other tasks: it is no habit.
        is_wide = self.across == "scope"
        counted_keys = last.persistent if is_wide else last.keys
        earlier = loop.echoes if is_wide else {}
        counts = loop.count_findings()
        keys = [finding.key for finding in last.findings if finding.key in counted_keys]
        return {key: earlier.get(key, 0) + counts[key] for key in keys}

    def meter(self, loop: Loop) -> tuple[float, float]:
        """Return the value that the rule compares, and its limit."""
        return max(self.counts(loop).values(), default=0), self.times

    @staticmethod
    def say(figures: Figures) -> str:
        """Return the sentence of a stop with these figures."""
        texts = [f"{key} in {count} attempts" for key, count in figures["findings"]]
        return f"the same finding again: {'; '.join(texts)}"

    def __call__(self, loop: Loop) -> Stop | None:
        if self.across == "loop" and len(loop.attempts) < self.times:
            return None

        findings = [
            [clean(key, 80), count]
            for key, count in self.counts(loop).items()
            if count >= self.times
        ]
        return Stop(self.name, figures={"findings": findings[:3]}) if findings else None


@refuses_unknown_options
@dataclass(frozen=True, slots=True)
class Repeat:
    """Stop at the `times`-th repeated candidate since the last improvement on the best.

    A candidate is repeated if it equals any earlier candidate. With `near`, both may
    differ in up to 10 % of the tokens, but not in digits, negations and operators. If a
    model wrote the last candidate at temperature 0, `times` is at least 2: a warmer
    retry may differ.
    """

    times: int = 1
    near: bool = True
    name: ClassVar[str] = "repeat"
    words: ClassVar[str] = "repeated answer"
    unit: ClassVar[str] = "repeats"
    limits: ClassVar[Mapping[str, str]] = {
        "times": "a limit of {to} repeated answer{s} instead of {was}"
    }

    def __post_init__(self) -> None:
        check_integer("times", self.times)
        require(isinstance(self.near, bool), "near", self.near, "true or false")

    @staticmethod
    def say(figures: Figures) -> str:
        """Return the sentence of a stop with these figures."""
        nearly = "" if figures["exact"] else "nearly "
        distance = figures["distance"]
        manner = "minimal change" if distance == 1 else f"a cycle of {distance}"
        repeat = f"the answer {nearly}repeats attempt {figures['first']} ({manner})"
        if figures["times"] == 1:
            return repeat
        return (
            f"{repeat}, the {ordinal(figures['count'])} of {figures['times']} repeats"
        )

    def __call__(self, loop: Loop) -> Stop | None:
        if len(loop.attempts) <= self.times:
            return None

        repeated = loop.repeats(self.near)
        first = repeated[-1]
        count = self.count(loop)
        times = self.limit_of(loop)
        if first is None or count < times:
            return None

        alike = [
            attempt.number
            for attempt, number in zip(loop.attempts, repeated, strict=True)
            if first in (number, attempt.number)
        ]
        return Stop(
            self.name,
            figures={
                "first": first,
                "exact": loop.repeats(near=False)[-1] == first,
                "distance": alike[-1] - alike[-2],
                "count": count,
                "times": times,
            },
        )

    def meter(self, loop: Loop) -> tuple[float, float]:
        """Return the value that the rule compares, and its limit."""
        return self.count(loop), self.limit_of(loop)

    def count(self, loop: Loop) -> int:
        """Count the repeated candidates since the last improvement on the best one."""
        if loop.improves.against == "previous":
            # Each round of a cycle has an attempt that is better than the one before.
            improves = replace(loop.improves, against="best")
            loop = replace(loop, improves=improves)
        repeated = loop.repeats(self.near)[loop.last_improvement + 1 :]
        return sum(number is not None for number in repeated)

    def limit_of(self, loop: Loop) -> int:
        """Return at which repeated candidate the rule stops the loop now."""
        if loop.attempts and loop.attempts[-1].greedy:
            return max(self.times, 2)
        return self.times


@refuses_unknown_options
@dataclass(frozen=True, slots=True)
class Plateau:
    """Stop after `patience` attempts without improvement, or when the last attempt has
    findings and all of them are less severe than `floor` (0..1). An exact copy of an
    earlier candidate is no improvement here, even if it is judged better. None switches
    a condition off.
    """

    patience: int | None = 2
    floor: float | None = None
    name: ClassVar[str] = "plateau"
    words: ClassVar[str] = "no improvement"
    unit: ClassVar[str] = "attempts"
    limits: ClassVar[Mapping[str, str]] = {
        "patience": "a patience of {to} attempt{s} instead of {was}",
        "floor": "a least severity of {to} instead of {was}",
    }

    def __post_init__(self) -> None:
        if self.patience is not None:
            check_integer("patience", self.patience)
        if self.floor is not None:
            check_number("floor", self.floor, low=0.001, high=1)
        if self.patience is None and self.floor is None:
            raise InvalidInput("plateau", "silent", "a rule with patience or floor")

    @staticmethod
    def say(figures: Figures) -> str:
        """Return the sentence of a stop with these figures."""
        if "floor" in figures:
            return f"worst severity {figures['worst']} is below {figures['floor']}"
        return (
            f"no improvement since attempt {figures['since']}: {figures['later']} of "
            f"at most {figures['patience']} attempts"
        )

    def __call__(self, loop: Loop) -> Stop | None:
        last = loop.last_evaluation
        if last is None:
            return None

        figures: dict[str, object] = {}
        index = self._last_gain(loop)
        later = len(loop.attempts) - index - 1
        if self._is_below_floor(last):
            worst = format_score(last.worst)
            figures = {"worst": worst, "floor": format_score(self.floor or 0)}
        elif self.patience is not None and later >= self.patience:
            since = loop.attempts[index].number
            figures = {"since": since, "later": later, "patience": self.patience}
        return Stop(self.name, figures=figures) if figures else None

    def meter(self, loop: Loop) -> tuple[float, float]:
        """Return the value that the rule compares, and its limit."""
        without_gain = len(loop.attempts) - 1 - self._last_gain(loop)
        return max(0, without_gain), self.patience or 0

    @staticmethod
    def _last_gain(loop: Loop) -> int:
        """Return the index of the last attempt that improved and is no copy, or 0."""
        gains = [
            index
            for index, first in enumerate(loop.repeats(near=False))
            if first is None and loop.improved[index]
        ]
        return max(gains, default=0)

    def _is_below_floor(self, last: Evaluation) -> bool:
        """Return True if there are findings, and none is as severe as the floor."""
        if self.floor is None or not last.keys:
            return False
        return thousandths(last.worst) < thousandths(self.floor)


@dataclass(frozen=True, slots=True)
class NothingMet:
    """Stop if no test or check has passed so far: `Evaluation.met` is always 0.

    Use the rule inside `All`: alone it ends a loop after the first attempt. It does not
    stop the loop if `met` of any evaluation is unknown.
    """

    name: ClassVar[str] = "nothing_met"
    words: ClassVar[str] = "nothing passed yet"

    @staticmethod
    def say(_: Figures) -> str:
        """Return the sentence of a stop with these figures."""
        return "no test or check has passed so far"

    def __call__(self, loop: Loop) -> Stop | None:
        shares = {a.evaluation.met for a in loop.attempts if a.evaluation is not None}
        return Stop(self.name, figures={"met": 0}) if shares == {0} else None


class Cancelled:
    """What ends a loop that somebody cancelled; it is in no policy."""

    name = "cancelled"
    words = "cancelled"
    final = True

    @staticmethod
    def say(figures: Figures) -> str:
        """Return the sentence of a stop with these figures."""
        return f"it was cancelled: {figures['why']}"


class Unscored:
    """What ends a loop whose goals have no score; it is in no policy."""

    name = "unscored"
    words = "unscored"
    final = True

    @staticmethod
    def say(figures: Figures) -> str:
        """Return the sentence of a stop with these figures."""
        names = ", ".join(figures["scores"])
        return f"no score for {names or 'the candidate: give checks'}"


# By precedence in a verdict; rules of a user's own follow in the order of the policy.
RULES = (
    Cancelled,
    Budget,
    Unscored,
    MaxAttempts,
    Echo,
    Repeat,
    Fatigue,
    Plateau,
    NothingMet,
)
_RULES_BY_NAME = {rule.name: rule for rule in RULES}
# The rules that a policy can have.
STOP_RULES: Mapping[str, Callable[..., StopRule]] = {
    rule.name: rule for rule in RULES if is_dataclass(rule)
}
FINAL_RULES = frozenset(rule.name for rule in RULES if hasattr(rule, "final"))
LIFTABLE_RULES = frozenset(rule.name for rule in RULES) - FINAL_RULES
# The place of each rule in a verdict. `NothingMet` is a condition for other rules.
RULE_PRECEDENCE = tuple(rule.name for rule in RULES if rule is not NothingMet)


@dataclass(frozen=True, init=False, repr=False)
class All:
    """Stop only if every member stops; an override of any member suspends all of it.

    >>> rule = All(MaxAttempts(2), Repeat())
    >>> rule.name
    'attempts+repeat'
    """

    rules: tuple[StopRule, ...]

    def __init__(self, *rules: StopRule) -> None:
        require(len(rules) >= 2, "All", rules, "at least two rules")
        object.__setattr__(self, "rules", rules)

    @property
    def name(self) -> str:
        """The names of the members, joined by "+"."""
        return "+".join(map(rule_name, self.rules))

    def __call__(self, loop: Loop) -> Stop | None:
        members: list[Stop] = []
        for rule in self.rules:
            stop = ask(rule, loop)
            if stop is None:
                return None
            members += stop.members if isinstance(rule, All) else [stop]
        return Stop(self.name, members=tuple(members))

    def __repr__(self) -> str:
        return f"All({', '.join(map(repr, self.rules))})"


def flat(rules: Iterable[StopRule]) -> Iterator[StopRule]:
    """Yield the rules; in place of an `All`, yield its members."""
    for rule in rules:
        if isinstance(rule, All):
            yield from flat(rule.rules)
        else:
            yield rule


def has_user_code(rules: Iterable[StopRule]) -> bool:
    """Return True if any rule is user code, such as a subclass of a built-in rule."""
    return any(type(part) not in RULES for part in flat(rules))


def describe_rule_name(name: str) -> str:
    """Return in plain words what a rule of this name stops loops for.

    >>> describe_rule_name("repeat+nothing_met"), describe_rule_name("mine")
    ('repeated answer, nothing passed yet', 'mine')
    """
    return ", ".join(
        _RULES_BY_NAME[part].words if part in _RULES_BY_NAME else part
        for part in name.split("+")
    )


def limit_words(rule: str, field: str) -> str:
    """Return the words for another value of a rule's number, with blanks; "" without.

    >>> limit_words("plateau", "patience")
    'a patience of {to} attempt{s} instead of {was}'
    """
    words: Mapping[str, str] = getattr(_RULES_BY_NAME.get(rule), "limits", {})
    return words.get(field, "")


def describe_stops(stops: Sequence[Stop]) -> list[str]:
    """Return in words why rules stopped a loop, each reason once.

    >>> late = Stop("mine", "it is late")
    >>> both = Stop("repeat+mine", members=(Stop("repeat", "again the same"), late))
    >>> describe_stops([late, both])
    ['it is late', 'again the same']
    """
    rules = {stop.rule for stop in stops}
    reasons = []
    for stop in stops:
        parts = [part for part in stop.members if part.rule not in rules]
        if not stop.members:
            parts = [stop]
        reasons.append(" and ".join(part.detail for part in parts))
    return list(filter(None, dict.fromkeys(reasons)))


def ordinal(number: int) -> str:
    """Return a number with its ending.

    >>> ordinal(2), ordinal(11), ordinal(23)
    ('2nd', '11th', '23rd')
    """
    endings = {1: "st", 2: "nd", 3: "rd"}
    ending = "th"
    if number % 100 not in (11, 12, 13):
        ending = endings.get(number % 10, "th")
    return f"{number}{ending}"
