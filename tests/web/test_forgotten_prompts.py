"""Stored prompts lose the words of a source that is revoked, however its lesson
ended before.
"""

from collections.abc import Awaitable, Callable, Iterator

import pytest

from heedful import Memory
from heedful.lessons.lesson import Example, Scope
from tests.service.support import Api, problem, read_data
from tests.tables import cases
from tests.web.support import Browser, browsing

pytestmark = pytest.mark.both_nightly

WORDS = "zqshown"
TASK = "print the label of a bottle"
SCOPE = Scope("acme", "main")
PAGE = "page"
# An end of the lesson that is example 1, before its source is revoked.
End = Callable[[Memory], Awaitable[object]]


async def keep(memory: Memory) -> None:
    """Do nothing."""


async def undo(memory: Memory) -> None:
    await memory.quarantine.undo([1], by="ann")


async def undo_and_reject(memory: Memory) -> None:
    await undo(memory)
    await memory.quarantine.reject([1], by="ann")


async def prune(memory: Memory) -> None:
    assert await memory.prune(keep=0, by="ann")


async def prune_and_learn_again(memory: Memory) -> None:
    await prune(memory)
    await memory.remember("Label", TASK, lesson=f"{TASK} on paper")


async def send_from_page(memory: Memory, kind: str) -> None:
    """Remember a rule or an example of a page, and release it."""
    example = None
    text = f"{TASK} {WORDS}"
    if kind == "example":
        example = Example(TASK, WORDS, wrong="too long")
        text = ""
    await memory.remember(
        "Label", TASK, lesson=text, example=example, origin="outside", source=PAGE
    )
    await memory.quarantine.release([1], by="ann")


def show(
    api: Api, loop: str = "shown", key: str | None = None, task: str = TASK
) -> None:
    """Show memory to a loop."""
    read_data(api.put(f"/v1/loops/{loop}", json={"task": task}), 201)
    question = {"task": task, "loop": loop, "form": "text"}
    answer = read_data(api.post("/v1/recall", json=question, key=key))
    assert WORDS in answer["text"]


def stored_words(browser: Browser, loop: str = "shown") -> str:
    """Return what the API and the page show of a loop."""
    answer = browser.api.get(f"/v1/loops/{loop}")
    read_data(answer)
    page = browser.get(f"/loops/{loop}")
    return f"{answer.text}{page.text}"


@pytest.fixture
def browser(tmp_path, engine: str) -> Iterator[Browser]:
    with browsing(tmp_path) as browser:
        yield browser.open()


@pytest.fixture
def memory(browser: Browser) -> Memory:
    return Memory(browser.api.setup.store, SCOPE, holdout=0)


async def clear(memory: Memory) -> None:
    await memory.clear()


async def undo_and_prune(memory: Memory) -> None:
    await undo(memory)
    await prune(memory)


@pytest.mark.parametrize(
    "kind", ["example", pytest.param("rule", marks=pytest.mark.nightly)]
)
@cases(
    ("end", "stays"),
    {
        "in use": (keep, True),
        "rejected": (undo_and_reject, True),
        "pruned": (prune, True),
        "pruned and learnt again": (prune_and_learn_again, True),
        "all lessons are cleared": (clear, False),
        "a waiting lesson is pruned": (undo_and_prune, False),
    },
)
def test_prompts_are_emptied_once_their_source_is_revoked_or_nothing_names_it(
    browser, memory, end: End, stays: bool, kind: str
):
    api = browser.api
    api.run(send_from_page(memory, kind))
    show(api)
    api.run(end(memory))
    assert (WORDS in stored_words(browser)) is stays

    source = {"source": PAGE, "why": "hostile"}
    answer = api.post("/v1/quarantine/revoke", json=source)
    if stays:
        assert read_data(answer)["prompts"] == 1
        answer = api.post("/v1/quarantine/revoke", json=source)
    problem(answer, 404, "not_found")
    assert WORDS not in stored_words(browser)


OTHER_TASK = "wrap a parcel of books"


def test_a_revocation_finds_words_that_another_example_shows(browser, memory):
    api = browser.api
    other = Example(OTHER_TASK, "", rejected="bad", wrong="too long")
    api.run(send_from_page(memory, "rule"))
    api.run(memory.remember("Label", TASK, example=other))
    show(api, task=OTHER_TASK)
    finding = {"check": "short", "message": "no unit", "fix": "add cm"}
    for number, output, findings in [(1, "12", [finding]), (2, f"12 cm {WORDS}", [])]:
        report = {"output": output, "evaluation": {"findings": findings}}
        read_data(api.put(f"/v1/loops/shown/attempts/{number}", json=report))
    learnt = api.get("/v1/reflections", params={"error_type": "short"})
    assert read_data(learnt)["items"]

    source = {"source": PAGE, "why": "hostile"}
    removed = read_data(api.post("/v1/quarantine/revoke", json=source))

    assert removed["prompts"] == 1
    assert removed["lessons"] == 1
    loop = read_data(api.get("/v1/loops/shown"))
    assert WORDS not in str(loop["briefing"])
    question = {"task": OTHER_TASK, "form": "text"}
    answer = read_data(api.post("/v1/recall", json=question))
    assert WORDS not in answer["text"]


def test_a_revoked_key_leaves_nothing_in_the_prompts_of_others(browser, memory):
    api = browser.api
    key = api.key("read", "write", outside=True)
    example = {"task": TASK, "accepted": WORDS}
    lesson = {"error_type": "Label", "text": TASK, "example": example}
    sent = read_data(api.post("/v1/reflections", json=lesson, key=key), 201)
    api.run(memory.quarantine.release([sent["entry"]], by="ann"))
    show(api, "recalled by another")
    show(api, "recalled by the key", key=key)

    source = f"key:{key.split('_')[1]}"
    removed = read_data(api.post("/v1/quarantine/revoke", json={"source": source}))

    assert removed["prompts"] == 2
    assert removed["exposures"] == 1
    assert WORDS not in stored_words(browser, "recalled by another")
    assert WORDS not in stored_words(browser, "recalled by the key")


def test_a_revoked_key_leaves_no_note_about_a_loop_of_others(browser):
    api = browser.api
    key = api.key("read", "write", outside=True)
    read_data(api.put("/v1/loops/ours", json={"task": TASK}), 201)
    place = "/v1/loops/ours/notes"
    read_data(api.post(place, json={"text": "try it again"}), 201)
    read_data(api.post(place, json={"text": WORDS}, key=key), 201)
    report = {"output": "x", "evaluation": {"findings": []}}
    read_data(api.put("/v1/loops/ours/attempts/1", json=report, key=key))

    source = f"key:{key.split('_')[1]}"
    read_data(api.post("/v1/quarantine/revoke", json={"source": source}))

    notes = read_data(api.get("/v1/loops/ours"))["notes"]
    assert [note["text"] for note in notes] == ["try it again"]


def test_other_prompts_stay_and_a_dry_run_only_counts(browser, memory):
    api = browser.api
    api.run(send_from_page(memory, "example"))
    show(api)
    other = {"source": "another page"}
    problem(api.post("/v1/quarantine/revoke", json=other), 404, "not_found")
    dry_run = {"source": PAGE, "dry_run": True}
    counted = read_data(api.post("/v1/quarantine/revoke", json=dry_run))

    assert counted["prompts"] == 1
    assert WORDS in stored_words(browser)
