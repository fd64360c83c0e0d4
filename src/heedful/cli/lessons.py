"""Commands that show and change lessons, patterns and pins."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict
from functools import partial
from heapq import merge
from itertools import chain, islice
from typing import IO, Annotated, Any

from typer import Argument, Context, Option, Typer

from heedful.cli import output, settings
from heedful.cli.app import PLAIN_HELP_OPTIONS, Group, group
from heedful.cli.output import answer, columns, counted, following, say
from heedful.cli.settings import (
    MAX_OPTION_INTEGER,
    By,
    DryRun,
    Keep,
    Limit,
    UnusedFor,
    Why,
    ask,
    ask_all,
)
from heedful.errors import UsageError
from heedful.lessons.briefing import Briefing
from heedful.lessons.lesson import Match
from heedful.lessons.patterns import Seen
from heedful.lessons.signature import signature
from heedful.memory.memory import Memory
from heedful.memory.vectors import Spaces
from heedful.sanitize import clean
from heedful.store import own_db

MAX_LINE_TEXT_CHARS = 200  # characters of a text that are shown
# bytes of a file that are looked up whole; of a longer file, its error lines
MAX_WHOLE_FILE_BYTES = 10_000
MAX_FILE_NAME_CHARS = 1_000
MAX_TASK_INPUT_BYTES = 1_000_000  # bytes of a task on standard input
SEEN_USAGE = "make 2>&1 | heedful seen"
QUARANTINE_NOTICE = (
    "\nNot shown: what tools or documents wrote waits in quarantine until it is "
    "released."
)
REMOVED_LESSON_COLUMNS = columns(
    "lesson state why id seen last_of_use",
    lesson="text",
    last_of_use=lambda one: max(one["last_seen"], one["last_shown"]),
)


lessons: Typer = Typer(cls=Group, add_completion=False, **PLAIN_HELP_OPTIONS)


@lessons.callback(invoke_without_command=True)
def list_lessons(context: Context, limit: Limit = 50) -> int:
    """List the lessons, most often seen first. Texts in quarantine are not shown."""
    if context.invoked_subcommand is not None:
        return 0
    found = ask(lambda memory: memory.top(limit))
    then = "" if all(one["text"] for one in found) else following("quarantine", "list")
    text = (
        output.page("lessons", found=found)
        if found
        else f"no lesson in {settings.where()}"
    )
    return answer({"lessons": found}, text, then)


@lessons.command("edit")
def edit_lesson(
    lesson: Annotated[
        int, Argument(min=1, max=MAX_OPTION_INTEGER, help="The id of a lesson.")
    ],
    text: Annotated[str, Argument(help="The new words.")],
    by: By,
    why: Why = "",
) -> int:
    """Give a lesson new words, for which nothing is measured yet; the old ones stay as
    a version.

    A lesson in quarantine waits on, with the new words, until it is released.
    """
    entry = ask(lambda memory: memory.edit(lesson, text, by=by, why=why))
    words = (
        f"lesson {lesson} has new words{', which wait in quarantine' if entry else ''}"
    )
    then = ("quarantine", "release", entry, "--by", by) if entry else ("lessons",)
    return answer(
        {"lesson": lesson, "entry": entry, "by": by, "why": why},
        words,
        following(*then),
    )


def seen(
    error: Annotated[
        str,
        Argument(
            help="The error, or a file with it; before TEXT the type or the tool."
        ),
    ] = "-",
    text: Annotated[
        str, Argument(help="The text of the error, or a file with it.")
    ] = "",
) -> int:
    """Say whether an error was seen before, and what mended it.

    Pass what you have: a message, a log file, or on standard input all that a command
    wrote. Like grep, it exits with 1 if no error was seen.
    """
    error_type, source = (error, text) if text else ("", error)
    said = _errors_in(source)
    mark = signature(error_type, said)
    asked = (
        ask_all(lambda memory: memory.seen(error_type, said)) if said.strip() else []
    )
    asked.sort(key=lambda one: not any(lesson["text"] for lesson in one[1].lessons))
    db, found = next(
        (one for one in asked if one[1]), asked[0] if asked else ("", Seen(0))
    )
    known = {"seen": found.count, "signature": mark.digest, "pattern": mark.pattern}
    merged = then = ""
    if found.group is not None:
        many = counted(len(found.group.members), "pattern")
        merged = (
            f"  {many} merged as: {clean(found.group.template, MAX_LINE_TEXT_CHARS)}"
        )
        then = following("patterns", "list", error_type)
    lines = found.lines or [
        mark.pattern.strip() or "no line looks like an error; pass the line"
    ]
    if not found and said == source and not said.split()[1:]:
        say(
            f"heedful: there is no file {said!r}; it was looked up as the text of an "
            "error"
        )
    answer(
        {**known, "group": found.group, "lessons": found.lessons, "lines": found.lines},
        f"seen: {found.count}",
        *(f"  {clean(line, MAX_LINE_TEXT_CHARS)}" for line in lines),
        merged,
        output.page("lessons", found=[one for one in found.lessons if one["text"]]),
        *((QUARANTINE_NOTICE, f"Next: {found.release}") if found.release else ()),
        then,
        *_own(db),
    )
    return 0 if found else 1


def _own(db: str) -> Iterator[str]:
    if db == str(own_db()):
        yield f"This is from your own memory: add --db {db} to a command about it."


def before(
    command: Annotated[list[str], Argument(help="The command, after --.")],
) -> int:
    """Say how a command failed before, and what mended it; nothing if it has worked
    since.

    Ask before a command runs. It exits with 0 if a failure is known, otherwise with 1.
    """
    given = shlex.join(command) if len(command) > 1 else command[0]
    asked = ask_all(lambda memory: memory.before("", given))
    db, found = max(asked, key=lambda one: bool(one[1]))
    lines = [
        clean(line, len(line))
        for one in found.failures
        for line in str(one).splitlines()
    ]
    if found.release:
        lines.append(
            f"A failure of this is known, but it waits in quarantine: {found.release}"
        )
    record = {
        "failures": found.failures,
        "waiting": found.waiting,
        "release": found.release,
    }
    answer(
        record, *(lines or ["no failure is known that has not worked since"]), *_own(db)
    )
    return 0 if found else 1


def _errors_in(source: str) -> str:
    """Return the text `source`, or the error lines of the file `source`; "-" is
    standard input.

    A short file is returned whole. Raises UsageError for an empty or a binary file.
    """
    if source != "-" and not (
        len(source) < MAX_FILE_NAME_CHARS and os.path.isfile(source)
    ):
        return source
    name = "standard input" if source == "-" else source
    opened = open(source, "rb") if source != "-" else nullcontext(sys.stdin.buffer)  # noqa: SIM115
    with opened as file:
        start: bytes = file.read(MAX_WHOLE_FILE_BYTES) + file.readline(
            MAX_WHOLE_FILE_BYTES
        )
        if not start.strip():
            raise UsageError(
                f"{name} is empty; pass what the command wrote: {SEEN_USAGE}"
            )
        if b"\0" in start:
            raise UsageError(
                f"{name} is not a text in UTF-8; pass the output or the log as text"
            )
        if len(start) < MAX_WHOLE_FILE_BYTES:
            return start.decode("utf-8", "replace")
        from heedful.traces.error_lines import error_lines

        return "\n".join(error_lines(_lines(start, file)))


def _lines(start: bytes, file: IO[bytes]) -> Iterator[str]:
    """Yield the lines of `start` and of the rest of `file`, and show how much is
    read.
    """
    # bytes; a pipe has no size
    done = 0
    total = 0
    with suppress(OSError):
        total = os.fstat(file.fileno()).st_size
    for line in chain(
        start.splitlines(), iter(partial(file.readline, MAX_WHOLE_FILE_BYTES), b"")
    ):
        yield line.decode("utf-8", "replace")
        done += len(line) + 1
        output.progress().counted("reading", done, total=total, noun="KB", unit=1_000)


def recall(
    task: Annotated[str, Argument(help="The task; - reads standard input.")],
    limit: Limit = 5,
    why: Annotated[
        bool,
        Option("--why", help="Show all candidates: what a prompt would have, and why."),
    ] = False,
    key: Annotated[
        str, Option(help="The memory key whose rules count, with --why.")
    ] = "",
) -> int:
    """Show the accepted answers that memory recalls for a task."""
    query = (
        sys.stdin.buffer.read(MAX_TASK_INPUT_BYTES).decode("utf-8", "replace")
        if task == "-"
        else task
    )
    if why:

        async def considered(memory: Memory) -> Briefing:
            memory.holdout = 0.0
            return await memory.brief(query, "", memory_key=key, every=True)

        briefings = [
            (db, one.plain(), [*one.lines, *_own(db)])
            for db, one in ask_all(considered)
        ]
        record = {
            **briefings[0][1],
            "beside": {db: plain for db, plain, _ in briefings[1:]},
        }
        return answer(record, *(line for *_, lines in briefings for line in lines))

    async def recalled(memory: Memory) -> tuple[Sequence[Match], bool, Spaces | None]:
        found = await memory.recall(query, limit)
        waiting = await memory.quarantine.waiting(1)
        spaces = None if memory.embedder is None else await memory.spaces()
        if spaces is not None and spaces.behind:
            say(
                f"recall compares {counted(spaces.behind, 'example')} by words only "
                f"({spaces})"
            )
            say(following("reembed"))
        return found, bool(waiting), spaces

    asked = ask_all(recalled)
    ranked = merge(*(every for _, (every, *_) in asked), key=lambda one: -one.relevance)
    found = list(islice(ranked, limit))
    waits = (
        following("quarantine", "list", db=db) for db, (_, held, _) in asked if held
    )
    nothing = ["nothing related", *(f"{QUARANTINE_NOTICE}\n{then}" for then in waits)]
    lines = [output.page("recall", found=found)] if found else nothing
    return answer({"examples": found, "spaces": asked[0][1][2]}, *lines)


patterns: Typer = group()


@patterns.command("list")
def list_patterns(
    error_type: Annotated[str, Argument(help="Only errors of this type.")] = "",
    limit: Limit = 50,
) -> int:
    """List merged patterns with the reasons for their merge, then patterns that are
    kept apart.
    """
    found = ask(lambda memory: memory.patterns(error_type))[:limit]
    if not found:
        return answer(
            {"patterns": []}, "no patterns are merged, and none are kept apart"
        )
    undo = ["--undo"] if found[0]["apart"] else []
    digest = found[0]["patterns"][0]["signature"]
    then = following("patterns", "unmerge", digest, "--by", "NAME", *undo)
    return answer({"patterns": found}, output.page("patterns", found=found), then)


@patterns.command()
def unmerge(
    digests: Annotated[list[str], Argument(help="Digests from the list of patterns.")],
    by: By,
    why: Why = "",
    undo: Annotated[bool, Option("--undo", help="Allow the merge again.")] = False,
) -> int:
    """Keep patterns apart from all other patterns from now on."""
    ask(lambda memory: memory.set_apart(*digests, by=by, why=why, apart=not undo))
    words = (
        f"{counted(len(digests), 'pattern')} "
        f"{'mergeable again' if undo else 'kept apart'}"
    )
    record = {"patterns": digests, "apart": not undo, "by": by, "why": why}
    return answer(record, words, following("patterns", "list"))


def pin(
    lesson: Annotated[
        int, Argument(min=1, max=MAX_OPTION_INTEGER, help="The id of a lesson.")
    ],
    by: By,
    why: Why = "",
    undo: Annotated[bool, Option("--undo", help="Remove the pin.")] = False,
) -> int:
    """Pin a lesson: it is never evicted, pruned or retired. `heedful lessons` shows the
    ids.
    """
    ask(lambda memory: memory.pin(lesson, by=by, why=why, pinned=not undo))
    words = f"lesson {lesson} is {'no longer pinned' if undo else 'pinned'}"
    record = {"lesson": lesson, "pinned": not undo, "by": by, "why": why}
    return answer(record, words, following("lessons"))


def prune(
    by: By, unused_for: UnusedFor = None, keep: Keep = None, dry_run: DryRun = False
) -> int:
    """Remove lessons that are not useful. Pinned lessons and lessons proven to help
    stay.
    """
    if unused_for is None and keep is None:
        raise UsageError(
            "nothing says what to remove: give --unused-for 180d, --keep 1000 or both"
        )
    options: dict[str, Any] = {"keep": keep, "by": by, "dry_run": dry_run}
    if unused_for is not None:
        options["unused_for"] = settings.seconds("--unused-for", unused_for)
    found = ask(lambda memory: memory.prune(**options))
    return answer(
        {"dry_run": dry_run, "removed": found},
        *output.shorten(REMOVED_LESSON_COLUMNS, found, text=3),
        f"{counted(len(found), 'lesson')} "
        f"{'would be removed' if dry_run else 'removed'}",
        output.repeated() if dry_run and found else following("lessons"),
    )


def reembed() -> int:
    """Compute vectors for examples that have none.

    Recall compares examples by meaning only if they have vectors of the current
    embedder. You can stop this command at any time; the next call continues where it
    stopped. Recall works meanwhile.
    """

    async def embed(memory: Memory) -> tuple[int, Spaces]:
        if memory.embedder is None:
            todo = "install heedful[embedded] and run it with HEEDFUL_EMBEDDER=minilm"
            what = "recall compares words here, which needs no vectors"
            raise UsageError(f"{what}; for meanings {todo}")
        watch = partial(output.progress().counted, "embedding", noun="examples")
        return await memory.reembed(watch), await memory.spaces()

    done, spaces = ask(
        embed, stopped="stopped; heedful reembed continues where it stopped"
    )
    words = f"{counted(done, 'example')} embedded; {spaces}"
    return answer({"embedded": done, **asdict(spaces)}, words)
