"""Explain a loop: why it went on, why it stopped, and what would have changed that.

To find what would have changed a verdict, the loop is decided again with other
thresholds and scores. The smallest change of one value that gives another verdict is
reported.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, is_dataclass, replace
from typing import Any, Literal

from heedful.loop.decide import (
    Again,
    Decision,
    Done,
    Policy,
    Trigger,
    Verdict,
    decide,
    describe_closings,
    echoes_before,
    state_after,
    triggers,
)
from heedful.loop.record import (
    ANSWER_CHECK,
    NO_CANDIDATE,
    NO_USAGE,
    UNJUDGED,
    UNJUDGED_ADVICE,
    Attempt,
    Evaluation,
    Loop,
    check_goals,
    format_score,
)
from heedful.loop.stop import (
    All,
    StopRule,
    describe_stops,
    limit_words,
    rule_name,
)
from heedful.notebook import html_form
from heedful.sanitize import clean
from heedful.validation import MAX_LISTED_ITEMS

# How a loop stands in a state, before the number of its last attempt.
END_WORDS: Mapping[str, str] = {
    "open": "Open after",
    "unchecked": "Unchecked at",
    "not_validated": "Not validated at",
    "passed": "Passed at",
    "stopped": "Stopped after",
}
# What is said instead after so many attempts.
FIRST_ENDS: Mapping[tuple[str, int], str] = {
    ("passed", 1): "Passed at the first attempt",
    ("stopped", 0): "Stopped before the first attempt",
}
# Steps of a threshold that are tried in either direction.
MAX_THRESHOLD_STEPS = 1 << 24
Case = tuple[Loop, Policy]
# The path to a value in a case: names of fields, keys and indices. For example,
# (0, "goals", 1, "threshold") is the threshold of the loop's second goal.
Path = tuple[str | int, ...]
# Stands for the last attempt of a loop without any.
NO_ATTEMPT = Attempt(0, NO_CANDIDATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A score, a threshold of a goal, or a number of a rule: what can change.

    `now` is its size and `path` its place; an integer changes in steps of 1, any other
    value in steps of 0.001. The number of a member of an `All` is `within` its name.
    """

    kind: Literal["score", "threshold", "limit"]
    name: str
    now: float
    path: tuple[str | int, ...]
    within: str = ""

    @property
    def label(self) -> str:
        """The name of the value, with what it is the value of."""
        prefixes = {"score": "score ", "threshold": "threshold of ", "limit": ""}
        if self.within:
            return f"{self.within}: {self.name}"
        return prefixes[self.kind] + self.name


def describe_reason(verdict: Verdict) -> str:
    """Return in plain words why a loop stopped, or why it goes on; "" if it passed."""
    if isinstance(verdict, Again):
        reasons = [trigger.detail for trigger in verdict.reasons[:1]]
    else:
        reasons = describe_stops(verdict.stopped_by)
    return clean(", and ".join(reasons), 240)


def describe_end(
    verdict: Verdict, attempts: int, doubt: str = "", *, unjudged: bool = False
) -> str:
    """Return in one sentence how a loop stands after so many attempts, and why.

    `doubt` says why nothing judged the answer that passed; `unjudged` is true if
    nothing could.

    >>> from heedful.loop.decide import Done
    >>> from heedful.loop.stop import Stop
    >>> stop = Stop("attempts", figures={"count": 4, "limit": 4})
    >>> describe_end(Done(2, passed=False, stopped_by=(stop,)), 4)
    'Stopped after attempt 4: all 4 attempts are made.'
    """
    state: str = state_after(verdict)
    if state == "open" and not attempts:
        return "Open: no attempt has been judged yet."

    reason = describe_reason(verdict)
    if unjudged:
        state = "unchecked"
        reason = UNJUDGED
    elif doubt:
        state = "not_validated"
        reason = clean(doubt, 240)
    opening = FIRST_ENDS.get((state, attempts))
    opening = opening or f"{END_WORDS[state]} attempt {attempts}"
    # A reason may be a whole sentence of a check.
    return f"{opening}: {reason.removesuffix('.')}." if reason else f"{opening}."


def describe_value(value: Value, to: float) -> str:
    """Return a change of one threshold or score in plain words.

    >>> from dataclasses import replace
    >>> repeat = Value(kind="limit", name="repeat.times", now=1, path=())
    >>> describe_value(replace(repeat, within="repeat+nothing_met"), 2)
    'a limit of 2 repeated answers instead of 1 while nothing has passed'
    >>> describe_value(Value(kind="limit", name="attempts.limit", now=4, path=()), 1)
    'a limit of 1 attempt instead of 4'
    >>> describe_value(Value(kind="score", name="alignment", now=0.42, path=()), 0.75)
    'alignment 0.75 instead of 0.42'
    """
    old = format_score(value.now)
    new = format_score(to)
    name = clean(value.name, 60)
    if value.kind == "score":
        return f"{name} {new} instead of {old}"
    if value.kind == "threshold":
        return f"a goal of {new} for {name} instead of {old}"
    if name == "fatigue.limit" and to > value.now:
        # Any higher limit would do; the least one is a number that nobody would choose.
        return f"a limit of fatigue above {value.now:.2f}"

    is_early = "nothing_met" in value.within.split("+")
    condition = " while nothing has passed" if is_early else ""
    rule, _, field = name.partition(".")
    words = (
        limit_words(rule, field) if field else "a least gain of {to} instead of {was}"
    )
    if not words:
        return f"{name} {new} instead of {old}"
    plural = "" if new == "1" else "s"
    return words.format(to=new, was=old, s=plural) + condition


@dataclass(frozen=True, slots=True)
class Change:
    """The smallest change of one threshold or score that gives another verdict.

    The `value` changes `to` another one. `outcome` is the new verdict: again, climbed,
    passed or stopped. `loop` and `policy` contain the change.
    """

    value: Value
    _: KW_ONLY
    to: float
    outcome: str
    loop: Loop
    policy: Policy

    @property
    def what(self) -> str:
        """The name of the value."""
        return self.value.label

    @property
    def was(self) -> float:
        """The value before the change."""
        return self.value.now

    @property
    def words(self) -> str:
        """The change in plain words."""
        return describe_value(self.value, self.to)

    def __str__(self) -> str:
        to = format_score(self.to)
        return f"{self.what} {to} instead of {format_score(self.was)}: {self.outcome}"


def changes(loop: Loop, policy: Policy, verdict: Verdict) -> tuple[Change, ...]:
    """Return the smallest change of each value that gives another verdict.

    The values are thresholds and scores. A value may have two changes, up and down.
    Changes are sorted by relative size, smallest first. If `policy` does not give
    `verdict`, the result is empty.
    """
    if not gives(loop, policy, verdict):
        return ()

    case = (loop, policy)
    old_outcome = _kind_and_rules(verdict)[0]

    smallest = []
    for value in _list_values(loop, policy):
        for direction in (1, -1):
            change = _smallest_change(case, value, direction, old_outcome)
            if change is not None:
                smallest.append(change)

    return tuple(sorted(smallest, key=_relative_size))


def _relative_size(change: Change) -> float:
    """Return the size of a change as a share of the value before it."""
    return abs(change.to - change.was) / max(abs(change.was), 0.001)


def _smallest_change(
    case: Case, value: Value, direction: int, old_outcome: str
) -> Change | None:
    """Return the smallest change in one direction that gives another verdict.

    `old_outcome` is the verdict without a change. None means that no change gives
    another one.
    """

    def change_by(steps: int) -> Change | None:
        """Return the change by a number of steps; None if its value is not allowed."""
        steps *= direction
        to = value.now + steps
        if not isinstance(value.now, int):
            to = round(value.now + steps * 0.001, 3)

        try:
            loop, policy = _copy_with(case, value.path, to)
            check_goals(loop.goals)
        except ValueError:  # InvalidInput, or user code that refuses the value
            return None

        outcome = _kind_and_rules(decide(loop, policy))[0]
        return Change(value, to=to, outcome=outcome, loop=loop, policy=policy)

    def keeps_verdict(steps: int) -> bool:
        """Return whether a change by these steps is allowed and gives the verdict."""
        change = change_by(steps)
        return change is not None and change.outcome == old_outcome

    # Double the steps until the verdict changes, then halve the interval.
    low = 0
    high = 1
    while keeps_verdict(high) and high < MAX_THRESHOLD_STEPS:
        low = high
        high = 2 * high

    while high - low > 1 and not keeps_verdict(high):
        middle = (low + high) // 2
        if keeps_verdict(middle):
            low = middle
        else:
            high = middle

    change = change_by(high)
    if change is None or change.outcome == old_outcome:
        return None
    return change


def gives(loop: Loop, policy: Policy, verdict: Verdict) -> bool:
    """Return True if `policy` gives the same verdict, stopped by the same rules."""
    return _kind_and_rules(decide(loop, policy)) == _kind_and_rules(verdict)


def _kind_and_rules(verdict: Verdict) -> tuple[str, ...]:
    """Return the kind of a verdict and the names of the rules that stopped the loop."""
    if isinstance(verdict, Again):
        rules = sorted(stop.rule for stop in verdict.climbed)
        return "climbed" if rules else "again", *rules
    rules = sorted(stop.rule for stop in verdict.stopped_by)
    return "passed" if verdict.passed else "stopped", *rules


def _list_values(loop: Loop, policy: Policy) -> Iterator[Value]:
    """Yield the scores of the last attempt, and all thresholds, that can change."""
    last = loop.last_evaluation
    scores = last.scores if last is not None else {}
    scored = [
        (index, goal) for index, goal in enumerate(loop.goals) if goal.score in scores
    ]

    for name in dict.fromkeys(goal.score for _, goal in scored):
        path: Path = (0, "attempts", -1, "evaluation", "scores", name)
        yield Value(kind="score", name=name, now=float(scores[name]), path=path)

    for index, goal in scored:
        path = (0, "goals", index, "threshold")
        threshold = float(goal.threshold)
        yield Value(kind="threshold", name=goal.score, now=threshold, path=path)

    min_gain = float(policy.improvement.min_gain)
    path = (1, "improvement", "min_gain")
    yield Value(kind="limit", name="min_gain", now=min_gain, path=path)

    for index, rule in enumerate(policy.rules):
        yield from _list_limits(rule, "", (1, "rules", index))


def _list_limits(rule: StopRule, within: str, path: Path) -> Iterator[Value]:
    """Yield the numbers among the settings of a rule and of its members.

    `within` is the name of the outermost `All` of the rule, if it is in any.
    """
    if isinstance(rule, All):
        for index, member in enumerate(rule.rules):
            inner_path = (*path, "rules", index)
            yield from _list_limits(member, within or rule.name, inner_path)
    elif is_dataclass(rule) and not isinstance(rule, type):
        for field in fields(rule):
            now = getattr(rule, field.name)
            if isinstance(now, int | float) and not isinstance(now, bool):
                now = float(now) if "float" in str(field.type) else now
                yield Value(
                    kind="limit",
                    name=f"{rule_name(rule)}.{field.name}",
                    now=now,
                    path=(*path, field.name),
                    within=within,
                )


def _copy_with(record: Any, path: Path, value: Any) -> Any:
    """Return a copy of a record, tuple or mapping with `value` at the end of `path`."""
    if not path:
        return value

    step = path[0]
    deeper = path[1:]
    if isinstance(step, int):  # an index of a tuple
        parts = list(record)
        parts[step] = _copy_with(parts[step], deeper, value)
        return tuple(parts)

    if isinstance(record, Mapping):
        return {**record, step: _copy_with(record[step], deeper, value)}

    part = _copy_with(getattr(record, step), deeper, value)
    if isinstance(record, All):
        return All(*part)
    return replace(record, **{step: part})


@dataclass(frozen=True, slots=True)
class Line:
    """One attempt: what was wrong with its candidate, and what was decided.

    `raised` has the type and the place of each exception that refused the candidate.
    `choice` says what was wrong with the other candidates of the attempt; "" if it had
    one.
    """

    attempt: int
    wrong: tuple[str, ...]
    decided: str
    raised: tuple[str, ...] = ()
    choice: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a loop continued and why it stopped; `str()` returns it as text.

    `would_change` has, smallest first, the changes of one threshold or score that
    change the last verdict. If a stopped loop has no such change, `otherwise` says why.
    `closed` says which rungs failed or reached a limit, and what the loop did instead.
    `unjudged` is true if nothing judged the answer that passed, and `unvalidated` says
    which check raised an error instead of judging it. `deafness` says why feedback did
    not reach the function whose answers did not pass. `suspects` names the checks that
    may be at fault, as they raised the same for every candidate. `failure` says how the
    attempt after the last line failed, if it did. `memory` says what memory showed the
    loop, or why it was silent.
    """

    lines: tuple[Line, ...]
    verdict: Verdict
    _: KW_ONLY
    would_change: tuple[Change, ...]
    otherwise: str = ""
    closed: tuple[str, ...] = ()
    unjudged: bool = False
    unvalidated: str = ""
    deafness: str = ""
    suspects: tuple[str, ...] = ()
    failure: str = ""
    memory: tuple[str, ...] = ()

    _repr_html_ = html_form

    @property
    def ways(self) -> tuple[str, ...]:
        """What would have changed the verdict, as sentences; () if the loop passed."""
        if isinstance(self.verdict, Done) and self.verdict.passed:
            return ()

        sentences = [*map(str, self.would_change), self.otherwise]
        return tuple(clean(sentence, 200) for sentence in sentences if sentence)

    @property
    def sentence(self) -> str:
        """How the loop ended and why, and what the smallest change would have been.

        The same words are on every face. For a loop that stopped, one change would have
        allowed another attempt, and another, a better score, would have passed.
        """
        if self.unjudged:
            end = describe_end(self.verdict, len(self.lines), unjudged=True)
            return f"{end} {UNJUDGED_ADVICE}"

        end = describe_end(self.verdict, len(self.lines), self.unvalidated)
        if self.failure:
            end += f" {clean(self.failure, 600).removesuffix('.')}."
        if isinstance(self.verdict, Again) or self.verdict.passed:
            return end

        needs = []
        for opening, outcome in (
            ("one more attempt would need", "again"),
            ("the next rung would need", "climbed"),
            ("it would have passed with", "passed"),
        ):
            change = self._change_to(outcome)
            if change is not None:
                needs.append(f"{opening} {change.words}")

        need = "; ".join(needs) or "no single limit or score would have changed that"
        sentence = f"{end} {need[0].upper()}{need[1:]}."
        for doubt in filter(None, (self.deafness, *self.suspects)):
            sentence += f" {clean(doubt, 300)}."
        return sentence

    def _change_to(self, outcome: str) -> Change | None:
        """Return the smallest change with this outcome, if there is one.

        A loop passes with a better score, not with a lower goal.
        """
        for change in self.would_change:
            is_goal = outcome == "passed" and change.value.kind != "score"
            if change.outcome == outcome and not is_goal:
                return change
        return None

    def __str__(self) -> str:
        texts = []
        for line in self.lines:
            wrong = f": {clean('; '.join(line.wrong), 300)}" if line.wrong else ""
            places = f" ({', '.join(line.raised)})" if line.raised else ""
            choice = f", {clean(line.choice, 300)}" if line.choice else ""
            name = f"attempt {line.attempt}{choice}"
            texts.append(f"{name}{wrong}{places} -> {line.decided}")
        if self.unjudged:
            texts[-1] += f"; {UNJUDGED}"

        if isinstance(self.verdict, Done) and not self.verdict.passed:
            if not self.lines:
                texts.append(_describe_decision(self.verdict))
            output = "nothing: no candidate was evaluated"
            if self.verdict.best:
                output = f"attempt {self.verdict.best}"
            texts.append(f"best: {output}")

        doubts = (self.failure, *self.suspects)
        texts += [clean(text, 600) for text in doubts if text]
        texts += [f"closed: {clean(sentence, 400)}" for sentence in self.closed]
        texts += [f"would have changed it: {way}" for way in self.ways]
        texts += self.memory
        return "\n".join(texts)


def explain(
    loop: Loop, policy: Policy, recorded: Mapping[int, Verdict] | None = None
) -> Explanation:
    """Explain a loop; the result depends on the arguments only.

    `recorded` has stored verdicts by attempt. They replace those of `policy`, which may
    be newer.
    """
    loop = replace(loop, improves=policy.improvement)
    verdicts = _decide_again(loop, policy) | dict(recorded or {})
    verdict = verdicts[len(loop.attempts)]

    lines = []
    for attempt in loop.attempts:
        evaluation = attempt.evaluation or Evaluation()
        reasons: tuple[Trigger, ...] = ()
        if attempt.evaluation:
            reasons = triggers(attempt.evaluation, loop.goals)
        lines.append(
            Line(
                attempt.number,
                tuple(trigger.detail for trigger in reasons),
                _describe_decision(verdicts[attempt.number]),
                raised=evaluation.raised,
                choice=attempt.choice,
            )
        )

    would_change = changes(loop, policy, verdict)
    otherwise = ""
    if not would_change and isinstance(verdict, Done) and not verdict.passed:
        otherwise = "not known: this policy alone did not give the verdict"
        names = dict.fromkeys(stop.rule for stop in verdict.stopped_by)
        if gives(loop, policy, verdict) or "closed" in names:
            otherwise = (
                f"no single threshold or score: {' and '.join(names)} stopped it"
            )

    passed = isinstance(verdict, Done) and verdict.passed
    last = loop.attempts[-1] if loop.attempts else NO_ATTEMPT
    return Explanation(
        tuple(lines),
        verdict,
        would_change=would_change,
        otherwise=otherwise,
        closed=describe_closings(loop, verdict),
        unjudged=passed and last.unjudged,
        unvalidated=last.unvalidated if passed else "",
        deafness="" if passed else last.deafness,
        suspects=() if passed else _suspect_checks(loop),
    )


def _suspect_checks(loop: Loop) -> tuple[str, ...]:
    """Return which checks raised the same exception for every candidate, if several."""
    attempts = [attempt for attempt in loop.attempts if attempt.has_candidate]
    if len({attempt.candidate.digest for attempt in attempts}) < 2:
        return ()

    common: Counter[tuple[str, str]] = Counter()
    for attempt in attempts:
        findings = attempt.evaluation.findings if attempt.evaluation else ()
        common.update({(finding.check, finding.raised) for finding in findings})
    return tuple(
        f"{check} raised {raised} for every answer: perhaps a fault of the check"
        for (check, raised), count in common.items()
        if raised and check != ANSWER_CHECK and count == len(attempts)
    )


def explain_recorded(
    loop: Loop, policy: Policy, decisions: Sequence[Decision]
) -> Explanation:
    """Explain a loop by its recorded decisions and the echoes that they saw."""
    if decisions:
        loop = replace(loop, echoes=echoes_before(loop, policy, decisions[-1]))
    verdicts = {decision.attempt: decision.verdict for decision in decisions}
    return explain(loop, policy, verdicts)


def _decide_again(loop: Loop, policy: Policy) -> dict[int, Verdict]:
    """Return the verdict after each attempt, by its number; 0 without attempts.

    The record does not say when an override was used, so every override that was ever
    used counts for all verdicts before the last. Usage outside the attempts does not
    count for them.
    """
    used = tuple(
        replace(override, used=0, until=None)
        for override in loop.overrides
        if override.used
    )
    past = replace(loop, overrides=used, extra=NO_USAGE, cancelled="")
    last = len(loop.attempts)
    verdicts = {end: decide(past.upto(end), policy) for end in range(1, last)}
    verdicts[last] = decide(loop, policy)
    return verdicts


def _describe_decision(verdict: Verdict) -> str:
    """Return in words what a verdict decided, by which rules or overrides."""
    if isinstance(verdict, Again):
        reasons = [
            f"{stop.rule} overridden by {clean(stop.by, 60)}" for stop in verdict.lifted
        ]
        reasons += [
            f"{stop.rule}: {clean(stop.detail, 400)}" for stop in verdict.climbed
        ]
        decision = f"again on rung {verdict.rung}" if verdict.climbed else "again"
        return f"{decision} ({', '.join(reasons)})" if reasons else decision

    if verdict.passed:
        return "passed"

    stops = [f"{stop.rule}: {clean(stop.detail, 400)}" for stop in verdict.stopped_by]
    stops += [
        f"{stop.rule} overridden by {clean(stop.by, 60)}: {clean(stop.detail, 400)}"
        for stop in verdict.lifted
    ]
    return f"stopped by {'; '.join(stops)}"


def describe_failures(loop: Loop) -> str:
    """Return in words what failed in which attempts, and how; "" if nothing did."""
    numbers_by_code: dict[str, list[int]] = defaultdict(list)
    details = {}
    for attempt in loop.attempts:
        reasons = triggers(attempt.evaluation, loop.goals) if attempt.evaluation else ()
        for reason in reversed(reasons):
            details[reason.code] = reason.detail
        for code in dict.fromkeys(reason.code for reason in reasons):
            numbers_by_code[code].append(attempt.number)
        for error in attempt.evaluation.errors if attempt.evaluation else ():
            if error.evidence and error.check in details:
                evidence = clean(error.evidence, 200)
                details[error.check] = f"{details[error.check]}; evidence: {evidence}"

    codes = sorted(numbers_by_code, key=lambda code: -len(numbers_by_code[code]))
    codes_by_place: dict[str, list[str]] = defaultdict(list)
    for code in codes[:MAX_LISTED_ITEMS]:
        place = _name_attempts(numbers_by_code[code], len(loop.attempts))
        codes_by_place[place].append(clean(code, 60))
    phrases = [
        f"{', '.join(names)} failed{place}" for place, names in codes_by_place.items()
    ]
    if codes:
        phrases[0] += f" ({details[codes[0]].rstrip(' .')})"
    return "; ".join(phrases)


def describe_repeats(loop: Loop) -> str:
    """Return in words which attempts repeat another one.

    Returns "" if only the last one does: how the loop ended says that.
    """
    numbers_by_first: dict[int, list[int]] = defaultdict(list)
    repeats = loop.repeats()
    for number, first in enumerate(repeats, 1):
        if first is not None:
            numbers_by_first[first].append(number)
    if not any(repeats[:-1]):
        return ""
    phrases = [
        loop.describe_repeats(numbers, first)
        for first, numbers in numbers_by_first.items()
    ]
    return "; ".join(phrases[:MAX_LISTED_ITEMS])


def _name_attempts(numbers: Sequence[int], attempts: int) -> str:
    """Return in words in which of the attempts of a loop something failed.

    >>> _name_attempts([1], 1), _name_attempts([1, 2], 2), _name_attempts([2], 3)
    ('', ' in all 2 attempts', ' in attempt 2')
    >>> _name_attempts([1, 3], 4)
    ' in 2 of 4 attempts'
    """
    if len(numbers) == attempts:
        return f" in all {attempts} attempts" if attempts > 1 else ""
    if len(numbers) == 1:
        return f" in attempt {numbers[0]}"
    return f" in {len(numbers)} of {attempts} attempts"
