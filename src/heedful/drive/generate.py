"""Generate candidates with a model or the user's function, and revise parts of them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, cast, get_args, get_type_hints

from heedful.checks.evaluate import Context, blocking, call, takes
from heedful.drive.journal import journalable
from heedful.errors import GenerateFailed, InvalidInput
from heedful.lessons.ranking import as_messages, as_text
from heedful.loop.record import Finding, Usage
from heedful.models.call import complete
from heedful.models.contract import Answer, Message, Model, answer_of, usage_of
from heedful.redact import redact
from heedful.sanitize import cut_middle

Generate = Callable[..., "Any | Awaitable[Any]"]
Revise = Callable[[Any, Any, Sequence[Finding]], "Any | Awaitable[Any]"]
# Characters of the last candidate that a retry shows: a prompt must not grow with the
# answers.
MAX_PREVIOUS_ANSWER_CHARS = 1_200
# A shorter candidate is easier to write again than to correct. Of 24 one-line tasks,
# the embedded 0.5B model solved 20 within 4 attempts if a retry showed feedback and
# task, but 7 with the last answer before them, and 1 with task, last answer, feedback:
# a small model copies what it sees.
MAX_REWRITE_CHARS = 200
SINGLE_CALL_USAGE = Usage(calls=1)


@dataclass(frozen=True, slots=True)
class Writer:
    """A model that writes candidates.

    `system` is the system message. `schema` is the JSON Schema of the answer.
    `max_tokens` limits the length of the answer. Each retry is a new prompt with
    bounded size: recalled examples and those of recalled rules as chat turns, the
    rules, the last candidate if it is longer than `MAX_REWRITE_CHARS` characters, the
    feedback, and the task.
    """

    model: Model
    system: str = ""
    _: KW_ONLY
    schema: Mapping[str, Any] | None = None
    max_tokens: int = 512

    def messages(self, context: Context) -> list[Message]:
        """Return the prompt for an attempt, without secrets."""
        messages = [Message("system", self.system)] if self.system else []
        worked = [
            replace(rule, example=rule.worked) for rule in context.advice if rule.worked
        ]
        messages += [*as_messages(worked), *context.examples]
        parts = []
        if context.advice:
            rules = [replace(rule, worked=None) for rule in context.advice]
            parts.append(as_text((), context.seed, rules))

        if context.hint:
            last = context.previous
            if not isinstance(last, str):
                last = json.dumps(last)
            last = redact(last)
            if len(last) > MAX_REWRITE_CHARS:
                last = cut_middle(last, MAX_PREVIOUS_ANSWER_CHARS)
                parts.append(f"Your last answer:\n{last}")

            parts.append(context.hint)

        task = context.task
        if not isinstance(task, str):
            task = json.dumps(task, default=str)
        parts.append(task)
        messages.append(Message("user", "\n\n".join(parts)))

        return [Message(message.role, redact(message.content)) for message in messages]


def generator(generate: Generate | Writer | Model) -> tuple[Generate | Writer, bool]:
    """Return `generate` (a Model in a Writer), and True if its call blocks.

    Raises InvalidInput.
    """
    if callable(getattr(generate, "complete", None)):
        return Writer(cast("Model", generate)), False
    if isinstance(generate, Writer):
        return generate, False
    if not callable(generate):
        raise InvalidInput("generate", generate, "a callable, a Writer or a Model")

    return generate, blocking(generate)


@dataclass(frozen=True, slots=True)
class CandidateBatch:
    """The candidates of one attempt, at least one, and their cost."""

    values: tuple[Any, ...]
    usage: Usage

    def plain(self) -> list[Any]:
        """Return JSON data for the journal. Raises NotJournalable."""
        usage = self.usage
        costs = [
            usage.calls,
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.cost,
            usage.seconds,
        ]
        return [[journalable(value) for value in self.values], costs]

    @classmethod
    def of(cls, plain: Sequence[Any]) -> CandidateBatch:
        """Return the candidates from JSON data that the method `plain` returned."""
        values, costs = plain
        calls, prompt_tokens, completion_tokens, cost, seconds = costs
        usage = Usage(
            calls,
            prompt_tokens,
            completion_tokens=completion_tokens,
            cost=cost,
            seconds=seconds,
        )
        return cls(tuple(values), usage)


async def produce(
    generate: Generate | Writer, context: Context, thread: bool
) -> CandidateBatch:
    """Make an attempt's candidates, in a `thread` if true.

    Raises GenerateFailed, ModelError.
    """
    if isinstance(generate, Writer):
        answer = await complete(
            generate.model,
            generate.messages(context),
            schema=generate.schema,
            max_tokens=generate.max_tokens,
            temperature=context.temperature,
            seed=context.seed,
        )
        return CandidateBatch((answer.text,), answer.usage)
    if takes(generate, 2):
        return await _call(
            generate, context.task, whole_hint(context), context=context, thread=thread
        )
    return await _call(generate, context.task, context=context, thread=thread)


def whole_hint(context: Context) -> str:
    """Return as text what memory tells about the task, and the last feedback."""
    if not context.examples and not context.advice:
        return context.hint
    memory = as_text(context.examples, context.seed, context.advice)
    return "\n\n".join(filter(None, (memory, context.hint)))


async def revised(
    revise: Revise, context: Context, findings: Sequence[Finding]
) -> CandidateBatch:
    """Return what `revise` makes of the last candidate. Raises GenerateFailed."""
    thread = blocking(revise)
    return await _call(
        revise, context.task, context.previous, findings, context=context, thread=thread
    )


async def _call(
    function: Callable[..., Any], *arguments: Any, context: Context, thread: bool
) -> CandidateBatch:
    """Call the user's function; return its candidates. Raises GenerateFailed."""

    def failed(error: BaseException) -> GenerateFailed:
        message = f"{type(error).__name__}: {redact(str(error))[:300]}"
        return GenerateFailed(f"generate raised {message}")

    value = await call(failed, function, *arguments, at=context, thread=thread)
    if type(value) is str:  # nearly always
        return CandidateBatch((value,), SINGLE_CALL_USAGE)

    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    if isinstance(value, tuple) and len(value) == 2 and answer_of(value[0]) is None:
        usage = usage_of(value[1])
        if usage is not None:  # otherwise these are two candidates
            return CandidateBatch(value[:1], usage)

    if not values:
        raise GenerateFailed(
            "generate returned an empty list; return at least one candidate"
        )

    if any(value is None for value in values):
        raise GenerateFailed("generate returned None; return the candidate")

    answers = []
    for candidate in values:
        answer = None
        if not isinstance(candidate, str | dict):  # nearly always it is
            answer = answer_of(candidate)
        answers.append(answer or Answer(candidate))

    costs = [answer.usage for answer in answers]
    texts = tuple(answer.text for answer in answers)

    return CandidateBatch(texts, sum(costs[1:], costs[0]))


def declared(function: Any) -> Any:
    """Return the pydantic class that a function declares to return, or None."""
    # A name in the hints may not be defined, and the object may be no function.
    with suppress(NameError, TypeError, AttributeError):
        returned = get_type_hints(function).get("return")
        for kind in (returned, *get_args(returned)):
            if hasattr(kind, "model_validate"):
                return kind
    return None


def objects(function: Any, values: Sequence[Any]) -> tuple[Any, ...]:
    """Return stored values as objects of the class that `function` returns."""
    kind = declared(function) if values else None
    if kind is None:
        return tuple(values)

    def read(value: Any) -> Any:
        with suppress(ValueError):  # a secret was replaced, or the class has changed
            return kind.model_validate(value)
        return value

    return tuple(map(read, values))


def targeted(rewrite: Callable[[Any, str, Sequence[Finding]], Any]) -> Revise:
    """Return a reviser that rewrites only the parts of a text that findings point to.

    `rewrite(task, text, findings)` gets each part that findings mark with their `span`,
    and returns the new text or an Answer. Overlapping parts are joined. If no finding
    has a span, `rewrite` gets the whole candidate. The candidate must be text.
    """

    async def revise(task: Any, candidate: Any, findings: Sequence[Finding]) -> Any:
        if not isinstance(candidate, str):
            raise InvalidInput("candidate", candidate, "text, since only parts change")

        spans = _spans(candidate, findings)
        usage = Usage()
        for start, end, flagged in reversed(
            spans or [(0, len(candidate), list(findings))]
        ):
            text = rewrite(task, candidate[start:end], flagged)
            if hasattr(text, "__await__"):
                text = await text
            if isinstance(text, Answer):
                usage = usage + text.usage
                text = text.text

            candidate = f"{candidate[:start]}{text}{candidate[end:]}"

        return Answer(candidate, usage) if usage.calls else candidate

    return revise


def _spans(
    text: str, findings: Sequence[Finding]
) -> list[tuple[int, int, list[Finding]]]:
    flagged = [
        (*finding.span, finding) for finding in findings if finding.span is not None
    ]
    spans: list[tuple[int, int, list[Finding]]] = []
    for start, end, finding in sorted(flagged, key=lambda span: span[:2]):
        start = max(0, start)
        end = max(start, min(len(text), end))
        joined: list[Finding] = []
        if spans and start < spans[-1][1]:
            start, last, joined = spans.pop()
            end = max(last, end)

        spans.append((start, end, [*joined, finding]))

    return spans
