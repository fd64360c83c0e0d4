"""Answer why stages of a run were retried, and count over many runs; no model is
called.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from typing import Any

from heedful.loop.runs import Report, StageAttempt, StageReport
from heedful.pages.report import counted, happened
from heedful.sanitize import clean

MAX_QUESTION_CHARS = 2_000  # characters of a question, a message or a fix
MAX_STAGE_NAME_CHARS = 200  # characters of a name
CHECK_STATUS_WORDS = {"failed": "failed", "not_validated": "could not judge"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A statement from a report, with check messages word for word.

    A fact about the whole run has no `stage`. A fact about a whole stage has no
    `attempt` and no `check`. `quote` holds lines below the `text`.
    """

    text: str
    run: str
    stage: str = ""
    attempt: int = 0
    check: str = ""
    quote: str = ""

    @property
    def cite(self) -> str:
        """The place in the report: `[stage/attempt N/check]`, or `[run]`."""
        attempt = f"attempt {self.attempt}" if self.attempt else ""
        parts = (self.stage or self.run, attempt, self.check)
        return (
            f"[{'/'.join(clean(part, MAX_STAGE_NAME_CHARS) for part in parts if part)}]"
        )

    def __str__(self) -> str:
        quoted = "".join(f"\n   | {line}".rstrip() for line in self.quote.splitlines())
        return f"{self.cite} {self.text}{quoted}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAnswer:
    """The facts that answer a question; `understood` is the question in heedful's
    words.

    `missing` is a stage in the question that the report lacks; the facts are then about
    all stages.
    """

    question: str
    understood: str
    facts: tuple[Fact, ...]
    missing: str = ""

    def __str__(self) -> str:
        lines = (
            [f"not in the report: {self.missing}; what there is:"]
            if self.missing
            else []
        )
        lines.append(f"asked: {self.understood}")
        lines += [f"{number}. {fact}" for number, fact in enumerate(self.facts, 1)]
        return "\n".join(lines)

    def plain(self) -> dict[str, Any]:
        """Return JSON data, each fact with its number and its citation."""
        numbered = enumerate(self.facts, 1)
        facts = [
            {"number": n, "cite": fact.cite, **asdict(fact)} for n, fact in numbered
        ]
        return asdict(self) | {"facts": facts}


def answer(report: Report, question: str = "") -> RunAnswer:
    """Return why the stages in `question` were retried; if it names no stage, return
    all stages.
    """
    named, missing = _find_stages(report, question[:MAX_QUESTION_CHARS])
    stages = [stage for stage in report.stages if stage.name in named]
    facts = []
    if missing or not stages:
        understood = f"which stages of run {clean(report.run, MAX_STAGE_NAME_CHARS)} were retried, and why"
        facts = [Fact(text=describe_run(report), run=report.run)]
        stages = list(report.stages)
    else:
        listed = ", ".join(_place(report, stage, named[stage.name]) for stage in stages)
        understood = f"why {listed} was retried"
    for stage in stages:
        facts.append(
            Fact(text=describe_stage(report, stage), run=report.run, stage=stage.name)
        )
        for line in stage.briefing.lines if stage.briefing else ():
            told = f"memory, before each attempt: {clean(line, MAX_QUESTION_CHARS)}"
            facts.append(Fact(text=told, run=report.run, stage=stage.name))
        facts += _story(stage)
    return RunAnswer(
        question=question, understood=understood, facts=tuple(facts), missing=missing
    )


def find_stage(report: Report, stage: str) -> StageReport:
    """Return the stage with the name `stage`, or else the stage that a number means.

    The number 4 means what "stage 4" means in a question. Raises UnknownName.
    """
    exact = [one for one in report.stages if one.name == stage]
    return (exact or _numbered(report, _number(stage)) or [report.stage(stage)])[0]


def _number(name: str) -> int | None:
    """Return the number in a name such as `stage4`, `stage_4` or `4`; None for other
    names.
    """
    found = re.fullmatch(r"(?:(?:stage|step)[\W_]*)?(\d{1,9})", name.casefold())
    return int(found[1]) if found else None


def _numbered(report: Report, number: int | None) -> list[StageReport]:
    """Return the stages that have this number in their name, or else the stage at this
    place.
    """
    if number is None:
        return []
    named = [stage for stage in report.stages if _number(stage.name) == number]
    return named or [*report.stages[number - 1 : number]]


def describe_run(report: Report) -> str:
    """Return a text that says how the run ended."""
    degraded = ", ".join(clean(name, MAX_STAGE_NAME_CHARS) for name in report.degraded)
    ending = {
        "degraded": f"was degraded after {degraded}",
        "halted": "was halted",
        "open": (
            f"is open: it was interrupted (run it again with id={report.run!r}) or "
            "still runs"
        ),
        "passed": "passed",
    }[report.status]
    attempts = counted(sum(len(stage.attempts) for stage in report.stages), "attempt")
    names = f"run {clean(report.run, MAX_STAGE_NAME_CHARS)} of pipeline {clean(report.pipeline, MAX_STAGE_NAME_CHARS)}"
    return f"{names} {ending}; {counted(len(report.stages), 'stage')}, {attempts}"


def describe_stage(report: Report, stage: StageReport) -> str:
    """Return a text that says how the stage ended."""
    return f"{_place(report, stage)} {happened(stage)}"


def _place(report: Report, stage: StageReport, meant: str = "") -> str:
    name = ", ".join(filter(None, (clean(stage.name, MAX_STAGE_NAME_CHARS), meant)))
    return f"stage {report.stages.index(stage) + 1} ({name})"


def _find_stages(report: Report, question: str) -> tuple[dict[str, str], str]:
    """Return the names of the stages in a question, and a text about a stage that does
    not exist.

    "stage 4" is the stage named `stage4`, `stage_4` or `4`, or else the fourth stage;
    the value of its name says which. Other names are looked for only in a question
    without such a number.
    """
    text = re.sub(r"[\W_]+", " ", question.casefold())
    found = dict[str, str]()
    missing = ""
    listed = re.findall(
        r"\b(?:stage|step)s? ?(\d{1,9}\b(?: (?:and |or )?\d{1,9}\b)*)", text
    )
    for number in map(int, re.findall(r"\d+", " ".join(listed))):
        stages = _numbered(report, number)
        for stage in stages:
            found[stage.name] = (
                "by its name" if _number(stage.name) == number else "by its place"
            )
        if not (stages or missing):
            missing = (
                f"stage {number}: the run has {counted(len(report.stages), 'stage')}"
            )
    for stage in (
        sorted(report.stages, key=lambda stage: -len(stage.name)) if not listed else ()
    ):
        name = re.sub(r"[\W_]+", " ", stage.name.casefold()).strip() or "(?!)"
        text, times = re.subn(rf"\b{name}\b", "", text)
        found |= {stage.name: ""} if times and _number(stage.name) is None else {}
    return found, missing


def _story(stage: StageReport) -> Iterator[Fact]:
    """Yield facts about each attempt: how it ended, what was wrong, and its
    feedback.
    """
    for made, after in zip_longest(stage.attempts, stage.attempts[1:]):
        fact = Fact(text="", run=made.run, stage=made.stage_name, attempt=made.attempt)
        if made.attempt > 1:
            ended = made.overall_status.replace("_", " ").replace(
                "warning", "passed with warnings"
            )
            yield replace(fact, text=f"attempt {made.attempt} {ended}")
        for check in made.checks:
            if check.status in CHECK_STATUS_WORDS:
                text = f"{CHECK_STATUS_WORDS[check.status]}: {clean(check.message, MAX_QUESTION_CHARS)}".rstrip(
                    " :"
                )
                fix = (
                    f"; fix: {clean(check.suggestion, MAX_QUESTION_CHARS)}"
                    if check.suggestion
                    else ""
                )
                yield replace(fact, text=text + fix, check=check.check_name)
        if after is not None and made.feedback_for_agent:
            lines = [
                clean(line, MAX_QUESTION_CHARS)
                for line in made.feedback_for_agent.splitlines()
            ]
            fed = f"fed back to attempt {after.attempt}:"
            yield replace(fact, text=fed, quote="\n".join(lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Figures about the check `name`: how often it failed, and how often a retry
    helped.

    `runs` counts the runs of stages that asked it, `failed` the attempts that failed
    it, `stages` the runs of stages that ended and had a failed attempt, `recovered`
    those of them that passed.
    """

    name: str
    runs: int
    failed: int
    stages: int
    recovered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Figures over `runs` runs for each check; the number, seconds and tokens of all
    retries.
    """

    retries: int
    seconds: float
    tokens: int
    runs: int
    checks: tuple[Count, ...]


def cost(attempts: Iterable[StageAttempt]) -> tuple[int, float, int]:
    """Return the number of `attempts`, their seconds and their tokens."""
    made = list(attempts)
    seconds = round(sum(attempt.execution_time_ms for attempt in made) / 1000, 6)
    return len(made), seconds, sum(attempt.usage.tokens for attempt in made)


def statistics(reports: Iterable[Report]) -> Statistics:
    """Return which checks fail most, how many stages recover, and what the retries
    cost.
    """
    listed = list(reports)
    tried = [stage for report in listed for stage in report.stages if stage.attempts]
    # For each check, the stages that asked it, each with the number of attempts that
    # failed it.
    checks: dict[str, list[tuple[StageReport, int]]] = defaultdict(list)
    for stage in tried:
        fails = ({one.check_name for one in made.failed} for made in stage.attempts)
        failed = Counter(name for names in fails for name in names)
        for name in dict.fromkeys(
            one.check_name for made in stage.attempts for one in made.checks
        ):
            checks[name].append((stage, failed[name]))
    counts = []
    for name, asked in checks.items():
        ended = [stage for stage, fails in asked if fails and stage.action != "open"]
        recovered = sum(stage.action == "passed" for stage in ended)
        failures = sum(fails for _, fails in asked)
        counts.append(
            Count(
                name=name,
                runs=len(asked),
                failed=failures,
                stages=len(ended),
                recovered=recovered,
            )
        )
    counts.sort(key=lambda count: -count.failed)
    retries, seconds, tokens = cost(
        attempt for stage in tried for attempt in stage.attempts[1:]
    )
    return Statistics(
        retries=retries,
        seconds=seconds,
        tokens=tokens,
        runs=len(listed),
        checks=tuple(counts),
    )
