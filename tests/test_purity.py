"""The core decides and never touches the world: what the pure modules may not import or do."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import heedful

PACKAGE = Path(heedful.__file__).parent
PURE_MEMORY = tuple(
    """
    draft prompts
    masks assertions templates signature learn difference evaluation words tokens
    trust recall proof briefing interval portable arguments consolidate particulars
    """.split()
)
PURE_CHECKS = tuple(
    """
    claim comparing dates evidence figures moments naming pieces quantities reading said series
    standing table tabular wording
    """.split()
)
PURE_TRACES = tuple("episode messages otlp signals spans".split())
# The world: time, chance, the environment, files, logs, networks and other threads or processes.
WORLD = frozenset(
    """
    asyncio concurrent contextvars datetime getpass http locale logging multiprocessing os pathlib
    platform random secrets selectors shutil signal socket sqlite3 ssl subprocess sys tempfile
    threading time urllib uuid zoneinfo
    """.split()
)
WORLDLY_CALLS = frozenset({"open", "print", "input", "exec", "eval", "__import__"})
ASYNC = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)


def pure_modules() -> list[Path]:
    memory = [PACKAGE / "memory" / f"{name}.py" for name in PURE_MEMORY]
    memory += [PACKAGE / "checks" / f"{name}.py" for name in PURE_CHECKS]
    memory += [PACKAGE / "traces" / f"{name}.py" for name in PURE_TRACES]
    named = "delimited near neutral redact shares".split()
    texts = [PACKAGE / f"{name}.py" for name in named]
    both = [path for path in (*memory, *texts) if path.exists()]
    return sorted((PACKAGE / "loop").rglob("*.py")) + both


def named(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


PURE = {named(path).removesuffix(".__init__") for path in pure_modules()} | {
    "heedful.errors",
    "heedful.protocols",
}


def runs(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node but those under `if TYPE_CHECKING:`, which never run."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        only_types = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        children = node.orelse if isinstance(node, ast.If) and only_types else None
        waiting += ast.iter_child_nodes(node) if children is None else children


def imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom():
            return [node.module or ""]
        case _:
            return []


def impurities(source: str) -> list[str]:
    found = []
    for node in runs(ast.parse(source)):
        line = getattr(node, "lineno", 0)
        for module in imported(node):
            room = module.split(".")[0]
            if room in WORLD or (room == "heedful" and module not in PURE):
                found.append(f"line {line} imports {module}")
        if isinstance(node, ASYNC):
            found.append(f"line {line} is asynchronous")
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name) and called.id in WORLDLY_CALLS:
            found.append(f"line {line} calls {called.id}()")
    return found


@pytest.mark.parametrize("path", pure_modules(), ids=named)
def test_a_pure_module_touches_no_world(path):
    assert impurities(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import os.path",
        "from datetime import datetime",
        "def f():\n    import random",
        "async def f(): ...",
        "print(1)",
        "from heedful.store.sqlite import open_store",
        "if TYPE_CHECKING:\n    pass\nelse:\n    import time",
    ],
)
def test_the_test_sees_an_impurity(source):
    assert len(impurities(source)) == 1


def test_what_only_a_type_checker_imports_is_pure():
    assert impurities("if TYPE_CHECKING:\n    from datetime import datetime") == []
