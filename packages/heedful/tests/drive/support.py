"""Generators and checks that count their calls, and a count of commits."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from heedful.checks.evaluate import Context
from heedful.drive.run_loop import Run
from heedful.lessons.lesson import Scope
from heedful.loop.decide import Policy
from heedful.loop.record import Finding
from heedful.loop.stop import MaxAttempts
from heedful.store import loops
from heedful.store.records import StoredLoop
from heedful.store.sqlite import BUSY_TIMEOUT_SECONDS, Connection, File
from heedful.store.store import Store

SCOPE = Scope()
FOUR = Policy((MaxAttempts(4),), name="four")
WANTED = "right"


class Generator:
    """Answers from a list, the last one for ever; keeps every hint."""

    def __init__(self, *answers: Any) -> None:
        self.answers = answers
        self.hints: list[str] = []

    async def __call__(self, task: Any, hint: str) -> Any:
        self.hints.append(hint)
        answer = self.answers[min(len(self.hints), len(self.answers)) - 1]
        if isinstance(answer, BaseException):
            raise answer
        return answer(task, hint) if callable(answer) else answer

    @property
    def calls(self) -> int:
        return len(self.hints)


class Check:
    """Finds an error in whatever is not right; its answers may be exceptions to raise
    first.
    """

    name = "wanted"

    def __init__(self, *raises: BaseException, pure: bool = False) -> None:
        self.pure = pure
        self.raises = list(raises)
        self.seen: list[Any] = []

    def __call__(self, candidate: Any, context: Context) -> Sequence[Finding]:
        self.seen.append(candidate)
        if self.raises:
            raise self.raises.pop(0)
        if candidate == WANTED:
            return []
        return [Finding("wanted", f"{candidate} is not right", fix="write right")]


def session(store: Any, *answers: Any, **options: Any) -> Run[Any]:
    """A loop named a, of up to four attempts, that is driven step by step."""
    if not answers:
        answers = ("one", "two", "three", "four", "five")
    options.setdefault("generate", Generator(*answers))
    options.setdefault("checks", [Check()])
    options.setdefault("policy", FOUR)
    options.setdefault("id", "a")
    return Run("task", store=store, **options)


async def reread(store: Store, id: str = "a") -> StoredLoop:
    """The loop as it is stored."""
    return await store.read(SCOPE, loops.read, id)


def open_traced(path: Path | str) -> tuple[Store, list[str]]:
    """A store, and the first word of each statement that its connections run."""
    statements: list[str] = []
    file = File(str(path), BUSY_TIMEOUT_SECONDS)

    def listening(connect: Callable[..., Connection]) -> Callable[..., Connection]:
        def opened(**options: float) -> Connection:
            db = connect(**options)
            db.set_trace_callback(
                lambda sql: statements.append(sql.partition(" ")[0].lower())
            )
            return db

        return opened

    for thread in (file.writer, *file.readers.values()):
        thread._connect = listening(thread._connect)
    return Store(str(path), file), statements


def open_counted(path: Path | str) -> tuple[Store, Callable[[], int]]:
    """A store and how many transactions it has committed."""
    store, statements = open_traced(path)
    return store, lambda: statements.count("commit")
