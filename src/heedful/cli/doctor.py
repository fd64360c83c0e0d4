"""`heedful doctor`, `model`, `judge`: check this machine, the database and models."""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

from heedful.checks.critique import calibrate
from heedful.cli import output
from heedful.cli import settings as config
from heedful.cli.app import group
from heedful.cli.output import TextTable, answer, drive
from heedful.errors import HeedfulError
from heedful.lessons.lesson import Scope
from heedful.memory.vectors import Spaces, space_of
from heedful.models import weights
from heedful.sanitize import clean
from heedful.store import POSTGRES_PREFIXES, episodes, search, shown
from heedful.store.connection import Db

# The kind of model -> the package that it needs, and the extra that installs it.
MODEL_EXTRAS: dict[str, tuple[str, str]] = {
    "embedded": ("xllamacpp", "embedded"),
    **dict.fromkeys(("openai", "http", "https"), ("pydantic-ai-slim", "models")),
    **{name: ("pydantic-ai-slim", name) for name in ("anthropic", "google")},
}
UNFIT_JUDGE_FIX = (
    "let callers send scores (HEEDFUL_JUDGE=none), or name a stronger model"
)
MODEL_KEY_VARIABLES = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY")
# Tables of heedful and its queue, without those that belong to no tenant.
TENANT_TABLES_SQL = """
select c.relname::text as name, c.relrowsecurity and exists (
  select from pg_policy p where p.polrelid = c.oid
) as locked
from pg_class c where c.relnamespace = 'heedful'::regnamespace and c.relkind = 'r'
  and c.relname not in ('schema_version', 'queue_version')
order by 1
"""


@dataclass(frozen=True, kw_only=True)
class Sign:
    """The result of one check: whether it passed, what was found, and what to do if it
    failed.
    """

    name: str
    well: bool
    found: str
    todo: str = ""


def doctor() -> int:
    """Check what heedful needs, and say how to fix what is missing. Exits with 1 if a
    check fails.

    It checks SQLite, packages and keys of the model, weights and the database.
    """
    values = config.settings()
    signs = [*_machine(values)]
    needed = weights.needed(values.model)
    for one in weights.known():
        state = drive(weights.check(one, values.cache))
        embeds = values.embedder == "minilm" and one.name in weights.EMBEDDER_WEIGHTS
        well = state.kind == "good" or (
            state.kind == "absent" and not embeds and one != needed
        )
        todo = f"heedful model fetch {one.name}"
        signs.append(
            Sign(
                name=f"weights {one.name}",
                well=well,
                found=f"{state.kind}, {state.path}",
                todo=todo,
            )
        )
    try:
        signs += _database(values)
    except (HeedfulError, OSError) as error:
        signs.append(
            Sign(name="database", well=False, found=f"{shown(values.db)}: {error}")
        )
    well = all(sign.well for sign in signs)
    lines = []
    for sign in signs:
        todo = f"; {sign.todo}" if sign.todo and not sign.well else ""
        lines.append(f"{'✓' if sign.well else '✗'} {sign.name}: {sign.found}{todo}")
    answer({"well": well, "signs": signs}, *lines)
    return 0 if well else 1


def _machine(values: config.Settings) -> Iterator[Sign]:
    with closing(sqlite3.connect(":memory:")) as db:
        (fts5,) = db.execute(
            "select sqlite_compileoption_used('ENABLE_FTS5')"
        ).fetchone()
    well = sqlite3.sqlite_version_info >= (3, 35, 0) and fts5 == 1
    found = (
        f"{sqlite3.sqlite_version}, full-text search {'there' if fts5 else 'missing'}"
    )
    yield Sign(
        name="sqlite",
        well=well,
        found=found,
        todo="use a Python with SQLite 3.35 or newer and FTS5",
    )
    kind = values.model.partition(":")[0]
    if kind in MODEL_EXTRAS:
        package, extra = MODEL_EXTRAS[kind]
        try:
            found = metadata.version(package)
        except metadata.PackageNotFoundError:
            found = ""
        todo = f"pip install 'heedful[{extra}]'"
        yield Sign(
            name="model's package",
            well=bool(found),
            found=f"{package} {found or 'missing'}",
            todo=todo,
        )
    if (key := f"{kind.upper()}_API_KEY") in MODEL_KEY_VARIABLES:
        well = bool(os.environ.get(key))  # its value is never shown
        found = f"{key} {'is' if well else 'is not'} set"
        yield Sign(
            name="model's key",
            well=well,
            found=found,
            todo=f"set {key} in the environment",
        )
    how = "meanings (minilm)" if config.by_meaning(values) else "words"
    yield Sign(name="recall", well=True, found=f"compares {how}")
    doubt = config.doubt(values)
    yield Sign(
        name="judge",
        well=not doubt,
        found=f"{values.judge}: {doubt}" if doubt else values.judge,
        todo=UNFIT_JUDGE_FIX,
    )


def _database(values: config.Settings) -> list[Sign]:
    if not config.exists(values.db):
        return [
            Sign(
                name="database",
                well=True,
                found=f"{values.db} does not exist yet; heedful run creates it",
            )
        ]
    scope = config.scope_of(values)
    signs = config.ask_store(
        values, lambda store: store.read(scope, _look_inside, values)
    )
    return (
        [*signs, drive(_queue(values))]
        if values.db.startswith(POSTGRES_PREFIXES)
        else signs
    )


async def _queue(values: config.Settings) -> Sign:
    from heedful.service.worker import PostgresQueue

    async with PostgresQueue(values.db) as queued:
        depths = await queued.depth()
    found = (
        ", ".join(f"{one.queue} {one.number} {one.state}" for one in depths) or "empty"
    )
    todo = "run heedful worker: it runs stalled jobs, and says why a job fails"
    return Sign(
        name="queue",
        well=not {one.state for one in depths} & {"stalled", "failed"},
        found=found,
        todo=todo,
    )


def _look_inside(db: Db, scope: Scope, values: config.Settings) -> list[Sign]:
    """Check the tables, and the vectors and episodes that this connection may read."""
    if values.db.startswith(POSTGRES_PREFIXES):
        # Row-level security protects tenants even from a statement that forgets the
        # tenant.
        tables = db.execute(TENANT_TABLES_SQL).fetchall()
        bare = ", ".join(row["name"] for row in tables if not row["locked"])
        words = f"{shown(values.db)}, row-level security for {len(tables)} tables"
        words += f"; not for {bare}" if bare else ""
        signs = [
            Sign(
                name="database",
                well=not bare,
                found=words,
                todo="run heedful migrate as the tables' owner",
            )
        ]
    else:
        check = "; ".join(row[0] for row in db.execute("pragma integrity_check(5)"))
        todo = "restore a copy, or move the file away"
        signs = [
            Sign(
                name="database",
                well=check == "ok",
                found=f"{values.db}, {check}",
                todo=todo,
            )
        ]
    if space := space_of(config.embedder_of(values)):
        spaces = Spaces.of(search.spaces(db, scope), space)
        signs.append(
            Sign(
                name="vectors",
                well=not spaces.behind,
                found=str(spaces),
                todo="heedful reembed",
            )
        )
    if counts := episodes.counts(db, scope):
        done, waiting, failed = (
            counts.get(k, 0) for k in ("reflected", "waiting", "failed")
        )
        words = f"{done} reflected on, {waiting} waiting, {failed} failed"
        for last in episodes.page(db, scope, limit=1, state="failed"):
            words += f" (the last: {clean(last.error, 200)})"
        signs.append(
            Sign(
                name="episodes",
                well=not failed,
                found=words,
                todo="heedful worker --once",
            )
        )
    return signs


models: Typer = group()


@models.command()
def fetch(
    name: Annotated[
        str | None, Argument(help="A name of weights: embedded, minilm …")
    ] = None,
    source: Annotated[
        Path | None, Option("--from", help="Copy from this file.")
    ] = None,
) -> int:
    """Fetch weights into the cache and verify their SHA-256. Weights in the cache are
    reused.
    """
    values = config.settings()
    one = (
        weights.find(name)
        if name
        else weights.needed(values.model) or weights.find("embedded")
    )
    path = drive(
        weights.fetch(one, path=source, cache=values.cache, progress=output.fetched)
    )
    return answer({"name": one.name, "path": path}, f"{one.name}: {path}")


judges: Typer = group()


@judges.command("check")
def check_judge(
    judge: Annotated[str | None, Argument(help="A model. [the setting judge]")] = None,
) -> int:
    """Check whether a model tells better answers from worse ones. Exits with 1 if it
    cannot.

    The model judges labelled pairs of answers that come with heedful, in the roles
    alignment, drift, pessimist and summary. It needs 4 of 5 pairs. The result is kept
    in the folder of the weights: heedful serve and heedful doctor warn about a judge
    that has not passed.
    """
    values = config.settings(judge=judge)
    ranked = list[tuple[str, bool]]()

    async def rank() -> None:
        async with config.model_of(config.judging(values)) as model:
            async for role, right in calibrate(model):
                ranked.append((role, right))
                output.progress().bar("judging", len(ranked), total=0, count=role)

    drive(rank())
    right = Counter(role for role, better in ranked if better)
    rows = [
        (role, right[role], n)
        for role, n in Counter(role for role, _ in ranked).items()
    ]
    path, results = config.judge_results(values)
    result = right.total(), len(ranked)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**results, values.judge: result}, indent=2))
    doubt = config.doubt(values)
    document = {
        "judge": values.judge,
        "passed": not doubt,
        "right": right,
        "pairs": len(ranked),
    }
    words = f"{doubt}; {UNFIT_JUDGE_FIX}" if doubt else "it can judge"
    answer(
        document,
        TextTable(("role", "right", "pairs"), rows),
        f"{values.judge}: {words}",
    )
    return int(bool(doubt))
