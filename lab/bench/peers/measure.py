"""All the work of a run: each peer in its turn, several rounds, and the memories."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO

from bench.peers.contract import Line, Work
from bench.peers.environments import Environment, hide_places
from bench.peers.loop import count_warm_cycles

MAX_PROGRAM_SECONDS = 3_600
WORKERS = 8
SIGHTINGS = 104
# A process is killed after this many writes, and as many more for each kill.
FIRST_KILL_WRITES = 25
MAX_WRITES = 100_000
# Two lengths of a run are compared, so that what opening and closing costs is left out.
SYNC_RUNS = (10, 60)
MAX_ROWS = 1_000  # of the stores that are counted


MemoryWork = Callable[[Environment, Path, Path], Iterator[Line]]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured: the rounds, and how often each work is done in a round.

    What gets lost when several write at once differs, so there are `trials` of it.
    """

    rounds: int
    cycles: int
    durable_cycles: int
    batches: int
    lessons: int
    queries: int
    trials: int
    kills: int


FULL = Plan(
    rounds=5,
    cycles=1_000,
    durable_cycles=200,
    batches=5,
    lessons=10_000,
    queries=200,
    trials=5,
    kills=5,
)
SMOKE = Plan(
    rounds=1,
    cycles=50,
    durable_cycles=10,
    batches=1,
    lessons=200,
    queries=20,
    trials=1,
    kills=1,
)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A figure of one peer in one round, or the text why there is none."""

    peer: str
    kind: str
    round: int
    figure: str
    value: float = 0.0
    text: str = ""

    def __str__(self) -> str:
        """Return a line for a person."""
        name = f"{self.peer}, {self.kind}, round {self.round + 1}: {self.figure}"
        return f"{name} {self.value:.4g} {self.text}".rstrip()


def measure_loops(
    environments: Sequence[Environment], plan: Plan, folder: Path
) -> Iterator[Measurement]:
    """Time the loops of all peers in turns, round by round; then count bytes once."""
    times = {
        "cycle": plan.cycles,
        "durable": plan.durable_cycles,
        "together": plan.batches,
    }
    for number in range(plan.rounds):
        for kind, count in times.items():
            for environment in environments:
                if kind in environment.peer.kinds:
                    yield from measure(environment, kind, folder, count, number)
    for environment in environments:
        if "bytes" in environment.peer.kinds:
            yield from measure(environment, "bytes", folder)
        if "durable" in environment.peer.kinds:
            runs = [times + count_warm_cycles(times) for times in SYNC_RUNS]
            lines = count_syncs(environment, "durable", folder, runs=runs)
            yield from as_measurements(environment, "durable", lines)


def measure_memories(
    environments: Sequence[Environment], plan: Plan, folder: Path, inputs: Path
) -> Iterator[Measurement]:
    """Measure the work of a memory, one peer after the other."""
    works: dict[str, tuple[int, MemoryWork]] = {
        "lessons": (1, run_lessons),
        "sighting": (plan.trials, run_sightings),
        "write": (1, partial(run_kills, plan.kills)),
    }
    for environment in environments:
        if "write" in environment.peer.kinds:
            lines = count_syncs(environment, "write", folder, inputs=str(inputs))
            yield from as_measurements(environment, "write", lines)
    for kind, (trials, run) in works.items():
        for environment in environments:
            if kind not in environment.peer.kinds:
                continue
            for number in range(trials):
                with work_folder(folder) as place:
                    lines = run(environment, Path(place), inputs)
                    yield from as_measurements(environment, kind, lines, number)


def measure(
    environment: Environment, kind: str, folder: Path, times: int = 1, number: int = 0
) -> Iterator[Measurement]:
    """Run one program in a folder of its own."""
    with work_folder(folder) as place:
        lines = run_program(environment, Work(kind=kind, folder=place, times=times))
        yield from as_measurements(environment, kind, lines, number)


def work_folder(folder: Path) -> tempfile.TemporaryDirectory[str]:
    """Return a folder for one work, which is removed afterwards."""
    return tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True)


def as_measurements(
    environment: Environment, kind: str, lines: Iterator[Line], number: int = 0
) -> Iterator[Measurement]:
    """Yield the lines of a program as measurements; a failure is one, too."""

    def measurement(line: Line) -> Measurement:
        return Measurement(
            peer=environment.peer.name,
            kind=kind,
            round=number,
            figure=line.figure,
            value=line.value,
            text=hide_places(line.text),
        )

    try:
        yield from map(measurement, lines)
    except ProgramFailed as error:
        yield measurement(Line(figure="failed", text=str(error)))


class ProgramFailed(Exception):
    """A program of a peer ended with an error, or not in time."""


def start(
    environment: Environment, work: Work, tracer: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """Start the program of a peer; what it says beside its lines is kept in a file."""
    home = Path(work.folder, f"home-{work.kind}-{work.worker}")
    home.mkdir(exist_ok=True)
    with errors_file(work).open("w", encoding="utf-8") as errors:
        return subprocess.Popen(
            [
                *tracer,
                environment.python,
                "-m",
                f"bench.peers.{environment.peer.name}",
                json.dumps(asdict(work)),
            ],
            cwd=home,
            env=environment.variables(str(home)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )


def errors_file(work: Work) -> Path:
    """Return the file with what a program writes to stderr."""
    return Path(work.folder, f"errors-{work.kind}-{work.worker}.txt")


def run_program(
    environment: Environment, work: Work, tracer: Sequence[str] = ()
) -> Iterator[Line]:
    """Yield the lines of a program. Raises ProgramFailed."""
    process = start(environment, work, tracer)
    try:
        stdout, _ = process.communicate(timeout=MAX_PROGRAM_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise ProgramFailed(f"not done within {MAX_PROGRAM_SECONDS} seconds") from None
    if process.returncode:
        raise ProgramFailed(last_line(errors_file(work)))
    yield from read_lines(stdout)


def read_lines(stdout: str) -> Iterator[Line]:
    """Yield the lines that a program printed. Raises ProgramFailed."""
    for text in stdout.splitlines():
        try:
            yield Line(**json.loads(text))
        except (ValueError, TypeError) as error:
            problem = f"not a line of a figure: {text[:200]!r}"
            raise ProgramFailed(problem) from error


def last_line(path: Path) -> str:
    """Return the last line of a file, where Python names the exception."""
    lines = path.read_text("utf-8", errors="replace").splitlines()
    return (lines or ["it ended without a word"])[-1]


def count_syncs(
    environment: Environment,
    kind: str,
    folder: Path,
    *,
    inputs: str = "",
    runs: Sequence[int] = SYNC_RUNS,
) -> Iterator[Line]:
    """Count the fsyncs of one piece of work with strace; nothing where it is missing.

    `runs` says how often the work is done in each of the two lengths of a run.
    """
    strace = shutil.which("strace")
    if strace is None:
        return
    counts = []
    for times in SYNC_RUNS:
        with work_folder(folder) as place:
            log = Path(place, "strace.txt")
            tracer = (strace, "-f", "-o", str(log), "-e", "trace=fsync,fdatasync")
            work = Work(kind=kind, folder=place, times=times, inputs=inputs)
            list(run_program(environment, work, tracer))
            calls = log.read_text("utf-8", errors="replace").splitlines()
            counts.append(sum("sync(" in call for call in calls))
    fewer_runs, more_runs = runs
    syncs = (counts[1] - counts[0]) / (more_runs - fewer_runs)
    yield Line(figure="fsyncs", value=syncs)


def run_lessons(environment: Environment, folder: Path, inputs: Path) -> Iterator[Line]:
    """Store and search the lessons."""
    yield from run_program(
        environment, Work(kind="lessons", folder=str(folder), inputs=str(inputs))
    )


def run_sightings(
    environment: Environment, folder: Path, inputs: Path
) -> Iterator[Line]:
    """Let all workers write the same sighting at once; then count what is stored."""
    # A first process makes the store: how a store is made at once by eight is another
    # question.
    list(run_count(environment, folder, inputs))
    works = [
        Work(
            kind="sighting",
            folder=str(folder),
            times=SIGHTINGS // WORKERS,
            inputs=str(inputs),
            worker=number,
        )
        for number in range(WORKERS)
    ]
    workers = [start(environment, work) for work in works]
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()  # it is ready, or it ended
    outputs = [let_go(worker) for worker in workers]

    acknowledged = 0.0
    refusals = list[str]()
    for output, work in zip(outputs, works, strict=True):
        lines = list(read_lines(output.read()))
        acknowledged += sum(line.value for line in lines if not line.text)
        refusals += [line.text for line in lines if line.text]
        if not lines:
            refusals.append(last_line(errors_file(work)))
    for worker in workers:
        worker.wait(timeout=MAX_PROGRAM_SECONDS)
    yield Line(figure="acknowledged", value=acknowledged)
    if refusals:
        yield Line(figure="refusal", value=len(refusals), text=refusals[0])
    yield from run_count(environment, folder, inputs)


def let_go(worker: subprocess.Popen[str]) -> IO[str]:
    """Tell a worker that all are ready; return what it prints."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        worker.stdin.write("go\n")
        worker.stdin.close()
    except BrokenPipeError:  # it has ended; its stderr says why
        pass
    return worker.stdout


def run_count(environment: Environment, folder: Path, inputs: Path) -> Iterator[Line]:
    """Open the store anew and count what is in it."""
    work = Work(kind="count", folder=str(folder), times=MAX_ROWS, inputs=str(inputs))
    yield from run_program(environment, work)


def run_kills(
    kills: int, environment: Environment, folder: Path, inputs: Path
) -> Iterator[Line]:
    """Kill a process while it writes, several times; count what is lost in all."""
    acknowledged = 0
    lost = 0
    for number in range(1, kills + 1):
        place = folder / str(number)
        place.mkdir()
        writes = kill_while_writing(environment, place, inputs, number)
        rows = next(run_count(environment, place, inputs)).value
        acknowledged += writes
        lost += max(0, writes - int(rows))
    yield Line(figure="kills", value=kills)
    yield Line(figure="acknowledged", value=acknowledged)
    yield Line(figure="lost", value=lost)


def kill_while_writing(
    environment: Environment, folder: Path, inputs: Path, number: int
) -> int:
    """Kill a writer after some writes; return how many it acknowledged in all."""
    work = Work(kind="write", folder=str(folder), times=MAX_WRITES, inputs=str(inputs))
    writer = start(environment, work)
    assert writer.stdout is not None
    for _ in range(FIRST_KILL_WRITES * number):
        if not writer.stdout.readline():
            writer.wait()
            raise ProgramFailed(last_line(errors_file(work)))
    writer.send_signal(signal.SIGKILL)
    rest = writer.stdout.read()
    writer.wait()
    # What is cut off by the kill was not acknowledged.
    return FIRST_KILL_WRITES * number + rest.count("\n")
