"""A browser that looks at the pages of a service in this process."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any

import httpx

import heedful
from heedful import Finding, Memory
from heedful.lessons.lesson import Scope
from heedful.service.setup import Setup
from tests.engines import opened
from tests.service.support import Api, read_data

HERE = "http://localhost"
USAGE = {"calls": 1, "prompt_tokens": 90, "completion_tokens": 10, "cost": 0.002}
ATTACK = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'{{7*7}}"


def one_line(page: str) -> str:
    """Return a page in one line: blanks are single, and none is between two tags."""
    return " ".join(page.split()).replace("> <", "><")


class Browser:
    """Somebody who looks at the pages, with the cookies and headers of a browser."""

    def __init__(self, api: Api, read_only: bool = False) -> None:
        from heedful.web.site_map import add_pages

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
        api = Api(Setup(store=store, scope=Scope("acme", "main"), **setup))
        try:
            yield Browser(api, read_only)
        finally:
            api.close()


def fill(api: Api) -> None:
    """Loops that passed, stopped and wait, a lesson, a text in quarantine and an
    episode.
    """
    wrong = {"check": "severity", "message": f"no severity: {ATTACK}", "fix": ATTACK}
    for loop, evaluations in (
        ("a/b", [wrong, None]),
        ("stopped", 4 * [wrong]),
        ("open", [wrong]),
    ):
        read_data(
            api.put(f"/v1/loops/{loop}", json={"task": ATTACK, "policy": "default"}),
            201,
        )
        for n, finding in enumerate(evaluations, 1):
            body = {
                "output": f"{ATTACK} {n}",
                "evaluation": {"findings": [finding] if finding else []},
            }
            if (
                sent := api.put(f"/v1/loops/{loop}/attempts/{n}", json=body)
            ).status_code == 409:
                break  # a rule stopped it
            read_data(sent)
    lesson = {
        "error_type": "PageError",
        "text": ATTACK,
        "lesson": ATTACK,
        "source": ATTACK,
    }
    read_data(
        api.post("/v1/reflections", json=lesson, key=api.key("write", outside=True)),
        201,
    )
    event = {"type": "tool_response", "tool": "sh", "content": ATTACK, "error": ATTACK}
    read_data(
        api.post("/v1/episodes", json={"events": [event], "outcome": "error"}), 202
    )


def grounded(answer: str) -> Finding | None:
    """Report a guess, under a name that is not that of this check."""
    if answer == "guess":
        return Finding("grounding", "no source", fix="name the source")
    return None


def record_loop(
    api: Api,
    name: str,
    outputs: list[str],
    *,
    task: str = "sort",
    key: str = "",
    passes: bool = False,
    usage: dict[str, Any] = USAGE,
) -> None:
    """Record a loop whose attempts have these outputs; the last one may pass."""
    body: dict[str, Any] = {"task": task, "policy": "default", "memory_key": key}
    read_data(api.put(f"/v1/loops/{name}", json=body), 201)
    for number, output in enumerate(outputs, 1):
        findings = [{"check": "pytest", "message": "wrong"}]
        if passes and number == len(outputs):
            findings = []
        body = {"output": output, "evaluation": {"findings": findings}, "usage": usage}
        read_data(api.put(f"/v1/loops/{name}/attempts/{number}", json=body))


def run_with_memory(
    browser: Browser, name: str, outputs: list[str], holdout: float = 0.0
) -> None:
    """Run a loop with a nameless check, whose memory a coin may withhold."""
    answers = iter(outputs)
    store = browser.api.setup.store
    loop = heedful.run(
        name,
        generate=lambda task, hint: next(answers),
        checks=[lambda answer, context: grounded(answer)],
        memory=Memory(store, Scope("acme", "main"), holdout=holdout),
        memory_key="sources",
        store=store,
        id=name,
    )
    browser.api.run(loop)
