"""Read a loop for its page: what it is, and the attempts that the page shows.

These are the first, the best and the last ones, or those from a number on, within
bounds: a page of a large loop takes no longer than one of a small loop.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from heedful.drive.report import REPORT_JUDGE
from heedful.errors import NotFound
from heedful.lessons.briefing import Briefing
from heedful.lessons.lesson import Scope
from heedful.loop.codec import from_document, verdict_from
from heedful.loop.decide import Again
from heedful.loop.explain import describe_end
from heedful.loop.ladder import Climb, Ladder
from heedful.loop.record import Attempt, Goal
from heedful.loop.runs import (
    CheckResult,
    StageAttempt,
    StageHead,
    StageReport,
    report_attempt,
    with_reported_names,
)
from heedful.pages.run_report import is_quiet, text
from heedful.store.connection import Db, bulk
from heedful.store.head import HEAD_DATA
from heedful.store.loops import MAX_LISTING_BYTES
from heedful.store.offload import MAX_INLINE_CHARS
from heedful.validation import (
    MAX_READ_BYTES,
    MAX_SHOWN_ITEMS,
    MAX_SHOWN_ROWS,
    MAX_STORED_TEXT_CHARS,
)
from heedful_server.web import counts
from heedful_server.web.page_templates import stage_value

# Attempts of a loop that is decided again while somebody waits for its page.
MAX_REDECIDED_ATTEMPTS = 200
# With its digest, it is within what a page compares.
MAX_PREVIEW_CHARS = 19_900
Plain = dict[str, Any]


@bulk
def window(
    db: Db, scope: Scope, id: str, first: int = 0, *, reviews: bool = False
) -> Plain:
    """Return a loop with those of its attempts that its page shows.

    These are a block from number `first` on, 0 for the last ones, and the best and the
    first attempt, as many as fit. `tried` has them, and `unshown` what is left out of
    each, by its number. Without `reviews`, the result does not say what waited in
    quarantine. Raises NotFound.
    """
    head_rows = counts.rows(db, scope, "head", id=id, chars=MAX_STORED_TEXT_CHARS)
    if not head_rows:
        raise NotFound("loop", id, "the project")
    head = head_rows[0]
    loop_number = head.pop("n")
    stored_briefing = head.pop("briefing")
    task, unshown_task = counts.beginning(head.pop("task"), head.pop("task_chars"))
    last_decision = json.loads(head.pop("decision") or "{}")
    stored_ladder = head.pop("ladder")
    climb = None
    if stored_ladder:
        ladder = from_document(Ladder, json.loads(stored_ladder))
        climb = Climb("", (), names=ladder.names)
    head |= {name: json.loads(head[name]) for name in HEAD_DATA}
    goals = tuple(from_document(Goal, goal) for goal in head["goals"])
    is_long = head["attempts"] > MAX_REDECIDED_ATTEMPTS
    is_large = head.pop("size") > MAX_READ_BYTES

    begin = first or max(1, head["attempts"] - MAX_SHOWN_ITEMS + 1)
    block = range(begin, min(begin + MAX_SHOWN_ITEMS, head["attempts"] + 1))
    # If not all of them fit, the last ones stay, unless a reader began elsewhere.
    in_order = block if first else reversed(block)
    wanted = [*in_order, last_decision.get("best") or 1, 1]
    numbers = _fitting_numbers(db, scope, loop_number, wanted)
    numbers_of_block = [number for number in numbers if number in block]

    rows = counts.rows(db, scope, "decided", n=loop_number, numbers=json.dumps(numbers))
    decisions = {row["attempt"]: json.loads(row["record"]) for row in rows}
    records, outputs, unshown = _read_attempts(db, scope, loop_number, numbers)
    names = counts.rows(db, scope, "check_names", key=head["memory_key"], limit=200)
    labels = {row["own"]: row["reported"] for row in names}
    stage = StageHead(run=head["run"] or "", name=head["stage"] or id)
    attempts = tuple(
        _shown_attempt(
            attempt,
            stage,
            goals,
            output=outputs[attempt.number],
            is_of_stage=bool(head["stage"]),
            is_cut=unshown[attempt.number]["output"] > 0,
            feedback=decisions.get(attempt.number, {}).get("feedback", ""),
        )
        for attempt in with_reported_names(records, labels)
    )

    return {
        **head,
        **_memory_facts(stored_briefing, reviews=reviews),
        "task": task,
        "left_out": {"task": unshown_task},
        "name": id,
        "first": min(numbers_of_block, default=1),
        "last": max(numbers_of_block, default=0),
        "tried": StageReport(
            stage.name,
            "open",
            action="open",
            attempts=attempts,
            kept=last_decision.get("best"),
            climb=climb,
        ),
        "unshown": unshown,
        "decided": decisions,
        "latest": last_decision,
        "stopped_by": [stop["rule"] for stop in last_decision.get("stopped_by", ())],
        "sentence": _describe_end(head, last_decision),
        "long": is_long or is_large,
        "cost": 0.0,
    }


def _shown_attempt(
    attempt: Attempt,
    stage: StageHead,
    goals: tuple[Goal, ...],
    *,
    output: Any,
    is_of_stage: bool,
    is_cut: bool,
    feedback: str,
) -> StageAttempt:
    """Return an attempt as the page shows it: without checks that say nothing."""
    report = report_attempt(stage, attempt, goals=goals)
    if is_of_stage:
        output = stage_value(output)
    output_text = text(output)
    # Of two long answers, the parts that are not read may differ.
    if is_cut:
        output_text += f"\n… (digest {attempt.candidate.digest})"
    return replace(
        report,
        checks=tuple(filter(_is_known, report.checks)),
        output=output_text,
        feedback_for_agent=feedback,
    )


def _describe_end(head: Plain, last_decision: Plain) -> str:
    """Return how a loop ended; its last decision is {} if there is none."""
    doubt = "a check raised an error" if head["state"] == "not_validated" else ""
    return describe_end(
        verdict_from(last_decision) if last_decision else Again(),
        head["attempts"],
        doubt,
        unjudged=head["state"] == "unchecked",
    )


def _fitting_numbers(db: Db, scope: Scope, n: int, wanted: Sequence[int]) -> list[int]:
    """Return the numbers of the first wanted attempts that a page may read, sorted."""
    wanted = list(dict.fromkeys(wanted))
    rows = counts.rows(db, scope, "sizes_of", n=n, numbers=json.dumps(wanted))
    sizes = {row["number"]: row["size"] for row in rows}
    numbers: list[int] = []
    free_bytes = MAX_LISTING_BYTES
    for number in wanted:
        free_bytes -= sizes.get(number, 0)
        if free_bytes < 0 and numbers:
            break
        if number in sizes:
            numbers.append(number)
    return sorted(numbers)


def _read_attempts(
    db: Db, scope: Scope, n: int, numbers: Sequence[int]
) -> tuple[list[Attempt], dict[int, Any], dict[int, Plain]]:
    """Return the attempts with these numbers, their outputs, and what is left out.

    That is by number the `output`, in characters, and the number of `findings`.
    """
    attempts = []
    outputs = {}
    unshown = {}
    for number in numbers:
        (row,) = counts.rows(
            db,
            scope,
            "attempt_of",
            n=n,
            number=number,
            whole_chars=MAX_INLINE_CHARS,
            chars=MAX_PREVIEW_CHARS,
        )
        outputs[number], output_chars = counts.beginning(
            row["value"], row["value_chars"]
        )
        record = json.loads(row["record"])
        evaluation = record.get("evaluation") or {}
        findings = evaluation.get("findings", [])
        unshown[number] = {
            "output": output_chars,
            "findings": len(findings[MAX_SHOWN_ROWS:]),
        }
        del findings[MAX_SHOWN_ROWS:]
        attempts.append(from_document(Attempt, record))
    return attempts, outputs, unshown


def _is_known(check: CheckResult) -> bool:
    """Return False for a check that tells a reader nothing.

    It has no name of its own, as the report of a program or a `<lambda>`, and it has
    said nothing.
    """
    name = check.check_name
    is_nameless = name == REPORT_JUDGE or name.startswith("<")
    return not (is_nameless and is_quiet(check))


def _memory_facts(stored_briefing: str | None, *, reviews: bool) -> Plain:
    """Return what memory said to a loop before its first attempt, and what it withheld.

    `told` has a row for each choice of a lesson, with how often it was made.
    """
    if not stored_briefing:
        return {
            "silence": "",
            "silent_because": [],
            "told": [],
            "outcomes": "",
            "prompt": "",
            "prompt_tokens": 0,
        }
    briefing = Briefing.of(json.loads(stored_briefing))
    if not reviews:
        briefing = briefing.without_waiting()
    choice_counts = Counter(str(choice) for choice in briefing.choices)
    distinct_choices = {str(choice): choice for choice in briefing.choices}
    choices = [
        {
            "outcome": choice.outcome,
            "lesson": choice.lesson,
            "form": choice.form,
            "n": choice_counts[line],
            "text": choice.text if reviews else "",
            "said": choice.name,
            "obstacle": choice.obstacle,
            "command": choice.command,
            "purpose": choice.kept_back.purpose if choice.kept_back else "",
        }
        for line, choice in distinct_choices.items()
    ]
    return {
        "silence": briefing.silence,
        "silent_because": [
            {"code": silence.code, "words": silence.reason}
            for silence in briefing.silences
        ],
        "told": choices,
        "outcomes": briefing.summary,
        "prompt": briefing.prompt if reviews else "",
        "prompt_tokens": briefing.prompt_tokens,
    }
