"""The library's methods over HTTP: loops are decided, and lessons kept, by a service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from errata.client import answers
from errata.client.calls import Calls
from errata.client.quarantine import Quarantine
from errata.codec import evaluation_to, goal_to, policy_to, sparse
from errata.lessons import Seen
from errata.loop.decide import Policy, Verdict
from errata.loop.record import Evaluation, Goal
from errata.memory.learn import Example
from errata.memory.proof import Outcome, Proof
from errata.protocols import Found, Message, Remembered, Usage

if TYPE_CHECKING:
    import httpx

Plain = Mapping[str, Any]


class Client:
    """A service at `url`, asked with a `key` for one `project` (by default the key's first).

    Each call is tried `retries` times more where nobody answers, or the service is busy or broken,
    with growing pauses; one try has `timeout` seconds. To repeat a call does no harm: each has an
    idempotency key. A key is sent over https, or to this machine, only, unless `insecure`. As of
    `errata.Memory` and `errata.run`, methods raise the library's own errors; and Unreachable,
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
    ) -> Plain:
        """Begin a loop, or find it again: as the service tells it, with its `state`.

        Raises Conflict where another task has that id.
        """
        body = {
            "task": task,
            "goals": [one if isinstance(one, str) else goal_to(one) for one in goals],
            "policy": policy_to(policy) if isinstance(policy, Policy) else policy,
            "context": context,
        }
        told: Plain = await self._ask("PUT", "loops", loop, body=_given(body))
        return told

    async def report(
        self,
        loop: str,
        attempt: int,
        *,
        output: str | None = None,
        digest: str | None = None,
        evaluation: Evaluation | None = None,
        checks: Sequence[Plain] = (),
        usage: Usage | None = None,
    ) -> Verdict:
        """Report an attempt, numbered from 1, and learn whether to make another.

        With its `evaluation`, or with the `output` to be judged by `checks` of the service. The
        same report again answers the same verdict. Raises Conflict for another one.
        """
        body = {
            "output": output,
            "digest": digest,
            "evaluation": evaluation_to(evaluation),
            "checks": list(checks),
            "usage": sparse(usage) if usage else None,
        }
        put = await self._ask("PUT", "loops", loop, "attempts", attempt, body=_given(body))
        return answers.verdict(put)

    async def loop(self, loop: str) -> Plain:
        """A loop as the service tells it. Raises NotFound."""
        told: Plain = await self._ask("GET", "loops", loop)
        return told

    def loops(self, prefix: str = "") -> AsyncIterator[Plain]:
        """The loops whose id begins with `prefix`, the newest first."""
        return self._pages("loops", prefix=prefix)

    async def explain(self, loop: str) -> str:
        """Why a loop went on and why it stopped, in words. Raises NotFound."""
        told: str = (await self._ask("GET", "loops", loop, "explain"))["text"]
        return told

    async def override(
        self, loop: str, rule: str, *, why: str, decisions: int = 1, until: float | None = None
    ) -> Verdict:
        """Let a loop go on past one rule; whoever holds the key answers for it.

        `until` is in seconds since 1970. Raises OverrideRefused, NotFound, Forbidden.
        """
        body = {"rule": rule, "why": why, "decisions": decisions, "until": until}
        return answers.verdict(
            await self._ask("POST", "loops", loop, "overrides", body=_given(body))
        )

    async def cancel(self, loop: str, why: str) -> Verdict:
        """End a loop on request. Raises NotFound."""
        return answers.verdict(await self._ask("POST", "loops", loop, "cancel", body={"why": why}))

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
        """Count one sighting of an error, as `Memory.remember`; its trust is that of the key.

        Raises InvalidInput, QuotaExceeded.
        """
        body = {
            "error_type": error_type,
            "text": text,
            "lesson": lesson,
            "example": sparse(example) if example else None,
            "tags": list(tags),
            "context": context,
            "importance": importance,
            "source": source,
        }
        return answers.read(Remembered, await self._ask("POST", "reflections", body=_given(body)))

    async def seen(self, error_type: str, text: str) -> Seen:
        """Have I seen this error before? As `Memory.seen`."""
        body = {"error_type": error_type, "text": text}
        return answers.read(Seen, await self._ask("POST", "seen", body=body))

    async def recall(
        self,
        task: str,
        limit: int = 5,
        *,
        tags: Sequence[str] = (),
        match: Literal["any", "all"] = "any",
    ) -> list[Found]:
        """What fits the task, best first, as `Memory.recall`; nothing is shown by it."""
        body = {"task": task, "limit": limit, "tags": list(tags), "match": match, "form": "found"}
        return answers.read(list[Found], (await self._ask("POST", "recall", body=body))["items"])

    async def render(
        self, task: str, *, loop: str = "", budget: int | None = None
    ) -> tuple[Message, ...]:
        """Chat turns for a prompt, at most 3; what a `loop` is shown by it is written down."""
        found = await self._rendered("messages", task, loop, budget)
        return answers.read(tuple[Message, ...], found)

    async def render_text(self, task: str, *, loop: str = "", budget: int | None = None) -> str:
        """The same as one text between delimiters that nobody can guess; "" for nothing."""
        return answers.read(str, await self._rendered("text", task, loop, budget))

    async def outcome(self, one: Outcome) -> None:
        """Tell how a loop ended that was shown lessons: what `prove` compares."""
        body = {**sparse(one), "loop": one.loop, "signatures": sorted(one.signatures)}
        await self._ask("POST", "outcomes", body=body)

    async def prove(self) -> Proof:
        """What exposures and outcomes prove about the lessons, as `Memory.prove`."""
        return answers.read(Proof, await self._ask("GET", "proof"))

    @property
    def quarantine(self) -> Quarantine:
        """What tools and documents said: read, release or reject it, and revoke a source."""
        return Quarantine(self._ask)

    async def _rendered(self, form: str, task: str, loop: str, budget: int | None) -> Any:
        body = {"task": task, "form": form, "loop": loop or None, "budget": budget}
        return (await self._ask("POST", "recall", body=_given(body)))[form]

    async def _ask(self, method: str, *path: str | int, body: Any = None, **query: Any) -> Any:
        query |= {"project": self.project}
        return await self._calls.ask(method, "v1", *path, body=body, query=query)

    async def _pages(self, *path: str, **query: Any) -> AsyncIterator[Plain]:
        cursor: str | None = ""
        while cursor is not None:
            page = await self._ask("GET", *path, cursor=cursor, **query)
            for one in page["items"]:
                yield one
            cursor = page["next"]


def _given(body: Plain) -> Plain:
    return {name: value for name, value in body.items() if value is not None}
