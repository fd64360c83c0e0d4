"""A lesson has the words that a prompt has, on each page and in the terminal."""

from __future__ import annotations

from heedful import Context, Finding, run
from heedful.lessons.lesson import Scope
from heedful.memory.memory import Memory
from tests.cli.support import Desk
from tests.web.support import Browser, words_of

KEY = "triage"
TEAMS = ("web", "search", "infra")


def knows_team(answer: str, at: Context) -> list[Finding]:
    if answer.rsplit(maxsplit=1)[-1] in TEAMS:
        return []
    team = answer.rsplit(maxsplit=1)[-1]
    return [Finding("team", f"unknown team {team!r}; teams are {', '.join(TEAMS)}")]


def test_a_lesson_has_the_words_of_a_prompt_on_every_face(browser: Browser, tmp_path):
    store = browser.api.setup.store
    memory = Memory(store, Scope("acme", "main"), holdout=0.0)
    for number, wrong in enumerate(("checkout", "mobile", "billing")):
        answers = iter((f"P1: {wrong}", "P1: web"))
        work = run(
            f"bug {number} of {wrong}",
            generate=lambda task, hint, answers=answers: next(answers),
            checks=[knows_team],
            memory=memory,
            memory_key=KEY,
            store=store,
        )
        browser.api.run(work)

    lessons = browser.data("/lessons")["lessons"]
    lesson = next(row for row in lessons if row["kind"] == "check")
    recall = browser.data(f"/lessons?task=another+bug&key={KEY}")["recall"]
    assert lesson["text"]
    assert "checkout" not in lesson["text"]
    assert lesson["text"] in recall["answer"]
    desk = Desk(tmp_path)
    scope = {"HEEDFUL_TENANT": "acme", "HEEDFUL_PROJECT": "main"}
    for command in ("lessons", "proof"):
        document = desk.heedful(f"{command} --json --db heedful.db", **scope).json
        assert lesson["text"] in [row["text"] for row in document["lessons"]]
    for page in ("/lessons", f"/lessons/{lesson['id']}"):
        assert words_of(lesson["text"]) in words_of(browser.get(page).text)
    names = [row["name"] for row in browser.data("/proof")["others"]]
    assert lesson["text"] in names
