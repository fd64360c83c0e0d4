"""The hooks of coding agents over HTTP: what is answered, learnt later, and of whom."""

from typing import Any

import pytest

from heedful.lessons.lesson import Scope
from heedful.service.jobs import Job, Tools, do
from tests.service.jobs import Handed
from tests.service.support import Project, served

ERROR = "npm ERR! missing script: build"
TOOL = {
    "tool_name": "Bash",
    "tool_input": {"command": "npm run build"},
    "tool_use_id": "c1",
}
FAILS: list[dict[str, Any]] = [
    {**TOOL, "hook_event_name": "PreToolUse"},
    {**TOOL, "hook_event_name": "PostToolUseFailure", "error": ERROR},
    {"hook_event_name": "SessionEnd", "transcript_path": "/etc/passwd"},
]


@pytest.mark.parametrize("trusted", [False, True], ids=["a stranger's", "trusted"])
def test_a_session_teaches_the_next_if_its_key_is_trusted(tmp_path, trusted):
    with served(tmp_path, work=(work := Handed())) as api:
        shop = Project(api, "shop")
        other = Project(api, "books")
        memory = api.setup.memory(Scope("acme", "shop"))
        source = f"key:{shop.key.split('_')[1]}"
        program = "program:npm"
        for name in (program, source) if trusted else (program,):
            api.run(memory.set_trust(name, "measured", by="ann"))
        for event in FAILS:
            assert shop.post("hooks/claude-code", {"session_id": "s1", **event}) == {}
        assert [job[2]["what"] for job in work.jobs] == ["study", "end"]
        for task, scope, arguments in work.jobs:
            api.run(
                do(Job(task, scope, arguments), Tools(store=api.setup.store), tries=1)
            )
        again = {"session_id": "s2", **FAILS[0]}
        work.jobs.clear()
        third = Project(api, "shop")
        third.post("hooks/claude-code", {**FAILS[2], "session_id": "s1"})
        assert not work.jobs  # it is the session of another key
        read = {"key": api.key("write"), "json": again}
        assert api.post("/v1/hooks/claude-code", **read).status_code == 403
        advice, no_advice = (
            project.post("hooks/claude-code", again) for project in (shop, other)
        )
        assert ("missing script" in str(advice)) == trusted
        assert no_advice == {}
        assert api.run(memory.quarantine.revoke(source, dry_run=True)).lessons == 1


@pytest.mark.parametrize(
    ("sources", "released"),
    [
        pytest.param(["program:npm"], 0, id="the program alone"),
        pytest.param(["program:npm", "key"], 1, id="the key, too"),
    ],
)
def test_trust_in_a_program_releases_nothing_that_only_a_key_sent(
    tmp_path, sources, released
):
    with served(tmp_path, work=(work := Handed())) as api:
        shop = Project(api, "shop")
        memory = api.setup.memory(Scope("acme", "shop"))
        for event in FAILS:
            shop.post("hooks/claude-code", {"session_id": "s1", **event})
        for task, scope, arguments in work.jobs:
            api.run(
                do(Job(task, scope, arguments), Tools(store=api.setup.store), tries=1)
            )
        assert len(api.run(memory.quarantine.waiting())) == 1

        key = f"key:{shop.key.split('_')[1]}"
        ids: list[int] = []
        for source in sources:
            name = key if source == "key" else source
            ids += api.run(memory.set_trust(name, "measured", by="ann", waiting=True))
        assert len(ids) == released
        again = {"session_id": "s2", **FAILS[0]}
        advice = shop.post("hooks/claude-code", again)
        assert ("missing script" in str(advice)) == bool(released)
