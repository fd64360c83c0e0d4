"""Rules that a user gave agents: list, state, retire, and what a session hears of them.

What users say in prompts becomes a rule by itself, as `hear` finds it; each other rule
a person states here. A session hears them when it begins, is resumed or has lost its
context, and before each call that breaks them.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, replace
from functools import partial

from heedful.episodes.episode import Event
from heedful.errors import NotFound
from heedful.lessons.lesson import Example, Lesson, Signature
from heedful.lessons.rule_calls import triggers_of_rule
from heedful.lessons.rule_ledger import DenialTrial, ledger_of, try_denial
from heedful.lessons.rule_parts import parts_of
from heedful.lessons.rule_reading import read_correction, read_rules
from heedful.lessons.scope import Remembered, Scope
from heedful.lessons.user_rules import RULE_TYPE, StatedRule
from heedful.memory.files import file_digests
from heedful.memory.quarantine import Quarantine
from heedful.redact import mask_personal, redact
from heedful.store import editions, past_calls, rule_changes, user_rules as rule_store
from heedful.store.store import Store
from heedful.validation import (
    MAX_SHOWN_ITEMS,
    MAX_SHOWN_LINE_CHARS,
    MAX_STORED_TEXT_CHARS,
    check_actor,
    check_integer,
    require,
)

# Embeds lessons and stores them by a function of the store.
WriteLessons = Callable[..., Awaitable[list[Remembered]]]
# The source of what the user said.
USER_SOURCE = "user"


def rule_lesson(text: str, source: str, root: str = "") -> Lesson:
    """Return a rule of the user as a lesson to store; `source` is who said it.

    It keeps the digests of the files below `root` that it names. Its signature is the
    whole text, apart from case and spaces: rules that differ in a figure are two
    lessons, although figures in errors make no difference.
    """
    parts = parts_of(text)
    names = [part.words[0] for part in (*parts.forbidden, *parts.wanted)]
    files = file_digests(root, names) if root else {}
    return Lesson(
        "reflection",
        Signature.of(RULE_TYPE, " ".join(text.lower().split())),
        error_type=RULE_TYPE,
        text=text,
        sighting=text,
        trust="user",
        importance=0.9,
        is_correction=True,
        source=source,
        data={
            "said": text,
            "triggers": triggers_of_rule(parts),
            **asdict(parts),
            "files": files,
        },
    )


def correction_lessons(
    events: Sequence[Event], *, task: str, source: str
) -> list[Lesson]:
    """Return a lesson for each rule by which the user corrected an agent in a run.

    `events` are those of the run, and `source` is its name. The lessons are recalled
    for tasks like `task`. The texts must have no secrets: they are not redacted.
    """
    corrections: dict[str, None] = {}  # in order, and each once
    has_answer = False
    for event in events:
        has_answer = has_answer or event.type == "llm_response"
        # What the user says before the first answer corrects nothing. A message with an
        # origin has words of a tool or a page, which are not the user's own.
        if has_answer and event.type == "user_message" and not event.origin:
            text = read_correction(mask_personal(event.content))
            corrections[text] = None
    task = task[:MAX_STORED_TEXT_CHARS]
    example = Example(task, "") if task else None
    return [
        replace(rule_lesson(text, source), example=example)
        for text in filter(None, corrections)
    ]


def check_trial(rule: StatedRule, trial: DenialTrial) -> None:
    """Raise InvalidInput if a denial would have blocked a call that does what a rule
    wants.
    """
    obeying = ", ".join(trial.obeying[:MAX_SHOWN_ITEMS])
    allowed = (
        "a rule whose denial blocks no call that also does what it wants, as it would "
        f"have blocked {obeying}; state it in narrower words"
    )
    require(not trial.obeying, "rule", rule.text, allowed)


class UserRules:
    """The rules of the user in one memory; all methods raise StoreError.

    `Memory.user_rules` returns them. Those in the user's own memory hold in all
    projects. `write` embeds lessons and stores them by a function of the store.
    """

    def __init__(
        self, store: Store, scope: Scope, *, quarantine: Quarantine, write: WriteLessons
    ) -> None:
        self._store = store
        self._scope = scope
        self._quarantine = quarantine
        self._write = write

    async def list(self) -> Sequence[StatedRule]:
        """Return the rules in all states, last said first.

        The text of a rule that waits in quarantine is empty.
        """
        return await self._store.read(self._scope, rule_store.listed)

    async def in_force(self) -> Sequence[StatedRule]:
        """Return the rules that agents are told, last said first."""
        return await self._store.read(self._scope, rule_store.in_force)

    async def with_ledgers(self, rules: Sequence[StatedRule]) -> Sequence[StatedRule]:
        """Return rules, each with how agents kept it in the recorded sessions.

        These are the sessions of this memory; the `rules` may be of another one.
        """
        calls, tellings = await self._store.read(self._scope, past_calls.recorded)
        return [
            replace(rule, ledger=ledger_of(rule, calls, tellings)) for rule in rules
        ]

    async def state(
        self, text: str, *, by: str, key: str = "", root: str = ""
    ) -> StatedRule:
        """Store a rule that the person `by` states, and return it.

        `root` is the folder of the repository: the rule is told no more when the files
        there that it names are gone. A retired rule with the same words is restored,
        and older rules about the same thing are retired. With a `key`, a call that is
        repeated within a day changes nothing and returns the first result. Raises
        InvalidInput, QuotaExceeded, and
        Conflict if the key belongs to another call.
        """
        check_actor(by, "")
        text = " ".join(mask_personal(redact(text)).split())
        is_short = 0 < len(text) <= MAX_SHOWN_LINE_CHARS
        require(is_short, "text", text, f"1 to {MAX_SHOWN_LINE_CHARS} characters")
        (stated,) = await self._keep([text], f"operator:{by}", key, root)
        return stated

    async def hear(
        self, message: str, *, source: str, key: str = "", root: str = ""
    ) -> Sequence[StatedRule]:
        """Store the rules that a message of the user states; return them, often none.

        `source` is the name of the session, stored as the origin of the rules. `key`
        and `root` are as in `state`. Raises QuotaExceeded, Conflict.
        """
        texts = read_rules(mask_personal(redact(message)))
        return await self._keep(texts, source, key, root) if texts else ()

    async def _keep(
        self, texts: Sequence[str], source: str, key: str, root: str
    ) -> Sequence[StatedRule]:
        """Store rules in one transaction, and return each with the rules that it ends.

        `source` is who said them. A repeated call with the same `key` stores nothing.
        """
        trusted_sources = await self._quarantine.believed()
        # Read before the write, which retires the older rules about the same things.
        # Each is listed under the first new rule that ends it.
        old_texts: dict[str, None] = {}
        ended_by_text: dict[str, tuple[str, ...]] = {}
        for text in texts:
            rows = await self._store.read(self._scope, rule_changes.ended_by, text)
            ended = [row["text"] for row in rows if row["text"] not in old_texts]
            old_texts.update(dict.fromkeys(ended))
            ended_by_text[text] = tuple(ended)

        lessons = [rule_lesson(text, source, root) for text in texts]
        # With a known `key`, the stored answers of the earlier call come back.
        answers = await self._store.once(
            self._scope,
            rule_changes.state,
            partial(self._write, lessons, rule_changes.state, stated=trusted_sources),
            key=key,
            request=("rules", lessons),
        )
        return [
            StatedRule(
                text=text,
                id=answer.id,
                state=answer.state,
                trust=answer.trust,
                seen=answer.seen,
                entry=answer.entry,
                ended=ended_by_text[text],
                parts=parts_of(text),
            )
            for text, answer in zip(texts, answers, strict=True)
        ]

    async def find(self, id: int) -> StatedRule:
        """Return the rule with this id. Raises NotFound."""
        check_integer("id", id)
        rule = {rule.id: rule for rule in await self.list()}.get(id)
        if rule is None:
            raise NotFound("rule", str(id), f"the rules of {self._scope}")
        return rule

    async def try_denial(self, rule: StatedRule) -> DenialTrial:
        """Return which recorded calls of this memory a denial would have blocked.

        The `rule` may be of another memory. Raises InvalidInput for one that forbids
        nothing that a call shows.
        """
        allowed = "a rule that forbids a command, a path or a name in code"
        require(rule.forbids, "rule", rule.text, allowed)
        calls, _ = await self._store.read(self._scope, past_calls.recorded)
        return try_denial(rule, calls)

    async def deny(self, id: int, *, by: str, why: str = "") -> StatedRule:
        """Deny agents the calls that break the rule `id`, and return it.

        `by` and `why` are recorded. Raises NotFound, and InvalidInput for a rule that
        forbids nothing that a call shows, or that would have blocked a recorded call
        which does what it wants.
        """
        check_actor(by, why)
        rule = await self.find(id)
        trial = await self.try_denial(rule)
        check_trial(rule, trial)
        await self._deny(id, denied=True, by=by, why=why)
        return rule

    async def allow(self, id: int, *, by: str, why: str = "") -> StatedRule:
        """Deny agents no more calls because of the rule `id`; they are told as before.

        Raises NotFound.
        """
        check_actor(by, why)
        rule = await self.find(id)
        await self._deny(id, denied=False, by=by, why=why)
        return rule

    async def _deny(self, id: int, *, denied: bool, by: str, why: str) -> None:
        """Store whether calls that break the rule `id` are denied."""
        await self._store.write(
            self._scope, rule_changes.deny, id=id, denied=denied, by=by, why=why
        )

    async def retire(self, id: int, *, by: str, why: str = "") -> StatedRule:
        """Retire the rule `id`: agents are no longer told it. Return it as it was.

        `by` and `why` are recorded. Stating the rule again restores it. Raises
        NotFound, and InvalidInput for a rule that is not in force.
        """
        check_actor(by, why)
        rule = await self.find(id)
        # Without an edition, it is retired even if somebody has changed it meanwhile.
        await self._store.write(
            self._scope,
            editions.amend,
            id=id,
            edition=None,
            by=by,
            why=why,
            retired=True,
        )
        return rule
