"""Tests written in Python, taken apart into the statements that can fail one by one."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from types import CodeType

from heedful.errors import InvalidInput

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINES = (*_FUNCTIONS, ast.ClassDef)
_PREPARES = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.AugAssign)
_NO_STEP = (*_DEFINES, ast.Return, ast.Global, ast.Nonlocal)


@dataclass(frozen=True, slots=True)
class Step:
    """One statement of the tests, in one line; `test` is False where it only prepares others."""

    source: str
    test: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of some tests, and the code that runs them in order.

    The code needs two names that no source can spell. Each step runs as `with @step(number)`, which
    is to swallow what the step raises. The message of each assert is `@failed(source, sides,
    message)`, where `sides` maps the source of each compared expression to its value.
    """

    steps: tuple[Step, ...]
    code: CodeType


def split(tests: str, entry_point: str | None) -> Plan:
    """The plan of `tests`; raises InvalidInput where they cannot run or would test nothing.

    The statements of `check(candidate)` and of `test_*()` functions are steps of their own. Such
    functions are called where the tests do not name them.
    """
    try:
        tree = ast.parse(tests)
        calls = _calls(tree.body, entry_point)
        steps: list[Step] = []
        tree.body = list(_stepwise([*tree.body, *calls], steps))
        for part in [n for n in ast.walk(tree) if isinstance(n, ast.Assert)]:
            _explain(part)
        code = compile(ast.fix_missing_locations(tree), "tests.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput("tests", tests, f"Python source ({error})") from error
    if not any(step.test for step in steps):
        raise InvalidInput("tests", tests, "Python source with at least one assert that runs")
    return Plan(tuple(steps), code)


def _is_test(name: str) -> bool:
    return name == "check" or name.startswith("test_")


def _calls(body: Sequence[ast.stmt], entry_point: str | None) -> list[ast.stmt]:
    """Calls of the test functions that nothing calls: else they would pass without running."""
    used = {n.id for part in body for n in ast.walk(part) if isinstance(n, ast.Name)}
    calls = []
    for node in body:
        if isinstance(node, ast.ClassDef):
            if any(isinstance(n, _FUNCTIONS) and n.name.startswith("test") for n in node.body):
                raise InvalidInput("tests", node.name, "assert statements or functions, no class")
        elif isinstance(node, _FUNCTIONS) and _is_test(node.name) and node.name not in used:
            calls.append(_call(node, entry_point))
    return calls


def _call(node: ast.FunctionDef | ast.AsyncFunctionDef, entry_point: str | None) -> ast.stmt:
    given = node.args
    needed = len(given.posonlyargs + given.args) - len(given.defaults)
    needed += given.kw_defaults.count(None)
    if isinstance(node, ast.AsyncFunctionDef) or needed > (node.name == "check"):
        what = "a plain function without arguments; check(…) may take one, the program's function"
        raise InvalidInput("tests", node.name, what)
    if needed and entry_point is None:
        raise InvalidInput("entry_point", None, "the name of the function that check(…) is to get")
    return ast.parse(f"{node.name}({entry_point if needed else ''})").body[0]


def _stepwise(body: Sequence[ast.stmt], steps: list[Step]) -> Iterator[ast.stmt]:
    """The statements, those that can fail each as a step, which is added to `steps`."""
    for node in body:
        if isinstance(node, ast.FunctionDef) and _is_test(node.name):
            node.body = list(_stepwise(node.body, steps))
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        note = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if future or note or isinstance(node, _NO_STEP):
            yield node
            continue
        step = ast.Call(ast.Name("@step", ast.Load()), [ast.Constant(len(steps))], [])
        steps.append(Step(_source(node), not isinstance(node, _PREPARES) and not _is_call(node)))
        yield ast.copy_location(ast.With([ast.withitem(step)], [node]), node)


def _is_call(node: ast.stmt) -> bool:
    """Whether it calls a test function, whose own statements are the tests."""
    call = node.value if isinstance(node, ast.Expr) else None
    name = call.func if isinstance(call, ast.Call) else None
    return isinstance(name, ast.Name) and _is_test(name.id)


def _source(node: ast.stmt) -> str:
    """A statement in one line; a block around a single assert goes by that assert."""
    asserts = [n for n in ast.walk(node) if isinstance(n, ast.Assert)]
    return _condition(asserts[0]) if len(asserts) == 1 else _one_line(ast.unparse(node))


def _condition(node: ast.Assert) -> str:
    # Without the message of the assert: it may name the actual value.
    return _one_line("assert " + ast.unparse(node.test))


def _one_line(source: str) -> str:
    line = " ".join(source.split()) if "\n" in source else source
    if len(line) <= 240:
        return line
    return f"{line[:230]}… {sha256(line.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _explain(node: ast.Assert) -> None:
    """Makes an assert tell what it compared."""
    source, sides = _condition(node), ast.Dict([], [])

    def kept(value: ast.expr) -> ast.expr:
        name = f"@{len(sides.keys)}"
        sides.keys.append(ast.Constant(_one_line(ast.unparse(value))))
        sides.values.append(ast.Name(name, ast.Load()))
        return ast.NamedExpr(ast.Name(name, ast.Store()), value)

    match node.test:
        case ast.Compare(left, [_], [right]) as test:
            test.left, test.comparators = kept(left), [kept(right)]
        case ast.UnaryOp(_, operand) as test:
            test.operand = kept(operand)
        case ast.Compare() | ast.BoolOp():
            pass
        case test:
            node.test = kept(test)
    told = [ast.Constant(source), sides, node.msg or ast.Constant("it is false")]
    node.msg = ast.Call(ast.Name("@failed", ast.Load()), told, [])
