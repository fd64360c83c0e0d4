"""Check that the metrics, columns and results that a text cites exist, and count its numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from math import isnan
from pathlib import Path
from typing import Any

from heedful.checks.claims import ground, index_source
from heedful.checks.claims.evidence import Evidence, column_names
from heedful.checks.claims.passage import sentences
from heedful.checks.claims.words import likeness, split_name
from heedful.checks.evaluate import Context
from heedful.checks.text import TextCheck, require, shorten
from heedful.loop.record import Finding, Level, check_integer

INSIGHTS = "insight_hallucination"
PRECISION = "excessive_precision"
LEFT_OUT: Any = ...

# The metrics of a model's quality; a list has the names of one metric.
METRICS = [
    names.split(" | ")
    for names in (
        "mae | mean absolute error; mse | mean squared error | mean square error; rmse | root mean"
        " squared error | root mean square error; rmsle | root mean squared logarithmic error; mape"
        " | mean absolute percentage error; smape | symmetric mean absolute percentage error; wape"
        " | weighted absolute percentage error; mase | mean absolute scaled error; r2 | r² | r"
        " squared | coefficient of determination; accuracy | balanced accuracy; precision; recall;"
        " sensitivity; specificity; f1 | f score | f measure; auc | auroc | area under the curve |"
        " area under the roc curve; log loss | logloss | cross entropy; brier score; mcc | matthews"
        " correlation; cohen kappa; pinball loss | quantile loss; silhouette score; perplexity;"
        " bleu; rouge; aic; bic"
    ).split("; ")
]
_ALIASES = {alias: names for names in METRICS for alias in names}
_METRIC = re.compile(
    rf"\b(?:{'|'.join(sorted(_ALIASES, key=len, reverse=True))})(?=s?\b|(?<=²))".replace(
        " ", r"[\s-]+"
    ),
    re.IGNORECASE,
)
# Everyday words: they cite a metric only beside a number.
_PLAIN = frozenset("precision recall sensitivity specificity f1 bleu rouge aic bic".split())
_BESIDE = 30
_NUMBER = re.compile(r"\b\d")
_DENIAL = re.compile(
    r"\b(?:no|not|nt|without|never|cannot|none|neither|nor|lacks?|missing|unavailable|if|could|would"
    r"|should|unless)\b|n['’]t\b",
    re.IGNORECASE,
)
_PREDICTION = re.compile(
    r"(?<!\bto )\b(?:predict(?:s|ed|ing|ions?)?|forecast(?:s|ed|ing)?)\b", re.IGNORECASE
)
_ACTUAL = frozenset("actual actuals y target label truth true observed gold".split())
_NAME = re.compile(r"""(?<!\w)[`'"“‘]([^`'"”’\n]{1,60})[`'"”’]|\b([^\W\d](?=\w*_\w)\w*+)""")
_KIND = r"(?i:columns?|fields?|features?|variables?)"
# A word like "column" with the names after it or the name before it. A name is in quotes or has
# underscores.
_COLUMN = re.compile(
    rf"\b{_KIND}\s+(?:{_NAME.pattern})(?:(?:\s*,)?(?:\s*\band)?\s*(?:{_NAME.pattern}))*"
    rf"|(?:{_NAME.pattern})\s+{_KIND}\b"
)


def insights(
    metrics: Any = LEFT_OUT, columns: Any = LEFT_OUT, results: Any = LEFT_OUT
) -> TextCheck:
    """Check that a run has the metrics, columns and predictions that a text cites.

    `metrics` is evidence of any shape with the metrics that were measured. `columns` are names,
    rows or a data frame. `results` are the predictions or the path of their file. An argument may
    also be a function `(candidate, state)`, where the state is `Context.data`. None or an empty
    value means that the run has no metrics, columns or predictions. An omitted argument is not
    checked, except that without `metrics`, a cited metric is a finding if `columns` is given but
    has neither this metric nor a column of actual values. The check recognises the usual metrics
    (MAE, "mean absolute error", R², AUC …), names in quotes or with underscores beside "column" or
    "feature", and words such as "predicts". Sentences with a word such as "no" or "if" but no
    number cite no metric and no prediction. Raises InvalidInput without any argument.
    """
    values = [value for value in (metrics, columns, results) if value is not LEFT_OUT]
    require(bool(values), "metrics", None, "given, or columns or results")

    def judge(text: str, context: Context) -> Iterator[Finding]:
        has, names, there = (
            value(text, context.data) if callable(value) else value
            for value in (metrics, columns, results)
        )
        if isinstance(has, Mapping):  # a metric without a value does not count
            held = {n: v for n, v in has.items() if v is not None}
            has = {n: v for n, v in held.items() if not (isinstance(v, float) and isnan(v))}
        measured = Evidence({} if has is LEFT_OUT else has)
        if names is not LEFT_OUT:
            names = [split_name(name) for name in column_names(() if names is None else names)]
        yield from _metrics(text, measured, has is not LEFT_OUT, names)
        if names is not LEFT_OUT:
            yield from _columns(text, measured, names)
        if there is not LEFT_OUT and not _there(there):
            for match in islice(_cited(text, _PREDICTION), 1):
                what = "claims a prediction, and there are no results"
                fix = "leave predictions out until the stage that makes them has saved its results"
                yield _finding(what, fix, "prediction", text, match.span())

    pure = not (any(map(callable, values)) or isinstance(results, Path | str))
    return TextCheck("insights", judge, pure, (INSIGHTS,))


def _finding(what: str, fix: str, key: str, text: str, span: tuple[int, int]) -> Finding:
    what = f"{shorten(text[slice(*span)])} {what}"
    return Finding(INSIGHTS, what, fix, severity=0.8, key=f"{INSIGHTS}: {key}", span=span)


def _there(results: Any) -> bool:
    if isinstance(results, Path | str):
        path = Path(results)
        return path.is_file() and path.stat().st_size > 0
    return len(results) > 0 if hasattr(type(results), "__len__") else bool(results)


def _cited(text: str, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """Yield the matches of `pattern`, except in sentences with "no", "if" etc. and no number."""
    for start, end in (sentence.span for sentence in sentences(text, Evidence(None))):
        inside = text[start:end]
        if _NUMBER.search(inside) or not _DENIAL.search(inside):
            yield from pattern.finditer(text, start, end)


def _metrics(text: str, evidence: Evidence, measured: bool, columns: Any) -> Iterator[Finding]:
    """Yield one finding for each cited metric that the run does not have."""
    actual = columns is not LEFT_OUT and any(not _ACTUAL.isdisjoint(c) for c in columns)
    if not measured and (columns is LEFT_OUT or actual):
        return
    known = sorted({".".join(path) for t in evidence.tables.values() for path in t.columns})
    done: list[list[str]] = []
    for match in _cited(text, _METRIC):
        alias = re.sub(r"[\s-]+", " ", match[0].casefold())
        near = text[max(0, match.start() - _BESIDE) : match.end() + _BESIDE]
        everyday = alias in _PLAIN and not _NUMBER.search(near)
        aliases = [name.split() for name in _ALIASES[alias]]
        if _ALIASES[alias] in done or everyday or match[0] == "Mae":  # a first name
            continue
        done.append(_ALIASES[alias])
        named = any(all(map(evidence.knows, words)) for words in aliases)
        if named or (columns is not LEFT_OUT and any(_column(words, columns) for words in aliases)):
            continue
        has = f"it has {', '.join(known[:12])}" if known else "it has none"
        what = f"is cited, and the run has no such metric: {has}" if measured else "is cited"
        if columns is not LEFT_OUT and not actual:
            what += "; the data has no such column, and none of actual values to compute it"
        fix = "ground insights in the results: cite metrics that the run has, or none"
        yield _finding(what, fix, f"metric {_ALIASES[alias][0]}", text, match.span())


def _column(words: Iterable[str], columns: Iterable[tuple[str, ...]]) -> bool:
    return any(all(any(likeness(w, p) > 1 for p in column) for w in words) for column in columns)


def _columns(text: str, measured: Evidence, columns: Any) -> Iterator[Finding]:
    """Yield one finding for each cited column that does not exist."""
    done: set[str] = set()
    for match in _COLUMN.finditer(text):
        for found in _NAME.finditer(text, *match.span()):
            span = found.span(found.lastindex or 0)
            name = text[slice(*span)]
            words = [word for word in split_name(name) if not word.isdecimal()]
            if name in done or _column(words, columns) or all(map(measured.knows, words)):
                continue
            done.add(name)
            there = ", ".join("_".join(column) for column in columns[:12])
            what = f"is cited as a column, and the data has none of that name: {there or 'none'}"
            fix = "cite columns that exist, or none"
            yield _finding(what, fix, f"column {name.casefold()}", text, span)


def precision(evidence: Any = None, at_most: int = 10) -> TextCheck:
    """Check that a text has at most `at_most` numbers.

    If it has more, the finding says what share of them the evidence does not support. This finding
    is a warning, or a note if all numbers are supported. `evidence` is the same as for `grounding`;
    None supports no number. Raises InvalidInput for a wrong `at_most`.
    """
    check_integer("at_most", at_most, 0)
    index = index_source(evidence)

    def judge(text: str, context: Context) -> Iterator[Finding]:
        claims = ground(text, index(text, context.data))
        wrong = [claim.verdict != "supported" for claim in claims if claim.kind == "number"]
        if len(wrong) > at_most:
            share = sum(wrong) / len(wrong)
            what = f"{len(wrong)} specific numbers, {share:.0%} of them not supported by evidence"
            fix = "cross-check them with the results; leave out those that are not there"
            level: Level = "warning" if share else "note"
            yield Finding(PRECISION, what, fix, level=level, severity=share / 2, key=PRECISION)

    return TextCheck("precision", judge, not callable(evidence), (PRECISION,))
