"""The rules that a user gave agents, as they are stored, and how they were kept. Pure.

What a rule forbids, `rule_parts` reads in its words when it is stated; it is stored
with the rule, so a hook before a call reads no words.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from typing import Literal, get_args

from heedful.lessons.commands import release_command
from heedful.lessons.origin import Origin
from heedful.lessons.scope import State, short_digest
from heedful.sanitize import delimit, delimiter, sanitize
from heedful.validation import MAX_SHOWN_ITEMS, Fields, typed_frozen

# The error type of the lessons that are rules of a user.
RULE_TYPE = "user rule"
# After so many days a rule comes last, with its date.
MAX_RULE_DAYS = 90
RULES_HEADING = "What the user said earlier, and still holds:"
BROKEN_HEADING = "This call breaks what the user said:"
DENIED_HEADING = "heedful denied this call, because the user said:"
Deed = Literal["kept", "broken", "denied"]
# What a call does with what a part names: "add" is to write it, into code or as a file.
PartDeed = Literal["use", "edit", "add"]
# The codes of the events that say which rules an agent was told at the start of its
# session, or before a call, or for which a call was denied.
TellingCode = Literal["rules at start", "rules told", "rules denied"]
TELLING_CODES: tuple[str, ...] = get_args(TellingCode)
# So often an agent breaks a rule after it was told, until a denial is proposed.
MIN_IGNORED = 2


@typed_frozen(slots=True, kw_only=True)
class RulePart:
    """What a rule forbids or wants: the words of a command, a path or a name in code.

    `deed` is what is done with it. It does not count in files that have the word
    `outside` in their path.
    """

    words: tuple[str, ...]
    deed: PartDeed = "use"
    outside: str = ""

    @classmethod
    def read(cls, data: Fields) -> "RulePart":
        """Return a part from its JSON data."""
        words = tuple(data["words"])
        return cls(words=words, deed=data["deed"], outside=data["outside"])

    @property
    def is_file(self) -> bool:
        """True if the part surely is a file or a folder, and no name in code."""
        text = " ".join(self.words)
        return re.fullmatch(r"\S*/\S*|\*\S*|\.[\w.-]+", text) is not None

    @property
    def is_code(self) -> bool:
        """True if a word of the part looks like code."""
        return not "".join(self.words).isalpha()

    def __str__(self) -> str:
        outside = f" outside of {self.outside}" if self.outside else ""
        return f"{' '.join(self.words)}{outside}"


@typed_frozen(slots=True)
class RuleParts:
    """The parts of a rule, in their order."""

    forbidden: tuple[RulePart, ...] = ()
    wanted: tuple[RulePart, ...] = ()

    @classmethod
    def read(cls, data: Fields) -> "RuleParts":
        """Return the parts of a rule from its JSON data."""
        forbidden = map(RulePart.read, data["forbidden"])
        wanted = map(RulePart.read, data["wanted"])
        return cls(tuple(forbidden), tuple(wanted))


@typed_frozen(slots=True, kw_only=True)
class RuleCall:
    """A call that kept or broke a rule, or was denied for it, and when.

    The agent `was_told` the rule before this call, or at this call.
    """

    deed: Deed
    call: str
    session: str
    at: float
    was_told: bool


@typed_frozen(slots=True, kw_only=True)
class RuleLedger:
    """How a rule was kept in the recorded sessions, since it was stated.

    It was told at so many `starts` of sessions, and `told` before so many calls. So
    many calls have `kept` it, which did what it wants, and `broken` it, which did what
    it forbids, told or not; of these, `ignored` came after the session was told, and
    `mixed` also did what the rule wants. `denied` calls did not run. `calls` are all of
    these calls, oldest first.
    """

    starts: int = 0
    told: int = 0
    kept: int = 0
    broken: int = 0
    denied: int = 0
    ignored: int = 0
    mixed: int = 0
    calls: tuple[RuleCall, ...] = ()

    @property
    def proposes_denial(self) -> bool:
        """True if agents break the rule although they are told.

        A denial that would block what the rule wants is refused, so none is proposed.
        """
        return self.ignored >= MIN_IGNORED and not self.mixed

    @property
    def words(self) -> str:
        """The figures for a person.

        >>> print(RuleLedger(starts=3, told=1, kept=5, broken=2).words)
        told 3 × at a start, 1 × before a call; kept 5, broken 2
        """
        denied = f", denied {self.denied}" if self.denied else ""
        return (
            f"told {self.starts} × at a start, {self.told} × before a call; "
            f"kept {self.kept}, broken {self.broken}{denied}"
        )


@typed_frozen(slots=True, kw_only=True)
class StatedRule:
    """A rule that a user has stated, as it is stored.

    `id`, `state` and `trust` are those of its lesson. The text of a rule that waits in
    quarantine is empty; `entry` is its id there. The user said it `seen` times, at
    first and last at the times `first_said` and `last_said`, in seconds since 1970; it
    `is_old` if that was `MAX_RULE_DAYS` ago. It was retired at the time `retired_at`, 0
    if it is told still. It `ended` older rules. Calls that break it are `denied` if the
    user wants it, and `allowed` if he decided against it. Its `parts` are what it
    forbids and wants, and what it wants is said as `instead`. `files` are the digests
    of the files that it names, by their paths, and `note` says which of them changed
    since. A rule for all projects holds `everywhere`. `ledger` says how it was kept,
    where that was asked.
    """

    text: str
    id: int = 0
    state: State = "unverified"
    trust: Origin = "user"
    seen: int = 1
    first_said: float = 0.0
    last_said: float = 0.0
    entry: int = 0
    is_old: bool = False
    retired_at: float = 0.0
    ended: tuple[str, ...] = ()
    denied: bool = False
    allowed: bool = False
    parts: RuleParts = RuleParts()
    instead: str = ""
    files: Mapping[str, str] = field(default_factory=dict, compare=False)
    note: str = ""
    everywhere: bool = False
    ledger: RuleLedger = field(default=RuleLedger(), compare=False)

    @property
    def digest(self) -> str:
        """The digest by which a session remembers that it was told the rule."""
        return short_digest(self.text.lower())

    @property
    def forbids(self) -> bool:
        """True if the rule forbids something that a call shows."""
        return bool(self.parts.forbidden)

    @property
    def in_force(self) -> bool:
        """True if agents are told the rule."""
        return self.state in ("unverified", "verified")

    @property
    def line(self) -> str:
        """The rule for an agent, with its date if it is old, and with its note."""
        day = datetime.fromtimestamp(self.last_said, UTC)
        date = f" (said on {day:%Y-%m-%d})" if self.is_old else ""
        return f"{self.text}{date}{self.note}"

    @property
    def release(self) -> str:
        """The command that releases the rule from quarantine; "" if it is not there."""
        return release_command([self.entry])


def rules_text(rules: Sequence[StatedRule], heading: str = RULES_HEADING) -> str:
    """Return rules as a text for an agent, after a heading; "" without rules.

    They stand between random delimiters, which no rule can imitate. These are at most
    `MAX_SHOWN_ITEMS` rules.
    """
    lines = []
    for stated in rules[:MAX_SHOWN_ITEMS]:
        instead = f" (instead: {stated.instead})" if stated.instead else ""
        lines.append(f"- {stated.line}{instead}")
    if not lines:
        return ""
    texts = {"rules": sanitize("\n".join(lines))}
    return "\n".join([heading, *delimit(delimiter("user", texts), texts)])
