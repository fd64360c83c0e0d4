"""`heedful reflect`: what failed in the runs of other people's agents.

Files of traces are read as episodes, one for each run of an agent. Rules find what
failed in an episode, and write the lessons, unless the command line names a model that
writes them.
"""

import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import KW_ONLY, asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from heedful.cli.databases import ask_store
from heedful.cli.printing import (
    answer,
    columns,
    command_line,
    current_command,
    following,
    name_database,
    page,
    say,
    shorten,
    show_progress,
)
from heedful.cli.resources import memory_of, opened_model
from heedful.cli.settings import NO_MODEL, settings
from heedful.display import counted
from heedful.episodes import read
from heedful.episodes.episode import Episode
from heedful.episodes.reading import Traces
from heedful.episodes.run_mistakes import MIN_UNIQUE_ID_CHARS
from heedful.episodes.trace_files import files_in
from heedful.errors import ModelError, ModelUnavailable, TraceFileError
from heedful.lessons.commands import trust_words
from heedful.lessons.lesson import Remembered
from heedful.lessons.mistake import Mistake, confirmed
from heedful.lessons.origin import read_origin
from heedful.lessons.render import OUTSIDE_WORDS, FailureRow
from heedful.lessons.scope import FAILED_OUTCOMES
from heedful.memory import reflect as reflecting
from heedful.models.contract import Model
from heedful.sanitize import clean
from heedful.store.store import Store
from heedful.validation import MAX_SHOWN_TEXT_CHARS, Document

# A function that reflects on one episode, with the memory and model of the command.
Reflector = Callable[[Episode], Awaitable[reflecting.Reflected | None]]
REFLECT_RETRY_HINT = "heedful worker --once tries again"


class FailureTable:
    """The failures of the runs that a command read, by database and signature.

    `heedful reflect` and `heedful learn-sessions` end with it, the most costly first.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], FailureRow] = {}
        self._newest: dict[tuple[str, str], Mistake] = {}
        # Copies of a run have the same calls.
        self._evidence: set[tuple[str, ...]] = set()

    def add(
        self,
        db: str,
        mistake: Mistake,
        stored: Remembered | None,
        episode: Episode | None = None,
    ) -> None:
        """Add a mistake of a run, with the answer about its lesson in memory."""
        key = (db, mistake.signature)
        row = self._rows.setdefault(key, FailureRow.of(mistake))
        # What put it right may be known by two runs only.
        mistake = confirmed(mistake, self._newest.get(key, mistake))
        self._newest[key] = mistake
        # A short id may be in several runs.
        is_unique = all(len(id) >= MIN_UNIQUE_ID_CHARS for id in mistake.evidence)
        run = "" if is_unique or episode is None else episode.digest
        evidence = (db, mistake.signature, run, *mistake.evidence)
        if evidence not in self._evidence:
            row.calls += mistake.times
            row.runs += 1
        self._evidence.add(evidence)
        row.fixed_by = row.fixed_by or FailureRow.of(mistake).fixed_by
        times = [event.at for event in episode.events if event.at] if episode else []
        row.last_seen = max([*times, row.last_seen or 0]) or None
        if stored is not None and stored.id:
            row.runs = stored.seen
            row.lesson = stored.id
            row.state = stored.state

    def hold(self, db: str, mistake: Mistake) -> None:
        """Let a failure wait whose rule waits, unless agents are told its fix."""
        row = self._rows.get((db, mistake.signature))
        if row is not None and row.fixed_by in ("", OUTSIDE_WORDS):
            row.state = "quarantined"

    def ranked(self) -> list[FailureRow]:
        """Return the failures, the most costly first."""
        return sorted(self._rows.values(), key=lambda row: (-row.runs, -row.calls))

    def documents(self) -> list[Document]:
        """Return the failures as JSON data."""
        return [{**asdict(row), "told": row.told} for row in self.ranked()]

    def text(self) -> list[object]:
        """Return the table, shortened to what a person reads."""
        return shorten(FAILURE_COLUMNS, self.ranked(), text_columns=2)


FAILURE_COLUMNS = columns(
    "failure fixed_by runs last_seen calls told lesson",
    failure="error",
    fixed_by=lambda row: clean(row.fixed_by, 160) or "nothing yet",
    last_seen=lambda row: row.last_seen or "",
)


def told_words(rows: Sequence[FailureRow]) -> str:
    """Return how many failures agents will be told of, and how many wait."""
    announced = sum(row.told == "will be" for row in rows)
    waiting = sum(row.told == "waits" for row in rows)
    if not announced and not waiting:
        return ""
    words = f"agents will be told of {announced}"
    return f"{words}; {waiting} wait until you release them" if waiting else words


@dataclass
class EpisodeResult:
    """The result of reflecting on an episode.

    It is `reflected`, or an `error` of the model or the file, or neither if the file
    has no episode. A file that `is_unknown` is of no known format, and stands in a
    folder with others that are.
    """

    name: str
    episode: Episode | None = None
    _: KW_ONLY
    reflected: reflecting.Reflected | None = None
    error: str = ""
    is_unknown: bool = False

    @property
    def release(self) -> str:
        """The command that releases what waits in quarantine; "" if nothing does."""
        return name_database(self.reflected.release) if self.reflected else ""

    @property
    def document(self) -> Document:
        """The result as JSON data."""
        document: dict[str, object] = {
            "name": self.name,
            "error": self.error,
            "reflection": None,
        }
        if self.episode is not None:
            document |= {
                "outcome": self.episode.outcome,
                "run_failed": self.episode.outcome in FAILED_OUTCOMES,
                "task": self.episode.task,
                "digest": self.episode.digest,
            }

        if self.reflected is not None:
            document |= {
                **asdict(self.reflected),
                "release": self.release,
                "hint": self.reflected.hint,
                "importance": self.reflected.importance,
                "confidence": self.reflected.confidence,
            }
        return document


def reflect(
    files: Annotated[
        list[Path],
        Argument(help="Files or folders of traces; - for the standard input."),
    ],
    origin: Annotated[
        str, Option(help="Whose runs these are: user, local, outside.")
    ] = "user",
    keep: Annotated[
        bool, Option("--store/--no-store", help="Store the lessons.")
    ] = True,
    each: Annotated[
        bool, Option("--each", help="Show each run, with the events that prove it.")
    ] = False,
) -> int:
    """List what failed in runs of agents, what put it right, how often, and learn from
    it.

    Each run counts once, however often it is read. What is from outside waits in
    quarantine.
    """
    author = read_origin(origin)
    # Failures are printed below.
    logging.getLogger("heedful").addHandler(logging.NullHandler())
    values = settings().with_one_model()
    names_model = "model" in current_command().options and values.model != NO_MODEL
    results: list[EpisodeResult] = []
    unknown: list[EpisodeResult] = []

    async def reflect_on_all(store: Store) -> None:
        """Reflect on every episode of the files, and keep the results."""
        async with AsyncExitStack() as stack:
            memory = memory_of(values, store)
            model: Model | None = None
            if names_model:
                model = await stack.enter_async_context(opened_model(values))

            async def reflect_on(episode: Episode) -> reflecting.Reflected | None:
                """Reflect on one episode with this memory and this model."""
                return await reflecting.reflect(
                    episode,
                    memory=memory,
                    model=model,
                    origin=author,
                    store=keep,
                    on_model_error="raise",
                )

            async for result in _reflect_on_files(files, reflect_on):
                if result.is_unknown:
                    unknown.append(result)
                else:
                    results.append(result)
                show_progress("reflecting", len(results), total=0, noun="episodes")

    stopped = "stopped; what was reflected on is kept, the same command does the rest"
    ask_store(values, reflect_on_all, new=True, stopped=stopped)
    return _print_results(results, unknown, each=each)


def _print_results(
    results: Sequence[EpisodeResult], unknown: Sequence[EpisodeResult], *, each: bool
) -> int:
    """Print what failed in the runs, and what to do next; return the exit code."""
    failed = sum(1 for result in results if result.error)
    table = _failures_of(results)
    ranked = table.ranked()
    documents = [result.document for result in results]
    document = {
        "episodes": documents,
        "failures": table.documents(),
        "failed": failed,
        "runs_failed": sum(document.get("run_failed", False) for document in documents),
        "unknown": [result.name for result in unknown],
    }
    listed = [result for result in results if each or not result.reflected]
    texts = [
        page("reflect", results=listed, again=REFLECT_RETRY_HINT),
        *table.text(),
        _counts(results),
        _unknown_words(unknown),
        told_words(ranked),
        *_next_commands(results),
    ]
    answer(document, texts)

    # A file without an episode failed before any model was asked.
    model_failed = any(result.error and result.episode for result in results)
    if model_failed and not current_command().json:
        say(f"heedful: where a model failed, {REFLECT_RETRY_HINT}")
    return 1 if failed else 0


def _failures_of(results: Sequence[EpisodeResult]) -> FailureTable:
    """Return the table of what failed in the runs, each counted once."""
    table = FailureTable()
    seen: set[str] = set()
    for result in results:
        episode = result.episode
        reflected = result.reflected
        if episode is None or reflected is None or episode.digest in seen:
            continue
        seen.add(episode.digest)
        answers = (*reflected.stored, *(None for _ in reflected.lessons))
        for lesson, answer_of_lesson in zip(reflected.lessons, answers, strict=False):
            if lesson.mistake is None:
                continue
            if lesson.kind == "reflection":
                table.add("", lesson.mistake, answer_of_lesson, episode)
            elif answer_of_lesson and answer_of_lesson.state == "quarantined":
                table.hold("", lesson.mistake)
    return table


def _kind_of(result: EpisodeResult) -> str:
    """Return how lists count an episode; "" if there is nothing to count."""
    reflected = result.reflected
    if result.error:
        return "failed"
    if reflected is None:
        return ""
    if reflected.busy:
        return "left to others"
    if reflected.known or reflected.again:
        return "known"
    return "new" if reflected.stored else "without a mistake"


def _counts(results: Sequence[EpisodeResult]) -> str:
    """Return how many episodes were new, known, left to others, or failed."""
    counts = Counter(map(_kind_of, results))
    episodes = [result for result in results if result.episode is not None]
    words = f"{counted(len(episodes), 'episode')}: {counts['new']} new"
    words += f", {counts['known']} known"
    rarer = [
        f", {counts[state]} {state}"
        for state in ("without a mistake", "left to others", "failed")
        if counts[state]
    ]
    return "".join([words, *rarer, _failed_words(episodes)])


def _failed_words(results: Sequence[EpisodeResult]) -> str:
    """Return how many runs failed, and how many of them have a lesson; "" without one.

    A run without a lesson failed without a call that did.
    """
    failed = [r for r in results if r.document.get("run_failed")]
    if not failed:
        return ""
    taught = sum(bool(r.reflected and r.reflected.lessons) for r in failed)
    words = f"; {counted(len(failed), 'run')} failed: {taught} with a lesson"
    return f"{words}, {len(failed) - taught} without a failing call"


def _unknown_words(unknown: Sequence[EpisodeResult]) -> str:
    """Return which files of folders are of no known format; "" without one."""
    if not unknown:
        return ""
    names = ", ".join(result.name for result in unknown)
    return clean(
        f"{counted(len(unknown), 'file')} of no known format: {names}",
        MAX_SHOWN_TEXT_CHARS,
    )


def _next_commands(results: Sequence[EpisodeResult]) -> list[str]:
    """Return how to see the new lessons; [] without a new one, or after a failure.

    If lessons wait, the commands follow that say whose words the runs have.
    """
    kinds = set(map(_kind_of, results))
    if "failed" in kinds or "new" not in kinds:
        return []

    waiting = [
        result.reflected
        for result in results
        if result.reflected and result.release and _kind_of(result) == "new"
    ]
    if not waiting:
        return [following("lessons")]
    review = following("quarantine", "list")
    stated = [entry.untrusted for entry in waiting if entry.hint]
    names = trust_words(sorted(set(chain.from_iterable(stated))))
    if not names:
        return [review]
    return [f"If you trust these sources: {command_line(*names)}", review]


async def _reflect_on_files(
    files: Sequence[Path], reflect_on: Reflector
) -> AsyncIterator[EpisodeResult]:
    """Reflect on every episode of the files and folders, in order.

    What cannot be read of a file is an error; the rest is reflected on. So is a folder
    without a file. A file of no known format is an error only if it is named itself.
    """
    for target in files:
        paths = [*files_in([target])]
        if not paths:
            empty = TraceFileError(str(target), 0, "the folder has no file")
            yield EpisodeResult(target.name, error=str(empty))
        for path, file in paths:
            episodes = read(file)
            async for result in _reflect_on_file(path, episodes, reflect_on):
                is_known = episodes.is_recognised or not os.access(path, os.R_OK)
                yield replace(result, is_unknown=path != target and not is_known)


async def _reflect_on_file(
    path: Path, episodes: Traces, reflect_on: Reflector
) -> AsyncIterator[EpisodeResult]:
    """Reflect on every episode of a file, in order.

    Raises ModelUnavailable, with which all others would fail.
    """
    number = 0
    try:
        for number, episode in enumerate(episodes, 1):
            name = f"{path.name}:{clean(episode.id, 60) or number}"
            try:
                reflected = await reflect_on(episode)
                yield EpisodeResult(name, episode, reflected=reflected)
            except ModelUnavailable:
                raise
            except ModelError as error:
                yield EpisodeResult(name, episode, error=str(error))
        for skipped in episodes.skipped:
            yield EpisodeResult(path.name, error=str(skipped))
    except TraceFileError as error:
        yield EpisodeResult(path.name, error=str(error))
        return

    if not number:  # the file has no episode
        yield EpisodeResult(path.name)
