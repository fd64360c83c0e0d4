"""Run a small model on this machine, in a child process.

Native code cannot be interrupted. A cancelled or late call therefore kills the child
process, and the next call starts a new one.
"""

import asyncio
import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Unpack

from heedful.errors import (
    ModelError,
    ModelUnavailable,
    PromptTooLong,
    install_line,
)
from heedful.loop.record import Usage
from heedful.models import call as calls, weights
from heedful.models.contract import Answer, Message, Options, Progress
from heedful.validation import Document, Fields, check_integer, require

EMBEDDED_ANSWER_TOKENS = 512  # of an answer without `max_tokens`
EMBEDDED_CHILD_FILE = Path(__file__).with_name("embedded_child.py")
# A chat completion with its `seconds`, or an `error`, as the child answers it.
Reply = dict[str, Any]


class EmbeddedModel:
    """A GGUF model, run by xllamacpp, that answers one call at a time.

    `name` is `embedded`, `embedded:NAME` with a name on the list in
    `heedful.models.weights`, or `embedded:/path/file.gguf`. The first call fetches the
    weights into the folder `cache` and loads them. The default of `threads` is the
    number of cores minus 1. `context` is in tokens, at most those with which the model
    was trained. `timeout` limits each call, in seconds, but no download. At temperature
    0, equal calls give equal answers. Raises UnknownName, InvalidInput.
    """

    def __init__(
        self,
        name: str = "embedded",
        *,
        cache: Path | None = None,
        threads: int | None = None,
        context: int = 4096,
        timeout: float | None = None,
        progress: Progress | None = None,
    ) -> None:
        calls.check_timeout(timeout)
        if threads is None:
            threads = max(1, available_cores() - 1)
        check_integer("threads", threads)
        check_integer("context", context, least=64)

        self.name = name
        self._cache = cache
        self._timeout = timeout
        self._progress = progress

        self._file: Path | None = None
        self._weights = weights.for_model(name)
        if self._weights:
            context = min(context, self._weights.context or context)
        else:
            self._file = Path(name.removeprefix("embedded:")).expanduser()
            is_file = os.path.isfile(self._file)  # also False for an invalid file name
            allowed = "embedded: and the path of an existing .gguf file"
            require(is_file, "model", str(self._file), allowed)

        self._settings = {"context": context, "threads": threads}
        self.context_tokens = context
        self.is_capable = False
        self._closed = False
        # Held during a call.
        self._turn = threading.Lock()
        # Guards the attributes below, only for short times.
        self._lock = threading.Lock()

        # None or one; a list, because the finalizer must see a later child, too.
        self._children: list[_Child] = []
        # The event that cancels the call which the child answers now.
        self._current_call: threading.Event | None = None
        # Without `close`, the child process ends when the model is deleted.
        weakref.finalize(self, _end_children, self._children)

    @property
    def pid(self) -> int | None:
        """The id of the child process, or None when it is not running."""
        return self._children[0].pid if self._children else None

    async def complete(
        self, messages: Sequence[Message], **options: Unpack[Options]
    ) -> Answer:
        """Answer the chat; `schema` constrains the text during generation.

        Cancelling returns at once and kills the child process; the next call loads the
        model again (0.2 s for 100 MB, 1 s for 500 MB). Raises ModelUnavailable,
        WeightsError, ModelTimeout, PromptTooLong, MalformedAnswer, InvalidInput.
        """
        settings = calls.check_request(messages, options)
        request = self._make_request(messages, settings)

        if find_spec("xllamacpp") is None:
            raise ModelUnavailable(
                f"model {self.name!r} is not installed: it needs xllamacpp; "
                f"{install_line('embedded')}, or name another model"
            )

        if self._file is None and self._weights is not None:
            fetch = partial(weights.fetch, cache=self._cache, progress=self._progress)
            self._file = await fetch(self._weights)

        cancelled = threading.Event()
        async with calls.time_limit(self._timeout, self.name):
            try:
                reply = await calls.in_thread(partial(self._ask, request, cancelled))
            except asyncio.CancelledError:
                cancelled.set()
                with self._lock:
                    if self._current_call is cancelled:
                        for child in self._children:
                            child.kill()
                raise

        return calls.check_answer(self.name, self._read_answer(reply))

    def _make_request(self, messages: Sequence[Message], settings: Fields) -> Document:
        """Return the request to the child process."""
        turns = [
            {"role": message.role, "content": calls.replace_surrogates(message.content)}
            for message in messages
        ]
        max_tokens = settings["max_tokens"] or EMBEDDED_ANSWER_TOKENS
        request = {
            "messages": turns,
            "max_tokens": min(max_tokens, self._settings["context"]),
            "temperature": settings["temperature"],
            "seed": settings["seed"] % 0xFFFFFFFF,  # 0xFFFFFFFF means a random seed
            "cache_prompt": False,  # otherwise an answer depends on earlier calls
        }

        schema = settings["schema"]
        if schema is not None:
            request["response_format"] = {
                "type": "json_schema",
                "json_schema": {"schema": schema},
            }
        return request

    async def close(self) -> None:
        """End the child process; current and later calls raise ModelUnavailable."""
        with self._lock:
            self._closed = True
            for child in self._children:
                child.kill()

        def end() -> None:
            with self._turn:
                _end_children(self._children)

        await calls.in_thread(end)

    def _ask(self, request: Document, cancelled: threading.Event) -> Reply:
        """Wait for other calls, then return the child's reply; {} if `cancelled`.

        The event can be set while the call waits. Raises ModelUnavailable if the child
        ends without a reply.
        """
        closed_message = f"model {self.name!r} was closed; open it again"
        with self._turn:
            with self._lock:
                if self._closed:
                    raise ModelUnavailable(closed_message)
                if cancelled.is_set():
                    return {}

                if not self._children:
                    settings = self._settings | {"path": str(self._file)}
                    self._children.append(_Child(settings))
                child = self._children[0]
                self._current_call = cancelled

            reply = child.ask(request)

            with self._lock:
                self._current_call = None
            if reply is not None and not cancelled.is_set():
                return reply

            reason = f"the process of model {self.name!r} ended: {child.last_words()}"
            _end_children(self._children)
            if self._closed:
                reason = closed_message
            raise ModelUnavailable(reason)

    def _read_answer(self, reply: Reply) -> Answer:
        """Return the answer in a reply. Raises PromptTooLong, ModelError."""
        error = reply.get("error", {})
        if error.get("type") == "exceed_context_size_error":
            raise PromptTooLong(
                f"the prompt has {error['n_prompt_tokens']} tokens and the context of "
                f"model {self.name!r} holds {error['n_ctx']}; shorten the prompt or "
                "raise `context`"
            )
        if error:
            raise ModelError(
                f"model {self.name!r} refused the request: {error.get('message')}"
            )

        (choice,) = reply["choices"]
        is_cut = choice["finish_reason"] == "length"
        counts = reply["usage"]
        usage = Usage(
            1,
            counts["prompt_tokens"],
            completion_tokens=counts["completion_tokens"],
            seconds=reply["seconds"],
        )
        text = choice["message"]["content"] or ""
        return Answer(text, usage, "length" if is_cut else "stop")


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    if affinity is not None:
        return len(affinity(0))
    return os.cpu_count() or 1


class _Child(subprocess.Popen[bytes]):
    """The child process that runs the model: `embedded_child.py`.

    It reads and writes lines of JSON. The file `diagnostics` gets its stderr.
    """

    def __init__(self, settings: Fields) -> None:
        self.diagnostics = TemporaryFile()  # noqa: SIM115 - `_end_children` closes it
        pipe = subprocess.PIPE

        try:
            command = [sys.executable, "-P", str(EMBEDDED_CHILD_FILE)]
            super().__init__(command, stdin=pipe, stdout=pipe, stderr=self.diagnostics)
        except OSError as error:
            self.diagnostics.close()
            message = f"the process for the embedded model did not start: {error}"
            raise ModelUnavailable(message) from error

        self.send({**settings, "sys_path": [path for path in sys.path if path]})

    def send(self, message: Fields) -> None:
        """Write one line of JSON; reading the reply detects a broken pipe."""
        with suppress(OSError):
            if self.stdin:
                self.stdin.write(json.dumps(message).encode() + b"\n")
                self.stdin.flush()

    def ask(self, request: Fields) -> Reply | None:
        """Send `request` and return the reply; None if the process ends first."""
        self.send(request)
        line = self.stdout.readline() if self.stdout else b""
        if not line.endswith(b"\n"):
            return None
        reply: Reply = json.loads(line)
        return reply

    def last_words(self) -> str:
        """End the process; return its exit code and the end of stderr as text."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(1)
        self.kill()
        code = self.wait()

        size = self.diagnostics.seek(0, os.SEEK_END)
        self.diagnostics.seek(max(0, size - 2_000))
        stderr = self.diagnostics.read().decode("utf-8", "replace").strip()

        ending = f"exit code {code}" if code >= 0 else f"killed by signal {-code}"
        return f"{ending}; the end of stderr: {stderr or 'nothing'}"


def _end_children(children: list[_Child]) -> None:
    """End child processes.

    It takes no lock: the thread of a finalizer may hold it already.
    """
    for child in children[:]:
        child.kill()
        with suppress(OSError):  # unwritten input
            child.__exit__(None, None, None)
        child.diagnostics.close()
    children.clear()
