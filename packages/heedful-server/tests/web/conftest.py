"""A browser on an empty store, signed in with a key that may all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.web.support import Browser, browsing


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The path of the store of `browser`."""
    return tmp_path / "heedful.db"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """A browser on an empty store; a module with rows of its own has another one."""
    with browsing(tmp_path) as browser:
        yield browser.open(browser.api._all)


@pytest.fixture
def site(browser: Browser) -> Browser:
    """The browser, in tests that name what it looks at."""
    return browser
