"""The core decides and never touches the world: what its modules may not import or do."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import heedful

PACKAGE = Path(heedful.__file__).parent
ROOMS = ("loop", "lessons")
SINGLE = ("errors", "redact", "sanitize")
# Values and protocols of the room of models; its adapters are not pure.
CONTRACTS = ("heedful.models.contract",)
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
    rooms = [path for room in ROOMS for path in sorted((PACKAGE / room).rglob("*.py"))]
    return [*rooms, *(PACKAGE / f"{name}.py" for name in SINGLE)]


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


PURE = {module_name(path).removesuffix(".__init__") for path in pure_modules()} | {*CONTRACTS}


def imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom():
            return [node.module or ""]
        case _:
            return []


def impurities(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        line = getattr(node, "lineno", 0)
        for module in imported(node):
            room = module.split(".")[0]
            if room in WORLD or (room == "heedful" and module not in PURE):
                yield f"line {line} imports {module}"
        if isinstance(node, ASYNC):
            yield f"line {line} is asynchronous"
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name) and called.id in WORLDLY_CALLS:
            yield f"line {line} calls {called.id}()"


@pytest.mark.parametrize("path", pure_modules(), ids=module_name)
def test_a_pure_module_touches_no_world(path):
    assert list(impurities(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "source",
    [
        "import os.path",
        "from datetime import datetime",
        "def f():\n    import random",
        "async def f(): ...",
        "print(1)",
        "from heedful.store.sqlite import open_store",
        "if TYPE_CHECKING:\n    import time",
    ],
)
def test_the_test_sees_an_impurity(source):
    assert len(list(impurities(source))) == 1
