"""Programs that `test_kills` kills: each says "ready", works, and says "done" if it
ends.
"""

import asyncio
import json
import logging
import os
import random
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import heedful
from heedful.checks.evaluate import Context
from heedful.lessons.lesson import Scope
from heedful.loop.record import Finding, Usage
from heedful.loop.stop import MaxAttempts
from heedful.memory.dream import Dreams
from heedful.memory.memory import Memory
from heedful.models.contract import Answer
from heedful.store import loops, open_store
from heedful.store.records import MemoryEntry
from tests.store.entries import SCOPE, build_lesson, report

SECONDS = 0.01  # that a stage and a slow check take
# How many attempts of each stage fail; `say` fails at every attempt.
FAILS = {"load": 0, "clean": 1, "train": 2, "say": 3, "publish": 0}


def say(line: str) -> None:
    print(line, flush=True)


def note(path: str | Path, *what: Any) -> None:
    """Append a line to a log in one write."""
    file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(file, f"{json.dumps(what)}\n".encode())
    os.close(file)


async def commit(url: str) -> None:
    """Commit attempts with one lesson; say each before it and when it is
    acknowledged.
    """
    lesson = build_lesson("x", state="verified")
    memory = MemoryEntry(lessons=[lesson])
    store = open_store(url)

    async def loop(id: str) -> None:
        for number in range(1, 10_000):
            entry = report(id, number, f"{id} {number}")
            say(f"asks {id} {number}")
            await store.write(SCOPE, loops.commit, entry, "me", memory)
            say(f"stored {id} {number}")

    await asyncio.gather(*(loop(f"{os.getpid()}-{n}") for n in range(3)))


RESUMED_CALLS = 6  # the most attempts of a loop of `drive`


async def drive(path: str, log: str, kind: str, seed: str) -> None:
    """Drive three loops that log their calls; `stuck` in its first checks on demand."""
    chance = random.Random(seed)

    async def generate(task: str, hint: str) -> Answer:
        await asyncio.sleep(chance.random() * 0.004)
        context = heedful.context()
        note(log, "generate", context.loop_id, context.attempt)
        return Answer(
            f"{task} {context.attempt}", Usage(1, 5, completion_tokens=5, cost=0.25)
        )

    async def check(candidate: str, context: Context) -> list[Finding]:
        if kind != "pure":
            await asyncio.sleep(chance.random() * 0.004)
        note(log, "check", context.loop_id, context.attempt)
        if kind == "stuck":
            await asyncio.sleep(60)
        return (
            []
            if context.attempt == 5 and context.task != "t0"
            else [Finding("c", "not yet")]
        )

    check.pure = kind == "pure"  # type: ignore[attr-defined]
    policy = heedful.Policy((MaxAttempts(RESUMED_CALLS),))
    run = partial(
        heedful.run,
        generate=generate,
        checks=[check],
        policy=policy,
        store=path,
        memory=Memory(path),
    )
    await asyncio.gather(*(run(f"t{n}", id=f"loop {n}") for n in range(3)))


# What the large model of `climb` may spend on a day, and what a call of it uses.
LARGE_CALLS = 9
LARGE_USAGE = Usage(1, 6, completion_tokens=4, cost=0.5)


async def climb(url: str, log: str, seed: str) -> None:
    """Drive six loops whose small model never passes and whose large one may not
    always; both log their calls, and the check what it judges.
    """
    chance = random.Random(seed)

    async def small(task: str, hint: str) -> str:
        await asyncio.sleep(chance.random() * 0.004)
        context = heedful.context()
        note(log, "small", context.loop_id, context.attempt)
        return f"{task} {context.attempt}"

    async def large(task: str, hint: str) -> Answer:
        await asyncio.sleep(chance.random() * 0.004)
        context = heedful.context()
        note(log, "large", context.loop_id, context.attempt)
        return Answer(f"{task} {context.attempt} by large", LARGE_USAGE)

    async def check(candidate: str, context: Context) -> list[Finding]:
        note(log, "check", context.loop_id, context.attempt)
        await asyncio.sleep(chance.random() * 0.004)
        is_right = context.attempt == 4 and "large" in candidate
        return [] if is_right else [Finding("c", "not yet")]

    run = partial(
        heedful.run,
        generate=[small, heedful.Rung(large, "large", calls=LARGE_CALLS)],
        checks=[check],
        policy=heedful.Policy((MaxAttempts(2),)),
        store=url,
        memory=Memory(url),
    )
    await asyncio.gather(*(run(f"t{n}", id=f"loop {n}") for n in range(6)))


async def pipeline(folder: str, seed: str) -> None:
    """Run a pipeline, or resume it; `pure` fails as often as `FAILS` says."""
    root = Path(folder)
    logging.getLogger("heedful").addHandler(
        logging.NullHandler()
    )  # some stages fail on purpose

    def pure(output: Any, context: Context) -> Sequence[Finding]:
        if context.attempt > FAILS[context.loop_id.partition("/")[2]]:
            return []
        return [
            Finding(
                "pure", f"attempt {context.attempt} made {output}"[:90], fix="go on"
            )
        ]

    def slow(output: Any, context: Context) -> Sequence[Finding]:
        time.sleep(SECONDS)
        return [Finding("slow", "it took a while", level="warning")]

    def stage(name: str) -> Any:
        def run(state: dict[str, Any], feedback: str | None = None) -> Any:
            time.sleep(SECONDS)
            attempt = (
                1 if feedback is None else int(feedback.partition("attempt ")[2][0]) + 1
            )
            state["log"].append([name, attempt])
            note(root / "ended.log", name, attempt)
            return {"at": attempt, "saw": len(state["log"])}

        return run

    pure.pure = True  # type: ignore[attr-defined]
    stages = heedful.Pipeline(
        "p", store=str(root / "a.db"), reports=root / "reports", progress=False
    )
    for name in FAILS:
        stages.stage(name=name, checks=[pure, slow])(stage(name))
    result = await stages.run({"log": []}, id="r")
    state = {
        name: value
        for name, value in result.state.items()
        if name != "guardrail_reports"
    }
    (root / "state.json").write_text(json.dumps(state))


async def dream(path: str) -> None:
    """Consolidate and roll back, again and again; say what begins and what is done."""
    memory = Memory(path, Scope("ours"))
    while True:
        say("dreams")
        done = await heedful.consolidate(memory)
        say("dreamt")
        await asyncio.sleep(0.05)
        say("undoes")
        await Dreams(memory).rollback(done.id, by="it")


async def remember(path: str, times: str) -> None:
    memory = Memory(path)
    for n in range(int(times)):
        lesson = await memory.remember(
            "ValueError", f"line {n}: could not convert {n}.5 to int"
        )
        say(f"{lesson.id} {lesson.created} {lesson.seen}")


def main() -> None:
    name, *arguments = sys.argv[1:]
    say("ready")
    asyncio.run(globals()[name](*arguments))
    say("done")
