"""`critic` and `critics`: a model as judge in a named role, alone or as a panel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from heedful.checks.asking import LONGEST, chat, opened, unrepeated
from heedful.checks.evaluate import Context
from heedful.checks.roles import ALIGNMENT, DRIFT, ROLES, Opinion, Role, plain, read
from heedful.checks.text import require
from heedful.errors import MalformedAnswer, UnknownName
from heedful.loop.record import NOTHING, Evaluation, Finding, check_number
from heedful.models.call import ask_for_json
from heedful.models.contract import Embedder, Model
from heedful.sanitize import cut_middle

SURE = 0.5  # the confidence of a judgement by embedding, which sees the topic alone


@dataclass(frozen=True, slots=True)
class Judge:
    """A role, who fills it, and what it is shown."""

    role: Role
    model: Model | Embedder
    goal: str
    temperature: float
    seed: int
    max_tokens: int
    longest: int

    async def opinion(self, candidate: Any, at: Context) -> Opinion:
        """What it thinks of the candidate. Raises MalformedAnswer, ModelError."""
        given = {"task": at.task, "goal": self.goal, "context": at.data}
        texts = {name: plain(value) for name, value in given.items() if value is not None}
        whole = {name: text for name, text in texts.items() if text}
        whole["candidate"] = plain(candidate)
        shown = {name: cut_middle(text, self.longest) for name, text in whole.items()}
        if isinstance(self.model, Embedder):
            opinion = await _near(self.role, self.model, shown)
        else:
            opinion = await self._asked(self.model, shown)
        parted = " and ".join(name for name in whole if shown[name] != whole[name])
        if not parted:
            return opinion
        what = f"it was shown {self.longest:,} characters of {parted}, without the middle"
        note = Finding(self.role.name, what, level="note", severity=0.0)
        return replace(opinion, findings=(*opinion.findings, note))

    async def _asked(self, model: Model, shown: Mapping[str, str]) -> Opinion:
        """What the model answers, asked once more where that is malformed."""
        role, schema = self.role, self.role.schema()
        opinion, usage = await ask_for_json(
            model,
            lambda told: chat(role.name, role.instruction, schema, shown, told),
            lambda text: read(role, text, shown["candidate"], model.name),
            schema,
            who=f"critic {role.name!r}",
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            seed=self.seed,
        )
        return replace(opinion, usage=usage)


async def _near(role: Role, embedder: Embedder, shown: Mapping[str, str]) -> Opinion:
    """By the cosine of candidate and goal (or task), 0 where it is below; drift is 1 less that."""
    aims = role == ALIGNMENT
    against = (aims and shown.get("goal")) or shown.get("task", "")
    one, other = await embedder.embed([against, shown["candidate"]])
    cosine = float(sum(a * b for a, b in zip(one, other, strict=True)))
    if not abs(cosine) < 1.01:  # so not for NaN
        raise MalformedAnswer(f"embedder {embedder.name!r}: {cosine} is no cosine of unit vectors")
    near = min(1.0, max(0.0, cosine))
    what = f"{role.name} is judged by embedding ({embedder.name}), not by a model: it tells "
    what += "whether the candidate is about the same things, not whether it is right"
    note = Finding(role.name, what, level="note", severity=0.0)
    return Opinion(role, {role.name: near if aims else 1 - near}, SURE, (note,))


@dataclass(frozen=True, slots=True, eq=False)
class Critic:
    """One judge or several, as a check and as an evaluator; made by `critic` and `critics`."""

    judges: tuple[Judge, ...]
    name: str = "critic"
    pure: ClassVar[bool] = False

    async def __call__(self, candidate: Any, context: Context) -> Evaluation:
        """What they judge, settled as `critics` says. Raises MalformedAnswer, ModelError."""

        async def judge() -> Evaluation:
            return settled(await self._opinions(candidate, context))

        return await unrepeated(self, candidate, context, judge)

    async def _opinions(self, candidate: Any, at: Context) -> list[Opinion]:
        """One of each judge, in their order; raises what the first judge that failed raised."""
        import asyncio

        asked: list[asyncio.Task[Opinion]] = []
        try:
            async with asyncio.TaskGroup() as group:
                asked += [group.create_task(one.opinion(candidate, at)) for one in self.judges]
        except ExceptionGroup:
            ended = [task.exception() for task in asked if not task.cancelled()]
            raise next(error for error in ended if error) from None
        return [task.result() for task in asked]


def critic(
    role: str | Role | Mapping[str, Any],
    model: Model | Embedder | str | None = None,
    goal: str = "",
    temperature: float = 0.0,
    seed: int = 0,
    max_tokens: int = 512,
    longest: int = LONGEST,
) -> Critic:
    """A judge in a role: alignment, drift, pessimist, summary, or a `Role` of yours.

    It is a check and an evaluator: it answers with an Evaluation, scores in 0..1, the reason as a
    finding. `model` is a Model, or a name as `open_model` takes it; one opened by name is shared by
    all critics and stays open while there is one. An Embedder, or None for the one that comes with
    heedful, judges alignment and drift by cosine. Shown are the task, `goal` (what alignment is
    with; without it, the task), `Context.data` and the candidate, `longest` characters of each. A
    malformed answer is asked for once more, at `WARMER` more temperature and with the next seed.
    Raises InvalidInput, UnknownName.
    """
    if isinstance(role, str):
        if role not in ROLES:
            raise UnknownName("role", role, tuple(ROLES))
        role = ROLES[role]
    elif isinstance(role, Mapping):
        role = Role(**role)
    require(isinstance(role, Role), "role", role, "the name of a role, or a Role")
    require(isinstance(goal, str), "goal", goal, "text")
    check_number("temperature", temperature, 0, 1.5)
    bounds = (("seed", seed, 0), ("max_tokens", max_tokens, 16), ("longest", longest, 200))
    for what, value, least in bounds:
        fine = type(value) is int and value >= least
        require(fine, what, value, f"a whole number of at least {least}")
    judge: Any = opened(model) if model is None or isinstance(model, str) else model
    near = role in (ALIGNMENT, DRIFT)
    usable = isinstance(judge, Model) or (near and isinstance(judge, Embedder))
    allowed = "a Model or its name" + ", an Embedder or None" * near
    require(usable, f"model of role {role.name!r}", model, allowed)
    own = Judge(role, judge, goal, temperature, seed, max_tokens, longest)
    return Critic((own,), f"critic {role.name}")


def critics(members: Sequence[Critic | Mapping[str, Any]]) -> Critic:
    """Several critics as one, asked at the same time; a member may be the arguments of `critic`.

    A score is the median over those that give it; where several do, `NAME_disagreement` is the
    distance from the lowest to the highest, as a score, so that a goal can bound it. Of findings
    with the same key the most severe stays; a verdict that is outvoted is a warning. `preference`
    (0..1) is the mean of the members' scores, those where smaller is better turned round, each
    drawn towards 0.5 by the confidence that it lacks. When a member raises, the others are
    cancelled. Raises InvalidInput, UnknownName.
    """
    some = isinstance(members, Sequence) and len(members) > 0
    require(some, "members", members, "a list of critics, one or more")
    made = [one if isinstance(one, Critic) else critic(**one) for one in members]
    return Critic(tuple(judge for one in made for judge in one.judges), "critics")


def settled(opinions: Sequence[Opinion]) -> Evaluation:
    """Opinions on one candidate, one or more, as one evaluation; how is said at `critics`."""
    from statistics import median  # not quick to import

    given: dict[str, list[float]] = {}
    for opinion in opinions:
        for name, score in opinion.scores.items():
            given.setdefault(name, []).append(score)
    several = {name: values for name, values in given.items() if len(values) > 1}
    scores = {name: median(values) for name, values in given.items()}
    scores |= {f"{name}_disagreement": max(all_) - min(all_) for name, all_ in several.items()}
    findings: dict[str, Finding] = {}
    for opinion in opinions:
        outvoted = scores.get(opinion.role.verdict, 0) > 0.5
        for one in opinion.findings:
            if outvoted and one.level == "error":
                one = replace(one, level="warning")
            if one.key not in findings or findings[one.key].severity < one.severity:
                findings[one.key] = one
    # Who is not sure says little in either direction, so a doubtful 0.8 is below a certain 0.7.
    good = 0.5 + sum(one.confidence * (one.good - 0.5) for one in opinions) / len(opinions)
    usage = sum((one.usage for one in opinions), NOTHING)
    return Evaluation(tuple(findings.values()), scores, usage, good)
