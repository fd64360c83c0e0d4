"""The report: whole, loading nothing, and harmless whatever a model or a task says."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from rich.console import Console

from heedful.cli.batch import Row
from heedful.cli.figures import (
    FOLLOWED,
    POOLED,
    SECOND,
    comparisons,
    in_words,
    second_half,
)
from heedful.cli.lab import Ran
from heedful.cli.measured import Measured, by_group, machine, print_summary, sentences
from heedful.cli.output import NoPictures
from heedful.cli.picture import draw, rolling
from heedful.cli.report import page
from heedful.cli.stories import Shown, Story, Try, kinds
from heedful.lessons.proof import Estimate, wilson_interval

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


def found(text: str = "plain", **follows: Estimate) -> Measured:
    without, memory = arms()
    ran = Ran(tuple(without), tuple(memory), stories(text), dict(follows), 12.0)
    lesson = {"text": text, "error_type": text, "state": "verified", "seen": 3, "examples": 2}
    return Measured(
        ran,
        tuple(comparisons(without, memory, follows)),
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
    text = Page(page(found(a=wilson_interval(9, 10), b=wilson_interval(1, 10)), None)).text
    for words in (
        "With memory 50 points more tasks right at once",
        "20 of 40 right at once with memory",
        "Every family, also where memory does not help",
        "Corrected", "Right at once, from memory", "Stopped",
        "What it has learnt", "Machine, model, settings", "heedful demo plain --fresh",
        "three right examples", FOLLOWED, POOLED,
    ):  # fmt: skip
        assert words in text
    assert "Learning curve" not in text


def test_where_there_is_nothing_to_tell():
    without, _ = arms(2)
    ran = Ran(tuple(without), tuple(without), {})
    compared = tuple(comparisons(without, without, {}))
    bare = Measured(ran, compared, (), {"model": "m", "command": "c"}, {}, ())
    text = Page(page(bare, None)).text
    assert "Insufficient data" in text
    assert "Nothing: no answer was put right" in text
    assert "no task of this run went that way" in text


def test_result_json_holds_every_row():
    plain = json.loads(json.dumps(found(a=wilson_interval(9, 10)).plain()))
    assert len(plain["rows"]["with"]) == len(plain["rows"]["without"]) == 80
    assert plain["follows_gold"]["a"]["value"] == 0.9
    assert plain["words"][SECOND][0].startswith("uplift: +50 points")


def test_second_half_is_of_every_family():
    without, _ = arms(5)
    assert {one.id for one in second_half(without)} == {f"{g}-{n}" for g in "ab" for n in (2, 3, 4)}


def test_words_say_what_the_interval_says():
    without, memory = arms()
    pooled = {(one.group, one.part): one for one in comparisons(without, memory, {})}
    learnt, hopeless = pooled["a", SECOND], pooled["b", SECOND]
    assert in_words(learnt)[0].endswith("more are right at once with memory")
    assert in_words(learnt)[1].endswith("fewer calls with memory")
    assert "insufficient data: the interval covers 0" in in_words(hopeless)[0]
    assert in_words(hopeless)[1].endswith("the same in every task")
    worse = {(one.group, one.part): one for one in comparisons(memory, without, {})}["a", SECOND]
    assert "FEWER" in in_words(worse)[0]
    assert "MORE" in in_words(worse)[1]


@pytest.mark.parametrize(("width", "wide"), [(120, True), (84, False)])
def test_the_table_fits(width, wide):
    console = Console(width=width, record=True, file=None, color_system=None, quiet=False)
    with console.capture() as captured:
        print_summary(found(a=wilson_interval(9, 10), b=wilson_interval(1, 10)), console)
    shown = captured.get()
    assert ("tokens" in shown) == wide
    assert "100 % (" in shown
    assert "families without a gain at once" in shown


def test_the_same_pool_is_shown_once():
    groups = [
        one.group for one, _ in by_group(found(a=wilson_interval(9, 10), b=wilson_interval(9, 10)))
    ]
    assert groups == ["a", "b", POOLED]
    groups = [
        one.group for one, _ in by_group(found(a=wilson_interval(9, 10), b=wilson_interval(1, 10)))
    ]
    assert groups == ["a", "b", POOLED, FOLLOWED]


def test_no_family_that_can_be_followed():
    told = dict(sentences(found(a=wilson_interval(1, 10), b=wilson_interval(0, 10))))
    assert told["no family reaches 80 % there"] == ["this model cannot follow examples"]


def test_rolling_looks_back_only():
    rows = [row(n, "a", at_once=n >= 4) for n in range(8)]
    assert [round(one.value, 2) for one in rolling(rows, 4)] == [0, 0, 0, 0, 0.25, 0.5, 0.75, 1]


def test_the_picture_is_one_for_any_title():
    without, memory = arms()
    drawn = {"with memory": memory, "without memory": without}
    assert draw(drawn, "cost in $ and $$ $").startswith(b"\x89PNG")
    assert draw({"with memory": memory[:1]}, "one", dark=True).startswith(b"\x89PNG")


def test_without_matplotlib_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(NoPictures, match=r"pip install 'heedful\[report\]'"):
        draw({}, "none")
