"""What one loop is shown before it begins, and what is withheld from it, as a record.

A `Briefing` is kept for each loop, with a `Choice` for each lesson that memory
considered: what happened to it, and why. `telling` decides; this says so in words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Literal

from heedful.display import counted
from heedful.lessons.holdout import HARMFUL_MEMORY_SHARE
from heedful.lessons.lesson import Exposure, Match
from heedful.lessons.lesson_check import LessonCheck
from heedful.lessons.ranking import Likeness
from heedful.lessons.reasons import Reason
from heedful.lessons.render import (
    MAX_LINE_CHARS,
    as_messages,
    with_each_answer_once,
)
from heedful.lessons.scope import lesson_name
from heedful.lessons.telling import Leg, Telling
from heedful.models.contract import Message, tokens
from heedful.sanitize import clean, sanitize
from heedful.validation import Document, Fields

HARMFUL_MEMORY = Reason("harmful memory")
Outcomes = Literal["told", "withheld", "missed", "closest"]


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

    If all choices were asked for, `rest` counts the lessons that are further away.

    `exposures` say what is shown and what is withheld; `chosen` has both. `vector` is
    the task's embedding. `checks` are the checks of lessons that judge the loop.
    """

    memory_key: str = ""
    space: str = ""
    _: KW_ONLY
    waiting: int = 0
    rest: int = field(default=0, compare=False)
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
        if self.rest:
            lines.append(f"not looked at: {counted(self.rest, 'lesson')} further away")
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
        names = {exposure.lesson for exposure in self.exposures if exposure.shown}
        return tuple(
            match
            for match in self.chosen
            if lesson_name(match.kind, match.signature) in names
        )

    @property
    def examples(self) -> tuple[Message, ...]:
        """The worked examples as chat turns."""
        return as_messages(self.found)

    @property
    def advice(self) -> tuple[Match, ...]:
        """The lessons without an accepted output."""
        lessons = with_each_answer_once(self.found)
        return tuple(match for match in lessons if not match.example.accepted)


def choices_of(telling: Telling, memory_key: str, every: bool) -> tuple[Choice, ...]:
    """Return a `Choice` for each lesson listed: what happened to it, and why.

    First come those that are shown or withheld, then the rules that are not shown. If
    no lesson for a similar task is shown or withheld, the nearest one comes next, and
    before it those in quarantine that are nearer. With `every`, all other lessons are
    listed. `memory_key` is that of the loop.
    """
    choice_of = partial(Choice.of, memory_key=memory_key)
    # A memory that does harm withholds nearly all: the harm is why, not chance.
    is_harmful = any(e.share == HARMFUL_MEMORY_SHARE for e in telling.exposures)
    withheld_reason = HARMFUL_MEMORY if is_harmful else Reason("holdout")
    choices = [choice_of(candidate.record, "told") for candidate in telling.told]
    choices += [
        choice_of(candidate.record, "withheld", withheld_reason)
        for candidate in telling.withheld
    ]
    has_similar_task = any(choice.leg != "cause" for choice in choices)
    for candidate, reason in telling.refused:
        match = candidate.record
        if reason.code == "later" and not every:
            continue
        if every or match.cause:
            choices.append(choice_of(match, "missed", reason, words=every))
        elif not has_similar_task:
            choice = choice_of(match, "closest", reason, words=False)
            choices.append(choice)
            # The rest are less similar. Go on only past lessons in quarantine, which a
            # key without review rights cannot see.
            has_similar_task = not choice.waits
    return tuple(choices)


def silence_of(telling: Telling) -> str:
    """Return in a sentence what keeps back the lesson that came nearest.

    If nothing but the filter of the asker does, that is why. The sentence is "" if
    nothing was found.
    """
    candidates = [*((c, Reason("filter")) for c in telling.told), *telling.refused]
    if not candidates:
        return ""
    nearest, reason = candidates[0]
    return Choice.of(nearest.record, "closest", reason, words=False).silence.sentence
