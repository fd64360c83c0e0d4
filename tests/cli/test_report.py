"""The report: whole, loading nothing, and harmless whatever a model or a task says."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from examples.demo.figures import (
    POOLED,
    SECOND,
    Measured,
    Ran,
    comparisons,
    in_words,
    print_summary,
)
from examples.demo.lab import machine
from examples.demo.report import draw, page
from examples.demo.stories import Shown, Story, Try, kinds
from heedful.cli.run import Row

EVIL = "<script>alert('x')</script> & \"quoted\" <img src=https://example.com/x.png> \x1b[31m\x07"
VOID = {"meta", "img", "br", "source"}


class Page(HTMLParser):
    """Collects what a page has, and whether every tag that opens is closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loads += [v or "" for k, v in attrs if k in ("src", "srcset", "href", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def row(n: int, group: str, *, at_once: bool, passed: bool = True, calls: int = 1) -> Row:
    stopped = "" if passed else "repeat"
    return Row(
        f"{group}-{n}", f"r/{n}", group, passed, at_once, calls, calls, 40, 1.5, stopped, "x"
    )


def arms(each: int = 40) -> tuple[list[Row], list[Row]]:
    """Family "a" is learnt, family "b" is not."""
    without, memory = [], []
    for n in range(each):
        without += [row(n, "a", at_once=False, calls=3)]
        memory += [row(n, "a", at_once=n > 9, calls=1 if n > 9 else 3)]
        hopeless = row(n, "b", at_once=False, passed=False, calls=3)
        without.append(hopeless)
        memory.append(hopeless)
    return without, memory


def stories(text: str) -> dict[str, tuple[Story, Story]]:
    """One of each kind, with this text wherever a text may come from outside."""
    wrong, right = Try(text, (text,)), Try(text, ())
    failed = Story("without-1/x", text, (wrong,), (), False, f"repeat: {text}", text)
    corrected = Story("with-1/x", text, (wrong, right), (), True, "", text)
    knew = Story("with-1/y", text, (right,), (Shown(text, text),), True, "", text)
    pairs = ((failed, knew), (failed, corrected))
    return {kind: (one, other) for pair in pairs for kind, one, other in kinds(*pair)}


def found(text: str = "plain") -> Measured:
    without, memory = arms()
    ran = Ran(tuple(without), tuple(memory), stories(text), 12.0)
    lesson = {"text": text, "error_type": text, "state": "verified", "seen": 3, "examples": 2}
    return Measured(
        ran,
        tuple(comparisons(without, memory)),
        (lesson,),
        {"model": text, "command": f"heedful demo {text}"},
        machine(),
        (("see", f"heedful why {text}"),),
    )


def test_text_from_outside_stays_text():
    parsed = Page(page(found(EVIL), (b"light", b"dark")))
    assert "script" not in parsed.tags
    assert parsed.tags.count("img") == 1
    assert parsed.text.count("<script>alert('x')</script>") > 10
    assert "\x1b" not in parsed.text
    assert not parsed.open


def test_it_loads_nothing():
    text = page(found(), (b"light", b"dark"))
    parsed = Page(text)
    assert parsed.loads
    assert all(one.startswith("data:image/png;base64,") for one in parsed.loads)
    assert not re.search(r"(https?:)?//", re.sub(r"base64,[A-Za-z0-9+/=]+", "", text))
    assert {"script", "link", "iframe", "object"}.isdisjoint(parsed.tags)
    assert "Content-Security-Policy" in text
    assert "prefers-color-scheme: dark" in text


def test_it_says_all_there_is():
    text = Page(page(found(), None)).text
    for words in (
        "With memory 50 points more tasks right at once",
        "20 of 40 right at once with memory",
        "Every family, also where memory does not help",
        "Corrected", "Right at once, from memory", "Stopped",
        "What it has learnt", "Machine, model, settings", "heedful demo plain --fresh",
        POOLED,
    ):  # fmt: skip
        assert words in text
    assert "Learning curve" not in text


def test_words_say_what_the_interval_says():
    without, memory = arms()
    pooled = {(one.group, one.part): one for one in comparisons(without, memory)}
    learnt, hopeless = pooled["a", SECOND], pooled["b", SECOND]
    assert in_words(learnt)[0].endswith("more are right at once with memory")
    assert in_words(learnt)[1].endswith("fewer calls with memory")
    assert "insufficient data: the interval covers 0" in in_words(hopeless)[0]
    assert in_words(hopeless)[1].endswith("the same in every task")
    worse = {(one.group, one.part): one for one in comparisons(memory, without)}["a", SECOND]
    assert "FEWER" in in_words(worse)[0]
    assert "MORE" in in_words(worse)[1]


def test_the_table_and_its_words(capsys):
    print_summary(found())
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 120
    assert "tokens" in shown
    assert "100 % (" in shown
    assert "families without a gain at once\n  b\n" in shown


def test_the_picture_is_one_for_any_title():
    without, memory = arms()
    drawn = {"with memory": memory, "without memory": without}
    assert draw(drawn, "cost in $ and $$ $").startswith(b"\x89PNG")
    assert draw({"with memory": memory[:1]}, "one", dark=True).startswith(b"\x89PNG")
