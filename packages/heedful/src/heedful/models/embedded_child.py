"""The child process with the embedded model: it reads and writes lines of JSON.

It is started by its path and imports nothing of heedful, to save memory. The first line
of input has the settings; each further line is one chat request. Each line of output
has a chat completion with the `seconds` it took, or an `error`. The process ends when
its input ends, even during an answer, so it does not outlive a killed parent.
"""

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

from heedful.validation import Document


def main() -> None:
    """Answer requests until the input ends; exit with 1 if loading fails."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keep the prints of native code out of the output
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()

    try:
        server = load(json.loads(lines.get()))
    except (ImportError, RuntimeError, ValueError, OSError) as error:
        sys.exit(f"{type(error).__name__}: {error}")

    while True:
        reply = answer(server, json.loads(lines.get()))
        print(json.dumps(reply), file=out, flush=True)


def load(settings: Document) -> Any:
    """Load the model and return its native server.

    The server answers one request at a time.
    """
    sys.path[:] = settings["sys_path"]
    native = importlib.import_module("xllamacpp")
    params = native.CommonParams()
    params.model.path = settings["path"]
    params.n_ctx = settings["context"]
    params.n_parallel = 1

    # As fast as 512, with 30 MB less memory. The size affects rounding and so the
    # answers.
    params.n_batch = params.n_ubatch = 64
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]

    params.warmup = False
    params.fit_params = False
    # Otherwise it keeps up to 8 GB of prompts, which affect answers.
    params.cache_ram_mib = 0
    params.n_ctx_checkpoints = 0
    params.verbosity = 1  # errors only
    params.ui = False

    # The native server always listens on a random port of 127.0.0.1, so it gets a
    # random key. If possible, it listens on a Unix socket instead, which is removed
    # after loading.
    params.api_keys = [uuid4().hex]

    with TemporaryDirectory(prefix="heedful-") as folder:
        socket = os.path.join(folder, "s.sock")
        # The kernel's limit of a path is 104 bytes on macOS, 108 on Linux.
        if os.name == "posix" and len(os.fsencode(socket)) <= 100:
            params.hostnames = [socket]
        return native.Server(params)


def answer(server: Any, request: Document) -> Document:
    """Return a chat completion, or an `error` with the reason of the refusal."""
    start = time.monotonic()
    try:
        reply: Document = server.handle_chat_completions(request)
    except (ValueError, RuntimeError) as error:  # a refused schema or template
        return {"error": {"message": str(error)}}
    return reply | {"seconds": time.monotonic() - start}


def _listen(lines: queue.SimpleQueue[bytes]) -> None:
    """Pass on the lines of input; end the process when the input ends."""
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
