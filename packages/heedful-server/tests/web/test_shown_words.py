"""Who sees the words that memory once showed a loop, after they were taken back.

A loop stores what memory put into its prompt. Its lesson may wait in quarantine again,
or may have been rejected; then only reviewers see the words. If their source is
revoked, nobody does, however the lesson ended before.
"""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from heedful import Memory, Pipeline
from heedful.lessons.lesson import Example
from tests.service.support import problem, read_data, record, right, wrong
from tests.tables import cases
from tests.web.support import SCOPE, Browser, browsing

pytestmark = pytest.mark.both_nightly

WORDS = "zqshown"
TASK = "print the label of a bottle"
STAGE = "print_a_label"
PAGE = "page"
MCP_HEADERS = {"accept": "application/json, text/event-stream"}


@pytest.fixture
def browser(tmp_path, engine: str) -> Iterator[Browser]:
    with browsing(tmp_path) as browser:
        yield browser.open()


@pytest.fixture
def memory(browser: Browser) -> Memory:
    return Memory(browser.api.setup.store, SCOPE, holdout=0)


def post(browser: Browser, path: str, body: Any, status: int = 200, **more: Any) -> Any:
    return read_data(browser.api.post(f"/v1/{path}", json=body, **more), status)


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
    browser: Browser, loop: str = "shown", key: str | None = None, task: str = TASK
) -> None:
    """Show memory to a loop."""
    record(browser.api, loop, task=task)
    question = {"task": task, "loop": loop, "form": "text"}
    assert WORDS in post(browser, "recall", question, key=key)["text"]


# -- the lesson waits again


@pytest.fixture(params=["example", "rule"])
def run(request: pytest.FixtureRequest, browser: Browser, memory: Memory) -> str:
    """A run that was shown words, as a loop was, whose release was undone."""
    browser.api.run(send_from_page(memory, request.param))
    show(browser)
    store = browser.api.setup.store
    pipeline = Pipeline("p", store=store, memory=memory, scope=SCOPE, progress=False)
    pipeline.stage(name=STAGE)(lambda state: state)
    run = str(browser.api.run(pipeline.run({"task": TASK})).run)
    browser.api.run(memory.quarantine.undo([1], by="ann"))
    return run


def answers(browser: Browser, run: str, may: Sequence[str]) -> Mapping[str, str]:
    """Return what a key gets from each face that shows a loop."""
    api = browser.api
    key = api.key(*may)
    texts = {}
    for loop in ("shown", f"{run}/{STAGE}"):
        place = f"/v1/loops/{loop}"
        texts[f"loop {loop}"] = api.get(place, key=key).text
        texts[f"why {loop}"] = api.get(f"{place}/explain", key=key).text
        params = {"name": "explain", "arguments": {"loop": loop}}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = api.post("/mcp", key=key, headers=MCP_HEADERS, json=call)
        texts[f"MCP {loop}"] = answer.text
    again = api.put("/v1/loops/shown", key=key, json={"task": TASK})
    texts["begin again"] = again.text
    texts["list"] = api.get("/v1/loops", key=key).text

    browser.open(key)
    pages = ["/loops/shown", f"/loops/{run}/{STAGE}", f"/runs/{run}"]
    pages += ["/work", "/loops", "/home"]
    for page in pages:
        texts[f"page {page}"] = browser.get(page).text
        texts[f"data {page}"] = json.dumps(browser.data(page))
    return texts


@pytest.mark.parametrize("may", ["recall", "write", "approve", "admin"])
def test_a_key_without_read_sees_no_words_that_were_taken_back(browser, run, may):
    for face, text in answers(browser, run, [may, "recall"]).items():
        assert WORDS not in text, face


def test_a_reviewer_sees_what_memory_showed(browser, run):
    texts = answers(browser, run, ["read", "write"])
    for face in ("loop shown", "page /loops/shown", "begin again"):
        assert WORDS in texts[face], face
    # A model reads what MCP answers.
    assert WORDS not in texts["MCP shown"]


def test_who_may_not_see_the_words_still_sees_that_memory_showed_something(
    browser, run
):
    key = browser.api.key("recall")
    briefing = read_data(browser.api.get("/v1/loops/shown", key=key))["briefing"]
    assert briefing["prompt"] == ""
    (choice,) = briefing["choices"]
    assert choice["outcome"] == "told"
    assert choice["text"] == ""
    browser.open(key)
    assert "Memory, before each attempt" in browser.get(f"/runs/{run}").text


# -- the source is revoked

# An end of the lesson that is example 1, before its source is revoked.
End = Callable[[Memory], Awaitable[object]]


async def keep(memory: Memory) -> None:
    """Do nothing."""


async def undo_and_reject(memory: Memory) -> None:
    await memory.quarantine.undo([1], by="ann")
    await memory.quarantine.reject([1], by="ann")


async def prune(memory: Memory) -> None:
    assert await memory.prune(keep=0, by="ann")


async def prune_and_learn_again(memory: Memory) -> None:
    await prune(memory)
    await memory.remember("Label", TASK, lesson=f"{TASK} on paper")


async def undo_and_prune(memory: Memory) -> None:
    await memory.quarantine.undo([1], by="ann")
    await prune(memory)


def stored_words(browser: Browser, loop: str = "shown") -> str:
    """Return what the API and the page show of a loop."""
    answer = browser.api.get(f"/v1/loops/{loop}")
    read_data(answer)
    return f"{answer.text}{browser.get(f'/loops/{loop}').text}"


def revoke(browser: Browser, source: str, **more: Any) -> Any:
    return browser.api.post("/v1/quarantine/revoke", json={"source": source, **more})


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
        "a waiting lesson is pruned": (undo_and_prune, False),
    },
)
def test_prompts_are_emptied_once_their_source_is_revoked_or_nothing_names_it(
    browser, memory, end: End, stays: bool, kind: str
):
    browser.api.run(send_from_page(memory, kind))
    show(browser)
    browser.api.run(end(memory))
    assert (WORDS in stored_words(browser)) is stays
    problem(revoke(browser, "another page"), 404, "not_found")
    if stays:
        dry_run = revoke(browser, PAGE, dry_run=True)
        assert read_data(dry_run)["prompts"] == 1
        assert WORDS in stored_words(browser)
        assert read_data(revoke(browser, PAGE))["prompts"] == 1
    problem(revoke(browser, PAGE), 404, "not_found")
    assert WORDS not in stored_words(browser)


OTHER_TASK = "wrap a parcel of books"


def test_a_revocation_finds_words_that_another_example_shows(browser, memory):
    api = browser.api
    other = Example(OTHER_TASK, "", rejected="bad", wrong="too long")
    api.run(send_from_page(memory, "rule"))
    api.run(memory.remember("Label", TASK, example=other))
    show(browser, task=OTHER_TASK)
    finding = {"check": "short", "message": "no unit", "fix": "add cm"}
    for number, report in ((1, wrong("12", finding)), (2, right(f"12 cm {WORDS}"))):
        read_data(api.put(f"/v1/loops/shown/attempts/{number}", json=report))
    learnt = api.get("/v1/reflections", params={"error_type": "short"})
    assert read_data(learnt)["items"]

    removed = read_data(revoke(browser, PAGE))
    assert removed["prompts"] == 1
    assert removed["lessons"] == 1
    loop = read_data(api.get("/v1/loops/shown"))
    assert WORDS not in str(loop["briefing"])
    answer = post(browser, "recall", {"task": OTHER_TASK, "form": "text"})
    assert WORDS not in answer["text"]
