"""`heedful mcp`: the tools of heedful for an agent, on standard input and output."""

import asyncio
from importlib.util import find_spec

from heedful.cli.settings import Settings, settings
from heedful.errors import PackageMissing
from heedful_agents.mcp_server import server_of


def mcp() -> int:
    """Serve heedful's tools to an agent over MCP, on standard input and output.

    The agent recalls lessons, looks up errors, and reports attempts. What it sends has
    the source agent:mcp. `heedful serve` has the same tools at /mcp.
    """
    for package in ("mcp", "heedful_server"):
        if find_spec(package) is None:
            raise PackageMissing("heedful mcp", package, "mcp")

    asyncio.run(_serve(settings().with_one_model()))
    return 0


async def _serve(values: Settings) -> None:
    """Answer an agent until it closes standard input."""
    # Another distribution.
    from heedful_server.cli.service import opened_application

    async with opened_application(values) as (app, caller):
        server = server_of(app, caller, values.db)
        await server.run_stdio_async()
