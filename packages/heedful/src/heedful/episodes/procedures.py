"""Procedures: tools that like tasks were done by, in the same order. Pure.

Three runs that succeeded, whose tasks are alike and which called the same tools in the
same order, show how such a task is done. One that fails so shows that it is not.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby

from heedful.episodes.comparison import LETTERS_PATTERN
from heedful.episodes.course import Course
from heedful.lessons.lesson import Signature
from heedful.lessons.scope import MIN_SAME_RUNS
from heedful.lessons.signature import signature
from heedful.lessons.words import MIN_SHARED_WORDS, words

# Fewer tools are no order.
MIN_PROCEDURE_TOOLS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """The tools of a run in their order, and its task.

    It `has_failed` if other runs had done a like task in this way, and this one did not
    succeed.
    """

    tools: tuple[str, ...] = ()
    task: str = ""
    has_failed: bool = False

    @property
    def signature(self) -> Signature:
        """The signature of the strategy: the tools in their order."""
        return Signature.of("strategy", f"procedure: {self.steps}")

    @property
    def steps(self) -> str:
        """The tools as one text."""
        return " ".join(self.tools)

    def shared_words(
        self, task: str, runs: Sequence[tuple[str, str]]
    ) -> tuple[str, ...]:
        """Return the words that a task shares with like ones; () without enough.

        `runs` are other runs that succeeded: their tools, as one text, and their tasks.
        Names, and words that a third of the tasks have that were done otherwise, tell
        nothing.
        """
        same_way_tasks = [done for steps, done in runs if steps == self.steps]
        same_way_words = [_words_of(done) for done in same_way_tasks]
        other_way_words = [
            _words_of(done) for steps, done in runs if steps != self.steps
        ]
        counts = Counter(chain.from_iterable(same_way_words))
        recurring = {w for w, n in counts.items() if n >= MIN_SAME_RUNS}
        other_counts = Counter(chain.from_iterable(other_way_words))
        common = {w for w, n in other_counts.items() if n * 3 >= len(other_way_words)}
        names = set(chain.from_iterable(map(_names_in, (task, *same_way_tasks))))
        shared = recurring.intersection(_words_of(task)) - common - names
        like_tasks = sum(
            len(shared.intersection(done)) >= MIN_SHARED_WORDS
            for done in same_way_words
        )
        if like_tasks < MIN_SAME_RUNS:
            return ()
        # As the task has them: `words` are without their endings.
        task_words = LETTERS_PATTERN.findall(task)
        return tuple(
            dict.fromkeys(
                word for word in task_words if shared.intersection(words(word))
            )
        )


def tools_in_order(run: Course) -> tuple[str, ...]:
    """Return the tools that a run called, one that is called again in a row once."""
    calls = [event.tool for event in run.events if event.type == "tool_call"]
    return tuple(tool for tool, _ in groupby(filter(None, calls)))


def _words_of(task: str) -> Sequence[str]:
    """Return the words of a task without figures and ids, each once."""
    return list(dict.fromkeys(words(signature("", task).pattern)))


def _names_in(task: str) -> Sequence[str]:
    """Return the words with a capital elsewhere than at a sentence's beginning."""
    sentences = re.split(r"[.!?]\s|\n", task)
    later = chain.from_iterable(LETTERS_PATTERN.findall(s)[1:] for s in sentences)
    return words(" ".join(word for word in later if word[0].isupper()))
