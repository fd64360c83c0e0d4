"""A PgBouncer of Debian's package before a PostgreSQL of the tests."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.postgres import FOLDERS, OWNER, SERVICE, Server

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
NEEDS_POOLER = pytest.mark.skipif(
    PROGRAM is None, reason="pgbouncer is not installed: apt-get install pgbouncer"
)
SETTINGS = """
[databases]
* = host={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = {mode}
logfile = {folder}/log
max_client_conn = 300
default_pool_size = 60
{more}
"""
READY_SECONDS = 30.0


@contextmanager
def pooled(server: Server, mode: str, *more: str) -> Iterator[str]:
    """Run PgBouncer in this mode; yield its URL without a database: add `/name`.

    `more` are lines of its settings.
    """
    assert PROGRAM is not None
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="heedful-pooler-", dir=FOLDERS))
    folder.chmod(0o777)  # the program does not run as root
    names = "".join(f'"{name}" ""\n' for name in (SERVICE, OWNER, "postgres"))
    (folder / "users").write_text(names, encoding="utf-8")
    text = SETTINGS.format(
        server=server.socket_folder,
        port=port,
        folder=folder,
        mode=mode,
        more="\n".join(more),
    )
    (folder / "ini").write_text(text, encoding="utf-8")
    process = subprocess.Popen(
        [PROGRAM, "--quiet", str(folder / "ini")],
        user=server.system_user,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(port)
        yield f"postgresql://{SERVICE}@127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(READY_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)


def wait_for(port: int) -> None:
    """Wait until somebody listens there."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, f"nobody listens at {port}"
            time.sleep(0.01)
        else:
            return
