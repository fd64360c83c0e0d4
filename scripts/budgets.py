"""The sizes and habits that keep the code readable (docs: functions ≤ 40 lines, modules ≤ 400)."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "scripts", "bench", "examples")
FUNCTION_LINES = 40
MODULE_LINES = 400
# Lines of Python in a folder, all below it included.
FOLDER_LINES = {"src/heedful/loop": 1_830, "src/heedful/memory": 9_000, "src/heedful": 52_000}
# Names of a layer say nothing about the domain.
VAGUE_CLASS = re.compile(r"(Manager|Engine|Service|Handler|Helper|Utils?|V\d+)(?![a-z])")
VAGUE_MODULE = re.compile(r"(utils?|helpers?|common|misc)$")
# The outermost rooms turn any failure into an answer for a person or a client.
CATCH_ALL_ROOMS = ("src/heedful/cli/", "src/heedful/http/")
# The mark of the places that call what a user handed over.
CATCH_ALL_MARK = "# user code"

Function = ast.FunctionDef | ast.AsyncFunctionDef


def function_lines(node: Function) -> int:
    """The lines from `def` to the end, less the docstring."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def catches_all(handler: ast.ExceptHandler) -> bool:
    """Whether it swallows every exception; raised again or set on a future, none is lost."""
    last = handler.body[-1]
    if isinstance(last, ast.Raise) and last.exc is None:
        return False
    if any(".set_exception(" in ast.unparse(statement) for statement in handler.body):
        return False
    caught = handler.type
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in {"Exception", "BaseException"})
        for kind in kinds
    )


def suppresses_all(node: ast.AST) -> bool:
    """Whether it is `suppress(Exception)`."""
    if not isinstance(node, ast.Call):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
    name = called.id if isinstance(called, ast.Name) else called
    kinds = {arg.id for arg in node.args if isinstance(arg, ast.Name)}
    return name == "suppress" and bool(kinds & {"Exception", "BaseException"})


def node_problems(node: ast.AST, lines: list[str], may_catch_all: bool) -> Iterator[str]:
    """What is wrong with one node of the tree, its own children apart."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() if function_lines(node) > FUNCTION_LINES:
            yield f"{node.name} has {function_lines(node)} lines; at most {FUNCTION_LINES}"
        case ast.ClassDef() if VAGUE_CLASS.search(node.name):
            yield f"class {node.name}: name it by what it is in the domain"
        case ast.ExceptHandler() if catches_all(node) and not may_catch_all:
            if CATCH_ALL_MARK not in lines[node.lineno - 1]:
                yield f"catches every exception; name them, or mark it `{CATCH_ALL_MARK}`"
        case ast.Call() if suppresses_all(node) and not may_catch_all:
            yield "suppresses every exception; name them"


def module_problems(path: Path) -> Iterator[str]:
    """What is wrong with one file, as `path:line: what`."""
    shown = path.relative_to(ROOT).as_posix()
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    if len(lines) > MODULE_LINES:
        yield f"{shown}:1: {len(lines)} lines; at most {MODULE_LINES}"
    if VAGUE_MODULE.search(path.stem):
        yield f"{shown}:1: name the module by what is in it"
    try:
        tree = ast.parse(text, filename=shown)
    except SyntaxError as error:
        yield f"{shown}:{error.lineno}: {error.msg}"
        return
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 1)
        for what in node_problems(node, lines, shown.startswith(CATCH_ALL_ROOMS)):
            yield f"{shown}:{line}: {what}"


def folder_problems() -> Iterator[str]:
    """The folders that have outgrown their budget."""
    for folder, most in FOLDER_LINES.items():
        files = (ROOT / folder).rglob("*.py")
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
        if lines > most:
            yield f"{folder}: {lines} lines; at most {most}"


def main() -> int:
    """Print every problem; 1 if there is any."""
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    problems = [what for path in files for what in module_problems(path)]
    problems += folder_problems()
    print("\n".join(problems) or f"{len(files)} files within the budgets")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
