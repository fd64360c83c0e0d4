"""`heedful doctor` and `heedful model`: check this machine, fetch weights, and say what to do."""

from __future__ import annotations

import os
import platform
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.cli.app import group
from heedful.cli.output import Columns, Db, Json, ModelName, answer, print_json, print_table, show
from heedful.cli.progress import Progress, drive
from heedful.cli.settings import EMBEDDER, Settings, by_meaning, embedder_of, scope_of, settings
from heedful.errors import HeedfulError, StoreCorrupt, StoreNewer
from heedful.loop.record import clean
from heedful.memory.memory import Spaces, space_of
from heedful.models import FORMS, weights
from heedful.service.jobs import Depth
from heedful.store import POSTGRES, needs_psycopg, shown
from heedful.store.episodes import counts, last_error
from heedful.store.loops import alive
from heedful.store.search import spaces
from heedful.store.sqlite import APPLICATION, SCHEMA, Connection
from heedful.store.store import Db as Rows

PACKAGES = (
    *("xllamacpp", "onnxruntime", "tokenizers", "numkong", "pydantic-ai-slim", "matplotlib"),
    *("narwhals", "pyarrow", "vega-datasets", "opentelemetry-proto"),
    *("fastapi", "uvicorn", "prometheus-client", "psycopg", "procrastinate", "httpx"),
    *("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"),
)
# The kind of model -> the package that it needs, and the extra that installs it.
EXTRAS: dict[str, tuple[str, str]] = {
    "embedded": ("xllamacpp", "embedded"),
    **dict.fromkeys(("openai", "http", "https"), ("pydantic-ai-slim", "models")),
    **{name: ("pydantic-ai-slim", name) for name in ("anthropic", "google")},
}
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY")
OLDEST_SQLITE = (3, 35, 0)
_ROOM = """
select current_setting('max_connections')::int - current_setting('reserved_connections')::int
  - current_setting('superuser_reserved_connections')::int as room,
  (select count(*)::int from pg_stat_activity where datname is not null) as used
"""
# Tables of heedful, without those that belong to no tenant.
_OPEN = """
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
    """One check: whether it passed, what was found, and what to do if it failed."""

    name: str
    well: bool
    found: str
    todo: str = ""


def doctor(model: ModelName = None, db: Db = None, json: Json = False) -> int:
    """Check what heedful needs, and say what to do.

    Python, packages, SQLite, the database, weights, keys; exits 1 if something is wrong.
    """
    values = settings(model=model, db=db)
    store = [_server] if values.db.startswith(POSTGRES) else [_folder, _database]
    signs = [
        sign
        for look in (_python, _packages, *store, _weights, _keys)
        for sign in _look(look, values)
    ]
    ill = [sign for sign in signs if not sign.well]
    if json:
        print_json({"well": not ill, "signs": [asdict(sign) for sign in signs]})
    else:
        for sign in signs:
            todo = f"; {sign.todo}" if sign.todo and not sign.well else ""
            show(f"{'✓' if sign.well else '✗'} {sign.name}: {sign.found}{todo}")
    return 1 if ill else 0


def _look(look: Callable[[Settings], Iterator[Sign]], values: Settings) -> list[Sign]:
    """Return the results of one check; a check that fails is itself a result."""
    signs: list[Sign] = []
    try:
        signs += look(values)
    except (HeedfulError, OSError, sqlite3.Error) as error:
        signs.append(Sign(look.__name__.strip("_"), False, f"{error}", ""))
    return signs


def _python(values: Settings) -> Iterator[Sign]:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield Sign("python", True, found)
    with closing(sqlite3.connect(":memory:")) as db:
        (fts5,) = db.execute("select sqlite_compileoption_used('ENABLE_FTS5')").fetchone()
    well = sqlite3.sqlite_version_info >= OLDEST_SQLITE and fts5 == 1
    found = f"{sqlite3.sqlite_version}, full-text search {'there' if fts5 else 'missing'}"
    yield Sign("sqlite", well, found, "use a Python with SQLite 3.35 or newer and FTS5")


def _packages(values: Settings) -> Iterator[Sign]:
    there: dict[str, str] = {}
    for name in PACKAGES:
        try:
            there[name] = version(name)
        except PackageNotFoundError:
            there[name] = ""
    package, extra = EXTRAS.get(values.model.partition(":")[0], ("", ""))
    found = ", ".join(f"{name} {number or 'missing'}" for name, number in there.items())
    well = not package or bool(there[package])
    yield Sign("optional packages", well, found, f"pip install 'heedful[{extra}]'")


def _weights(values: Settings) -> Iterator[Sign]:
    wanted: list[str] = list(EMBEDDER) if values.embedder == "minilm" else []
    if needed := weights.needed(values.model):
        wanted.append(needed.name)
    for one in weights.known():
        state = drive(weights.check(one, values.cache))
        well = state.kind == "good" or (state.kind == "absent" and one.name not in wanted)
        todo = f"heedful model fetch {one.name}"
        yield Sign(f"weights {one.name}", well, f"{state.kind}, {state.path}", todo)
    how = "meanings (minilm)" if by_meaning(values) else "words"
    yield Sign("recall", True, f"compares {how}")


def _keys(values: Settings) -> Iterator[Sign]:
    """Check which keys are set; their values are never shown."""
    there = [key for key in KEYS if os.environ.get(key)]
    wanted = f"{values.model.partition(':')[0].upper()}_API_KEY"
    well = wanted not in KEYS or wanted in there
    found = f"set: {', '.join(there)}" if there else "none is set"
    yield Sign("keys of models", well, found, f"set {wanted} in the environment")


# A database in a file


def _folder(values: Settings) -> Iterator[Sign]:
    folder = Path(values.db).resolve().parent
    well = folder.is_dir() and os.access(folder, os.W_OK)
    yield Sign("folder", well, str(folder), "make the folder, or give write permission")


def _database(values: Settings) -> Iterator[Sign]:
    """Check the file on a connection of its own that cannot write."""
    path = Path(values.db)
    if not path.exists():
        yield Sign("database", True, f"{path} does not exist yet; heedful run creates it")
        return
    uri = f"{path.resolve().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=5, factory=Connection)) as db:
            db.row_factory = sqlite3.Row
            schema, found, check = _examine(db)
            inside = [*_contents(db, values)] if schema == SCHEMA else []
    except (StoreCorrupt, StoreNewer, sqlite3.Error) as error:
        todo = "restore a copy, or name another file"
        yield Sign("database", False, f"{path}: {error}", todo)
        return
    todo = "restore a copy, or move it away to begin again"
    yield Sign("database", check == "ok", f"{path}, {found}, {check}", todo)
    yield from inside


def _examine(db: Connection) -> tuple[int, str, str]:
    """Return its schema, a description, and "ok" or what is wrong.

    Raises StoreCorrupt, StoreNewer.
    """

    def pragma(name: str) -> list[tuple[Any, ...]]:
        return db.execute(f"pragma {name}").fetchall()

    (application,), (schema,) = pragma("application_id")[0], pragma("user_version")[0]
    if application != APPLICATION:
        raise StoreCorrupt("it is another program's database")
    if schema > SCHEMA:
        raise StoreNewer(f"it has schema {schema}, this heedful knows {SCHEMA}; upgrade heedful")
    check = "; ".join(row[0] for row in pragma("integrity_check(5)"))
    return schema, f"schema {schema}, journal {pragma('journal_mode')[0][0]}", check


# A database on a server


def _server(values: Settings) -> Iterator[Sign]:
    """Check each step between this process and its rows, in the order in which problems show."""
    needs_psycopg()
    from heedful.store import postgres as admission
    from heedful.store.postgres import MISHAPS, Session, mishap, parse_url

    try:
        address = parse_url(values.db)
        with closing(Session(address.conninfo)) as session:
            found = admission.who(session)
            well = found["server"] >= admission.SERVER
            number = f"{found['server'] // 10_000}.{found['server'] % 10_000}"
            words = f"PostgreSQL {number}, {shown(values.db)}"
            yield Sign("server", well, words, "heedful needs PostgreSQL 16 or newer")
            yield _pool(session, address.size)
            yield _vector_extension(session)
            role = _try("role", lambda: admission.of_role(found))
            yield role
            schema = _try("schema", lambda: f"{admission.of_schema(session, found)}")
            yield schema
            if not (role.well and schema.well):
                return
            yield _row_security(session)
    except MISHAPS as error:
        raise mishap(error).error from error
    yield from _tenant(values)
    yield _queue(values)


def _try(name: str, look: Callable[[], Any]) -> Sign:
    try:
        return Sign(name, True, look())
    except HeedfulError as error:
        return Sign(name, False, str(error))


def _pool(session: Any, size: int) -> Sign:
    room, used = session.execute(_ROOM).fetchone()
    found = f"{size} connections a process at most, {used} of {room} are in use"
    todo = "raise max_connections, or lower ?pool_size= in the URL"
    return Sign("pool", size + used <= room, found, todo)


def _vector_extension(session: Any) -> Sign:
    from heedful.store.postgres import vectors

    return _try("pgvector", lambda: vectors(session))


def _row_security(session: Any) -> Sign:
    """Check row-level security, which protects tenants even if a statement forgets its tenant."""
    rows = session.execute(_OPEN).fetchall()
    bare = [row["name"] for row in rows if not row["locked"]]
    found = f"on for {len(rows) - len(bare)} of {len(rows)} tables"
    found = f"{found}; not for {', '.join(bare)}" if bare else found
    return Sign("row-level security", not bare, found, "run heedful migrate as the tables' owner")


def _tenant(values: Settings) -> Iterator[Sign]:
    """Check the rows of the tenant."""
    from heedful.store.postgres import Database, parse_url

    database = Database(parse_url(values.db))

    async def look() -> list[Sign]:
        try:
            return await database.read(scope_of(values), lambda db: [*_contents(db, values)])
        finally:
            await database.close()

    yield from drive(look())


def _queue(values: Settings) -> Sign:
    """Check for jobs that wait, and for jobs that no worker could do."""
    from heedful.service.worker import PostgresQueue

    async def look() -> list[Depth]:
        async with PostgresQueue(values.db) as queued:
            return [*await queued.depth()]

    depths = drive(look())
    oldest = max((one.oldest for one in depths if one.state == "waiting"), default=0.0)
    found = ", ".join(f"{one.queue} {one.number} {one.state}" for one in depths) or "empty"
    found = f"{found}; the oldest waits for {oldest:.0f} s" if oldest else found
    ill = {one.state for one in depths} & {"stalled", "failed"}
    todo = "run heedful worker: it runs stalled jobs, and says why a job fails"
    return Sign("queue", not ill, found, todo)


# What either database holds


def _contents(db: Rows, values: Settings) -> Iterator[Sign]:
    """Check loops, vectors and episodes, as far as the connection may see them."""
    rows = db.execute(OPEN_LOOPS).fetchall()
    idle = [id for id, owner, lease in rows if not alive(owner, lease, time.time())]
    ids = ", ".join(clean(id, 60) for id in idle[:5])
    hint = f": {ids}; heedful run … --resume continues" if ids else ""
    running = f"{len(rows) - len(idle)} running, {len(idle)} interrupted"
    yield Sign("open loops", True, f"{running}{hint}")
    scope = scope_of(values)
    if space := space_of(embedder_of(values)):
        found = Spaces.of(spaces(db, scope), space)
        yield Sign("vectors", not found.behind, str(found), "heedful reembed")
    episodes, why = counts(db, scope), clean(last_error(db, scope), 200)
    failed, waiting = episodes.get("failed", 0), episodes.get("waiting", 0)
    if episodes:
        words = f"{episodes.get('reflected', 0)} reflected on, {waiting} waiting, {failed} failed"
        words = f"{words} (the last: {why})" if why else words
        yield Sign("episodes", not failed, words, "heedful reflect --waiting")


# Weights

models: typer.Typer = group("Fetch, list and check the weights of embedded models.")
Name = Annotated[str | None, typer.Argument(help="As in heedful model list. [the set model]")]
Cache = Annotated[Path | None, typer.Option("--cache", help="The folder for weights.")]


@models.command()
def fetch(
    name: Name = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="A file that holds the bytes already.")
    ] = None,
    cache: Cache = None,
    json: Json = False,
) -> int:
    """Fetch weights into the cache and verify their SHA-256. Weights in the cache stay."""
    values = settings(cache=cache)
    one = weights.find(name) if name else weights.needed(values.model) or weights.find("embedded")
    with Progress() as watch:
        path = drive(
            weights.fetch(one, path=source, cache=values.cache, progress=watch.fetched),
            lambda: "interrupted; whole parts are kept, the same command continues",
        )
    answer({"name": one.name, "path": path}, f"{one.name}: {path}", json=json)
    return 0


@models.command("list")
def list_models(cache: Cache = None, json: Json = False) -> int:
    """List the known weights, and the forms that the name of a model takes."""
    folder = settings(cache=cache).cache or weights.default_cache()
    found = [
        {
            "name": one.name,
            "is": one.about,
            "licence": one.licence,
            "bytes": one.size,
            "fetched": one.cached(folder).is_file(),
        }
        for one in weights.known()
    ]
    if json:
        print_json({"cache": folder, "weights": found, "models": FORMS})
        return 0
    columns: Columns = {
        "weights": "name",
        "is": "is",
        "licence": "licence",
        "MB": lambda one: f"{one['bytes'] / 1e6:.0f}",
        "state": lambda one: "fetched" if one["fetched"] else "-",
    }
    print_table(found, columns, text=3)
    show(f"cache: {folder}\nmodels are named: {', '.join(FORMS)}")
    return 0


@models.command()
def check(name: Name = None, cache: Cache = None, json: Json = False) -> int:
    """Hash fetched weights again; exit 1 if they are damaged, or if named weights are absent."""
    values = settings(cache=cache)
    chosen = [weights.find(name)] if name else weights.known()
    states = [drive(weights.check(one, values.cache)) for one in chosen]
    wrong = [one for one in states if one.kind == "damaged" or (name and one.kind == "absent")]
    if json:
        documents = map(asdict, states)
        print_json({"weights": [{"state": one.pop("kind"), **one} for one in documents]})
        return 1 if wrong else 0
    for one in states:
        hint = "" if one not in wrong else f"; heedful model fetch {one.name}"
        show(f"{'✗' if one in wrong else '✓'} {one.name}: {one.kind}, {one.path}{hint}")
    return 1 if wrong else 0
