"""An HTTP client of the service, with the records and the errors of the library.

It has a method for each route that an agent calls. `Client.call` reaches every other
route, such as those of operators.
"""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from functools import cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast
from urllib.parse import quote, unquote, urlsplit

from pydantic import TypeAdapter, ValidationError

from heedful import errors
from heedful.episodes.episode import Episode
from heedful.errors import InvalidInput, Refused
from heedful.faults import fault_line
from heedful.lessons import lesson as records, scope as scopes
from heedful.lessons.briefing import Briefing
from heedful.lessons.call_marks import ActionHistory
from heedful.lessons.forgetting import Forgotten
from heedful.lessons.lesson_check import LessonCheck
from heedful.lessons.patterns import Merge, Seen
from heedful.lessons.proof import Proof, TrialProof
from heedful.lessons.render import as_text
from heedful.loop.codec import policy_to, to_document, verdict_from
from heedful.loop.decide import Policy, Verdict
from heedful.loop.record import NO_USAGE, Evaluation, Goal, Usage
from heedful.models.contract import Message
from heedful.redact import redact_start
from heedful.store.idempotency import new_key
from heedful.validation import Fields, refuses_unknown_options, require
from heedful.wire import ERROR_RESPONSES, lesson_from_wire

if TYPE_CHECKING:
    from ssl import SSLContext

    import httpx

# What happened to a request, by the name of its error in httpx.
LOST_CONNECTIONS = {
    "ConnectError": "no connection",
    "ConnectTimeout": "no connection in time",
    "PoolTimeout": "too many requests at the same time",
    "ReadTimeout": "it did not answer in time",
    "WriteTimeout": "it did not read the request in time",
}
# What OpenSSL says if it cannot verify the certificate of a server.
UNTRUSTED_CERTIFICATE = "CERTIFICATE_VERIFY_FAILED"
ERROR_CLASSES = {code: kind for kind, (_, code) in ERROR_RESPONSES.items()}
# A pause before a retry is random. Its upper bound begins with the first and doubles;
# its lower bound is half of that. So 7 retries outlast the restart of a service: they
# take 11 to 23 seconds.
FIRST_PAUSE_SECONDS = 0.2
MAX_PAUSE_SECONDS = 10.0
# If the service asks for a longer wait, there is no retry.
MAX_WAIT_SECONDS = 60.0
T = TypeVar("T")


@refuses_unknown_options
class Client(AbstractAsyncContextManager["Client"]):
    """A client of the service at `url`, in a project of `key`; by default in its first.

    If the service is unreachable, busy or broken, a call is tried `retries` more times
    with growing pauses: 7 take 11 to 23 seconds, and outlast its restart. Each try has
    `timeout` seconds. A call takes effect only once,
    however often it is tried. The key is sent only over https or to this machine,
    unless `insecure` is True. `transport` is an httpx transport with your proxies and
    certificates. Use a client in one event loop. Its methods raise the errors of
    `heedful.Memory` and `heedful.run`, and also Unreachable, CertificateNotTrusted and
    Refused. Raises InvalidInput, PackageMissing.
    """

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        project: str = "",
        timeout: float = 30.0,
        retries: int = 7,
        insecure: bool = False,
        transport: "httpx.AsyncBaseTransport | None" = None,
    ) -> None:
        try:
            import httpx
        except ImportError as error:
            raise errors.PackageMissing("heedful.Client", "httpx", "client") from error

        _check_address(url, key, insecure)
        require(timeout > 0, "timeout", timeout, "a number of seconds above 0")
        require(retries >= 0, "retries", retries, "an integer of at least 0")

        self.url: str = url.rstrip("/")
        self.project: str = project
        self._retries = retries
        # httpx is imported only here, so its class of lost connections is kept.
        self._lost = httpx.TransportError

        headers = {"content-type": "application/json", "accept": "application/json"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(timeout),
            transport=transport or httpx.AsyncHTTPTransport(verify=_certificates()),
            trust_env=False,  # the library reads no environment variable
        )

    def __repr__(self) -> str:
        return f"Client({self.url!r}, project={self.project!r})"

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def call(
        self,
        method: str,
        *path: str | int,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        key: str = "",
        **query: Any,
    ) -> Any:
        """Call a route under `/v1`, for example `call("GET", "quarantine", 12)`.

        `body` is JSON data; it may contain Goal, Policy, Evaluation and Usage records.
        `query` has the parameters of the URL. Returns the answer as JSON data, or None
        if it is empty. A POST that is sent again with its `key` within a day takes no
        effect, and gets the first answer; StoreInDoubt names the key.
        """
        key = key or (headers or {}).get("idempotency-key", "") or new_key()
        try:
            return await self._call(
                method, *path, body=body, headers=headers, key=key, **query
            )
        except errors.StoreInDoubt as doubt:
            if method != "POST":
                raise
            raise errors.StoreInDoubt(doubt.what, key=key) from doubt

    async def _call(
        self,
        method: str,
        *path: str | int,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        key: str = "",
        **query: Any,
    ) -> Any:
        """Call a route as `call` does, which the same call may follow."""
        try:
            text = json.dumps(body, allow_nan=False, default=_document)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput("body", body, f"JSON data: {error}") from error

        all_headers = dict(headers or {})
        if method == "POST":
            all_headers.setdefault("idempotency-key", key or new_key())

        fields = {**query, "project": self.project}
        parts = [quote(str(part), safe="") for part in path]
        request = self._http.build_request(
            method,
            "/".join([self.url, "v1", *parts]),
            params={name: value for name, value in fields.items() if value},
            headers=all_headers,
            content=None if body is None else text.encode("ascii"),
        )
        answer = await self._send(request)
        if not answer.is_success:
            refusal = refused(answer.status_code, answer.text)
            if isinstance(refusal, errors.StoreInDoubt):
                refusal = errors.StoreInDoubt(f"the store of {self.url}")
            raise refusal

        try:
            return answer.json() if answer.content else None
        except ValueError as error:
            raise Refused(
                answer.status_code, "", f"not JSON: {redact_start(answer.text, 100)!r}"
            ) from error

    async def _send(self, request: "httpx.Request") -> "httpx.Response":
        """Send a request, again while the service is unreachable or busy.

        Returns the last answer. Raises Unreachable.
        """
        tries = 0
        while True:
            longest = min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**tries)
            pause = random.uniform(longest / 2, longest)
            try:
                answer = await self._http.send(request)
            except self._lost as error:
                # A certificate that is not trusted now is not trusted later.
                if UNTRUSTED_CERTIFICATE in str(error):
                    raise errors.CertificateNotTrusted(self.url) from error
                if tries >= self._retries:
                    reason = LOST_CONNECTIONS.get(type(error).__name__, "it broke off")
                    reason += f" (retries: {tries})"
                    raise errors.Unreachable(self.url, reason) from error
            else:
                wait = _seconds_to_wait(answer)
                if wait is None or tries >= self._retries:
                    return answer
                pause += wait

            tries += 1
            await asyncio.sleep(pause)

    async def open(
        self,
        loop: str,
        task: Any,
        *,
        goals: Sequence[Goal | str] = (),
        policy: Policy | str | None = None,
        context: Any = None,
        memory_key: str = "",
        model: str = "",
        rungs: Sequence[str] = (),
    ) -> Fields:
        """Begin a loop with the id `loop`, or return the existing loop as it is.

        Without a `policy`, the policy of the service applies. Checks see `context` as
        `Context.data`. Loops with the same `memory_key` tell each other the rules that
        they broke. `model` names the model that makes the attempts, and `rungs` name
        several, cheapest first: then `Again.rung` says which of them, counted from 1,
        makes the next attempt. Raises Conflict if the existing loop has another task,
        context, goals, policy, memory key or other rungs.
        """
        body = {
            "task": task,
            "context": context,
            "goals": list(goals) or None,
            "policy": policy,
            "memory_key": memory_key,
            "model": model,
            "rungs": list(rungs),
        }
        return cast("Fields", await self.call("PUT", "loops", loop, body=body))

    async def report(
        self,
        loop: str,
        attempt: int,
        *,
        output: Any = None,
        digest: str = "",
        evaluation: Evaluation | None = None,
        checks: Sequence[Fields] = (),
        usage: Usage = NO_USAGE,
        model: str = "",
    ) -> Verdict:
        """Report an attempt, numbered from 1; return whether to make another or stop.

        Pass the `output` of the attempt, or only its `digest`. The attempt is judged by
        `evaluation`, by `checks` that the service runs (`{"name": …}` with arguments),
        or both. `model` names the model that wrote the output, if it is not that of the
        loop. A repeated report returns the same verdict. Raises NotFound,
        OutOfOrder, LoopEnded, AttemptTaken if a different report of this attempt
        exists, UsageError for an empty report.
        """
        require(
            evaluation is None or isinstance(evaluation, Evaluation | Mapping),
            "evaluation",
            evaluation,
            "an Evaluation: Evaluation(findings=(…,))",
        )
        body = {
            "output": output,
            "digest": digest,
            "evaluation": evaluation,
            "checks": list(checks),
            "usage": usage,
            "model": model,
        }
        answer = await self.call("PUT", "loops", loop, "attempts", attempt, body=body)
        return verdict_from({**answer, "verdict": answer["decision"]})

    async def loop(self, loop: str) -> Fields:
        """Return a loop with its attempts (`made`) and its `decisions`.

        Raises NotFound.
        """
        return cast("Fields", await self.call("GET", "loops", loop))

    async def explain(self, loop: str) -> str:
        """Return a text that explains why a loop continued and why it stopped.

        Raises NotFound.
        """
        answer = await self.call("GET", "loops", loop, "explain")
        return _read(str, answer["text"])

    async def remember(
        self,
        error_type: str,
        text: str,
        *,
        lesson: str = "",
        example: records.Example | None = None,
        tags: Sequence[str] = (),
        context: str = "",
        importance: float = 0.5,
        source: str = "",
        key: str = "",
    ) -> records.Remembered:
        """Record one occurrence of an error, as `Memory.remember` does.

        If the key has the permission `approve`, the lesson gets the trust `user`,
        otherwise `local`, or `outside` if nobody stated the key or the `source`: then
        it waits in quarantine. The default `source` is the key. A call that is made
        again with its `key` within a day counts nothing and gets the first answer.
        Raises InvalidInput, QuotaExceeded.
        """
        pair = None
        if example is not None:
            pair = {
                "task": example.task,
                "accepted": example.accepted,
                "rejected": example.rejected,
                "wrong": example.wrong,
                "model": example.model,
            }

        body = {
            "error_type": error_type,
            "text": text,
            "lesson": lesson,
            "example": pair,
            "tags": list(tags),
            "context": context,
            "importance": importance,
            "source": source,
        }
        answer = await self.call("POST", "reflections", body=body, key=key)
        return _read(records.Remembered, lesson_from_wire(answer))

    async def seen(self, error_type: str, text: str = "") -> Seen:
        """Return how often an error was seen, and its lessons, as `Memory.seen` does.

        Without a `text`, `error_type` is the text.
        """
        if not text:
            text = error_type
            error_type = ""
        body = {"error_type": error_type, "text": text}
        answer = await self.call("POST", "seen", body=body)

        lessons = tuple(map(lesson_from_wire, answer["lessons"]))
        group = None
        if answer["grouped"]:
            # The service sends no text of the other patterns in the group, only their
            # digests.
            members = tuple(dict.fromkeys(lesson["signature"] for lesson in lessons))
            group = Merge("", "", members)

        return Seen(answer["count"], lessons, group=group, lines=tuple(answer["lines"]))

    async def before(self, tool: str, arguments: Fields | str) -> ActionHistory:
        """Return how an action failed and what fixed it, as `Memory.before` does."""
        body = {"tool": tool, "arguments": arguments}
        answer = await self.call("POST", "before", body=body)
        failures = [lesson_from_wire(failure) for failure in answer["failures"]]
        checks = [lesson_from_wire(check) for check in answer.get("checks", ())]
        return _read(ActionHistory, {**answer, "failures": failures, "checks": checks})

    async def recall(
        self,
        task: str,
        limit: int = 5,
        *,
        tags: Sequence[str] = (),
        match: Literal["any", "all"] = "any",
    ) -> records.Matches:
        """Return examples and lessons that fit the task, best first.

        Exposures are not recorded. If there are none, `silence` of the result says what
        keeps the nearest lesson back.
        """
        body = {
            "task": task,
            "limit": limit,
            "tags": list(tags),
            "match": match,
            "form": "found",
        }
        return _matches(await self.call("POST", "recall", body=body))

    async def query(
        self, text: str = "", limit: int = 5, **filters: Any
    ) -> records.Matches:
        """Return lessons to read, best first, as `Memory.query` does.

        If there are none, `silence` of the result says what keeps the nearest back.

        The `filters` are `tags`, `match`, `kind` and `importance`. Lessons that wait in
        quarantine are among them, unless the key has `recall` in place of `read`.
        """
        body = {"text": text, "limit": limit, **filters}
        return _matches(await self.call("POST", "reflections", "query", body=body))

    async def render(self, task: str, loop: str | None = None) -> tuple[Message, ...]:
        """Return at most 3 worked examples as chat turns; at most 1 of them is
        unverified.

        With a `loop`, a random part of the examples is withheld, and the others count
        as shown to this loop. A repeated call for the same loop returns the same
        examples.
        """
        body = {"task": task, "loop": loop, "form": "messages"}
        answer = await self._call("POST", "recall", body=body)
        return _read(tuple[Message, ...], answer["messages"])

    async def render_text(self, task: str, loop: str | None = None) -> str:
        """Return examples and lessons as one text between random delimiters.

        The text is "" if nothing fits. `loop` has the same effect as in `render`.
        """
        body = {"task": task, "loop": loop, "form": "text"}
        answer = await self._call("POST", "recall", body=body)
        return _read(str, answer["text"])

    async def brief(
        self,
        task: str,
        loop: str,
        begins: bool = True,
        *,
        refuses: Callable[[records.Example], Awaitable[bool]] | None = None,
        **options: Any,
    ) -> Briefing:
        """Return what to show a loop that your program decides, as `Memory.brief` does.

        The service records it. The `options` are `memory_key`, `checks`, `check_ids`,
        `tell`, `model` and `withholds`. What your program `refuses` is left out.
        `exposures` of the result are only those of lessons to show.
        """
        body = {"task": task, "loop": loop, "begins": begins, **options}
        answer = await self._call("POST", "recall", body={**body, "form": "found"})
        chosen = tuple(_matches(answer))
        if refuses is not None:
            chosen = tuple(
                [
                    match
                    for match in chosen
                    if not match.example.accepted or not await refuses(match.example)
                ]
            )
        exposures = tuple(
            records.Exposure(
                f"{match.kind}/{match.signature}",
                loop,
                shown=True,
                examples=(match.id,),
            )
            for match in chosen
        )
        briefing = replace(
            Briefing.of(answer["briefing"]),
            chosen=chosen,
            exposures=exposures,
            checks=_read(
                tuple[LessonCheck, ...], [*map(lesson_from_wire, answer["checks"])]
            ),
        )
        prompt = as_text(briefing.examples, advice=briefing.advice)
        return replace(briefing, prompt=prompt)

    async def outcome(self, outcome: records.Outcome) -> None:
        """Report how a loop with recalled lessons ended; the first report counts."""
        body = {
            "loop": outcome.loop,
            "right_at_once": outcome.right_at_once,
            "calls": outcome.calls,
            "signatures": sorted(outcome.signatures),
            "memory_key": outcome.memory_key,
            "model": outcome.model,
            "climbed": outcome.climbed,
            "cost": outcome.cost,
        }
        await self._call("POST", "outcomes", body=body)

    async def prove(self, model: str = "") -> Proof:
        """Return the proof for all lessons together, and for the 200 most exposed.

        With a `model`, only loops of this model count.
        """
        answer = await self.call("GET", "proof", limit=200, model=model)
        return _read(Proof, answer)

    async def forget(
        self,
        *,
        lesson: int | None = None,
        person: str = "",
        loop: str = "",
        before: float | None = None,
        why: str = "",
        dry_run: bool = False,
    ) -> Forgotten:
        """Delete the texts of a lesson, a person or a loop, or all that are old.

        This is `Memory.forget`; the key may approve, and is who asked. Raises NotFound
        for an unknown lesson or loop, InvalidInput.
        """
        body = {
            "lesson": lesson,
            "person": person,
            "loop": loop,
            "before": before,
            "why": why,
            "dry_run": dry_run,
        }
        return _read(Forgotten, await self._call("POST", "forget", body=body))

    async def offer(
        self,
        source: str,
        loop: str,
        texts: Sequence[str],
        *,
        holdout: float = scopes.DEFAULT_HOLDOUT_SHARE,
        keep_texts: bool = False,
    ) -> list[str]:
        """Return the texts of a memory that a loop is to be shown: all, or none.

        This is `Trial.offer` of `Trial(source, holdout=…, keep_texts=…)`. Raises
        InvalidInput.
        """
        body = {
            "source": source,
            "loop": loop,
            "texts": list(texts),
            "holdout": holdout,
            "keep_texts": keep_texts,
        }
        answer = await self._call("POST", "trials", "offers", body=body)
        return _read(list[str], answer["texts"])

    async def end_trial(
        self,
        source: str,
        loop: str,
        passed: bool | None = None,
        *,
        score: float | None = None,
    ) -> None:
        """Record how a loop ended, as `Trial.end` does; the same again is harmless.

        Raises InvalidInput, NotFound for a loop that the source offered nothing, and
        Conflict if it ended with another result.
        """
        body = {"source": source, "loop": loop, "passed": passed, "score": score}
        await self._call("POST", "trials", "results", body=body)

    async def prove_trial(self, source: str) -> TrialProof:
        """Return whether the texts of a memory on trial help, as `Trial.prove` does.

        Raises NotFound if the memory offered no text.
        """
        answer = await self.call("GET", "trials", "proof", source=source)
        return _read(TrialProof, answer)

    async def reflect(self, episode: Episode) -> Fields:
        """Send a finished run for reflection; return its `digest` and its `state`.

        A worker reflects on it later, once even if the same run is sent twice. `hint`
        in the answer says how to state whose words the run has, if nobody did.
        """
        body = {**to_document(replace(episode, source="")), "outcome": episode.outcome}
        return cast("Fields", await self._call("POST", "episodes", body=body))


def _matches(answer: Fields) -> records.Matches:
    """Return the lessons in an answer, and why there are none."""
    matches = _read(list[records.Match], [*map(lesson_from_wire, answer["items"])])
    return records.Matches(matches, silence=answer["silence"])


def _seconds_to_wait(answer: "httpx.Response") -> float | None:
    """Return how many seconds the service asks to wait before another try.

    It is 0.0 if the service names no time, and None if another try makes no sense.
    """
    retry_after = answer.headers.get("retry-after", "")
    is_busy = answer.status_code >= 500 or answer.status_code == 429
    is_at_work = answer.status_code == 409 and retry_after
    if not is_busy and not is_at_work:
        return None

    seconds = float(retry_after) if retry_after.isdecimal() else 0.0
    return None if seconds > MAX_WAIT_SECONDS else seconds


def _document(record: Any) -> Any:
    """Return a record as JSON data. Raises TypeError for others, as `json` expects."""
    if isinstance(record, Policy):
        return policy_to(record)
    if isinstance(record, Goal | Evaluation | Usage):
        return to_document(record)
    raise TypeError(f"{type(record).__name__} is not JSON data")


def at_address(address: str, project: str = "") -> Client:
    """Return a client for an address with the key as its password.

    It closes each connection after its answer. So it needs no end, and serves any event
    loop. Raises InvalidInput, PackageMissing.
    """
    parts = urlsplit(address)
    url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    key = unquote(parts.password or "")
    client = Client(url, key, project=project)
    client._http.headers["connection"] = "close"
    return client


@cache
def _certificates() -> "SSLContext":
    """Return what verifies the certificates of servers; it takes 28 ms to read."""
    import httpx

    return httpx.create_ssl_context(trust_env=False)


def _check_address(url: str, key: str, insecure: bool) -> None:
    """Check that `key` may be sent to `url`. Raises InvalidInput, without the key."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput("url", url, "an address such as https://heedful.example.com")
    if parts.username or parts.password or parts.query or parts.fragment:
        allowed = "a scheme, a host and a path; pass the key as the argument `key`"
        raise InvalidInput("url", f"{parts.scheme}://{parts.hostname}/…", allowed)
    if key != key.strip() or not key.isascii() or not key.isprintable():
        raise InvalidInput("key", "…", "as `heedful key create` printed it")

    is_local = parts.hostname == "localhost"
    with suppress(ValueError):
        is_local = is_local or ip_address(parts.hostname).is_loopback
    if key and parts.scheme == "http" and not insecure and not is_local:
        allowed = "https, to send a key to another machine (or pass insecure=True)"
        raise InvalidInput("url", url, allowed)


def refused(status: int, text: str) -> errors.HeedfulError:
    """Return the error that an answer describes; `text` is the answer's body.

    The error is of the same class as in the service, with the same attributes. An
    answer that is not one of this service, such as that of a proxy, becomes Refused.
    """
    problem: Any = None
    with suppress(ValueError):
        problem = json.loads(text)
    if not isinstance(problem, dict):
        problem = {}

    code = str(problem.get("code", ""))
    detail = str(problem.get("detail") or redact_start(text, 300))
    kind = ERROR_CLASSES.get(code)
    if kind is None:  # an answer of a proxy or of a newer service
        return Refused(status, code, detail)

    # The constructors make the message from their arguments; here it is already made.
    error = kind.__new__(kind)
    errors.HeedfulError.__init__(error, detail)

    fields = {**problem, "status": status}
    if isinstance(error, errors.NotQuarantined):
        fields = lesson_from_wire(fields)
    vars(error).update(fields)
    return error


# A TypeAdapter is slow to make, so there is one for each type.
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def _read(kind: type[T], document: Any) -> T:
    """Convert JSON data to a record of the type `kind`; unknown fields are ignored.

    Raises Refused if the data does not fit the type: perhaps another program has
    answered.
    """
    try:
        return cast("T", _adapter(cast("Any", kind)).validate_python(document))
    except ValidationError as error:
        wrong = "; ".join(map(fault_line, error.errors(include_url=False)[:3]))
        raise Refused(200, "", f"not a valid {kind.__name__}: {wrong}") from error
