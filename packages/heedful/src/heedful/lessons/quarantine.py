"""What waits in quarantine: a text from outside, until a person decides about it. Pure.

Its entry has the lesson, the example and the source.
"""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, get_args

from heedful.lessons.lesson import Example, Lesson, clip
from heedful.lessons.mistake import FixKind
from heedful.lessons.origin import NETWORK_SOURCE, ORIGINS, Origin, names_to_state
from heedful.lessons.scope import State
from heedful.validation import Fields

Action = Literal["release", "reject"]
MAX_QUARANTINE_TAGS = 20  # tags of a lesson in quarantine
# What a record says in heedful's own words: digests, kinds of fixes, and origins.
_CODE_PATTERN = re.compile(
    "|".join(("[0-9a-f]{16}(?:[0-9a-f]{48})?", *get_args(FixKind), *ORIGINS))
)


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of an example: its sources, and the ids of its parents and children.

    `sightings` are the newest sightings of its lesson: `text`, `source`, `trust`,
    `loop`, and `at`, in seconds since 1970. `rulings` are the decisions of operators
    about it.
    """

    sources: tuple[str, ...] = ()
    parents: tuple[int, ...] = ()
    _: KW_ONLY
    children: tuple[int, ...] = ()
    sightings: tuple[Fields, ...] = ()
    rulings: tuple[Fields, ...] = ()

    def names_to_state(self, stated: Set[str]) -> tuple[str, ...]:
        """Return the sources that an operator can trust by name to free the example.

        `stated` are the sources that are trusted by name already. There is none for
        text of unknown origin, for what derives from another example, and if only the
        caller said that the text is from outside: about these, a person decides one by
        one.
        """
        if self.parents or NETWORK_SOURCE in self.sources:
            return ()
        return names_to_state(self.sources, stated)


@dataclass(frozen=True, slots=True)
class FreedText:
    """A text that the release of an entry frees, and the `part` of the entry it is."""

    part: str
    text: str


@dataclass(frozen=True, slots=True)
class QuarantinedLesson:
    """An entry in quarantine: the lesson, its example and its source.

    `id` is the id of the example's row. `example` is None if no prompt shows its words.
    `source` is the source of this entry, and `seen` counts the sightings of its
    pattern. `texts` are all texts that its release frees. It was released by
    `released_by` at `released_at`, in seconds since 1970; "" and 0 if nobody did.
    """

    id: int
    kind: str
    _: KW_ONLY
    error_type: str
    signature: str
    pattern: str
    lesson: str
    example: Example | None
    state: State
    trust: Origin
    source: str
    tags: tuple[str, ...]
    importance: float
    seen: int
    at: float
    released_by: str = ""
    released_at: float = 0.0
    texts: tuple[FreedText, ...] = ()
    provenance: Provenance = field(default_factory=Provenance)

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of this entry, one by one."""
        return tuple(self.source.split(", "))


def freed_texts(parts: Fields) -> tuple[FreedText, ...]:
    """Return all texts that prompts may have once a person releases an entry.

    `parts` has the parts of the entry by name; a part may be a record or a list, and
    its texts are joined by line ends. Each text is returned once. Digests are left out,
    and heedful's own words for kinds and origins, which nobody from outside wrote.
    """
    freed: list[FreedText] = []
    for part, value in parts.items():
        texts: list[str] = []
        for text in texts_in(value):
            is_listed = text in texts or any(text == other.text for other in freed)
            if text.strip() and not is_listed and not _CODE_PATTERN.fullmatch(text):
                texts.append(text)
        if texts:
            freed.append(FreedText(part, "\n".join(texts)))
    return tuple(freed)


def texts_in(value: Any) -> Iterator[str]:
    """Yield all texts in a value: in records, lists and mappings at any depth.

    The keys of mappings are yielded too, because they may be from outside as well. Of
    other values, such as numbers, there is nothing to yield.
    """
    if isinstance(value, str):
        yield value
    elif is_dataclass(value):
        for item in fields(value):
            yield from texts_in(getattr(value, item.name))
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from texts_in(name)
            yield from texts_in(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from texts_in(item)


def initial_state(
    origin: Origin, state: State = "unverified", released_by: str = ""
) -> State:
    """Return the state of a new lesson: "quarantined" if from outside, else `state`.

    In quarantine a text waits for a person to release it. A text from outside does not
    wait if `released_by` names the person who did so already.
    """
    return "quarantined" if origin == "outside" and not released_by else state


def clip_lesson(lesson: Lesson) -> Lesson:
    """Return a lesson for quarantine, its texts redacted and cut to the stored length.

    A sender of texts from outside must not fill the store. Tags after the first
    `MAX_QUARANTINE_TAGS` are left out.
    """
    example = lesson.example
    if example is not None:
        example = replace(
            example,
            task=clip(example.task),
            accepted=clip(example.accepted),
            rejected=clip(example.rejected),
            wrong=clip(example.wrong),
            evidence=clip(example.evidence),
            context=clip(example.context),
        )

    tags = tuple(map(clip, lesson.tags[:MAX_QUARANTINE_TAGS]))
    return replace(
        lesson,
        example=example,
        tags=tags,
        error_type=clip(lesson.error_type),
        context=clip(lesson.context),
    )
