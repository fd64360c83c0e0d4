"""What the checks of lessons find in a loop's candidates, and who has the last word."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from heedful.lessons.lesson_check import LESSON_CHECK_PREFIX, Alarm, LessonCheck
from heedful.loop.record import Candidate, Evaluation, Finding


def add_findings(
    evaluation: Evaluation | None,
    candidate: Any,
    checks: Sequence[LessonCheck],
    judges: Sequence[str] | None,
) -> Evaluation | None:
    """Return the evaluation with what the checks of lessons find in a candidate.

    The `checks` were made from lessons about earlier mistakes; their findings come
    first. `judges` are the names of the loop's own checks, None if the host evaluated
    by itself. If the check that taught a lesson is among them and accepts the
    candidate, or the host does, it has the last word: the finding is a warning, and
    counts as a false alarm. Without `evaluation`, that is unless the loop has judged,
    a finding stays an error, and without a finding the result is None.
    """
    text = Candidate.of(candidate).text or ""
    # The host may have asked a check already: its finding is not added again.
    alarmed_ids = {alarm.lesson for alarm in alarms_of(evaluation)}
    findings: list[Finding] = []
    for check in checks:
        if check.lesson not in alarmed_ids and check.refuses(text):
            finding = Finding(
                check.name, check.about, fix=check.text, key=f"{check.name}: broken"
            )
            findings.append(_overruled(finding, check, evaluation, judges))
    if not findings:
        return evaluation

    if evaluation is None:
        return Evaluation(tuple(findings))
    return replace(evaluation, findings=(*findings, *evaluation.findings))


def _overruled(
    finding: Finding,
    check: LessonCheck,
    evaluation: Evaluation | None,
    judges: Sequence[str] | None,
) -> Finding:
    """Return a finding of a lesson's check, as a warning if it is a false alarm.

    `check` was made from a lesson, which `check.taught_by` taught: checks that can find
    the same mistake. If all of them are among the `judges`, the names of the loop's own
    checks, and none reports the mistake, the finding is false. If `judges` is None, the
    host judged alone, and the finding is false if the evaluation has no error.
    """
    if evaluation is None:
        return finding

    accepted = not evaluation.errors
    accepting_judge = "the evaluation"
    if judges is not None:
        # The names under which the loop's own checks would report the mistake.
        names = {check.error_type, *check.taught_by}
        accepting_judge = ", ".join(check.taught_by)
        found_mistake = any(error.check in names for error in evaluation.errors)
        accepted = set(check.taught_by) <= set(judges) and not found_mistake
    if not accepted:
        return finding

    message = f"{finding.message}; {accepting_judge} accepts it"
    return replace(finding, message=message, level="warning")


def alarms_of(evaluation: Evaluation | None) -> tuple[Alarm, ...]:
    """Return an alarm for each finding that comes from a check made from a lesson.

    It names the lesson, and is false if the finding is only a warning.
    """
    findings = evaluation.findings if evaluation else ()
    return tuple(
        Alarm(lesson_of(finding), is_false=finding.level != "error")
        for finding in findings
        if lesson_of(finding)
    )


def lesson_of(finding: Finding) -> int:
    """Return the id of the lesson whose check made a finding; 0 for another check."""
    number = finding.check.removeprefix(LESSON_CHECK_PREFIX)
    is_ours = number != finding.check and number.isdecimal()
    return int(number) if is_ours else 0
