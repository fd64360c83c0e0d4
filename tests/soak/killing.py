"""A program killed again and again until it has come to its end."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable

from tests.store.support import WAITING, python


def killed_until_done(
    code: str, *arguments: object, chance: random.Random, seconds: Callable[[int], float]
) -> int:
    """How often it was killed; it says "ready", then "done", and is given a seed as the last.

    `seconds(kills)` is how long it may run at most after so many kills.
    """
    for kills in range(10_000):
        process = python(code, *arguments, chance.randrange(10**6))
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            process.wait(chance.random() * seconds(kills))
        except subprocess.TimeoutExpired:
            process.kill()
        out, err = process.communicate(timeout=WAITING)
        if "done" in out:
            return kills
        assert not err, err
    raise AssertionError("it never came to an end")
