"""The settings of a command, and the store, memory and model that are opened with them.

A setting comes from the first of these that has it: an option, the environment,
`heedful.toml`, and `[tool.heedful]` in `pyproject.toml`. Both files are in the current
folder. Only the command line reads settings.
"""

from __future__ import annotations

import os
import re
import sys
from collections import ChainMap
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Json, TypeAdapter, ValidationError
from typer import Option

from heedful.cli.output import call, drive, fetched
from heedful.errors import InvalidInput, NotFound, UsageError
from heedful.lessons.lesson import Scope, Trust
from heedful.memory.memory import Memory
from heedful.models import embedder_here, open_embedder, open_model
from heedful.models.contract import Embedder, Model
from heedful.store import (
    DEFAULT_DATABASE_FILE,
    POSTGRES_PREFIXES,
    open_store,
    own_db,
    prepare,
    read_table,
    repository,
    shown,
)
from heedful.store.store import Store

T = TypeVar("T")
VARIABLE_PREFIX = "HEEDFUL_"
# Variables of an earlier system.
OLDER_VARIABLES = {
    "reflection_enabled": "REFLECTIVE_MEMORY_ENABLED",
    "reflection_mode": "REFLECTIVE_MEMORY_MODE",
}
MAX_POLICY_CHARS = 1000  # characters of a policy as text
POLICY_SETTING_FORMS = (
    f"it must be a policy as text of 1 to {MAX_POLICY_CHARS} characters, or a table"
)
SETTINGS_MIB_BYTES = 1024 * 1024
MAX_WRONG_VALUE_CHARS = 120  # characters of a wrong value
UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
MAX_DURATION_SECONDS = 3650 * UNIT_SECONDS["d"]  # more than ten years is a typing error
NO_MODEL = "none"  # the name of no model
# the share of labelled pairs that a judge ranks right; a coin does in 1 of 170 checks
MIN_JUDGE_RIGHT_SHARE = 0.8

# Options of several commands; those of all commands are in `app`.
MAX_OPTION_INTEGER = (
    2**53
)  # upper bound of counts and ids; a database takes no integer above 2**63
Limit = Annotated[
    int, Option(min=1, max=MAX_OPTION_INTEGER, help="The most rows to show.")
]
By = Annotated[str, Option(help="Who is responsible.")]
Why = Annotated[str, Option(help="The reason.")]
Texts = list[str] | None
Keep = Annotated[
    int | None,
    Option(min=0, max=MAX_OPTION_INTEGER, help="Keep the most useful lessons."),
]
UnusedFor = Annotated[str | None, Option(help="Remove lessons unused this long: 180d.")]
DryRun = Annotated[
    bool, Option("--dry-run", help="Only show what would be done, and why.")
]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Written = Annotated[str, Field(min_length=1, max_length=MAX_POLICY_CHARS)]


class Settings(BaseModel):
    """The settings of the command line.

    `cache` is the folder for weights. `threads` and `context` (in tokens) are for
    embedded models. `policy` is written as for `heedful.policy`. `holdout` is the share
    of recalled lessons that is withheld from prompts. `timeout` is in seconds for each
    attempt.

    `model` and `judge` may be "none". The judge gives the scores that callers of
    `heedful serve` do not report.

    `trust` has the trust of sources in sessions of agents, `hook` what the hooks of
    coding agents do: see `heedful.integrations.hooks.HookSettings`. `forget` is a time
    such as 180d: after reading sessions, lessons that were unused for this long are
    removed.

    The settings from `checks` on are for `heedful serve`. A request may name the
    `checks`; `pins` says which checks, goals and keys measure the loops of a project.
    `outcomes` of a key count in the proof on one day. `rate` is in requests a second
    for each key, `body` and `traces` are in bytes, `drain` is in seconds. A trace is
    complete `settled` seconds after its last span, if its root has ended. Without
    `reflection_enabled`, service and workers neither reflect nor dream; with the
    `reflection_mode` "lite" they dream only on request.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)

    model: Name = "embedded"
    judge: Name = NO_MODEL
    embedder: Literal["auto", "minilm", "none"] = "auto"
    db: Written = DEFAULT_DATABASE_FILE
    cache: Path | None = None
    tenant: Name = "default"
    project: Name = "default"
    policy: Written | dict[str, Any] = "default"
    memory: bool = True
    holdout: float = Field(0.1, ge=0, lt=1, allow_inf_nan=False)
    threads: int | None = Field(None, ge=1, le=1024)
    context: int = Field(4096, ge=64, le=10_000_000)
    jobs: int = Field(1, ge=1, le=256)
    timeout: float = Field(120.0, gt=0, le=86_400, allow_inf_nan=False)
    max_tokens: int = Field(256, ge=1, le=1_000_000)
    max_entries: int | None = Field(None, ge=1)
    forget: Written | None = None
    trust: dict[Name, Trust] | Json[dict[Name, Trust]] = {}
    hook: dict[str, Any] | Json[dict[str, Any]] = {}
    # A table is JSON in a variable of the environment.
    checks: dict[Name, dict[str, Any]] | Json[dict[Name, dict[str, Any]]] = {}
    pins: dict[Name, list[Name]] | Json[dict[Name, list[Name]]] = {}
    host: Name = "127.0.0.1"
    port: int = Field(8765, ge=0, le=65_535)
    key_required: bool = False
    workers: int | None = Field(None, ge=0, le=256)
    outcomes: int = Field(1_000, ge=0)
    rate: float = Field(0.0, ge=0, le=1_000_000, allow_inf_nan=False)
    body: int = Field(4 * SETTINGS_MIB_BYTES, ge=1024, le=1024 * SETTINGS_MIB_BYTES)
    settled: float = Field(15.0, gt=0, le=3600, allow_inf_nan=False)
    traces: int = Field(16 * SETTINGS_MIB_BYTES, ge=1024, le=1024 * SETTINGS_MIB_BYTES)
    drain: float = Field(30.0, ge=1, le=3600, allow_inf_nan=False)
    reflection_enabled: bool = True
    reflection_mode: Literal["lite", "full"] = "full"


def settings(**options: Any) -> Settings:
    """Return the settings. Options of the command line take precedence. Raises
    UsageError.

    The error names the origin of a wrong value, the field, and what is allowed.
    """
    places = _places({**call().options, **options})
    try:
        found = Settings(**ChainMap(*reversed(places.values())))
        stated = "db" in found.model_fields_set or Path(DEFAULT_DATABASE_FILE).exists()
        root = (
            None if stated else repository(Path.cwd())
        )  # the memory of a repository is there
        if root in (None, Path.cwd()):
            return found
        return found.model_copy(update={"db": str(root / DEFAULT_DATABASE_FILE)})
    except ValidationError as error:
        problems = dict[str, str]()  # the first problem of each setting
        for one in error.errors():
            name = str(one["loc"][0])
            inside = "".join(f": {part!r}" for part in one["loc"][2:])
            what = f"{inside} is {wrong(one, POLICY_SETTING_FORMS if name == 'policy' else '')}"
            if one["type"] == "extra_forbidden":
                what = (
                    ": there is no such setting; there are: "
                    f"{', '.join(Settings.model_fields)}"
                )
            place = [place for place, values in places.items() if name in values][-1]
            words = {
                "field": name,
                "FIELD": name.upper(),
                "older": OLDER_VARIABLES.get(name),
            }
            place = place.format(option=name.replace("_", "-"), **words)
            problems.setdefault(name, f"{place}{what}")
        raise UsageError("; ".join(problems.values())) from error


def states_db() -> bool:
    """Return True if an option, the environment or a file states the database."""
    return any("db" in values for values in _places(call().options).values())


def _places(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Map each origin of settings to its values. Later origins take precedence."""
    variables = {
        name: os.environ.get(f"{VARIABLE_PREFIX}{name.upper()}")
        for name in Settings.model_fields
    }
    older = {
        name: os.environ.get(variable) for name, variable in OLDER_VARIABLES.items()
    }
    return {
        "{field} in pyproject.toml [tool.heedful]": read_table(
            "pyproject.toml", "tool", "heedful"
        ),
        "{field} in heedful.toml": read_table("heedful.toml"),
        "{older} in the environment": {k: v for k, v in older.items() if v},
        f"{VARIABLE_PREFIX}{{FIELD}} in the environment": {
            k: v for k, v in variables.items() if v
        },
        "--{option}": {
            name: value for name, value in options.items() if value is not None
        },
    }


def wrong(error: Any, allowed: str = "") -> str:
    """Describe an error of pydantic: the wrong value, and `allowed` or else pydantic's
    message.
    """
    value = error["input"]
    shortened = repr(shown(value) if isinstance(value, str) else value)
    if len(shortened) > MAX_WRONG_VALUE_CHARS:
        shortened = f"{shortened[: MAX_WRONG_VALUE_CHARS - 1]}…"
    message = error["msg"].removeprefix("Value error, ")
    message = re.sub(
        r"^(Input|String|List|Value) should (be|have|match)", r"it must \2", message
    )
    return f"{shortened}; {allowed or message[:1].lower() + message[1:]}"


def seconds(option: str, text: str) -> float:
    """Return the seconds of a time such as 2h or 1d. Raises InvalidInput with the
    option's name.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd])", text.strip())
    parsed = float(found[1]) * UNIT_SECONDS[found[2]] if found else 0.0
    if not 0 < parsed <= MAX_DURATION_SECONDS:
        allowed = "a time such as 90s, 30m, 2h or 1d, above 0 and up to 3650d"
        raise InvalidInput(option, text, allowed)
    return parsed


def ask(question: Callable[[Memory], Awaitable[T]], **options: Any) -> T:
    """Open the memory and return the result of `question`. Raises NotFound, StoreError.

    `options` are those of `ask_store`.
    """
    values = settings()
    return ask_store(
        values, lambda store: question(memory_of(values, store)), **options
    )


def ask_all(question: Callable[[Memory], Awaitable[T]]) -> list[tuple[str, T]]:
    """Ask the memory and, unless a database is stated, one's own memory beside it.

    Returns each database with its answer. Raises NotFound, StoreError.
    """
    values = settings()
    own = own_db()
    beside = own.exists() and not states_db() and own != Path(values.db).absolute()
    dbs = [values.db, str(own)] if beside else [values.db]

    def answer(db: str) -> T:
        one = values.model_copy(update={"db": db})
        return ask_store(one, lambda store: question(memory_of(one, store)))

    return [(db, answer(db)) for db in [db for db in dbs if exists(db)] or dbs[:1]]


def ask_store(
    values: Settings,
    question: Callable[[Store], Awaitable[T]],
    *,
    new: bool = False,
    stopped: str = "interrupted",
) -> T:
    """Open the store and return the result of `question`. Raises NotFound, StoreError.

    `new` allows a database file that does not exist. After Ctrl-C, `stopped` is
    printed.
    """

    async def opened() -> T:
        async with stored(values, new=new) as store:
            return await question(store)

    return drive(opened(), lambda: stopped)


def scope_of(values: Settings) -> Scope:
    """Return the scope of the settings."""
    return Scope(values.tenant, values.project)


def where() -> str:
    """Return the project and the database of the settings, in words."""
    values = settings()
    return f"project {values.project!r} of {shown(values.db)}"


def exists(db: str) -> bool:
    return db.startswith(POSTGRES_PREFIXES) or Path(db).exists()


@asynccontextmanager
async def stored(values: Settings, *, new: bool = False) -> AsyncIterator[Store]:
    """Open the store. Raises NotFound if its file does not exist, unless `new` is
    True.
    """
    if not (new or exists(values.db)):
        hint = (
            "pass --db with the file that your program names, or let heedful run "
            "create one"
        )
        raise NotFound("database", values.db, f"reach; {hint}")
    store = open_store(prepare(values.db))
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def model_of(values: Settings) -> AsyncIterator[Model]:
    """Open the model. Missing weights are downloaded first, so that no attempt waits
    for them.

    Raises UsageError if the model is "none".
    """
    model = open_here(values)
    if model is None:
        raise UsageError("model is none, but this command asks a model; name one")
    from heedful.models import weights

    try:
        if needed := weights.needed(values.model):
            await weights.fetch(needed, cache=values.cache, progress=fetched)
        yield model
    finally:
        await model.close()


def model_here(values: Settings) -> Model | None:
    """Open the model without a download, or return None if the default model is not
    installed.
    """
    from heedful.models import weights

    if needed := weights.needed(values.model):
        there = (
            needed.cached(values.cache).is_file() and find_spec("xllamacpp") is not None
        )
        if not there and values.model == Settings.model_fields["model"].default:
            return None
    return open_here(values)


def judging(values: Settings) -> Settings:
    """Return the settings with the judge as the model."""
    return values.model_copy(update={"model": values.judge})


def open_here(values: Settings) -> Model | None:
    """Open the model without a download, or return None if its name is "none"."""
    if values.model == NO_MODEL:
        return None
    look_here()
    options: Any = values.model_dump(include={"cache", "threads", "context", "timeout"})
    return open_model(values.model, **options)


def look_here() -> None:
    """Allow imports from the current folder, which a console script does not search."""
    sys.path.insert(0, str(Path.cwd()))


def memory_of(values: Settings, store: Store) -> Memory:
    """Return the memory of the scope, with the embedder of the settings."""
    return Memory(scope=scope_of(values), **resources(values, store))


def resources(values: Settings, store: Store) -> dict[str, Any]:
    """Return the arguments of a memory that the settings state, for any scope."""
    bounds = values.model_dump(include={"holdout", "max_entries", "trust"})
    return {"store": store, "embedder": embedder_of(values), **bounds}


def embedder_of(values: Settings) -> Embedder | None:
    """Open the embedder, or return None if recall compares only words."""
    meant = by_meaning(values)
    return (
        open_embedder("minilm", cache=values.cache, progress=fetched) if meant else None
    )


def by_meaning(values: Settings) -> bool:
    """Return True if recall compares meanings; `auto` needs installed packages and
    weights.
    """
    wanted = values.embedder
    return wanted == "minilm" or (wanted == "auto" and embedder_here(values.cache))


def judge_results(values: Settings) -> tuple[Path, dict[str, tuple[int, int]]]:
    """Return the file of judges, and for each the right and all pairs; {} from a
    damaged file.
    """
    from heedful.models import weights

    path = (values.cache or weights.default_cache()) / "judges.json"
    with suppress(OSError, ValueError):
        return path, TypeAdapter(dict[str, tuple[int, int]]).validate_json(
            path.read_bytes()
        )
    return path, {}


def doubt(values: Settings) -> str:
    """Return why it is doubtful that the judge can judge; "" for none, and if it
    passed.
    """
    if values.judge == NO_MODEL:
        return ""
    right, pairs = judge_results(values)[1].get(values.judge, (0, 0))
    if not pairs:
        return "nobody knows whether it can judge; run heedful judge check"
    words = f"it ranks {right} of {pairs} labelled pairs right, a judge needs {MIN_JUDGE_RIGHT_SHARE:.0%}"
    return "" if right >= MIN_JUDGE_RIGHT_SHARE * pairs else words
