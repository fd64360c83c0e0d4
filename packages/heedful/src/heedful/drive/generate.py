"""Generate candidates with a model or the user's function, and revise parts of them."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

from heedful.checks.evaluate import (
    EMPTY_ANSWER_FINDING,
    Check,
    Context,
    Yielded,
    blocking,
    call,
    key_of,
    second_parameter,
    whole_hint,
    with_second,
)
from heedful.checks.json_schemas import takes_list
from heedful.checks.output import Output, to_stored, with_calls
from heedful.drive.journal import journalable
from heedful.errors import (
    GenerateFailed,
    InvalidInput,
    NotJournalable,
    UsageUnknown,
    describe,
    place_of,
)
from heedful.lessons.render import as_messages, as_text
from heedful.loop import codec
from heedful.loop.ladder import MAX_RUNGS, Allowance
from heedful.loop.record import (
    UNJUDGED,
    UNJUDGED_ADVICE,
    Attempt,
    Evaluation,
    Finding,
    Goal,
    Loop,
    Rank,
    Usage,
)
from heedful.loop.stop import StopRule, uncounted
from heedful.models.answers import (
    answer_of,
    answers_of,
    join_parts,
    unfinished,
    usage_of_list,
)
from heedful.models.call import complete
from heedful.models.contract import Answer, Message, Model
from heedful.redact import redact
from heedful.sanitize import cut_middle
from heedful.validation import (
    MAX_NAME_CHARS,
    MAX_SCORE,
    MAX_SHOWN_LINE_CHARS,
    Fields,
    check_integer,
    check_name,
    check_number,
    refuses_unknown_options,
    require,
    typed_frozen,
)

Generate = Callable[..., "Any | Awaitable[Any]"]
# The parameters of a function that get the feedback, wherever they stand.
HINT_PARAMETERS = ("hint", "feedback")
Revise = Callable[[Any, Any, Sequence[Finding]], "Any | Awaitable[Any]"]
ALIKE_WARNING = (
    "the first of {} candidates was taken, as all passed alike; to return a list as "
    "one answer, return [the_list]"
)
_log = logging.getLogger("heedful")
SINGLE_CALL_USAGE = Usage(calls=1)


@dataclass(frozen=True, slots=True)
class Writer:
    """A model that writes candidates.

    `system` is the system message. `schema` is the JSON Schema of the answer.
    `max_tokens` limits the length of the answer. `temperature` is that of the first
    attempt. Each retry is a new prompt with
    bounded size: recalled examples and those of recalled rules as chat turns, the
    rules, the last candidate if it is longer than a line (`MAX_SHOWN_LINE_CHARS`), the
    feedback, and the task.
    """

    model: Model
    system: str = ""
    _: KW_ONLY
    schema: Fields | None = None
    max_tokens: int | None = None
    temperature: float = 0.0

    def asking_for(self, output: Output | None) -> Writer:
        """Return the writer that asks for a declared type, unless it has a schema.

        Providers take schemas of objects only.
        """
        schema = None if output is None else output.schema
        if schema is None or schema.get("type") != "object" or self.schema is not None:
            return self
        return replace(self, schema=schema)

    def messages(self, context: Context) -> list[Message]:
        """Return the prompt for an attempt, without secrets."""
        messages = []
        if self.system:
            messages.append(Message("system", self.system))

        # The worked example of a rule is shown like any other recalled example.
        worked_rules = [
            replace(rule, example=rule.worked) for rule in context.advice if rule.worked
        ]
        messages += as_messages(worked_rules)
        messages += context.examples

        messages.append(Message("user", "\n\n".join(_request_parts(context))))
        return [Message(message.role, redact(message.content)) for message in messages]


def _request_parts(context: Context) -> list[str]:
    """Return what the last turn of a prompt says.

    That is: rules, the last answer, the hint, the task.
    """
    parts = []
    if context.advice:
        rules = [replace(rule, worked=None) for rule in context.advice]
        parts.append(as_text((), context.seed, rules))

    if context.hint:
        last_answer = redact(_prompt_text(context.previous))

        # A shorter candidate is easier to write again than to correct. Of 24 one-line
        # tasks, the embedded 0.5B model solved 20 within 4 attempts if a retry showed
        # feedback and task, but 7 with the last answer before them, and 1 with task,
        # last answer, feedback: a small model copies what it sees.
        if len(last_answer) > MAX_SHOWN_LINE_CHARS:
            # A prompt must not grow with the answers.
            last_answer = cut_middle(last_answer, 1_200)
            parts.append(f"Your last answer:\n{last_answer}")

        parts.append(context.hint)

    parts.append(_prompt_text(context.task))
    return parts


def _prompt_text(value: Any) -> str:
    """Return a task or an answer as a prompt shows it: text as it is, data as JSON."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


@refuses_unknown_options
@dataclass(frozen=True, slots=True)
class Rung:
    """One of the generators of a loop, its price, and the most that it may spend a day.

    `generate` is a function, a Writer or a Model, as `run` takes it. `name` is that of
    its model in records; by default a Writer names its model, and a function itself.
    `price` is the cost of a token in the currency of `Usage.cost`, for a model that
    reports no cost; 0 if the model costs nothing. In all loops of the scope together,
    the rung begins no attempt after its `calls`, `tokens` or `cost` of the day, in UTC,
    are spent; None means no limit. A Model or a Writer makes one call for an attempt,
    so never more than `calls`.
    """

    generate: Generate | Writer | Model
    name: str = ""
    _: KW_ONLY
    price: float | None = None
    calls: int | None = None
    tokens: int | None = None
    cost: float | None = None

    def __post_init__(self) -> None:
        check_name("name", self.name)
        if self.price is not None:
            check_number("price", self.price, low=0, high=MAX_SCORE)
        for unit in ("calls", "tokens"):
            limit = getattr(self, unit)
            if limit is not None:
                check_integer(unit, limit)
        if self.cost is not None:
            check_number("cost", self.cost, low=1e-9, high=MAX_SCORE)


@typed_frozen(slots=True, kw_only=True)
class Producer:
    """What makes the candidates of one rung of a loop.

    A call of `generate` blocks its thread if it `blocks`, and gets the feedback as its
    `hint_parameter` (see `second_parameter`). `model` is the name of its model, "" if
    it is unknown. Only a rung with a limit has an `allowance`. `output` is the declared
    type of the candidates.
    """

    generate: Generate | Writer
    blocks: bool
    hint_parameter: str | None = None
    model: str = ""
    price: float | None = None
    allowance: Allowance | None = None
    output: Output | None = None

    @property
    def name(self) -> str:
        """The name of the rung: its model, or else its function."""
        label = getattr(self.generate, "label", "")
        return self.model or label or key_of(self.generate)

    @property
    def writes(self) -> bool:
        """True if a model writes the candidates, and not a function."""
        return isinstance(self.generate, Writer)

    @property
    def temperature(self) -> float:
        """The temperature of the first attempt."""
        return self.generate.temperature if isinstance(self.generate, Writer) else 0.0

    @property
    def deaf(self) -> str:
        """The name of the function if it has no parameter for the hint, else ""."""
        if isinstance(self.generate, Writer):
            return ""
        # A decorated function is called by another one, which knows its parameters.
        hears = getattr(self.generate, "hears", self.hint_parameter is not None)
        return "" if hears else self.name or "the function"

    async def produce(self, context: Context) -> CandidateBatch:
        """Make the candidates of an attempt. Raises GenerateFailed, ModelError."""
        generate = self.generate
        if not isinstance(generate, Writer):
            ask = with_second(
                generate, context.task, whole_hint(context), self.hint_parameter
            )
            return self.with_price(
                await _ask_function(
                    "generate", ask, context, thread=self.blocks, output=self.output
                )
            )

        if self.output is not None:
            context = replace(context, previous=self.output.plain(context.previous))
        answer = await complete(
            generate.model,
            generate.messages(context),
            schema=generate.schema,
            max_tokens=generate.max_tokens,
            temperature=context.temperature,
            seed=context.seed,
        )
        # The name that the user gave stays the same if the provider serves a newer one.
        answer = replace(answer, model=generate.model.name)
        return self.with_price(_batch_of([answer], self.output))

    def with_output(self, output: Output | None) -> Producer:
        """Return the producer of candidates of a declared type, if there is one."""
        if output is None:
            return self
        generate = self.generate
        if isinstance(generate, Writer):
            generate = generate.asking_for(output)
        return replace(self, generate=generate, output=output)

    def with_price(self, batch: CandidateBatch) -> CandidateBatch:
        """Return the candidates with the name and the price of their model."""
        # The name that the user gave counts before the one that a provider gives.
        if self.model:
            batch = replace(batch, model=self.model)
        if self.price and not batch.usage.cost:
            batch = replace(
                batch, usage=batch.usage + Usage(cost=self.price * batch.usage.tokens)
            )
        return batch


# What a loop takes as its generator, or as one of several.
Generator = Generate | Writer | Model | Rung
Generators = Generator | Sequence[Generator]


def producers(
    generate: Generators, model: str = "", output: Output | None = None
) -> tuple[Producer, ...]:
    """Return what makes the candidates of each rung; `model` is that of the first one.

    `output` is the declared type of the candidates. Raises InvalidInput.
    """
    generators: Sequence[Any] = [generate]
    if isinstance(generate, list | tuple):
        generators = generate
    allowed = f"1 to {MAX_RUNGS} generators, cheapest first"
    require(1 <= len(generators) <= MAX_RUNGS, "generate", generate, allowed)
    rungs = [_producer(generators[0], model), *map(_producer, generators[1:])]

    for index, rung in enumerate(rungs):
        _check_arguments(rung)
        for earlier in rungs[:index]:
            are_limited = rung.allowance is not None or earlier.allowance is not None
            require(
                not are_limited or rung.name != earlier.name,
                "name",
                rung.name,
                "names that differ: a limit of the day belongs to a name",
            )
            is_same = rung.generate is earlier.generate
            require(
                not is_same and rung.generate != earlier.generate,
                "generate",
                rung.name or rung.generate,
                "generators that differ: the same one fails again",
            )
    return tuple(rung.with_output(output) for rung in rungs)


def _producer(rung: Generator, model: str = "") -> Producer:
    """Return what makes the candidates of a rung. Raises InvalidInput."""
    if isinstance(rung, Rung):
        producer = _producer(rung.generate, rung.name or model)
        producer = replace(producer, price=rung.price)
        if rung.calls is None and rung.tokens is None and rung.cost is None:
            return producer

        allowed = "a name: the limit of a day belongs to it"
        require(producer.name, "name", rung.name, allowed)
        allowance = Allowance(
            name=producer.name, calls=rung.calls, tokens=rung.tokens, cost=rung.cost
        )
        return replace(producer, allowance=allowance)

    generate = generator(rung)
    if isinstance(generate, Writer):
        model = model or generate.model.name
        return Producer(generate=generate, blocks=False, model=model)
    return Producer(
        generate=generate,
        blocks=blocking(generate),
        hint_parameter=second_parameter(generate, HINT_PARAMETERS),
        model=model,
    )


def _check_arguments(producer: Producer) -> None:
    """Raise InvalidInput unless a function can be called with a task, or with a hint.

    A rung that only fails when the loop has climbed to it would fail too late.
    """
    function = producer.generate
    if isinstance(function, Writer):
        return
    ask = with_second(function, "task", "hint", producer.hint_parameter)
    if inspect.isfunction(function) and not hasattr(function, "__wrapped__"):
        # Reading the code, which is enough for most, takes a tenth of the time.
        code = function.__code__
        required = code.co_argcount - len(function.__defaults__ or ())
        needs_signature = ask.keywords or code.co_kwonlyargcount
        if required <= len(ask.args) <= code.co_argcount and not needs_signature:
            return

    try:
        signature = inspect.signature(ask.func)
    except (TypeError, ValueError):
        return  # a builtin function does not say what it takes

    with suppress(TypeError):
        signature.bind(*ask.args, **ask.keywords)
        return
    raise InvalidInput(
        "generate",
        f"{producer.name}{signature}",
        "a function of a task, or of a task and a hint",
    )


def generator(generate: Generate | Writer | Model) -> Generate | Writer:
    """Return what makes the candidates; a Model in a Writer. Raises InvalidInput."""
    if callable(getattr(generate, "complete", None)):
        return Writer(cast("Model", generate))

    is_generator = isinstance(generate, Writer) or callable(generate)
    allowed = "a callable, a Writer or a Model (heedful.open_model opens one)"
    require(is_generator, "generate", generate, allowed)
    return cast("Generate | Writer", generate)


@typed_frozen(slots=True)
class CandidateBatch:
    """The candidates of one attempt, at least one, their cost, and who wrote them.

    `model` is "" if it is unknown, or if several models wrote them. `faults` has for
    each candidate what is wrong with how the provider ended it, or None.
    """

    values: tuple[Any, ...]
    usage: Usage
    model: str = ""
    faults: tuple[Finding | None, ...] = (None,)

    def plain(self, output: Output | None) -> list[Any]:
        """Return JSON data for the journal. Raises NotJournalable.

        `output` is the declared type of the candidates.
        """
        faults = [fault and codec.to_document(fault) for fault in self.faults]
        values = [to_stored(value, output) for value in self.values]
        return [values, codec.to_document(self.usage), self.model, faults]

    def distinct(self, output: Output | None) -> list[tuple[Any, Finding | None]]:
        """Return the candidates, each with its fault, without equal ones.

        Equal are those that would be stored alike.
        """
        pairs = list(zip(self.values, self.faults, strict=True))
        if len(pairs) == 1:  # nearly always
            return pairs
        by_form: dict[Any, tuple[Any, Finding | None]] = {}
        for value, fault in pairs:
            form: Any = id(value)
            with suppress(NotJournalable):
                form = json.dumps(to_stored(value, output), sort_keys=True)
            by_form.setdefault((form, fault), (value, fault))
        return list(by_form.values())

    @classmethod
    def of(
        cls, plain: Sequence[Any], restore: Callable[[Any, str], Any]
    ) -> CandidateBatch:
        """Return the candidates from JSON data that the method `plain` returned.

        `restore(data, type name)` returns a candidate.
        """
        stored_values, costs, model, documents = plain
        values = [restore(data, type_name) for data, type_name in stored_values]
        usage = codec.from_document(Usage, costs)
        faults = [fault and codec.from_document(Finding, fault) for fault in documents]
        return cls(tuple(values), usage, model, faults=tuple(faults))


async def revise_candidate(
    revise: Revise,
    context: Context,
    findings: Sequence[Finding],
    output: Output | None,
) -> CandidateBatch:
    """Return the result of `revise` on the last candidate. Raises GenerateFailed."""
    ask = partial(revise, context.task, context.previous, findings)
    return await _ask_function(
        "revise", ask, context, thread=blocking(revise), output=output
    )


async def _ask_function(
    name: str,
    ask: Callable[[], Any],
    context: Context,
    *,
    thread: bool,
    output: Output | None,
) -> CandidateBatch:
    """Call the user's function, the argument `name` of a loop; return its candidates.

    The function may return a candidate, a list of candidates, either with its usage, or
    the answer of an SDK, whose choices are candidates; or it yields the parts of one. A
    list, tuple or None that is a value of the declared type, `output`, is one
    candidate. None or an exception in a list is a refused candidate, and so is an empty
    list; a list of exceptions is the first of them, raised. Raises GenerateFailed,
    InvalidInput.
    """
    failed = partial(_generate_failed, name)
    result = await call(failed, ask, at=context, thread=thread)
    usage = None
    if output is None or not takes_list(output.schema):
        usage = usage_of_list(result)
    if usage is not None:
        result = result[0]
    answers = read_answers(name, result)
    if isinstance(result, tuple) and len(result) == 2 and not answers:
        _check_pair(name, *result)

    if output is not None and isinstance(result, list | tuple | None) and not answers:
        _, mismatches = output.read(result)
        if not mismatches:
            return CandidateBatch((result,), usage or SINGLE_CALL_USAGE)
    if result is None:
        raise GenerateFailed(
            f"{name} returned None: does the function lack a return? Return the "
            "candidate"
        )

    if not answers:
        # A pair without a usage is a list of two candidates.
        candidates = result if isinstance(result, (list, tuple)) else [result]
        candidates = candidates or [None]
        for candidate in candidates:
            answers += _answers_in(candidate)
        if all(isinstance(candidate, Exception) for candidate in candidates):
            raise failed(candidates[0]) from candidates[0]
    batch = _batch_of(answers, output)
    return batch if usage is None else replace(batch, usage=usage)


def _answers_in(candidate: Any) -> list[Answer]:
    """Return a candidate as one answer, or its choices if it is the answer of an SDK.

    A candidate without a usage of its own has cost one call, also one that is missing.
    """
    if candidate is None:
        return [Answer("", fault=EMPTY_ANSWER_FINDING)]
    if isinstance(candidate, Exception):
        # `asyncio.gather(…, return_exceptions=True)` returns it beside good answers.
        message = f"there is no answer, but {describe(candidate)}"
        return [Answer("", fault=replace(EMPTY_ANSWER_FINDING, message=message))]
    return answers_of(candidate) or [Answer(candidate)]


def read_answers(function: str, result: Any) -> list[Answer]:
    """Return the answers in what a function yielded in parts, or returned."""
    if isinstance(result, Yielded):
        return join_parts(function, result)
    return answers_of(result)


def _batch_of(answers: Sequence[Answer], output: Output | None) -> CandidateBatch:
    """Return answers as the candidates of one attempt, with the values of calls."""
    answers = [with_calls(answer, output) for answer in answers]
    models = {answer.model for answer in answers}
    model = models.pop() if len(models) == 1 else ""
    return CandidateBatch(
        tuple([answer.text for answer in answers]),
        sum([answer.usage for answer in answers[1:]], answers[0].usage),
        model,
        faults=tuple(map(unfinished, answers)),
    )


def _check_pair(name: str, first: Any, second: Any) -> None:
    """Raise InvalidInput if the second part of a pair is neither usage nor candidate.

    Objects of one class are two candidates, and so is all that can be stored.
    """
    if type(first) is type(second) or answer_of(second) is not None:
        return
    try:
        journalable(second)
    except NotJournalable:
        allowed = (
            "the answer of an SDK (OpenAI, LiteLLM, Anthropic, Google), a run of "
            "pydantic-ai or Agno, or a heedful.Usage(calls, prompt_tokens, "
            "completion_tokens=…); to offer two candidates, return a list"
        )
        field = f"second part ({type(second).__name__}) of the pair from {name}"
        raise InvalidInput(field, second, allowed) from None


def _generate_failed(name: str, error: BaseException) -> GenerateFailed:
    """Return the error for an exception of the user's function, the argument `name`."""
    message = f"{type(error).__name__}: {redact(str(error))[:300]}".removesuffix(": ")
    place = place_of(error)
    if place:
        message += f" ({place})"
    return GenerateFailed(f"{name} raised {message}")


def targeted(rewrite: Callable[[Any, str, Sequence[Finding]], Any]) -> Revise:
    """Return a reviser that rewrites only the parts of a text that findings point to.

    `rewrite(task, text, findings)` gets each part that findings mark with their `span`,
    and returns the new text or an Answer. Overlapping parts are joined. If no finding
    has a span, `rewrite` gets the whole candidate. The candidate must be text.
    """

    async def revise(task: Any, candidate: Any, findings: Sequence[Finding]) -> Any:
        """Return the candidate with rewritten parts. Raises InvalidInput."""
        is_text = isinstance(candidate, str)
        require(is_text, "candidate", candidate, "text, since only parts change")

        parts = _flagged_parts(candidate, findings)
        if not parts:
            parts = [_FlaggedPart(0, len(candidate), list(findings))]

        # From the end to the beginning, so that earlier positions stay right.
        usage = Usage()
        for part in reversed(parts):
            text = rewrite(task, candidate[part.start : part.end], part.findings)
            if hasattr(text, "__await__"):
                text = await text

            if isinstance(text, Answer):
                usage = usage + text.usage
                text = text.text

            candidate = f"{candidate[: part.start]}{text}{candidate[part.end :]}"

        return Answer(candidate, usage) if usage.calls else candidate

    return revise


class _FlaggedPart(NamedTuple):
    """The characters of a text from `start` to before `end`, and what is wrong."""

    start: int
    end: int
    findings: list[Finding]


def _flagged_parts(text: str, findings: Sequence[Finding]) -> list[_FlaggedPart]:
    """Return the parts of `text` that findings point to, in order, without overlaps."""
    located = [
        (finding.span, finding) for finding in findings if finding.span is not None
    ]
    located.sort(key=lambda pair: tuple(pair[0]))

    parts: list[_FlaggedPart] = []
    for span, finding in located:
        start = max(0, span[0])
        end = max(start, min(len(text), span[1]))

        part = _FlaggedPart(start, end, [finding])
        if parts and start < parts[-1].end:
            before = parts.pop()
            part = _FlaggedPart(
                before.start, max(before.end, end), [*before.findings, finding]
            )

        parts.append(part)

    return parts


def default_memory_key(first: Producer, checks: Sequence[Check]) -> str:
    """Return the memory key of the function; for a model, that of the checks.

    Of several generators it is that of the first, so that a loop keeps its memory when
    it gets another rung.
    """
    return key_of_checks(checks) if first.writes else key_of(first.generate)


def key_of_checks(checks: Sequence[Check]) -> str:
    """Return the names of the checks; "" if any of them has no lasting name."""
    keys = []
    for check in checks:
        key = key_of(check) if inspect.isfunction(check) else ""
        if not key or "<locals>" in key:
            return ""
        keys.append(key)

    return ", ".join(keys)[-MAX_NAME_CHARS:]


def check_countable(
    producer: Producer,
    rules: Sequence[StopRule],
    attempts: Sequence[Attempt],
    rung: int,
) -> None:
    """Raise UsageUnknown if no answer of a rung reports what one of its limits counts.

    The limits are the budgets among the `rules` and those of the day.
    """
    limits = [*rules, producer.allowance]
    units = uncounted(limits, (attempt for attempt in attempts if attempt.rung == rung))
    if producer.price == 0:
        units = [unit for unit in units if unit != "cost"]
    if units:
        raise UsageUnknown(producer.name, units)


def choose_best(
    producer: Producer, evaluations: Sequence[Evaluation], goals: tuple[Goal, ...]
) -> int:
    """Return the index of the best candidate of an attempt; warn if all pass alike."""
    best = 0
    are_alike = True
    for index, evaluation in enumerate(evaluations):
        rank, best_rank = ranks_with_preference(evaluation, evaluations[best], goals)
        are_alike = are_alike and rank == best_rank
        if rank < best_rank:
            best = index

    if are_alike and evaluations[best].passes(goals):
        _warn_once(producer.name, ALIKE_WARNING.format(len(evaluations)))
    return best


def warn_if_unjudged(producer: Producer, loop: Loop) -> None:
    """Warn if the loop passed because nothing judged its last attempt."""
    last = loop.attempts[-1] if loop.attempts else None
    if last is None or not last.unjudged:
        return
    if last.evaluation is not None and last.evaluation.passes(loop.goals):
        _warn_once(producer.name, f"passed, but {UNJUDGED}. {UNJUDGED_ADVICE}")


@lru_cache(1_000)
def _warn_once(function: str, text: str) -> None:
    """Log a warning about a function, only the first time in this process."""
    _log.warning("heedful: %s: %s", function or "the function", text)


def ranks_with_preference(
    evaluation: Evaluation, other: Evaluation, goals: tuple[Goal, ...]
) -> tuple[Rank, Rank]:
    """Return sort keys of two candidates of one attempt, smaller for the better one.

    They are those of `Evaluation.ranks_beside`, with the preference of critics before
    the margins.
    """
    rank, other_rank = evaluation.ranks_beside(other, goals)
    return (
        (*rank[:3], -evaluation.preference, *rank[3:]),
        (*other_rank[:3], -other.preference, *other_rank[3:]),
    )
