"""An error reaches another process as it was raised: queues and pools pickle errors."""

import copy
import pickle

import pytest

from heedful import errors

ERRORS = [
    errors.InvalidInput("limit", -1, "an integer of at least 1"),
    errors.UnknownName("task", "dreem", ["dream", "prove"]),
    errors.MissingAttribute("heedful", "runn", ["run"]),
    errors.PackageMissing("reading Parquet", "pyarrow", "frames"),
    errors.NotFound("loop", "order-7", "acme/shop"),
    errors.CheckFailed("digits", TypeError("no digits")),
    errors.MalformedAnswer("no JSON", "Sure! Here"),
    errors.StoreInDoubt("a write"),
    errors.LeaseLost("another process drives the loop"),
]


@pytest.mark.parametrize(
    ("cause", "is_at_fault"),
    [
        pytest.param(TypeError("no digits"), True, id="its own code"),
        pytest.param(TimeoutError("30 s"), False, id="a timeout"),
        pytest.param(ConnectionResetError("by peer"), False, id="a connection"),
        pytest.param(errors.ModelTimeout("30 s"), False, id="a slow model"),
    ],
)
def test_a_check_is_to_be_fixed_unless_what_it_asks_was_out_of_reach(
    cause, is_at_fault
) -> None:
    text = str(errors.CheckFailed("judge", cause))
    assert "run again" in text
    assert ("fix the check" in text) is is_at_fault


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    "carry",
    [lambda error: pickle.loads(pickle.dumps(error)), copy.copy],
    ids=["pickled", "copied"],
)
def test_an_error_keeps_its_class_message_and_fields(carry, error) -> None:
    carried = carry(error)
    assert type(carried) is type(error)
    assert str(carried) == str(error)
    assert carried.args == error.args
    assert vars(carried) == vars(error)
