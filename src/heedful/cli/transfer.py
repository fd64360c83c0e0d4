"""`heedful export` and `heedful import`: lessons in files, and what earlier systems stored."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any, cast, get_args

from typer import Argument, Option

from heedful.cli import output, settings
from heedful.cli.output import Table, answer, columns, counted, following, shorten
from heedful.cli.settings import By, DryRun, Why
from heedful.compat.imports import Conversion, Form, convert
from heedful.memory.transfer import Imported
from heedful.store import shown
from heedful.store.store import Store

KB = 1_000


def export(file: Annotated[Path, Argument(help="The new file to write.")]) -> int:
    """Write all lessons to a file, for another machine or another person.

    The file contains the lessons with their examples and sources. Its last line shows whether the
    file is complete. `heedful db copy` copies sightings, rulings and the proof, too.
    """
    done = settings.ask(lambda memory: memory.export(str(file)))
    words = f"{counted(done.lessons, 'lesson')} exported, {done.bytes / KB:,.0f} KB"
    then = following("import", file, db="another.db")
    return answer({"file": str(file), **asdict(done)}, words, then)


FORMS = settings.one_of("form", get_args(Form))
FROM = Option("--from", callback=FORMS, help="What the file of an earlier system holds.")
CONVERTED = columns("lesson kind tags seen", lesson="text")
REFUSED = columns("reason cure row")


def import_(
    file: Annotated[str, Argument(help="The file to read.")],
    form: Annotated[str | None, FROM] = None,
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
        memory = settings.memory_of(values, store)
        options: Any = {"trust": trust, "by": by, "why": why, "dry_run": dry_run}
        source: Any = file
        with TemporaryFile() as converted:
            if form:
                made = await convert(cast(Form, form), source, converted, memory.scope)
                source = converted
            return await memory.import_(source, **options)

    values = settings.settings()
    if dry_run and not settings.exists(values.db):
        values = values.model_copy(update={"db": ":memory:"})
    rest = "stopped; the same command imports the rest, and nothing twice"
    done = settings.ask_store(values, read, new=True, stopped=rest)
    name = shown(file) if made else f"{done.tenant}/{done.project}"
    row = (name, done.new, done.known, done.quarantined)
    texts = {"repeated": output.repeated(), "waiting": following("quarantine", "list")}
    texts["table"] = str(Table(("from", "new", "known", "quarantined"), [row]))
    lines = [
        *shorten(CONVERTED, made.lessons if made and dry_run else (), text=3),
        *shorten(REFUSED, made.refused if made else (), text=2),
        output.page("import", made=made, done=done, dry_run=dry_run, by=by, **texts),
    ]
    record = {"file": shown(file), "dry_run": dry_run, **asdict(done), "converted": made}
    answer(record, *lines)
    return int(made is not None and made.refused != ())
