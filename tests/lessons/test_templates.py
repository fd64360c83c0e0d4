"""The learned level: what is merged by evidence, what never is, and how it is undone."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import InvalidInput
from heedful.lessons import patterns as templates
from heedful.lessons.patterns import MANY, Branch, Templates
from heedful.lessons.signature import signature

NAMES = ("ada", "bo", "cy", "di", "ed", "flo", "gus", "hal")

UNITS = ("metres", "miles", "feet", "yards", "inches")
RAISED = ("socket.timeout", "Stale", "queue.Empty", "queue.Full", "a.b.NoSuchOrder", "Order.Gone")
ERRNOS = ("ENOENT", "EACCES", "EPERM", "EIO", "ECONNREFUSED")
OFTEN = ("not", "now", "never", "always", "still", "often")


def learnt(*texts: str, kind: str = "log") -> Templates:
    return Templates().learn(*(signature(kind, text) for text in texts))


def groups(known: Templates, texts: list[str], kind: str = "log") -> set[frozenset[str]]:
    """The partition of the texts."""
    held: dict[str, set[str]] = {}
    for text in texts:
        held.setdefault(known.group(signature(kind, text)), set()).add(text)
    return {frozenset(one) for one in held.values()}


ONE = {
    "a place that held many": [f"login failed for {name} here" for name in NAMES[:MANY]],
    "two such places": [
        f"moved the order of {one} over to {two} again"
        for one, two in zip(NAMES[:MANY], reversed(NAMES[:MANY]), strict=True)
    ],
    "masks of other kinds": ["cannot read it from 10.0.0.7", "cannot read it from /srv/x"],
    "a mask and a word": ["the last value was 12.5", "the last value was unknown"],
    "part of a word": ["cannot read from node-12 now", "cannot read from node-7-b now"],
    "part of a word and a word": [
        "got an answer from 10.0.0.7 too late",
        "got an answer from LOCAL(0) too late",
        "got an answer from #10# too late",
    ],
    "lists": [
        "no answer came from db1, db2, db3",
        "no answer came from db4, db5",
        "no answer came from 10.0.0.7 10.0.0.8",
    ],
    "a code where a success stood too": ["GET it gave status: 404", "GET it gave status: 200"],
}
APART = {
    "few values": [f"login failed for {name} here" for name in NAMES[: MANY - 1]],
    "the first word": [f"{name} has failed once more today" for name in NAMES],
    "too few words": [f"{name} failed" for name in NAMES] + [f"failed {name}" for name in NAMES],
    "other words": ["the disk is full", "the queue is empty", "a user is gone", "no one is here"],
    "lengths": ["it failed for ada now", "it failed for ada and bo now", "it failed for now"],
    "exceptions": [f"job ended with {name.title()}Error today" for name in NAMES],
    "exceptions with a package": [f"job ended: a.b.{n.title()}Exception today" for n in NAMES],
    "quoted names": [f"there is no key '{name}' in it" for name in NAMES],
    "quoted text with a mask": [f"there is no key '{name} 12' in it" for name in NAMES],
    "codes": [f"it ended with exit code {code} again" for code in (1, 2, 3, 126, 137)],
    "statuses": [f"GET it gave status: {code}" for code in (400, 404, 429, 500, 503)],
    "assertions": [f"assert f({n}) == 4 in all of them" for n in range(8)],
    "expected values": [f"got 17, want {n} in all of them" for n in range(8)],
    "expected words in Go": [f"Unit() = km, want {unit}" for unit in UNITS],
    "expected words after got": [f"got km, want {unit} in the table of units" for unit in UNITS],
    "expected words in Hamcrest": [f"Expected: is {unit}\n     but: was km" for unit in UNITS],
    "expected words in JUnit": [f"expected:<{unit}> but was:<km> in it" for unit in UNITS],
    "expected words in Chai": [f"expected km to equal {unit}" for unit in UNITS],
    "expected words in Jest": [f"Expected: {unit} Received: km in this place" for unit in UNITS],
    "expected words in Catch2": [
        f"REQUIRE( unit() == {unit} )\nwith expansion:\n  km == {unit}" for unit in UNITS
    ],
    "expected words in prose": [f"the unit of it should be {unit} here" for unit in UNITS],
    "names raised in Python": [f"Traceback (most recent call last):\n  g()\n{n}" for n in RAISED],
    "names raised in Python with a text": [
        f"Traceback (most recent call last):\n  g()\n{name}: the order was read" for name in RAISED
    ],
    "names raised in Java": [
        f'Exception in thread "main" {name}: while the orders were read' for name in RAISED
    ],
    "names of a cause": [f"it failed to start; Caused by: {name} in the pool" for name in RAISED],
    "names with a package": [f"the job has ended with {n} once more" for n in RAISED[2:]],
    "names that were caught": [f"the thread caught {n} while it read" for n in NAMES],
    "panics in Go": [f"panic: {what}: while the orders were read" for what in NAMES],
    "panics in Rust": [
        f"thread 'main' panicked at src/main.rs:4:5:\ncalled unwrap on an Err value: {name}"
        for name in ("NotFound", "PermissionDenied", "TimedOut", "BrokenPipe")
    ],
    "errno": [f"open failed with {name} on the data file" for name in ERRNOS],
    "negations": [f"the value of the field is {word} valid here" for word in OFTEN],
    "separators": ["it is a, or so", "it is a: or so", "it is a; or so", "it is a= or so"],
}


@pytest.mark.parametrize("what", ONE)
def test_what_evidence_makes_one(what):
    texts = ONE[what]
    assert groups(learnt(*texts), texts) == {frozenset(texts)}
    (merge,) = learnt(*texts).merges()
    assert merge.group == signature("log", texts[0]).digest == merge.members[0]
    assert len(merge.members) == len({signature("log", text).digest for text in texts})
    assert merge.why
    assert all(merge.why)


@pytest.mark.parametrize("what", APART)
def test_what_stays_apart(what):
    texts = APART[what]
    assert groups(learnt(*texts), texts) == {frozenset([text]) for text in texts}
    assert learnt(*texts).merges() == ()


def test_other_error_types_are_never_merged():
    known = Templates()
    for kind in NAMES:
        known = known.learn(signature(kind, "it took 12 s to fail like that"))
        known = known.learn(signature(kind, "it took /srv/x to fail like that"))
    assert len(known.merges()) == len(NAMES)
    assert {len(merge.members) for merge in known.merges()} == {2}


@pytest.mark.parametrize("kind", ["AssertionError", "JestAssertionError"])
def test_a_failed_assertion_is_merged_with_nothing(kind):
    texts = [f"login failed for {name} here" for name in NAMES]
    assert len(learnt(*texts, kind=kind)) == 0
    assert len(groups(learnt(*texts, kind=kind), texts, kind)) == len(texts)


def test_what_was_not_learnt_is_grouped_by_what_was_and_changes_nothing():
    known = learnt(*ONE["a place that held many"])
    size = len(known)
    new = signature("log", "login failed for zoe here")
    assert known.group(new) == signature("log", ONE["a place that held many"][0]).digest
    assert len(known) == size
    assert Templates().group(new) == new.digest


def test_a_merge_says_why():
    (merge,) = learnt(*ONE["a place that held many"]).merges()
    assert merge.template == "login failed for <*> here"
    assert merge.why == ("4 values after 'for': ada, bo, cy, di",)
    (merge,) = learnt(*ONE["masks of other kinds"]).merges()
    assert merge.why == ("other masks",)
    (merge,) = learnt(*ONE["part of a word and a word"]).merges()
    assert merge.why[-1].startswith("'got an answer from LOCAL(<*>) too late' holds")
    (merge,) = learnt(*(f"login failed for {name} here" for name in NAMES)).merges()
    assert merge.why == ("8 values after 'for': ada, bo, cy, di, …",)


def test_a_merge_can_be_undone_whole_and_in_part():
    texts = [f"login failed for {name} here" for name in NAMES]
    known = learnt(*texts)
    (merge,) = known.merges()
    assert groups(known.unmerge(*merge.members), texts) == {frozenset([text]) for text in texts}
    part = known.unmerge(merge.members[0])
    assert groups(part, texts) == {frozenset(texts[:1]), frozenset(texts[1:])}
    assert part.learn(signature("log", texts[0])) is part
    assert groups(known, texts) == {frozenset(texts)}, "the value before is untouched"


def test_only_what_was_learnt_can_be_kept_apart():
    with pytest.raises(InvalidInput, match="digest is 'abc'"):
        learnt(*ONE["lists"]).unmerge("abc")


def test_memory_is_bounded():
    known = Templates(most=3)
    for name in NAMES:
        known = known.learn(signature("log", f"login failed for {name} here"))
    assert len(known) == 3
    assert len(Templates(most=3).learn(*(signature("log", f"{n} is") for n in NAMES))) == 3
    long = signature("log", "word " * 500)
    assert len(Templates().learn(long)) == 0
    assert Templates().learn(long).group(long) == long.digest
    many = [signature("log", f"{name} x" + " , y" * 100) for name in NAMES]
    assert Templates().learn(*many).merges() == ()


LINES = st.lists(
    st.sampled_from([text for texts in (ONE | APART).values() for text in texts]), max_size=40
)


@given(LINES, st.randoms(use_true_random=False))
def test_the_groups_do_not_depend_on_the_order(texts, random):
    shuffled = random.sample(texts, len(texts))
    assert groups(learnt(*texts), texts) == groups(learnt(*shuffled), texts)


@given(LINES)
def test_line_by_line_is_as_all_at_once(texts):
    known = Templates()
    for text in texts:
        known = known.learn(signature("log", text))
    assert known.merges() == learnt(*texts).merges()
    assert known.rows() == learnt(*texts).rows()


@given(LINES, st.integers(0, 5))
def test_it_is_restored_exactly_from_json(texts, apart):
    known = learnt(*texts)
    known = known.unmerge(*(one for merge in known.merges() for one in merge.members[:apart]))
    again = Templates.of(json.loads(json.dumps(known.rows())), known.most)
    assert again.rows() == known.rows()
    assert again.merges() == known.merges()
    assert again == known


@given(LINES)
def test_every_merge_is_undone_to_what_each_pattern_is_alone(texts):
    known = learnt(*texts)
    for merge in known.merges():
        known = known.unmerge(*merge.members)
    while known.merges():  # what the others held back may now be merged
        known = known.unmerge(*(one for merge in known.merges() for one in merge.members))
    for text in texts:
        assert known.group(signature("log", text)) == signature("log", text).digest


def test_another_hash_seed_changes_nothing():
    texts = [text for texts in (ONE | APART).values() for text in texts]
    program = (
        "import json, sys; from heedful import Templates, signature\n"
        "known = Templates().learn(*(signature('log', t) for t in json.load(sys.stdin)))\n"
        "print(known.merges(), known.rows())"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps(texts),
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1


def test_four_times_the_patterns_are_not_sixteen_times_the_work(monkeypatch):
    def places(count: int) -> int:
        seen = 0
        real = templates._grown

        def counted(rows, members):
            nonlocal seen
            seen += sum(map(len, rows))
            yield from real(rows, members)

        with monkeypatch.context() as patch:
            patch.setattr(templates, "_grown", counted)
            texts = {f"d{n}": f"a {n % 7}x b {n % 11}y c d{n}z e f{n % 3} g" for n in range(count)}
            assert Branch(texts).merges is not None
        return seen

    assert places(1_600) <= 6 * places(400)
