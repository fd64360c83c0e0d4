"""A browser that looks at the pages of a service in this process."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any

import httpx

from heedful.lessons.lesson import Exposure, Outcome, Scope
from heedful.store import exposures
from heedful.store.store import Store
from heedful_server.setup import Setup
from tests.engines import opened
from tests.service.support import Api, read_data, record, right, wrong

SCOPE = Scope("acme", "main")
DIGESTS = ("0" * 15 + "1", "0" * 15 + "2")
HERE = "http://localhost"
USAGE = {"calls": 1, "prompt_tokens": 90, "completion_tokens": 10, "cost": 0.002}
ATTACK = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'{{7*7}}"


class Browser:
    """Somebody who looks at the pages, with the cookies and headers of a browser."""

    def __init__(self, api: Api, read_only: bool = False) -> None:
        from heedful_server.web.site_map import add_pages

        self.api = api
        self.site = add_pages(api.app, read_only)
        transport = httpx.ASGITransport(app=api.app)
        self.client = httpx.AsyncClient(transport=transport, base_url=HERE)

    def open(self, key: str | None = None) -> "Browser":
        if key is None:
            page = self.get(f"/open?token={self.site.sessions.invite()}")
        else:
            page = self.post("/sign-in", key=key)
        assert page.status_code == 303
        assert page.headers["location"] == "/ui"
        return self

    def get(self, path: str, **options: Any) -> httpx.Response:
        page = self.api.run(self.client.get(f"/ui{path}", **options))
        there = page.headers.get("location", "")  # the same page, with its project
        return self.api.run(self.client.get(there)) if "project=" in there else page

    def data(self, path: str, **options: Any) -> Any:
        """Return the data of a page, that of the same address with `.json`."""
        page, _, query = path.partition("?")
        return self.get(f"{page}.json?{query}", **options).json()

    def post(
        self,
        path: str,
        form: Mapping[str, str] | None = None,
        *,
        origin: str = HERE,
        host: str = "localhost",
        **fields: str,
    ) -> Any:
        """Send a form with these fields, too."""
        form = {**(form or {}), **fields}
        headers = {"origin": origin, "host": host} if origin else {"host": host}
        return self.api.run(self.client.post(f"/ui{path}", data=form, headers=headers))

    @property
    def token(self) -> str:
        match = re.search(r'name="token" value="([^"]+)"', self.get("").text)
        return match[1] if match else ""

    def do(
        self, name: str, form: Mapping[str, str] | None = None, **fields: str
    ) -> str:
        """Send a form of the pages; return the note on the page after it."""
        form = {"token": self.token, "back": "/ui/loops", **(form or {}), **fields}
        response = self.post(f"/do/{name}", form)
        assert response.status_code == 303, response.text
        note = re.search(r'role="status">([^<]*)<', self.get("/loops").text)
        return note[1] if note else ""


def words_of(page: str) -> str:
    """Return the text of a page, with one blank where there was markup."""
    words = " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())
    return re.sub(r" (?=[,.:;])", "", words)


@contextmanager
def browsing(folder: Path, read_only: bool = False, **setup: Any) -> Iterator[Browser]:
    with opened(folder / "heedful.db") as store:
        api = Api(Setup(store=store, scope=SCOPE, **setup))
        try:
            yield Browser(api, read_only)
        finally:
            api.close()


def fill(api: Api) -> None:
    """Loops that passed, stopped and wait, a lesson, a text in quarantine and an
    episode.
    """
    severity = {"check": "severity", "message": f"no severity: {ATTACK}", "fix": ATTACK}
    texts = [f"{ATTACK} {number}" for number in range(1, 5)]
    failures = [wrong(text, severity) for text in texts]
    head = {"task": ATTACK, "policy": "default"}
    record(api, "a/b", failures[0], right(texts[1]), **head)
    record(api, "stopped", *failures, **head)
    record(api, "open", failures[0], **head)
    lesson = {
        "error_type": "PageError",
        "text": ATTACK,
        "lesson": ATTACK,
        "source": ATTACK,
    }
    writer = api.key("write", outside=True)
    read_data(api.post("/v1/reflections", json=lesson, key=writer), 201)
    event = {"type": "tool_response", "tool": "sh", "content": ATTACK, "error": ATTACK}
    run = {"events": [event], "outcome": "error"}
    read_data(api.post("/v1/episodes", json=run), 202)


async def end_loop(store: Store, outcome: Outcome, is_shown: bool) -> None:
    """Store the end of a loop for which one coin decided over two lessons."""
    coins = [
        Exposure(
            f"check/{digest}",
            outcome.loop,
            shown=is_shown,
            signature=digest,
            share=0.5,
            together=True,
        )
        for digest in DIGESTS
    ]
    await store.write(SCOPE, exposures.remember, (), exposures=coins, outcome=outcome)
