"""`heedful lessons harden`: as a person types it."""

import asyncio

import pytest

import heedful
from heedful.loop.record import Finding
from heedful.memory.memory import Memory
from heedful.store.store import Store
from tests.cli.support import Desk
from tests.store.support import opened
from tests.tables import cases


def severity(answer: str) -> list[Finding]:
    """What the caller's own check says."""
    fix = "Answer with one of P0 to P3"
    return [] if answer[0] == "P" else [Finding("severity", "no severity", fix=fix)]


async def _teach(store: Store, *pairs: tuple[str, str]) -> None:
    for number, pair in enumerate(pairs):
        answers = iter(pair)
        await heedful.run(
            f"bug {number}",
            generate=lambda task, hint, answers=answers: next(answers),
            checks=[severity],
            memory=Memory(store),
            memory_key="bugs",
            store=store,
        )


@pytest.fixture
def taught(desk: Desk) -> Desk:
    """A database in which two loops corrected the mistake of lesson 1."""
    with opened(desk.folder / "heedful.db") as store:
        asyncio.run(_teach(store, ("high", "P0"), ("low", "P3")))
    return desk


def test_a_lesson_is_hardened_and_retired(taught, session) -> None:
    session(
        (
            "lessons harden --list",
            0,
            "no lesson is a check",
            "heedful lessons harden LESSON",
        ),
        (
            "lessons harden 1",
            0,
            "lesson 1 is a check, proposed",
            "executed: finds 2 of 2 rejected outputs, none of 2 accepted",
            "says: no severity. Answer with one of P0 to P3",
            "loops of the memory key 'bugs'",
            "heedful lessons harden 1 --accept --by NAME",
        ),
        ("lessons harden --list", 0, "proposed"),
        (
            "lessons harden 1 --accept --by ann --why tried",
            0,
            "is a check, accepted: tried",
        ),
        ("lessons harden 1 --json", 0, '"state": "accepted"', '"by": "ann"'),
        ("lessons harden --list --json", 0, '"checks": ['),
        ("lessons harden 1 --reject --by bo", 0, "is a check, rejected"),
        ("lessons harden 1", 0, "is a check, rejected"),
    )


@cases(
    ("line", "code", "cure"),
    {
        "no lesson": ("lessons harden", 2, "heedful lessons harden LESSON"),
        "nobody accepts": ("lessons harden 1 --accept", 2, "--by NAME"),
        "a lesson and a list": ("lessons harden 1 --list", 2, "give no lesson"),
        "id 0": ("lessons harden 0", 2, "not in the range 1<=x"),
        "id is a word": ("lessons harden x", 2, "not a valid int"),
        "unknown": ("lessons harden 9", 3, "lesson '9'"),
    },
)
def test_bad_input_names_its_cure_and_writes_nothing(
    taught, session, line, code, cure
) -> None:
    session((line, code, cure), ("lessons harden --list", 0, "no lesson is a check"))
