"""Weigh the house: how much of everything a maintainer has to know.

`python -m scripts.weight` prints each figure beside its ceiling and exits with 1 if one
is over it. `scripts/reading.py` says how a line reads; this says how much there is to
read.

A *named limit* is a constant with MAX, MIN, LIMIT, SECONDS, CHARS, BYTES or SHARE in
its name, a *pattern* a regular expression, a *word list* five texts or more. A list
becomes no lighter in a file of data, so those count, too.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import heedful
from scripts import words
from scripts.addresses import committed
from scripts.reading import statements
from scripts.workspace import LIBRARY, ROOT, SOURCES, TESTS

THOUSAND = 1_000
PACKAGE_NAMES = {folder.name for folder in SOURCES}

LIMIT_NAME = re.compile(r"MAX|MIN|LIMIT|SECONDS|CHARS|SHARE|BYTES")
CONSTANT_NAME = re.compile(r"_?[A-Z][A-Z0-9_]+")
PATTERN_CALL = re.compile(r"re\.(compile|match|search|fullmatch|subn?|split|find\w+)")
LIST_WORDS = 5

# Files of tests that have no lines.
PACKED = (".gz", ".png", ".zip", ".db")
CREATE_TABLE = re.compile(r"^create table", re.MULTILINE)
RECIPE = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NAMED_FILE = re.compile(r"`([\w./-]+\.(?:py|sql|md|json|j2|toml|ts|txt))`")

# What each figure may be at most.
CEILINGS: Mapping[str, float] = {
    "statements": 41_160,
    "statements of heedful": 33_575,
    "statements of heedful_server": 5_285,
    "statements of heedful_agents": 2_304,
    "statements of lab, scripts, examples": 10_990,
    "named limits per 1,000": 5.7,
    "patterns per 1,000": 4.7,
    "word lists per 1,000": 1.5,
    "imports inside functions": 60,
    "circles inside rooms": 0,
    "basenames used again": 10,
    "tables": 34,
    "lines of SQL": 2_600,
    "lines of tests": 70_800,
    "words of docs": 32_000,
    "public names": 74,
    "methods of Memory": 22,
    "parameters of run": 14,
}
# The files that each of the frequent changes opens, tests and pages among them. Not
# counted are files that a command of the recipe writes, and the changelog, which gets
# a line.
JOURNEYS: Mapping[str, int] = {
    "Change or add a stop rule": 4,
    "Add a column of a loop": 7,
    "Add a check": 4,
    "Add a coding agent": 3,
    "Add a reader of traces": 6,
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


def is_word_list(node: ast.AST) -> bool:
    """Return whether an expression lists five texts or more."""
    match node:
        case ast.Set(elts=items) | ast.Tuple(elts=items) | ast.List(elts=items):
            texts = [item for item in items if isinstance(item, ast.Constant)]
            is_text = all(isinstance(text.value, str) for text in texts)
            return len(items) == len(texts) >= LIST_WORDS and is_text
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value=str(text)), attr="split")
        ):
            return len(text.split()) >= LIST_WORDS
        case _:
            return False


def count_lists(value: object) -> int:
    """Return how many lists of five texts or more are in JSON data."""
    if isinstance(value, dict):
        return sum(map(count_lists, value.values()))
    if not isinstance(value, list):
        return 0
    is_list = len(value) >= LIST_WORDS and all(isinstance(item, str) for item in value)
    return is_list + sum(map(count_lists, value))


def figures_of_code(modules: Mapping[str, Module]) -> dict[str, float]:
    """Return what the Python of the package weighs."""
    count = sum(statements(module.tree) for module in modules.values())
    limits = patterns = lists = 0
    for module in modules.values():
        limits += sum(map(is_limit, module.tree.body))
        for node in ast.walk(module.tree):
            lists += is_word_list(node)
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                patterns += PATTERN_CALL.fullmatch(called) is not None
    for path in files("*.json"):
        lists += count_lists(json.loads(path.read_text(encoding="utf-8")))

    names = Counter(path.name for path in files("*.py") if path.name != "__init__.py")
    return {
        "statements": count,
        "named limits per 1,000": limits / count * THOUSAND,
        "patterns per 1,000": patterns / count * THOUSAND,
        "word lists per 1,000": lists / count * THOUSAND,
        "imports inside functions": sum(m.inner for m in modules.values()),
        "circles inside rooms": count_circles(modules),
        "basenames used again": sum(times > 1 for times in names.values()),
    }


def is_limit(node: ast.stmt) -> bool:
    """Return whether a statement of a module names a limit."""
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=name), *_])
            | ast.AnnAssign(target=ast.Name(id=name))
        ):
            return bool(CONSTANT_NAME.fullmatch(name) and LIMIT_NAME.search(name))
        case _:
            return False


def count_lines(paths: Iterable[Path]) -> int:
    """Return the number of lines of all files together."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def count_statements(paths: Iterable[Path]) -> int:
    """Return the number of statements of all modules together."""
    return sum(statements(ast.parse(path.read_text("utf-8"))) for path in paths)


def files(pattern: str) -> list[Path]:
    """Return the files of the packages whose names fit a pattern."""
    return [path for folder in SOURCES for path in sorted(folder.rglob(pattern))]


def figures_of_parts() -> dict[str, float]:
    """Return the statements of each package, and of what does not ship."""
    beside = ("lab", "scripts", "examples", "packages/heedful/examples")
    lab = [path for folder in beside for path in (ROOT / folder).rglob("*.py")]
    figures = {
        f"statements of {folder.name}": count_statements(folder.rglob("*.py"))
        for folder in SOURCES
    }
    return {**figures, "statements of lab, scripts, examples": count_statements(lab)}


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
    figures = {
        **figures_of_code(read_modules(*SOURCES)),
        **figures_of_parts(),
        **figures_of_texts(),
        **figures_of_faces(),
        **journeys(),
    }
    over = 0
    for name, ceiling in {**CEILINGS, **JOURNEYS}.items():
        figure = round(figures[name], 1)
        mark = "✗" if figure > ceiling else " "
        over += figure > ceiling
        print(f"{mark} {name:<40}{figure:>10,}  at most {ceiling:,}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
