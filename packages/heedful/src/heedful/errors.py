"""The errors that heedful raises, grouped by the cause.

The cause of UsageError, AccessDenied and NotFound is the call; of UserCodeError, a
function that the caller passed; of StoreError, the database or the disk; of ModelError,
the model or its provider; of RemoteError, the service that a client calls. NotPassed is
not a fault: no candidate was accepted. Every message says what was wrong, with which
value, and what to do.
"""

import dataclasses
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from heedful.redact import redact, redact_start

# The files of heedful and of Python's own library.
MAX_VALUE_CHARS = 120  # of a value in a message
_FOREIGN_FOLDERS = (
    __file__.removesuffix("errors.py"),
    dataclasses.__file__.removesuffix("dataclasses.py"),
    "<frozen",
)


class HeedfulError(Exception):
    """The base class of all errors that heedful raises.

    Secrets in messages are redacted. An error that `retry_on` names and that lasted has
    the number of `calls` that raised it.
    """

    calls: int = 1

    def __init__(self, *arguments: object) -> None:
        clean = (
            redact(argument) if isinstance(argument, str) else argument
            for argument in arguments
        )
        super().__init__(*clean)

    def __reduce__(self) -> tuple[Any, ...]:
        # Python would call `__init__`, whose arguments are not the message.
        return type(self).__new__, (type(self), *self.args), vars(self)


@dataclass(slots=True)
class UserCode:
    """A `with` block that turns exceptions of other code into errors of heedful.

    An exception of one of the `kinds` becomes `failed(error)`, unless it is an error of
    heedful already.
    """

    failed: Callable[[BaseException], HeedfulError]
    kinds: tuple[type[BaseException], ...] = (Exception,)

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, self.kinds) and not isinstance(error, HeedfulError):
            failure = self.failed(error)
            raise failure from error.with_traceback(_user_trace(error))


class UsageError(HeedfulError):
    """The caller passed something that heedful cannot use."""


class InvalidInput(UsageError, ValueError):
    """A field or an argument has a value that is not allowed.

    >>> str(InvalidInput("limit", -1, "an integer of at least 1"))
    'limit is -1; it must be an integer of at least 1'
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        self.field = field
        self.value = value
        self.allowed = allowed
        super().__init__(f"{field} is {_shorten(value)}; it must be {allowed}")


class UnknownName(UsageError):
    """No object has this name; the message lists the names that exist.

    A `cure` says what to write instead of a name of another library.
    """

    def __init__(
        self, kind: str, name: str, known: Sequence[str], cure: str = ""
    ) -> None:
        self.kind = kind
        self.name = name
        self.known: tuple[str, ...] = tuple(known)
        names = ", ".join(known) or "none"
        remedy = cure or f"there are: {names}"
        super().__init__(
            f"no {kind} is called {name!r}{similar_name(str(name), known)}; {remedy}"
        )


class MissingAttribute(AttributeError):
    """A module has no such public name; the message has a similar one, or all names.

    The message is made when somebody reads it: Python itself asks a package for each
    of its modules before it imports one.
    """

    def __init__(self, module: str, name: str, known: Sequence[str]) -> None:
        super().__init__(module, name, tuple(known))
        self.module = module
        self.known: tuple[str, ...] = tuple(known)

    def __str__(self) -> str:
        """Return what is missing, and what was meant or exists."""
        module, name, _ = self.args
        similar = similar_name(name, self.known)
        hint = similar or f"; there are: {', '.join(self.known)}"
        return f"module {module!r} has no attribute {name!r}{hint}"


def similar_name(name: str, known: Sequence[str]) -> str:
    """Return the question whether another name was meant, or "".

    >>> similar_name("tasks-1/ad", ["tasks-1/add", "other"])
    " (did you mean 'tasks-1/add'?)"
    """
    from difflib import get_close_matches  # every process imports this module

    matches = get_close_matches(name, known, n=1, cutoff=0.7)
    return f" (did you mean {matches[0]!r}?)" if matches else ""


def install_line(extra: str) -> str:
    """Return the command that installs an extra; heedful is not on PyPI yet.

    >>> install_line("frames")
    "pip install './packages/heedful[frames]' in the checkout of heedful"
    >>> install_line("agents").removesuffix(" in the checkout of heedful")
    'pip install ./packages/heedful ./packages/heedful-agents'
    """
    package = EXTRA_PACKAGES.get(extra, "")
    if not package:
        return f"pip install './packages/heedful[{extra}]' in the checkout of heedful"
    others = package.format(server="./packages/heedful-server")
    return f"pip install ./packages/heedful {others} in the checkout of heedful"


# The extras that are other packages of the checkout.
EXTRA_PACKAGES: Mapping[str, str] = {
    "server": "{server}",
    "ui": "{server}",
    "fast": "'{server}[fast]'",
    "agents": "./packages/heedful-agents",
    "compat": "./packages/heedful-compat",
    "mcp": "{server} './packages/heedful-agents[mcp]'",
}


def missing_folder(folder: str) -> str:
    """Return where a database cannot be, and the command that makes the folder.

    >>> missing_folder("/no/such")
    'the folder /no/such, which is missing; make it: mkdir -p /no/such'
    """
    return (
        f"the folder {folder}, which is missing; make it: mkdir -p "
        f"{shlex.quote(folder)}"
    )


class PackageMissing(UsageError, ImportError):
    """A feature needs a package that is not installed; `extra` installs it.

    >>> str(PackageMissing("Parquet", "pyarrow", "frames")).partition(" in ")[0]
    "Parquet needs pyarrow: pip install './packages/heedful[frames]'"
    """

    def __init__(self, what: str, package: str, extra: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(f"{what} needs {package}: {install_line(extra)}")


class LineError(UsageError):
    """A file cannot be read; `line` is the number of the faulty line, 0 if unknown."""

    def __init__(self, path: str, line: int, what: str) -> None:
        self.path = path
        self.line = line
        self.what = what
        place = f"{path}:{line}" if line else path
        super().__init__(f"{place}: {what}")


class TraceFileError(LineError):
    """A file of traces is damaged or of an unknown format."""


class OverrideRefused(UsageError):
    """The rule of an override allows none, or no responsible person is named."""


class Conflict(UsageError):
    """Other content is already stored under this id; nothing was written."""


class AttemptTaken(Conflict):
    """The attempt was already reported with other content."""


class LoopEnded(Conflict):
    """The loop of a reported attempt has ended.

    An override can reopen it if it did not pass.
    """


class OutOfOrder(Conflict):
    """An attempt was reported before the attempt with the previous number."""


class NotQuarantined(UsageError):
    """The example `id` does not wait in quarantine, so there is nothing to review.

    `state` is its state. `ruled` says in words who decided about it, "" if nobody did.
    """

    def __init__(self, id: int, state: str, ruled: str = "") -> None:
        self.id = id
        self.state = state
        state_now = ruled or f"is {state}"
        super().__init__(
            f"example {id} does not wait in quarantine, it {state_now}; heedful "
            f"quarantine show {id} shows why"
        )


class RollbackRefused(UsageError):
    """A dream was rolled back already, or a later one must be rolled back before it.

    `first` is the id of that later dream, 0 if there is none.
    """

    def __init__(self, id: int, why: str, first: int = 0) -> None:
        self.id = id
        self.first = first
        super().__init__(f"dream {id} cannot be rolled back: {why}")


class Changed(UsageError):
    """Someone else changed the object since it was read; nothing was written.

    `edition` is the one that the object has now.
    """

    def __init__(self, what: str, id: str, edition: str) -> None:
        self.edition = edition
        super().__init__(
            f"{what} {id} was changed meanwhile; read it again, then edit it"
        )


class UsageUnknown(UsageError):
    """A limit cannot be kept, because `name` does not report what it limits.

    The loop keeps its answers. `units` are those of `Budget` that are not reported. A
    `cure` says how to report them.
    """

    def __init__(self, name: str, units: Sequence[str], cure: str = "") -> None:
        self.name = name
        self.units: tuple[str, ...] = tuple(units)
        counts = " and ".join(units)
        if not cure:
            cure = (
                "return the answer of your SDK, or the candidate with a heedful.Usage, "
                "or raise an exception with the answer as its attribute `completion`"
            )
            if "cost" in units:
                cure += "; or name the price of a token, heedful.Rung(…, price=…)"
        super().__init__(
            f"{name or 'the function'} reports no {counts}, so the limit of {counts} "
            f"cannot be kept; {cure}; or leave the limit out"
        )


class LoopTooLarge(UsageError):
    """A report would make its loop larger than it may be; nothing was written."""

    def __init__(self, loop: str, size: int, most: int) -> None:
        super().__init__(
            f"loop {_shorten(loop)} would have {size:,} characters of JSON, and may "
            f"have {most:,}; report digests of outputs, or begin another loop"
        )


class QuotaExceeded(UsageError):
    """An untrusted source has reached its quota in a scope; nothing was written."""

    def __init__(self, source: str, count: int, quota: int) -> None:
        self.source = source
        self.count = count
        self.quota = quota
        super().__init__(
            f"source {_shorten(source)} would have {count} entries in quarantine, its "
            f"quota is {quota}; release or reject some first, or raise its quota"
        )


class AccessDenied(HeedfulError):
    """The service does not allow this caller to do this."""


class KeyRefused(AccessDenied):
    """The key is missing, unknown, revoked or expired.

    The message does not say which.
    """


class Forbidden(AccessDenied):
    """The key is valid, but it does not allow this action or this project."""


class TenantMismatch(Forbidden):
    """The request names a tenant that the key does not belong to."""


# What a user can do if an object of this kind was not found.
_NOT_FOUND_REMEDIES = {
    "example": "; heedful quarantine list shows the ids of waiting examples",
    "source": "; heedful quarantine list shows the sources of waiting examples",
    "lesson": "; heedful lessons shows the ids",
    "dream": "; heedful consolidate log shows the ids",
}


class NotFound(HeedfulError):
    """Nothing is stored under this id.

    `remedy` says what to do; with "" it is the usual remedy for this `kind`.
    """

    def __init__(self, kind: str, id: str, where: str, remedy: str = "") -> None:
        self.kind = kind
        self.id = id
        self.where = where
        self.remedy = remedy
        if not remedy:
            remedy = _NOT_FOUND_REMEDIES.get(kind, "")
        super().__init__(f"no {kind} {id!r} in {where}{remedy}")


class NotPassed(HeedfulError):
    """A loop ended without an accepted candidate.

    `result` is the `Result` with the best candidate and the reasons.
    """

    def __init__(self, result: Any) -> None:
        self.result = result
        why = "no reason recorded"
        if result.stopped_by:
            stops = [f"{stop.rule}: {stop.detail}" for stop in result.stopped_by[:3]]
            why = "; ".join(stops)

        wrong = "; ".join(result.wrong[:3]) or "nothing was evaluated"
        more = len(result.wrong) - 3
        if more > 0:
            wrong += f" and {more} more"

        attempts = result.loop.attempts
        deafness = attempts[-1].deafness if attempts else ""
        if deafness:
            wrong += f"; {deafness}"
        candidate = "the best candidate is in .result.candidate"
        if result.candidate is None:
            candidate = "the answers that were kept are in .result.loop.attempts"
        super().__init__(
            f"not passed after {len(attempts)} attempts ({why}): {wrong}; {candidate}"
        )


class UserCodeError(HeedfulError):
    """A function that the caller passed raised the exception in `__cause__`."""


class GenerateFailed(UserCodeError):
    """The function `generate` or `revise` raised an exception."""


class StageFailed(UserCodeError):
    """The function of a stage raised an exception.

    A stored run can be resumed by its id `run`, which is "" if the run is not stored.
    `state` has the names in the state, which the message lists if a key is missing.
    """

    def __init__(
        self,
        stage: str,
        run: str,
        cause: BaseException,
        state: Iterable[str] = (),
        *,
        calls: int = 1,
    ) -> None:
        self.stage = stage
        self.run = run
        self.calls = calls
        self.reason: str = describe(cause)
        if calls > 1:
            self.reason += f" at the last of {calls} calls"
        message = f"stage {stage!r} raised {self.reason}; "
        if isinstance(cause, KeyError):
            message += f"the state has {_shorten(list(state))}; "
        message += "fix it"
        if run:
            message += f"; finished stages are stored, run again with id={run!r}"
        super().__init__(message)


class CheckFailed(UserCodeError):
    """A check or an evaluator raised an exception twice on the same candidate."""

    def __init__(self, check: str, cause: BaseException) -> None:
        self.check = check
        self.reason: str = f"check {check!r} raised {describe(cause)}"
        self.hint: str = ""
        if isinstance(cause, TypeError) and "positional argument" in str(cause):
            self.hint = "a check takes (candidate) or (candidate, context)"
        elif "'Context' object" in str(cause):
            self.hint = (
                "the second argument of a check is the Context; in a pipeline the "
                "state is context.data"
            )

        advice = "the candidate is not at fault, fix the check and run again"
        if isinstance(cause, TimeoutError | ConnectionError | ModelTimeout):
            advice = "the candidate is not at fault, run again"
        super().__init__("; ".join(filter(None, (self.reason, advice, self.hint))))


class NotJournalable(UserCodeError):
    """A candidate cannot be stored so that it comes back as it is."""


class OutputChanged(UserCodeError):
    """A stored candidate does not fit the type that its loop or stage declares now."""


class StoreError(HeedfulError):
    """The database or its disk failed."""


class StoreUnavailable(StoreError):
    """The database is locked, read-only, full or out of reach; nothing was written."""


class StoreCorrupt(StoreError):
    """The file or the data in it is damaged, or is not a database of heedful."""


class StoreNewer(StoreError):
    """The database has the schema of a newer version of heedful."""


class StoreOlder(StoreError):
    """The database has no schema, or the schema of an older version of heedful."""


class StoreInDoubt(StoreError):
    """The connection was lost during a commit, so its result is unknown.

    `key` identifies the call: made again with it, the call is not done twice. It is the
    value of the argument `argument`: "key", or "id" for a loop or a run. Without a key,
    the same call may be repeated, unless it `counts` what it gets.
    """

    # An error that comes from a service has only its message.
    what: str = ""
    key: str = ""
    argument: str = "key"
    counts: bool = False

    def __init__(
        self, what: str, key: str = "", argument: str = "key", counts: bool = False
    ) -> None:
        self.what = what
        self.key = key
        self.argument = argument
        self.counts = counts
        remedy = "make the same call again: what is done already is not done twice"
        if counts:
            remedy = "see whether it was written before you make the same call again"
        if key:
            remedy = f"call again with {argument}={key!r}: it is not written twice"
        super().__init__(
            f"{what}: the connection was lost before the commit was acknowledged; "
            f"{remedy}"
        )


class RoleRefused(StoreError):
    """A PostgreSQL role bypasses row-level security, or lacks a permission."""


class PoolerRefused(StoreError):
    """A connection pooler gives each transaction another connection of PostgreSQL."""


class LeaseLost(StoreError):
    """Another process is driving this loop; this process wrote nothing."""


class ModelError(HeedfulError):
    """The model or its provider failed.

    `usage` is what the call has cost, None if it is unknown.
    """

    usage: Any = None


class ModelUnavailable(ModelError):
    """The model cannot be used: not installed, no weights, no connection or no key."""


class WeightsError(ModelUnavailable):
    """Weights were not fetched, or their bytes are wrong.

    `tried` has a line for each source from which they were to come.
    """

    def __init__(self, name: str, what: str, tried: Sequence[str] = ()) -> None:
        self.name = name
        self.tried: tuple[str, ...] = tuple(tried)
        lines = "".join(f"\n  - {line}" for line in tried)
        super().__init__(f"weights {name!r}: {what}{lines}")


class ModelTimeout(ModelError):
    """The model did not answer in time."""


class MalformedAnswer(ModelError):
    """The answer is not what was asked for: `what` says why.

    `answer` is its text, `usage` its Usage or None.
    """

    def __init__(self, what: str, answer: str = "", usage: Any = None) -> None:
        self.what = what
        self.answer = answer
        self.usage = usage
        super().__init__(f"{what}; it began: {_shorten(answer)}")


class AnswerRefused(MalformedAnswer):
    """The reflection of a small model leaves out what the rules found in the run."""


class PromptTooLong(ModelError):
    """The prompt has more tokens than the model's context holds."""


class RemoteError(HeedfulError):
    """The service of a `heedful.Client`, or the network between them, failed."""


class Unreachable(RemoteError):
    """The service gave no answer; it is unknown whether it did the work."""

    def __init__(self, url: str, what: str) -> None:
        self.url = url
        super().__init__(
            f"no answer from {url}, {what}; check the address and that the service runs"
        )


class CertificateNotTrusted(RemoteError):
    """The service has a certificate that this machine does not trust."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(
            f"the certificate of {url} is not trusted here; if a private authority "
            "signed it, pass transport=httpx.AsyncHTTPTransport(verify="
            "ssl.create_default_context(cafile=...)) with its certificate"
        )


class Refused(RemoteError):
    """The service or a proxy answered with an error for which heedful has no class.

    `status` is the HTTP status, `code` the service's own code, "" if the answer has no
    code.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status = status
        self.code = code
        shown_code = f" ({code})" if code else ""
        super().__init__(f"the service answered {status}{shown_code}: {message}")


def describe(cause: BaseException) -> str:
    """Return the type and the shortened text of an exception, and its place."""
    text: object = str(cause)
    if isinstance(cause, KeyError) and cause.args:
        text = cause.args[0]  # the text of a KeyError has quotes already
    place = place_of(cause)
    shown_place = f" ({place})" if place else ""
    return f"{type(cause).__name__}: {_shorten(text)}{shown_place}"


def place_of(cause: BaseException) -> str:
    """Return the last line of the user's code that raised, as in "checks.py:7".

    Without such a line, it is "".
    """
    place = ""
    trace = cause.__traceback__
    while trace is not None:
        if _is_of_user(trace):
            file = trace.tb_frame.f_code.co_filename.replace("\\", "/")
            name = file.rpartition("/")[2]
            place = f"{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _user_trace(error: BaseException) -> TracebackType | None:
    """Return the traceback of an error from the first line of the user's code.

    Without such a line, it is the whole traceback.
    """
    trace = error.__traceback__
    while trace is not None and not _is_of_user(trace):
        trace = trace.tb_next
    return trace or error.__traceback__


def _is_of_user(trace: TracebackType) -> bool:
    """Return True if a line is in the user's code, not in a library or in heedful."""
    file = trace.tb_frame.f_code.co_filename
    return not file.startswith(_FOREIGN_FOLDERS) and "site-packages" not in file


def _shorten(value: object) -> str:
    """Return the `repr` of a value, without secrets, in `MAX_VALUE_CHARS`."""
    if isinstance(value, str):
        value = redact_start(value, MAX_VALUE_CHARS + 1)
    text = redact_start(repr(value), MAX_VALUE_CHARS + 1)
    is_short = len(text) <= MAX_VALUE_CHARS
    return text if is_short else f"{text[: MAX_VALUE_CHARS - 1]}…"
