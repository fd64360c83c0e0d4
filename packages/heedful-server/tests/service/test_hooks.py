"""The hooks of coding agents over HTTP: what is answered, learnt later, and of whom."""

import sqlite3
import time
from typing import Any

import pytest

from heedful.lessons.lesson import Scope
from heedful.store import episodes
from heedful_server.jobs import Job, Tools, do
from tests.service.jobs import Handed
from tests.service.support import Api, Project, served
from tests.tables import cases

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


def fail_in(api: Api, project: Project, *sessions: str) -> None:
    """Let the call fail in these sessions, and learn from each."""
    work: Any = api.setup.work
    for session in sessions:
        for event in FAILS:
            event = {**event, "session_id": session}
            assert project.post("hooks/claude-code", event) == {}
        assert [job[2]["what"] for job in work.jobs] == ["study", "end"]
        for task, scope, arguments in work.jobs:
            job = Job(task, scope, arguments)
            api.run(do(job, Tools(store=api.setup.store), tries=1))
        work.jobs.clear()


@cases(
    ("is_outside", "names", "is_told"),
    {
        "a key as created": (False, [], True),
        "a key from outside": (True, [], False),
        "a key from outside that is stated": (True, ["key"], True),
    },
)
def test_a_session_teaches_the_next_if_its_key_is_stated(
    tmp_path, is_outside, names, is_told
):
    with served(tmp_path, work=(work := Handed())) as api:
        shop = Project(api, "shop", outside=is_outside)
        other = Project(api, "books")
        memory = api.setup.memory(Scope("acme", "shop"))
        source = f"key:{shop.key.split('_')[1]}"
        for name in names:
            stated = source if name == "key" else name
            api.run(memory.quarantine.state(stated, by="ann"))
        fail_in(api, shop, "s1", "s2")
        again = {"session_id": "s3", **FAILS[0]}
        end = {**FAILS[2], "session_id": "s4"}
        assert shop.post("hooks/claude-code", end) == {}
        assert not work.jobs  # a session without events
        read = {"key": api.key("write"), "json": again}
        assert api.post("/v1/hooks/claude-code", **read).status_code == 403
        advice, no_advice = (
            project.post("hooks/claude-code", again) for project in (shop, other)
        )
        assert ("missing script" in str(advice)) == is_told
        assert no_advice == {}
        assert api.run(memory.quarantine.revoke(source, dry_run=True)).lessons == 1


@pytest.mark.both_nightly
def test_rules_are_listed_with_how_they_were_kept(tmp_path):
    with served(tmp_path, work=Handed()) as api:
        shop = Project(api, "shop")
        memory = api.setup.memory(Scope("acme", "shop"))
        api.run(memory.user_rules.state("use pnpm, never npm", by="ann"))
        shop.post("hooks/claude-code", {**FAILS[0], "session_id": "s1"})
        (rule,) = shop.get("rules")["rules"]
        assert rule["text"] == "use pnpm, never npm"
        assert rule["ledger"]["told"] == rule["ledger"]["broken"] == 1
        (call,) = rule["ledger"]["calls"]
        assert (call["deed"], call["call"]) == ("broken", "npm run build")
        assert Project(api, "books").get("rules") == {"rules": []}


PROMPT = {"hook_event_name": "UserPromptSubmit"}
STRANGE_EVENTS = {
    "a stranger states a rule as the user": {**PROMPT, "prompt": "never run make"},
    "a stranger answers the call": {**TOOL, "hook_event_name": "PostToolUse"},
    "a stranger starts the session again": {"hook_event_name": "SessionStart"},
    "a stranger ends the session": FAILS[2],
}


@pytest.mark.both_nightly
@cases("event", STRANGE_EVENTS)
@pytest.mark.parametrize("session", ["s1", "s" * 100], ids=["short", "long"])
def test_a_session_belongs_to_the_key_of_its_first_event(tmp_path, event, session):
    with served(tmp_path, work=(work := Handed())) as api:
        shop = Project(api, "shop")
        stranger = Project(api, "shop", "write", "recall")
        memory = api.setup.memory(Scope("acme", "shop"))
        api.run(memory.user_rules.state("never use npm", by="ann"))
        path = "hooks/claude-code"
        prompt = {**PROMPT, "prompt": "build it", "session_id": session}
        shop.post(path, prompt)

        strange = {**event, "session_id": session}
        refused = stranger.refused(409, "conflict", "POST", path, strange)
        assert "belongs to another key" in refused["detail"]
        assert not work.jobs

        denied = shop.post(path, {**FAILS[0], "session_id": session})
        assert "never use npm" in str(denied)
        make = {**FAILS[0], "tool_input": {"command": "make"}, "tool_use_id": "c2"}
        assert shop.post(path, {**make, "session_id": session}) == {}
        stranger.post(path, {**strange, "session_id": "its own"})


@pytest.mark.both_nightly
def test_a_session_that_ended_still_belongs_to_its_key(tmp_path):
    with served(tmp_path) as api:
        shop = Project(api, "shop")
        stranger = Project(api, "shop", "write", "recall")
        path = "hooks/claude-code"
        prompt = {**PROMPT, "prompt": "build it", "session_id": "s1"}
        shop.post(path, prompt)
        end = episodes.forget_session
        store = api.setup.store
        api.run(store.write(Scope("acme", "shop"), end, "s1", until=time.time()))

        strange = {**prompt, "prompt": "always run make fmt"}
        stranger.refused(409, "conflict", "POST", path, strange)
        assert shop.post(path, prompt) == {}


@pytest.mark.sqlite
@cases(
    ("outside", "state"),
    {"a key as created": (0, "unverified"), "a key from outside": (1, "quarantined")},
)
def test_a_rule_in_a_prompt_is_believed_as_its_key(tmp_path, outside, state):
    with served(tmp_path) as api:
        shop = Project(api, "shop")
        with sqlite3.connect(tmp_path / "heedful.db") as connection:
            connection.execute("update key set outside = ?", [outside])
        memory = api.setup.memory(Scope("acme", "shop"))
        prompt = {**PROMPT, "prompt": "never use npm", "session_id": "s1"}
        shop.post("hooks/claude-code", prompt)

        (stated,) = api.run(memory.user_rules.list())
        assert stated.state == state
