"""`heedful why` and `loops`: stored loops and runs of pipelines.

A run of a pipeline is stored as a loop, and so is each of its stages. Every command
that names a loop takes the beginning of its id, or `last`.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from getpass import getuser
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Context, Option, Typer

from heedful.cli.app import group_with_default
from heedful.cli.databases import ask_scope
from heedful.cli.printing import (
    Row,
    TextTable,
    answer,
    columns,
    command_line,
    current_command,
    emit,
    following,
    page,
)
from heedful.cli.settings import (
    By,
    Limit,
    Why,
    expiry_time,
    number_option,
    where,
)
from heedful.display import age, counted
from heedful.errors import (
    NotFound,
    UnknownName,
    UsageError,
    similar_name,
)
from heedful.lessons.scope import Remembered, Scope
from heedful.lessons.words import plain_text
from heedful.loop import codec
from heedful.loop.decide import (
    Again,
    Done,
    State,
    Verdict,
    state_after,
)
from heedful.loop.explain import Explanation, describe_failures, describe_repeats
from heedful.loop.ladder import figure_ladders
from heedful.loop.record import DOUBT_STATES, DoubtState
from heedful.loop.runs import Report
from heedful.loop.stop import LIFTABLE_RULES
from heedful.redact import has_mark
from heedful.sanitize import clean, sanitize
from heedful.store import loops as stored_loops
from heedful.store.loop_names import find_loop, known_names, short_id
from heedful.store.loop_notes import LoopNote, notes_of
from heedful.store.recent import (
    FailureCause,
    RecentLoop,
    count_keys,
    group_causes,
    read_recent,
    sum_loops,
)
from heedful.store.records import StoredLoop
from heedful.store.runs import report_any, report_of
from heedful.store.store import Store
from heedful.validation import (
    MAX_LISTED_ITEMS,
    MAX_SHOWN_ROWS,
    MAX_SHOWN_TEXT_CHARS,
    Document,
)

if TYPE_CHECKING:
    from heedful.memory.memory import Memory

# A loop that failed is stored as open: its driver, its model or a check raised.
LoopState = Literal[State, DoubtState, "failed"]
LoopId = Annotated[str, Argument(help="The id of a loop, or its beginning.")]
LAST = "last"  # the name of the newest loop or run
# What a list says of such loops stands in their records; so they are stored.
STORED_STATES: Mapping[str, State] = {
    "failed": "open",
    **dict.fromkeys(DOUBT_STATES, "passed"),
}


def why(
    loop: Annotated[
        str, Argument(help="The id of a loop or run, its beginning, or `last`.")
    ],
    stage: Annotated[
        str, Argument(help="The name or number of a stage, or a question about a run.")
    ] = "",
    full: Annotated[
        bool, Option("--full", help="Of a run: show every attempt, too.")
    ] = False,
    html: Annotated[
        Path | None,
        Option("--html", help="Write a page with its data to this file, to send it."),
    ] = None,
) -> int:
    """Explain why a loop, or a run of a pipeline, continued and why it stopped.

    It shows the attempts, what was wrong, the feedback, and what would have changed the
    result. For a run, it says in a few lines how the run ended; --full or a stage shows
    more. A question of several words, such as why a stage was retried, is answered from
    its keywords, without a model; the answer cites the run's reports.
    """

    async def read(
        store: Store, scope: Scope
    ) -> tuple[Report | StoredLoop, list[LoopNote]]:
        stored_loop = await loop_of(store, scope, loop)
        if html is not None:
            from heedful.pages.run_report import write_bundle  # slow to import

            report, sentence = await report_any(store, scope, stored_loop.id)
            write_bundle(report, sentence, html)
        if stored_loop.is_run:
            return await report_of(store, scope, stored_loop.id), []

        if stage:
            hint = "it has no stages; heedful loops runs lists runs"
            raise UsageError(
                f"loop {stored_loop.id!r} is not a run of a pipeline: {hint}"
            )
        return stored_loop, await store.read(scope, notes_of, stored_loop.id)

    loop_or_run, notes = ask_scope(read)
    if html is not None:
        return answer({"page": str(html)}, f"page {html}")
    if isinstance(loop_or_run, Report):
        return _explain_run(loop_or_run, stage, full=full)
    return _explain_loop(loop_or_run, notes)


def _explain_loop(stored_loop: StoredLoop, notes: list[LoopNote]) -> int:
    """Print the attempts of a loop with the reasons of its decisions.

    `notes` are of persons.
    """
    explanation = stored_loop.explain()
    feedback_by_attempt = {}
    for decision in stored_loop.decisions:
        if isinstance(decision.verdict, Again):
            feedback_by_attempt[decision.attempt] = decision.verdict.feedback

    failed = describe_failures(stored_loop.loop)
    repeats = describe_repeats(stored_loop.loop)
    document: Document = {}
    if current_command().json:
        from heedful.wire import explanation_record, loop_record

        document = {
            **loop_record(stored_loop, notes),
            **explanation_record(explanation),
            "failed": failed,
            "repeats": repeats,
        }
        if stored_loop.briefing is not None:
            document["prompt_tokens"] = stored_loop.briefing.prompt_tokens

    text = page(
        "why",
        stored=stored_loop,
        explanation=explanation,
        failed=failed,
        repeats=repeats,
        rungs=figure_ladders([stored_loop.loop.climb()]).rungs,
        text=_shorten_value,
        state=state_after(stored_loop.verdict),
        fed=feedback_by_attempt,
        notes=notes,
        # heedful makes up the ids of decorated functions.
        unnamed=short_id(stored_loop.id) != stored_loop.id,
        go_on=_ways_to_go_on(stored_loop, explanation),
    )
    return answer(document, text, _mask_note(text))


def _ways_to_go_on(stored_loop: StoredLoop, explanation: Explanation) -> list[str]:
    """Return how a stopped loop goes on: under a larger limit, or by an override."""
    verdict = stored_loop.verdict
    if not isinstance(verdict, Done) or verdict.passed:
        return []

    ways = []
    has_limit = any(
        change.value.kind == "limit" and change.outcome == "again"
        for change in explanation.would_change
    )
    # A stage runs in its pipeline; another program reports its attempts as before.
    is_reported = any(attempt.report for attempt in stored_loop.loop.attempts)
    if has_limit and stored_loop.head.stage is None and not is_reported:
        id = stored_loop.id
        ways = [f"heedful.run with id={id!r} and such a limit (a file: run --resume)"]

    rules = [LIFTABLE_RULES.intersection(s.rule.split("+")) for s in verdict.stopped_by]
    if rules and all(rules):
        names = ",".join(map(min, rules))
        ways.append(command_line("loops", "override", stored_loop.id, names, by="NAME"))
    return ways


def _mask_note(text: str) -> str:
    """Return what the masks in an explanation mean, "" if it has none."""
    if not has_mark(text):
        return ""
    return (
        "[redacted: …] is written by heedful in place of a secret, which it does not "
        "store"
    )


def _explain_run(report: Report, stage: str, *, full: bool) -> int:
    """Print a summary of a run, its `full` report, the report of a stage, or the answer
    to a question.
    """
    from heedful.pages import questions  # slow to import

    if not stage:
        lines = questions.summarize_run(report)
        if not full:
            return answer(
                report.plain(), lines, following("why", report.run, full=True)
            )
        text = page("run", report=report, only="")
        return answer(report.plain(), [lines[0], text, _mask_note(text)])

    try:
        stage_report = questions.find_stage(report, stage)
    except UnknownName:
        if " " not in stage:
            raise
        return _answer_question(report, stage)
    text = page("run", report=report, only=stage_report.name)
    document = {
        "pipeline": report.pipeline,
        "run": report.run,
        **stage_report.plain(),
    }
    return answer(document, text, _mask_note(text))


def _answer_question(report: Report, question: str) -> int:
    """Print the answer to a question about a run of a pipeline."""
    from heedful.pages import questions  # slow to import

    run_answer = questions.answer(report, question)
    then = following("why", report.run)
    stages = {fact.stage for fact in run_answer.facts if fact.stage}
    if len(stages) == 1:
        then = following("why", report.run, stages.pop())

    text = f"{run_answer}\n"
    if not (run_answer.missing or run_answer.facts[0].stage):
        names = ", ".join(stage.name for stage in report.stages)
        text = (
            "heedful answers only why stages were retried, and the question names none "
            f"of them: {clean(names, MAX_SHOWN_TEXT_CHARS)}\n{text}"
        )
    document = {"pipeline": report.pipeline, "run": report.run, **run_answer.plain()}
    return answer(document, text, then)


def _shorten_value(value: Any) -> str:
    """Return a candidate or a task as a text that a terminal can show."""
    return clean(plain_text(value), MAX_SHOWN_TEXT_CHARS)


async def loop_of(store: Store, scope: Scope, name: str) -> StoredLoop:
    """Return the loop with the id `name`, or the only loop whose id begins with `name`.

    `last` is the newest loop; if that is a stage of a run, the run. A run comes before
    its own stages. Raises NotFound, UsageError.
    """
    try:
        id = await store.read(scope, find_loop, name)
    except NotFound as error:
        if name == LAST:
            newest, _ = await store.read(scope, stored_loops.newest, limit=1)
            if newest:
                stage = newest[0].head.stage
                id = newest[0].id if stage is None else stage.run
                return await store.read(scope, stored_loops.read, id)
        question = similar_name(name, await store.read(scope, known_names))
        hint = f"{command_line('loops')} lists them"
        if name == LAST:
            hint = f"what hooks learnt: {command_line('lessons')}"
        raise NotFound(
            "loop or run", name, where(), remedy=f"{question}; {hint}"
        ) from error
    return await store.read(scope, stored_loops.read, id)


async def _newest_with(
    store: Store,
    scope: Scope,
    is_wanted: Callable[[StoredLoop], bool],
    *,
    limit: int,
    state: str = "",
) -> list[StoredLoop]:
    """Return the newest loops that are wanted, newest first.

    The store knows only the `state` in which a loop is stored, so older and older loops
    are read until there are enough.
    """
    wanted: list[StoredLoop] = []
    before = ""
    more = True
    while more and len(wanted) < limit:
        newest, more = await store.read(
            scope,
            stored_loops.newest,
            max(limit, MAX_SHOWN_ROWS),
            before=before,
            state=state,
        )
        wanted += filter(is_wanted, newest)
        before = newest[-1].id if newest else ""
    return wanted[:limit]


def _task_cell(row: Row) -> str:
    """Return the task of a loop, or the name of the pipeline of a run."""
    task = row["task"]["pipeline"] if row["kind"] == "run" else row["task"]
    return clean(_shorten_value(task), 200)


def _state_cell(row: Row) -> str:
    """Return the state of a loop, and the first of the rules that stopped it.

    The only rule that ends a run is how it ended, such as degraded.
    """
    rules: list[str] = [name.partition("+")[0] for name in row["stopped_by"][:1]]
    if row["kind"] == "run" and rules:
        return rules[0]
    return " ".join([row["state"].replace("_", " "), *rules])


def _attempts_cell(row: Row) -> Any:
    """Return the number of attempts; those of a run belong to its stages."""
    return "–" if row["attempts"] is None else row["attempts"]


loops: Typer = group_with_default()
LOOP_COLUMNS = columns(
    "loop kind state rung attempts cost age task",
    loop=lambda row: sanitize(short_id(row["id"]), most=32),
    state=_state_cell,
    attempts=_attempts_cell,
    # A cost that nobody reported is not 0.
    cost=lambda row: f"{row['cost']:.6g}" if row["cost"] else "–",
    age=lambda row: age(row["updated"], time.time()),
    task=_task_cell,
)


def _is_in_state(stored_loop: StoredLoop, state: LoopState | None) -> bool:
    """Return True if lists show a loop in a state; None is any state."""
    return state is None or stored_loop.shown_state == state


@loops.callback(invoke_without_command=True)
def list_loops(
    context: Context,
    limit: Limit = 50,
    state: Annotated[LoopState | None, Option(help="Only loops in this state.")] = None,
) -> int:
    """List the newest loops, one a line. An open loop still runs, or was interrupted; a
    failed one was left open by an exception.

    Every command takes an id as shown here, or its beginning if no other id begins so.
    For loops with several generators, the list shows the rung that answered. Runs of
    pipelines and their stages are stored as loops, too: if the list has some, the
    column `kind` says run, stage or loop. Below it stands how the newest 2,000 loops
    went, and why those that stopped did; with --json also by memory key.
    """
    if context.invoked_subcommand is not None:
        return 0

    async def read(
        store: Store, scope: Scope
    ) -> tuple[list[StoredLoop], list[RecentLoop]]:
        newest = await _newest_with(
            store,
            scope,
            lambda loop: _is_in_state(loop, state),
            limit=limit,
            state=STORED_STATES.get(state or "", state or ""),
        )
        recent = await store.read(scope, read_recent)
        return newest, recent.loops

    newest_loops, recent_loops = ask_scope(read)
    if not newest_loops:
        kind = f"loop that is {state.replace('_', ' ')}" if state else "loop"
        return answer({"loops": []}, f"no {kind} in {where()}")

    rows = list(map(_loop_row, newest_loops))
    kinds = Counter(row["kind"] for row in rows)
    shown_columns = dict(LOOP_COLUMNS)
    if all(stored_loop.loop.ladder is None for stored_loop in newest_loops):
        del shown_columns["rung"]
    if kinds.keys() == {"loop"}:
        del shown_columns["kind"]
    failures = [
        f"{row['kind']} {short_id(row['id'])}: {row['failure']}"
        for row in rows
        if row["failure"]
    ]
    totals = sum_loops(recent_loops)
    causes = group_causes(recent_loops)
    document = {
        "loops": rows,
        "totals": totals.plain,
        "keys": [figures.plain for figures in count_keys(recent_loops)],
        "causes": causes,
    }
    return answer(
        document,
        TextTable(shown_columns, rows, len(shown_columns) - 4, cut_column="task"),
        [totals.sentence, *map(_cause_line, causes[:MAX_LISTED_ITEMS])],
        [clean(failure, MAX_SHOWN_TEXT_CHARS) for failure in failures[:1]],
        _kinds_words(kinds),
    )


def _kinds_words(kinds: Counter[str]) -> str:
    """Return how many loops, stages and runs a list has; "" without a run."""
    if not kinds["run"]:
        return ""
    loops_and_stages = counted(kinds.total() - kinds["run"], "loop")
    return (
        f"{loops_and_stages}, {kinds['stage']} of them stages, and "
        f"{counted(kinds['run'], 'run')}; heedful loops runs counts their attempts"
    )


def _loop_row(stored_loop: StoredLoop) -> Document:
    """Return what a list shows of a loop."""
    # The stages of a run make the attempts.
    attempts = None if stored_loop.is_run else len(stored_loop.loop.attempts)
    return {
        **stored_loop.summary(),
        **stored_loop.head.plain(),
        "attempts": attempts,
        "state": stored_loop.shown_state,
        "kind": stored_loop.head.kind,
        "doubt": stored_loop.doubt,
        "failure": stored_loop.failure,
    }


def _cause_line(cause: FailureCause) -> str:
    """Return why loops failed, how many of them did, and since when."""
    check = f"{cause.check}: " if cause.check else ""
    finding = clean(f"{check}{cause.finding}", MAX_SHOWN_TEXT_CHARS)
    since = age(cause.since, time.time())
    return f"{counted(cause.loops, 'loop')}, first {since} ago: {finding}"


RUN_COLUMNS = columns(
    "run pipeline state stages attempts retries seconds began",
    stages=lambda row: _stages_cell(row["stages"]),
)


@loops.command()
def runs(
    pipeline: Annotated[str, Argument(help="Only the runs of this pipeline.")] = "",
    limit: Limit = 20,
) -> int:
    """List the newest runs of pipelines."""

    async def read(store: Store, scope: Scope) -> list[Report]:
        def is_wanted(loop: StoredLoop) -> bool:
            return loop.is_run and pipeline in ("", loop.head.task["pipeline"])

        newest = await _newest_with(store, scope, is_wanted, limit=limit)
        if pipeline and not newest:
            remedy = f"; {command_line('loops', 'runs')} lists all"
            raise NotFound("run of the pipeline", pipeline, where(), remedy=remedy)
        return [await report_of(store, scope, run.id) for run in newest]

    reports = ask_scope(read)
    return emit(
        list(map(_run_row, reports)),
        RUN_COLUMNS,
        key="runs",
        text_columns=4,
        empty=f"no run of a pipeline in {where()}",
        then=following("why", reports[0].run) if reports else "",
    )


def _stages_cell(counts: Mapping[str, int]) -> str:
    """Return how many stages of a run ended in which way, in words."""
    parts = [f"{number} {status}" for status, number in counts.items()]
    return ", ".join(parts).replace("_", " ")


def _run_row(report: Report) -> Document:
    """Return what the table and the JSON document of `runs` say of one run."""
    attempts = list(chain.from_iterable(stage.attempts for stage in report.stages))
    statuses = Counter(stage.status for stage in report.stages)
    retries = [max(0, len(stage.attempts) - 1) for stage in report.stages]
    milliseconds = sum(attempt.execution_time_ms for attempt in attempts)
    return {
        "run": report.run,
        "pipeline": report.pipeline,
        "state": report.status,
        "stages": dict(statuses),
        "attempts": len(attempts),
        "retries": sum(retries),
        "seconds": round(milliseconds / 1000, 6),
        "began": report.began,
    }


@loops.command()
def override(
    loop: LoopId,
    rule: Annotated[
        str,
        Argument(
            help="The rule to suspend, such as attempts, or several: attempts,repeat."
        ),
    ],
    by: By,
    why: Why = "",
    decisions: Annotated[int, number_option(help="For how many decisions.")] = 1,
    expires: Annotated[
        str | None, Option(help="For how long: 30m, 2h, 1d. [no end]")
    ] = None,
) -> int:
    """Suspend a stop rule for a loop. If the rule stopped the loop, the loop opens
    again.

    The override and its reason are recorded. `heedful run --resume` continues the loop.
    """
    from heedful.drive.report import override as override_loop

    until = expiry_time(expires)

    async def suspend(store: Store, scope: Scope) -> tuple[StoredLoop, Verdict]:
        stored_loop = await loop_of(store, scope, loop)
        verdict = await override_loop(
            stored_loop.id,
            rule,
            by=by,
            why=why,
            decisions=decisions,
            until=until,
            store=store,
            scope=scope,
        )
        return stored_loop, verdict

    stored_loop, verdict = ask_scope(suspend)
    id = stored_loop.id
    document = {
        "loop": id,
        "rule": rule,
        "by": by,
        "why": why,
        "decisions": decisions,
        "until": until,
        **codec.verdict_answer(verdict),
    }

    rules = rule.replace(",", ", ")
    suspended = f"suspended for {counted(decisions, 'decision')}: {rules}"
    if isinstance(verdict, Done):
        stopping_rules = ", ".join(stop.rule for stop in verdict.stopped_by)
        state = f"is still stopped by {stopping_rules}"
    else:
        state = "is open; resume it in the program that ran it"
        stage = stored_loop.head.stage
        # `heedful run` calls the loop of a task RUN/TASK.
        run, _, task = id.rpartition("/")
        if stage is not None:
            state = (
                f"is open; run the program of the pipeline again with id={stage.run!r}"
            )
        elif run and task:
            state += f" (a task file: heedful run TASKS --run {run} --resume)"
    text = f"{suspended}; loop {clean(id, MAX_SHOWN_TEXT_CHARS)} {state}"
    return answer(document, text, following("why", id))


@loops.command()
def cancel(
    loop: LoopId,
    by: By = "",
    why: Why = "",
) -> int:
    """End an open loop for good; a loop that has already ended does not change.

    A loop that a process drives cannot be cancelled: end the process first.
    """
    from heedful.cli.resources import ask  # slow to import
    from heedful.drive.report import cancel as cancel_loop

    actor = by or getuser()

    async def end(memory: "Memory") -> tuple[StoredLoop, Verdict]:
        stored_loop = await loop_of(memory.store, memory.scope, loop)
        verdict = await cancel_loop(
            memory.store,
            memory.scope,
            stored_loop.id,
            by=actor,
            why=why,
            memory=memory,
        )
        return stored_loop, verdict

    stored_loop, verdict = ask(end)
    document = {
        "loop": stored_loop.id,
        "by": actor,
        "why": why,
        **codec.verdict_answer(verdict),
    }
    ending = "is cancelled"
    if isinstance(stored_loop.verdict, Done):
        ending = "had ended before; nothing was changed"
    words = f"loop {clean(stored_loop.id, MAX_SHOWN_TEXT_CHARS)} {ending}"
    return answer(document, words, following("why", stored_loop.id))


@loops.command()
def correct(
    loop: LoopId,
    accepted: Annotated[str, Argument(help="The right answer.")],
    by: By,
    why: Why = "",
) -> int:
    """Give the right answer of a loop that did not pass; memory tells it from now on.

    It is refused if a check of the loop refused it before, or the check of a lesson
    refuses it.
    """

    from heedful.cli.resources import ask  # slow to import

    async def teach(memory: "Memory") -> tuple[StoredLoop, list[Remembered]]:
        stored_loop = await loop_of(memory.store, memory.scope, loop)
        answers = await memory.correct(stored_loop.id, accepted, by=by, why=why)
        return stored_loop, list(answers)

    stored_loop, answers = ask(teach)
    ids = [remembered.id for remembered in answers]
    words = f"the answer is in lesson {', '.join(map(str, ids))}"
    if not ids:
        words = "this answer is known already"
    document = {"loop": stored_loop.id, "by": by, "why": why, "lessons": ids}
    return answer(document, words, following("why", stored_loop.id))
