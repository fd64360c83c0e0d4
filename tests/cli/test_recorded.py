"""Files of recorded loops: what they may hold, and errors that name line, field and range."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.cli.replay import NOT_PASSED
from heedful.cli.replay import read_file as from_file
from heedful.errors import RecordFileError
from heedful.loop.record import Attempt, Candidate, Evaluation, Finding, Goal, Usage
from heedful.loop.replay import RecordedLoop

ANSWER = {"candidate": "x", "passed": False}
WHY = {"check": "tests", "message": "case 1 fails"}


def line(*attempts: Any, **more: Any) -> str:
    return json.dumps({"id": "a", "attempts": attempts or [ANSWER], **more})


def read(path: Path, text: str | bytes, name: str = "loops.jsonl") -> list[RecordedLoop]:
    file = path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return from_file(file)


def test_every_field_arrives(tmp_path):
    finding = {**WHY, "fix": "look", "severity": 0.9, "key": "k", "level": "error",
               "persistent": True, "evidence": "e", "span": [1, 2]}  # fmt: skip
    usage = {"calls": 2, "prompt_tokens": 3, "completion_tokens": 4, "cost": 0.5, "seconds": 6}
    first = {"candidate": "some text", "findings": [finding], "scores": {"q": 0.5}, "met": 0.25,
             "usage": usage, "quality": 0.5}  # fmt: skip
    second = {"candidate": {"b": 1, "a": [2]}, "digest": "d", "passed": True, "scores": {"q": 1},
              "quality": 1}  # fmt: skip
    goals = ["q >= 0.8", {"score": "q", "threshold": 2, "direction": "at_most"}]
    (made,) = read(tmp_path, line(first, second, goals=goals, task={"any": "thing"}))
    found = Finding("tests", "case 1 fails", "look", "error", 0.9, "k", True, "e", (1, 2))
    assert made.loop.attempts == (
        Attempt(
            1,
            Candidate.of("some text"),
            Evaluation((found,), {"q": 0.5}, met=0.25),
            Usage(2, 3, 4, 0.5, 6),
        ),
        Attempt(2, Candidate("d", '{"a": [2], "b": 1}'), Evaluation((), {"q": 1}), Usage(calls=1)),
    )
    assert made.loop.goals == (Goal("q", 0.8), Goal("q", 2, "at_most"))
    assert (made.loop.id, made.quality) == ("a", (0.5, 1))


def test_what_is_left_out_or_null(tmp_path):
    attempt = {"digest": "d", "candidate": None, "passed": True, "findings": None, "met": None}
    text = '\n \n{"attempts": [%s]}\r\n{"id": 7, "goals": null, "attempts": [%s]}'
    blank, number = read(tmp_path, text % (json.dumps(attempt), json.dumps(ANSWER)))
    assert (blank.loop.id, number.loop.id) == ("line 3", "7")
    assert blank.loop.attempts == (Attempt(1, Candidate("d"), Evaluation(), Usage(calls=1)),)
    assert blank.quality == ()


@pytest.mark.parametrize(
    ("attempt", "goals", "passes", "findings"),
    [
        ({"passed": True}, [], True, 0),
        ({"passed": True, "findings": [{**WHY, "level": "warning"}]}, [], True, 1),
        ({"findings": []}, [], True, 0),
        ({"findings": [WHY]}, [], False, 1),
        ({"passed": False}, [], False, 1),
        ({"passed": False, "findings": [WHY]}, [], False, 1),
        ({"passed": False, "findings": [{**WHY, "level": "note"}]}, [], False, 2),
        ({"scores": {"q": 0.5}}, ["q >= 0.5"], True, 0),
        ({"scores": {"q": 0.4}, "passed": False}, ["q >= 0.5"], False, 0),  # the goal says why
        ({"scores": {"q": 0.9}, "passed": False}, ["q >= 0.5"], False, 1),
        ({"scores": {"p": 0.9}}, ["q >= 0.5"], False, 0),
    ],
)
def test_what_says_that_an_attempt_passed(tmp_path, attempt, goals, passes, findings):
    (made,) = read(tmp_path, line({"candidate": "x", **attempt}, goals=goals))
    evaluation = made.loop.attempts[0].evaluation
    assert evaluation is not None
    assert evaluation.passes(made.loop.goals) is passes
    assert len(evaluation.findings) == findings


def test_an_attempt_that_only_did_not_pass(tmp_path):
    (made,) = read(tmp_path, line(ANSWER, ANSWER))
    assert [a.evaluation and a.evaluation.findings for a in made.loop.attempts] == [
        (NOT_PASSED,),
        (NOT_PASSED,),
    ]
    assert made.loop.attempts[1].repeats == 1


BAD_LOOPS: dict[str, tuple[str, str]] = {
    "a wrong key": ('{"attempt": []}', "a key of the loop is 'attempt'; it must be one of id, tas"),
    "no attempts": ('{"id": "a"}', "attempts of the loop is None; it must be a list of at least"),
    "an object": ('{"attempts": {"a": 1}}', "attempts of the loop is {'a': 1}; it must be a list"),
    "an id": (line(id=""), "id of the loop is ''; it must be text of at least one character, or"),
    "a goal": (line(goals=["q > 1"]), "a goal is 'q > 1'; it must be written like \"alignment"),
}
BAD_ATTEMPTS: dict[str, tuple[Any, str]] = {
    "a number": (1, "attempt 2 is 1; it must be an object of candidate, digest, passed, findings"),
    "nothing": ({}, "candidate of attempt 2 is None; it must be given, or its digest"),
    "no verdict": ({"candidate": "x"}, "passed of attempt 2 is None; it must be given, or find"),
    "only met": ({"candidate": "x", "met": 1}, "passed of attempt 2 is None; it must be given"),
    "a wrong key": ({**ANSWER, "score": 1}, "a key of attempt 2 is 'score'; it must be one of ca"),
    "digest": ({"digest": "", "passed": True}, "digest of attempt 2 is ''; it must be text of at"),
    "passed": ({**ANSWER, "passed": "yes"}, "passed of attempt 2 is 'yes'; it must be true or fa"),
    "passed, with an error": (
        {"candidate": "x", "passed": True, "findings": [WHY]},
        "passed of attempt 2 is True; it must be false: it has an error finding, or misses a goal",
    ),
    "findings": ({**ANSWER, "findings": "no"}, "findings of attempt 2 is 'no'; it must be a list"),
    "scores": ({**ANSWER, "scores": [["q", 1]]}, "scores of attempt 2 is [['q', 1]]; it must be"),
    "a text": ({**ANSWER, "scores": {"q": "1"}}, "score q of attempt 2 is '1'; it must be a numb"),
    "no score": ({**ANSWER, "scores": {"q": None}}, "score q of attempt 2 is None; it must be a"),
    "met": ({**ANSWER, "met": 1.5}, "met of attempt 2 is 1.5; it must be a number in 0..1"),
    "quality": ({**ANSWER, "quality": -0.1}, "quality of attempt 2 is -0.1; it must be a number"),
    "quality of some": (
        {**ANSWER, "quality": 1},
        "quality of attempt 1 is None; it must be given for every attempt of a loop, or for none",
    ),
    "usage": ({**ANSWER, "usage": []}, "usage of attempt 2 is []; it must be an object such as"),
    "calls": (
        {**ANSWER, "usage": {"calls": -1}},
        "calls of usage of attempt 2 is -1; it must be an integer in 0..1e12",
    ),
    "a wrong usage": ({**ANSWER, "usage": {"token": 1}}, "a key of usage of attempt 2 is 'token'"),
}
BAD_FINDINGS: dict[str, tuple[Any, str]] = {
    "a text": ("bad", "finding 1 of attempt 1 is 'bad'; it must be an object of check, message"),
    "no message": ({"check": "a"}, "message of finding 1 of attempt 1 is None; it must be given"),
    "no check": ({"message": "a"}, "check of finding 1 of attempt 1 is None; it must be given"),
    "a number": ({**WHY, "check": 1}, "check of finding 1 of attempt 1 is 1; it must be text of"),
    "a key": ({**WHY, "key": ["a"]}, "key of finding 1 of attempt 1 is ['a']; it must be text"),
    "level": ({**WHY, "level": "bad"}, "level of finding 1 of attempt 1 is 'bad'; it must be err"),
    "a list": ({**WHY, "level": []}, "level of finding 1 of attempt 1 is []; it must be error, w"),
    "severity": ({**WHY, "severity": 2}, "severity of finding 1 of attempt 1 is 2; it must be a "),
    "span": ({**WHY, "span": "ab"}, "span of finding 1 of attempt 1 is 'ab'; it must be a list o"),
    "unknown": ({**WHY, "name": 1}, "a key of finding 1 of attempt 1 is 'name'; it must be one "),
}


def refused(path: Path, text: str | bytes, name: str = "loops.jsonl") -> str:
    with pytest.raises(RecordFileError) as caught:
        read(path, text, name)
    assert caught.value.path == str(path / name)
    return str(caught.value).removeprefix(f"{path}{os.sep}")


@pytest.mark.parametrize("what", BAD_LOOPS)
def test_a_bad_line_names_itself_and_what_may_be_there(tmp_path, what):
    bad, said = BAD_LOOPS[what]
    told = refused(tmp_path, f"{line()}\n\n{bad}\n{line()}\n")
    assert told.startswith("loops.jsonl:3: ")
    assert said in told


@pytest.mark.parametrize("what", BAD_ATTEMPTS)
def test_a_bad_attempt_names_its_field(tmp_path, what):
    bad, said = BAD_ATTEMPTS[what]
    assert refused(tmp_path, line(ANSWER, bad)).startswith(f"loops.jsonl:1: {said}")


@pytest.mark.parametrize("what", BAD_FINDINGS)
def test_a_bad_finding_names_its_field(tmp_path, what):
    bad, said = BAD_FINDINGS[what]
    told = refused(tmp_path, line({"candidate": "x", "findings": [bad]}))
    assert told.startswith(f"loops.jsonl:1: {said}")


@pytest.mark.parametrize(
    "number", ["1e400", "-1e400", "1e13", "-1e13", "1" * 400], ids=lambda text: text[:6]
)
@pytest.mark.parametrize("field", ['"scores": {"q": %s}', '"quality": %s', '"met": %s',
                                   '"usage": {"cost": %s}', '"usage": {"calls": %s}'])  # fmt: skip
def test_no_number_is_too_large_to_be_refused(tmp_path, field, number):
    text = '{"attempts": [{"candidate": "x", "passed": false, %s}]}' % (field % number)
    assert refused(tmp_path, text).startswith("loops.jsonl:1: ")


def test_packed_files(tmp_path):
    whole = gzip.compress(line().encode())
    assert len(read(tmp_path, whole, "loops.jsonl.gz")) == 1
    middle = bytes(255 - byte for byte in whole[20:40])
    for damaged in (whole[:-9], whole[:20], line().encode(), whole[:20] + middle + whole[40:], b""):
        if damaged:
            told = refused(tmp_path, damaged, "loops.jsonl.gz")
            assert told.startswith("loops.jsonl.gz: it is no whole gzip file (")


def test_a_byte_order_mark_and_odd_text_are_fine(tmp_path):
    odd = line({"candidate": "\ud800 \x00 😀", "passed": True}, id="\udfff")
    (made,) = read(tmp_path, b"\xef\xbb\xbf" + odd.encode())
    assert (made.loop.id, made.loop.attempts[0].candidate.text) == ("\udfff", "\ud800 \x00 😀")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
KEYS = ("candidate", "digest", "passed", "findings", "scores", "met", "usage", "quality", "x")


@settings(max_examples=200)
@given(
    st.lists(st.dictionaries(st.sampled_from(KEYS), json_values), max_size=3),
    st.dictionaries(st.sampled_from(["id", "task", "goals", "y"]), json_values),
)
def test_any_json_is_read_or_refused_with_its_line(tmp_path_factory, attempts, more):
    path = tmp_path_factory.mktemp("any")
    text = json.dumps({"attempts": attempts, **more}).replace("Infinity", "1e999")
    try:
        (made,) = read(path, text)
    except RecordFileError as error:
        where = error.line
    else:
        where = 1
        assert len(made.loop.attempts) == len(attempts)
        assert made.loop.best is not None
    assert where == 1
