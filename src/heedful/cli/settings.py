"""Settings: options, then the environment, then `heedful.toml`, then `[tool.heedful]`.

The files are those of the current folder. Only the command line reads any of them.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from heedful.errors import UsageError
from heedful.loop.decide import Policy
from heedful.store import shown

PREFIX = "HEEDFUL_"
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
LONGEST = 1000  # characters of a policy as text
MIB = 1024 * 1024
SHOWN = 120  # characters of a wrong value
Written = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST)]


def _table_of(given: Any) -> Any:
    """A table as a variable of the environment holds it, in JSON; from a file it is one."""
    return json.loads(given) if isinstance(given, str) else given


class Settings(BaseModel):
    """What the command line takes from its surroundings.

    `cache` is the folder for weights, `threads` and `context` (tokens) are for embedded models,
    `policy` is one as people write it (`heedful.policy`), `holdout` is the share of what recall
    ranks into prompts that is withheld, `timeout` is in seconds an attempt.

    The others are those of `heedful serve`: `rate` is in requests a second and key, `body` and
    `traces` are in bytes, `drain` is in seconds, `checks` are those that a request may name. So
    many seconds after its last span a trace whose root has ended is `settled`.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)

    model: Name = "embedded"
    embedder: Literal["auto", "minilm", "none"] = "auto"
    db: Written = "heedful.db"
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
    checks: Annotated[dict[Name, dict[str, Any]], BeforeValidator(_table_of)] = {}
    host: Name = "127.0.0.1"
    port: int = Field(8765, ge=0, le=65_535)
    key_required: bool = False
    workers: int | None = Field(None, ge=0, le=256)
    rate: float = Field(0.0, ge=0, le=1_000_000, allow_inf_nan=False)
    burst: int = Field(50, ge=1, le=1_000_000)
    body: int = Field(4 * MIB, ge=1024, le=1024 * MIB)
    traces: int = Field(16 * MIB, ge=1024, le=1024 * MIB)
    concurrent: int = Field(256, ge=1, le=100_000)
    settled: float = Field(6.0, gt=0, le=3600, allow_inf_nan=False)
    drain: float = Field(30.0, ge=1, le=3600, allow_inf_nan=False)


def settings(**options: Any) -> Settings:
    """The settings with the given options on top; None is not given. Raises UsageError.

    The error names where the wrong value comes from, the field and what is allowed.
    """
    places, given = _places(options), dict[str, Any]()
    for values in places.values():
        given |= values
    try:
        return Settings(**given)
    except ValidationError as error:
        fields = {str(one["loc"][0]): one for one in reversed(error.errors())}
        told = [_problem(field, one, places) for field, one in reversed(fields.items())]
        raise UsageError("; ".join(told)) from error


def policy_of(option: str | None) -> Policy:
    """The policy that an option asks for, or else the setting. Raises UsageError."""
    from heedful.loop.policies import policy

    if option is not None:
        return policy(option)
    try:
        return policy(settings().policy)
    except UsageError as error:
        error.add_note(f"given by {_place('policy', _places({}))}")
        raise


def _places(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Where values come from, as a user would point at it; the last one that has one counts."""
    variables = {name: os.environ.get(f"{PREFIX}{name.upper()}") for name in Settings.model_fields}
    return {
        "{field} in pyproject.toml [tool.heedful]": _table("pyproject.toml", "tool", "heedful"),
        "{field} in heedful.toml": _table("heedful.toml"),
        f"{PREFIX}{{FIELD}} in the environment": {k: v for k, v in variables.items() if v},
        "--{option}": {name: value for name, value in options.items() if value is not None},
    }


def _place(field: str, places: Mapping[str, Mapping[str, Any]]) -> str:
    place = [place for place, values in places.items() if field in values][-1]
    return place.format(field=field, FIELD=field.upper(), option=field.replace("_", "-"))


def _problem(field: str, error: Any, places: Mapping[str, Mapping[str, Any]]) -> str:
    where = _place(field, places)
    if error["type"] == "extra_forbidden":
        return f"{where}: no setting is called so; there are: {', '.join(Settings.model_fields)}"
    said = error["msg"].replace("Input should be", "it must be")
    said = said.replace("String should have", "it must have")
    if field == "policy":
        said = f"it must be a policy as text of 1 to {LONGEST} characters, or a table"
    given = repr(shown(value) if isinstance(value := error["input"], str) else value)
    given = given if len(given) <= SHOWN else f"{given[: SHOWN - 1]}…"
    return f"{where} is {given}; {said[:1].lower()}{said[1:]}"


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
