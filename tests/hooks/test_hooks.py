"""The hooks of coding agents: what they answer and learn, their process, their
installation.
"""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from httpx import ASGITransport, AsyncClient

from heedful import Lesson, Memory, signature
from heedful.errors import UsageError
from heedful.integrations import install
from heedful.integrations.hooks import AGENTS, HookSettings, Reply, reply, work
from heedful.integrations.host import Host
from heedful.service.app import application
from heedful.service.setup import Setup
from heedful.store import exposures, loops
from heedful.store.sqlite import in_file
from tests.cli.support import Desk

ERROR = 'Exit code 1\nError: Cannot find module "pads"'
BAD = "npx jest pads"
GOOD = "npx jest pads --config jest.json"
TRUST: Any = {"tool": "measured", "user": "operator"}
CALL: Any = {"tool_name": "Bash", "tool_input": {"command": BAD}, "tool_use_id": "t1"}
FINE = {"stdout": "ok", "stderr": "", "interrupted": False}


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(in_file(str(tmp_path / "memory.db")), trust=TRUST, holdout=0.0)


async def tell(
    memory: Memory, kind: Any, agent: str = "claude-code", **fields: Any
) -> Reply:
    """Send an event as the agent would, and do the work that is left."""
    known = AGENTS[agent]
    told = HookSettings(**fields.pop("settings", {}))
    data: dict[str, Any] = {
        "session_id": "one",
        "cwd": "/",
        "permission_mode": "plan",
        **fields,
    }
    named = {known.fields.get(name, name): value for name, value in data.items()}
    host = Host(memory=memory, strict=True)
    name = known.event_of(kind)
    made = await reply(
        name, json.loads(json.dumps(named)), host, agent=agent, settings=told
    )
    if made.work:
        await work(host, made.session, made.work)
    return made


async def fails(
    memory: Memory, session: str, agent: str = "claude-code", **more: Any
) -> list[Any]:
    """Make a call that fails; return the answers before and after it."""
    call = {"session_id": session, **CALL, **more}
    said = {"tool_response": {"output": ERROR, "exit_code": 1}, "error": ERROR}
    kind = "failed" if AGENTS[agent].event_of("failed") else "after"
    made = [await tell(memory, "before", agent, **call)]
    made.append(await tell(memory, kind, agent, **call, **said))
    return [json.dumps(one.answer) for one in made]


async def works(memory: Memory, session: str, agent: str = "claude-code") -> None:
    call = {
        **CALL,
        "session_id": session,
        "tool_input": {"command": GOOD},
        "tool_use_id": "t2",
    }
    await tell(memory, "after", agent, **call, tool_response=FINE)


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_known_failure_is_told_and_denied_only_if_asked(
    agent: str, memory: Memory
) -> None:
    assert await fails(memory, "first", agent) == ["null", "null"]
    await works(memory, "first", agent)
    assert await fails(memory, "first", agent, tool_use_id="t9") == [
        "null",
        "null",
    ]  # its own
    assert await memory.store.read(memory.scope, exposures.opportunities, "first") == []
    before, after = await fails(memory, "second", agent)
    failed = "failed" if AGENTS[agent].event_of("failed") else "after"
    for text, kind in ((before, "before"), (after, failed)):
        assert (
            (GOOD in text)
            == ("facts to weigh" in text)
            == (kind in AGENTS[agent].takes)
        )
        assert "deny" not in text
    deny: Any = {"settings": {"deny": True}}
    denied = [(await fails(memory, "third", agent, **deny, tool_use_id="t3"))[0]]
    denied.append((await fails(memory, "third", agent, **deny, tool_use_id="t4"))[0])
    await tell(
        memory, "prompt", agent, session_id="third", prompt="again", prompt_id="p2"
    )
    denied.append((await fails(memory, "third", agent, **deny, tool_use_id="t5"))[0])
    assert ["deny" in one and GOOD in one for one in denied] == [True, False, True]


async def test_a_session_begins_with_what_came_back(memory: Memory) -> None:
    assert (await tell(memory, "start", source="startup")).answer is None
    for session in ("a", "b"):
        await fails(memory, session)
        await works(memory, session)
        await tell(memory, "stop", session_id=session)
        await tell(memory, "end", session_id=session, reason="other")
        assert await Host(memory=memory).run(session).events() == []
    assert GOOD in json.dumps((await tell(memory, "start", session_id="c")).answer)
    assert await memory.store.read(memory.scope, exposures.opportunities, "c") == []
    await fails(memory, "team/a")
    assert await memory.store.read(memory.scope, exposures.opportunities, "team") == []
    old = "update event set at = at - 90000"
    await memory.store.write(memory.scope, lambda db, _: db.execute(old) and None)
    await tell(memory, "end", session_id="c")
    assert (
        await Host(memory=memory).run("team/a").events() == []
    )  # nothing came for a day
    assert (await memory.seen("Bash", ERROR)).count == 3
    assert await memory.store.read(memory.scope, exposures.opportunities, "b") == []
    await memory.remember("page", "a text of a tool", trust="tool")
    made = json.dumps((await tell(memory, "start", session_id="d")).answer)
    assert ("for your ruling: 1;" in made) is True
    assert (GOOD in made) is True


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.999_999])
@pytest.mark.parametrize(
    "turns", [("good", "good"), ("bad", "good"), ("good", "bad"), ("", "")]
)
async def test_whether_the_error_came_again_after_it_was_known(
    ids: bool, share: float, turns: tuple[str, str], memory: Memory
) -> None:
    await fails(memory, "old")
    await works(memory, "old")
    for n in range(21 if share else 0):  # enough outcomes, so that the holdout begins
        await fails(memory, f"old {n}")
        await tell(memory, "end", session_id=f"old {n}")
    memory = Memory(memory.store, trust=TRUST, holdout=share)
    said = await fails(memory, "new", tool_use_id="c0" if ids else "")
    assert [GOOD in one for one in said] == [
        not share
    ] * 2  # before the action, and of its error
    for number, did in enumerate(turns):
        call: Any = {"tool_use_id": f"c{number + 1}" if ids else ""}
        await tell(
            memory, "prompt", session_id="new", prompt="go on", prompt_id=f"p{number}"
        )
        if did == "bad":
            await fails(memory, "new", **call)
        elif did:
            call |= {
                "session_id": "new",
                "tool_name": "Bash",
                "tool_input": {"command": GOOD},
            }
            await tell(memory, "before", **call)
            await tell(memory, "after", **call, tool_response=FINE)
        await tell(memory, "stop", session_id="new")
    read = memory.store.read
    scope = memory.scope
    ((loop, *_),) = await read(scope, exposures.opportunities, "new")
    assert [one.shown for one in await read(scope, exposures.shown_to, loop)] == [
        not share
    ]
    await tell(memory, "end", session_id="new")
    query = "select right_at_once from outcome where loop = :loop"
    rows = await read(scope, lambda db, _: db.execute(query, {"loop": loop}).fetchall())
    assert [bool(right) for (right,) in rows] == ["bad" not in turns]


BELIEVED: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["candidate"]),
    ({"is_interrupt": True}, []),
    (
        {"tool_name": "get", "mcp_server": {"name": "web", "source": "user"}},
        ["quarantined"],
    ),
    ({"tool_name": "WebFetch"}, ["quarantined"]),
    ({"agent_id": "sub", "tool_use_id": ""}, ["candidate"]),
]


@pytest.mark.parametrize(("more", "kept"), BELIEVED)
async def test_who_is_believed(
    more: dict[str, Any], kept: list[str], memory: Memory
) -> None:
    await fails(memory, "one", **more)
    assert [one["state"] for one in await memory.top()] == kept


@pytest.mark.parametrize(("source", "kept"), [("user", 1), ("sdk", 1), ("system", 0)])
async def test_a_known_id_replaces_an_event(
    source: str, kept: int, memory: Memory
) -> None:
    for _ in range(2):  # hooks in the settings of the user and of the project
        await tell(
            memory, "prompt", prompt="never use npm", prompt_id="p1", source=source
        )
        await tell(memory, "after", **CALL, tool_response="fine")
    kinds = [one["type"] for one in await Host(memory=memory).run("one").events()]
    assert sorted(kinds) == ["tool_call", "tool_response", *["user_message"] * kept]


async def test_context_has_at_most_10_000_characters(memory: Memory) -> None:
    text = "fix it\n" + "very long advice " * 1_000
    mark = signature("", ERROR.splitlines()[1])
    await memory.keep(
        Lesson(
            "reflection",
            mark,
            error_type="",
            text=text,
            sighting="Error",
            trust="operator",
        )
    )
    assert 1_000 < len((await fails(memory, "one"))[1]) < 10_000
    noisy = (
        "python3 -c \"print('FAILED test_a.py::test_b - boom\\n' + 'x' * 90_000); "
        'exit(3)"'
    )
    reason = (await tell(memory, "stop", settings={"stop": [noisy] * 9})).answer[
        "reason"
    ]  # type: ignore[index]
    assert ("FAILED test_a.py::test_b - boom" in reason) is True
    assert (len(reason) < 10_000) is True


@pytest.mark.parametrize("agent", [name for name in AGENTS if name != "opencode"])
async def test_a_stop_is_blocked_while_the_policy_allows(
    agent: str, memory: Memory, tmp_path: Path
) -> None:
    stop = [f"cd '{tmp_path}' && cat done"]
    told: Any = {"settings": {"stop": stop, "policy": "default, attempts.limit=3"}}

    async def blocks(active: bool, turn: str = "p1") -> bool:
        fields = {**told, "prompt_id": turn, "prompt": turn, "stop_hook_active": active}
        made = (await tell(memory, "stop", agent, **fields)).answer
        assert made is None or "No such file" in json.dumps(made)
        return made is not None

    await tell(memory, "prompt", agent, prompt="do it", prompt_id="p1")
    assert [await blocks(active) for active in (False, True, False, False)] == [
        True,
        *[False] * 3,
    ]
    await tell(memory, "prompt", agent, prompt="do that", prompt_id="p2")
    assert await blocks(False, "p2")
    stored = await memory.store.read(memory.scope, loops.read, "one/p2")
    assert stored.values == (
        "the files of / (attempt 1)",
    )  # what a person reads in `why`
    (tmp_path / "done").touch()
    assert not await blocks(False, "p2")
    (tmp_path / "done").unlink()
    for prompt in ("this", "that"):
        await tell(memory, "end", agent)  # the numbers of turns begin again
        await tell(memory, "prompt", agent, prompt=prompt)
        assert await blocks(False, "")


STOPS: list[tuple[dict[str, Any], bool]] = [
    ({"agent_id": "sub"}, False),
    ({"background_tasks": [{"id": "1", "type": "subagent"}]}, False),
    ({"background_tasks": [{"id": "1", "type": "shell"}]}, True),
    ({"settings": {"stop": ["sleep 60"], "seconds": 0.2}}, True),
    ({"settings": {"stop": ["true"]}}, False),
]


@pytest.mark.parametrize(("more", "blocks"), STOPS)
async def test_when_commands_run(
    more: dict[str, Any], blocks: bool, memory: Memory
) -> None:
    made = await tell(memory, "stop", **{"settings": {"stop": ["false"]}, **more})
    assert (made.answer is not None) == blocks


HEAVY = [
    "typer",
    "pydantic",
    "rich",
    "numpy",
    "ssl",
    "heedful.drive",
    "heedful.memory.sessions",
]
HEAVY += ["heedful.loop.decide", "heedful.lessons.proof", "heedful.traces.error_lines"]
MODULES = f"""import sys
from heedful.integrations import hook
hook.main(["PreToolUse"])
print([name for name in {HEAVY!r} if name in sys.modules])"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app" / ".git").mkdir(parents=True)
    (tmp_path / "app" / "heedful.toml").write_text('[trust]\ntool = "measured"\n')
    approve(tmp_path / "app")
    return tmp_path / "app"


def approve(folder: Path) -> None:
    Desk(folder).heedful("hook", "approve", HOME=str(folder.parent))


def begin(folder: Path, *words: str, **more: str) -> subprocess.Popen[bytes]:
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("HEEDFUL_", "CLAUDE_"))
    }
    streams: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    streams |= {
        "env": {**kept, "HOME": str(folder.parent), "PYTHONWARNINGS": "error", **more}
    }
    words = (
        words
        if words[0].startswith("-")
        else ("-m", "heedful.integrations.hook", *words)
    )
    return subprocess.Popen([sys.executable, *words], cwd=folder, **streams)


def send(
    folder: Path, name: str, data: bytes, *words: str, **more: str
) -> tuple[int, str, str]:
    with begin(folder, name, *words, **more) as process:
        out, err = process.communicate(data, timeout=60)
    return process.returncode, out.decode(), err.decode()


def call(folder: Path, session: str = "one", **more: Any) -> bytes:
    return json.dumps(
        {"session_id": session, "cwd": str(folder), **CALL, **more}
    ).encode()


def log(folder: Path) -> list[str]:
    place = folder.parent / ".heedful" / "hook.log"
    return place.read_text().splitlines() if place.exists() else []


def rows(folder: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(folder / "heedful.db")) as db:
        return db.execute(query).fetchall()


def await_learning(folder: Path) -> None:
    until = time.monotonic() + 60
    while not rows(folder, "select * from action") and time.monotonic() < until:
        time.sleep(0.05)  # the detached process learns


def test_what_one_session_learns_another_is_told(folder: Path) -> None:
    assert send(folder, "-c", call(folder), MODULES) == (0, "[]\n", "")
    assert send(folder, "PostToolUseFailure", call(folder, error=ERROR)) == (0, "", "")
    await_learning(folder)
    code, out, err = send(folder, "PreToolUse", call(folder, "two"))
    assert code == 0
    assert err == ""
    assert log(folder) == []
    assert (
        "Cannot find module"
        in json.loads(out)["hookSpecificOutput"]["additionalContext"]
    )


@pytest.mark.parametrize(
    ("name", "data", "toml", "env", "why"),
    [
        ("PreToolUse", b"", "", {}, "is not JSON"),
        ("PreToolUse", b"[1]", "", {}, "is not an object"),
        ("PreToolUse", b"[" * 200_000, "", {}, "is not JSON"),
        ("PreToolUse", b'{"a": "' + b"x" * 100_000_000, "", {}, "more than"),
        ("Nothing", b'{"session_id": "a"}', "", {}, "Nothing"),
        ("Stop", b"{}", "", {}, "session_id"),
        (
            "Stop",
            b'{"session_id": "a"}',
            "",
            {"HEEDFUL_HOOK": '{"stop": "make"}'},
            "hook.stop",
        ),
        (
            "SessionStart",
            b'{"session_id": "a"}',
            "",
            {"HEEDFUL_HOOK": '{"deny": 1}'},
            "hook.deny",
        ),
        ("Stop", b'{"session_id": "a"}', "[broken", {}, "heedful.toml"),
        (
            "PreToolUse",
            b'{"session_id": "a"}',
            "",
            {"HEEDFUL_DB": "/dev/null/a.db"},
            "",
        ),
        (
            "PreToolUse",
            b'{"session_id": "a"}',
            "",
            {"HEEDFUL_TRUST": "{"},
            "HEEDFUL_TRUST",
        ),
    ],
)
def test_what_goes_wrong_is_a_line_in_the_log(
    name: str, data: bytes, toml: str, env: dict[str, str], why: str, folder: Path
) -> None:
    (folder / "heedful.toml").write_text(toml)
    approve(folder)
    code, out, err = send(folder, name, data, **env)
    assert code == 0
    assert err == ""
    assert len(log(folder)) == 1
    told = name in (
        "Stop",
        "SessionStart",
    )  # the user hears that nothing guards the turn
    assert bool(out) == told
    assert (not told or why in json.loads(out)["systemMessage"]) is True
    code, out, err = send(folder, name, data, "--strict", **env)
    assert code == 0
    assert bool(out) == told
    assert ("Traceback" in err) is False
    assert why in err
    assert send(folder, name, data, "two", "words")[:2] == (
        1,
        "",
    )  # 2 would block the agent


def test_a_locked_database_says_nothing(folder: Path) -> None:
    send(folder, "PreToolUse", call(folder))
    with closing(sqlite3.connect(folder / "heedful.db", isolation_level=None)) as db:
        db.execute("begin exclusive")
        for name in ("PreToolUse", "PostToolUse"):
            assert send(folder, name, call(folder, "two")) == (0, "", "")
        assert len(log(folder)) == 2
        (folder / "heedful.toml").write_text('[hook]\nstop = ["false"]')
        approve(folder)
        for active in (False, True):  # the commands alone decide, once a turn
            out = send(folder, "Stop", call(folder, stop_hook_active=active))[1]
            assert ("block" in out) != active


def test_a_command_ends_with_the_hook(folder: Path) -> None:
    (folder / "heedful.toml").write_text(
        '[hook]\nstop = ["echo $$ > new; mv new pid; sleep 60"]'
    )
    approve(folder)
    with begin(folder, "Stop") as process:
        assert process.stdin
        process.stdin.write(call(folder))
        process.stdin.close()
        while not (folder / "pid").exists() and process.poll() is None:
            time.sleep(0.05)
        process.terminate()
        assert process.wait() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(int((folder / "pid").read_text()), 0)


def test_eight_sessions_at_once_beside_four_that_are_killed(folder: Path) -> None:
    send(folder, "PreToolUse", call(folder, "first"))
    processes = [begin(folder, "PreToolUse") for _ in range(12)]
    for number, process in enumerate(processes):
        assert process.stdin
        process.stdin.write(call(folder, f"s{number}"))
        process.stdin.close()
        process.stdin = None
    for process in processes[8:]:
        time.sleep(0.1)  # in the middle of something, each elsewhere
        process.kill()
    ends = [(*one.communicate(timeout=60), one.returncode) for one in processes]
    assert ends[:8] == [(b"", b"", 0)] * 8
    sent = {f"s{n}" for n in range(8)}
    found = rows(folder, "select session from event")
    assert (
        len(sent & {one for (one,) in found}) + len(log(folder)) >= 8
    )  # late ones are logged
    assert rows(folder, "pragma integrity_check") == [("ok",)]


def test_no_file_of_the_folder_is_taken_for_a_module(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "queue", "heedful"):
        (folder / f"{name}.py").write_text("open('ran', 'w').close()")
    (folder / "heedful-hook").touch(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("VIRTUAL_ENV", "/other")
    assert install.command() == "heedful-hook"
    monkeypatch.setenv("VIRTUAL_ENV", str(folder))  # the agent may start without it
    first, *words = shlex.split(install.command())[1:]
    words.append("PostToolUseFailure")
    assert send(folder, first, call(folder, error=ERROR), *words) == (0, "", "")
    await_learning(folder)
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("key", ["", "x"])
async def test_the_installed_address_answers(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEEDFUL_KEY", key)
    monkeypatch.chdir(tmp_path)
    wanted = install.hooks("heedful-hook", "http://localhost/")
    app = application(Setup(store=in_file(str(tmp_path / "a.db")), open=True))
    assert set(wanted) == set(AGENTS["claude-code"].events) - {"SessionStart"}
    assert [one["type"] for one in wanted["Stop"][0]["hooks"]] == ["http", "command"]
    client = AsyncClient(transport=ASGITransport(app))
    async with app.router.lifespan_context(app), client:
        for event, [group] in wanted.items():
            data = {"session_id": "a", "hook_event_name": event, **CALL}
            hook = group["hooks"][0]
            made = await client.post(
                hook["url"], json=data, headers=hook.get("headers")
            )
            assert made.status_code == (401 if key else 200)


def test_what_a_clone_brings_is_ignored_until_it_is_approved(folder: Path) -> None:
    desk = Desk(folder)
    home = {"HOME": str(folder.parent)}
    toml = (
        'db = "other.db"\n[hook]\nstop = ["touch ran; false"]\n[trust]\ntool = '
        '"measured"\n'
    )

    def stops(turn: str) -> bool:
        (folder / "ran").unlink(missing_ok=True)
        code, out, err = send(folder, "Stop", call(folder, prompt_id=turn))
        assert code == 0
        assert err == ""
        assert ("block" in out) == (folder / "ran").exists()
        assert ("toml changed and is ignored until" in out) != ("block" in out)
        return "block" in out

    (folder / "heedful.toml").write_text(toml)
    (folder / "heedful.db").touch()
    assert not stops("p1")
    assert not (folder / "heedful.db").stat().st_size
    assert not (folder / "other.db").exists()
    assert "heedful.toml" in desk.heedful("hook", "status", **home).err
    assert [line.count("heedful.") for line in log(folder)] == [2]
    approve(folder)
    assert "heedful.toml" not in desk.heedful("hook", "status", **home).err
    assert stops("p2")
    (folder / "heedful.toml").write_text(toml + "# \ndeny = 'all'\n")
    assert not stops("p3")
    (folder / "heedful.toml").unlink()
    assert not stops("p4")
    out = send(folder, "SessionStart", call(folder))[1]
    assert "approve" in json.loads(out)["systemMessage"]
    assert ["ignored" in line for line in log(folder)][:2] == [True] * 2
    private = [
        folder.parent / ".heedful" / name for name in ("", "approved.json", "hook.log")
    ]
    assert [one.stat().st_mode & 0o777 for one in private] == [0o700, 0o600, 0o600]


def test_trust_for_all_projects(folder: Path) -> None:
    desk = Desk(folder)
    home = {"HOME": str(folder.parent)}
    made = desk.heedful("hook", "install", "--user", "--yes", "--trust", "make", **home)
    assert made.code == 0
    assert (folder / "heedful.db").exists() is False
    other = folder.parent / "other"
    (other / ".git").mkdir(parents=True)
    data = call(other, error=ERROR, tool_input={"command": "make all"})
    assert send(other, "PostToolUseFailure", data) == (0, "", "")
    await_learning(other)
    assert rows(other, "select state from reflection") == [("candidate",)]


@pytest.mark.parametrize(
    "toml", ["[hook]\nsecond = 3", '[hook]\npolicy = "x"', "[trust]\na = 1"]
)
def test_wrong_settings_are_refused_and_status_shows_what_holds(
    toml: str, folder: Path
) -> None:
    desk = Desk(folder)
    home = {"HOME": str(folder.parent)}
    place = folder / "heedful.toml"
    place.write_text(toml)
    ran = [
        desk.heedful("hook", *words, **home)
        for words in (["approve"], ["install", "--yes"])
    ]
    assert [one.code for one in ran] == [2, 2]
    assert (
        "do nothing"
        in desk.heedful("hook", "status", HEEDFUL_HOOK='{"a": 3}', **home).err
    )
    place.write_text('[hook]\nstop = ["make it"]\n[trust]\ntool = "measured"')
    for told in (
        desk.heedful("hook", word, **home).out for word in ("approve", "status")
    ):
        assert all(one in told for one in ("make it", "heedful.db", "tool is measured"))


MINE = (
    '{"hooks": [{"type": "command", "command": "./mine.sh # see heedful-hook docs"}]}'
)
SETTINGS = {
    None: "",
    "": "",
    "{\n  // only\n}\n": "// only",
    '{"a":1}\n': '{"a":1,',
    '{\r\n\t"a": [1, 2]\r\n}': '{\r\n\t"a": [1, 2],\r\n\t"hooks": {',
    f'{{\n    "a": 1, // why\n    /* x */ "hooks": {{"PreToolUse": [{MINE}]}} // '
    f"end\n}}\n": MINE,
    '{"hooks": {"Stop": []}}\n': "",
    '\ufeff{"a": "ü"}': '\ufeff{"a": "ü",',
}


@pytest.mark.parametrize("text", SETTINGS)
def test_installing_keeps_all_and_uninstalling_restores_it(
    text: str | None, folder: Path
) -> None:
    path = folder / "there" / "settings.json"
    wanted = install.hooks("heedful-hook")
    if text is not None:
        path.parent.mkdir()
        (folder / "dotfile").write_text(text, newline="")
        path.symlink_to(folder / "dotfile")
    install.plan_install(path, wanted).apply()
    written = install.read_text(path) or ""
    assert SETTINGS[text] in written
    assert install.own_hooks("", written) == wanted
    assert not install.plan_install(path, wanted)
    install.plan_uninstall(path).apply()
    assert install.read_text(path) == text
    assert path.parent.exists() == (text is not None)
    path.parent.mkdir(exist_ok=True)
    path.write_text(written.replace('"heedful-hook ', '"/gone/heedful-hook '))
    assert "/gone/heedful-hook is gone" in install.installed(path)[1]
    path.write_text(written.replace("{", '{"own": 1,', 1), newline="")
    install.plan_install(
        path, install.hooks("heedful-hook", "http://127.0.0.1:8765")
    ).apply()
    install.plan_uninstall(path).apply()
    assert install.installed(path) == ([], "")
    assert '"own": 1' in path.read_text()
    assert path.is_symlink() == (text is not None)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"a" 1}',
        "[1]",
        '{"a":1,}',
        "nul",
        '{"hooks": 3}',
        '{"hooks": {"Stop": 1}}',
    ],
)
def test_settings_that_are_wrong_or_read_only_stay(text: str, folder: Path) -> None:
    path = folder / "settings.json"
    wanted = install.hooks("heedful-hook")
    path.write_text(text)
    with pytest.raises(UsageError, match="the comma" if "," in text else "."):
        install.plan_install(path, wanted)
    path.write_text("{}")
    change = install.plan_install(path, wanted)
    path.chmod(0o444)
    other = install.FileChange(folder / "new" / "other.json", None, "{}")
    with pytest.raises(UsageError, match="read-only"):
        install.apply_all([other, change])
    assert path.read_text() == "{}"
    assert other.path.exists() is False


def test_the_command_installs_shows_runs_and_removes(folder: Path) -> None:
    desk = Desk(folder)
    home = {"HOME": str(folder)}
    assert (
        desk.heedful("hook", "install", **home).code == 2
    )  # nobody can answer the question
    (folder / "heedful.toml").write_text("[broken")
    assert desk.heedful("hook", "install", "--yes", **home).code == 2
    (folder / "heedful.toml").unlink()
    assert not (folder / ".claude").exists()
    made = desk.heedful(
        "hook", "install", "--yes", "--trust", "make,Edit,tool:mine,user", **home
    )
    assert made.code == 0
    assert ("+" in made.err) is True
    assert "already" in desk.heedful("hook", "install", "--trust", "none", **home).out
    status = desk.heedful("hook", "status", "--json", **home).json
    assert "tool:Edit is measured" in desk.heedful("hook", "status", **home).out
    assert [*status.values()] == [list(AGENTS["claude-code"].events)]
    listed = desk.heedful("trust", "list", "--json", **home).json["trust"]
    assert {one["source"] for one in listed} >= {"tool:mine", "tool:Edit", "user"}
    assert {(*one.values(),) for one in listed} >= {
        ("program:make", "measured"),
        ("tool", "tool"),
    }
    assert desk.heedful("hook", "install", "--trust", "tool:", **home).code == 2
    assert desk.heedful("hook", "run", "Stop", stdin="{", **home).code == 0
    assert (
        desk.heedful("hook", "install", "--plugin", "plug", "--yes", **home).code == 0
    )
    assert json.loads((folder / "plug" / "hooks" / "hooks.json").read_text())["hooks"]
    assert desk.heedful("hook", "uninstall", "--yes", **home).code == 0
    assert not (folder / ".claude" / "settings.json").exists()
    assert desk.heedful("hook", "install", "codex", **home).code == 2
