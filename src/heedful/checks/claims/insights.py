"""`insights` and `precision`: what a text about a run cites, held against what the run has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from typing import Any, ClassVar

from heedful.checks.claims import Source, ground, ungrounded
from heedful.checks.claims.evidence import Evidence, column_names
from heedful.checks.claims.figures import Passage
from heedful.checks.claims.words import likeness, split_name, stem, tokenize
from heedful.checks.evaluate import Context
from heedful.checks.text import read, require, shorten
from heedful.loop.record import Finding

INSIGHTS = "insight_hallucination"
PRECISION = "excessive_precision"
LEFT_OUT: Any = ...

# The measures of a model's quality, each by the names that it goes by.
METRICS = tuple(
    tuple(tuple(name.split()) for name in names.split(" | "))
    for names in (
        "mae | mean absolute error; mse | mean squared error | mean square error; rmse | root mean"
        " squared error | root mean square error; rmsle | root mean squared logarithmic error; mape"
        " | mean absolute percentage error; smape | symmetric mean absolute percentage error; wape"
        " | weighted absolute percentage error; mase | mean absolute scaled error; r2 | r squared |"
        " coefficient of determination; balanced accuracy | accuracy; precision; recall;"
        " sensitivity; specificity; f1 | f score | f measure; auc | auroc | area under the curve |"
        " area under the roc curve; log loss | logloss | cross entropy; brier score; mcc | matthews"
        " correlation; cohen kappa; pinball loss | quantile loss; silhouette score; perplexity;"
        " bleu; rouge; aic; bic"
    ).split("; ")
)
_STEMS = [[[stem(word) for word in alias] for alias in aliases] for aliases in METRICS]
# Everyday words, which cite a metric only beside a number.
_PLAIN = frozenset("precision recall sensitivity specificity f1 bleu rouge aic bic".split())
_DENIES = frozenset("no not nt without never cannot none nor neither lack lacks missing".split())
_DENIES |= frozenset("unavailable if could would should unless".split())
_PREDICTS = frozenset("predict predicts predicted predicting prediction predictions".split())
_PREDICTS |= frozenset("forecast forecasts forecasted forecasting".split())
_ACTUAL = frozenset("actual actuals y target label truth true observed gold".split())
_COLUMNS = frozenset("column columns field fields feature features variable variables".split())
# What stands in "the … column" without being a name.
_ANY = frozenset(
    "first second third last next previous new old same other following above only single whole"
    " entire each target output input numeric numerical categorical key main left right specific"
    " given missing particular corresponding relevant required additional extra empty".split()
)
_QUOTED = r"""(?<!\w)[`'"“‘]([^`'"”’\n]{1,60})[`'"”’]"""
_NEXT = re.compile(rf"\s+(?:(?:called|named)\s+)?(?:{_QUOTED}|([^\W\d]\w*_\w+))")
_AND = re.compile(rf"(?:\s*,)?(?:\s*\band)?\s*{_QUOTED}")
_CALLED = re.compile(r"\s+(?:called|named)\s+([^\W\d]\w*)")
_LAST = re.compile(rf"(?:{_QUOTED}|([^\W\d]\w*_\w+))\s+$")
_THE = re.compile(r"\bthe\s+([^\W\d]\w*)\s+$", re.IGNORECASE)
NEAR = 5


@dataclass(frozen=True, slots=True)
class Insights:
    """A check that a run has what a text cites; made by `insights`. `...` is not checked.

    Its findings are called `insight_hallucination`.
    """

    metrics: Any = field(repr=False)
    columns: Any = field(repr=False)
    results: Any = field(repr=False)
    pure: bool
    name: ClassVar[str] = "insights"
    names: ClassVar[tuple[str, ...]] = (INSIGHTS,)

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        text = read(INSIGHTS, candidate)
        if isinstance(text, Finding):
            return [text]
        metrics, columns, results = (
            value(candidate, context.data) if callable(value) else value
            for value in (self.metrics, self.columns, self.results)
        )
        if isinstance(metrics, Mapping):  # those without a value are not there
            held = {n: v for n, v in metrics.items() if v is not None}
            metrics = {n: v for n, v in held.items() if not (isinstance(v, float) and isnan(v))}
        measured = Evidence({} if metrics is LEFT_OUT else metrics)
        names = columns
        if columns is not LEFT_OUT:
            names = [split_name(name) for name in column_names(() if columns is None else columns)]
        passage = Passage(text, measured)
        found = list(_metrics(passage, metrics is not LEFT_OUT, names))
        found += _columns(text, measured, names) if names is not LEFT_OUT else ()
        if results is not LEFT_OUT and not _there(results):
            found += _predictions(passage)
        return found


def insights(metrics: Any = LEFT_OUT, columns: Any = LEFT_OUT, results: Any = LEFT_OUT) -> Insights:
    """Check that a run has the metrics, columns and predictions that a text cites.

    `metrics` is evidence of any shape that names what was measured, `columns` names, rows or a data
    frame, `results` the predictions or the path of their file; each may be `f(candidate, state)`,
    where the state is `Context.data`. An argument that is left out is not checked; None or an empty
    value says that the run has none. The check knows the names of the usual metrics (MAE, "mean
    absolute error", R², AUC …), names beside "column" or "feature", and words of prediction; a
    sentence with a negation and without a number cites nothing. Without `metrics`, a text may cite
    any metric if there is a column of actual values. Raises InvalidInput without any argument.
    """
    values = [value for value in (metrics, columns, results) if value is not LEFT_OUT]
    require(bool(values), "metrics", None, "given, or columns or results")
    pure = not (any(map(callable, values)) or isinstance(results, Path | str))
    return Insights(metrics, columns, results, pure)


def _finding(what: str, fix: str, key: str, text: str, span: tuple[int, int]) -> Finding:
    what = f"{shorten(text[slice(*span)])} {what}"
    return Finding(INSIGHTS, what, fix, severity=0.8, key=f"{INSIGHTS}: {key}", span=span)


def _there(results: Any) -> bool:
    if isinstance(results, Path | str):
        path = Path(results)
        return path.is_file() and path.stat().st_size > 0
    if hasattr(type(results), "__len__"):
        return len(results) > 0
    return results is not None and results is not False


def _metrics(passage: Passage, measured: bool, columns: Any) -> Iterator[Finding]:
    """Yield the metrics that are cited and that the run does not have."""
    actual = columns is not LEFT_OUT and any(not _ACTUAL.isdisjoint(c) for c in columns)
    if not measured and (columns is LEFT_OUT or actual):
        return
    known = sorted({".".join(c.path) for t in passage.evidence.tables.values() for c in t.numeric})
    for aliases, span in _cited(passage):
        named = any(all(map(passage.evidence.knows, alias)) for alias in aliases)
        if named or (columns is not LEFT_OUT and any(_column(a, columns) for a in aliases)):
            continue
        has = f"it has {', '.join(known[:12])}" if known else "it has none"
        what = f"is cited, and the run has no such metric: {has}" if measured else "is cited"
        if columns is not LEFT_OUT and not actual:
            what += "; the data has no such column, and none of actual values to work it out"
        fix = "ground insights in the results: cite metrics that the run has, or none"
        yield _finding(what, fix, f"metric {' '.join(aliases[0])}", passage.text, span)


def _cited(passage: Passage) -> Iterator[tuple[Sequence[Sequence[str]], tuple[int, int]]]:
    """Yield the metrics that a text cites, each where it is cited first."""
    words = [at for at, token in enumerate(passage.tokens) if token.kind == "word"]
    stems = [stem(passage.low(at)) for at in words]
    done: set[int] = set()
    at = 0
    while at < len(words):
        length, which = max(
            ((len(a), -n) for n, m in enumerate(_STEMS) for a in m if stems[at : at + len(a)] == a),
            default=(0, 0),
        )
        first, last = words[at], words[at + max(length, 1) - 1]
        if length and -which not in done and _cites(passage, first, last):
            done.add(-which)
            yield METRICS[-which], (passage.tokens[first].start, passage.tokens[last].end)
        at += max(length, 1)


def _cites(passage: Passage, first: int, last: int) -> bool:
    """Return whether a name of a metric cites it: it is not denied, and no everyday word."""
    start, end = passage.sentence(first)
    if _denied(passage, first):
        return False
    if first == last and passage.low(first) in _PLAIN:
        near = range(max(start, first - 3), min(end, last + 1 + NEAR))
        return any(passage.tokens[at].kind == "number" for at in near)
    return not (
        len(passage.low(first)) == 3 and passage.tokens[first].text.istitle()
    )  # Mae is a name


def _denied(passage: Passage, at: int) -> bool:
    """Return whether a sentence denies or supposes, and has no number."""
    start, end = passage.sentence(at)
    inside = passage.tokens[start:end]
    denies = any(t.low in _DENIES or t.low.endswith(("n't", "n’t")) for t in inside)
    return denies and not any(token.kind == "number" for token in inside)


def _column(words: Iterable[str], columns: Iterable[tuple[str, ...]]) -> bool:
    """Return whether each word is a part of the name of one of the columns."""
    return any(all(any(likeness(w, p) > 1 for p in column) for w in words) for column in columns)


def _columns(text: str, measured: Evidence, columns: Any) -> Iterator[Finding]:
    """Yield the columns that are cited and that are not there."""
    done: set[str] = set()
    for token in tokenize(text):
        for start, end in _beside(text, token.start, token.end) if token.low in _COLUMNS else ():
            name = text[start:end]
            words = [word for word in split_name(name) if not word.isdecimal()]
            if name in done or _column(words, columns) or all(map(measured.knows, words)):
                continue
            done.add(name)
            there = ", ".join("_".join(column) for column in columns[:12])
            what = f"is cited as a column, and the data has none of that name: {there or 'none'}"
            fix = "cite columns that exist, or none"
            yield _finding(what, fix, f"column {name.casefold()}", text, (start, end))


def _beside(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the spans of the names of columns beside a word like "column"."""
    if found := _NEXT.match(text, end) or _CALLED.match(text, end):
        while found is not None:
            yield found.span(found.lastindex or 0)
            found = _AND.match(text, found.end())
        return
    before = text[max(0, start - 80) : start]
    found = _LAST.search(before) or (_THE.search(before) if text[start:end] == "column" else None)
    if found and found[found.lastindex or 0].casefold() not in _ANY:
        first, last = found.span(found.lastindex or 0)
        yield max(0, start - 80) + first, max(0, start - 80) + last


def _predictions(passage: Passage) -> Iterator[Finding]:
    """Yield the first claim of a prediction, which is enough when there are no results."""
    for at, token in enumerate(passage.tokens):
        if token.low in _PREDICTS and not (_denied(passage, at) or passage.low(at - 1) == "to"):
            what = "claims a prediction, and there are no results"
            fix = "leave predictions out until the stage that makes them has saved its results"
            yield _finding(what, fix, "prediction", passage.text, (token.start, token.end))
            return


# Many numbers


@dataclass(frozen=True, slots=True)
class Precision:
    """A check for few numbers, or numbers that evidence supports; made by `precision`.

    Its findings are called `excessive_precision`.
    """

    source: Source = field(repr=False)
    at_most: int
    name: ClassVar[str] = "precision"
    names: ClassVar[tuple[str, ...]] = (PRECISION,)

    @property
    def pure(self) -> bool:
        """True if the same text always has the same findings."""
        return self.source.pure

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        text = read(PRECISION, candidate)
        if isinstance(text, Finding):
            return [text]
        claims = ground(text, self.source.evidence(candidate, context))
        numbers = [claim for claim in claims if claim.kind == "number"]
        if len(numbers) <= self.at_most:
            return []
        share = ungrounded(claims)
        what = f"{len(numbers)} specific numbers, {share:.0%} of them not borne out by evidence"
        fix = "cross-check them with the results; leave out those that are not there"
        level: Any = "warning" if share else "note"
        return [Finding(PRECISION, what, fix, level=level, severity=share / 2, key=PRECISION)]


def precision(evidence: Any = None, at_most: int = 10) -> Precision:
    """Warn of more numbers than `at_most`, with the share that the evidence does not support.

    If it supports all of them, the finding is a note. `evidence` is as for `grounding`; without it
    no number is supported. Raises InvalidInput for a bound that is no whole number.
    """
    fine = type(at_most) is int and at_most >= 0
    require(fine, "at_most", at_most, "a whole number of at least 0")
    return Precision(Source(evidence), at_most)
