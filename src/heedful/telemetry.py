"""What goes on and on is said once in a while.

OpenTelemetry: spans and metrics of what heedful does; no cost until it is begun.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar

from heedful.errors import PackageMissing
from heedful.lessons.lesson import Scope
from heedful.loop.decide import Verdict
from heedful.loop.record import Loop
from heedful.redact import redact

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from heedful.models.contract import Answer, Message, Model

EVERY = 60.0  # seconds


class LogThrottle:
    """Whether something is to be said now: the same at most once in `EVERY` seconds."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}

    def now(self, what: str) -> bool:
        """Whether it is, which counts as said."""
        now = time.monotonic()
        self._next = {one: then for one, then in self._next.items() if then > now}
        if what in self._next:
            return False
        self._next[what] = now + EVERY
        return True


P = ParamSpec("P")
T = TypeVar("T")
Attributes = Mapping[str, Any]
Answered = Callable[[str, int], None]
# The instrumentation scope; what comes back in it is not learnt from (`heedful.traces.otlp`).
SCOPE: Final = "heedful"
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
MODEL: Final = "gen_ai.request.model"
TEMPERATURE: Final = "gen_ai.request.temperature"
MAX_TOKENS: Final = "gen_ai.request.max_tokens"
SEED: Final = "gen_ai.request.seed"
FINISH: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
INPUT: Final = "gen_ai.input.messages"
OUTPUT: Final = "gen_ai.output.messages"
STORE: Final = "gen_ai.memory.store.id"
RECORD: Final = "gen_ai.memory.record.id"
QUERY: Final = "gen_ai.memory.query.text"
EVALUATION: Final = "gen_ai.evaluation.result"
EVALUATED: Final = "gen_ai.evaluation.name"
SCORE: Final = "gen_ai.evaluation.score.value"
LABEL: Final = "gen_ai.evaluation.score.label"
EXPLANATION: Final = "gen_ai.evaluation.explanation"
ERROR: Final = "error.type"
LONGEST: Final = 10_000  # characters of a content
METHODS: Final = frozenset(("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"))


class _Told:
    """Where spans and metrics go, and whether what was said comes along."""

    def __init__(self, tracers: TracerProvider, meters: MeterProvider, content: bool) -> None:
        from opentelemetry.trace import StatusCode

        from heedful import __version__

        self.tracer = tracers.get_tracer(SCOPE, __version__)
        self.content = content
        self.error = StatusCode.ERROR
        meter = meters.get_meter(SCOPE, __version__)
        self.decisions = meter.create_counter("heedful.decisions", "{decision}")
        self.attempts = meter.create_counter("heedful.attempts", "{attempt}")
        self.recall = meter.create_histogram("heedful.recall.duration", "s")

    @contextmanager
    def span(self, name: str, attributes: Attributes, **options: Any) -> Iterator[Span]:
        """A span of that name; what ends it early is told by its type alone."""
        quiet = {"record_exception": False, "set_status_on_exception": False, **options}
        started = self.tracer.start_as_current_span(name, attributes=dict(attributes), **quiet)
        with started as span, ExitStack() as ends:
            ends.push(partial(self._ended, span))
            yield span

    def _ended(self, span: Span, kind: type[BaseException] | None, *_: object) -> None:
        """Tell what ended it early, if anything did."""
        if kind is not None:
            span.set_attribute(ERROR, kind.__qualname__)
            span.set_status(self.error)

    def said(self, span: Span, name: str, content: Any) -> None:
        """What was said, as far as it may be told."""
        if self.content:
            text = content if isinstance(content, str) else json.dumps(content)
            span.set_attribute(name, redact(text)[:LONGEST])


# The one that is told, where there is one.
_told: list[_Told] = []


def begin(
    *,
    content: bool = False,
    tracers: TracerProvider | None = None,
    meters: MeterProvider | None = None,
) -> None:
    """Tell OpenTelemetry from now on: the providers given, or else the global ones.

    With `content` prompts, answers, questions to memory and findings are told, too, without
    secrets. Raises PackageMissing.
    """
    try:
        from opentelemetry import metrics, trace
    except ImportError as error:
        raise PackageMissing("telemetry", "opentelemetry-api", "telemetry") from error
    given = tracers or trace.get_tracer_provider(), meters or metrics.get_meter_provider()
    _told[:] = [_Told(*given, content)]


def end() -> None:
    """Tell nobody any more."""
    _told.clear()


def trace_headers() -> dict[str, str]:
    """The trace that is under way, for a job to name (`traceparent`); empty without one."""
    found: dict[str, str] = {}
    if _told:
        from opentelemetry.propagate import inject

        inject(found)
    return found


def task(name: str, scope: Scope, carried: Mapping[str, str]) -> AbstractContextManager[object]:
    """The span of a job, in the trace that was `carried` to it."""
    if not _told:
        return nullcontext()
    from opentelemetry.trace import SpanKind

    attributes = {"heedful.task": name, **_scope(scope)}
    options = {"context": _carried(carried), "kind": SpanKind.CONSUMER}
    return _told[0].span(f"heedful.task {name}", attributes, **options)


@contextmanager
def request(method: str, headers: Mapping[str, str]) -> Iterator[Answered]:
    """The span of a request that a service answers, in the trace that its headers name.

    It has to be told the template of the route, never a path, and the status of the answer.
    """
    if not _told:
        yield _unheard
        return
    from opentelemetry.trace import SpanKind

    method = method if method in METHODS else "_OTHER"
    options = {"context": _carried(headers), "kind": SpanKind.SERVER}
    with _told[0].span(method, {"http.request.method": method}, **options) as span:
        told = _told[0]

        def answered(route: str, status: int) -> None:
            span.update_name(f"{method} {route}")
            span.set_attributes({"http.route": route, "http.response.status_code": status})
            if status >= 500:
                span.set_status(told.error)

        yield answered


def _unheard(route: str, status: int) -> None:
    """Nobody is told."""


def _carried(named: Mapping[str, str]) -> Any:
    from opentelemetry.propagate import extract

    return extract(named)


def _scope(scope: Scope) -> Attributes:
    return {"heedful.tenant": scope.tenant, "heedful.project": scope.project}


async def complete(
    model: Model,
    messages: Sequence[Message],
    *,
    schema: Mapping[str, Any] | None = None,
    max_tokens: int = 512,
    temperature: float = 0.0,
    seed: int = 0,
) -> Answer:
    """What the model answers, with a span around it. Raises ModelError."""
    given: dict[str, Any] = {"schema": schema, "max_tokens": max_tokens}
    given |= {"temperature": temperature, "seed": seed}
    if not _told:
        return await model.complete(messages, **given)
    provider, _, name = model.name.partition(":")
    attributes = {OPERATION: "chat", PROVIDER: provider, MODEL: name or provider, SEED: seed}
    attributes |= {MAX_TOKENS: max_tokens, TEMPERATURE: temperature}
    with _told[0].span(f"chat {name or provider}", attributes) as span:
        _told[0].said(span, INPUT, [_turn(one.role, one.content) for one in messages])
        answer = await model.complete(messages, **given)
        span.set_attribute(INPUT_TOKENS, answer.usage.prompt_tokens)
        span.set_attribute(OUTPUT_TOKENS, answer.usage.completion_tokens)
        span.set_attribute(FINISH, [answer.finish])
        last = {**_turn("assistant", answer.text), "finish_reason": answer.finish}
        _told[0].said(span, OUTPUT, [last])
        return answer


def _turn(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": redact(content)}]}


class Traced(Protocol):
    """Decorates what is awaited, and leaves its arguments and its result as they are."""

    def __call__(
        self, work: Callable[P, Coroutine[Any, Any, T]], /
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        """The same, within a span."""
        ...


def traced(opened: Callable[..., tuple[str, Attributes]], closed: Callable[..., None]) -> Traced:
    """Decorate: `opened(*arguments)` names a span, `closed(told, span, result, …)` completes it."""

    def decorate(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        async def within(told: _Told, *arguments: P.args, **options: P.kwargs) -> T:
            began = time.perf_counter()
            with told.span(*opened(*arguments, **options)) as span:
                result = await work(*arguments, **options)
                closed(told, span, result, time.perf_counter() - began, *arguments)
                return result

        @wraps(work)
        def either(*arguments: P.args, **options: P.kwargs) -> Coroutine[Any, Any, T]:
            return (
                work(*arguments, **options)
                if not _told
                else within(_told[0], *arguments, **options)
            )

        return either

    return decorate


def _loop_opened(run: Any) -> tuple[str, Attributes]:
    return "heedful.loop", {"heedful.loop.id": run.id, "heedful.policy": run.policy.name}


def _loop_closed(told: _Told, span: Span, result: Any, *_: object) -> None:
    loop, verdict = result.loop, result.verdict
    span.set_attributes({"heedful.attempts": len(loop.attempts), **_verdict(verdict)})


def _attempt_opened(run: Any, state: Any) -> tuple[str, Attributes]:
    number = len(state.loop.attempts) + 1
    return "heedful.attempt", {"heedful.loop.id": run.id, "heedful.attempt": number}


def _attempt_closed(
    told: _Told, span: Span, state: Any, seconds: float, run: Any, before: Any
) -> None:
    if len(state.loop.attempts) > len(before.loop.attempts):
        record_decision(state.loop, state.verdict)


def record_decision(loop: Loop, verdict: Verdict) -> None:
    """Tell of the last attempt's evaluation and of what was decided on it, in the current span."""
    if not _told:
        return
    from opentelemetry.trace import get_current_span

    span, told = get_current_span(), _verdict(verdict)
    span.set_attributes(told)
    evaluation = loop.attempts[-1].evaluation if loop.attempts else None
    if evaluation is not None:
        passed = "pass" if told["heedful.passed"] else "fail"
        scores = {name: {SCORE: value} for name, value in evaluation.scores.items()}
        why = {}
        if _told[0].content and evaluation.findings:
            said = "; ".join(one.message for one in evaluation.findings)
            why = {EXPLANATION: redact(said)[:LONGEST]}
        for name, score in (scores or {"heedful": {}}).items():
            span.add_event(EVALUATION, {EVALUATED: name, LABEL: passed, **score, **why})
    counted = {
        "heedful.decision": told["heedful.decision"],
        "heedful.passed": told["heedful.passed"],
    }
    stops = (
        {"heedful.stopped_by": told["heedful.stopped_by"][0]} if told["heedful.stopped_by"] else {}
    )
    _told[0].decisions.add(1, {**counted, **stops})
    _told[0].attempts.add(1, {"heedful.passed": told["heedful.passed"]})


def _verdict(verdict: Any) -> dict[str, Any]:
    """Again or Done, as attributes."""
    done = hasattr(verdict, "best")
    stops = [stop.rule for stop in verdict.stopped_by] if done else []
    best = {"heedful.best": verdict.best or 0} if done else {}
    passed = done and verdict.passed
    said = {"heedful.decision": "done" if done else "again", "heedful.passed": passed}
    return {**said, "heedful.stopped_by": stops, **best}


def _check_opened(check: Any, *_: object) -> tuple[str, Attributes]:
    name = getattr(check, "name", "") or getattr(check, "__name__", type(check).__name__)
    return f"heedful.check {name}", {"heedful.check": str(name)}


def _check_closed(told: _Told, span: Span, found: Any, *_: object) -> None:
    findings = getattr(found, "findings", found)
    if isinstance(findings, Sequence) and not isinstance(findings, str):
        span.set_attribute("heedful.findings", len(findings))


def _search_opened(memory: Any, task: str, *_: object, **__: object) -> tuple[str, Attributes]:
    named = {OPERATION: "search_memory", PROVIDER: SCOPE, STORE: memory.scope.project}
    return "search_memory", {**named, **_scope(memory.scope)}


def _search_closed(
    told: _Told, span: Span, found: Any, seconds: float, memory: Any, task: str, *_: object
) -> None:
    shown = len(found) if isinstance(found, list) else len(found.exposures)
    span.set_attribute("heedful.found", shown)
    told.said(span, QUERY, task)
    told.recall.record(seconds)


def _upsert_opened(memory: Any, one: Any) -> tuple[str, Attributes]:
    named = {OPERATION: "upsert_memory", PROVIDER: SCOPE, STORE: memory.scope.project}
    return "upsert_memory", {**named, **_scope(memory.scope), "heedful.kind": one.kind}


def _upsert_closed(told: _Told, span: Span, answer: Any, *_: object) -> None:
    span.set_attributes({RECORD: str(answer.id), "heedful.created": answer.created})


def _stage_opened(driven: Any, *_: object, **__: object) -> tuple[str, Attributes]:
    return "heedful.stage", {"heedful.loop.id": driven.loop}


def _stage_closed(told: _Told, span: Span, report: Any, *_: object) -> None:
    attempts = len(report.attempts)
    span.set_attributes({"heedful.stage": report.name, "heedful.attempts": attempts})
    span.set_attribute("heedful.status", report.status)


loop: Traced = traced(_loop_opened, _loop_closed)
attempt: Traced = traced(_attempt_opened, _attempt_closed)
check: Traced = traced(_check_opened, _check_closed)
search: Traced = traced(_search_opened, _search_closed)
upsert: Traced = traced(_upsert_opened, _upsert_closed)
stage: Traced = traced(_stage_opened, _stage_closed)
