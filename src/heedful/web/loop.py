"""The page of a loop: its attempts, why it stopped, and what it was shown."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, replace

from heedful.errors import (
    NotFound,
)
from heedful.lessons.briefing import Choice
from heedful.loop.codec import from_document, policy_from
from heedful.loop.decide import Done
from heedful.loop.explain import Explanation
from heedful.loop.reasons import Stop
from heedful.loop.record import Attempt, Loop
from heedful.loop.rungs import figure_loop
from heedful.loop.runs import with_reported_names
from heedful.loop.sentence import describe_end
from heedful.loop.stop import (
    LIFTABLE_RULES,
    Echo,
    Fatigue,
    MaxAttempts,
    NothingMet,
    Plateau,
    Repeat,
    StopRule,
    ask,
    flat,
    rule_name,
)
from heedful.pages.report import counted, text
from heedful.service.review import may_review
from heedful.store import (
    loop_notes,
    loops as loop_store,
)
from heedful.store.loop_names import find_loop
from heedful.store.offload import offload
from heedful.store.records import StoredLoop
from heedful.web import figures, matrix
from heedful.web.failure import (
    count_broken,
    earlier_failures,
    find_failure,
    fold_repeats,
    is_tied,
)
from heedful.web.instructions import name_choices
from heedful.web.loop_memory import (
    describe_memory,
    describe_unshown,
    list_outcomes,
    mark_repeats,
)
from heedful.web.runs import pipeline
from heedful.web.site import (
    READING,
    Document,
    SiteAction,
    SitePage,
    Visit,
)

MAX_SOUGHT_TASK_CHARS = 1_000  # of a task for which memory is asked
MAX_PAGE_ATTEMPTS = 20  # attempts on one page


async def loop(visit: Visit, id: str) -> Document:
    """Show a loop: its attempts, each decision with its reasons, and other endings.

    A run of a pipeline is judged stage by stage, and has a page of its own.
    """
    read = visit.caller.read
    id = await read(find_loop, id)
    facts = await read(
        figures.window,
        id,
        visit.number("from"),
        MAX_PAGE_ATTEMPTS,
        reviews=may_review(visit.caller),
    )
    if facts["kind"] == "run":
        visit.following = visit.link(f"/runs/{id}")
        return await pipeline(visit, id)

    facts["most"] = figures.MAX_REDECIDED_ATTEMPTS
    facts["notes"] = [asdict(note) for note in await read(loop_notes.notes_of, id)]
    facts |= await _memory_facts(visit, facts)
    facts["place"] = 0
    if facts["stage"]:
        facts["place"] = await _place_in_run(visit, facts["run"], facts["stage"])
    facts["lifted"] = _liftable(facts)

    facts |= {"failure": None, "tied": False, "after": ""}
    facts |= {"came_again": [], "end": facts["sentence"]}
    # To decide all of a long or large loop again would take seconds.
    if facts["long"]:
        facts["readings"] = _recorded_readings(facts["latest"])
        facts["best"] = facts["latest"].get("best")
    else:
        stored_loop = await read(loop_store.read_decisions, id)
        facts |= await offload(_decided_facts, stored_loop, facts["policy"])
        facts |= _broken_facts(facts, stored_loop.loop)

    # Of attempts that are alike, none is better.
    marked = None if facts["tied"] else facts["best"]
    columns = await read(matrix.read_matrix, id, marked)
    name_passed_checks(facts["made"], columns.reported)
    facts["groups"] = fold_repeats(facts["made"], facts["best"])
    if facts["failure"] and facts["failure"]["remedy"]:
        name = facts["failure"]["remedy"]["lesson"]
        same_cause = await read(figures.named, [name])
        facts["failure"]["remedy"] |= await _lesson_of_cause(visit, same_cause, facts)
    facts["passed_loop"] = None
    if facts["state"] == "stopped" and facts["memory_key"]:
        passed_loops = await read(
            figures.rows,
            "passed_of_key",
            key=facts["memory_key"],
            window=figures.MAX_FIGURE_LOOPS,
        )
        facts["passed_loop"] = next(iter(map(dict, passed_loops)), None)
    return {**facts, "matrix": columns.plain}


async def _lesson_of_cause(
    visit: Visit, same_cause: Mapping[str, Document], facts: Document
) -> Document:
    """Return the `lesson` about the cause of a loop, and whether it was `learnt_here`.

    A lesson that was learnt from the loop itself could not help it. What memory did not
    record about another one, it is asked now: `today` is what
    keeps the lesson back, "" if nothing does, and None if nobody asked.
    """
    lesson = next(iter(same_cause.values()), None)
    if lesson is None:
        return {"lesson": None, "learnt_here": False, "today": None}
    id = lesson["id"]
    today = None
    first = await visit.caller.read(figures.rows, "first_loop_of", id=id)
    learnt_here = bool(first) and first[0]["loop"] == facts["name"]
    is_recorded = any(choice["lesson"] == id for choice in facts["told"])
    is_asked = facts["state"] == "stopped" and may_review(visit.caller)
    if is_asked and not (learnt_here or is_recorded):
        task = text(facts["task"])[:MAX_SOUGHT_TASK_CHARS]
        choice = await _find_choice(visit, id, task, facts["memory_key"])
        today = choice.obstacle if choice else "memory does not find it"
    return {"lesson": lesson, "learnt_here": learnt_here, "today": today}


async def _find_choice(visit: Visit, id: int, task: str, key: str) -> Choice | None:
    """Return what memory decides now about a lesson for a task, None if nothing."""
    # The service keeps one memory for each scope, which stays as it is.
    memory = copy(visit.caller.memory)
    memory.holdout = 0.0
    briefing = await memory.brief(task, "", memory_key=key, every=True)
    for choice in briefing.choices:
        if choice.lesson == id:
            return choice
    return None


async def _memory_facts(visit: Visit, facts: Document) -> Document:
    """Return what memory did for the loop with these facts, in words."""
    choices = facts["told"]
    return {
        "told": await name_choices(visit, choices, facts["created"]),
        "prompt": facts["prompt"] if may_review(visit.caller) else "",
        "memory": describe_memory(choices),
        "outcomes": list_outcomes(choices),
    }


def _broken_facts(facts: Document, loop: Loop) -> Document:
    """Return what memory has of the errors in a loop, shown in vain or not shown."""
    broken = count_broken(loop)
    unshown = describe_unshown(facts["told"], broken)
    return {
        "came_again": mark_repeats(facts["told"], broken),
        "memory": f"{facts['memory']} {unshown}".strip(),
    }


def name_passed_checks(attempts: Sequence[Document], known: Mapping[str, str]) -> None:
    """Give attempts, as JSON data, the names of the checks that found nothing.

    They are `checked`, by the names that are `known` from the matrix. `doubt_state` and
    `doubt` say of an attempt that was not judged so, and why; else they are "".
    """
    page_fields = {"output", "left_out", "made_by"}
    records = []
    for attempt in attempts:
        names = attempt.keys() - page_fields
        records.append(from_document(Attempt, {name: attempt[name] for name in names}))

    reported = with_reported_names(records, known)
    for attempt, record in zip(attempts, reported, strict=True):
        attempt["doubt_state"] = record.doubt_state
        attempt["doubt"] = record.doubt
        attempt["checked"] = matrix.passed_checks(record)


async def _place_in_run(visit: Visit, run: str, stage: str) -> int:
    """Return the number of a stage in its run, 0 if the run is gone."""
    try:
        stored_loop = await visit.caller.read(loop_store.read, run)
    except NotFound:
        return 0
    stages = stored_loop.head.task["stages"]
    return stages.index(stage) + 1 if stage in stages else 0


def _liftable(facts: Document) -> list[str]:
    """Return the rules that an override can lift, those that stopped the loop first."""
    rules = flat(policy_from(facts["policy"]).rules)
    names = {rule_name(rule) for rule in rules} - {"budget"}
    # A name such as `echo+fatigue` is that of rules that stopped the loop together.
    stops: set[str] = set()
    for rule in facts["stopped_by"]:
        stops.update(rule.split("+"))

    if facts["state"] != "stopped" or not stops <= names:
        return []
    return sorted(LIFTABLE_RULES & names, key=lambda name: (name not in stops, name))


def _recorded_readings(decision: Document) -> list[Document]:
    """Return what the last decision of a long loop says of its rules."""
    return [
        {
            "rule": stop["rule"],
            "now": 0,
            "of": 0,
            "stops": from_document(Stop, stop).detail,
            "only_if": [],
        }
        for stop in decision.get("stopped_by", ())
    ]


def _decided_facts(stored_loop: StoredLoop, policy: Document) -> Document:
    """Return what is known of a loop after deciding it again.

    `policy` is its policy as JSON data.
    """
    rules = policy_from(policy)
    loop = replace(stored_loop.loop, improves=rules.improvement)
    explanation = stored_loop.explain()
    climb = loop.climb()

    return {
        "best": loop.best,
        "sentence": explanation.sentence,
        "end": describe_end(explanation.verdict, len(explanation.lines)),
        "failure": find_failure(stored_loop),
        "after": earlier_failures(loop),
        "tied": is_tied(loop),
        "needs": needs(explanation),
        "together": [change.words for change in explanation.together],
        "calls": loop.usage.calls,
        "tokens": loop.usage.tokens,
        "cost": loop.usage.cost,
        "seconds": loop.usage.seconds,
        "unreported": loop.unreported,
        "rungs": list(map(asdict, figure_loop(climb))),
        "overhead": str(climb.overhead) if climb is not None else "",
        "overrides": [asdict(override) for override in loop.overrides],
        "would_change": list(map(str, explanation.would_change)),
        "otherwise": explanation.otherwise,
        "closed": explanation.closed,
        "readings": readings(loop, rules.rules),
    }


def needs(explanation: Explanation) -> list[Document]:
    """Return what would have changed a verdict, in plain words, smallest first."""
    if isinstance(explanation.verdict, Done) and explanation.verdict.passed:
        return []
    return [
        {
            "outcome": change.outcome,
            "value": change.words,
        }
        for change in explanation.would_change
    ]


def readings(loop: Loop, rules: tuple[StopRule, ...]) -> list[Document]:
    """Return how near each rule of a policy is to stopping a loop; `of` is its limit.

    Rules count the attempts of the last rung. A rule of several that must all stop has
    a row for each of them with a limit; `only_if` says of the others whether they stop,
    and whether the reports of the attempts are silent about it.
    """
    loop = loop.of_rung()
    rows = []
    for rule in rules:
        parts = list(flat((rule,)))
        limited = [part for part in parts if _reading(loop, part)[1]] or parts[:1]
        only_if = [
            {
                "rule": rule_name(part),
                "stops": _stop_words(loop, part),
                "unknown": _is_unknown(loop, part),
            }
            for part in parts
            if part not in limited
        ]
        for part in limited:
            name = rule_name(rule)
            if part is not rule:
                name = f"{name}: {rule_name(part)}"
            value, limit = _reading(loop, part)
            stops = _stop_words(loop, part)
            row = {"rule": name, "now": value, "of": limit, "stops": stops}
            rows.append({**row, "only_if": only_if})
    return rows


def _stop_words(loop: Loop, rule: StopRule) -> str:
    """Return why a rule stops a loop; "" if it does not."""
    stop = ask(rule, loop)
    return stop.detail if stop else ""


def _is_unknown(loop: Loop, rule: StopRule) -> bool:
    """Return whether no report says if something passed, which the rule asks."""
    shares = {a.evaluation.met for a in loop.attempts if a.evaluation is not None}
    return isinstance(rule, NothingMet) and None in shares and not any(shares)


def _reading(loop: Loop, rule: StopRule) -> tuple[float, float]:
    """Return the value that a rule compares and its limit; 0 and 0 if it has none."""
    match rule:
        case MaxAttempts():
            return len(loop.attempts), rule.limit_of(loop.rung)
        case Fatigue():
            return rule.level(loop), rule.limit
        case Echo():
            return max(rule.counts(loop).values(), default=0), rule.times
        case Repeat():
            return rule.count(loop), rule.limit_of(loop)
        case Plateau():
            without_gain = len(loop.attempts) - 1 - loop.last_improvement
            return max(0, without_gain), rule.patience or 0
        case _:
            return 0, 0


async def override(visit: Visit) -> str:
    """Let a loop go on past the rules that are ticked."""
    id = visit.form.get("id", "")
    rule = visit.form.get("rule", "")
    decisions = visit.number("decisions", 1, least=1)
    body = {"rule": rule, "why": visit.form.get("why", ""), "decisions": decisions}
    verdict = await visit.ask("POST", f"/v1/loops/{id}/overrides", body)

    state = "is open; resume it in the program that ran it"
    if verdict["stopped_by"]:
        rules = ", ".join(stop["rule"] for stop in verdict["stopped_by"])
        state = f"is still stopped by {rules}"

    suspended = f"{rule} is"
    if "," in rule:
        suspended = f"{rule.replace(',', ' and ')} are"
    decisions_words = counted(decisions, "decision")
    return f"{suspended} suspended for {decisions_words}; the loop {state}."


async def cancel(visit: Visit) -> str:
    """End a loop."""
    path = f"/v1/loops/{visit.form.get('id', '')}/cancel"
    await visit.ask("POST", path, {"why": visit.form.get("why", "")})
    return "The loop is cancelled."


async def correct(visit: Visit) -> str:
    """Give the right answer of a loop."""
    accepted = visit.form.get("accepted", "").replace("\r\n", "\n")
    path = f"/v1/loops/{visit.form.get('id', '')}/correction"
    body = {"accepted": accepted, "why": visit.form.get("why", "")}
    answers = await visit.ask("POST", path, body)
    return "The next loops are told this answer." if answers else "It is known already."


async def note(visit: Visit) -> str:
    """Write a note on a loop."""
    # Browsers end the lines of a text with "\r\n".
    text = visit.form.get("text", "").replace("\r\n", "\n")
    path = f"/v1/loops/{visit.form.get('id', '')}/notes"
    await visit.ask("POST", path, {"text": text})
    return "The note is saved."


PAGES = (
    SitePage(
        address="/loops/{id:path}",
        template="loop",
        title="Loop",
        make=loop,
        may=READING,
    ),
)
ACTIONS = (
    SiteAction(override, ("approve",)),
    SiteAction(cancel, ("write",)),
    SiteAction(note, ("write",)),
    SiteAction(correct, ("approve",)),
)
