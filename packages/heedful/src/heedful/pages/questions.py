"""Answer why stages of a run were retried.

An answer is a list of facts from the report of the run, each with the place where the
report has it. No model is called.
"""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain, zip_longest

from heedful.display import counted
from heedful.loop.runs import CheckResult, Report, StageReport
from heedful.pages.run_report import happened, verdict
from heedful.sanitize import clean
from heedful.validation import MAX_SHOWN_TEXT_CHARS, MAX_STORED_TEXT_CHARS, Document

CHECK_STATUS_WORDS = {"failed": "failed", "not_validated": "could not judge"}
_CARDINALS = "one two three four five six seven eight nine ten"
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth"
# The digits of a number that is written as a word.
_DIGITS_OF_WORD = {word: f"{n}" for n, word in enumerate(_CARDINALS.split(), 1)}
_DIGITS_OF_WORD |= {word: f"{n}th" for n, word in enumerate(_ORDINALS.split(), 1)}


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
        parts = [self.stage or self.run]
        if self.attempt:
            parts.append(f"attempt {self.attempt}")
        parts.append(self.check)
        place = "/".join(clean(part, MAX_SHOWN_TEXT_CHARS) for part in parts if part)
        return f"[{place}]"

    def __str__(self) -> str:
        quoted = "".join(f"\n   | {line}".rstrip() for line in self.quote.splitlines())
        return f"{self.cite} {self.text}{quoted}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAnswer:
    """The facts that answer a question.

    `understood` is the question in heedful's words. `missing` is a stage in the
    question that the report lacks, or "" if there is none; with a missing stage, the
    facts are about all stages.
    """

    question: str
    understood: str
    facts: tuple[Fact, ...]
    missing: str = ""

    def __str__(self) -> str:
        lines = []
        if self.missing:
            lines.append(f"not in the report: {self.missing}; what there is:")
        lines.append(f"asked: {self.understood}")
        lines += [f"{number}. {fact}" for number, fact in enumerate(self.facts, 1)]
        return "\n".join(lines)

    def plain(self) -> Document:
        """Return JSON data, each fact with its number and its citation."""
        numbered = enumerate(self.facts, 1)
        facts = [
            {"number": n, "cite": fact.cite, **asdict(fact)} for n, fact in numbered
        ]
        return asdict(self) | {"facts": facts}


def answer(report: Report, question: str = "") -> RunAnswer:
    """Return why the stages in `question` were retried; of all stages if it names none.

    `question` is a text such as "why was stage 2 retried?".
    """
    meanings, missing = _find_stages(report, question[:MAX_STORED_TEXT_CHARS])
    stages = [stage for stage in report.stages if stage.name in meanings]

    facts = []
    if missing or not stages:
        run = clean(report.run, MAX_SHOWN_TEXT_CHARS)
        understood = f"which stages of run {run} were retried, and why"
        facts = [Fact(text=describe_run(report), run=report.run)]
        stages = list(report.stages)
    else:
        places = [_place(report, stage, meanings[stage.name]) for stage in stages]
        is_retried = any(len(stage.attempts) > 1 for stage in stages)
        negation = "" if is_retried else "not "
        understood = f"why {', '.join(places)} was {negation}retried"

    for stage in stages:
        description = describe_stage(report, stage)
        facts.append(Fact(text=description, run=report.run, stage=stage.name))

        lines = stage.briefing.lines if stage.briefing else ()
        for line in lines:
            text = f"memory, before each attempt: {clean(line, MAX_STORED_TEXT_CHARS)}"
            facts.append(Fact(text=text, run=report.run, stage=stage.name))

        facts += _attempt_facts(stage)
        for sentence in stage.closed:
            text = f"closed: {clean(sentence, MAX_STORED_TEXT_CHARS)}"
            facts.append(Fact(text=text, run=report.run, stage=stage.name))

    return RunAnswer(
        question=question, understood=understood, facts=tuple(facts), missing=missing
    )


def find_stage(report: Report, stage: str) -> StageReport:
    """Return the stage with the name `stage`, or else the stage that a number means.

    The number 4 means what "stage 4" means in a question. Raises UnknownName.
    """
    for candidate in report.stages:
        if candidate.name == stage:
            return candidate

    numbered = _stages_with_number(report, _number_in(stage))
    return numbered[0] if numbered else report.stage(stage)


def _number_in(name: str) -> int | None:
    """Return the number in a name such as `stage4`, `step four` or `4`, else None."""
    words = _words_of(name)
    # A stage may be called `second`, as the time is: then it has a name.
    if words.strip() not in _DIGITS_OF_WORD:
        words = _with_digits(words)
    # "4", "stage4", or "4th stage"
    match = re.fullmatch(
        r" (?:(?:stage|step) ?)?(\d{1,9})(?:(?:st|nd|rd|th) (?:stage|step))? ", words
    )
    return int(match[1]) if match else None


def _stages_with_number(report: Report, number: int | None) -> list[StageReport]:
    """Return the stages with this number in their name, or else the one at this place.

    Places count from 1. Returns [] if there is no such stage, or if `number` is None.
    """
    if number is None:
        return []

    by_name = [stage for stage in report.stages if _number_in(stage.name) == number]
    return by_name or list(report.stages[number - 1 : number])


def describe_run(report: Report) -> str:
    """Return a text that says how the run ended."""
    degraded = ", ".join(clean(name, MAX_SHOWN_TEXT_CHARS) for name in report.degraded)
    ending = {
        "degraded": f"was degraded after {degraded}",
        "halted": "was halted",
        "failed": f"failed; run it again with id={report.run!r} to continue",
        "open": (
            f"is open: it was interrupted (run it again with id={report.run!r}) or "
            "still runs"
        ),
        "passed": "passed",
    }[report.status]

    attempts = counted(sum(len(stage.attempts) for stage in report.stages), "attempt")
    run = clean(report.run, MAX_SHOWN_TEXT_CHARS)
    pipeline = clean(report.pipeline, MAX_SHOWN_TEXT_CHARS)
    stages = counted(len(report.stages), "stage")
    return f"run {run} of pipeline {pipeline} {ending}; {stages}, {attempts}"


def summarize_run(report: Report) -> list[str]:
    """Return at most six lines on a run: how it ended, and which stages had trouble.

    Stages that did not pass come first, then those that passed after a retry. The last
    line names the lessons that stages were shown.
    """
    troubled = [
        stage for stage in report.stages if stage.action not in ("passed", "not_run")
    ]
    troubled += [stage for stage in report.stages if stage.recovered]

    lines = [describe_run(report), f"{clean(verdict(report), MAX_STORED_TEXT_CHARS)}."]
    for stage in troubled[:3]:
        line = describe_stage(report, stage)
        wrong = list(chain.from_iterable(item.failed for item in stage.attempts))
        if wrong:
            line += f"; {wrong[-1].check_name}: {wrong[-1].message}"
        lines.append(clean(line, MAX_SHOWN_TEXT_CHARS))

    lessons = _shown_lessons(report)
    if lessons:
        line = f"memory showed {', '.join(lessons)}"
        lines.append(clean(line, MAX_SHOWN_TEXT_CHARS))
    return lines


def _shown_lessons(report: Report) -> list[str]:
    """Return each lesson that a stage was shown, with its words and the stage."""
    lessons: list[str] = []
    for stage in report.stages:
        choices = stage.briefing.choices if stage.briefing else ()
        lessons += [
            f"lesson {choice.lesson} ({clean(choice.words, 80)}) "
            f"to {_place(report, stage)}"
            for choice in choices
            if choice.outcome == "told"
        ]
    return list(dict.fromkeys(lessons))


def describe_stage(report: Report, stage: StageReport) -> str:
    """Return a text that says how the stage ended."""
    return f"{_place(report, stage)} {happened(stage)}"


def _place(report: Report, stage: StageReport, meaning: str = "") -> str:
    """Return a text such as "stage 2 (classify)"; `meaning` is said after the name."""
    name = clean(stage.name, MAX_SHOWN_TEXT_CHARS)
    parts = [part for part in (name, meaning) if part]
    return f"stage {report.stages.index(stage) + 1} ({', '.join(parts)})"


def _find_stages(report: Report, question: str) -> tuple[dict[str, str], str]:
    """Return the stages that a question means, by name, and the first that is missing.

    The value of a name says how the stage was meant. "stage 4" is the stage named
    `stage4`, `stage_4` or `4`, or else the fourth stage. Other names are looked for
    only in a question without such a number, and their value is "".
    """
    text = _words_of(question)
    # "steps 2 and three", "4th stage" or "fourth stage"
    places = re.findall(
        r" (?:stage|step)s? ?\d{1,9}\b(?: (?:and |or )?\d{1,9}\b)*"
        r"| \d{1,9}(?:st|nd|rd|th) (?:stage|step) ",
        _with_digits(text),
    )
    numbers = [int(digits) for digits in re.findall(r"\d+", " ".join(places))]
    if not numbers:
        return _find_named_stages(report, text), ""

    meanings = dict[str, str]()
    missing = ""
    for number in numbers:
        stages = _stages_with_number(report, number)
        for stage in stages:
            meanings[stage.name] = "by its place"
            if _number_in(stage.name) == number:
                meanings[stage.name] = "by its name"

        if not stages and not missing:
            count = counted(len(report.stages), "stage")
            missing = f"stage {number}: the run has {count}"
    return meanings, missing


def _words_of(text: str) -> str:
    """Return the words of a text in lower case, with a blank before and after each."""
    return re.sub(r"[\W_]+", " ", f" {text.casefold()} ")


def _with_digits(words: str) -> str:
    """Return words of `_words_of` with "4" for "four" and "4th" for "fourth"."""
    digits = [_DIGITS_OF_WORD.get(word, word) for word in words.split()]
    return f" {' '.join(digits)} "


def _find_named_stages(report: Report, text: str) -> dict[str, str]:
    """Return the stages whose names are in a text, each with the value "".

    A name is removed where it is found, and longer names are looked for first, so that
    `check` is not found in `final check`. A name that is a number is not looked for.
    """
    meanings = dict[str, str]()
    for stage in sorted(report.stages, key=lambda stage: -len(stage.name)):
        name = _words_of(stage.name)
        is_named = name.strip() and name in text
        if is_named and _number_in(stage.name) is None:
            meanings[stage.name] = ""
            text = text.replace(name, "  ")
    return meanings


def _attempt_facts(stage: StageReport) -> Iterator[Fact]:
    """Yield facts on each attempt: how it ended, what was wrong, and its feedback."""
    # Each attempt with the next one; the last has None.
    for attempt, following in zip_longest(stage.attempts, stage.attempts[1:]):
        fact = Fact(
            text="",
            run=attempt.run,
            stage=attempt.stage_name,
            attempt=attempt.attempt,
        )
        if attempt.attempt > 1:
            status = attempt.shown_status.replace("_", " ")
            status = status.replace("warning", "passed with warnings")
            yield replace(fact, text=f"attempt {attempt.attempt} {status}")

        for check in attempt.checks:
            if check.status in CHECK_STATUS_WORDS:
                yield replace(fact, text=_complaint(check), check=check.check_name)

        if following is not None and attempt.feedback_for_agent:
            lines = [
                clean(line, MAX_STORED_TEXT_CHARS)
                for line in attempt.feedback_for_agent.splitlines()
            ]
            text = f"fed back to attempt {following.attempt}:"
            yield replace(fact, text=text, quote="\n".join(lines))


def _complaint(check: CheckResult) -> str:
    """Return what a check found wrong, and how to fix it."""
    message = clean(check.message, MAX_STORED_TEXT_CHARS)
    text = f"{CHECK_STATUS_WORDS[check.status]}: {message}".rstrip(" :")
    if check.suggestion:
        text += f"; fix: {clean(check.suggestion, MAX_STORED_TEXT_CHARS)}"
    return text
