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

    Their findings come first. `judges` are the names of the loop's own checks, None if
    the host evaluated by itself. If the check that taught a lesson is among them and
    accepts the candidate, or the host does, it has the last word: the finding is a
    warning, and counts as a false alarm. A check whose finding the evaluation has
    already, because the host asked it, is not asked again.
    """
    text = Candidate.of(candidate).text or ""
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
    """Return the finding, as a warning if the lesson's own check accepts the text."""
    if evaluation is None:
        return finding

    accepted = not evaluation.errors
    teacher = "the evaluation"
    if judges is not None:
        names = {check.error_type, *check.taught_by}
        teacher = ", ".join(check.taught_by)
        has_erred = any(error.check in names for error in evaluation.errors)
        accepted = set(check.taught_by) <= set(judges) and not has_erred
    if not accepted:
        return finding

    message = f"{finding.message}; {teacher} accepts it"
    return replace(finding, message=message, level="warning")


def alarms_of(evaluation: Evaluation | None) -> tuple[Alarm, ...]:
    """Return what the checks of lessons found in an evaluation."""
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
