"""Which writes a repeated call resumes: those that are declared, and no others."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import heedful
import heedful_agents
import heedful_server
from heedful.lessons.lesson import Scope
from heedful.store import connection, ladders, loops, retention
from heedful.store.connection import Db, resumable
from heedful.store.idempotency import IdempotentCall, RecordedCall, read_call
from heedful.store.sqlite import in_file
from heedful.store.store import Effects
from tests.store.lost_writes import ROWS

SCOPE = Scope("ours")
CALL = IdempotentCall(tenant="ours", caller="caller", once="once", digest="digest")
PACKAGES = [
    Path(str(package.__file__)).parent
    for package in (heedful, heedful_agents, heedful_server)
]
WRITERS = (".write", ".once", "write_lessons")  # what calls of them end with
# A driver that comes back claims its loop again.
# A call that is reserved again counts again, so that no crash lets a rung spend more.
# A removal that is repeated finds fewer loops, and removes what is left.
REPEATED = {loops.begin, loops.claim, ladders.reserve, retention.remove_some}


def insert(db: Db, scope: Scope) -> int:
    db.insert("tally", {**connection.key_of(scope), "lessons": 1})
    return 7


@resumable(result=int)
def insert_once(db: Db, scope: Scope) -> int:
    return insert(db, scope)


async def test_a_declared_write_is_recorded_and_answers_a_repeated_call(tmp_path):
    store = in_file(str(tmp_path / "a.db"))
    with Effects(CALL):
        assert await store.write(SCOPE, insert_once) == 7
    earlier = await store.read(SCOPE, read_call, CALL)
    assert earlier.effects == ({"name": "test_resumable.insert_once", "value": 7},)

    with Effects(CALL, known=earlier.effects):
        assert await store.write(SCOPE, insert_once) == 7  # again would be a conflict
    await store.close()


async def test_a_write_without_declaration_is_not_recorded(tmp_path):
    store = in_file(str(tmp_path / "a.db"))
    with Effects(CALL):
        assert await store.write(SCOPE, insert) == 7
    assert await store.read(SCOPE, read_call, CALL) == RecordedCall()
    await store.close()


def written_functions() -> Iterator[Any]:
    """Yield the functions of the store that heedful passes to `write`."""
    paths = ((package, path) for package in PACKAGES for path in package.rglob("*.py"))
    for package, path in paths:
        source = path.read_text("utf-8")
        # The cases of a store write what no caller of heedful writes.
        is_case = path.parent.name == "testing"
        if is_case or not any(name in source for name in WRITERS):
            continue
        calls = [
            node
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(WRITERS)
        ]
        if not calls:
            continue
        name = ".".join(path.relative_to(package.parent).with_suffix("").parts)
        names = vars(importlib.import_module(name))
        for argument in (argument for call in calls for argument in call.args):
            module, _, function = ast.unparse(argument).rpartition(".")
            work = getattr(names.get(module), function, None) or names.get(function)
            if not inspect.isfunction(work):
                continue
            if list(inspect.signature(work).parameters)[:2] == ["db", "scope"]:
                yield work


def test_every_function_that_is_passed_to_write_is_declared():
    functions = set(written_functions())
    assert len(functions) > 30
    assert {
        work for work in functions if work not in connection.result_types
    } == REPEATED
    # What happens to each of them when its commit is lost: `test_lost_commits.py`.
    ours = {work for work in functions if work.__module__.startswith("heedful.")}
    assert ours - set(ROWS) == set()


def test_pydantic_has_an_adapter_for_every_declared_result():
    for work in list(connection.result_types):
        assert connection.result_adapter(work).core_schema
