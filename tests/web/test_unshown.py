"""Lessons that no loop was shown are listed with the reason."""

from __future__ import annotations

import json
import re

import pytest

from tests.engines import change_rows
from tests.service.support import read_data
from tests.web.support import Browser, words_of


@pytest.mark.both_nightly
def test_lessons_that_were_never_shown_are_listed_with_the_reason(
    browser: Browser,
):
    texts = ("Write the unit.", "Close the file.", "Name the author.")
    for number, text in enumerate(texts):
        lesson = {"error_type": f"Hint{number}", "text": text, "lesson": text}
        read_data(browser.api.post("/v1/reflections", json=lesson), 201)
    ids = {row["text"]: row["id"] for row in browser.data("/lessons")["lessons"]}
    path = browser.api.setup.store.url
    change_rows(path, f"update lesson set last_shown = 1 where id = {ids[texts[2]]}")
    choice = {
        "outcome": "closest",
        "lesson": ids[texts[0]],
        "form": "rule",
        "leg": "likeness",
        "score": 0.1,
        "measure": "words",
        "needed": 0.4,
        "kept_back": {"code": "distance", "command": "", "figures": {}},
    }
    document = {"memory_key": "", "space": "", "model": "", "waiting": 0}
    briefing = json.dumps({**document, "choices": [choice]})
    for loop in ("first", "second", "unrecorded"):
        read_data(browser.api.put(f"/v1/loops/{loop}", json={"task": loop}), 201)
    change_rows(
        path, f"update loop set briefing = '{briefing}' where id <> 'unrecorded'"
    )

    page = browser.data("/lessons?shown=never")
    # Only two loops have a record of what memory decided.
    reasons = {row["text"]: row["unshown"] for row in page["lessons"]}
    far = "it is about another task (in 2 of the newest 2 loops)"
    assert reasons[texts[0]] == far
    assert reasons[texts[1]] == "considered for none of the newest 2 loops"
    assert texts[2] not in reasons, "it was shown"
    matches = browser.data("/lessons?shown=never&text=file")["lessons"]
    assert [row["text"] for row in matches] == [texts[1]]

    html = browser.get("/lessons").text
    assert re.search(r'href="/ui/lessons\?[^"]*shown=never[^"]*">\d never shown', html)
    # The list has the cause beside the lesson, the page of the lesson the sentence.
    assert far.removeprefix("it is ") in words_of(
        browser.get("/lessons?shown=never").text
    )
    assert far in browser.data(f"/lessons/{ids[texts[0]]}")["sentence"]
    assert browser.get("/lessons.json?shown=often").status_code == 422


@pytest.mark.both_nightly
def test_a_lesson_that_recurs_says_what_keeps_it_from_its_newest_loop(
    browser: Browser,
):
    finding = {"check": "currency", "message": "no currency", "fix": "write EUR"}
    for number in range(2):
        loop = {"task": "Sum the bill", "memory_key": f"bills {number}"}
        read_data(browser.api.put(f"/v1/loops/{number}", json=loop), 201)
        for attempt in range(1, 5):
            body = {"output": f"{attempt}", "evaluation": {"findings": [finding]}}
            path = f"/v1/loops/{number}/attempts/{attempt}"
            answer = read_data(browser.api.put(path, json=body))
            if answer["state"] == "stopped":
                break

    (lesson,) = browser.data("/lessons")["lessons"]
    assert lesson["seen"] == 2
    reason = (
        "under its memory key broken in 1 loop and fixed in none; "
        "shown once a second loop breaks it"
    )
    assert lesson["unshown"] == reason
    listed = words_of(browser.get("/lessons").text)
    assert "under its memory key broken in 1 loop and fixed in none" in listed
    page = browser.data(f"/lessons/{lesson['id']}")
    assert page["sentence"] == f"Never shown: {reason}"
