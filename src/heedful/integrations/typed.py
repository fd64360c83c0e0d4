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
from collections.abc import Collection, Iterable
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


def mark_of(text: str) -> str:
    """Return the mark of a prompt with this text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def are_typed(
    messages: Iterable[Spoken], new: Collection[str] = (), marks: Collection[str] = ()
) -> list[bool]:
    """Return for each message whether its text is the user's.

    `new` are the texts that the run is given, `marks` the marks that the conversation
    has beside those of its messages.
    """
    messages = list(messages)
    known_marks = {*marks, *(message.mark for message in messages if message.mark)}
    typed: list[bool] = []
    is_working = False
    for message in messages:
        if message.kind in ("answer", "calls"):
            is_working = message.kind == "calls"
        is_given = message.text in new or mark_of(message.text) in known_marks
        is_first_met = not known_marks and not is_working
        typed.append(message.kind == "prompt" and (is_given or is_first_met))
    return typed
