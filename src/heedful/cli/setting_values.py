"""The values that each setting may have, as types that pydantic checks.

pydantic takes half of the time of a small command to import, so this module is imported
only if an option, the environment or a file states a setting.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    Json,
    TypeAdapter,
    ValidationError,
)

from heedful.cli.settings import NO_MODEL, SETTINGS_MIB_BYTES, shown_model
from heedful.faults import fault_text
from heedful.loop.ladder import MAX_RUNGS
from heedful.store import shown
from heedful.validation import MAX_SCORE

MAX_POLICY_CHARS = 1000
POLICY_SETTING_FORMS = (
    f"it must be a policy as text of 1 to {MAX_POLICY_CHARS} characters, or a table"
)
# The variable that pydantic reads before it looks for plugins.
PLUGIN_SWITCH = "PYDANTIC_DISABLE_PLUGINS"
MAX_WRONG_VALUE_CHARS = 120

# Values of settings: a name, and a longer text.
Name = Annotated[str, Field(min_length=1, max_length=200)]
ANY_CASE = BeforeValidator(lambda text: text.lower() if isinstance(text, str) else text)
Written = Annotated[str, Field(min_length=1, max_length=MAX_POLICY_CHARS)]
BytesLimit = Annotated[int, Field(ge=1024, le=1024 * SETTINGS_MIB_BYTES)]


def _check_models(text: str) -> str:
    """Raise ValueError unless each part of the text can name another model."""
    from heedful.validation import MAX_NAME_CHARS  # slow to import

    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ValueError("it must have a name on each side of a comma")
    if max(map(len, names)) > MAX_NAME_CHARS:
        longest = f"it must have at most {MAX_NAME_CHARS} characters a name"
        raise ValueError(longest)
    for place, name in enumerate(names):
        if name in names[:place]:
            model = shown_model(name)
            message = f"it names {model} twice; the same model fails again"
            raise ValueError(message)
    if NO_MODEL in names and len(names) > 1:
        raise ValueError(f"{NO_MODEL} is no model; remove it or the others")
    if len(names) > MAX_RUNGS:
        raise ValueError(f"it must be at most {MAX_RUNGS} models")
    return text


def _check_prices(text: str | None) -> str | None:
    """Raise ValueError unless each part of the text is a price."""
    for part in (text or "0").split(","):
        try:
            is_price = 0 <= float(part) <= MAX_SCORE
        except ValueError:
            is_price = False
        if not is_price:
            allowed = "the cost of a token for each model, such as 0,0.00001"
            raise ValueError(f"{part.strip()!r} must be {allowed}")
    return text


def _check_judge(name: str) -> str:
    """Raise ValueError if the judge is a list of models."""
    first, comma, _ = name.partition(",")
    if comma:
        raise ValueError(f"one model judges; name it, for instance {first}")
    return name


ModelNames = Annotated[Written, AfterValidator(_check_models)]
Prices = Annotated[Written | None, AfterValidator(_check_prices)]
JudgeName = Annotated[Name, AfterValidator(_check_judge)]

# A table is JSON in a variable of the environment.
Table = dict[str, Any] | Json[dict[str, Any]]
# Names of sources, or a table of sources and words of earlier versions.
TrustNames = tuple[Name, ...] | Json[tuple[Name, ...]]
CheckTable = dict[Name, dict[str, Any]] | Json[dict[Name, dict[str, Any]]]
PinTable = dict[Name, list[Name]] | Json[dict[Name, list[Name]]]


def check_settings(
    stated: Mapping[str, Any], types: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values of the settings that are stated, and the problem of each wrong
    one in words, to follow its place.

    Each is checked by itself: a model of all settings would take 40 ms to build.
    """
    values: dict[str, Any] = {}
    problems: dict[str, str] = {}
    with _without_plugins():
        for name in filter(stated.__contains__, types):
            try:
                values[name] = TypeAdapter(types[name]).validate_python(stated[name])
            except ValidationError as error:
                problems[name] = _describe_problem(name, error.errors()[0])
    return values, problems


@contextmanager
def _without_plugins() -> Iterator[None]:
    """Let no plugin of pydantic see what is checked: settings may have secrets.

    To look for plugins, pydantic would read the files of every installed package.
    """
    before = os.environ.get(PLUGIN_SWITCH)
    os.environ[PLUGIN_SWITCH] = "__all__"
    try:
        yield
    finally:
        del os.environ[PLUGIN_SWITCH]
        if before is not None:
            os.environ[PLUGIN_SWITCH] = before


def _describe_problem(name: str, detail: Any) -> str:
    """Return the first problem of a wrong setting in words, to follow its place."""
    # The first part of the place is pydantic's name of a type, not a key.
    keys_inside = "".join(f": {key!r}" for key in detail["loc"][1:])
    allowed = POLICY_SETTING_FORMS if name == "policy" else ""
    return f"{keys_inside} is {wrong_value(detail, allowed)}"


def wrong_value(error: Any, allowed: str = "") -> str:
    """Return the wrong value of an error of pydantic, and what is allowed instead.

    Without `allowed`, the kind of the error says it.
    """
    value = error["input"]
    if isinstance(value, str):
        value = shown(value)  # a URL without its password

    value_text = repr(value)
    if len(value_text) > MAX_WRONG_VALUE_CHARS:
        value_text = f"{value_text[: MAX_WRONG_VALUE_CHARS - 1]}…"

    return f"{value_text}; {allowed or fault_text(error)}"
