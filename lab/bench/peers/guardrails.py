"""guardrails-ai: a guard with a validator that asks again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from guardrails import Guard, OnFailAction
from guardrails.validators import (
    FailResult,
    PassResult,
    ValidationResult,
    Validator,
    register_validator,
)

from bench.peers.contract import Line, Work, serve
from bench.peers.loop import (
    LONG_FAULTS,
    TASK,
    Double,
    check_answer,
    find_fault,
    find_long_fault,
    long_double,
    time_cycles,
)


@register_validator(name="bench/short", data_type="string")
class Short(Validator):
    """At most two words; `find` returns what is wrong with an answer."""

    def __init__(self, find: Callable[[str], str]) -> None:
        super().__init__(on_fail=OnFailAction.REASK)
        self.find = find

    def validate(self, value: Any, metadata: Mapping[str, Any]) -> ValidationResult:
        """Accept at most two words."""
        fault = self.find(value)
        return FailResult(error_message=fault) if fault else PassResult()


def ask(double: Double) -> Callable[..., str]:
    """Return the double as a callable that guardrails asks."""

    def answer(*, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        return double.ask(str(message["content"]) for message in messages)

    return answer


def make_guard(find: Callable[[str], str]) -> Guard[str]:
    """Return a guard that sends nothing to its makers."""
    guard = Guard().use(Short(find))
    guard.configure(allow_metrics_collection=False)
    return guard


def time_loop(work: Work) -> Iterator[Line]:
    """Time loops of two attempts."""
    guard = make_guard(find_fault)
    model = ask(Double())

    def cycle() -> None:
        messages = [{"role": "user", "content": TASK}]
        outcome = guard(model, messages=messages, num_reasks=1)
        check_answer(outcome.validated_output)

    yield from time_cycles(cycle, work.times)


def count_bytes(work: Work) -> Iterator[Line]:
    """Count what is sent for eight long failures."""
    double = long_double()
    guard = make_guard(find_long_fault)
    messages = [{"role": "user", "content": TASK}]
    outcome = guard(ask(double), messages=messages, num_reasks=LONG_FAULTS)
    check_answer(outcome.validated_output)
    yield from double.report()


if __name__ == "__main__":
    serve({"cycle": time_loop, "bytes": count_bytes})
