"""Methods that change what an attempt with memory is shown, each for an ablation.

A method is an object for one stream: it prepares the context of each attempt, and hears
how each task ended. A method that wins on streams that it was not chosen on belongs in
heedful; here it is tried on the same tasks first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Protocol

from heedful import Context
from heedful.models.contract import Message

_WORD = re.compile(r"\w+")
MAX_PAIRS = 3
MIN_SAME_WORDS = 0.5
BLANK = "…"


@dataclass(frozen=True, kw_only=True)
class Past:
    """A task that has ended: its rejected answers, and the accepted one or ""."""

    task: str
    rejected: tuple[str, ...]
    accepted: str


class Method(Protocol):
    """What changes the context of an attempt; `past` has the tasks before it."""

    def prepare(self, context: Context, past: Sequence[Past]) -> Context:
        """Return the context that the prompt of an attempt is made from."""


@dataclass
class OtherArm:
    """The second attempt has no memory; the third has it again.

    With `keeps_feedback`, the second attempt has the feedback on the first one.
    Without, it is what an arm without memory answers first. The third attempt sees the
    feedback on the first one, because two rejected answers with one finding each are
    equally good, and then the earlier one counts.
    """

    keeps_feedback: bool = False
    _rejected: dict[str, Context] = field(default_factory=dict)

    def prepare(self, context: Context, past: Sequence[Past]) -> Context:
        """Return the context without memory for the second attempt."""
        has_memory = bool(context.examples or context.advice)
        if context.attempt == 2 and has_memory:
            self._rejected[context.loop_id] = context
            without = replace(context, examples=(), advice=())
            if self.keeps_feedback:
                return without
            return replace(without, hint="", previous=None)
        first = self._rejected.pop(context.loop_id, None)
        if context.attempt == 3 and first is not None:
            return replace(context, hint=first.hint, previous=first.previous)
        return context


@dataclass(frozen=True)
class RejectedPairs:
    """A retry is shown what was accepted in the place of answers like the rejected one.

    At most `MAX_PAIRS` tasks whose rejected answers share `MIN_SAME_WORDS` of their
    words with it; they come last, and replace as many examples.
    """

    def prepare(self, context: Context, past: Sequence[Past]) -> Context:
        """Return the context with examples for the rejected answer."""
        if context.attempt == 1 or not isinstance(context.previous, str):
            return context

        ranked = []
        for place, task in enumerate(past):
            if task.accepted and task.rejected:
                rejected = task.rejected
                share = max(share_of_words(text, context.previous) for text in rejected)
                if share >= MIN_SAME_WORDS:
                    ranked.append((share, place, task))
        ranked.sort(key=lambda entry: entry[:2])

        pairs = [_as_turns(task) for *_, task in ranked[-MAX_PAIRS:]]
        tasks = {question.content for question, _ in pairs}
        examples = [
            pair for pair in _pairs(context.examples) if pair[0].content not in tasks
        ]
        last_pairs = [*examples, *pairs][-MAX_PAIRS:]
        return replace(context, examples=tuple(chain.from_iterable(last_pairs)))


@dataclass(frozen=True)
class CoveringSet:
    """Examples are chosen as a set: together they have the most words of the task.

    One after the other is the accepted task that adds the most words and pairs of
    adjacent words; of equal ones, the newest. They come in the place of the nearest.
    """

    def prepare(self, context: Context, past: Sequence[Past]) -> Context:
        """Return the context with the examples that cover the task."""
        left = ngrams_of(str(context.task))
        pool = [task for task in past if task.accepted]
        pairs: list[tuple[Message, Message]] = []
        while pool and left and len(pairs) < MAX_PAIRS:
            best = max(pool, key=lambda task: len(left & ngrams_of(task.task)))
            if not left & ngrams_of(best.task):
                break
            left -= ngrams_of(best.task)
            pool.remove(best)
            pairs.insert(0, _as_turns(best))
        rest = [pair for pair in _pairs(context.examples) if pair not in pairs]
        pairs = [*rest, *pairs][-MAX_PAIRS:]
        return replace(context, examples=tuple(chain.from_iterable(pairs)))


@dataclass(frozen=True)
class Skeletons:
    """An example whose names are unknown to a task is shown without its names.

    A word that most accepted answers have is grammar; any other is a name or a value.
    The names of an example are known if at least half of them are in the task.
    """

    def prepare(self, context: Context, past: Sequence[Past]) -> Context:
        """Return the context with examples whose names the task has."""
        answers = [task.accepted for task in past if task.accepted]
        counts = Counter(chain.from_iterable(map(words_of, answers)))
        task_words = words_of(str(context.task))
        turns: list[Message] = []
        for question, answer in _pairs(context.examples):
            names = {
                word
                for word in words_of(answer.content)
                if counts[word] <= len(answers) / 2
            }
            if len(names & task_words) >= len(names) / 2:
                turns += [question, answer]
                continue
            blanked = _blank_words(answer.content, names)
            if words_of(blanked):
                turns += [question, replace(answer, content=blanked)]
        return replace(context, examples=tuple(turns))


def words_of(text: str) -> frozenset[str]:
    """Return the different words of a text in lower case."""
    return frozenset(_WORD.findall(text.lower()))


def ngrams_of(text: str) -> frozenset[str]:
    """Return the words of a text and its pairs of adjacent words, in lower case."""
    words = _WORD.findall(text.lower())
    return frozenset(words).union(map(" ".join, pairwise(words)))


def share_of_words(text: str, other: str) -> float:
    """Return the share of the words of two texts that both have, 0..1."""
    words = words_of(text)
    other_words = words_of(other)
    return len(words & other_words) / max(1, len(words | other_words))


def _pairs(turns: Sequence[Message]) -> list[tuple[Message, Message]]:
    return list(zip(turns[::2], turns[1::2], strict=True))


def _as_turns(task: Past) -> tuple[Message, Message]:
    return Message("user", task.task), Message("assistant", task.accepted)


def _blank_words(text: str, names: frozenset[str] | set[str]) -> str:
    """Return the text with blanks in the place of these words."""
    return _WORD.sub(lambda word: BLANK if word[0].lower() in names else word[0], text)
