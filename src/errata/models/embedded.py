"""A small model inside this installation: in a child process, so that nothing ever waits for it."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import queue
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from errata.errors import InvalidInput, ModelError, ModelUnavailable, PromptTooLong
from errata.models import weights
from errata.models.bounds import check_request, check_timeout, checked, within
from errata.models.embedded_process import Child, ChildDied, Settings
from errata.models.sources import Progress
from errata.models.threads import in_thread
from errata.protocols import Answer, Message, Usage

# How long a cancelled call may take to confirm before the child is killed: about one batch of the
# prompt, and about what a new child needs to load.
GRACE_SECONDS = 0.5
# No tokenizer packs more than this into a token on average; saves sending what cannot fit.
MOST_BYTES_A_TOKEN = 64
_STOP: Final = {"stop": True}


@dataclass(eq=False)
class _Job:
    """One request on its way; `stopped` once nobody waits for it."""

    request: dict[str, Any]
    future: Future[dict[str, Any]] = field(default_factory=Future)
    stopped: bool = False


class Embedded:
    """A GGUF model through xllamacpp, one slot, answering in the order of the calls.

    `name` is `embedded`, `embedded:smollm2`, a key of the fetch list or `embedded:/path/file.gguf`.
    `path` is a file that has those weights, `cache` the folder for fetched ones. `threads` defaults
    to one less than the cores, `context` is in tokens, at most what the model was trained on,
    `timeout` in seconds a call: waiting in line and loading count, downloading does not. Weights
    are fetched and loaded at the first call. At temperature 0 the same call gives the same answer.
    Raises UnknownName, InvalidInput.
    """

    def __init__(
        self,
        name: str = "embedded",
        *,
        path: Path | None = None,
        cache: Path | None = None,
        threads: int | None = None,
        context: int = 4096,
        timeout: float | None = None,
        progress: Progress | None = None,
    ) -> None:
        check_timeout(timeout)
        threads = max(1, _cores() - 1) if threads is None else threads
        if threads < 1:
            raise InvalidInput("threads", threads, "an integer of at least 1")
        if context < 64:
            raise InvalidInput("context", context, "at least 64 tokens")
        self._name, self._timeout = name, timeout
        self._path, self._cache, self._progress = path, cache, progress
        self._file, self._weights = _local_file(name), None
        if self._file is None:
            self._weights = weights.find(name)
            context = min(context, self._weights.context or context)
        self._context, self._threads = context, threads
        self._desk: _Desk | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def name(self) -> str:
        """The name as a user would write it."""
        return self._name

    @property
    def pid(self) -> int | None:
        """The process that holds the model; None before the first call and after its end."""
        return None if self._desk is None else self._desk.pid

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
        InvalidInput. Cancelling returns at once.
        """
        check_request(messages, max_tokens, temperature)
        self._check_length(messages)
        request = _request(messages, schema, min(max_tokens, self._context), temperature, seed)
        desk = await self._open()
        async with within(self._timeout, self._name):
            reply = await desk.ask(_Job(request))
        return checked(self._name, _answer(self._name, reply), schema)

    async def close(self) -> None:
        """End the child process; calls under way fail as ModelUnavailable."""
        with self._lock:
            self._closed, desk = True, self._desk
        if desk is not None:
            await in_thread(desk.close)

    def _check_length(self, messages: Sequence[Message]) -> None:
        size = sum(len(message.content.encode("utf-8", "replace")) for message in messages)
        if size > self._context * MOST_BYTES_A_TOKEN:
            raise PromptTooLong(
                f"the prompt has {size} bytes, far more than the {self._context} tokens of context "
                f"of model {self._name!r} hold; shorten it"
            )

    async def _open(self) -> _Desk:
        if importlib.util.find_spec("xllamacpp") is None:
            raise ModelUnavailable(
                f"model {self._name!r} needs xllamacpp: pip install 'errata[embedded]'"
            )
        if self._file is None and self._weights is not None:
            self._file = await weights.fetch(
                self._weights, path=self._path, cache=self._cache, progress=self._progress
            )
        with self._lock:
            if self._closed:
                raise ModelUnavailable(f"model {self._name!r} was closed; open it again")
            if self._desk is None:
                settings = Settings(str(self._file), self._context, self._threads)
                self._desk = _Desk(self._name, settings)
                # Whoever forgets to close still leaves no process and no warning.
                weakref.finalize(self, self._desk.close)
            return self._desk


class _Desk:
    """Hands one job at a time to the child, from a thread of its own: any event loop may ask."""

    def __init__(self, name: str, settings: Settings) -> None:
        self._name, self._settings = name, settings
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._signals: queue.SimpleQueue[tuple[object, dict[str, Any] | None]]
        self._signals = queue.SimpleQueue()
        self._child: Child | None = None
        self._count = 0
        self._lock = threading.RLock()  # a finalizer may close while this thread holds it
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="errata-embedded", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The child's process id, where there is a child."""
        with self._lock:
            return None if self._child is None else self._child.pid

    async def ask(self, job: _Job) -> dict[str, Any]:
        """The child's reply. Cancelling tells the child to stop and does not wait for it."""
        with self._lock:
            if self._closed:
                raise self._closed_error()
            self._jobs.put(job)
        try:
            return await asyncio.wrap_future(job.future)
        except asyncio.CancelledError:
            job.stopped = True
            self._signals.put((job, _STOP))
            raise

    def close(self) -> None:
        """Kill the child and end the thread."""
        with self._lock:
            self._closed = True
            if self._child is not None:
                self._child.kill()
            self._jobs.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not job.future.set_running_or_notify_cancel():
                continue
            try:
                job.future.set_result(self._reply(job))
            except ModelError as error:
                job.future.set_exception(error)
            finally:
                if not job.future.done():  # a defect; better raised where it can be seen
                    job.future.set_exception(ModelUnavailable(f"model {self._name!r} broke"))
        self._end_child()

    def _reply(self, job: _Job) -> dict[str, Any]:
        child = self._child or self._start()
        try:
            while not child.ready:
                self._take(child, job, None)
            if job.stopped:
                return {"stopped": True}
            begun = time.monotonic()
            self._count += 1
            child.send({"id": self._count, "request": job.request})
            reply = self._wait(child, job)
        except ChildDied:
            raise ModelUnavailable(self._obituary(child)) from None
        return reply | {"seconds": time.monotonic() - begun}

    def _start(self) -> Child:
        with self._lock:
            if self._closed:
                raise self._closed_error()
            child = self._child = Child(self._settings, self._signals)
        return child

    def _wait(self, child: Child, job: _Job) -> dict[str, Any]:
        """The reply to the job under way; a job that was stopped has GRACE_SECONDS to confirm."""
        deadline: float | None = None
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                message = self._take(child, job, left)
            except queue.Empty:
                child.kill()
                self._end_child()
                return {"stopped": True}
            if message is _STOP and deadline is None:
                deadline = time.monotonic() + GRACE_SECONDS
                child.send({"stop": self._count})
            elif message.get("id") == self._count:
                return message

    def _take(self, child: Child, job: _Job, timeout: float | None) -> dict[str, Any]:
        """The next line of this child or stop of this job; those of earlier ones are dropped."""
        while True:
            origin, message = self._signals.get(timeout=timeout)
            if origin is child and message is None:
                raise ChildDied
            if message is not None and origin in (child, job):
                child.note(message)
                return message

    def _obituary(self, child: Child) -> str:
        self._end_child()
        if self._closed:
            return f"model {self._name!r} was closed while it answered"
        return f"the process of model {self._name!r} ended: {child.last_words()}"

    def _closed_error(self) -> ModelUnavailable:
        return ModelUnavailable(f"model {self._name!r} was closed; open it again")

    def _end_child(self) -> None:
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            child.end()


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _local_file(name: str) -> Path | None:
    """The file of `embedded:PATH.gguf`; None for a name of the fetch list."""
    written = name.removeprefix("embedded:")
    if not written.endswith(".gguf"):
        return None
    path = Path(written).expanduser()
    if not path.is_file():
        raise InvalidInput("model", name, "embedded: and the path of a .gguf file that exists")
    return path


def _request(
    messages: Sequence[Message],
    schema: Mapping[str, Any] | None,
    max_tokens: int,
    temperature: float,
    seed: int,
) -> dict[str, Any]:
    request: dict[str, Any] = {
        "messages": [{"role": m.role, "content": _printable(m.content)} for m in messages],
        "max_tokens": max_tokens,
        "temperature": temperature,
        "seed": seed % 0xFFFFFFFF,  # 0xFFFFFFFF itself asks for a random one
        "cache_prompt": False,  # else an answer depends on the calls before it
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,  # a chunk a batch of the prompt: the places where it can stop
    }
    if schema is not None:
        wanted = {"schema": dict(schema)}
        request["response_format"] = {"type": "json_schema", "json_schema": wanted}
    return request


def _printable(text: str) -> str:
    """The text with lone surrogates replaced, which no tokenizer takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _answer(name: str, reply: dict[str, Any]) -> Answer:
    error = reply.get("error")
    if error is not None:
        if error.get("type") == "exceed_context_size_error":
            raise PromptTooLong(
                f"the prompt has {error['n_prompt_tokens']} tokens and the context of model "
                f"{name!r} holds {error['n_ctx']}; shorten it or give a larger context"
            )
        raise ModelError(f"model {name!r} refused the request: {error.get('message')}")
    usage = Usage(
        calls=1,
        prompt_tokens=reply["usage"].get("prompt_tokens", 0),
        completion_tokens=reply["usage"].get("completion_tokens", 0),
        seconds=reply["seconds"],
    )
    return Answer(reply["text"], usage, "length" if reply["finish"] == "length" else "stop")
