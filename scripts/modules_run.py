"""Count the heedful modules that run for one action, in all threads, after warm-up
calls.

`scripts/modules_run.py` prints a figure for each action, `-v` the modules' names, too.
With `--check` it exits with 1 where a figure is over its ceiling.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType

import httpx

import heedful
from heedful.service.app import application
from heedful.service.setup import Setup
from heedful.store import keys
from heedful.store.sqlite import in_file

ROOT = f"{Path(heedful.__file__).parent}/"
# At most so many modules; lowered as rooms get deeper. They were raised once, for
# readers: the store's connection and threads, the checks of values, the guard around a
# user's code, a loop's briefing and the records of a run have modules of their own. An
# attempt over HTTP has one more: what is large is parsed beside the event loop. A run
# with memory has two more: a hook process, which starts for each event, needs the names
# of scopes and the coins of withholding, and not the modules that they came from. What
# a pipeline could not validate is read from an attempt in a module of its own. A
# run and a stage have one more: the store itself puts loops beside their lessons.
CEILINGS = {
    "an attempt over HTTP": 30,
    "run with memory and store": 44,
    "a recall": 12,
    "a stage": 32,
}
WARM_CALLS = 2
TASK = "say how heavy the parcel is"
ANSWERS = ("12", "12 kg")
BODY = {
    "output": "12",
    "evaluation": {"findings": [{"check": "unit", "message": "no unit"}]},
}
Action = Callable[[int], Awaitable[object]]


class Watch:
    """Record the heedful modules that run while it is `on`, in every thread that starts
    later.
    """

    def __init__(self) -> None:
        self.on = False
        self.modules: set[str] = set()
        threading.setprofile(self._look)
        sys.setprofile(self._look)

    def _look(self, frame: FrameType, event: str, _: object) -> None:
        if self.on and event == "call" and frame.f_code.co_filename.startswith(ROOT):
            self.modules.add(frame.f_code.co_filename.removeprefix(ROOT))

    async def modules_of(self, action: Action) -> set[str]:
        """Return the modules that one call of an action runs, after `WARM_CALLS`
        other calls.
        """
        for number in range(WARM_CALLS):
            await action(number)
        self.modules = set()
        self.on = True
        try:
            await action(WARM_CALLS)
        finally:
            self.on = False
        return self.modules


def unit(candidate: str, context: heedful.Context) -> list[heedful.Finding]:
    """Find an answer that names no unit."""
    if "kg" in candidate:
        return []
    return [heedful.Finding("unit", "no unit", fix="name the unit")]


async def weigh(task: str, hint: str) -> str:
    """Answer with the unit only if the hint asks for it."""
    return ANSWERS[1] if hint else ANSWERS[0]


@asynccontextmanager
async def attempt_over_http(folder: Path) -> AsyncIterator[Action]:
    """Report a failing attempt with a key, to a service on a file."""
    store = in_file(str(folder / "http.db"))
    _, key = await keys.create(store, "default", "figures", may=("read", "write"))
    transport = httpx.ASGITransport(app=application(Setup(store=store)))
    headers = {"Authorization": f"Bearer {key}"}
    base = "http://localhost/v1/loops"
    async with httpx.AsyncClient(transport=transport, headers=headers) as client:

        async def put(path: str, body: object) -> None:
            (await client.put(f"{base}/{path}", json=body)).raise_for_status()

        for number in range(WARM_CALLS + 1):
            await put(f"parcel-{number}", {"task": TASK})

        async def report(number: int) -> None:
            await put(f"parcel-{number}/attempts/1", BODY)

        yield report
    await store.close()


@asynccontextmanager
async def run_with_memory(folder: Path) -> AsyncIterator[Action]:
    """Drive a loop whose first attempt fails, with memory and a store."""
    store = in_file(str(folder / "run.db"))
    memory = heedful.Memory(store)

    async def drive(number: int) -> None:
        task = f"{TASK} number {number}"
        await heedful.run(
            task, generate=weigh, checks=[unit], memory=memory, store=store
        )

    yield drive
    await store.close()


@asynccontextmanager
async def recall(folder: Path) -> AsyncIterator[Action]:
    """Recall by words and render what is found."""
    store = in_file(str(folder / "recall.db"))
    memory = heedful.Memory(store)
    for number in range(20):
        await memory.remember(
            "unit", f"no unit in parcel {number}", lesson=f"{TASK}: name kg"
        )

    async def find(number: int) -> None:
        memory.render(await memory.recall(TASK))

    yield find
    await store.close()


@asynccontextmanager
async def stage(folder: Path) -> AsyncIterator[Action]:
    """Run a pipeline of one stage, durably, whose first attempt fails."""
    store = in_file(str(folder / "stage.db"))
    pipeline = heedful.Pipeline("parcels", store=store, progress=False)

    @pipeline.stage(checks=[unit])
    def weigh_again(state: object, feedback: str | None = None) -> str:
        return ANSWERS[1] if feedback else ANSWERS[0]

    async def run(number: int) -> None:
        await pipeline.run({"parcel": number})

    yield run
    await store.close()


ACTIONS = {
    "an attempt over HTTP": attempt_over_http,
    "run with memory and store": run_with_memory,
    "a recall": recall,
    "a stage": stage,
}


async def measured() -> dict[str, set[str]]:
    """Return the modules that each action runs."""
    watch = Watch()
    modules = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, prepared in ACTIONS.items():
            async with prepared(Path(folder)) as action:
                modules[name] = await watch.modules_of(action)
    return modules


def main() -> int:
    """Print the figures; with `--check` return 1 if one is over its ceiling."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-v", "--verbose", action="store_true", help="name the modules")
    parser.add_argument("--check", action="store_true", help="fail over a ceiling")
    options = parser.parse_args()
    is_over = False
    for name, modules in asyncio.run(measured()).items():
        if len(modules) > CEILINGS[name]:
            is_over = True
        print(f"{name:<28}{len(modules):>4}  at most {CEILINGS[name]}")
        if options.verbose:
            print("\n".join(f"    {module}" for module in sorted(modules)))
    return 1 if options.check and is_over else 0


if __name__ == "__main__":
    sys.exit(main())
