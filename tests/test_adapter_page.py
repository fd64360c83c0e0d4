"""The adapter of docs/howto/testing.md: broken, it is refused by the suite of hosts."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from pathlib import Path

import pytest

from heedful.testing.conformance import HOST, HOST_BY_ID
from scripts.run_docs import blocks
from tests.tables import cases

PAGE = Path("docs/howto/testing.md").read_text("utf-8")


@cases(
    ("line", "other"),
    {
        "it begins no run": ("await self.attempts.begin()", "pass"),
        "it counts no request": ("attempts.spent += Usage(1)", "pass"),
        "it ends no run": ("await self.attempts.end(ends)", "self.attempts.done"),
        "it forgets the id": ("self.host.run(id, task)", "self.host.run(task=task)"),
        "it asks after the end": ("attempts.early_answer()", "attempts.closing()"),
        "it returns the last": ("attempts.has_better", "False"),
    },
)
async def test_a_broken_adapter_is_refused(
    line: str, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PAGE.count(line) == 1
    for block in blocks(PAGE.replace(line, other)):
        if block.title:
            (tmp_path / block.title).write_text(block.body)
            monkeypatch.delitem(sys.modules, Path(block.title).stem, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    drive = import_module("test_marten").drive
    with pytest.raises(Exception, match=r"broken promise|no loop 'one'"):
        await asyncio.gather(*[case(drive) for case in (*HOST, *HOST_BY_ID)])
