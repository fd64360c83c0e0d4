"""What a job prints: a key, our figure, and what stands beside it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Row:
    """A figure of ours, the simple baseline of the same run, and a published anchor in
    words.

    `ours` is None if the code that is measured lacks what the figure needs; `anchor`
    says what.
    """

    key: str
    ours: float | None
    baseline: float | None = None
    anchor: str = ""


def say_expectation(expected: tuple[float, str] | None) -> str:
    """Return a figure that was expected before the first run, and why; "" if none."""
    if expected is None:
        return ""
    figure, reason = expected
    return f"expected {figure:+.2f}: {reason}"


def share(marks: Iterable[bool]) -> float:
    """Return the share of true marks, 0 without any."""
    values = list(marks)
    return sum(values) / len(values) if values else 0.0


def write_json(path: Path, content: Any) -> None:
    """Write what a job leaves in `bench/out`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, ensure_ascii=False, indent=1)
    path.write_text(text + "\n", "utf-8")


def read(data: Path, name: str, split: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a set. Raises SystemExit with the name of an absent file."""
    path = data / f"{name}.{split}.jsonl.gz"
    if not path.exists():
        raise SystemExit(
            f"{path} is absent; give the folder with the data sets: DATA=folder"
        )
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
