"""`python_tests`: the candidate is a Python program, and its tests say what is wrong with it.

The program runs in a process of its own with limits on time, memory, files, threads and processes.
That guards against slips, NOT against a hostile program: it has this user's rights, can read and
delete what the user can and reach the network. Run programs that nobody vouches for in a container.
"""

from __future__ import annotations

import json
import keyword
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from errata.checks.reading import flag, positive, read, whole, written
from errata.checks.steps import Plan, Step, split
from errata.errors import InvalidInput, UsageError
from errata.loop.record import Finding
from errata.protocols import Context

if TYPE_CHECKING:
    import subprocess

_NAME = "python_tests"
_CHILD = Path(__file__).with_name("_child.py")
_VERDICT = 1 << 22
"""Bytes that are read from a run; its records need far fewer."""
_OUT_OF_MEMORY = 86  # as in _child.py

_FIXES = {
    "EOFError": "do not read standard input: take arguments",
    "MemoryError": "use less memory",
    "ModuleNotFoundError": "import only modules that are there: the standard library",
    "NameError": "define or import every name that is used",
    "RecursionError": "end the recursion earlier, or use a loop",
    "SystemExit": "do not end the program: return the result",
}

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended: its records, its exit code (None: its time was up), all its bytes read."""

    records: tuple[Record, ...]
    code: int | None
    flooded: bool = False


@dataclass(frozen=True, slots=True)
class PythonTests:
    """The program passes its tests; made by `python_tests`."""

    tests: str
    entry_point: str | None = None
    seconds: float = 5.0
    memory_mb: int = 512
    file_mb: int = 16
    packages: bool = False
    threads: bool = False
    plan: Plan = field(init=False, repr=False, compare=False)
    name: str = field(default=_NAME, init=False)
    pure: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        written("tests", self.tests)
        entry = self.entry_point
        if entry is not None:
            name = written("entry_point", entry)
            if not name.isidentifier() or keyword.iskeyword(name):
                raise InvalidInput("entry_point", entry, "the name of a function")
        positive("seconds", self.seconds)
        whole("memory_mb", self.memory_mb, 64)
        whole("file_mb", self.file_mb, 1)
        flag("packages", self.packages)
        flag("threads", self.threads)
        if find_spec("resource") is None:
            raise UsageError("python_tests needs the limits of a POSIX system (module resource)")
        object.__setattr__(self, "plan", split(self.tests, entry))

    async def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        text, findings = read(_NAME, candidate)
        if text is None:
            return findings
        return findings + list(_findings(self, await _run(self, unfenced(text))))


def python_tests(
    tests: str,
    entry_point: str | None = None,
    seconds: float = 5.0,
    memory_mb: int = 512,
    file_mb: int = 16,
    packages: bool = False,
    threads: bool = False,
) -> PythonTests:
    """The candidate, a Python program, passes `tests`; a finding a statement of them that fails.

    `tests` is Python source that sees the program's names: assert statements, `test_*()` functions,
    or `check(candidate)`, which is called with the function named `entry_point`. One markdown fence
    around the program is taken off. With an `entry_point`, other built-in functions that the
    program redefines stay as they are for the tests. Limits of a run: `seconds` of wall time,
    `memory_mb` MiB of address space, `file_mb` MiB a file, 64 open files, no processes, and no
    threads unless `threads`. Its environment is empty, its working directory a temporary one, its
    output is discarded. Installed packages can be imported only with `packages`.

    A test that could not run any more is a finding too, so the fewest findings is the best program.
    This is no sandbox: a hostile program can do what the user can. Raises InvalidInput for tests
    that do not parse or would run nothing, UsageError on a system without POSIX limits; the check
    raises ChildProcessError where the process cannot be started or limited.
    """
    return PythonTests(tests, entry_point, seconds, memory_mb, file_mb, packages, threads)


def unfenced(text: str) -> str:
    """The text without one markdown fence around all of it."""
    lines = text.strip().split("\n")
    opened = re.match(r"(```+|~~~+)[^`~]*$", lines[0])
    if opened and len(lines) > 1 and lines[-1].strip() == opened[1]:
        return "\n".join(lines[1:-1]) + "\n"
    return text


# Running


async def _run(check: PythonTests, program: str) -> Ended:
    import asyncio
    import tempfile
    from secrets import token_hex

    nonce = token_hex(16)
    folder = tempfile.TemporaryDirectory(prefix="errata-", ignore_cleanup_errors=True)
    try:
        with tempfile.TemporaryFile() as payload:
            payload.write(json.dumps(_asked(check, program, nonce)).encode())
            payload.seek(0)
            process = _start(check, payload, folder.name)
        return await _watch(process, check.seconds, nonce)
    finally:
        # In a thread, and to its end: a program can leave many files.
        await asyncio.shield(asyncio.to_thread(folder.cleanup))


def _asked(check: PythonTests, program: str, nonce: str) -> dict[str, Any]:
    return {
        "nonce": nonce,
        "program": program,
        "tests": check.tests,
        "steps": [(step.group, step.code) for step in check.plan.steps],
        "entry_point": check.entry_point,
        "seconds": check.seconds,
        "memory_mb": check.memory_mb,
        "file_mb": check.file_mb,
        "threads": check.threads,
    }


def _start(check: PythonTests, payload: Any, folder: str) -> subprocess.Popen[bytes]:
    import subprocess

    # As isolated as -I, which would ignore the hash seed: the same program is to do the same again.
    flags = ["-s", "-P", "-B", "-X", "utf8", *([] if check.packages else ["-S"])]
    environment = {"PYTHONHASHSEED": "0"}
    if check.packages:
        # numpy's libraries start a thread for each processor unless told otherwise.
        environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *flags, str(_CHILD)],
        stdin=payload,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )


async def _watch(process: subprocess.Popen[bytes], seconds: float, nonce: str) -> Ended:
    """Reads the verdict; the process and its group are dead when this ends, however it ends."""
    import asyncio

    data = bytearray()
    timed_out = False
    try:
        async with asyncio.timeout(seconds):
            await _collect(process, data, f'\n{nonce} {{"ended"'.encode())
    except TimeoutError:
        timed_out = True
    finally:
        _kill(process)
    code = None if timed_out else process.returncode
    return Ended(tuple(_records(data, nonce)), code, len(data) >= _VERDICT)


async def _collect(process: subprocess.Popen[bytes], data: bytearray, end: bytes) -> None:
    import asyncio

    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), process.stdout
    )
    try:
        while len(data) < _VERDICT and data.find(end, max(0, len(data) - (1 << 17))) < 0:
            part = await reader.read(1 << 16)
            if not part:
                return
            data += part
    finally:
        transport.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    import os
    from contextlib import suppress

    # The group may outlive its first process, so it is killed even where that has ended.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _records(data: bytes | bytearray, nonce: str) -> Iterator[Record]:
    start = f"{nonce} ".encode()
    for line in bytes(data).split(b"\n"):
        if line.startswith(start):
            yield json.loads(line[len(start) :])


# Judging


def _findings(check: PythonTests, ended: Ended) -> Iterator[Finding]:
    told: dict[str, Any] = {}
    for record in ended.records:
        told |= record
    if "refused" in told:
        raise ChildProcessError(f"the system refuses to limit the tests: {told['refused']}")
    if "begun" not in told:
        raise ChildProcessError(f"the process for the tests did not start (exit {ended.code})")
    steps = check.plan.steps
    complete = told.get("done") == len(steps)
    running = steps[told["step"]] if "step" in told else None
    if not complete:
        yield _cause(check, ended, told, running)
    failures = [r for r in ended.records if "failed" in r]
    lost, unprepared = {r["failed"] for r in failures}, False
    for failure in failures:
        step = steps[failure["failed"]]
        if unprepared and failure["type"] == "NameError":
            yield _not_run(step)
            continue
        unprepared = unprepared or not step.test
        yield _failure(check, step, failure)
    first = told.get("step", 0)
    for number, step in enumerate(steps):
        if not complete and number >= first and number not in lost and step.test:
            yield _not_run(step)


def _finding(
    what: str, fix: str, key: str, severity: float = 0.5, trace: list[str] | None = None
) -> Finding:
    evidence = "\n".join(trace or ())[:1000]
    safe = [_safe(text) for text in (what, fix, key, evidence)]
    return Finding(_NAME, safe[0], safe[1], severity=severity, key=safe[2], evidence=safe[3])


def _safe(text: str) -> str:
    """Text that any store can hold and that is the same at the next run."""
    text = text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
    return re.sub(r"\b0x[0-9a-fA-F]{6,}\b", "0x…", text)


def _not_run(step: Step) -> Finding:
    return _finding(f"not run: `{step.source}`", "", step.source, 0.3)


def _failure(check: PythonTests, step: Step, told: Record) -> Finding:
    asserted = check.plan.asserted(told["line"], step.source)
    trace = told["trace"]
    if told["asserted"] and asserted:
        source = asserted.source
        kept = told.get("sides", {})
        sides = [f"`{text}` is {kept[name]}" for name, text in asserted.sides if name in kept]
        why = " and ".join(sides) or told["message"] or "it is false"
        fix = f"change the program so that this holds: {source.removeprefix('assert ')}"
        return _finding(f"`{source}` fails: {why}", fix, source, trace=trace)
    source = asserted.source if asserted else step.source
    what = f"`{source}` raises {told['type']}: {told['message']}".rstrip(": ")
    return _finding(what, _fix(check, told["type"]), source, trace=trace)


def _fix(check: PythonTests, kind: str) -> str:
    if kind == "MemoryError":
        return f"use less memory: {check.memory_mb} MiB are allowed"
    return _FIXES.get(kind, f"change the program so that {kind} is not raised here")


def _cause(check: PythonTests, ended: Ended, told: Record, running: Step | None) -> Finding:
    """Why the tests did not run to their end."""
    if told.get("broken") == "syntax":
        where = f"line {told['at']}: {told['text']!r}" if told.get("at") else told["type"]
        what = f"the program is not valid Python: {told['message']} ({where})"
        fix = "answer with the Python program only, without words or ``` around it"
        return _finding(what, fix, "syntax", 0.9)
    if "broken" in told:
        what = f"the program raises {told['type']} before any test runs: {told['message']}"
        return _finding(what, _fix(check, told["type"]), f"load {told['type']}", 0.9, told["trace"])
    if "missing" in told:
        defines = ", ".join(told["defines"]) or "no function"
        what = f"there is no function {told['missing']}; the program defines {defines}"
        fix = f"define {told['missing']} as a function at the top level"
        return _finding(what, fix, f"missing {told['missing']}", 0.9)
    during = f"while running `{running.source}`" if running else "before any test ran"
    return _stopped(check, ended, during)


def _stopped(check: PythonTests, ended: Ended, during: str) -> Finding:
    clock = (None, -signal.SIGXCPU, -signal.SIGALRM)
    if ended.flooded:
        what, key = f"the program wrote into a file that is not its own {during}", "flood"
        fix = "do not write to file descriptors that the program did not open"
    elif ended.code in clock:
        what, key = f"the program did not end within {check.seconds:g} s, {during}", "time-out"
        fix = "look for a loop that does not end, or for work that grows too fast"
    elif ended.code == _OUT_OF_MEMORY:
        what, key = f"the program ran out of memory {during}", "memory"
        fix = f"use less memory: {check.memory_mb} MiB are allowed"
    elif ended.code == -signal.SIGKILL:
        # By the system for want of memory, or by us because nothing could be heard from it.
        what, key = f"the program was killed or closed what its tests write to {during}", "killed"
        fix = "use less memory, and close no file descriptor that the program did not open"
    elif (ended.code or 0) < 0:
        kind = signal.Signals(-(ended.code or 0)).name
        what, key = f"the program crashed ({kind}) {during}", f"crashed {kind}"
        fix = "recurse less deep, and leave the interpreter's memory alone (ctypes)"
    else:
        what, key = f"the program ended itself (exit {ended.code}) {during}", "ended early"
        fix = "do not end the program (os._exit): return the result"
    return _finding(what, fix, key, 0.9)
