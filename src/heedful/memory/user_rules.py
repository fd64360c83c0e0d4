"""Rules that a user gave agents: list, state, move, retire.

`Memory.user_rules` returns a `UserRules`. Agents are told the rules at the start of a
session, and when a call goes against one. What users say in sessions becomes a rule by
itself; here a person decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heedful.errors import NotFound
from heedful.lessons.lesson import Lesson, Remembered
from heedful.lessons.stated_rule import RULE_TYPES, RuleReach, StatedRule
from heedful.lessons.user_rules import MAX_USER_RULE_CHARS, rule_signature
from heedful.memory.memory import Memory, write_lessons
from heedful.memory.user_words import RULE_IMPORTANCE
from heedful.redact import mask_personal, redact
from heedful.store import editions
from heedful.store import user_rules as rule_store
from heedful.validation import check_actor, check_integer, require

STORED_REACHES = ("project", "all")


class UserRules:
    """The rules of the user in one memory.

    A rule with the reach "all" holds in all projects of a user if it is in the user's
    own memory. All methods raise StoreError.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def list(self) -> Sequence[StatedRule]:
        """Return the rules in all states, last said first.

        The text of a rule that waits in quarantine is empty.
        """
        memory = self._memory
        return await memory.store.read(memory.scope, rule_store.listed)

    async def in_force(self, session: str = "") -> Sequence[StatedRule]:
        """Return the rules that agents are held to, in a session also those of its own.

        What the user allowed again in the session is left out.
        """
        memory = self._memory
        if not session:
            return await memory.store.read(memory.scope, rule_store.in_force)
        return await memory.store.read(memory.scope, rule_store.of_session, session)

    async def broken_by(
        self,
        tool: str,
        arguments: Mapping[str, Any] | str,
        *,
        session: str = "",
        call: str = "",
        folder: str = "",
    ) -> Sequence[StatedRule]:
        """Return the rules that a call breaks, as far as its words show it.

        In a session, a rule that it was told of is left out. `call` is the id of the
        call, if it is stored already. Paths are those of the repository in `folder`.
        """
        memory = self._memory
        return await memory.store.read(
            memory.scope,
            rule_store.broken_by,
            tool,
            arguments,
            session=session,
            call=call,
            folder=folder,
        )

    async def state(
        self, text: str, *, by: str, reach: RuleReach = "project"
    ) -> Remembered:
        """Store a rule of a person; a retired one with the same words is restored.

        Rules that it contradicts are retired. Raises InvalidInput, QuotaExceeded.
        """
        check_actor(by, "")
        require(reach in STORED_REACHES, "reach", reach, "project or all")
        text = " ".join(mask_personal(redact(text)).split())
        is_short = 0 < len(text) <= MAX_USER_RULE_CHARS
        require(is_short, "text", text, f"1 to {MAX_USER_RULE_CHARS} characters")
        lesson = Lesson(
            "reflection",
            rule_signature(text, reach),
            error_type=RULE_TYPES[reach],
            text=text,
            sighting=text,
            trust="operator",
            importance=RULE_IMPORTANCE,
            meta={"correction": True},
            source=f"operator:{by}",
        )
        (answer,) = await write_lessons(self._memory, [lesson], rule_store.state)
        return answer

    async def retire(self, id: int, *, by: str, why: str = "") -> StatedRule:
        """Retire a rule, and return it as it was; saying it again restores it.

        Raises NotFound, and InvalidInput for a rule that is not in force.
        """
        check_actor(by, why)
        stated = await self.read(id)
        memory = self._memory
        lesson = await memory.store.read(memory.scope, editions.one, id)
        await memory.store.write(
            memory.scope,
            editions.amend,
            id=id,
            edition=lesson["edition"],
            by=by,
            why=why,
            retired=True,
        )
        return stated

    async def deny(self, id: int, *, by: str, denies: bool = True) -> StatedRule:
        """Let hooks deny the calls that go against a rule, or no longer; return it.

        Only a rule of this project can deny calls. Raises NotFound, InvalidInput.
        """
        check_actor(by, "")
        stated = await self.read(id)
        is_own = stated.reach == "project"
        require(is_own, "reach", stated.reach, "project: move the rule to it first")
        memory = self._memory
        await memory.store.write(memory.scope, rule_store.deny, id, by, denies=denies)
        return await self.read(id)

    async def read(self, id: int) -> StatedRule:
        """Return the rule with this id. Raises NotFound, InvalidInput."""
        check_integer("id", id)
        for stated in await self.list():
            if stated.id == id:
                return stated
        scope = self._memory.scope
        raise NotFound("rule", str(id), f"the rules of {scope.tenant}/{scope.project}")

    async def move_to(self, other: Memory) -> int:
        """Move the rules for all projects to the user's own memory; return how many.

        A rule that waits in quarantine stays until it is released.
        """
        moved = 0
        memory = self._memory
        for stated in await self.in_force():
            if stated.reach == "all":
                rules = UserRules(other)
                await rules.state(stated.text, by=rule_store.USER_ACTOR, reach="all")
                await memory.store.write(memory.scope, rule_store.forget, stated.id)
                moved += 1
        return moved
