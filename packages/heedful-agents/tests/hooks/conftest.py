"""Fixtures of the tests of hooks."""

from pathlib import Path

import pytest

from tests.hooks.homes import Home, make_repository


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit, of which each user has a copy."""
    return make_repository(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def home(tmp_path: Path, repository: Path) -> Home:
    """A user with a home, and a repository."""
    return Home(tmp_path, repository)
