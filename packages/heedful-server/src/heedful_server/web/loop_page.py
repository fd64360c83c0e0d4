"""The page of a loop: its attempts, why it stopped, and what it was shown."""

import json
from collections import Counter
from dataclasses import asdict, replace
from typing import Any

from heedful.display import counted
from heedful.errors import NotFound
from heedful.lessons.briefing import Briefing
from heedful.loop.codec import policy_from
from heedful.loop.explain import describe_failures, describe_repeats
from heedful.loop.ladder import figure_ladders
from heedful.loop.record import Loop
from heedful.loop.stop import (
    FINAL_RULES,
    LIFTABLE_RULES,
    NothingMet,
    StopRule,
    ask,
    flat,
    rule_name,
)
from heedful.store import loop_notes, loops as loop_store
from heedful.store.loop_names import find_loop
from heedful.store.offload import offload
from heedful.store.records import StoredLoop
from heedful.validation import Document
from heedful_server.review import may_review
from heedful_server.web import counts
from heedful_server.web.failure import (
    count_broken,
    find_remedy,
    is_tied,
)
from heedful_server.web.loop_memory import describe_memory, name_choices
from heedful_server.web.loop_reading import window
from heedful_server.web.matrix import make_matrix
from heedful_server.web.run_page import run
from heedful_server.web.site import Visit


async def loop(visit: Visit, id: str) -> Document:
    """Show a loop: its attempts, why it stopped, and what memory did for it.

    A run of a pipeline is judged stage by stage, and has a page of its own.
    """
    read = visit.caller.read
    id = await read(find_loop, id)
    facts = await read(
        window, id, visit.number("from"), reviews=may_review(visit.caller)
    )
    if facts["kind"] == "run":
        visit.following = visit.link(f"/runs/{id}")
        return await run(visit, id)

    facts["notes"] = [asdict(note) for note in await read(loop_notes.notes_of, id)]
    facts["told"] = await name_choices(visit, facts["told"], facts["created"])
    facts["place"] = 0
    if facts["stage"]:
        facts["place"] = await _place_in_run(visit, facts["run"], facts["stage"])
    facts["lifted"] = _liftable(facts)

    facts |= {"failed": "", "remedy": None, "readings": [], "tied": False}
    facts["best"] = facts["latest"].get("best")
    broken = Counter[str]()
    # To decide all of a long or large loop again would take seconds.
    if not facts["long"]:
        stored_loop = await read(loop_store.read, id, outputs=False, task=False)
        facts |= await offload(_decided_facts, stored_loop, facts["policy"])
        broken = count_broken(stored_loop.loop)
    facts["memory"] = describe_memory(facts["told"], broken)
    facts["tried"] = replace(facts["tried"], kept=facts["best"])
    # If all attempts are equally good, none is marked as the best.
    marked = None if facts["tied"] else facts["best"]
    facts["matrix"] = make_matrix(facts["tried"].attempts, facts["decided"], marked)

    if facts["remedy"]:
        lessons = await read(counts.named, [facts["remedy"]["name"]])
        facts["remedy"]["lesson"] = next(iter(lessons.values()), None)
    facts["same_key"] = await _passed_with_key(visit, facts)
    return {**facts, "page": "loop"}


async def _passed_with_key(visit: Visit, facts: Document) -> Document | None:
    """Return a passed loop with the memory key of one that was stopped.

    `lessons` are those that it was shown and this one was not. None if there is none.
    """
    if facts["state"] != "stopped" or not facts["memory_key"]:
        return None
    rows = await visit.rows(
        "passed_of_key",
        key=facts["memory_key"],
        window=2_000,
    )
    if not rows:
        return None
    own_lessons = {
        choice["lesson"] for choice in facts["told"] if choice["outcome"] == "told"
    }
    others = set[int]()
    if rows[0]["briefing"]:
        choices = Briefing.of(json.loads(rows[0]["briefing"])).choices
        others = {choice.lesson for choice in choices if choice.outcome == "told"}
    return {"id": rows[0]["id"], "lessons": sorted(others - own_lessons)}


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
    names = {rule_name(rule) for rule in rules} - FINAL_RULES
    # A name such as `echo+fatigue` is that of rules that stopped the loop together.
    stops: set[str] = set()
    for rule in facts["stopped_by"]:
        stops.update(rule.split("+"))

    if facts["state"] != "stopped" or not stops <= names:
        return []
    return sorted(LIFTABLE_RULES & names, key=lambda name: (name not in stops, name))


def _decided_facts(stored_loop: StoredLoop, policy: Document) -> Document:
    """Return what is known of a loop only after it is decided again.

    `policy` is its policy as JSON data. `failed` says what failed in which attempts.
    """
    rules = policy_from(policy)
    loop = replace(stored_loop.loop, improves=rules.improvement)
    explanation = stored_loop.explain()
    climb = loop.climb()

    return {
        "best": loop.best,
        "sentence": explanation.sentence,
        "failed": describe_failures(loop),
        "repeats": describe_repeats(loop),
        "remedy": find_remedy(stored_loop),
        "tied": is_tied(loop),
        **asdict(loop.usage),
        "tokens": loop.usage.tokens,
        "unreported": loop.unreported,
        "rungs": list(map(asdict, figure_ladders([climb]).rungs)),
        "overhead": str(climb.overhead) if climb is not None else "",
        "overrides": [asdict(override) for override in loop.overrides],
        "closed": explanation.closed,
        "readings": readings(loop, rules.rules),
    }


def readings(loop: Loop, rules: tuple[StopRule, ...]) -> list[Document]:
    """Return how near each rule of a policy is to stopping a loop.

    `now` is the value that a rule compares, among the attempts of the last rung, and
    `of` is its limit. A rule of several parts that must all stop has a row for each
    part with a limit. `only_if` has the other parts: whether each `stops`, and whether
    this is `unknown` because no report says it.
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
            row = {
                "rule": name,
                "now": value,
                "of": limit,
                "stops": stops,
                "unit": getattr(part, "unit", ""),
                "only_if": only_if,
            }
            rows.append(row)
    return rows


def _stop_words(loop: Loop, rule: StopRule) -> str:
    """Return why a rule stops a loop; "" if it does not."""
    stop = ask(rule, loop)
    return stop.detail if stop else ""


def _is_unknown(loop: Loop, rule: StopRule) -> bool:
    """Return whether the rule asks if anything was met, and no report says so."""
    shares = {a.evaluation.met for a in loop.attempts if a.evaluation is not None}
    return isinstance(rule, NothingMet) and None in shares and not any(shares)


def _reading(loop: Loop, rule: StopRule) -> tuple[float, float]:
    """Return the value that a rule compares and its limit; 0 and 0 if it has none."""
    meter = getattr(rule, "meter", None)
    return (0, 0) if meter is None else meter(loop)


async def _ask_about_loop(visit: Visit, action: str, body: Document) -> Any:
    """Return the answer of the route that does an action to the loop of a form."""
    id = visit.form_text("id")
    return await visit.ask("POST", f"/v1/loops/{id}/{action}", body)


async def override(visit: Visit) -> str:
    """Let a loop go on past the rules that are ticked."""
    rule = visit.form_text("rule")
    decisions = visit.number("decisions", least=1)
    verdict = await _ask_about_loop(
        visit,
        "overrides",
        {"rule": rule, "why": visit.form_text("why"), "decisions": decisions},
    )

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
    await _ask_about_loop(visit, "cancel", {"why": visit.form_text("why")})
    return "The loop is cancelled."


async def correct(visit: Visit) -> str:
    """Give the right answer of a loop."""
    body = {
        "accepted": visit.form_text("accepted"),
        "why": visit.form_text("why"),
    }
    answers = await _ask_about_loop(visit, "correction", body)
    return "The next loops are told this answer." if answers else "It is known already."


async def note(visit: Visit) -> str:
    """Write a note on a loop."""
    await _ask_about_loop(visit, "notes", {"text": visit.form_text("text")})
    return "The note is saved."
