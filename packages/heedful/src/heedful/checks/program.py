"""Run a candidate that is a Python program with tests; each failed test is a finding.

The tests are split into steps, one a statement (`plan_tests`). A child process
(`_child`) loads the program, runs the steps and records what happens; from its records
come the findings.

Under bubblewrap (`bwrap` on PATH) the process has namespaces of its own. It has no
network and sees no other processes. It reads only the programs and libraries of the
system and Python with its packages, and writes only to its folder. When it ends, all
processes that it started end, too. bubblewrap needs user namespaces, which many
containers refuse, so one probe per process finds out whether it works. With
`unsafe=True`, nothing keeps the process apart.
"""

import ast
import asyncio
import json
import marshal
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import CodeType
from typing import Any, ClassVar

from heedful.checks.evaluate import Context, RemadeCheck, remade
from heedful.checks.text import read
from heedful.errors import InvalidInput, UsageError
from heedful.loop.record import Finding
from heedful.redact import redact_start
from heedful.validation import Document, Fields, check_number, require

# Isolated as with -I, but PYTHONHASHSEED is still read, so that each run does the same.
PYTHON_COMMAND = (sys.executable, "-s", "-P", "-B", "-X", "utf8")
_SYSTEM_PATHS = (
    "/usr",
    "/bin",
    "/lib",
    "/lib64",
    "/opt",
    "/nix/store",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/passwd",
    "/etc/group",
    "/sys/devices/system/cpu",
)
_NAMESPACE_OPTIONS = ("--unshare-all", "--die-with-parent", "--cap-drop", "ALL")
_PRINT_SEARCH_PATH = "import json, sys; print(json.dumps(sys.path))"


def command_prefix(folder: str, script: Path) -> tuple[str, ...]:
    """Return the start of a command that may read `script` and write to `folder`."""
    files = ("--ro-bind", str(script), str(script), "--bind", folder, folder)
    # These come after the folder, which may be below /dev, as in /dev/shm.
    write_protection = ("--remount-ro", "/dev", "--remount-ro", "/")
    return (*bubblewrap(), *files, *write_protection, "--chdir", folder)


@cache
def bubblewrap() -> tuple[str, ...]:
    """Return the command of bubblewrap with its options; () if a probe of it fails."""
    program = shutil.which("bwrap")
    if program is None:
        return ()

    search_path = _run((*PYTHON_COMMAND, "-c", _PRINT_SEARCH_PATH))
    if search_path is None:
        return ()

    options = [program, *_NAMESPACE_OPTIONS]
    for path in _readable_paths(json.loads(search_path)):
        options += ("--ro-bind-try", path, path)
    options += ("--proc", "/proc", "--dev", "/dev")

    probe = (*options, "--remount-ro", "/dev", *PYTHON_COMMAND, "-c", "")
    return () if _run(probe) is None else tuple(options)


def _readable_paths(search_path: list[str]) -> list[str]:
    """Return the paths that Python needs, each folder before the folders in it."""
    executable = Path(sys.executable)
    paths = {*_SYSTEM_PATHS, sys.prefix, sys.base_prefix, *search_path}
    paths |= {str(executable.parent), str(executable.resolve().parent)}
    return sorted(path for path in paths if Path(path).is_absolute())


def _run(command: tuple[str, ...]) -> str | None:
    """Return the output of a command without environment; None if the command fails."""
    try:
        process = subprocess.run(
            command,
            capture_output=True,
            check=True,
            cwd="/",
            env={},
            text=True,
            timeout=20.0,
        )
    except (OSError, subprocess.SubprocessError):
        return None

    return process.stdout


_PYTHON_TESTS_CHECK = "python_tests"
_CHILD_FILE = Path(__file__).with_name("_child.py")
# The program runs in one thread: by default numpy's libraries start one for each
# processor.
_CHILD_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}
# The most bytes of output that are read; the records of a run are much smaller.
_MAX_OUTPUT_BYTES = 1 << 22
_MAX_SHOWN_CHARS = 1_000  # of a message, a trace, or a statement of the tests
_EXCEPTION_FIX = "change the program so that {} is not raised here"

Record = Mapping[str, Any]  # what the child process says of one event


@dataclass(frozen=True, slots=True)
class ProgramStatement:
    """One statement of the tests; `test` is False if it only prepares tests.

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
class PythonTests(RemadeCheck):
    """A check that a program passes tests.

    `request` is the input of the child process, which runs without bubblewrap if it is
    `unsafe`.
    """

    steps: tuple[ProgramStatement, ...]
    request: Fields = field(repr=False)
    _: KW_ONLY
    unsafe: bool
    name: ClassVar[str] = _PYTHON_TESTS_CHECK
    pure: ClassVar[bool] = False

    @property
    def asks(self) -> int:
        """The number of tests, at least 1."""
        return max(1, sum(step.test for step in self.steps))

    async def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        """Run the program with the tests, and return a finding for each failed test."""
        text = read(_PYTHON_TESTS_CHECK, candidate)
        if isinstance(text, Finding):
            return [text, *(_not_run_finding(step) for step in self.steps if step.test)]

        records, code = await _run_tests(self.request, _unfenced(text), self.unsafe)
        return list(_list_findings(self, records, code))


def _unfenced(text: str) -> str:
    """Return a program without the fence of markdown around it."""
    lines = text.strip().splitlines()
    fence = lines[-1].strip()
    is_fenced = len(lines) > 1 and fence in ("```", "~~~")
    if not is_fenced or not lines[0].startswith(fence):
        return text
    return "\n".join(lines[1:-1]) + "\n"


@remade
def python_tests(
    tests: str,
    seconds: float = 5.0,
    memory_mb: int = 512,
    unsafe: bool = False,
) -> PythonTests:
    """Check that a Python program passes `tests`: one finding per failed statement.

    `tests` is Python source that uses the program's names: assert statements, and
    `test_*()` functions without arguments. One markdown fence around the program is
    removed. A test that cannot run is a finding too, so the best program has the
    fewest.

    Limits: `seconds` of wall time, `seconds` + 2 of CPU time, `memory_mb` MiB of
    address space, 16 MiB a file, 64 open files. The program runs without environment
    variables in a temporary directory, its output is discarded, and it can import
    installed packages. It runs under bubblewrap: the kernel gives it no network, shows
    it only the system and Python's packages, and lets it write only to its directory.
    With `unsafe`, it runs without bubblewrap and can do all that you can. Either way, a
    program can forge the verdict.

    Raises InvalidInput for tests that do not parse or test nothing, UsageError where
    bubblewrap does not work, unless `unsafe` is given, and on a system without POSIX
    limits. The check raises ChildProcessError if the process cannot be started or
    limited.
    """
    require(isinstance(tests, str), "tests", tests, "Python source")
    check_number("seconds", seconds, low=0.01, high=86_400)
    check_number("memory_mb", memory_mb, low=64, high=1 << 20)

    if find_spec("resource") is None:
        raise UsageError(
            "python_tests needs the limits of a POSIX system (module resource)"
        )

    require(isinstance(unsafe, bool), "unsafe", unsafe, "True or False")
    if not unsafe and not bubblewrap():
        raise UsageError(
            "python_tests needs bubblewrap (bwrap), which does not work here; install "
            "it, or pass unsafe=True to run programs without a sandbox"
        )

    steps = plan_tests(tests)
    request = {
        "tests": tests,
        "steps": [(step.code, step.scope, len(step.sides)) for step in steps],
        "seconds": seconds,
        "memory_mb": memory_mb,
    }
    return PythonTests(steps, request, unsafe=unsafe)


_FUNCTION_NODES = (ast.FunctionDef, ast.AsyncFunctionDef)
# Statements that prepare tests and test nothing themselves.
_PREPARATION_NODES = (
    ast.ClassDef,
    ast.Import,
    ast.ImportFrom,
    ast.Assign,
    ast.AnnAssign,
    ast.AugAssign,
)


def plan_tests(tests: str) -> tuple[ProgramStatement, ...]:
    """Return the steps of `tests`.

    Raises InvalidInput if `tests` cannot run or tests nothing.
    """
    try:
        statements = _statements_to_run(ast.parse(tests).body)
        steps = tuple(_plan_step(node, scope) for scope, node in statements)
    except InvalidInput:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidInput("tests", tests, f"Python source ({error})") from error

    if not any(step.test for step in steps):
        raise InvalidInput(
            "tests", tests, "Python source with at least one assert that runs"
        )
    return steps


def _statements_to_run(body: Sequence[ast.stmt]) -> Iterator[tuple[int, ast.stmt]]:
    """Yield the scope number and the node of each statement that runs.

    Statements in `test_*()` come last; calls of these by the tests themselves are left
    out. Raises InvalidInput.
    """
    test_functions = [
        node
        for node in body
        if isinstance(node, _FUNCTION_NODES) and node.name.startswith("test_")
    ]
    test_calls = tuple(f"{function.name}(" for function in test_functions)
    for node in body:
        if isinstance(node, ast.Expr) and ast.unparse(node).startswith(test_calls):
            continue

        yield 0, node

    for scope, function in enumerate(test_functions, 1):
        parameters = ast.unparse(function.args)
        require(not parameters, "tests", parameters, "a function without parameters")
        for node in function.body:
            yield scope, node


def _plan_step(node: ast.stmt, scope: int) -> ProgramStatement:
    """Return the step of a statement.

    Its `source` is the statement, or the only assert in it.
    """
    is_function = isinstance(node, _FUNCTION_NODES)
    asserts: list[ast.Assert] = []
    if not is_function:
        asserts = [inner for inner in ast.walk(node) if isinstance(inner, ast.Assert)]

    source = _join_lines(ast.unparse(node))
    sides: tuple[str, ...] = ()
    if len(asserts) == 1:
        # The message of the assert is left out: it may contain the actual value.
        source = _join_lines(f"assert {ast.unparse(asserts[0].test)}")
        sides = _keep_sides(asserts[0])

    is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    only_prepares = is_function or isinstance(node, _PREPARATION_NODES)
    tree = ast.fix_missing_locations(ast.Module([node], []))
    return ProgramStatement(
        source,
        not is_docstring and not only_prepares,
        scope=scope,
        code=compile(tree, "tests.py", "exec", dont_inherit=True),
        sides=sides,
    )


def _join_lines(source: str) -> str:
    """Return source text as one line, cut to its first characters."""
    return redact_start(" ".join(source.splitlines()), _MAX_SHOWN_CHARS)


def _keep_sides(node: ast.Assert) -> tuple[str, ...]:
    """Change an assert to store the values that it compares; return their sources.

    `assert f(1) == 2` becomes `assert (@0 := f(1)) == (@1 := 2)`.
    """
    test = node.test
    if isinstance(test, ast.Compare) and len(test.comparators) == 1:
        values = (test.left, test.comparators[0])
        sources = tuple(_join_lines(ast.unparse(value)) for value in values)
        test.left = _keep_value(test.left, "@0")
        test.comparators = [_keep_value(test.comparators[0], "@1")]
        return sources

    node.test = _keep_value(test, "@0")
    return (_join_lines(ast.unparse(test)),)


def _keep_value(value: ast.expr, name: str) -> ast.expr:
    """Return an expression that stores the value in the variable `name`."""
    return ast.NamedExpr(ast.Name(name, ast.Store()), value)


async def _run_tests(
    request: Fields, program: str, unsafe: bool
) -> tuple[list[Record], int | None]:
    """Run the tests in a child process, under bubblewrap unless it is `unsafe`.

    Returns its records and its exit code; the code is None if the time ran out.
    """
    nonce = os.urandom(16).hex()
    payload = marshal.dumps({**request, "nonce": nonce, "program": program})
    folder = tempfile.mkdtemp(prefix="heedful-")
    try:
        prefix = () if unsafe else command_prefix(folder, _CHILD_FILE)
        process = await _start_process(payload, folder, prefix)
        output, in_time = await _collect_output(process, request["seconds"])
        code = process.returncode if in_time else None
    finally:
        # Python cannot remove folders that are nested a thousand deep.
        removal = asyncio.to_thread(subprocess.run, ["rm", "-rf", folder], check=False)
        await asyncio.shield(removal)

    mark = f"{nonce} ".encode()
    complete_lines = output.split(b"\n")[:-1]
    record_lines = [line for line in complete_lines if line.startswith(mark)]
    records = [json.loads(line.removeprefix(mark)) for line in record_lines]

    if not records:
        reason = output[-300:].decode(errors="replace")
        raise ChildProcessError(f"the process for the tests did not start: {reason}")

    return records, code


async def _start_process(
    payload: bytes, folder: str, prefix: Sequence[str]
) -> asyncio.subprocess.Process:
    """Start the child process in `folder`; `payload` is its standard input.

    Its command begins with `prefix`.
    """
    with tempfile.TemporaryFile() as request_file:
        request_file.write(payload)
        request_file.seek(0)
        return await asyncio.create_subprocess_exec(
            *prefix,
            *PYTHON_COMMAND,
            str(_CHILD_FILE),
            stdin=request_file,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # the reason if the child cannot start
            cwd=folder,
            env=_CHILD_ENVIRONMENT,
            start_new_session=True,
        )


async def _collect_output(
    process: asyncio.subprocess.Process, seconds: float
) -> tuple[bytes, bool]:
    """Return the output of a process, and whether it ended in time; then kill it.

    A process with more output than is read counts as ended.
    """
    assert process.stdout is not None
    output = bytearray()
    limit = asyncio.timeout(seconds)
    try:
        with suppress(TimeoutError):
            async with limit:
                while len(output) < _MAX_OUTPUT_BYTES:
                    part = await process.stdout.read(1 << 16)
                    if not part:
                        break
                    output += part
    finally:
        await _kill_group(process, process.stdout)

    return bytes(output), not limit.expired()


async def _kill_group(
    process: asyncio.subprocess.Process, pipe: asyncio.StreamReader
) -> None:
    """Kill a process and the others of its group, which may run longer than it.

    Some versions of Python wait for a process until its pipe is empty. What has left
    the group would keep the pipe open as long as it likes: it is closed after 1 s.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)

    try:
        async with asyncio.timeout(1.0):
            while await pipe.read(1 << 16):
                pass
    except TimeoutError:
        pipe._transport.close()  # type: ignore[attr-defined]

    await asyncio.shield(process.wait())


def _list_findings(
    check: PythonTests, records: list[Record], code: int | None
) -> Iterator[Finding]:
    """Yield the findings of a run: why it ended early, then the failed tests."""
    state: Document = {}
    for record in records:
        state |= record

    last_step = state.get("step", -1)
    if "done" not in state:
        running = check.steps[last_step] if last_step >= 0 else None
        yield _early_end_finding(check.request, state, code, running)

    failures = {record["failed"]: record for record in records if "failed" in record}
    for number, step in enumerate(check.steps):
        if number in failures:
            yield _failure_finding(step, failures[number])
        elif step.test and number > last_step:
            yield _not_run_finding(step)


def _failure_finding(step: ProgramStatement, failure: Record) -> Finding:
    """Return the finding of a step that failed: an assert, or any other exception."""
    if not failure["own"]:
        message = f"`{step.source}` raises {failure['type']}: {failure['message']}"
        return _make_finding(
            message.rstrip(": "),
            _EXCEPTION_FIX.format(failure["type"]),
            step.source,
            trace=failure["trace"],
        )

    # A side that is a literal needs no value beside it.
    differences = []
    for source, value in zip(step.sides, failure["sides"], strict=False):
        if source[:200] != value[:200]:
            differences.append(f"`{source}` is {redact_start(value, 300)}")

    why = " and ".join(differences) or failure["message"] or "it is false"
    condition = step.source.removeprefix("assert ")
    fix = f"change the program so that this holds: {condition}"
    return _make_finding(
        f"`{step.source}` fails: {why}",
        fix,
        step.source,
        trace=failure["trace"],
        rule=fix,
    )


def _not_run_finding(step: ProgramStatement) -> Finding:
    """Return the finding of a test that did not run."""
    return _make_finding(f"not run: `{step.source}`", "", step.source, severity=0.3)


def _make_finding(
    message: str,
    fix: str,
    key: str,
    severity: float = 0.5,
    trace: Sequence[str] = (),
    rule: str = "",
) -> Finding:
    """Return a finding whose texts a store accepts; `trace` becomes its evidence."""
    evidence = redact_start("\n".join(trace), _MAX_SHOWN_CHARS)
    return Finding(
        _PYTHON_TESTS_CHECK,
        _escape_text(redact_start(message, _MAX_SHOWN_CHARS)),
        fix=_escape_text(fix),
        severity=severity,
        key=_escape_text(key),
        evidence=_escape_text(evidence),
        rule=_escape_text(rule),
    )


def _escape_text(text: str) -> str:
    """Escape characters that a store refuses."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def _early_end_finding(
    request: Record, state: Record, code: int | None, running: ProgramStatement | None
) -> Finding:
    """Return the finding that says why the tests did not run to the end.

    `running` is the step that ran when the process ended, None if none had begun.
    """
    if state.get("broken") == "syntax":
        return _make_finding(
            f"the program is not valid Python: {state['message']}",
            "answer with the Python program only, without words or ``` around it",
            key="syntax",
            severity=0.9,
        )

    if "broken" in state:
        return _make_finding(
            f"the program raises {state['type']} before any test runs: "
            f"{state['message']}",
            _EXCEPTION_FIX.format(state["type"]),
            key=f"load {state['type']}",
            severity=0.9,
            trace=state["trace"],
        )

    during = f"while running `{running.source}`" if running else "before any test ran"
    if code is None:
        key = "time-out"
        message = f"the program did not end within {request['seconds']:g} s, {during}"
        fix = "look for a loop that does not end, or for work that grows too fast"
    else:
        key = "ended early"
        message = f"the process of the program ended {during}"
        fix = (
            "return the result: do not end the process (os._exit), recurse without "
            "end, close or write to files of others, or use more than "
            f"{request['memory_mb']} MiB of memory"
        )

    if running:
        key = running.source
    return _make_finding(message, fix, key=key, severity=0.9)
