"""No fault of heedful denies a call of an agent, or keeps it waiting beyond 3 s.

Each agent runs the hooks that its settings have, while heedful fails, hangs, is locked
or is gone.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from heedful.integrations.agents import AGENTS, Kind
from heedful.integrations.install import HOOK_LIMIT_SECONDS
from tests.conftest import SOAK
from tests.hooks.faults import FAULTS, Result, call_tool, make_stage
from tests.soak.ledger import Ledger, Trial

pytestmark = [pytest.mark.soak, pytest.mark.nightly]
INJECTIONS = max(len(FAULTS), 10 * SOAK)
WORKERS = 4
# What the machine may add to a time limit, when it stops a process.
SLACK_SECONDS = 0.5
needs_node = shutil.which("node") is None


def _names() -> list[str]:
    """Return the agents with hooks; those with plugins need Node."""
    return [
        name
        for name, agent in AGENTS.items()
        if agent.events and not (agent.form == "plugin" and needs_node)
    ]


def test_no_fault_denies_a_call_or_keeps_it_waiting(
    tmp_path: Path, ledger: Ledger
) -> None:
    seed = random.randrange(2**32) if SOAK > 1 else 1
    choose = random.Random(seed)
    names = _names()
    stages = {name: make_stage(tmp_path / name, name) for name in names}

    def inject(number: int) -> tuple[str, str, Result]:
        # Each agent meets each fault.
        fault = list(FAULTS)[number % len(FAULTS)]
        name = names[(number // len(FAULTS) + number) % len(names)]
        folder = tmp_path / f"copy {number}"
        delay = delays[number]
        kind = kinds[number]
        result = call_tool(stages[name], FAULTS[fault], folder, kind=kind, delay=delay)
        shutil.rmtree(folder)
        return name, fault, result

    delays = [choose.uniform(0, 0.5) for _ in range(INJECTIONS)]
    moments: tuple[Kind, ...] = ("before", "before", "after")
    kinds = [choose.choice(moments) for _ in range(INJECTIONS)]
    with ThreadPoolExecutor(WORKERS) as pool:
        results = list(pool.map(inject, range(INJECTIONS)))

    denied = Counter(
        (name, fault) for name, fault, result in results if result.is_denied
    )
    slow = [
        (name, fault, result.seconds)
        for name, fault, result in results
        if result.seconds > HOOK_LIMIT_SECONDS + SLACK_SECONDS
    ]
    longest = max(result.seconds for _, _, result in results)
    print(f"{INJECTIONS} faults, seed {seed}: longest wait {longest:.2f} s")
    print(denied, slow)
    ledger.settle(
        Trial(
            what=(
                "hooks that fail, hang, are locked, killed or gone (exceeded: calls of "
                "agents that were denied or waited for more than 3 s)"
            ),
            engine="SQLite",
            times=INJECTIONS,
            seed=seed,
            exceeded=len(denied) + len(slow),
        )
    )
