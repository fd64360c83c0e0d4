"""`heedful hook stats`: what agents were told, and whether the mistakes came again."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from typer import Option

from heedful.cli.output import TextTable, answer, columns, following
from heedful.cli.resources import ask
from heedful.cli.settings import MAX_OPTION_INTEGER
from heedful.errors import NotFound
from heedful.lessons.reminders import ReminderFigures, ReminderTally
from heedful.memory.memory import Memory
from heedful.store import reminders

DEFAULT_SHOWN_WEEKS = 12


def _saved(tally: ReminderTally) -> str:
    """Return the calls saved, "?" if they are not known."""
    return "?" if tally.calls_saved is None else f"{tally.calls_saved:.0f}"


REMINDER_COLUMNS = columns(
    "week told not_repeated did_not_help"
    " withheld withheld_repeated no_verdict calls_saved",
    did_not_help="unhelpful",
    calls_saved=_saved,
)


def stats(
    weeks: Annotated[
        int, Option(min=1, max=MAX_OPTION_INTEGER, help="How many weeks, newest last.")
    ] = DEFAULT_SHOWN_WEEKS,
) -> int:
    """Show by week what agents were reminded of, and whether the mistakes came again.

    Calls are saved only as far as what was told came again less often than what was
    withheld at random; without enough data it says what is missing.
    """

    async def look(memory: Memory) -> ReminderFigures:
        return await memory.store.read(memory.scope, reminders.figures)

    try:
        figures = ask(look, approved_only=True)
    except NotFound:
        # No hook has run here yet.
        figures = ReminderFigures()
    if not figures.weeks:
        words = "no session with a reminder has ended yet"
        return answer(asdict(figures), words, following("hook", "status"))

    table = TextTable(REMINDER_COLUMNS, figures.weeks[-weeks:])
    return answer(asdict(figures), table, f"\n{_sentence(figures)}", _evidence(figures))


def _sentence(figures: ReminderFigures) -> str:
    """Return what all reminders did, in one line."""
    return f"in all: {figures.total}" if figures.total.told else "in all: none was told"


def _evidence(figures: ReminderFigures) -> list[str]:
    """Return how often mistakes came again with and without a reminder."""
    if not figures.is_compared:
        return ["calls saved are not known: no reminder was withheld at random yet"]
    if figures.missing:
        return [f"calls saved need more data: {'; '.join(figures.missing)}"]

    share = figures.told_repeated or 0.0
    withheld_share = figures.withheld_repeated or 0.0
    ends = f"{100 * figures.low:+.0f} and {100 * figures.high:+.0f}"
    verdict = "the reminders help" if figures.low > 0 else "not proven yet"
    shares = f"{share:.0%} of what was told, {withheld_share:.0%} of what was withheld"
    calls = figures.failure_calls or 0.0
    return [
        f"came again: {shares}; points fewer: between {ends} ({verdict})",
        f"calls that a failure costs: {calls:.1f} on average",
    ]
