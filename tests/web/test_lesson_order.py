"""The list of lessons begins with what is proven."""

from __future__ import annotations

import re

import pytest

from heedful.lessons.lesson import Exposure, Outcome, Scope
from heedful.loop.share import points
from heedful.store import exposures
from tests.service.support import read_data
from tests.web.support import Browser, words_of

SCOPE = Scope("acme", "main")


@pytest.mark.both_nightly
def test_lessons_are_sorted_by_what_loops_say_of_them(browser: Browser):
    for name in ("good", "bad"):
        lesson = {"error_type": name, "text": f"{name} x", "lesson": f"be {name}"}
        read_data(browser.api.post("/v1/reflections", json=lesson), 201)
    lessons = browser.data("/lessons")["lessons"]
    names = {row["error_type"]: f"{row['kind']}/{row['signature']}" for row in lessons}
    for number in range(40):
        for name in ("good", "bad"):
            is_shown = number % 2 == 0
            is_right = is_shown if name == "good" else not is_shown
            id = f"{name} {number}"
            coin = Exposure(names[name], id, shown=is_shown, share=0.5)
            end = Outcome(id, is_right, calls=1)
            browser.api.run(
                browser.api.setup.store.write(
                    SCOPE, exposures.remember, (), exposures=[coin], outcome=end
                )
            )

    rows = browser.data("/lessons")["lessons"]
    assert f'/lessons/{rows[0]["id"]}?project=main">' in browser.get("/proof").text
    proof = {row["lesson"]: row for row in browser.data("/proof")["lessons"]}
    assert rows[0]["error_type"] == "good"
    assert rows[0]["effect"]["uplift"] == proof[names["good"]]["uplift"]
    assert rows[0]["effect"]["conclusion"] == proof[names["good"]]["conclusion"]
    assert [row["error_type"] for row in rows[:2]] == ["good", "bad"]
    lesson_verdicts = [row["effect"]["verdict"] for row in rows[:2]]
    assert lesson_verdicts == [
        proof[names[name]]["verdict"] for name in ("good", "bad")
    ]
    page = words_of(browser.get(f"/lessons/{rows[0]['id']}").text)
    assert "Compared: 20 loops with it, 20 from which it alone was withheld" in page
    assert not re.search(r"\d+ % right at the first try", page)

    counts = browser.data("/lessons")["counts"]
    conclusions = [row["conclusion"] for row in proof.values()]
    assert counts["helps"] == conclusions.count("helps") == 1
    assert counts["hurts"] == conclusions.count("hurts") == 1
    page = words_of(browser.get("/lessons").text)
    sentence = f"1 of {sum(counts.values())} lessons proven to help at the first try"
    assert f"{sentence} 1 helps 1 hurts" in page
    uplift = rows[0]["effect"]["uplift"]
    ends = f"{points(uplift['low'])} to {points(uplift['high'])} helps"
    assert f"{points(uplift['gain'])} {ends}" in page
