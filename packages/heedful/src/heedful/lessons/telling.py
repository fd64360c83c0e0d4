"""What memory tells, to whom, and why not the rest: one decision for every face. Pure.

`tell` takes a `Situation`, which says who is told at which moment, and the
`LessonCandidate`s that a search found. It asks in five steps: could the candidate help,
may it be told, which comes first, what fits into the budget, and what does a random
draw withhold, so that a proof can compare. A `Telling` has what is told, and the first
`Reason` of every other candidate. No reason depends on how many lessons there are.

A hook of an agent, which starts for each event, needs this module, so it imports only
what every hook has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from itertools import chain, product
from typing import TYPE_CHECKING, Any, Literal, get_args

from heedful.lessons.holdout import (
    Exposure,
    Holdout,
    is_pooled,
    is_withheld,
)
from heedful.lessons.reasons import Reason
from heedful.lessons.scope import (
    MAX_PROMPT_LESSONS,
    MIN_SAME_RUNS,
    PROMPT_BUDGET_TOKENS,
    TOLD_STATES,
    State,
)
from heedful.validation import require, typed_frozen

if TYPE_CHECKING:  # slow to import, and few hooks tell lessons of loops
    from heedful.lessons.lesson import Cause

Moment = Literal[
    "first attempt",
    "retry",
    "prompt",
    "session start",
    "before call",
    "after failure",
    "question",
]
# How memory found a candidate: by the function that broke its rule, by a similar task,
# by the call, by the error, or by what cost the newest sessions most.
Leg = Literal["cause", "likeness", "strategy", "call", "error", "brief"]
# What a prompt may hold: rules (lessons without an accepted output), worked examples,
# or both.
Tell = Literal["both", "rules", "examples"]
PROMPT_FORMS: tuple[str, ...] = get_args(Tell)

# The name of a lesson, and the id of one of its examples.
DrawnName = tuple[str, int]


def check_tell(tell: str) -> None:
    """Raise InvalidInput unless `tell` names what a prompt may hold."""
    allowed = f"one of {', '.join(PROMPT_FORMS)}"
    require(tell in PROMPT_FORMS, "tell", tell, allowed)


@typed_frozen(slots=True, kw_only=True)
class TellingBudget:
    """What fits: so many `lessons`, so many unchecked ones among them, and a `size`.

    `measure` returns the size of what several candidates say together, in the unit of
    `size`. Rules of the loop's own function do not count as lessons.
    """

    lessons: int = MAX_PROMPT_LESSONS
    unchecked: int = 1
    size: float = PROMPT_BUDGET_TOKENS
    measure: Callable[[Sequence[LessonCandidate]], float] = field(
        default=len, compare=False
    )


@typed_frozen(slots=True, kw_only=True)
class LessonCandidate:
    """A lesson, an accepted answer or a failure of calls that memory may tell.

    `name` is that of its lesson, "kind/signature", or that of the mark of a call.
    `lesson` is the lesson's id, 0 without one, and `example` that of its example;
    `sources` are the ids of the examples whose words it has. `record` is what is put
    into words, and `text` these words where the reader gets no more.

    It `could_help` if it is near enough, and `near` says how near it is; its `distance`
    is above 1 if its task is too far, measured by words if it `is_by_words`. Of several
    candidates with a key of `repeats` in common, the first is told, which `says` these
    keys. It `is_gated` if a person said or confirmed it, and `is_checked` if evidence
    verified it or it `is_own`, that is of the loop's own function.

    `marks` are what a reader has who was told it, and `known_by` the marks of one who
    knows it from elsewhere. Of a failure of calls, `mark_kind`
    says what these have in common, `fix` is the kind of what put it right, `runs` are
    the runs that failed, and `run` is the only run that met it.
    """

    name: str
    leg: Leg
    record: Any = field(default=None, compare=False)
    text: str = ""
    lesson: int = 0
    example: int = 0
    sources: tuple[int, ...] = ()
    could_help: bool = True
    near: float = 1.0
    distance: float = 0.0
    is_by_words: bool = False
    worth: float = 1.0
    repeats: frozenset[str] = frozenset()
    says: frozenset[str] = frozenset()
    form: Literal["rules", "examples"] = "rules"
    task: str = ""
    memory_key: str = ""
    cause: Cause | None = field(default=None, compare=False)
    state: State = "unverified"
    trust: str = "local"
    release: str = ""
    seen: int = 1
    unfit_for: tuple[str, ...] = ()
    is_gated: bool = False
    is_checked: bool = False
    is_own: bool = False
    is_vague: bool = False
    is_account: bool = False
    is_dreamt: bool = False
    only_refuses: bool = False
    says_enough: bool = True
    has_ended: bool = False
    helps_before: bool = True
    has_evidence: bool = True
    has_files: bool = True
    marks: frozenset[str] = frozenset()
    known_by: frozenset[str] = frozenset()
    mark_kind: str = ""
    fix: str = ""
    runs: int = 1
    run: str = ""


@typed_frozen(slots=True, kw_only=True)
class Situation:
    """Who is told, at which moment, and what is known about both.

    `reader` is the id of a loop, or the name of a session as the source of what it
    taught; `told` are the marks of what the reader was told and still remembers. A loop
    has a `task`, a `memory_key`, names and ids of its checks, and a `model`.
    `shown_before` are the names of what a resumed loop was shown or withheld, and
    `refused` the ids of the examples that its checks refuse. `form` leaves out rules or
    examples. `holdout` says how often a lesson is withheld, `seed` names the scope of
    the draws, and `draws` are earlier ones of the reader, by lesson or by signature.
    """

    moment: Moment
    reader: str = ""
    told: frozenset[str] = frozenset()
    task: str = ""
    memory_key: str = ""
    checks: Sequence[str] = ()
    check_ids: Sequence[str] = ()
    model: str = ""
    form: Tell = "both"
    shown_before: frozenset[DrawnName] | None = None
    refused: frozenset[int] = frozenset()
    budget: TellingBudget = TellingBudget()
    holdout: Holdout = Holdout(0.0)
    seed: str = ""
    draws: Mapping[str, bool] = field(default_factory=dict)

    def is_of_other_key(self, candidate: LessonCandidate) -> bool:
        """Return True if a candidate is from another function."""
        return candidate.memory_key not in ("", self.memory_key)


@typed_frozen(slots=True, kw_only=True)
class Telling:
    """What a reader is told, best first, and why not each other candidate.

    A draw left out what is `withheld`; `exposures` record all draws, and `marks` are
    what the reader has from now on, if anything is told or withheld. `refused` are the
    others with their first reasons: rules first, then the nearest. The search left
    `rest` more unread.
    """

    told: tuple[LessonCandidate, ...] = ()
    withheld: tuple[LessonCandidate, ...] = ()
    refused: tuple[Refused, ...] = ()
    exposures: tuple[Exposure, ...] = ()
    marks: frozenset[str] = frozenset()
    rest: int = 0

    @property
    def chosen(self) -> tuple[LessonCandidate, ...]:
        """What would be told if nothing were withheld."""
        return self.told + self.withheld

    @property
    def silence(self) -> str:
        """Why nothing is told: the reason of the nearest candidate; "" if it is."""
        if self.told:
            return ""
        if self.withheld:
            return Reason("withheld").words
        for _, reason in self.refused:
            return reason.words
        return Reason("nothing known").words


def tell(
    situation: Situation, candidates: Sequence[LessonCandidate], rest: int = 0
) -> Telling:
    """Return what is told in a situation, and for each other candidate its reason.

    The search that found the candidates left `rest` more unread.
    """
    allowed, refused = split_by_reason(candidates, situation)
    ranked = sorted(allowed, key=_rank)
    distinct, repeated = one_for_each_failure(ranked, situation)
    fitting, surplus = fit(distinct, situation)
    exposures = draw(fitting, situation)
    withheld = {exposure.lesson for exposure in exposures if not exposure.shown}

    refused = [*refused, *repeated, *surplus]
    marked = allowed if fitting else []
    return Telling(
        told=tuple(c for c in fitting if c.name not in withheld),
        withheld=tuple(c for c in fitting if c.name in withheld),
        refused=tuple(sorted(refused, key=_refusal_rank)),
        exposures=tuple(exposures),
        marks=frozenset().union(*(candidate.marks for candidate in marked)),
        rest=rest,
    )


def split_by_reason(
    candidates: Sequence[LessonCandidate], situation: Situation
) -> tuple[list[LessonCandidate], list[Refused]]:
    """Return the candidates that may be told, and the others with the first reason."""
    allowed: list[LessonCandidate] = []
    refused: list[Refused] = []
    for candidate in candidates:
        reason = first_reason(candidate, situation)
        if reason is None:
            allowed.append(candidate)
        else:
            refused.append((candidate, reason))
    return allowed, refused


def first_reason(candidate: LessonCandidate, situation: Situation) -> Reason | None:
    """Return why a candidate may not be told, None if it may."""
    for code, speaks in REASONS:
        if speaks(candidate, situation):
            return Reason.of(
                code,
                lesson=candidate.lesson,
                trust=candidate.trust,
                release=candidate.release,
                key=candidate.memory_key,
                loop_key=situation.memory_key,
                form=candidate.form,
                tell=situation.form,
                model=situation.model,
            )
    shown_before = situation.shown_before
    if shown_before is not None and _drawn_name(candidate) in shown_before:
        return None
    reason = _rest_of(candidate, situation)
    if reason is None and shown_before is not None:
        return Reason("later")
    return reason


def _rest_of(candidate: LessonCandidate, situation: Situation) -> Reason | None:
    """Return why a rule rests: it is of another check, or kept, or nothing helps."""
    if candidate.cause is None:
        return None
    return candidate.cause.rests(
        situation.task,
        situation.checks,
        verified=candidate.state == "verified",
        check_ids=situation.check_ids,
    )


def _is_unanswered(candidate: LessonCandidate, situation: Situation) -> bool:
    """Return True if a check refused an answer, and nobody knows a better one."""
    return candidate.only_refuses and situation.moment != "question"


def _is_harmful(candidate: LessonCandidate, situation: Situation) -> bool:
    """Return True if the proof says that it hurts new loops of this model."""
    is_new = situation.shown_before is None
    return is_new and situation.model in candidate.unfit_for


def _says_little(candidate: LessonCandidate, situation: Situation) -> bool:
    """Return True if a rule has more blanks than words of its own."""
    return situation.shown_before is None and not candidate.says_enough


def _is_unsettled(candidate: LessonCandidate, situation: Situation) -> bool:
    """Return True if nothing shows that a call was wrong before it is made again.

    What an edit put right was no fault of the call. A command of a shell may fail for
    reasons of its moment: what a repetition put right was none of its own, and if no
    other call and no step did, two runs are needed. Others are told from the next
    session on.
    """
    if situation.moment != "before call":
        return False
    if candidate.fix == "edit" or candidate.mark_kind != "command":
        return candidate.fix == "edit"
    if candidate.fix == "waiting":
        return True
    return not candidate.fix and candidate.runs < MIN_SAME_RUNS


Refused = tuple[LessonCandidate, Reason]
Predicate = Callable[[LessonCandidate, Situation], bool]
# Why a candidate may not be told: the first that speaks is the reason. Those that a
# person cannot change come first. A question is answered with what people read, too:
# what happened in a run, and what a check refused. Before a prompt, a failure without
# what put it right helps nobody.
REASONS: tuple[tuple[str, Predicate], ...] = (
    ("distance by words", lambda c, s: not c.could_help and c.is_by_words),
    ("distance", lambda c, s: not c.could_help),
    ("form", lambda c, s: s.form not in ("both", c.form)),
    ("no strategy", lambda c, s: c.is_account and s.moment != "question"),
    ("other key", lambda c, s: _is_unanswered(c, s) and s.is_of_other_key(c)),
    ("no answer", _is_unanswered),
    ("quarantine", lambda c, s: c.state == "quarantined"),
    ("retired", lambda c, s: c.state not in TOLD_STATES),
    ("ended", lambda c, s: c.has_ended),
    ("dreamt", lambda c, s: c.is_dreamt and not c.has_evidence),
    ("no evidence", lambda c, s: not c.has_evidence),
    ("harmful", _is_harmful),
    ("particulars", _says_little),
    ("refused", lambda c, s: c.example in s.refused),
    ("no fix", lambda c, s: s.moment == "prompt" and not c.helps_before),
    ("own", lambda c, s: c.run != "" and c.run == s.reader),
    ("unsettled", _is_unsettled),
    ("files", lambda c, s: not c.has_files),
    ("told", lambda c, s: not s.told.isdisjoint(c.marks | c.known_by)),
)


def _rank(candidate: LessonCandidate) -> tuple[Any, ...]:
    """Return a sort key: what to tell first.

    Rules of the loop's own function come first, then what a person gated, then what is
    nearest and worth most. Among equals, verified ones come first, then those seen more
    often, then newer ones.
    """
    return (
        candidate.leg != "cause",
        not candidate.is_gated,
        -round(candidate.near * candidate.worth, 6),
        candidate.state != "verified",
        -candidate.seen,
        -candidate.example,
    )


def _refusal_rank(refused: Refused) -> tuple[Any, ...]:
    """Return a sort key: rules first, then those for the most similar task.

    Of two about the same task, one that says what to do comes first.
    """
    candidate, _ = refused
    return (
        candidate.leg != "cause",
        candidate.distance,
        candidate.is_account,
    )


def one_for_each_failure(
    ranked: Sequence[LessonCandidate], situation: Situation
) -> tuple[list[LessonCandidate], list[Refused]]:
    """Return the first candidate of each failure, and those that repeat it.

    Functions may want different answers to equal tasks. So an answer of another
    function is left out if it is to the very task, or if the loop's own function has an
    answer to a near one.
    """
    has_own_answer = any(
        candidate.form == "examples" and candidate.memory_key == situation.memory_key
        for candidate in ranked
    )
    has_key = situation.memory_key != "" and situation.shown_before is None
    distinct: list[LessonCandidate] = []
    repeated: list[Refused] = []
    keys: set[str] = set()
    for candidate in ranked:
        is_answer = has_key and candidate.form == "examples"
        is_foreign = is_answer and situation.is_of_other_key(candidate)
        if is_foreign and (has_own_answer or candidate.task == situation.task.strip()):
            repeated.append((candidate, Reason("other function")))
        elif keys.isdisjoint(candidate.repeats):
            distinct.append(candidate)
            keys |= candidate.says
        else:
            repeated.append((candidate, Reason("same")))
    return distinct, repeated


def fit(
    distinct: Sequence[LessonCandidate], situation: Situation
) -> tuple[list[LessonCandidate], list[Refused]]:
    """Return the candidates for which there is room, and the others.

    Vague rules, which do not say what to do, make way if without them the prompt is
    full of answers of the loop's own function, which show it.
    """
    clear = [candidate for candidate in distinct if not candidate.is_vague]
    fitting = _fit_into(clear, situation.budget)
    is_full = sum(candidate.is_own for candidate in fitting) == MAX_PROMPT_LESSONS
    makes_way = is_full and situation.form == "both" and situation.shown_before is None
    if not makes_way:
        fitting = _fit_into(distinct, situation.budget)

    surplus: list[Refused] = []
    for candidate in distinct:
        if makes_way and candidate.is_vague:
            surplus.append((candidate, Reason("answers")))
        elif candidate not in fitting:
            surplus.append((candidate, Reason("no room")))
    return fitting, surplus


def _fit_into(
    ranked: Sequence[LessonCandidate], budget: TellingBudget
) -> list[LessonCandidate]:
    """Return the first candidates that fit into a budget.

    Nothing is cut: what would exceed it is left out whole, and the next one is tried.
    """
    fitting: list[LessonCandidate] = []
    for candidate in ranked:
        lessons = [other for other in fitting if other.leg != "cause"]
        unchecked = [other for other in lessons if not other.is_checked]
        is_full = len(lessons) >= budget.lessons
        if not candidate.is_checked:
            is_full = is_full or len(unchecked) >= budget.unchecked
        if not is_full and budget.measure([*fitting, candidate]) <= budget.size:
            fitting.append(candidate)
    return fitting


def draw(fitting: Sequence[LessonCandidate], situation: Situation) -> list[Exposure]:
    """Return an exposure for each lesson that fits: whether the reader is shown it.

    The holdout says with which probability a lesson is withheld, so that a proof can
    compare. The draw depends only on the seed, the reader and the lesson: a resumed
    loop gets the same. In some loops, one draw decides about all lessons together. In a
    session each lesson has its own, and an earlier one about the same error holds. What
    has no lesson is never withheld.
    """
    sources: dict[str, list[int]] = {}
    for candidate in fitting:
        if candidate.lesson:
            sources.setdefault(candidate.name, []).extend(candidate.sources)

    holdout = situation.holdout
    is_together = holdout.share > 0 and is_pooled(
        situation.seed, situation.reader, holdout.pooled_share
    )
    exposures: list[Exposure] = []
    for name, examples in sources.items():
        _, _, signature = name.partition("/")
        is_shown = situation.draws.get(name, situation.draws.get(signature))
        if is_shown is None:
            is_shown = not is_withheld(
                situation.seed,
                situation.reader,
                name,
                holdout.share,
                pooled_share=holdout.pooled_share,
            )
        exposure = Exposure(
            name,
            situation.reader,
            shown=is_shown,
            signature=signature,
            share=holdout.share,
            together=is_together,
            examples=tuple(dict.fromkeys(examples)),
        )
        exposures.append(exposure)
    return exposures


def drawn_names(exposures: Iterable[Exposure]) -> frozenset[DrawnName]:
    """Return the lessons that a draw decided on, with each of their examples."""
    return frozenset(
        chain.from_iterable(product([e.lesson], e.examples) for e in exposures)
    )


def _drawn_name(candidate: LessonCandidate) -> DrawnName:
    """Return the name of the lesson of a candidate, and the id of its example."""
    return candidate.name, candidate.example
