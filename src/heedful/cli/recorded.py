"""Recorded loops to replay: from a database, or from a file of one loop a line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from heedful.cli.lines import Entry, json_lines, text_of
from heedful.cli.opening import scope_of, stored
from heedful.cli.settings import Settings
from heedful.errors import InvalidInput, NotFound, RecordFileError, UsageError
from heedful.loop.codec import from_document
from heedful.loop.decide import triggers
from heedful.loop.policies import goal
from heedful.loop.record import (
    LARGEST,
    Attempt,
    Candidate,
    Evaluation,
    Finding,
    Goal,
    Loop,
    Usage,
    check_goals,
)
from heedful.loop.replay import RecordedLoop
from heedful.loop.stop import find_near_repeat as near
from heedful.store import loops, shown
from heedful.store.history import recorded

NOT_PASSED = Finding("recorded", "not passed")
Watch = Callable[[int, int], object]
Shape = Mapping[str, tuple[Callable[[Any], bool], str]]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _name(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _number(value: Any, low: float = 0, high: float = LARGEST) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _count(value: Any) -> bool:
    return isinstance(value, int) and _number(value)


def _share(value: Any) -> bool:
    return _number(value, 0, 1)


def _range(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_count, value))


def _object(value: Any) -> bool:
    return isinstance(value, dict)


COUNT, SUM = (_count, "an integer in 0..1e12"), (_number, "a number in 0..1e12")
SHARE, WORDS = (_share, "a number in 0..1"), (_text, "text")
LOOP: Shape = {
    "id": (lambda id: _name(id) or _count(id), "text of at least one character, or an integer"),
    "task": (lambda task: True, "anything"),
    "goals": (lambda goals: isinstance(goals, list), 'a list such as ["alignment >= 0.75"]'),
    "attempts": (
        lambda attempts: isinstance(attempts, list) and len(attempts) > 0,
        "a list of at least one attempt",
    ),
}
ATTEMPT: Shape = {
    "candidate": (lambda candidate: True, "anything"),
    "digest": (_name, "text of at least one character"),
    "passed": (_flag, "true or false"),
    "findings": (lambda found: isinstance(found, list), "a list of objects with check and message"),
    "scores": (_object, 'an object such as {"alignment": 0.8}'),
    "met": SHARE,
    "usage": (_object, 'an object such as {"calls": 1}'),
    "quality": SHARE,
}
FINDING: Shape = {
    "check": (_name, "text of at least one character"),
    **dict.fromkeys(("message", "fix", "key", "evidence"), WORDS),
    "level": (lambda level: level in ("error", "warning", "note"), "error, warning or note"),
    "severity": SHARE,
    "persistent": (_flag, "true or false"),
    "span": (_range, "a list of two integers of at least 0"),
}
USAGE: Shape = {
    **dict.fromkeys(("calls", "prompt_tokens", "completion_tokens"), COUNT),
    **dict.fromkeys(("cost", "seconds"), SUM),
}


def is_file(source: str) -> bool:
    """Whether it names a file of lines; everything else is a database."""
    return source.endswith((".jsonl", ".jsonl.gz"))


async def from_store(values: Settings, last: int) -> list[RecordedLoop]:
    """The newest loops of the scope that have an attempt, oldest first. Raises NotFound.

    The run of a pipeline is none: its stages are, each with its own attempts.
    """
    scope = scope_of(values)
    async with stored(values) as store:
        found = await store.read(scope, loops.newest, last)
    made = recorded(found)
    if not made:
        where = f"{shown(values.db)} has an attempt; heedful run makes some"
        raise NotFound("loop of scope", f"{scope.tenant}/{scope.project}", where)
    return made


def from_file(path: Path, watch: Watch = lambda done, total: None) -> list[RecordedLoop]:
    """The loops of a file, at least one. Raises RecordFileError with the line."""
    entries = json_lines(path, text_of(path, RecordFileError), RecordFileError)
    if not entries:
        raise RecordFileError(str(path), 0, "it holds no loop; give at least one with attempts")
    made = []
    for entry in entries:
        try:
            made.append(_recorded(entry))
        except (UsageError, RecursionError) as error:
            deep = isinstance(error, RecursionError)
            what = "it is nested too deeply" if deep else str(error)
            raise RecordFileError(str(path), entry.line, what) from error
        watch(len(made), len(entries))
    return made


def _recorded(entry: Entry) -> RecordedLoop:
    """The loop of one line; one without an id is named by its line. Raises UsageError."""
    value = _given("the loop", entry.value, LOOP)
    if "attempts" not in value:
        raise InvalidInput("attempts of the loop", None, LOOP["attempts"][1])
    goals = tuple(map(goal, value.get("goals", ())))
    check_goals(goals)
    listed = [_given(f"attempt {n}", one, ATTEMPT) for n, one in enumerate(value["attempts"], 1)]
    attempts: list[Attempt] = []
    for number, one in enumerate(listed, 1):
        attempts.append(_attempt(number, one, goals, attempts))
    loop = Loop(str(value.get("id", f"line {entry.line}")), goals, tuple(attempts))
    return RecordedLoop(loop, _quality(listed))


def _given(what: str, value: Any, shape: Shape) -> dict[str, Any]:
    """The entries of an object that are not null. Raises InvalidInput for one that does not fit."""
    if not isinstance(value, dict):
        raise InvalidInput(what, value, f"an object of {', '.join(shape)}")
    for key, held in value.items():
        if key not in shape:
            raise InvalidInput(f"a key of {what}", key, f"one of {', '.join(shape)}")
        fits, allowed = shape[key]
        if held is not None and not fits(held):
            raise InvalidInput(f"{key} of {what}", held, allowed)
    return {key: held for key, held in value.items() if held is not None}


def _attempt(
    number: int, value: Mapping[str, Any], goals: tuple[Goal, ...], before: Sequence[Attempt]
) -> Attempt:
    what = f"attempt {number}"
    candidate = _candidate(what, value)
    findings = [
        _finding(f"finding {place} of {what}", one)
        for place, one in enumerate(value.get("findings", ()), 1)
    ]
    scores = value.get("scores", {})
    for name, score in scores.items():
        if not _number(score, -LARGEST):
            allowed = "a number within ±1e12; leave it out if unknown"
            raise InvalidInput(f"score {name} of {what}", score, allowed)
    judged = Evaluation(tuple(findings), scores, met=value.get("met"))
    evaluation = _judged(what, value, goals, judged)
    usage = Usage(**{"calls": 1, **_given(f"usage of {what}", value.get("usage", {}), USAGE)})
    return Attempt(number, candidate, evaluation, usage, near(candidate, before))


def _candidate(what: str, value: Mapping[str, Any]) -> Candidate:
    digest, content = value.get("digest"), value.get("candidate")
    if content is None and digest is None:
        raise InvalidInput(f"candidate of {what}", None, "given, or its digest")
    if content is None:
        return Candidate(str(digest))
    made = Candidate.of(content)
    return made if digest is None else Candidate(digest, made.text)


def _finding(what: str, value: Any) -> Finding:
    given = _given(what, value, FINDING)
    for key in ("check", "message"):
        if key not in given:
            raise InvalidInput(f"{key} of {what}", None, "given")
    return from_document(Finding, given)


def _judged(
    what: str, value: Mapping[str, Any], goals: tuple[Goal, ...], found: Evaluation
) -> Evaluation:
    """The evaluation, with a finding where nothing else says why the attempt did not pass."""
    passed = value.get("passed")
    if passed is None and not value.keys() & {"findings", "scores"}:
        raise InvalidInput(f"passed of {what}", None, "given, or findings, or scores")
    passes = found.passes(goals)
    if passed and not passes:
        why = triggers(found, goals)[0]
        allowed = f"false: it has an error finding, or misses a goal ({why.code}: {why.detail})"
        raise InvalidInput(f"passed of {what}", True, allowed)
    if passed is False and passes:
        return Evaluation((*found.findings, NOT_PASSED), found.scores, met=found.met)
    return found


def _quality(listed: Sequence[Mapping[str, Any]]) -> tuple[float, ...]:
    known = tuple(one["quality"] for one in listed if "quality" in one)
    if known and len(known) < len(listed):
        first = next(n for n, one in enumerate(listed, 1) if "quality" not in one)
        allowed = "given for every attempt of a loop, or for none"
        raise InvalidInput(f"quality of attempt {first}", None, allowed)
    return known
