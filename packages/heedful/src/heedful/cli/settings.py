"""The settings of a command, and the options that several commands share.

A setting comes from the first of these that has it: an option, the environment, the
file of the option `--settings`, or without it `heedful.toml` and `[tool.heedful]` in
`pyproject.toml`, both in the current folder, and the user's own
`~/.heedful/heedful.toml`, which alone counts for hooks. A file that was only found in
the current folder may have come with somebody else's repository, so it names no Python
code: see `folder_of_code`. Only the command line and the hooks read settings. pydantic
checks a value that is stated: it takes half of the time of a small command to import,
and pydantic-settings 100 ms.
"""

import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from typer import Argument, Option

from heedful import doors
from heedful.cli.printing import current_command, say
from heedful.errors import (
    InvalidInput,
    NotFound,
    PackageMissing,
    UnknownName,
    UsageError,
)
from heedful.faults import wrong_value
from heedful.lessons.scope import Scope
from heedful.store import DEFAULT_DATABASE_FILE, POSTGRES_PREFIXES, shown
from heedful.store.projects import (
    find_project,
    folder_db,
    own_settings,
    read_table,
    user_folder,
)

# Settings, or what a setting is set to, by name.
Table = dict[str, Any]
VARIABLE_PREFIX = "HEEDFUL_"
# Variables of an earlier system.
OLDER_VARIABLES = {
    "reflection_enabled": "REFLECTIVE_MEMORY_ENABLED",
    "reflection_mode": "REFLECTIVE_MEMORY_MODE",
}
# Variables of clients; deploy/roles.sql reads those of passwords.
VARIABLES_WITHOUT_SETTING = ("home", "key", "url")
NO_MODEL = "none"  # as the name of a model: there is none
# The places of settings, as templates: `{field}` is the name of a setting.
OWN_FILE = "{field} in your own heedful.toml"
FOUND_FILES: Mapping[str, tuple[str, ...]] = {
    "{field} in pyproject.toml [tool.heedful]": ("pyproject.toml", "tool", "heedful"),
    "{field} in heedful.toml": ("heedful.toml",),
}

UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

# The largest count or id that an option takes; a database takes none above 2**63.
MAX_OPTION_INTEGER = 2**53
# Options of several commands; those of all commands are in `app`.
number_option: partial[Any] = partial(Option, min=1, max=MAX_OPTION_INTEGER)
number_argument: partial[Any] = partial(Argument, min=1, max=MAX_OPTION_INTEGER)
Limit = Annotated[int, number_option(help="The most rows to show.")]
By = Annotated[str, Option(help="Who is responsible.")]
Why = Annotated[str, Option(help="The reason.")]
Texts = list[str] | None
DryRun = Annotated[
    bool, Option("--dry-run", help="Only show what would be done, and why.")
]


def bounded(default: Any, **bounds: Any) -> Any:
    """Return a field of `Settings` with the bounds of its values, as pydantic has
    them.
    """
    return field(default=default, metadata=bounds)


def named(default: str | None) -> Any:
    """Return a field of `Settings` that is a name or another short text."""
    return bounded(default, min_length=1, max_length=1000)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of the command line.

    `cache` is the folder for weights. `threads` and `context` (in tokens) are for
    embedded models. `policy` is written as for `heedful.policy`. `holdout` is the share
    of recalled lessons that is withheld from prompts. `timeout` is in seconds for each
    attempt.

    `model` may be several, separated by commas, cheapest first: the rungs of a ladder.
    `prices` has the cost of a token of each. `model` and `judge` may be "none". The
    judge gives the scores that callers of `heedful serve` do not report.

    `trust` names sources whose words are told at once, with `strict` a fix waits that
    installs something or follows outside reading, `hook` is what the hooks of
    coding agents do: see `heedful_agents.session_hooks.HookSettings`. `forget` is a
    time such as 180d: every night, services and workers remove lessons that were unused
    for this long. `forget_loops` is such a time, too: every night, services and workers
    remove the loops that ended this long ago.

    The settings from `checks` on are for `heedful serve`. A request may name the
    `checks`; `pins` says which checks, goals and keys measure the loops of a project.
    `outcomes` of a key count in the proof on one day. `rate` is in requests a second
    for each key, `body` and `traces` are in bytes, `drain` is in seconds. The service
    stands below the `root_path` of a proxy, such as /heedful. A trace is complete
    `settled` seconds after its last span, if its root has ended. Without
    `reflection_enabled`, service and workers neither reflect nor dream; with the
    `reflection_mode` "lite" they dream only on request.
    """

    model: str = named("embedded")
    prices: str | None = named(None)
    judge: str = named(NO_MODEL)
    embedder: Literal["auto", "minilm", "none"] = "auto"
    db: str = named(DEFAULT_DATABASE_FILE)
    cache: Path | None = None
    tenant: str = named("default")
    project: str = named("default")

    policy: str | Table = "default"
    memory: bool = True
    holdout: float = bounded(0.1, ge=0, lt=1)
    threads: int | None = bounded(None, ge=1, le=1024)
    context: int = bounded(4096, ge=64, le=10_000_000)
    jobs: int = bounded(1, ge=1, le=256)
    timeout: float = bounded(120.0, gt=0, le=86_400)
    max_tokens: int | None = bounded(None, ge=1, le=1_000_000)
    max_entries: int | None = bounded(None, ge=1)
    forget: str | None = named(None)
    forget_loops: str | None = named(None)

    trust: tuple[str, ...] = ()
    strict: bool = False
    hook: Table = field(default_factory=dict)
    checks: dict[str, Table] = field(default_factory=dict)
    pins: dict[str, list[str]] = field(default_factory=dict)

    host: str = named("127.0.0.1")
    port: int = bounded(8765, ge=0, le=65_535)
    key_required: bool = False
    root_path: str | None = bounded(None, pattern=r"^(/[\w.~-]+)*/?$")
    workers: int | None = bounded(None, ge=0, le=256)
    outcomes: int = bounded(1_000, ge=0)
    rate: float = bounded(0.0, ge=0, le=1_000_000)
    body: int = bounded(4 * 1024**2, ge=1024, le=1024**3)
    settled: float = bounded(15.0, gt=0, le=3600)
    traces: int = bounded(16 * 1024**2, ge=1024, le=1024**3)
    drain: float = bounded(30.0, ge=1, le=3600)
    reflection_enabled: bool = True
    reflection_mode: Literal["lite", "full"] = "full"

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the models, cheapest first."""
        return tuple(name.strip() for name in self.model.split(","))

    @property
    def costs(self) -> tuple[float | None, ...]:
        """The cost of a token of each model, None if it is not known.

        Raises InvalidInput unless there is a price for each model.
        """
        if self.prices is None:
            return (None,) * len(self.models)

        costs: tuple[float, ...] = ()
        with suppress(ValueError):
            costs = tuple(map(float, self.prices.split(",")))
        if len(costs) != len(self.models) or not all(
            0 <= cost < float("inf") for cost in costs
        ):
            names = ", ".join(map(shown_model, self.models))
            allowed = f"one price of a token, such as 0.00001, for each model: {names}"
            raise InvalidInput("prices", self.prices, allowed)
        return costs

    @property
    def is_on_server(self) -> bool:
        """Whether the database is on a server of PostgreSQL."""
        return self.db.startswith(POSTGRES_PREFIXES)

    def with_one_model(self) -> "Settings":
        """Return the settings of a command that asks one model: the first of several.

        Raises UsageError if the option --model names several.
        """
        first, *others = self.models
        if others and "model" in current_command().options:
            names = ",".join(map(shown_model, self.models))
            raise UsageError(
                f"--model is {names!r}, but this command asks one model; give one: "
                f"--model {shown_model(first)}"
            )
        return replace(self, model=first)


def settings(**options: Any) -> Settings:
    """Return the settings. `options` and those of the command line take precedence.

    Raises UsageError, which names the origin of a wrong value, the field, and what is
    allowed.
    """
    running = current_command()
    if running.as_hooks:
        return settings_of_hooks(**options)

    origins = _values_by_origin({**running.options, **options})
    values = _valid_settings(origins)
    if any("db" in stated for stated in origins.values()):
        return values

    folder = Path.cwd()
    database = folder_db(folder)
    if database == folder / DEFAULT_DATABASE_FILE:
        return values
    if not running.has_named_db:
        running.has_named_db = True
        say(f"heedful uses {database}")
    return replace(values, db=str(database))


def settings_of_hooks(folder: Path | None = None, **options: Any) -> Settings:
    """Return the settings that hooks of coding agents have when they run in a folder.

    By default, it is the current one. The package of the hooks reads them, by the door
    SETTINGS. Nothing in the folder counts. Options take precedence. Raises UsageError.
    """
    read_settings = doors.SETTINGS.load("hooks")
    if read_settings is None:
        raise PackageMissing("heedful with --as-hooks", "heedful-agents", "agents")
    stated = _stated_options({**current_command().options, **options})
    values = {**read_settings(folder or Path.cwd()), **stated}
    return _valid_settings(_values_by_origin(values, files=False))


def _stated_options(options: Table) -> Table:
    """Return the options that have a value."""
    return {name: value for name, value in options.items() if value is not None}


def _valid_settings(origins: Mapping[str, Table]) -> Settings:
    """Return the settings of these origins. Raises UsageError."""
    values: Table = {}
    places: dict[str, str] = {}
    for place, stated in origins.items():
        values |= stated
        places |= dict.fromkeys(stated, place)

    problems = []
    for name, place in places.items():
        try:
            values[name] = _check_value(name, values[name])
        except UsageError as error:
            where = place.format(
                option=name.replace("_", "-"),
                field=name,
                FIELD=name.upper(),
                older=OLDER_VARIABLES.get(name),
            )
            problems.append(f"{where}{error}")
    if problems:
        raise UsageError("; ".join(problems))
    return Settings(**values)


def _check_value(name: str, value: Any) -> Any:
    """Return the value of a setting in its type.

    Raises UsageError, whose message follows the place of the setting. Each is checked
    by itself: a model of all settings would take 40 ms to build.
    """
    from pydantic import Field, TypeAdapter, ValidationError  # slow to import

    types = get_type_hints(Settings)
    if name not in types:
        raise UsageError(f": {UnknownName('setting', name, list(types))}")
    bounds = {setting.name: setting.metadata for setting in fields(Settings)}[name]
    if name == "reflection_mode" and isinstance(value, str):
        value = value.lower()  # as callers of an earlier system write it
    try:
        kind: Any = Annotated[types[name], Field(**bounds)]
        checked = TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        fault = error.errors()[0]
        # The first part of the place is pydantic's name of a type, not a key.
        keys = "".join(f": {key!r}" for key in fault["loc"][1:])
        raise UsageError(f"{keys} is {wrong_value(fault)}") from error
    if name == "model":
        _check_models(checked)
    return checked


def _check_models(text: str) -> None:
    """Raise UsageError unless each part of the text can name a model."""
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise UsageError(
            f" is {shown(text)!r}; it must have another name on each side of a comma"
        )
    if NO_MODEL in names and len(names) > 1:
        raise UsageError(
            f" is {shown(text)!r}; {NO_MODEL} is no model; remove it or the others"
        )


def is_stated(name: str, *, files: bool = True) -> bool:
    """Return True if an option, the environment or a file states the setting.

    Without `files`, a file does not count.
    """
    origins = _values_by_origin(current_command().options, files)
    return any(name in values for values in origins.values())


def folder_of_code(name: str) -> Path:
    """Return the folder in which to look for the Python code that a setting names.

    It is the current folder, and for your own heedful.toml the folder of this file.
    Raises UsageError if a file names the code that was only found in the current
    folder: it may have come with somebody else's repository.
    """
    running = current_command()
    origins = _values_by_origin(running.options, files=not running.as_hooks)
    places = [place for place, stated in origins.items() if name in stated]
    if not places or places[-1] == OWN_FILE:
        return user_folder()

    if places[-1] in FOUND_FILES:
        place = places[-1].format(field=name)
        raise UsageError(
            f"{place} names Python code, and heedful runs none that a file names which "
            f"it only found; name the file (--settings {FOUND_FILES[places[-1]][0]}), "
            f"or set {name} by an option, by {VARIABLE_PREFIX}{name.upper()}, or in "
            f"{user_folder() / 'heedful.toml'}"
        )
    return Path.cwd()


def _values_by_origin(options: Table, files: bool = True) -> dict[str, Table]:
    """Map each origin of settings, as its place, to its values.

    Later origins take precedence.
    """
    tables: dict[str, Table] = {}
    if files:
        own_table = own_settings(find_project(Path.cwd()))
        if "db" in own_table and "://" not in str(own_table["db"]):
            own_table["db"] = str(user_folder() / str(own_table["db"]))
        tables[OWN_FILE] = own_table
        tables |= _file_tables()

    variables = {
        setting.name: f"{VARIABLE_PREFIX}{setting.name.upper()}"
        for setting in fields(Settings)
    }
    return {
        **tables,
        "{older} in the environment": _read_environment(OLDER_VARIABLES),
        f"{VARIABLE_PREFIX}{{FIELD}} in the environment": _read_environment(variables),
        "--{option}": _stated_options(options),
    }


def _file_tables() -> dict[str, Table]:
    """Map the place of each settings file that counts here to its table.

    Raises NotFound if the file of the option --settings does not exist, UsageError.
    """
    named_file = current_command().settings_file
    if named_file is None:
        return {place: read_table(*keys) for place, keys in FOUND_FILES.items()}

    if not named_file.exists():
        raise NotFound("settings file", str(named_file), str(named_file.parent))
    keys = ("tool", "heedful") if named_file.name == "pyproject.toml" else ()
    return {f"{{field}} in {named_file}": read_table(named_file, *keys)}


def _read_environment(variable_by_setting: Mapping[str, str]) -> Table:
    """Return the settings whose variables have a value; an empty one does not count.

    A table or a list is JSON in its variable.
    """
    values: Table = {}
    for name, variable in variable_by_setting.items():
        text = os.environ.get(variable)
        if text:
            values[name] = text
            if name in ("trust", "hook", "checks", "pins"):
                with suppress(ValueError):
                    values[name] = json.loads(text)
    return values


def warn_of_unknown_variables() -> None:
    """Print a line for each variable HEEDFUL_* that has no effect."""
    from heedful.loop.policies import LoopLimits  # slow to import
    from heedful.pipeline.thresholds import Guardrails

    names = set(VARIABLES_WITHOUT_SETTING)
    for record in (Settings, LoopLimits, Guardrails):
        names.update(setting.name for setting in fields(record))

    for variable in sorted(os.environ):
        name = variable.removeprefix(VARIABLE_PREFIX).lower()
        is_known = name in names or name.endswith("password")
        if variable.startswith(VARIABLE_PREFIX) and not is_known:
            error = UnknownName("setting", name, sorted(names), cure="remove it")
            say(f"{variable} in the environment has no effect: {error}")


def seconds(option: str, text: str | None, *, min_days: int = 0) -> float | None:
    """Return the seconds of a time such as 2h or 1d, at least `min_days`.

    Return None if the option is not given. Raises InvalidInput, which names it.
    """
    if text is None:
        return None
    # A number and a unit, as in 90s, 1.5h or 180d.
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd])", text.strip())
    duration = float(match[1]) * UNIT_SECONDS[match[2]] if match else 0.0
    days = duration / UNIT_SECONDS["d"]
    if not 0 < days <= 3650:  # more than ten years are a typing error
        raise InvalidInput(
            option, text, "a time such as 90s, 30m, 2h or 1d, above 0 and up to 3650d"
        )
    if days < min_days:
        allowed = f"at least {min_days}d: pages count the loops of 30 whole days"
        raise InvalidInput(option, text, allowed)
    return duration


def expiry_time(text: str | None) -> float | None:
    """Return when `--expires` ends, in seconds since 1970; None if it is not given."""
    duration = seconds("--expires", text)
    return None if duration is None else time.time() + duration


def shown_model(name: str) -> str:
    """Return a model's name without the password that its address, before a #, has."""
    address, mark, model = name.rpartition("#")
    return f"{shown(address)}{mark}{model}"


def scope_of(values: Settings) -> Scope:
    """Return the scope of the settings."""
    return Scope(values.tenant, values.project)


def where() -> str:
    """Return the project and the database of the settings, in words."""
    values = settings()
    return f"project {values.project!r} of {shown(values.db)}"
