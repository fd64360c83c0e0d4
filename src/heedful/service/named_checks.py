"""The checks that a request may name: text checks, and those that the operator allows.

A JSON Schema is bounded by its number of parts, however often they refer to each other.
"""

from __future__ import annotations

import json
from asyncio import Semaphore
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import iscoroutine
from typing import Any, ClassVar
from urllib.parse import unquote

from heedful.checks.evaluate import threaded
from heedful.checks.loading import load, made
from heedful.errors import InvalidInput, ModelUnavailable, UnknownName
from heedful.service.setup import Setup

# Parts of one schema; to look at so many takes a second.
LARGEST = 5_000
DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Python's `re` may need for ever; the check `regex` bounds it, a schema cannot. What is looked at
# more than once for one value takes time that grows with its square, or doubles with each level.
UNBOUNDED = ("patternProperties", "unevaluatedItems", "unevaluatedProperties")
# As these where they are keywords: a property that is called so has an object.
PLAIN = ("pattern", "uniqueItems")
# What lets a reference mean another place than the one that is counted here.
ELSEWHERE = ("$id", "$dynamicRef", "$recursiveRef", "$schema")
TEXT_COST = 64  # characters that take as long as a value


def parts_of(output: Any) -> int:
    """Estimate the number of values in data, or in a text that may be JSON."""
    if isinstance(output, str):
        return 1 + len(output) // TEXT_COST + sum(map(output.count, ",:[{"))
    return 1 + sum(map(parts_of, _inside(output)))


def parts_of_schema(schema: Any) -> int:
    """Count the parts of a schema that may judge one value; a definition counts at each `$ref`.

    Raises InvalidInput for more than `LARGEST`, which includes a schema that refers to itself, and
    for keywords whose time has no bound.
    """
    root = schema
    if isinstance(schema, Mapping) and schema.get("$schema") == DIALECT:
        root = {name: value for name, value in schema.items() if name != "$schema"}
    return _Parts(root).of(root)


class _Parts:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[str, int] = {}

    def of(self, one: Any) -> int:
        """Count the parts of a part of the schema."""
        number = 1 + sum(map(self.of, _inside(one)))
        if isinstance(one, Mapping):
            _refuse(one)
            if isinstance(named := one.get("$ref"), str):
                number += self._referred(named)
        if number > LARGEST:
            raise _wrong("parts", f"over {LARGEST}", f"at most {LARGEST}, references followed")
        return number

    def _referred(self, name: str) -> int:
        if name not in self._known:
            self._known[name] = LARGEST  # while it is being counted: it refers to itself
            self._known[name] = self.of(_at(self._root, name))
        return self._known[name]


def _inside(one: Any) -> Iterable[Any]:
    return one.values() if isinstance(one, Mapping) else one if isinstance(one, list) else ()


def _refuse(one: Mapping[str, Any]) -> None:
    """Check that a part has only keywords with bounded time. Raises InvalidInput."""
    keywords = {name for name in one if not isinstance(one[name], Mapping)}
    for name in (*(n for n in UNBOUNDED if n in one), *keywords.intersection(PLAIN)):
        raise _wrong(name, "given", "left out: it may run for ever; use the check regex")
    for name in keywords.intersection(ELSEWHERE):
        raise _wrong(name, "given", f"left out: the schema is one of {DIALECT}, in one piece")
    if one.get("format") == "regex":
        raise _wrong("format", "regex", "another one: a pattern may take for ever to read")


def _at(root: Any, name: str) -> Any:
    """Return the part that a reference names (RFC 6901). Raises InvalidInput."""
    found = root
    try:
        if name[:1] != "#" or name[1:2] not in ("", "/"):
            raise KeyError(name)
        for step in unquote(name[1:]).split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            found = found[int(key) if isinstance(found, list) else key]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise _wrong("$ref", name, "a place inside the schema, as #/$defs/name") from error
    return found


def _wrong(what: str, value: str, allowed: str) -> InvalidInput:
    return InvalidInput(f"{what} of check 'json_schema'", value, allowed)


Spec = Mapping[str, Any]
Check = Callable[..., Any]
# They run no code, read no file and no network, and end soon whatever they are given.
TEXT = ("characters", "contains", "equals", "excludes", "not_empty", "regex", "words")
CRITICS = ("critic", "critics")
SCHEMA = "json_schema"
# Characters of all checks of a request, as JSON.
LONGEST_TEXT = 64 * 1024
# Parts of a schema times parts of what it judges, each pair 5 µs at most (2 cores of 2026).
MOST = 1_000_000
# Critics of one report: each asks the model.
ASKED = 16


def load_checks(specs: Sequence[Spec], setup: Setup, output: Any) -> list[Check]:
    """Return the named checks for an output; a check of the setup goes before one of heedful.

    Critics ask the service's own model. This takes tenths of a second. Raises UnknownName for a
    check that is not allowed, InvalidInput, ModelUnavailable.
    """
    if (length := len(json.dumps(specs))) > LONGEST_TEXT:
        raise InvalidInput("checks", f"{length} characters", f"at most {LONGEST_TEXT} as JSON")
    asked = sum(_asked(spec) for spec in specs if spec["name"] in CRITICS)
    if asked > ASKED:
        raise InvalidInput("critics of a report", asked, f"at most {ASKED}")
    return [_check(spec, setup, output) for spec in specs]


def _asked(spec: Spec) -> int:
    members = spec.get("members")
    return len(members) if isinstance(members, list) else 1


def _check(spec: Spec, setup: Setup, output: Any) -> Check:
    name = spec["name"]
    if name in setup.checks:
        given = {key: value for key, value in spec.items() if key != "name"}
        return made(name, setup.checks[name], given)
    if name in TEXT:
        return _Aside(load(spec), setup.turns)
    if name == SCHEMA:
        parts = parts_of_schema(spec.get("schema")) * parts_of(output)
        if parts > MOST:
            allowed = f"at most {MOST}: a smaller schema, or a smaller output"
            raise InvalidInput(
                f"parts of schema times parts of output of {SCHEMA!r}", parts, allowed
            )
        return _Aside(load(spec), setup.turns)
    if name in CRITICS:
        return load(_judged(spec, setup))
    raise UnknownName("check", name, sorted({*TEXT, SCHEMA, *CRITICS, *setup.checks}))


class _Aside:
    """The same check, run in a thread so that other requests are answered meanwhile.

    A check that waits for a process first waits for its turn.
    """

    pure: ClassVar[bool] = False

    def __init__(self, check: Check, turns: Semaphore) -> None:
        self._check = check
        self._turns = turns

    async def __call__(self, candidate: Any, context: Any) -> Any:
        """Return what the check finds."""
        found = await threaded(self._check, candidate, context)
        if not iscoroutine(found):
            return found
        try:
            async with self._turns:
                return await found
        finally:
            found.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._check, name)


def _judged(spec: Spec, setup: Setup) -> Spec:
    """Return the critic with the model of the service; a request cannot name a model."""
    judge = setup.model or setup.embedder
    if judge is None:
        raise ModelUnavailable("this service has no model, so no critic can judge")
    if "members" in spec:
        members = spec["members"]
        listed = members if isinstance(members, list) else []
        own = [_judged(one, setup) if isinstance(one, Mapping) else one for one in listed]
        return {**spec, "members": own or members}
    if "model" in spec:
        raise InvalidInput("model of a critic", spec["model"], "left out: the service has its own")
    return {**spec, "model": judge}
