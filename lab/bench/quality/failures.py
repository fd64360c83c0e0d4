"""Reflections by rules on forty failures of real tools, for a reader who judges them.

The job writes what the reader sees to `bench/out/failures.json`, and the verdicts of
`failures_verdicts.json` to docs/appendix/failures.md. A verdict holds only for the
lesson that was read.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import heedful
from bench.quality.rows import Row, write_json

HERE = Path(__file__).parent
PAIRS = Path("bench/out/failures.json")
PAGE = HERE.parents[2] / "docs" / "appendix" / "failures.md"
# What follows this line in the page is generated.
MARK = "<!-- From here on written by `make quality ONLY=failures`. -->\n"
HEADER = (
    "| tool, kind | what happened | the lesson | true | would help | reader's reason "
    "|\n|---|---|---|---|---|---|"
)
SHOWN = ("id", "type", "tool", "arguments", "content", "error", "code")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A failure, its episode, the lesson and the rule that heedful draws from it."""

    failure: dict[str, Any]
    episode: heedful.Episode
    lesson: str
    rule: str

    @property
    def id(self) -> str:
        """The name of the case."""
        return str(self.failure["id"])

    @property
    def digest(self) -> str:
        """The name of the lesson's wording, which a verdict refers to."""
        return hashlib.sha256(f"{self.lesson}\n{self.rule}".encode()).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a reader says of the lesson that has the digest `lesson`."""

    id: str
    lesson: str
    true: bool
    helps: bool
    reason: str


def run(data: Path, split: str) -> Iterator[Row]:
    """Yield the shares of lessons that were read, are true, would help, and both."""
    cases = reflect_on_cases()
    verdicts = read_verdicts()
    pairs = [reader_view(case) for case in cases]
    write_json(PAIRS, pairs)
    page = render_page(PAGE.read_text(encoding="utf-8"), cases, verdicts)
    PAGE.write_text(page, encoding="utf-8")
    for key, count in count_verdicts(current_verdicts(cases, verdicts)).items():
        anchor = "0.8" if key == "both" else ""
        yield Row(key=f"failures.{key}", ours=count / len(cases), anchor=anchor)


def reflect_on_cases() -> list[Case]:
    """Return every failure with what heedful says of it, without model or memory."""
    failures = json.loads((HERE / "failures.json").read_text("utf-8"))
    return asyncio.run(_reflect_on(failures))


async def _reflect_on(failures: Iterable[dict[str, Any]]) -> list[Case]:
    cases = []
    for failure in failures:
        episode = episode_of(failure)
        reflection = await heedful.reflect(episode)
        lesson = ""
        rule = ""
        if reflection:
            lesson = reflection.text
            if reflection.strategy:
                rule = reflection.strategy.text
        cases.append(Case(failure=failure, episode=episode, lesson=lesson, rule=rule))
    return cases


def episode_of(failure: dict[str, Any]) -> heedful.Episode:
    """Read the recorded run of a failure as heedful reads a file of that format."""
    entries = failure["run"] if isinstance(failure["run"], list) else [failure["run"]]
    lines = "\n".join(json.dumps(entry) for entry in entries).encode()
    (episode,) = heedful.episodes.read(lines)
    return episode


def reader_view(case: Case) -> dict[str, Any]:
    """Return what the reader sees of a case: task, events, end and lesson."""
    return {
        "id": case.id,
        "task": case.episode.task,
        "events": [event_view(event) for event in case.episode.events],
        "outcome": case.episode.outcome,
        "reflection": case.lesson,
        "strategy": case.rule,
        "lesson": case.digest,
    }


def event_view(event: heedful.Event) -> dict[str, Any]:
    """Return what the reader sees of an event."""
    values = {name: getattr(event, name) for name in SHOWN}
    return {name: value for name, value in values.items() if value}


def read_verdicts() -> list[Verdict]:
    """Return what was said of lessons, of these and of earlier ones."""
    path = HERE / "failures_verdicts.json"
    rows = json.loads(path.read_text(encoding="utf-8"))
    return [Verdict(**row) for row in rows]


def current_verdicts(
    cases: Sequence[Case], verdicts: Iterable[Verdict]
) -> dict[str, Verdict]:
    """Return the verdicts on the lessons as they are now, by case."""
    digests = {case.id: case.digest for case in cases}
    return {
        verdict.id: verdict
        for verdict in verdicts
        if digests.get(verdict.id) == verdict.lesson
    }


def count_verdicts(read: Mapping[str, Verdict]) -> dict[str, int]:
    """Count the lessons that were read, are true, would help, and both."""
    verdicts = list(read.values())
    return {
        "read": len(verdicts),
        "true": sum(verdict.true for verdict in verdicts),
        "helps": sum(verdict.helps for verdict in verdicts),
        "both": sum(verdict.true and verdict.helps for verdict in verdicts),
    }


def render_page(before: str, cases: Sequence[Case], verdicts: Iterable[Verdict]) -> str:
    """Return the page: the text above the mark, figures, and a row for each failure."""
    head, mark, _ = before.partition(MARK)
    if not mark:
        raise SystemExit(f"{PAGE} has no line {MARK}")
    read = current_verdicts(cases, verdicts)
    total = count_verdicts(read)
    share = f"{total['both'] / len(cases):.0%}"
    figures = (
        f"The reader judged {total['read']} of the {len(cases)} lessons in their "
        f"present wording: {total['true']} are true, {total['helps']} would help, and "
        f"{total['both']} ({share} of all) are true and would help."
    )
    lines = [
        "## The verdicts",
        "",
        figures,
        "",
        HEADER,
        *(_row(case, read) for case in cases),
    ]
    return f"{head}{mark}\n" + "\n".join(lines) + "\n"


def _row(case: Case, read: Mapping[str, Verdict]) -> str:
    failure = case.failure
    name = f"[{failure['tool']}]({failure['source']}): {failure['kind']}"
    lesson = " <br> ".join(filter(None, (case.lesson, case.rule))) or "(none)"
    is_true = "unread"
    helps = "unread"
    reason = ""
    verdict = read.get(case.id)
    if verdict:
        is_true = "yes" if verdict.true else "no"
        helps = "yes" if verdict.helps else "no"
        reason = verdict.reason
    cells = map(_cell, (failure["happened"], lesson, is_true, helps, reason))
    return f"| {name} | {' | '.join(cells)} |"


def _cell(text: str) -> str:
    """Return a text for a cell of a table, without a link, a tag or a new cell."""
    escaped = " ".join(text.split()).replace("\\", "\\\\")
    for sign in "|[]*_`":
        escaped = escaped.replace(sign, f"\\{sign}")
    return escaped.replace("<", "&lt;").replace(" &lt;br> ", " <br> ")
