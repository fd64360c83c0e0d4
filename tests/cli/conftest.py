"""A desk for every test."""

from pathlib import Path

import pytest

from tests.cli.support import CHECKS, MODEL, Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.write("toy.py", MODEL)
    desk.write("mychecks.py", CHECKS)
    return desk
