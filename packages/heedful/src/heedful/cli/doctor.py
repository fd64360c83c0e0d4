"""`heedful doctor`, `model`: check this machine, the database and models.

Each check of the doctor returns a `Sign`. No key and no password is in what it shows.
"""

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, closing, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

from heedful.checks.critique import calibrate
from heedful.cli import printing
from heedful.cli.app import group
from heedful.cli.databases import ask_store, db_exists
from heedful.cli.exits import run_interruptibly
from heedful.cli.printing import (
    TextTable,
    answer,
    command_line,
    current_command,
    say,
)
from heedful.cli.resources import (
    compares_meanings,
    embedder_of,
    judge_doubt,
    judge_results,
    judging,
    opened_model,
    opened_queue,
)
from heedful.cli.settings import Settings, is_stated, scope_of, settings
from heedful.doors import JobQueue
from heedful.errors import HeedfulError, install_line
from heedful.lessons.scope import Scope, name_scope
from heedful.memory.vectors import Spaces
from heedful.models import embedder_here, weights
from heedful.models.embedding import embed, space_of
from heedful.store import search, shown
from heedful.store.connection import Db
from heedful.validation import require

# The package that a kind of model needs, and the extra of heedful that installs it.
MODEL_EXTRAS: dict[str, tuple[str, str]] = {
    "embedded": ("xllamacpp", "embedded"),
    **dict.fromkeys(("openai", "http", "https"), ("pydantic-ai-slim", "models")),
    **{name: ("pydantic-ai-slim", name) for name in ("anthropic", "google")},
}
COMPARE_MEANINGS = (
    f"{install_line('embedded')}, then heedful model fetch {weights.EMBEDDER_NAME}"
)
DATABASE_FIX = "restore a copy, or move the file away"
UNFIT_JUDGE_FIX = (
    "let callers send scores (HEEDFUL_JUDGE=none), or name a stronger model"
)
MODEL_KEY_VARIABLES = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY")
# The tables of heedful and its queue, such as "lessons", without the two that belong to
# no tenant. `locked`: row-level security is on, and a policy says who sees which rows.
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
    """The result of one check: whether all is well, and what was found.

    If it is not well, `todo` says what to do about it. What works, and yet needs
    attention, has `advice`.
    """

    name: str
    well: bool
    found: str
    todo: str = ""
    advice: str = ""

    def __str__(self) -> str:
        if not self.well:
            return f"✗ {self.name}: {self.found}; {self.todo}"
        if self.advice:
            return f"! {self.name}: {self.found}; {self.advice}"
        return f"✓ {self.name}: {self.found}"


def doctor() -> int:
    """Check what heedful needs, and say how to fix what is missing. Exits with 1 if a
    check fails.

    It checks SQLite, unless the database is on PostgreSQL, packages and keys of the
    model, weights and the database.
    """
    values = settings()
    signs = [] if values.is_on_server else [_check_sqlite()]
    # Two models of one provider have the same package and key.
    for kind in dict.fromkeys(name.partition(":")[0] for name in values.models):
        signs += _check_kind(kind)
    comparison = f"compares words; to compare meanings, {COMPARE_MEANINGS}"
    if compares_meanings(values):
        comparison = "compares meanings (minilm)"
    signs.append(Sign(name="recall", well=True, found=comparison))
    doubt = judge_doubt(values)
    judge = f"{values.judge}: {doubt}".removesuffix(": ")
    signs.append(Sign(name="judge", well=not doubt, found=judge, todo=UNFIT_JUDGE_FIX))
    signs += _check_weights(values)
    signs += _check_embedder(values)
    try:
        signs += _check_database(values)
    except (HeedfulError, OSError) as error:
        reason = f"{shown(values.db)}: {error}"
        signs.append(Sign(name="database", well=False, found=reason, todo=DATABASE_FIX))

    well = all(sign.well for sign in signs)
    answer({"well": well, "signs": signs}, list(map(str, signs)))
    return 0 if well else 1


def _check_sqlite() -> Sign:
    """Check the version of SQLite, and that it has full-text search."""
    with closing(sqlite3.connect(":memory:")) as db:
        (has_fts5,) = db.execute(
            "select sqlite_compileoption_used('ENABLE_FTS5')"
        ).fetchone()

    advice = ""
    # Earlier versions have the "WAL-reset bug" (https://sqlite.org/wal.html): rarely,
    # two connections that write and move the log into the file at once damage it.
    if sqlite3.sqlite_version_info < (3, 51, 3):
        advice = (
            "in rare cases a SQLite before 3.51.3 damages a file that several "
            "programs write to: keep backups (heedful db copy)"
        )
    return Sign(
        name="sqlite",
        well=sqlite3.sqlite_version_info >= (3, 35) and has_fts5 == 1,
        found=sqlite3.sqlite_version,
        todo="use a Python with SQLite 3.35 or newer and FTS5",
        advice=advice,
    )


def _check_kind(kind: str) -> Iterator[Sign]:
    """Check the package and the key that a kind of model needs."""
    if kind in MODEL_EXTRAS:
        package, extra = MODEL_EXTRAS[kind]
        version = ""
        with suppress(metadata.PackageNotFoundError):
            version = metadata.version(package)
        missing = f"missing; {install_line(extra)}"
        yield Sign(
            name="model's package",
            # The default model needs none before somebody asks for it.
            well=bool(version) or not is_stated("model"),
            found=f"{package} {version or missing}",
            todo="or name another model",
        )

    key = f"{kind.upper()}_API_KEY"
    if key in MODEL_KEY_VARIABLES:
        is_set = bool(os.environ.get(key))  # its value is never shown
        yield Sign(
            name="model's key",
            well=is_set,
            found=f"{key} is {'' if is_set else 'not '}set",
            todo=f"set {key} in the environment",
        )


def _check_weights(values: Settings) -> Iterator[Sign]:
    """Check the weights; those that no setting needs may be absent."""
    # The default model needs none before somebody asks for it.
    is_asked_for = is_stated("model")
    needed_by_models = [
        weights.for_model(name) for name in values.models if is_asked_for
    ]
    for file in weights.fetch_list():
        is_needed = file in needed_by_models
        if values.embedder == "minilm" and file.name in weights.EMBEDDER_WEIGHTS:
            is_needed = True

        state = run_interruptibly(weights.check(file, values.cache))
        fetch_it = f"heedful model fetch {file.name}"
        place = f"{state.kind}, {state.path}"
        may_be_absent = state.kind == "absent" and not is_needed
        if may_be_absent:
            place += f"; {fetch_it}"
        yield Sign(
            name=f"weights {file.name}",
            well=state.kind == "good" or may_be_absent,
            found=place,
            todo=fetch_it,
        )


def _check_embedder(values: Settings) -> Iterator[Sign]:
    """Load the embedder and embed a text, as the first recall does."""
    embedder = embedder_of(values)
    if embedder is None or not embedder_here(values.cache):
        return
    problem = ""
    try:
        run_interruptibly(embed(embedder, ["a text"]))
    except HeedfulError as error:
        problem = str(error)
    yield Sign(
        name="embedder",
        well=not problem,
        found=problem or f"{embedder.name} works",
        todo="heedful model fetch minilm-int8, or HEEDFUL_EMBEDDER=none",
    )


def _check_database(values: Settings) -> list[Sign]:
    """Check the database and, on PostgreSQL, the queue. No database yet is well."""
    if not db_exists(values.db):
        state = f"{values.db} does not exist yet; heedful run creates it"
        return [Sign(name="database", well=True, found=state)]

    signs = ask_store(
        values, lambda store: store.read(scope_of(values), _check_contents, values)
    )
    queue_of_jobs = opened_queue(values.db)
    if queue_of_jobs is not None:
        signs += run_interruptibly(_check_queue(queue_of_jobs))
    return signs


async def _check_queue(
    queue_of_jobs: AbstractAsyncContextManager[JobQueue],
) -> list[Sign]:
    """Check that no job is stalled or has failed, and that workers do what waits."""
    async with queue_of_jobs as queue:
        workload = await queue.workload()

    depths = workload.depths
    counts = [f"{depth.queue} {depth.number} {depth.state}" for depth in depths]
    states = {depth.state for depth in depths}
    list_failed = command_line("worker", "jobs")
    jobs = Sign(
        name="queue",
        well=not states & {"stalled", "failed"},
        found=", ".join(counts) or "empty",
        todo=f"heedful worker runs stalled jobs; {list_failed} says why others failed",
    )
    workers = Sign(
        name="workers",
        well=workload.state == "ok",
        found=str(workload),
        todo="start more: heedful worker",
    )
    return [jobs, workers]


def _check_contents(db: Db, scope: Scope, values: Settings) -> list[Sign]:
    """Check the tables, and the vectors that this connection may read.

    Up to five problems of a damaged SQLite file are shown.
    """
    if values.is_on_server:
        signs = [_check_row_level_security(db, values.db)]
    else:
        result = "; ".join(row[0] for row in db.execute("pragma integrity_check(5)"))
        signs = [
            Sign(
                name="database",
                well=result == "ok",
                found=f"{values.db}, {result}",
                todo=DATABASE_FIX,
            )
        ]

    space = space_of(embedder_of(values))
    if space:
        spaces = Spaces.of(search.spaces(db, scope), space)
        signs.append(
            Sign(
                name="vectors",
                well=not spaces.behind,
                found=str(spaces),
                todo=name_scope("heedful lessons reembed", scope),
            )
        )

    return signs


def _check_row_level_security(db: Db, url: str) -> Sign:
    """Check that PostgreSQL protects tenants even from a statement that forgets the
    tenant.
    """
    tables = db.execute(TENANT_TABLES_SQL).fetchall()
    unprotected = ", ".join(row["name"] for row in tables if not row["locked"])

    state = f"{shown(url)}, row-level security for {len(tables)} tables"
    if unprotected:
        state += f"; not for {unprotected}"
    return Sign(
        name="database",
        well=not unprotected,
        found=state,
        todo="run heedful db migrate as the tables' owner",
    )


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
    values = settings()
    if name:
        chosen = weights.find_all(name)
    else:
        needed = filter(None, map(weights.for_model, values.models))
        chosen = (next(needed, None) or weights.find("embedded"),)

    names = [file.name for file in chosen]
    require(
        source is None or len(chosen) == 1,
        "--from",
        source,
        f"for one file: name {' or '.join(names)}",
    )

    paths = []
    for file in chosen:
        fetching = weights.fetch(
            file, path=source, cache=values.cache, progress=printing.fetched
        )
        paths.append(run_interruptibly(fetching))

    files = [
        {"name": name, "path": path} for name, path in zip(names, paths, strict=True)
    ]
    lines = [f"{file['name']}: {file['path']}" for file in files]
    return answer({**files[0], "files": files}, lines)


@models.command("judge")
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
    if judge is not None:
        # The command line names it, as an option does.
        current_command().options["judge"] = judge
    values = settings()
    judged = Counter[str]()  # pairs by role
    right = Counter[str]()  # pairs that the model ranked right, by role

    async def rank() -> None:
        """Let the model judge all pairs, and count them."""
        async with opened_model(judging(values), "judge") as model:
            async for role, is_right in calibrate(model):
                if role not in judged:
                    say(f"judging: {role}")
                judged[role] += 1
                if is_right:
                    right[role] += 1

    run_interruptibly(rank())
    pairs = judged.total()

    path, results = judge_results(values)
    results[values.judge] = (right.total(), pairs)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=2))

    doubt = judge_doubt(values)
    words = f"{doubt}; {UNFIT_JUDGE_FIX}" if doubt else "it can judge"
    rows = [(role, right[role], number) for role, number in judged.items()]
    answer(
        {"judge": values.judge, "passed": not doubt, "right": right, "pairs": pairs},
        TextTable(("role", "right", "pairs"), rows),
        f"{values.judge}: {words}",
    )
    return 1 if doubt else 0
