"""DSPy's Refine: a module that is run again with advice, which the model writes.

Refine gives a reward to a score, so the text of a failure is never sent. The double
writes the advice instead, as long as the failure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import dspy
from dspy.lm15 import Message, Request, Response, TextPart, Usage

from bench.peers.contract import Line, Work, serve
from bench.peers.loop import (
    LONG_FAULT_CHARS,
    LONG_FAULTS,
    TASK,
    Double,
    check_answer,
    find_fault,
    long_double,
    time_cycles,
)

# Only the request for advice names this field.
ADVICE_FIELD = "reward_code"


class AnswerSource:
    """The double as an engine of DSPy; it answers in the form of its chat adapter."""

    def __init__(self, double: Double, advice_chars: int) -> None:
        self.double = double
        self.advice_chars = advice_chars

    def complete(self, request: Request) -> Response:
        """Return the next answer, or advice about the last one."""
        texts = list(texts_of(request))
        if any(ADVICE_FIELD in text for text in texts):
            self.double.count(texts)
            fault = find_fault(self.double.last_answer, self.advice_chars).replace(
                '"', "'"
            )
            advice = f'{{"self": "{fault}"}}'
            text = f"[[ ## discussion ## ]]\nToo long.\n\n[[ ## advice ## ]]\n{advice}"
        else:
            text = f"[[ ## answer ## ]]\n{self.double.ask(texts)}"
        return Response(
            id=None,
            model="double",
            message=Message.assistant([TextPart(f"{text}\n\n[[ ## completed ## ]]")]),
            finish_reason="stop",
            usage=Usage(input_tokens=0, output_tokens=0, total_tokens=0),
        )


def texts_of(request: Request) -> Iterator[str]:
    """Yield the texts of a request."""
    if isinstance(request.system, str):
        yield request.system
    else:
        for part in request.system or ():
            yield part.text
    for message in request.messages:
        yield message.text or ""


def reward(arguments: dict[str, Any], prediction: Any) -> float:
    """Accept at most two words."""
    return 0.0 if find_fault(prediction.answer) else 1.0


def refine(double: Double, runs: int, advice_chars: int = 0) -> Callable[..., Any]:
    """Return a module that runs at most so often, with the double as its model."""
    logging.getLogger("dspy").setLevel(logging.ERROR)  # it warns in every cycle
    engine = AnswerSource(double, advice_chars)
    dspy.configure(lm=dspy.LM("double/double", engine=engine, cache=False))
    predict = dspy.Predict("task -> answer")
    return dspy.Refine(module=predict, N=runs, reward_fn=reward, threshold=1.0)  # type: ignore[no-any-return]


def time_loop(work: Work) -> Iterator[Line]:
    """Time loops of two attempts."""
    module = refine(Double(), 2)

    def cycle() -> None:
        check_answer(module(task=TASK).answer)

    yield from time_cycles(cycle, work.times)


def count_bytes(work: Work) -> Iterator[Line]:
    """Count what is sent for eight failures with long advice."""
    double = long_double()
    module = refine(double, LONG_FAULTS + 1, LONG_FAULT_CHARS)
    check_answer(module(task=TASK).answer)
    yield from double.report()


if __name__ == "__main__":
    serve({"cycle": time_loop, "bytes": count_bytes})
