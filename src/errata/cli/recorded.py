"""Recorded loops to replay: from a database, or from a file of one loop a line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from errata.cli.lines import json_lines, text_of
from errata.cli.opening import scope_of, stored
from errata.cli.settings import Settings
from errata.codec import finding_from
from errata.configured import goal
from errata.errors import InvalidInput, RecordFileError, UsageError
from errata.loop.record import Attempt, Candidate, Evaluation, Finding, Loop
from errata.loop.replay import Recorded
from errata.near import near
from errata.protocols import Usage

LOOP = ("id", "task", "goals", "attempts")
ATTEMPT = ("candidate", "digest", "passed", "findings", "scores", "met", "usage", "quality")
NOT_PASSED = Finding("recorded", "not passed")


def is_file(source: str) -> bool:
    """Whether it names a file of lines; everything else is a database."""
    return source.endswith((".jsonl", ".jsonl.gz"))


async def from_store(values: Settings, last: int) -> list[Recorded]:
    """The newest loops of the scope that have an attempt, oldest first."""
    async with stored(values) as store:
        found = await store.loops(scope_of(values), last)
    return [Recorded(one.loop) for one in reversed(found) if one.loop.attempts]


def from_file(path: Path) -> list[Recorded]:
    """The loops of a file. Raises RecordFileError with the line."""
    made = []
    for entry in json_lines(path, text_of(path, RecordFileError), RecordFileError):
        try:
            made.append(_recorded(entry.value))
        except UsageError as error:
            raise RecordFileError(str(path), entry.line, str(error)) from error
        except (TypeError, ValueError, AttributeError) as error:
            what = f"it is not as the reference says ({error})"
            raise RecordFileError(str(path), entry.line, what) from error
    return made


def _recorded(value: Any) -> Recorded:
    _keys("a loop", value, LOOP)
    listed = value.get("attempts")
    if not isinstance(listed, list) or not listed:
        raise InvalidInput("attempts", listed, "a list of at least one attempt")
    attempts: list[Attempt] = []
    for number, one in enumerate(listed, 1):
        _keys(f"attempt {number}", one, ATTEMPT)
        attempts.append(_attempt(number, one, attempts))
    goals = tuple(map(goal, value.get("goals") or ()))
    known = [one["quality"] for one in listed if one.get("quality") is not None]
    if known and len(known) < len(listed):
        raise InvalidInput("quality", known, "given for every attempt of a loop, or for none")
    loop = Loop(str(value.get("id", "")), goals, tuple(attempts))
    return Recorded(loop, tuple(known))


def _keys(what: str, value: Any, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, Mapping):
        raise InvalidInput(what, value, f"an object of {', '.join(allowed)}")
    for key in value:
        if key not in allowed:
            raise InvalidInput(f"a key of {what}", key, f"one of {', '.join(allowed)}")


def _attempt(number: int, value: Mapping[str, Any], before: list[Attempt]) -> Attempt:
    digest, text = value.get("digest"), value.get("candidate")
    if digest is None and text is None:
        raise InvalidInput(f"candidate of attempt {number}", None, "given, or its digest")
    candidate = Candidate.of(text) if digest is None else Candidate(str(digest), text)
    findings = tuple(map(finding_from, value.get("findings") or ()))
    passed = value.get("passed")
    if passed is not None and not isinstance(passed, bool):
        raise InvalidInput(f"passed of attempt {number}", passed, "true or false")
    if passed is False and not any(finding.level == "error" for finding in findings):
        findings = (*findings, NOT_PASSED)
    evaluation = Evaluation(findings, dict(value.get("scores") or {}), met=value.get("met"))
    if passed and evaluation.errors:
        raise InvalidInput(f"passed of attempt {number}", passed, "false: it has error findings")
    usage = Usage(**{"calls": 1, **(value.get("usage") or {})})
    return Attempt(number, candidate, evaluation, usage, near(candidate, before))
