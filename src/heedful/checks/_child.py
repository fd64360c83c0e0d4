"""Run a program and its tests under limits; `program` starts this as a process.

The process reads one marshalled dict from standard input and writes records to standard
output. A record is a line with the nonce of this run and a JSON object. Before the
program runs, the null device replaces file descriptors 0 to 2: the program reads no
input, and its output is discarded.

Two rules hold here, whether or not the process runs under bubblewrap. The kernel limits
time, memory and files. An audit hook of Python refuses to start or signal processes, to
use the network, and to change files outside the working directory; it stops a faulty
program, not one that calls the kernel past Python.
"""

import builtins
import fcntl
import importlib.util
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

PROGRAM_FILE = "program.py"
TESTS_FILE = "tests.py"
MAX_FILE_BYTES = 16 << 20
MAX_OPEN_FILES = 64
# The parent redacts these texts, and then cuts them: a cut secret is not recognised.
MAX_VALUE_CHARS = 5_000
MAX_LINE_CHARS = 5_000
MAX_FRAMES = 4

# Beginnings of the names of audit events.
PROCESS_EVENTS = (
    "os.exec",
    "os.fork",
    "os.kill",
    "os.posix_spawn",
    "os.spawn",
    "os.system",
    "pty.spawn",
    "subprocess.",
)
# Commands that name a process to be signalled. Python has no name for the second of
# fcntl, F_SETOWN_EX, and for those of ioctl, FIOSETOWN and SIOCSPGRP.
SIGNALLED_COMMANDS = {
    "fcntl.fcntl": frozenset((fcntl.F_SETOWN, 15)),
    "fcntl.ioctl": frozenset((0x8901, 0x8902)),
}
# `AF_UNIX` on each system that has `resource`. A socket of any other family is one of a
# network, and no audit event announces that it listens.
UNIX_SOCKET_FAMILY = 1
NETWORK_EVENTS = (
    "socket.bind",
    "socket.connect",
    "socket.getaddrinfo",
    "socket.gethostby",
    "socket.getnameinfo",
    "socket.sendmsg",
    "socket.sendto",
)
# Audit events that change files. Of each of its paths: where the arguments have it, and
# where they have the descriptor of the folder from which it leads, None if nowhere.
CHANGE_EVENTS: dict[str, tuple[tuple[int, int | None], ...]] = {
    "os.chflags": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.link": ((0, 2), (1, 3)),
    "os.mkdir": ((0, 2),),
    "os.remove": ((0, 1),),
    "os.removexattr": ((0, None),),
    "os.rename": ((0, 2), (1, 3)),
    "os.rmdir": ((0, 1),),
    "os.setxattr": ((0, None),),
    "os.symlink": ((0, None), (1, 2)),
    "os.truncate": ((0, None),),
    "os.utime": ((0, 3),),
    "shutil.rmtree": ((0, None),),
    "sqlite3.connect": ((0, None),),
}
# Events that act only on descriptors with which the program may write.
WRITABLE_EVENTS = ("open", "os.truncate")
# Starts programs for `multiprocessing`.
STARTING_MODULE = "_posixsubprocess"
# Functions that change what is outside, and that no audit event announces.
UNHEARD_OS_FUNCTIONS = (
    "mkfifo",
    "mknod",
    "sched_setaffinity",
    "sched_setparam",
    "sched_setscheduler",
    "setpriority",
)
UNHEARD_FUNCTIONS = {
    STARTING_MODULE: ("fork_exec",),
    "_posixshmem": ("shm_open", "shm_unlink"),
    "os": UNHEARD_OS_FUNCTIONS,
    "posix": UNHEARD_OS_FUNCTIONS,
    "signal": ("pidfd_send_signal",),
    "_signal": ("pidfd_send_signal",),
}
# Modules that write files unheard. Programs know that some systems lack them.
UNHEARD_MODULES = ("_dbm", "_gdbm", "readline")
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

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
        "FSIZE": MAX_FILE_BYTES,
        "NOFILE": MAX_OPEN_FILES,
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


def audit_hook(folder: str) -> Callable[[str, tuple[Any, ...]], None]:
    """Return a hook that refuses processes, networks and changes outside `folder`."""
    # A local name, because the program may replace functions of this module.
    refuse_change = change_hook(folder)
    own_ids = (0, os.getpid())

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        is_start = event == "import" and arguments[0] == STARTING_MODULE
        is_limit = event == "resource.prlimit" and arguments[0] not in own_ids
        commands = SIGNALLED_COMMANDS.get(event)
        is_signal = commands is not None and arguments[1] in commands
        if is_start or is_limit or is_signal or event.startswith(PROCESS_EVENTS):
            raise PermissionError(
                f"the program may not start, signal or limit processes here ({event})"
            )
        is_socket = event == "socket.__new__" and arguments[1] != UNIX_SOCKET_FAMILY
        if is_socket or event.startswith(NETWORK_EVENTS):
            raise PermissionError(f"the program may not use the network here ({event})")
        refuse_change(event, arguments)

    return refuse


def path_of(descriptor: int) -> str:
    """Return the path of an open file or folder."""
    if sys.platform == "darwin":
        path = fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024))
        return os.fsdecode(path.rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{descriptor}")


def change_hook(folder: str) -> Callable[[str, tuple[Any, ...]], None]:
    """Return a hook that refuses changes outside `folder`."""
    # Local names, because the program may replace these functions.
    real = os.path.realpath
    join = os.path.join
    decode = os.fsdecode
    find_path = path_of
    find_changed = changed_paths
    inside = folder + os.sep
    writable = (folder, os.devnull)

    def is_outside(path: object, descriptor: int | None) -> bool:
        if isinstance(path, int):
            name = find_path(path)
        elif isinstance(path, str | bytes | os.PathLike):
            name = decode(path)
        else:
            return False

        if descriptor is not None and descriptor != -1:
            name = join(find_path(descriptor), name)
        target = real(name)
        return target not in writable and not target.startswith(inside)

    def refuse_change(event: str, arguments: tuple[Any, ...]) -> None:
        if event in WRITABLE_EVENTS and isinstance(arguments[0], int):
            return

        paths = find_changed(event, arguments)
        if any(is_outside(path, descriptor) for path, descriptor in paths):
            raise PermissionError(
                f"the program may change files only in its own folder ({event})"
            )

    return refuse_change


def changed_paths(
    event: str, arguments: tuple[Any, ...]
) -> list[tuple[object, int | None]]:
    """Return the paths that an event changes.

    With each of them, returns the descriptor of the folder from which it leads, None or
    -1 if that is the working directory.
    """
    if event == "open":
        path, mode, flags = arguments
        # Only `os.open` gives no mode. It may be given a folder.
        if flags & WRITE_FLAGS or (mode is None and os.path.isdir(path)):
            return [(path, None)]
        return []

    if event == "sqlite3.connect" and str(arguments[0]).startswith("file:"):
        # An address: its options may name another file.
        return [(os.sep, None)]

    paths: list[tuple[object, int | None]] = []
    for place, folder_place in CHANGE_EVENTS.get(event, ()):
        descriptor = None if folder_place is None else arguments[folder_place]
        paths.append((arguments[place], descriptor))
    return paths


def refuse_unheard() -> None:
    """Take away what no audit event announces, or not all of it."""
    for module_name in UNHEARD_MODULES:
        sys.modules[module_name] = None  # type: ignore[assignment]

    for module_name, names in UNHEARD_FUNCTIONS.items():
        # Not every system has all of them.
        if importlib.util.find_spec(module_name) is None:
            continue
        module = importlib.import_module(module_name)
        for name in names:
            if hasattr(module, name):
                setattr(module, name, refused(f"{module_name}.{name}"))

    posix: Any = importlib.import_module("posix")
    os.open = posix.open = whole_path_open(os.open)


def refused(name: str) -> Callable[..., None]:
    """Return a function that refuses calls, in place of the function `name`."""

    def refuse(*arguments: object, **named: object) -> None:
        raise PermissionError(f"the program may not call {name} here")

    return refuse


def whole_path_open(open_file: Callable[..., int]) -> Callable[..., int]:
    """Return `os.open`, but with the whole path in its audit event.

    The event has no argument for the folder from which a path leads.
    """
    join = os.path.join
    decode = os.fsdecode
    find_path = path_of

    def open_whole_path(
        path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        if dir_fd is not None:
            path = join(find_path(dir_fd), decode(path))
        return open_file(path, flags, mode)

    return open_whole_path


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
    if len(text) > MAX_VALUE_CHARS:
        text = f"{text[: MAX_VALUE_CHARS - 1]}…"
    return str(text)


def describe(error: BaseException) -> dict[str, Any]:
    """Return the type, message and last frames of an exception.

    The key `own` is True if an assert statement of the tests raised the exception.
    """
    message = show_value(error, str)
    if isinstance(error, SyntaxError):
        line = (error.text or "").strip()[:MAX_LINE_CHARS]
        message = f"{error.msg} (line {error.lineno}: {line!r})"

    traceback = error.__traceback__
    if traceback is not None:
        traceback = traceback.tb_next  # the first frame is that of this module
    files = (PROGRAM_FILE, TESTS_FILE)
    frames = [frame for frame in extract_tb(traceback) if frame.filename in files]

    trace = []
    for frame in frames[-MAX_FRAMES:]:
        line = (frame.line or "")[:MAX_LINE_CHARS]
        trace.append(f"{frame.filename}:{frame.lineno} in {frame.name}: {line}")

    by_tests = bool(frames) and frames[-1].filename == TESTS_FILE
    return {
        "type": type(error).__name__,
        "message": message,
        "trace": trace,
        "own": by_tests and isinstance(error, AssertionError),
    }


def load(program: str, record: Record) -> dict[str, Any] | None:
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


def run(request: dict[str, Any], record: Record) -> None:
    """Load the program and run each step of the tests; record what happens."""
    sources = {PROGRAM_FILE: request["program"], TESTS_FILE: request["tests"]}
    for file, text in sources.items():
        # Tracebacks quote these lines.
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)

    original_builtins = dict(vars(builtins))
    names = load(request["program"], record)
    if names is None:
        return

    # A program without the entry point fails, even if it is a built-in function.
    original_builtins.pop(request["entry_point"], None)
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
    refuse_unheard()
    sys.addaudithook(audit_hook(os.getcwd()))
    record(begun=True)
    try:
        run(request, record)
    finally:
        end(0)


if __name__ == "__main__":
    main()
