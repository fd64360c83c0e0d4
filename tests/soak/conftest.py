"""The ledger of the long runs, for each test of this folder."""

from __future__ import annotations

import pytest

from tests.soak.ledger import Ledger


@pytest.fixture
def ledger(request: pytest.FixtureRequest) -> Ledger:
    """Begin the lines of a test; their seconds count from here."""
    return Ledger(request.node.nodeid)
