"""Loops by hand and at random."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, get_type_hints

from hypothesis import reject, strategies as st

import heedful
from heedful.errors import InvalidInput
from heedful.loop.decide import Done, Policy, Verdict
from heedful.loop.record import (
    NO_USAGE,
    Attempt,
    Candidate,
    Evaluation,
    Finding,
    Goal,
    Loop,
    Override,
    Usage,
)
from heedful.loop.stop import LIFTABLE_RULES, STOP_RULES, MaxAttempts, StopRule

QUALITY = Goal("quality", 0.75)
DRIFT = Goal("drift", 0.25, "at_most")
NEVER = Policy((MaxAttempts(1_000_000),), name="never")


def finding(key: str, **fields: Any) -> Finding:
    return Finding("check", key, key=key, **fields)


def evaluated(
    *errors: str,
    warnings: Iterable[str] = (),
    scores: Mapping[str, float] | None = None,
) -> Evaluation:
    findings = [finding(key) for key in errors]
    findings += [finding(key, level="warning") for key in warnings]
    return Evaluation(tuple(findings), scores or {})


def loop_of(*evaluations: Evaluation | None, **fields: Any) -> Loop:
    """Make a loop of these evaluations, as `loop_from` does."""
    return loop_from(evaluations, **fields)


def loop_from(
    evaluations: Sequence[Evaluation | None], texts: Sequence[str] = (), **fields: Any
) -> Loop:
    """Make a loop whose candidates all differ, unless `texts` names them."""
    attempts = []
    for number, evaluation in enumerate(evaluations, 1):
        text = texts[number - 1] if texts else f"text {number}"
        attempts.append(Attempt(number, Candidate.of(text), evaluation=evaluation))
    return Loop("loop", attempts=tuple(attempts), **fields)


def scored(*values: float, goals: tuple[Goal, ...] = (QUALITY,)) -> Loop:
    """A loop with one score and without findings."""
    return loop_from(
        [Evaluation(scores={goals[0].score: value}) for value in values], goals=goals
    )


def tried(texts: str, near: str = "", met: float | None = None, cold: str = "") -> Loop:
    """Attempts that never improve; those in `near` are near the first, those in `cold`
    greedy.
    """
    loop = Loop("tried")
    wrong = Evaluation((finding("x"),), met=met)
    for n, text in enumerate(texts, 1):
        first = 1 if str(n) in near else None
        greedy = str(n) in cold
        loop = loop.then(
            Attempt(
                n,
                Candidate.of(text),
                evaluation=wrong,
                usage=NO_USAGE,
                repeats=first,
                greedy=greedy,
            )
        )
    return loop


def rules(verdict: Verdict) -> list[str]:
    assert isinstance(verdict, Done), verdict
    return [stop.rule for stop in verdict.stopped_by]


words = st.text(max_size=12)
names = st.sampled_from(["quality", "drift", "style"])
keys = st.sampled_from(["a", "b", "c", "d"])
numbers = st.one_of(
    st.integers(-2_000, 2_000).map(lambda n: n / 1000),
    st.floats(-2, 2, allow_nan=False),
    st.integers(-3, 3),
)
goals = st.lists(
    st.builds(Goal, names, numbers, st.sampled_from(["at_least", "at_most"])),
    max_size=3,
    unique_by=lambda goal: goal.score,
).map(tuple)
findings = st.builds(
    Finding,
    check=st.sampled_from(["one", "two"]),
    message=words | st.integers(0, 9).map("{} rows, 5 are wanted".format),
    fix=words,
    level=st.sampled_from(["error", "error", "warning", "note"]),
    severity=st.floats(0, 1),
    key=st.one_of(st.just(""), keys),
    persistent=st.booleans(),
    evidence=words,
    span=st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)),
    off_by=st.none() | st.sampled_from([0, 0.02, 0.1, 0.11, 3]),
)
evaluations = st.builds(
    Evaluation,
    st.lists(findings, max_size=3).map(tuple),
    st.dictionaries(names, numbers, max_size=3),
    preference=st.sampled_from([0.0, 0.0, -1.5, 0.25]),
    met=st.sampled_from([None, 0.0, 0.0, 0.5, 1.0]),
)
tokens = st.integers(0, 500)
usages = st.builds(
    Usage,
    st.integers(0, 5),
    tokens,
    completion_tokens=tokens,
    cost=st.floats(0, 2),
    seconds=st.floats(0, 30),
)
ruled = st.sampled_from([*sorted(LIFTABLE_RULES), "budget", "cancelled", "unscored"])
overrides = st.builds(
    Override,
    ruled,
    st.sampled_from(["ada", "bo"]),
    why=words,
    decisions=st.integers(1, 3),
)
expiring = st.builds(
    replace,
    overrides,
    until=st.none() | st.sampled_from([0.5, 1.0, 1.5, 2.0, float("inf")]),
)


@st.composite
def loops(
    draw: st.DrawFn, least: int = 0, most: int = 7, cancelled: bool = True
) -> Loop:
    """Histories of all kinds: repeats, attempts without evaluation, overrides, extra
    usage.
    """
    attempts = []
    for number in range(1, draw(st.integers(least, most)) + 1):
        text = draw(st.sampled_from(["alpha", "beta", "gamma", "delta"]))
        earlier = st.integers(1, number - 1) if number > 1 else st.none()
        evaluation = draw(st.none() | evaluations | evaluations | evaluations)
        attempts.append(
            Attempt(
                number,
                Candidate.of(text),
                evaluation=evaluation,
                usage=draw(usages),
                repeats=draw(st.none() | st.none() | earlier),
                labels=draw(st.sampled_from([{}, {}, {"persona": "SAGE"}])),
                greedy=draw(st.booleans()),
            )
        )
    return Loop(
        "random",
        draw(goals),
        attempts=tuple(attempts),
        overrides=tuple(draw(st.lists(overrides, max_size=2))),
        extra=draw(usages),
        cancelled=draw(st.sampled_from(["", "", "", "ada"])) if cancelled else "",
        echoes=draw(st.dictionaries(keys, st.integers(0, 4), max_size=2)),
    )


# What numbers in rules are, by the type of a setting. Settings of other types are any.
NUMBERS: Mapping[Any, st.SearchStrategy[Any]] = {
    int: st.integers(1, 8),
    int | None: st.integers(1, 20) | st.integers(1, 3_000),
    float: st.floats(0.01, 1),
    float | None: st.none() | st.floats(0.01, 1),
    tuple[int, ...]: st.just(()),
}


@st.composite
def simple_rules(draw: st.DrawFn) -> StopRule:
    """Rules of each kind that there is, with some settings."""
    kind: Any = draw(st.sampled_from(list(STOP_RULES.values())))
    types = get_type_hints(kind)
    names = [setting.name for setting in fields(kind) if draw(st.booleans())]
    settings = [NUMBERS.get(types[name], st.from_type(types[name])) for name in names]
    try:
        rule: StopRule = kind(**dict(zip(names, map(draw, settings), strict=True)))
    except InvalidInput:
        reject()
    return rule


any_rule = simple_rules() | st.builds(heedful.All, simple_rules(), simple_rules())
improvements = st.builds(
    heedful.Improvement,
    st.sampled_from([0.001, 0.05, 0.1]),
    st.sampled_from(["best", "best", "previous"]),
)
policies = st.builds(
    Policy,
    st.lists(any_rule, min_size=1, max_size=4).map(tuple),
    improvements,
    unscored=st.sampled_from(["stop", "again"]),
    name=st.sampled_from(["", "mine"]),
)
with_goals = st.builds(replace, policies, goals=goals)
