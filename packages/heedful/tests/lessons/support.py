"""Examples that a search might have brought."""

from collections.abc import Iterable, Sequence
from typing import Any

from heedful.lessons.lesson import Example, Match
from heedful.lessons.ranking import (
    candidates_for_question,
    tell_prompt,
)
from heedful.lessons.scope import PROMPT_BUDGET_TOKENS
from heedful.lessons.telling import Situation, TellingBudget, tell


def build_match(id: int, task: str, accepted: str = "answer", **fields: Any) -> Match:
    fields = {"kind": "check", "seen": 1, "importance": 0.5, "at": 0.0, **fields}
    fields["state"] = "verified" if fields.pop("verified", True) else "unverified"
    return Match(id, id, example=Example(task, accepted), **fields)


def rank(found: Iterable[Match], limit: int, now: float = 0.0) -> list[Match]:
    """Return the lessons that answer a question, best first."""
    situation = Situation(
        moment="question", budget=TellingBudget(lessons=limit, unchecked=limit)
    )
    telling = tell(situation, candidates_for_question(found, now))
    return [candidate.record for candidate in telling.told]


def choose(
    found: Sequence[Match],
    budget: int = PROMPT_BUDGET_TOKENS,
    advice: bool = False,
    seed: int = 0,
) -> list[Match]:
    """Return the lessons of a prompt, best first; with `advice` also rules."""
    telling = tell_prompt(found, 0.0, budget, advice=advice, seed=seed)
    return [candidate.record for candidate in telling.told]
