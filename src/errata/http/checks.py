"""Checks that a request names: those that read nothing but text, and what the operator allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from errata.checks.loading import load, made
from errata.errors import InvalidInput, ModelUnavailable, UnknownName
from errata.http.setup import Setup

Spec = Mapping[str, Any]

# They run no code, read no file and no network, and end soon whatever they are given.
TEXT = ("characters", "contains", "equals", "excludes", "not_empty", "regex", "words")
CRITICS = ("critic", "critics")
SCHEMA = "json_schema"
# Python's `re` may need for ever; the check `regex` bounds it, a schema cannot.
UNBOUNDED = ("pattern", "patternProperties")


def named(specs: Sequence[Spec], setup: Setup) -> list[Any]:
    """The checks that are named: what the setup has goes before what comes with errata.

    Critics ask the service's own model. Raises UnknownName for what is not allowed, InvalidInput,
    ModelUnavailable.
    """
    return [_check(spec, setup) for spec in specs]


def _check(spec: Spec, setup: Setup) -> Any:
    name = spec["name"]
    if name in setup.checks:
        given = {key: value for key, value in spec.items() if key != "name"}
        return made(name, setup.checks[name], given)
    if name in TEXT:
        return load(spec)
    if name == SCHEMA:
        if found := next(_unbounded(spec.get("schema")), None):
            allowed = "left out: it may take for ever; use the check regex"
            raise InvalidInput(f"{found} of check {SCHEMA!r}", "given", allowed)
        return load(spec)
    if name in CRITICS:
        return load(_judged(spec, setup))
    raise UnknownName("check", name, sorted({*TEXT, SCHEMA, *CRITICS, *setup.checks}))


def _unbounded(schema: Any) -> Iterator[str]:
    match schema:
        case Mapping():
            yield from (key for key in UNBOUNDED if key in schema)
            for value in schema.values():
                yield from _unbounded(value)
        case list():
            for value in schema:
                yield from _unbounded(value)
        case _:
            pass


def _judged(spec: Spec, setup: Setup) -> Spec:
    """The critic with the model of the service; a request names none."""
    judge = setup.model or setup.embedder
    if judge is None:
        raise ModelUnavailable("this service has no model, so that no critic can judge")
    if "members" in spec:
        members = spec["members"]
        listed = members if isinstance(members, list) else []
        own = [_judged(one, setup) if isinstance(one, Mapping) else one for one in listed]
        return {**spec, "members": own or members}
    if "model" in spec:
        raise InvalidInput("model of a critic", spec["model"], "left out: the service has its own")
    return {**spec, "model": judge}
