"""To whom lessons belong, and how they are named.

Everything of memory needs these; a hook process, which starts for each event, needs no
more. The records of lessons, which take longer to import, are in `lesson`, which has
all names of this module, too.
"""

import hashlib
from dataclasses import KW_ONLY, asdict
from typing import Literal

from heedful.errors import InvalidInput
from heedful.lessons.commands import option_words, quote_words, release_command
from heedful.lessons.origin import Origin
from heedful.lessons.words import compiled
from heedful.redact import redact
from heedful.validation import refuses_unknown_options, require, typed_frozen

JudgedState = Literal["verified", "quarantined", "retired", "superseded"]
State = Literal["unverified", JudgedState]
Figures = Literal["", "content", "particulars"]
# The states of lessons that an agent is told; the words of others are for people.
TOLD_STATES: tuple[State, ...] = ("unverified", "verified")
# A run that ended so has failed, whatever word its format had for it.
FAILED_OUTCOMES = frozenset({"failure", "error", "timeout"})
MAX_SOURCE_NAME_CHARS = 500
DAY_SECONDS = 86_400.0
# Of an error or an action; a longer error is read at its ends, where errors are named.
MAX_READ_CHARS = 4_096
# So many runs must have done or met the same, before it is more than their moment.
MIN_SAME_RUNS = 2
# The lessons in a prompt, and before a call.
MAX_PROMPT_LESSONS = 3
# Cases that show a rule by themselves: after 20 without an exception, fewer than 3 in
# 20 are exceptions (rule of three). A share of fewer says nothing.
MIN_UNBROKEN_CASES = 20
PROMPT_BUDGET_TOKENS = 600  # about 2,300 characters of English
DEFAULT_HOLDOUT_SHARE = 0.10  # the default probability of withholding a lesson
# How a command begins that reads or changes the lessons of one scope. It may have other
# settings before it.
_LESSON_COMMAND_PATTERN = (
    r"\b(?:HEEDFUL_\w+=\S+ )*"
    r"heedful (?:quarantine|lessons|proof|trust)\b"
)


@refuses_unknown_options
@typed_frozen(slots=True)
class Scope:
    """A tenant and one of its projects; memory and loops belong to one scope."""

    tenant: str = "default"
    project: str = "default"

    def __post_init__(self) -> None:
        """Raise InvalidInput unless both names are short, printable and no secret."""
        for name in ("tenant", "project"):
            value = getattr(self, name)
            if not value or len(value) > 200 or not value.isprintable():
                raise InvalidInput(name, value, "1 to 200 printable characters")
            if value != redact(value):
                raise InvalidInput(
                    name, value, "without a secret, because it is not redacted"
                )

    def __str__(self) -> str:
        return f"{self.tenant}/{self.project}"

    @property
    def seed(self) -> str:
        """The text from which draws and digests of this scope are made."""
        return f"{self.tenant}\0{self.project}"


DEFAULT_SCOPE = Scope()


def short_digest(text: str) -> str:
    """Return the first 16 hex digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


# The source of what the run or session with the following name taught.
EPISODE_SOURCE_PREFIX = "episode:"


def source_of(session: str) -> str:
    """Return the name of a session as the source of what derives from it."""
    return f"{EPISODE_SOURCE_PREFIX}{session}"[:MAX_SOURCE_NAME_CHARS]


def digest_of(error_type: str, pattern: str) -> str:
    """Return the digest of an error type and a pattern; it identifies a lesson."""
    return short_digest(f"{error_type}\0{pattern}")


def lesson_name(kind: str, signature: str) -> str:
    """Return the name of a lesson in exposures, rulings and proofs.

    >>> lesson_name("error", "0123456789abcdef")
    'error/0123456789abcdef'
    """
    return f"{kind}/{signature}"


def told_mark(lesson: int) -> str:
    """Return the mark of a reader who was told a lesson.

    >>> told_mark(7)
    'told lesson 7'
    """
    return f"told lesson {lesson}"


def reader_of(session: str, agent: str) -> str:
    """Return the name of an agent in a session, "" for its main one, as a reader.

    A reader knows what it was told until it loses its context.
    """
    return f"{session}/{agent}" if agent else session


@typed_frozen(slots=True)
class Remembered:
    """The result of storing a lesson: its id, whether it is new, and its sightings.

    `updated` is true if its words or its fix replaced older ones, which are kept.

    `seen` counts the sightings of this pattern only; `Memory.seen` counts those of its
    whole group. `state` and `trust` are those of the stored text. If the text waits in
    quarantine, `entry` is its id there, and `release` the command that releases it. If
    the same error with other figures is another lesson, `figures` is "content"; if it
    is the same lesson, "particulars". If memory is full and all stored lessons are
    pinned or worth more than the new one, `id` and `seen` are 0.
    """

    id: int
    created: bool
    _: KW_ONLY
    updated: bool = False
    seen: int
    state: State = "unverified"
    trust: Origin = "user"
    entry: int = 0
    figures: Figures = ""

    @property
    def release(self) -> str:
        """The command that releases the text from quarantine; "" if it is not there."""
        return release_command([self.entry])


def name_tenant(command: str, tenant: str) -> str:
    """Return a command line with the option --tenant at its end.

    It is left out for the default tenant, and of the empty command "".

    >>> name_tenant("heedful quarantine list", "--help")
    'heedful quarantine list --tenant=--help'
    """
    if not command or tenant == DEFAULT_SCOPE.tenant:
        return command
    return f"{command} {quote_words(option_words('tenant', tenant))}"


def name_scope(text: str, scope: Scope) -> str:
    """Return a text whose commands about lessons name their scope, so that they work.

    Before each such command stand its tenant and project as settings of the
    environment, which every command reads, also one without the option --tenant. A
    tenant or project that is the default is left out.

    >>> name_scope("heedful lessons reembed", Scope("acme", "our docs"))
    "HEEDFUL_TENANT=acme HEEDFUL_PROJECT='our docs' heedful lessons reembed"
    >>> name_scope("it was retired: heedful proof --restore 1", Scope("acme"))
    'it was retired: HEEDFUL_TENANT=acme heedful proof --restore 1'
    """
    settings = [
        f"HEEDFUL_{name.upper()}={quote_words([value])} "
        for name, value in asdict(scope).items()
        if value != getattr(DEFAULT_SCOPE, name)
    ]
    return compiled(_LESSON_COMMAND_PATTERN).sub(
        lambda command: f"{''.join(settings)}{command[0]}", text
    )


def check_holdout(holdout: object) -> None:
    """Raise InvalidInput unless `holdout` is a share of at least 0 and below 1."""
    is_share = isinstance(holdout, int | float) and 0 <= holdout < 1
    require(is_share, "holdout", holdout, "a share of at least 0 and below 1")
