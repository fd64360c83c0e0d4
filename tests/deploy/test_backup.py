"""The commands of the page on deployment: what was dumped is restored."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import heedful
from heedful.lessons.scope import Remembered
from heedful.store import keys
from heedful.store.copying import tables
from heedful.store.postgres import in_database
from scripts.run_docs import blocks
from tests import postgres
from tests.postgres import Urls

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "deploy.md"


def block_with(word: str, **urls: str) -> str:
    """The commands of the page that contain `word`.

    `urls` has the URL to use in place of that of the owner at each host.
    """
    page = PAGE.read_text("utf-8")
    (commands,) = (block.body for block in blocks(page) if word in block.body)
    for host, url in urls.items():
        written = f"postgresql://heedful_owner@{host}.example.com/heedful"
        assert written in commands
        commands = commands.replace(written, f"'{url}'")
    return commands


def run_commands(commands: str, folder: Path) -> None:
    """Run commands in a shell that finds the programs of PostgreSQL, and heedful."""
    programs = postgres.server()._server.bin_path
    path = f"{programs}{os.pathsep}{Path(sys.executable).parent}"
    env = {"PATH": f"{path}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["sh", "-eu", "-c", commands], cwd=folder, env=env, check=True)


async def used(urls: Urls) -> Remembered:
    """A store that loops, lessons and keys are written to, each of two tenants."""
    store = in_database(urls.service)
    answer = Remembered(0, False, seen=0)
    try:
        for tenant in ("acme", "other"):
            memory = heedful.Memory(store, heedful.Scope(tenant))
            answer = await memory.remember("unit", "the weight has no unit")
            await keys.create(store, tenant, "ann")
    finally:
        await store.close()
    return answer


@pytest.mark.nightly
def test_what_was_dumped_is_restored_and_goes_on(tmp_path):
    before = postgres.fresh()
    after = postgres.blank()
    first = asyncio.run(used(before))
    commands = block_with("pg_restore", db=before.owner, new=after.owner)
    try:
        run_commands(commands, tmp_path)
        counts = [
            [
                postgres.rows(database.owner, f"select count(*) from {table.name}")
                for table in tables()
            ]
            for database in (before, after)
        ]
        assert counts[0] == counts[1]  # every row is there
        again = asyncio.run(used(after))
        assert again.id == first.id
        assert again.seen == 2
    finally:
        postgres.drop(before)
        postgres.drop(after)
