"""Checks that a request names: those that read nothing but text, and what the operator allows."""

from __future__ import annotations

import json
from asyncio import Semaphore
from collections.abc import Callable, Mapping, Sequence
from inspect import iscoroutine
from typing import Any, ClassVar

from heedful.checks.loading import load, made
from heedful.errors import InvalidInput, ModelUnavailable, UnknownName
from heedful.http.bounded import parts_of, parts_of_schema
from heedful.http.setup import Setup
from heedful.usercode import threaded

Spec = Mapping[str, Any]
Check = Callable[..., Any]

# They run no code, read no file and no network, and end soon whatever they are given.
TEXT = ("characters", "contains", "equals", "excludes", "not_empty", "regex", "words")
CRITICS = ("critic", "critics")
SCHEMA = "json_schema"
# Characters of all checks of a request, as JSON.
LONGEST = 64 * 1024
# Parts of a schema times parts of what it judges, each pair 5 µs at most (2 cores of 2026).
MOST = 1_000_000
# Critics of one report: each asks the model.
ASKED = 16


def named(specs: Sequence[Spec], setup: Setup, output: Any) -> list[Check]:
    """The checks of an output that are named: what the setup has goes before what heedful has.

    Critics ask the service's own model. Takes tenths of a second. Raises UnknownName for what is
    not allowed, InvalidInput, ModelUnavailable.
    """
    if (length := len(json.dumps(specs))) > LONGEST:
        raise InvalidInput("checks", f"{length} characters", f"at most {LONGEST} as JSON")
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
    """The same check, run in a thread: other requests are answered meanwhile.

    One that answers with a coroutine, to wait for a process, waits for its turn before.
    """

    pure: ClassVar[bool] = False

    def __init__(self, check: Check, turns: Semaphore) -> None:
        self._check = check
        self._turns = turns

    async def __call__(self, candidate: Any, context: Any) -> Any:
        """What the check finds."""
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
