"""Runs a program and its tests under limits. Started as a process of its own, never imported.

It reads one JSON object from standard input (see `errata.checks.program`) and writes records to
what was its standard output, each a line of its own that begins with the nonce of this run.
Whatever the program does with file descriptors 0 to 2 ends in the null device.
"""

from __future__ import annotations

import _thread
import base64
import builtins
import fcntl
import json
import linecache
import marshal
import os
import reprlib
import resource
import signal
import sys
import types
from collections.abc import Callable
from typing import Any

PROGRAM, TESTS = "program.py", "tests.py"
STARTS = (
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.system",
    "pty.spawn",
)

OUT_OF_MEMORY = 86

# The program may replace what is in `builtins`; the functions below keep what is there now.
globals()["__builtins__"] = dict(vars(builtins))

Record = Callable[..., None]


def limit(asked: dict[str, Any]) -> None:
    """Sets the limits of this process; raises OSError or ValueError where the system refuses."""
    mb, cpu = 1 << 20, int(asked["seconds"]) + 2
    limits = {
        resource.RLIMIT_CPU: cpu,
        resource.RLIMIT_FSIZE: asked["file_mb"] * mb,
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_CORE: 0,
    }
    if sys.platform != "darwin":  # where the address space cannot be limited
        limits[resource.RLIMIT_AS] = asked["memory_mb"] * mb
    if not asked["threads"]:
        limits[resource.RLIMIT_NPROC] = 0
    for kind, value in limits.items():
        hard = resource.getrlimit(kind)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (most, most))
    # Should the parent die, nobody is left to watch the clock.
    signal.alarm(cpu)


def refuse_processes() -> None:
    """Refuses to start processes: the limit on their number does not bind a superuser."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in STARTS or event == "subprocess.Popen":
            raise PermissionError(f"the program may not start processes here ({event})")
        if event in ("os.kill", "os.killpg"):
            raise PermissionError("the program may not send signals here")

    sys.addaudithook(hook)


def refuse_threads() -> None:
    """Refuses to start threads, which the limit on processes does not do for a superuser either."""

    def refuse(*args: Any, **named: Any) -> None:
        raise PermissionError("the program may not start threads here")

    for name in ("start_new_thread", "start_new", "start_joinable_thread"):
        for module, attribute in ((_thread, name), (sys.modules.get("threading"), f"_{name}")):
            if hasattr(module, attribute):
                setattr(module, attribute, refuse)


def recorder(nonce: str) -> Record:
    """Takes over standard output and answers with the function that writes a record to it."""
    out = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 40)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    # Taken now, so that a program that replaces one of them cannot change what is written.
    write, dumps = os.write, json.dumps

    def record(**fields: Any) -> None:
        line = f"\n{nonce} {dumps(fields)}\n".encode()
        while line:
            line = line[write(out, line) :]

    return record


def shower() -> Callable[[object], str]:
    """`repr` in a length that is bounded, for values whose own `__repr__` may be broken."""
    short = reprlib.Repr()
    short.maxlevel, short.maxstring, short.maxother, short.maxlong = 4, 160, 160, 160
    short.maxlist = short.maxtuple = short.maxdict = short.maxset = short.maxfrozenset = 12
    return short.repr


def describe(error: BaseException, shown: Callable[[object], str]) -> dict[str, Any]:
    """What a person needs to know of an exception, in bounded length."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file in (PROGRAM, TESTS):
            frames.append((file, trace.tb_lineno, trace.tb_frame))
        trace = trace.tb_next
    asserted = bool(frames) and frames[-1][0] == TESTS and isinstance(error, AssertionError)
    told: dict[str, Any] = {"type": type(error).__name__, "asserted": asserted}
    if isinstance(error, SyntaxError):
        told |= {"at": error.lineno, "text": (error.text or "").strip()[:120]}
        told["message"] = str(error.msg)[:300]
    else:
        told["message"] = said(error)[:300]
    if frames and asserted:
        seen = frames[-1][2].f_locals
        told["sides"] = {k: shown(seen[k]) for k in ("@left", "@right") if k in seen}
    told["line"] = next((line for file, line, _ in reversed(frames) if file == TESTS), 0)
    told["trace"] = [
        f"{file}:{line} in {frame.f_code.co_name}: {linecache.getline(file, line).strip()[:120]}"
        for file, line, frame in frames[-4:]
    ]
    return told


def said(error: BaseException) -> str:
    """The message of an exception, whose `__str__` may be broken itself."""
    try:
        return str(error)
    except BaseException as worse:  # user code
        return f"(its message cannot be shown: {type(worse).__name__})"


def remember_source(file: str, text: str) -> None:
    """Lets tracebacks quote a text that is no file."""
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)


def load(source: str, record: Record, shown: Callable[[object], str]) -> dict[str, Any] | None:
    """The names that the program defines; None where it cannot be compiled or run."""
    module = types.ModuleType("program")
    sys.modules["program"] = module
    names = vars(module)
    broken = "syntax"
    try:
        code = compile(source, PROGRAM, "exec", dont_inherit=True)
        broken = "load"
        exec(code, names)
    except BaseException as error:  # user code
        record(broken=broken, **describe(error, shown))
        return None
    return names


def visible(names: dict[str, Any], entry: str | None, fresh: dict[str, Any]) -> dict[str, Any]:
    """What the tests see of the program: its names, but its own `len` only where that is tested."""
    hidden = set(fresh) - {entry} if entry else set()
    space = {k: v for k, v in names.items() if not k.startswith("__") and k not in hidden}
    space |= {"__name__": "__main__", "__builtins__": fresh}
    if entry:
        space["candidate"] = names[entry]
    return space


def run_steps(
    steps: list[tuple[int, Any]],
    space: dict[str, Any],
    record: Record,
    shown: Callable[[object], str],
) -> None:
    """Runs step after step, each in the namespace of its group, and records how each ended."""
    spaces = {0: space}
    for number, (group, code) in enumerate(steps):
        if group not in spaces:
            spaces[group] = dict(space)
        record(step=number)
        try:
            exec(code, spaces[group])
        except BaseException as error:  # user code
            record(failed=number, **describe(error, shown))
            del error


def main() -> None:
    """One run from payload to verdict; ends the process without running what the program left."""
    asked = json.load(sys.stdin)
    record = recorder(asked["nonce"])
    shown = shower()
    end = os._exit
    remember_source(PROGRAM, asked["program"])
    remember_source(TESTS, asked["tests"])
    steps = [(group, marshal.loads(base64.b64decode(code))) for group, code in asked["steps"]]
    fresh, entry = dict(vars(builtins)), asked["entry_point"]
    os.environ.clear()
    try:
        limit(asked)
    except (OSError, ValueError) as error:
        record(refused=str(error))
        end(0)
    refuse_processes()
    if not asked["threads"]:
        refuse_threads()
    record(begun=True)
    names = load(asked["program"], record, shown)
    if names is not None:
        if entry and not callable(names.get(entry)):
            functions = [k for k, v in names.items() if isinstance(v, types.FunctionType)]
            record(missing=entry, defines=functions[:12])
        else:
            run_steps(steps, visible(names, entry, fresh), record, shown)
            record(done=len(steps))
    record(ended=True)
    end(0)


if __name__ == "__main__":
    try:
        main()
    except MemoryError:  # too little is left to tell what failed
        os._exit(OUT_OF_MEMORY)
