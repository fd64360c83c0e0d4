"""A policy made of the user's own rules can be read back and explained, though rules are code."""

import errata
from errata.codec import policy_from


def enough(loop: errata.Loop) -> str | None:
    return "two are enough" if len(loop.attempts) >= 2 else None


async def stopped(path: str) -> str:
    policy = errata.Policy((enough,))
    checks = [errata.checks.contains("b")]
    run = errata.Run[str](
        "x", generate=lambda task, hint: "a", checks=checks, policy=policy, store=path
    )
    await run.finish()
    store = errata.open_store(path)
    stored = await store.read(errata.Scope(), run.id)
    await store.close()
    known = policy_from(stored.head.policy)
    return str(errata.explain(stored.loop, known, {2: stored.verdicts[-1]}))


def test_what_a_rule_of_the_users_said_is_explained_from_the_store(tmp_path):
    said = errata.run_sync(stopped(str(tmp_path / "loops.db")))
    assert said.splitlines()[1:] == [
        "attempt 2: 'b' is missing -> stopped by enough: two are enough",
        "kept: attempt 1",
        "would have changed it: not known: the policy at hand is not all that stopped it",
    ]
