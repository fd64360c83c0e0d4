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
    """Yield the four sets; the baselines report numbers that are not in the source."""
    games = list(read(data, "grounding_accuracy_shared_task", split))
    lexicon = Lexicon.of(json.loads(GAME.read_text(encoding="utf-8")))
    ours = marks(games, partial(error_spans, lexicon=lexicon))
    simple = marks(games, unknown_numbers)
    wordless = marks(games, error_spans)
    anchor = "automatic .691 / .756, with humans .841 / .879"
    for name in ("recall", "precision"):
        yield Row(
            key=f"grounding.game.{name}",
            ours=ours.pop(name),
            baseline=simple[name],
            anchor=anchor,
        )
        yield Row(
            key=f"grounding.game.{name}_plain",
            ours=wordless[name],
            baseline=simple[name],
        )
    for kind, share in sorted(ours.items()):
        yield Row(
            key=f"grounding.game.recall.{kind}", ours=share, baseline=simple[kind]
        )
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


def find(row: Mapping[str, Any], lexicon: Lexicon | None = None) -> list[Finding]:
    """Return what the check finds in a response."""
    return check(row["source"], lexicon)(row["response"], Context("ground"))


def error_spans(row: Mapping[str, Any], lexicon: Lexicon | None = None) -> Spans:
    """Return the spans of the errors."""
    return [
        finding.span
        for finding in find(row, lexicon)
        if finding.level == "error" and finding.span
    ]


def unknown_numbers(row: Mapping[str, Any]) -> Spans:
    """Return the numbers of a response that occur nowhere in its source."""
    source_numbers = set(NUMBER.findall(row["source"]))
    matches = NUMBER.finditer(row["response"])
    return [match.span() for match in matches if match[0] not in source_numbers]


def marks(rows: Rows, report: Callable[[Mapping[str, Any]], Spans]) -> dict[str, float]:
    """Return the recall of marked mistakes, in all and by kind, and the precision."""
    hits: dict[str, list[bool]] = defaultdict(list)
    reported_count = 0
    right_count = 0
    for row in rows:
        reported = _reported_tokens(row["response"], list(report(row)))
        marked: set[int] = set()
        for start, end, kind, *_ in row["spans"]:
            marked.update(range(start, end))
            hit = not reported.isdisjoint(range(start, end))
            hits["recall"].append(hit)
            hits[kind.lower()].append(hit)
        reported_count += len(reported)
        right_count += len(reported & marked)
    shares = {kind: sum(of_kind) / len(of_kind) for kind, of_kind in hits.items()}
    shares["precision"] = right_count / reported_count if reported_count else 0.0
    return shares


def _reported_tokens(response: str, spans: Spans) -> set[int]:
    """Return the places of the tokens that the spans touch."""
    places = set()
    for place, token in enumerate(SPLIT.finditer(response)):
        if any(start < token.end() and token.start() < end for start, end in spans):
            places.add(place)
    return places


def flags(key: str, rows: Rows) -> Iterator[Row]:
    """Yield balanced accuracy, precision and recall of the flagged responses."""
    wrong = [bool(row["label"]) for row in rows]
    ours = rate(wrong, [bool(find(row)) for row in rows])
    simple = rate(wrong, [bool(list(unknown_numbers(row))) for row in rows])
    for name in ("balanced", "precision", "recall"):
        yield Row(key=f"{key}.{name}", ours=ours[name], baseline=simple[name])


def rate(wrong: Sequence[bool], flagged: Sequence[bool]) -> dict[str, float]:
    """Return recall, precision and balanced accuracy of flags against labels."""
    both = sum(w and f for w, f in zip(wrong, flagged, strict=True))
    recall = both / max(1, sum(wrong))
    false = (sum(flagged) - both) / max(1, len(wrong) - sum(wrong))
    precision = both / max(1, sum(flagged))
    return {
        "balanced": (recall + 1 - false) / 2,
        "precision": precision,
        "recall": recall,
    }
