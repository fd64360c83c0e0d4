"""Every framework, by one table: what its users may rely on when heedful is plugged
in.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from heedful import Done, Finding, Memory, policy
from heedful.errors import Conflict, HeedfulError, UsageUnknown
from heedful.integrations import Host
from heedful.loop.ladder import COST_UNITS
from heedful.store import loops
from heedful.store.sqlite import in_file
from heedful.testing import conformance
from heedful.testing.conformance import TASK, severity
from scripts.frameworks import NEEDS, absent, is_installed
from scripts.run_docs import blocks
from tests.hosts import patient_host
from tests.integrations.doubles import ERROR, Call, ModelDown, Say, Turn
from tests.tables import cases

# MCP is a server of tools, not a host of an agent.
NAMES = sorted(set(NEEDS) - absent() - {"mcp"})
PAGES = ("docs/integrations.md", "docs/frameworks.md", "docs/any-framework.md")
BLOCKS = [block for page in PAGES for block in blocks(Path(page).read_text("utf-8"))]


KILLED = """
import asyncio, importlib, pathlib, sys
import tests.integrations.conftest  # turns the telemetry of frameworks off
from tests.integrations.doubles import Call, Say
from heedful.testing.conformance import TASK
from tests.integrations.test_hosts import host_that_judges, memory_in

host = host_that_judges(memory_in(pathlib.Path(sys.argv[2])))
turns = [Say("high"), Call("kill")]
asyncio.run(importlib.import_module(sys.argv[1]).drive(host, TASK, turns, id="one"))
"""


def broken(candidate: Any, _: Any) -> Sequence[Finding]:
    raise OSError("no table of severities")


def memory_in(folder: Path, **options: Any) -> Memory:
    return Memory(in_file(str(folder / "memory.db")), **options)


def host_that_judges(memory: Memory | None, **options: Any) -> Host:
    options.setdefault("checks", [severity])
    options.setdefault("strict", True)
    return patient_host(memory=memory, memory_key="severity", **options)


@pytest.fixture(params=NAMES)
def double(request: pytest.FixtureRequest) -> Any:
    return import_module(f"tests.integrations.double_{request.param}")


@pytest.mark.parametrize("case", conformance.HOST, ids=conformance.name)
async def test_a_host(double: Any, case: Any) -> None:
    await case(double.drive)


def name_of(double: Any) -> str:
    return str(double.__name__.rpartition("double_")[2])


def table_below(heading: str) -> list[list[str]]:
    """Return the rows of the table below a heading of docs/integrations.md."""
    page = Path("docs/integrations.md").read_text("utf-8")
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [line.strip("| ").split(" | ") for line in lines[2:]]


BUDGET_ROWS = table_below("Budgets")
# As that table names them.
TITLES = {
    "adk": "Google ADK",
    "agent_framework": "Microsoft Agent Framework",
    "crewai": "CrewAI",
    "haystack": "Haystack",
    "langchain": "LangChain",
    "openai_agents": "OpenAI Agents",
    "pydantic_ai": "pydantic-ai",
    "strands": "Strands",
}


@pytest.mark.parametrize("unit", COST_UNITS)
async def test_a_host_keeps_the_budgets_that_the_docs_name(
    double: Any, unit: str
) -> None:
    title = TITLES[name_of(double)]
    [units] = [row[1] for row in BUDGET_ROWS if title in row[0].split(", ")]
    host = host_that_judges(None, policy=f"default, budget.{unit}=1000")
    work = double.drive(host, TASK, [Say("P1")], id="one")
    if unit in units.split(", "):
        driven = await work
        assert driven.answer == "P1"
        assert driven.verdict == Done(1, passed=True)
    else:
        with pytest.raises(UsageUnknown, match=f"{title} reports no {unit}"):
            await work


async def test_retries_keep_the_work_and_send_one_rejected_answer(
    double: Any, tmp_path: Path
) -> None:
    memory = memory_in(tmp_path)
    host = host_that_judges(memory, policy=policy("attempts.limit=5"))
    long = [Say(f"{word} " * 300) for word in ("one", "two", "six", "ten")]
    driven = await double.drive(host, TASK, [Call("ls"), *long, Say("P1")], id="one")
    assert driven.answer == "P1"
    assert driven.commands == ["ls"]
    # CrewAI runs the whole task again, and shows what it rejects by itself.
    if name_of(double) != "crewai":
        lengths = [len(prompt) for prompt in driven.prompts[2:]]
        assert max(lengths) - min(lengths) < len(long[0].text) / 2
        assert "one one" not in driven.prompts[3]
    stored_loop = await memory.store.read(memory.scope, loops.read, "one")
    usages = [attempt.usage for attempt in stored_loop.loop.attempts]
    assert [usage.calls for usage in usages] == [2, 1, 1, 1, 1]


async def test_a_tool_called_after_a_rejected_answer_follows_it(double: Any) -> None:
    if name_of(double) == "crewai":
        pytest.skip("it shows what it rejects by itself")
    script: list[Turn] = [Say("high"), Call("ls"), Say("P1")]
    driven = await double.drive(host_that_judges(None), TASK, script, id="one")
    prompt = driven.prompts[2]
    assert prompt.index(TASK) < prompt.index("high") < prompt.rindex("done")


# An id of these has the number of the user's turn; CrewAI asks its model first.
NUMBERED = ("langchain", "agent_framework", "crewai")


async def test_a_known_id_returns_its_answer_or_conflicts_with_another_task(
    double: Any,
) -> None:
    if name_of(double) in NUMBERED:
        pytest.skip("each turn is a run")
    host = host_that_judges(None)
    await double.drive(host, TASK, [Say("high"), Say("P1")], id="one")
    driven = await double.drive(host, TASK, [Say("P0")], id="one")
    assert driven.answer == "P1"
    assert driven.verdict == Done(2, passed=True)
    assert driven.prompts == []
    with pytest.raises(Conflict):
        await double.drive(host, "another", [Say("P0")], id="one")


async def test_what_the_host_raises_reaches_its_caller(
    double: Any, tmp_path: Path
) -> None:
    memory = memory_in(tmp_path)
    with pytest.raises(ModelDown):
        await double.drive(
            host_that_judges(memory), TASK, [Say("high"), ModelDown("503")], id="one"
        )
    assert not [
        lesson for lesson in await memory.top() if lesson["state"] == "verified"
    ]


async def test_a_failure_of_heedful_does_not_reach_the_host(
    double: Any, tmp_path: Path, caplog: Any
) -> None:
    memory = memory_in(tmp_path)
    (tmp_path / "memory.db").write_bytes(b"this is no database" * 1_000)
    for host, why in (
        (host_that_judges(memory, strict=False), "StoreCorrupt: "),
        (
            host_that_judges(None, strict=False, checks=[broken]),
            "check 'broken' raised OSError",
        ),
    ):
        driven = await double.drive(host, TASK, [Say("high")], id="one")
        assert driven.answer == "high"
        assert driven.verdict.passed is False
        reason = driven.verdict.stopped_by[0].detail.removeprefix("not judged: ")
        assert why in reason
        assert f"could not judge an output: {reason}" in caplog.text
    with pytest.raises(HeedfulError):
        await double.drive(host_that_judges(memory), TASK, [Say("high")], id="two")


async def test_a_killed_host_goes_on_where_it_was(double: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, double.__name__, str(tmp_path)]
    # The process finds the tests where this one does.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = partial(subprocess.call, command, env=environment)
    assert await asyncio.to_thread(run) == -signal.SIGKILL
    memory = memory_in(tmp_path)
    driven = await double.drive(host_that_judges(memory), TASK, [Say("P2")], id="one")
    assert driven.answer == "P2"
    assert "answer with one of P0 to P3" in driven.prompts[0]
    stored_loop = await memory.store.read(memory.scope, loops.read, "one")
    assert [attempt.number for attempt in stored_loop.loop.attempts] == [1, 2]


async def test_a_call_that_failed_before_is_held_back_once(
    double: Any, tmp_path: Path
) -> None:
    host = patient_host(memory=memory_in(tmp_path), strict=True)
    options: Any = {"results": {"npm run pads": RuntimeError(ERROR)}}
    again = Call("npm run pads")
    for id in ("one", "two"):
        await double.drive(host, "build", [again, Say("no")], id=id, **options)
    options |= {"id": "three", "hold_back": True}
    driven = await double.drive(host, "build", [again, again, Say("no")], **options)
    assert driven.commands == ["npm run pads"]
    assert driven.prompts[1].count("has not worked since") == 1


@cases(
    ("memory_key", "is_shown"),
    {"by default": (None, True), "without a key": ("", False)},
)
async def test_an_unlike_task_gets_the_rule_of_the_check(
    double: Any, tmp_path: Path, memory_key: str | None, is_shown: bool
) -> None:
    host = patient_host(
        memory=memory_in(tmp_path),
        checks=[severity],
        memory_key=memory_key,
        strict=True,
    )
    await double.drive(host, TASK, [Say("high"), Say("P1")], id="one")
    driven = await double.drive(host, "Rate: lift 3 hums", [Say("P2")], id="two")
    assert ("P0 to P3" in driven.prompts[0]) is is_shown


def is_runnable(program: str) -> bool:
    """Return True if the frameworks are here that a program imports."""
    imports = re.findall(r"^(?:from|import) (google\.\w+|\w+)", program, re.MULTILINE)
    return all(map(is_installed, imports))


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, id=block.title)
        for number, block in enumerate(BLOCKS)
        if block.title and is_runnable(block.body)
    ],
)
def test_the_programs_of_the_pages_print_what_they_show(
    number: int, tmp_path: Path
) -> None:
    program, printed = BLOCKS[number : number + 2]
    (tmp_path / program.title).write_text(program.body)
    # CrewAI warns of itself.
    warn = "default" if "crewai" in program.title else "error"
    command = [sys.executable, "-W", warn, program.title]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # As in all pages, three points stand for anything, such as a date.
    shown = re.escape(printed.body).replace(r"\.\.\.", ".*")
    assert re.fullmatch(shown, done.stdout), done.stdout
