"""The adapter that the page shows keeps what each host has to keep."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from heedful.testing import conformance
from scripts.run_docs import blocks

PAGE = Path("docs/howto/testing.md")
MODULES = ("marten", "heedful_marten", "test_marten")


@pytest.fixture
def drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Drive the agent of the page, whose modules exist during the test only."""
    for block in blocks(PAGE.read_text(encoding="utf-8")):
        if block.title:
            (tmp_path / block.title).write_text(block.body, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield import_module("test_marten").drive
    for name in MODULES:
        del sys.modules[name]


@pytest.mark.parametrize("case", conformance.HOST, ids=conformance.name)
async def test_the_agent_of_the_page_conforms(
    case: conformance.Case, drive: Any
) -> None:
    await case(drive)
