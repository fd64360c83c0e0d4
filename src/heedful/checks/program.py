"""`python_tests`: the candidate is a Python program, and its tests say what is wrong with it.

The program runs in a separate process with limits on time, memory and files. That guards against
slips, NOT against a hostile program: it has this user's rights, can read and delete what the user
can, and can reach the network. Run untrusted programs in a container.
"""

from __future__ import annotations

import ast
import json
import keyword
import marshal
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, ClassVar

from heedful.checks.evaluate import Context
from heedful.checks.text import read, require
from heedful.errors import InvalidInput, UsageError
from heedful.loop.record import Finding, check_number

if TYPE_CHECKING:
    import subprocess
    import tempfile

_NAME = "python_tests"
_CHILD = Path(__file__).with_name("_child.py")
_VERDICT = 1 << 22
"""Bytes read from a run at most; its records need far fewer."""

_FIXES = {
    "EOFError": "do not read standard input: take arguments",
    "MemoryError": "use less memory: {memory_mb} MiB are allowed",
    "SystemExit": "do not end the program: return the result",
}
_NOT_THERE = ("NameError", "UnboundLocalError")

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One statement of the tests, in one line; `test` is False when it only prepares others."""

    source: str
    test: bool


@dataclass(frozen=True, slots=True)
class PythonTests:
    """The program passes its tests; made by `python_tests`. `request` is what the child reads."""

    steps: tuple[Step, ...]
    request: Mapping[str, Any] = field(repr=False)
    name: ClassVar[str] = _NAME
    pure: ClassVar[bool] = False

    @property
    def asks(self) -> int:
        """The number of tests, at least 1."""
        return max(1, sum(step.test for step in self.steps))

    def share(self, findings: Sequence[Finding]) -> float:
        """Return the share of the tests, 0..1, that these findings do not name."""
        wrong = {finding.key for finding in findings}
        failed = sum(step.test and _safe(step.source) in wrong for step in self.steps)
        known = any(_safe(step.source) in wrong for step in self.steps)
        return 0.0 if wrong and not known else 1 - failed / self.asks

    async def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        text = read(_NAME, candidate)
        if isinstance(text, Finding):
            return [text]
        return list(_findings(self, *await _run(self, strip_fence(text))))


def python_tests(
    tests: str,
    entry_point: str | None = None,
    seconds: float = 5.0,
    memory_mb: int = 512,
    file_mb: int = 16,
) -> PythonTests:
    """Check that the candidate, a Python program, passes `tests`: one finding per failed statement.

    `tests` is Python source that sees the program's names: assert statements, `test_*()` functions,
    or `check(candidate)`, which is called with the function named `entry_point`. One markdown fence
    around the program is removed. With an `entry_point`, the tests see the original of every other
    built-in function that the program redefines. Limits of a run: `seconds` of wall time (and two
    more of CPU time, in case this process dies), `memory_mb` MiB of address space, `file_mb` MiB a
    file, 64 open files, no processes. Its environment is empty, its working directory is temporary,
    its output is discarded; it can import the installed packages of this process.

    A test that could not run is a finding too, so the best program has the fewest findings.
    This is no sandbox: a hostile program can do what the user can. Raises InvalidInput for tests
    that do not parse or would run nothing, UsageError on a system without POSIX limits; the check
    raises ChildProcessError when the process cannot be started or limited.
    """
    require(isinstance(tests, str), "tests", tests, "Python source")
    named = isinstance(entry_point, str) and entry_point.isidentifier()
    named = entry_point is None or (named and not keyword.iskeyword(entry_point))
    require(named, "entry_point", entry_point, "the name of a function")
    check_number("seconds", seconds, 0.01, 86_400)
    check_number("memory_mb", memory_mb, 64, 1 << 20)
    check_number("file_mb", file_mb, 1, 1 << 20)
    if find_spec("resource") is None:
        raise UsageError("python_tests needs the limits of a POSIX system (module resource)")
    plan = plan_tests(tests, entry_point)
    request = {"tests": tests, "code": plan.code, "entry_point": entry_point}
    request |= {"seconds": seconds, "memory_mb": memory_mb, "file_mb": file_mb}
    return PythonTests(plan.steps, request)


def strip_fence(text: str) -> str:
    """Return the text without one markdown fence around all of it."""
    lines = text.strip().split("\n")
    fence = re.match(r"(```+|~~~+)[^`~]*$", lines[0])
    if fence and len(lines) > 1 and lines[-1].strip() == fence[1]:
        return "\n".join(lines[1:-1]) + "\n"
    return text


# Taking tests apart

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINES = (*_FUNCTIONS, ast.ClassDef)
_PREPARES = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.AugAssign)
_NO_STEP = (*_DEFINES, ast.Return, ast.Global, ast.Nonlocal)


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of some tests, and the code that runs them in order.

    The code needs two names that no source can spell. Each step runs as `with @step(number)`, which
    swallows what the step raises. The message of each assert is `@failed(source, sides,
    message)`, where `sides` maps the source of each compared expression to its value.
    """

    steps: tuple[Step, ...]
    code: CodeType


def plan_tests(tests: str, entry_point: str | None) -> Plan:
    """Return the plan of `tests`; raises InvalidInput when they cannot run or would test nothing.

    Each statement of `check(candidate)` and of `test_*()` functions is a step. A function of that
    kind is called when the tests do not name it.
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
    """Return calls of the test functions that nothing calls: they would pass without running."""
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
    parameters = node.args
    needed = len(parameters.posonlyargs + parameters.args) - len(parameters.defaults)
    needed += parameters.kw_defaults.count(None)
    if isinstance(node, ast.AsyncFunctionDef) or needed > (node.name == "check"):
        what = "a plain function without arguments; check(…) may take one, the program's function"
        raise InvalidInput("tests", node.name, what)
    if needed and entry_point is None:
        raise InvalidInput("entry_point", None, "the name of the function that check(…) is to get")
    return ast.parse(f"{node.name}({entry_point if needed else ''})").body[0]


def _stepwise(body: Sequence[ast.stmt], steps: list[Step]) -> Iterator[ast.stmt]:
    """Yield the statements; wrap each that can fail in a step, and add that to `steps`."""
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
    """Return True for a call of a test function, whose statements are the tests."""
    call = node.value if isinstance(node, ast.Expr) else None
    name = call.func if isinstance(call, ast.Call) else None
    return isinstance(name, ast.Name) and _is_test(name.id)


def _source(node: ast.stmt) -> str:
    """Return a statement in one line; a block around a single assert is named by that assert."""
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
    """Make an assert report the values that it compared."""
    source, sides = _condition(node), ast.Dict([], [])

    def keep(value: ast.expr) -> ast.expr:
        name = f"@{len(sides.keys)}"
        sides.keys.append(ast.Constant(_one_line(ast.unparse(value))))
        sides.values.append(ast.Name(name, ast.Load()))
        return ast.NamedExpr(ast.Name(name, ast.Store()), value)

    match node.test:
        case ast.Compare(left, [_], [right]) as test:
            test.left, test.comparators = keep(left), [keep(right)]
        case ast.UnaryOp(_, operand) as test:
            test.operand = keep(operand)
        case ast.Compare() | ast.BoolOp():
            pass
        case test:
            node.test = keep(test)
    report = [ast.Constant(source), sides, node.msg or ast.Constant("it is false")]
    node.msg = ast.Call(ast.Name("@failed", ast.Load()), report, [])


# Running


async def _run(check: PythonTests, program: str) -> tuple[list[Record], int | None]:
    """Return the records of a run and its exit code, None after a time-out."""
    import asyncio
    import tempfile

    nonce, output, in_time = os.urandom(16).hex(), bytearray(), False
    folder = tempfile.TemporaryDirectory(prefix="heedful-", ignore_cleanup_errors=True)
    try:
        process = _start(check, program, nonce, folder.name)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(check.request["seconds"]):
                    await _read(process, output)
                    in_time = True
        finally:
            _kill(process)
    finally:
        # In a thread that cancellation does not stop: a program can leave many files.
        await asyncio.shield(asyncio.to_thread(_clear, folder))
    records = _records(output, nonce)
    if not records:
        said = output[-300:].decode(errors="replace")
        raise ChildProcessError(f"the process for the tests did not start: {said}")
    return records, process.returncode if in_time else None


def _start(check: PythonTests, program: str, nonce: str, folder: str) -> subprocess.Popen[bytes]:
    import subprocess
    import tempfile

    # By default numpy's libraries start a thread for each processor.
    environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile() as payload:
        payload.write(marshal.dumps({**check.request, "nonce": nonce, "program": program}))
        payload.seek(0)
        return subprocess.Popen(
            # As isolated as -I, which would ignore the seed: a program does the same each time.
            [sys.executable, "-s", "-P", "-B", "-X", "utf8", str(_CHILD)],
            stdin=payload,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # until the child takes both over: why it could not begin
            cwd=folder,
            env=environment | {"PYTHONHASHSEED": "0"},
            start_new_session=True,
        )


async def _read(process: subprocess.Popen[bytes], output: bytearray) -> None:
    import asyncio

    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), process.stdout
    )
    try:
        while len(output) < _VERDICT and (part := await reader.read(1 << 16)):
            output += part
    finally:
        transport.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    # The group may outlive its first process, so kill it even when that process has ended.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _clear(folder: tempfile.TemporaryDirectory[str]) -> None:
    import subprocess

    try:
        folder.cleanup()
    except RecursionError:  # before Python 3.13, for folders nested a thousand deep
        subprocess.run(["rm", "-rf", folder.name], check=False)


def _records(output: bytes | bytearray, nonce: str) -> list[Record]:
    """Return what was recorded, in order, without the last line, which may be incomplete."""
    start = f"{nonce} ".encode()
    lines = bytes(output).split(b"\n")[:-1]
    return [json.loads(line[len(start) :]) for line in lines if line.startswith(start)]


# Judging


def _findings(check: PythonTests, records: list[Record], code: int | None) -> Iterator[Finding]:
    state: dict[str, Any] = {}
    for record in records:
        state |= record
    steps, complete = check.steps, "done" in state
    begun = {r["step"] for r in records if "step" in r}
    if not complete:
        yield _cause(check.request, state, code, steps[state["step"]] if begun else None)
        begun.discard(state.get("step"))
    # Tests can end without testing anything: all asserts in a branch that is not taken.
    missed = not complete or not any(steps[number].test for number in begun)
    failures, unprepared = {r["failed"]: r for r in records if "failed" in r}, False
    for index, step in enumerate(steps):
        failure = failures.get(index)
        if failure and not (unprepared and failure["type"] in _NOT_THERE):
            unprepared = unprepared or not step.test
            yield _failure(check.request, step, failure)
        elif failure or (missed and step.test and index not in begun):
            yield _finding(f"not run: `{step.source}`", "", step.source, 0.3)


def _finding(
    what: str, fix: str, key: str, severity: float = 0.5, trace: Sequence[str] = ()
) -> Finding:
    evidence = "\n".join(trace)[:1000]
    what, fix, key, evidence = (_safe(text) for text in (what, fix, key, evidence))
    return Finding(_NAME, what, fix, severity=severity, key=key, evidence=evidence)


def _safe(text: str) -> str:
    """Return text that any store can hold and that is the same in the next run."""
    text = text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
    return re.sub(r"\b0x[0-9a-fA-F]{6,}\b", "0x…", text)


def _failure(request: Record, step: Step, failure: Record) -> Finding:
    source = failure.get("source", step.source)
    if "sides" in failure:
        # A literal reads as its value.
        sides = {text: seen for text, seen in failure["sides"].items() if text[:200] != seen[:200]}
        why = " and ".join(f"`{text}` is {seen}" for text, seen in sides.items())
        what = f"`{source}` fails: {why or failure['message']}"
        fix = f"change the program so that this holds: {source.removeprefix('assert ')}"
    else:
        what = f"`{source}` raises {failure['type']}: {failure['message']}".rstrip(": ")
        fix = _fix(request, failure["type"])
    return _finding(what, fix, source, trace=failure["trace"])


def _fix(request: Record, kind: str) -> str:
    fix = _FIXES.get(kind, f"change the program so that {kind} is not raised here")
    return fix.replace("{memory_mb}", str(request["memory_mb"]))


def _cause(request: Record, state: Record, code: int | None, running: Step | None) -> Finding:
    """Return the finding that says why the tests did not run to their end."""
    if state.get("broken") == "syntax":
        what = f"the program is not valid Python: {state['message']}"
        fix = "answer with the Python program only, without words or ``` around it"
        return _finding(what, fix, "syntax", 0.9)
    if "broken" in state:
        what = f"the program raises {state['type']} before any test runs: {state['message']}"
        return _finding(
            what, _fix(request, state["type"]), f"load {state['type']}", 0.9, state["trace"]
        )
    if "missing" in state:
        defines = ", ".join(state["defines"]) or "no function"
        what = f"there is no function {state['missing']}; the program defines {defines}"
        fix = f"define {state['missing']} as a function at the top level"
        return _finding(what, fix, f"missing {state['missing']}", 0.9)
    during = f"while running `{running.source}`" if running else "before any test ran"
    if code in (None, -signal.SIGXCPU, -signal.SIGALRM):
        what = f"the program did not end within {request['seconds']:g} s, {during}"
        fix = "look for a loop that does not end, or for work that grows too fast"
        return _finding(what, fix, "time-out", 0.9)
    # SIGKILL comes from the system for lack of memory, or from us when its output was cut.
    crashed = signal.Signals(-code).name if code < 0 and code != -signal.SIGKILL else ""
    what = f"the process of the program {f'crashed ({crashed})' if crashed else 'ended'} {during}"
    fix = "return the result: do not end the process (os._exit), recurse without end, close or "
    fix += f"write to files of others, or use more than {request['memory_mb']} MiB of memory"
    return _finding(what, fix, f"crashed {crashed}" if crashed else "ended early", 0.9)
