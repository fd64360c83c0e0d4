"""Run the examples of README.md, docs/*.md and packages/*/README.md, each page in a new
process, folder and home.

In the order of the page:

- ```` ```python ```` runs in one namespace a page; `await` may stand at the top level,
  and a block that begins with `>>>` is compared like a doctest;
- any block with `title="name"` is written to that file instead;
- ```` ```console ````: lines `$ heedful …` (also `python`, `cat` and `sh`) run in the
  page's folder and must exit 0, or n where the line ends in `# exits n`; output shown
  below a line is compared, `...` standing for anything. A line that ends in `&` runs
  beside the rest of the page. Lines with other commands are not run.

`scripts/run_docs.py page …` runs only those pages. With `WRITES_PAGES=1` before it, it
writes the output into them.
"""

from __future__ import annotations

import ast
import asyncio
import atexit
import doctest
import inspect
import os
import re
import shlex
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from heedful.models.weights import EMBEDDER_NAME, default_cache, fetch, find_all

ROOT = Path(__file__).resolve().parent.parent
MAX_PAGE_SECONDS = 150
LOOSE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>```+)(?P<info>[^\n`]*)\n"
    r"(?P<body>.*?)"
    r"^(?P=indent)(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)
RUNS = ("heedful", "python", "cat", "sh")


class Wrong(Exception):
    """A block did not do what the page says."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block: its language, its `title`, the line its body begins on, and the
    body.
    """

    language: str
    title: str
    line: int
    body: str


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, without the indentation of a list around them."""
    for match in FENCE.finditer(page):
        named = re.search(r'title="([^"]+)"', match["info"])
        title = named[1] if named else ""
        yield Block(
            language=match["info"].strip().split(" ")[0],
            title=title,
            line=page.count("\n", 0, match.start("body")) + 1,
            body=re.sub(f"^{match['indent']}", "", match["body"], flags=re.MULTILINE),
        )


def run_python(
    block: Block, page: str, names: dict[str, Any], loop: asyncio.Runner
) -> None:
    """Run a block in the page's namespace; errors show the line in the page."""
    if block.body.lstrip().startswith(">>>"):
        example = doctest.DocTestParser().get_doctest(
            block.body, names, page, page, block.line - 1
        )
        differences: list[str] = []
        runner = doctest.DocTestRunner(optionflags=LOOSE)
        if runner.run(example, out=differences.append, clear_globs=False).failed:
            raise Wrong("".join(differences))
        names.update(example.globs)
        return
    code = compile(
        "\n" * (block.line - 1) + block.body,
        page,
        "exec",
        flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
    )
    result = eval(code, names)
    if inspect.iscoroutine(result):
        loop.run(result)


def steps(body: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with the output shown below it."""
    for step in re.split("^[$] ", body.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
        command, _, output = step.partition("\n")
        yield command.strip(), output


def capture(
    command: Sequence[str | Path] | str,
    *,
    folder: Path | str | None = None,
    environment: Mapping[str, str] | None = None,
    seconds: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program, or a command line of a shell, without input.

    Its errors are in its output. Raises TimeoutExpired.
    """
    return subprocess.run(
        command,
        shell=isinstance(command, str),
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )


def as_said(shown: str, output: str) -> str:
    """The lines that a page shows; in place of a line that the output has not, the one
    of the output that is most like it.
    """
    said = output.splitlines()
    lines = []
    for line in shown.splitlines():
        if line not in said and "..." not in line:
            [line] = get_close_matches(line, said, n=1, cutoff=0)
        lines.append(f"{line}\n")
    return "".join(lines)


def start_beside(command: Sequence[str]) -> None:
    """Start a program that runs until the page ends; wait for its first line."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None  # it is a pipe
    process.stdout.readline()
    atexit.register(process.communicate)
    atexit.register(process.terminate)  # what is registered last is called first


def run_console(block: Block, page: Path) -> None:
    """Run the known commands of a block, and compare their output with the output
    shown; or write it into the page.
    """
    for command, shown in steps(block.body):
        if command.split(" ")[0] not in RUNS:
            continue
        if command.endswith(" &"):
            start_beside(shlex.split(command.removesuffix("&")))
            continue
        exits = re.search(r"# exits (\d+)$", command)
        expected = int(exits[1]) if exits else 0
        done = capture(command)
        if done.returncode != expected:
            raise Wrong(
                f"$ {command}\nexited {done.returncode} and said:\n{done.stdout}"
            )
        if shown.strip() and not doctest.OutputChecker().check_output(
            f"{shown.rstrip()}\n", f"{done.stdout.rstrip()}\n", LOOSE
        ):
            if "WRITES_PAGES" not in os.environ:
                raise Wrong(
                    f"$ {command}\nthe page shows:\n{shown}\nit said:\n{done.stdout}"
                )
            said = as_said(shown, done.stdout)
            page.write_text(page.read_text("utf-8").replace(shown, said), "utf-8")


def run_page(path: Path) -> int:
    """Run one page in the current folder; `start` calls this in a new process."""
    shown = os.path.relpath(path, ROOT)
    names: dict[str, Any] = {"__name__": "__main__"}
    with asyncio.Runner() as loop:
        for block in blocks(path.read_text(encoding="utf-8")):
            try:
                if block.title:
                    Path(block.title).write_text(block.body, encoding="utf-8")
                elif block.language == "python":
                    run_python(block, str(path), names, loop)
                elif block.language == "console":
                    run_console(block, path)
            except Wrong as wrong:
                print(f"{shown}:{block.line}: {wrong}")
                return 1
            except BaseException:  # user code: whatever the page's own program raises
                print(f"{shown}:{block.line}:\n{traceback.format_exc()}")
                return 1
    return 0


def start(path: Path) -> tuple[bool, str]:
    """Run a page in a new process and folder; return whether it passed, and its
    output.
    """
    programs = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "PYTHONWARNINGS": "error",
    }
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as home:
        # What belongs to the user stays as it is; only the weights are shared.
        weights = default_cache()
        weights.mkdir(parents=True, exist_ok=True)
        link = Path(home, weights.relative_to(Path.home()))
        link.parent.mkdir(parents=True)
        link.symlink_to(weights)
        try:
            done = capture(
                [sys.executable, __file__, "--in-this-folder", str(path)],
                folder=folder,
                environment=environment | {"HOME": home},
                seconds=MAX_PAGE_SECONDS,
            )
        except subprocess.TimeoutExpired:
            shown = os.path.relpath(path, ROOT)
            return False, f"{shown} took longer than {MAX_PAGE_SECONDS} s"
    return done.returncode == 0, done.stdout


def main(arguments: Sequence[str]) -> int:
    """Run the named pages, or all; return 1 if one does not do what it shows."""
    if arguments[:1] == ["--in-this-folder"]:
        sys.path.insert(0, "")
        return run_page(Path(arguments[1]))
    pages = [Path(name).resolve() for name in arguments]
    pages = pages or [
        ROOT / "README.md",
        *sorted((ROOT / "packages").glob("*/README.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
    # Pages show what recall finds when it compares meanings.
    for file in find_all(EMBEDDER_NAME):
        asyncio.run(fetch(file))

    wrong = 0
    with ThreadPoolExecutor(2) as pool:
        for passed, page_output in pool.map(start, pages):
            if not passed:
                wrong += 1
                print(page_output.rstrip())
    print(f"{len(pages) - wrong} of {len(pages)} pages do what they show")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
