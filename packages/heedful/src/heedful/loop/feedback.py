"""The text that the next attempt reads: findings and unmet goals, bounded in length."""

from collections.abc import Sequence

from heedful.loop.record import Evaluation, Finding, Goal, format_score
from heedful.sanitize import clean, sanitize
from heedful.validation import MAX_SHOWN_TEXT_CHARS

MAX_FEEDBACK_CHARS = 1_500
# A line is not cut below this length, so that it keeps the name of its check.
MIN_FEEDBACK_LINE_CHARS = 130
FEEDBACK_HEADING = "The last answer was not accepted:"  # the first line of a feedback
CORRECTED_HEADING = "Earlier answers had these mistakes; do not make them again:"


def feedback(
    evaluation: Evaluation,
    goals: tuple[Goal, ...] = (),
    head: str = FEEDBACK_HEADING,
    tail: str = "",
    corrected: Sequence[Finding] = (),
) -> str:
    """Return `head`, one line for each error, unmet goal and warning, and `tail`.

    A line follows for each of the errors `corrected` since earlier attempts: a model
    that reads only of the last ones makes them again.

    The most severe errors come first, and equal lines appear once. Long texts are
    shortened, so that the result has at most `MAX_FEEDBACK_CHARS` characters. Every
    failed check and every unmet goal has a line, even if many of them make the result
    longer. Other findings of these checks and warnings are counted if they do not fit.
    Tokens that begin or end a chat turn, tags such as `<system>` and images are made
    harmless. Without any line, it is "".
    """
    failed = _failed_lines(evaluation, goals)
    warnings = [
        _finding_line(finding)
        for finding in evaluation.findings
        if finding.level == "warning"
    ]
    lines = list(dict.fromkeys([*(line for _, line in failed), *warnings]))
    if not lines:
        return ""

    room = MAX_FEEDBACK_CHARS - len(head) - len(tail) - 24  # "- and … more."
    first_lines = set(dict(reversed(failed)).values())  # one of each check and goal
    shown_lines = _fitting_lines(lines, first_lines, room)

    length = _line_length(shown_lines, room)
    parts = [head, *(clean(line, length) for line in lines if line in shown_lines)]

    others = len(lines) - len(shown_lines)
    others += sum(finding.more for finding in evaluation.findings)
    if others:
        parts.append(f"- and {others} more.")
    if corrected:
        parts.append(CORRECTED_HEADING)
    parts += [clean(_finding_line(error), length) for error in corrected]

    return sanitize("\n".join(parts) + tail)


def _failed_lines(
    evaluation: Evaluation, goals: tuple[Goal, ...]
) -> list[tuple[str, str]]:
    """Return a line for each error and each unmet goal, with the check or the goal."""
    worst_first = sorted(evaluation.errors, key=lambda error: -error.severity)
    failed = [(error.check, _finding_line(error)) for error in worst_first]

    for goal in evaluation.unmet(goals):
        word = "at least" if goal.direction == "at_least" else "at most"
        score = format_score(evaluation.scores[goal.score])
        limit = format_score(goal.threshold)
        line = f"- {clean(goal.score, 60)} is {score}; it must be {word} {limit}."
        failed.append((str(goal), line))

    return failed


def _finding_line(finding: Finding) -> str:
    """Return the line about a finding: its check, its message and its fix."""
    check = clean(finding.check, 60)
    message = clean(finding.message, MAX_SHOWN_TEXT_CHARS).rstrip(" .")
    fix = clean(finding.fix, MAX_SHOWN_TEXT_CHARS)
    return f"- {check}: {message}. {fix}".rstrip()


def _fitting_lines(lines: list[str], required: set[str], room: int) -> set[str]:
    """Return the `required` lines, and others while `room` characters are enough.

    Each line counts with the length to which it can be shortened.
    """
    fitting = set[str]()
    for line in sorted(lines, key=lambda line: line not in required):
        room -= min(len(line), MIN_FEEDBACK_LINE_CHARS) + 1
        if room >= 0 or line in required:
            fitting.add(line)
    return fitting


def _line_length(lines: set[str], room: int) -> int:
    """Return the length to which lines are cut, so that all fit into `room`.

    Short lines leave their share of the room to long ones.
    """
    length = MIN_FEEDBACK_LINE_CHARS
    room -= len(lines)
    for index, line in enumerate(sorted(lines, key=len)):
        length = max(length, room // (len(lines) - index))
        room -= len(line)
    return length
