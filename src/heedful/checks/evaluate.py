"""Judge one candidate by checks and an evaluator, which are functions of the user.

`call` is the only place that calls code of the user and catches any exception of it.
`evaluated` calls all checks in order and then the evaluator; what a check answers (a
finding, a text, True or False, an Evaluation, an assertion that fails) becomes
findings, scores and the share of what was asked that is met.
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
    except StopIteration as error:
        # A future cannot hold it; the caller would wait forever.
        raise RuntimeError("StopIteration") from error


def _read(value: Any) -> Any:
    return list(value) if isinstance(value, Iterator) else value


def takes(function: Callable[..., Any], count: int) -> bool:
    """Return whether `function` can be called with `count` positional arguments."""
    code = getattr(function, "__code__", None)
    has_self = hasattr(function, "__self__")
    if code is None:
        code = getattr(type(function).__call__, "__code__", None)
        has_self = True
    # This takes a tenth of the time of a signature.
    if code and not hasattr(function, "__wrapped__"):
        if has_self:
            count += 1
        return bool(count <= code.co_argcount or code.co_flags & inspect.CO_VARARGS)
    try:
        inspect.signature(function).bind_partial(*range(count))
    except TypeError:
        return False
    except ValueError:  # some functions written in C have no signature
        pass
    return True


def blocking(function: Callable[..., Any]) -> bool:
    """Return whether a function is not async, so that it blocks the event loop."""
    target = function if inspect.isroutine(function) else type(function).__call__
    asynchronous = any(map(inspect.iscoroutinefunction, (function, target)))
    return not (asynchronous or getattr(function, "is_async", False))


# A check returns an Evaluation if it also gives scores: a task file names checks only.
# A text is what is wrong, False that something is wrong; True, None and an empty text
# are no finding.
Judged = Iterable[Finding | str] | Evaluation | Finding | str | bool | None
# It is called with the candidate and the context, or with the candidate alone.
Check = Callable[..., Judged | Awaitable[Judged]]
Evaluate = Callable[[Any, Context], "Evaluation | Awaitable[Evaluation]"]
# Returns a finding for a check that raised; called with the name of the check and the
# error.
Instead = Callable[[str, errors.CheckFailed | errors.ModelError], Finding]
# Writes the feedback for the next attempt; by default `heedful.loop.record.feedback`.
Feedback = Callable[[Evaluation, tuple[Goal, ...]], "str | Awaitable[str]"]
_texts = attrgetter("check", "message", "fix", "evidence", "key")
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
    """Return whether all checks and the evaluator are declared cheap and repeatable.

    They declare it by `pure = True`.
    """
    judges = [*checks] if evaluate is None else [*checks, evaluate]
    return all(getattr(judge, "pure", False) for judge in judges)


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
    asks = 0
    met_asks = 0.0
    for check in [*checks] if evaluate is None else [*checks, evaluate]:
        try:
            answer = await _ask(check, candidate, at, tries)
            if check is evaluate and not isinstance(answer, Evaluation):
                raise _wrong(
                    check,
                    answer,
                    "an Evaluation, as Evaluation(scores={'quality': 0.8})",
                )
            check_findings = _findings(check, answer)
            check_asks = _asks(check)
        except (errors.CheckFailed, errors.ModelError) as error:
            if instead is None:
                raise
            findings.append(_safe(instead(rule_name(check), error)))
            continue
        findings += check_findings
        if isinstance(answer, Evaluation):
            scores |= answer.scores
            usage += answer.usage
            preference += answer.preference
            share = answer.met
        else:
            failed = sum(finding.level == "error" for finding in check_findings)
            share = max(0.0, 1 - failed / check_asks)
        if share is not None:
            asks += check_asks
            met_asks += check_asks * share

    met = met_asks / asks if asks else None
    if isinstance(candidate, str) and not candidate.strip():
        if EMPTY_ANSWER_FINDING not in findings:  # an evaluator may have reported it
            findings.insert(0, EMPTY_ANSWER_FINDING)
        if met is not None:
            met = 0.0
    return Evaluation(
        tuple(findings), scores, usage=usage, preference=preference, met=met
    )


async def worded(
    feedback: Feedback, evaluation: Evaluation, goals: tuple[Goal, ...], at: Context
) -> str:
    """Return what the user's function `feedback` writes, without secrets.

    Raises GenerateFailed.
    """

    def failed(error: BaseException) -> errors.GenerateFailed:
        message = f"{type(error).__name__}: {redact(str(error))[:300]}"
        return errors.GenerateFailed(
            f"feedback raised {message}; correct it and run again"
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


async def _ask(
    check: Callable[..., Any], candidate: Any, at: Context, tries: int
) -> Any:
    """Return what a check answers; a check that raises is called `tries` times."""
    failed = partial(errors.CheckFailed, rule_name(check))
    thread = not getattr(check, "pure", False) and blocking(check)
    arguments = (candidate, at) if takes(check, 2) else (candidate,)
    while True:
        tries -= 1
        try:
            return await call(failed, check, *arguments, at=at, thread=thread)
        except (errors.CheckFailed, errors.ModelError) as error:
            if isinstance(error.__cause__, AssertionError):
                return str(error.__cause__) or False
            has_asked_twice = getattr(error, "usage", None)  # a judge does so itself
            if not tries or has_asked_twice:
                raise
        except (
            errors.UsageError
        ) as error:  # for example a Finding with a wrong severity
            if not tries:
                raise failed(error) from error


def _findings(check: Check | Evaluate, answer: Any) -> list[Finding]:
    """Return the findings in what a check answered. Raises CheckFailed."""
    findings: list[Finding] = []
    for item in _items(check, answer):
        if isinstance(item, Finding):
            findings.append(_safe(item))
        elif item is False:
            findings.append(_safe(Finding(rule_name(check), _condition(check))))
        elif isinstance(item, str) and item:
            findings.append(_safe(Finding(rule_name(check), item)))
        elif item is not None and item is not True and item != "":
            raise _wrong(check, item, _CHECK_ANSWER_FORMS)
    return findings


def _items(check: Check | Evaluate, answer: Any) -> Iterable[Any]:
    """Return what a check answered as a list of findings, texts and truth values."""
    if isinstance(answer, Evaluation):
        return answer.findings
    if getattr(answer, "shape", None) == ():  # a truth value of numpy
        answer = answer.item()
    if isinstance(answer, tuple) and list(map(type, answer)) == [bool, str]:
        holds, message = answer
        answer = holds or message or False
    if answer is None or isinstance(answer, bool | str | Finding):
        return [answer]
    if isinstance(answer, Mapping) or not isinstance(answer, Iterable):
        raise _wrong(check, answer, _CHECK_ANSWER_FORMS)
    return answer


def _condition(check: Check | Evaluate) -> str:
    """Return what does not hold if a check answers False, by its docstring or name."""
    documentation = ""
    if inspect.isroutine(check):
        documentation = (check.__doc__ or "").strip()
    if documentation:
        return f"must hold: {documentation.splitlines()[0]}"
    return f"{rule_name(check)} does not hold"


def _safe(finding: Finding) -> Finding:
    """Redact the texts of a finding before they are shortened: half a secret is not
    recognised.
    """
    texts = _texts(finding)
    clean = tuple([text and redact(text) for text in texts])
    if clean == texts:
        return finding
    check, message, fix, evidence, key = clean
    return replace(
        finding, check=check, message=message, fix=fix, evidence=evidence, key=key
    )


def _wrong(
    check: Callable[..., Any], value: object, expected: str
) -> errors.CheckFailed:
    error = TypeError(
        f"it returned {type(value).__name__}; it has to return {expected}"
    )
    return errors.CheckFailed(rule_name(check), error)
