"""The records of memory: lessons, their examples, and what a search returns.

A `Lesson` is a lesson to be stored, with at most one `Example`. Its `Signature`
names the error; lessons with the same pattern are stored as one lesson with several
examples. A `Match` is an example that a search found. Every record belongs to a
`Scope`. The `check_` functions raise InvalidInput for a wrong argument and name the
argument, its value and the allowed values.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from math import isfinite
from typing import Literal, get_args

from heedful.display import line_text, screen_text
from heedful.errors import InvalidInput
from heedful.lessons.commands import release_command
from heedful.lessons.holdout import Exposure, Outcome
from heedful.lessons.mistake import Mistake
from heedful.lessons.origin import Origin, standing_of
from heedful.lessons.reasons import Reason
from heedful.lessons.scope import (
    MAX_SOURCE_NAME_CHARS,
    MIN_UNBROKEN_CASES,
    Figures,
    Remembered,
    Scope,
    State,
    digest_of,
    short_digest,
)
from heedful.lessons.words import difference
from heedful.notebook import html_form
from heedful.redact import redact
from heedful.validation import (
    MAX_SCORE,
    MAX_STORED_TEXT_CHARS,
    Fields,
    check_number,
    check_sequence,
    check_share,
    check_texts,
    refuses_unknown_options,
    require,
)

# The records that quick modules declare, and that are found with those of memory.
__all__ = ["Exposure", "Outcome", "Remembered", "Scope"]
LessonKind = Literal["check", "error", "example", "reflection", "strategy"]
LESSON_KINDS: tuple[LessonKind, ...] = get_args(LessonKind)
# What shows that a lesson holds, from the least to the most: nothing failed in its run;
# a call failed once, in a run that went on; the whole run failed; what it says put a
# failure right; a check, a caller or a person said it. That a failure came back, its
# count says.
Evidence = Literal["nothing failed", "once", "failed run", "put right", "said"]
EVIDENCE: tuple[Evidence, ...] = get_args(Evidence)
# The least evidence with which an agent is told a lesson by its task.
LEAST_TOLD_EVIDENCE: Evidence = "failed run"
EPISODE_LESSON_KINDS = ("reflection", "strategy")  # the kinds of lessons from episodes


def clip(text: str) -> str:
    """Redact a text's secrets, then cut it to `MAX_STORED_TEXT_CHARS` characters."""
    return redact(text)[:MAX_STORED_TEXT_CHARS]


# Raise it with every change after which a text has another digest.
SIGNATURE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Signature:
    """The name of an error.

    `exact` is the first 16 hex digits of the SHA-256 of `type:text`, the text stripped
    and in lower case. `pattern` is the text with its particulars masked; `digest` is
    made from type and pattern in the same way. Of a stack trace, `pattern` has the
    exceptions, the frames, and only what distinguishes errors of one exception;
    `message` is the message with its particulars masked. Without a trace, both are
    equal. Digests of one `version` are comparable.
    """

    exact: str
    pattern: str
    _: KW_ONLY
    digest: str
    error_type: str = field(default="", compare=False)
    message: str = field(default="", compare=False)
    version: int = SIGNATURE_VERSION

    def __post_init__(self) -> None:
        if not self.message:
            object.__setattr__(self, "message", self.pattern)

    @classmethod
    def of(cls, error_type: str, pattern: str) -> "Signature":
        """Return the name of something that has this pattern and no other text."""
        digest = digest_of(error_type, pattern)
        return cls(digest, pattern, digest=digest, error_type=error_type)

    @property
    def figures(self) -> Figures:
        """Whether the numbers in an error's text distinguish it from other errors.

        "content" if some are part of the pattern, as in "4.2, not 12": with another
        number it is another error. "particulars" if all are masked, so that they make
        no difference. "" without numbers.
        """
        if re.search(r"(?<![\w.])\d", self.pattern):  # no mask has replaced it
            return "content"
        return "particulars" if "<N>" in self.message else ""


@dataclass(frozen=True, slots=True)
class Example:
    """A task, its rejected output, what was wrong with that, and the accepted output.

    `rejected` and `wrong` are empty if the first output was accepted. `before` and
    `after` are the scores of the two outputs. `evidence` and `fix` are those of the
    finding. `rule` is the finding without particulars of the task: the check states it
    (`stated`), or blanks replace the particulars. `context` is text around the task.
    `model` is the model that wrote the rejected output, or else the accepted one; "" if
    it is unknown. `rung` is the rung that wrote the accepted output, or else the
    rejected one.
    """

    task: str
    accepted: str
    _: KW_ONLY
    rejected: str = ""
    wrong: str = ""
    before: Mapping[str, float] = field(default_factory=dict)
    after: Mapping[str, float] = field(default_factory=dict)
    evidence: str = ""
    context: str = ""
    fix: str = ""
    rule: str = ""
    stated: bool = False
    model: str = ""
    rung: int = 1

    @property
    def difference(self) -> str:
        """The smallest change from `rejected` to `accepted`; "" without `rejected`."""
        return difference(self.rejected, self.accepted) if self.rejected else ""

    @property
    def digest(self) -> str:
        """The digest of task and accepted output; it names an example of a lesson.

        If the example has no output, as that of a stage, its finding counts instead.
        """
        outcome = self.accepted if self.has_output else f"{self.wrong}\0{self.fix}"
        return short_digest(f"{self.task}\0{outcome}")

    @property
    def has_output(self) -> bool:
        """Whether the rejected or the accepted output is known."""
        return bool(self.accepted or self.rejected)


# A rule is shown to only one loop in `REMINDER_INTERVAL_LOOPS` if `MIN_UNBROKEN_CASES`
# were shown it and kept it, or if the loops that did not fix it exceed those that did
# by more than `MAX_FAILED_LOOPS`.
MAX_FAILED_LOOPS = 2
REMINDER_INTERVAL_LOOPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A rule that loops with one memory key broke; later loops are shown its lesson.

    `rule` identifies the rule within the key, `checks` name the checks that may have
    found the mistake, and `severity` is the highest of its findings. `check_id`
    identifies the check that found it last, in all functions that this check guards.
    `fix` is 1 if a check said what to do. `loops` counts the loops that broke the rule,
    and `mended` those that put it right. `quiet` counts the loops that were
    shown the rule and have kept it since it was last broken; once it is
    `MIN_UNBROKEN_CASES`, it counts all loops of the key. It `varies` if the fix differs
    from task to task.
    """

    memory_key: str
    rule: str
    checks: tuple[str, ...] = ()
    check_id: str = ""
    severity: float = 0.5
    fix: int = 0
    loops: int = 1
    mended: int = 0
    quiet: int = 0
    varies: bool = False

    def says_fix(self, verified: bool) -> bool:
        """Return whether the words of the rule say what to do.

        They do not if the fix differs from task to task. Otherwise they do if there is
        a fix, or if with them as feedback most of the loops that broke the rule, and at
        least two, put it right. The latter counts only if the lesson is `verified`,
        which means that one of these loops passed: others may have made another mistake
        instead.
        """
        has_mended = verified and self.mended >= 2 and self.mended * 2 > self.loops
        return not self.varies and (self.fix > 0 or has_mended)

    def rests(
        self,
        task: str,
        checks: Sequence[str],
        verified: bool,
        check_ids: Sequence[str] = (),
    ) -> Reason | None:
        """Return why a loop is not shown this rule, which others broke, or None.

        None means that the loop may be shown it. `checks` are the names of the loop's
        checks. `check_ids` identify them together with their arguments, if these are
        known: a rule such as "at most 80 words" is for no loop with another limit.
        `verified` is true if a loop broke the rule and then passed. The `task` decides
        which loops are reminded of a rule that feedback seldom fixes.
        """
        if checks and self.checks and set(checks).isdisjoint(self.checks):
            return Reason("other check", figures={"check": self.checks[0]})
        if check_ids and self.check_id and self.check_id not in check_ids:
            return Reason("other check", figures={"check": self.check_id})

        was_fixed = verified or self.mended > 0
        if not was_fixed and not self.fix:
            return Reason("never fixed", figures={"loops": self.loops})
        if not was_fixed and self.loops < 2:
            return Reason("broken once")

        figures = {
            "mended": self.mended,
            "loops": self.loops,
            "quiet": self.quiet,
            "interval": REMINDER_INTERVAL_LOOPS,
        }
        # How many more loops failed to fix the rule than fixed it.
        excess = (self.loops - self.mended) - self.mended
        if excess > MAX_FAILED_LOOPS and not self._reminds(task):
            return Reason("seldom fixed", figures=figures)
        # Loops that keep the rule anyway are reminded now and then.
        if self.quiet >= MIN_UNBROKEN_CASES and self.quiet % REMINDER_INTERVAL_LOOPS:
            return Reason("kept", figures=figures)
        return None

    def _reminds(self, task: str) -> bool:
        """Return True for the tasks of one loop in `REMINDER_INTERVAL_LOOPS`.

        They are others whenever the rule was broken again.
        """
        digest = digest_of(self.rule, f"{self.loops}\0{task}")
        return int(digest[:8], 16) % REMINDER_INTERVAL_LOOPS == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonRun:
    """The run that a lesson was drawn from, and who drew it.

    `by` is the author of the words: "rules", "dream", "caller", or the name of a model;
    `confidence` and `rated`, the importance, are the author's own figures, 0..1. The
    run ended with this `outcome` and `error_category` after so many `events`; `session`
    and `episode` identify it. `cited_events` are the ids of the events that show what
    the lesson says, `related` are ids that a caller gave. `model_error` says why the
    answer of a model was not used.
    """

    by: str
    confidence: float = 0.5
    rated: float | None = None
    outcome: str = ""
    error_category: str = ""
    events: int = 0
    session: str = ""
    episode: str = ""
    cited_events: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    model_error: str = ""

    @classmethod
    def read(cls, text: str) -> "LessonRun | None":
        """Return the run in the JSON of a store; None for ""."""
        if not text:
            return None
        values = json.loads(text)
        lists = {name: tuple(values[name]) for name in ("cited_events", "related")}
        return cls(**{**values, **lists})


@dataclass(frozen=True, slots=True, repr=False)
class Lesson:
    """A lesson to store: signature, text, trust and state, and at most one example.

    `kind` is "check" for a corrected finding, "example" for an accepted first output,
    "error" for an error that a caller remembered, and "reflection" or "strategy" for a
    lesson from an episode. `sighting` is the exact text of this occurrence. A search by
    words also reads `context`. `vector` is the embedding of the example's task, or of
    `text` without an example; `space` names the embedder. `source` names the origin of
    the text, `sources` name others that it depends on, `parents` are the ids of
    examples that this lesson is derived from. `cause` is the rule that the loop broke,
    if loops with its `memory_key` recall it. `mistake` is what went wrong, as a record;
    then `text` has its words. `evidence` says what shows that it holds, and `run` is
    the run that it was drawn from; a correction (`is_correction`) is found by its own
    words, because a person said them. `data` is further JSON data of the caller, which
    is returned as it is. A text from outside that a person released stays from outside:
    `released_by` says who did, and `released_at` when, in seconds since 1970.
    """

    kind: str
    signature: Signature
    _: KW_ONLY
    error_type: str
    text: str
    sighting: str
    loop: str = ""
    example: Example | None = None
    state: State = "unverified"
    trust: Origin = "local"
    importance: float = 0.5
    tags: tuple[str, ...] = ()
    space: str = ""
    vector: Sequence[float] | None = None
    context: str = ""
    source: str = ""
    parents: tuple[int, ...] = ()
    pinned: bool = False
    evidence: Evidence = "said"
    is_correction: bool = False
    run: LessonRun | None = None
    data: Fields = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    cause: Cause | None = None
    memory_key: str = ""
    mistake: Mistake | None = None
    released_by: str = ""
    released_at: float = 0.0

    _repr_html_ = html_form

    def __repr__(self) -> str:
        return line_text("Lesson", kind=self.kind, state=self.state, text=self.text)

    def __str__(self) -> str:
        lines = [f"{self.kind}, {self.state}, trust {self.trust}: {self.text}"]
        if self.memory_key:
            lines.append(f"key: {self.memory_key}")
        return screen_text([*lines, *_example_lines(self.example)])


def _example_lines(example: Example | None) -> list[str]:
    """Return a line for each text of an example that is not empty, with its name."""
    if example is None:
        return []
    texts = {
        "task": example.task,
        "rejected": example.rejected,
        "wrong": example.wrong,
        "fix": example.fix,
        "accepted": example.accepted,
    }
    return [f"{name}: {text}" for name, text in texts.items() if text]


@refuses_unknown_options
@dataclass(frozen=True, slots=True)
class Filter:
    """The lessons that a search may return; the default of a field allows all lessons.

    A lesson needs one of the `tags`, or all with `match="all"`. `importance` is the
    minimum, 0..1. `since` is the earliest time of storage, in seconds since 1970.
    Raises InvalidInput.
    """

    tags: Sequence[str] = ()
    match: Literal["any", "all"] = "any"
    _: KW_ONLY
    kind: str | tuple[str, ...] = ""
    error_type: str = ""
    importance: float = 0.0
    since: float = 0.0

    def __post_init__(self) -> None:
        """Check all fields, and replace `tags` and `kind` by tuples."""
        check_sequence("tags", self.tags, str, "a sequence of tags, each a text")
        require(all(self.tags), "tags", self.tags, "a sequence of tags, each a text")
        require(self.match in ("any", "all"), "match", self.match, "any or all")
        kinds = (self.kind,) if isinstance(self.kind, str) else self.kind
        kinds = tuple(filter(None, kinds))
        are_kinds = all(kind in LESSON_KINDS for kind in kinds)
        require(are_kinds, "kind", self.kind, f"one of {', '.join(LESSON_KINDS)}")
        object.__setattr__(self, "tags", tuple(self.tags))
        object.__setattr__(self, "kind", kinds)

        is_text = isinstance(self.error_type, str)
        require(is_text, "error_type", self.error_type, "the type of an error, a text")
        check_share("importance", self.importance)
        check_number("since", self.since, low=0, high=MAX_SCORE)


ANY_LESSON = Filter()


@dataclass(frozen=True, slots=True, repr=False)
class Match:
    """An example that a search found, or a lesson without one: its text is the task.

    `cosine` compares the vectors of query and example (-1..1; None without vectors).
    `keyword` is the BM25 score divided by the best one (0..1; None if full text search
    did not find it). `coverage` is the weighted share of the query's words that the
    example contains (0..1). `overlap` is the cosine of the query's set of words and
    that of the example's task (0..1, without vectors). `seen` counts the sightings of
    the lesson, `lesson_id` is its id, `lesson` its text, `signature` the digest of
    its pattern. `at` is the time of storage of the example, and `last_seen` that of the
    last sighting of the lesson, in seconds since 1970.
    `useful` is the factor by which proven usefulness changes the rank. `state` and
    `trust` are those of the example; `evidence`, `is_correction`, `run` and `data` are
    those of the lesson, as in `Lesson`. It `has_ended` if it only says that a call
    failed, and the call has worked since. A text from outside was released by
    `released_by` at `released_at`, "" and 0 if it waits.
    Only `Memory.query` returns examples that are quarantined.

    `cause` is set if the memory key of a loop found the lesson; then `worked` has the
    output that broke the rule and the accepted output, unless they are long. `own` is
    true if the loop that asks has the memory key of the example, and the key has rules.
    `rule_keys` are the memory keys whose loops broke the rule; the `cause` counts these
    loops. `memory_key` is the key of the example's loop. `unfit_for` are the models
    whose loops it provably hurts.
    """

    id: int
    lesson_id: int
    _: KW_ONLY
    example: Example
    kind: str
    state: State
    seen: int
    importance: float
    at: float
    last_seen: float = 0.0
    cosine: float | None = None
    keyword: float | None = None
    coverage: float = 0.0
    overlap: float = 0.0
    error_type: str = ""
    lesson: str = ""
    tags: tuple[str, ...] = ()
    signature: str = ""
    useful: float = 1.0
    trust: Origin = "user"
    released_by: str = ""
    released_at: float = 0.0
    evidence: Evidence = "said"
    is_correction: bool = False
    has_ended: bool = False
    run: LessonRun | None = None
    data: Fields = field(default_factory=dict)
    cause: Cause | None = None
    worked: Example | None = None
    own: bool = False
    rule_keys: tuple[str, ...] = ()
    memory_key: str = ""
    unfit_for: tuple[str, ...] = ()
    # The example that the words of `lesson` come from; no answer of the API has it.
    author: int | None = None

    _repr_html_ = html_form

    def __repr__(self) -> str:
        return line_text(
            "Match", lesson_id=self.lesson_id, state=self.state, lesson=self.lesson
        )

    def __str__(self) -> str:
        head = f"lesson {self.lesson_id}, {self.state}, seen {self.seen}: {self.lesson}"
        return screen_text([head, *_example_lines(self.example)])

    @property
    def relevance(self) -> float:
        """How well the match fits the query, 0..1.

        It is the mean of `coverage`, the share of the query's words that it has, and
        `cosine`, the likeness of the vectors. Without a vector it is `coverage` times
        `keyword`, the score of the full text search.
        """
        if self.cosine is None:
            return self.coverage * (self.keyword or 0.0)
        return (self.coverage + max(0.0, self.cosine)) / 2

    @property
    def refusal(self) -> str:
        """What a check said of one task whose loop did not pass; "" for others."""
        if self.kind != "check" or self.cause or self.example.accepted:
            return ""
        return "\n".join(filter(None, [self.example.wrong, self.example.fix]))

    @property
    def is_from_run(self) -> bool:
        """True if the lesson was drawn from a run."""
        return self.kind in EPISODE_LESSON_KINDS

    @property
    def is_confirmed(self) -> bool:
        """True if a person wrote or released the example."""
        return standing_of(self.trust, self.released_by) == "user"

    @property
    def verified(self) -> bool:
        """True if paired evidence verified the example."""
        return self.state == "verified"

    @property
    def release(self) -> str:
        """The command that releases the example from quarantine; "" if not there."""
        return release_command([self.id]) if self.state == "quarantined" else ""


def claimed_importance(lesson: Lesson | Match) -> float:
    """Return the importance that a lesson's author claims, by default heedful's own."""
    if lesson.run is not None and lesson.run.rated is not None:
        return lesson.run.rated
    return lesson.importance


class Matches(list[Match]):
    """What a search found, best first, and why if it found nothing.

    `silence` is "" if there are matches. Otherwise it names the nearest lesson, what
    keeps it back, and the command that changes that.
    """

    def __init__(self, matches: Iterable[Match] = (), silence: str = "") -> None:
        super().__init__(matches)
        self.silence = silence

    _repr_html_ = html_form

    def __str__(self) -> str:
        lines = [f"{match.lesson_id}: {match.lesson}" for match in self]
        return screen_text(lines or [self.silence])


DREAM_AUTHOR = "dream"  # of the reflections that dreams write, and their source
# The authors of lessons that are not named by anybody else.
OWN_AUTHORS = frozenset({"rules", DREAM_AUTHOR, "caller"})


def check_source(source: str) -> str:
    """Return a source's name. Raises InvalidInput if it is too long or no string."""
    if not isinstance(source, str) or len(source) > MAX_SOURCE_NAME_CHARS:
        raise InvalidInput(
            "source", source, f"a name of at most {MAX_SOURCE_NAME_CHARS} characters"
        )
    return source


def check_memory(
    text: str,
    trust: str,
    importance: object,
    tags: object,
    example: Example | None,
    parents: object,
    pinned: object,
) -> None:
    """Raise InvalidInput for arguments of `Memory.remember` that cannot be stored.

    The error names the first argument that is wrong, and what is allowed. `parents` is
    the argument `derived_from`.
    """
    require(text.strip(), "text", text, "the text of an error")
    check_share("importance", importance)
    check_sequence("tags", tags, str, "a sequence of tags, each a text")
    check_sequence("derived_from", parents, int, "ids of examples of this scope")
    if not isinstance(pinned, bool) or (pinned and trust != "user"):
        raise InvalidInput("pinned", pinned, "False unless the origin is user")
    if example is None:
        return

    require(isinstance(example, Example), "example", example, "an Example, or None")
    for item in fields(Example):
        if item.type is str:
            check_texts(**{f"example.{item.name}": getattr(example, item.name)})
    for name in ("before", "after"):
        scores = getattr(example, name)
        are_numbers = isinstance(scores, Mapping) and all(
            isinstance(score, int | float) and isfinite(score)
            for score in scores.values()
        )
        allowed = "a mapping of names to finite numbers"
        require(are_numbers, f"example.{name}", scores, allowed)
