"""A stand-in for a model, behind OpenAI's protocol, for the pages that ask one.

The docs runner starts it and points the OpenAI SDK at it, so that a page shows the call
that a reader writes and still runs without a key. It behaves as a model that does not
know a house rule: it rates a bug in words of its own until its prompt names the levels
P0 to P3.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# The bug in the first line of a prompt, and the level that a person would give it.
LEVELS: Mapping[str, str] = {"Checkout": "P0", "Typo": "P3", "Login": "P2"}
OTHER_LEVEL = "P1"
UNINFORMED_ANSWER = "very high"
CHARACTERS_OF_A_TOKEN = 4


def answer(prompt: str) -> str:
    """Return what the stand-in says to a prompt."""
    if "P0" not in prompt:
        return UNINFORMED_ANSWER
    question = prompt.partition("\n")[0]
    for word, level in LEVELS.items():
        if word in question:
            return level
    return OTHER_LEVEL


def completion(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a chat completion for the body of a request."""
    prompt = "\n".join(message["content"] for message in request["messages"])
    text = answer(prompt)
    prompt_tokens = len(prompt) // CHARACTERS_OF_A_TOKEN
    completion_tokens = max(1, len(text) // CHARACTERS_OF_A_TOKEN)
    message = {"role": "assistant", "content": text}
    return {
        "id": "stand-in",
        "object": "chat.completion",
        "created": 0,
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
    }


class Answers(BaseHTTPRequestHandler):
    """Answers every POST with a chat completion."""

    def do_POST(self) -> None:
        """Read the request and write the completion."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps(completion(request)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing: a page shows only what its own program prints."""


@contextmanager
def serving() -> Iterator[dict[str, str]]:
    """Serve while the block runs; yield the variables that the OpenAI SDK reads."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        port = server.server_address[1]
        yield {
            "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",
            "OPENAI_API_KEY": "none",
        }
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
