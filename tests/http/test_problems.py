"""Every error has a status and a code of its own, and tells no secrets."""

import pytest

from errata import errors
from errata.codes import TABLE
from errata.errors import ErrataError

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, ErrataError)
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_has_a_status_and_a_code(kind):
    status, code = TABLE[kind]
    assert 400 <= status < 600
    assert code.isidentifier()


def test_codes_are_told_apart():
    codes = [code for _, code in TABLE.values()]
    assert len(codes) == len(set(codes))
