"""The one place that calls code of the user's, and turns whatever it raises into a typed error.

Checks and an evaluator over one candidate -> an Evaluation.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from heedful import telemetry
from heedful.errors import (
    CheckFailed,
    GenerateFailed,
    HeedfulError,
    ModelError,
    UsageError,
    UserCodeError,
)
from heedful.lessons.lesson import Match
from heedful.loop.record import NOTHING, Evaluation, Finding, Goal
from heedful.loop.stop import rule_name
from heedful.models.contract import Message
from heedful.redact import redact


@dataclass(frozen=True, slots=True)
class Context:
    """Where a candidate stands: what a check, an evaluator or a generator may want to know.

    `attempt` counts from 1. `hint` is the feedback on the attempt before, "" at the first.
    `previous` is the candidate before this one, None at the first. `data` is the task's own
    context, whatever the caller gave. `temperature` and `seed` are what a sampling generator should
    use now. `examples` are recalled worked examples as chat turns (user: task, assistant: accepted
    output), `advice` recalled lessons without an output. `began` is when the loop did, in seconds
    since 1970.
    """

    task: Any
    attempt: int = 1
    loop_id: str = ""
    hint: str = ""
    previous: Any = None
    data: Any = None
    temperature: float = 0.0
    seed: int = 0
    examples: tuple[Message, ...] = ()
    advice: tuple[Match, ...] = ()
    began: float = 0.0


_context: ContextVar[Context] = ContextVar("heedful_context")


def context() -> Context:
    """Where the attempt stands that this code is called for. Raises LookupError outside of one."""
    return _context.get()


async def call(
    failed: Callable[[BaseException], UserCodeError],
    function: Callable[..., Any],
    *arguments: Any,
    at: Context,
    thread: bool = False,
) -> Any:
    """What `function` returns, awaited where it is awaitable.

    `failed` makes the error for an exception of the function's; errors of heedful pass as they are.
    With `thread` it runs in a worker thread, so that a blocking function holds up nobody. An
    iterator, as of a generator function, is read to its end here, where its errors are caught.
    """
    token = _context.set(at)
    try:
        if thread:
            value = await threaded(_called, function, *arguments)
        else:
            value = _called(function, *arguments)
        if hasattr(value, "__await__"):
            value = _read(await value)
    except HeedfulError:
        raise
    except Exception as error:  # user code
        raise failed(error) from error
    finally:
        _context.reset(token)
    return value


async def threaded(function: Callable[..., Any], *arguments: Any) -> Any:
    """What it returns, called in a thread; a coroutine that nobody waits for any more is closed."""
    asked = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(asked)
    except asyncio.CancelledError:
        asked.add_done_callback(_let_go)
        raise


def _let_go(asked: asyncio.Future[Any]) -> None:
    if not asked.cancelled() and asked.exception() is None and inspect.iscoroutine(asked.result()):
        asked.result().close()


def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return _read(function(*arguments))
    except StopIteration as error:  # no future can hold one: who waits for it would wait forever
        raise RuntimeError("StopIteration") from error


def _read(value: Any) -> Any:
    return list(value) if isinstance(value, Iterator) else value


def blocking(function: Callable[..., Any]) -> bool:
    """Whether calling it would hold up the event loop: a plain function does."""
    target = function if inspect.isroutine(function) else type(function).__call__
    asynchronous = any(map(inspect.iscoroutinefunction, (function, target)))
    return not (asynchronous or getattr(function, "is_async", False))


# A check that scores, too, answers with an Evaluation: in a task file there is no other place.
Judged = Iterable[Finding] | Evaluation
Check = Callable[[Any, Context], Judged | Awaitable[Judged]]
Evaluate = Callable[[Any, Context], "Evaluation | Awaitable[Evaluation]"]
# The finding that stands for a check that raised, by its name.
Instead = Callable[[str, CheckFailed | ModelError], Finding]
# What the next attempt reads about this one: `heedful.loop.feedback.feedback` says it by default.
Feedback = Callable[[Evaluation, tuple[Goal, ...]], "str | Awaitable[str]"]
EMPTY = Finding(
    "answer",
    "the answer is empty",
    "Answer with the result itself",
    severity=1.0,
    key="answer: empty",
)


def pure(checks: Sequence[Check], evaluate: Evaluate | None) -> bool:
    """Whether evaluating again costs nothing: every check says so of itself (`pure = True`)."""
    every = (*checks, evaluate) if evaluate is not None else checks
    return all(getattr(check, "pure", False) for check in every)


async def evaluated(
    candidate: Any,
    at: Context,
    checks: Sequence[Check],
    evaluate: Evaluate | None,
    instead: Instead | None = None,
    tries: int = 2,
) -> Evaluation:
    """The findings and scores of all checks, in order, and the evaluator's own after them.

    One that raises is asked once more about the same candidate, `tries` times in all. A plain
    function that does not say it is pure runs in a thread: it may take its time. An empty answer
    meets nothing of what is asked. Raises CheckFailed, or what the model of a judge raised, unless
    the finding of `instead(check, error)` is to stand in its place.
    """
    findings: list[Finding] = []
    scores: dict[str, float] = {}
    usage, preference, asked, met = NOTHING, 0.0, 0, 0.0
    empty = isinstance(candidate, str) and not candidate.strip()
    for check in checks if evaluate is None else (*checks, evaluate):
        try:
            found = await _asked(check, candidate, at, tries)
            if check is evaluate and not isinstance(found, Evaluation):
                raise _wrong(check, found, "an Evaluation")
            listed = _findings(check, found)
            asks = _asks(check) if hasattr(check, "asks") else 1
        except (CheckFailed, ModelError) as error:
            if instead is None:
                raise
            findings.append(_safe(instead(check_name(check), error)))
            continue
        findings += listed
        if isinstance(found, Evaluation):
            scores |= found.scores
            usage += found.usage
            preference += found.preference
        if isinstance(found, Evaluation):
            share = found.met
        else:
            share = _share(check, listed, asks) if listed else 1.0
        if share is not None:
            asked, met = asked + asks, met + asks * share
    if empty and EMPTY not in findings:  # an evaluator that evaluates so has said it
        findings.insert(0, EMPTY)
    share = (0.0 if empty else met / asked) if asked else None
    return Evaluation(tuple(findings), scores, usage, preference, share)


async def worded(
    feedback: Feedback, evaluation: Evaluation, goals: tuple[Goal, ...], at: Context
) -> str:
    """What the user's own feedback says, without secrets. Raises GenerateFailed."""
    said = await call(_unworded, feedback, evaluation, goals, at=at, thread=blocking(feedback))
    if not isinstance(said, str):
        raise _unworded(TypeError(f"it returned {type(said).__name__}; it has to return text"))
    return redact(said)


def _unworded(error: BaseException) -> GenerateFailed:
    what = redact(str(error))[:300]
    return GenerateFailed(f"feedback raised {type(error).__name__}: {what}; mend it and run again")


def _share(check: Any, findings: Sequence[Finding], asks: int) -> float:
    """How much of what a check asks is met: as its `share(findings)` says, or what has no error."""
    if hasattr(check, "share"):
        said: float = check.share(findings)
        return said
    return max(0.0, 1 - sum(finding.level == "error" for finding in findings) / asks)


def _asks(check: Any) -> int:
    """Of how many things one check asks whether they are met; one that asks several says `asks`."""
    asks = getattr(check, "asks", 1)
    if not isinstance(asks, int) or isinstance(asks, bool) or asks < 1:
        said = f"its `asks` is {asks!r}; it has to be an integer of at least 1"
        raise CheckFailed(rule_name(check), ValueError(said))
    return asks


def check_name(check: Callable[..., Any]) -> str:
    """The name under which a check is recorded."""
    return rule_name(check)


@telemetry.check
async def _asked(check: Callable[..., Any], candidate: Any, at: Context, tries: int) -> Any:
    failed = partial(CheckFailed, rule_name(check))
    thread = not getattr(check, "pure", False) and blocking(check)
    for _ in range(tries - 1):
        with suppress(CheckFailed, ModelError, UsageError):
            return await call(failed, check, candidate, at, at=at, thread=thread)
    try:
        return await call(failed, check, candidate, at, at=at, thread=thread)
    except UsageError as error:  # a Finding made with a wrong severity, say
        raise failed(error) from error


def _findings(check: Check | Evaluate, found: Any) -> list[Finding]:
    if isinstance(found, Evaluation):
        found = found.findings
    if found is None or isinstance(found, str | bytes) or not isinstance(found, Iterable):
        raise _wrong(check, found, "an iterable of Finding, empty where all is well")
    findings = list(found)
    for finding in findings:
        if not isinstance(finding, Finding):
            raise _wrong(check, finding, "Finding objects")
    return [_safe(finding) for finding in findings]


def _safe(finding: Finding) -> Finding:
    """The finding without secrets, before anything shortens it and cuts a secret in two."""
    texts = (finding.check, finding.message, finding.fix, finding.evidence, finding.key)
    check, message, fix, evidence, key = clean = tuple(t and redact(t) for t in texts)
    if clean == texts:
        return finding
    return replace(finding, check=check, message=message, fix=fix, evidence=evidence, key=key)


def _wrong(check: Callable[..., Any], value: object, expected: str) -> CheckFailed:
    error = TypeError(f"it returned {type(value).__name__}; it has to return {expected}")
    return CheckFailed(rule_name(check), error)
