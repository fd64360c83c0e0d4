"""The size of the code, held to ceilings that only fall, and habits that keep it
readable.

`scripts/budgets.py` prints each figure beside its ceiling and every problem; 1 if there
is any.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "heedful"
# What each figure may be at most, by the design of the house. A figure may be lowered
# and is never raised.
CEILINGS = {
    "lines": 36_000,
    "lines of code": 25_000,
    "modules": 140,
    "modules at the top": 6,
    "modules under 100 lines": 4,
    "modules over 900 lines": 0,
    "functions over 60 lines": 0,
    "lines of tests": 36_000,
    "lines of integrations": 3_000,
    "tests of integrations": 1_100,
    "modules of integrations": 15,
    "lines of web": 3_000,
    "modules of web": 10,
}
# The rooms of what plugs heedful into other programs, and of the pages, have ceilings
# of their own.
PLUGS = "src/heedful/integrations/"
PLUG_TESTS = (
    "tests/integrations/"  # they run with the frameworks, in `make integrations`
)
WEB = "src/heedful/web/"
FUNCTION_LINES = 60
LONG_MODULE = 900
SHORT_MODULE = 100
# Shown beside the ceilings: code that is moved there does not get smaller.
ASIDE = ("examples", "bench", "scripts")
SOURCES = ("*.py", "*.pyi", "*.sql")
# Names of a layer say nothing about the domain.
VAGUE_CLASS = re.compile(
    r"(Manager|Engine|Service|Handler|Helper|Utils?|V\d+)(?![a-z])"
)
VAGUE_MODULE = re.compile(r"(utils?|helpers?|common|misc)$")
# The outermost rooms turn any failure into an answer for a person or a client.
CATCH_ALL_ROOMS = ("src/heedful/cli/", PLUGS, "src/heedful/service/")
# The mark of the places that call what a user handed over.
CATCH_ALL_MARK = "# user code"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One file: its path from the root, its text, and its tree where it is Python."""

    path: Path
    text: str
    tree: ast.Module | None

    @classmethod
    def read(cls, path: Path) -> Source:
        """The file at `path`. Raises SyntaxError."""
        text = path.read_text(encoding="utf-8")
        tree = None if path.suffix == ".sql" else ast.parse(text, filename=str(path))
        return cls(path.relative_to(ROOT), text, tree)

    @property
    def lines(self) -> int:
        """Its lines, all of them."""
        return len(self.text.splitlines())

    @property
    def is_module(self) -> bool:
        """Whether it is a Python module and not a stub."""
        return self.path.suffix == ".py"


def sources(folder: str) -> list[Source]:
    """Every Python, stub and SQL file below a folder."""
    paths = sorted(path for kind in SOURCES for path in (ROOT / folder).rglob(kind))
    return [Source.read(path) for path in paths]


def code_lines(source: Source) -> int:
    """The lines that hold code: no blanks, no comments, no docstrings."""
    if source.tree is None:
        lines = (line.strip() for line in source.text.splitlines())
        return sum(bool(line) and not line.startswith("--") for line in lines)
    held: set[int] = set()
    layout = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
    }
    layout.add(tokenize.ENDMARKER)
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type not in layout:
            held.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(source.tree):
        match node:
            case ast.Expr(
                ast.Constant(value=str())
            ):  # a docstring, of an attribute too
                held.difference_update(
                    range(node.lineno, (node.end_lineno or node.lineno) + 1)
                )
            case _:
                pass
    return len(held)


def function_lines(node: Function) -> int:
    """The lines from `def` to the end, less the docstring."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def functions(tree: ast.AST) -> list[Function]:
    """Every function and method in a tree."""
    return [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def private_functions(source: Source) -> Iterator[int]:
    """How often each private function of a module is used in that module."""
    assert source.tree is not None
    used = Counter(
        node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name)
    )
    used.update(
        node.attr for node in ast.walk(source.tree) if isinstance(node, ast.Attribute)
    )
    for node in functions(source.tree):
        if node.name.startswith("_") and not node.name.startswith("__"):
            yield used[node.name]


def figures(src: list[Source], tests: list[Source]) -> Mapping[str, int]:
    """Measure the figures that have a ceiling."""
    plugs = [source for source in src if source.path.as_posix().startswith(PLUGS)]
    long_functions = (
        function_lines(node) > FUNCTION_LINES
        for source in src
        if source.tree is not None
        for node in functions(source.tree)
    )
    web = [source for source in src if source.path.as_posix().startswith(WEB)]
    src = [source for source in src if source not in plugs + web]
    plug_tests = [
        source for source in tests if source.path.as_posix().startswith(PLUG_TESTS)
    ]
    modules = [source for source in src if source.is_module]
    named = [source for source in modules if source.path.stem != "__init__"]
    return {
        "lines": sum(source.lines for source in src),
        "lines of code": sum(code_lines(source) for source in src),
        "modules": len(modules),
        "modules at the top": sum(
            ROOT / source.path.parent == PACKAGE for source in modules
        ),
        "modules under 100 lines": sum(source.lines < SHORT_MODULE for source in named),
        "modules over 900 lines": sum(source.lines > LONG_MODULE for source in modules),
        "functions over 60 lines": sum(long_functions),
        "lines of tests": sum(s.lines for s in tests if s not in plug_tests),
        "lines of integrations": sum(source.lines for source in plugs),
        "tests of integrations": sum(source.lines for source in plug_tests),
        "modules of integrations": sum(source.is_module for source in plugs),
        "lines of web": sum(source.lines for source in web),
        "modules of web": sum(source.is_module for source in web),
    }


def catches_all(handler: ast.ExceptHandler) -> bool:
    """Whether it swallows every exception, and neither raises it again nor sets it on a
    future.
    """
    last = handler.body[-1]
    if isinstance(last, ast.Raise) and last.exc is None:
        return False
    if any(".set_exception(" in ast.unparse(statement) for statement in handler.body):
        return False
    caught = handler.type
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(
        kind is None
        or (isinstance(kind, ast.Name) and kind.id in {"Exception", "BaseException"})
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


def node_problems(
    node: ast.AST, lines: list[str], may_catch_all: bool
) -> Iterator[str]:
    """What is wrong with one node of the tree, its own children apart."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() if (
            function_lines(node) > FUNCTION_LINES
        ):
            yield (
                f"{node.name} has {function_lines(node)} lines; at most "
                f"{FUNCTION_LINES}"
            )
        case ast.ClassDef() if VAGUE_CLASS.search(node.name):
            yield f"class {node.name}: name it by what it is in the domain"
        case ast.ExceptHandler() if catches_all(node) and not may_catch_all:
            if CATCH_ALL_MARK not in lines[node.lineno - 1]:
                yield (
                    f"catches every exception; name them, or mark it `{CATCH_ALL_MARK}`"
                )
        case ast.Call() if suppresses_all(node) and not may_catch_all:
            yield "suppresses every exception; name them"


def module_problems(source: Source) -> Iterator[str]:
    """What is wrong with one module, as `path:line: what`."""
    shown = source.path.as_posix()
    lines = source.text.splitlines()
    if len(lines) > LONG_MODULE:
        yield f"{shown}:1: {len(lines)} lines; at most {LONG_MODULE}"
    if VAGUE_MODULE.search(source.path.stem):
        yield f"{shown}:1: name the module by what is in it"
    for node in ast.walk(source.tree) if source.tree is not None else ():
        line = getattr(node, "lineno", 1)
        for what in node_problems(node, lines, shown.startswith(CATCH_ALL_ROOMS)):
            yield f"{shown}:{line}: {what}"


def ceiling_problems(measured: Mapping[str, int]) -> Iterator[str]:
    """The figures that are over their ceiling."""
    for name, value in measured.items():
        if value > CEILINGS[name]:
            yield f"{name}: {value:,}; at most {CEILINGS[name]:,}"


def main() -> int:
    """Print the figures and every problem; return 1 if there is a problem."""
    src = sources("src")
    aside = {name: sources(name) for name in ASIDE}
    measured = figures(src, sources("tests"))
    for name, value in measured.items():
        print(f"{name:<24}{value:>8,}  at most {CEILINGS[name]:,}")
    for name, found in aside.items():
        print(f"{'lines of ' + name:<24}{sum(source.lines for source in found):>8,}")
    uses = [
        n
        for source in src
        if source.tree is not None
        for n in private_functions(source)
    ]
    once = sum(n <= 1 for n in uses)
    print(
        f"private functions used once: {once:,} of {len(uses):,} "
        f"({once / len(uses):.0%})"
    )
    checked = [
        one for found in (src, *aside.values()) for one in found if one.is_module
    ]
    problems = [what for source in checked for what in module_problems(source)]
    problems += ceiling_problems(measured)
    print("\n".join(problems) or f"{len(checked)} modules within the budgets")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
