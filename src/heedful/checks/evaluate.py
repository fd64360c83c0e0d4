"""Call functions of the user, such as checks and evaluators, and judge one candidate by
them.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

from heedful import errors
from heedful.errors import UserCode
from heedful.lessons.lesson import Match
from heedful.loop.record import NO_USAGE, Evaluation, Finding, Goal
from heedful.loop.stop import rule_name
from heedful.models.contract import Message
from heedful.redact import redact


@dataclass(frozen=True, slots=True)
class Context:
    """The attempt in which a check, an evaluator or a generator is called.

    `attempt` counts from 1. `hint` is the feedback on the previous attempt ("" in
    attempt 1), `previous` the candidate of that attempt (None in attempt 1). `data` is
    the context that the caller passed with the task. A generator that samples should
    use `temperature` and `seed`. `examples` are recalled examples as chat turns (user:
    task, assistant: accepted output), `advice` recalled lessons without an output.
    `began` is the loop's start in seconds since 1970.
    """

    task: Any
    attempt: int = 1
    _: KW_ONLY
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
    """Return the context of the running attempt. Raises LookupError outside an
    attempt.
    """
    return _context.get()


async def call(
    failed: Callable[[BaseException], errors.UserCodeError],
    function: Callable[..., Any],
    *arguments: Any,
    at: Context,
    thread: bool = False,
) -> Any:
    """Call a function of the user and return its value; await the value if it is
    awaitable.

    `failed` turns an exception of the function into the error to raise; errors of
    heedful pass unchanged. With `thread` the function runs in a worker thread, so it
    does not block the event loop. An iterator is returned as a list. In the function,
    `context()` returns `at`.
    """
    token = _context.set(at)
    try:
        with UserCode(failed):
            if thread:
                value = await asyncio.to_thread(_called, function, *arguments)
            else:
                value = _called(function, *arguments)
            return _read(await value) if hasattr(value, "__await__") else value
    finally:
        _context.reset(token)


def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return _read(function(*arguments))
    except (
        StopIteration
    ) as error:  # a future cannot hold it; the caller would wait forever
        raise RuntimeError("StopIteration") from error


def _read(value: Any) -> Any:
    return list(value) if isinstance(value, Iterator) else value


def takes(function: Callable[..., Any], count: int) -> bool:
    """Return True if `function` can be called with `count` positional arguments."""
    own = getattr(function, "__code__", None)
    code = own or getattr(type(function).__call__, "__code__", None)
    if code and not hasattr(
        function, "__wrapped__"
    ):  # a tenth of the time of a signature
        given = count + (own is None or hasattr(function, "__self__"))
        return bool(given <= code.co_argcount or code.co_flags & inspect.CO_VARARGS)
    try:
        inspect.signature(function).bind_partial(*range(count))
    except TypeError:
        return False
    except ValueError:  # some functions written in C have no signature
        pass
    return True


def blocking(function: Callable[..., Any]) -> bool:
    """Return True if a function is not async, so that calling it blocks the event
    loop.
    """
    target = function if inspect.isroutine(function) else type(function).__call__
    asynchronous = any(map(inspect.iscoroutinefunction, (function, target)))
    return not (asynchronous or getattr(function, "is_async", False))


# A check returns an Evaluation if it also gives scores: a task file names checks only.
# A text is what is wrong, False that something is wrong; True, None and an empty text
# are no finding.
Judged = Iterable[Finding | str] | Evaluation | Finding | str | bool | None
Check = Callable[
    ..., Judged | Awaitable[Judged]
]  # (candidate, context), or only (candidate)
Evaluate = Callable[[Any, Context], "Evaluation | Awaitable[Evaluation]"]
# Returns a finding for a check that raised; called with the name of the check and the
# error.
Instead = Callable[[str, errors.CheckFailed | errors.ModelError], Finding]
# Writes the feedback for the next attempt; by default `heedful.loop.record.feedback`.
Feedback = Callable[[Evaluation, tuple[Goal, ...]], "str | Awaitable[str]"]
_FINDING_TEXT_FIELDS = ("check", "message", "fix", "evidence", "key")
_texts = attrgetter(*_FINDING_TEXT_FIELDS)
_CHECK_ANSWER_FORMS = (
    "Finding objects or texts, True or False; to give a score, an Evaluation"
)
_EMPTY_ANSWER_MESSAGE = "the answer is empty"
_EMPTY_ANSWER_FIX = "Answer with the result itself"
EMPTY_ANSWER_FINDING = Finding(
    "answer",
    _EMPTY_ANSWER_MESSAGE,
    fix=_EMPTY_ANSWER_FIX,
    severity=1.0,
    key="answer: empty",
)


def pure(checks: Sequence[Check], evaluate: Evaluate | None) -> bool:
    """Return True if all checks and the evaluator declare `pure = True`: cheap and
    repeatable.
    """
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
    """Judge the candidate with all checks, in order, then with the evaluator.

    A check that raises is called again, up to `tries` calls in all. If the last call
    raises too, the finding is `instead(name of the check, error)`; without `instead`,
    CheckFailed or the ModelError of a judge is raised. Plain functions that are not
    declared pure run in a thread, because they may be slow. A check may also answer
    with text or False, or with an assertion that fails. An empty text is an error and
    passes no check (`met` is 0), whatever the checks return.
    """
    findings: list[Finding] = []
    scores: dict[str, float] = {}
    usage = NO_USAGE
    preference = 0.0
    asked = 0
    met = 0.0
    empty = isinstance(candidate, str) and not candidate.strip()
    for check in checks if evaluate is None else (*checks, evaluate):
        try:
            found = await _asked(check, candidate, at, tries)
            if check is evaluate and not isinstance(found, Evaluation):
                raise _wrong(
                    check,
                    found,
                    "an Evaluation, as Evaluation(scores={'quality': 0.8})",
                )
            listed = _findings(check, found)
            asks = _asks(check)
        except (errors.CheckFailed, errors.ModelError) as error:
            if instead is None:
                raise
            findings.append(_safe(instead(rule_name(check), error)))
            continue
        findings += listed
        if isinstance(found, Evaluation):
            scores |= found.scores
            usage += found.usage
            preference += found.preference
            share = found.met
        else:
            share = max(
                0.0, 1 - sum(finding.level == "error" for finding in listed) / asks
            )
        if share is not None:
            asked = asked + asks
            met = met + asks * share
    if (
        empty and EMPTY_ANSWER_FINDING not in findings
    ):  # an evaluator may have reported it
        findings.insert(0, EMPTY_ANSWER_FINDING)
    share = (0.0 if empty else met / asked) if asked else None
    return Evaluation(
        tuple(findings), scores, usage=usage, preference=preference, met=share
    )


async def worded(
    feedback: Feedback, evaluation: Evaluation, goals: tuple[Goal, ...], at: Context
) -> str:
    """Return what the user's function `feedback` writes, without secrets. Raises
    GenerateFailed.
    """

    def failed(error: BaseException) -> errors.GenerateFailed:
        what = f"{type(error).__name__}: {redact(str(error))[:300]}"
        return errors.GenerateFailed(
            f"feedback raised {what}; correct it and run again"
        )

    text = await call(
        failed, feedback, evaluation, goals, at=at, thread=blocking(feedback)
    )
    if not isinstance(text, str):
        raise failed(
            TypeError(f"it returned {type(text).__name__}; it has to return text")
        )
    return redact(text)


def _asks(check: Any) -> int:
    asks = getattr(check, "asks", 1)
    if not isinstance(asks, int) or isinstance(asks, bool) or asks < 1:
        why = f"its `asks` is {asks!r}; it has to be an integer of at least 1"
        raise errors.CheckFailed(rule_name(check), ValueError(why))
    return asks


async def _asked(
    check: Callable[..., Any], candidate: Any, at: Context, tries: int
) -> Any:
    failed = partial(errors.CheckFailed, rule_name(check))
    thread = not getattr(check, "pure", False) and blocking(check)
    arguments = (candidate, at)[: 1 + takes(check, 2)]
    while True:
        tries -= 1
        try:
            return await call(failed, check, *arguments, at=at, thread=thread)
        except (errors.CheckFailed, errors.ModelError) as error:
            if isinstance(error.__cause__, AssertionError):
                return str(error.__cause__) or False
            if not tries or getattr(
                error, "usage", None
            ):  # a judge has already asked twice
                raise
        except (
            errors.UsageError
        ) as error:  # for example a Finding with a wrong severity
            if not tries:
                raise failed(error) from error


def _findings(check: Check | Evaluate, found: Any) -> list[Finding]:
    if isinstance(found, Evaluation):
        found = found.findings
    elif getattr(found, "shape", None) == ():  # a truth value of numpy
        found = found.item()
    pair = isinstance(found, tuple) and list(map(type, found)) == [bool, str]
    found = (
        (found[0] or found[1] or False) if pair else found
    )  # (False, "what is wrong")
    if found is None or isinstance(found, bool | str | Finding):
        found = [found]
    if isinstance(found, Mapping) or not isinstance(found, Iterable):
        raise _wrong(check, found, _CHECK_ANSWER_FORMS)
    findings: list[Finding] = []
    for one in found:
        if one is False:
            said = (check.__doc__ or "").strip() if inspect.isroutine(check) else ""
            one = f"{rule_name(check)} does not hold"
            one = f"must hold: {said.splitlines()[0]}" if said else one
        if isinstance(one, str) and one:
            one = Finding(rule_name(check), one)
        if isinstance(one, Finding):
            findings.append(_safe(one))
        elif one is not None and one is not True and one != "":
            raise _wrong(check, one, _CHECK_ANSWER_FORMS)
    return findings


def _safe(finding: Finding) -> Finding:
    """Redact the texts of a finding before they are shortened: half a secret is not
    recognised.
    """
    texts = _texts(finding)
    clean = tuple([text and redact(text) for text in texts])
    changed: dict[str, Any] = dict(zip(_FINDING_TEXT_FIELDS, clean, strict=True))
    return finding if clean == texts else replace(finding, **changed)


def _wrong(
    check: Callable[..., Any], value: object, expected: str
) -> errors.CheckFailed:
    error = TypeError(
        f"it returned {type(value).__name__}; it has to return {expected}"
    )
    return errors.CheckFailed(rule_name(check), error)
