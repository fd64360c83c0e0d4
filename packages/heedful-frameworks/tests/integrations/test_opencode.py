"""The plugin of OpenCode, run by Node: whose words a prompt has.

A child session gets its prompts from a model, and a fork has read what its parent read.
"""

import json
import os
import re
import subprocess
from typing import Any

import pytest

from heedful import Memory
from heedful.store.sqlite import in_file
from tests.hooks.stages import Stage, make_stage
from tests.hooks.support import SECONDS, environment
from tests.hosts import patient_host
from tests.tables import cases

DRIVER = """
import {{ Heedful }} from {module}
const read = {{ info: {{ id: "m1" }} }}
const written = {{ info: {{ id: "m2" }} }}
const sessions = {{
  root: [{{ id: "root" }}, []],
  stored: [{{ id: "stored" }}, [written]],
  child: [{{ id: "child", parentID: "root" }}, []],
  fork: [{{ id: "fork" }}, [read, written]],
}}
const answer = (number) => async ({{ path }}) => {{
  if (!sessions[path.id]) throw new Error("the server is gone")
  return {{ data: sessions[path.id][number] }}
}}
const client = {{ session: {{ get: answer(0), messages: answer(1) }} }}
const hooks = await Heedful({{ client, directory: process.cwd() }})
for (const text of ["read the docs", "run the tests"]) {{
  const parts = [{{ type: "text", text }}]
  const input = {{ sessionID: {session}, messageID: "m2" }}
  await hooks["chat.message"](input, {{ message: {{ id: "m2" }}, parts }})
}}
"""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return make_stage(tmp_path_factory.mktemp("opencode"), "opencode")


def prompt(stage: Stage, session: str) -> None:
    """Let the agent give a session two prompts."""
    place = stage.place
    [plugin] = place.root.rglob("heedful.ts")
    # Node 20 reads no types.
    module = place.programs / "heedful.mjs"
    types = re.compile(r": (any|string|object)\b")
    module.write_text(types.sub("", plugin.read_text("utf-8")))
    driver = place.programs / "prompts.mjs"
    driver.write_text(
        DRIVER.format(module=json.dumps(str(module)), session=json.dumps(session))
    )
    path = f"{place.programs}:{os.environ['PATH']}"
    subprocess.run(
        ["node", str(driver)],
        cwd=place.folder,
        env=environment(place.home, {"PATH": path}),
        check=True,
        timeout=SECONDS,
    )


def memory_of(stage: Stage) -> Memory:
    return Memory(in_file(str(stage.place.database)))


async def origins(stage: Stage, session: str) -> set[tuple[str, str]]:
    """Return the types and origins of the events of a session."""
    run = patient_host(memory=memory_of(stage), strict=True).run(session, "")
    events: Any = await run.events()
    return {(event["type"], event["origin"]) for event in events if event["content"]}


@cases(
    ("session", "type", "origin"),
    {
        "a user wrote it": ("root", "user_message", ""),
        "the prompt is stored already": ("stored", "user_message", ""),
        "a user wrote it in a fork": ("fork", "user_message", ""),
        "a model wrote it": ("child", "system_event", "outside"),
        "nobody knows": ("lost", "system_event", "outside"),
    },
)
async def test_the_author_of_a_prompt(
    session: str, type: str, origin: str, stage: Stage
) -> None:
    prompt(stage, session)
    assert await origins(stage, session) == {(type, origin)}
