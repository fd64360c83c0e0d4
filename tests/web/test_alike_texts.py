"""Texts in quarantine that differ by a number share a decision."""

from __future__ import annotations

import re

from heedful.lessons.lesson import Scope
from heedful.memory.memory import Memory
from tests.web.support import Browser, words_of


def hold_alike(browser: Browser) -> None:
    """Let texts wait that differ by a number."""
    memory = Memory(browser.api.setup.store, Scope("acme", "main"))
    for number in range(3):
        learnt = memory.remember(
            "Page",
            f"page {number} fails",
            lesson=f"Read page {number}",
            origin="outside",
        )
        browser.api.run(learnt)


def test_texts_that_differ_by_a_number_share_a_decision(browser: Browser):
    hold_alike(browser)
    rows = browser.data("/quarantine")["waiting"]
    (row,) = rows
    page = browser.get(f"/quarantine/{row['id']}").text
    (box,) = re.findall(r'<input type="checkbox" name="like"[^>]*>', page)
    # The page shows the words of one of them only.
    assert "checked" not in box
    assert f"and the {len(row['ids']) - 1} like it" in words_of(page)
    like = browser.data(f"/quarantine/{row['id']}")["like_ids"]
    assert sorted([row["id"], *like]) == sorted(row["ids"])

    alike = ",".join(map(str, like))
    note = browser.do("reject", id=str(row["id"]), like=alike, why="no")
    assert note.startswith(f"{len(row['ids'])} texts rejected")
    assert not browser.data("/quarantine")["waiting"]
