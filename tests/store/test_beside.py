"""What effects came to is read back as what it was, and as nothing else."""

import pytest

from heedful.errors import StoreCorrupt
from heedful.lessons.lesson import Remembered
from heedful.store.idempotency import _plain, _value


@pytest.mark.parametrize(
    "value",
    [None, True, 1, 0.5, "a", (), ("a", 1), [1, [2]], {"a": (1,)}, Remembered(1, True, 2)],
    ids=repr,
)
def test_a_value_is_read_back(value):
    assert _value(_plain(value)) == value
    assert type(_value(_plain(value))) is type(value)


@pytest.mark.parametrize("kind", ["os:system", "heedful.redact:redacted", "heedful.no:A", "x", ""])
def test_a_record_that_names_no_value_of_heedful_is_refused(kind):
    with pytest.raises(StoreCorrupt, match="is no value"):
        _value({"@": kind, "of": {}})


def test_what_is_no_value_is_not_written_down():
    with pytest.raises(TypeError, match="no plain value: object"):
        _plain(object())
