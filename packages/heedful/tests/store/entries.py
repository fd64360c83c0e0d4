"""Entries to commit. Programs that are killed import them: they need no pytest."""

from typing import Any

from heedful.lessons.lesson import Lesson, Scope
from heedful.lessons.signature import signature
from heedful.loop.decide import Again, Verdict
from heedful.loop.record import Attempt, Candidate, Evaluation, Finding, Usage
from heedful.store.records import Head, JournalEntry

SCOPE = Scope()


def attempt(number: int, text: str = "text", *errors: str) -> Attempt:
    findings = tuple(Finding("check", key, key=key) for key in errors)
    return Attempt(
        number,
        Candidate.of(text),
        evaluation=Evaluation(findings),
        usage=Usage(calls=1),
    )


def report(
    id: str,
    number: int,
    text: str = "text",
    verdict: Verdict | None = None,
    **fields: Any,
) -> JournalEntry:
    fields = {"epoch": 1, "head": Head(task="task"), **fields}
    return JournalEntry(
        id=id,
        attempt=attempt(number, text, "x"),
        value=text,
        verdict=verdict or Again(),
        **fields,
    )


def build_lesson(
    text: str, error_type: str = "E", kind: str = "check", **fields: Any
) -> Lesson:
    """Return a lesson about an error, in the words in which the error was seen."""
    return Lesson(
        kind,
        signature(error_type, text),
        error_type=error_type,
        text=text,
        sighting=text,
        **fields,
    )
