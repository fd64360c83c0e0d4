"""Behind a proxy that serves heedful below a path, every address stays below it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.tables import cases
from tests.web.support import HERE, Browser, browsing, fill

PREFIX = "/heedful"
LINKS = re.compile(r'(?:href|src|action|formaction|data-live)="([^"#]+)')
MAX_VISITED = 60


class Proxy(httpx.AsyncBaseTransport):
    """Passes on what is below the path, without it and with a header, or as it is."""

    def __init__(self, app: Any, sends_header: bool) -> None:
        self._service = httpx.ASGITransport(app=app)
        self._sends_header = sends_header

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path
        if not path.startswith(f"{PREFIX}/".encode()):
            return httpx.Response(404, text=f"not below {PREFIX}: {request.url}")
        if self._sends_header:
            request.headers["X-Forwarded-Prefix"] = PREFIX
            path = path.removeprefix(PREFIX.encode())
        request.url = request.url.copy_with(raw_path=path)
        return await self._service.handle_async_request(request)


@contextmanager
def proxied(folder: Path, sends_header: bool) -> Iterator[Browser]:
    root_path = "" if sends_header else f"{PREFIX}/"
    with browsing(folder, root_path=root_path) as browser:
        fill(browser.api)
        key = browser.api.key("read", "write", "approve", projects=["main"])
        transport = Proxy(browser.api.app, sends_header)
        browser.client = httpx.AsyncClient(transport=transport, base_url=HERE)
        form = {"key": key, "next": "/ui/loops"}
        entered = browser.api.run(
            browser.client.post(
                f"{PREFIX}/ui/sign-in", data=form, headers={"origin": HERE}
            )
        )
        assert entered.headers["location"] == f"{PREFIX}/ui/loops"
        assert f"Path={PREFIX}/ui" in entered.headers["set-cookie"]
        yield browser


def links_of(page: httpx.Response) -> set[str]:
    links = LINKS.findall(page.text.replace("&amp;", "&"))
    return {link for link in links if not link.startswith("https://")}


@pytest.mark.parametrize("sends_header", [True, False], ids=["header", "setting"])
def test_all_links_of_all_pages_stay_below_the_path(
    tmp_path: Path, sends_header: bool
) -> None:
    with proxied(tmp_path, sends_header) as browser:
        todo = [f"{PREFIX}/ui", f"{PREFIX}/docs", f"{PREFIX}/"]
        seen = set(todo)
        while todo and len(seen) < MAX_VISITED:
            link = todo.pop(0)
            # A stream does not end, and a form is not asked for.
            if "/ui/events" in link or "/ui/do/" in link or "/ui/sign-out" in link:
                continue
            page = browser.api.run(browser.client.get(link, follow_redirects=True))
            assert page.status_code == 200, (link, page.text[:200])
            new = {
                str(page.url.join(address).raw_path, "ascii")
                for address in links_of(page)
            }
            todo += sorted(new - seen)
            seen |= new
        assert all(link.startswith(f"{PREFIX}/") for link in seen)
        assert any("/ui/static/" in link for link in seen)
        assert any("/ui/do/" in link for link in seen)


def test_a_form_and_its_redirect_stay_below_the_path(tmp_path: Path) -> None:
    with proxied(tmp_path, sends_header=True) as browser:
        page = browser.api.run(
            browser.client.get(f"{PREFIX}/ui", follow_redirects=True)
        )
        token = re.search(r'name="token" value="([^"]+)"', page.text)
        assert token is not None
        left = browser.api.run(
            browser.client.post(
                f"{PREFIX}/ui/sign-out",
                data={"token": token[1]},
                headers={"origin": HERE},
            )
        )
        assert left.headers["location"] == f"{PREFIX}/ui/sign-in"
        assert f"Path={PREFIX}/ui" in left.headers["set-cookie"]


@cases(
    "prefix",
    {
        "another host": "//evil.example",
        "markup": '/"><script>',
        "no slash": "heedful",
        "a blank": "/a b",
        "a segment of dots": "/a/../evil",
    },
)
def test_a_prefix_that_is_no_path_is_ignored(tmp_path: Path, prefix: str) -> None:
    with browsing(tmp_path) as browser:
        headers = {"X-Forwarded-Prefix": prefix}
        page = browser.get("", headers=headers)
        assert page.headers.get("location", "/ui").startswith("/ui")
        assert all(link.startswith("/") for link in links_of(page))
        assert "evil" not in page.text


def test_the_header_chooses_no_route(tmp_path: Path) -> None:
    with browsing(tmp_path) as browser:
        headers = {"X-Forwarded-Prefix": "/x"}
        assert browser.api.get("/x/metrics", headers=headers).status_code == 404
        assert browser.api.get("/metrics", headers=headers).status_code == 200
