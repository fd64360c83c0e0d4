"""OpenTelemetry: spans of heedful's work, and a throttle for repeated log lines.

Nothing is imported or measured until `begin` is called. The decorators `loop`,
`attempt`, `search`, `upsert` and `stage` put a span around an awaited call. Prompts,
answers, queries and findings are exported only with `begin(content=True)`, without the
secrets that heedful recognises.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from http import HTTPMethod
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

import heedful
from heedful.errors import PackageMissing
from heedful.redact import redact
from heedful.validation import MAX_LONG_TEXT_CHARS, Document

if TYPE_CHECKING:  # an optional package, and records that are slow to import
    from opentelemetry.trace import Span, TracerProvider

    from heedful.loop.decide import Verdict
    from heedful.loop.record import Loop

Call = TypeVar("Call", bound=Callable[..., Coroutine[Any, Any, Any]])
Attributes = Mapping[str, Any]
# The instrumentation scope of heedful's spans, from which `episodes.readers.otlp` does
# not learn.
INSTRUMENTATION_SCOPE: Final = "heedful"
HTTP_METHODS: Final = frozenset(HTTPMethod)
LOG_INTERVAL_SECONDS: Final = 60.0  # seconds between log lines of one kind


class LogThrottle:
    """A throttle for log lines: it allows a message once in `LOG_INTERVAL_SECONDS`."""

    def __init__(self) -> None:
        # The time from which on each recent message is allowed again.
        self._next: dict[str, float] = {}

    def allows(self, message: str) -> bool:
        """Return True at most once in `LOG_INTERVAL_SECONDS` for the same message."""
        now = time.monotonic()
        self._next = {text: end for text, end in self._next.items() if end > now}
        if message in self._next:
            return False

        self._next[message] = now + LOG_INTERVAL_SECONDS
        return True


class _Exporter:
    """The tracer of heedful; `content` says whether texts are exported, too."""

    def __init__(self, tracers: TracerProvider, content: bool) -> None:
        from opentelemetry.trace import StatusCode

        self.tracer = tracers.get_tracer(INSTRUMENTATION_SCOPE, heedful.__version__)
        self.content = content
        self.error = StatusCode.ERROR

    @contextmanager
    def span(self, name: str, attributes: Attributes) -> Iterator[Span]:
        """Open a span; of an exception that ends it, export only the type."""
        started = self.tracer.start_as_current_span(
            name,
            attributes=dict(attributes),
            record_exception=False,
            set_status_on_exception=False,
        )
        with started as span:
            try:
                yield span
            except BaseException as error:
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(self.error)
                raise

    def set_content(self, span: Span, name: str, content: Any) -> None:
        """Set an attribute to a text or to JSON data, if texts are exported."""
        if self.content:
            text = content if isinstance(content, str) else json.dumps(content)
            span.set_attribute(name, redact(text)[:MAX_LONG_TEXT_CHARS])


_active: list[_Exporter] = []  # the exporter, once `begin` was called


def begin(*, content: bool = False, tracers: TracerProvider | None = None) -> None:
    """Start exporting to `tracers`, or else to OpenTelemetry's global provider.

    With `content`, prompts, answers, queries and findings are exported, too. Raises
    PackageMissing.
    """
    try:
        from opentelemetry import trace
    except ImportError as error:
        raise PackageMissing("telemetry", "opentelemetry-api", "telemetry") from error
    _active[:] = [_Exporter(tracers or trace.get_tracer_provider(), content)]


def end() -> None:
    """Stop exporting."""
    _active.clear()


def task(name: str, tenant: str, project: str) -> AbstractContextManager[object]:
    """Open a span for a job."""
    if not _active:
        return nullcontext()

    attributes = _heedful_attributes(task=name, tenant=tenant, project=project)
    return _active[0].span(f"heedful.task {name}", attributes)


def _heedful_attributes(**values: Any) -> Document:
    """Return attributes of heedful's own: `attempts=2` becomes `heedful.attempts`."""
    return {f"heedful.{name}": value for name, value in values.items()}


@contextmanager
def chat(
    model: str, messages: Sequence[tuple[str, str]], settings: Mapping[str, Any]
) -> Iterator[Callable[[str, str, int, int], None]]:
    """Open a span for a call of a model; `messages` are pairs of role and content.

    Yields a function that adds the answer to the span. Its arguments are the answer's
    text, the finish reason, and the tokens of prompt and answer.
    """
    if not _active:
        yield lambda text, finish, prompt_tokens, completion_tokens: None
        return

    exporter = _active[0]
    provider, _, name = model.partition(":")
    name = name or provider
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": name,
        "gen_ai.request.seed": settings["seed"],
        "gen_ai.request.temperature": settings["temperature"],
    }
    if settings["max_tokens"] is not None:
        attributes["gen_ai.request.max_tokens"] = settings["max_tokens"]
    with exporter.span(f"chat {name}", attributes) as span:
        prompt = [_chat_message(role, content) for role, content in messages]
        exporter.set_content(span, "gen_ai.input.messages", prompt)

        def add_answer(
            text: str, finish: str, prompt_tokens: int, completion_tokens: int
        ) -> None:
            span.set_attribute("gen_ai.usage.input_tokens", prompt_tokens)
            span.set_attribute("gen_ai.usage.output_tokens", completion_tokens)
            span.set_attribute("gen_ai.response.finish_reasons", [finish])
            answer = {**_chat_message("assistant", text), "finish_reason": finish}
            exporter.set_content(span, "gen_ai.output.messages", [answer])

        yield add_answer


def _chat_message(role: str, content: str) -> Document:
    """Return a message as OpenTelemetry's conventions for models have it."""
    return {"role": role, "parts": [{"type": "text", "content": redact(content)}]}


def record_decision(loop: Loop, verdict: Verdict) -> None:
    """Add the verdict and the last evaluation to the current span."""
    if not _active:
        return

    from opentelemetry.trace import get_current_span

    exporter = _active[0]
    span = get_current_span()
    decision = _decision_attributes(verdict)
    span.set_attributes(decision)
    evaluation = loop.last_evaluation
    if evaluation is None:
        return

    label = "pass" if decision["heedful.passed"] else "fail"
    attributes = {"gen_ai.evaluation.score.label": label}
    if exporter.content and evaluation.findings:
        messages = "; ".join(finding.message for finding in evaluation.findings)
        explanation = redact(messages)[:MAX_LONG_TEXT_CHARS]
        attributes["gen_ai.evaluation.explanation"] = explanation

    # An evaluation without scores is one event, without a value.
    scores: Mapping[str, float | None] = evaluation.scores or {"heedful": None}
    for name, value in scores.items():
        event: Document = {"gen_ai.evaluation.name": name, **attributes}
        if value is not None:
            event["gen_ai.evaluation.score.value"] = value
        span.add_event("gen_ai.evaluation.result", event)


def _decision_attributes(verdict: Verdict) -> Document:
    from heedful.loop.decide import Done

    if not isinstance(verdict, Done):
        return _heedful_attributes(decision="again", passed=False, stopped_by=[])
    rules = [stop.rule for stop in verdict.stopped_by]
    return _heedful_attributes(
        decision="done", passed=verdict.passed, stopped_by=rules, best=verdict.best or 0
    )


class TraceDecorator(Protocol):
    """A decorator of an async function; it keeps the signature of the function."""

    def __call__(self, work: Call, /) -> Call:
        """Return the function with a span around each call."""


def _traced(
    opened: Callable[..., tuple[str, Attributes]], closed: Callable[..., None]
) -> TraceDecorator:
    """Return a decorator that puts a span around an async call.

    `opened` gets the arguments of the call and returns the name and the attributes of
    the span. `closed(exporter, span, result, *arguments)` adds the result of the call
    to the span.
    """

    def decorate(work: Call) -> Call:
        async def call_in_span(
            exporter: _Exporter, *arguments: Any, **options: Any
        ) -> Any:
            name, attributes = opened(*arguments, **options)
            with exporter.span(name, attributes) as span:
                result = await work(*arguments, **options)
                closed(exporter, span, result, *arguments)
                return result

        @wraps(work)
        def call(*arguments: Any, **options: Any) -> Coroutine[Any, Any, Any]:
            if not _active:
                return work(*arguments, **options)
            return call_in_span(_active[0], *arguments, **options)

        return cast("Call", call)

    return decorate


# The calls that get a span: what is known at the beginning, and what at the end.


def _loop_opened(run: Any) -> tuple[str, Attributes]:
    return "heedful.loop", {
        "heedful.loop.id": run.id,
        **_heedful_attributes(policy=run.policy.name),
    }


def _loop_closed(_: _Exporter, span: Span, result: Any, *__: object) -> None:
    span.set_attributes(_heedful_attributes(attempts=len(result.loop.attempts)))
    span.set_attributes(_decision_attributes(result.verdict))


def _attempt_opened(run: Any, state: Any) -> tuple[str, Attributes]:
    return "heedful.attempt", {
        "heedful.loop.id": run.id,
        **_heedful_attributes(attempt=len(state.loop.attempts) + 1),
    }


def _attempt_closed(
    _: _Exporter, span: Span, state: Any, run: Any, before: Any
) -> None:
    """Add what the memory showed, and the decision, to the span of an attempt.

    `before` is the state of the loop at the beginning of the attempt.
    """
    if run.briefing is not None:
        names: dict[str, list[str]] = {}
        for choice in run.briefing.choices:
            names.setdefault(choice.outcome, []).append(choice.name)
        attributes = _heedful_attributes(silence=run.briefing.silence, **names)
        span.set_attributes(attributes)

    if len(state.loop.attempts) > len(before.loop.attempts):
        record_decision(state.loop, state.verdict)


def _memory_span(operation: str, memory: Any, **more: Any) -> tuple[str, Attributes]:
    """Return the name and the attributes of the span of an operation of a memory."""
    scope = memory.scope
    return operation, {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": INSTRUMENTATION_SCOPE,
        "gen_ai.memory.store.id": scope.project,
        **_heedful_attributes(tenant=scope.tenant, project=scope.project, **more),
    }


def _search_opened(memory: Any, *_: object, **__: object) -> tuple[str, Attributes]:
    return _memory_span("search_memory", memory)


def _search_closed(
    exporter: _Exporter, span: Span, answer: Any, _: Any, task: str = "", *__: object
) -> None:
    """Add the query and the number of results; `answer` is a list or a briefing."""
    count = len(answer) if isinstance(answer, list) else len(answer.exposures)
    span.set_attribute("heedful.found", count)
    exporter.set_content(span, "gen_ai.memory.query.text", task)


def _upsert_opened(memory: Any, lesson: Any, **_: Any) -> tuple[str, Attributes]:
    return _memory_span("upsert_memory", memory, kind=lesson.kind)


def _upsert_closed(_: _Exporter, span: Span, answer: Any, *__: object) -> None:
    span.set_attribute("gen_ai.memory.record.id", str(answer.id))
    span.set_attributes(_heedful_attributes(created=answer.created))


def _stage_opened(runner: Any, *_: object, **__: object) -> tuple[str, Attributes]:
    return "heedful.stage", {"heedful.loop.id": runner.loop}


def _stage_closed(_: _Exporter, span: Span, report: Any, *__: object) -> None:
    span.set_attributes(
        _heedful_attributes(
            stage=report.name, attempts=len(report.attempts), status=report.status
        )
    )


loop: TraceDecorator = _traced(_loop_opened, _loop_closed)
attempt: TraceDecorator = _traced(_attempt_opened, _attempt_closed)
search: TraceDecorator = _traced(_search_opened, _search_closed)
upsert: TraceDecorator = _traced(_upsert_opened, _upsert_closed)
stage: TraceDecorator = _traced(_stage_opened, _stage_closed)
