"""A service on a new file for each test; modules with other needs have their own."""

import pytest

from tests.service.support import served


@pytest.fixture
def api(tmp_path):
    with served(tmp_path) as api:
        yield api
