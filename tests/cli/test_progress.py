"""Progress on a terminal: live on stderr, the result on stdout as it is."""

import os
import pty
import subprocess
import threading

from heedful.cli.progress import Progress
from tests.cli.support import COMMAND, SECONDS, Desk, task


def on_terminal(desk: Desk, *arguments: str) -> tuple[int, str, str]:
    """The exit code, standard output, and what a terminal as standard error was sent."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=desk.folder,
        env=desk.environment({"TERM": "xterm", "COLUMNS": "100", "SLEEP": "0.05"}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        encoding="utf-8",
    )
    os.close(theirs)
    sent: list[bytes] = []
    reader = threading.Thread(target=_read, args=(ours, sent))
    reader.start()
    out, _ = process.communicate(timeout=SECONDS)
    reader.join()
    os.close(ours)
    return process.returncode, out, b"".join(sent).decode("utf-8", "replace")


def _read(terminal: int, sent: list[bytes]) -> None:
    while True:
        try:
            data = os.read(terminal, 65_536)
        except OSError:  # Linux's word for the end
            return
        if not data:
            return
        sent.append(data)


def test_tasks_are_told_live_on_a_terminal(desk):
    desk.tasks(task("red"), task("[bold]"), task("never"))
    code, out, sent = on_terminal(
        desk, "run", "tasks.jsonl", "--model", "toy:answer", "--no-memory"
    )
    assert code == 1
    for part in ("run tasks-1: 3 tasks", "✓ red", "✓ [bold]", "✗ never", "running", "\x1b["):
        assert part in sent
    assert "\x1b" not in out
    assert "Next: heedful why tasks-1/never" in out


def test_json_stays_one_document_on_a_terminal(desk):
    desk.tasks(task("red"))
    code, out, sent = on_terminal(desk, "run", "tasks.jsonl", "--model", "toy:answer", "--json")
    assert (code, out.lstrip()[0], "✓ red" in sent) == (0, "{", True)


def test_a_fetch_is_told_once_a_step_elsewhere(capsys):
    with Progress() as watch:
        for done in range(0, 100, 10):
            watch.fetched("weights", done, 100_000_000, "downloading")
        watch.fetched("weights", 100, 100_000_000, "verifying")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["weights: downloading (100 MB)", "weights: verifying (100 MB)"]
