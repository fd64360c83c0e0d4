"""Run a candidate that is a Python program with tests; each failed test is a finding.

The program runs in a process with limits, as far apart from the user's files, processes
and networks as the system allows. This is no complete sandbox: run untrusted programs
in a container.
"""

import ast
import asyncio
import json
import keyword
import marshal
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import CodeType
from typing import Any, ClassVar

from heedful.checks.evaluate import Context
from heedful.checks.text import read
from heedful.errors import InvalidInput, UsageError
from heedful.loop.record import Finding, check_number, require

_PYTHON_TESTS_CHECK = "python_tests"
_CHILD_FILE = Path(__file__).with_name("_child.py")
# The kernel hides most signals from the first process of a namespace, so a shell is the
# first.
_UNSHARE_OPTIONS = "--user --map-current-user --net --pid --mount-proc --kill-child --fork -- sh -c".split()
_EXCEPTION_FIX = "change the program so that {} is not raised here"
_FORGERY_WARNING = "the program ran with the tests and can forge their verdict"
_MAX_OUTPUT_BYTES = (
    1 << 22
)  # bytes of output that are read; the records of a run are much smaller

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ProgramStatement:
    """One statement of the tests; `test` is False if the statement only prepares tests.

    `code` runs in the namespace of the tests (`scope` 0) or of one test function. It
    stores the values that an assert compares in the variables "@0" and "@1"; `sides`
    are their source texts.
    """

    source: str
    test: bool
    _: KW_ONLY
    scope: int
    code: CodeType = field(repr=False)
    sides: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PythonTests:
    """A check that a program passes tests; `request` is the input of the child
    process.
    """

    steps: tuple[ProgramStatement, ...]
    request: Mapping[str, Any] = field(repr=False)
    name: ClassVar[str] = _PYTHON_TESTS_CHECK
    pure: ClassVar[bool] = False

    @property
    def asks(self) -> int:
        """The number of tests, at least 1."""
        return max(1, sum(step.test for step in self.steps))

    async def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        text = read(_PYTHON_TESTS_CHECK, candidate)
        if isinstance(text, Finding):
            return [text, *(_not_run(step) for step in self.steps if step.test)]
        fenced = re.fullmatch(r"(?s)\s*(```+|~~~+)[^`~\n]*\n(.*\n)?[ \t]*\1\s*", text)
        program = (fenced[2] or "\n") if fenced else text
        found = list(_findings(self, *await _run(self.request, program)))
        if found:  # said once
            found[0] = replace(
                found[0], evidence=f"{found[0].evidence}\n{_FORGERY_WARNING}".lstrip()
            )
        return found


def python_tests(
    tests: str,
    entry_point: str | None = None,
    seconds: float = 5.0,
    memory_mb: int = 512,
) -> PythonTests:
    """Check that the candidate, a Python program, passes `tests`: one finding per
    failed statement.

    `tests` is Python source that uses the program's names: assert statements,
    `test_*()` functions, or `check(candidate)`, called with the function `entry_point`.
    One markdown fence around the program is removed. A test that cannot run is a
    finding too, so the best program has the fewest.

    Limits: `seconds` of wall time, `seconds` + 2 of CPU time, `memory_mb` MiB of
    address space, 16 MiB a file, 64 open files, no other processes. The program runs
    without environment variables in a temporary directory, its output is discarded, and
    it can import installed packages. On Linux, as far as the kernel allows, it has no
    network, reads only the system and Python's packages, and writes only to its
    directory. This is no complete sandbox: a program can forge the verdict.

    Raises InvalidInput for tests that do not parse or test nothing, UsageError on a
    system without POSIX limits. The check raises ChildProcessError if the process
    cannot be started or limited.
    """
    require(isinstance(tests, str), "tests", tests, "Python source")
    named = isinstance(entry_point, str) and entry_point.isidentifier()
    named = entry_point is None or (named and not keyword.iskeyword(entry_point))
    require(named, "entry_point", entry_point, "the name of a function")
    check_number("seconds", seconds, low=0.01, high=86_400)
    check_number("memory_mb", memory_mb, low=64, high=1 << 20)
    if find_spec("resource") is None:
        raise UsageError(
            "python_tests needs the limits of a POSIX system (module resource)"
        )
    steps = plan_tests(tests, entry_point)
    codes = [(step.code, step.scope, len(step.sides)) for step in steps]
    request = {"tests": tests, "steps": codes, "entry_point": entry_point}
    return PythonTests(steps, request | {"seconds": seconds, "memory_mb": memory_mb})


_FUNCTION_NODES = (ast.FunctionDef, ast.AsyncFunctionDef)
_PREPARATION_NODES = (
    ast.ClassDef,
    ast.Import,
    ast.ImportFrom,
    ast.Assign,
    ast.AnnAssign,
    ast.AugAssign,
)


def plan_tests(tests: str, entry_point: str | None) -> tuple[ProgramStatement, ...]:
    """Return the steps of `tests`. Raises InvalidInput if `tests` cannot run or tests
    nothing.
    """
    try:
        placed = _statements(ast.parse(tests).body, entry_point)
        steps = tuple(_step(node, scope) for scope, node in placed)
    except InvalidInput:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidInput("tests", tests, f"Python source ({error})") from error
    if not any(step.test for step in steps):
        raise InvalidInput(
            "tests", tests, "Python source with at least one assert that runs"
        )
    return steps


def _statements(
    body: Sequence[ast.stmt], entry: str | None
) -> Iterator[tuple[int, ast.stmt]]:
    """Yield the scope number and the node of each statement that runs.

    Statements in `check(candidate)` and `test_*()` come last; plain calls of these are
    left out.
    """
    tests = [
        n
        for n in body
        if isinstance(n, _FUNCTION_NODES) and re.match(r"check$|test_", n.name)
    ]
    calls = tuple(f"{test.name}(" for test in tests)
    for node in body:
        methods = node.body if isinstance(node, ast.ClassDef) else ()
        if any(
            isinstance(n, _FUNCTION_NODES) and n.name.startswith("test")
            for n in methods
        ):
            raise InvalidInput(
                "tests", "a class", "assert statements or functions, no class"
            )
        if not (isinstance(node, ast.Expr) and ast.unparse(node).startswith(calls)):
            yield 0, node
    for scope, test in enumerate(tests, 1):
        names = [n.arg for n in ast.walk(test.args) if isinstance(n, ast.arg)]
        what = (
            "a plain function without arguments; check(…) may take the program's "
            "function"
        )
        require(len(names) <= (test.name == "check"), "tests", test.name, what)
        what = "the name of the function to pass to check(…)"
        require(not names or entry is not None, "entry_point", value=None, allowed=what)
        bound = ast.parse(f"{names[0]} = {entry}").body if names else []
        yield from ((scope, node) for node in (*bound, *test.body))


def _step(node: ast.stmt, scope: int) -> ProgramStatement:
    """Return the step of a statement; its `source` is the statement, or the only assert
    in it.
    """
    inside = () if isinstance(node, _FUNCTION_NODES) else ast.walk(node)
    asserts = [n for n in inside if isinstance(n, ast.Assert)]
    only = asserts[0] if len(asserts) == 1 else None
    # The message of the assert is left out: it may contain the actual value.
    source = _one_line(
        f"assert {ast.unparse(only.test)}" if only else ast.unparse(node)
    )
    sides = _keep_sides(only) if only else ()
    note = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    test = not note and not isinstance(node, (*_FUNCTION_NODES, *_PREPARATION_NODES))
    tree = ast.fix_missing_locations(ast.Module([node], []))
    code = compile(tree, "tests.py", "exec", dont_inherit=True)
    return ProgramStatement(source, test, scope=scope, code=code, sides=sides)


def _one_line(source: str) -> str:
    return " ".join(source.splitlines())[:240]


def _keep_sides(node: ast.Assert) -> tuple[str, ...]:
    """Change an assert to store the values that it compares; return the sources of the
    values.
    """
    sides: list[str] = []

    def keep(value: ast.expr) -> ast.expr:
        name = ast.Name(f"@{len(sides)}", ast.Store())
        sides.append(_one_line(ast.unparse(value)))
        return ast.NamedExpr(name, value)

    test = node.test
    if isinstance(test, ast.Compare) and len(test.comparators) == 1:
        test.left, test.comparators = keep(test.left), [keep(test.comparators[0])]
    else:
        node.test = keep(test)
    return tuple(sides)


@cache
def _isolation() -> tuple[str, ...]:
    """Return a command that hides other processes and the network, () if the system has
    none.
    """
    found = shutil.which("unshare")
    command = (found, *_UNSHARE_OPTIONS, '"$@"; exit $?', "sh") if found else ()
    if (
        command
        and subprocess.run(
            [*command, "true"], capture_output=True, check=False
        ).returncode
    ):
        return ()  # the system refuses user namespaces, as many containers do
    return command


async def _run(
    request: Mapping[str, Any], program: str
) -> tuple[list[Record], int | None]:
    nonce = os.urandom(16).hex()
    output = bytearray()
    in_time = False
    folder = tempfile.mkdtemp(prefix="heedful-")
    # By default numpy's libraries start a thread for each processor.
    environment = {
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
    }
    try:
        with tempfile.TemporaryFile() as payload:
            payload.write(
                marshal.dumps({**request, "nonce": nonce, "program": program})
            )
            payload.seek(0)
            process = await asyncio.create_subprocess_exec(
                *await asyncio.to_thread(_isolation),
                # Like -I, but with the seed of hashes, so that each run does the same.
                *(sys.executable, "-s", "-P", "-B", "-X", "utf8", str(_CHILD_FILE)),
                stdin=payload,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,  # the reason if the child cannot start
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
        assert process.stdout is not None
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(request["seconds"]):
                    while len(output) < _MAX_OUTPUT_BYTES and (
                        part := await process.stdout.read(1 << 16)
                    ):
                        output += part
                    in_time = True
        finally:
            # Other processes of the group may still run, even if the first process has
            # ended.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            while await process.stdout.read(1 << 16):
                # some versions of Python wait for the process until its pipe is empty
                pass
            code = await asyncio.shield(process.wait())
    finally:
        # Python cannot remove folders that are nested a thousand deep.
        await asyncio.shield(
            asyncio.to_thread(subprocess.run, ["rm", "-rf", folder], check=False)
        )
    start = f"{nonce} ".encode()
    lines = bytes(output).split(b"\n")[:-1]  # the last line may be incomplete
    records = [
        json.loads(line[len(start) :]) for line in lines if line.startswith(start)
    ]
    if not records:
        said = output[-300:].decode(errors="replace")
        raise ChildProcessError(f"the process for the tests did not start: {said}")
    return records, code if in_time else None


def _findings(
    check: PythonTests, records: list[Record], code: int | None
) -> Iterator[Finding]:
    state: dict[str, Any] = {}
    for record in records:
        state |= record
    begun = state.get("step", -1)
    if "done" not in state:  # the finding of the step that ran when the process ended
        yield _cause(
            check.request, state, code, check.steps[begun] if begun >= 0 else None
        )
    failures = {record["failed"]: record for record in records if "failed" in record}
    for number, step in enumerate(check.steps):
        if failure := failures.get(number):
            if failure["own"]:  # an assert of the tests
                pairs = zip(step.sides, failure["sides"], strict=False)
                sides = [
                    f"`{text}` is {seen}"
                    for text, seen in pairs
                    if text[:200] != seen[:200]
                ]
                why = " and ".join(sides) or failure["message"] or "it is false"
                what = f"`{step.source}` fails: {why}"
                holds = step.source.removeprefix("assert ")
                fix = f"change the program so that this holds: {holds}"
            else:
                what = f"`{step.source}` raises {failure['type']}: {failure['message']}"
                what = what.rstrip(": ")
                fix = _EXCEPTION_FIX.format(failure["type"])
            yield _finding(what, fix, step.source, trace=failure["trace"])
        elif step.test and number > begun:
            yield _not_run(step)


def _not_run(step: ProgramStatement) -> Finding:
    return _finding(f"not run: `{step.source}`", "", step.source, severity=0.3)


def _finding(
    what: str, fix: str, key: str, severity: float = 0.5, trace: Sequence[str] = ()
) -> Finding:
    texts = (what, fix, key, "\n".join(trace)[:1000])
    # Escape characters that a store refuses; mask memory addresses, which differ
    # between runs.
    safe = (
        t.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
        for t in texts
    )
    what, fix, key, evidence = (
        re.sub(r"\b0x[0-9a-fA-F]{6,}\b", "0x…", text) for text in safe
    )
    return Finding(
        _PYTHON_TESTS_CHECK,
        what,
        fix=fix,
        severity=severity,
        key=key,
        evidence=evidence,
    )


def _cause(
    request: Record, state: Record, code: int | None, running: ProgramStatement | None
) -> Finding:
    """Return the finding that says why the tests did not run to the end."""
    trace: Sequence[str] = ()
    if state.get("broken") == "syntax":
        key = "syntax"
        what = f"the program is not valid Python: {state['message']}"
        fix = "answer with the Python program only, without words or ``` around it"
    elif "broken" in state:
        key = f"load {state['type']}"
        trace = state["trace"]
        what = (
            f"the program raises {state['type']} before any test runs: "
            f"{state['message']}"
        )
        fix = _EXCEPTION_FIX.format(state["type"])
    else:
        during = (
            f"while running `{running.source}`" if running else "before any test ran"
        )
        key = "time-out"
        what = f"the program did not end within {request['seconds']:g} s, {during}"
        fix = "look for a loop that does not end, or for work that grows too fast"
        ended = (
            signal.SIGXCPU,
            signal.SIGALRM,
        )  # a shell adds 128 to the number of a signal
        if code is not None and -code not in ended and code - 128 not in ended:
            key = "ended early"
            what = f"the process of the program ended {during}"
            fix = (
                "return the result: do not end the process (os._exit), recurse "
                "without end, "
            )
            fix += "close or write to files of others, or use more than "
            fix += f"{request['memory_mb']} MiB of memory"
        key = running.source if running else key
    return _finding(what, fix, key=key, severity=0.9, trace=trace)
