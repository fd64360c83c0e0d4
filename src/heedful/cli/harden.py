"""`heedful lessons harden`: let a lesson become a check, and see what it found."""

from typing import Annotated

from typer import Argument, Option

from heedful.cli.output import answer, columns, emit, following
from heedful.cli.resources import ask
from heedful.cli.settings import MAX_OPTION_INTEGER, Limit, Why, where
from heedful.errors import UsageError
from heedful.lessons.lesson_check import LessonCheck
from heedful.memory.hardening import LessonChecks
from heedful.memory.memory import Memory
from heedful.sanitize import clean

PROPOSE_COMMAND = "heedful lessons harden LESSON"
LESSON_CHECK_COLUMNS = columns(
    "check state why lesson hits false_alarms",
    check="about",
    why=lambda check: clean(check.why, 200),
)


def harden(
    lesson: Annotated[
        int | None,
        Argument(min=1, max=MAX_OPTION_INTEGER, help="The id of a lesson."),
    ] = None,
    accept: Annotated[
        bool, Option("--accept", help="Let the check judge from now on.")
    ] = False,
    reject: Annotated[
        bool, Option("--reject", help="Stop the check from judging.")
    ] = False,
    false_alarm: Annotated[
        bool, Option("--false-alarm", help="Its last finding was wrong.")
    ] = False,
    by: Annotated[str, Option(help="Who decides; needed for a decision.")] = "",
    why: Why = "",
    list_: Annotated[
        bool, Option("--list", help="List the checks of all lessons.")
    ] = False,
    limit: Limit = 50,
) -> int:
    """Propose a check made from the examples of a lesson, or decide about it.

    No model is asked. The check is executed on the lesson's own outputs and on accepted
    outputs of others before it is proposed.
    """
    decisions = {"accept": accept, "reject": reject, "false_alarm": false_alarm}
    chosen = [name for name, is_chosen in decisions.items() if is_chosen]
    if list_:
        if lesson is not None or chosen:
            raise UsageError("--list lists all checks: give no lesson and no decision")
        return _list_checks(limit)

    if lesson is None:
        raise UsageError(f"no lesson is named: {PROPOSE_COMMAND}, or --list")
    if len(chosen) > 1:
        raise UsageError("choose one of --accept, --reject and --false-alarm")
    if chosen and not by.strip():
        raise UsageError("a decision needs its author: --by NAME")

    async def decide(memory: Memory) -> LessonCheck:
        """Propose the check, or decide about it."""
        checks = LessonChecks(memory)
        if accept:
            return await checks.accept(lesson, by=by, why=why)
        if reject:
            return await checks.reject(lesson, by=by, why=why)
        if false_alarm:
            return await checks.false_alarm(lesson, by=by, why=why)
        return await checks.propose(lesson)

    return _show_check(ask(decide))


def _list_checks(limit: int) -> int:
    """Print the checks, newest decision first."""
    checks = ask(lambda memory: LessonChecks(memory).list(limit))
    return emit(
        checks,
        LESSON_CHECK_COLUMNS,
        key="checks",
        text_columns=3,
        empty=f"no lesson is a check in {where()}; {PROPOSE_COMMAND} proposes one",
    )


def _show_check(check: LessonCheck) -> int:
    """Print one check: what it asks, on what it was executed, and what it found."""
    judged = f"loops of the memory key {check.memory_key!r}"
    if not check.memory_key:
        judged = "loops without a memory key"
    if check.kind == "call":
        judged = "calls of agents, before they are made"

    reason = f": {check.why}" if check.why else ""
    executed = (
        f"executed: finds {check.failed} of {check.failed} rejected outputs, none of "
        f"{check.passed} accepted ones and of {check.harmless} of other lessons"
    )
    lines = [
        f"lesson {check.lesson} is a check, {check.state}{reason}",
        f"finds: {check.about}",
        f"says: {check.text}",
        f"judges: {judged}",
        executed,
    ]
    if check.hits:
        lines.append(f"found: {check.hits}, wrong: {check.false_alarms}")

    then = following("lessons", "harden", "--list")
    if check.state == "proposed":
        then = following("lessons", "harden", check.lesson, "--accept", by="NAME")
    return answer(check, [clean(line, len(line)) for line in lines], then)
