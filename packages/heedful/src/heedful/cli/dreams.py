"""`heedful consolidate`: reflect on what recurs, end superseded rules, and undo it.

What a dream did is stored, so that a rollback can restore what it ended and withdraw
its reflections.
"""

from dataclasses import asdict

from typer import Context, Typer

from heedful.cli.app import group_with_default
from heedful.cli.printing import (
    answer,
    columns,
    emit,
    following,
    page,
    repeated,
    when,
)
from heedful.cli.quarantine_commands import Id
from heedful.cli.resources import ask
from heedful.cli.settings import By, DryRun, Limit, Why
from heedful.display import counted
from heedful.memory.dream import Dream, Dreams, consolidate
from heedful.memory.memory import Memory
from heedful.validation import Document

dreams: Typer = group_with_default()


@dreams.callback(invoke_without_command=True)
def dream(
    context: Context,
    dry_run: DryRun = False,
    by: By = "heedful",
) -> int:
    """Reflect on failures that recur, and end rules that newer ones contradict.
    `rollback` undoes a dream.
    """
    if context.invoked_subcommand is not None:
        return 0

    result = ask(
        lambda memory: consolidate(memory, dry_run=dry_run, by=by),
        stopped="stopped; nothing was changed",
    )
    if not result.done:
        then = following("lessons")
    elif dry_run:
        then = repeated()
    else:
        then = following("consolidate", "show", result.id)
    return _answer_dream(result, then)


def _what_cell(result: Dream) -> str:
    """Return what a dream did, or why it did nothing, and when it was undone."""
    parts = [result.nothing] if result.nothing else []
    if result.superseded:
        parts.append(f"{counted(result.superseded, 'lesson')} superseded")
    if result.written:
        parts.append(f"{counted(result.written, 'reflection')} written")
    summary = ", ".join(parts)
    if result.undone is None:
        return summary
    return f"rolled back {when(result.undone)}; {summary}"


DREAM_COLUMNS = columns("what by id before after at", what=_what_cell)


@dreams.command("log")
def list_dreams(limit: Limit = 20) -> int:
    """List the dreams and what they did. If a dream did nothing, the reason is
    shown.
    """
    results = ask(lambda memory: Dreams(memory).log(limit))
    return emit(
        results,
        DREAM_COLUMNS,
        key="dreams",
        text_columns=2,
        empty="no dream yet",
        then=following("consolidate", "show", results[0].id) if results else "",
        document=_dream_document,
    )


@dreams.command("show")
def show_dream(id: Id) -> int:
    """Show which lessons a dream changed, with their texts."""
    result = ask(lambda memory: Dreams(memory).show(id))
    then = following("consolidate", "log")
    if result.done and result.undone is None:
        then = following("consolidate", "rollback", id, by="NAME")
    return _answer_dream(result, then)


@dreams.command()
def rollback(id: Id, by: By, why: Why = "") -> int:
    """Undo a dream, so that recall is as before. Lessons learnt after the dream
    stay.
    """

    async def undo(memory: Memory) -> tuple[int, Dream]:
        restored = await Dreams(memory).rollback(id, by=by, why=why)
        return restored, await Dreams(memory).show(id)

    restored, result = ask(undo)
    words = f"dream {id} is undone: {counted(restored, 'lesson')} restored"
    if result.written:
        words += f", {counted(result.written, 'reflection')} withdrawn"
    return answer(
        {"dream": id, "by": by, "why": why, "lessons": restored},
        words,
        following("consolidate", "log"),
    )


def _dream_document(result: Dream) -> Document:
    """Return a dream as JSON data."""
    return {**asdict(result), "after": result.after, "nothing": result.nothing}


def _answer_dream(result: Dream, then: str) -> int:
    """Print what a dream did, and the line `then` below it."""
    document = _dream_document(result)
    return answer(document, page("dream", **document), then)
