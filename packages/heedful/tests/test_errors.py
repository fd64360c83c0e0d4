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
