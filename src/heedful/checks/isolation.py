"""The command of bubblewrap, where the system allows it.

Under bubblewrap (`bwrap` on PATH) a command has namespaces of its own. It has no
network and sees no other processes. It reads only the programs and libraries of the
system and Python with its packages, and writes only to its folder. When it ends, all
processes that it started end, too. bubblewrap needs user namespaces, which many
containers refuse, so one probe per process finds out whether it works.
"""

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

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
    "/etc/ssl",
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
