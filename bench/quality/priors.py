"""Priors: what a memory may know of other environments before its first session.

These are the tests by which heedful decides when it speaks: how often calls failed
again whose preconditions had a like record. Keys of calls never come from elsewhere.
The tests that heedful ships were measured on all environments, so the replay of one
takes those of the others instead, beside the contracts of tools.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import heedful
from bench.quality.recordings import Session
from heedful.lessons.reliability import Form, FormTests
from heedful.lessons.shipped_tests import CONTRACT_TESTS, SHIPPED_TESTS
from heedful.store import preconditions

TestsByForm = Mapping[Form, FormTests]


def learn_tests(name: str, sessions: Sequence[Session]) -> TestsByForm:
    """Return the tests that the sessions of an environment make, in order of time."""
    return asyncio.run(_learn_tests(name, sessions))


async def _learn_tests(name: str, sessions: Sequence[Session]) -> TestsByForm:
    memory = heedful.Memory(":memory:", heedful.Scope(project=name), holdout=0)
    for session in sorted(sessions, key=lambda session: session.end):
        await heedful.learn_session(session.episode, memory=memory, root=session.root)
    tests = await memory.store.read(memory.scope, preconditions.read_tests)
    await memory.store.close()
    return tests


def pool(tests: Mapping[str, TestsByForm], without: str) -> TestsByForm:
    """Return the tests of all environments but one, and those of the contracts."""
    pooled = defaultdict[Form, FormTests](FormTests)
    for name, of_environment in tests.items():
        for form, counts in of_environment.items():
            if name != without:
                pooled[form] += counts
    for form, counts in CONTRACT_TESTS.items():
        pooled[form] = pooled[form].at_most(counts.tested) + counts
    return pooled


@contextmanager
def shipped(tests: TestsByForm) -> Iterator[None]:
    """Let heedful ship these tests."""
    usual = dict(SHIPPED_TESTS)
    SHIPPED_TESTS.clear()
    SHIPPED_TESTS.update(tests)
    try:
        yield
    finally:
        SHIPPED_TESTS.clear()
        SHIPPED_TESTS.update(usual)
