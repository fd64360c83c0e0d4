"""Reflections by rules on forty failures of real tools, for a reader who judges them.

The job writes what the reader sees to `bench/out/failures.json`, and the verdicts of
`failures_verdicts.json` to docs/failures.md. A verdict holds only for the lesson that
was read.
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
from bench.quality.rows import Row

HERE = Path(__file__).parent
PAIRS = Path("bench/out/failures.json")
PAGE = HERE.parent.parent / "docs" / "failures.md"
# What follows this line in the page is generated.
MARK = "<!-- From here on written by `make quality ONLY=failures`. -->\n"
HEADER = (
    "| failure | what happened | the lesson | true | would help | why "
    "|\n|---|---|---|---|---|---|"
)
SHOWN = ("id", "type", "tool", "arguments", "content", "error", "code")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A failure, its episode, the lesson and the rule that heedful draws from it."""

    known: dict[str, Any]
    episode: heedful.Episode
    lesson: str
    rule: str

    @property
    def id(self) -> str:
        """The name of the case."""
        return str(self.known["id"])

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
    """Yield the shares of all lessons that were read, are true, would help, and
    both.
    """
    found = cases()
    said = verdicts()
    PAIRS.parent.mkdir(parents=True, exist_ok=True)
    PAIRS.write_text(
        json.dumps([pair(one) for one in found], ensure_ascii=False, indent=1) + "\n"
    )
    PAGE.write_text(
        page(PAGE.read_text(encoding="utf-8"), found, said), encoding="utf-8"
    )
    for key, count in counts(current(found, said)).items():
        yield Row(
            key=f"failures.{key}",
            ours=count / len(found),
            anchor="0.8" if key == "both" else "",
        )


def cases() -> list[Case]:
    """Return every failure with what heedful says of it, without a model and without a
    memory.
    """
    return asyncio.run(
        _reflected(json.loads((HERE / "failures.json").read_text("utf-8")))
    )


async def _reflected(known: Iterable[dict[str, Any]]) -> list[Case]:
    found = []
    for each in known:
        episode = episode_of(each)
        made = await heedful.reflect(episode)
        rule = made.strategy.text if made and made.strategy else ""
        found.append(
            Case(
                known=each, episode=episode, lesson=made.text if made else "", rule=rule
            )
        )
    return found


def episode_of(known: dict[str, Any]) -> heedful.Episode:
    """Read the recorded run of a failure as heedful reads a file of that format."""
    entries = known["run"] if isinstance(known["run"], list) else [known["run"]]
    lines = "\n".join(json.dumps(entry) for entry in entries).encode()
    (episode,) = heedful.traces.read(lines)
    return episode


def pair(case: Case) -> dict[str, Any]:
    """Return what the reader sees of a case: the task, the events, the end, and the
    lesson.
    """
    return {
        "id": case.id,
        "task": case.episode.task,
        "events": [
            {name: value for name in SHOWN if (value := getattr(event, name))}
            for event in case.episode.events
        ],
        "outcome": case.episode.outcome,
        "reflection": case.lesson,
        "strategy": case.rule,
        "lesson": case.digest,
    }


def verdicts() -> list[Verdict]:
    """Return what was said of lessons, of these and of earlier ones."""
    path = HERE / "failures_verdicts.json"
    given = json.loads(path.read_text(encoding="utf-8"))
    return [Verdict(**one) for one in given]


def current(found: Sequence[Case], said: Iterable[Verdict]) -> dict[str, Verdict]:
    """Return the verdicts on the lessons as they are now, by case."""
    digests = {case.id: case.digest for case in found}
    return {one.id: one for one in said if digests.get(one.id) == one.lesson}


def counts(read: Mapping[str, Verdict]) -> dict[str, int]:
    """Count the lessons that were read, are true, would help, and both."""
    given = list(read.values())
    return {
        "read": len(given),
        "true": sum(one.true for one in given),
        "helps": sum(one.helps for one in given),
        "both": sum(one.true and one.helps for one in given),
    }


def page(before: str, found: Sequence[Case], said: Iterable[Verdict]) -> str:
    """Return the page: what stands above the mark, the figures, and a row for each
    failure.
    """
    head, mark, _ = before.partition(MARK)
    if not mark:
        raise SystemExit(f"{PAGE} has no line {MARK}")
    read = current(found, said)
    total = counts(read)
    share = f"{total['both'] / len(found):.0%}"
    figures = (
        f"Of {len(found)} lessons, {total['read']} were read as they are now: "
        f"{total['true']} are "
        f"true, {total['helps']} would help, {total['both']} are both ({share} of all)."
    )
    lines = [
        "## The verdicts",
        "",
        figures,
        "",
        HEADER,
        *(_row(one, read) for one in found),
    ]
    return f"{head}{mark}\n" + "\n".join(lines) + "\n"


def _row(case: Case, read: Mapping[str, Verdict]) -> str:
    known = case.known
    verdict = read.get(case.id)
    name = f"[{known['tool']}]({known['source']}): {known['kind']}"
    lesson = " <br> ".join(filter(None, (case.lesson, case.rule))) or "(none)"
    given = ["unread", "unread", ""]
    if verdict:
        given = [
            *("yes" if one else "no" for one in (verdict.true, verdict.helps)),
            verdict.reason,
        ]
    return f"| {name} | {' | '.join(map(_cell, (known['happened'], lesson, *given)))} |"


def _cell(text: str) -> str:
    """Return a text for a cell of a table; nothing in it is a link, a tag or a new
    cell.
    """
    plain = " ".join(text.split()).replace("\\", "\\\\")
    for sign in "|[]*_`":
        plain = plain.replace(sign, f"\\{sign}")
    return plain.replace("<", "&lt;").replace(" &lt;br> ", " <br> ")
