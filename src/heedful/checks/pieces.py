"""Evidence in pieces of text, as a judge is shown it: rows, and the sentences of prose. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from heedful.checks.naming import content
from heedful.checks.quantities import tokens
from heedful.checks.reading import Record

# Pieces for one sentence, and characters of a piece. A word in more pieces tells none from others.
MOST = 3
LONGEST = 400
COMMON = 500
_SENTENCE = re.compile(r"[^.!?\n。！？]*(?:[.!?](?=\S)[^.!?\n。！？]*)*[.!?\n。！？]*")


class Pieces:
    """The pieces of some rows, found by the words that they share with a sentence."""

    def __init__(self, rows: Iterable[Record]) -> None:
        texts = dict.fromkeys(piece[:LONGEST] for row in rows for piece in _pieces(row))
        self._texts: list[str] = list(texts)
        self._holding: dict[str, list[int]] = defaultdict(list)
        for n, piece in enumerate(self._texts):
            for word in _words(piece):
                self._holding[word].append(n)

    def near(self, sentence: str) -> list[str]:
        """Those that share the rarest words with a sentence, the nearest first."""
        score: dict[int, float] = defaultdict(float)
        for word in _words(sentence):
            found = self._holding.get(word, ())
            for n in found if len(found) <= COMMON else ():
                score[n] += 1 / len(found)
        best = sorted(score, key=lambda n: -score[n])[:MOST]
        return [self._texts[n] for n in best]


def _words(text: str) -> dict[str, None]:
    return dict.fromkeys(content(token.low for token in tokens(text)))


def _pieces(row: Record) -> Iterator[str]:
    """The short cells of a row as one piece, each sentence of the long ones as another."""
    short = []
    for path, cell in row.cells.items():
        text, name = " ".join(str(cell).split()), ".".join(path)
        if len(text) <= LONGEST:
            short.append(f"{name} = {text}" if name else text)
        else:
            for found in _SENTENCE.finditer(str(cell)):
                if sentence := " ".join(found[0].split()):
                    yield f"{name}: {sentence}" if name else sentence
    if short:
        yield f"{row.path} {' '.join(row.key)}".strip() + ": " + ", ".join(short)
