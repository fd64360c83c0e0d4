"""What hooks keep of an error, and what a session of hooks teaches by it."""

from pathlib import Path

import pytest

from heedful import Memory
from heedful.episodes.episode import Limits
from heedful.store import episodes
from heedful.store.sqlite import in_file
from heedful_agents.session_hooks import HookSettings, reply
from tests.hooks.sessions import Session
from tests.hosts import patient_host


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    database = in_file(str(tmp_path / "memory.db"))
    return Memory(database, holdout=0.0)


async def test_a_stored_error_is_bounded_and_has_its_error_lines(
    memory: Memory,
) -> None:
    noise = "\n".join(f"compiled part {n} in {n} ms" for n in range(900))
    middle = "src/cart.ts(14,3): error TS2304: Cannot find name 'total'."
    error = f"begin\n{noise}\n{middle}\n{noise}\nthe end"
    await Session(memory, "monday").call("Bash", "make", error)

    events = await memory.store.read(memory.scope, episodes.session_events, "monday")
    [error] = [event["error"] for event in events if event["error"]]
    assert len(error) <= Limits().content
    assert error.startswith(middle)
    assert "\nbegin\n" in error
    assert error.endswith("the end")


KEY_LINES = [f"{number:02}Zq{'xK7w' * 15}" for number in range(26)]
KEY = "\n".join(
    ("-----BEGIN PRIVATE KEY-----", *KEY_LINES, "-----END PRIVATE KEY-----")
)
PASSWORD = "Zornxkqwvbty"


def read_database(folder: Path) -> bytes:
    """Return all bytes of the database in a folder."""
    return b"".join(path.read_bytes() for path in folder.glob("memory.db*"))


@pytest.mark.parametrize(
    "lengths",
    [
        pytest.param(range(15_920, 15_970, 10), id="around the cut"),
        pytest.param(
            range(15_500, 16_000, 10), id="far from it", marks=pytest.mark.nightly
        ),
    ],
)
async def test_no_password_is_kept_whose_name_a_cut_has_left_out(
    lengths: range, memory: Memory, tmp_path: Path
) -> None:
    line = f"PGPASSWORD={PASSWORD} host=db failed: error: connection refused\n"
    for after in lengths:
        error = "a line\n" * 6_000 + line + "x" * (after - len(line))
        await Session(memory, f"s{after}").call("Bash", "make", error)
    assert PASSWORD.encode() not in read_database(tmp_path)


@pytest.mark.parametrize("after", range(0, 2_000, 250))
async def test_no_part_of_a_key_is_in_the_reason_of_a_block(
    after: int, memory: Memory, tmp_path: Path
) -> None:
    file = tmp_path / "output"
    file.write_text("building\n" * 1_000 + KEY + "\n" + "a line\n" * (after // 7))
    answer = await reply(
        "Stop",
        {"session_id": "s", "cwd": str(tmp_path)},
        patient_host(memory=memory, strict=True),
        settings=HookSettings(stop=(f"cat '{file}'; false",)),
    )
    assert "building" in str(answer.answer)
    assert not any(line in str(answer.answer) for line in KEY_LINES)
