"""What memory did for a loop before its first attempt, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from heedful.pages.report import counted

MAX_TOLD_LESSONS = 3
Plain = dict[str, Any]


def list_outcomes(choices: Sequence[Plain]) -> str:
    """Return how many texts were shown, withheld and not used.

    >>> list_outcomes([{"outcome": "withheld", "n": 2}, {"outcome": "closest", "n": 1}])
    '2 withheld by a coin, 1 known but not used'
    """
    counts = _count(choices)
    phrases = {
        "shown": counts["told"],
        "withheld by a coin": counts["withheld"],
        "known but not used": counts["missed"] + counts["closest"],
    }
    return ", ".join(f"{n:,} {phrase}" for phrase, n in phrases.items() if n)


def describe_memory(choices: Sequence[Plain]) -> str:
    """Return which lessons a loop was shown, and what a coin withheld; "" if nothing.

    >>> describe_memory([{"outcome": "told", "n": 1, "lesson": 2}])
    'With lesson 2 shown.'
    >>> describe_memory([{"outcome": "told", "n": 4, "lesson": 1}])
    'With 4 texts of lesson 1 shown.'
    >>> describe_memory([{"outcome": "withheld", "n": 4, "lesson": 2}])
    'A coin withheld 4 texts of memory.'
    """
    counts = _count(choices)
    sentences = []
    if counts["told"]:
        sentences.append(f"With {_shown(choices, counts['told'])} shown.")
    if counts["withheld"]:
        texts = counted(counts["withheld"], "text")
        sentences.append(f"A coin withheld {texts} of memory.")
    return " ".join(sentences)


def only_told_lesson(choices: Sequence[Plain]) -> int:
    """Return the id of the lesson that a loop was shown, 0 if they are several.

    >>> only_told_lesson([{"outcome": "told", "n": 4, "lesson": 1}])
    1
    """
    lessons = {choice["lesson"] for choice in choices if choice["outcome"] == "told"}
    if len(lessons) != 1:
        return 0
    return int(lessons.pop())


def _shown(choices: Sequence[Plain], texts: int) -> str:
    """Return the lessons that were shown, or the number of texts if they are many."""
    shown = [choice["lesson"] for choice in choices if choice["outcome"] == "told"]
    lessons = list(dict.fromkeys(shown))
    if not all(lessons) or len(lessons) > MAX_TOLD_LESSONS:
        return f"{counted(texts, 'text')} of memory"
    names = " and ".join(map(str, lessons))
    noun = "lesson" if len(lessons) == 1 else "lessons"
    if texts > len(lessons):
        return f"{counted(texts, 'text')} of {noun} {names}"
    return f"{noun} {names}"


def _count(choices: Sequence[Plain]) -> Counter[str]:
    """Return the number of texts with each outcome."""
    counts = Counter[str]()
    for choice in choices:
        counts[choice["outcome"]] += choice["n"]
    return counts
