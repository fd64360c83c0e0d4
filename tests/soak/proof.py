"""Three lessons whose true effects are known: one helps, one harms, one does nothing."""

from __future__ import annotations

import random

import heedful
from heedful.lessons.lesson import Example, Reflection
from heedful.lessons.signature import signature

TASK = "Convert the length of plank {n} into the house format"
GAINS = {"good": 0.35, "bad": -0.4, "idle": 0.0}
RIGHT = "right " * 1_000  # too long to be learnt, so the lessons stay these three


def name_of(lesson: str) -> str:
    return f"check/{signature('house', lesson).digest}"


def lessons() -> list[Reflection]:
    return [
        Reflection(
            *("check", signature("house", name), "house", name, name),
            example=Example(TASK.format(n=name), f"{name} answer"),
            state="verified",
        )
        for name in GAINS
    ]


async def answer(task: str, hint: str) -> str:
    """Right at once with a chance that the lessons shown raise or lower; then always right."""
    at = heedful.context()
    if at.attempt > 1:
        return RIGHT
    rate = 0.5 + sum(GAINS[turn.content.split()[0]] for turn in at.examples[1::2])
    return RIGHT if random.Random(f"answer {at.loop_id}").random() < rate else "wrong"


def is_house_format(candidate: str, at: heedful.Context) -> list[heedful.Finding]:
    wrong = heedful.Finding("house", "not the house format", key="bad")
    return [] if candidate == RIGHT else [wrong]


is_house_format.pure = True  # type: ignore[attr-defined]
