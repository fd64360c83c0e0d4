"""A program killed again and again until it has come to its end."""

from __future__ import annotations

import random
import subprocess

from tests.store.support import WAITING, python

# By how much longer it may run after each kill: on a busy machine it comes to its end, too.
LONGER = 1.2


def killed_until_done(code: str, *arguments: object, chance: random.Random, seconds: float) -> int:
    """How often it was killed; it says "ready", then "done", and is given a seed as the last.

    At first it may run for `seconds` at most, and less by chance.
    """
    for kills in range(10_000):
        process = python(code, *arguments, chance.randrange(10**6))
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            process.wait(chance.random() * seconds * LONGER**kills)
        except subprocess.TimeoutExpired:
            process.kill()
        out, err = process.communicate(timeout=WAITING)
        if "done" in out:
            return kills
        assert not err, err
    raise AssertionError("it never came to an end")
