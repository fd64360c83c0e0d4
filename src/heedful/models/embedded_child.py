"""The process that holds the embedded model: JSON lines in, JSON lines out.

It is started by its path and imports nothing of heedful, so it stays as small as the model. The
first line of input has the settings, each further line one chat request. Each line of output
answers one request: a chat completion with the `seconds` it took, or an `error`. The process ends
when its input ends, even while it answers, so a killed parent leaves nothing behind.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import signal
import sys
import threading
import time
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

# Against 512 as many tokens a second and 30 MB less. It decides the last digits, so the answers.
BATCH_TOKENS = 64
MOST_SOCKET_PATH = 100  # the kernel's limit is 104 bytes on macOS, 108 on Linux


def main() -> None:
    """Serve until the input ends; exit with 1 if the model cannot be loaded."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what a Ctrl-C means
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # native code that prints must not disturb the lines
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    try:
        server = load(json.loads(lines.get()))
    except (ImportError, RuntimeError, ValueError, OSError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    while True:
        reply = answer(server, json.loads(lines.get()))
        print(json.dumps(reply), file=out, flush=True)


def load(settings: dict[str, Any]) -> Any:
    """Return the native server around the model, with one slot."""
    sys.path[:] = settings["sys_path"]
    native = importlib.import_module("xllamacpp")
    params = native.CommonParams()
    params.model.path = settings["path"]
    params.n_ctx = settings["context"]
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.warmup = False
    params.fit_params = False
    params.cache_ram_mib = 0  # else up to 8 GB of old prompts, and answers that depend on them
    params.n_ctx_checkpoints = 0
    params.verbosity = 1  # errors only
    params.ui = False
    # The native server always listens on a random port of 127.0.0.1. A random key locks it; where
    # there are Unix sockets it gets one that is removed once the model is loaded.
    params.api_keys = [uuid4().hex]
    with TemporaryDirectory(prefix="heedful-") as folder:
        socket = os.path.join(folder, "s.sock")
        if os.name == "posix" and len(os.fsencode(socket)) <= MOST_SOCKET_PATH:
            params.hostnames = [socket]
        return native.Server(params)


def answer(server: Any, request: dict[str, Any]) -> dict[str, Any]:
    """One chat completion, or why it was refused."""
    begun = time.monotonic()
    try:
        reply: dict[str, Any] = server.handle_chat_completions(request)
    except (ValueError, RuntimeError) as error:  # a schema or a template it does not take
        return {"error": {"message": str(error)}}
    return reply | {"seconds": time.monotonic() - begun}


def _listen(lines: queue.SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
