"""`heedful doctor`: what is right and wrong with this machine, these settings and this database."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from heedful.cli.interrupt import drive
from heedful.cli.opening import EMBEDDER, by_meaning
from heedful.cli.output import Db, Json, ModelName, print_json, show
from heedful.cli.settings import Settings, settings
from heedful.cli.signs import Sign, contents
from heedful.errors import HeedfulError, StoreCorrupt, StoreNewer
from heedful.store import POSTGRES
from heedful.store.sqlite import Connection

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


def doctor(
    model: ModelName = None,
    db: Db = None,
    json: Json = False,
) -> int:
    """Look at what heedful needs, and say what to do.

    Python, packages, SQLite, the database, weights, keys; exits 1 where something is ill.
    """
    values = settings(model=model, db=db)
    store = [_folder, _database]
    if values.db.startswith(POSTGRES):
        from heedful.cli.server import server

        store = [server]
    looks = [_python, _packages, *store, _weights, _keys]
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
    except (HeedfulError, OSError, sqlite3.Error) as error:
        signs.append(Sign(look.__name__.strip("_"), False, f"{error}", ""))
    return signs


def _packages(values: Settings) -> Iterator[Sign]:
    there = {name: _version(name) for name in PACKAGES}
    package, extra = EXTRAS.get(values.model.partition(":")[0], ("", ""))
    said = ", ".join(f"{name} {there[name] or 'missing'}" for name in PACKAGES)
    well = not package or bool(there[package])
    yield Sign("optional packages", well, said, f"pip install 'heedful[{extra}]'")


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
    from heedful.store.sqlite import SCHEMA

    path = Path(values.db)
    if not path.exists():
        yield Sign("database", True, f"{path} is not there yet; heedful run makes it")
        return
    try:
        with closing(_looking(path)) as db:
            schema, said, check = _examined(db)
            inside = [*contents(db, values)] if schema == SCHEMA else []
    except (StoreCorrupt, StoreNewer, sqlite3.Error) as error:
        todo = "restore a copy, or name another file"
        yield Sign("database", False, f"{path}: {error}", todo)
        return
    todo = "restore a copy, or move it away to begin anew"
    yield Sign("database", check == "ok", f"{path}, {said}, {check}", todo)
    yield from inside


def _looking(path: Path) -> Connection:
    from heedful.store.sqlite import Connection

    uri = f"{path.resolve().as_uri()}?mode=ro"
    db = sqlite3.connect(uri, uri=True, timeout=5, factory=Connection)
    db.row_factory = sqlite3.Row
    return db


def _examined(db: Connection) -> tuple[int, str, str]:
    """Its schema, what it is, and "ok" or what is wrong. Raises StoreCorrupt, StoreNewer."""
    from heedful.store.sqlite import APPLICATION, SCHEMA

    def pragma(name: str) -> list[tuple[Any, ...]]:
        return db.execute(f"pragma {name}").fetchall()

    (application,), (schema,) = pragma("application_id")[0], pragma("user_version")[0]
    if application != APPLICATION:
        raise StoreCorrupt("it is another program's database")
    if schema > SCHEMA:
        raise StoreNewer(f"it has schema {schema}, this heedful knows {SCHEMA}; upgrade heedful")
    check = "; ".join(row[0] for row in pragma("integrity_check(5)"))
    return schema, f"schema {schema}, journal {pragma('journal_mode')[0][0]}", check


def _weights(values: Settings) -> Iterator[Sign]:
    from heedful.models import weights

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
    """The names of the keys alone, never their values."""
    there = [key for key in KEYS if os.environ.get(key)]
    wanted = f"{values.model.partition(':')[0].upper()}_API_KEY"
    well = wanted not in KEYS or wanted in there
    found = f"set: {', '.join(there)}" if there else "none is set"
    yield Sign("keys of models", well, found, f"set {wanted} in the environment")
