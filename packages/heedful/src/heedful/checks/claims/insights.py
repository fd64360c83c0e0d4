"""Check that everything a text cites from a run exists, and count its numbers.

`insights` finds citations: names of metrics, names beside a word such as "column", and
words such as "predicts"; `claim_words.toml` has them. A citation is a finding if the
run has no such metric, column or result. `precision` counts the numbers of a text, and
says what share of them the evidence of `grounding` does not support.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from heedful.checks.claims import ground, index_source
from heedful.checks.claims.evidence import Evidence, column_names
from heedful.checks.claims.sentence import sentences
from heedful.checks.claims.text_parts import (
    WORDS,
    Token,
    split_name,
    stem,
    stems,
    tokenize,
)
from heedful.checks.evaluate import Context, over_http, remade
from heedful.checks.tables import is_missing
from heedful.checks.text import TextCheck
from heedful.faults import shorten
from heedful.knowledge import Row
from heedful.loop.record import Finding, Level
from heedful.loop.similarity import is_negation
from heedful.validation import check_integer, require

INSIGHTS_CHECK = "insight_hallucination"
PRECISION_CHECK = "excessive_precision"
OMITTED_ARGUMENT: Any = ...

# A name in quotes (`price`), or with an underscore inside (unit_price).
_COLUMN_NAME_PATTERN = re.compile(
    r"""(?<!\w)[`'"“‘]([^`'"”’\n]{1,60})[`'"”’]|\b([^\W\d](?=\w*_\w)\w*+)"""
)


class Citation(NamedTuple):
    """A citation in a text: something that the run should have, at the characters
    `span`.

    `key` is the key of the finding. `aliases` are all names of the cited thing, each as
    its words.
    """

    span: tuple[int, int]
    key: str
    aliases: Sequence[Sequence[str]]


@over_http("process")
@remade
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
    predictions. An omitted argument is not checked, with two exceptions. Without
    `metrics`, a cited metric is a finding if `columns` is given but has neither this
    metric nor a column of actual values. Without `results`, a prediction is a finding
    if `metrics` is given and empty. The check recognises the usual metrics (MAE, "mean
    absolute error", R², AUC …), names in quotes or with underscores beside "column" or
    "feature", and words such as "predicts". A sentence that has a word such as "no" or
    "if" and no number cites no metric and no prediction. Raises InvalidInput without
    any argument.
    """
    arguments = (metrics, columns, results)
    values = [value for value in arguments if value is not OMITTED_ARGUMENT]
    require(bool(values), "metrics", value=None, allowed="given, or columns or results")

    def judge(text: str, context: Context) -> Iterator[Finding]:
        """Yield a finding for each citation of something that the run does not have."""
        measured = _resolve(metrics, text, context)
        names = _resolve(columns, text, context)
        predictions = _resolve(results, text, context)
        citations = Citations(text, measured, names)

        yield from citations.metric_findings()
        if citations.has_columns:
            yield from citations.column_findings()
        has_results = citations.has_measured
        if predictions is not OMITTED_ARGUMENT:
            has_results = _have_content(predictions)
        if not has_results:
            yield from citations.prediction_findings()

    reads_more = any(map(callable, values)) or isinstance(results, Path | str)
    return TextCheck(
        name="insights", judge=judge, pure=not reads_more, names=(INSIGHTS_CHECK,)
    )


def _resolve(argument: Any, text: str, context: Context) -> Any:
    """Return an argument of `insights`, or the result if it is a function."""
    return argument(text, context.data) if callable(argument) else argument


class Citations:
    """The citations of a text, with the metrics and columns that the run has."""

    def __init__(self, text: str, metrics: Any, columns: Any) -> None:
        self.text = text
        self.has_metrics: bool = metrics is not OMITTED_ARGUMENT
        self.has_columns: bool = columns is not OMITTED_ARGUMENT

        measured = _without_missing(metrics) if self.has_metrics else None
        self.metrics: Evidence = Evidence(measured)
        # False if the caller says that the run has measured nothing.
        self.has_measured: bool = not self.has_metrics or _have_content(measured)

        self.column_names: Sequence[str] = []
        if self.has_columns and columns is not None:
            self.column_names = column_names(columns)
        self.columns: Evidence = Evidence(dict.fromkeys(self.column_names, 0))

    def metric_findings(self) -> Iterator[Finding]:
        """Yield a finding for each metric that the run does not have.

        Without metrics, the run is judged only if its columns cannot give any.
        """
        parts = chain.from_iterable(map(split_name, self.column_names))
        has_actual_values = any(stem(part) in stems("actual") for part in parts)
        may_compute_metrics = not self.has_columns or has_actual_values
        if not self.has_metrics and may_compute_metrics:
            return

        names: list[str] = []
        for table in self.metrics.tables.values():
            names += (".".join(path) for path in table.columns if path)
        yield from self._absence_findings(
            _cited_metrics(self.text),
            f"is cited, and the run has no such metric; it has: {_listed(names)}",
            "ground insights in the results: cite metrics that the run has, or none",
        )

    def column_findings(self) -> Iterator[Finding]:
        """Yield a finding for each column that the data does not have."""
        yield from self._absence_findings(
            _cited_columns(self.text),
            "is cited as a column, and the data has no column of that name; it has: "
            f"{_listed(self.column_names)}",
            "cite columns that exist, or none",
        )

    def prediction_findings(self) -> Iterator[Finding]:
        """Yield a finding if the text claims a prediction."""
        yield from self._absence_findings(
            _cited_predictions(self.text),
            "claims a prediction, and there are no results",
            "leave predictions out until the stage that makes them has saved its "
            "results",
        )

    def _absence_findings(
        self, citations: Iterator[Citation], message: str, fix: str
    ) -> Iterator[Finding]:
        """Yield a finding for each thing that is cited and that the run does not have.

        Only the first citation of a thing is reported.
        """
        reported_keys = set()
        for citation in citations:
            has_cited = any(map(self._has_name, citation.aliases))
            if has_cited or citation.key in reported_keys:
                continue

            reported_keys.add(citation.key)
            start, end = citation.span
            yield Finding(
                INSIGHTS_CHECK,
                f"{shorten(self.text[start:end])} {message}",
                fix=fix,
                severity=0.8,
                key=f"{INSIGHTS_CHECK}: {citation.key}",
                span=citation.span,
                rule=fix,
            )

    def _has_name(self, name: Sequence[str]) -> bool:
        """Return whether the run has each word of a name, as metric or column."""
        return all(
            self.metrics.knows(word) or self.columns.knows(word) for word in name
        )


def _listed(names: Sequence[str]) -> str:
    """Return the first names as text."""
    return ", ".join(names[:12]) or "none"


def _without_missing(metrics: Any) -> Any:
    """Return the metrics, without the items of a mapping whose value is None or NaN."""
    if not isinstance(metrics, Mapping):
        return metrics
    return {name: value for name, value in metrics.items() if not is_missing(value)}


def _have_content(results: Any) -> bool:
    """Return whether results, or the file at their path, exist and are not empty."""
    if isinstance(results, Path | str):
        path = Path(results)
        return path.is_file() and path.stat().st_size > 0

    # A data frame has a length, but no truth value.
    return len(results) > 0 if hasattr(type(results), "__len__") else bool(results)


def _statements(text: str) -> Iterator[tuple[Sequence[Token], bool]]:
    """Yield the words of each sentence that states something, and if it has a number.

    A sentence with a word such as "no" or "if" and no number states nothing.
    """
    for sentence in sentences(text, Evidence(None)):
        has_number = any(token.kind == "number" for token in sentence.tokens)
        tokens = [token for token in sentence.tokens if token.kind == "word"]
        denies = any(
            token.low in WORDS.words("supposition") or is_negation(token.low)
            for token in tokens
        )
        if has_number or not denies:
            yield tokens, has_number


def _cited_metrics(text: str) -> Iterator[Citation]:
    """Yield the metrics that a text names, also in the plural: "MAEs", "log-loss"."""
    # Lines, because a word can have a space, as that of the character U+FDFA has.
    metrics: dict[str, Row] = {}
    for metric in WORDS.rows("metric"):
        names = ["\n".join(map(stem, name)) for name in _names_of(metric)]
        metrics |= dict.fromkeys(names, metric)
    # The longest first, so that "log loss" is no other, shorter name.
    longest_first = map(re.escape, sorted(metrics, key=len, reverse=True))
    pattern = re.compile(rf"^(?:{'|'.join(longest_first)})$", re.MULTILINE)

    for tokens, has_number in _statements(text):
        lines = "\n".join(stem(token.low) for token in tokens)
        for match in pattern.finditer(lines):
            metric = metrics[match[0]]
            if metric.meaning == "everyday" and not has_number:
                continue
            first = lines.count("\n", 0, match.start())
            last = lines.count("\n", 0, match.end())
            span = (tokens[first].start, tokens[last].end)
            yield Citation(span, f"metric {metric.id}", list(_names_of(metric)))


def _names_of(metric: Row) -> Iterator[Sequence[str]]:
    """Yield the words of each name of a metric, and its initials, such as MAE."""
    for name in metric.words:
        words = name.split()
        yield words
        if len(words) > 2:
            yield ["".join(word[0] for word in words)]


def _cited_predictions(text: str) -> Iterator[Citation]:
    """Yield words such as "predicts" and "forecast"; "to predict" is only a plan."""
    for tokens, _ in _statements(text):
        before = ""
        for token in tokens:
            is_claim = stem(token.low) in stems("prediction")
            if is_claim and before != "to":
                yield Citation((token.start, token.end), "prediction", [])
            before = token.low


def _cited_columns(text: str) -> Iterator[Citation]:
    """Yield the names after a word such as "column", and a name before it."""
    end = 0
    is_listed = False
    for match in _COLUMN_NAME_PATTERN.finditer(text):
        between = text[end : match.start()].replace(",", " ").casefold().split()
        follows_column = bool(between) and stem(between[-1]) in stems("column")
        is_listed = follows_column or (is_listed and {"and"}.issuperset(between))
        end = match.end()
        following = tokenize(text[end : end + 20])[:1]
        if is_listed or any(stem(token.low) in stems("column") for token in following):
            group = match.lastindex or 0
            name = match[group]
            parts = [part for part in split_name(name) if not part.isdecimal()]
            yield Citation(match.span(group), f"column {name.casefold()}", [parts])


@over_http("process")
@remade
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
        """Yield a finding if the text has too many numbers."""
        claims = ground(text, index(text, context.data))
        numbers = [claim for claim in claims if claim.kind == "number"]
        if len(numbers) <= at_most:
            return

        unsupported = [claim for claim in numbers if claim.verdict != "supported"]
        share = len(unsupported) / len(numbers)
        level: Level = "warning" if share else "note"
        yield Finding(
            PRECISION_CHECK,
            f"{len(numbers)} specific numbers, {share:.0%} of them not supported by "
            "evidence",
            fix="cross-check them with the results; leave out those that are not there",
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
