"""Rules of a user in memory: stated, learnt from sessions, ended and retired."""

import pytest

import heedful
from heedful import Memory
from heedful.episodes.episode import Episode, Event
from heedful.errors import InvalidInput, NotFound
from heedful.integrations import Host
from heedful.store.store import Store

pytestmark = pytest.mark.both_nightly
PNPM = "we use pnpm, never npm"
NPM_CALL = {"command": "npm install zod"}


def session_of(*messages: str, id: str = "one") -> Episode:
    """Return a session without a failure, in which a user says these messages."""
    events = [Event("user_message", "Add zod to the project.")]
    for number, message in enumerate(messages):
        call = f"{id}{number}"
        events += [
            Event("tool_call", tool="Bash", arguments=NPM_CALL, call=call),
            Event("tool_response", "added 1 package", tool="Bash", call=call),
            Event("user_message", message),
        ]
    return Episode(tuple(events), outcome="partial", id=id, session=id)


@pytest.fixture
def trusting(store: Store) -> Memory:
    """A memory whose user is trusted."""
    return Memory(store)


async def test_stated_rule_is_told_before_a_call(memory):
    await memory.user_rules.state(PNPM, by="ann")

    history = await memory.before("Bash", NPM_CALL)
    assert [rule.text for rule in history.rules] == [PNPM]
    assert not await memory.before("Bash", {"command": "git status"})


async def test_newer_rule_ends_an_older_one_about_the_same_thing(memory):
    await memory.user_rules.state("use npm for packages", by="ann")
    stated = await memory.user_rules.state(PNPM, by="ann")

    assert stated.ended == ("use npm for packages",)
    assert [rule.text for rule in await memory.user_rules.in_force()] == [PNPM]


async def test_session_teaches_a_rule_without_a_failure(trusting):
    learned = await heedful.learn_session(
        session_of("No, we use pnpm, never npm."), memory=trusting
    )

    assert learned.rules == ("No, we use pnpm, never npm.",)
    (stated,) = await trusting.user_rules.list()
    assert stated.text == "No, we use pnpm, never npm."
    assert stated.trust == "user"


async def test_retired_rule_is_not_in_force(memory):
    remembered = await memory.user_rules.state(PNPM, by="ann")
    await memory.user_rules.retire(remembered.id, by="ann", why="we moved to npm")

    (stated,) = await memory.user_rules.list()
    assert stated.state == "retired"
    assert not await memory.before("Bash", NPM_CALL)


async def test_retired_rule_holds_again_when_it_is_stated_again(memory):
    remembered = await memory.user_rules.state(PNPM, by="ann")
    await memory.user_rules.retire(remembered.id, by="ann")
    await memory.user_rules.state(PNPM, by="ann")

    (stated,) = await memory.user_rules.list()
    assert stated.in_force


async def test_same_session_does_not_restore_a_retired_rule(trusting):
    await heedful.learn_session(session_of(PNPM), memory=trusting)
    (stated,) = await trusting.user_rules.list()
    await trusting.user_rules.retire(stated.id, by="ann")
    await heedful.learn_session(session_of(PNPM, "Thanks."), memory=trusting)

    assert await trusting.user_rules.in_force() == []


async def test_edited_rule_limits_what_its_new_words_say(memory):
    remembered = await memory.user_rules.state(PNPM, by="ann")
    await memory.edit(remembered.id, "we use bun, never yarn", by="ann")

    assert not await memory.before("Bash", NPM_CALL)
    assert await memory.before("Bash", {"command": "yarn add zod"})


async def test_edited_rule_binds_what_its_new_words_forbid(memory: Memory):
    rule = await memory.user_rules.state(PNPM, by="ann")
    await memory.edit(rule.id, "we use yarn, never pnpm", by="ann")
    run = Host(memory=memory).run("one")
    broken = await run.before("Bash", {"command": "pnpm add zod"}, "a")
    assert "(instead: yarn)" in broken.text
    assert not await run.before("Bash", NPM_CALL, "b")


async def test_rules_of_scopes_are_apart(store):
    await Memory(store).user_rules.state(PNPM, by="ann")
    other = Memory(store, heedful.Scope("default", "other"))

    assert await other.user_rules.list() == []
    assert not await other.before("Bash", NPM_CALL)


@pytest.mark.parametrize("change", ["retire", "deny", "allow"])
async def test_unknown_rule_cannot_be_changed(memory, change):
    with pytest.raises(NotFound):
        await getattr(memory.user_rules, change)(7, by="ann")


@pytest.mark.parametrize("text", ["always answer in German", "we use pnpm"])
async def test_rule_that_forbids_no_call_cannot_be_denied(memory, text):
    rule = await memory.user_rules.state(text, by="ann")
    with pytest.raises(InvalidInput, match="a rule that forbids"):
        await memory.user_rules.deny(rule.id, by="ann")


async def test_denial_that_would_have_blocked_what_the_rule_wants_is_refused(
    memory: Memory,
):
    rule = await memory.user_rules.state(PNPM, by="ann")
    run = Host(memory=memory).run("one")
    await run.before("Bash", {"command": "pnpm i && npm run x"}, "a")
    with pytest.raises(InvalidInput, match="pnpm i && npm run x"):
        await memory.user_rules.deny(rule.id, by="ann")
    assert not (await memory.user_rules.find(rule.id)).denied


async def test_rule_that_was_not_said_for_long_comes_last_with_its_date(
    memory: Memory,
):
    await memory.user_rules.state("always answer in German", by="ann")
    old = "update lesson set last_seen = 86400.0"
    await memory.store.write(memory.scope, lambda db, _: db.execute(old) and None)
    await memory.user_rules.state("always use tabs", by="ann")
    opening = await Host(memory=memory).run("one").opening()
    assert opening.text.index("always use tabs") < opening.text.index("German")
    assert "always answer in German (said on 1970-01-02)" in opening.text
