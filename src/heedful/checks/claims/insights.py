"""Check that the metrics, columns and results that a text cites exist, and count its
numbers.
"""

import re
from collections.abc import Iterator, Mapping
from math import isnan
from pathlib import Path
from typing import Any

from heedful.checks.claims import ground, index_source
from heedful.checks.claims.evidence import Evidence, column_names
from heedful.checks.claims.passage import sentences
from heedful.checks.claims.words import split_name
from heedful.checks.evaluate import Context
from heedful.checks.text import TextCheck, shorten
from heedful.loop.record import Finding, Level
from heedful.validation import check_integer, require

INSIGHTS_CHECK = "insight_hallucination"
PRECISION_CHECK = "excessive_precision"
OMITTED_ARGUMENT: Any = ...

# The metrics of a model's quality; a list has the names of one metric.
_METRIC_LIST = (
    "mae | mean absolute error; mse | mean squared error; rmse | root mean squared "
    "error; mape |"
    " mean absolute percentage error; r2 | r² | r squared | coefficient of "
    "determination; accuracy;"
    " precision; recall; sensitivity; specificity; f1 | f score; auc | auroc | area "
    "under the"
    " curve; log loss | logloss | cross entropy; brier score; mcc; perplexity; bleu; "
    "rouge; aic;"
    " bic"
)
METRIC_NAMES = [names.split(" | ") for names in _METRIC_LIST.split("; ")]
_METRIC_ALIASES = {alias: names for names in METRIC_NAMES for alias in names}
_METRIC_ALTERNATIVES = "|".join(sorted(_METRIC_ALIASES, key=len, reverse=True)).replace(
    " ", r"[\s-]+"
)
_METRIC_PATTERN = re.compile(rf"(?i)\b(?:{_METRIC_ALTERNATIVES})(?=s?\b|(?<=²))")
# Everyday words: they cite a metric only beside a number.
_EVERYDAY_METRICS = frozenset("precision recall sensitivity specificity".split())
_METRIC_CONTEXT_CHARS = 30
_NUMBER_START_PATTERN = re.compile(r"\b\d")
_DENIAL_PATTERN = re.compile(
    r"(?i)\b(?:no|not|without|never|cannot|none|neither|nor|lacks?|missing|if|could|would|should)\b"
    r"|n['’]t\b"
)
_PREDICTION_PATTERN = re.compile(
    r"(?i)(?<!\bto )\b(?:predict(?:s|ed|ing|ions?)?|forecast(?:s|ed|ing)?)\b"
)
_ACTUAL_COLUMN_WORDS = frozenset(
    "actual actuals y target label truth true observed gold".split()
)
_COLUMN_NAME_PATTERN = re.compile(
    r"""(?<!\w)[`'"“‘]([^`'"”’\n]{1,60})[`'"”’]|\b([^\W\d](?=\w*_\w)\w*+)"""
)
_COLUMN_WORD_REGEX = r"(?i:columns?|fields?|features?|variables?)"
# A word like "column", with names after it or one before it, in quotes or with
# underscores.
_COLUMN_PATTERN = re.compile(
    rf"\b{_COLUMN_WORD_REGEX}\s+(?:{_COLUMN_NAME_PATTERN.pattern})(?:(?:\s*,)?(?:\s*\band)?\s*(?:{_COLUMN_NAME_PATTERN.pattern}))*"
    rf"|(?:{_COLUMN_NAME_PATTERN.pattern})\s+{_COLUMN_WORD_REGEX}\b"
)
Cited = tuple[tuple[int, int], str, list[list[str]]]
"""The span of a citation, the key of its finding, and the words of each name of what it
cites.
"""


def insights(
    metrics: Any = OMITTED_ARGUMENT,
    columns: Any = OMITTED_ARGUMENT,
    results: Any = OMITTED_ARGUMENT,
) -> TextCheck:
    """Check that a run has the metrics, columns and predictions that a text cites.

    `metrics` is evidence of any shape with the metrics that were measured. `columns`
    are names, rows or a data frame. `results` are the predictions or the path of their
    file. An argument may also be a function `(candidate, state)`, where the state is
    `Context.data`. None or an empty value means that the run has no metrics, columns or
    predictions. An omitted argument is not checked, except that without `metrics`, a
    cited metric is a finding if `columns` is given but has neither this metric nor a
    column of actual values. The check recognises the usual metrics (MAE, "mean absolute
    error", R², AUC …), names in quotes or with underscores beside "column" or
    "feature", and words such as "predicts". Sentences with a word such as "no" or "if"
    but no number cite no metric and no prediction. Raises InvalidInput without any
    argument.
    """
    given = (metrics, columns, results)
    values = [value for value in given if value is not OMITTED_ARGUMENT]
    require(bool(values), "metrics", value=None, allowed="given, or columns or results")

    def judge(text: str, context: Context) -> Iterator[Finding]:
        has, names, saved = (v(text, context.data) if callable(v) else v for v in given)
        if isinstance(has, Mapping):  # a metric without a value does not count
            empty = [
                n
                for n, v in has.items()
                if v is None or (isinstance(v, float) and isnan(v))
            ]
            has = {name: value for name, value in has.items() if name not in empty}
        measured = Evidence(None if has is OMITTED_ARGUMENT else has)
        data = [] if names is OMITTED_ARGUMENT or names is None else column_names(names)
        columned = Evidence(dict.fromkeys(data, 0))

        def absent(cited: Iterator[Cited], what: str, fix: str) -> Iterator[Finding]:
            done = set()
            for span, key, aliases in cited:
                known = (
                    all(measured.knows(w) or columned.knows(w) for w in a)
                    for a in aliases
                )
                if key not in done and not any(known):
                    done.add(key)
                    said = f"{shorten(text[slice(*span)])} {what}"
                    name = f"{INSIGHTS_CHECK}: {key}"
                    yield Finding(
                        INSIGHTS_CHECK, said, fix=fix, severity=0.8, key=name, span=span
                    )

        actual = any(
            not _ACTUAL_COLUMN_WORDS.isdisjoint(split_name(name)) for name in data
        )
        if has is not OMITTED_ARGUMENT or (
            names is not OMITTED_ARGUMENT and not actual
        ):
            paths = (
                ".".join(path)
                for table in measured.tables.values()
                for path in table.columns
            )
            there = ", ".join(sorted(filter(None, paths))[:12]) or "none"
            what = f"is cited, and the run has no such metric; it has: {there}"
            fix = (
                "ground insights in the results: cite metrics that the run has, or none"
            )
            yield from absent(_metrics(text), what, fix)
        if names is not OMITTED_ARGUMENT:
            there = ", ".join(data[:12]) or "none"
            what = (
                "is cited as a column, and the data has none of that name; it has: "
                f"{there}"
            )
            yield from absent(_columns(text), what, "cite columns that exist, or none")
        if saved is not OMITTED_ARGUMENT and not _is_there(saved):
            fix = (
                "leave predictions out until the stage that makes them has saved its "
                "results"
            )
            what = "claims a prediction, and there are no results"
            verbs = _cited(text, _PREDICTION_PATTERN)
            yield from absent(
                ((verb.span(), "prediction", []) for verb in verbs), what, fix
            )

    pure = not (any(map(callable, values)) or isinstance(results, Path | str))
    return TextCheck(name="insights", judge=judge, pure=pure, names=(INSIGHTS_CHECK,))


def _is_there(results: Any) -> bool:
    if isinstance(results, Path | str):
        path = Path(results)
        return path.is_file() and path.stat().st_size > 0
    return len(results) > 0 if hasattr(type(results), "__len__") else bool(results)


def _cited(text: str, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """Yield the matches of `pattern`, except in sentences with "no", "if" etc. and no
    number.
    """
    for start, end in (sentence.span for sentence in sentences(text, Evidence(None))):
        inside = text[start:end]
        if _NUMBER_START_PATTERN.search(inside) or not _DENIAL_PATTERN.search(inside):
            yield from pattern.finditer(text, start, end)


def _metrics(text: str) -> Iterator[Cited]:
    for match in _cited(text, _METRIC_PATTERN):
        alias = re.sub(r"[\s-]+", " ", match[0].casefold())
        near = text[
            max(0, match.start() - _METRIC_CONTEXT_CHARS) : match.end()
            + _METRIC_CONTEXT_CHARS
        ]
        everyday = alias in _EVERYDAY_METRICS and not _NUMBER_START_PATTERN.search(near)
        if not everyday and match[0] != "Mae":  # a first name
            names = _METRIC_ALIASES[alias]
            yield match.span(), f"metric {names[0]}", [name.split() for name in names]


def _columns(text: str) -> Iterator[Cited]:
    for match in _COLUMN_PATTERN.finditer(text):
        for found in _COLUMN_NAME_PATTERN.finditer(text, *match.span()):
            span = found.span(found.lastindex or 0)
            name = text[slice(*span)]
            parts = [part for part in split_name(name) if not part.isdecimal()]
            yield span, f"column {name.casefold()}", [parts]


def precision(evidence: Any = None, at_most: int = 10) -> TextCheck:
    """Check that a text has at most `at_most` numbers.

    If it has more, the finding says what share of them the evidence does not support.
    This finding is a warning, or a note if all numbers are supported. `evidence` is the
    same as for `grounding`; None supports no number. Raises InvalidInput for a wrong
    `at_most`.
    """
    check_integer("at_most", at_most, least=0)
    index = index_source(evidence)

    def judge(text: str, context: Context) -> Iterator[Finding]:
        claims = ground(text, index(text, context.data))
        wrong = [
            claim.verdict != "supported" for claim in claims if claim.kind == "number"
        ]
        if len(wrong) > at_most:
            share = sum(wrong) / len(wrong)
            what = (
                f"{len(wrong)} specific numbers, {share:.0%} of them not supported by "
                "evidence"
            )
            fix = (
                "cross-check them with the results; leave out those that are not there"
            )
            level: Level = "warning" if share else "note"
            yield Finding(
                PRECISION_CHECK,
                what,
                fix=fix,
                level=level,
                severity=share / 2,
                key=PRECISION_CHECK,
            )

    return TextCheck(
        name="precision",
        judge=judge,
        pure=not callable(evidence),
        names=(PRECISION_CHECK,),
    )
