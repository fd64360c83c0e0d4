"""The first stage of a hook: which events end there, and that none is lost."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from heedful import Memory, Scope
from heedful.episodes.episode import Event
from heedful.episodes.failures import reports_failure
from heedful.integrations import Host
from heedful.lessons.triggers import ANY_CALL, trigger_of
from heedful.store.inline import run_inline
from heedful.store.projects import find_project
from heedful_agents import hook_start as stage, session_plan
from heedful_agents.agents import AGENTS
from heedful_agents.session_hooks import Reply
from tests.hooks.support import as_user, call_hook, environment
from tests.tables import cases

ROOT = Path(__file__).resolve().parents[4]
WITNESSES = ROOT / "packages/heedful/tests/episodes/witnesses/failures.toml"
PASSED = {"stdout": " M cart.py", "stderr": "", "interrupted": False}
ERROR = "Exit code 1\nnpm error code EUSAGE\nnpm error missing lock file"
# It ends in the first stage, or says which modules the full hook has imported.
PROGRAM = """import sys
from heedful_agents import hook_start
ended = hook_start.end_quietly(sys.argv[1:], sys.stdin.buffer.read())
print(ended, [name for name in sys.modules if name.startswith("heedful.")])"""
_numbers = count()


class Session:
    """A session of an agent in a project, each event a process of its own."""

    def __init__(self, home: Path, name: str = "s1", project: str = "shop") -> None:
        self.home = home
        self.name = name
        self.folder = home / project
        (self.folder / ".git").mkdir(parents=True, exist_ok=True)
        self.more: dict[str, str] = {}

    def send(self, event: str, fields: Mapping[str, Any] = {}, **more: Any) -> str:
        """Send an event to the full hook; return what it prints."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["heedful-hook", event])
            data = self.event(fields, more)
            done = call_hook(self.folder, self.home, [event], data, self.more)
        assert done.err == ""
        return done.out

    def event(self, fields: Mapping[str, Any], more: Mapping[str, Any]) -> bytes:
        """Return an event of the session as its hook reads it."""
        head = {"session_id": self.name, "cwd": str(self.folder)}
        return json.dumps({**head, **fields, **more}).encode()

    def ends_at_once(self, event: str, fields: Mapping[str, Any]) -> bool:
        """Return whether an event ends in the first stage; it is kept then."""
        with as_user(self.folder, self.home, self.more), suppress(Exception):
            return stage.end_quietly([event], self.event(fields, {}))
        return False

    def run_process(self, event: str, fields: Mapping[str, Any]) -> str:
        """Return what a process of the first stage prints about itself."""
        done = subprocess.run(
            [sys.executable, "-P", "-c", PROGRAM, event],
            input=self.event(fields, {}),
            cwd=self.folder,
            env=environment(self.home),
            capture_output=True,
            check=True,
        )
        return done.stdout.decode()

    @property
    def spool(self) -> Path:
        return self.home / ".heedful/sessions" / f"{self.name}.spool"

    @property
    def plan(self) -> Path:
        return self.spool.with_suffix(".plan")

    def rows(self, query: str) -> list[Any]:
        with as_user(self.folder, self.home):
            database = find_project(self.folder).db
        with closing(sqlite3.connect(database)) as db:
            return db.execute(query).fetchall()

    def events(self) -> list[tuple[str, str]]:
        """Return the events of the session that are stored, with their calls."""
        query = "select type, call from event where session = '{}' order by n"
        return self.rows(query.format(self.name))


@pytest.fixture
def session(tmp_path: Path) -> Session:
    session = Session(tmp_path)
    session.send("SessionStart", source="startup")
    return session


def call(command: str, **more: Any) -> dict[str, Any]:
    """Return the fields of a call of a shell."""
    fields = {"tool_name": "Bash", "tool_input": {"command": command}}
    return {"tool_use_id": f"t{next(_numbers)}", **fields, **more}


def test_a_silent_call_imports_nothing_of_ours(session: Session) -> None:
    fields = call("git status --short")
    result = fields | {"tool_response": PASSED}
    assert session.run_process("PreToolUse", fields) == "True []\n"
    assert session.run_process("PostToolUse", result) == "True []\n"


def test_a_process_goes_on_to_the_full_hook(session: Session) -> None:
    failed = session.event(call("npm ci"), {"error": ERROR})
    line = "from heedful_agents.hook_start import run; run()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", line, "PostToolUseFailure"],
        input=failed,
        cwd=session.folder,
        env=environment(session.home),
        capture_output=True,
        check=True,
    )
    assert done.stdout == b""
    assert done.stderr == b""
    assert [kind for kind, _ in session.events()][1:] == ["tool_call", "tool_response"]


def test_a_line_has_no_text(session: Session) -> None:
    words = call("git log --author=mira src/cart.py")
    assert session.ends_at_once("PreToolUse", words)
    assert session.ends_at_once("PostToolUse", words | {"tool_response": PASSED})
    content = session.spool.read_text()
    for word in ("mira", "author", "cart.py", "log"):
        assert word not in content
    assert os.stat(session.spool).st_mode & 0o077 == 0


EDIT = {"file_path": "cart.py", "old_string": "a", "new_string": "b"}
# What is not plain, each with its reason.
LOUD = {
    "another script": call("cat Größe.txt"),
    "a secret": call("deploy --password hunter2"),
    "a long word of letters and digits": call("curl1 x4bcdef0123456789abcdef0"),
    "text from outside": call("cat list | xargs curl -s"),
    "a new branch": call("git checkout -b fix"),
    "a tool of a server": call("x", tool_name="mcp__docs__search"),
    "arguments that are no object": call("x", tool_input="git status"),
    "a long event": call("x" * stage.MAX_QUIET_EVENT_BYTES),
    "another folder": call("git status", cwd="/tmp"),
    "a session without a plan": call("git status", session_id="other"),
    "a session without a plain name": call("git status", session_id="../s1"),
}


@cases("fields", LOUD)
def test_what_is_not_plain_goes_on(session: Session, fields: Mapping[str, Any]) -> None:
    assert not session.ends_at_once("PreToolUse", fields)


def test_a_changed_setting_goes_on(session: Session) -> None:
    session.more = {"HEEDFUL_STRICT": "true"}
    assert not session.ends_at_once("PreToolUse", call("git status"))
    session.more = {}
    (session.home / ".heedful/heedful.toml").write_text("strict = true")
    assert not session.ends_at_once("PreToolUse", call("git status"))


def test_an_open_failure_lets_nothing_end_at_once(session: Session) -> None:
    failed = call("npm ci")
    session.send("PostToolUseFailure", failed, error=ERROR)
    assert not session.ends_at_once("PreToolUse", call("git status"))
    # The same call works.
    session.send("PreToolUse", failed)
    session.send("PostToolUse", failed, tool_response=PASSED)
    assert session.ends_at_once("PreToolUse", call("git status"))


def test_a_call_that_failed_before_goes_on(session: Session) -> None:
    session.send("PostToolUseFailure", call("npm ci --frozen"), error=ERROR)
    other = Session(session.home, "s2")
    other.send("SessionStart", source="startup")
    assert not other.ends_at_once("PreToolUse", call("npm ci --frozen | tail -3"))
    assert other.ends_at_once("PreToolUse", call("npm run lint"))


def test_a_call_that_a_rule_speaks_of_goes_on(session: Session) -> None:
    session.send("UserPromptSubmit", prompt="we use pnpm, never yarn")
    assert not session.ends_at_once("PreToolUse", call("yarn add x"))
    assert not session.ends_at_once("PreToolUse", call("pnpm add x"))
    assert session.ends_at_once("PreToolUse", call("make test"))


def test_a_failure_that_only_the_file_of_the_session_tells_goes_on(
    session: Session,
) -> None:
    place = session.home / "s1.jsonl"
    place.write_text('{"is_error":false}\n')
    fields = call("git status", transcript_path=str(place))
    assert session.ends_at_once("PreToolUse", fields)
    place.write_text('{"is_error":true}\n')
    assert not session.ends_at_once("PreToolUse", fields)


def test_quiet_events_are_kept_before_the_next_other_event(session: Session) -> None:
    quiet = call("git status")
    assert session.ends_at_once("PreToolUse", quiet)
    assert session.ends_at_once("PostToolUse", quiet | {"tool_response": PASSED})
    before = call("npm ci")
    assert session.ends_at_once("PreToolUse", before)
    session.send("PostToolUseFailure", before, error=ERROR)
    ids = [quiet["tool_use_id"], before["tool_use_id"]]
    assert session.events()[1:] == [
        ("tool_call", ids[0]),
        ("tool_response", ids[0]),
        ("tool_call", ids[1]),
        ("tool_response", ids[1]),
    ]
    # The failed call has all its words, though its first line had none.
    (record,) = session.rows(
        f"select record from event where type = 'tool_call' and call = '{ids[1]}'"
    )
    assert json.loads(record[0])["arguments"] == {"command": "npm ci"}
    assert not session.spool.exists()


def test_lines_that_are_kept_twice_count_once(session: Session) -> None:
    fields = call("git status")
    assert session.ends_at_once("PreToolUse", fields)
    lines = session.spool.read_bytes()
    session.send("UserPromptSubmit", prompt="Go on.")
    events_before = session.events()
    # As after a kill between the commit and the end of the spool.
    session.spool.write_bytes(lines)
    session.send("UserPromptSubmit", prompt="Go on.")
    calls = [event for event in session.events() if event[0] == "tool_call"]
    assert calls == [event for event in events_before if event[0] == "tool_call"]


def test_damaged_lines_are_left_out(session: Session) -> None:
    first = call("git status")
    assert session.ends_at_once("PreToolUse", first)
    with session.spool.open("ab") as file:
        file.write(b'{"kind": "before", "ca')
    second = call("git diff")
    assert session.ends_at_once("PreToolUse", second)
    with session.spool.open("ab") as file:
        file.write(b"\xff\x00 rubbish\n[]\n")
    session.send("UserPromptSubmit", prompt="Go on.")
    calls = [id for kind, id in session.events() if kind == "tool_call"]
    assert calls == [first["tool_use_id"], second["tool_use_id"]]


def test_a_full_or_held_spool_goes_on(session: Session) -> None:
    session.spool.write_bytes(b"\n" * (stage.MAX_SPOOL_BYTES + 1))
    assert not session.ends_at_once("PreToolUse", call("git status"))
    session.spool.write_bytes(b"")
    lock = stage.open_spool(str(session.spool))
    try:
        assert not session.ends_at_once("PreToolUse", call("git status"))
    finally:
        os.close(lock)


def test_any_start_keeps_what_other_sessions_left(session: Session) -> None:
    fields = call("git status")
    assert session.ends_at_once("PreToolUse", fields)
    other = Session(session.home, "s2", "mill")
    other.send("SessionStart", source="startup")
    assert ("tool_call", fields["tool_use_id"]) in session.events()
    assert not session.spool.exists()


def test_the_end_removes_the_plan_and_the_spool(session: Session) -> None:
    assert session.ends_at_once("PreToolUse", call("git status"))
    session.send("SessionEnd", reason="other")
    assert not session.plan.exists()
    assert not session.spool.exists()


def test_a_file_that_was_read_may_be_edited_at_once(session: Session) -> None:
    edit = {"tool_name": "Edit", "tool_input": EDIT}
    error = "File has not been read yet. Read it first before writing to it."
    session.send("PostToolUseFailure", call("") | edit, error=error)
    other = Session(session.home, "s2")
    other.send("SessionStart", source="startup")
    assert not other.ends_at_once("PreToolUse", call("") | edit)
    read = call("", tool_name="Read", tool_input={"file_path": "cart.py"})
    assert other.ends_at_once("PostToolUse", read | {"tool_response": "total = 0"})
    assert other.ends_at_once("PreToolUse", call("") | edit)


def failing_texts() -> Iterator[str]:
    """Yield texts with which calls failed, as their witnesses have them."""
    for row in tomllib.loads(WITNESSES.read_text()).values():
        yield from (text for text in row["needs"] if reports_failure(text, "./x"))


@cases("text", {text: text for text in failing_texts()})
def test_a_text_that_reports_a_failure_has_a_sign(text: str) -> None:
    plan = {"marks_failures": False, "signs": session_plan._signs()}
    event = {"tool_input": {"command": "./x"}, "tool_response": text}
    assert stage.may_have_failed(event, plan)


RESULTS = {
    "an exit code": ({"stdout": "x", "exitCode": 2}, True),
    "an error": ({"content": "x", "isError": True}, True),
    "no error": ({"content": "x", "isError": False}, False),
    "a field in a part": ({"part": {"error": "gone"}}, True),
    "interrupted": ({"stdout": "x", "interrupted": True}, True),
    "refused": ("The user declined this call.", True),
    "timed out": ("Command timed out after 2m 0s", True),
    "data with fields": ('{"success": false}', True),
    "a plain text": ("31 passed", False),
    "an error in what a call shows": ({"stdout": "error: none"}, False),
}


@cases(("response", "may_have_failed"), RESULTS)
def test_only_plain_results_worked(response: Any, may_have_failed: bool) -> None:
    plan = {"marks_failures": True, "signs": session_plan._signs()}
    event = {"tool_input": {"command": "make"}, "tool_response": response}
    assert stage.may_have_failed(event, plan) is may_have_failed


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_a_trigger_is_a_word_of_its_text(text: str) -> None:
    trigger = trigger_of(text)
    assert trigger == ANY_CALL or trigger in stage.words_of(text)


# Calls that failed in an earlier session, with their errors, and rules of the user.
FAILED = {
    "npm ci --frozen": "npm error code EUSAGE",
    "pytest tests/test_cart.py -x": "ERROR: file not found: tests/test_cart.py",
    "cargo build -p core": "error: package ID specification `core` did not match",
    "git push origin main": "error: failed to push some refs",
    "psql -c 'select created from orders'": 'ERROR:  column "created" does not exist',
    "python3 tools/gen.py": "python3: can't open file 'tools/gen.py'",
    "docker-compose up -d db": "bash: docker-compose: command not found",
}
RULES = (
    "We use pnpm, never yarn.",
    "Never edit files in packages/generated.",
    "Never use --no-verify.",
    "Never use df.iterrows().",
    "Never git push --force, it breaks CI.",
    "Never use python, use uv.",
)
BREAKING = (
    "yarn add x",
    "git commit -n -m x",
    "git commit --no-verify",
    "git push -f origin main",
    "python3.11 -m pytest",
    "sudo python x.py",
    "echo x > packages/generated/api.ts",
)
_BEFORE = st.sampled_from(["", "cd {root} && ", "cd app; ", "time ", "FOO=1 ", "sudo "])
_AFTER = st.sampled_from(
    ["", " | head -3", " 2>&1", " --verbose", " && ls", " {root}/x"]
)
_CASES = st.sampled_from([str, str.upper])


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> tuple[Host, Path]:
    """A memory with failures and rules, and the folder of its project."""
    folder = tmp_path_factory.mktemp("known")
    memory = Memory(str(folder / "heedful.db"), Scope(), holdout=0.0)
    host = Host(memory=memory, root=str(folder), strict=True, seconds=600.0)

    async def learn() -> None:
        for number, (command, error) in enumerate(FAILED.items()):
            run = host.run(f"earlier-{number}")
            arguments = {"command": command}
            await run.learn(
                Event("tool_call", tool="Bash", arguments=arguments, call="1"),
                Event("tool_response", tool="Bash", call="1", error=error),
                ends="partial",
            )
        for rule in RULES:
            await memory.user_rules.state(rule, by="mira")

    asyncio.run(learn())
    return host, folder


@settings(max_examples=150)
@given(st.sampled_from([*FAILED, *BREAKING]), _BEFORE, _AFTER, _CASES)
def test_where_memory_speaks_a_trigger_hits(
    learnt: tuple[Host, Path], command: str, before: str, after: str, case: Any
) -> None:
    host, folder = learnt
    line = f"{before}{case(command)}{after}".replace("{root}", str(folder))
    event = {"session_id": f"s{next(_numbers)}", **call(line), "cwd": str(folder)}
    run = host.run(event["session_id"])
    plan = session_plan._plan_of(host, AGENTS["claude-code"], event, {})
    assert plan is not None
    text = "\n".join(["Bash", *stage.texts_in(event["tool_input"])])
    may_speak = stage.may_speak(event, plan, text)
    advice = run_inline(run.before("Bash", event["tool_input"], "1"), 600.0)
    assert may_speak or not advice, line


def test_no_plan_for_an_agent_with_other_names(session: Session) -> None:
    with as_user(session.folder, session.home):
        host = Host(memory=Memory(":memory:"))
        plan = session_plan.SessionPlan({"session_id": "s9"})
        cursor = AGENTS["cursor"]
        plan.write(host, cursor, options=[], name="postToolUse", reply=Reply())
        assert not plan.plan_path.exists()
