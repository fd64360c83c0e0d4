"""`heedful doctor`, `model`, `judge`, `db`, `migrate`: check this machine, models and databases."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option, Typer

from heedful.checks.critique import calibrate
from heedful.cli import settings as config
from heedful.cli.app import group
from heedful.cli.output import Progress, Table, answer, columns, counted, drive, emit, following
from heedful.errors import HeedfulError, UsageError
from heedful.lessons.lesson import Scope
from heedful.loop.record import clean
from heedful.memory.memory import Spaces, space_of
from heedful.models import FORMS, weights
from heedful.store import POSTGRES, episodes, loops, needs_psycopg, search, shown, sqlite
from heedful.store.store import Db

# The kind of model -> the package that it needs, and the extra that installs it.
EXTRAS: dict[str, tuple[str, str]] = {
    "embedded": ("xllamacpp", "embedded"),
    **dict.fromkeys(("openai", "http", "https"), ("pydantic-ai-slim", "models")),
    **{name: ("pydantic-ai-slim", name) for name in ("anthropic", "google")},
}
UNFIT = "let callers send scores (HEEDFUL_JUDGE=none), or name a stronger model"
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY")
# Tables of heedful, without those that belong to no tenant.
TABLES = """
select c.relname::text as name, c.relrowsecurity and exists (
  select from pg_policy p where p.polrelid = c.oid
) as locked
from pg_class c where c.relnamespace = 'heedful'::regnamespace and c.relkind = 'r'
  and c.relname not in ('schema_version', 'queue_version') and c.relname not like 'procrastinate%'
order by 1
"""
OPEN_LOOPS = "select id, owner, lease from loop where state = 'open' order by n"


@dataclass(frozen=True)
class Sign:
    """The result of one check: whether it passed, what was found, and what to do if it failed."""

    name: str
    well: bool
    found: str
    todo: str = ""


def doctor(model: config.ModelName = None) -> int:
    """Check what heedful needs, and say how to fix what is missing. Exits with 1 if a check fails.

    It checks Python, packages, SQLite, the database, weights and API keys.
    """
    values = config.settings(model=model)
    signs, needed = [*_machine(values)], weights.needed(values.model)
    for one in weights.known():
        embeds = values.embedder == "minilm" and one.name in weights.EMBEDDER
        signs.append(_check_weights(one, values.cache, embeds or one == needed))
    try:
        signs += (_server if values.db.startswith(POSTGRES) else _file)(values)
    except (HeedfulError, OSError, sqlite3.Error) as error:
        found = f"{shown(values.db)}: {error}"
        signs.append(Sign("database", False, found, "name another database"))
    return _report(signs)


def _report(signs: Sequence[Sign]) -> int:
    """Print the results of the checks. Return 1 if a check failed, otherwise 0."""
    well = all(sign.well for sign in signs)
    lines = []
    for sign in signs:
        todo = f"; {sign.todo}" if sign.todo and not sign.well else ""
        lines.append(f"{'✓' if sign.well else '✗'} {sign.name}: {sign.found}{todo}")
    answer({"well": well, "signs": signs}, *lines)
    return 0 if well else 1


def _machine(values: config.Settings) -> Iterator[Sign]:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield Sign("python", True, found)
    with closing(sqlite3.connect(":memory:")) as db:
        (fts5,) = db.execute("select sqlite_compileoption_used('ENABLE_FTS5')").fetchone()
    well = sqlite3.sqlite_version_info >= (3, 35, 0) and fts5 == 1
    found = f"{sqlite3.sqlite_version}, full-text search {'there' if fts5 else 'missing'}"
    yield Sign("sqlite", well, found, "use a Python with SQLite 3.35 or newer and FTS5")
    there = dict[str, str]()
    for line in sorted(line for line in metadata.requires("heedful") or () if "extra ==" in line):
        name = re.split(r"[^\w.-]", line)[0]
        there[name] = "missing"
        with suppress(metadata.PackageNotFoundError):
            there[name] = metadata.version(name)
    kind = values.model.partition(":")[0]
    package, extra = EXTRAS.get(kind, ("", ""))
    well = not package or there[package] != "missing"
    found = ", ".join(map(" ".join, there.items()))
    yield Sign("optional packages", well, found, f"pip install 'heedful[{extra}]'")
    keys = [key for key in KEYS if os.environ.get(key)]  # never show their values
    needed = f"{kind.upper()}_API_KEY"
    found = f"set: {', '.join(keys)}" if keys else "none is set"
    well = needed not in KEYS or needed in keys
    yield Sign("keys of models", well, found, f"set {needed} in the environment")
    how = "meanings (minilm)" if config.by_meaning(values) else "words"
    yield Sign("recall", True, f"compares {how}")
    doubt = config.doubt(values)
    yield Sign("judge", not doubt, f"{values.judge}: {doubt}" if doubt else values.judge, UNFIT)


def _check_weights(one: weights.Weights, cache: Path | None, required: bool) -> Sign:
    state = drive(weights.check(one, cache))
    well = state.kind == "good" or (state.kind == "absent" and not required)
    todo = f"heedful model fetch {one.name}"
    return Sign(f"weights {one.name}", well, f"{state.kind}, {state.path}", todo)


def _file(values: config.Settings) -> Iterator[Sign]:
    """Check the database file, its folder and its contents. The connection is read-only."""
    path = Path(values.db)
    folder = path.resolve().parent
    well = folder.is_dir() and os.access(folder, os.W_OK)
    yield Sign("folder", well, str(folder), "make the folder, or give write permission")
    if not path.exists():
        yield Sign("database", True, f"{path} does not exist yet; heedful run creates it")
        return
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5)) as db:
        (application,) = db.execute("pragma application_id").fetchone()
        (schema,) = db.execute("pragma user_version").fetchone()
        if application != sqlite.APPLICATION:
            yield Sign("database", False, f"{path} is another program's database", "name another")
            return
        if schema > sqlite.SCHEMA:
            found = f"{path} has schema {schema}, this heedful knows {sqlite.SCHEMA}"
            yield Sign("database", False, found, "upgrade heedful")
            return
        check = "; ".join(row[0] for row in db.execute("pragma integrity_check(5)"))
    todo = "restore a copy, or move the file away"
    yield Sign("database", check == "ok", f"{path}, schema {schema}, {check}", todo)
    if check == "ok" and schema == sqlite.SCHEMA:
        yield from _contents(values)


def _server(values: config.Settings) -> Iterator[Sign]:
    """Check the PostgreSQL server, role, schema, isolation of tenants, and then the contents."""
    needs_psycopg()
    from heedful.store import postgres

    try:
        with closing(postgres.Session(postgres.parse_url(values.db).conninfo)) as session:
            found = postgres.who(session)
            version, well = divmod(found["server"], 10_000), found["server"] >= postgres.SERVER
            words = f"PostgreSQL {version[0]}.{version[1]}, {shown(values.db)}"
            yield Sign("server", well, words, "heedful needs PostgreSQL 16 or newer")
            yield _try("pgvector", lambda: postgres.vectors(session))
            role = _try("role", lambda: postgres.of_role(found))
            schema = _try("schema", lambda: str(postgres.of_schema(session, found)))
            yield from (role, schema)
            if not (role.well and schema.well):
                return
            # Row-level security protects tenants even from a statement that forgets the tenant.
            rows = session.execute(TABLES).fetchall()
            bare = ", ".join(row["name"] for row in rows if not row["locked"])
            words = f"on for {sum(row['locked'] for row in rows)} of {len(rows)} tables"
            words += f"; not for {bare}" if bare else ""
            todo = "run heedful migrate as the tables' owner"
            yield Sign("row-level security", not bare, words, todo)
    except postgres.MISHAPS as error:
        raise postgres.translate_error(error) from error
    yield from _contents(values)
    yield drive(_queue(values))


def _try(name: str, look: Callable[[], str]) -> Sign:
    try:
        return Sign(name, True, look())
    except HeedfulError as error:
        return Sign(name, False, str(error))


async def _queue(values: config.Settings) -> Sign:
    """Check the queue for jobs that have stalled or failed."""
    from heedful.service.worker import PostgresQueue

    async with PostgresQueue(values.db) as queued:
        depths = await queued.depth()
    oldest = max((one.oldest for one in depths if one.state == "waiting"), default=0.0)
    found = ", ".join(f"{one.queue} {one.number} {one.state}" for one in depths) or "empty"
    found = f"{found}; the oldest waits for {oldest:.0f} s" if oldest else found
    ill = {one.state for one in depths} & {"stalled", "failed"}
    todo = "run heedful worker: it runs stalled jobs, and says why a job fails"
    return Sign("queue", not ill, found, todo)


def _contents(values: config.Settings) -> list[Sign]:
    scope = config.scope_of(values)
    return config.ask_store(values, lambda store: store.read(scope, _look_inside, values))


def _look_inside(db: Db, scope: Scope, values: config.Settings) -> list[Sign]:
    """Check the loops, vectors and episodes that this connection may read."""
    rows = db.execute(OPEN_LOOPS).fetchall()
    idle = [id for id, owner, lease in rows if not loops.alive(owner, lease, time.time())]
    ids = ", ".join(clean(id, 60) for id in idle[:5])
    hint = f": {ids}; heedful run … --resume continues" if ids else ""
    running = f"{len(rows) - len(idle)} running, {len(idle)} interrupted"
    signs = [Sign("open loops", True, f"{running}{hint}")]
    if space := space_of(config.embedder_of(values)):
        found = Spaces.of(search.spaces(db, scope), space)
        signs.append(Sign("vectors", not found.behind, str(found), "heedful reembed"))
    if counts := episodes.counts(db, scope):
        done, waiting, failed = (counts.get(k, 0) for k in ("reflected", "waiting", "failed"))
        words = f"{done} reflected on, {waiting} waiting, {failed} failed"
        if why := clean(episodes.last_error(db, scope), 200):
            words += f" (the last: {why})"
        signs.append(Sign("episodes", not failed, words, "heedful reflect --waiting"))
    return signs


models: Typer = group("Fetch, list and check the weights of embedded models.")
Name = Annotated[str | None, Argument(help="A name from heedful model list.")]
Cache = Annotated[Path | None, Option("--cache", help="The folder of the weights.")]


@models.command()
def fetch(
    name: Name = None,
    source: Annotated[Path | None, Option("--from", help="Copy from this file.")] = None,
    cache: Cache = None,
) -> int:
    """Fetch weights into the cache and verify their SHA-256. Weights in the cache are reused."""
    values = config.settings(cache=cache)
    one = weights.find(name) if name else weights.needed(values.model) or weights.find("embedded")
    with Progress() as watch:
        path = drive(weights.fetch(one, path=source, cache=values.cache, progress=watch.fetched))
    return answer({"name": one.name, "path": path}, f"{one.name}: {path}")


@models.command("list")
def list_models(cache: Cache = None) -> int:
    """List the weights that heedful can fetch, and the ways to name other models."""
    folder = config.settings(cache=cache).cache or weights.default_cache()
    rows = []
    for one in weights.known():
        row = {"name": one.name, "is": one.about, "licence": one.licence, "bytes": one.size}
        rows.append({**row, "fetched": one.cached(folder).is_file()})
    heads = columns(
        "weights is licence MB state",
        weights="name",
        MB=lambda row: f"{row['bytes'] / 1e6:.0f}",
        state=lambda row: "fetched" if row["fetched"] else "-",
    )
    then = f"cache: {folder}\nmodels are named: {', '.join(FORMS)}"
    return emit(rows, heads, key="weights", text=3, then=then)


@models.command()
def check(name: Name = None, cache: Cache = None) -> int:
    """Verify cached weights. Exits with 1 if they are damaged, or if named weights are missing."""
    folder, required = config.settings(cache=cache).cache, name is not None
    checked = [weights.find(name)] if name else weights.known()
    return _report([_check_weights(one, folder, required) for one in checked])


judges: Typer = group("Check whether a model can judge answers.")


@judges.command("check")
def check_judge(
    judge: Annotated[str | None, Argument(help="A model. [the setting judge]")] = None,
) -> int:
    """Check whether a model tells better answers from worse ones. Exits with 1 if it cannot.

    The model judges labelled pairs of answers that come with heedful, in the roles alignment,
    drift, pessimist and summary. It needs 4 of 5 pairs. The result is kept in the folder of the
    weights: heedful serve and heedful doctor warn about a judge that has not passed.
    """
    values = config.settings(judge=judge)
    ranked = list[tuple[str, bool]]()

    async def rank() -> None:
        async with config.model_of(config.judging(values), progress.fetched) as model:
            async for role, right in calibrate(model):
                ranked.append((role, right))
                progress.bar("judging", len(ranked), 0, role)

    with Progress() as progress:
        drive(rank())
    right = Counter(role for role, better in ranked if better)
    rows = [(role, right[role], n) for role, n in Counter(role for role, _ in ranked).items()]
    path, results = config.judge_results(values)
    result = right.total(), len(ranked)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(config.RESULTS.dump_json({**results, values.judge: result}, indent=2))
    doubt = config.doubt(values)
    document = {"judge": values.judge, "passed": not doubt, "right": right, "pairs": len(ranked)}
    words = f"{doubt}; {UNFIT}" if doubt else "it can judge"
    answer(document, Table(("role", "right", "pairs"), rows), f"{values.judge}: {words}")
    return int(bool(doubt))


db: Typer = group("Copy a whole database, to another engine or as a backup.")
Part = Literal["pre", "post", "all"]
DOCTOR = "Next: heedful doctor, with the URL of the service's role in HEEDFUL_DB"


@db.command("copy")
def copy_(
    source: Annotated[str, Argument(help="A file, or a postgresql:// URL with the owner's role.")],
    target: Annotated[str, Argument(help="An empty database, named in the same way.")],
) -> int:
    """Copy a whole database with the data of every tenant, in one transaction.

    The copy is read back and compared before the commit. Stop all writers of the source first: what
    they write after the start is not copied.
    """
    from heedful.store.transfer import copy

    with Progress() as progress:

        def watch(name: str, rows: int) -> None:
            if rows:
                progress.say(f"{name}: {counted(rows, 'row')}")

        done = copy(source, target, watch)
    total = sum(done.values())
    old, new = shown(source), shown(target)
    return answer(
        {"source": old, "target": new, "rows": total, "tables": done},
        Table(("table", "rows"), [(name, rows) for name, rows in done.items() if rows]),
        f"{new} has the {counted(total, 'row')} of {old}; they were read back and compared",
        DOCTOR if target.startswith(POSTGRES) else following("doctor", db=target),
    )


def migrate(
    part: Annotated[Part, Option(help="pre: before an update; post: after it.")] = "all",
    role: Annotated[str, Option(help="Create this role for the service if it is missing.")] = "",
) -> int:
    """Update the schema of a PostgreSQL database, in one transaction.

    Run it with the role that owns, or will own, the tables. The service needs another role. A
    SQLite file needs no migration: heedful updates the file when opening it.
    """
    url = config.settings().db
    if not url.startswith(POSTGRES):
        why = "a SQLite file is migrated when it is opened"
        raise UsageError(f"{url} is no postgresql:// URL; {why}")
    needs_psycopg()
    from heedful.store import postgres

    done = postgres.migrate(url, part, role)
    waiting, applied = ([one._asdict() for one in steps] for steps in (done.waiting, done.applied))
    record = {"store": shown(url), "role": role, "applied": applied, "waiting": waiting}
    words = ", ".join(f"{one.part} {one.number}" for one in done.applied)
    words = f"{counted(len(applied), 'part')} applied{f': {words}' if words else ''}"
    then = DOCTOR
    if done.waiting:
        later = " when no older heedful runs any more" if done.waiting[0].part == "post" else ""
        then = f"Next: heedful migrate --part {done.waiting[0].part}{later}"
    served = f"role {role} may serve; name it in the URL of the service" if role else ""
    words = f"{shown(url)} has schema {done.schema}, {words}"
    return answer({**record, "schema": done.schema}, words, served, then)
