"""The pages of policies: what others would have cost and lost on the recorded loops."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

from heedful.errors import HeedfulError, UsageError
from heedful.loop.advice import PolicyAdvice, Trade, advise, trade_of
from heedful.loop.decide import Policy
from heedful.loop.policies import PRESETS, policy
from heedful.loop.reach import Reach, reach
from heedful.loop.replay import (
    RECORDED_POLICY,
    Comparable,
    Figures,
    LoopScore,
    RecordedLoop,
    comparable,
    figures_of,
    score,
    with_policy_goals,
)
from heedful.loop.sentence import describe_policy, describe_rule_name
from heedful.loop.stop import STOP_RULES
from heedful.pages.report import Point, counted, cut, frontier
from heedful.store.offload import offload
from heedful.web import figures
from heedful.web.loops import since
from heedful.web.render import money
from heedful.web.site import READING, Document, SitePage, Visit

MAX_COMPARED_ROWS = 50
# Policies are replayed on the newest loops; the address of a page can ask for more.
DEFAULT_REPLAY_LOOPS = 200
MAX_REPLAY_LOOPS = 1_000
MAX_REPLAY_POLICIES = 10
ALIKE_SHARE = 0.01  # smaller differences are not drawn: magnified, they look large
MAX_MARK_CHARS = 24  # of the name of a policy beside its dot
MAX_TITLE_CHARS = 60  # of the name of a policy in a sentence
# The name of a rule in a proof: one, or several that must all stop.
RULE_NAME = re.compile(rf"\b(?:{'|'.join(STOP_RULES)})(?:\+\w+)*\b")
NO_SAVING = PolicyAdvice(sentence="")


class ReplayedPolicies(NamedTuple):
    """The figures of loops as recorded, then under each policy, and the advice.

    `trades` are what each saves and loses on the loops of which the record can tell,
    and `differing` counts those on which its attempts or its answer differ.
    """

    figures: list[Figures]
    trades: list[Trade]
    differing: list[int]
    advice: PolicyAdvice


async def policies(visit: Visit) -> Document:
    """Replay policies on recorded loops: what each would have cost and lost."""
    lines = visit.query.get("policy", "").splitlines()
    notations = [line for line in lines if line.strip()][:MAX_REPLAY_POLICIES]

    filters = _filters(visit)
    text = "\n".join(notations or PRESETS)
    facts: Document = {"asked": text, "filters": filters, "rows": []}
    try:
        recorded, _, unread, oldest = await _read_recorded(visit)
        chosen = [policy(notation) for notation in notations]
        compared = await offload(comparable, recorded, chosen, PRESETS.values())
        reachable = await offload(_reach, visit.query.get("reach", ""))
    except UsageError as error:
        return {**facts, "wrong": str(error)}

    names = notations or [preset.name for preset in compared.policies]
    replayed = await offload(_replay_policies, compared, names)
    chart = _draw(replayed.trades, loops=len(compared.loops))
    kinds = {point.name: kind for kind, point in chart["dots"]}

    rules = [[], *map(describe_policy, compared.policies)]
    rows = []
    # The first row is what was recorded, which has no notation.
    for result, trade, differing, notation, words in zip(
        replayed.figures,
        replayed.trades,
        replayed.differing,
        ["", *names],
        rules,
        strict=False,
    ):
        dot = kinds.get(trade.policy, "")
        rows.append(
            {
                **result.plain(),
                "notation": notation,
                "rules": words,
                "trade": {**asdict(trade), "change": trade.change, "kept": trade.kept},
                "differing": differing,
                "dot": dot,
                "front": dot == "front",
                "loops_of": visit.link("/policies/loops", second=notation, **filters),
            }
        )

    return {
        **facts,
        "asked": "\n".join(names),
        # Without a loop there is nothing that notes could be about.
        "notes": list(compared.notes) if recorded else [],
        "advice": asdict(replayed.advice),
        "chart": chart,
        "alike": _are_alike(replayed.trades),
        "links": {row["policy"]: row["loops_of"] for row in rows[1:]},
        "long": figures.MAX_REDECIDED_ATTEMPTS,
        "reach": reachable,
        "rows": rows,
        "since": oldest,
        "unread": unread,
    }


def _are_alike(trades: Sequence[Trade]) -> bool:
    """Return whether no policy saves, costs or loses a share worth a drawing."""
    shares = [(trade.saved, trade.lost / max(1, trade.solved)) for trade in trades]
    return all(abs(saved) + lost < ALIKE_SHARE for saved, lost in shares)


def _draw(trades: Sequence[Trade], loops: int) -> Document:
    """Return the drawing of policies on so many loops, in percent of the record.

    A policy is drawn where it stands on the loops of which the record can tell.
    """
    drawn = [trade for trade in trades if trade.loops]
    # What was recorded is always there; alone, it shows nothing.
    if len(drawn) < 2:
        return {"dots": []}

    points = []
    for trade in drawn:
        kept_share = trade.kept / trade.solved if trade.solved else 1.0
        points.append(
            Point(
                trade.policy,
                100 * (1 - trade.saved),
                100 * kept_share,
                exact=trade.loops == loops,
            )
        )
    marks = ["recorded"]
    for trade in drawn[1:]:
        doubt = " (not sure)" if trade.loops < loops else ""
        marks.append(f"{_mark(trade.policy)}{doubt}")
    measure = "cost" if drawn[0].is_money else "attempts"
    return frontier(points, marks=marks, of_record=measure)


def _mark(name: str) -> str:
    """Return the name of a policy as it stands beside its dot."""
    if len(name) <= MAX_MARK_CHARS:
        return name
    return f"{name[: MAX_MARK_CHARS - 1]}…"


def _filters(visit: Visit) -> dict[str, str]:
    """Return which recorded loops the address asks for."""
    return {
        name: visit.query.get(name, "") for name in ("limit", "days", "state", "key")
    }


async def _read_recorded(visit: Visit) -> figures.Replayable:
    """Return the loops that the address asks for. Raises InvalidInput."""
    return await visit.caller.read(
        figures.replayable,
        visit.number("limit", DEFAULT_REPLAY_LOOPS, MAX_REPLAY_LOOPS, least=1),
        updated=since(visit),
        state=visit.query.get("state", ""),
        key=visit.query.get("key", ""),
    )


def _replay_policies(compared: Comparable, names: Sequence[str]) -> ReplayedPolicies:
    """Replay the policies, each by its name, and advise one; nothing without loops."""
    if not compared.loops:
        return ReplayedPolicies(figures=[], trades=[], differing=[], advice=NO_SAVING)

    recorded = _scores(compared.loops, RECORDED_POLICY)
    rows = [figures_of(RECORDED_POLICY, recorded)]
    # What was recorded is what happened, however a loop ended.
    happened = [replace(score, exact=True) for score in recorded]
    trades = [trade_of(RECORDED_POLICY.name, happened, happened)]
    differing = [0]
    scores_by_name: dict[str, Sequence[LoopScore]] = {}
    for name, rules in zip(names, compared.policies, strict=True):
        scores = _scores(compared.loops, rules)
        scores_by_name[name] = scores
        rows.append(replace(figures_of(rules, scores), policy=name))
        trades.append(trade_of(name, recorded, scores))
        pairs = zip(recorded, scores, strict=True)
        differing.append(sum(_differ(*pair) for pair in pairs))
    return ReplayedPolicies(
        figures=rows,
        trades=trades,
        differing=differing,
        advice=advise(recorded, scores_by_name),
    )


def _differ(recorded: LoopScore, replayed: LoopScore) -> bool:
    """Return whether a policy is known to differ from the record on a loop."""
    return replayed.is_known and (
        replayed.attempts != recorded.attempts or replayed.quality != recorded.quality
    )


def _scores(loops: Sequence[RecordedLoop], rules: Policy) -> list[LoopScore]:
    """Return what a policy would have cost and solved on each loop."""
    return [score(record, rules) for record in loops]


def _reach(notation: str) -> list[str]:
    """Return which rules of a policy can change a decision, or what is wrong with it.

    Returns [] if `notation` is "".
    """
    if not notation:
        return []
    try:
        return list(map(_describe_reach, reach(policy(notation))))
    except HeedfulError as error:
        return [str(error)]


def _describe_reach(answer: Reach) -> str:
    """Return in plain words whether a rule of a policy can ever stop a loop."""
    rule = describe_rule_name(answer.name)
    if answer.history is not None:
        attempts = len(answer.history.attempts)
        return f"“{rule}” can stop a loop, first after attempt {attempts}"
    if answer.proof:
        proof = RULE_NAME.sub(lambda name: describe_rule_name(name[0]), answer.proof)
        return f"“{rule}” never stops a loop: {proof}"
    return f"“{rule}”: neither a loop that it stops was found nor a proof"


async def compared(visit: Visit) -> Document:
    """Show on which recorded loops two policies differ.

    Loops that nothing judged, and those that have not ended, are left out. The address
    has their notations; "" stands for what was recorded. If both are "",
    the second is the preset that differs from the record on most loops.
    """
    as_recorded = RECORDED_POLICY.name
    names = [visit.query.get(name) or as_recorded for name in ("first", "second")]
    facts: Document = {
        "names": names,
        "filters": _filters(visit),
        "loops": 0,
        "not_judged": 0,
        "not_ended": 0,
        "rows": [],
    }

    try:
        all_loops, tasks, unread, _ = await _read_recorded(visit)
        ended = [record for record in all_loops if record.ended]
        recorded = [record for record in ended if record.judged]
        if names == [as_recorded, as_recorded]:
            names[1] = await offload(_most_different, recorded)
        policies = [
            RECORDED_POLICY if name == as_recorded else policy(name) for name in names
        ]
    except UsageError as error:
        return {**facts, "wrong": str(error)}

    loops = with_policy_goals(recorded, policies)
    rows = await offload(_differences, loops, policies)
    for row in rows:
        row["task"] = tasks[row["id"]]

    totals = _totals(rows, len(recorded))
    why = _why_unknown(rows, policies, names)
    sentence = describe_totals(names, totals, len(recorded), why=why)
    return {
        **facts,
        "loops": len(recorded),
        "not_judged": len(ended) - len(recorded),
        "not_ended": len(all_loops) - len(ended),
        "rows": rows[:MAX_COMPARED_ROWS],
        "listed": len(rows),
        "totals": totals,
        "sentence": sentence,
        "rules": [_rules(rules) for rules in policies],
        "unread": unread,
    }


def _most_different(recorded: Sequence[RecordedLoop]) -> str:
    """Return the preset that is known to differ from the record on most loops."""
    compared = comparable(recorded, [], PRESETS.values())
    differing = {}
    for preset in compared.policies:
        rows = _differences(compared.loops, [RECORDED_POLICY, preset])
        differing[preset.name] = sum(row["change"] is not None for row in rows)
    return max(differing, key=lambda name: differing[name])


def _rules(chosen: Policy) -> list[str]:
    """Return the rules of a policy in plain words; [] of what was recorded."""
    if chosen is RECORDED_POLICY:
        return []
    return describe_policy(chosen)


def _differences(
    recorded: Sequence[RecordedLoop], policies: Sequence[Policy]
) -> list[Document]:
    """Return the loops on which two policies differ, or may differ.

    They differ in their attempts or in the quality of the answer. Those come first on
    which the second policy loses most quality, then those on which it takes most
    attempts more; those of which the record cannot tell come last. `change` has what
    the second has more, None if the record cannot tell.
    """
    if policies[0] == policies[1]:
        return []

    rows = []
    for loop in reversed(recorded):
        ways = [_way(loop, rules) for rules in policies]
        first, second = ways
        change = None
        if first["exact"] and second["exact"]:
            names = ("attempts", "quality", "cost", "priced")
            change = {name: second[name] - first[name] for name in names}
            if not (change["attempts"] or change["quality"]):
                continue
        rows.append(
            {
                "id": loop.loop.id,
                "ways": ways,
                "change": change,
                "correct": _correct_change(change, ways),
            }
        )
    return sorted(rows, key=_loss)


def _way(loop: RecordedLoop, rules: Policy) -> Document:
    """Return what a policy does with a loop, by the rule of the page of policies.

    `priced` counts the attempts whose cost was reported.
    """
    result = score(loop, rules)
    attempts = loop.loop.attempts[: result.attempts]
    return {
        "attempts": result.attempts,
        "quality": result.quality,
        "cost": result.usage.cost,
        "priced": sum(attempt.usage.cost > 0 for attempt in attempts),
        # What was recorded is what happened, however a loop ended.
        "exact": result.is_known or rules is RECORDED_POLICY,
        "unscored": result.unscored,
    }


def _correct_change(change: Document | None, ways: Sequence[Document]) -> int:
    """Return 1 if the second way gains a correct answer, -1 if it loses one, else 0."""
    if change is None:
        return 0
    return int(ways[1]["quality"] == 1) - int(ways[0]["quality"] == 1)


def _loss(row: Document) -> tuple[bool, int, float, int]:
    """Return the place of a row of two policies: the greatest loss has the first."""
    change = row["change"]
    if change is None:
        return True, 0, 0.0, 0
    return False, row["correct"], change["quality"], -change["attempts"]


def _totals(rows: Sequence[Document], loops: int) -> Document:
    """Return on how many loops the second of two policies loses and gains an answer.

    `fewer` and `more` count the other loops by their attempts. `attempts` and `cost`
    are those that it takes more on all loops of which the record can tell. `moved`
    counts the attempts that only one of them makes, `priced` those with a cost.
    """
    known_rows = [row for row in rows if row["change"] is not None]
    changes = [row["change"] for row in known_rows]
    as_good = [row["change"] for row in known_rows if not row["correct"]]
    totals = {
        "loses": sum(row["correct"] < 0 for row in known_rows),
        "gains": sum(row["correct"] > 0 for row in known_rows),
        "fewer": sum(change["attempts"] < 0 for change in as_good),
        "more": sum(change["attempts"] > 0 for change in as_good),
        "unknown": len(rows) - len(known_rows),
    }
    return {
        **totals,
        "same": loops - sum(totals.values()),
        "attempts": sum(change["attempts"] for change in changes),
        "cost": sum(change["cost"] for change in changes),
        "moved": sum(abs(change["attempts"]) for change in changes),
        "priced": sum(abs(change["priced"]) for change in changes),
    }


def _why_unknown(
    rows: Sequence[Document], policies: Sequence[Policy], names: Sequence[str]
) -> str:
    """Return why the record cannot tell of some loops, and what would tell."""
    for place, rules in enumerate(policies):
        if rows and all(row["ways"][place]["unscored"] for row in rows):
            goals = ", ".join(goal.score for goal in rules.goals)
            return f"no scores for its goals ({goals}) are recorded"

    unknown = [row["ways"] for row in rows if row["change"] is None]
    longer = [
        cut(name, MAX_TITLE_CHARS)
        for place, name in enumerate(names)
        if any(not ways[place]["exact"] for ways in unknown)
    ]
    under = "it" if len(longer) == 1 else "them"
    return (
        f"it ends before {' or '.join(longer)} would stop; only loops recorded under "
        f"{under} can tell"
    )


def describe_totals(
    names: Sequence[str], totals: Document, loops: int, *, why: str
) -> str:
    """Return in one sentence what the second of two policies loses, gains and costs.

    `why` says why the record cannot tell, if there is a loop of which it cannot.
    """
    newest = f"the newest {counted(loops, 'loop')}"
    if totals["unknown"] == loops:
        return (
            f"The record cannot tell for {loops:,} of {counted(loops, 'loop')}: {why}"
        )

    unknown = ""
    if totals["unknown"]:
        unknown = f"; the record cannot tell for {totals['unknown']:,}: {why}"
    if totals["same"] == loops:
        return f"They do the same: on {newest}"
    if totals["same"] + totals["unknown"] == loops:
        same = f"They do the same on {totals['same']:,} of {newest}"
        return f"{same}: {unknown.removeprefix('; ')}"

    first, second = [cut(name, MAX_TITLE_CHARS) for name in names]
    if first == RECORDED_POLICY.name:
        first = "recorded"
    spent = _describe_spent(totals, first)
    result = "loses no correct answer"
    if totals["loses"]:
        result = f"loses {counted(totals['loses'], 'correct answer')}"
    if totals["gains"]:
        result += f", gains {totals['gains']:,}"
    return f"{second} {result}: on {newest} it takes {spent}{unknown}"


def _describe_spent(totals: Document, first: str) -> str:
    """Return in words what the second of two policies takes, beside the `first`."""
    attempts = totals["attempts"]
    words = f"as many attempts as {first}"
    if attempts:
        direction = "more" if attempts > 0 else "fewer"
        words = f"{counted(abs(attempts), f'{direction} attempt')} than {first}"

    cost = totals["cost"]
    if not round(abs(cost), 4):
        return words
    change = f"{money(abs(cost))} {'more' if cost > 0 else 'less'}"
    if totals["priced"] < totals["moved"]:
        coverage = f"{totals['priced']:,} of {totals['moved']:,}"
        change = f"cost known for {coverage}: {change}"
    return f"{words} ({change})"


PAGES = (
    SitePage(
        address="/policies",
        template="policies",
        title="Policies",
        make=policies,
        may=READING,
    ),
    SitePage(
        address="/policies/loops",
        template="compared",
        title="Two policies, loop by loop",
        make=compared,
        may=READING,
    ),
)
