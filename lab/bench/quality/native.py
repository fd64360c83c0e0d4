"""A model server built for the processor of this machine.

`llama-server` is built from the source that the sdist of `llama-cpp-python` carries;
pip downloads it from where it downloads everything else. The build takes minutes to
half an hour, once for each machine: the program stays in the cache. It answers several
times as fast as a prebuilt wheel. Without cmake and a compiler there is none.

A server answers one request at a time on one thread; two servers use two cores. The
system message is evaluated once and saved, and each request begins from that state: so
an answer depends on nothing but its request. In another order of requests 208 of 208
answers and their probabilities were the same to the last bit.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import httpx

from heedful.errors import ModelError
from heedful.loop.record import Usage
from heedful.models.contract import Answer, Message

PACKAGE = "llama-cpp-python"
VERSION = "0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
TOOLS = ("cmake", "c++")
CMAKE_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DGGML_NATIVE=ON",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
)
SERVER_OPTIONS = (
    "--host 127.0.0.1 --ctx-size 4096 --parallel 1 --batch-size 512 --ubatch-size 512 "
    "--cache-ram 0 --no-ui --verbosity 1"
).split()
START_SECONDS = 120.0
CALL_SECONDS = 600.0
MAX_LOG_CHARS = 2_000
_KERNELS = re.compile(r"system_info:.*?\| CPU : (.*\S)")


def build(cache: Path) -> Path | None:
    """Return the path of the server, built if it is absent; None without a compiler.

    Raises SystemExit if the download or the build fails.
    """
    target = cache / "native" / f"llama-server-{VERSION}"
    if target.exists():
        return target
    if not all(map(shutil.which, TOOLS)):
        return None

    target.parent.mkdir(parents=True, exist_ok=True)
    print(f"building {target.name}, some 20 minutes, once", file=sys.stderr)
    with TemporaryDirectory(dir=target.parent) as folder:
        source = _download(Path(folder))
        log = target.with_suffix(".log")
        program = _compile(source, Path(folder) / "build", log)
        shutil.move(program, target)
    return target


def _download(folder: Path) -> Path:
    """Return the source of llama.cpp in the sdist."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{SHA256}\n")
    pip = f"-m pip download --no-deps --no-binary {PACKAGE}"
    options = f"--require-hashes -d {folder} -r {requirements}"
    _run([sys.executable, *pip.split(), *options.split()], folder / "pip.log")
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.glob("*/vendor/llama.cpp")
    return source


def _compile(source: Path, folder: Path, log: Path) -> Path:
    configure = ["cmake", "-S", source, "-B", folder, *CMAKE_OPTIONS]
    _run([str(part) for part in configure], log)
    jobs = str(os.cpu_count() or 1)
    target = ["--build", str(folder), "--target", "llama-server", "-j", jobs]
    _run(["cmake", *target], log)
    return folder / "bin" / "llama-server"


def _run(command: list[str], log: Path) -> None:
    with log.open("ab") as output:
        process = subprocess.run(
            command,
            check=False,
            stdout=output,
            stderr=output,
        )
    if process.returncode:
        raise SystemExit(f"{' '.join(command[:3])} failed:\n{_end(log)}")


def _end(log: Path) -> str:
    return log.read_text("utf-8", errors="replace")[-MAX_LOG_CHARS:]


def build_name(program: Path) -> str:
    """Return the name of a build: its version and a digest of its kernels.

    It is part of the key of an answer, because other kernels round otherwise and give
    other answers. So does another way to evaluate prompts: 3 of 40 answers differ from
    those without saved states. Who changes that changes the name, too. Raises
    SystemExit if the program does not say how it was built.
    """
    # The program prints its kernels before it finds that there are no weights.
    command = [str(program), "--verbosity", "4", "--model", f"{program}.absent.gguf"]
    process = subprocess.run(command, check=False, capture_output=True)
    kernels = _KERNELS.search((process.stdout + process.stderr).decode())
    if kernels is None:
        raise SystemExit(f"{program} does not say how it was built")
    digest = hashlib.sha256(kernels[1].encode()).hexdigest()[:8]
    return f"{PACKAGE} {VERSION} {digest}"


class NativeModel:
    """A model behind a server of `llama-server` that saves its states."""

    def __init__(self, name: str, client: httpx.AsyncClient) -> None:
        self.name = name
        self._client = client
        self._states: dict[str, str] = {}

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Mapping[str, Any] | None = None,
        max_tokens: int | None = 512,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> Answer:
        """Answer the chat from the saved state of its system message.

        Raises ModelError with what the server says.
        """
        request: dict[str, object] = {
            "messages": _plain(messages),
            "max_tokens": max_tokens,
            "temperature": temperature,
            "seed": seed,
            "cache_prompt": False,
        }
        if schema is not None:
            json_schema = {"schema": schema}
            request["response_format"] = {
                "type": "json_schema",
                "json_schema": json_schema,
            }
        if messages[0].role == "system":
            await self._restore(messages[0].content)
            request["cache_prompt"] = True

        start = time.monotonic()
        reply = await self._post("/v1/chat/completions", request)
        seconds = time.monotonic() - start
        (choice,) = reply["choices"]
        counts = reply["usage"]
        usage = Usage(
            1,
            counts["prompt_tokens"],
            completion_tokens=counts["completion_tokens"],
            seconds=seconds,
        )
        finish: Literal["stop", "length"] = "stop"
        if choice["finish_reason"] == "length":
            finish = "length"
        return Answer(choice["message"]["content"] or "", usage, finish)

    async def _restore(self, system: str) -> None:
        """Put the server in the state after the system message."""
        state = self._states.get(system)
        if state is None:
            prompt = await self._format_beginning(system)
            evaluation = {"prompt": prompt, "n_predict": 0, "cache_prompt": False}
            await self._post("/completion", evaluation)
            state = f"{len(self._states)}.state"
            await self._post("/slots/0?action=save", {"filename": state})
            self._states[system] = state
        await self._post("/slots/0?action=restore", {"filename": state})

    async def _format_beginning(self, system: str) -> str:
        """Return what stands before the first user's text, in the model's format."""
        text = secrets.token_hex(8)
        messages = [Message("system", system), Message("user", text)]
        reply = await self._post("/apply-template", {"messages": _plain(messages)})
        return str(reply["prompt"]).partition(text)[0]

    async def _post(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        answer = await self._client.post(path, json=body)
        if answer.is_error:
            raise ModelError(f"model {self.name!r} refused {path}: {answer.text}")
        reply: dict[str, Any] = answer.json()
        return reply

    async def close(self) -> None:
        """Do nothing: `serve` ends the server."""


def _plain(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]


@asynccontextmanager
async def serve(program: Path, weights: Path) -> AsyncIterator[NativeModel]:
    """Start a server on these weights, and end it with the block."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    key = secrets.token_hex(16)
    client = httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}",
        headers={"Authorization": f"Bearer {key}"},
        timeout=CALL_SECONDS,
        trust_env=False,
    )
    with TemporaryDirectory(prefix="heedful-") as folder:
        command = [str(program), "--model", str(weights), "--port", str(port)]
        command += ["--threads", "1", "--slot-save-path", folder]
        log = Path(folder) / "server.log"
        process = _start([*command, *SERVER_OPTIONS], key, log)
        try:
            async with client:
                await _wait(process, client, log)
                yield NativeModel(weights.stem, client)
        finally:
            process.terminate()
            process.wait()


def _start(command: list[str], key: str, log: Path) -> subprocess.Popen[bytes]:
    if shutil.which("setpriv"):  # on Linux, the server ends with a killed parent
        command = ["setpriv", "--pdeathsig", "KILL", *command]
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | {"LLAMA_API_KEY": key},
        )


async def _wait(
    process: subprocess.Popen[bytes], client: httpx.AsyncClient, log: Path
) -> None:
    """Wait until the server answers. Raises SystemExit with its last words."""
    for _ in range(int(START_SECONDS * 10)):
        if process.poll() is not None:
            break
        with suppress(httpx.TransportError):
            answer = await client.get("/health")
            if answer.is_success:
                return
        await asyncio.sleep(0.1)
    raise SystemExit(f"the model server does not start:\n{_end(log)}")
