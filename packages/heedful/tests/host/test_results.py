"""The verdict is found in what each kind of framework returns."""

from types import SimpleNamespace

import pytest

from heedful.integrations import verdict_of
from heedful.loop.codec import verdict_to
from heedful.loop.decide import Done

VERDICT = Done(2, passed=True)
RESULTS = {
    "a state that has it": {"heedful": VERDICT},
    "the last message of a state": {
        "messages": [
            SimpleNamespace(response_metadata={"heedful": verdict_to(VERDICT)})
        ]
    },
    "an object": SimpleNamespace(heedful=VERDICT),
    "the state of an object": SimpleNamespace(state={"heedful": VERDICT}),
    "the metadata of an event": SimpleNamespace(
        custom_metadata={"heedful": verdict_to(VERDICT)}
    ),
}
UNJUDGED = {
    "a state without messages": {"messages": []},
    "a message without metadata": {"messages": [object()]},
    "an object without it": SimpleNamespace(state=None),
}


@pytest.mark.parametrize("name", RESULTS)
def test_the_verdict_of_a_result(name: str) -> None:
    assert verdict_of(RESULTS[name]) == VERDICT


@pytest.mark.parametrize("name", UNJUDGED)
def test_a_result_that_nobody_judged_has_no_verdict(name: str) -> None:
    assert verdict_of(UNJUDGED[name]) is None
