"""`errata doctor`: what is right and wrong with this machine, these settings and this database."""

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
from typing import TYPE_CHECKING, Any

from errata.cli.interrupt import drive
from errata.cli.opening import EMBEDDER, by_meaning, embedder_of, scope_of
from errata.cli.output import Db, Json, ModelName, print_json, show
from errata.cli.settings import Settings, settings
from errata.errors import ErrataError, StoreCorrupt, StoreNewer
from errata.loop.feedback import clean

if TYPE_CHECKING:
    from errata.store.sqlite import Connection

PACKAGES = (
    *("xllamacpp", "onnxruntime", "tokenizers", "numkong", "pydantic-ai-slim", "matplotlib"),
    *("narwhals", "pyarrow", "pandera", "vega-datasets", "opentelemetry-proto"),
    *("fastapi", "uvicorn", "prometheus-client", "psycopg", "procrastinate", "httpx"),
    *("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"),
)
# The kind of model -> the package that it needs, and the extra that brings it.
EXTRAS: dict[str, tuple[str, str]] = {
    "embedded": ("xllamacpp", "embedded"),
    **dict.fromkeys(("openai", "http", "https"), ("pydantic-ai-slim", "models")),
    **{name: ("pydantic-ai-slim", name) for name in ("anthropic", "google")},
}
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY")
OLDEST_SQLITE = (3, 35, 0)


@dataclass(frozen=True)
class Sign:
    """One thing that was looked at: whether it is well, what was found, what to do if not."""

    name: str
    well: bool
    found: str
    todo: str = ""


def doctor(
    model: ModelName = None,
    db: Db = None,
    json: Json = False,
) -> int:
    """Look at what errata needs, and say what to do.

    Python, packages, SQLite, the database, weights, keys; exits 1 where something is ill.
    """
    values = settings(model=model, db=db)
    looks = [_python, _packages, _folder, _database, _vectors, _episodes, _weights, _keys]
    signs = [sign for look in looks for sign in _looked(look, values)]
    ill = [sign for sign in signs if not sign.well]
    if json:
        print_json({"well": not ill, "signs": [asdict(sign) for sign in signs]})
    else:
        for sign in signs:
            todo = f"; {sign.todo}" if sign.todo and not sign.well else ""
            show(f"{'✓' if sign.well else '✗'} {sign.name}: {sign.found}{todo}")
    return 1 if ill else 0


def _looked(look: Callable[[Settings], Iterator[Sign]], values: Settings) -> list[Sign]:
    """The signs of one look; a look that fails is itself a sign."""
    signs: list[Sign] = []
    try:
        signs += look(values)
    except (ErrataError, OSError, sqlite3.Error) as error:
        signs.append(Sign(look.__name__.strip("_"), False, f"{error}", "see the message"))
    return signs


def _packages(values: Settings) -> Iterator[Sign]:
    there = {name: _version(name) for name in PACKAGES}
    package, extra = EXTRAS.get(values.model.partition(":")[0], ("", ""))
    said = ", ".join(f"{name} {there[name] or 'missing'}" for name in PACKAGES)
    well = not package or bool(there[package])
    yield Sign("optional packages", well, said, f"pip install 'errata[{extra}]'")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _python(values: Settings) -> Iterator[Sign]:
    said = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield Sign("python", True, said)
    with closing(sqlite3.connect(":memory:")) as db:
        (fts5,) = db.execute("select sqlite_compileoption_used('ENABLE_FTS5')").fetchone()
    well = sqlite3.sqlite_version_info >= OLDEST_SQLITE and fts5 == 1
    said = f"{sqlite3.sqlite_version}, full-text search {'there' if fts5 else 'missing'}"
    yield Sign("sqlite", well, said, "use a Python with SQLite 3.35 or newer and FTS5")


def _folder(values: Settings) -> Iterator[Sign]:
    folder = Path(values.db).resolve().parent
    well = folder.is_dir() and os.access(folder, os.W_OK)
    yield Sign("folder", well, str(folder), "make the folder, or give write permission")


def _database(values: Settings) -> Iterator[Sign]:
    """The database as it is, read on a connection of its own that cannot write."""
    from errata.store.lease import alive

    path = Path(values.db)
    if not path.exists():
        yield Sign("database", True, f"{path} is not there yet; errata run makes it")
        return
    try:
        with closing(_looking(path)) as db:
            said, check = _examined(db)
            rows = db.execute("select id, owner, lease from loop where state = 'open'").fetchall()
    except (StoreCorrupt, StoreNewer, sqlite3.Error) as error:
        todo = "restore a copy, or name another file"
        yield Sign("database", False, f"{path}: {error}", todo)
        return
    todo = "restore a copy, or move it away to begin anew"
    yield Sign("database", check == "ok", f"{path}, {said}, {check}", todo)
    idle = [id for id, owner, lease in rows if not alive(owner, lease, time.time())]
    ids = ", ".join(clean(id, 60) for id in idle[:5])
    hint = f": {ids}; errata run … --resume goes on" if ids else ""
    found = f"{len(rows) - len(idle)} running, {len(idle)} interrupted{hint}"
    yield Sign("open loops", True, found)


def _looking(path: Path) -> Connection:
    from errata.store.sqlite import Connection

    uri = f"{path.resolve().as_uri()}?mode=ro"
    db = sqlite3.connect(uri, uri=True, timeout=5, factory=Connection)
    db.row_factory = sqlite3.Row
    return db


def _vectors(values: Settings) -> Iterator[Sign]:
    """Whether recall can compare all that was learnt by meaning, where it compares meanings."""
    from errata.memory.places import Spaces, space_of
    from errata.store.places import spaces
    from errata.store.sqlite import SCHEMA

    path, space = Path(values.db), space_of(embedder_of(values))
    if not space or not path.exists():
        return
    with closing(_looking(path)) as db:
        if db.execute("pragma user_version").fetchone()[0] != SCHEMA:
            return
        found = Spaces.of(spaces(db, scope_of(values)), space)
    yield Sign("vectors", not found.behind, str(found), "errata reembed")


def _episodes(values: Settings) -> Iterator[Sign]:
    """Whether what was handed over to be reflected on was; why not, where it failed."""
    from errata.store.episodes import counts, last_error
    from errata.store.sqlite import SCHEMA

    path, scope = Path(values.db), scope_of(values)
    if not path.exists():
        return
    with closing(_looking(path)) as db:
        if db.execute("pragma user_version").fetchone()[0] != SCHEMA:
            return
        found, why = counts(db, scope), clean(last_error(db, scope), 200)
    failed, waiting = found.get("failed", 0), found.get("waiting", 0)
    if found:
        said = f"{found.get('reflected', 0)} reflected on, {waiting} waiting, {failed} failed"
        said = f"{said} (the last: {why})" if why else said
        yield Sign("episodes", not failed, said, "errata reflect --waiting")


def _examined(db: Connection) -> tuple[str, str]:
    """What the database is, and "ok" or what is wrong with it. Raises StoreCorrupt, StoreNewer."""
    from errata.store.sqlite import APPLICATION, SCHEMA

    def pragma(name: str) -> list[tuple[Any, ...]]:
        return db.execute(f"pragma {name}").fetchall()

    (application,), (schema,) = pragma("application_id")[0], pragma("user_version")[0]
    if application != APPLICATION:
        raise StoreCorrupt("it is another program's database")
    if schema > SCHEMA:
        raise StoreNewer(f"it has schema {schema}, this errata knows {SCHEMA}; upgrade errata")
    check = "; ".join(row[0] for row in pragma("integrity_check(5)"))
    return f"schema {schema}, journal {pragma('journal_mode')[0][0]}", check


def _weights(values: Settings) -> Iterator[Sign]:
    from errata.models import weights

    wanted: list[str] = list(EMBEDDER) if values.embedder == "minilm" else []
    if needed := weights.needed(values.model):
        wanted.append(needed.name)
    for one in weights.known():
        state = drive(weights.check(one, values.cache))
        well = state.kind == "good" or (state.kind == "absent" and one.name not in wanted)
        todo = f"errata model fetch {one.name}"
        yield Sign(f"weights {one.name}", well, f"{state.kind}, {state.path}", todo)
    how = "meanings (minilm)" if by_meaning(values) else "words"
    yield Sign("recall", True, f"compares {how}")


def _keys(values: Settings) -> Iterator[Sign]:
    """The names of the keys alone, never their values."""
    there = [key for key in KEYS if os.environ.get(key)]
    wanted = f"{values.model.partition(':')[0].upper()}_API_KEY"
    well = wanted not in KEYS or wanted in there
    found = f"set: {', '.join(there)}" if there else "none is set"
    yield Sign("keys", well, found, f"set {wanted} in the environment")
