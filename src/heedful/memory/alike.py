"""Lessons that mean nearly the same, as suggestions to a person: nothing is merged by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from heedful.memory.signature import Signature
from heedful.memory.templates import learnable

# From this cosine on two lessons may be one.
ALIKE = 0.85
_FACTS = ("id", "kind", "signature", "error_type", "text", "state", "seen")


def alike(
    lessons: Sequence[Mapping[str, Any]],
    vectors: Sequence[Sequence[float]],
    known: Iterable[Mapping[str, Any]],
) -> list[Mapping[str, Any]]:
    """Pairs of lessons of one error type, the most alike first, each with its cosine.

    `vectors` are of unit length, one a lesson. Left out is what is one group already or was kept
    apart (`known`, as `patterns` tells it), and what is never merged: assertions.
    """
    import numpy as np

    if not lessons:
        return []
    group = {
        one["signature"]: None if entry["apart"] else number
        for number, entry in enumerate(known)
        for one in entry["patterns"]
    }
    matrix = np.asarray(vectors, dtype="<f4")
    likeness = np.triu(matrix @ matrix.T, k=1)
    order = np.argsort(-likeness, axis=None, kind="stable")[: int((likeness >= ALIKE).sum())]
    pairs = (divmod(int(at), len(lessons)) for at in order)
    return [
        {
            "cosine": round(float(likeness[a, b]), 4),
            "lessons": [{fact: lessons[at][fact] for fact in _FACTS} for at in (a, b)],
        }
        for a, b in pairs
        if _may_be_one(lessons[a], lessons[b], group)
    ]


def _may_be_one(
    one: Mapping[str, Any], other: Mapping[str, Any], group: Mapping[str, int | None]
) -> bool:
    names = [one["signature"], other["signature"]]
    groups = [group.get(name, name) for name in names]
    return (
        one["error_type"] == other["error_type"]
        and None not in groups
        and groups[0] != groups[1]
        and all(
            learnable(Signature("", it["pattern"], it["signature"], it["error_type"]))
            for it in (one, other)
        )
    )
