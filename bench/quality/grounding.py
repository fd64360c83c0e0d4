"""Grounding: which numbers, names and sentences of a text its evidence does not
support.

The shipped check with its defaults; the game reports with the words of their field,
which `game.json` holds, and without them (`_plain`). In a game report each error counts
as a report, a warning (what the evidence neither supports nor contradicts) does not.
Either flags a response.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from bench.quality.rows import Row, read
from heedful.checks import Lexicon, grounding
from heedful.checks.evaluate import Context
from heedful.loop.record import Finding

Rows = Sequence[Mapping[str, Any]]
Spans = Iterable[tuple[int, int]]
NUMBER = re.compile(r"\d+(?:\.\d+)?")
GAME = Path(__file__).with_name("game.json")
SPLIT = re.compile(r"\S+")


def run(data: Path, split: str) -> Iterator[Row]:
    """The four sets; the baseline of each reports the numbers that occur nowhere in the
    source.
    """
    games = list(read(data, "grounding_accuracy_shared_task", split))
    lexicon = Lexicon.of(json.loads(GAME.read_text(encoding="utf-8")))
    ours = marks(games, partial(errors, lexicon=lexicon))
    plain = marks(games, numbers)
    wordless = marks(games, errors)
    anchor = "automatic .691 / .756, with humans .841 / .879"
    for name in ("recall", "precision"):
        yield Row(
            key=f"grounding.game.{name}",
            ours=ours.pop(name),
            baseline=plain[name],
            anchor=anchor,
        )
        yield Row(
            key=f"grounding.game.{name}_plain",
            ours=wordless[name],
            baseline=plain[name],
        )
    for kind, share in sorted(ours.items()):
        yield Row(key=f"grounding.game.recall.{kind}", ours=share, baseline=plain[kind])
    responses = list(read(data, "grounding_quintd1", split))
    yield from flags("grounding.quintd", responses)
    yield from flags(
        "grounding.ragtruth", list(read(data, "grounding_ragtruth_qa_test", split))
    )
    yield from flags(
        "grounding.summedits", list(read(data, "grounding_summedits", split))
    )
    tasks: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in responses:
        tasks[row["task"]].append(row)
    for task, rows in sorted(tasks.items()):
        yield from flags(f"grounding.quintd.{task}", rows)


@lru_cache(maxsize=1)  # the responses to one source follow one another
def check(
    source: str, lexicon: Lexicon | None
) -> Callable[[str, Context], list[Finding]]:
    """Return the check that holds texts against a source."""
    return grounding(source, lexicon=lexicon)


def found(row: Mapping[str, Any], lexicon: Lexicon | None = None) -> list[Finding]:
    """Return what the check finds in a response."""
    return check(row["source"], lexicon)(row["response"], Context("ground"))


def errors(row: Mapping[str, Any], lexicon: Lexicon | None = None) -> Spans:
    """Return the spans of the errors."""
    return [
        one.span for one in found(row, lexicon) if one.level == "error" and one.span
    ]


def numbers(row: Mapping[str, Any]) -> Spans:
    """The numbers of a response that occur nowhere in its source."""
    known = set(NUMBER.findall(row["source"]))
    told = NUMBER.finditer(row["response"])
    return [one.span() for one in told if one[0] not in known]


def marks(rows: Rows, report: Callable[[Mapping[str, Any]], Spans]) -> dict[str, float]:
    """Recall of the marked mistakes, of each kind of them too, and precision in
    tokens.
    """
    seen: dict[str, list[bool]] = defaultdict(list)
    told = right = 0
    for row in rows:
        tokens = [one.span() for one in SPLIT.finditer(row["response"])]
        spans = list(report(row))
        reported = {
            n
            for n, (start, end) in enumerate(tokens)
            for a, b in spans
            if start < b and a < end
        }
        marked = {n for span in row["spans"] for n in range(span[0], span[1])}
        told = told + len(reported)
        right = right + len(reported & marked)
        for start, end, kind, *_ in row["spans"]:
            hit = not reported.isdisjoint(range(start, end))
            seen["recall"].append(hit)
            seen[kind.lower()].append(hit)
    shares = {kind: sum(hits) / len(hits) for kind, hits in seen.items()}
    return shares | {"precision": right / told if told else 0.0}


def flags(key: str, rows: Rows) -> Iterator[Row]:
    """Balanced accuracy, precision and recall of the flagged responses."""
    wrong = [bool(row["label"]) for row in rows]
    ours = rated(wrong, [bool(found(row)) for row in rows])
    plain = rated(wrong, [bool(list(numbers(row))) for row in rows])
    for name in ("balanced", "precision", "recall"):
        yield Row(key=f"{key}.{name}", ours=ours[name], baseline=plain[name])


def rated(wrong: Sequence[bool], flagged: Sequence[bool]) -> dict[str, float]:
    """Of flags against labels: recall, precision, and the mean of the recall of both
    labels.
    """
    both = sum(w and f for w, f in zip(wrong, flagged, strict=True))
    recall = both / max(1, sum(wrong))
    false = (sum(flagged) - both) / max(1, len(wrong) - sum(wrong))
    precision = both / max(1, sum(flagged))
    return {
        "balanced": (recall + 1 - false) / 2,
        "precision": precision,
        "recall": recall,
    }
