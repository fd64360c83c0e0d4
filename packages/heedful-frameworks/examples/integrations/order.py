"""The work that Temporal, DBOS and Celery carry in the examples: a loop, and the jobs.

The loop is killed once, with its process, while its check runs.
"""

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import heedful
from heedful.store import open_store
from heedful_server import jobs

STORE = open_store("heedful.db")
TOOLS = jobs.Tools(store=STORE)
KILLED = Path("killed")


async def generate(task: str, hint: str) -> str:
    """Answer as a model would: wrongly without feedback."""
    print("the model is called", flush=True)
    return "42" if hint else "forty-two"


def digits(answer: str, context: Any) -> Iterator[heedful.Finding]:
    """Check that an answer is a number; the first time, kill the process."""
    if not KILLED.exists():
        KILLED.touch()
        print("the process is killed", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if not answer.isdigit():
        yield heedful.Finding("digits", "not a number", fix="Use digits.")


async def drive(id: str) -> str:
    """Run the loop with this id to its end, from where it is."""
    result = await heedful.run(
        "What is six times seven?",
        generate=generate,
        checks=[digits],
        id=id,
        memory=STORE,
    )
    return str(result.candidate)


async def do(
    task: str, scope: Mapping[str, str], arguments: Mapping[str, str], tries: int
) -> None:
    """Do a background job of heedful; `tries` is 1 at the first try."""
    job = jobs.Job(task, heedful.Scope(**scope), arguments)
    await jobs.do(job, TOOLS, tries)
    print(f"{task} is done", flush=True)
