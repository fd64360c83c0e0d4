"""Many processes on one file."""

from __future__ import annotations

import pytest

from tests.conftest import SOAK
from tests.store.support import ended, python, rows

pytestmark = pytest.mark.soak

REMEMBERING = """
import asyncio, sys
import heedful

async def main(path, times):
    memory = heedful.Memory(path)
    for n in range(times):
        answer = await memory.remember("ValueError", f"line {n}: could not convert {n}.5 to int")
        print(answer.id, answer.created, answer.seen)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def test_the_same_lesson_104_times_from_8_processes_is_one_row_seen_104(tmp_path):
    path, times = tmp_path / "a.db", 13 * SOAK
    processes = [python(REMEMBERING, path, times) for _ in range(8)]
    answers = [line.split() for process in processes for line in ended(process).splitlines()]
    ((id, seen),) = rows(path, "select id, seen from reflection")
    assert (seen, rows(path, "select count(*) from occurrence")) == (8 * times, [(8 * times,)])
    # Each was acknowledged once, with a count of its own.
    acknowledged = sorted((int(seen), created) for _, created, seen in answers)
    assert acknowledged == [(n, str(n == 1)) for n in range(1, 8 * times + 1)]
    assert {int(known) for known, *_ in answers} == {id}
