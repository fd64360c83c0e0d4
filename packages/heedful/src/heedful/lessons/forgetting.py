"""What a person lets heedful forget, and what went. Pure."""

from dataclasses import KW_ONLY, asdict, dataclass
from datetime import UTC, datetime

from heedful.lessons.scope import short_digest
from heedful.validation import (
    MAX_SCORE,
    check_integer,
    check_number,
    check_texts,
    require,
)

TARGET_FORM = "given exactly one of lesson, person, loop and before"
# What may stand before the name of a person in a source.
PERSON_PREFIXES = ("user:", "operator:", "reviewer:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What to forget: a lesson, a person, a loop, all that is old, or a source.

    Exactly one of the fields is set. `lesson` is an id, `person` a name, with or
    without "user:" before it, `loop` an id, and `before` a time in seconds since 1970.
    Raises InvalidInput.
    """

    lesson: int | None = None
    person: str = ""
    loop: str = ""
    before: float | None = None
    source: str = ""

    def __post_init__(self) -> None:
        check_texts(person=self.person, loop=self.loop)
        texts = (self.person, self.loop, self.source)
        options = (self.lesson, self.before, *(text.strip() for text in texts))
        count = sum(option not in (None, "") for option in options)
        require(count == 1, "forget", f"{count} options", TARGET_FORM)
        if self.lesson is not None:
            check_integer("lesson", self.lesson)
        if self.before is not None:
            check_number("before", self.before, low=0.0, high=MAX_SCORE)

    @property
    def subject(self) -> str:
        """What the record of the forgetting says that it was about.

        Of a person's name and of a loop's id it has the digest.
        """
        if self.lesson is not None:
            return f"lesson {self.lesson}"
        if self.before is not None:
            return f"texts before {datetime.fromtimestamp(self.before, UTC):%Y-%m-%d}"
        if self.source:
            return self.source
        if self.loop:
            return f"loop {short_digest(self.loop)}"
        return f"person {short_digest(self.person_name)}"

    @property
    def person_name(self) -> str:
        """The name of the person, without what may stand before it in a source."""
        name = self.person.strip()
        for prefix in PERSON_PREFIXES:
            name = name.removeprefix(prefix)
        return name

    @property
    def person_sources(self) -> tuple[str, ...]:
        """The sources that are this person."""
        name = self.person_name
        return (name, *(f"{prefix}{name}" for prefix in PERSON_PREFIXES))


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How many rows were deleted or emptied, or would be.

    `prompts` counts the loops whose stored prompts had the words, and `reasons` what
    persons wrote about their decisions; both are emptied, and so are old `episodes`.
    `failures` counts failed calls of agents, `exposures` the lessons in prompts, the
    reminders and the offers of trials. `lesson_ids` and `loop_ids` name at most 50 of
    what went, `shared` as many lessons that stay with what others said, and `reopened`
    loops of others to which a key had added, and which are as before. `remains`
    says what of the words may still be in the files of the database and what to do, ""
    if nothing is.
    """

    examples: int = 0
    lessons: int = 0
    _: KW_ONLY
    sightings: int = 0
    loops: int = 0
    attempts: int = 0
    notes: int = 0
    prompts: int = 0
    reasons: int = 0
    episodes: int = 0
    traces: int = 0
    events: int = 0
    failures: int = 0
    exposures: int = 0
    outcomes: int = 0
    lesson_ids: tuple[int, ...] = ()
    loop_ids: tuple[str, ...] = ()
    reopened: tuple[str, ...] = ()
    shared: tuple[int, ...] = ()
    remains: str = ""

    def __bool__(self) -> bool:
        """Return True if anything went."""
        return any(count for _, count in self.counts)

    @property
    def counts(self) -> tuple[tuple[str, int], ...]:
        """The number of rows of each kind."""
        return tuple(
            (name, count)
            for name, count in asdict(self).items()
            if isinstance(count, int)
        )
