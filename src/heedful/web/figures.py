"""Count what the pages show: first tries, failures, and what retries fixed.

Each function reads named statements of `figures.sql` in one scope. Figures are of the
newest loops only, so that a page of a large project takes no longer than one of a small
project. They are computed from at most `MAX_LISTING_BYTES` of records, and a long task
or output is cut in SQL; they say what was left out.
"""

import json
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from heedful.errors import NotFound
from heedful.lessons.briefing import Briefing, Choice
from heedful.lessons.lesson import Scope
from heedful.loop.codec import from_document, verdict_from
from heedful.loop.decide import Again, Verdict
from heedful.loop.ladder import Ladder
from heedful.loop.sentence import describe_end
from heedful.store.connection import Db, Row, bulk, key_of
from heedful.store.loops import MAX_LISTING_BYTES
from heedful.web.steps import first_failure, steps_of

FIGURE_DAY_SECONDS = 86_400.0
MAX_FIGURE_LOOPS = 2_000  # the newest loops that a figure looks at
# Attempts of a loop that is decided again while somebody waits for its page.
MAX_REDECIDED_ATTEMPTS = 200
# Pages show only the beginning of a longer task or output: `MAX_PREVIEW_CHARS` of its
# JSON.
MAX_SHOWN_TASK_CHARS = 4_000
MAX_OUTPUT_CHARS = 64 * 1024
MAX_PREVIEW_CHARS = 20_000
# A list does not read longer records of an attempt, a decision or an episode, so that
# those of 50 rows are within MAX_LISTING_BYTES.
MAX_LIST_RECORD_CHARS = 32 * 1024
MAX_LIST_EPISODE_CHARS = 80 * 1024
MAX_EPISODE_EVENTS = 500  # the first events of an episode on its page
# A figure reads the records of no larger loop, and a page decides none again.
MAX_FIGURE_LOOP_BYTES = 2**20
MAX_PAGE_FINDINGS = 60  # findings of an attempt on a page
Plain = dict[str, Any]


@cache
def statements(dialect: str) -> Mapping[str, str]:
    """Return the statements of `figures.sql` by name, as an engine reads them.

    `dialect` is the name of the engine: "sqlite" or "postgres".
    """
    text = (Path(__file__).parent / "figures.sql").read_text(encoding="utf-8")
    # Only this engine reads the SQL in a comment with its name: `/*sqlite … */`.
    text = re.sub(rf"/\*{dialect} (.*?) \*/", r"\1", text)

    # A name in braces stands for a part, which may have others before it in it.
    pattern = r"^-- part: (\w+)\n(?:--[^\n]*\n)*(.*?)\n\n"
    parts = re.findall(pattern, text, flags=re.MULTILINE | re.DOTALL)
    for name, part in reversed(parts):
        text = text.replace(f"{{{name}}}", part)

    # A statement goes from a line such as `-- name: latest` to the next such line.
    pattern = r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)"
    sections = re.findall(pattern, text, flags=re.MULTILINE | re.DOTALL)
    return {name: statement.strip() for name, statement in sections}


def rows(db: Db, scope: Scope, statement: str, /, **values: Any) -> list[Row]:
    """Return the rows of a named statement in a scope."""
    sql = statements(db.dialect)[statement]
    result: list[Row] = db.execute(sql, {**key_of(scope), **values}).fetchall()
    return result


def latest(db: Db, scope: Scope) -> tuple[Any, ...]:
    """Return figures that differ after a loop, note, lesson or episode has changed."""
    (row,) = rows(db, scope, "latest")
    return tuple(row)


def beginning(text: str, size: int) -> tuple[Any, int]:
    """Return a value from its JSON, and how many characters of the JSON are left out.

    If `text` is only the beginning of JSON of `size` characters, the value is the
    beginning of a text, or else the beginning of the JSON as a text.
    """
    left_out = size - len(text)
    if not left_out:
        return json.loads(text), 0

    if text.startswith('"'):
        # The cut may have parted an escape such as `\u00e9` into two.
        for end in range(len(text), max(0, len(text) - 6), -1):
            with suppress(ValueError):
                return json.loads(f'{text[:end]}"'), left_out
    return text, left_out


def named(db: Db, scope: Scope, names: Sequence[str]) -> dict[str, Plain]:
    """Return ids and texts of lessons by name, without words of tools and documents."""
    lessons = dict[str, Plain]()
    for name in names:
        kind, _, signature = name.partition("/")
        key = {**key_of(scope), "kind": kind, "signature": signature}
        for row in db.select("id, text, trust", "lesson", key):
            is_hidden = row["trust"] == "outside"
            lessons[name] = {"id": row["id"], "text": "" if is_hidden else row["text"]}
    return lessons


@bulk
def present_lessons(db: Db, scope: Scope, ids: Sequence[int]) -> list[Plain]:
    """Return those of the lessons with these ids that are stored."""
    return [dict(row) for row in db.all("lessons_of", scope, ids=json.dumps(ids))]


def choices(briefing: Briefing) -> list[Plain]:
    """Return what memory showed to a loop, withheld and missed, with the reasons.

    There is a row for each lesson and reason; `n` is how often this was decided. `text`
    has the words that were shown or withheld, which `said` leaves out.
    """
    model = briefing.model
    by_line = {choice.line(model): choice for choice in briefing.choices}
    counts = Counter(choice.line(model) for choice in briefing.choices)

    return [
        {
            "outcome": choice.outcome,
            "lesson": choice.lesson,
            "form": choice.form,
            "n": counts[line],
            "text": choice.text,
            "said": _said(choice, model),
            "code": choice.code,
            "why": choice.why,
            "obstacle": choice.obstacle,
            "command": choice.command,
            "purpose": choice.kept_back.purpose if choice.kept_back else "",
            "elsewhere": choice.code == "other check",
        }
        for line, choice in by_line.items()
    ]


def _said(choice: Choice, model: str) -> str:
    """Return how a lesson was found; the page says once what withheld all of them."""
    if choice.code == "holdout":
        choice = replace(choice, kept_back=None)
    return choice.said(model)


def rung_name(ladder: str, rung: int) -> str:
    """Return the name of a rung from the JSON of its ladder, "" without a ladder."""
    if not ladder:
        return ""
    return from_document(Ladder, json.loads(ladder)).name(rung)


@bulk
def window(
    db: Db, scope: Scope, id: str, first: int, limit: int, *, reviews: bool = False
) -> Plain:
    """Return a loop with `limit` attempts from number `first`; 0 means the last ones.

    Only who `reviews` is told what waited in quarantine.

    There are fewer if their records are larger than `MAX_LISTING_BYTES` together. The
    attempt before `first` is there, too, if it fits. Raises NotFound.
    """
    heads = rows(db, scope, "head", id=id, chars=MAX_SHOWN_TASK_CHARS)
    if not heads:
        raise NotFound("loop", id, "the project")
    head = dict(heads[0])
    n = head.pop("n")
    task, left_out = beginning(head.pop("task"), head.pop("task_chars"))
    size = head.pop("size")

    numbers = _fitting_attempts(
        db, scope, n, first=first, limit=limit, attempts=head["attempts"]
    )
    if not first:
        first = head["attempts"] - limit + 1
        if numbers:
            first = max(first, numbers[0])
    first = max(1, first)

    attempts = [_shown_attempt(db, scope, n, number) for number in numbers]
    last = numbers[-1] if numbers else 0
    decisions = rows(
        db,
        scope,
        "decided",
        n=n,
        first=first - 1,
        last=last,
        record_chars=MAX_LIST_RECORD_CHARS,
    )
    decision_by_attempt = {
        row["attempt"]: json.loads(row["record"]) for row in decisions
    }
    latest = json.loads(head.pop("decision") or "{}")
    latest_verdict: Verdict = Again()
    if latest:
        latest_verdict = verdict_from(latest)
    doubt = ""
    if head["state"] == "not_validated":
        doubt = "a check raised an error"
    unjudged = head["state"] == "unchecked"

    ladder = head.pop("ladder")
    for attempt in attempts:
        attempt["made_by"] = rung_name(ladder, attempt.get("rung", 1))

    # What memory said to the loop before its first attempt, and what it withheld.
    stored_briefing = head.pop("briefing")
    memory_facts: Plain = {
        "silence": "",
        "silent_because": [],
        "told": [],
        "prompt": "",
        "prompt_tokens": 0,
    }
    if stored_briefing:
        briefing = Briefing.of(json.loads(stored_briefing)).of_model(head["model"])
        if not reviews:
            briefing = briefing.without_waiting()
        memory_facts = {
            "silence": briefing.silence,
            "silent_because": [
                {"code": silence.code, "words": silence.reason}
                for silence in briefing.silences
            ],
            "told": choices(briefing),
            "prompt": briefing.prompt,
            "prompt_tokens": briefing.prompt_tokens,
        }

    return {
        **head,
        "task": task,
        "left_out": {"task": left_out},
        "goals": json.loads(head["goals"]),
        "policy": json.loads(head["policy"]),
        "name": id,
        "first": first,
        "last": last,
        "made": attempts,
        "decided": decision_by_attempt,
        "latest": latest,
        "stopped_by": [stop["rule"] for stop in latest.get("stopped_by", ())],
        "sentence": describe_end(
            latest_verdict, head["attempts"], doubt, unjudged=unjudged
        ),
        **memory_facts,
        "long": head["attempts"] > MAX_REDECIDED_ATTEMPTS
        or size > MAX_FIGURE_LOOP_BYTES,
        "cost": 0.0,
    }


def _fitting_attempts(
    db: Db, scope: Scope, n: int, first: int, limit: int, attempts: int
) -> list[int]:
    """Return the numbers of the attempts on a page of a loop, with the one before.

    Without a `first`, these are the last ones.
    """
    begin = first or max(1, attempts - limit + 1)
    sizes = rows(db, scope, "sizes_of", n=n, first=begin - 1, last=begin + limit - 1)
    if not first:
        sizes.reverse()

    numbers = list[int]()
    free_bytes = MAX_LISTING_BYTES
    for row in sizes:
        free_bytes -= row["size"]
        # The attempt before the first is only there to be compared with.
        is_shown = any(number >= begin for number in numbers)
        if free_bytes < 0 and is_shown:
            break
        numbers.append(row["number"])
    return sorted(numbers)


def _shown_attempt(db: Db, scope: Scope, n: int, number: int) -> Plain:
    """Return an attempt as its page shows it.

    `left_out` has the characters of the output that are not in `output`, and the number
    of findings beyond `MAX_PAGE_FINDINGS`.
    """
    (row,) = rows(
        db,
        scope,
        "attempt_of",
        n=n,
        number=number,
        whole_chars=MAX_OUTPUT_CHARS,
        chars=MAX_PREVIEW_CHARS,
    )
    output, left_out = beginning(row["value"], row["value_chars"])
    attempt = json.loads(row["record"])

    unshown = 0
    evaluation = attempt.get("evaluation")
    if evaluation:
        findings = evaluation.get("findings", [])
        unshown = max(0, len(findings) - MAX_PAGE_FINDINGS)
        evaluation["findings"] = findings[:MAX_PAGE_FINDINGS]

    return {
        **attempt,
        "output": output,
        "left_out": {"output": left_out, "findings": unshown},
    }


@bulk
def episodes(db: Db, scope: Scope, digests: Sequence[str]) -> dict[str, Plain]:
    """Return what a list shows of episodes, by digest.

    That is the task, the first step that `failed`, what it `tried` and its `failure`,
    the number of `steps`, when they `began`, and the time from the first to the last of
    them in seconds; a time is None if it is unknown.
    """
    episode_rows = rows(
        db,
        scope,
        "episodes",
        digests=json.dumps(list(digests)),
        most=MAX_LIST_EPISODE_CHARS,
    )

    summaries = dict[str, Plain]()
    for row in episode_rows:
        episode = json.loads(row["record"]).get("episode", {})
        events = episode.get("events", ())
        times = [event["at"] for event in events if event.get("at") is not None]
        # Steps are counted as on the page of the trace.
        steps = steps_of(events[:MAX_EPISODE_EVENTS])
        summaries[row["digest"]] = {
            "task": episode.get("task") or "",
            "began": min(times, default=None),
            **first_failure(steps, events),
            "steps": len(steps),
            "seconds": max(times) - min(times) if len(times) > 1 else None,
        }
    return summaries


@bulk
def episode(db: Db, scope: Scope, digest: str) -> tuple[Plain, Plain]:
    """Return what is stored about an episode, and the episode with its first events.

    `left_out` has the number of its other events, or the characters of a record of more
    than `MAX_LISTING_BYTES`, which is not read. Raises NotFound.
    """
    found_rows = rows(db, scope, "episode_of", digest=digest, most=MAX_LISTING_BYTES)
    if not found_rows:
        raise NotFound("trace", digest, "the project")

    row = dict(found_rows[0])
    chars = row.pop("chars")
    record = row.pop("record")
    unread = 0
    if chars > MAX_LISTING_BYTES:
        unread = chars

    stored_episode: Plain = json.loads(record).get("episode", {})
    events = stored_episode.get("events", [])
    stored_episode["events"] = events[:MAX_EPISODE_EVENTS]
    left_out = {"events": max(0, len(events) - MAX_EPISODE_EVENTS), "record": unread}
    return {**row, "left_out": left_out}, stored_episode


@bulk
def runs(db: Db, scope: Scope, limit: int, before: int) -> list[Plain]:
    """Return the newest runs of pipelines."""
    return [dict(row) for row in rows(db, scope, "runs", limit=limit, before=before)]


def overrides(db: Db, scope: Scope) -> list[Plain]:
    """Return the overrides that expire within a day, soonest first."""
    now = time.time()
    current = rows(db, scope, "overrides", now=now, limit=20)
    return [dict(row) for row in current if row["until"] < now + FIGURE_DAY_SECONDS]
