"""`heedful replay`, `tune` and `policy`: what policies would have done, which rules can fire.

Recorded loops come from a database, or from a file with one loop per line.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.cli.app import group
from heedful.cli.output import (
    MOST,
    Columns,
    Json,
    check_picture_path,
    counted,
    following,
    print_json,
    print_table,
    say,
    show,
    table,
)
from heedful.cli.progress import Progress, drive
from heedful.cli.settings import Settings, policy_of, scope_of, settings, stored
from heedful.cli.tasks import Entry, json_lines, text_of
from heedful.errors import InvalidInput, NotFound, RecordFileError, StoreCorrupt, UsageError
from heedful.loop.codec import from_document, policy_to, rule_to, to_document
from heedful.loop.decide import Policy, triggers
from heedful.loop.policies import PRESETS, goal
from heedful.loop.policies import policy as parse_policy
from heedful.loop.reach import Reach, reach
from heedful.loop.record import (
    LARGEST,
    NOTHING,
    Attempt,
    Candidate,
    Evaluation,
    Finding,
    Goal,
    Improvement,
    Loop,
    Usage,
    check_goals,
    check_number,
)
from heedful.loop.replay import Figures, RecordedLoop, TuningResult, compare
from heedful.loop.replay import tune as choose_policy
from heedful.loop.stop import All, Echo, Plateau, StopRule, counts_scope
from heedful.loop.stop import find_near_repeat as near
from heedful.store import loops, shown
from heedful.store.loops import WHOLE, aimed, document, recorded, unscored

LAST = 100_000

Source = Annotated[
    str | None,
    typer.Argument(metavar="DB|FILE.jsonl", help="Where the loops are. [the database]"),
]
Last = Annotated[
    int, typer.Option(min=1, max=MOST, help="How many loops of a database, the newest.")
]


def replay(
    source: Source = None,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", help="A preset, or one with changes; repeatable. [presets]"),
    ] = None,
    last: Last = LAST,
    plot: Annotated[
        Path | None, typer.Option(help="Write cost against quality as a .png file.")
    ] = None,
    json: Json = False,
) -> int:
    """Say what policies would have cost on recorded loops.

    And what they would have lost. The figures are exact where a policy stops no later than the
    record does; where it would have gone on, the record cannot tell, and the loop counts as far as
    it goes.

    An oracle stops at the first right attempt; if there is none, after one attempt. Regret counts
    the attempts beyond the oracle's; lost are loops that the record solves and the policy does
    not; quality is that of the attempts that are kept.
    """
    given = [parse_policy(text) for text in policy or ()]
    if plot is not None:
        check_picture_path(plot)
    with Progress() as progress:
        recorded = read_records(source, last, progress)
        left_out = [one for one in PRESETS.values() if not given and unscored(recorded, one)]
        policies = given or [one for one in PRESETS.values() if one not in left_out]
        whole, figures = _compare(aimed(recorded, policies), policies, progress)
    notes = [f"{one.name} is left out: its goals are not scored here" for one in left_out]
    notes += _caveats(recorded, policies)
    if plot is not None:
        _draw(plot, figures)
    if json:
        documents = list(map(document, figures))
        print_json({"recorded": document(whole), "policies": documents, "notes": notes})
        return 0
    attempts = counted(sum(len(one.loop.attempts) for one in recorded), "attempt")
    solvable = counted(whole.solvable, "loop")
    show(f"{counted(whole.loops, 'loop')}, {attempts}; {solvable} can be solved")
    _print_figures("policy", [(one.policy, one) for one in (whole, *figures)])
    for note in (*_beyond(figures), *notes):
        show(note)
    if plot is not None:
        show(following("tune", *_source_words(source, last)))
    else:
        words = [word for text in policy or () for word in ("--policy", text)]
        show(following("replay", *_source_words(source, last), *words, "--plot", "front.png"))
    return 0


def _compare(
    recorded: Sequence[RecordedLoop], policies: Iterable[Policy], progress: Progress
) -> tuple[Figures, list[Figures]]:
    """Return the figures of the record itself and of each policy."""
    every = [WHOLE, *policies]
    made, total = list[Figures](), len(every) * len(recorded)
    progress.counted("replaying", 0, total)
    for policy in every:
        made += compare(recorded, [policy])
        progress.counted("replaying", len(made) * len(recorded), total)
    # The record always knows how its own loops ended.
    return replace(made[0], beyond=0), made[1:]


def _draw(path: Path, figures: Sequence[Figures]) -> None:
    from heedful.cli.pictures import Point, draw_front

    if not figures[0].solvable:
        raise UsageError("no recorded loop can be solved: there is nothing to draw; omit --plot")
    title = f"{counted(figures[0].loops, 'recorded loop')}, replayed"
    path.write_bytes(draw_front([Point.of(one) for one in figures], title))
    say(f"written: {path}")


def _source_words(source: str | None, last: int) -> list[str]:
    """Return the words of a command line that read the same loops."""
    where = [] if source is None else [source]
    return where if last == LAST else [*where, "--last", str(last)]


def _print_figures(head: str, rows: Sequence[tuple[str, Figures]]) -> None:
    """Print a row for each; calls and tokens only if they say more than the attempts."""
    calls = any(one.usage.calls != one.attempts for _, one in rows)
    tokens = any(one.usage.tokens for _, one in rows)
    columns: Columns = {
        head: lambda row: row[0],
        "attempts": lambda row: row[1].attempts,
        "÷ oracle": lambda row: _ratio(row[1]),
        **({"calls": lambda row: row[1].usage.calls} if calls else {}),
        **({"tokens": lambda row: row[1].usage.tokens} if tokens else {}),
        "solved": lambda row: row[1].solved,
        "lost": lambda row: row[1].lost,
        "quality": lambda row: f"{row[1].quality:.3f}",
        "regret": lambda row: row[1].regret,
        "cannot tell": lambda row: row[1].beyond,
    }
    print_table(rows, columns, text=1)


def _ratio(figures: Figures) -> str:
    return f"{figures.attempts / figures.oracle if figures.oracle else 0:.3f}"


def tune(
    source: Source = None,
    keep: Annotated[
        float,
        typer.Option(help="The share of the solvable loops to solve, 0..1."),
    ] = 0.99,
    policy: Annotated[
        str | None, typer.Option("--policy", help="The policy in use now. [the setting]")
    ] = None,
    last: Last = LAST,
    json: Json = False,
) -> int:
    """Choose the cheapest policy that still solves enough loops.

    It is chosen on one half of recorded loops and reported on the other. Loops are split by their
    ids; where the record cannot tell, a policy counts as if it used up all of its attempts.
    """
    check_number("--keep", keep, 0, 1)
    before = policy_of(policy)
    with Progress() as progress:
        recorded = read_records(source, last, progress)
        found = choose_policy(recorded, before, keep, partial(progress.counted, "replaying"))
    halves = (found.chosen_on, found.reported_on, found.before)
    notes = [*_beyond(halves), *_caveats(recorded, [found.policy])]
    if json:
        names = ("chosen_on", "reported_on", "before")
        figures = {name: document(one) for name, one in zip(names, halves, strict=True)}
        chosen = {"policy": policy_to(found.policy), "tried": found.tried}
        print_json({**chosen, **figures, "notes": notes})
        return 0
    stays = found.policy.name == found.before.policy
    _print_choice(found, len(recorded), keep, stays)
    for note in notes:
        show(note)
    loops = _source_words(source, last)
    if stays:
        show(following("replay", *loops))
        return 0
    show(f"to use it, write in heedful.toml: policy = {dumps(found.policy.name)}")
    now = settings().policy if policy is None else policy
    both = (now if isinstance(now, str) else "", found.policy.name)
    show(following("replay", *loops, *(w for text in both if text for w in ("--policy", text))))
    return 0


def _print_choice(found: TuningResult, loops: int, keep: float, stays: bool) -> None:
    solvable, now = found.chosen_on.solvable, found.before.policy
    show(f"{found.tried} policies tried on {found.chosen_on.loops} of {counted(loops, 'loop')}")
    if not solvable:
        show(f"{now} stays: none of these loops can be solved, there is nothing to choose by")
    elif stays:
        show(f"{now} stays: no cheaper one keeps {keep:g} of the {solvable} that can be solved")
    else:
        show(f"chosen: {found.policy.name}")
    these, others = f"these {found.chosen_on.loops}", f"the other {found.before.loops}"
    rows = [
        (f"chosen, on {these}", found.chosen_on),
        (f"chosen, on {others}", found.reported_on),
        (f"now, on {others}", found.before),
    ]
    _print_figures("", [(f"now, on {these}", found.chosen_on), rows[-1]] if stays else rows)


# What the figures cannot say


def _beyond(figures: Iterable[Figures]) -> Iterator[str]:
    """Explain the column `cannot tell` if any policy has one."""
    if any(one.beyond for one in figures):
        yield "cannot tell: the record of so many loops does not say how it would have ended"


def _caveats(recorded: Sequence[RecordedLoop], policies: Sequence[Policy]) -> Iterator[str]:
    """Say where the record makes the figures differ from those of a live run."""
    yield from _goals(recorded, policies)
    scoped = [policy.name for policy in policies if any(map(counts_scope, policy.rules))]
    if scoped:
        yield f"{', '.join(scoped)}: echo counts within each loop, not over the loops before it"
    alike = [policy.name for policy in policies if any(map(_compares_findings, policy.rules))]
    evaluations = (a.evaluation for one in recorded for a in one.loop.attempts)
    silent = sum(e is not None and NOT_PASSED in e.findings for e in evaluations)
    if alike and silent:
        why = f"{counted(silent, 'attempt')} with nothing but passed = false"
        yield f"{', '.join(alike)}: {why} count as the same finding each time"


def _goals(recorded: Sequence[RecordedLoop], policies: Sequence[Policy]) -> Iterator[str]:
    loops = counted(len(recorded), "loop")
    bare = any(not one.loop.goals for one in recorded)
    for policy in policies:
        words = ", ".join(map(str, policy.goals))
        own = sum(one.loop.goals not in ((), policy.goals) for one in recorded)
        if lacking := unscored(recorded, policy):
            yield f"{policy.name}: {lacking} of {loops} cannot be judged by its goals: {words}"
        if policy.goals and own:
            yield f"{policy.name}: {own} of {loops} keep goals of their own instead of {words}"
    sets = {policy.goals: policy for policy in policies if policy.goals}
    if bare and len(sets) > 1:
        yield "the policies have different goals: a loop that has none is solved where checks pass"
    for goals, policy in sets.items() if len(sets) == 1 else ():
        aimed_at = sum(not one.loop.goals and not unscored([one], policy) for one in recorded)
        if aimed_at:
            words = ", ".join(map(str, goals))
            yield f"{aimed_at} of {loops} have no goals: they count as if they had {words}"


def _compares_findings(rule: StopRule) -> bool:
    """Return True if the rule, or a rule inside it, looks for the same finding again."""
    if isinstance(rule, All):
        return any(map(_compares_findings, rule.rules))
    return isinstance(rule, Echo) or (isinstance(rule, Plateau) and rule.novelty)


# Policies

policies: typer.Typer = group("Show policies, and prove that each of their rules can fire.")


@policies.command("list")
def list_policies(json: Json = False) -> int:
    """List the presets."""
    if json:
        print_json({"policies": [policy_to(policy) for policy in PRESETS.values()]})
    else:
        rows = [(name, _describe(policy)) for name, policy in PRESETS.items()]
        table(("preset", "rules"), rows, text=2)
    return 0


@policies.command()
def check(
    policy: Annotated[
        str | None,
        typer.Argument(metavar="POLICY", help="A preset, or one with changes. [the setting]"),
    ] = None,
    json: Json = False,
) -> int:
    """Find for each rule the shortest history in which it decides, or prove that there is none.

    Exits 0 if every rule can fire, and 1 if one cannot or nothing was found for it.
    """
    chosen = policy_of(policy)
    found = reach(chosen)
    if json:
        print_json({"policy": policy_to(chosen), "rules": [_reach_document(one) for one in found]})
    else:
        show(f"policy {chosen.name or 'of its own'}: {_describe(chosen)}")
        for one in found:
            _print_reach(one)
    return 0 if all(one.history is not None for one in found) else 1


def _print_reach(found: Reach) -> None:
    show(f"\n{found}")
    if found.history is None:
        return
    for key, count in found.history.echoes.items():
        show(f"  earlier loops of the scope: finding {key} in {counted(count, 'attempt')}")
    seen: set[str] = set()
    for attempt, better in zip(found.history.attempts, found.history.improved, strict=True):
        show(f"  attempt {attempt.number}: {', '.join(_describe_attempt(attempt, better, seen))}")
        seen.add(attempt.candidate.digest)
    show(f"  => {found.rule(found.history)}")


def _describe_attempt(attempt: Attempt, better: bool, seen: Container[str]) -> Iterator[str]:
    """Describe an attempt of a history, after the candidates that were `seen`."""
    nearly = "nearly the same candidate" if attempt.repeats is not None else "a new candidate"
    yield "the same candidate" if attempt.candidate.digest in seen else nearly
    evaluation = attempt.evaluation
    if evaluation is None:
        yield "not evaluated"
        return
    if attempt.number > 1:
        yield "better" if better else "no better"
    if evaluation.met == 0:
        yield "nothing met"
    for one in evaluation.findings:
        kind = "finding" if one.level == "error" else one.level
        yield f"{kind} {one.key}" + (f" of severity {one.severity:g}" if one.severity < 1 else "")
    if attempt.usage != NOTHING:
        yield "all of the budget"


def _describe(policy: Policy) -> str:
    goals = f"; goals {', '.join(map(str, policy.goals))}" if policy.goals else ""
    better = policy.improvement
    improvement = f"; {better!r}" if better != Improvement() else ""
    again = "; unscored again" if policy.unscored == "again" else ""
    return ", ".join(map(repr, policy.rules)) + improvement + again + goals


def _reach_document(found: Reach) -> dict[str, Any]:
    history = found.history.attempts if found.history else ()
    return {
        "rule": rule_to(found.rule),
        "name": found.name,
        "can_fire": found.history is not None,
        "attempts": len(history) or None,
        "history": [to_document(attempt) for attempt in history],
        "proof": found.proof,
    }


LARGE = 20_000_000  # bytes that take more than a moment to read
NOT_PASSED = Finding("recorded", "not passed")
Rule = tuple[Callable[[Any], bool], str]
Shape = Mapping[str, Rule]


def _number(value: Any, low: float = 0, high: float = LARGEST) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _count(value: Any) -> bool:
    return isinstance(value, int) and _number(value)


def _list(value: Any) -> bool:
    return isinstance(value, list)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _anything(value: Any) -> bool:
    return True


# What each key may hold: a test, and how an error says it.
NAME: Rule = (
    lambda value: isinstance(value, str) and value != "",
    "text of at least one character",
)
WORDS: Rule = (lambda value: isinstance(value, str), "text")
FLAG: Rule = (lambda value: isinstance(value, bool), "true or false")
COUNT, SUM = (_count, "an integer in 0..1e12"), (_number, "a number in 0..1e12")
SHARE: Rule = (lambda value: _number(value, 0, 1), "a number in 0..1")
LOOP: Shape = {
    "id": (lambda id: NAME[0](id) or _count(id), f"{NAME[1]}, or an integer"),
    "task": (_anything, "anything"),
    "goals": (_list, 'a list such as ["alignment >= 0.75"]'),
    "attempts": (lambda value: _list(value) and value != [], "a list of at least one attempt"),
}
ATTEMPT: Shape = {
    "candidate": (_anything, "anything"),
    "digest": NAME,
    "passed": FLAG,
    "findings": (_list, "a list of objects with check and message"),
    "scores": (_object, 'an object such as {"alignment": 0.8}'),
    "met": SHARE,
    "usage": (_object, 'an object such as {"calls": 1}'),
    "quality": SHARE,
}
FINDING: Shape = {
    "check": NAME,
    **dict.fromkeys(("message", "fix", "key", "evidence"), WORDS),
    "level": (lambda level: level in ("error", "warning", "note"), "error, warning or note"),
    "severity": SHARE,
    "persistent": FLAG,
    "span": (
        lambda value: _list(value) and len(value) == 2 and all(map(_count, value)),
        "a list of two integers of at least 0",
    ),
}
USAGE: Shape = {
    **dict.fromkeys(("calls", "prompt_tokens", "completion_tokens"), COUNT),
    **dict.fromkeys(("cost", "seconds"), SUM),
}


def read_records(source: str | None, last: int, progress: Progress) -> list[RecordedLoop]:
    """Read recorded loops of a database or a file, at least one. Raises NotFound, UsageError."""
    in_file = source is not None and _is_file(source)
    values = settings() if source is None or in_file else settings(db=source)
    name = source or values.db
    path = Path(name)
    if path.is_file() and path.stat().st_size >= LARGE:
        progress.say(f"reading {name}, {path.stat().st_size / 1e6:.0f} MB")
    if _is_file(name):
        return read_file(path, lambda done, total: progress.counted("reading", done, total))
    try:
        return drive(_read_store(values, last))
    except StoreCorrupt as error:
        if source is not None:
            error.add_note("the name of a file of one loop a line must end in .jsonl or .jsonl.gz")
        raise


def _is_file(source: str) -> bool:
    return source.endswith((".jsonl", ".jsonl.gz"))


async def _read_store(values: Settings, last: int) -> list[RecordedLoop]:
    scope = scope_of(values)
    async with stored(values) as store:
        made = recorded(await store.read(scope, loops.newest, last))
    if not made:
        where = f"{shown(values.db)} has an attempt; heedful run makes some"
        raise NotFound("loop of scope", f"{scope.tenant}/{scope.project}", where)
    return made


def read_file(
    path: Path, watch: Callable[[int, int], object] = lambda done, total: None
) -> list[RecordedLoop]:
    """Read the loops of a file, at least one. Raises RecordFileError with the line."""
    entries = json_lines(path, text_of(path, RecordFileError), RecordFileError)
    if not entries:
        raise RecordFileError(str(path), 0, "it holds no loop; give at least one with attempts")
    made = []
    for entry in entries:
        try:
            made.append(_parse(entry))
        except (UsageError, RecursionError) as error:
            deep = isinstance(error, RecursionError)
            what = "it is nested too deeply" if deep else str(error)
            raise RecordFileError(str(path), entry.line, what) from error
        watch(len(made), len(entries))
    return made


def _parse(entry: Entry) -> RecordedLoop:
    """Parse the loop of one line; without an id it is named by its line. Raises UsageError."""
    value = _fit("the loop", entry.value, LOOP)
    if "attempts" not in value:
        raise InvalidInput("attempts of the loop", None, LOOP["attempts"][1])
    goals = tuple(map(goal, value.get("goals", ())))
    check_goals(goals)
    listed = [_fit(f"attempt {n}", one, ATTEMPT) for n, one in enumerate(value["attempts"], 1)]
    attempts: list[Attempt] = []
    for number, one in enumerate(listed, 1):
        attempts.append(_parse_attempt(number, one, goals, attempts))
    quality = tuple(one["quality"] for one in listed if "quality" in one)
    if quality and len(quality) < len(listed):
        first = next(n for n, one in enumerate(listed, 1) if "quality" not in one)
        allowed = "given for every attempt of a loop, or for none"
        raise InvalidInput(f"quality of attempt {first}", None, allowed)
    return RecordedLoop(
        Loop(str(value.get("id", f"line {entry.line}")), goals, (*attempts,)), quality
    )


def _fit(what: str, value: Any, shape: Shape) -> dict[str, Any]:
    """Return the entries of an object that are not null. Raises InvalidInput for a misfit."""
    if not isinstance(value, dict):
        raise InvalidInput(what, value, f"an object of {', '.join(shape)}")
    for key, held in value.items():
        if key not in shape:
            raise InvalidInput(f"a key of {what}", key, f"one of {', '.join(shape)}")
        fits, allowed = shape[key]
        if held is not None and not fits(held):
            raise InvalidInput(f"{key} of {what}", held, allowed)
    return {key: held for key, held in value.items() if held is not None}


def _parse_attempt(
    number: int, value: Mapping[str, Any], goals: tuple[Goal, ...], before: Sequence[Attempt]
) -> Attempt:
    what = f"attempt {number}"
    digest, content = value.get("digest"), value.get("candidate")
    if content is None and digest is None:
        raise InvalidInput(f"candidate of {what}", None, "given, or its digest")
    made = Candidate.of(content) if content is not None else Candidate(str(digest))
    candidate = made if digest is None else Candidate(digest, made.text)
    findings = []
    for place, one in enumerate(value.get("findings", ()), 1):
        about = f"finding {place} of {what}"
        finding = _fit(about, one, FINDING)
        for key in ("check", "message"):
            if key not in finding:
                raise InvalidInput(f"{key} of {about}", None, "given")
        findings.append(from_document(Finding, finding))
    scores = value.get("scores", {})
    for name, score in scores.items():
        if not _number(score, -LARGEST):
            allowed = "a number within ±1e12; leave it out if unknown"
            raise InvalidInput(f"score {name} of {what}", score, allowed)
    evaluation = Evaluation(tuple(findings), scores, met=value.get("met"))
    judged = _agree(what, value, goals, evaluation)
    usage = Usage(**{"calls": 1, **_fit(f"usage of {what}", value.get("usage", {}), USAGE)})
    return Attempt(number, candidate, judged, usage, near(candidate, before))


def _agree(
    what: str, value: Mapping[str, Any], goals: tuple[Goal, ...], found: Evaluation
) -> Evaluation:
    """Return the evaluation, with a finding added if nothing else says why the attempt failed.

    Raises InvalidInput if the evaluation contradicts `passed`.
    """
    passed = value.get("passed")
    if passed is None and not value.keys() & {"findings", "scores"}:
        raise InvalidInput(f"passed of {what}", None, "given, or findings, or scores")
    passes = found.passes(goals)
    if passed and not passes:
        why = triggers(found, goals)[0]
        allowed = f"false: it has an error finding, or misses a goal ({why.code}: {why.detail})"
        raise InvalidInput(f"passed of {what}", True, allowed)
    if passed is False and passes:
        return Evaluation((*found.findings, NOT_PASSED), found.scores, met=found.met)
    return found
