"""A finished run of any agent -> an Evaluation: by code where it can tell, else by critics."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from heedful.checks.critic import Critic
from heedful.checks.evaluate import Check, Context, evaluated
from heedful.errors import InvalidInput
from heedful.loop.record import NOTHING, Evaluation, Finding, check_number
from heedful.loop.record import format_score as figure
from heedful.memory.appraisal import Best, appraised
from heedful.memory.course import course, text_of
from heedful.memory.episode import Episode, Event
from heedful.memory.expected import Expected, answer_at
from heedful.memory.judgement import SCORES, Judgement, evaluation, named, quoted

# The events of a run that critics are shown, the first and the last of more.
EVENTS_SHOWN = 100


async def appraise(
    episode: Episode,
    *,
    expected: Any = None,
    checks: Sequence[Check] = (),
    best: Best | None = None,
    critics: Sequence[Critic] = (),
    destructive: Collection[str] = (),
    polls: Collection[str] = (),
) -> Evaluation:
    """How a finished run did: correctness, helpfulness, safety, completeness, efficiency, 0..1.

    Code judges first. `expected` is an `Expected`, or its answer alone; `checks` are asked about
    the answer, the last words of an agent. `best` is a run to compare with, what one cost, or
    recorded runs, of which the success with the fewest steps is taken. `destructive` names tools
    whose calls have to be expected, `polls` those that are called again with reason. Each critic is
    asked that may give a score which is still open, or one of its own; the first that gives a score
    has judged it.

    A score that nothing can judge is not there. A note for each score says why it is what it is,
    and who judged; findings name their events in `evidence`. Raises InvalidInput, CheckFailed, and
    what the model of a critic raised.
    """
    wanted = expected if isinstance(expected, Expected | None) else Expected(expected)
    judged = appraised(episode, wanted, best, destructive, polls)
    seen = course(episode)
    at = answer_at(seen)
    answer = None if at is None else seen.events[at].content
    where = "" if at is None else named(seen, (at,))
    task = "\n".join(part for part in (episode.task, episode.goal) if part)
    context = Context(task, data="\n".join(_told(episode.events)))
    given: list[Evaluation] = []
    if checks:
        given.append(await evaluated(answer, context, checks, None))
        judged += _by_checks(given[0], len(checks), where)
    for critic in critics:
        if not isinstance(critic, Critic):
            raise InvalidInput("critics", critic, "made by heedful.checks.critic or critics")
        gives = {score for judge in critic.judges for score in judge.role.directions}
        still = set(SCORES).difference(evaluation(judged).scores)
        if gives & still or not gives & set(SCORES):
            given.append(await evaluated(answer, context, (critic,), None))
            judged = _by_critic(judged, critic, given[-1], still, where)
    return _whole(evaluation(judged), given, where)


def _by_checks(found: Evaluation, many: int, where: str) -> Iterator[Judgement]:
    """What checks of the answer say: the share that is met, and scores of their own."""
    if found.met is not None:
        why = f"{figure(found.met)} of what {many} checks ask of the answer is met"
        yield Judgement("correctness", found.met, why, (), where, "checks")
    for score in SCORES:
        if score in found.scores:
            check_number(f"score {score}", found.scores[score], 0, 1)
            yield Judgement(score, found.scores[score], "a check gives it", (), where, "checks")


def _by_critic(
    judged: Sequence[Judgement], critic: Critic, found: Evaluation, still: set[str], where: str
) -> list[Judgement]:
    """The judgements, with those that were open settled by a critic."""
    models = ", ".join(dict.fromkeys(judge.model.name for judge in critic.judges))
    settled = list(judged)
    for score in SCORES:
        if score not in still or score not in found.scores:
            continue
        value, by = found.scores[score], f"{critic.name} ({models})"
        left = [one for one in settled if one.score == score and one.value is None]
        settled = [one for one in settled if one not in left]
        why = "; ".join([*(f"code cannot tell: {one.why}" for one in left), "a critic gives it"])
        findings = tuple(finding for one in left for finding in one.findings)
        settled.append(Judgement(score, value, why, findings, where, by))
    return settled


def _whole(whole: Evaluation, given: Sequence[Evaluation], where: str) -> Evaluation:
    """All findings, scores and costs; of the five scores those that were settled."""
    scores = {name: one for each in given for name, one in each.scores.items()}
    own = {name: score for name, score in scores.items() if name not in SCORES}
    findings = (_placed(one, where) for each in given for one in each.findings)
    usage = sum((each.usage for each in given), NOTHING)
    preference = sum((each.preference for each in given), 0.0)
    met = next((each.met for each in given if each.met is not None), None)
    return Evaluation(
        (*whole.findings, *findings), own | dict(whole.scores), usage, preference, met
    )


def _placed(finding: Finding, where: str) -> Finding:
    """A finding on the answer, with the event that the answer is."""
    evidence = ": ".join(part for part in (where, finding.evidence) if part)
    return replace(finding, evidence=evidence)


def _told(events: Sequence[Event]) -> Iterator[str]:
    """The run in lines, as critics are shown it."""
    half = EVENTS_SHOWN // 2
    left = len(events) - EVENTS_SHOWN
    for at, event in enumerate(events):
        if left <= 0 or at < half or at >= half + left:
            who = " ".join(part for part in (event.type, event.agent, event.tool) if part)
            yield f"{at}. {quoted(who)}: {quoted(text_of(event))}"
        elif at == half:
            yield f"[{left} events are left out]"
