"""The hook process: an answer or nothing, exit code 0, never a traceback; and its installation."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from heedful.errors import UsageError
from heedful.integrations import install

CALL = {"tool_name": "Bash", "tool_input": {"command": "npx jest pads"}, "tool_use_id": "t1"}
ERROR = 'Exit code 1\nError: Cannot find module "pads"'
HEAVY = ("typer", "pydantic", "rich", "numpy", "ssl", "heedful.drive", "heedful.memory.sessions")
MODULES = f"""import sys
from heedful.integrations import hook
hook.main(["PreToolUse"])
print([name for name in {HEAVY!r} if name in sys.modules])"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app" / ".git").mkdir(parents=True)
    (tmp_path / "app" / "heedful.toml").write_text('[trust]\ntool = "measured"\n')
    return tmp_path / "app"


def begin(folder: Path, *words: str, **more: str) -> subprocess.Popen[bytes]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HEEDFUL_", "CLAUDE_"))}
    streams: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    streams |= {"env": {**kept, "HOME": str(folder.parent), "PYTHONWARNINGS": "error", **more}}
    words = words if words[0] == "-c" else ("-m", "heedful.integrations.hook", *words)
    return subprocess.Popen([sys.executable, *words], cwd=folder, **streams)


def send(folder: Path, name: str, data: bytes, *words: str, **more: str) -> tuple[int, str, str]:
    with begin(folder, name, *words, **more) as process:
        out, err = process.communicate(data, timeout=60)
    return process.returncode, out.decode(), err.decode()


def call(folder: Path, session: str = "one", **more: Any) -> bytes:
    return json.dumps({"session_id": session, "cwd": str(folder), **CALL, **more}).encode()


def log(folder: Path) -> list[str]:
    place = folder.parent / ".heedful" / "hook.log"
    return place.read_text().splitlines() if place.exists() else []


def rows(folder: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(folder / "heedful.db")) as db:
        return db.execute(query).fetchall()


def test_what_one_session_learns_another_is_told(folder: Path) -> None:
    assert send(folder, "-c", call(folder), MODULES) == (0, "[]\n", "")
    assert send(folder, "PostToolUseFailure", call(folder, error=ERROR)) == (0, "", "")
    until = time.monotonic() + 60
    while not rows(folder, "select * from action") and time.monotonic() < until:
        time.sleep(0.05)  # the detached process learns
    code, out, err = send(folder, "PreToolUse", call(folder, "two"))
    assert (code, err, log(folder)) == (0, "", [])
    assert "Cannot find module" in json.loads(out)["hookSpecificOutput"]["additionalContext"]


@pytest.mark.parametrize(
    ("name", "data", "toml", "env", "why"),
    [
        ("PreToolUse", b"", "", {}, "is not JSON"),
        ("PreToolUse", b"[1]", "", {}, "is not an object"),
        ("PreToolUse", b"[" * 200_000, "", {}, "is not JSON"),
        ("PreToolUse", b'{"a": "' + b"x" * 100_000_000, "", {}, "more than"),
        ("Nothing", b'{"session_id": "a"}', "", {}, "Nothing"),
        ("Stop", b"{}", "", {}, "session_id"),
        ("Stop", b'{"session_id": "a"}', '[hook]\nstop = "make test"', {}, "hook.stop"),
        ("Stop", b'{"session_id": "a"}', "[hook]\nwhatever = 1", {}, "whatever"),
        ("Stop", b'{"session_id": "a"}', "[broken", {}, "heedful.toml"),
        ("PreToolUse", b'{"session_id": "a"}', "", {"HEEDFUL_DB": "/dev/null/a.db"}, ""),
        ("PreToolUse", b'{"session_id": "a"}', "", {"HEEDFUL_TRUST": "{"}, "HEEDFUL_TRUST"),
    ],
)
def test_what_goes_wrong_is_a_line_in_the_log(
    name: str, data: bytes, toml: str, env: dict[str, str], why: str, folder: Path
) -> None:
    (folder / "heedful.toml").write_text(toml)
    assert send(folder, name, data, **env) == (0, "", "")
    assert len(log(folder)) == 1
    code, out, err = send(folder, name, data, "--strict", **env)
    assert (code, out, "Traceback" in err) == (0, "", False)
    assert why in err
    assert send(folder, name, data, "two", "words")[:2] == (1, "")  # 2 would block the agent


def test_a_locked_database_says_nothing(folder: Path) -> None:
    send(folder, "PreToolUse", call(folder))
    with closing(sqlite3.connect(folder / "heedful.db", isolation_level=None)) as db:
        db.execute("begin exclusive")
        assert send(folder, "PreToolUse", call(folder, "two")) == (0, "", "")
    assert len(log(folder)) == 1


def test_eight_sessions_at_once_beside_one_that_is_killed(folder: Path) -> None:
    send(folder, "PreToolUse", call(folder, "first"))
    processes = [begin(folder, "PreToolUse") for _ in range(9)]
    for number, process in enumerate(processes):
        process.stdin.write(call(folder, f"s{number}"))  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
    processes[8].kill()
    ends = [(*one.communicate(timeout=60), one.returncode) for one in processes]
    assert ends[:8] == [(b"", b"", 0)] * 8
    kept = {session for (session,) in rows(folder, "select session from event")}
    assert kept - {"s8"} == {"first", *(f"s{n}" for n in range(8))}
    assert rows(folder, "pragma integrity_check") == [("ok",)]


SETTINGS = {
    None: "", "": "", "{}": "", "{\n  // only\n}\n": "// only", '{"a":1}\n': '{"a":1,',
    '{\n\t"a": [1, 2]\n}\n': '{\n\t"a": [1, 2],\n\t"hooks": {', '{\r\n  "a": 1\r\n}': '"a": 1,\r\n',
    '{\n    "a": 1, // why\n    /* x */ "hooks": {"Stop": [], "PreToolUse": [{"hooks": [{"type":'
    ' "command", "command": "mine"}]}]} // end\n}\n': '"command": "mine"}]}, {',
    '{"hooks": {}}': "", '{"hooks": {"Stop": []}}\n': "", '\ufeff{"a": "ü"}': '\ufeff{"a": "ü",',
}  # fmt: skip


@pytest.mark.parametrize("text", SETTINGS)
def test_installing_keeps_all_and_uninstalling_restores_it(text: str | None, folder: Path) -> None:
    path, wanted = folder / "there" / "settings.json", install.hooks("heedful-hook")
    if text is not None:
        path.parent.mkdir()
        (folder / "dotfile").write_text(text, newline="")
        path.symlink_to(folder / "dotfile")
    install.plan_install(path, wanted).apply()
    written = install.read_text(path) or ""
    assert SETTINGS[text] in written
    assert install.own_hooks(install.parse("", written)) == wanted
    assert not install.plan_install(path, wanted)
    install.plan_uninstall(path).apply()
    assert install.read_text(path) == text
    path.parent.mkdir(exist_ok=True)
    path.write_text(written.replace("{", '{"own": 1,', 1), newline="")
    install.plan_install(path, install.hooks("", "http://127.0.0.1:8765")).apply()
    install.plan_uninstall(path).apply()
    assert "heedful" not in path.read_text()
    assert '"own": 1' in path.read_text()
    assert path.is_symlink() == (text is not None)


@pytest.mark.parametrize(
    "text", ["{", '{"a" 1}', "[1]", '{"a":1,}', "nul", '{"hooks": 3}', '{"hooks": {"Stop": 1}}']
)
def test_settings_that_are_wrong_or_read_only_stay(text: str, folder: Path) -> None:
    path, wanted = folder / "settings.json", install.hooks("heedful-hook")
    path.write_text(text)
    with pytest.raises(UsageError):
        install.plan_install(path, wanted)
    path.write_text("{}")
    change = install.plan_install(path, wanted)
    path.chmod(0o444)
    with pytest.raises(UsageError, match="read-only"):
        change.apply()
    assert path.read_text() == "{}"
