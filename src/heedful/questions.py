"""A question about a pipeline's run -> the facts of its report that answer it, exact and cited.

No model is asked, and what the report does not have is not answered. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from heedful.answers import TOLD, Fact, place
from heedful.asked import Asked, asked
from heedful.loop.feedback import clean
from heedful.reports import Report, StageReport

UNDERSTOOD: Mapping[str, str] = {
    "retried": "why {} was retried",
    "failed": "what failed in {}",
    "warned": "what was warned of in {}",
    "ended": "how {} ended, and why",
    "fed_back": "what was fed back in {}",
    "changed": "what changed between the attempts of {}",
    "cost": "how long {} took and what it cost",
    "most": "which checks failed most in {}",
    "passed": "whether {} passed",
    "count": "how many attempts {} took",
    "summary": "what happened in {}",
}
NOT_UNDERSTOOD = (
    "the question was not understood; ask why something was retried, failed, was halted or went on "
    "degraded; what was fed back; what changed between attempts; how long it took or what it cost; "
    "which check failed most; or whether it passed: of the run, or of a stage, an attempt or a "
    "check by its name or number"
)


@dataclass(frozen=True, slots=True)
class Facts:
    """The answer to a question: what was `understood`, and the facts.

    `missing` says what was not understood, or is not in the report; "" where all was answered.
    """

    question: str
    understood: str
    facts: tuple[Fact, ...]
    missing: str = ""

    def __str__(self) -> str:
        lines = [f"{self.missing}; what there is:"] if self.missing else []
        lines += [f"asked: {self.understood}"] if self.understood else []
        lines += [f"{number}. {fact}" for number, fact in enumerate(self.facts, 1)]
        files = dict.fromkeys(one.file for one in self.facts if one.file)
        lines += [f"reports: {', '.join(files)}"] if files else []
        return "\n".join(lines)

    def plain(self) -> dict[str, Any]:
        """As JSON data, each fact with its number and how it is cited."""
        listed = [
            {"number": number, "cite": one.cite, **asdict(one)}
            for number, one in enumerate(self.facts, 1)
        ]
        return asdict(self) | {"facts": listed}


def facts(report: Report, question: str = "") -> Facts:
    """What the report says to the question, whatever text that is; without one, a summary.

    Where the question is not understood, or asks for what is not there, `missing` says so and the
    facts are the summary.
    """
    found = asked(report, question)
    if not found.intent and not question.strip():
        found = Asked("summary")
    if found.missing or not found.intent:
        missing = f"not in the report: {found.missing}" if found.missing else NOT_UNDERSTOOD
        whole = tuple(TOLD["summary"](report, Asked()))
        return Facts(question, "", whole, clean(missing, 1_000))
    return _told(report, found, question)


def stage_facts(report: Report, stage: str) -> Facts:
    """All that happened in one stage, by its name or its number from 1. Raises UnknownName."""
    return _told(report, Asked("summary", (stage_of(report, stage),)))


def stage_of(report: Report, stage: str) -> StageReport:
    """The stage of that name, or of that number from 1. Raises UnknownName."""
    numbered = {str(number): one for number, one in enumerate(report.stages, 1)}
    named = {one.name: one for one in report.stages}
    return named.get(stage) or numbered.get(stage) or report.stage(stage)


def _told(report: Report, found: Asked, question: str = "") -> Facts:
    parts = [place(report, one) for one in found.stages]
    parts += [f"attempt {number}" for number in found.attempts]
    parts += [f"check {clean(name, 200)}" for name in found.checks]
    what = ", ".join(parts) or f"run {clean(report.run, 200)}"
    listed = dict.fromkeys(TOLD[found.intent](report, found))
    return Facts(question, UNDERSTOOD[found.intent].format(what), tuple(listed))
