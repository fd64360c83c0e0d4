"""Who sees the words that memory once showed a loop, after they were taken back.

A loop stores what memory put into its prompt. Its lesson may wait in quarantine again,
or may have been rejected; then only reviewers see the words.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

import pytest

from heedful import Memory, Pipeline
from heedful.lessons.lesson import Scope
from tests.service.support import Api, read_data
from tests.web.support import Browser, browsing

pytestmark = pytest.mark.both_nightly

WORDS = "zqshown"
TASK = "print the label of a bottle"
STAGE = "print_a_label"
SCOPE = Scope("acme", "main")
MCP_HEADERS = {"accept": "application/json, text/event-stream"}


def teach(api: Api, kind: str) -> int:
    """Let a writer send an example or a rule, and release it; return its id."""
    lesson: dict[str, object] = {"error_type": "Label", "text": TASK}
    if kind == "example":
        example = {"task": TASK, "accepted": WORDS, "wrong": "too long"}
        lesson["example"] = example
    else:
        lesson["lesson"] = f"{TASK} {WORDS}"
    sent = api.post("/v1/reflections", json=lesson, key=api.key("write", outside=True))
    entry = int(read_data(sent, 201)["entry"])
    decide(api, entry, "release")
    return entry


def decide(api: Api, entry: int, action: str) -> None:
    """Release or undo: a person decides about a text."""
    place = f"/v1/quarantine/{entry}/{action}"
    read_data(api.post(place, json={"why": "read it"}))


def show(api: Api) -> str:
    """Show the lesson to a loop and to a stage; return the run of the stage."""
    read_data(api.put("/v1/loops/shown", json={"task": TASK}), 201)
    question = {"task": TASK, "loop": "shown", "form": "text"}
    assert WORDS in read_data(api.post("/v1/recall", json=question))["text"]

    store = api.setup.store
    memory = Memory(store, scope=SCOPE)
    pipeline = Pipeline("p", store=store, memory=memory, scope=SCOPE, progress=False)
    pipeline.stage(name=STAGE)(lambda state: state)
    return str(api.run(pipeline.run({"task": TASK})).run)


@pytest.fixture(params=["example", "rule"])
def taken_back(
    request: pytest.FixtureRequest, tmp_path, engine: str
) -> Iterator[tuple[Browser, str]]:
    """A browser, and a run that was shown words whose release was undone."""
    with browsing(tmp_path) as browser:
        entry = teach(browser.api, request.param)
        run = show(browser.api)
        decide(browser.api, entry, "undo")
        yield browser, run


def answers(browser: Browser, run: str, may: Sequence[str]) -> Mapping[str, str]:
    """Return what a key gets from each face that shows a loop."""
    api = browser.api
    key = api.key(*may)
    texts = {}
    for loop in ("shown", f"{run}/{STAGE}"):
        place = f"/v1/loops/{loop}"
        texts[f"loop {loop}"] = api.get(place, key=key).text
        texts[f"why {loop}"] = api.get(f"{place}/explain", key=key).text
        call = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "explain", "arguments": {"loop": loop}},
        }
        answer = api.post("/mcp", key=key, headers=MCP_HEADERS, json=call)
        texts[f"MCP {loop}"] = answer.text
    begin = {"task": TASK}
    texts["begin again"] = api.put("/v1/loops/shown", key=key, json=begin).text
    texts["list"] = api.get("/v1/loops", key=key).text

    browser.open(key)
    pages = ["/loops/shown", f"/loops/{run}/{STAGE}", f"/runs/{run}"]
    pages += ["/work", "/loops", "/home"]
    for page in pages:
        texts[f"page {page}"] = browser.get(page).text
        texts[f"data {page}"] = json.dumps(browser.data(page))
    return texts


@pytest.mark.parametrize(
    "may",
    [
        pytest.param(["recall"], id="recall"),
        pytest.param(
            ["recall", "write"], id="recall and write", marks=pytest.mark.nightly
        ),
        pytest.param(["write"], id="write"),
        pytest.param(
            ["recall", "approve"], id="recall and approve", marks=pytest.mark.nightly
        ),
        pytest.param(
            ["recall", "admin"], id="recall and admin", marks=pytest.mark.nightly
        ),
    ],
)
def test_a_key_without_read_sees_no_words_that_were_taken_back(taken_back, may):
    browser, run = taken_back
    for face, text in answers(browser, run, may).items():
        assert WORDS not in text, face


def test_a_reviewer_sees_what_memory_showed(taken_back):
    browser, run = taken_back
    texts = answers(browser, run, ["read", "write"])

    for face in ("loop shown", "page /loops/shown", "begin again"):
        assert WORDS in texts[face], face
    # A model reads what MCP answers.
    assert WORDS not in texts["MCP shown"]


def test_who_may_not_see_the_words_still_sees_that_memory_showed_something(taken_back):
    browser, run = taken_back
    answer = browser.api.get("/v1/loops/shown", key=browser.api.key("recall"))
    briefing = read_data(answer)["briefing"]
    browser.open(browser.api.key("recall"))

    assert briefing["prompt"] == ""
    (choice,) = briefing["choices"]
    assert choice["outcome"] == "told"
    assert choice["text"] == ""
    assert "Memory, before each attempt" in browser.get(f"/runs/{run}").text
