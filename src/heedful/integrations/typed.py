"""Which prompts of a conversation are words of its user.

Each turn of a conversation is a run, and the model gets the turns before it as
messages. Their roles do not say who wrote them: a hook that adds a page to the messages
adds a prompt, too. So an adapter marks the prompts that a run is given. In later turns,
only marked and new prompts are the user's. A mark depends on the text, so it does not
hold for a prompt that code has changed.

A conversation without a mark is new to heedful. Its prompts are the user's, but those
between a call of a tool and the next answer without calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

# The key of the mark in the fields that a framework keeps with a message.
TYPED_KEY = "heedful_typed"

# A message of a user or a system, an answer of the model with calls of tools or
# without, or any other message.
Kind: TypeAlias = Literal["prompt", "calls", "answer", "other"]


@dataclass(frozen=True, slots=True)
class Spoken:
    """What decides if a message is the user's: its kind, its text and its mark."""

    kind: Kind
    text: str
    mark: object = None

    def is_typed(self, marks: Collection[object]) -> bool:
        """Return True for a prompt with one of the marks of the user's prompts."""
        return self.kind == "prompt" and mark_of(self.text) in marks


def mark_of(text: str) -> str:
    """Return the mark of a prompt with this text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def typed_marks(
    messages: Iterable[Spoken], *, new: Iterable[str] = (), marks: Iterable[object] = ()
) -> set[object]:
    """Return the marks of the user's prompts in a conversation.

    `new` are the texts that the run is given, `marks` those that the conversation has
    beside the marks of its messages.
    """
    messages = list(messages)
    known_marks = set(marks)
    known_marks.update(
        message.mark for message in messages if isinstance(message.mark, str)
    )
    if not known_marks:
        known_marks.update(_marks_at_first(messages))
    known_marks.update(map(mark_of, new))
    return known_marks


def _marks_at_first(messages: Iterable[Spoken]) -> Iterator[str]:
    """Yield the marks of the user's prompts in a conversation that is new."""
    is_working = False
    for message in messages:
        if message.kind in ("answer", "calls"):
            is_working = message.kind == "calls"
        if message.kind == "prompt" and not is_working:
            yield mark_of(message.text)
