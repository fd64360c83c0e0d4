"""Plain data of the service -> the library's own records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from heedful.codec import evaluation_from, goal_from, verdict_from
from heedful.decisions import Decision, Standing
from heedful.errors import Refused
from heedful.lessons import Seen
from heedful.loop.decide import Verdict
from heedful.loop.record import Attempt, Candidate, Loop, Override
from heedful.memory.consolidate import Mode, Proposal
from heedful.memory.dreaming import Dream
from heedful.memory.learn import Example, State, Trust
from heedful.memory.templates import Merge
from heedful.protocols import Found, Head, Stored, Usage

T = TypeVar("T")


# What fields of records mean by these names, which their modules import for type checkers alone.
NAMES: dict[str, Any] = {
    "Example": Example,
    "Merge": Merge,
    "Mode": Mode,
    "Proposal": Proposal,
    "State": State,
    "Trust": Trust,
}


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    adapter.rebuild(_types_namespace=NAMES)
    return adapter


def read(kind: type[T], plain: Any) -> T:
    """The record of that kind; what a newer service tells beyond it is left out.

    Raises Refused for what is no such record: then something else answered.
    """
    try:
        return cast("T", _adapter(cast("Any", kind)).validate_python(plain))
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:3])
        raise Refused(200, "", f"not the {kind.__name__} that was asked for: {wrong}") from error


def verdict(plain: Mapping[str, Any]) -> Verdict:
    """A verdict from the answer of a report."""
    return verdict_from({**plain, "verdict": plain["decision"]})


def stored(plain: Mapping[str, Any]) -> Stored:
    """A loop with its attempts and decisions."""
    goals, made = tuple(map(goal_from, plain["goals"])), plain["made"]
    overrides = tuple(Override(**one) for one in plain["overrides"])
    attempts = tuple(map(_attempt, made))
    return Stored(
        plain["id"],
        Head(plain["task"], plain["goals"], plain["policy"], plain["context"]),
        Loop(plain["id"], goals, attempts, overrides, cancelled=plain["cancelled"]),
        tuple(one["output"] for one in made),
        tuple(map(_decision, plain["decisions"])),
        {},
        0,
        plain["created"],
        plain["updated"],
    )


def _attempt(plain: Mapping[str, Any]) -> Attempt:
    output, digest = plain["output"], plain["digest"]
    candidate = (
        Candidate(digest) if output is None else replace(Candidate.of(output), digest=digest)
    )
    evaluation, usage = evaluation_from(plain["evaluation"]), Usage(**plain["usage"])
    labels = plain["labels"]
    return Attempt(plain["number"], candidate, evaluation, usage, plain["repeats"], labels)


def _decision(plain: Mapping[str, Any]) -> Decision:
    standing = Standing(plain["fatigue"], echoes=plain["echoes"])
    return Decision(plain["attempt"], verdict_from(plain["verdict"]), standing, plain["at"])


def seen(plain: Mapping[str, Any]) -> Seen:
    """Whether an error is known; of patterns counted as one only their digests and why are told."""
    lessons, why = tuple(plain["lessons"]), tuple(plain["why"])
    members = tuple(dict.fromkeys(one["signature"] for one in lessons))
    return Seen(plain["count"], lessons, Merge("", "", members, why) if why else None)


def found(plain: Mapping[str, Any]) -> Found:
    """An example that recall brought; how near it is, its place in the list says."""
    return read(Found, {**plain, "example": plain, "at": plain.get("at", 0.0)})


def dream(plain: Mapping[str, Any]) -> Dream:
    """A consolidation, and why nothing happened where nothing did."""
    return read(Dream, {**plain, "found": plain["nothing"]})
