"""What a finished loop teaches: its lessons, and its outcome for the proof.

Only the loop's own evaluations count. A lesson is verified by a pair of them: an
attempt had an error, or missed a goal, and the accepted attempt has not, or meets it
with enough gain. What a caller said of an attempt, as a bias or as the reason for
another attempt, is a rule in his words if the loop passed. A loop that was accepted at
the first try gives one unverified example. A loop that did not pass gives nothing,
unless it has a memory key: then each of its errors is an unverified lesson about a rule
that loops of this key broke.

The outcome says whether the first attempt passed, and which errors occurred. A proof
compares the outcomes of loops that were shown a lesson with those of other loops.
"""

import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise

from heedful.lessons.finding_rules import (
    Declared,
    mask_finding,
)
from heedful.lessons.lesson import Cause, Example, Lesson, Outcome, clip
from heedful.lessons.lesson_check import LESSON_CHECK_PREFIX
from heedful.lessons.scope import State
from heedful.lessons.signature import signature
from heedful.lessons.words import MAX_QUOTED_CHARS, difference
from heedful.loop.record import (
    Attempt,
    Evaluation,
    Finding,
    Loop,
    format_score,
    thousandths,
)
from heedful.redact import redact
from heedful.validation import MAX_STORED_TEXT_CHARS

# A finding may quote an output of this length without quotation marks; a shorter one is
# in every text.
MIN_QUOTED_OUTPUT_CHARS = 3
# The label of an attempt with the words in which a caller said why it is made.
RERUN_REASON_LABEL = "rerun_reason"
# The most lessons from one loop: a thousand findings of one check are not a thousand
# lessons.
MAX_LOOP_LESSONS = 20


def learn(
    loop: Loop,
    task: str,
    outputs: bool = True,
    memory_key: str = "",
    checks: Sequence[str] = (),
    declare: Callable[[], Declared] = Declared,
) -> tuple[Lesson, ...]:
    """Return the lessons of a loop that has ended.

    A verified lesson is made for each error that an earlier attempt had and the
    accepted attempt does not have, and for each goal that an earlier attempt missed and
    the accepted attempt meets with enough gain. Only the `MAX_LOOP_LESSONS` most severe
    lessons are returned, and those in the words of the caller. If the first attempt was
    accepted, the only lesson is an unverified example. If `outputs` is false, lessons
    contain no candidates, and an accepted first attempt gives no lesson; an error then
    counts as corrected even if the candidate did not change, because the work can be
    outside of the candidate.

    A `memory_key` names loops of one kind. With it, the lessons about findings say
    which rule of this key the loop broke; then a loop that did not pass has an
    unverified lesson for each error, and a task or answer that is too long for an
    example is left out. `checks` are the names of the loop's checks. What they
    `declare`, such as the texts they allow, is no particular of the task, so a rule
    keeps it.
    """
    if not loop.attempts:
        return ()

    last = loop.attempts[-1]
    passed = _has_passed(loop)
    fits = _fits_an_example(task) and _fits_an_example(last.candidate.text or "")
    # Without a key, only a loop that passed teaches, and only what fits a prompt.
    if not memory_key and not (passed and (fits or not outputs)):
        return ()

    quotes_outputs = outputs and passed and fits
    if passed and len(loop.attempts) == 1:
        if not quotes_outputs:
            return ()
        return (_first_try_lesson(loop, task),)

    accepted = last if passed else None
    corrections = _corrections(loop, accepted, must_differ=outputs)
    # The most severe come first, because only some become lessons.
    corrections.sort(key=lambda correction: -correction.finding.severity)

    still_broken = _broken_at_last(loop)
    lessons = []
    for correction in corrections[:MAX_LOOP_LESSONS]:
        example = correction.example(task)
        if memory_key:
            rule = rule_of(
                correction.finding,
                loop,
                refused=correction.rejected,
                task=task,
                declare=declare,
            )
            stated = bool(correction.finding.rule)
            example = replace(example, rule=rule, stated=stated)
        # Before the outputs are dropped: then the text alone tells what was changed.
        text = correction.text(example, quotes_change=not quotes_outputs)
        if not quotes_outputs:
            example = replace(example, task=clip(task), accepted="", rejected="")
        cause = correction.cause(memory_key, tuple(checks), still_broken)
        lessons.append(correction.lesson(loop.id, text, example, cause))
    if passed:
        lessons += _lessons_of_caller(loop, task)
    return tuple(lessons)


def outcome_of(
    loop: Loop, memory_key: str = "", rules: frozenset[str] = frozenset()
) -> Outcome:
    """Return how a loop ended, so that a proof can tell whether its lessons helped.

    The signatures are digests of its errors and missed goals, the same as those of
    lessons about them: so a proof sees which errors came again. `rules` are the rules
    of the `memory_key`, which names loops of one kind, that the loop broke.
    """
    errors: set[tuple[str, str]] = set()  # the check and the key of each
    for attempt in loop.attempts:
        if attempt.evaluation is None:
            continue
        for finding in attempt.evaluation.errors:
            errors.add((finding.check, finding.key))
        for goal in attempt.evaluation.unmet(loop.goals):
            errors.add((goal.score, str(goal)))

    digests = frozenset(signature(check, key).digest for check, key in errors)
    first = loop.attempts[0].evaluation if loop.attempts else None
    passed_first = first is not None and first.passes(loop.goals)
    # With a ladder, attempts climb from a cheap model, the first rung, to dearer ones.
    climb = loop.climb()
    return Outcome(
        loop.id,
        passed_first,
        calls=loop.usage.calls,
        signatures=digests,
        memory_key=memory_key,
        rules=rules,
        model=loop.model,
        rung=loop.attempts[0].rung if loop.attempts else loop.rung,
        climbed=None if climb is None else climb.climbed,
        cost=loop.usage.cost,
    )


def is_proof_due(outcomes: int) -> bool:
    """Return True if what lessons are worth is to be computed after so many outcomes.

    This proof is due after every 20th outcome, and less often from 512 on: then after
    6 to 13 % more outcomes, so that all proofs together read each outcome at most 16
    times. However often one looks, the intervals of a proof stay valid.
    """
    # From 512 on, it is a power of 2 between 1/16 and 1/8 of the outcomes.
    spacing = max(20, 2 ** (outcomes.bit_length() - 4))
    return outcomes > 0 and outcomes % spacing == 0


def rule_of(
    finding: Finding,
    loop: Loop,
    *,
    refused: Attempt,
    task: str,
    declare: Callable[[], Declared],
) -> str:
    """Return the rule for other tasks that a finding about the attempt `refused` shows.

    It is what the check stated as the rule. If it stated none, it is what the finding
    says, with blanks for particulars of the `task` and of the answers of the ended
    loop; what the checks `declare` as their own words stays.
    """
    if finding.rule:
        return clip(finding.rule)

    answers = [attempt.candidate.text or "" for attempt in loop.attempts]
    text = mask_finding(
        finding.message,
        finding.fix,
        task=task,
        answers=answers,
        accepted=answers[-1] if _has_passed(loop) else "",
        declared=declare(),
        knows_refused=refused.candidate.text is not None,
    )
    return clip(text)


def _has_passed(loop: Loop) -> bool:
    """Return True if the last attempt of a loop passes."""
    evaluation = loop.attempts[-1].evaluation
    return evaluation is not None and evaluation.passes(loop.goals)


def _fits_an_example(text: str) -> bool:
    """Return True if a text is not empty and short enough to be shown in a prompt."""
    return 0 < len(text) <= MAX_STORED_TEXT_CHARS


def _first_try_lesson(loop: Loop, task: str) -> Lesson:
    """Return the lesson of a loop whose only attempt was accepted: a good example.

    It is unverified, because nothing shows what would have gone wrong.
    """
    (attempt,) = loop.attempts
    assert attempt.evaluation is not None  # only an evaluation accepts an attempt
    return Lesson(
        "example",
        signature("accepted", "first try"),
        error_type="accepted",
        text="Answers that were accepted at the first try.",
        sighting="accepted at the first try",
        loop=loop.id,
        example=Example(
            task,
            attempt.candidate.text or "",
            after=dict(attempt.evaluation.scores),
            model=attempt.model,
            rung=attempt.rung,
        ),
        tags=("accepted",),
    )


@dataclass(frozen=True, slots=True)
class _Correction:
    """An error or a missed goal, the last attempt that had it, and the accepted one.

    `accepted` is None if the loop did not pass, so that nothing was corrected.
    """

    finding: Finding
    rejected: Attempt
    accepted: Attempt | None

    def example(self, task: str) -> Example:
        """Return the rejected and the accepted output, with their scores.

        If no attempt was accepted, the accepted output is "" and without scores. Task
        and accepted output are not cut here: `learn` leaves out those that are long.
        """
        before = self.rejected.evaluation or Evaluation()
        accepted_output = ""
        after = Evaluation()
        if self.accepted is not None:
            accepted_output = self.accepted.candidate.text or ""
            after = self.accepted.evaluation or after

        return Example(
            task,
            accepted_output,
            rejected=clip(self.rejected.candidate.text or ""),
            wrong=clip(self.finding.message),
            before=dict(before.scores),
            after=dict(after.scores),
            evidence=clip(self.finding.evidence),
            fix=clip(self.finding.fix),
            model=self.rejected.model,
            rung=(self.accepted or self.rejected).rung,
        )

    def text(self, example: Example, quotes_change: bool) -> str:
        """Return the words of the lesson: what was wrong, and how to put it right.

        That is the fix or, without one, the change from the rejected to the accepted
        output of `example`, if it is short. With `quotes_change`, a short change is
        quoted after the fix, too.
        """
        change = ""
        if self.accepted is not None:
            changed_part = difference(example.rejected, redact(example.accepted))
            if 0 < len(changed_part) <= MAX_QUOTED_CHARS and "\n" not in changed_part:
                change = f"Accepted: {changed_part}"

        message = self.finding.message.rstrip(". ")
        text = clip(f"{message}. {self.finding.fix or change}".strip())
        if quotes_change and change not in text:
            # A full stop is added only where the text has no end of its own.
            return f"{text} {change}" if text[-1] in ".!?:…" else f"{text}. {change}"
        return text

    def cause(
        self, memory_key: str, checks: tuple[str, ...], still_broken: Set[str]
    ) -> Cause | None:
        """Return the rule that the finding shows was broken, for later loops.

        `memory_key` names the loops of one kind that share it; without one, the result
        is None, and so it is for a missed goal. `checks` are the names of the loop's
        checks. `still_broken` names the rules that the loop broke to the end.
        """
        finding = self.finding
        evaluation = self.rejected.evaluation
        if not memory_key or evaluation is None or finding not in evaluation.errors:
            return None

        rule = _rule_name(finding, self.rejected)
        # If another model of the loop's ladder put it right, the feedback did not.
        climbed = self.accepted and self.accepted.rung != self.rejected.rung
        # A finding may have another name than its check: then any may have found it.
        possible_checks = (finding.check,) if finding.check in checks else checks
        return Cause(
            memory_key=memory_key,
            rule=rule,
            checks=possible_checks,
            check_id=finding.check_id,
            severity=finding.severity,
            fix=int(bool(finding.fix)),
            mended=int(rule not in still_broken and not climbed),
        )

    def lesson(
        self, loop_id: str, text: str, example: Example, cause: Cause | None
    ) -> Lesson:
        """Return the lesson about the error, verified if an accepted attempt lacks it.

        `loop_id` is the loop it comes from, and `text` says what to do. `cause` is the
        rule that was broken, if later loops are told it as a rule.
        """
        finding = self.finding
        state: State = "unverified" if self.accepted is None else "verified"
        return Lesson(
            "check",
            signature(finding.check, finding.key),
            error_type=finding.check,
            text=text,
            sighting=example.wrong,
            loop=loop_id,
            example=example,
            state=state,
            tags=(finding.check,),
            cause=cause,
        )


def _lessons_of_caller(loop: Loop, task: str) -> list[Lesson]:
    """Return lessons in the words in which a caller refused earlier attempts.

    These are biases, that is lasting warnings, which the accepted attempt does not
    have, and the reasons that the caller gave for a further attempt.
    """
    accepted = loop.attempts[-1].evaluation or Evaluation()
    findings: dict[str, Finding] = {}
    for attempt, rerun in pairwise(loop.attempts):
        refused = attempt.evaluation or Evaluation()
        for finding in refused.findings:
            is_bias = finding.persistent and finding.level != "error"
            if is_bias and finding.key not in accepted.keys:
                findings[finding.key] = finding
        reason = rerun.labels.get(RERUN_REASON_LABEL)
        if reason:
            # A sentence about this output says more than the name of a bias.
            findings[reason] = Finding(RERUN_REASON_LABEL, reason, severity=1.0)

    return [
        Lesson(
            "strategy",
            signature(finding.check, finding.key),
            error_type=finding.check,
            text=clip(". ".join(filter(None, (finding.message, finding.fix)))),
            sighting=clip(finding.message),
            loop=loop.id,
            example=Example(clip(task), ""),
            state="verified",
            importance=finding.severity,
            tags=(finding.check,),
            is_correction=True,
        )
        for finding in findings.values()
    ]


def _corrections(
    loop: Loop, accepted: Attempt | None, must_differ: bool
) -> list[_Correction]:
    """Return each error and missed goal that the accepted attempt no longer has.

    Each is paired with the last attempt that had it. If no attempt was `accepted`, each
    error of the loop is returned, though nothing corrected it. If the candidates
    `must_differ`, attempts with the same candidate as the accepted one are ignored.
    """
    corrections: dict[str, _Correction] = {}
    for attempt in loop.attempts:
        evaluation = attempt.evaluation
        if evaluation is None:
            continue

        findings: Sequence[Finding] = evaluation.errors
        if accepted is not None and accepted.evaluation is not None:
            is_same = attempt.candidate.digest == accepted.candidate.digest
            if evaluation is accepted.evaluation or (must_differ and is_same):
                continue
            findings = _corrected_findings(loop, evaluation, accepted.evaluation)
        for finding in findings:
            # A check that was itself made from a lesson teaches nothing new.
            if finding.check.startswith(LESSON_CHECK_PREFIX):
                continue
            # What an exception says is known to be a mistake only if it was put right.
            if finding.raised and accepted is None:
                continue
            corrections[finding.key] = _Correction(finding, attempt, accepted)

    return list(corrections.values())


def _corrected_findings(
    loop: Loop, before: Evaluation, after: Evaluation
) -> list[Finding]:
    """Return the errors and missed goals of one evaluation that a later one has not.

    A missed goal becomes a finding only if its score rose by the gain that the loop
    demands of an improvement: a smaller one may be chance.
    """
    min_gain = thousandths(loop.improves.min_gain)
    findings = list(before.errors)
    for goal in before.unmet(loop.goals):
        score = before.scores[goal.score]
        gain = goal.margin(after.scores[goal.score]) - goal.margin(score)
        if gain >= min_gain:
            message = f"{goal.score} {format_score(score)} misses {goal}"
            findings.append(Finding(goal.score, message, key=str(goal)))

    return [finding for finding in findings if finding.key not in after.keys]


def _broken_at_last(loop: Loop) -> Set[str]:
    """Return the names of the rules that the last attempt that was judged broke."""
    names: Set[str] = set()
    for attempt in loop.attempts:
        if attempt.evaluation and not attempt.doubt:
            names = {_rule_name(error, attempt) for error in attempt.evaluation.errors}
    return names


def _rule_name(finding: Finding, attempt: Attempt) -> str:
    """Return the digest that names the rule of a finding in an attempt."""
    return rule_digest(finding.check, finding.key, attempt.candidate.text or "")


def rule_digest(check: str, key: str, output: str) -> str:
    """Return the digest that names the rule which an output broke.

    `check` found it, and `key` is the text that identifies the finding. Findings that
    differ only in what they quote from their outputs are about one rule: the quotations
    are masked.
    """
    # A short output may be quoted whole, without quotation marks.
    if MIN_QUOTED_OUTPUT_CHARS <= len(output) <= MAX_QUOTED_CHARS:
        key = re.sub(rf"(?<!\w){re.escape(output)}(?!\w)", "…", key)

    def mask(quotation: re.Match[str]) -> str:
        # What is not from the output may be what the check demands.
        return "…" if quotation[2] in output else quotation[0]

    # A text in quotation marks: 'total', "a b".
    masked = re.sub(r"""(['"`])([^'"`]+)\1""", mask, key)
    return signature(check, masked).digest
