"""Fixtures of the tests of hooks."""

from pathlib import Path

import pytest

from tests.hooks.hostile import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A user with a home, and a remote repository of somebody else."""
    return Home(tmp_path)
