"""A policy made of the user's own rules can be read back and explained, though rules are code."""

import heedful
from heedful.loop.codec import policy_from
from heedful.store import loops


def enough(loop: heedful.Loop) -> str | None:
    return "two are enough" if len(loop.attempts) >= 2 else None


async def stopped(path: str) -> str:
    policy = heedful.Policy((enough,))
    checks = [heedful.checks.contains("b")]
    run = heedful.Run[str](
        "x", generate=lambda task, hint: "a", checks=checks, policy=policy, store=path
    )
    await run.finish()
    store = heedful.open_store(path)
    stored = await store.read(heedful.Scope(), loops.read, run.id)
    await store.close()
    known = policy_from(stored.head.policy)
    return str(heedful.explain(stored.loop, known, {2: stored.verdicts[-1]}))


def test_what_a_rule_of_the_users_said_is_explained_from_the_store(tmp_path):
    said = heedful.run_sync(stopped(str(tmp_path / "loops.db")))
    assert said.splitlines()[1:] == [
        "attempt 2: 'b' is missing -> stopped by enough: two are enough",
        "kept: attempt 1",
        "would have changed it: not known: the policy at hand is not all that stopped it",
    ]
