"""The library's methods over HTTP: loops are decided, and lessons kept, by a service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from heedful.client import answers
from heedful.client.calls import Calls
from heedful.client.quarantine import Quarantine
from heedful.codec import evaluation_to, goal_to, policy_to, sparse
from heedful.errors import Changed
from heedful.lessons import FiledState, Seen
from heedful.loop.decide import Policy, Verdict
from heedful.loop.record import Evaluation, Goal
from heedful.loop.replay import Figures
from heedful.memory.consolidate import Mode
from heedful.memory.dreaming import Dream
from heedful.memory.episode import Episode
from heedful.memory.learn import Example, State
from heedful.memory.proof import Outcome, Proof
from heedful.protocols import NOTHING, Found, Message, Remembered, Stored, Usage

if TYPE_CHECKING:
    import httpx

MOST = 200  # of a page
Plain = Mapping[str, Any]


class Client:
    """A service at `url`, asked with a `key` for one `project` (by default the key's first).

    Each call is tried `retries` times more where nobody answers, or the service is busy or broken,
    with growing pauses; one try has `timeout` seconds. To repeat a call does no harm: each has an
    idempotency key. A key is sent over https, or to this machine, only, unless `insecure`. As of
    `heedful.Memory` and `heedful.run`, methods raise the library's own errors; and Unreachable,
    Refused. `transport` is one of httpx, for proxies and certificates of one's own. Raises
    InvalidInput, PackageMissing.
    """

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        project: str = "",
        timeout: float = 30.0,
        retries: int = 5,
        insecure: bool = False,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._calls = Calls(url, key, timeout, retries, insecure, transport)
        self.project = project

    def __repr__(self) -> str:
        return f"Client({self._calls.url!r}, project={self.project!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; a client that is used again opens others."""
        await self._calls.close()

    # Loops: this process makes the attempts, the service decides.

    async def open(
        self,
        loop: str,
        task: Any,
        *,
        goals: Sequence[Goal | str] = (),
        policy: Policy | str | None = None,
        context: Any = None,
    ) -> Stored:
        """Begin a loop, or find it again, as far as it has come.

        Without a `policy` the service's own counts; checks find `context` as `Context.data`. Raises
        Conflict where another task, context, goals or policy has that id.
        """
        body = {
            "task": task,
            "context": context,
            "goals": [one if isinstance(one, str) else goal_to(one) for one in goals],
            "policy": policy_to(policy) if isinstance(policy, Policy) else policy,
        }
        return answers.stored(await self._ask("PUT", "loops", loop, body=body))

    async def report(
        self,
        loop: str,
        attempt: int,
        *,
        output: Any = None,
        digest: str = "",
        evaluation: Evaluation | None = None,
        checks: Sequence[Plain] = (),
        usage: Usage = NOTHING,
    ) -> Verdict:
        """Report an attempt, numbered from 1, and learn whether to make another.

        It is judged by its `evaluation`, by `checks` of the service (`{"name": …}` and arguments),
        or both. The same report again gets the same verdict. Raises NotFound, AttemptTaken for
        another report of that attempt, OutOfOrder, LoopEnded, UsageError where nothing is told of
        it.
        """
        body = {
            "output": output,
            "digest": digest,
            "evaluation": evaluation_to(evaluation),
            "checks": list(checks),
            "usage": sparse(usage),
        }
        told = await self._ask("PUT", "loops", loop, "attempts", attempt, body=body)
        return answers.verdict(told)

    async def loop(self, loop: str) -> Stored:
        """A loop with its attempts and decisions. Raises NotFound."""
        return answers.stored(await self._ask("GET", "loops", loop))

    def loops(self, prefix: str = "") -> AsyncIterator[Plain]:
        """The loops whose id begins with `prefix`, the newest first, each in short."""
        return self._pages("loops", prefix=prefix)

    async def explain(self, loop: str) -> str:
        """Why a loop went on and why it stopped, in words. Raises NotFound."""
        return answers.read(str, (await self._ask("GET", "loops", loop, "explain"))["text"])

    async def override(
        self, loop: str, rule: str, *, why: str, decisions: int = 1, until: float | None = None
    ) -> Verdict:
        """Let a loop go on past one rule; whoever has the key answers for it.

        `until` is in seconds since 1970. Raises OverrideRefused, NotFound, Forbidden.
        """
        body = {"rule": rule, "why": why, "decisions": decisions, "until": until}
        return answers.verdict(await self._ask("POST", "loops", loop, "overrides", body=body))

    async def cancel(self, loop: str, *, why: str = "") -> Verdict:
        """End a loop; one that has ended stays as it is. Raises NotFound."""
        return answers.verdict(await self._ask("POST", "loops", loop, "cancel", body={"why": why}))

    async def replay(
        self,
        policies: Sequence[Policy | str],
        *,
        loops: Sequence[str] | None = None,
        limit: int = 1_000,
    ) -> tuple[Figures, ...]:
        """What each policy would have cost and lost on the newest loops, or on those named."""
        written = [policy_to(one) if isinstance(one, Policy) else one for one in policies]
        body = {"policies": written, "loops": loops and list(loops), "limit": limit}
        told = await self._ask("POST", "replay", body=body)
        return tuple(answers.read(Figures, one) for one in told["policies"])

    # Memory.

    async def remember(
        self,
        error_type: str,
        text: str,
        *,
        lesson: str = "",
        example: Example | None = None,
        tags: Sequence[str] = (),
        context: str = "",
        importance: float = 0.5,
        source: str = "",
    ) -> Remembered:
        """Count one sighting of an error, as `Memory.remember`.

        By a key that may approve it is an operator's, by any other a tool's, and waits in
        quarantine. `source` is the key where it is not given. Raises InvalidInput, QuotaExceeded.
        """
        pair = ("task", "accepted", "rejected", "wrong")
        body = {
            "error_type": error_type,
            "text": text,
            "lesson": lesson,
            "example": {name: getattr(example, name) for name in pair} if example else None,
            "tags": list(tags),
            "context": context,
            "importance": importance,
            "source": source,
        }
        return answers.read(Remembered, await self._ask("POST", "reflections", body=body))

    async def seen(self, error_type: str, text: str) -> Seen:
        """Have I seen this error before? As `Memory.seen`."""
        body = {"error_type": error_type, "text": text}
        return answers.seen(await self._ask("POST", "seen", body=body))

    async def recall(
        self,
        task: str,
        limit: int = 5,
        *,
        tags: Sequence[str] = (),
        match: Literal["any", "all"] = "any",
    ) -> list[Found]:
        """What fits the task, best first, as `Memory.recall`; nothing counts as shown by it."""
        body = {"task": task, "limit": limit, "tags": list(tags), "match": match, "form": "found"}
        return list(map(answers.found, (await self._ask("POST", "recall", body=body))["items"]))

    async def render(self, task: str, loop: str | None = None) -> tuple[Message, ...]:
        """Worked examples for a prompt, as chat turns: at most 3, at most 1 of them not verified.

        With a `loop` they count as shown to it, some are withheld by a coin, and it is shown the
        same whenever it asks again.
        """
        body = {"task": task, "loop": loop, "form": "messages"}
        told = await self._ask("POST", "recall", body=body)
        return tuple(answers.read(Message, one) for one in told["messages"])

    async def render_text(self, task: str, loop: str | None = None) -> str:
        """The same as one text between delimiters that nobody can guess; "" for nothing.

        Lessons without an example are in it, too.
        """
        body = {"task": task, "loop": loop, "form": "text"}
        return answers.read(str, (await self._ask("POST", "recall", body=body))["text"])

    async def outcome(self, one: Outcome) -> None:
        """Tell how a loop ended that was shown lessons; the first that is told counts."""
        body = {
            "loop": one.loop,
            "right_at_once": one.right_at_once,
            "calls": one.calls,
            "signatures": sorted(one.signatures),
        }
        await self._ask("POST", "outcomes", body=body)

    async def prove(self) -> Proof:
        """What exposures and outcomes prove about the lessons, the most exposed ones first."""
        return answers.read(Proof, await self._ask("GET", "proof", limit=MOST))

    async def reflect(self, episode: Episode, *, wait: bool = False) -> Plain:
        """Hand over a finished run: its `digest` and `state`, and with `wait` what it `taught`.

        Without, a worker reflects on it. Once, however often it is handed over.
        """
        body = {
            **sparse(replace(episode, source="")),
            "outcome": episode.outcome,
            "events": [{**sparse(one), "meta": dict(one.meta)} for one in episode.events],
            "fault": sparse(episode.fault) if episode.fault else None,
            "usage": sparse(episode.usage),
        }
        told: Plain = await self._ask("POST", "episodes", body=body, wait=wait)
        return told

    def episodes(self, state: FiledState | None = None) -> AsyncIterator[Plain]:
        """The episodes, or those in that state, the newest first."""
        return self._pages("episodes", state=state)

    def reflections(
        self, *, kind: str = "", error_type: str = "", tag: str = "", state: State | None = None
    ) -> AsyncIterator[Plain]:
        """The lessons that meet all that is given, the newest first."""
        return self._pages("reflections", kind=kind, error_type=error_type, tag=tag, state=state)

    async def reflection(self, id: int) -> Plain:
        """A lesson. Raises NotFound."""
        told: Plain = await self._ask("GET", "reflections", id)
        return told

    async def pin(self, id: int, *, why: str = "") -> None:
        """Keep a lesson from eviction, pruning and retirement; on record. Raises NotFound."""
        await self._edit(id, why, "pinned", True)

    async def unpin(self, id: int, *, why: str = "") -> None:
        """Take a pin back. Raises NotFound."""
        await self._edit(id, why, "pinned", False)

    async def restore(self, id: int, *, why: str = "") -> None:
        """Bring back a lesson that a proof retired; on record. Raises NotFound."""
        await self._edit(id, why, "restored", True)

    @property
    def quarantine(self) -> Quarantine:
        """What tools and documents said: read, release or reject it, and revoke a source."""
        return Quarantine(self._ask)

    async def consolidate(self, mode: Mode = "lite", *, dry_run: bool = False) -> Dream:
        """Merge lessons that say the same, where recall is none the worse."""
        return answers.dream(
            await self._ask("POST", "dreams", body={"mode": mode, "dry_run": dry_run})
        )

    async def dreams(self, limit: int = 20) -> list[Dream]:
        """The dreams, the newest first."""
        return list(map(answers.dream, (await self._ask("GET", "dreams", limit=limit))["items"]))

    async def rollback(self, dream: int, *, why: str) -> int:
        """Take a dream back; how many lessons are back. Raises NotFound, RollbackRefused."""
        told = await self._ask("POST", "dreams", dream, "rollback", body={"why": why})
        return answers.read(int, told["lessons"])

    async def _edit(self, id: int, why: str, name: str, value: bool) -> None:
        """Change a lesson whatever else is changed meanwhile."""
        while True:
            one = await self.reflection(id)
            if one.get(name) == value:  # by the try before, whose answer was lost
                return
            body, tag = {name: value, "why": why}, f'"{one["edition"]}"'
            with suppress(Changed):
                await self._ask("PATCH", "reflections", id, body=body, if_match=tag)
                return

    async def _ask(
        self, method: str, *path: str | int, body: Any = None, if_match: str = "", **query: Any
    ) -> Any:
        query |= {"project": self.project}
        headers = {"if-match": if_match} if if_match else {}
        return await self._calls.ask(method, "v1", *path, body=body, query=query, headers=headers)

    async def _pages(self, *path: str, **query: Any) -> AsyncIterator[Plain]:
        cursor: str | None = ""
        while cursor is not None:
            page = await self._ask("GET", *path, cursor=cursor, **query)
            for one in page["items"]:
                yield one
            cursor = page["next"]
