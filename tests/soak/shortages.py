"""Programs that `test_shortages` runs where something is short: they say what is
acknowledged, and which errors came instead.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import resource
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from heedful.errors import HeedfulError
from heedful.store import open_store
from tests.soak.workloads import Work, say

UNLIMITED = resource.RLIM_INFINITY
MAX_ROOM_BYTES = 100_000  # that is left when a disk becomes full
NOBODY = 65534


def refuse(error: HeedfulError) -> None:
    """Say that an error came; any other kind of error ends the program."""
    say(f"refused {type(error).__name__} {error}")


class LimitedDisk:
    """A disk that is full for files beyond a size."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, room: int) -> None:
        """Leave so many bytes behind the end of the longest file."""
        sizes = (path.stat().st_size for path in self.folder.rglob("*.db*"))
        limit = max(sizes, default=0) + room
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, UNLIMITED))

    def free(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (UNLIMITED, UNLIMITED))


async def full(path: str, name: str, rounds: str, seed: str) -> None:
    """Work on a disk that becomes full at a random moment of each round, and has room
    again before the next.
    """
    chance = random.Random(seed)
    folder = Path(path).parent
    disk = LimitedDisk(folder)
    store = open_store(path)
    for number in range(int(rounds)):
        lines_left = chance.randint(1, 15)  # of about 35

        def tell(line: str) -> None:
            nonlocal lines_left
            say(line)
            lines_left -= 1
            if lines_left == 0:
                disk.fill(chance.randrange(MAX_ROOM_BYTES))

        try:
            await Work(store, folder, tell).round(f"{name}-{number}")
        except HeedfulError as error:
            refuse(error)
        disk.free()
    # The store is as good as new.
    await Work(store, folder, say).round(f"{name}-last")
    await store.close()


async def read_only(path: str, name: str) -> None:
    """Work as nobody in a folder that becomes read-only, and writable again."""
    database = Path(path)
    folder = database.parent
    store = open_store(path)
    for number in range(3):
        await Work(store, folder, say).round(f"{name}-{number}")
        await store.close()
        for mode, file_mode in ((0o555, 0o600), (0o755, 0o400), (0o555, 0o400)):
            os.chmod(folder, mode)
            os.chmod(database, file_mode)
            try:
                await Work(store, folder, say).round(f"{name}-{number}-{mode}")
            except HeedfulError as error:
                refuse(error)
            # As the error says: SQLite makes its log as the file was then.
            folder.chmod(0o755)
            for file in folder.glob("a.db*"):
                file.chmod(0o600)
            await store.close()
    await Work(store, folder, say).round(f"{name}-last")
    await store.close()


async def warm_up() -> None:
    """Import all that the work needs, while files can be opened."""
    with TemporaryDirectory() as folder:
        store = open_store(f"{folder}/a.db")
        await Work(store, Path(folder), lambda line: None).round("warm")
        await store.close()


PROGRAMS: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
    "full": full,
    "read_only": read_only,
}


def main() -> None:
    _, program, *arguments = sys.argv
    # Stages and reports fail on purpose.
    logging.getLogger("heedful").addHandler(logging.NullHandler())
    asyncio.run(warm_up())
    if program == "read_only" and os.getuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    asyncio.run(PROGRAMS[program](*arguments))


if __name__ == "__main__":
    main()
