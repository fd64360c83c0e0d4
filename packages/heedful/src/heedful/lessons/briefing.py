"""What one loop is shown before it begins, and what is withheld from it.

`choose_for_loop` selects: first the rules that loops of the same memory key broke, then
lessons for similar tasks. A draw then withholds some of the selected lessons, so that a
proof can compare loops with and without a lesson. The draw depends only on scope, loop
and lesson, so that a resumed loop is shown the same. A `Briefing` is the result for one
loop, with a `Choice` for each lesson that memory considered: what happened to it, and
why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from functools import partial
from itertools import chain, product
from typing import Any, Literal, get_args

from heedful.display import counted
from heedful.lessons.finding_rules import says_enough
from heedful.lessons.holdout import (
    HARMFUL_MEMORY_SHARE,
    Holdout,
    is_pooled,
    is_withheld,
)
from heedful.lessons.lesson import (
    ANY_LESSON,
    DREAM_AUTHOR,
    Exposure,
    Filter,
    Match,
)
from heedful.lessons.lesson_check import LessonCheck
from heedful.lessons.ranking import (
    Likeness,
    choose,
    claimed_importance,
    has_evidence,
    is_related,
    keep_fitting,
    rank,
    with_overlap,
)
from heedful.lessons.reasons import Reason
from heedful.lessons.render import MAX_LINE_CHARS, as_messages
from heedful.lessons.scope import MAX_PROMPT_LESSONS
from heedful.lessons.words import words
from heedful.models.contract import Message, tokens
from heedful.sanitize import clean, sanitize
from heedful.validation import Document, Fields

# What a prompt may hold: rules (lessons without an accepted output), worked examples,
# or both.
Tell = Literal["both", "rules", "examples"]
PROMPT_FORMS: tuple[str, ...] = get_args(Tell)
Outcomes = Literal["told", "withheld", "missed", "closest"]
Leg = Literal["cause", "likeness", "strategy"]


NO_ROOM = Reason("no room")
ALIKE = Reason("alike")
HARMFUL_MEMORY = Reason("harmful memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A lesson that memory considered for a loop, and what it decided.

    The `outcome` is "told" if the loop is shown the lesson, "withheld" if the draw left
    it out, "missed" for any other lesson, and "closest" for the nearest miss. `lesson`
    is its id, and `leg` says how memory found it: by its cause, by likeness of the
    tasks, or as a strategy. `score` is the number of loops that broke the rule, or the
    likeness of the tasks, 0..1, by the `measure`, of which a prompt needs `needed`.
    `keys` are the memory keys of a rule of another function. `text` has the words of
    the rule that was shown or withheld, "" for an example and for other outcomes. If
    the lesson is not shown, `reason` says why. It `waits` if it was in
    quarantine.
    """

    outcome: Outcomes
    lesson: int
    form: Literal["rule", "example"]
    leg: Leg
    score: float
    measure: str = ""
    needed: float = 0.0
    keys: tuple[str, ...] = ()
    text: str = ""
    reason: Reason | None = None
    waits: bool = False

    @classmethod
    def of(
        cls,
        match: Match,
        outcome: Outcomes,
        reason: Reason | None = None,
        words: bool = True,
        memory_key: str = "",
    ) -> Choice:
        """Return the choice about the lesson that a search found as `match`.

        `outcome` says what happened to the lesson, and `reason` why it is not shown.
        Without `words`, the choice has no text of the lesson; it never has that of one
        in quarantine. `memory_key` is the key under which the loop's function keeps its
        rules: a rule from another key is listed with the keys that it comes from.
        """
        leg: Leg = "strategy" if match.kind == "strategy" else "likeness"
        likeness = Likeness.of(match)
        keys: tuple[str, ...] = ()
        if match.cause is not None:
            # A rule that loops broke: its score is their number, not a likeness.
            leg = "cause"
            likeness = Likeness("", match.cause.loops, 0.0)
            if memory_key not in ("", match.cause.memory_key):
                keys = match.rule_keys
        return cls(
            outcome=outcome,
            lesson=match.lesson_id,
            form="example" if match.example.accepted else "rule",
            leg=leg,
            score=round(likeness.value, 4),
            measure=likeness.measure,
            needed=likeness.needed,
            keys=keys,
            text=_words_of(match, outcome) if words else "",
            reason=reason,
            waits=match.state == "quarantined",
        )

    @classmethod
    def from_plain(cls, plain: Fields) -> Choice:
        """Return the choice that the method `plain` wrote as these JSON data.

        Data that are no fields, such as "why", are left out: they are derived.
        """
        values = {name: plain[name] for name in cls.__slots__ if name in plain}
        values["keys"] = tuple(values.get("keys", ()))
        if values.get("reason"):
            values["reason"] = Reason.read(values["reason"])
        return cls(**values)

    def plain(self) -> Document:
        """Return JSON data: the fields, and beside them what they say in words."""
        reason = self.reason.plain() if self.reason else None
        return {**asdict(self), "reason": reason, "why": self.why}

    @property
    def code(self) -> str:
        """The code of the reason; "" without one."""
        return self.reason.code if self.reason else ""

    @property
    def why(self) -> str:
        """How memory found the lesson, and what keeps it back, if anything does."""
        source = self._found_by
        if self.reason is None:
            return source
        # These words say themselves how often the rule was broken.
        if self.code == "broken once":
            return self.reason.words
        return f"{source}, {self.reason.words}"

    @property
    def _found_by(self) -> str:
        """How memory found the lesson, in words.

        For a rule, they say how many loops broke it, and if it is from other memory
        keys, which these are. For another lesson, they say how similar its task is, and
        how similar it must be for a prompt.
        """
        if self.leg == "cause" or not self.measure:
            broken = f"broken in {counted(int(self.score), 'loop')}"
            if self.keys:
                return f"from loops of {' and '.join(self.keys)}, {broken}"
            return broken

        need = f" of {self.needed:.2f} needed"
        # For lessons of the loop's own memory key, any likeness is enough.
        if self.needed <= 0:
            verb = "accepted" if self.form == "example" else "learnt"
            need = f", {verb} under the same memory key"
        elif self.score >= self.needed:
            need = f", {self.needed:.2f} is enough"
        measure = "share of words" if self.measure == "words" else self.measure
        return f"{measure} {self.score:.2f}{need}"

    @property
    def words(self) -> str:
        """The words of the rule, or that an answer was shown or withheld."""
        if self.form == "example" and self.outcome in ("told", "withheld"):
            return "the accepted answer of a similar task"
        return self.text

    @property
    def name(self) -> str:
        """The lesson and its reason, without its words."""
        return f"lesson {self.lesson}, {self.form} by {self.leg}, {self.why}"

    def __str__(self) -> str:
        text = f": {self.words}" if self.words else ""
        outcome = "shown" if self.outcome == "told" else self.outcome
        cure = self.reason.cure if self.reason else ""
        return f"{outcome}: {self.name}{text}{cure}"

    @property
    def silence(self) -> Reason:
        """Why memory shows a loop nothing, where this is the lesson that came nearest.

        It names the lesson, what keeps it back, and the command that changes that.
        """
        reason = self.reason or Reason("")
        figures = {
            "lesson": self.lesson,
            "words": reason.words,
            "command": reason.command,
            "purpose": reason.purpose,
        }
        return Reason("lesson", figures=figures)


def _words_of(match: Match, outcome: Outcomes) -> str:
    """Return the text of a lesson, clean and short, for a choice with this outcome.

    It is "" for a lesson in quarantine, which nobody has reviewed. It is also "" for an
    example that is shown or withheld, because a prompt has its accepted answer instead.
    """
    is_in_prompt = match.example.accepted and outcome in ("told", "withheld")
    if match.state == "quarantined" or is_in_prompt:
        return ""
    return clean(sanitize(match.refusal or match.lesson), MAX_LINE_CHARS)


@dataclass(frozen=True, slots=True)
class Briefing:
    """What memory shows one loop, before its first attempt and again before each retry.

    `choices` say for each lesson that memory considered whether the loop is shown it,
    and why; the lessons shown come best first. `memory_key` is the key of the loop,
    `model` makes its attempts, `space` names the embedder, and `waiting` counts the
    texts that wait in quarantine, at most 100. `prompt` is the whole text that is
    shown, as `as_text` renders it. A store keeps these six.

    `exposures` say what is shown and what is withheld; `chosen` has both. `vector` is
    the task's embedding. `checks` are the checks of lessons that judge the loop.
    """

    memory_key: str = ""
    space: str = ""
    _: KW_ONLY
    waiting: int = 0
    choices: tuple[Choice, ...] = ()
    prompt: str = field(default="", compare=False)
    exposures: tuple[Exposure, ...] = field(default=(), compare=False)
    chosen: tuple[Match, ...] = field(default=(), compare=False)
    vector: Sequence[float] | None = field(default=None, compare=False)
    checks: tuple[LessonCheck, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, plain: Fields) -> Briefing:
        """Return the briefing that a store has kept; older ones have no `prompt`."""
        return cls(
            plain["memory_key"],
            plain["space"],
            waiting=plain["waiting"],
            prompt=plain.get("prompt", ""),
            choices=tuple(map(Choice.from_plain, plain["choices"])),
        )

    def without_words(self) -> Briefing:
        """Return the briefing without the words of lessons, and without what waits."""
        briefing = self.without_waiting()
        choices = tuple(replace(choice, text="") for choice in briefing.choices)
        return replace(briefing, prompt="", choices=choices)

    def without_waiting(self) -> Briefing:
        """Return the briefing as if nothing waited in quarantine."""
        choices = tuple(choice for choice in self.choices if not choice.waits)
        return replace(self, waiting=0, choices=choices)

    @property
    def prompt_tokens(self) -> int:
        """The number of tokens of the prompt, as estimated."""
        return tokens(self.prompt)

    def plain(self) -> Document:
        """Return JSON data: the fields that a store keeps, but for the long prompt."""
        return {
            "memory_key": self.memory_key,
            "space": self.space,
            "waiting": self.waiting,
            "choices": [choice.plain() for choice in self.choices],
        }

    @property
    def silence(self) -> str:
        """The reason why memory shows the loop nothing; "" if it shows something.

        It names the lesson for the most similar task, if there is any, with the one
        thing that keeps it back and the command that changes it.
        """
        return "; ".join(silence.sentence for silence in self.silences)

    @property
    def silences(self) -> list[Reason]:
        """The reasons why memory shows the loop nothing; none if it shows something.

        If a draw withheld a lesson, that is why. Otherwise they are: why no rule of the
        memory key is shown, what keeps back the nearest lesson for a similar task, and
        what waits in quarantine.
        """
        if any(choice.outcome == "told" for choice in self.choices):
            return []
        for choice in self.choices:
            if choice.outcome == "withheld":
                return [choice.silence, Reason("no holdout")]

        rules = sum(choice.leg == "cause" for choice in self.choices)
        nearest = next((c for c in self.choices if c.leg != "cause"), None)
        reasons = [Reason("no key")]
        if rules:
            reasons = [
                Reason("rules rest", figures={"key": self.memory_key, "rules": rules})
            ]
        elif self.memory_key:
            reasons = [Reason("no rule broken", figures={"key": self.memory_key})]

        if nearest is None:
            code = "no lesson" if self.space else "no lesson by words"
            reasons.append(Reason(code))
        elif nearest.code.startswith("distance"):
            reasons.append(nearest.silence)
        else:
            # It is near enough, so what keeps it back is the first reason.
            reasons.insert(0, nearest.silence)

        # A nearest lesson that waits there is named already.
        if self.waiting and (nearest is None or nearest.code != "quarantine"):
            code = "text waits" if self.waiting == 1 else "texts wait"
            reasons.append(Reason(code, figures={"number": self.waiting}))
        return reasons

    @property
    def summary(self) -> str:
        """How many lessons were shown and withheld, in a few words."""
        counts = Counter(choice.outcome for choice in self.choices)
        withheld = f", withheld {counts['withheld']}" if counts["withheld"] else ""
        return f"shown {counts['told'] or 'nothing'}{withheld}"

    @property
    def notice(self) -> str:
        """The summary; if nothing is shown, also what is held back and what to do.

        Held back is a lesson that came near, or a text that waits in quarantine.
        """
        held_back = [
            silence
            for silence in self.silences
            if silence.code in ("lesson", "text waits", "texts wait")
        ]
        return ": ".join([self.summary, *(silence.sentence for silence in held_back)])

    @property
    def lines(self) -> tuple[str, ...]:
        """A line for each choice, and after these for each check of a lesson.

        If nothing is shown, the first line says why.
        """
        lines = []
        if self.silence:
            lines.append(f"silent: {self.silence}")

        # The lines of several examples of one lesson are alike.
        counts = Counter(str(choice) for choice in self.choices)
        for line, count in counts.items():
            examples = f" ({count} examples)" if count > 1 else ""
            lines.append(f"{line}{examples}")
        lines += [f"checked: {check.name}, {check.about}" for check in self.checks]
        return tuple(lines)

    def __str__(self) -> str:
        return "\n".join(self.lines)

    @property
    def shown(self) -> tuple[int, ...]:
        """The ids of the examples whose answers or words the loop is shown."""
        return tuple(chain.from_iterable(e.examples for e in self.exposures if e.shown))

    @property
    def found(self) -> tuple[Match, ...]:
        """The examples and lessons that the loop is shown."""
        names = drawn_names(e for e in self.exposures if e.shown)
        return tuple(match for match in self.chosen if _name_of(match) in names)

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

    The others are sorted: rules, then those for the most similar tasks. `memory_key` is
    that of the loop.
    """

    chosen: list[Match]
    others: list[tuple[Match, Reason]]
    _: KW_ONLY
    memory_key: str = ""

    def choices(
        self, exposures: Sequence[Exposure], every: bool = False
    ) -> tuple[Choice, ...]:
        """Return a `Choice` for each lesson listed: what happened to it, and why.

        The `exposures` say which of the chosen lessons a random draw shows, and which
        it withholds. Then come the rules that are not shown. If no lesson for a similar
        task is shown or withheld, the nearest one comes next, and before it those in
        quarantine that are nearer. With `every`, all other lessons are listed.
        """
        choice_of = partial(Choice.of, memory_key=self.memory_key)
        choices = self._drawn_choices(exposures)
        has_similar_task = any(choice.leg != "cause" for choice in choices)
        for match, reason in self.others:
            if every or match.cause:
                choices.append(choice_of(match, "missed", reason, words=every))
            elif not has_similar_task:
                choice = choice_of(match, "closest", reason, words=False)
                choices.append(choice)
                # The rest are less similar. Go on only past lessons in quarantine,
                # which a key without review rights cannot see.
                if not choice.waits:
                    break
        return tuple(choices)

    def _drawn_choices(self, exposures: Sequence[Exposure]) -> list[Choice]:
        """Return a choice for each chosen lesson: shown, or withheld by a random draw.

        The `exposures` say what the draw decided for each lesson. Without them, nothing
        was drawn, and there are no choices.
        """
        if not exposures:
            return []

        shown_names = drawn_names(e for e in exposures if e.shown)
        # A memory that does harm withholds nearly all: the harm is why, not chance.
        is_harmful = any(e.share == HARMFUL_MEMORY_SHARE for e in exposures)
        reason = HARMFUL_MEMORY if is_harmful else Reason("holdout")
        choice_of = partial(Choice.of, memory_key=self.memory_key)
        choices = []
        for match in self.chosen:
            if _name_of(match) in shown_names:
                choices.append(choice_of(match, "told"))
            else:
                choices.append(choice_of(match, "withheld", reason))
        return choices


# The name of a lesson, and the id of an example. The words of a lesson may come from an
# example of another one, which may be withheld.
DrawnName = tuple[str, int]


def drawn_names(exposures: Iterable[Exposure]) -> frozenset[DrawnName]:
    """Return the lessons that a draw decided on, with each of their examples."""
    return frozenset(
        chain.from_iterable(product([e.lesson], e.examples) for e in exposures)
    )


def _name_of(match: Match) -> DrawnName:
    """Return the name of the lesson of a match, and the id of its example."""
    return f"{match.kind}/{match.signature}", match.id


def choose_for_loop(
    task: str,
    found: Sequence[Match],
    now: float,
    tell: Tell = "both",
    checks: Sequence[str] = (),
    before: frozenset[DrawnName] | None = None,
    hidden: Sequence[Match] = (),
    model: str = "",
    memory_key: str = "",
    check_ids: Sequence[str] = (),
) -> Selection:
    """Select what a loop is shown before its task.

    Rules that loops of its memory key broke come first: those that share most words
    with the task, or else in the order of `found`. Then come worked examples and
    lessons for similar tasks, and the nearest strategy or correction by a user. The
    limits are those of `choose`.

    A fix that differs from task to task says nothing as a rule. Then what the check
    said of a task whose loop did not pass is shown like a worked example of the key. A
    rule that does not say what to do makes way for three examples of its key. Other
    lessons of the kind "reflection", and lessons of a run without evidence, are never
    shown.

    `found` are the lessons that a search found, and `tell` leaves out rules or
    examples. `before` are the examples that were drawn for a resumed loop: it is shown
    the same again. The `hidden` lessons may not be recalled: near ones are listed among
    the others, with the reason. What a proof says hurts loops of the `model` is not
    shown. The `memory_key` is that of the loop. The `checks` of the loop are names, and
    the `check_ids` tell their arguments apart.
    """
    matches = _matches_to_consider(task, found, tell, before)
    # A resumed loop is shown what it was, whatever a proof says by now.
    model = model if before is None else ""
    rules: list[Match] = []
    similar: list[Match] = []
    barred: list[Match] = []
    fitting = list(keep_fitting(task, with_overlap(task, matches)))
    fitting_ids = {match.id for match in fitting}
    varying = {match.lesson_id for match in found if match.cause and match.cause.varies}
    # Those that are not chosen, each with the reason.
    others = [(match, ALIKE) for match in matches if match.id not in fitting_ids]
    for match in fitting:
        form_reason = _form_reason(match, tell)
        # A lesson of the other form is listed, with that as its reason, only if near.
        if form_reason and (match.cause or not Likeness.of(match).nearness):
            continue
        reason = _model_reason(match, model)
        if match.cause is None:
            says_fix = match.own and match.lesson_id in varying
            is_barred = form_reason or reason or find_reason(match, says_fix=says_fix)
            group = barred if is_barred else similar
            group.append(match)
            continue

        if before is None:
            reason = (
                reason
                or _wording_reason(match, rules)
                or match.cause.rests(task, checks, match.verified, check_ids)
            )
        if reason is None:
            rules.append(match)
        else:
            others.append((match, reason))

    if before is not None:
        others += _resting_rules(
            found, task, checks=checks, check_ids=check_ids, drawn=before
        )
    else:
        if tell == "both":
            others += _remove_vague_rules(rules, similar, task, now)
        others += _remove_foreign_answers(similar, task, memory_key)
    chosen, similar = _choose_for_prompt(rules, similar, task, now)
    chosen = list(_without_repeated_answers(chosen))

    # Each lesson that was not chosen is listed once, with the first reason. The words
    # of a rule are not listed again for its examples without an answer.
    chosen_ids = {match.id for match in chosen}
    others += [(match, NO_ROOM) for match in rules if match.id not in chosen_ids]
    listed = chosen_ids | {match.id for match, _ in others}
    rule_lessons = {match.lesson_id for match in matches if match.cause}
    barred = [match for match in barred if match.lesson_id not in rule_lessons]
    others += [
        (match, _find_reason(match, tell, model, memory_key))
        for match in _nearest_first([*similar, *barred], hidden)
        if match.id not in listed
    ]
    return Selection(chosen, others, memory_key=memory_key)


def _nearest_first(matches: Sequence[Match], hidden: Sequence[Match]) -> list[Match]:
    """Return the matches, the one for the most similar task first.

    Of the `hidden` lessons, which may not be found, those that are similar enough for a
    prompt are among them, so that a person learns what keeps them back.
    """
    near_hidden = [match for match in hidden if Likeness.of(match).nearness]
    return sorted([*matches, *near_hidden], key=_distance)


def _resting_rules(
    matches: Sequence[Match],
    task: str,
    *,
    checks: Sequence[str],
    check_ids: Sequence[str],
    drawn: frozenset[DrawnName],
) -> Iterator[tuple[Match, Reason]]:
    """Yield the rules that a resumed loop is not shown for now, each with the reason.

    Rules that were `drawn` when the loop began do not count: they are shown again. The
    `task`, and the names and ids of the loop's checks, decide which other rules rest,
    such as one that comes from a check which this loop does not have.
    """
    for match in matches:
        if match.cause is None or _name_of(match) in drawn:
            continue
        reason = match.cause.rests(task, checks, match.verified, check_ids)
        if reason is not None:
            yield match, reason


def _matches_to_consider(
    task: str, found: Sequence[Match], tell: Tell, drawn: frozenset[DrawnName] | None
) -> list[Match]:
    """Return the lessons of `found` that a prompt for a loop may have, in their order.

    A loop is a model's attempts at one task. `drawn` are the lessons that a resumed
    loop had before, and only these are returned; it is None for a new loop. With `tell`
    "rules", the examples that come with rules are left out. Rules that share words with
    the task come first, those that share most before the others, because there may be
    no room for all.
    """
    matches = list(found)
    if drawn is not None:
        matches = [match for match in found if _name_of(match) in drawn]
    if tell == "rules":
        matches = [replace(match, worked=None) for match in matches]
    task_words = frozenset(words(task))

    def sort_key(match: Match) -> int:
        """Return what is the smaller, the more words a rule shares with the task."""
        shared = task_words.intersection(words(match.lesson))
        return -len(shared) if match.cause else 0

    return sorted(matches, key=sort_key)


def _remove_foreign_answers(
    similar: list[Match], task: str, memory_key: str
) -> list[tuple[Match, Reason]]:
    """Remove from `similar` the answers of other functions; return them with a reason.

    A memory key names a function, and functions may want different answers to equal
    tasks. So an answer that another key accepted is removed if it is to the very task
    of this loop, or if the loop's own `memory_key` has an answer to a near one. Without
    a key, nothing is removed.
    """
    if not memory_key:
        return []

    answers = [match for match in similar if match.example.accepted]
    has_own = any(
        match.memory_key == memory_key and Likeness.of(match).nearness
        for match in answers
    )
    foreign = [
        match
        for match in answers
        if match.memory_key not in ("", memory_key)
        and (has_own or match.example.task.strip() == task.strip())
    ]
    similar[:] = [match for match in similar if match not in foreign]
    return [(match, Reason("other function")) for match in foreign]


def _choose_for_prompt(
    rules: Sequence[Match], similar: Sequence[Match], task: str, now: float
) -> tuple[list[Match], list[Match]]:
    """Return the lessons that fit into a prompt, and all that it could have for a task.

    The first list has rules, and then the best of the `similar` lessons, those for
    similar tasks. The second has all similar lessons, chosen or not, except those that
    repeat a rule.
    """
    lessons = _with_shown_answers(similar, rules)
    ranked = rank(task, lessons, len(lessons), now)
    # A prompt has one lesson of a run at most, the best.
    lessons_of_runs = [match for match in ranked if match.is_from_run]
    surplus = lessons_of_runs[1:]
    candidates = [match for match in ranked if match not in surplus]
    # Lessons without an accepted answer need a prompt in one text, not as chat turns.
    advice = any(not match.example.accepted for match in (*rules, *candidates))
    return choose(candidates, now=now, advice=advice, rules=rules), lessons


def _remove_vague_rules(
    rules: list[Match], similar: Sequence[Match], task: str, now: float
) -> list[tuple[Match, Reason]]:
    """Remove from `rules` those that make way for answers; return them with a reason.

    They are the vague rules, which do not say what to do. They make way if, without
    them, the prompt is full of accepted answers of the loop's own memory key, which
    show it. Otherwise `rules` stays unchanged.
    """
    vague_rules = [rule for rule in rules if _is_vague(rule)]
    if not vague_rules:
        return []

    clear_rules = [rule for rule in rules if rule not in vague_rules]
    chosen, _ = _choose_for_prompt(clear_rules, similar, task, now)
    own_answers = sum(match.own for match in chosen)
    if own_answers < MAX_PROMPT_LESSONS:
        return []

    rules[:] = clear_rules
    return [(rule, Reason("answers")) for rule in vague_rules]


def _is_vague(rule: Match) -> bool:
    """Return whether a rule says only what went wrong, and not what to do.

    A rule that a person confirmed, or that provably helps, never counts as vague.
    """
    # A proof sets `useful`: above 1, the rule helps.
    if rule.is_confirmed or rule.useful > 1:
        return False
    return rule.cause is None or not rule.cause.says_fix(rule.verified)


def _find_reason(
    match: Match, tell: Tell, model: str = "", memory_key: str = ""
) -> Reason:
    """Return why a lesson for a similar task was not chosen for a loop.

    A distant task comes first among the reasons, because nothing that a person does to
    the lesson would change it. If nothing else speaks against it, there was no room.
    """
    if not Likeness.of(match).nearness:
        return _distance_reason(match)
    return (
        _form_reason(match, tell)
        or find_reason(match, memory_key)
        or _model_reason(match, model)
        or NO_ROOM
    )


def _wording_reason(match: Match, rules: Sequence[Match]) -> Reason | None:
    """Return why the words of a rule keep it from a prompt; None if they do not.

    They say too little, or the same as one of the `rules` that were taken before. What
    a person confirmed says enough.
    """
    if not match.is_confirmed and not says_enough(match.lesson):
        return _reason_of(match, "particulars")
    if any(rule.lesson == match.lesson for rule in rules):
        return Reason("same rule")
    return None


def _model_reason(match: Match, model: str) -> Reason | None:
    """Return the reason of a lesson that hurts loops of this model, or None."""
    if model not in match.unfit_for:
        return None
    return _reason_of(match, "harmful", model=model)


def _form_reason(match: Match, tell: Tell) -> Reason | None:
    """Return why the form of a lesson keeps it from a prompt; None if it does not.

    The form is an example, with an answer or what was wrong with one, or a rule. A loop
    may `tell` its model only one of the two.
    """
    form = "examples" if match.example.accepted or match.refusal else "rules"
    if tell in ("both", form):
        return None
    return Reason("form", figures={"form": form, "tell": tell})


def _distance_reason(match: Match) -> Reason:
    """Return the reason of a lesson whose task is not similar enough."""
    return Reason("distance by words" if match.cosine is None else "distance")


def find_reason(
    match: Match, memory_key: str = "", says_fix: bool = False
) -> Reason | None:
    """Return what keeps a lesson from the prompts for similar tasks; None if nothing.

    If there are several reasons, it is the one that stays when the others are gone.
    The `memory_key` names the function whose loop is to be shown the lesson, if it has
    one. A lesson that has no accepted answer, but what a check said of one task, is
    told only with `says_fix`: that the words say how to put the answer right.
    """
    # It says what happened in a run, not what to do.
    if match.kind == "reflection" and not match.is_correction:
        return _reason_of(match, "no strategy")
    # A check refused an answer, and no attempt at the task was accepted.
    if match.refusal and not says_fix:
        if match.memory_key in ("", memory_key):
            return Reason("no answer")
        return Reason(
            "other key", figures={"key": match.memory_key, "loop_key": memory_key}
        )
    return find_recall_reason(match)


def find_recall_reason(match: Match) -> Reason | None:
    """Return what keeps a lesson from being found for its task; None if nothing does.

    It waits in quarantine, was retired, is out of date, or nothing shows that it holds.
    """
    if match.state == "quarantined":
        return _reason_of(match, "quarantine", trust=match.trust, release=match.release)
    if match.state == "retired":
        return _reason_of(match, "retired")
    if match.has_ended:
        return Reason("ended")
    if not has_evidence(match):
        code = "dreamt" if match.run and match.run.by == DREAM_AUTHOR else "no evidence"
        return _reason_of(match, code)
    return None


def _reason_of(match: Match, code: str, **figures: Any) -> Reason:
    """Return a reason with the id of the lesson, which its cure names."""
    return Reason(code, figures={"lesson": match.lesson_id, **figures})


def explain_silence(
    matches: Sequence[Match],
    hidden: Sequence[Match],
    *,
    only: Filter = ANY_LESSON,
    least: float = 0.0,
    every: bool = False,
) -> str:
    """Return in a sentence what keeps back the lesson that is nearest to a text.

    It is for a search that found nothing. `matches` are the lessons that a search
    without the filter `only` finds, and `hidden` those that wait in quarantine or were
    retired. `least` is the importance that a query asks for, as the author of a lesson
    claims it. With `every`, the text is blank, and all lessons are near.
    """
    near = [match for match in [*matches, *hidden] if every or is_related(match)]
    candidates = near or list(matches)
    if not candidates:
        code = "empty" if every else "no lesson"
        return Reason(code).words

    def is_filtered(match: Match) -> bool:
        return not only.allows(match) or claimed_importance(match) < least

    # If the filter allows any lesson, the filter is not the reason.
    nearest = min(candidates, key=lambda m: (is_filtered(m), *_distance(m)))
    reason = _distance_reason(nearest)
    if near:
        reason = find_recall_reason(nearest) or ALIKE
    if near and is_filtered(nearest):
        reason = Reason("filter")
    return Choice.of(nearest, "closest", reason, words=False).silence.sentence


def explain_unshown(matches: Sequence[Match], tell: Tell, shown: object) -> str:
    """Return why a prompt for a task shows none of the lessons that were found.

    The sentence is about the nearest one. It is "" if `shown` has some lesson, or if
    none was found.
    """
    if shown or not matches:
        return ""
    nearest = min(matches, key=_distance)
    reason = _find_reason(nearest, tell)
    return Choice.of(nearest, "closest", reason, words=False).silence.sentence


def _with_shown_answers(
    similar: Sequence[Match], rules: Sequence[Match]
) -> list[Match]:
    """Return the `similar` lessons as they are to be ranked beside the `rules`.

    An answer that comes with a rule is shown again only if its task is similar: it no
    longer counts as `own`, that is of the loop's memory key, for which any likeness is
    enough. What a check said of one task is left out where its rule is shown.
    """
    worked = {match.worked.digest for match in rules if match.worked}
    rule_lessons = {rule.lesson_id for rule in rules}
    return [
        replace(match, own=match.own and match.example.digest not in worked)
        for match in similar
        if match.example.accepted or match.lesson_id not in rule_lessons
    ]


def _without_repeated_answers(chosen: Sequence[Match]) -> Iterator[Match]:
    """Yield the chosen lessons, some of the rules without the answer that they bring.

    A rule may come with an accepted answer. It loses the answer if a lesson of the
    prompt has the same one, or if the prompt has as many answers as it may have.
    """
    answers = {match.example.digest for match in chosen if match.example.accepted}
    is_full = len(answers) == MAX_PROMPT_LESSONS
    for match in chosen:
        is_surplus = match.worked and (is_full or match.worked.digest in answers)
        yield replace(match, worked=None) if is_surplus else match


def _distance(match: Match) -> tuple[float, bool]:
    """Return a sort key: how far the task of a lesson is from the one of the search.

    The first number is above 1 if it is too far for a prompt. If two lessons are about
    the same task, the second lets one that says what to do come first.
    """
    likeness = Likeness.of(match)
    return likeness.needed / max(likeness.value, 1e-9), match.kind == "reflection"


def draw_exposures(
    chosen: Sequence[Match], loop: str, seed: str, holdout: Holdout
) -> Iterator[Exposure]:
    """Yield an exposure for each chosen lesson: whether the loop is shown it.

    The `holdout` says with which probability a lesson is withheld, so that a proof can
    compare loops with and without it. The draw depends only on the `seed`, the `loop`
    and the lesson: a resumed loop gets the same. In some loops, one draw decides about
    all lessons together.
    """
    ids_by_lesson: dict[str, list[int]] = {}
    for match in chosen:
        lesson, example_id = _name_of(match)
        ids = ids_by_lesson.setdefault(lesson, [])
        ids.append(example_id)
        # The words may come from another example: if that is revoked, its loops must be
        # found, too.
        if match.author:
            ids.append(match.author)

    share = holdout.share
    is_together = share > 0 and is_pooled(seed, loop, holdout.pooled_share)
    for lesson, ids in ids_by_lesson.items():
        withheld = is_withheld(
            seed, loop, lesson, share, pooled_share=holdout.pooled_share
        )
        yield Exposure(
            lesson,
            loop,
            shown=not withheld,
            signature=lesson.partition("/")[2],
            share=share,
            together=is_together,
            examples=tuple(dict.fromkeys(ids)),
        )
