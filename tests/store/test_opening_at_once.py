"""Many open one new file at the same moment: nobody takes a half-seen schema for a stranger's."""

from __future__ import annotations

import asyncio
from pathlib import Path

from heedful.lessons.lesson import Scope
from heedful.store import lessons
from heedful.store.sqlite import in_file
from tests.conftest import SOAK


def test_a_new_file_opened_many_times_at_once_is_one_healthy_database(tmp_path: Path):
    async def opened(path: Path) -> list[int]:
        stores = [in_file(str(path)) for _ in range(12)]
        try:
            return await asyncio.gather(*(store.read(Scope(), lessons.count) for store in stores))
        finally:
            for store in stores:
                await store.close()

    for number in range(20 * SOAK):
        assert asyncio.run(opened(tmp_path / f"{number}.db")) == [0] * 12
