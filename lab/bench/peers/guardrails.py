"""guardrails-ai: a guard with a validator that asks again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from guardrails import Guard, OnFailAction
from guardrails.validators import (
    FailResult,
    PassResult,
    ValidationResult,
    Validator,
    register_validator,
)

from bench.peers.contract import serve
from bench.peers.loop import TASK, Double, loop_programs


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


def build(
    double: Double, find: Callable[[str], str], retries: int
) -> Callable[[], object]:
    """Return a guard around the double that sends nothing to its makers."""
    guard: Guard[str] = Guard().use(Short(find))
    guard.configure(allow_metrics_collection=False)

    def answer(*, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        return double.ask(str(message["content"]) for message in messages)

    def run() -> object:
        messages = [{"role": "user", "content": TASK}]
        return guard(answer, messages=messages, num_reasks=retries).validated_output

    return run


if __name__ == "__main__":
    serve(loop_programs(build))
