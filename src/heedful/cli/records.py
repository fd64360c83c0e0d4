"""Recorded loops to replay: from a database, or from a file with one loop per line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from heedful.cli.progress import Progress, drive
from heedful.cli.settings import Settings, scope_of, settings, stored
from heedful.cli.tasks import Entry, json_lines, text_of
from heedful.errors import InvalidInput, NotFound, RecordFileError, StoreCorrupt, UsageError
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

LARGE = 20_000_000  # bytes that take more than a moment to read
NOT_PASSED = Finding("recorded", "not passed")
Rule = tuple[Callable[[Any], bool], str]
Shape = Mapping[str, Rule]


def _number(value: Any, low: float = 0, high: float = LARGEST) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _count(value: Any) -> bool:
    return isinstance(value, int) and _number(value)


def _list(value: Any) -> bool:
    return isinstance(value, list)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _anything(value: Any) -> bool:
    return True


# What each key may hold: a test, and how an error says it.
NAME: Rule = (
    lambda value: isinstance(value, str) and value != "",
    "text of at least one character",
)
WORDS: Rule = (lambda value: isinstance(value, str), "text")
FLAG: Rule = (lambda value: isinstance(value, bool), "true or false")
COUNT, SUM = (_count, "an integer in 0..1e12"), (_number, "a number in 0..1e12")
SHARE: Rule = (lambda value: _number(value, 0, 1), "a number in 0..1")
LOOP: Shape = {
    "id": (lambda id: NAME[0](id) or _count(id), f"{NAME[1]}, or an integer"),
    "task": (_anything, "anything"),
    "goals": (_list, 'a list such as ["alignment >= 0.75"]'),
    "attempts": (lambda value: _list(value) and value != [], "a list of at least one attempt"),
}
ATTEMPT: Shape = {
    "candidate": (_anything, "anything"),
    "digest": NAME,
    "passed": FLAG,
    "findings": (_list, "a list of objects with check and message"),
    "scores": (_object, 'an object such as {"alignment": 0.8}'),
    "met": SHARE,
    "usage": (_object, 'an object such as {"calls": 1}'),
    "quality": SHARE,
}
FINDING: Shape = {
    "check": NAME,
    **dict.fromkeys(("message", "fix", "key", "evidence"), WORDS),
    "level": (lambda level: level in ("error", "warning", "note"), "error, warning or note"),
    "severity": SHARE,
    "persistent": FLAG,
    "span": (
        lambda value: _list(value) and len(value) == 2 and all(map(_count, value)),
        "a list of two integers of at least 0",
    ),
}
USAGE: Shape = {
    **dict.fromkeys(("calls", "prompt_tokens", "completion_tokens"), COUNT),
    **dict.fromkeys(("cost", "seconds"), SUM),
}


def read_records(source: str | None, last: int, progress: Progress) -> list[RecordedLoop]:
    """Read recorded loops of a database or a file, at least one. Raises NotFound, UsageError."""
    in_file = source is not None and _is_file(source)
    values = settings() if source is None or in_file else settings(db=source)
    name = source or values.db
    path = Path(name)
    if path.is_file() and path.stat().st_size >= LARGE:
        progress.say(f"reading {name}, {path.stat().st_size / 1e6:.0f} MB")
    if _is_file(name):
        return read_file(path, lambda done, total: progress.counted("reading", done, total))
    try:
        return drive(_read_store(values, last))
    except StoreCorrupt as error:
        if source is not None:
            error.add_note("the name of a file of one loop a line must end in .jsonl or .jsonl.gz")
        raise


def _is_file(source: str) -> bool:
    return source.endswith((".jsonl", ".jsonl.gz"))


async def _read_store(values: Settings, last: int) -> list[RecordedLoop]:
    scope = scope_of(values)
    async with stored(values) as store:
        made = recorded(await store.read(scope, loops.newest, last))
    if not made:
        where = f"{shown(values.db)} has an attempt; heedful run makes some"
        raise NotFound("loop of scope", f"{scope.tenant}/{scope.project}", where)
    return made


def read_file(
    path: Path, watch: Callable[[int, int], object] = lambda done, total: None
) -> list[RecordedLoop]:
    """Read the loops of a file, at least one. Raises RecordFileError with the line."""
    entries = json_lines(path, text_of(path, RecordFileError), RecordFileError)
    if not entries:
        raise RecordFileError(str(path), 0, "it holds no loop; give at least one with attempts")
    made = []
    for entry in entries:
        try:
            made.append(_parse(entry))
        except (UsageError, RecursionError) as error:
            deep = isinstance(error, RecursionError)
            what = "it is nested too deeply" if deep else str(error)
            raise RecordFileError(str(path), entry.line, what) from error
        watch(len(made), len(entries))
    return made


def _parse(entry: Entry) -> RecordedLoop:
    """Parse the loop of one line; without an id it is named by its line. Raises UsageError."""
    value = _fit("the loop", entry.value, LOOP)
    if "attempts" not in value:
        raise InvalidInput("attempts of the loop", None, LOOP["attempts"][1])
    goals = tuple(map(goal, value.get("goals", ())))
    check_goals(goals)
    listed = [_fit(f"attempt {n}", one, ATTEMPT) for n, one in enumerate(value["attempts"], 1)]
    attempts: list[Attempt] = []
    for number, one in enumerate(listed, 1):
        attempts.append(_parse_attempt(number, one, goals, attempts))
    quality = tuple(one["quality"] for one in listed if "quality" in one)
    if quality and len(quality) < len(listed):
        first = next(n for n, one in enumerate(listed, 1) if "quality" not in one)
        allowed = "given for every attempt of a loop, or for none"
        raise InvalidInput(f"quality of attempt {first}", None, allowed)
    return RecordedLoop(
        Loop(str(value.get("id", f"line {entry.line}")), goals, (*attempts,)), quality
    )


def _fit(what: str, value: Any, shape: Shape) -> dict[str, Any]:
    """Return the entries of an object that are not null. Raises InvalidInput for a misfit."""
    if not isinstance(value, dict):
        raise InvalidInput(what, value, f"an object of {', '.join(shape)}")
    for key, held in value.items():
        if key not in shape:
            raise InvalidInput(f"a key of {what}", key, f"one of {', '.join(shape)}")
        fits, allowed = shape[key]
        if held is not None and not fits(held):
            raise InvalidInput(f"{key} of {what}", held, allowed)
    return {key: held for key, held in value.items() if held is not None}


def _parse_attempt(
    number: int, value: Mapping[str, Any], goals: tuple[Goal, ...], before: Sequence[Attempt]
) -> Attempt:
    what = f"attempt {number}"
    digest, content = value.get("digest"), value.get("candidate")
    if content is None and digest is None:
        raise InvalidInput(f"candidate of {what}", None, "given, or its digest")
    made = Candidate.of(content) if content is not None else Candidate(str(digest))
    candidate = made if digest is None else Candidate(digest, made.text)
    findings = []
    for place, one in enumerate(value.get("findings", ()), 1):
        about = f"finding {place} of {what}"
        finding = _fit(about, one, FINDING)
        for key in ("check", "message"):
            if key not in finding:
                raise InvalidInput(f"{key} of {about}", None, "given")
        findings.append(from_document(Finding, finding))
    scores = value.get("scores", {})
    for name, score in scores.items():
        if not _number(score, -LARGEST):
            allowed = "a number within ±1e12; leave it out if unknown"
            raise InvalidInput(f"score {name} of {what}", score, allowed)
    evaluation = Evaluation(tuple(findings), scores, met=value.get("met"))
    judged = _agree(what, value, goals, evaluation)
    usage = Usage(**{"calls": 1, **_fit(f"usage of {what}", value.get("usage", {}), USAGE)})
    return Attempt(number, candidate, judged, usage, near(candidate, before))


def _agree(
    what: str, value: Mapping[str, Any], goals: tuple[Goal, ...], found: Evaluation
) -> Evaluation:
    """Return the evaluation, with a finding added if nothing else says why the attempt failed.

    Raises InvalidInput if the evaluation contradicts `passed`.
    """
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
