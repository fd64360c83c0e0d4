"""The options of a loop, checked before its first attempt."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from importlib import import_module
from inspect import signature
from math import inf
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    ParamSpec,
    TypeAlias,
    TypedDict,
    TypeVar,
    cast,
)

from heedful import errors
from heedful.checks.evaluate import Check, Evaluate
from heedful.checks.refusal import Refusing
from heedful.drive import journal
from heedful.drive.generate import Producer, Revise
from heedful.lessons.scope import DEFAULT_SCOPE, Scope
from heedful.lessons.telling import Tell, check_tell
from heedful.loop import decide, policies, record
from heedful.loop.ladder import Ladder
from heedful.memory.memory import Memory, open_memory
from heedful.redact import redact
from heedful.store import DEFAULT_STORE, UnchosenName, open_beside
from heedful.store.records import StoredLoop
from heedful.store.store import Store
from heedful.validation import (
    MAX_SCORE,
    check_name,
    check_number,
    check_options,
    require,
)

if TYPE_CHECKING:  # slow to import, and an extra
    from heedful.client import Client

C = TypeVar("C")
T = TypeVar("T")
P = ParamSpec("P")
# Where the memory of loops is: a Memory, its store, or a service.
MemoryPlace: TypeAlias = "Memory | Store | Client | str | None"


# Before the second, third and fourth call of an attempt: a provider that restarts is
# back within half a minute.
RETRY_SECONDS = (1.0, 5.0, 25.0)


class LoopOptions(TypedDict, total=False):
    """Further options of `run`, `Run` and `self_correcting`.

    `scope` is the tenant and the project of the loop, by default those of its memory.
    Checks and generators find `data`, any object, as `Context.data`; heedful neither
    stores nor compares it when a loop is resumed. `timeout` limits one attempt, in
    seconds. Loops with the same `memory_key` tell each other the rules that they
    broke; by default it is the module and the name of the function `generate`. `model`
    names the model that `generate` asks, so that lessons and proof tell models apart; a
    Model, a Writer and the answer of an SDK name their own. `tell` is what memory adds
    to prompts: "rules", "examples" or "both". With "rules" it never stores or shows
    outputs, only errors and fixes. A ValueError, an AssertionError or an error of these
    further classes, `refuse`, that a check or generator raises is no fault: it refuses
    the answer, and its text is the feedback. If TimeoutError is one of them, an answer
    that misses the `timeout` of the attempt or of its model is refused, too. After an
    error of the classes `retry_on`, the generator is called again in the same attempt,
    once for each of the seconds `wait`, which pass before the call.
    """

    scope: Scope | None
    data: Any
    timeout: float | None
    memory_key: str | None
    model: str
    tell: Tell
    refuse: Refusing
    retry_on: Sequence[type[Exception]]
    wait: Sequence[float]


@dataclass(kw_only=True, eq=False, repr=False)
class LoopSettings(Generic[C]):
    """The options of a loop with their types and defaults, checked.

    `Run` has all of them, `open_loop` and the stages of a pipeline some. `run` and
    `LoopOptions` say what they mean. `loop_goals` are the `goals`, or else those of the
    policy; both may be given as text. `max_attempts` replaces the policy's own limit.
    Raises InvalidInput, UnknownName.
    """

    checks: Sequence[Check] = ()
    evaluate: Evaluate | None = None
    goals: Sequence[record.Goal | str] = ()
    policy: decide.Policy = policies.default  # or text: `heedful.policy` reads it
    max_attempts: int | None = None
    revise: Revise | None = None
    memory: "MemoryPlace" = None
    initial: C | None = None
    store: Store | str | None = DEFAULT_STORE
    id: str = ""
    scope: Scope | None = None
    data: Any = None
    timeout: float | None = None
    memory_key: str | None = None
    model: str = ""
    tell: Tell = "both"
    refuse: Refusing = ()
    retry_on: Sequence[type[Exception]] = ()
    wait: Sequence[float] = RETRY_SECONDS
    output: Any = None

    def __post_init__(self) -> None:
        self.policy = policies.policy(self.policy)
        if self.max_attempts is not None:
            self.policy = policies.limit_attempts(self.policy, self.max_attempts)

        allowed = "a name without a secret: ids are not redacted"
        require(redact(str(self.id)) == str(self.id), "id", self.id, allowed)

        validate_checks(self.checks)
        allowed = "a function (candidate, context) that returns an Evaluation"
        has_judge = self.evaluate is None or callable(self.evaluate)
        require(has_judge, "evaluate", self.evaluate, allowed)

        is_list = isinstance(self.goals, Sequence) and not isinstance(self.goals, str)
        allowed = 'a list of Goal or text: ["quality >= 0.8"]'
        require(is_list, "goals", self.goals, allowed)
        own_goals = tuple(
            goal if isinstance(goal, record.Goal) else policies.goal(goal)
            for goal in self.goals
        )
        self.loop_goals: tuple[record.Goal, ...] = own_goals or self.policy.goals
        record.check_goals(self.loop_goals)

        if self.timeout is not None:
            is_number = isinstance(self.timeout, int | float)
            is_limit = is_number and 0 < self.timeout < inf
            require(is_limit, "timeout", self.timeout, "a number of seconds above 0")

        is_scope = self.scope is None or isinstance(self.scope, Scope)
        require(is_scope, "scope", self.scope, "heedful.Scope(tenant, project)")

        check_name("memory_key", self.memory_key or "")
        check_name("model", self.model)
        validate_refusing(self.refuse)
        _validate_classes("retry_on", self.retry_on, "retry_on=[ConnectionError]")
        is_list = isinstance(self.wait, list | tuple)
        allowed = "a list of seconds, one for each further call, as in wait=[1, 5]"
        require(is_list, "wait", self.wait, allowed)
        for seconds in self.wait:
            check_number("wait", seconds, low=0, high=MAX_SCORE)
        check_tell(self.tell)


# The options that `run` and `self_correcting` share.
RUN_OPTIONS = tuple(option.name for option in fields(LoopSettings))


def open_places(
    memory: "MemoryPlace", store: Store | str | None, scope: Scope | None
) -> tuple["Memory | Client | None", Store | None, Scope]:
    """Return the memory, the store and the scope of loops.

    By default, the store and the scope are those of the memory; a service as memory has
    no store.
    """
    if isinstance(memory, str) and memory.startswith(("http://", "https://")):
        client = import_module("heedful.client")  # slow to import, and an extra
        project = scope.project if scope else ""
        memory = client.at_address(memory, project)
    if hasattr(memory, "render_text"):
        place = None if isinstance(store, UnchosenName) else store
        return cast("Client", memory), open_beside(place, None), scope or DEFAULT_SCOPE
    if memory is None:
        return None, open_beside(store, None), scope or DEFAULT_SCOPE
    memory = open_memory(memory, scope)
    return memory, open_beside(store, memory.store), scope or memory.scope


def validate_checks(checks: Sequence[Check]) -> None:
    """Raise InvalidInput unless all `checks` can be called with a candidate."""
    are_callable = isinstance(checks, Sequence) and all(map(callable, checks))
    allowed = "a list of callables (candidate, context), as in checks=[in_metres]"
    require(are_callable, "checks", checks, allowed)

    for check in checks:
        if isinstance(check, type):
            name = check.__name__
            allowed = (
                f"a list of functions, but {name} is a class: for answers of this "
                f"class, pass output={name}, or the check "
                f"heedful.checks.json_schema({name})"
            )
            raise errors.InvalidInput("checks", [name], allowed)
        # `checks.words` instead of `checks.words(…)`, which makes the check.
        name = getattr(check, "__qualname__", ".")
        if "." not in name and str(check.__module__).startswith("heedful.checks."):
            raise errors.InvalidInput("checks", name, f"called first: checks.{name}(…)")


def validate_refusing(refuse: Refusing) -> None:
    """Raise InvalidInput unless all items are exception classes of other programs."""
    _validate_classes("refuse", refuse, "refuse=[requests.HTTPError]")
    for kind in refuse:
        allowed_kind = "an exception of yours: an error of heedful refuses no answer"
        is_own = issubclass(kind, errors.HeedfulError)
        require(not is_own, "refuse", kind, allowed_kind)


def _validate_classes(name: str, kinds: Any, example: str) -> None:
    """Raise InvalidInput unless the argument `name` is a list of exception classes."""
    allowed = f"a list of exception classes, as in {example}"
    require(isinstance(kinds, list | tuple), name, kinds, allowed)
    for kind in kinds:
        is_class = isinstance(kind, type) and issubclass(kind, Exception)
        require(is_class, name, kind, allowed)


def add_resume_hint(error: errors.HeedfulError, lease: journal.Lease) -> None:
    """Add to the message of an error how to go on with the loop that it left open."""
    cure = "give the loop an id and a store to go on where it failed"
    if lease.store is not None:
        cure = f"the loop is kept: run it again with id={lease.id!r}"
    error.args = (f"{error}; {cure}",)


def resumed_ladder(
    stored_loop: StoredLoop, rungs: Sequence[Producer], ladder: Ladder | None
) -> Ladder | None:
    """Return the ladder of a stored loop, which may have got more rungs.

    `ladder` is that of its generators, the `rungs`. Raises InvalidInput if a rung is
    missing that has made attempts or makes the next one.
    """
    numbers = [attempt.rung for attempt in stored_loop.loop.attempts]
    if isinstance(stored_loop.verdict, decide.Again):
        numbers.append(stored_loop.verdict.rung)
    highest = max(numbers, default=1)
    names = [rung.name for rung in rungs]
    allowed = f"the generators of the loop: it is on rung {highest}"
    require(highest <= len(rungs), "generate", names, allowed)

    stored_ladder = stored_loop.loop.ladder
    if ladder is None or stored_ladder is None:
        return ladder
    return stored_ladder.renamed(ladder.names)


def knows_options(
    function: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return the async function, which now raises UnknownName for an unknown option.

    The traceback of an error in user code has no lines of heedful below the call.
    """
    names = list(signature(function).parameters)
    if "options" in names:
        names.remove("options")
        names += LoopOptions.__annotations__

    @wraps(function)
    async def checked(*arguments: P.args, **options: P.kwargs) -> T:
        """Call the function. Raises UnknownName."""
        check_options(function.__name__, options, names)
        try:
            return await function(*arguments, **options)
        except errors.UserCodeError as error:
            raise error.with_traceback(None) from error.__cause__

    return checked
