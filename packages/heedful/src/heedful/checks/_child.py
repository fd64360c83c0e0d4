"""Run a program and its tests under limits; `program` starts this as a process.

The process reads one marshalled dict from standard input and writes records to standard
output. A record is a line with the nonce of this run and a JSON object. Before the
program runs, the null device replaces file descriptors 0 to 2: the program reads no
input, and its output is discarded.

The kernel limits time, memory and files, whether or not the process runs under
bubblewrap.
"""

import builtins
import fcntl
import json
import linecache
import marshal
import os
import resource
import signal
import sys
import types
from collections.abc import Callable
from traceback import extract_tb
from typing import Any

from heedful.validation import Document

PROGRAM_FILE = "program.py"
TESTS_FILE = "tests.py"
# The parent redacts texts, and then cuts them: a cut secret is not recognised.
MAX_TEXT_CHARS = 5_000

# The program may replace functions in `builtins`; this module keeps the originals.
globals()["__builtins__"] = dict(vars(builtins))

Record = Callable[..., None]  # writes its keyword arguments as a record


def limit(seconds: float, memory_mb: float) -> None:
    """Limit the resources of this process.

    Raises OSError or ValueError if the system refuses.
    """
    cpu_seconds = int(seconds) + 2
    hard_limits = {
        "CPU": cpu_seconds + 1,
        "FSIZE": 16 << 20,
        "NOFILE": 64,
        "CORE": 0,
    }
    if sys.platform != "darwin":  # macOS cannot limit the address space
        hard_limits["AS"] = int(memory_mb * (1 << 20))

    for name, hard in hard_limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        system_limit = resource.getrlimit(kind)[1]
        if system_limit != resource.RLIM_INFINITY:
            hard = min(hard, system_limit)
        # After the soft limit of CPU time comes SIGXCPU; after the hard limit, SIGKILL.
        soft = min(hard, cpu_seconds) if name == "CPU" else hard
        resource.setrlimit(kind, (soft, hard))

    # If the parent dies, nothing else ends a process that only waits.
    signal.alarm(cpu_seconds)


def recorder(nonce: str) -> Record:
    """Return a function that writes records to the output; discard all other output."""
    # The output moves to a file descriptor of at least 40, where the program does not
    # look.
    output = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 40)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)

    # Local names, because the program may replace these functions.
    write = os.write
    dumps = json.dumps

    def record(**fields: Any) -> None:
        line = f"\n{nonce} {dumps(fields)}\n".encode()
        while line:
            written_bytes = write(output, line)
            line = line[written_bytes:]

    return record


def attempt(
    act: Callable[..., Any], *arguments: Any
) -> tuple[Any, BaseException | None]:
    """Call code of the program; return its value and None, or None and its error."""
    try:
        return act(*arguments), None
    except BaseException as error:  # user code; SystemExit, too, must become a record
        return None, error


def show_value(value: object, show: Callable[[object], str] = repr) -> str:
    """Return `show(value)` in bounded length, or a note if `show` raises."""
    text, error = attempt(show, value)
    if error is not None:
        text = f"(cannot be shown: {type(error).__name__})"
    if len(text) > MAX_TEXT_CHARS:
        text = f"{text[: MAX_TEXT_CHARS - 1]}…"
    return str(text)


def describe(error: BaseException) -> Document:
    """Return the type, message and last frames of an exception.

    The key `own` is True if an assert statement of the tests raised the exception.
    """
    message = show_value(error, str)
    if isinstance(error, SyntaxError):
        line = (error.text or "").strip()[:MAX_TEXT_CHARS]
        message = f"{error.msg} (line {error.lineno}: {line!r})"

    traceback = error.__traceback__
    if traceback is not None:
        traceback = traceback.tb_next  # the first frame is that of this module
    files = (PROGRAM_FILE, TESTS_FILE)
    frames = [frame for frame in extract_tb(traceback) if frame.filename in files]

    trace = []
    for frame in frames[-4:]:
        line = (frame.line or "")[:MAX_TEXT_CHARS]
        trace.append(f"{frame.filename}:{frame.lineno} in {frame.name}: {line}")

    by_tests = bool(frames) and frames[-1].filename == TESTS_FILE
    return {
        "type": type(error).__name__,
        "message": message,
        "trace": trace,
        "own": by_tests and isinstance(error, AssertionError),
    }


def load(program: str, record: Record) -> Document | None:
    """Run the program and return its names, or record why it failed and return None."""
    module = types.ModuleType("program")
    sys.modules["program"] = module
    names = vars(module)

    stage = "syntax"
    # Without flags, and without the __future__ imports of this module.
    code, error = attempt(compile, program, PROGRAM_FILE, "exec", 0, True)
    if error is None:
        stage = "load"
        _, error = attempt(exec, code, names)
    if error is not None:
        record(broken=stage, **describe(error))
        return None

    return {name: value for name, value in names.items() if not name.startswith("__")}


def run(request: Document, record: Record) -> None:
    """Load the program and run each step of the tests; record what happens."""
    sources = {PROGRAM_FILE: request["program"], TESTS_FILE: request["tests"]}
    for file, text in sources.items():
        # Tracebacks quote these lines.
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)

    original_builtins = dict(vars(builtins))
    names = load(request["program"], record)
    if names is None:
        return

    names |= {"__name__": "__main__", "__builtins__": original_builtins}
    # Scope 0 has the names of the tests; each test function has a copy of its own.
    namespaces = {0: names}
    for number, (code, scope, sides_count) in enumerate(request["steps"]):
        if scope not in namespaces:
            namespaces[scope] = dict(names)
        namespace = namespaces[scope]
        side_names = [f"@{n}" for n in range(sides_count)]
        namespace |= dict.fromkeys(side_names)

        record(step=number)
        _, error = attempt(exec, code, namespace)
        if error is not None:
            sides = [show_value(namespace[name]) for name in side_names]
            record(failed=number, sides=sides, **describe(error))
    record(done=True)


def main() -> None:
    """Run one request; then end the process without the program's exit handlers."""
    request = marshal.load(sys.stdin.buffer)
    end = os._exit
    os.environ.clear()
    limit(request["seconds"], request["memory_mb"])
    record = recorder(request["nonce"])
    record(begun=True)
    try:
        run(request, record)
    finally:
        end(0)


if __name__ == "__main__":
    main()
