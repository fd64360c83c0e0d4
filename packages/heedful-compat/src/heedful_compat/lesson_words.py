"""The words of earlier systems for the origin and the state of a lesson."""

from collections.abc import Mapping
from typing import Literal

from heedful.lessons.origin import Origin, read_origin
from heedful.lessons.scope import JudgedState, State

# A state in the answers of earlier systems.
EarlierState = Literal["candidate", JudgedState]
_ORIGINS_BY_EARLIER_WORD: Mapping[str, Origin] = {
    "operator": "user",
    "measured": "local",
    "model": "local",
    "tool": "outside",
    "external": "outside",
}


def read_trust(word: str) -> Origin:
    """Return the origin that a word means, also a word of earlier systems.

    Raises InvalidInput.

    >>> read_trust("operator"), read_trust("local")
    ('user', 'local')
    """
    return _ORIGINS_BY_EARLIER_WORD.get(word) or read_origin(word, "trust")


def earlier_state(state: State) -> EarlierState:
    """Return the state of a lesson in the words of earlier systems.

    >>> earlier_state("unverified"), earlier_state("verified")
    ('candidate', 'verified')
    """
    return "candidate" if state == "unverified" else state
