"""What grounding says of one piece of a text. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["number", "date", "name", "comparison", "statement"]
Verdict = Literal["supported", "contradicted", "not found"]


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim at `span` (characters, half open) and what the evidence says of it.

    `paths` are the places of the evidence that it was held against, `nearest` the true value there
    as text, "" where there is none; `why` says in a few words what it was bound to. `judge` is the
    name of the model whose verdict it is, "" where it is that of the rules.
    """

    span: tuple[int, int]
    text: str
    kind: Kind
    verdict: Verdict
    paths: tuple[str, ...] = ()
    nearest: str = ""
    why: str = ""
    judge: str = ""
