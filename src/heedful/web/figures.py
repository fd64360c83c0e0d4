"""Count what the pages show: first tries, failures, and what retries fixed.

Each function reads named statements of `figures.sql` in one scope. Figures are of the
newest loops only, so that a page of a large project takes no longer than one of a small
project. They are computed from at most `MAX_LISTING_BYTES` of records, and a long task
or output is cut in SQL; they say what was left out.
"""

import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from heedful.errors import NotFound
from heedful.lessons.briefing import Briefing, Choice
from heedful.lessons.holdout import FIRST_LOOPS_WITHOUT_HOLDOUT, why_nothing_withheld
from heedful.lessons.lesson import Scope
from heedful.lessons.proof import compare_pooled, count_coins, mean_cost, sum_calls
from heedful.lessons.sentence import word_proof
from heedful.loop.codec import from_document, verdict_from
from heedful.loop.decide import Again, Verdict
from heedful.loop.ladder import Ladder
from heedful.loop.sentence import describe_end
from heedful.loop.share import Share, say_doubt
from heedful.store import exposures, trials
from heedful.store.connection import MAX_ROWS, Db, Row, bulk, key_of
from heedful.store.loop_texts import LoopMatches
from heedful.store.loops import MAX_LISTING_BYTES
from heedful.web.steps import first_failure, steps_of

FIGURE_DAY_SECONDS = 86_400.0
MAX_FIGURE_LOOPS = 2_000  # the newest loops that a figure looks at
MAX_JUDGED_LOOPS = 500  # the newest loops whose findings are read
# Loops that one search looks at; the page then offers to search older ones. Most pages
# are full after the first window.
MAX_SEARCHED_LOOPS = 10_000
SEARCH_WINDOWS = (1_000, MAX_SEARCHED_LOOPS)
MAX_SEARCHED_BYTES = 32 * 2**20  # of their records, in which it searches
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


@bulk
def saved_calls(db: Db, scope: Scope, holdout: float) -> Plain:
    """Return the model calls that memory saved, by its proof, and their interval.

    `missing` says what that needs if it is not known, else it is "". `sentence` is what
    the proof says, and `missing_loops` how many loops a verdict needs: None if unknown.
    `cost` is what was saved, which has no interval: None without costs, and if the
    interval of the calls has 0 in it; then the saving is not `is_sure`.
    """
    ended = exposures.past(db, scope, "").ended
    evidence = exposures.evidence(db, scope)
    cases = evidence.cases_of()
    coins = count_coins(cases)
    pooled = compare_pooled(cases)
    saved = sum_calls(pooled)

    missing = ""
    if not pooled.withheld:
        missing = why_nothing_withheld(holdout, ended, coins)
    elif saved.gain is None:
        missing = "no loop was shown lessons"
    elif not (pooled.calls.shown or pooled.calls.withheld):
        missing = "the loops report no calls"

    cost = None
    means = mean_cost(evidence.costs_of())
    is_sure = saved.gain is not None and not say_doubt(saved.low, saved.high)
    if is_sure and means and means.shown is not None and means.withheld is not None:
        cost = pooled.shown * (means.withheld - means.shown)

    missing_loops = pooled.missing
    if not pooled.withheld and holdout:
        missing_loops = max(0, FIRST_LOOPS_WITHOUT_HOLDOUT - ended) or None
    words = word_proof(
        pooled,
        holdout=holdout,
        ended=ended,
        pending=sum(evidence.pending.values()),
        coins=coins,
        trials=trials.proven(db, scope),
    )
    return {
        **asdict(saved),
        "is_sure": is_sure,
        "uplift": asdict(pooled.uplift),
        "words": asdict(words),
        "sentence": words.sentence,
        "conclusion": pooled.conclusion,
        "missing_loops": missing_loops,
        "cost": cost,
        "shown": pooled.shown,
        "withheld": pooled.withheld,
        "ended": ended,
        "missing": missing,
    }


@bulk
def failing(db: Db, scope: Scope) -> tuple[list[Plain], int]:
    """Return the checks that failed in the newest loops, and how many a retry fixed.

    Also returns how many loops are left out because their records are too large.
    """
    judged = rows(
        db,
        scope,
        "judged",
        limit=MAX_JUDGED_LOOPS,
        most=20,
        bytes=MAX_LISTING_BYTES,
        loop_bytes=MAX_FIGURE_LOOP_BYTES,
    )

    # The number of a loop -> the checks that failed in each of its attempts.
    attempts_by_loop: dict[int, list[set[str]]] = defaultdict(list)
    unread = 0
    for row in judged:
        if row["record"] is None:
            unread += 1
        else:
            attempts_by_loop[row["n"]].append(set(failed_checks(row["record"])))

    failed = Counter[str]()
    retried = Counter[str]()
    fixed = Counter[str]()
    for attempts in attempts_by_loop.values():
        *earlier, last = attempts
        failed_earlier = set[str]().union(*earlier)
        failed.update(failed_earlier | last)
        retried.update(failed_earlier)
        fixed.update(failed_earlier - last)

    checks = [
        {
            "check": check,
            "loops": loops,
            "mended": Share(fixed[check], retried[check]).plain,
        }
        for check, loops in failed.most_common(10)
    ]
    return checks, unread


def failed_checks(attempt: str) -> list[str]:
    """Return the checks with an error in a stored attempt, without duplicates."""
    evaluation = json.loads(attempt).get("evaluation") or {}
    checks = [
        finding["check"]
        for finding in evaluation.get("findings", ())
        if finding.get("level", "error") == "error"
    ]
    return list(dict.fromkeys(checks))


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


@bulk
def stopping(db: Db, scope: Scope) -> list[Plain]:
    """Return which rules stopped the newest loops.

    A loop that several rules stopped counts for each of them, as in the list of loops.
    """
    counts = Counter[str]()
    for row in rows(db, scope, "stopped", limit=MAX_FIGURE_LOOPS):
        rules = {stop["rule"] for stop in json.loads(row["stops"] or "[]")}
        counts.update(sorted(rules))
    return [{"rule": rule, "loops": loops} for rule, loops in counts.most_common(10)]


class ListPlace(NamedTuple):
    """A place in a list of loops: below the loop `n`, which `changed` at a time.

    In the order in which loops began, no time counts: it is 0.0.
    """

    changed: float = 0.0
    n: int = 0


LIST_BEGIN = ListPlace(1e11, MAX_ROWS)
LIST_END = ListPlace()


@bulk
def listed(
    db: Db,
    scope: Scope,
    limit: int,
    *,
    order: str = "began",
    state: str = "",
    key: str = "",
    model: str = "",
    matches: LoopMatches | None = None,
    rule: str = "",
    tag: str = "",
    policy: str = "",
    noted: bool = False,
    below: ListPlace = LIST_BEGIN,
    since: float = 0.0,
) -> tuple[list[int], ListPlace]:
    """Return the numbers of the first loops that fit, and where the list goes on.

    It goes on at `LIST_END` if these are the last ones. In the `order` "began", what
    began last comes first, and in the order "changed" what changed last. At most
    `MAX_SEARCHED_LOOPS` loops are looked at, and `MAX_SEARCHED_BYTES` of texts. The
    loops have this `state`, this memory `key` and this `model`; they were stopped by
    `rule`, failed the check `tag`, have the name of a `policy`, are `noted`, and
    changed `since` a time; "" and 0 allow all. With `matches`, they
    are among those that a search for a text has found, and in the order "began".
    """
    stop = rule
    check = tag
    # Rules and checks are looked for as text in the stored JSON, which is quick.
    if rule:
        rule = f'"rule":{json.dumps(rule)}'
    if tag:
        tag = f'"check":{json.dumps(tag)}'

    matching = ""
    oldest = LIST_END
    oldest_match = 0
    if matches is not None:
        matching = json.dumps(matches.loops)
        oldest = ListPlace(n=matches.oldest)
        below = ListPlace(n=1)  # no loop is older
        if matches.loops:
            below = ListPlace(n=matches.loops[0] + 1)
            oldest_match = matches.loops[-1]
    values: Plain = {
        "state": state,
        "key": key,
        "model": model,
        "matches": matching,
        "rule": rule,
        "tag": tag,
        "stop": stop,
        "check": check,
        "policy": policy,
        "noted": int(noted),
        "since": since,
        "limit": limit + 1,
        "before": below.n,
        "changed": below.changed,
    }

    fitting: list[Row] = []
    end = oldest
    for window in SEARCH_WINDOWS:
        end = oldest
        if rule or tag or matches is None:
            end = max(end, _oldest_searched(db, scope, order, window, values=values))
        values |= {"oldest": max(end.n, oldest_match), "oldest_change": end.changed}
        fitting = rows(db, scope, f"listed_{order}", **values)
        if len(fitting) > limit:
            last_row = fitting[limit - 1]
            place = ListPlace(last_row["changed"], last_row["n"])
            return [row["n"] for row in fitting[:limit]], place
        if end == oldest:
            break

    # All loops that were looked at are shown; there may be more below.
    return [row["n"] for row in fitting], end


def _oldest_searched(
    db: Db, scope: Scope, order: str, window: int, *, values: Mapping[str, Any]
) -> ListPlace:
    """Return the last loop that a search looks at, or `LIST_END` if that is all.

    The search looks at `window` loops at most. `values` are the parameters of its
    statement.
    """
    values = {**key_of(scope), **values, "window": window}
    sql = statements(db.dialect)
    if not (values["rule"] or values["tag"]):
        past = db.execute(sql[f"past_{order}"], values).fetchall()
        return ListPlace(past[0]["changed"], past[0]["n"]) if past else LIST_END

    free_bytes = MAX_SEARCHED_BYTES
    last = LIST_END
    looked_at = 0
    for row in db.execute(sql[f"searched_{order}"], values):
        free_bytes -= row["size"]
        if last != LIST_END and free_bytes < 0:
            return last
        last = ListPlace(row["changed"], row["n"])
        looked_at += 1
    return last if looked_at == window else LIST_END


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
def runs(
    db: Db, scope: Scope, limit: int, before: int, pipeline: str = ""
) -> list[Plain]:
    """Return the newest runs of pipelines, or of one of them."""
    return [
        dict(row)
        for row in rows(
            db, scope, "runs", limit=limit, before=before, pipeline=pipeline
        )
    ]


def overrides(db: Db, scope: Scope) -> list[Plain]:
    """Return the overrides that expire within a day, soonest first."""
    now = time.time()
    current = rows(db, scope, "overrides", now=now, limit=20)
    return [dict(row) for row in current if row["until"] < now + FIGURE_DAY_SECONDS]
