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

from bench.peers.contract import serve
from bench.peers.loop import TASK, Double, find_fault, loop_programs

# Only the request for advice names this field.
ADVICE_FIELD = "reward_code"


class AnswerSource:
    """The double as an engine of DSPy; it answers in the form of its chat adapter."""

    def __init__(self, double: Double, find: Callable[[str], str]) -> None:
        self.double = double
        self.find = find

    def complete(self, request: Request) -> Response:
        """Return the next answer, or advice about the last one."""
        texts = list(texts_of(request))
        if any(ADVICE_FIELD in text for text in texts):
            self.double.count(texts)
            fault = self.find(self.double.last_answer).replace('"', "'")
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


def build(
    double: Double, find: Callable[[str], str], retries: int
) -> Callable[[], object]:
    """Return a module with the double as its model; its advice is what `find` says."""
    logging.getLogger("dspy").setLevel(logging.ERROR)  # it warns in every cycle
    engine = AnswerSource(double, find)
    dspy.configure(lm=dspy.LM("double/double", engine=engine, cache=False))
    predict = dspy.Predict("task -> answer")
    module = dspy.Refine(
        module=predict,
        N=retries + 1,
        reward_fn=reward,
        threshold=1.0,
    )
    return lambda: module(task=TASK).answer


if __name__ == "__main__":
    serve(loop_programs(build))
