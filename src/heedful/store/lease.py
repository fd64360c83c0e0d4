"""Who drives a loop: a token that tells whether its process still lives."""

from __future__ import annotations

import os
import socket
from functools import cache

LEASE_SECONDS = 30.0
_active: set[str] = set()


def new_owner() -> str:
    """A token for one driver in this process: host, process, its start, and a nonce."""
    return f"{_host()}|{os.getpid()}|{_started(os.getpid())}|{os.urandom(6).hex()}"


def enter(owner: str) -> None:
    """Mark the owner as at work."""
    _active.add(owner)


def leave(owner: str) -> None:
    """The owner is no longer at work; its loops may be taken over by this process."""
    _active.discard(owner)


def alive(owner: str, lease: float, now: float) -> bool:
    """Whether the owner may still be at work.

    The lease ends at `lease` (seconds since 1970). On this host a process that is gone ends it at
    once, and within this process whoever is not at work has let go.
    """
    host, _, rest = owner.partition("|")
    if host != _host():
        return bool(owner) and now < lease
    pid, started, _ = rest.split("|", 2)
    if int(pid) == os.getpid():
        return owner in _active
    return now < lease and _running(int(pid)) and _started(int(pid)) == started


@cache
def _host() -> str:
    """The host and, where there are any, the container's own process numbers."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return f"{socket.gethostname()}{space}"


def _running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _started(pid: int) -> str:
    """When the process started, in clock ticks since boot (proc(5), field 22); "" where unknown."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            stat = file.read()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]
