"""`heedful serve`, `ui` and `mcp`: the service, its pages, and its tools for agents.

All three run the same application on one store. Only `heedful serve` runs jobs in its
own process, and only on a SQLite file; otherwise they wait for `heedful worker`.
"""

import asyncio
from collections.abc import Sequence
from importlib.util import find_spec
from types import ModuleType
from typing import Annotated

from typer import Option

from heedful.cli.databases import forget_times
from heedful_server.cli.logs import Content, Telemetry, exporting
from heedful.cli.settings import Settings, settings, warn_of_unknown_variables
from heedful.errors import PackageMissing, UsageError
from heedful.store import POSTGRES_PREFIXES

SERVICE_PACKAGES = ("fastapi", "uvicorn", "httptools", "prometheus_client")


def serve(telemetry: Telemetry = False, telemetry_content: Content = False) -> int:
    """Serve heedful over HTTP until SIGTERM or Ctrl-C.

    If no key exists, the service listens on this machine only, and every caller may do
    everything. As soon as `heedful key create` has created a key, callers need one.
    """
    values = settings().with_one_model()

    if values.workers and values.db.startswith(POSTGRES_PREFIXES):
        raise UsageError(
            f"workers is {values.workers}, but on PostgreSQL no work is done in the "
            f"service's process; start heedful worker --concurrency {values.workers}"
        )

    # On PostgreSQL only workers use them, and they would not start.
    forget_times(values)

    service = _import_service("heedful serve", "server", SERVICE_PACKAGES)
    warn_of_unknown_variables()
    with exporting(telemetry, telemetry_content):
        service.run_until_stopped(service.serve(values))
    return 0


def ui(
    read_only: Annotated[bool, Option("--read-only", help="Change nothing.")] = False,
    no_browser: Annotated[
        bool, Option("--no-browser", help="Only print the address.")
    ] = False,
) -> int:
    """Look at loops, lessons and proof in the browser, and review them.

    It shows the database of this folder, on this machine only, and creates one if there
    is none. The printed address contains a token that signs you in once.
    """
    values = settings().with_one_model()
    return show_pages(values, read_only=read_only, browser=not no_browser)


def show_pages(values: Settings, *, read_only: bool, browser: bool) -> int:
    """Show the pages of the database of these settings until a signal."""
    service = _import_service("heedful ui", "ui", SERVICE_PACKAGES)
    pages = service.show_pages(values, read_only=read_only, browser=browser)
    service.run_until_stopped(pages)
    return 0


def missing_package(packages: Sequence[str] = SERVICE_PACKAGES) -> str | None:
    """Return the first of the packages that is not installed."""
    return next((name for name in packages if find_spec(name) is None), None)


def mcp() -> int:
    """Serve heedful's tools to an agent over MCP, on standard input and output.

    The agent recalls lessons, looks up errors, and reports attempts. What it sends has
    the source agent:mcp. `heedful serve` has the same tools at /mcp.
    """
    packages = ("mcp", "fastapi", "prometheus_client")
    service = _import_service("heedful mcp", "mcp", packages)
    asyncio.run(service.serve_mcp(settings().with_one_model()))
    return 0


def _import_service(purpose: str, extra: str, packages: Sequence[str]) -> ModuleType:
    """Import the service. Raises PackageMissing, with the extra that installs a missing
    package.
    """
    package = missing_package(packages)
    if package is not None:
        raise PackageMissing(purpose, package, extra)
    from heedful_server.cli import service

    return service
