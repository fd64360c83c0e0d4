"""A service in this process: an application on a real SQLite file, called through
httpx.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partialmethod
from pathlib import Path
from typing import Any, TypeVar

import httpx

from heedful.store import keys
from heedful.store.keys import KEY_PERMISSIONS
from heedful_server.setup import Setup
from tests.engines import opened

T = TypeVar("T")
TENANT = "acme"
PROJECT = "main"


class Api:
    """A running application, and who calls it: `api.post("/v1/loops", json=…,
    key=api.key())`.

    Without `key` the caller may all in `acme`, project `main`, or what the key may with
    which the application was made; `key=""` sends none.
    """

    def __init__(
        self,
        setup: Setup,
        key: str = "",
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        from heedful_server.app import application

        self.setup = setup
        self.app = application(setup)
        self._runner = asyncio.Runner(loop_factory=loop_factory)
        transport = httpx.ASGITransport(app=self.app)
        self._client = httpx.AsyncClient(
            transport=transport, base_url="http://localhost"
        )
        self._lifespan = self.app.router.lifespan_context(self.app)
        self.run(self._lifespan.__aenter__())
        self._all = key or self.key(*KEY_PERMISSIONS)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def key(
        self,
        *may: str,
        tenant: str = TENANT,
        projects: Sequence[str] = (PROJECT,),
        **more: Any,
    ) -> str:
        """A new key that may that, or read and write."""
        more |= {"projects": projects, "may": may or ("read", "write")}
        return self.run(keys.create(self.setup.store, tenant, "tests", **more))[1]

    async def ask(
        self, method: str, path: str, *, key: str | None = None, **options: Any
    ) -> httpx.Response:
        key = self._all if key is None else key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        headers |= options.pop("headers", {})
        return await self._client.request(method, path, headers=headers, **options)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.run(self.ask(method, path, **options))

    get = partialmethod(request, "GET")
    post = partialmethod(request, "POST")
    put = partialmethod(request, "PUT")
    patch = partialmethod(request, "PATCH")
    delete = partialmethod(request, "DELETE")

    def close(self) -> None:
        self.run(self._client.aclose())
        self.run(self._lifespan.__aexit__(None, None, None))
        self.run(self.setup.store.close())
        self._runner.close()


@contextmanager
def served(folder: Path, **setup: Any) -> Iterator[Api]:
    """A service on the file of that folder; `setup` are fields of Setup."""
    with opened(folder / "heedful.db") as store:
        api = Api(Setup(store=store, **setup))
        try:
            yield api
        finally:
            api.close()


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem that was answered with, which has this status and code."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    body: dict[str, Any] = read_data(response, status)
    assert (body["status"], body["code"]) == (status, code), body
    return body


class Project:
    """A project of its own, and what callers with a key of it get."""

    def __init__(self, api: Api, name: str, *may: str, outside: bool = False) -> None:
        self.api = api
        self.name = name
        self.key = api.key(*may, projects=[name], outside=outside)

    def ask(
        self, method: str, path: str, body: Any = None, **options: Any
    ) -> httpx.Response:
        options |= {} if body is None else {"json": body}
        return self.api.request(method, f"/v1/{path}", key=self.key, **options)

    def get(self, path: str) -> Any:
        return read_data(self.ask("GET", path))

    def post(
        self, path: str, body: Any = None, status: int = 200, **options: Any
    ) -> Any:
        return read_data(self.ask("POST", path, body or {}, **options), status)

    def refused(
        self, status: int, code: str, method: str, path: str, *body: Any, **options: Any
    ) -> dict[str, Any]:
        return problem(self.ask(method, path, *body, **options), status, code)


def wrong(output: Any, *checks: Any, **fields: Any) -> dict[str, Any]:
    """Return the report of an output in which these checks found something.

    A check is its name, or the finding; without one, it is `unit`.
    """
    findings = [
        {"check": check, "message": "wrong"} if isinstance(check, str) else check
        for check in checks or ("unit",)
    ]
    return {"output": output, "evaluation": {"findings": findings}, **fields}


def right(output: Any, **fields: Any) -> dict[str, Any]:
    """Return the report of an output that passes."""
    return {"output": output, "evaluation": {"findings": []}, **fields}


def record(
    api: Api, loop: str, *reports: Any, key: str | None = None, **head: Any
) -> Any:
    """Begin a loop and report its attempts; return the last answer."""
    path = f"/v1/loops/{loop}"
    answer = read_data(api.put(path, json={"task": "sort", **head}, key=key), 201)
    for number, report in enumerate(reports, 1):
        sent = api.put(f"{path}/attempts/{number}", json=report, key=key)
        answer = read_data(sent)
    return answer


def read_data(response: httpx.Response, status: int = 200) -> Any:
    """The data that was answered with this status."""
    assert response.status_code == status, response.text
    return response.json()
