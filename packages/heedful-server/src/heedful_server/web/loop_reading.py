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
    Document,
)
from heedful_server.web import counts
from heedful_server.web.page_templates import stage_value

# Attempts of a loop that is decided again while somebody waits for its page.
MAX_REDECIDED_ATTEMPTS = 200
# With its digest, it is within what a page compares.
MAX_PREVIEW_CHARS = 19_900


@bulk
def window(db: Db, scope: Scope, id: str, first: int, *, reviews: bool) -> Document:
    """Return a loop with those of its attempts that its page shows.

    These are a block from number `first` on, 0 for the last ones, and the best and the
    first attempt, as many as fit. `tried` has them, and `unshown` what is left out of
    each, by its number. Without `reviews`, the result does not say what waited in
    quarantine. Raises NotFound.
    """
    head = _read_head(db, scope, id)
    loop_number = head.pop("n")
    stored_briefing = head.pop("briefing")
    last_decision = head.pop("decision")
    climb = head.pop("climb")
    is_large = head.pop("size") > MAX_READ_BYTES
    is_long = head["attempts"] > MAX_REDECIDED_ATTEMPTS

    block = _block_from(first, head["attempts"])
    best = last_decision.get("best")
    numbers = _fitting_numbers(db, scope, loop_number, [*block, best or 1, 1])
    block_numbers = [number for number in numbers if number in block]
    decisions = {
        row["attempt"]: json.loads(row["record"])
        for row in counts.rows(
            db, scope, "decided", n=loop_number, numbers=json.dumps(numbers)
        )
    }
    records, outputs, unshown = _read_attempts(db, scope, loop_number, numbers)
    labels = {
        row["own"]: row["reported"]
        for row in counts.rows(
            db, scope, "check_names", key=head["memory_key"], limit=200
        )
    }
    stage = StageHead(run=head["run"] or "", name=head["stage"] or id)
    goals = tuple(from_document(Goal, goal) for goal in head["goals"])
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
        "name": id,
        "first": min(block_numbers, default=1),
        "last": max(block_numbers, default=0),
        "tried": StageReport(
            stage.name,
            "open",
            action="open",
            attempts=attempts,
            kept=best,
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


def _read_head(db: Db, scope: Scope, id: str) -> Document:
    """Return what a loop is without its attempts: its columns, read from their JSON.

    `decision` is the last one, {} without one; `climb` has the names of its rungs, None
    without a ladder. `left_out` has the characters of the task that are not in `task`.
    Raises NotFound.
    """
    rows = counts.rows(db, scope, "head", id=id, chars=MAX_STORED_TEXT_CHARS)
    if not rows:
        raise NotFound("loop", id, "the project")
    (head,) = rows
    head["task"], left_out = counts.beginning(head["task"], head.pop("task_chars"))
    head["left_out"] = {"task": left_out}
    head["decision"] = json.loads(head["decision"] or "{}")
    head |= {name: json.loads(head[name]) for name in HEAD_DATA}
    head["climb"] = None
    stored_ladder = head.pop("ladder")
    if stored_ladder:
        ladder = from_document(Ladder, json.loads(stored_ladder))
        head["climb"] = Climb("", (), names=ladder.names)
    return head


def _block_from(first: int, last: int) -> Sequence[int]:
    """Return the numbers of attempts that a page shows together, those to keep first.

    They begin at the number `first`. For 0 they are the last ones, the very last first:
    if not all of them fit, it stays.
    """
    if first:
        return range(first, min(first + MAX_SHOWN_ITEMS, last + 1))
    return range(last, max(0, last - MAX_SHOWN_ITEMS), -1)


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


def _describe_end(head: Document, last_decision: Document) -> str:
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
    sizes = {
        row["number"]: row["size"]
        for row in counts.rows(db, scope, "sizes_of", n=n, numbers=json.dumps(wanted))
    }
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
) -> tuple[list[Attempt], dict[int, Any], dict[int, Document]]:
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
            "findings": sum(1 + f.get("more", 0) for f in findings[MAX_SHOWN_ROWS:]),
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


def _memory_facts(stored_briefing: str | None, *, reviews: bool) -> Document:
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
            "reason": choice.silence.figures["words"],
            "command": choice.silence.command,
            "purpose": choice.silence.purpose,
        }
        for line, choice in distinct_choices.items()
    ]
    return {
        "silence": briefing.silence,
        "silent_because": [
            {"code": silence.code, "words": silence.words}
            for silence in briefing.silences
        ],
        "told": choices,
        "outcomes": briefing.summary,
        "prompt": briefing.prompt if reviews else "",
        "prompt_tokens": briefing.prompt_tokens,
    }
