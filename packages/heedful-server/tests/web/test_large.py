"""Pages of a project with large loops: they stay short, and say what they left out."""

import asyncio
import json
from typing import Any

import pytest

from heedful.store import recent
from heedful.store.offload import take_turn
from heedful.validation import MAX_SHOWN_ROWS, MAX_STORED_TEXT_CHARS
from heedful_server.auth import Callers
from heedful_server.web import counts, loop_reading
from tests.service.support import Api, read_data, record, wrong
from tests.web.support import Browser

DENSE = [[0, 0, 0, 0, 0]] * 125_000  # 1.5 MB of JSON
DENSE_CHARS = len(json.dumps(DENSE, separators=(",", ":")))
MAX_PAGE_KIB = 200
PAGES = ("home", "loops", "loops/large1", "work")
POLICY = {"rules": [{"rule": "attempts", "limit": 60}]}
pytestmark = pytest.mark.both_nightly


def store_loop(
    api: Api, name: str, findings: int, chars: int = 10, **more: Any
) -> None:
    """Store a loop of one attempt with so many findings, each of so many characters."""
    attempts = more.pop("attempts", 1)
    checks = [{"check": f"check {n}", "message": chars * "x"} for n in range(findings)]
    record(api, name, *attempts * [wrong("x", *checks)], policy=POLICY, **more)


def test_pages_of_large_tasks_are_short_and_say_what_they_left_out(browser: Browser):
    for n in range(2):
        store_loop(browser.api, f"large{n}", findings=1, task=DENSE)

    for page in PAGES:
        for address in (page, f"{page}.json"):
            answer = browser.get(f"/{address}")
            assert answer.status_code == 200
            assert len(answer.content) < MAX_PAGE_KIB * 1024, address

    row = browser.data("/loops")["loops"][0]
    loop = browser.data("/loops/large1")
    assert row["left_out"]["task"] == DENSE_CHARS - MAX_STORED_TEXT_CHARS
    assert loop["left_out"] == {"task": row["left_out"]["task"]}
    others = f"… and {DENSE_CHARS - 160:,} characters"
    assert others in browser.get("/loops").text


def test_findings_beyond_the_first_are_counted(browser: Browser):
    store_loop(browser.api, "many", findings=1_000)
    data = browser.data("/loops/many")
    (attempt,) = data["tried"]["attempts"]
    assert len(attempt["checks"]) == MAX_SHOWN_ROWS
    assert data["unshown"]["1"]["findings"] == 1_000 - MAX_SHOWN_ROWS
    page = browser.get("/loops/many").text
    assert "950 more checks not shown: GET /v1/loops/many has all" in page


def test_a_page_has_as_many_attempts_as_fit_and_leads_to_the_others(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
):
    store_loop(browser.api, "wide", findings=100, chars=1_000, attempts=5)
    monkeypatch.setattr(loop_reading, "MAX_LISTING_BYTES", 500_000)

    newest = browser.data("/loops/wide")
    assert [row["attempt"] for row in newest["tried"]["attempts"]] == [4, 5]
    assert "Earlier attempts" in browser.get("/loops/wide").text

    numbers: list[int] = []
    following = 1
    while following <= 5:
        page = browser.data(f"/loops/wide?from={following}")
        numbers += range(page["first"], page["last"] + 1)
        following = page["last"] + 1
    assert numbers == [1, 2, 3, 4, 5]
    later = browser.get("/loops/wide?from=1").text
    assert "from=3" in later
    assert "Later attempts" in later


def test_a_loop_that_is_too_large_has_figures_and_no_finding(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
):
    store_loop(browser.api, "small", findings=1)
    store_loop(browser.api, "wide", findings=100, chars=1_000)
    monkeypatch.setattr(recent, "MAX_READ_BYTES", 50_000)
    monkeypatch.setattr(loop_reading, "MAX_READ_BYTES", 50_000)

    wide, small = browser.data("/loops")["loops"]
    assert small["finding"]
    assert wide["finding"] == ""
    assert wide["attempts"] == 1
    assert [row["id"] for row in browser.data("/loops?check=check+0")["loops"]] == [
        "small"
    ]
    assert browser.data("/loops/wide")["long"] is True


def send_episode(api: Api, events: int, chars: int) -> str:
    """Send an episode of events that failed; return its digest."""
    event = {"type": "tool_response", "tool": "sh", "error": "e"}
    body = {"events": events * [{**event, "content": chars * "x"}], "outcome": "error"}
    answer = read_data(api.post("/v1/episodes", json=body), 202)
    return str(answer["digest"])


def test_a_page_of_a_trace_has_its_first_events(browser: Browser):
    digest = send_episode(browser.api, events=550, chars=100)
    page = browser.data(f"/traces/{digest}")
    assert len(page["events"]) == counts.MAX_EPISODE_EVENTS
    assert page["left_out"] == {"events": 50, "record": 0}
    assert max(sign["event"] for sign in page["signals"]) <= counts.MAX_EPISODE_EVENTS
    assert "and 50 more events" in browser.get(f"/traces/{digest}").text


def test_a_trace_that_is_too_large_for_a_page_says_so(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
):
    digest = send_episode(browser.api, events=20, chars=2_000)
    monkeypatch.setattr(counts, "MAX_LISTING_BYTES", 30_000)
    page = browser.data(f"/traces/{digest}")
    assert page["events"] == page["signals"] == []
    assert page["left_out"]["record"] > 40_000
    assert "Too large for a page" in browser.get(f"/traces/{digest}").text


def test_pages_of_traces_take_turns(browser: Browser):
    api = browser.api
    digest = send_episode(api, events=2, chars=10)

    async def show() -> list[int]:
        """Return how a page is answered, and the page that waited for its turn."""
        caller = await Callers(api.setup).identified(f"Bearer {api._all}")
        admission = api.app.state.admission
        with admission.caller(caller):
            await take_turn("read")
            address = f"/ui/traces/{digest}.json?project=main"
            waiting = asyncio.create_task(browser.client.get(address))
            other = await browser.client.get("/ui/inbox.json?project=main")
            for _ in range(20):
                await api.ask("GET", "/v1/loops/none")
            assert not waiting.done()
        return [other.status_code, (await waiting).status_code]

    assert api.run(show()) == [200, 200]
