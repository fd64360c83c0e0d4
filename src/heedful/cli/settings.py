"""The settings of a command, and the options that several commands share.

A setting comes from the first of these that has it: an option, the environment,
`heedful.toml`, and `[tool.heedful]` in `pyproject.toml`, both in the current folder,
and the user's own `~/.heedful/heedful.toml`, which alone counts for hooks. Only the
command line and the hooks read settings.
"""

from __future__ import annotations

import os
import re
import time
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from typer import Option

from heedful.cli.output import current_command, say
from heedful.errors import InvalidInput, UnknownName, UsageError
from heedful.lessons.scope import Scope
from heedful.store import DEFAULT_DATABASE_FILE, shown
from heedful.store.projects import (
    find_project,
    folder_db,
    own_settings,
    user_folder,
)
from heedful.store.workspace import read_table

if TYPE_CHECKING:  # `_valid_settings` imports them, if a setting is stated
    from pydantic import Field

    from heedful.cli.setting_values import (
        ANY_CASE,
        BytesLimit,
        CheckTable,
        JudgeName,
        ModelNames,
        Name,
        PinTable,
        Prices,
        Table,
        TrustNames,
        Written,
    )

VARIABLE_PREFIX = "HEEDFUL_"
# Variables of an earlier system.
OLDER_VARIABLES = {
    "reflection_enabled": "REFLECTIVE_MEMORY_ENABLED",
    "reflection_mode": "REFLECTIVE_MEMORY_MODE",
}
# Variables of clients, and of commands in the documentation.
VARIABLES_WITHOUT_SETTING = (
    "home",
    "key",
    "url",
    "command",
    "owner_url",
    "owner_password",
    "password",
)

SETTINGS_MIB_BYTES = 1024 * 1024
NO_MODEL = "none"  # as the name of a model: there is none

UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
# More than ten years is a typing error.
MAX_DURATION_SECONDS = 3650 * UNIT_SECONDS["d"]

# The largest count or id that an option takes; a database takes none above 2**63.
MAX_OPTION_INTEGER = 2**53
# Options of several commands; those of all commands are in `app`.
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
EndedFor = Annotated[
    str | None, Option(help="Remove loops that ended this long ago: 365d.")
]
DryRun = Annotated[
    bool, Option("--dry-run", help="Only show what would be done, and why.")
]


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
    coding agents do: see `heedful.integrations.hooks.HookSettings`. `forget` is a time
    such as 180d: every night, services and workers remove lessons that were unused for
    this long. `forget_loops` is such a time,
    too: every night, services and workers remove the loops that ended this long ago.

    The settings from `checks` on are for `heedful serve`. A request may name the
    `checks`; `pins` says which checks, goals and keys measure the loops of a project.
    `outcomes` of a key count in the proof on one day. `rate` is in requests a second
    for each key, `body` and `traces` are in bytes, `drain` is in seconds. The service
    stands below the `root_path` of a proxy, such as /heedful. A trace is complete
    `settled` seconds after its last span, if its root has ended. Without
    `reflection_enabled`, service and workers neither reflect nor dream; with the
    `reflection_mode` "lite" they dream only on request.
    """

    model: ModelNames = "embedded"
    prices: Prices = None
    judge: JudgeName = NO_MODEL
    embedder: Literal["auto", "minilm", "none"] = "auto"
    db: Written = DEFAULT_DATABASE_FILE
    cache: Path | None = None
    tenant: Name = "default"
    project: Name = "default"

    policy: Written | dict[str, Any] = "default"
    memory: bool = True
    holdout: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.1
    threads: Annotated[int | None, Field(ge=1, le=1024)] = None
    context: Annotated[int, Field(ge=64, le=10_000_000)] = 4096
    jobs: Annotated[int, Field(ge=1, le=256)] = 1
    timeout: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = 120.0
    max_tokens: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    max_entries: Annotated[int | None, Field(ge=1)] = None
    forget: Written | None = None
    forget_loops: Written | None = None

    trust: TrustNames = ()
    strict: bool = False
    hook: Table = field(default_factory=dict)
    checks: CheckTable = field(default_factory=dict)
    pins: PinTable = field(default_factory=dict)

    host: Name = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8765
    key_required: bool = False
    root_path: Annotated[str | None, Field(pattern=r"^(/[\w.~-]+)*/?$")] = None
    workers: Annotated[int | None, Field(ge=0, le=256)] = None
    outcomes: Annotated[int, Field(ge=0)] = 1_000
    rate: Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)] = 0.0
    body: BytesLimit = 4 * SETTINGS_MIB_BYTES
    settled: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)] = 15.0
    traces: BytesLimit = 16 * SETTINGS_MIB_BYTES
    drain: Annotated[float, Field(ge=1, le=3600, allow_inf_nan=False)] = 30.0
    reflection_enabled: bool = True
    reflection_mode: Annotated[Literal["lite", "full"], ANY_CASE] = "full"

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the models, cheapest first."""
        return tuple(name.strip() for name in self.model.split(","))

    @property
    def costs(self) -> tuple[float | None, ...]:
        """The cost of a token of each model, None if it is not known.

        Raises InvalidInput if there are more or fewer prices than models.
        """
        if self.prices is None:
            return (None,) * len(self.models)

        costs = tuple(map(float, self.prices.split(",")))
        if len(costs) != len(self.models):
            names = ", ".join(map(shown_model, self.models))
            allowed = f"one price for each model: {names}"
            raise InvalidInput("prices", self.prices, allowed)
        return costs

    def with_one_model(self) -> Settings:
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
        return hook_settings(Path.cwd(), **options)

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


def hook_settings(folder: Path, **options: Any) -> Settings:
    """Return the settings that hooks follow in a folder, and the database they use.

    Nothing in the folder counts. Options take precedence. Raises UsageError.
    """
    from heedful.integrations.hook import read_settings  # slow to import

    hook_values = read_settings(folder)
    names = ("db", "tenant", "project", "holdout", "trust", "strict")
    values = {name: hook_values[name] for name in names}
    all_options = {**current_command().options, **options}
    stated = {name: value for name, value in all_options.items() if value is not None}
    return _valid_settings(_values_by_origin({**values, **stated}, files=False))


def _valid_settings(origins: dict[str, dict[str, Any]]) -> Settings:
    """Return the settings of these origins. Raises UsageError."""
    # A ChainMap returns the value of the first mapping that has a name.
    stated = ChainMap(*reversed(origins.values()))
    if not stated:
        return Settings()

    from heedful.cli import setting_values  # slow to import

    names = {**globals(), **vars(setting_values)}
    types = get_type_hints(Settings, globalns=names, include_extras=True)
    values, problems = setting_values.check_settings(stated, types)
    for name in stated:
        if name not in types:
            problems[name] = f": {UnknownName('setting', name, list(types))}"
    if problems:
        places = {name: _place_of(name, origins) for name in problems}
        texts = [f"{places[name]}{problem}" for name, problem in problems.items()]
        raise UsageError("; ".join(texts))
    return Settings(**values)


def _place_of(name: str, origins: Mapping[str, Mapping[str, Any]]) -> str:
    """Return where a setting is stated: an option, a variable or a file."""
    templates = [template for template, values in origins.items() if name in values]
    return templates[-1].format(
        option=name.replace("_", "-"),
        field=name,
        FIELD=name.upper(),
        older=OLDER_VARIABLES.get(name),
    )


def is_stated(name: str, *, files: bool = True) -> bool:
    """Return True if an option, the environment or a file states the setting.

    Without `files`, a file does not count.
    """
    origins = _values_by_origin(current_command().options, files)
    return any(name in values for values in origins.values())


def _values_by_origin(
    options: Mapping[str, Any], files: bool = True
) -> dict[str, dict[str, Any]]:
    """Map each origin of settings to its values. Later origins take precedence.

    An origin is written as the template of a place: `{field}` is the name of a setting.
    """
    variables = {
        field.name: f"{VARIABLE_PREFIX}{field.name.upper()}"
        for field in fields(Settings)
    }
    stated_options = {
        name: value for name, value in options.items() if value is not None
    }
    tables: dict[str, dict[str, Any]] = {}
    if files:
        own_table = own_settings(find_project(Path.cwd()))
        if "db" in own_table and "://" not in str(own_table["db"]):
            own_table["db"] = str(user_folder() / str(own_table["db"]))
        tables["{field} in your own heedful.toml"] = own_table
        project_table = read_table("pyproject.toml", "tool", "heedful")
        tables["{field} in pyproject.toml [tool.heedful]"] = project_table
        tables["{field} in heedful.toml"] = read_table("heedful.toml")

    return {
        **tables,
        "{older} in the environment": _read_environment(OLDER_VARIABLES),
        f"{VARIABLE_PREFIX}{{FIELD}} in the environment": _read_environment(variables),
        "--{option}": stated_options,
    }


def _read_environment(variable_by_setting: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings whose variables have a value; an empty one does not count."""
    values = {}
    for name, variable in variable_by_setting.items():
        value = os.environ.get(variable)
        if value:
            values[name] = value
    return values


def warn_of_unknown_variables() -> None:
    """Print a line for each variable HEEDFUL_* that has no effect."""
    from heedful.loop.policies import LoopLimits  # slow to import
    from heedful.pipeline.thresholds import Guardrails

    names = set(VARIABLES_WITHOUT_SETTING)
    for record in (Settings, LoopLimits, Guardrails):
        names.update(field.name for field in fields(record))

    for variable in sorted(os.environ):
        name = variable.removeprefix(VARIABLE_PREFIX).lower()
        if variable.startswith(VARIABLE_PREFIX) and name not in names:
            error = UnknownName("setting", name, sorted(names), cure="remove it")
            say(f"{variable} in the environment has no effect: {error}")


def seconds(option: str, text: str) -> float:
    """Return the seconds of a time such as 2h or 1d.

    Raises InvalidInput, which names the option.
    """
    # A number and a unit, as in 90s, 1.5h or 180d.
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd])", text.strip())
    duration = float(match[1]) * UNIT_SECONDS[match[2]] if match else 0.0
    if not 0 < duration <= MAX_DURATION_SECONDS:
        allowed = "a time such as 90s, 30m, 2h or 1d, above 0 and up to 3650d"
        raise InvalidInput(option, text, allowed)
    return duration


def seconds_if_given(option: str, text: str | None) -> float | None:
    """Return the seconds of a time as `seconds` does; None if the option is not
    given.
    """
    return None if text is None else seconds(option, text)


def ended_seconds(option: str, text: str | None) -> float | None:
    """Return the seconds that ended loops stay, as `seconds_if_given` does.

    Raises InvalidInput also if pages show figures of loops that ended later.
    """
    from heedful.store.retention import MIN_KEPT_DAYS  # few commands need it

    ended_for = seconds_if_given(option, text)
    if ended_for is not None and ended_for < MIN_KEPT_DAYS * UNIT_SECONDS["d"]:
        allowed = f"at least {MIN_KEPT_DAYS}d: pages count the loops of 30 whole days"
        raise InvalidInput(option, text, allowed)
    return ended_for


def time_after(option: str, text: str | None) -> float | None:
    """Return when a time from now ends, in seconds since 1970; None if the option is
    not given.
    """
    return None if text is None else time.time() + seconds(option, text)


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
