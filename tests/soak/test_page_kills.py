"""`heedful ui` is killed while pages are read and quarantined texts are decided on.

Each decision that a browser was answered is stored once, and no text that nobody
released reaches a recall.
"""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from heedful.memory.memory import Memory
from heedful.store import exposures, open_store
from tests.conftest import SOAK
from tests.soak.databases import Database, Databases
from tests.soak.ledger import Counts, Ledger, Trial
from tests.store.support import WAITING, unmeasured

pytestmark = [pytest.mark.soak, pytest.mark.nightly]
KILLS = 1 if SOAK == 1 else SOAK // 2 + 1  # of each engine
MAX_DECISIONS = 4  # in one life of the process
TEXTS = KILLS * MAX_DECISIONS * 2 + 2
READERS = 3
MAX_DELAY_SECONDS = 0.02  # from a decision to a kill
PAGES = ("/ui/home", "/ui/quarantine", "/ui/lessons", "/ui/loops")
FORM_TOKEN = re.compile(r'name="token" value="([^"]+)"')


def letters_of(number: int) -> str:
    """A word for a number: figures would make errors equal, such as v0 and v1."""
    return "".join(chr(97 + int(digit)) for digit in str(number))


def text_of(number: int) -> str:
    """A text that shares no word with another but those of every text."""
    letters = letters_of(number)
    return f"Ask the {letters * 3} desk before the {letters * 2}x gate opens"


async def fill(url: str) -> dict[int, str]:
    """Remember what strangers said; return the texts that wait, by their ids."""
    store = open_store(url)
    memory = Memory(store)
    for number in range(TEXTS):
        await memory.remember(
            "Hint",
            f"the {letters_of(number)} door is closed",
            lesson=text_of(number),
            origin="outside",
            source="forum",
        )
    waiting = await memory.quarantine.waiting(TEXTS)
    await store.close()
    return {item.id: item.lesson for item in waiting}


@dataclass(kw_only=True)
class Crowd:
    """Readers of pages and somebody who decides, until the process is killed.

    `decided` are the decisions that were answered, by the ids of the texts.
    """

    database: Database
    folder: Path
    chance: random.Random
    decided: dict[int, str] = field(default_factory=dict)
    asking: int = 0
    interrupted: int = 0
    reads: int = 0

    async def live(self) -> None:
        """Start the process, let the crowd work, and kill it after some decisions."""
        process = self.start()
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            address = line.split()[-1]
            parts = urlsplit(address)
            origin = f"{parts.scheme}://{parts.netloc}"
            async with httpx.AsyncClient(
                base_url=origin,
                headers={"origin": origin},
                trust_env=False,
                timeout=WAITING,
            ) as client:
                home = await client.get(address, follow_redirects=True)
                token = FORM_TOKEN.search(home.text)
                assert token is not None, home.text
                readers = [self.read(client) for _ in range(READERS)]
                decider = self.decide(client, token[1])
                await asyncio.gather(self.kill(process), decider, *readers)
        finally:
            process.kill()
            process.communicate(timeout=WAITING)

    def start(self) -> subprocess.Popen[str]:
        command = ("ui", "--no-browser", "--port", "0", "--db", self.database.url)
        return subprocess.Popen(
            [sys.executable, "-m", "heedful.cli", *command],
            cwd=self.folder,
            env={**unmeasured(), "HEEDFUL_EMBEDDER": "none"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    async def kill(self, process: subprocess.Popen[str]) -> None:
        """Kill the process after a few more decisions."""
        wanted = len(self.decided) + self.chance.randint(1, MAX_DECISIONS)
        while len(self.decided) < wanted:
            assert process.poll() is None
            await asyncio.sleep(0.001)
        await asyncio.sleep(self.chance.random() * MAX_DELAY_SECONDS)
        self.interrupted += self.asking > 0
        process.kill()

    async def read(self, client: httpx.AsyncClient) -> None:
        with suppress(httpx.TransportError):
            while True:
                page = await self.ask(client, "GET", self.chance.choice(PAGES))
                assert page.status_code == 200, page.text
                self.reads += 1

    async def decide(self, client: httpx.AsyncClient, token: str) -> None:
        """Release and reject what waits, one text after another."""
        with suppress(httpx.TransportError):
            while True:
                page = await self.ask(client, "GET", "/ui/quarantine.json")
                ids = [id for row in page.json()["waiting"] for id in row["ids"]]
                chosen = self.chance.choice(ids)
                action = self.chance.choice(("release", "reject"))
                form = {"token": token, "id": str(chosen), "why": "read"}
                answer = await self.ask(client, "POST", f"/ui/do/{action}", form)
                assert answer.status_code == 303, answer.text
                assert chosen not in self.decided
                self.decided[chosen] = action

    async def ask(
        self, client: httpx.AsyncClient, method: str, path: str, form: Any = None
    ) -> httpx.Response:
        self.asking += 1
        try:
            return await client.request(
                method, path, data=form, follow_redirects=method == "GET"
            )
        finally:
            self.asking -= 1


async def count(crowd: Crowd, texts: dict[int, str], counts: Counts) -> int:
    """Compare the answers with what is stored; return how many texts leaked."""
    store = open_store(crowd.database.url)
    memory = Memory(store)
    rulings = await store.read(memory.scope, exposures.rulings, TEXTS * 2)
    times = Counter(item["record"]["example"] for item in rulings)
    actions = {item["record"]["example"]: item["action"] for item in rulings}
    waiting = {item.id for item in await memory.quarantine.waiting(TEXTS)}
    for id, action in crowd.decided.items():
        counts.lost += actions.get(id) != action or id in waiting
    counts.doubled += sum(number - 1 for number in times.values())
    assert actions.keys() == texts.keys() - waiting

    leaked = 0
    for id, text in texts.items():
        recalled = {match.lesson for match in await memory.recall(text, 9)}
        is_released = actions.get(id) == "release"
        leaked += text in recalled and not is_released
        counts.lost += is_released and text not in recalled
    await store.close()
    return leaked


def test_killed_pages_keep_each_decision_once_and_show_nothing_before(
    tmp_path: Path, databases: Databases, ledger: Ledger
) -> None:
    database = databases.new()
    texts = asyncio.run(fill(database.url))
    crowd = Crowd(database=database, folder=tmp_path, chance=random.Random(SOAK))
    for _ in range(KILLS):
        asyncio.run(crowd.live())
    counts = Counts()
    leaked = asyncio.run(count(crowd, texts, counts))
    database.check_health()
    print(f"{len(crowd.decided)} decisions, {crowd.reads} pages")
    ledger.settle(
        Trial(
            what="kill -9 of pages that are read, and on which texts are decided",
            engine=databases.engine,
            times=KILLS,
            at_work=crowd.interrupted,
            seed=SOAK,
            lost=counts.lost,
            doubled=counts.doubled,
            leaked=leaked,
        )
    )
