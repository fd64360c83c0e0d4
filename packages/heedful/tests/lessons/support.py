"""Examples that a search might have brought."""

from typing import Any

from heedful.lessons.lesson import Example, Match


def build_match(id: int, task: str, accepted: str = "answer", **fields: Any) -> Match:
    fields = {"kind": "check", "seen": 1, "importance": 0.5, "at": 0.0, **fields}
    fields["state"] = "verified" if fields.pop("verified", True) else "unverified"
    return Match(id, id, example=Example(task, accepted), **fields)
