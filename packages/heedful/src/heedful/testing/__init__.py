"""Test doubles for users: a scripted model, an embedder without weights, loops.

`heedful.testing.conformance` has the cases that an adapter of your own must pass; it is
imported by its own name.
"""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from math import hypot

from heedful.errors import ModelError
from heedful.loop.record import (
    Attempt,
    Candidate,
    Evaluation,
    Finding,
    Goal,
    Loop,
    Usage,
)
from heedful.models.contract import Answer, Message
from heedful.validation import Fields

# A line of a script: a text, an answer, an exception to raise, or a function of the
# messages.
Line = str | Answer | BaseException | Callable[[Sequence[Message]], "str | Answer"]


class ScriptedModel:
    """A Model that answers from a script.

    Each line is a text, an Answer, an exception to raise, or a function of the
    messages. After the last line the model raises ModelError; if `forever`, it begins
    again. `prompts` has the messages of every call, `settings` the other arguments.
    Each call takes `seconds`.
    """

    name = "scripted"

    def __init__(
        self, *lines: Line, forever: bool = False, seconds: float = 0.0
    ) -> None:
        self._lines = lines
        self._forever = forever
        self._seconds = seconds
        self.prompts: list[tuple[Message, ...]] = []
        self.settings: list[Fields] = []

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Fields | None = None,
        max_tokens: int | None = None,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> Answer:
        """Return the next line of the script. Raises ModelError after the last line."""
        index = len(self.prompts)
        self.prompts.append(tuple(messages))
        self.settings.append(
            {
                "schema": schema,
                "max_tokens": max_tokens,
                "temperature": temperature,
                "seed": seed,
            }
        )
        if self._seconds:
            await asyncio.sleep(self._seconds)

        if not self._lines or (index >= len(self._lines) and not self._forever):
            raise ModelError(
                f"the script has {len(self._lines)} lines; call {index + 1} has none"
            )

        line = self._lines[index % len(self._lines)]
        if isinstance(line, BaseException):
            raise line
        answer = line(messages) if callable(line) else line
        if isinstance(answer, Answer):
            return answer

        # A token has about four characters.
        prompt_tokens = sum(len(message.content) // 4 for message in messages)
        usage = Usage(1, prompt_tokens, completion_tokens=len(answer) // 4)
        return Answer(answer, usage)

    async def close(self) -> None:
        """Do nothing, because nothing is open."""


class FixedEmbedder:
    """An Embedder that counts hashed words.

    Texts with common words get similar vectors.
    """

    name = "fixed"

    def __init__(self, dimensions: int = 64) -> None:
        self.dimensions = dimensions

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return one unit vector for each text."""
        vectors = []
        for text in texts:
            vector = [0.0] * self.dimensions
            for word in text.lower().split() or [""]:
                digest = hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()
                vector[int.from_bytes(digest[:4]) % self.dimensions] += 1.0

            length = hypot(*vector)
            vectors.append([x / length for x in vector])
        return vectors


def history(
    *attempts: Sequence[str] | Mapping[str, float],
    goals: Sequence[Goal] = (),
    candidates: Sequence[str] = (),
    id: str = "history",
) -> Loop:
    """Return a loop with an attempt for each evaluation.

    Each of `attempts` is a list of finding keys (all errors) or a mapping of scores.
    `candidates` are the texts of the attempts; by default all texts differ.

    >>> history(["a", "b"], ["a"]).improved
    (True, True)
    """
    records = []
    for number, content in enumerate(attempts, 1):
        text = candidates[number - 1] if candidates else f"candidate {number}"
        if isinstance(content, Mapping):
            evaluation = Evaluation(scores=content)
        else:
            findings = [Finding("check", key, key=key) for key in content]
            evaluation = Evaluation(tuple(findings))
        attempt = Attempt(
            number, Candidate.of(text), evaluation=evaluation, usage=Usage(calls=1)
        )
        records.append(attempt)

    return Loop(id, tuple(goals), attempts=tuple(records))
