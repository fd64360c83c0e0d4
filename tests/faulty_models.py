"""A server of a model that fails in every way, and four places that depend on it.

The server speaks OpenAI's interface over a real connection. While it has a `fault`,
each of its answers fails in that way; otherwise it answers with its `text`.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import heedful
from heedful import errors
from heedful.checks.critique import critic
from heedful.checks.evaluate import Context
from heedful.loop.decide import Again, Policy
from heedful.loop.record import Finding, Goal, Usage
from heedful.loop.stop import Budget, MaxAttempts
from heedful.memory.memory import Memory
from heedful.models.remote import RemoteModel
from heedful.pipeline import Pipeline
from heedful.store import episodes, loops as loop_store
from heedful.store.store import Store
from tests.completions import completion
from tests.memory.reflections import FAILED, GOOD
from tests.store.support import SCOPE

# The key that the client sends, and that a careless server repeats in its errors.
KEY = "sk-proj-Zq8vT4mXw2Lr9KpYc6Bn1Hd7Fj3Gs5Ae0Uo"
TEXT_TOKENS = 9  # that an answer of the server costs
HUGE_CHARS = 2_000_000
LONG_SECONDS = 60.0  # nothing that a healthy server does takes so long
SHORT_SECONDS = 0.3


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyServer

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        body = json.loads(self.rfile.read(length))
        self.server.asked.append(body)
        self.server.arrived.set()
        speak: Callable[[_Handler], None] = answer_well
        if self.server.fault is not None:
            speak = self.server.fault.speak
        speak(self)

    def reply(self, status: int, body: bytes, *, cut: int = 0, **headers: str) -> None:
        """Send an answer; with `cut`, only so many bytes of it, and then the end."""
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body[:cut] if cut else body)
        self.close_connection = bool(cut)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class FaultyServer(ThreadingHTTPServer):
    """A server of one model; `asked` has the bodies of all requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fault: ModelFault | None = None
        self.text = "well"
        self.usage: dict[str, int] | None = None  # of its answers; None is the usual
        self.asked: list[dict[str, Any]] = []
        self.arrived = threading.Event()  # a request since somebody cleared it
        self.ended = threading.Event()

    def model(self, seconds: float = LONG_SECONDS) -> RemoteModel:
        """Return the model of this server, with a limit of the time of a call."""
        url = f"http://127.0.0.1:{self.server_port}/v1#tiny"
        return RemoteModel(url, api_key=KEY, timeout=seconds)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is what some faults are about."""


@contextmanager
def serving() -> Iterator[FaultyServer]:
    """Run a server in a thread of its own."""
    with FaultyServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.ended.set()
            server.shutdown()
            thread.join()


def body_of(*arguments: Any, **options: Any) -> bytes:
    """Return the body of a completion."""
    return json.dumps(completion(*arguments, **options)).encode()


def failure(text: str) -> bytes:
    return json.dumps({"error": {"message": text, "type": "error"}}).encode()


# -- how it fails


def answer_well(to: _Handler) -> None:
    to.reply(200, body_of(to.server.text, usage=to.server.usage))


def never(to: _Handler) -> None:
    to.server.ended.wait(LONG_SECONDS)


def reset(to: _Handler) -> None:
    """Close the connection as a machine does that has crashed."""
    linger = struct.pack("ii", 1, 0)
    to.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    os.close(to.connection.detach())
    to.close_connection = True


def refuse(status: int, **headers: Any) -> Callable[[_Handler], None]:
    """Answer with a status and with an error that repeats the key of the caller."""

    def speak(to: _Handler) -> None:
        key = to.headers.get("authorization", "")
        body = failure(f"no service for {key}, api_key={KEY}")
        to.reply(status, body, **headers)

    return speak


def say(body: bytes, cut: int = 0) -> Callable[[_Handler], None]:
    """Answer with a body, whatever is asked."""
    return lambda to: to.reply(200, body, cut=cut)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFault:
    """One way to fail, and what the caller must get.

    `error` is the class of the error that the caller gets. `billed` are the tokens that
    a failing answer says it has cost. `seconds` limit the call with its `retries`; the
    library waits between them, as long as the server says. A caller asks once more
    after an answer that is `malformed`.
    """

    speak: Callable[[_Handler], None]
    error: type[BaseException]
    billed: int = 0
    seconds: float = LONG_SECONDS
    retries: int = 0

    @property
    def malformed(self) -> bool:
        """Whether there is an answer, which cannot be used."""
        return self.error is errors.MalformedAnswer

    def model(self, server: FaultyServer) -> RemoteModel:
        """Return the model with the limits that this fault is met with."""
        model = server.model(self.seconds)
        model.retries = self.retries
        return model


SOON = {"retry_after_ms": "1"}
FAULTS: dict[str, ModelFault] = {
    "no answer": ModelFault(
        speak=never, error=errors.ModelTimeout, seconds=SHORT_SECONDS
    ),
    "a reset connection": ModelFault(speak=reset, error=errors.ModelUnavailable),
    "429": ModelFault(
        speak=refuse(429, **SOON),
        error=errors.ModelUnavailable,
        retries=RemoteModel.retries,
    ),
    "500": ModelFault(
        speak=refuse(500, **SOON), error=errors.ModelError, retries=RemoteModel.retries
    ),
    "401 that repeats the key": ModelFault(
        speak=refuse(401), error=errors.ModelUnavailable
    ),
    "an answer cut in the middle": ModelFault(
        speak=say(body_of("x" * 500), cut=300), error=errors.ModelUnavailable
    ),
    "an empty answer": ModelFault(
        speak=say(body_of("")), error=errors.MalformedAnswer, billed=TEXT_TOKENS
    ),
    "a page in HTML": ModelFault(
        speak=say(b"<html>504</html>"), error=errors.MalformedAnswer
    ),
    "an answer of 2 MB": ModelFault(
        speak=say(body_of("x" * HUGE_CHARS)),
        error=errors.MalformedAnswer,
        billed=TEXT_TOKENS,
    ),
    "a refusal": ModelFault(
        speak=say(body_of(None, "content_filter", refusal="I cannot do that")),
        error=errors.MalformedAnswer,
    ),
    "a call that is cancelled": ModelFault(speak=never, error=asyncio.CancelledError),
}
"""By name. The network, the provider, the answer, and the caller."""


class Unnoticed(Exception):
    """Work went on as if its model had not failed, or did not ask it."""


async def meet(server: FaultyServer, fault: ModelFault, place: Place) -> BaseException:
    """Let a place go on while its model fails; return what it raises.

    Raises Unnoticed.
    """
    server.fault = fault
    server.arrived.clear()
    work = asyncio.create_task(place.go(fault.model(server)))
    try:
        if fault.error is asyncio.CancelledError:
            await asyncio.to_thread(server.arrived.wait)
            work.cancel()
        await work
    except (errors.HeedfulError, asyncio.CancelledError) as error:
        return error
    finally:
        server.fault = None
    raise Unnoticed(fault)


# -- where it fails


class Place:
    """Work that needs a model: it begins, meets a fault, and goes on.

    `asks` is how often it asks for an answer before it gives up, and `asks_malformed`
    how often if the answers are malformed.
    """

    asks = 1
    asks_malformed = 1
    mark = ""  # what the model writes besides

    def __init__(self, store: Store, server: FaultyServer, budget: Budget) -> None:
        self.store = store
        self.server = server
        self.policy = Policy((MaxAttempts(3), budget))

    @abstractmethod
    async def begin(self) -> None:
        """Do the part that comes before the fault."""

    @abstractmethod
    async def go(self, model: RemoteModel) -> None:
        """Go on, in a call of its own. Raises what the model causes."""

    @abstractmethod
    async def check_kept(self) -> None:
        """Check that the part before the fault is stored, and nothing of the rest."""

    @abstractmethod
    async def check_done(self) -> None:
        """Check that the work is done, and nothing of it was done again."""


def _is_right(candidate: str, context: Context) -> list[Finding]:
    return [] if candidate.startswith("right") else [Finding("c", "not right", key="c")]


class LoopPlace(Place):
    """A loop whose first attempt was wrong, and whose model makes the second."""

    id = "loop"

    async def begin(self) -> None:
        self.server.text = "wrong"
        await self._run(self.server.model()).step()
        self.server.text = f"right{self.mark}"

    def _run(self, model: RemoteModel) -> heedful.Run[Any]:
        return heedful.Run(
            "the task",
            generate=model,
            checks=[_is_right],
            policy=self.policy,
            store=self.store,
            id=self.id,
        )

    async def go(self, model: RemoteModel) -> None:
        self.result = await self._run(model).finish()

    async def stored(self) -> Any:
        return await self.store.read(SCOPE, loop_store.read, self.id)

    async def spent(self) -> Usage:
        """Return what the loop counts of its calls."""
        usage: Usage = (await self.stored()).loop.usage
        return usage

    async def check_kept(self) -> None:
        stored_loop = await self.stored()
        assert stored_loop.values == ("wrong",)
        assert isinstance(stored_loop.verdict, Again)

    async def check_done(self) -> None:
        stored_loop = await self.stored()
        assert stored_loop.values[0] == "wrong"
        assert stored_loop.values[1].startswith("right")
        assert len(stored_loop.values) == 2
        assert self.result.passed


class JudgePlace(LoopPlace):
    """A loop whose candidates a model judges; the first was bad."""

    asks = 2
    asks_malformed = 2

    def __init__(self, store: Store, server: FaultyServer, budget: Budget) -> None:
        super().__init__(store, server, budget)
        self.made = 0

    async def begin(self) -> None:
        self._judge_with(0.1)
        await self._run(self.server.model()).step()
        self._judge_with(0.9)

    def _judge_with(self, alignment: float) -> None:
        opinion = {"reason": f"so{self.mark}", "alignment": alignment, "confidence": 1}
        self.server.text = json.dumps(opinion)

    def _generate(self, task: str, hint: str) -> str:
        self.made += 1
        return f"text {self.made}"

    def _run(self, model: RemoteModel) -> heedful.Run[Any]:
        return heedful.Run(
            "the task",
            generate=self._generate,
            evaluate=critic("alignment", model),
            goals=[Goal("alignment", 0.75)],
            policy=self.policy,
            store=self.store,
            id=self.id,
        )

    async def check_kept(self) -> None:
        stored_loop = await self.stored()
        assert stored_loop.values == ("text 1",)
        assert isinstance(stored_loop.verdict, Again)

    async def check_done(self) -> None:
        stored_loop = await self.stored()
        assert stored_loop.values == ("text 1", f"text {self.made}")
        assert self.result.passed


class StagePlace(LoopPlace):
    """The second stage of a pipeline, which a model writes."""

    id = "run/tell"

    def __init__(self, store: Store, server: FaultyServer, budget: Budget) -> None:
        super().__init__(store, server, budget)
        self.first = 0

    async def begin(self) -> None:
        self.server.text = f"right{self.mark}"

    def _load(self, state: dict[str, Any]) -> int:
        self.first += 1
        return self.first

    async def go(self, model: RemoteModel) -> None:
        pipeline = Pipeline("p", store=self.store, progress=False)
        pipeline.stage(name="load")(self._load)
        stage = pipeline.stage(
            name="tell", model=model, checks=[_is_right], policy=self.policy
        )
        stage(lambda state: "the task")
        self.report = await pipeline.run({}, id="run")

    async def check_kept(self) -> None:
        stored_loop = await self.stored()
        assert stored_loop.values == ()
        assert self.first == 1

    async def check_done(self) -> None:
        assert self.report.state["tell"].startswith("right")
        assert self.first == 1
        stored_loop = await self.stored()
        assert len(stored_loop.values) == 1


class ReflectorPlace(Place):
    """A model that writes the lessons of an episode."""

    asks_malformed = 2

    def __init__(self, store: Store, server: FaultyServer, budget: Budget) -> None:
        super().__init__(store, server, budget)
        self.memory = Memory(store)

    async def begin(self) -> None:
        self.server.text = GOOD

    async def go(self, model: RemoteModel) -> None:
        self.reflected = await heedful.reflect(
            FAILED, memory=self.memory, model=model, on_model_error="raise"
        )

    async def check_kept(self) -> None:
        assert await self.memory.count() == 0
        [waiting] = await self.store.read(SCOPE, episodes.page, 9, whole=True)
        assert KEY not in waiting.error

    async def check_done(self) -> None:
        assert self.reflected is not None
        assert self.reflected.by != "rules"
        assert await self.memory.count() == 2
        assert await self.store.read(SCOPE, episodes.counts) == {"reflected": 1}


PLACES: dict[str, type[Place]] = {
    "loop": LoopPlace,
    "stage": StagePlace,
    "reflector": ReflectorPlace,
    "judge": JudgePlace,
}
