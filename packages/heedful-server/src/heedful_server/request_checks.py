"""Load the checks that a request names, and run them so that no request waits for them.

A request may name checks of its own text and data, critics, and checks that the
operator allows. Checks that end soon for any input run in a thread. Checks that may
take long run in a process that is killed when their time is over. Critics ask the judge
of the service.
"""

import asyncio
import json
from asyncio import Semaphore
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from anyio import BrokenWorkerProcess, to_process

from heedful import checks
from heedful.checks import known, loading
from heedful.errors import InvalidInput, ModelUnavailable, UnknownName, UsageError
from heedful.loop.record import Finding
from heedful.loop.stop import check_names
from heedful.store.offload import MAX_INLINE_CHARS
from heedful.validation import require
from heedful_server import schemas
from heedful_server.setup import Setup

Spec = Mapping[str, Any]
Check = Callable[..., Any]
# A check in a process has `CHECK_START_SECONDS` to start and to make the check, and
# `CHECK_TIMEOUT_SECONDS` to judge an output.
CHECK_TIMEOUT_SECONDS = 5.0
CHECK_START_SECONDS = 30.0
# Arguments of these checks that may be data; a text would be the path of a file.
DATA_ARGUMENTS = ("source", "results")
# The most critics in one report; each of them calls the model.
MAX_REPORT_CRITICS = 16


async def load_checks(specs: Sequence[Spec], setup: Setup) -> list[Check]:
    """Return the checks that `specs` name, of `setup.checks` or else of heedful.

    Raises UnknownName for a check that is not allowed, UsageError also for arguments of
    a check in `setup.checks`, ModelUnavailable.
    """
    length = len(json.dumps(specs))
    if length > MAX_INLINE_CHARS:
        raise InvalidInput(
            "checks", f"{length} characters", f"at most {MAX_INLINE_CHARS} as JSON"
        )

    critics = 0
    for spec in specs:
        if _place(spec["name"]) == "judge":
            members = schemas.inside(spec.get("members"))
            critics += max(1, len(members))
    require(
        critics <= MAX_REPORT_CRITICS,
        "critics of a report",
        critics,
        f"at most {MAX_REPORT_CRITICS}",
    )

    return [await _load(spec, setup) for spec in specs]


async def _load(spec: Spec, setup: Setup) -> Check:
    """Return the check that `spec` names; raises the errors of `load_checks`."""
    name = spec["name"]
    if name in setup.checks:
        arguments = {key: value for key, value in spec.items() if key != "name"}
        require(
            not arguments,
            f"check {name!r}",
            arguments,
            "without arguments: the operator set them",
        )
        return setup.checks[name]

    place = _place(name)
    if place == "judge":
        return await asyncio.to_thread(loading.load, _with_own_model(spec, setup))
    if place == "process":
        return await _load_slow_check(spec, setup)
    if place == "thread":
        return _ThreadCheck(await asyncio.to_thread(loading.load, spec))

    raise UnknownName("check", name, sorted({*filter(_place, known()), *setup.checks}))


def _place(name: str) -> str:
    """Return where a check of heedful runs (see `over_http`); "" for any other name."""
    return getattr(getattr(checks, name), "over_http", "") if name in known() else ""


async def _load_slow_check(spec: Spec, setup: Setup) -> Check:
    """Return a check that runs in a process, after a process could make it once.

    Raises InvalidInput, UsageError.
    """
    name = spec["name"]
    for argument in DATA_ARGUMENTS:
        if isinstance(spec.get(argument), str):
            raise InvalidInput(
                f"{argument} of check {name!r}",
                spec[argument],
                "data or left out: it is no path",
            )

    check = _ProcessCheck(name=name, spec=spec, turns=setup.turns)
    try:
        refusal, names = await check.run(CHECK_START_SECONDS, _try_to_load)
    except TimeoutError as error:
        raise InvalidInput(f"check {name!r}", "too complex", "simpler") from error

    if refusal:
        raise UsageError(refusal)
    return replace(check, names=names)


def _with_own_model(spec: Any, setup: Setup) -> Any:
    """Add the judge of the service to a critic, which may not name a model."""
    if not isinstance(spec, Mapping):
        return spec
    if setup.judge is None:
        raise ModelUnavailable(
            "this service has no judge, so no critic can judge; "
            "set HEEDFUL_JUDGE to a model, or send an evaluation"
        )

    members = spec.get("members")
    if isinstance(members, list):
        critics = [_with_own_model(member, setup) for member in members]
        return {**spec, "members": critics}

    if "model" in spec:
        raise InvalidInput(
            "model of a critic", spec["model"], "left out: the service has a judge"
        )
    return {**spec, "model": setup.judge}


class _ThreadCheck:
    """Runs a check in a thread."""

    pure: ClassVar[bool] = False

    def __init__(self, check: Check) -> None:
        self._check = check

    async def __call__(self, candidate: Any, context: Any) -> Any:
        return await asyncio.to_thread(self._check, candidate, context)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._check, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProcessCheck:
    """Runs a check in a process that is killed if it is slow.

    It first acquires `turns`. `names` are the names under which the check reports.
    """

    name: str
    spec: Spec
    turns: Semaphore
    names: tuple[str, ...] = ()

    async def __call__(self, candidate: Any, context: Any) -> Any:
        try:
            return await self.run(CHECK_TIMEOUT_SECONDS, _findings, candidate, context)
        except TimeoutError:
            return Finding(
                self.name,
                f"{self.name} did not end within {CHECK_TIMEOUT_SECONDS:g} s",
                fix="Answer with less.",
                key=f"{self.name} time-out",
            )

    async def run(
        self, seconds: float, function: Callable[..., Any], *arguments: Any
    ) -> Any:
        """Return the value of `function(spec, …)`. Raises TimeoutError."""
        run = partial(
            to_process.run_sync, function, self.spec, *arguments, cancellable=True
        )
        async with self.turns, asyncio.timeout(seconds):
            while True:
                # A process that was killed is replaced by another.
                with suppress(BrokenWorkerProcess):
                    return await run()


def _try_to_load(spec: Spec) -> tuple[str, tuple[str, ...]]:
    """Return why a check cannot be made, or "" and the names of its reports."""
    try:
        return "", check_names([loading.load(spec)])
    except UsageError as error:
        return str(error), ()


def _findings(spec: Spec, candidate: Any, context: Any) -> Any:
    """Make a check and return what it says of a candidate; runs in a process."""
    return loading.load(spec)(candidate, context)
