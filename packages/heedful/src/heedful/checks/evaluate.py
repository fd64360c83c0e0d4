"""Judge one candidate by checks and an evaluator, which are functions of the user.

Only `call` calls code of the user; it catches every exception of this code.
`evaluated` calls all checks in order and then the evaluator. The answer of a check (a
finding, a text, True or False, an Evaluation, an assertion that fails) becomes
findings, scores and `Evaluation.met`: the share, from 0 to 1, of the requirements of
the checks that the candidate meets.

A memory key is the lasting name of a function that makes candidates, and `check_id` of
a check: the same in every process that runs them. A rule is told to every function that
one check guards.
"""

import inspect
import json
import os
import sys
from collections import defaultdict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextvars import ContextVar
from dataclasses import KW_ONLY, replace
from functools import lru_cache, partial, wraps
from itertools import chain
from operator import attrgetter, itemgetter
from pathlib import Path
from types import CodeType
from typing import Any, Literal, ParamSpec, TypeVar

from heedful import errors
from heedful.checks.refusal import (
    Refusing,
    describe_place,
    findings_of,
    refuses,
)
from heedful.errors import UserCode
from heedful.lessons.lesson import Match
from heedful.lessons.render import as_text
from heedful.lessons.scope import short_digest
from heedful.loop.record import (
    ANSWER_CHECK,
    FINDING_LEVELS,
    NO_USAGE,
    Evaluation,
    Finding,
)
from heedful.loop.stop import requirement_of, rule_name
from heedful.models.call import in_own_task, in_thread
from heedful.models.contract import Message
from heedful.redact import redact, redact_data
from heedful.validation import (
    MAX_NAME_CHARS,
    Document,
    Fields,
    as_float,
    refuses_unknown_options,
    typed_frozen,
)

P = ParamSpec("P")
R = TypeVar("R", bound="RemadeCheck")
F = TypeVar("F", bound=Callable[..., Any])
MAX_KEPT_FINDINGS = 100  # of an attempt and a level; nobody reads more


@typed_frozen(slots=True)
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


def whole_hint(context: Context) -> str:
    """Return what memories tell about the task, followed by the last feedback."""
    memory = ""
    if context.examples or context.advice:
        memory = as_text(context.examples, context.seed, context.advice)
    return "\n\n".join(part for part in (memory, context.hint) if part)


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
    heedful pass unchanged. With `thread` the function runs in a thread of its own: it
    does not block the event loop, nor the end of the process if nobody waits for it.
    What the function yields is returned as `Yielded`. In the function, `context()`
    returns `at`.
    """
    token = _context.set(at)
    try:
        with UserCode(failed):
            if thread:
                value = await in_thread(partial(_call_function, function, *arguments))
            else:
                value = _call_function(function, *arguments)

            # Only what waits can be cancelled, and needs a task.
            if hasattr(value, "__await__") or hasattr(value, "__anext__"):
                value = await in_own_task(_await_value(value))
            return value
    finally:
        _context.reset(token)


async def _await_value(value: Any) -> Any:
    """Return what a value of the user has when it is awaited, and read what it yields.

    An awaitable may also return an iterator.
    """
    if hasattr(value, "__await__"):
        value = read_iterator(await value)
    if isinstance(value, AsyncIterator):
        value = Yielded([part async for part in value])
    return value


class Yielded(list[Any]):
    """What a function of the user yielded, in order."""


def _call_function(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the user, and read what it yields."""
    try:
        return read_iterator(function(*arguments))
    except StopIteration as error:
        # A future cannot hold it; the caller would wait forever.
        raise RuntimeError("StopIteration") from error


def read_iterator(value: Any) -> Any:
    """Return what an iterator yields, and any other value unchanged."""
    # Nearly no value has the method, and the check of a class takes ten times as long.
    is_iterator = hasattr(value, "__next__") and isinstance(value, Iterator)
    return Yielded(value) if is_iterator else value


@lru_cache(1024)
def _second_in_code(
    code: CodeType, bound: int, defaults: int, names: Sequence[str]
) -> str | None:
    """Return what `second_parameter` does, for the code of a function.

    The first `bound` parameters are filled, the last `defaults` have a default.
    """
    count = code.co_argcount
    positional = code.co_varnames[bound:count]
    return _second_of(
        names,
        positional=positional,
        keyword_only=code.co_varnames[count : count + code.co_kwonlyargcount],
        required=len(positional) - defaults,
        is_open=bool(code.co_flags & inspect.CO_VARARGS),
    )


def _second_of(
    names: Sequence[str],
    *,
    positional: Sequence[str],
    keyword_only: Sequence[str],
    required: int,
    is_open: bool,
) -> str | None:
    """Return what `second_parameter` does, for parameters that a caller may fill.

    The first `required` of the `positional` ones have no default. `is_open` is true
    with `*args`.
    """
    for name in names:
        if name in (*positional[2:], *keyword_only):
            return name
    is_second = required > 1 or (is_open and len(positional) < 2)
    is_named = len(positional) > 1 and positional[1] in names
    return "" if is_second or is_named else None


def second_parameter(function: Callable[..., Any], names: Sequence[str]) -> str | None:
    """Return which parameter gets a second argument; None if the function takes none.

    It is one of these `names` or else the second in place, if it has no default; ""
    stands for the second in place.

    >>> second_parameter(lambda task, code=7, *, hint: "", ("hint",))
    'hint'
    """
    has_code = hasattr(function, "__code__")
    called: Any = function if has_code else type(function).__call__
    code = getattr(called, "__code__", None)
    is_bound = not has_code or hasattr(function, "__self__")

    # Reading the code takes a tenth of the time that a signature takes.
    if code and not hasattr(function, "__wrapped__"):
        return _second_in_code(
            code, int(is_bound), len(called.__defaults__ or ()), names
        )

    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some functions written in C have no signature
        return ""
    in_place = [p for p in parameters if p.kind <= p.POSITIONAL_OR_KEYWORD]
    return _second_of(
        names,
        positional=[parameter.name for parameter in in_place],
        keyword_only=[p.name for p in parameters if p.kind == p.KEYWORD_ONLY],
        required=sum(p.default is p.empty for p in in_place),
        is_open=any(p.kind == p.VAR_POSITIONAL for p in parameters),
    )


def with_second(
    function: Callable[..., Any], first: Any, second: Any, parameter: str | None
) -> partial[Any]:
    """Return the call of a function with `first` and, if it takes it, `second`.

    `parameter` is what `second_parameter` returned for the function.
    """
    if parameter is None:
        return partial(function, first)
    if parameter:
        return partial(function, first, **{parameter: second})
    return partial(function, first, second)


def blocking(function: Callable[..., Any]) -> bool:
    """Return whether a function is not async, so that it blocks the event loop."""
    # An object is called by the method of its class.
    target = function if inspect.isroutine(function) else type(function).__call__
    return not (
        _is_async(function) or _is_async(target) or getattr(function, "is_async", False)
    )


def _is_async(function: Callable[..., Any]) -> bool:
    """Return whether a function is declared async, with or without `yield`."""
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


# What a check answers. A text is what is wrong, False that something is wrong; True,
# None and an empty text mean that nothing is. A check that also gives scores returns an
# Evaluation, because a task file names only checks and no evaluator.
Judged = Iterable[Finding | str] | Evaluation | Finding | Fields | str | bool | None
# A check is called with the candidate and the context, or with the candidate alone.
CONTEXT_PARAMETERS = ("context",)
Check = Callable[..., Judged | Awaitable[Judged]]
Critique = Mapping[str, Any]
Evaluate = Callable[
    [Any, Context], "Evaluation | Critique | Awaitable[Evaluation | Critique]"
]
# The keys of a critique as many critics write it, also in the answer of
# `heedful_compat.run_iteration`: how bad the worst issue is (0..1), what is wrong, and
# what to do about it.
CRITIQUE_KEYS = ("severity", "issues", "suggestions")
# Returns a finding for a check that raised; called with the name of the check and the
# error.
Instead = Callable[[str, errors.CheckFailed | errors.ModelError], Finding]
_TEXT_FIELDS = ("check", "message", "fix", "evidence", "key", "rule")
_texts_of = attrgetter(*_TEXT_FIELDS)
_CHECK_ANSWER_FORMS = (
    "Finding objects or texts, True or False; to give a score, an Evaluation"
)
_EVALUATOR_ANSWER_FORMS = (
    "an Evaluation, as Evaluation(scores={'quality': 0.8}), or a mapping with "
    "severity, issues and suggestions"
)
EMPTY_ANSWER_FINDING = Finding(
    ANSWER_CHECK,
    "the answer is empty",
    fix="Answer with the result itself",
    severity=1.0,
    key="answer: empty",
)
# For example from `lambda task, code=code: code`, if the hint were passed to `code`.
_FEEDBACK_ANSWER_FINDING = Finding(
    ANSWER_CHECK,
    "the answer is the feedback on the last answer, returned as it is",
    fix="Answer the task itself",
    severity=1.0,
    key="answer: feedback",
)


class RemadeCheck:
    """A check that is copied and pickled as the call that made it (see `remade`)."""

    __slots__ = ("_check_id", "made_by")
    made_by: tuple[Callable[..., Any], tuple[Any, ...], Document]
    _check_id: str

    @property
    def check_id(self) -> str:
        """The name of the check, by the call that made it; it is made when needed."""
        if not hasattr(self, "_check_id"):
            object.__setattr__(self, "_check_id", call_id(*self.made_by))
        return self._check_id

    def __reduce__(self) -> tuple[Any, ...]:
        factory, arguments, options = self.made_by
        return partial(factory, **options), arguments


def remade(factory: Callable[P, R]) -> Callable[P, R]:
    """Let the checks that a factory returns, each a RemadeCheck, be pickled.

    They judge with a function inside the factory, which cannot be pickled.
    """
    factory = refuses_unknown_options(factory)

    @wraps(factory)
    def make(*arguments: P.args, **options: P.kwargs) -> R:
        """Make a check, and note how."""
        check = factory(*arguments, **options)
        # A check is frozen.
        object.__setattr__(check, "made_by", (make, arguments, options))
        return check

    return make


def over_http(place: Literal["thread", "process", "judge"]) -> Callable[[F], F]:
    """Let a request name the checks that a factory makes; `place` is where they run.

    A check in a thread ends soon for any input, one in a process may take long, and a
    judge asks the model of the service. They read no file and no network.
    """

    def mark(factory: F) -> F:
        """Note the place."""
        factory.over_http = place  # type: ignore[attr-defined]
        return factory

    return mark


def pure(checks: Sequence[Check], evaluate: Evaluate | None) -> bool:
    """Return whether all checks and the evaluator are declared cheap and repeatable.

    They declare it by `pure = True`.
    """
    return all(getattr(judge, "pure", False) for judge in list_judges(checks, evaluate))


def list_judges(
    checks: Sequence[Check], evaluate: Evaluate | None
) -> list[Check | Evaluate]:
    """Return what judges a candidate, in order: the checks, then the evaluator."""
    return [*checks] if evaluate is None else [*checks, evaluate]


async def evaluated(
    candidate: Any,
    at: Context,
    checks: Sequence[Check],
    evaluate: Evaluate | None,
    instead: Instead | None = None,
    tries: int = 2,
    refuse: Refusing = (),
    raised: list[BaseException] | None = None,
    fault: Finding | None = None,
) -> Evaluation:
    """Judge the candidate with all checks, in order, then with the evaluator.

    A check that raises an exception that refuses (see `heedful.checks.refusal`) has
    found what the exception says; `raised` gets these exceptions. A check that raises
    any other exception is called again, up to `tries` calls in all. If the last call
    raises too, the finding is `instead(name of the check, error)`; without `instead`,
    CheckFailed or the ModelError of a judge is raised. What a check raises about a
    candidate that was refused before it says nothing new, and is left out. Plain
    functions that are not declared pure run in a thread, because they may be slow. A
    check may also answer with text or False, or with a critique (see `CRITIQUE_KEYS`).
    A known `fault` of the candidate, an empty text, or our own feedback is an error and
    passes no check (`met` is 0), whatever the checks return.
    """
    if fault is None:
        fault = _fault_of(candidate, at)
    findings: list[Finding] = []
    scores: dict[str, float] = {}
    usage = NO_USAGE
    preference = 0.0
    asks = 0
    met_asks = 0.0

    for check in list_judges(checks, evaluate):
        is_refused = fault is not None or any(
            finding.level == "error" for finding in findings
        )
        judge = _Judge(
            check,
            is_evaluator=check is evaluate,
            is_refused=is_refused,
            tries=tries,
            refuse=refuse,
            raised=raised,
        )
        try:
            judgement, check_asks = await judge.ask(candidate, at)
        except (errors.CheckFailed, errors.ModelError) as error:
            if instead is None:
                raise
            findings.append(_redact_finding(instead(rule_name(check), error)))
            continue

        findings += judgement.findings
        if judgement.scores:
            scores |= redact_data(dict(judgement.scores))
        usage += judgement.usage
        preference += judgement.preference
        if judgement.met is not None:
            asks += check_asks
            met_asks += check_asks * judgement.met

    met = met_asks / asks if asks else _met_by_evaluator(evaluate, findings, scores)

    if fault is not None:
        if fault not in findings:  # an evaluator may have reported it
            findings.insert(0, fault)
        if met is not None:
            met = 0.0

    return Evaluation(
        tuple(findings), scores, usage=usage, preference=preference, met=met
    )


def _fault_of(candidate: Any, at: Context) -> Finding | None:
    """Return what makes a text no answer, whatever it should be; None for nothing."""
    if not isinstance(candidate, str):
        return None
    text = candidate.strip()
    if not text:
        return EMPTY_ANSWER_FINDING
    if at.hint and text in (at.hint.strip(), whole_hint(at).strip()):
        return _FEEDBACK_ANSWER_FINDING
    return None


@typed_frozen(slots=True)
class _Judge:
    """A check or the evaluator; `is_refused` if an earlier one refused the candidate.

    The other fields are arguments of `evaluated`.
    """

    check: Check | Evaluate
    _: KW_ONLY
    is_evaluator: bool
    is_refused: bool
    tries: int
    refuse: Refusing
    raised: list[BaseException] | None

    async def ask(self, candidate: Any, at: Context) -> tuple[Evaluation, int]:
        """Return what it finds, and its number of requirements.

        Raises CheckFailed, ModelError.
        """
        check = self.check
        try:
            answer = await self._call(candidate, at)
            if _is_accepted_value(answer, candidate):
                answer = None
            if self.is_evaluator and not isinstance(answer, Evaluation):
                raise _answer_error(check, answer, _EVALUATOR_ANSWER_FORMS)
            findings = self._with_check_id(_read_findings(check, answer))
            asks = _count_asks(check)
        except errors.CheckFailed as error:
            cause = error.__cause__
            if self.is_refused:
                return self._unasked(cause or error), 1
            if cause is None or not refuses(cause, self.refuse):
                raise
            if self.raised is not None:
                self.raised.append(cause)
            reported = findings_of(cause, rule_name(check), _failed_condition(check))
            findings = self._with_check_id(list(reported))
            return Evaluation(findings, met=0.0), 1

        if isinstance(answer, Evaluation):
            return replace(answer, findings=findings), asks
        failed_asks = sum(1 + f.more for f in findings if f.level == "error")
        return Evaluation(findings, met=max(0.0, 1 - failed_asks / asks)), asks

    def _with_check_id(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """Return the findings with the name of the check in all that it guards.

        The evaluator of a stage has no such name: the checks that it asked have named
        their findings.
        """
        name = check_id(self.check) if findings else ""
        is_named = bool(name) or not self.is_evaluator
        named_findings = [*findings]
        for position, finding in enumerate(findings):
            if not finding.check_id and name:
                # A copy takes longer than most checks; nobody has read the name before.
                object.__setattr__(finding, "check_id", name)
            elif finding.check_id != name and is_named:
                named_findings[position] = replace(finding, check_id=name)
        return tuple(named_findings)

    def _unasked(self, error: BaseException) -> Evaluation:
        """Return nothing; for the evaluator, a note on why there is no score."""
        if not self.is_evaluator:
            return Evaluation()
        note = Finding(
            rule_name(self.check),
            "no score: the answer was refused before",
            level="note",
            raised=describe_place(error),
        )
        return Evaluation((note,))

    async def _call(self, candidate: Any, attempt: Context) -> Any:
        """Return the answer of the check; a critique becomes an Evaluation.

        A check that raises is called `tries` times, unless the exception refuses the
        candidate, or the candidate is refused already.
        """
        check = self.check
        tries = self.tries
        failed = partial(errors.CheckFailed, rule_name(check))
        thread = not getattr(check, "pure", False) and blocking(check)
        parameter = second_parameter(check, CONTEXT_PARAMETERS)
        ask = with_second(check, candidate, attempt, parameter)

        while True:
            tries -= 1
            try:
                answer = await call(failed, ask, at=attempt, thread=thread)
                is_critique = isinstance(answer, Mapping)
                return _read_critique(check, answer) if is_critique else answer
            except errors.CheckFailed as error:
                is_final = self.is_refused or refuses(error.__cause__, self.refuse)
                if is_final or not tries:
                    raise
            except errors.ModelError as error:
                # After a malformed answer, a judge has already asked its model again.
                has_asked = isinstance(error, errors.MalformedAnswer) and error.usage
                if not tries or (has_asked and error.usage.calls > 1):
                    raise
            except errors.UsageError as error:
                # For example the check made a Finding with a wrong severity.
                if not tries:
                    raise failed(error) from error


def _met_by_evaluator(
    evaluate: Evaluate | None, findings: Sequence[Finding], scores: Mapping[str, float]
) -> float | None:
    """Return 1 if an evaluator judged and found nothing, else None."""
    is_silent = evaluate is not None and not findings and not scores
    return 1.0 if is_silent else None


def _count_asks(check: Any) -> int:
    """Return the number of requirements of a check: its `asks`, by default 1.

    Raises CheckFailed.
    """
    asks = getattr(check, "asks", 1)
    if not isinstance(asks, int) or isinstance(asks, bool) or asks < 1:
        why = f"its `asks` is {asks!r}; it has to be an integer of at least 1"
        raise errors.CheckFailed(rule_name(check), ValueError(why))
    return asks


def _read_critique(check: Check | Evaluate, critique: Fields) -> Evaluation:
    """Return the evaluation in a mapping that has at least one of `CRITIQUE_KEYS`.

    Each issue is a finding with the suggestion in its place; if their numbers differ,
    the first finding has all suggestions. Without an issue, a severity above 0 is a
    finding of its own. Raises CheckFailed.
    """
    name = rule_name(check)
    if not critique or not critique.keys() <= set(CRITIQUE_KEYS):
        keys = ", ".join(map(repr, critique)) or "nothing"
        why = (
            f"it returned a mapping with {keys}; it has to return Finding objects or "
            "texts, an Evaluation, or severity, issues and suggestions"
        )
        raise errors.CheckFailed(name, TypeError(why))

    severity = critique.get("severity")
    severity = 0.5 if severity is None else as_float(severity)
    issues = _texts_in(check, critique, "issues")
    fixes = _texts_in(check, critique, "suggestions")
    if not issues and critique.get("severity"):
        issues = [f"{name} judges it with a severity of {severity}"]
    if len(fixes) != len(issues):
        fixes = ["; ".join(fixes)] + [""] * len(issues)

    return Evaluation(
        tuple(
            Finding(name, issue, fix=fix, severity=severity)
            for issue, fix in zip(issues, fixes, strict=False)
        )
    )


def _texts_in(check: Check | Evaluate, critique: Fields, key: str) -> list[str]:
    """Return the texts under a key of a critique, one or a list. Raises CheckFailed."""
    texts = critique.get(key) or []
    if isinstance(texts, str):
        texts = [texts]
    is_list = isinstance(texts, list | tuple)
    if not is_list or not all(isinstance(text, str) for text in texts):
        why = f"its {key!r} is {texts!r}; it has to be a list of texts"
        raise errors.CheckFailed(rule_name(check), TypeError(why))
    return list(texts)


def _read_findings(check: Check | Evaluate, answer: Any) -> list[Finding]:
    """Return the findings in what a check answered. Raises CheckFailed."""
    findings: list[Finding] = []
    for item in _answer_items(check, answer):
        if isinstance(item, Finding):
            findings.append(item)
        elif item is False:
            findings.append(Finding(rule_name(check), _failed_condition(check)))
        elif isinstance(item, str) and item:
            findings.append(Finding(rule_name(check), item))
        elif item is not None and item is not True and item != "":
            raise _answer_error(check, item, _CHECK_ANSWER_FORMS)

    return list(map(_redact_finding, _kept_findings(findings)))


def _kept_findings(findings: list[Finding]) -> list[Finding]:
    """Return at most `MAX_KEPT_FINDINGS` of each level; the last counts the others."""
    if len(findings) <= MAX_KEPT_FINDINGS:
        return findings
    kept_findings: list[Finding] = []
    for level in FINDING_LEVELS:
        of_level = _in_turn(f for f in findings if f.level == level)
        others = of_level[MAX_KEPT_FINDINGS:]
        of_level = of_level[:MAX_KEPT_FINDINGS]
        if others:
            last = of_level.pop()
            count = sum(1 + finding.more for finding in others)
            of_level.append(replace(last, more=last.more + count))
        kept_findings += of_level
    return kept_findings


def _in_turn(findings: Iterable[Finding]) -> list[Finding]:
    """Return the worst finding of each check, then the second worst of each, and so on.

    So no check is left out for the many findings of another one.
    """
    by_check = defaultdict[str, list[Finding]](list)
    for finding in sorted(findings, key=attrgetter("severity"), reverse=True):
        by_check[finding.check].append(finding)
    places = chain.from_iterable(map(enumerate, by_check.values()))
    return [finding for _, finding in sorted(places, key=itemgetter(0))]


def _is_accepted_value(answer: Any, candidate: Any) -> bool:
    """Return whether a check answers with the value that it accepts, or a copy.

    Validators of other libraries do: of the candidate, a table or an object.
    """
    if answer is candidate:
        return not isinstance(answer, bool)
    return hasattr(answer, "model_dump") or len(getattr(answer, "shape", ())) == 2


def _answer_items(check: Check | Evaluate, answer: Any) -> Iterable[Any]:
    """Return the answer of a check as a list of findings, texts and truth values."""
    if isinstance(answer, list):
        return answer
    if answer is None or isinstance(answer, (bool, str, Finding)):
        return [answer]
    if isinstance(answer, Evaluation):
        return answer.findings
    if getattr(answer, "shape", None) == ():  # a truth value of numpy
        return [answer.item()]
    if isinstance(answer, tuple) and list(map(type, answer)) == [bool, str]:
        # Whether it holds, and what is wrong if it does not: (False, "too long").
        holds, message = answer
        return [holds or message or False]
    if isinstance(answer, Mapping) or not isinstance(answer, Iterable):
        raise _answer_error(check, answer, _CHECK_ANSWER_FORMS)
    return answer


def _failed_condition(check: Check | Evaluate) -> str:
    """Return what is wrong if a check answers False, from its docstring or name."""
    return requirement_of(check) or f"{rule_name(check)} returned False"


def _redact_finding(finding: Finding) -> Finding:
    """Return a finding without secrets in its texts.

    This comes before the texts are shortened, because half a secret is not recognised.
    """
    texts = _texts_of(finding)
    clean_texts = tuple([text and redact(text) for text in texts])
    if clean_texts == texts:
        return finding

    changes: Document = dict(zip(_TEXT_FIELDS, clean_texts, strict=True))
    return replace(finding, **changes)


def _answer_error(
    check: Callable[..., Any], value: object, expected: str
) -> errors.CheckFailed:
    """Return the error about an answer of a check that is not a valid value."""
    error = TypeError(
        f"it returned {type(value).__name__}; it has to return {expected}"
    )
    return errors.CheckFailed(rule_name(check), error)


def key_of(function: Any) -> str:
    """Return the memory key of a function: its module and its qualified name.

    For a script the module is the name of its file, for a cell of a notebook
    `__main__`. Returns "" for functions without a lasting name: lambdas, and objects
    that are not functions.
    """
    while isinstance(function, partial):
        function = function.func

    function = inspect.unwrap(function)
    if not inspect.isroutine(function) or function.__name__ == "<lambda>":
        return ""
    return _name_in_module(function)


def _name_in_module(value: Any) -> str:
    """Return the module and the qualified name of a function or class."""
    module = getattr(value, "__module__", None)
    if module == "__main__":
        module = _name_of_script(value)
    if not module:
        return ""
    return f"{module}.{value.__qualname__}"[-MAX_NAME_CHARS:]


def _name_of_script(value: Any) -> str:
    """Return the name of the script's module; "" if another file has the function.

    In a notebook and other interactive sessions there is no script. Every run of a cell
    is a file of its own, but the name of its function stays.
    """
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if not file:
        return main.__name__

    script = Path(file)
    if Path(inspect.getfile(value)).name != script.name:
        return ""

    # `python -m package.module` knows the full name, `python script.py` does not.
    return str(getattr(main.__spec__, "name", script.stem))


def check_id(check: Callable[..., Any]) -> str:
    """Return what names a check in every function that it guards.

    A ready-made check is named by its factory and its arguments, a function by its
    place in its module. Return "" for lambdas, closures and other objects: two of them
    may differ in what they refer to.
    """
    own_id = getattr(check, "check_id", None)
    return _module_level_name(check) if own_id is None else own_id


def call_id(
    factory: Callable[..., Any], arguments: tuple[Any, ...], options: Document
) -> str:
    """Return the name of a check that a factory has made of these arguments.

    Return "" if an argument is neither JSON data, nor a schema, nor of a module.
    """
    call = inspect.signature(factory).bind(*arguments, **options)
    call.apply_defaults()
    try:
        text = json.dumps(call.arguments, default=_as_json, sort_keys=True)
    # A class may have no JSON Schema, and data may be nested too deep.
    except (TypeError, ValueError, RuntimeError):
        return ""
    return f"{factory.__name__} {short_digest(text)}"


def _as_json(argument: Any) -> Any:
    """Return an argument as JSON data: the schema of a model, or a lasting name.

    Raises TypeError for all else.
    """
    if hasattr(argument, "model_json_schema"):
        return argument.model_json_schema()
    return _module_level_name(argument) or os.fspath(argument)


def _module_level_name(value: Any) -> str:
    """Return the name of a function or class that its module has under this name."""
    member: Any = sys.modules.get(getattr(value, "__module__", None) or "")
    for part in getattr(value, "__qualname__", "").split("."):
        member = getattr(member, part, None)
    return _name_in_module(value) if member is value and value is not None else ""
