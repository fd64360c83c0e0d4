"""Whether agents kept the rules of a user: told, kept, broken, call by call. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from heedful.lessons.action import command_of, path_of
from heedful.lessons.rule_calls import Act, acts_of, judge
from heedful.lessons.user_rules import Deed, RuleCall, RuleLedger, StatedRule
from heedful.sanitize import clean
from heedful.validation import MAX_SHOWN_LINE_CHARS, Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class PastCall:
    """A call of an agent in a session; it `ended` if its result is known.

    `at` is its time in seconds since 1970, `id` the agent's id of it, "" without one.
    """

    session: str
    id: str
    tool: str
    arguments: Fields
    at: float
    ended: bool = False

    @property
    def words(self) -> str:
        """The command of the call, or its tool and its file."""
        text = command_of(self.arguments) or f"{self.tool} {path_of(self.arguments)}"
        return clean(text, MAX_SHOWN_LINE_CHARS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTelling:
    """That an agent was told rules, by their `digests`; `code` says when.

    `call` is the id of the call, "" at the start of a session.
    """

    session: str
    call: str
    digests: frozenset[str]
    code: str
    at: float


def ledger_of(
    rule: StatedRule,
    calls: Iterable[PastCall],
    tellings: Iterable[RuleTelling],
) -> RuleLedger:
    """Return how a rule was kept in calls, which are in their order.

    A call counts from the time on at which the rule was stated, until it is retired.
    """
    own_tellings = [t for t in tellings if rule.digest in t.digests]
    codes = Counter(telling.code for telling in own_tellings)
    denied = {(t.session, t.call) for t in own_tellings if t.code == "rules denied"}
    first_told: dict[str, float] = {}
    for telling in own_tellings:
        first_told.setdefault(telling.session, telling.at)

    rule_calls = []
    ignored = 0
    mixed = 0
    for call in calls:
        is_after = 0 < rule.retired_at < call.at
        if call.at < rule.first_said or is_after:
            continue
        acts = acts_of(call.tool, call.arguments)
        deed: Deed | Literal[""] = judge(rule.parts, acts)
        mixed += deed == "broken" and keeps_partly(rule, acts)
        if deed == "broken" and (call.session, call.id) in denied and not call.ended:
            deed = "denied"
        if deed:
            told_at = first_told.get(call.session, inf)
            if deed == "broken" and told_at < call.at:
                ignored += 1
            rule_calls.append(
                RuleCall(
                    deed=deed,
                    call=call.words,
                    session=call.session,
                    at=call.at,
                    # What is told at a call is recorded after it.
                    was_told=told_at < inf,
                )
            )
    counts = Counter(call.deed for call in rule_calls)
    return RuleLedger(
        starts=codes["rules at start"],
        told=codes["rules told"] + codes["rules denied"],
        kept=counts["kept"],
        broken=counts["broken"],
        denied=counts["denied"],
        ignored=ignored,
        mixed=mixed,
        calls=tuple(rule_calls),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DenialTrial:
    """What a denial of a rule would have done to recorded calls.

    Of so many `calls`, it would have blocked the commands or edits in `blocked`; those
    in `obeying` among them also do what the rule wants.
    """

    calls: int
    blocked: tuple[str, ...] = ()
    obeying: tuple[str, ...] = ()


def keeps_partly(rule: StatedRule, acts: Sequence[Act]) -> bool:
    """Return True if one of the acts of a call does what a rule wants."""
    return any(judge(rule.parts, [act]) == "kept" for act in acts)


def try_denial(rule: StatedRule, calls: Sequence[PastCall]) -> DenialTrial:
    """Return which calls a denial of a rule would have blocked."""
    blocked = []
    obeying = []
    for call in calls:
        acts = acts_of(call.tool, call.arguments)
        if judge(rule.parts, acts) == "broken":
            blocked.append(call.words)
            if keeps_partly(rule, acts):
                obeying.append(call.words)
    return DenialTrial(calls=len(calls), blocked=tuple(blocked), obeying=tuple(obeying))
