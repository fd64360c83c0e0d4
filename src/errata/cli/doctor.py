"""`errata doctor`: what is right and wrong with this machine, these settings and this database."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from errata.cli.failure import Interrupted
from errata.cli.output import Db, Json, print_json, short, show
from errata.errors import ErrataError, ModelError, NotFound

if TYPE_CHECKING:
    from errata.cli.settings import Settings

PACKAGES = ("errata", "numpy", "typer", "rich", "pydantic", "pydantic-settings", "PyYAML")
OPTIONAL = ("xllamacpp", "onnxruntime", "tokenizers", "pydantic-ai-slim", "matplotlib")
# The kind of model -> the package that it needs, and the extra that brings it.
EXTRAS = {
    "embedded": ("xllamacpp", "embedded"),
    "openai": ("pydantic-ai-slim", "models"),
    "http": ("pydantic-ai-slim", "models"),
    "https": ("pydantic-ai-slim", "models"),
    "anthropic": ("pydantic-ai-slim", "anthropic"),
    "google": ("pydantic-ai-slim", "google"),
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
    deep: Annotated[
        bool, typer.Option("--deep", help="Load the model and ask it; may fetch weights.")
    ] = False,
    model: Annotated[str | None, typer.Option(help="The model. [embedded]")] = None,
    db: Db = None,
    json: Json = False,
) -> int:
    """Look at what errata needs, and say what to do.

    Python, packages, SQLite, the database, weights, keys, cores; exits 1 where something is ill.
    """
    from errata.cli.settings import settings

    values = settings(model=model, db=db)
    signs = []
    for look in (_python, _packages, _sqlite, _folder, _database, _weights, _keys, _cores):
        signs += _looked(look, values)
    if deep:
        signs += _looked(_deep, values)
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
    except Interrupted:
        raise
    except Exception as error:
        name = look.__name__.strip("_")
        signs.append(Sign(name, False, f"{type(error).__name__}: {error}", "see the message"))
    return signs


def _python(values: Settings) -> Iterator[Sign]:
    said = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield Sign("python", sys.version_info >= (3, 11), said, "install Python 3.11 or newer")


def _packages(values: Settings) -> Iterator[Sign]:
    there = {name: _version(name) for name in (*PACKAGES, *OPTIONAL)}
    missing = [name for name in PACKAGES if not there[name]]
    said = ", ".join(f"{name} {there[name] or 'missing'}" for name in PACKAGES)
    yield Sign("packages", not missing, said, f"pip install {' '.join(missing)}")
    package, extra = EXTRAS.get(values.model.partition(":")[0], ("", ""))
    said = ", ".join(f"{name} {there[name] or 'missing'}" for name in OPTIONAL)
    well = not package or bool(there[package])
    yield Sign("optional packages", well, said, f"pip install 'errata[{extra}]'")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _sqlite(values: Settings) -> Iterator[Sign]:
    newest = sqlite3.sqlite_version_info >= OLDEST_SQLITE
    yield Sign("sqlite", newest, sqlite3.sqlite_version, "use a Python with SQLite 3.35 or newer")
    db = sqlite3.connect(":memory:")
    try:
        db.execute("create virtual table t using fts5 (x)")
        fts5 = True
    except sqlite3.OperationalError:
        fts5 = False
    finally:
        db.close()
    yield Sign("sqlite fts5", fts5, "there" if fts5 else "missing", "use a Python that has it")


def _folder(values: Settings) -> Iterator[Sign]:
    """Whether a database can be made and be in WAL mode where this one is."""
    if values.db == ":memory:":
        return
    from tempfile import TemporaryDirectory

    folder = Path(values.db).resolve().parent
    try:
        with TemporaryDirectory(prefix=".errata-doctor-", dir=folder) as place:
            db = sqlite3.connect(Path(place) / "probe.db")
            try:
                mode = db.execute("pragma journal_mode = wal").fetchone()[0]
                db.execute("create table t (x)")
            finally:
                db.close()
    except (OSError, sqlite3.Error) as error:
        todo = "make the folder, or give write permission"
        yield Sign("folder", False, f"{folder}: {error}", todo)
        return
    found = f"{folder} is writable, journal mode {mode}"
    yield Sign("folder", mode == "wal", found, "use a local disk: WAL does not work here")


def _database(values: Settings) -> Iterator[Sign]:
    from errata.cli.health import health

    path = Path(values.db)
    if values.db == ":memory:" or not path.exists():
        yield Sign("database", True, f"{values.db} is not there yet; errata run makes it")
        return
    try:
        found = health(path)
    except (ErrataError, sqlite3.Error) as error:
        todo = "restore a copy, or name another file"
        yield Sign("database", False, f"{path}: {error}", todo)
        return
    said = f"{path}, schema {found.schema}, journal {found.journal}, {found.check}"
    todo = "restore a copy, or move it away to begin anew"
    yield Sign("database", found.check == "ok", said, todo)
    ids = ", ".join(short(id, 60) for id in found.interrupted[:5])
    said = f"{found.driven} running, {len(found.interrupted)} interrupted" + (ids and f": {ids}")
    hint = "; errata run … --resume goes on" if ids else ""
    yield Sign("open loops", True, said + hint)


def _weights(values: Settings) -> Iterator[Sign]:
    from errata.cli.interrupt import drive
    from errata.cli.opening import EMBEDDER, embedding
    from errata.models import weights

    wanted: list[str] = list(EMBEDDER) if values.embedder == "minilm" else []
    if needed := weights.needed(values.model):
        wanted.append(needed.name)
    for one in weights.known():
        state = drive(weights.check(one, values.cache))
        well = state.kind == "good" or (state.kind == "absent" and one.name not in wanted)
        todo = f"errata model fetch {one.name}"
        yield Sign(f"weights {one.name}", well, f"{state.kind}, {state.path}", todo)
    how = "meanings (minilm)" if embedding(values) == "minilm" else "words"
    yield Sign("recall", True, f"compares {how}")


def _keys(values: Settings) -> Iterator[Sign]:
    """The names of the keys alone, never their values."""
    there = [key for key in KEYS if os.environ.get(key)]
    wanted = f"{values.model.partition(':')[0].upper()}_API_KEY"
    well = wanted not in KEYS or wanted in there
    found = f"set: {', '.join(there)}" if there else "none is set"
    yield Sign("keys", well, found, f"set {wanted} in the environment")


def _cores(values: Settings) -> Iterator[Sign]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = values.threads or max(1, (cores or 1) - 1)
    well = threads <= (cores or 1)
    found = f"{cores} cores, {threads} threads for an embedded model"
    yield Sign("cores", well, found, "set fewer threads: more than cores are slower")


def _deep(values: Settings) -> Iterator[Sign]:
    from errata.cli.interrupt import drive

    try:
        said = drive(_asked(values))
    except (ModelError, NotFound) as error:
        yield Sign("model", False, f"{values.model}: {error}", "see the message")
        return
    yield Sign("model", True, f"{values.model} answers: {short(said, 60)}")


async def _asked(values: Settings) -> str:
    from errata.cli.opening import model_of
    from errata.cli.progress import FetchProgress
    from errata.protocols import Message

    with FetchProgress() as fetching:
        async with model_of(values, fetching) as model:
            answer = await model.complete([Message("user", "Say hello.")], max_tokens=8)
            return answer.text
