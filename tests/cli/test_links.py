"""`heedful lessons --related`: as a person types them."""

import asyncio
import json

from heedful.memory.memory import Memory
from heedful.store.store import Store
from tests.cli.support import Desk
from tests.store.support import opened


def remember(desk: Desk, *texts: str) -> None:
    """Remember errors in the database of the desk."""

    async def remember_texts(store: Store) -> None:
        await Memory(store).count()  # makes the database
        for text in texts:
            await Memory(store).remember("", text)

    with opened(desk.folder / "heedful.db") as store:
        asyncio.run(remember_texts(store))


def test_related_lessons_are_shown(desk, session) -> None:
    remember(desk, "app.py: ModuleNotFoundError", "app.py: SyntaxError", "disk full")
    session(
        (
            "lessons --related 1",
            0,
            "lesson 1: app.py: ModuleNotFoundError",
            "about: error modulenotfounderror, file app.py",
            "lesson 2, error, unverified, user, seen 1; shares file app.py",
            "!disk full",
        ),
        ("lessons --related 3", 0, "no lesson is related: the lesson names no tool"),
    )
    related = json.loads(session(("lessons --related 1 --json", 0)).out)
    assert related["related"][0]["shared"] == [{"kind": "file", "name": "app.py"}]
    assert related["compared"] == 3


def test_bad_input_says_what_to_do(desk, session) -> None:
    remember(desk)
    session(
        ("lessons --related 9", 3, "lesson"),
        ("lessons --related 0", 2, "--related"),
    )
