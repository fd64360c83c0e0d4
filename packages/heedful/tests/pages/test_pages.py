"""The page of a report: it shows its facts, and no text gets out of its place."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from conftest import SOAK
from heedful.loop.runs import CheckResult, Report, StageAttempt, StageReport
from heedful.pages.attempt_table import first_equal
from heedful.pages.run_report import html, output, visible
from heedful.validation import MAX_LONG_TEXT_CHARS
from tests.pages.support import (
    BEGAN,
    FAR,
    HOSTILE,
    TOLD,
    attempt,
    example,
    stage_report,
    wrong,
)

ADDRESSES = ("href", "src", "srcset", "action", "data", "poster", "formaction")


class Page(HTMLParser):
    """The text of a page and its attributes; raises where tags do not balance."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_page_in_words():
    page = Page(html(example()))
    for line in (
        "✗ halted",
        "missing_results: the check raised KeyError",
        "8 stages, 10 attempts, 3 retries, 1 min 50 s in attempts, 10 calls",
        "2026-06-09 10:13:20 UTC",
        "41.2 s",
        FAR.message,
        FAR.suggestion,
        TOLD,
        "Passed: schema, hallucination_detection",
    ):
        assert line in page.text, line
    assert re.search(r"<del>\s*5000\.0,\s*5010\.5\s*</del>", html(example()))


pieces = st.sampled_from(
    [
        HOSTILE,
        "```",
        "~~~",
        "|",
        "\\",
        "\\|",
        "<b>",
        "</pre>",
        "</style>",
        "&amp;",
        "&#60;",
        "\n",
        "\r",
        "\t",
        "\x00",
        "\u202e",
        "\u200d",
        "\ud800",
        "]]>",
        "-->",
        "<!--",
        "<script",
        "$x",
        "${run}",
        "# a",
        "- b",
        "*c*",
        "_d_",
        "[e](f)",
        "![g](h)",
        "<j@k.l>",
        "  ",
        "    x",
        "é",
        "漢",
        "👩‍🚀",
    ]
)
texts = st.lists(pieces | st.text(max_size=5), max_size=4).map(
    lambda parts: "".join(parts)[:70]
)
statuses: st.SearchStrategy[Any] = st.sampled_from(
    ["passed", "warning", "failed", "not_validated"]
)


actions: st.SearchStrategy[Any] = st.sampled_from(
    ["passed", "continued", "best", "halted", "open", "not_run"]
)
details = st.dictionaries(texts, texts, max_size=1)
checks = st.builds(
    CheckResult,
    texts,
    statuses,
    severity=st.just("critical"),
    message=texts,
    suggestion=texts,
    details=details,
)


@st.composite
def attempts(draw: st.DrawFn) -> StageAttempt:
    return attempt(
        draw(statuses),
        draw(st.lists(checks, max_size=2)),
        ms=draw(st.sampled_from([0.0, 0.3, 12.0, 9e7])),
        feedback=draw(texts),
        output=draw(texts),
    )


@st.composite
def stages(draw: st.DrawFn) -> StageReport:
    tries = draw(st.lists(attempts(), max_size=3))
    return stage_report(
        draw(texts),
        draw(actions),
        tries,
        status=draw(statuses),
        accepted=len(tries) or None,
    )


reports = st.builds(
    Report,
    texts,
    texts,
    stages=st.lists(stages(), max_size=3).map(tuple),
    began=st.sampled_from([0.0, BEGAN]),
    ended=st.just(BEGAN + 9),
)


def every_attempt(report: Report) -> list[StageAttempt]:
    return [tried for stage in report.stages for tried in stage.attempts]


def repeats(report: Report, tried: StageAttempt) -> bool:
    """True if the page has an earlier attempt with the same output and findings.

    Its own advice is not shown: a check may name another example each time.
    """
    stages = [stage for stage in report.stages if tried in stage.attempts]
    return any(first_equal(tried, stage.attempts) for stage in stages)


@pytest.mark.soak
@settings(max_examples=40 * SOAK)
@given(reports)
def test_a_page_holds_every_text_and_nothing_but_text(report):
    written = html(report)
    page = Page(written)
    assert "<script" not in written
    ids = {f"#{value}" for _, name, value in page.attributes if name == "id"}
    for _, name, value in page.attributes:
        assert not name.startswith("on")
        assert name not in ADDRESSES or value in ids
        assert value.isprintable()
    texts = [report.pipeline, report.run, *(stage.name for stage in report.stages)]
    for tried in every_attempt(report):
        if repeats(report, tried):
            continue
        texts.append(tried.feedback_for_agent)
        for check in tried.checks:
            texts += [
                check.check_name,
                check.message,
                check.suggestion,
                *check.details.values(),
            ]
        if tried.attempt == 1 and tried.output[:1] not in "{[":
            texts += tried.output.split("\n")
    assert [text for text in texts if visible(text) not in page.text] == []


def test_a_secret_is_on_no_page():
    secret = "AKIA" + "IOSFODNN7QWERTYU"
    bad = wrong(secret, f"{secret} is wrong", f"use {secret}", evidence=f"x {secret}")
    tries = [
        attempt("failed", [bad], feedback=secret, output=f"{n} is {secret}")
        for n in (1, 2)
    ]
    stage = stage_report("a", "halted", tries, status="failed")
    stage = replace(stage, prompt=f"write {secret}")
    report = Report("p", "r", stages=(stage,))
    page = html(report)
    assert secret not in page
    assert "redacted" in page


def shown(was: str | None, now: str) -> tuple[list[str], str]:
    """Return the lines and the note of an output, or of its difference from another."""
    before = None if was is None else attempt("failed", output=was)
    lines, note = output(before, attempt("passed", output=now))
    return list(lines), note


@pytest.mark.parametrize(
    ("was", "now", "lines"),
    [
        pytest.param("", "a", ["@@ -0,0 +1 @@", "+a"], id="after nothing"),
        pytest.param("a", "", ["@@ -1 +0,0 @@", "-a"], id="then nothing"),
        pytest.param(
            '{"b": 1, "a": 2}',
            '{"a": 3, "b": 1}',
            ["@@ -1,3 +1,3 @@", " {", '-  "a": 2,', '+  "a": 3,', '   "b": 1'],
            id="JSON by key",
        ),
        pytest.param(
            f"{'x' * 200}. No! y",
            f"{'x' * 200}. Yes! y",
            ["@@ -1,2 +1,2 @@", f" {'x' * 200}. ", "-No! y", "+Yes! y"],
            id="a long line by sentence",
        ),
    ],
)
def test_an_output_is_shown_or_how_it_differs(was, now, lines):
    assert shown(was, now)[0][: len(lines)] == lines


KEY = "AKIA" + "IOSFODNN7EXAMPLE"


def test_no_half_of_a_secret_is_seen_where_a_long_output_is_cut():
    before = "x " * (MAX_LONG_TEXT_CHARS // 2 - 10)
    after = "y " * MAX_LONG_TEXT_CHARS
    was = f"a {before}{KEY} {after}"
    now = f"b {before}{KEY} {after}"
    for earlier in (None, was):
        lines, _ = shown(earlier, now)
        assert "AKIA" not in "\n".join(lines)


def test_long_texts_are_cut_with_a_count():
    bad = wrong("check", "m" * 1_000, "f" * 1_000)
    failed = attempt("failed", [bad] * 90, feedback="t" * 9_000)
    report = Report(
        "p", "r", stages=(stage_report("a", "halted", [failed], status="failed"),)
    )
    page = html(report)
    assert f"{'m' * 400} … and 600 characters" in page
    assert f"{'t' * 3000} … and 6,000 characters" in page
    count = re.search(r"(\d+) more checks in the file ", page)
    assert count
    assert int(count[1]) == 40
    assert page.count("m" * 400) == 50


def open_steps(report: Report) -> list[str]:
    """Return the ids of the steps that stand open on the page of a run."""
    return re.findall(
        r'<details class="step \w+" id="([\w-]+)"[^>]* open>', html(report)
    )


def test_the_stage_that_halted_a_run_is_open_and_the_others_are_rows():
    stages = [step for step in open_steps(example()) if "attempt" not in step]
    assert stages == ["stage-6"]


def test_what_a_finding_names_is_marked_in_the_output_that_the_check_saw():
    bad = wrong("cause", "it was a disk", span=[4, 7])
    tries = [attempt("failed", [bad], output=text) for text in ("the ray", "the sun")]
    page = html(Report("p", "r", stages=(stage_report("a", "halted", tries),)))
    for part in ('disk">ray</mark>', '</del><ins><mark title="cause: it'):
        assert part in page
