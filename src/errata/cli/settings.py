"""Settings: options, then the environment, then `errata.toml`, then `[tool.errata]`.

The files are those of the current folder. Only the command line reads any of them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.sources import EnvSettingsSource

from errata.errors import UsageError

PREFIX = "ERRATA_"
FILES = (("errata.toml", ()), ("pyproject.toml", ("tool", "errata")))

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class Settings(BaseSettings):
    """What the command line takes from its surroundings; every field is an option somewhere, too.

    `cache` is the folder for weights, `threads` and `context` (tokens) are for embedded models,
    `timeout` is in seconds an attempt.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", frozen=True
    )

    model: Name = "embedded"
    embedder: Literal["auto", "minilm", "none"] = "auto"
    db: Name = "errata.db"
    cache: Path | None = None
    tenant: Name = "default"
    project: Name = "default"
    policy: Name = "default"
    memory: bool = True
    threads: int | None = Field(None, ge=1, le=1024)
    context: int = Field(4096, ge=64, le=10_000_000)
    jobs: int = Field(1, ge=1, le=256)
    timeout: float = Field(120.0, gt=0, le=86_400, allow_inf_nan=False)
    max_tokens: int = Field(256, ge=1, le=1_000_000)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Options before the environment before the files; no .env, no folder of secrets."""
        files = (_File(settings_cls, name, table) for name, table in FILES)
        return (init_settings, env_settings, *files)


class _File(PydanticBaseSettingsSource):
    """The settings in one table of one TOML file of the current folder."""

    def __init__(self, cls: type[BaseSettings], name: str, table: tuple[str, ...]) -> None:
        super().__init__(cls)
        self.values = _table(Path(name), table)

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        """The value of one field, None where the file has none."""
        return self.values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return dict(self.values)


def settings(**options: Any) -> Settings:
    """The settings with the given options on top; None is not given. Raises UsageError.

    The error names where the wrong value comes from, the field and what is allowed.
    """
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise UsageError("; ".join(_problem(one, given) for one in error.errors())) from error


def _problem(error: Any, given: Mapping[str, Any]) -> str:
    field = str(error["loc"][0]) if error["loc"] else "settings"
    where = _source(field, given)
    if error["type"] == "extra_forbidden":
        return f"{where}: no setting is called so; there are: {', '.join(Settings.model_fields)}"
    said = error["msg"].replace("Input should be", "it must be")
    said = said.replace("String should have", "it must have")
    return f"{where} is {error['input']!r}; {said[:1].lower()}{said[1:]}"


def _source(field: str, given: Mapping[str, Any]) -> str:
    """Where the value of a field comes from, as a user would point at it."""
    if field in given:
        return f"--{field.replace('_', '-')}"
    if EnvSettingsSource(Settings)().get(field) is not None:
        return f"{PREFIX}{field.upper()} in the environment"
    for name, table in FILES:
        if field in _table(Path(name), table):
            return f"{field} in {name}" + (f" [{'.'.join(table)}]" if table else "")
    return field


def _table(path: Path, table: tuple[str, ...]) -> Mapping[str, Any]:
    try:
        found: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}; mend or remove it") from error
    for key in table:
        found = found.get(key, {}) if isinstance(found, dict) else {}
    if not isinstance(found, dict):
        raise UsageError(f"[{'.'.join(table)}] in {path} must be a table")
    return found
