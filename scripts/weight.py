"""Weigh the house: how much of everything a maintainer has to know.

`python -m scripts.weight` prints what there is, and exits with 1 if a figure is over
its ceiling. `scripts/reading.py` says how a line reads; this says how much there is to
read. The ceilings leave a little room, so that no small change is refused, and do not
follow the last commit: whoever raises one says below what there is more to know.
Knowledge stands in tables, and each alternative has a text that needs it.

A *node* is a node of an expression: two statements pressed into one have as many nodes
as before. An *alternative* is a branch of a regular expression, however it is compiled,
or a word of a list of three short texts or more, in Python or in a table of TOML.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import heedful
from scripts import words
from scripts.addresses import committed
from scripts.reading import statements
from scripts.workspace import LIBRARY, ROOT, SOURCES, TESTS

PACKAGE_NAMES = {folder.name for folder in SOURCES}

# Where a pattern branches, what looks like a pattern, and the lines of a table in TOML
# that have patterns or words.
BRANCH = re.compile(r"\|(?=[\w'\" \\(\[-])")
PATTERN_SIGN = re.compile(r"\\[bwdsSDWBA]|\(\?[:P=!<]|\[\^|\.\*|\w\|\w")
TABLE_LINE = re.compile(r"""\s*(?:(?:pattern|words?|names?|programs?)\s*=|['"])""")
NEXT_WORD = re.compile(r"""['"]\s*,\s*['"]""")
SEPARATORS = re.compile(r"[\s;,]+")
MIN_LIST_WORDS = 3
MAX_WORD_CHARS = 40
# They hold no value of their own.
EMPTY_NODES = ast.expr_context | ast.operator | ast.cmpop | ast.boolop | ast.unaryop

# Files of tests that have no lines.
PACKED = (".gz", ".png", ".zip", ".db")
CREATE_TABLE = re.compile(r"^create table", re.MULTILINE)
RECIPE = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NAMED_FILE = re.compile(r"`([\w./-]+\.(?:py|sql|md|json|j2|toml|ts|txt))`")

# What each figure may be at most. Nodes stand 7 % above the commit db78288ca, and
# statements 9 %: there is more to know. Which calls break a rule of a user; which
# budget each host keeps; several calls and candidates in one answer, and streams; how
# other languages write numbers, and what a sentence compares; what has changed in a
# pipeline since a run began; which events of hooks are surely silent, so that they end
# in a first stage. The words of rules and of claims are 580 alternatives, each with a
# witness.
CEILINGS: Mapping[str, float] = {
    "nodes": 299_000,
    "alternatives": 3_170,
    "statements": 45_200,
    "imports in functions": 61,
    "circles inside rooms": 0,
}
# The files that each of the frequent changes opens, tests and pages among them. Not
# counted are files that a command of the recipe writes, and the changelog, which gets
# a line.
JOURNEYS: Mapping[str, int] = {
    "Change or add a stop rule": 4,
    "Add a column of a loop": 7,
    "Add a check": 4,
    "Add a coding agent": 3,
    "Add a reader of traces": 7,
    "Add an adapter": 6,
    "Change what a lesson says": 3,
}


@dataclass
class Module:
    """What one file imports of the package, and from which other modules of its room.

    `inner` counts imports inside functions.
    """

    name: str
    tree: ast.Module
    imports: set[str] = field(default_factory=set)
    inner: int = 0

    @property
    def room(self) -> str:
        """The name of its subpackage, with that of the package."""
        return ".".join(self.name.split(".")[:2])


def read_modules(*folders: Path) -> dict[str, Module]:
    """Return the modules below the folders of packages by their dotted names."""
    modules = {}
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            parts = [folder.name, *path.relative_to(folder).with_suffix("").parts]
            name = ".".join(parts).removesuffix(".__init__")
            modules[name] = Module(name, ast.parse(path.read_text(encoding="utf-8")))
    for module in modules.values():
        add_imports(module, modules)
    return modules


def add_imports(module: Module, modules: Mapping[str, Module]) -> None:
    """Note which modules a module imports, and how often it does in functions."""
    inside = {
        id(node)
        for function in ast.walk(module.tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(module.tree):
        for target in imported_names(node):
            while target and target not in modules:
                target = target.rpartition(".")[0]
            if target and target != module.name:
                module.imports.add(target)
                module.inner += id(node) in inside


def imported_names(node: ast.AST) -> Iterator[str]:
    """Yield the dotted names that a statement imports."""
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=module, names=names):
            yield from (f"{module or ''}.{alias.name}" for alias in names)
        case _:
            pass


def count_circles(modules: Mapping[str, Module]) -> int:
    """Return how many modules import themselves by way of others of their room.

    A module counts once, however many circles it is part of.
    """

    def reachable(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            module = modules[waiting.pop()]
            for name in module.imports - found - PACKAGE_NAMES:
                if modules[name].room == module.room:
                    found.add(name)
                    waiting.append(name)
        return found

    return sum(name in reachable(name) for name in modules)


def own_nodes(statement: ast.stmt) -> int:
    """Return the nodes of the expressions of a statement, without statements in it."""
    count = 0
    waiting = list(ast.iter_child_nodes(statement))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            continue
        count += not isinstance(node, EMPTY_NODES)
        waiting += ast.iter_child_nodes(node)
    return count


def short_texts(node: ast.AST) -> list[ast.expr]:
    """Return the members of a list of short texts, [] if it is another expression."""
    match node:
        case ast.Set(elts=items) | ast.Tuple(elts=items) | ast.List(elts=items):
            texts = [text_of(item) for item in items]
            is_listed = all(
                text is not None and len(text) <= MAX_WORD_CHARS for text in texts
            )
            return items if is_listed and len(items) >= MIN_LIST_WORDS else []
        case _:
            return []


def text_of(node: ast.AST) -> str | None:
    """Return the text that a node states, None if it is another expression."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case _:
            return None


def count_alternatives(tree: ast.Module) -> int:
    """Return the alternatives of the patterns and lists of a module."""
    docstrings = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
    }
    lists = [short_texts(node) for node in ast.walk(tree)]
    listed = {id(word) for list_of_words in lists for word in list_of_words}
    count = len(listed)
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="split", value=value)):
                text = text_of(value)
                count += len(SEPARATORS.split(text)) if text else 0
            case ast.Constant(value=str(text)) if id(node) not in docstrings | listed:
                count += count_branches(text)
    return count


def count_branches(text: str) -> int:
    """Return the branches of a text that looks like a pattern, 0 if it has only one."""
    if "|" not in text or not PATTERN_SIGN.search(text):
        return 0
    return len(BRANCH.findall(text)) + 1


def count_table(path: Path) -> int:
    """Return the alternatives of a table in TOML."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return sum(
        1 + len(BRANCH.findall(line)) + len(NEXT_WORD.findall(line))
        for line in lines
        if TABLE_LINE.match(line)
    )


def figures_of_code(modules: Mapping[str, Module]) -> dict[str, float]:
    """Return what the Python of some packages weighs."""
    nodes = [node for module in modules.values() for node in ast.walk(module.tree)]
    code = [node for node in nodes if isinstance(node, ast.stmt) and not is_text(node)]
    return {
        "nodes": sum(map(own_nodes, code)),
        "statements": len(code),
        "alternatives": sum(count_alternatives(m.tree) for m in modules.values()),
        "comprehensions": sum(isinstance(node, ast.comprehension) for node in nodes),
        "imports in functions": sum(module.inner for module in modules.values()),
        "circles inside rooms": count_circles(modules),
        "modules": len(modules),
    }


def is_text(node: ast.stmt) -> bool:
    """Return whether a statement is a docstring, or another constant."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def figures_of_packages() -> dict[str, dict[str, float]]:
    """Return what each package weighs, by its name."""
    figures = {}
    for folder in SOURCES:
        package = figures_of_code(read_modules(folder))
        package["alternatives"] += sum(map(count_table, folder.rglob("*.toml")))
        figures[folder.name] = package
    return figures


def count_lines(paths: Iterable[Path]) -> int:
    """Return the number of lines of all files together."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def count_statements(paths: Iterable[Path]) -> int:
    """Return the number of statements of all modules together."""
    return sum(statements(ast.parse(path.read_text("utf-8"))) for path in paths)


def files(pattern: str) -> list[Path]:
    """Return the files of the packages whose names fit a pattern."""
    return [path for folder in SOURCES for path in sorted(folder.rglob(pattern))]


def figures_beside() -> dict[str, float]:
    """Return the statements of what does not ship."""
    beside = ("lab", "scripts", "examples", "packages/heedful/examples")
    lab = [path for folder in beside for path in (ROOT / folder).rglob("*.py")]
    return {"statements of lab, scripts, examples": count_statements(lab)}


def figures_of_texts() -> dict[str, float]:
    """Return the lines of SQL and tests, the tables, and the words of the docs."""
    schema = (LIBRARY / "store/sql/schema_tables.sql").read_text(encoding="utf-8")
    tables = CREATE_TABLE.findall(schema)
    pages = [words.count(page.read_text(encoding="utf-8")) for page in words.pages()]
    # With their samples: a line becomes no lighter in a text.
    places = (*TESTS, ROOT / "conftest.py")
    tests = [
        path
        for path in committed()
        if any(map(path.is_relative_to, places)) and path.suffix not in PACKED
    ]
    return {
        "tables": len(tables),
        "lines of SQL": count_lines(files("*.sql")),
        "lines of tests": count_lines(tests),
        "words of docs": sum(pages),
    }


def figures_of_faces() -> dict[str, float]:
    """Return how much a user of the library finds."""
    methods = [name for name in dir(heedful.Memory) if not name.startswith("_")]
    return {
        "public names": len(heedful.__all__),
        "methods of Memory": len(methods),
        "parameters of run": len(inspect.signature(heedful.run).parameters),
    }


def journeys() -> dict[str, float]:
    """Return how many files each recipe of CONTRIBUTING.md opens, by its heading."""
    recipes = RECIPE.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    return {
        heading: len(set(NAMED_FILE.findall(FENCED.sub("", text))))
        for heading, text in recipes
    }


def main() -> int:
    """Print the figures; return 1 if one is over its ceiling."""
    packages = figures_of_packages()
    names = next(iter(packages.values()))
    total = {name: sum(of[name] for of in packages.values()) for name in names}
    judged = {**total, **journeys()}

    over = 0
    for name, ceiling in {**CEILINGS, **JOURNEYS}.items():
        mark = "✗" if judged[name] > ceiling else " "
        over += judged[name] > ceiling
        print(f"{mark} {name:<40}{judged[name]:>10,}  at most {ceiling:,}")

    print("\nwatched, without a limit:")
    rows: dict[str, Mapping[str, float]] = {**packages, "all packages": total}
    for name, figures in rows.items():
        count = figures["statements"]
        print(
            f"  {name:<20}{count:>8,} statements in {figures['modules']:,} modules, "
            f"{figures['nodes'] / count:.2f} nodes a statement, "
            f"{100 * figures['comprehensions'] / count:.1f} comprehensions per 100"
        )
    printed = {**figures_beside(), **figures_of_texts(), **figures_of_faces()}
    for name, figure in printed.items():
        print(f"  {name:<40}{figure:>10,}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
