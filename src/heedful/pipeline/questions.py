"""Answer questions about a run of a pipeline with cited facts of its report, and count over runs.

A question is understood by its keywords; no model is asked. What the report does not contain is
named as missing, never guessed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from itertools import pairwise, zip_longest
from typing import Any

from heedful.lessons.proof import Estimate, wilson_interval
from heedful.lessons.words import difference
from heedful.loop.record import clean
from heedful.store.runs import CheckResult, Report, StageAttempt, StageReport

LONGEST = 2_000  # characters of a question, a message or a fix
OUTPUT = 20_000  # characters of an output that are compared
WORST = ("failed", "not_validated")
SILENT = "found nothing, or had nothing to judge"  # what a report means by not naming a check
# What can be asked, and the words for it, in the order in which they are looked for.
TOPICS = {
    "what changed between the attempts of {}": r"chang\w*|diff\w*|compar\w*|improv\w*|between",
    "how {} ended, and why": r"stop\w*|halt\w*|continu\w*|degrad\w*|(?:went|go|carr\w+) on|despite"
    r"|g[ai]ve up|exhaust\w*|interrupt\w*|abort\w*|ended|end up|open|skip\w*|not run|finish\w*",
    "why {} was retried": r"re[ -]?(?:tr[iy]\w*|ran|run\w*|do\w*|generat\w*)|repeat\w*|again"
    r"|another|twice|more than once",
    "what was fed back in {}": r"fe?ed[ -]?back|fed|told|suggest\w*|advi[cs]\w*|hint\w*|fix\w*",
    "what failed in {}": r"fail\w*|wrong|reject\w*|problem\w*|errors?|issues?|critical|violat\w*"
    r"|crash\w*|findings?|flag\w*|not pass\w*|hallucinat\w*|broke",
    "whether {} passed": r"pass\w*|succe\w*|ok|okay|work(?:s|ed)?|accept\w*|good|recover\w*"
    r"|stat(?:us|e)|fine|valid(?:ated)?",
    "what happened in {}": r"summar\w*|overview|happen\w*|timeline|report|story|how did",
}
CHANGED, ENDED, RETRIED, FED_BACK, FAILED, PASSED, SUMMARY = TOPICS
NOT_UNDERSTOOD = (
    "the question was not understood; ask why something was retried, failed, was halted or went on "
    "degraded; what was fed back; what changed between attempts; or whether it passed: of the run, "
    "or of a stage, an attempt or a check by its name or number"
)
_NUMBERS = "one two three four five six seven eight nine ten eleven twelve".split()
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh".split()
_VALUES = {word: n for words in (_NUMBERS, _ORDINALS) for n, word in enumerate(words, 1)}
_VALUES |= {"twelfth": 12, "last": -1, "final": -1}
_CARDINAL = rf"(?:\d+|{'|'.join(_NUMBERS)})"
_ORDINAL = rf"(?:\d+(?:st|nd|rd|th)|twelfth|last|final|{'|'.join(_ORDINALS)})"
# A stage or check of such a name counts only in quotes or beside the word "stage" or "check".
_COMMON = re.compile(
    rf"(?:{'|'.join(TOPICS.values())}|\w|\d+|stage|check|attempt|run|step|try|time|pipeline|it|the"
    r"|is|in|of|to|and|at|did|was|were|why|what|which|how|that|this|made|make|output|any)s?"
)
_NO_NAME = "".join(f"(?<!{w} )" for w in "the a this that each every any no which what".split())


@dataclass(frozen=True, slots=True)
class Fact:
    """A statement of the report, with its messages word for word.

    `attempt` is 0 and `stage`, `check` and `file` (the name of the attempt's report) are "" where
    the fact concerns none in particular. `quote` holds lines that belong to the fact.
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
        """The place in the report: `[stage/attempt N/check]`, or `[run]`."""
        attempt = f"attempt {self.attempt}" if self.attempt else ""
        parts = (self.stage or self.run, attempt, self.check)
        return f"[{'/'.join(clean(part, 200) for part in parts if part)}]"

    def __str__(self) -> str:
        quoted = "".join(f"\n   | {line}".rstrip() for line in self.quote.splitlines())
        return f"{self.cite} {self.text}{quoted}"


@dataclass(frozen=True, slots=True)
class RunAnswer:
    """The facts that answer a question.

    `understood` says how the question was read. `missing` says what was not understood or is not
    in the report; then the facts are the summary of the run.
    """

    question: str
    understood: str
    facts: tuple[Fact, ...]
    missing: str = ""

    def __str__(self) -> str:
        lines = [f"{self.missing}; what there is:"] if self.missing else []
        lines += [f"asked: {self.understood}"] if self.understood else []
        lines += [f"{number}. {fact}" for number, fact in enumerate(self.facts, 1)]
        files = dict.fromkeys(fact.file for fact in self.facts if fact.file)
        lines += [f"reports: {', '.join(files)}"] if files else []
        return "\n".join(lines)

    def plain(self) -> dict[str, Any]:
        """Return JSON data, each fact with its number and its citation."""
        facts = [
            {"number": number, "cite": fact.cite, **asdict(fact)}
            for number, fact in enumerate(self.facts, 1)
        ]
        return asdict(self) | {"facts": facts}


def answer(report: Report, question: str = "") -> RunAnswer:
    """Answer a question about the run; any text will do, and an empty one asks for a summary."""
    query = _Query(report, question if question.strip() else "what happened")
    if query.missing or not query.topic:
        missing = f"not in the report: {query.missing}" if query.missing else NOT_UNDERSTOOD
        whole = tuple(_Query(report, "what happened").facts())
        return RunAnswer(question, "", whole, clean(missing, 1_000))
    subject = ", ".join(
        [_place(report, stage) for stage in query.named]
        + [f"attempt {number}" for number in query.attempts]
        + [f"check {clean(name, 200)}" for name in query.checks]
    )
    understood = query.topic.format(subject or f"run {clean(report.run, 200)}")
    return RunAnswer(question, understood, tuple(dict.fromkeys(query.facts())))


def find_stage(report: Report, stage: str) -> StageReport:
    """Return the stage of that name, or else of that number from 1. Raises UnknownName."""
    numbered = {str(number): found for number, found in enumerate(report.stages, 1)}
    named = {found.name: found for found in report.stages}
    return named.get(stage) or numbered.get(stage) or report.stage(stage)


def describe_run(report: Report) -> str:
    """Say how the run as a whole ended."""
    attempts = sum(len(stage.attempts) for stage in report.stages)
    size = f"{_count(len(report.stages), 'stage')}, {_count(attempts, 'attempt')}"
    ending = {
        "degraded": f"went on degraded from {_list(report.degraded)}",
        "halted": "was halted",
        "open": "is open: it was interrupted, or goes on now",
        "passed": "passed",
    }[report.status]
    names = f"run {clean(report.run, 200)} of pipeline {clean(report.pipeline, 200)}"
    return f"{names} {ending}; {size}"


def describe_stage(report: Report, stage: StageReport) -> str:
    """Say how a stage ended."""
    count, kept = len(stage.attempts), stage.kept or len(stage.attempts)
    tries, unjudged = _count(count, "attempt"), stage.status == "not_validated"
    failed = "could not be judged" if unjudged else f"did not pass in {tries}"
    after = f", after {_count(count - 1, 'retry', 'retries')}" if count > 1 else ""
    ending = {
        "passed": "has no check: it went on unjudged"
        if unjudged
        else f"passed at attempt {kept}{after}",
        "continued": f"{failed}; the run went on with attempt {kept}, degraded",
        "best": f"{failed}; the run went on with the best, attempt {stage.kept}, degraded",
        "halted": f"{failed}; the run was halted",
        "open": f"is open after {tries}: it was interrupted, or goes on now",
        "not_run": "was not run",
    }[stage.action]
    return f"{_place(report, stage)} {ending}"


def _place(report: Report, stage: StageReport) -> str:
    return f"stage {report.stages.index(stage) + 1} ({clean(stage.name, 200)})"


def _count(number: int, noun: str, nouns: str = "") -> str:
    return f"{number} {noun if number == 1 else nouns or f'{noun}s'}"


def _list(names: Iterable[str]) -> str:
    return ", ".join(clean(name, 200) for name in names)


class _Query:
    """A question as it was read: its topic, and the stages, attempts and checks that it names."""

    def __init__(self, report: Report, question: str) -> None:
        self._report = report
        self._text = f" {' '.join(question[:LONGEST].casefold().split())} "
        self._wrong: list[str] = []
        stages = [stage.name for stage in report.stages]
        attempts = [made for stage in report.stages for made in stage.attempts]
        checks = [*dict.fromkeys(check.check_name for made in attempts for check in made.checks)]
        chosen = self._take_names(stages, "stage")
        has = f"the run has {_count(len(stages), 'stage')}"
        places = self._take_numbers("stage|step", len(stages), has)
        chosen += [stages[number - 1] for number in places]
        self.named = tuple(stage for stage in report.stages if stage.name in chosen)
        self.stages = self.named or report.stages
        self.checks = self._take_names(checks, "check")
        most = max((len(stage.attempts) for stage in self.stages), default=0)
        nouns = "attempt|try|trial|time"
        self.attempts = self._take_numbers(
            nouns, most, f"at most {_count(most, 'attempt')} made there"
        )
        self._find_unknown([*stages, *checks])
        self.missing = next(iter(self._wrong), "")
        matches = (re.search(rf"(?<!\w)(?:{words})(?!\w)", self._text) for words in TOPICS.values())
        self.topic = next(
            (topic for topic, found in zip(TOPICS, matches, strict=True) if found), ""
        )
        if not self.topic and (self.named or self.attempts or self.checks):
            self.topic = RETRIED if " why " in self._text else SUMMARY

    def _take_names(self, names: Sequence[str], noun: str) -> list[str]:
        """Take the names out of the text, the longest first; any separator parts their words."""
        found = []
        for name in sorted(names, key=len, reverse=True):
            words = [word for word in re.split(r"[\s_/-]+", name.casefold()) if word]
            pattern = "[ _/-]+".join(map(re.escape, words)) or "(?!)"
            if _COMMON.fullmatch(" ".join(words)):
                quoted = rf"[\"'`“‘]{pattern}[\"'`”’]"
                pattern = rf"(?:{noun}s? {pattern}|{pattern} {noun}|{quoted})"
            self._text, times = re.subn(rf"(?<!\w){pattern}(?!\w)", " it ", self._text)
            found += [name] * bool(times)
        for word in re.findall(r"(\w+) checks?\b", self._text) if noun == "check" else ():
            found += [name for name in names if word in re.split(r"[\W_]+", name.casefold())]
        return list(dict.fromkeys(found))

    def _take_numbers(self, nouns: str, last: int, there: str) -> list[int]:
        """Take the numbers in 1..last beside a noun out of the text ("steps 1 and 2", "last try").

        Report other numbers as missing; `there` says how many there are.
        """
        behind = rf"(?:{nouns})s? (?:number |#)?({_CARDINAL}(?:(?:,| and| to| or) ?{_CARDINAL})*)"
        pattern = rf"(?<!\w)(?:{behind}|({_ORDINAL}) (?:{nouns})s?)(?!\w)"
        groups = re.findall(pattern, self._text)
        self._text = re.sub(pattern, " it ", self._text)
        numbers = set()
        for word in re.findall(r"\w+", " ".join(text for pair in groups for text in pair)):
            digits = re.match(r"\d+", word)
            number = int(digits[0]) if digits else _VALUES.get(word)
            numbers |= set() if number is None else {last if number < 0 else number}
        noun = nouns.partition("|")[0]
        self._wrong += [f"{noun} {n}: {there}" for n in numbers if not 0 < n <= last]
        return sorted(number for number in numbers if 0 < number <= last)

    def _find_unknown(self, names: Sequence[str]) -> None:
        """Find what the question names and the report does not contain."""
        unknown = re.findall(rf"{_NO_NAME}\bstage (\w+)", self._text)
        unknown += re.findall(r"\w+(?:_\w+)+", self._text)
        unknown += re.findall(r"(?<!\w)[\"'`“‘]([^\"'`“”‘’]+)[\"'`”’](?!\w)", self._text)
        for word in unknown:
            if not _COMMON.fullmatch(word):
                near = get_close_matches(word, names, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are: {_list(names[:12])}"
                self._wrong.append(f"{word!r} ({hint})")

    def facts(self) -> Iterator[Fact]:
        """Yield the facts that answer the question."""
        if self.topic in (ENDED, PASSED, FAILED, SUMMARY) and not self.named:
            yield Fact(describe_run(self._report), self._report.run)
        stages = [stage for stage in self.stages if self._matters(stage)]
        if not stages and self.topic in (CHANGED, RETRIED, FED_BACK):
            yield Fact("no stage was retried", self._report.run)
        overview = self.topic == SUMMARY and not (self.named or self.attempts or self.checks)
        for stage in stages:
            yield Fact(describe_stage(self._report, stage), self._report.run, stage.name)
            if self.topic == CHANGED:
                for before, after in pairwise(stage.attempts):
                    yield from self._changes(before, after)
            elif self.topic in (ENDED, PASSED) and not (self.attempts or self.checks):
                last = stage.attempts[-1:] if stage.action != "passed" else ()
                yield from (fact for made in last for fact in self._findings(made))
            elif not overview:
                yield from self._story(stage)

    def _matters(self, stage: StageReport) -> bool:
        """Return True if the answer mentions the stage."""
        if self.named:
            return True
        if self.checks or self.attempts:
            names = {check.check_name for made in stage.attempts for check in made.checks}
            return names >= {*self.checks} and len(stage.attempts) >= max(self.attempts, default=0)
        retried, passed = len(stage.attempts) > 1, stage.action == "passed"
        if self.topic in (CHANGED, RETRIED, FED_BACK):
            return retried
        return self.topic == SUMMARY or not passed or (self.topic == FAILED and retried)

    def _story(self, stage: StageReport) -> Iterator[Fact]:
        """Yield what was wrong with each attempt, what was fed back, and how the next one ended."""
        if self.topic == RETRIED and len(stage.attempts) < 2:
            yield Fact("it was not retried", self._report.run, stage.name)
        for made, after in zip_longest(stage.attempts, stage.attempts[1:]):
            if self._concerns(made, after):
                yield from self._findings(made)
                yield from _feedback_facts(made, after)

    def _concerns(self, made: StageAttempt, after: StageAttempt | None) -> bool:
        """Return True if the question names this attempt, the next one, or no attempt."""
        numbers = {made.attempt, after.attempt if after else 0}
        return not self.attempts or bool(numbers & {*self.attempts})

    def _findings(self, made: StageAttempt) -> Iterator[Fact]:
        """Yield the results of named checks, or else the failed ones; a summary adds warnings."""
        levels = (*WORST, "warning") if self.topic == SUMMARY else WORST
        for check in made.checks:
            if check.check_name in self.checks or (not self.checks and check.status in levels):
                yield _check_fact(made, check)

    def _changes(self, before: StageAttempt, after: StageAttempt) -> Iterator[Fact]:
        if not self._concerns(before, after):
            return
        was, now = _said(before), _said(after)
        for name in dict.fromkeys([*was, *now]):
            held, then = was.get(name, SILENT), now.get(name, SILENT)
            if name in (self.checks or [name]) and (held, then) != ("passed", "passed"):
                text = f"attempt {before.attempt}: {held}; attempt {after.attempt}: {then}"
                yield _fact(after, text, name)
        if before.output != after.output:
            changes = str(difference(before.output[:OUTPUT], after.output[:OUTPUT])).splitlines()
            quote = "\n".join(clean(line, 300) for line in changes)
            yield _fact(after, f"the output of attempt {after.attempt} differs:", quote=quote)
        elif after.output:
            same = f"is the same as that of attempt {before.attempt}"
            yield _fact(after, f"the output of attempt {after.attempt} {same}")


def _fact(made: StageAttempt, text: str, check: str = "", quote: str = "") -> Fact:
    return Fact(text, made.run, made.stage_name, made.attempt, check, made.file, quote)


def _check_fact(made: StageAttempt, check: CheckResult) -> Fact:
    verbs = {"failed": "failed", "warning": "warned", "not_validated": "could not judge"}
    text = f"{verbs.get(check.status, 'passed')}: {clean(check.message, LONGEST)}".rstrip(" :")
    fix = f"; fix: {clean(check.suggestion, LONGEST)}" if check.suggestion else ""
    return _fact(made, text + fix, check.check_name)


def _feedback_facts(made: StageAttempt, after: StageAttempt | None) -> Iterator[Fact]:
    if after is None:
        return
    if made.feedback_for_agent:
        lines = (clean(line, LONGEST) for line in made.feedback_for_agent.splitlines())
        yield _fact(made, f"fed back to attempt {after.attempt}:", quote="\n".join(lines))
    names = _list(
        dict.fromkeys(check.check_name for check in after.checks if check.status in WORST)
    )
    ending = {
        "passed": "passed",
        "warning": "passed with warnings",
        "failed": f"failed {names}",
        "not_validated": f"could not be judged by {names}" if names else "was not judged",
    }[after.overall_status]
    yield _fact(after, f"attempt {after.attempt} {ending}")


def _said(made: StageAttempt) -> dict[str, str]:
    said: dict[str, list[str]] = defaultdict(list)
    for check in made.checks:
        words = f"{check.status.replace('_', ' ')} {clean(check.message, LONGEST)}"
        said[check.check_name].append(words.rstrip())
    return {name: " and ".join(each) for name, each in said.items()}


@dataclass(frozen=True, slots=True)
class AttemptCost:
    """The number of some attempts, and the seconds and tokens that they took."""

    attempts: int = 0
    seconds: float = 0.0
    tokens: int = 0

    @classmethod
    def of(cls, attempts: Iterable[StageAttempt]) -> AttemptCost:
        """Add up the cost of these attempts."""
        made = list(attempts)
        seconds = round(sum(attempt.execution_time_ms for attempt in made) / 1000, 6)
        return cls(len(made), seconds, sum(attempt.usage.tokens for attempt in made))


@dataclass(frozen=True, slots=True)
class CheckCount:
    """How often one check judged and failed an attempt, and what came of it.

    A check judges every attempt of the stages whose reports name it, except those at which it
    raised and those without results that do not name it. `stages` counts the stages that ended and
    in which an attempt failed the check, `recovered` those of them that passed in the end. `cost`
    is that of the attempts that follow a failed one; where several checks failed at once, each of
    them counts it. `share` (failed of judged) and `success` (recovered of stages) have 95 %
    intervals, and are None without a case.
    """

    name: str
    judged: int
    failed: int
    stages: int
    recovered: int
    cost: AttemptCost
    share: Estimate | None
    success: Estimate | None


@dataclass(frozen=True, slots=True)
class StageCount:
    """One stage over the runs that tried it; `cost` is that of its retries."""

    name: str
    runs: int
    passed: int
    degraded: int
    attempts: int
    cost: AttemptCost


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts over `runs`: checks by failures, stages in the order of the pipeline, all retries."""

    runs: int = 0
    checks: tuple[CheckCount, ...] = ()
    stages: tuple[StageCount, ...] = ()
    cost: AttemptCost = AttemptCost()


def statistics(reports: Iterable[Report]) -> Statistics:
    """Count which checks fail, how many stages recover, and what their retries cost."""
    listed = list(reports)
    tried: dict[str, list[StageReport]] = defaultdict(list)
    for stage in (stage for report in listed for stage in report.stages if stage.attempts):
        tried[stage.name].append(stage)
    judged: dict[str, list[StageReport]] = defaultdict(list)
    for stages in tried.values():
        attempts = [attempt for stage in stages for attempt in stage.attempts]
        for name in dict.fromkeys(check.check_name for one in attempts for check in one.checks):
            judged[name] += stages
    checks = sorted((_check_count(*one) for one in judged.items()), key=lambda one: -one.failed)
    counts = tuple(
        StageCount(
            name,
            len(stages),
            sum(stage.action == "passed" for stage in stages),
            sum(stage.degraded for stage in stages),
            sum(len(stage.attempts) for stage in stages),
            _retry_cost(stages),
        )
        for name, stages in tried.items()
    )
    every = [stage for stages in tried.values() for stage in stages]
    return Statistics(len(listed), tuple(checks), counts, _retry_cost(every))


def _retry_cost(stages: Iterable[StageReport]) -> AttemptCost:
    return AttemptCost.of(attempt for stage in stages for attempt in stage.attempts[1:])


def _check_count(name: str, stages: Sequence[StageReport]) -> CheckCount:
    judged = failed = ended = recovered = 0
    followers: list[StageAttempt] = []
    for stage in stages:
        fails = []
        for made in stage.attempts:
            said = {check.status for check in made.checks if check.check_name == name}
            blind = made.without_results and not said
            judged += not blind and said != {"not_validated"}
            fails.append("failed" in said)
        failed += sum(fails)
        followers += [stage.attempts[n + 1] for n, fell in enumerate(fails[:-1]) if fell]
        if any(fails) and stage.action != "open":
            ended += 1
            recovered += stage.action == "passed"
    shares = tuple(
        wilson_interval(n, of) if of else None for n, of in ((failed, judged), (recovered, ended))
    )
    return CheckCount(name, judged, failed, ended, recovered, AttemptCost.of(followers), *shares)
