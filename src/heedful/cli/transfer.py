"""`heedful export` and `heedful import`: lessons in files, and what earlier systems stored."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any

from typer import Argument, Option

from heedful.cli import output, settings
from heedful.cli.lessons import check_spaces
from heedful.cli.output import Table, answer, call, columns, counted, following, say, shorten
from heedful.cli.settings import By, DryRun, Why
from heedful.compat.imports import Conversion, Form, convert
from heedful.errors import UsageError
from heedful.memory.transfer import Imported
from heedful.store import shown
from heedful.store.store import Store

KB = 1_000


def export(
    file: Annotated[str, Argument(help="The file to write; - is standard output.")],
    force: Annotated[bool, Option("--force", help="Overwrite the file.")] = False,
) -> int:
    """Write all lessons to a file, for another machine or another person.

    The file contains the lessons with their examples, sightings, sources and rulings. Its last line
    shows whether the file is complete. `heedful db copy` copies the proof, too.
    """
    if file == "-" and call().json:
        raise UsageError("--json and an export cannot both go to standard output; name a file")
    if file != "-" and not force and Path(file).is_file():
        raise UsageError(f"{file!r} exists; name another file, or overwrite it with --force")
    target = sys.stdout.buffer if file == "-" else file
    with output.Progress() as progress:
        watch = partial(progress.counted, noun="lessons")
        options: Any = {"force": force, "progress": watch}
        done = settings.ask(
            lambda memory: memory.export(target, **options),
            progress=progress.fetched,
            stopped="stopped; nothing was written under that name",
        )
    size = f"{counted(done.lessons, 'lesson')} exported, {done.bytes / KB:,.0f} KB"
    if file == "-":
        say(size)
        return 0
    then = following("import", file, db="another.db")
    return answer({"file": file, **asdict(done)}, size, then)


From = Annotated[Form | None, Option("--from", help="What the file of an earlier system holds.")]
CONVERTED = columns("lesson kind tags seen", lesson="text")
REFUSED = columns("reason cure row")


def import_(
    file: Annotated[str, Argument(help="The file to read; - is standard input.")],
    form: From = None,
    trust: Annotated[str, Option(help="external, or operator if you vouch for it.")] = "external",
    by: By = "",
    why: Why = "",
    dry_run: DryRun = False,
) -> int:
    """Import a file of `heedful export` or of an earlier system. A second import adds nothing.

    --from says what an earlier system stored: loop traces (JSON), memories (CSV, or the URL of a
    PostgreSQL database with the table memories), or mistakes of a reflexion memory (JSON Lines).

    Imported lessons wait in quarantine. If you vouch for them with --trust operator, they keep
    their trust and state. A damaged file is refused before anything is written. If single rows are
    refused, they are listed, and the exit code is 1.
    """
    made: Conversion | None = None

    async def read(store: Store) -> Imported:
        nonlocal made
        memory = settings.memory_of(values, store, progress.fetched)
        options: Any = {"trust": trust, "by": by, "why": why, "dry_run": dry_run}
        source: Any = sys.stdin.buffer if file == "-" else file
        with TemporaryFile() as converted:
            if form:
                made = await convert(form, source, converted, memory.scope)
                source = converted
            done = await memory.import_(source, progress=partial(progress.counted, noun="KB", unit=KB), **options)
        if not dry_run:
            await check_spaces(memory)
        return done

    values = settings.settings()
    if dry_run and not settings.exists(values.db):
        values = values.model_copy(update={"db": ":memory:"})
    rest = "stopped; the same command imports the rest, and nothing twice"
    with output.Progress() as progress:
        done = settings.ask_store(values, read, new=True, stopped=rest)
    lines = list(_describe_conversion(made, dry_run)) if made else []
    name = shown(file) if made else f"{done.tenant}/{done.project}"
    row = (name, done.new, done.known, done.quarantined)
    lines.append(Table(("from", "new", "known", "quarantined"), [row]))
    if done.left:
        lines.append(f"left out, because nobody vouched for them: {counted(done.left, 'record')}")
    if dry_run:
        again = ("--from", form) if form else ()
        lines += ["nothing was written", following("import", shown(file), *again)]
    elif done.quarantined and not by:
        lines.append(f"to remove these lessons, revoke their source {done.source}")
        lines.append(following("quarantine", "list"))
    record = {"file": shown(file), "dry_run": dry_run, **asdict(done), "converted": made}
    answer(record, *lines)
    return int(made is not None and made.refused != ())


def _describe_conversion(made: Conversion, dry_run: bool) -> Iterator[object]:
    yield from shorten(CONVERTED, made.lessons if dry_run else (), text=3)
    yield from shorten(REFUSED, made.refused, text=2)
    kinds = {
        "refused": len(made.refused),
        "shortened": made.shortened,
        "without a lesson": made.empty,
    }
    said = "".join(f", {number} {what}" for what, number in kinds.items() if number)
    yield f"{counted(made.rows, 'row')} read{said}"
