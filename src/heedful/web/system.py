"""The page of the system: what is wrong and what to do."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter

from heedful.lessons.holdout import FIRST_LOOPS_WITHOUT_HOLDOUT
from heedful.lessons.lesson import Scope
from heedful.lessons.scope import name_scope, name_tenant
from heedful.lessons.silence import EMBED_COMMAND
from heedful.loop.share import percent
from heedful.memory.vectors import space_of
from heedful.pages.report import counted
from heedful.service.jobs import Work, Workload
from heedful.store import POSTGRES_PREFIXES, shown
from heedful.store.connection import token
from heedful.store.search import BLANK_CHARACTERS
from heedful.web import figures
from heedful.web.loops import (
    MAX_GROUPED_ERRORS,
    group_errors,
    queues,
)
from heedful.web.site import READING, Document, SitePage, Visit

MAX_NAMED_ERRORS = 10  # different errors that have a row
# The newest texts of memory; those without a vector are counted.
MAX_UNEMBEDDED_TEXTS = 5_000
RETRY_COMMAND = "heedful worker --once"
NO_MODEL_ERROR = "ModelUnavailable"
WORKER_COMMAND = "heedful worker"
HOLDOUT_CURE = "give programs and this service the setting holdout=0.1"
PROGRAMS_CURE = "give the programs that run loops the setting holdout=0.1"


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Something that is wrong: how often, since when, and what cures it.

    `noun` names one of them, `nouns` several. `first` is what to do before the command.
    `at` is when it was last seen, 0 if unknown. `path` leads to a page with more, "" if
    there is none, which lists what has this `state`. `is_failure` is False for what
    only waits.
    """

    noun: str
    nouns: str
    number: int
    words: str = ""
    at: float = 0.0
    first: str = ""
    command: str = ""
    path: str = ""
    state: str = "failed"
    is_failure: bool = True

    @property
    def name(self) -> str:
        """The number with its noun."""
        return counted(self.number, self.noun, self.nouns)


async def health(visit: Visit) -> Document:
    """Show what is wrong and what to do, and how the service is set up."""
    read = visit.caller.read
    space = space_of(visit.caller.setup.embedder)
    (vectors,) = await read(
        figures.rows,
        "vectors",
        token=token(visit.caller.scope),
        space=space,
        blank=BLANK_CHARACTERS,
        limit=MAX_UNEMBEDDED_TEXTS,
    )
    failures = await read(figures.rows, "failures", limit=MAX_GROUPED_ERRORS)
    errors = group_errors(failures, visit.may("read"))
    jobs, workload = await queues(visit)
    (waiting,) = await read(figures.rows, "waiting_episodes")
    (coins,) = await read(figures.rows, "coin_shares", limit=10_000)
    has_worker = type(visit.caller.setup.work) is not Work

    behind = vectors["texts"] - vectors["here"] if space else 0
    troubles = [
        *_failed_reflections(errors),
        *_failed_jobs(jobs, visit.caller.scope.tenant),
        *_waiting_jobs(workload),
        *_missing_vectors(behind, visit.caller.scope),
    ]
    if not has_worker:
        troubles += _waiting_traces(dict(waiting))
    # What failed comes first; of both kinds, what happened most often.
    troubles.sort(key=lambda trouble: (not trouble.is_failure, -trouble.number))
    setup = _describe_setup(
        visit,
        space,
        dict(vectors),
        workload=workload,
        waits=waiting["number"],
        coins=dict(coins),
    )
    sentence = describe_health(troubles)
    is_set_up = all(row["well"] for row in setup)
    if not troubles and not is_set_up:
        names = [row["name"] for row in setup if not row["well"]]
        sentence = f"Nothing failed. To be set up: {', '.join(names)}."
    return {
        "sentence": sentence,
        "well": not troubles and is_set_up,
        "troubles": [{**asdict(trouble), "name": trouble.name} for trouble in troubles],
        "jobs": jobs,
        "vectors": {**dict(vectors), "space": space, "most": MAX_UNEMBEDDED_TEXTS},
        "waiting": dict(waiting),
        "doctor": name_tenant("heedful doctor", visit.caller.scope.tenant),
        "setup": setup,
    }


def _failed_reflections(errors: Sequence[Document]) -> Iterator[Trouble]:
    """Yield the errors of reflections, equal ones together."""
    for error in errors[:MAX_NAMED_ERRORS]:
        cure = cure_reflection(error["error"])
        yield Trouble(
            noun="reflection failed",
            nouns="reflections failed",
            number=error["number"],
            words=error["error"],
            at=error["at"],
            first=cure["first"],
            command=cure["command"],
            path="/traces",
        )
    others = errors[MAX_NAMED_ERRORS:]
    if others:
        yield Trouble(
            noun="reflection failed",
            nouns="reflections failed",
            number=sum(error["number"] for error in others),
            words=f"{len(others):,} other errors",
            command=RETRY_COMMAND,
            path="/traces",
        )


def cure_reflection(error: str) -> dict[str, str]:
    """Return the command that reflects again after an error, and what to do `first`.

    A trace that only waits has the error "".
    """
    first = ""
    if error.startswith(NO_MODEL_ERROR):
        first = "set a model if none is set, then"
    return {"first": first, "command": RETRY_COMMAND}


def _failed_jobs(jobs: Sequence[Document], tenant: str) -> Iterator[Trouble]:
    """Yield the queues whose jobs failed or stalled, or that cannot be read."""
    commands = {
        "failed": name_tenant("heedful jobs", tenant),
        "stalled": WORKER_COMMAND,
    }
    for queue in jobs:
        state = queue["state"]
        if state not in commands:
            continue
        yield Trouble(
            noun=f"job {state}",
            nouns=f"jobs {state}",
            number=queue["number"] or 1,
            words=queue["queue"],
            command=commands[state],
        )


def _waiting_jobs(workload: Workload | None) -> Iterator[Trouble]:
    """Yield the jobs that wait while no worker is alive, or that wait too long."""
    if workload is not None and workload.state != "ok":
        yield Trouble(
            noun="job waits for a worker",
            nouns="jobs wait for a worker",
            number=workload.waiting,
            words=f"workers: {workload}",
            at=time.time() - workload.oldest,
            command=WORKER_COMMAND,
            is_failure=False,
        )


def _missing_vectors(behind: int, scope: Scope) -> Iterator[Trouble]:
    """Yield the texts that the embedder has not embedded yet."""
    if behind:
        yield Trouble(
            noun="text has no vector",
            nouns="texts have no vector",
            number=behind,
            words="a search finds them by their words alone",
            command=name_scope(EMBED_COMMAND, scope),
            is_failure=False,
        )


def _waiting_traces(waiting: Document) -> Iterator[Trouble]:
    """Yield the traces that wait while no worker runs in this process."""
    if waiting["number"]:
        yield Trouble(
            noun="trace waits for a worker",
            nouns="traces wait for a worker",
            number=waiting["number"],
            words="no worker runs in this process",
            at=waiting["oldest"],
            command=RETRY_COMMAND,
            path="/traces",
            state="waiting",
            is_failure=False,
        )


def describe_health(troubles: Sequence[Trouble]) -> str:
    """Return in one sentence what is wrong, those of one kind together.

    >>> describe_health([])
    'Nothing failed, and nothing is behind.'
    """
    if not troubles:
        return "Nothing failed, and nothing is behind."

    numbers: dict[tuple[str, str], int] = {}
    for trouble in troubles:
        kind = trouble.noun, trouble.nouns
        numbers[kind] = numbers.get(kind, 0) + trouble.number
    parts = [counted(number, noun, nouns) for (noun, nouns), number in numbers.items()]
    return f"{', '.join(parts)}."


def _describe_setup(
    visit: Visit,
    space: str,
    vectors: Document,
    *,
    workload: Workload | None,
    waits: int,
    coins: Document,
) -> list[Document]:
    """Return how this service is set up: name, value, and what is not well first.

    Each row that is not well has its cure, in words or as a command. Only the person at
    this machine sees where the database is. `waits` counts the traces that wait,
    `coins` has the least and the largest share that was recorded.
    """
    setup = visit.caller.setup
    is_postgres = setup.store.url.startswith(POSTGRES_PREFIXES)
    database = "PostgreSQL" if is_postgres else "SQLite"
    if visit.is_here:
        database += f", {shown(setup.store.url)}"
    embedding = name_scope(EMBED_COMMAND, visit.caller.scope)
    rows = [
        _setup_row("database", database),
        _describe_recall(space, vectors, embedding),
        _describe_coin(visit.caller.memory.holdout, coins),
        _describe_worker(workload, waits, has_queue=type(setup.work) is not Work),
    ]
    return sorted(rows, key=itemgetter("well"))


def _describe_worker(
    workload: Workload | None, waits: int, *, has_queue: bool
) -> Document:
    """Return whether a worker does what waits; without a queue, none runs here."""
    value = "none in this process; nothing needs one"
    is_well = not waits
    if has_queue:
        value = str(workload or "the queue does not answer")
        is_well = workload is not None and workload.state == "ok"
    elif waits:
        value = "none in this process"
    return _setup_row("worker", value, well=is_well, command=WORKER_COMMAND)


def _describe_coin(holdout: float, coins: Document) -> Document:
    """Return what draws decided in the recorded loops, and the setting of this process.

    >>> coins = {"low": 0.1, "high": 0.2, "loops": 90, "tossed": 80}
    >>> _describe_coin(0.1, coins)["value"]
    'a random draw (10 % to 20 %) decided in 80 of 90 loops with lessons; set here: \
10 %'
    """
    here = f"set here: {percent(holdout)}"
    loops = coins["loops"]
    if not loops:
        return _setup_row(
            "holdout",
            f"no loop had lessons; {here}",
            well=holdout > 0,
            cure=HOLDOUT_CURE,
        )

    with_lessons = f"{counted(loops, 'loop')} with lessons"
    # The first loops are all shown lessons.
    is_due = loops > FIRST_LOOPS_WITHOUT_HOLDOUT
    if coins["tossed"]:
        share = ""
        ends = dict.fromkeys([percent(coins["low"]), percent(coins["high"])])
        if [*ends] != [percent(holdout)]:
            share = f" ({' to '.join(ends)})"
        done = f"a random draw{share} decided in {coins['tossed']:,} of {with_lessons}"
    elif is_due:
        done = f"the holdout of {with_lessons} was 0: nothing was withheld"
    else:
        done = f"nothing is withheld from the first loops; {with_lessons} so far"
    is_well = holdout > 0 and bool(coins["tossed"] or not is_due)
    return _setup_row(
        "holdout",
        f"{done}; {here}",
        well=is_well,
        cure=PROGRAMS_CURE if holdout else HOLDOUT_CURE,
    )


def _setup_row(
    name: str, value: str, *, well: bool = True, cure: str = "", command: str = ""
) -> Document:
    """Return a row of how this service is set up; its cure is for what is not well."""
    return {
        "name": name,
        "value": value,
        "well": well,
        "cure": cure,
        "command": command,
    }


def _describe_recall(space: str, vectors: Document, embedding: str) -> Document:
    """Return how texts are found: those with a vector by meaning, others by words."""
    if not space:
        return _setup_row("recall", "compares words; no embedder is set")

    texts = counted(vectors["texts"], "text")
    if vectors["texts"] == MAX_UNEMBEDDED_TEXTS:
        texts = f"the newest {texts}"
    return _setup_row(
        "recall",
        f"compares meanings, by {space}: {vectors['here']:,} of {texts} have a vector",
        well=vectors["here"] == vectors["texts"],
        command=embedding,
    )


PAGES = (
    SitePage(
        address="/health",
        template="health",
        title="Health",
        make=health,
        may=READING,
    ),
)
