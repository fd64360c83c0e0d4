"""`python_tests`: the candidate is a Python program, and its tests say what is wrong with it.

The program runs in a process of its own with limits on time, memory and files. That guards against
slips, NOT against a hostile program: it has this user's rights, can read and delete what the user
can and reach the network. Run programs that nobody vouches for in a container.
"""

from __future__ import annotations

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
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from heedful.checks.evaluate import Context
from heedful.checks.steps import Step, split
from heedful.checks.text import read, require
from heedful.errors import UsageError
from heedful.loop.record import Finding, check_number

if TYPE_CHECKING:
    import subprocess
    import tempfile

_NAME = "python_tests"
_CHILD = Path(__file__).with_name("_child.py")
_VERDICT = 1 << 22
"""Bytes that are read from a run; its records need far fewer."""

_FIXES = {
    "EOFError": "do not read standard input: take arguments",
    "MemoryError": "use less memory: {memory_mb} MiB are allowed",
    "SystemExit": "do not end the program: return the result",
}
_NOT_THERE = ("NameError", "UnboundLocalError")

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PythonTests:
    """The program passes its tests; made by `python_tests`. `asked` is what the child is told."""

    steps: tuple[Step, ...]
    asked: Mapping[str, Any] = field(repr=False)
    name: ClassVar[str] = _NAME
    pure: ClassVar[bool] = False

    @property
    def asks(self) -> int:
        """How many tests there are, at least 1."""
        return max(1, sum(step.test for step in self.steps))

    def share(self, findings: Sequence[Finding]) -> float:
        """The share of its tests that these findings do not name, 0..1; one may have several."""
        wrong = {finding.key for finding in findings}
        failed = sum(step.test and _safe(step.source) in wrong for step in self.steps)
        known = any(_safe(step.source) in wrong for step in self.steps)
        return 0.0 if wrong and not known else 1 - failed / self.asks

    async def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        text = read(_NAME, candidate)
        if isinstance(text, Finding):
            return [text]
        return list(_findings(self, *await _run(self, unfenced(text))))


def python_tests(
    tests: str,
    entry_point: str | None = None,
    seconds: float = 5.0,
    memory_mb: int = 512,
    file_mb: int = 16,
) -> PythonTests:
    """The candidate, a Python program, passes `tests`; a finding a statement of them that fails.

    `tests` is Python source that sees the program's names: assert statements, `test_*()` functions,
    or `check(candidate)`, which is called with the function named `entry_point`. One markdown fence
    around the program is taken off. With an `entry_point`, other built-in functions that the
    program redefines stay as they are for the tests. Limits of a run: `seconds` of wall time (and
    two more of CPU time, should this process die), `memory_mb` MiB of address space, `file_mb` MiB
    a file, 64 open files, no processes. Its environment is empty, its working directory a temporary
    one, its output is discarded; it can import what this process can from installed packages.

    A test that could not run any more is a finding too, so the fewest findings is the best program.
    This is no sandbox: a hostile program can do what the user can. Raises InvalidInput for tests
    that do not parse or would run nothing, UsageError on a system without POSIX limits; the check
    raises ChildProcessError where the process cannot be started or limited.
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
    plan = split(tests, entry_point)
    asked = {"tests": tests, "code": plan.code, "entry_point": entry_point}
    asked |= {"seconds": seconds, "memory_mb": memory_mb, "file_mb": file_mb}
    return PythonTests(plan.steps, asked)


def unfenced(text: str) -> str:
    """The text without one markdown fence around all of it."""
    lines = text.strip().split("\n")
    opened = re.match(r"(```+|~~~+)[^`~]*$", lines[0])
    if opened and len(lines) > 1 and lines[-1].strip() == opened[1]:
        return "\n".join(lines[1:-1]) + "\n"
    return text


# Running


async def _run(check: PythonTests, program: str) -> tuple[list[Record], int | None]:
    """The records of a run and its exit code, None where its time was up."""
    import asyncio
    import tempfile

    nonce, output, in_time = os.urandom(16).hex(), bytearray(), False
    folder = tempfile.TemporaryDirectory(prefix="heedful-", ignore_cleanup_errors=True)
    try:
        process = _start(check, program, nonce, folder.name)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(check.asked["seconds"]):
                    await _read(process, output)
                    in_time = True
        finally:
            _kill(process)
    finally:
        # In a thread, and to its end: a program can leave many files.
        await asyncio.shield(asyncio.to_thread(_clear, folder))
    records = _records(output, nonce)
    if not records:
        said = output[-300:].decode(errors="replace")
        raise ChildProcessError(f"the process for the tests did not start: {said}")
    return records, process.returncode if in_time else None


def _start(check: PythonTests, program: str, nonce: str, folder: str) -> subprocess.Popen[bytes]:
    import subprocess
    import tempfile

    # numpy's libraries start a thread for each processor unless told otherwise.
    environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile() as payload:
        payload.write(marshal.dumps({**check.asked, "nonce": nonce, "program": program}))
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
    # The group may outlive its first process, so it is killed even where that has ended.
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
    """What was recorded, in order; the last line may be half of one."""
    start = f"{nonce} ".encode()
    lines = bytes(output).split(b"\n")[:-1]
    return [json.loads(line[len(start) :]) for line in lines if line.startswith(start)]


# Judging


def _findings(check: PythonTests, records: list[Record], code: int | None) -> Iterator[Finding]:
    told: dict[str, Any] = {}
    for record in records:
        told |= record
    steps, complete = check.steps, "done" in told
    begun = {r["step"] for r in records if "step" in r}
    if not complete:
        yield _cause(check.asked, told, code, steps[told["step"]] if begun else None)
        begun.discard(told.get("step"))
    # Tests can end without having tested anything: all of them in a branch that is not taken.
    missed = not complete or not any(steps[number].test for number in begun)
    failures, unprepared = {r["failed"]: r for r in records if "failed" in r}, False
    for index, step in enumerate(steps):
        failure = failures.get(index)
        if failure and not (unprepared and failure["type"] in _NOT_THERE):
            unprepared = unprepared or not step.test
            yield _failure(check.asked, step, failure)
        elif failure or (missed and step.test and index not in begun):
            yield _finding(f"not run: `{step.source}`", "", step.source, 0.3)


def _finding(
    what: str, fix: str, key: str, severity: float = 0.5, trace: Sequence[str] = ()
) -> Finding:
    evidence = "\n".join(trace)[:1000]
    what, fix, key, evidence = (_safe(text) for text in (what, fix, key, evidence))
    return Finding(_NAME, what, fix, severity=severity, key=key, evidence=evidence)


def _safe(text: str) -> str:
    """Text that any store can hold and that is the same at the next run."""
    text = text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
    return re.sub(r"\b0x[0-9a-fA-F]{6,}\b", "0x…", text)


def _failure(asked: Record, step: Step, told: Record) -> Finding:
    source = told.get("source", step.source)
    if "sides" in told:
        # A literal reads as its value: it needs no telling.
        sides = {text: seen for text, seen in told["sides"].items() if text[:200] != seen[:200]}
        why = " and ".join(f"`{text}` is {seen}" for text, seen in sides.items())
        what = f"`{source}` fails: {why or told['message']}"
        fix = f"change the program so that this holds: {source.removeprefix('assert ')}"
    else:
        what = f"`{source}` raises {told['type']}: {told['message']}".rstrip(": ")
        fix = _fix(asked, told["type"])
    return _finding(what, fix, source, trace=told["trace"])


def _fix(asked: Record, kind: str) -> str:
    fix = _FIXES.get(kind, f"change the program so that {kind} is not raised here")
    return fix.replace("{memory_mb}", str(asked["memory_mb"]))


def _cause(asked: Record, told: Record, code: int | None, running: Step | None) -> Finding:
    """Why the tests did not run to their end."""
    if told.get("broken") == "syntax":
        what = f"the program is not valid Python: {told['message']}"
        fix = "answer with the Python program only, without words or ``` around it"
        return _finding(what, fix, "syntax", 0.9)
    if "broken" in told:
        what = f"the program raises {told['type']} before any test runs: {told['message']}"
        return _finding(what, _fix(asked, told["type"]), f"load {told['type']}", 0.9, told["trace"])
    if "missing" in told:
        defines = ", ".join(told["defines"]) or "no function"
        what = f"there is no function {told['missing']}; the program defines {defines}"
        fix = f"define {told['missing']} as a function at the top level"
        return _finding(what, fix, f"missing {told['missing']}", 0.9)
    during = f"while running `{running.source}`" if running else "before any test ran"
    if code in (None, -signal.SIGXCPU, -signal.SIGALRM):
        what = f"the program did not end within {asked['seconds']:g} s, {during}"
        fix = "look for a loop that does not end, or for work that grows too fast"
        return _finding(what, fix, "time-out", 0.9)
    # Killed by the system for want of memory, or by us because nothing could be heard from it.
    crashed = signal.Signals(-code).name if code < 0 and code != -signal.SIGKILL else ""
    what = f"the process of the program {f'crashed ({crashed})' if crashed else 'ended'} {during}"
    fix = "return the result: do not end the process (os._exit), recurse without end, close or "
    fix += f"write to files of others, or use more than {asked['memory_mb']} MiB of memory"
    return _finding(what, fix, f"crashed {crashed}" if crashed else "ended early", 0.9)
