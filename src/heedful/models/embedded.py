"""A small model on this machine, in a child process, so that nothing has to wait for it.

Native code cannot be interrupted: a call that is cancelled or late ends the child, and the next
call starts another.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any

from heedful.errors import InvalidInput, ModelError, ModelUnavailable, PromptTooLong
from heedful.loop.record import Usage
from heedful.models import weights
from heedful.models.call import (
    check_answer,
    check_request,
    check_timeout,
    in_thread,
    replace_surrogates,
    time_limit,
)
from heedful.models.contract import Answer, Message, Progress

PROGRAM = Path(__file__).with_name("embedded_child.py")
# No tokenizer puts more bytes into a token on average: a longer prompt cannot fit.
MOST_BYTES_A_TOKEN = 64
MOST_SOCKET_PATH = 100  # the kernel's limit is 104 bytes on macOS, 108 on Linux
TAIL_BYTES = 2_000


class Embedded:
    """A GGUF model through xllamacpp, one call at a time.

    `name` is `embedded`, `embedded:` and a name of the fetch list, or `embedded:/path/file.gguf`.
    `cache` is the folder for weights, `threads` defaults to one less than the cores, `context` is
    in tokens, at most what the model was trained on. `timeout` is in seconds for each call; waiting
    for other calls and loading count, downloading does not. The first call fetches and loads the
    weights. At temperature 0 the same call gives the same answer. Raises UnknownName, InvalidInput.
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
        check_timeout(timeout)
        if threads is None:
            affinity = getattr(os, "sched_getaffinity", None)
            threads = max(1, (len(affinity(0)) if affinity else os.cpu_count() or 1) - 1)
        if threads < 1:
            raise InvalidInput("threads", threads, "an integer of at least 1")
        if context < 64:
            raise InvalidInput("context", context, "at least 64 tokens")
        self.name: str = name
        self._timeout = timeout
        self._cache, self._progress = cache, progress
        self._weights = weights.needed(name)
        self._file = None if self._weights else _local_file(name)
        if self._weights:
            context = min(context, self._weights.context or context)
        self._context, self._threads = context, threads
        self._closed = False
        self._owner = 0
        self._take_seat()

    def _take_seat(self) -> None:
        """Begin without a child, also in a fork, where the child belongs to the parent."""
        if self._owner == os.getpid():
            return
        self._owner = os.getpid()
        self._turn = threading.Lock()  # held by the call that is answered
        self._lock = threading.Lock()  # guards what follows; never held for long
        self._children: list[_Child] = []  # none or one
        self._answered: threading.Event | None = None
        # Without `close` no process and no warning is left either.
        weakref.finalize(self, _end, self._children)

    @property
    def pid(self) -> int | None:
        """The id of the process with the model; None before the first call and after its end."""
        return next((child.pid for child in self._children), None)

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Mapping[str, Any] | None = None,
        max_tokens: int = 512,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> Answer:
        """Answer the chat; the schema constrains the text as it is generated.

        Raises ModelUnavailable, WeightsError, ModelTimeout, PromptTooLong, MalformedAnswer,
        InvalidInput. Cancelling returns at once. The native code cannot be stopped, so the process
        ends; the next call loads the model again (0.2 s for 100 MB, 1 s for 500 MB).
        """
        check_request(messages, schema, max_tokens, temperature)
        self._check_length(messages)
        request = _request(messages, schema, min(max_tokens, self._context), temperature, seed)
        self._take_seat()
        await self._find_weights()
        abandoned = threading.Event()
        async with time_limit(self._timeout, self.name):
            try:
                reply = await in_thread(partial(self._wait_and_ask, request, abandoned))
            except asyncio.CancelledError:
                self._abandon(abandoned)
                raise
        return check_answer(self.name, self._answer(reply), schema)

    async def close(self) -> None:
        """End the child process; current and later calls fail as ModelUnavailable."""
        self._take_seat()
        with self._lock:
            self._closed = True
            for child in self._children:
                child.kill()
        await in_thread(self._clear)

    def _clear(self) -> None:
        with self._turn:
            _end(self._children)

    def _abandon(self, call: threading.Event) -> None:
        call.set()
        with self._lock:
            if self._answered is call:
                for child in self._children:
                    child.kill()

    def _wait_and_ask(self, request: dict[str, Any], abandoned: threading.Event) -> dict[str, Any]:
        """Return the child's reply when it is this call's turn; it runs in a thread."""
        with self._turn:
            child = self._child_for(abandoned)
            if child is None:
                return {}
            whole = False
            try:
                reply = child.ask(request)
                whole = True
            except _ChildDied:
                raise self._unavailable("" if self._closed else child.last_words()) from None
            finally:
                with self._lock:
                    self._answered = None
                if abandoned.is_set() or not whole:
                    _end(self._children)
            return reply

    def _child_for(self, call: threading.Event) -> _Child | None:
        """Return the child that answers the call; None if nobody waits for the answer."""
        with self._lock:
            if self._closed:
                raise self._unavailable("")
            if call.is_set():
                return None
            if not self._children:
                self._children.append(_Child(str(self._file), self._context, self._threads))
            self._answered = call
            return self._children[0]

    def _unavailable(self, last_words: str) -> ModelUnavailable:
        if last_words:
            return ModelUnavailable(f"the process of model {self.name!r} ended: {last_words}")
        return ModelUnavailable(f"model {self.name!r} was closed; open it again")

    def _check_length(self, messages: Sequence[Message]) -> None:
        size = sum(len(message.content.encode("utf-8", "replace")) for message in messages)
        if size > self._context * MOST_BYTES_A_TOKEN:
            raise PromptTooLong(
                f"the prompt has {size} bytes, far more than the {self._context} tokens of context "
                f"of model {self.name!r} hold; shorten it"
            )

    async def _find_weights(self) -> None:
        if importlib.util.find_spec("xllamacpp") is None:
            raise ModelUnavailable(
                f"model {self.name!r} needs xllamacpp: pip install 'heedful[embedded]'"
            )
        if self._file is None and self._weights is not None:
            self._file = await weights.fetch(
                self._weights, cache=self._cache, progress=self._progress
            )

    def _answer(self, reply: dict[str, Any]) -> Answer:
        error = reply.get("error")
        if error is None:
            (choice,), counted = reply["choices"], reply["usage"]
            usage = Usage(1, counted["prompt_tokens"], counted["completion_tokens"])
            text = choice["message"]["content"] or ""
            usage = usage.lasting(reply["seconds"])
            return Answer(text, usage, "length" if choice["finish_reason"] == "length" else "stop")
        if error.get("type") == "exceed_context_size_error":
            raise PromptTooLong(
                f"the prompt has {error['n_prompt_tokens']} tokens and the context of model "
                f"{self.name!r} holds {error['n_ctx']}; shorten it or give a larger context"
            )
        raise ModelError(f"model {self.name!r} refused the request: {error.get('message')}")


class _ChildDied(Exception):
    """The process ended before it answered."""


class _Child:
    """One process that runs PROGRAM."""

    def __init__(self, path: str, context: int, threads: int) -> None:
        self._ending = threading.RLock()
        with ExitStack() as held:
            self._folder = TemporaryDirectory(prefix="heedful-", ignore_cleanup_errors=True)
            socket = os.path.join(held.enter_context(self._folder), "s.sock")
            self._said = held.enter_context(TemporaryFile())
            self._process = held.enter_context(_start(self._said))
            self._held = held.pop_all()
        self.pid = self._process.pid
        usable = os.name == "posix" and len(os.fsencode(socket)) <= MOST_SOCKET_PATH
        settings = {"path": path, "context": context, "threads": threads}
        paths = [path for path in sys.path if path]
        self._send(settings | {"socket": socket if usable else "", "sys_path": paths})

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the reply. Raises _ChildDied."""
        self._send(request)
        pipe = self._process.stdout
        line = pipe.readline() if pipe else b""
        if not line.endswith(b"\n"):
            raise _ChildDied
        self._folder.cleanup()
        reply: dict[str, Any] = json.loads(line)
        return reply

    def kill(self) -> None:
        """End the process without waiting."""
        self._process.kill()

    def end(self) -> None:
        """Kill the process and release its resources; a second call does no harm."""
        self.kill()
        with self._ending, suppress(OSError):  # what was still to be written
            self._held.close()

    def last_words(self) -> str:
        """Return the exit code and the end of stderr. Call it before `end`."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        self.kill()
        code = self._process.wait()
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - TAIL_BYTES))
        said = self._said.read().decode("utf-8", "replace").strip() or "nothing"
        signalled = f"killed by signal {-code} ({signal.Signals(-code).name})" if code < 0 else ""
        return f"{signalled or f'exit code {code}'}; its last words: {said}"

    def _send(self, message: dict[str, Any]) -> None:
        pipe = self._process.stdin
        with suppress(OSError):  # a child that is gone is noticed when it is heard
            if pipe:
                pipe.write(json.dumps(message).encode() + b"\n")
                pipe.flush()


def _start(stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", str(PROGRAM)]
    try:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
        )
    except OSError as error:
        what = f"the process for the embedded model did not start: {error}"
        raise ModelUnavailable(what) from error


def _end(children: list[_Child]) -> None:
    """End the children without a lock: a finalizer may run in a thread that holds one."""
    for child in children[:]:
        child.end()
    children.clear()


def _local_file(name: str) -> Path:
    """Return the file of `embedded:PATH.gguf`. Raises InvalidInput if there is none."""
    path = Path(name.removeprefix("embedded:")).expanduser()
    with suppress(OSError):  # a name that no file can have
        if path.is_file():
            return path
    raise InvalidInput("model", name, "embedded: and the path of a .gguf file that exists")


def _request(
    messages: Sequence[Message],
    schema: Mapping[str, Any] | None,
    max_tokens: int,
    temperature: float,
    seed: int,
) -> dict[str, Any]:
    request: dict[str, Any] = {
        "messages": [{"role": m.role, "content": replace_surrogates(m.content)} for m in messages],
        "max_tokens": max_tokens,
        "temperature": temperature,
        "seed": seed % 0xFFFFFFFF,  # 0xFFFFFFFF itself asks for a random one
        "cache_prompt": False,  # else an answer depends on the calls before it
    }
    if schema is not None:
        wanted = {"schema": dict(schema)}
        request["response_format"] = {"type": "json_schema", "json_schema": wanted}
    return request
