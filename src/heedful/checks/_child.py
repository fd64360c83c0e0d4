"""Run a program and its tests under limits; `heedful.checks.program` starts this as a
process.

The process reads one marshalled dict from standard input and writes records to standard
output. A record is a line with the nonce of this run and a JSON object. Before the
program runs, the null device replaces file descriptors 0 to 2: the program reads no
input, and its output is discarded.
"""

import builtins
import fcntl
import json
import linecache
import marshal
import os
import resource
import signal
import struct
import sys
import types
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from traceback import extract_tb
from typing import Any

PROGRAM_FILE = "program.py"
TESTS_FILE = "tests.py"
REFUSED_AUDIT_EVENTS = tuple(
    "os.exec os.fork os.kill os.posix_spawn os.spawn os.system pty.spawn subprocess.".split()
)
# System calls by machine: its number in a filter, `clone`, and the calls that start
# programs, open sockets, queue calls past the filter, or reach into the memory of other
# processes.
SYSTEM_CALLS = {
    "x86_64": (0xC000003E, 56, (41, 57, 58, 59, 101, 310, 311, 322, 425)),
    "aarch64": (0xC00000B7, 220, (117, 198, 221, 270, 271, 281, 425)),
}
READABLE_PATHS = (
    "/usr /bin /lib /lib64 /opt /nix/store /etc/ld.so.cache /etc/localtime "
    "/etc/passwd /etc/ssl "
    "/etc/group /proc/self /proc/cpuinfo /proc/meminfo /sys/devices/system/cpu "
    "/dev/urandom"
).split()

# The program may replace functions in `builtins`; this module keeps the originals.
globals()["__builtins__"] = dict(vars(builtins))

Record = Callable[..., None]


def limit(seconds: float, memory_mb: float) -> None:
    """Limit the resources of this process. Raises OSError or ValueError if the system
    refuses.
    """
    cpu = int(seconds) + 2
    limits = {"CPU": cpu + 1, "FSIZE": 16 << 20, "NOFILE": 64, "CORE": 0}
    if sys.platform != "darwin":  # macOS cannot limit the address space
        limits["AS"] = int(memory_mb * (1 << 20))
    for name, value in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # After the soft limit of CPU time comes SIGXCPU; after the hard limit, SIGKILL.
        resource.setrlimit(kind, (min(most, cpu) if name == "CPU" else most, most))
    signal.alarm(cpu)  # if the parent dies, nothing else ends this process


def refuse(event: str, args: tuple[Any, ...]) -> None:
    """Raise PermissionError if the program starts or signals a process."""
    if event.startswith(REFUSED_AUDIT_EVENTS):
        raise PermissionError(
            f"the program may not start or signal processes here ({event})"
        )


def confine() -> None:
    """Refuse files of others, sockets and processes, as far as this system and its
    kernel can.
    """
    if sys.platform != "linux" or find_spec("_ctypes") is None:
        return
    from ctypes import CDLL, addressof, create_string_buffer

    libc = CDLL(None)
    machine = os.uname().machine
    libc.prctl(
        38, 1, 0, 0, 0
    )  # a process without new privileges (sudo) may restrict itself
    if (version := libc.syscall(444, None, 0, 1)) > 0:  # Landlock
        every = (1 << 13 + (version > 1) + (version > 2) + (version > 4)) - 1
        refused = struct.pack("QQQ", every, 3 * (version > 3), 3 * (version > 5))
        rules = libc.syscall(444, refused, len(refused), 0)
        paths = dict.fromkeys(
            (*READABLE_PATHS, sys.prefix, sys.base_prefix, *sys.path), 0b1101
        )
        for path, use in (paths | {os.devnull: 0b0110, ".": every}).items():
            with suppress(OSError):  # no system has all of them
                fd = os.open(path, os.O_PATH)
                use &= every if os.path.isdir(path) else 0b0111
                libc.syscall(445, rules, 1, struct.pack("=Qi", use, fd), 0)
                os.close(fd)
        libc.syscall(446, rules, 0)
    if (
        machine in SYSTEM_CALLS and sys.maxsize > 1 << 32
    ):  # seccomp: code, jumps if true and not, operand
        (number, clone, calls) = SYSTEM_CALLS[machine]
        refuse = (0x06, 0, 0, 0x50001)
        steps = [(0x20, 0, 0, 4), (0x15, 1, 0, number), refuse, (0x20, 0, 0, 0)]
        for code, call in ((0x35, 1 << 30), *((0x15, call) for call in calls)):
            steps += [(code, 0, 1, call), refuse]
        steps += [
            (0x15, 0, 1, 435),
            (0x06, 0, 0, 0x50026),
        ]  # no clone3: libraries then use clone,
        steps += [
            (0x15, 0, 3, clone),
            (0x20, 0, 0, 16),
            (0x45, 1, 0, 1 << 16),
            refuse,
        ]  # a thread
        steps += [(0x06, 0, 0, 0x7FFF0000)]
        held = create_string_buffer(
            b"".join(struct.pack("HBBI", *step) for step in steps)
        )
        libc.prctl(22, 2, struct.pack("HP", len(steps), addressof(held)), 0, 0)


def recorder(nonce: str) -> Record:
    """Return a function that writes records to standard output, and discard all other
    output.
    """
    out = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 40)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    # Local names, because the program may replace these functions.
    write = os.write
    dumps = json.dumps

    def record(**fields: Any) -> None:
        line = f"\n{nonce} {dumps(fields)}\n".encode()
        while line:
            line = line[write(out, line) :]

    return record


def attempt(
    act: Callable[..., Any], *arguments: Any
) -> tuple[Any, BaseException | None]:
    """Call code of the program; return its value, and what it raised."""
    try:
        return act(*arguments), None
    except BaseException as error:  # user code
        return None, error


def show_value(value: object, show: Callable[[object], str] = repr) -> str:
    """Return `show(value)` in at most 300 characters, or a note if `show` raises."""
    text, error = attempt(show, value)
    text = text if error is None else f"(cannot be shown: {type(error).__name__})"
    return text if len(text) <= 300 else f"{text[:299]}…"


def describe(error: BaseException) -> dict[str, Any]:
    """Return the type, message and last frames of an exception.

    The key `own` is True if an assert statement of the tests raised the exception.
    """
    inner = (
        error.__traceback__ and error.__traceback__.tb_next
    )  # not the frame of this module
    frames = [f for f in extract_tb(inner) if f.filename in (PROGRAM_FILE, TESTS_FILE)]
    message = show_value(error, str)
    if isinstance(error, SyntaxError):
        line = (error.text or "").strip()[:120]
        message = f"{error.msg} (line {error.lineno}: {line!r})"
    trace = [
        f"{f.filename}:{f.lineno} in {f.name}: {(f.line or '')[:120]}"
        for f in frames[-4:]
    ]
    own = (
        isinstance(error, AssertionError)
        and bool(frames)
        and frames[-1].filename == TESTS_FILE
    )
    return {
        "type": type(error).__name__,
        "message": message,
        "trace": trace,
        "own": own,
    }


def run(asked: dict[str, Any], record: Record) -> None:
    """Load the program, run each step of the tests in its namespace, and record what
    happens.
    """
    for file, text in ((PROGRAM_FILE, asked["program"]), (TESTS_FILE, asked["tests"])):
        # Tracebacks quote these lines.
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    fresh = dict(vars(builtins))
    entry = asked["entry_point"]
    module = sys.modules["program"] = types.ModuleType("program")
    names = vars(module)
    broken = "syntax"
    code, error = attempt(compile, asked["program"], PROGRAM_FILE, "exec", 0, True)
    if error is None:
        broken = "load"
        (_, error) = attempt(exec, code, names)
    if error is not None:
        return record(broken=broken, **describe(error))
    fresh.pop(
        entry, None
    )  # a program without the entry point fails, even if it is a built-in
    names = {name: value for name, value in names.items() if not name.startswith("__")}
    scopes = {0: names | {"__name__": "__main__", "__builtins__": fresh}}
    for number, (code, scope, sides) in enumerate(asked["steps"]):
        space = (
            scopes[scope]
            if scope in scopes
            else scopes.setdefault(scope, dict(scopes[0]))
        )
        kept = [f"@{place}" for place in range(sides)]
        space |= dict.fromkeys(kept)
        record(step=number)
        _, error = attempt(exec, code, space)
        if error is not None:
            shown = [show_value(space[name]) for name in kept]
            record(failed=number, sides=shown, **describe(error))
    return record(done=True)


def main() -> None:
    """Read and run one request; then end the process without the program's exit
    handlers.
    """
    asked = marshal.load(sys.stdin.buffer)
    end = os._exit
    os.environ.clear()
    limit(asked["seconds"], asked["memory_mb"])
    record = recorder(asked["nonce"])
    confine()
    sys.addaudithook(refuse)
    record(begun=True)
    try:
        run(asked, record)
    finally:
        end(0)


if __name__ == "__main__":
    main()
