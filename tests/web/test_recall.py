"""The box of Lessons shows what a prompt would have for a task, as the command does."""

from __future__ import annotations

from heedful import Context, Finding, run
from heedful.lessons.lesson import Scope
from heedful.memory.memory import Memory
from tests.web.support import ATTACK, Browser


def test_the_words_of_a_task_are_no_markup(browser: Browser):
    page = browser.get("/lessons", params={"task": ATTACK, "key": ATTACK}).text
    assert "<script>alert(1)" not in page


def test_a_rule_is_shown_under_its_key_and_named_without(browser: Browser):
    store = browser.api.setup.store

    def unit(answer: str, at: Context) -> list[Finding]:
        return [] if "kg" in answer else [Finding("weight", "no unit", fix="say kg")]

    work = run(
        "weigh it",
        generate=lambda task, hint: "7 kg" if hint else "7",
        checks=[unit],
        memory=Memory(store, Scope("acme", "main"), holdout=0.0),
        memory_key="scales",
        store=store,
    )
    browser.api.run(work)
    with_key = browser.data("/lessons?task=what+else&key=scales")["recall"]
    without = browser.data("/lessons?task=what+else")["recall"]
    assert "say kg" in with_key["answer"]
    assert without["answer"].startswith("nothing to show: ")


def test_a_key_that_recalls_sees_no_text_that_waits(browser: Browser):
    memory = Memory(browser.api.setup.store, Scope("acme", "main"))
    work = memory.remember(
        "DriverError",
        "CUDA driver version is insufficient",
        lesson="zqwaits",
        origin="outside",
        source="https://forum.example/1",
    )
    browser.api.run(work)
    browser.open(browser.api.key("recall"))
    query = {"task": "CUDA driver version is insufficient"}
    page = browser.get("/lessons", params=query)
    data = browser.get("/lessons.json", params=query)
    assert "zqwaits" not in page.text
    assert "zqwaits" not in data.text
    assert "quarantine" not in data.json()["recall"]["answer"]
