"""`heedful forget`: delete the texts of a person, a lesson, a loop, or all old ones."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated

from typer import Option

from heedful.cli.printing import TextTable, answer, following, repeated
from heedful.cli.resources import ask
from heedful.cli.settings import Why, number_option
from heedful.display import counted
from heedful.errors import InvalidInput
from heedful.lessons.forgetting import Forgotten
from heedful.memory.memory import Memory

DATE_FORM = "a day such as 2026-01-31"
_STOPPED = "interrupted: texts may still be in the files; run the same command again"


def forget(
    lesson: Annotated[
        int | None,
        number_option(metavar="ID", help="Forget a lesson."),
    ] = None,
    person: Annotated[
        str, Option(metavar="NAME", help="Forget what a person said.")
    ] = "",
    loop: Annotated[
        str, Option(metavar="ID", help="Forget a loop, or a run with its stages.")
    ] = "",
    before: Annotated[
        str,
        Option(metavar="DATE", help="Forget what nobody has said since: 2026-01-31."),
    ] = "",
    by: Annotated[str, Option(help="Who is responsible; not for --dry-run.")] = "",
    why: Why = "",
    dry_run: Annotated[
        bool, Option("--dry-run", help="Only count what would go.")
    ] = False,
) -> int:
    """Delete the texts of one lesson, person or loop, or all texts before a day (UTC).

    What derives from them goes, too; what others said stays. The texts leave every
    table and the files of the database. It exits with 1 if there was nothing, or if
    texts remain in the files.
    """
    before_time = _start_of_day(before) if before else None

    async def delete(memory: Memory) -> Forgotten:
        return await memory.forget(
            lesson=lesson,
            person=person,
            loop=loop,
            before=before_time,
            by=by,
            why=why,
            dry_run=dry_run,
        )

    forgotten = ask(delete, stopped=_STOPPED)
    then = following("quarantine", "log")
    if dry_run and forgotten:
        then = repeated() if by else f"{repeated()} --by NAME"
    heading = "would go" if dry_run else "went"
    answer(
        {**asdict(forgotten), "dry_run": dry_run, "by": by, "why": why},
        *_summary(forgotten, heading),
        forgotten.remains,
        then,
    )
    is_done = bool(forgotten) and not forgotten.remains
    return 0 if is_done else 1


def _start_of_day(text: str) -> float:
    """Return the start of a day, in UTC, in seconds since 1970. Raises InvalidInput."""
    try:
        day = datetime.strptime(f"{text.strip()} +0000", "%Y-%m-%d %z")
    except ValueError:
        raise InvalidInput("--before", text, DATE_FORM) from None
    return day.timestamp()


def _summary(forgotten: Forgotten, heading: str) -> list[object]:
    """Return a table of what went, and a line with the lessons that stay."""
    rows = [(name, n) for name, n in forgotten.counts if n]
    if not rows:
        return ["nothing to forget: no text is stored of it here"]
    table = TextTable((heading, "rows"), rows)
    if not forgotten.shared:
        return [table]
    stays = counted(len(forgotten.shared), "lesson")
    ids = ", ".join(map(str, forgotten.shared))
    return [table, f"{stays} with what others said: {ids}"]
