"""What went wrong is a page: it says what to do, and leads on."""

from __future__ import annotations

import logging

import pytest
from starlette.routing import Route

from heedful.web.site import READING, Document, Site, SitePage, Visit
from tests.web.support import Browser, fill, words_of


async def fail(visit: Visit) -> Document:
    """Fail as a page with a defect does."""
    raise RuntimeError("a secret thing inside")


def add_broken_page(browser: Browser) -> None:
    """Let the pages have one with a defect, at `/broken`."""
    app = browser.api.app
    broken = SitePage(
        address="/broken", template="home", title="Broken", make=fail, may=READING
    )
    site = Site(app, app.state.setup, app.state.admission, pages=(broken,), actions=())
    site.sessions = browser.site.sessions
    app.routes.insert(0, Route("/ui/broken{rest:path}", site))


def test_a_page_with_a_defect_answers_with_a_page_and_an_id_of_the_log(
    browser: Browser, caplog: pytest.LogCaptureFixture
):
    add_broken_page(browser)
    with caplog.at_level(logging.ERROR, logger="heedful.http"):
        answer = browser.get("/broken?project=main")
    assert answer.status_code == 500
    assert answer.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    request_id = answer.headers["x-request-id"]
    assert f"under this id: {request_id}" in words_of(answer.text)
    assert "a secret thing inside" not in answer.text
    assert f"id={request_id}" in caplog.text
    assert "RuntimeError: a secret thing inside" in caplog.text


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        pytest.param("/loops/zzz", 404, "Open Loops", id="the list of loops"),
        pytest.param("/runs/zzz", 404, "Open Runs and traces", id="the list of runs"),
        pytest.param("/lessons/99", 404, "Open Lessons", id="the list of lessons"),
        pytest.param("/loops?state=x", 422, "Open Loops", id="a wrong filter"),
    ],
)
def test_an_error_offers_the_way_back(
    browser: Browser, path: str, status: int, words: str
):
    page = browser.get(path)
    assert page.status_code == status
    assert words in page.text


def test_what_is_not_found_leads_to_a_similar_id(browser: Browser):
    fill(browser.api)
    page = browser.get("/loops/stopper").text
    assert "No loop 'stopper'" in words_of(page)
    assert 'href="/ui/loops/stopped?project=main"' in page
    assert "similar id" not in browser.get("/runs/stopper").text
    assert "similar id" not in browser.get("/loops/other").text
