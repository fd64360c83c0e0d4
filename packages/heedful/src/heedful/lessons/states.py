"""The states of a lesson, and what leads from one to the next. Pure.

An agent is told what is unverified or verified. A text from outside is quarantined
until a person decides about it; what a person or a proof ended is retired, and what
other words or another lesson replaced is superseded. Each change of a state in the
store is a row of `TRANSITIONS`.
"""

from collections.abc import Mapping
from typing import Literal

from heedful.lessons.scope import State

Change = Literal[
    "bring back",
    "reject",
    "release",
    "restore",
    "retire",
    "supersede",
    "undo",
    "verify",
]
# For each change, the states that it changes, and what they become.
TRANSITIONS: Mapping[Change, Mapping[State, State]] = {
    # Paired evidence: the same evaluator scored what the lesson led to better.
    "verify": {"unverified": "verified"},
    # A person decides about a text from outside, or takes the decision back.
    "release": {"quarantined": "unverified"},
    "reject": {"quarantined": "retired"},
    "undo": {"unverified": "quarantined", "retired": "quarantined"},
    # A person or a proof ends a lesson, or a person brings it back.
    "retire": {"unverified": "retired", "verified": "retired"},
    "restore": {"retired": "unverified"},
    # Other words take the place of these, or make way for them again.
    "supersede": {"unverified": "superseded", "verified": "superseded"},
    "bring back": {"superseded": "unverified"},
}


def after(change: Change, state: State) -> State:
    """Return the state of a lesson after a change.

    A state that the change does not concern stays.

    >>> after("retire", "verified"), after("retire", "quarantined")
    ('retired', 'quarantined')
    """
    return TRANSITIONS[change].get(state, state)
