"""The core decides and never touches the world: what the pure rooms may not import or
do.
"""

import ast
from pathlib import Path

import pytest

import heedful

PACKAGE = Path(heedful.__file__).parent
# Rooms, and what of them touches the world; modules that stand alone.
ROOMS = {"loop": (), "lessons": (), "episodes": ("__init__", "reading", "trace_files")}
ALONE = (
    "redact",
    "redact_rules",
    "sanitize",
    "display",
    "notebook",
    "errors",
    "validation",
    "store/head",
    "store/records",
    "checks/claims/text_parts",
)
# It declares asynchronous protocols, and runs nothing.
CONTRACT = "heedful.models.contract"
# It reads the tables beside the modules, which are parts of them.
TABLES = "heedful.knowledge"
# The world: time, chance, the environment, files, logs, networks and other threads or
# processes.
WORLD = frozenset(
    """
    asyncio concurrent contextvars getpass http locale logging multiprocessing os
    pathlib platform random secrets selectors shutil signal socket sqlite3 ssl
    subprocess sys tempfile threading time urllib uuid zoneinfo
    """.split()
)
# A table of names in a package of the network.
PURE = frozenset({"http.HTTPStatus"})
WORLDLY_CALLS = frozenset({"open", "print", "input", "exec", "eval", "__import__"})
CLOCKS = frozenset({"now", "today", "utcnow"})
ASYNC = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


PATHS = [PACKAGE / f"{name}.py" for name in ALONE]
PATHS += [
    path
    for room, worldly in ROOMS.items()
    for path in sorted((PACKAGE / room).rglob("*.py"))
    if path.stem not in worldly
]
MODULES = {name_of(path): path for path in PATHS}


def imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom():
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            if PURE.issuperset(inside):
                return []
            return [name for name in inside if name in MODULES] or [node.module or ""]
        case _:
            return []


def find_impurities(source: str) -> list[str]:
    problems = []
    for node in ast.walk(ast.parse(source)):
        line = getattr(node, "lineno", 0)
        for module in imported(node):
            room = module.split(".")[0]
            if room in WORLD or (
                room == "heedful" and module not in {*MODULES, CONTRACT, TABLES}
            ):
                problems.append(f"line {line} imports {module}")
        if isinstance(node, ASYNC):
            problems.append(f"line {line} is asynchronous")
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name) and called.id in WORLDLY_CALLS:
            problems.append(f"line {line} calls {called.id}()")
        if isinstance(called, ast.Attribute) and called.attr in CLOCKS:
            problems.append(f"line {line} reads a clock")
    return problems


@pytest.mark.parametrize("name", MODULES)
def test_a_pure_module_touches_no_world(name):
    assert find_impurities(MODULES[name].read_text("utf-8")) == []


def test_the_contract_of_models_imports_only_pure_modules():
    source = (PACKAGE / "models" / "contract.py").read_text("utf-8")
    assert [
        problem for problem in find_impurities(source) if " imports " in problem
    ] == []
