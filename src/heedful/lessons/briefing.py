"""What one loop is shown before it begins, and what is withheld from it.

`choose_for_loop` selects: first the rules that loops of the same memory key broke, then
lessons for similar tasks. A coin then withholds some of the selected lessons, so that a
proof can compare loops with and without a lesson. The coin depends only on scope, loop
and lesson, so that a resumed loop is shown the same. A `Briefing` is the result for one
loop, with a `Choice` for each lesson that memory considered: what happened to it, and
why.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from itertools import chain
from typing import Any, Literal, get_args

from heedful.lessons.lesson import DEFAULT_HOLDOUT_SHARE, Exposure, Match
from heedful.lessons.lesson_check import LessonCheck
from heedful.lessons.ranking import (
    EPISODE_LESSON_KINDS,
    MAX_PROMPT_LESSONS,
    MAX_PROMPT_RULES,
    Likeness,
    as_messages,
    choose,
    count_loops,
    keep_important,
    rank,
    with_overlap,
)
from heedful.lessons.signature import signature
from heedful.models.contract import Message
from heedful.sanitize import clean, sanitize

MAX_PROMPT_STRATEGIES = 1  # how many lessons from episodes a prompt may have
MAX_CHOICE_TEXT_CHARS = 200
# What a prompt may hold: rules (lessons without an accepted output), worked examples,
# or both.
Tell = Literal["both", "rules", "examples"]
PROMPT_FORMS: tuple[str, ...] = get_args(Tell)
HOLDOUT_REASON = "left out at random, to measure whether it helps"
NO_ROOM_REASON = "others come first, or it does not fit into the prompt"
# The first loops of a scope see everything: their users try memory out, and so few
# loops prove nothing. The coin depends on earlier loops only, so it stays fair.
FIRST_LOOPS_WITHOUT_HOLDOUT = 20
POOLED_COIN_SHARE = 0.25  # the share of loops in which one coin decides over all
Outcomes = Literal["told", "withheld", "missed", "closest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A lesson that memory considered for a loop: told, withheld by the coin or missed.

    The closest is the nearest miss. `lesson` is its id, and `leg` says how memory found
    it: by its cause, by likeness of the tasks, or as a strategy. `score` is the number
    of loops that broke the rule, or the likeness of the tasks, 0..1. `why` is the
    reason, with the score that a prompt needs. `text` has the words of what was shown
    or withheld, "" for other outcomes.
    """

    outcome: Outcomes
    lesson: int
    form: Literal["rule", "example"]
    leg: Literal["cause", "likeness", "strategy"]
    score: float
    why: str
    text: str = ""

    @classmethod
    def of(
        cls, match: Match, outcome: Outcomes, why: str = "", words: bool = True
    ) -> Choice:
        """Return the choice about a lesson; with `words` it has the lesson's text."""
        leg: Literal["cause", "likeness", "strategy"] = "likeness"
        if match.kind == "strategy":
            leg = "strategy"
        elif match.cause is not None:
            leg = "cause"

        if match.cause is not None:
            score: float = match.cause.loops
            reason = f"broken in {count_loops(match.cause.loops)}"
        else:
            likeness = Likeness.of(match)
            score = likeness.value
            need = f" of {likeness.needed:.2f} needed"
            if likeness.value >= likeness.needed:
                need = f", {likeness.needed:.2f} is enough"
            reason = f"{likeness.measure} {score:.2f}{need}"
        if why:
            reason = f"{reason}, {why}"

        form: Literal["rule", "example"] = "rule"
        if match.example.accepted:
            form = "example"
        text = clean(sanitize(match.lesson), MAX_CHOICE_TEXT_CHARS) if words else ""
        return cls(
            outcome=outcome,
            lesson=match.lesson_id,
            form=form,
            leg=leg,
            score=round(score, 4),
            why=reason,
            text=text,
        )

    @property
    def name(self) -> str:
        """The lesson and its reason, without its words."""
        return f"lesson {self.lesson}, {self.form} by {self.leg}, {self.why}"

    def __str__(self) -> str:
        text = f": {self.text}" if self.text else ""
        outcome = "shown" if self.outcome == "told" else self.outcome
        return f"{outcome}: {self.name}{text}"


@dataclass(frozen=True, slots=True)
class Briefing:
    """What memory tells one loop, before its first attempt and again before each retry.

    `choices` say of each lesson that memory considered if the loop is shown it, and
    why; what is shown comes best first. `memory_key` is the key of the loop, `space`
    names the embedder, and `waiting` counts the texts that wait in quarantine, at most
    100. A store keeps these four.

    `exposures` say what is shown and withheld, `chosen` has both. `vector` is the
    task's embedding. `checks` are the checks of lessons that judge the loop.
    """

    memory_key: str = ""
    space: str = ""
    _: KW_ONLY
    waiting: int = 0
    choices: tuple[Choice, ...] = ()
    exposures: tuple[Exposure, ...] = field(default=(), compare=False)
    chosen: tuple[Match, ...] = field(default=(), compare=False)
    vector: Sequence[float] | None = field(default=None, compare=False)
    checks: tuple[LessonCheck, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Briefing:
        """Return the briefing that `plain` describes, the result of the method."""
        return cls(
            plain["memory_key"],
            plain["space"],
            waiting=plain["waiting"],
            choices=tuple(Choice(**choice) for choice in plain["choices"]),
        )

    def plain(self) -> dict[str, Any]:
        """Return JSON data: the fields that a store keeps."""
        return {
            "memory_key": self.memory_key,
            "space": self.space,
            "waiting": self.waiting,
            "choices": [asdict(choice) for choice in self.choices],
        }

    @property
    def silence(self) -> str:
        """The reasons why memory tells the loop nothing; "" if it tells something."""
        if any(choice.outcome == "told" for choice in self.choices):
            return ""

        rules = sum(choice.leg == "cause" for choice in self.choices)
        if not self.memory_key:
            reason = "no memory key, so no rules: pass memory_key (command line: --key)"
        elif rules:
            reason = f"rules under the key {self.memory_key!r}: {rules}, none shown now"
        else:
            reason = f"no rule was broken under the key {self.memory_key!r}"

        reasons = [reason]
        if rules == len(self.choices):
            measure = "" if self.space else " (by words, without an embedder)"
            reasons.append(f"no lesson is about a similar task{measure}")
        if self.waiting:
            lessons = "lesson waits" if self.waiting == 1 else "lessons wait"
            reasons.append(f"{self.waiting} {lessons} in quarantine")
        return "; ".join(reasons)

    @property
    def summary(self) -> str:
        """How many lessons were shown and withheld, in a few words."""
        counts = Counter(choice.outcome for choice in self.choices)
        withheld = f", withheld {counts['withheld']}" if counts["withheld"] else ""
        return f"shown {counts['told'] or 'nothing'}{withheld}"

    @property
    def lines(self) -> tuple[str, ...]:
        """A line for each choice, after a line with the reason if nothing is shown."""
        lines = []
        if self.silence:
            lines.append(f"silent: {self.silence}")

        # The lines of several examples of one lesson are alike.
        for line, count in Counter(map(str, self.choices)).items():
            examples = f" ({count} examples)" if count > 1 else ""
            lines.append(f"{line}{examples}")
        lines += [f"checked: {check.name}, {check.about}" for check in self.checks]
        return tuple(lines)

    def __str__(self) -> str:
        return "\n".join(self.lines)

    @property
    def shown(self) -> tuple[int, ...]:
        """The ids of the examples that the loop is shown."""
        return tuple(
            chain.from_iterable(exposure.examples for exposure in self.exposures)
        )

    @property
    def found(self) -> tuple[Match, ...]:
        """The examples and lessons that the loop is shown."""
        ids = self.shown
        return tuple(match for match in self.chosen if match.id in ids)

    @property
    def examples(self) -> tuple[Message, ...]:
        """The worked examples as chat turns."""
        return as_messages(self.found)

    @property
    def advice(self) -> tuple[Match, ...]:
        """The lessons without an accepted output."""
        return tuple(match for match in self.found if not match.example.accepted)


@dataclass(frozen=True, slots=True)
class Selection:
    """The lessons `chosen` for a loop, and the `others`, each with the reason.

    The others are sorted: rules, then those for the most similar tasks.
    """

    chosen: list[Match]
    others: list[tuple[Match, str]]

    def choices(
        self, exposures: Sequence[Exposure], every: bool = False
    ) -> tuple[Choice, ...]:
        """Return what became of the lessons, after the coin decided on `exposures`.

        These are what is shown or withheld, rules that rest, and the nearest miss if no
        lesson is shown for a similar task; with `every`, they are all lessons that the
        search found.
        """
        shown_ids = set(chain.from_iterable(e.examples for e in exposures))
        choices = []
        for match in self.chosen if exposures else ():
            if match.id in shown_ids:
                choices.append(Choice.of(match, "told"))
            else:
                choices.append(Choice.of(match, "withheld", HOLDOUT_REASON))

        has_similar_task = any(choice.leg == "likeness" for choice in choices)
        for match, reason in self.others:
            if every or match.cause:
                choices.append(Choice.of(match, "missed", reason, words=every))
            elif not has_similar_task:
                choices.append(Choice.of(match, "closest", reason, words=False))
                break  # the others are less similar

        return tuple(choices)


def choose_for_loop(
    task: str,
    found: Sequence[Match],
    now: float,
    tell: Tell = "both",
    checks: Sequence[str] = (),
    before: frozenset[int] | None = None,
) -> Selection:
    """Select what a loop is shown before its task.

    Rules that loops of its memory key broke come first, in the order of `found`; then
    worked examples and lessons for similar tasks, and the nearest strategy or
    correction by a user. `tell` leaves out one of the two forms. A lesson from a check
    without an accepted output is shown as a rule only, because advice for one function
    is wrong for another. Other lessons of the kind "reflection" are never shown. The
    limits are those of `choose`. `before` are the examples that a resumed loop was
    shown: it is shown them again.
    """
    matches = [match for match in found if before is None or match.id in before]
    rules: list[Match] = []
    similar: list[Match] = []
    barred: list[Match] = []
    others: list[tuple[Match, str]] = []
    for match in keep_important(with_overlap(task, matches)):
        form = "examples" if match.example.accepted else "rules"
        if tell not in ("both", form):
            continue

        if match.cause is None:
            group = barred if _why_barred(match) else similar
            group.append(match)
            continue

        reason = match.cause.rests(checks, match.verified) if before is None else ""
        if reason:
            others.append((match, reason))
        else:
            rules.append(match)

    similar = _with_spare_rules(similar, rules)
    candidates = _limit_strategies(rank(task, similar, len(similar), now))
    advice = any(not match.example.accepted for match in (*rules, *candidates))
    chosen = choose(candidates, now=now, advice=advice, rules=rules)
    chosen = _without_repeated_answers(chosen, tell)

    # Each lesson that was not chosen is listed once, with the first reason.
    listed = {match.id for match in chosen}
    others += [(match, NO_ROOM_REASON) for match in rules if match.id not in listed]
    listed |= {match.id for match, _ in others}
    unlisted = [match for match in (*similar, *barred) if match.id not in listed]
    unlisted.sort(key=_distance)
    for match in unlisted:
        no_room = NO_ROOM_REASON if Likeness.of(match).nearness else ""
        others.append((match, _why_barred(match) or no_room))
    return Selection(chosen, others)


def _why_barred(match: Match) -> str:
    """Return why no prompt may have a lesson about a similar task; "" if one may."""
    # The error of a correction by a user is its own text.
    is_correction = (
        match.meta.get("correction")
        or signature("", match.lesson).digest == match.signature
    )
    if match.kind == "reflection" and not is_correction:
        return (
            "for no prompt: it says what went wrong elsewhere; `before` and `seen` "
            "tell it"
        )
    if match.kind == "check" and not match.example.accepted:
        return "shown only to loops of its memory key"
    return ""


def _with_spare_rules(similar: Sequence[Match], rules: Sequence[Match]) -> list[Match]:
    """Add to the lessons for similar tasks the rules that do not fit in as rules.

    So a loop about the same task, such as a stage, is shown more of its rules: they are
    near. The example of a rule comes with the rule, so it is shown again only if its
    task is similar.
    """
    late = [match for match in rules[MAX_PROMPT_RULES:] if match.verified]
    matches = [*similar, *(replace(match, cause=None) for match in late)]
    worked = {match.worked.digest for match in rules[:MAX_PROMPT_RULES] if match.worked}
    return [
        replace(match, own=match.own and match.example.digest not in worked)
        for match in matches
    ]


def _limit_strategies(ranked: Sequence[Match]) -> list[Match]:
    """Return the ranked lessons, those from episodes last and only the best of them."""
    lessons = [match for match in ranked if match.kind not in EPISODE_LESSON_KINDS]
    of_episodes = [match for match in ranked if match.kind in EPISODE_LESSON_KINDS]
    return [*lessons, *of_episodes[:MAX_PROMPT_STRATEGIES]]


def _without_repeated_answers(chosen: Sequence[Match], tell: Tell) -> list[Match]:
    """Drop the answers of rules that the prompt already has, or has no room for."""
    answers = {match.example.digest for match in chosen if match.example.accepted}
    is_full = tell == "rules" or len(answers) == MAX_PROMPT_LESSONS
    matches = list(chosen)
    for n, match in enumerate(chosen):
        if match.worked and (is_full or match.worked.digest in answers):
            matches[n] = replace(match, worked=None)
    return matches


def _distance(match: Match) -> float:
    """Return how far a task is: above 1 if it is too far for a prompt."""
    likeness = Likeness.of(match)
    return likeness.needed / max(likeness.value, 1e-9)


def is_pooled(seed: str | int, loop_id: str) -> bool:
    """Return True in one loop of four: there, one coin decides about all lessons."""
    return _chance("together", seed, loop_id) < POOLED_COIN_SHARE


def is_withheld(
    seed: str | int,
    loop_id: str,
    lesson_id: str | int,
    share: float = DEFAULT_HOLDOUT_SHARE,
) -> bool:
    """Return True, with probability `share`, if a loop's prompt leaves a lesson out.

    The result depends on the arguments only, so a resumed loop gets the same result.
    With a share of 0 nothing is withheld. A withheld lesson is not replaced.

    In three loops of four each lesson has its own coin, which measures what the lesson
    adds to the others. By this measure, three lessons that say the same would each seem
    useless. So in one loop of four a single coin decides about all lessons, which
    measures memory as a whole.
    """
    coin = "" if is_pooled(seed, loop_id) else f"lesson {lesson_id}"
    return _chance("withheld", seed, loop_id, coin) < share


def _chance(*names: str | int) -> float:
    """Return an evenly distributed number, 0..1, that depends only on the names.

    It is a hash of the names, 48 bits of it as a fraction.
    """
    digest = hashlib.sha256(ascii(tuple(map(str, names))).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def draw_exposures(
    chosen: Sequence[Match], loop: str, seed: str, share: float
) -> Iterator[Exposure]:
    """Yield each chosen lesson's exposure; `share` of them are withheld by chance."""
    examples: dict[str, list[int]] = {}
    for match in chosen:
        examples.setdefault(f"{match.kind}/{match.signature}", []).append(match.id)

    pooled = share > 0 and is_pooled(seed, loop)
    for lesson, ids in examples.items():
        withheld = is_withheld(seed, loop, lesson, share)
        examples_shown = () if withheld else tuple(dict.fromkeys(ids))
        yield Exposure(
            lesson,
            loop,
            shown=not withheld,
            signature=lesson.partition("/")[2],
            share=share,
            together=pooled,
            examples=examples_shown,
        )
