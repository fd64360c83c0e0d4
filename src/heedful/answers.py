"""What a report says to each kind of question: facts with their exact words and figures. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from heedful.asked import Asked
from heedful.lessons.words import difference
from heedful.loop.feedback import clean
from heedful.loop.record import shown
from heedful.reports import AttemptReport, Checked, Report, StageReport
from heedful.retries import Extra, statistics

LONGEST = 2_000  # characters of a message or a fix; feedback is bounded where it is made
OUTPUT = 20_000  # characters of an output that are compared
WORST = ("failed", "not_validated")
UNNAMED = "found nothing, or had nothing to judge"  # what a report says of a check by silence


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that the report says, its messages as they were found.

    `run` is the run's id. What it is about: a stage, an attempt (0: no single one) and a check, as
    far as they are named; `file` is the name of the attempt's report. `quote` are lines that belong
    to it.
    """

    text: str
    run: str
    stage: str = ""
    attempt: int = 0
    check: str = ""
    file: str = ""
    quote: str = ""

    @property
    def cite(self) -> str:
        """Where it stands: `[stage/attempt N/check]`, of the whole run `[run]`."""
        attempt = f"attempt {self.attempt}" if self.attempt else ""
        parts = (self.stage or self.run, attempt, self.check)
        return f"[{'/'.join(clean(part, 200) for part in parts if part)}]"

    def __str__(self) -> str:
        quoted = "".join(f"\n   | {line}".rstrip() for line in self.quote.splitlines())
        return f"{self.cite} {self.text}{quoted}"


Told = Callable[["Report", Asked], Iterator[Fact]]


def place(report: Report, stage: StageReport) -> str:
    """A stage with its number, counted from 1."""
    return f"stage {report.stages.index(stage) + 1} ({clean(stage.name, 200)})"


def counted(number: int, noun: str) -> str:
    """So many of something: 1 attempt, 2 attempts."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def run_fact(report: Report) -> Fact:
    """How the run as a whole stands."""
    attempts = sum(len(one.attempts) for one in report.stages)
    size = f"{counted(len(report.stages), 'stage')}, {counted(attempts, 'attempt')}"
    how = {
        "degraded": f"went on degraded from {_listed(report.degraded)}",
        "halted": "was halted",
        "open": "is open: it was interrupted, or goes on now",
        "passed": "passed",
    }[report.status]
    of = f"run {clean(report.run, 200)} of pipeline {clean(report.pipeline, 200)}"
    return Fact(f"{of} {how}; {size}", report.run)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(clean(name, 200) for name in names)


def standing(report: Report, stage: StageReport) -> Fact:
    """How the stage ended."""
    count = len(stage.attempts)
    tries, unjudged = counted(count, "attempt"), stage.status == "not_validated"
    failed = "could not be judged" if unjudged else f"did not pass in {tries}"
    how = {
        "passed": f"passed at attempt {stage.kept or count}{_after(count)}",
        "continued": f"{failed}; the run went on with attempt {stage.kept or count}, degraded",
        "best": f"{failed}; the run went on with the best, attempt {stage.kept}, degraded",
        "halted": f"{failed}; the run was halted",
        "open": f"is open after {tries}: it was interrupted, or goes on now",
        "not_run": "was not run",
    }[stage.action]
    if stage.action == "passed" and unjudged:
        how = "has no check: it went on unjudged"
    return Fact(f"{place(report, stage)} {how}", report.run, stage.name)


def _after(attempts: int) -> str:
    return f", after {retries(attempts - 1)}" if attempts > 1 else ""


def retries(number: int) -> str:
    """1 retry, 2 retries."""
    return "1 retry" if number == 1 else f"{number} retries"


def _of(made: AttemptReport, text: str, check: str = "", quote: str = "") -> Fact:
    return Fact(text, made.run, made.stage_name, made.attempt, check, made.file, quote)


def _attempt(made: AttemptReport) -> Fact:
    """How an attempt ended, with the names of what failed."""
    names = _listed(dict.fromkeys(one.check_name for one in made.checks if one.status in WORST))
    how = {
        "passed": "passed",
        "warning": "passed with warnings",
        "failed": f"failed {names}",
        "not_validated": f"could not be judged by {names}" if names else "was not judged",
    }[made.overall_status]
    return _of(made, f"attempt {made.attempt} {how}")


def _finding(made: AttemptReport, one: Checked) -> Fact:
    """What one check found, as it said it."""
    what = {"failed": "failed", "warning": "warned", "not_validated": "could not judge"}
    said = f"{what.get(one.status, 'passed')}: {clean(one.message, LONGEST)}".rstrip(" :")
    if one.suggestion:
        said += f"; to mend it: {clean(one.suggestion, LONGEST)}"
    return _of(made, said, one.check_name)


def _findings(made: AttemptReport, found: Asked, levels: Iterable[str] = WORST) -> Iterator[Fact]:
    """What its checks found at these levels; of the named checks, where any are named."""
    for one in made.checks:
        if one.status in levels and (not found.checks or one.check_name in found.checks):
            yield _finding(made, one)


def _fed(made: AttemptReport, stage: StageReport) -> Iterator[Fact]:
    """What the attempt after it was told, if there was one and it was told anything."""
    if made.feedback_for_agent and made.attempt < len(stage.attempts):
        lines = (clean(line, LONGEST) for line in made.feedback_for_agent.splitlines())
        yield _of(made, f"fed back to attempt {made.attempt + 1}:", quote="\n".join(lines))


def _stages(report: Report, found: Asked) -> tuple[StageReport, ...]:
    return found.stages or report.stages


def _made(stage: StageReport, found: Asked) -> tuple[AttemptReport, ...]:
    """Its attempts, those that are named where any are."""
    return tuple(a for a in stage.attempts if not found.attempts or a.attempt in found.attempts)


def _head(report: Report, found: Asked) -> Iterator[Fact]:
    """How the stages that are named ended, or the run; of checks alone nothing."""
    if not found.stages and not found.checks:
        yield run_fact(report)
    for stage in found.stages:
        yield standing(report, stage)


def retried(report: Report, found: Asked) -> Iterator[Fact]:
    """What failed at the attempts that another one followed, what that was told, how it went."""
    listed = [one for one in _stages(report, found) if len(one.attempts) > 1 or found.stages]
    if not listed:
        yield Fact("no stage was retried", report.run)
    for stage in listed:
        yield standing(report, stage)
        if len(stage.attempts) < 2:
            yield Fact("it was not retried", report.run, stage.name)
        for made, after in pairwise(stage.attempts):
            asks = after.attempt if found.needed else made.attempt
            wanted = not found.attempts or asks in found.attempts or _passed(after, found)
            if wanted:
                yield from _why(stage, made, after, found)


def _passed(after: AttemptReport, found: Asked) -> bool:
    """Why an attempt that passed was made is asked of the one before it."""
    return after.attempt in found.attempts and not after.requires_retry


def _why(
    stage: StageReport, made: AttemptReport, after: AttemptReport, found: Asked
) -> Iterator[Fact]:
    named = list(_findings(made, found))
    yield from named
    if not named:
        what = _listed(found.checks) or "any check"
        yield _of(made, f"attempt {made.attempt} did not fail {what}")
    yield from _fed(made, stage)
    yield _attempt(after)


def failed(report: Report, found: Asked, levels: Iterable[str] = WORST) -> Iterator[Fact]:
    """What was found at these levels, attempt by attempt."""
    yield from _head(report, found)
    some = False
    for stage in _stages(report, found):
        for made in _made(stage, found):
            for fact in _findings(made, found, levels):
                some = True
                yield fact
    if not some:
        verb = "warned" if "warning" in levels else "failed"
        judged = list(_verdicts(report, found))
        never = f"{_listed(found.checks)} {f'never {verb}' if judged else 'judged nothing'} there"
        yield Fact(never if found.checks else f"nothing {verb} there", report.run)
        yield from judged


def warned(report: Report, found: Asked) -> Iterator[Fact]:
    """What only warned."""
    yield from failed(report, found, ("warning",))


def _verdicts(report: Report, found: Asked) -> Iterator[Fact]:
    """What the named checks came to at every attempt of the stages where they appear."""
    for stage in _stages(report, found):
        known = {one.check_name for made in stage.attempts for one in made.checks}
        for made in _made(stage, found):
            yield from (
                _finding(made, one) for one in made.checks if one.check_name in found.checks
            )
            held = {one.check_name for one in made.checks}
            for name in found.checks:
                if name in known - held:
                    yield _of(made, UNNAMED, name)


def ended(report: Report, found: Asked) -> Iterator[Fact]:
    """How it ended, and what was wrong with the last attempt of what did not pass."""
    yield from _head(report, found)
    for stage in _stages(report, found):
        if stage.action == "passed" and not found.stages:
            continue
        if not found.stages:
            yield standing(report, stage)
        if stage.action != "passed" and stage.attempts:
            yield from _findings(stage.attempts[-1], found)


def fed_back(report: Report, found: Asked) -> Iterator[Fact]:
    """What was fed back, word for word, and how the attempt after it went."""
    some = False
    for stage in _stages(report, found):
        for made in _made(stage, found):
            for fact in _fed(made, stage):
                some = True
                yield fact
                yield _attempt(stage.attempts[made.attempt])
    if not some:
        yield Fact("nothing was fed back there", report.run)
        yield from _head(report, found)


def changed(report: Report, found: Asked) -> Iterator[Fact]:
    """What two attempts differ in: what their checks said, and their outputs."""
    some = False
    for stage in _stages(report, found):
        made = _made(stage, found)
        if len(made) == 1:  # an attempt is held against those beside it
            made = stage.attempts[max(0, made[0].attempt - 2) : made[0].attempt + 1]
        for before, after in pairwise(made):
            some = True
            yield from _change(before, after, found)
    if not some:
        yield Fact("there are no two attempts to compare", report.run)
        yield from _head(report, found)


def _change(before: AttemptReport, after: AttemptReport, found: Asked) -> Iterator[Fact]:
    was, now = _said(before), _said(after)
    for name in dict.fromkeys([*was, *now]):
        held, then = (said.get(name, UNNAMED) for said in (was, now))
        if found.checks and name not in found.checks:
            continue
        if held != then:
            text = f"attempt {before.attempt}: {held}; attempt {after.attempt}: {then}"
            yield _of(after, text, name)
        elif then != "passed":
            yield _of(after, f"attempts {before.attempt} and {after.attempt}: {then}", name)
    outputs = before.output[:OUTPUT], after.output[:OUTPUT]
    if not any(outputs):
        return
    told = f"the output of attempt {after.attempt}"
    same = before.output == after.output
    lines = "" if same else "\n".join(clean(x, 300) for x in str(difference(*outputs)).splitlines())
    how = f"is the same as that of attempt {before.attempt}" if same else "differs:"
    yield _of(after, f"{told} {how}", quote=lines)


def _said(made: AttemptReport) -> dict[str, str]:
    """What each check said, in words."""
    said: dict[str, list[str]] = {}
    for one in made.checks:
        said.setdefault(one.check_name, []).append(
            f"{one.status.replace('_', ' ')} {clean(one.message, LONGEST)}".rstrip()
        )
    return {name: " and ".join(each) for name, each in said.items()}


def cost(report: Report, found: Asked) -> Iterator[Fact]:
    """Time and tokens: of the run, of stages, the slowest first, of the attempts of named ones."""
    stages = [one for one in _stages(report, found) if one.attempts]
    made = [_made(stage, found) for stage in stages]
    if not found.stages:
        yield Fact(_took([a for each in made for a in each]), report.run)
        beyond = Extra().plus(a for each in made for a in each if a.attempt > 1)
        text = f"{beyond.attempts} of them were retries: {_worth(beyond)}"
        yield Fact(text if beyond.attempts else "none of them was a retry", report.run)
    both = sorted(zip(stages, made, strict=True), key=lambda one: -Extra().plus(one[1]).seconds)
    for stage, attempts in both:
        text = f"{place(report, stage)}: {_took(attempts)}"
        yield Fact(text, report.run, stage.name)
        for one in attempts if found.stages else ():
            yield _of(one, f"attempt {one.attempt}: {_worth(Extra().plus([one]))}")


def _took(attempts: Iterable[AttemptReport]) -> str:
    whole = Extra().plus(attempts)
    return f"{counted(whole.attempts, 'attempt')}, {_worth(whole)}"


def _worth(extra: Extra) -> str:
    tokens = f", {extra.tokens} tokens" if extra.tokens else ""
    return f"{shown(extra.seconds)} s{tokens}"


def most(report: Report, found: Asked) -> Iterator[Fact]:
    """In how many attempts each check failed, most first."""
    part = replace(report, stages=_stages(report, found))
    counts = [one for one in statistics([part]).checks if one.failed]
    if not counts:
        yield Fact("no check failed", report.run)
    stage = found.stages[0].name if len(found.stages) == 1 else ""
    for one in counts:
        text = f"failed in {one.failed} of {counted(one.judged, 'attempt')} where it is asked"
        yield Fact(text, report.run, stage, check=one.name)


def passed(report: Report, found: Asked) -> Iterator[Fact]:
    """Whether it did: the run, stages, attempts or checks."""
    if not found.attempts:
        yield from _head(report, found)
    for stage in _stages(report, found):
        named = found.stages or found.attempts or found.checks
        if not named and stage.action != "passed":
            yield standing(report, stage)
        if found.attempts and not found.checks:
            yield from map(_attempt, _made(stage, found))
    yield from _verdicts(report, found)


def count(report: Report, found: Asked) -> Iterator[Fact]:
    """Attempts, and how many of them were retries."""
    if not found.stages:
        yield run_fact(report)
    for stage in _stages(report, found):
        tries = counted(len(stage.attempts), "attempt")
        text = f"{place(report, stage)}: {tries}, {retries(max(0, len(stage.attempts) - 1))}"
        yield Fact(text, report.run, stage.name)


def summary(report: Report, found: Asked) -> Iterator[Fact]:
    """How everything ended; of a stage or an attempt all that was found and fed back."""
    if not (found.stages or found.attempts):
        yield run_fact(report)
        for stage in report.stages:
            yield standing(report, stage)
            yield from map(_attempt, stage.attempts[:-1])
        return
    for stage in _stages(report, found):
        yield standing(report, stage)
        for made in _made(stage, found):
            yield _attempt(made)
            yield from _findings(made, found, (*WORST, "warning"))
            yield from _fed(made, stage)


TOLD: Mapping[str, Told] = {
    one.__name__: one
    for one in (
        *(retried, failed, warned, ended, fed_back, changed),
        *(cost, most, passed, count, summary),
    )
}
