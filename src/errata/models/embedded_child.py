"""The process that holds the embedded model: JSON lines in, JSON lines out.

It is started by its path and imports nothing of errata, so it stays as small as the model.
In come `{"open": settings}` once, then `{"id": n, "request": …}` and `{"stop": n}`. Out go
`{"ready": true}` or `{"failed": why}`, then one line a request: an answer, an `error`, or
`stopped`. It ends when its input ends, so that a parent that was killed leaves nothing behind.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import signal
import sys
import tempfile
import threading
import time
from typing import Any, TextIO
from uuid import uuid4

# A stop is seen between two batches of the prompt. On one thread of two busy cores 64 tokens took
# 0.6 s (0.5B) and cost nothing against 2048; 32 tokens halved the speed.
BATCH_TOKENS = 64
ORPHAN_POLL_SECONDS = 2.0
MOST_SOCKET_PATH = 100  # the kernel's limit is 104 bytes on macOS, 108 on Linux


class Calls:
    """What the parent asked for, and which of it nobody waits for any more."""

    def __init__(self) -> None:
        self.waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.stopped = -1

    def listen(self) -> None:
        """Read the parent's lines until there are no more, then end the process at once."""
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if "stop" in message:
                self.stopped = message["stop"]
            else:
                self.waiting.put(message)
        os._exit(0)


def main() -> int:
    """Serve until the input ends; 1 where the model cannot be loaded."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # native code that prints must not disturb the lines
    calls = Calls()
    threading.Thread(target=calls.listen, daemon=True).start()
    if os.name == "posix":
        threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True).start()
    try:
        server = load(calls.waiting.get()["open"])
    except (ImportError, RuntimeError, ValueError, OSError) as error:
        _say(out, {"failed": f"{type(error).__name__}: {error}"})
        return 1
    _say(out, {"ready": True})
    while True:
        call = calls.waiting.get()
        _say(out, {"id": call["id"]} | answer(server, call, calls))


def load(settings: dict[str, Any]) -> Any:
    """The native server around the model, with one slot."""
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
    # The native server always listens, on a random port of 127.0.0.1. Nobody needs that: a random
    # key, and where there are Unix sockets one in a private folder, removed once it is bound.
    params.api_keys = [uuid4().hex]
    with tempfile.TemporaryDirectory(prefix="errata-") as folder:
        address = os.path.join(folder, "s.sock")
        if os.name == "posix" and len(os.fsencode(address)) <= MOST_SOCKET_PATH:
            params.hostnames = [address]
        return native.Server(params)


def answer(server: Any, call: dict[str, Any], calls: Calls) -> dict[str, Any]:
    """One chat completion, or that it was stopped, or why it was refused."""
    parts: list[str] = []
    result: dict[str, Any] = {"finish": "stop", "usage": {}}

    def take(chunk: dict[str, Any]) -> bool:
        """Collect a chunk of the stream; True ends it."""
        if "error" in chunk:
            result["error"] = chunk["error"]
        for choice in chunk.get("choices") or ():
            parts.append(choice["delta"].get("content") or "")
            result["finish"] = choice["finish_reason"] or result["finish"]
        result["usage"] = chunk.get("usage") or result["usage"]
        return bool(calls.stopped == call["id"])

    if calls.stopped == call["id"]:
        return {"stopped": True}
    try:
        server.handle_chat_completions(call["request"], take)
    except (ValueError, RuntimeError) as error:  # a schema or a template it does not take
        return {"error": {"message": str(error)}}
    if calls.stopped == call["id"]:
        return {"stopped": True}
    return result | {"text": "".join(parts)}


def _say(out: TextIO, message: dict[str, Any]) -> None:
    try:
        out.write(json.dumps(message) + "\n")
        out.flush()
    except BrokenPipeError:
        os._exit(0)


def _watch_parent(parent: int) -> None:
    """End with the parent, even where a process it forked keeps our input open."""
    while os.getppid() == parent:
        time.sleep(ORPHAN_POLL_SECONDS)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
