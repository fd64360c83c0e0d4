"""Tests written in Python, split into the statements that can fail one by one."""

from __future__ import annotations
import __future__

import ast
import base64
import marshal
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeGuard

from errata.errors import InvalidInput

_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_PREPARES = (*_DEFINES, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.AugAssign)
_KEEPS_TOGETHER = (ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Nonlocal, ast.Global)


@dataclass(frozen=True, slots=True)
class Step:
    """One statement of the tests: its source, its code (marshalled, base64), where it runs.

    Steps of one `group` share a namespace; group 0 is the module. `test` is False for imports,
    definitions and assignments.
    """

    source: str
    code: str
    group: int
    test: bool


@dataclass(frozen=True, slots=True)
class Asserted:
    """An assert statement: its lines (both included), its source, the sides worth showing.

    `sides` maps the name under which a value was kept to the source that made it.
    """

    first: int
    last: int
    source: str
    sides: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of some tests and every assert statement in them."""

    steps: tuple[Step, ...]
    asserts: tuple[Asserted, ...]

    def asserted(self, line: int, source: str) -> Asserted | None:
        """The assert on a line; of several the one with this source, else the shortest."""
        found = [a for a in self.asserts if a.first <= line <= a.last]
        return min(found, key=lambda a: (a.source != source, a.last - a.first), default=None)


def split(tests: str, entry_point: str | None) -> Plan:
    """The plan of `tests`; raises InvalidInput where they cannot run or would test nothing.

    Bodies of `check(candidate)` and of `test_*()` functions are taken apart too, unless they
    return, yield or declare globals; such a function is one step, its call.
    """
    try:
        tree = ast.parse(tests)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidInput("tests", tests, f"Python source ({error})") from error
    flags = _futures(tree.body)
    called = _calls(tree.body, entry_point)
    steps = [
        Step(_source(node), _compiled(node, flags), group, not isinstance(node, _PREPARES))
        for group, node in _flat([*tree.body, *called])
    ]
    if not any(step.test for step in steps):
        raise InvalidInput("tests", tests, "Python source with at least one assert that runs")
    asserts = [_asserted(n) for n in ast.walk(tree) if isinstance(n, ast.Assert)]
    return Plan(tuple(steps), tuple(asserts))


def _futures(body: Sequence[ast.stmt]) -> int:
    flags = 0
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            for alias in node.names:
                flags |= getattr(__future__, alias.name).compiler_flag
    return flags


def _calls(body: Sequence[ast.stmt], entry_point: str | None) -> list[ast.stmt]:
    """Calls of the test functions that nothing calls: else they would pass without running."""
    used = {n.id for part in body for n in ast.walk(part) if isinstance(n, ast.Name)}
    calls = []
    for node in body:
        if not isinstance(node, _DEFINES) or node.name in used:
            continue
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            raise InvalidInput("tests", node.name, "assert statements or functions, not a class")
        if node.name == "check" or node.name.startswith("test_"):
            calls.append(_call(node, entry_point))
    return calls


def _call(node: ast.stmt, entry_point: str | None) -> ast.stmt:
    if not isinstance(node, ast.FunctionDef):
        raise InvalidInput("tests", getattr(node, "name", ""), "a plain function without async")
    given = node.args
    needed = len(given.posonlyargs + given.args) - len(given.defaults)
    needed += sum(default is None for default in given.kw_defaults)
    if node.name != "check" and needed:
        raise InvalidInput("tests", node.name, "a function that needs no arguments")
    if needed > 1:
        raise InvalidInput("tests", node.name, "a function of one argument, the program's function")
    if needed and entry_point is None:
        what = f"the name of the function that is handed to {node.name}(…)"
        raise InvalidInput("entry_point", None, what)
    call = ast.parse(f"{node.name}({entry_point if needed else ''})").body[0]
    return ast.copy_location(call, node)


def _flat(body: Sequence[ast.stmt]) -> Iterator[tuple[int, ast.stmt]]:
    """Every statement with its group, calls of test functions replaced by what they do."""
    functions: dict[str, ast.FunctionDef] = {}
    group = 0
    for node in body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            continue
        if isinstance(node, ast.FunctionDef):
            functions[node.name] = node
        if not _is_test_call(node):
            yield 0, node
            continue
        function = functions.get(node.value.func.id)  # type: ignore[attr-defined]
        inner = _inside(function, node.value.args) if function else None  # type: ignore[attr-defined]
        group += inner is not None
        for part in inner or [node]:
            yield (group if inner else 0), part


def _is_test_call(node: ast.stmt) -> TypeGuard[ast.Expr]:
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return False
    name = node.value.func
    if not isinstance(name, ast.Name) or node.value.keywords:
        return False
    return name.id == "check" or name.id.startswith("test_")


def _inside(function: ast.FunctionDef, args: Sequence[ast.expr]) -> list[ast.stmt] | None:
    """What a call of `function` does, as statements; None where it must stay a call."""
    given = function.args
    extra = [given.vararg, given.kwarg, *given.kwonlyargs, *given.posonlyargs, *given.defaults]
    if function.decorator_list or any(extra) or len(args) != len(given.args):
        return None
    if any(isinstance(part, _KEEPS_TOGETHER) for part in _own(function.body)):
        return None
    bound = [
        ast.copy_location(ast.Assign([ast.Name(arg.arg, ast.Store())], value), function)
        for arg, value in zip(given.args, args, strict=True)
    ]
    body = [
        node
        for node in function.body
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]
    return [*bound, *body] if body else None


def _own(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All nodes of a function's body but those of functions and classes inside it."""
    for node in body:
        yield node
        if not isinstance(node, (*_DEFINES, ast.Lambda)):
            yield from _own(ast.iter_child_nodes(node))


def _source(node: ast.stmt) -> str:
    """A statement in one line; a block around a single assert goes by that assert."""
    asserts = [n for n in ast.walk(node) if isinstance(n, ast.Assert)]
    if len(asserts) == 1 and not isinstance(node, _DEFINES):
        return _asserted(asserts[0]).source
    return _one_line(ast.unparse(node))


def _one_line(source: str) -> str:
    line = " ".join(source.split()) if "\n" in source else source
    if len(line) <= 240:
        return line
    return f"{line[:230]}… {sha256(line.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _compiled(node: ast.stmt, flags: int) -> str:
    kept = _KeepSides().visit(deepcopy(node))
    module = ast.Module(kept if isinstance(kept, list) else [kept], [])
    ast.fix_missing_locations(module)
    try:
        code = compile(module, "tests.py", "exec", flags=flags, dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise InvalidInput("tests", _source(node), f"Python source ({error})") from error
    return base64.b64encode(marshal.dumps(code)).decode()


# What an assert compared


def _sides(test: ast.expr) -> list[tuple[str, ast.expr]]:
    """The parts of a condition whose values explain it, under names that no source can spell."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return [("@left", test.left), ("@right", test.comparators[0])]
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return [("@left", test.operand)]
    return [] if isinstance(test, ast.BoolOp | ast.Compare) else [("@left", test)]


class _KeepSides(ast.NodeTransformer):
    """Keeps both sides of each assert in variables, so that a failure can show them."""

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        sides = _sides(node.test)
        if not sides:
            return [node]
        kept: list[ast.stmt] = [
            ast.Assign([ast.Name(name, ast.Store())], value) for name, value in sides
        ]
        names: list[ast.expr] = [ast.Name(name, ast.Load()) for name, _ in sides]
        test: ast.expr = names[0]
        if isinstance(node.test, ast.Compare):
            test = ast.Compare(names[0], node.test.ops, names[1:])
        elif isinstance(node.test, ast.UnaryOp):
            test = ast.UnaryOp(node.test.op, names[0])
        parts = [*kept, ast.Assert(test, node.msg)]
        return [ast.fix_missing_locations(ast.copy_location(part, node)) for part in parts]


def _asserted(node: ast.Assert) -> Asserted:
    shown = tuple(
        (name, _one_line(ast.unparse(value)))
        for name, value in _sides(node.test)
        if not _literal(value)
    )
    # Without the message of the assert: it may name the actual value.
    source = _one_line("assert " + ast.unparse(node.test))
    return Asserted(node.lineno, node.end_lineno or node.lineno, source, shown)


def _literal(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True
