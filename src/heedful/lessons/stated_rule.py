"""A rule of a user as it is stored, and the words in which agents hear it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from heedful.lessons.scope import (
    State,
    Trust,
    release_command,
    short_digest,
)

# How far a rule reaches: this session, the project, or all projects of the user.
RuleReach = Literal["session", "project", "all"]
REACHES: tuple[RuleReach, ...] = ("session", "project", "all")
# An agent is shown at most this many rules, those that were said last.
MAX_SHOWN_RULES = 8
# The error types of the lessons that are rules of a user. Rules of a session are not
# stored as lessons.
RULE_TYPES: Mapping[RuleReach, str] = {
    "project": "user rule",
    "all": "user rule in all projects",
}
RULES_HEADING = "What the user said earlier, and still holds:"
BREACH_HEADING = "This goes against what the user said:"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedRule:
    """A rule that a user has stated, as it is stored.

    `id` is that of its lesson, 0 for a rule of a session only, and `state` and `trust`
    are those of the lesson. The text of a rule that waits in quarantine is empty;
    `entry` is its id there. The user said it in `seen` sessions, last at the time
    `last_said`, in seconds since 1970. Since then `broken` calls went against it,
    worked, and the user did not correct them. If it `denies`, hooks deny such calls.
    """

    text: str
    reach: RuleReach = "project"
    id: int = 0
    state: State = "unverified"
    trust: Trust = "operator"
    seen: int = 1
    last_said: float = 0.0
    broken: int = 0
    entry: int = 0
    denies: bool = False

    @property
    def words(self) -> str:
        """The text for an agent, which says whether it is for this session only."""
        if self.reach == "session":
            return f"{self.text} (for this session)"
        return self.text

    @property
    def digest(self) -> str:
        """The digest by which a session remembers the rule."""
        return short_digest(self.text.lower())

    @property
    def in_force(self) -> bool:
        """True if agents are held to the rule."""
        return self.state in ("unverified", "verified")

    @property
    def release(self) -> str:
        """The command that releases the rule from quarantine; "" if it is not there."""
        return release_command([self.entry])

    @property
    def doubt(self) -> str:
        """Why the rule may be obsolete, as a question; "" if nothing speaks for it."""
        if not self.broken:
            return ""
        times = "once" if self.broken == 1 else f"{self.broken} times"
        return f"broken {times} since without a word from you: still so?"


def rule_lines(rules: Sequence[StatedRule]) -> list[str]:
    """Return a line with each rule."""
    return [f"- {stated.words}" for stated in rules]
