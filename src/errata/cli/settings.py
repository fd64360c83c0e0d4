"""Settings: options, then the environment, then `errata.toml`, then `[tool.errata]`.

The files are those of the current folder. Only the command line reads any of them.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from errata.errors import UsageError

PREFIX = "ERRATA_"
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Written = Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class Settings(BaseModel):
    """What the command line takes from its surroundings.

    `cache` is the folder for weights, `threads` and `context` (tokens) are for embedded models,
    `policy` is one as people write it (`errata.policy`), `timeout` is in seconds an attempt.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)

    model: Name = "embedded"
    embedder: Literal["auto", "minilm", "none"] = "auto"
    db: Name = "errata.db"
    cache: Path | None = None
    tenant: Name = "default"
    project: Name = "default"
    policy: Written | dict[str, Any] = "default"
    memory: bool = True
    threads: int | None = Field(None, ge=1, le=1024)
    context: int = Field(4096, ge=64, le=10_000_000)
    jobs: int = Field(1, ge=1, le=256)
    timeout: float = Field(120.0, gt=0, le=86_400, allow_inf_nan=False)
    max_tokens: int = Field(256, ge=1, le=1_000_000)


def settings(**options: Any) -> Settings:
    """The settings with the given options on top; None is not given. Raises UsageError.

    The error names where the wrong value comes from, the field and what is allowed.
    """
    variables = {name: os.environ.get(f"{PREFIX}{name.upper()}") for name in Settings.model_fields}
    # Where a value comes from, as a user would point at it; the last one that has it counts.
    places = {
        "{field} in pyproject.toml [tool.errata]": _table("pyproject.toml", "tool", "errata"),
        "{field} in errata.toml": _table("errata.toml"),
        f"{PREFIX}{{FIELD}} in the environment": {k: v for k, v in variables.items() if v},
        "--{option}": {name: value for name, value in options.items() if value is not None},
    }
    given: dict[str, Any] = {}
    for values in places.values():
        given |= values
    try:
        return Settings(**given)
    except ValidationError as error:
        raise UsageError("; ".join(_problem(one, places) for one in error.errors())) from error


def _problem(error: Any, places: Mapping[str, Mapping[str, Any]]) -> str:
    field = str(error["loc"][0])
    place = [place for place, values in places.items() if field in values][-1]
    where = place.format(field=field, FIELD=field.upper(), option=field.replace("_", "-"))
    if error["type"] == "extra_forbidden":
        return f"{where}: no setting is called so; there are: {', '.join(Settings.model_fields)}"
    said = error["msg"].replace("Input should be", "it must be")
    said = said.replace("String should have", "it must have")
    return f"{where} is {error['input']!r}; {said[:1].lower()}{said[1:]}"


def _table(file: str, *keys: str) -> dict[str, Any]:
    """The values of one table of a TOML file; none where there is no file."""
    try:
        found: Any = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}; mend or remove it") from error
    for key in keys:
        found = found.get(key, {}) if isinstance(found, dict) else {}
    if not isinstance(found, dict):
        raise UsageError(f"[{'.'.join(keys)}] in {file} must be a table")
    return found
