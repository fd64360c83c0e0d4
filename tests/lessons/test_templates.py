"""The learned level: what is merged by evidence, what never is, and how it is
undone.
"""

from collections.abc import Iterable

import pytest
from hypothesis import given, strategies as st

from heedful.lessons.patterns import (
    MAX_PATTERN_CHARS,
    MAX_SCOPE_PATTERNS,
    MIN_PARTICULAR_VALUES,
    Templates,
)
from heedful.lessons.signature import signature

NAMES = ("ada", "bo2", "cy", "di", "ed", "flo", "gus", "hal")


def learn_templates(texts: Iterable[str], kind: str = "log") -> Templates:
    return Templates().learn(*(signature(kind, text) for text in texts))


def groups(
    templates: Templates, texts: list[str], kind: str = "log"
) -> set[frozenset[str]]:
    members: dict[str, set[str]] = {}
    for text in texts:
        members.setdefault(templates.group(signature(kind, text)), set()).add(text)
    return {frozenset(group) for group in members.values()}


ONE = {
    "a place that held many": [
        f"login failed for {name} here" for name in NAMES[:MIN_PARTICULAR_VALUES]
    ],
    "masks of other kinds": [
        "cannot read it from 10.0.0.7",
        "cannot read it from /srv/x",
    ],
    "a mask and a word": ["the last value was 12.5", "the last value was unknown"],
    "lists of other lengths": [
        "no route to 10.0.0.1, 10.0.0.2 (/srv/x) now",
        "no route to 10.0.0.7 () now",
    ],
    "a figure told in two measures": [
        "it sent 1190 bytes (1.16 KB) in all",
        "it sent 353 bytes in all",
    ],
    "part of a word": ["cannot read from node-12 now", "cannot read from node-7-b now"],
}
APART = {
    "punctuation": [f"the parser stopped at or near {sign}" for sign in ";%})("],
    "mostly places": [f"stop {n} {n[::-1]} {n * 2}" for n in NAMES],
    "too few words": [f"{name} failed" for name in NAMES],
    "negations": [
        f"the value is {word} valid" for word in ("not", "no", "never", "now", "seen")
    ],
    "words of a language, however many": [
        f"the volume of the database was {verb} today"
        for verb in ("attached", "detached", "formatted", "locked", "opened", "shut")
    ],
    "few values": [
        f"login failed for {name} here" for name in NAMES[: MIN_PARTICULAR_VALUES - 1]
    ],
    "the first word": [f"{name} has failed once more today" for name in NAMES],
    "other words": [
        "the disk is full",
        "the queue is empty",
        "a user is gone",
        "no one is here",
    ],
    "lengths": [
        "it failed for ada now",
        "it failed for ada and bo now",
        "it failed for now",
    ],
    "exceptions": [f"job ended with {name.title()}Error today" for name in NAMES],
    "exceptions with a package": [
        f"job ended: a.b.{n.title()}Exception today" for n in NAMES
    ],
    "quoted names": [f"there is no key '{name}' in it" for name in NAMES],
    "quoted text with a mask": [f"there is no key '{name} 12' in it" for name in NAMES],
    "codes": [f"it ended with exit code {code} again" for code in (1, 2, 3, 126, 137)],
    "assertions": [f"assert f({n}) == 4 in all of them" for n in range(8)],
    "expected values": [f"got 17, want {n} in all of them" for n in range(8)],
}


@pytest.mark.parametrize("case", ONE)
def test_what_evidence_makes_one(case):
    texts = ONE[case]
    assert groups(learn_templates(texts), texts) == {frozenset(texts)}
    (merge,) = learn_templates(texts).merges()
    assert merge.group == signature("log", texts[0]).digest == merge.members[0]
    assert len(merge.members) == len({signature("log", text).digest for text in texts})


@pytest.mark.parametrize("case", APART)
def test_what_stays_apart(case):
    texts = APART[case]
    assert groups(learn_templates(texts), texts) == {
        frozenset([text]) for text in texts
    }
    assert learn_templates(texts).merges() == ()


def test_other_error_types_are_never_merged():
    templates = Templates()
    for kind in NAMES:
        templates = templates.learn(signature(kind, "it took 12 s to fail like that"))
        templates = templates.learn(signature(kind, "it took /srv/x to fail like that"))
    assert len(templates.merges()) == len(NAMES)
    assert {len(merge.members) for merge in templates.merges()} == {2}


@pytest.mark.parametrize("kind", ["AssertionError", "JestAssertionError"])
def test_a_failed_assertion_is_merged_with_nothing(kind):
    texts = [f"login failed for {name} here" for name in NAMES]
    assert len(groups(learn_templates(texts, kind), texts, kind)) == len(texts)


def test_a_name_of_two_words_belongs_to_the_group_of_names():
    texts = [f"login failed for {name} from 10.0.0.7" for name in NAMES]
    whole_name = signature("log", "login failed for ada king from 10.0.0.9")
    templates = learn_templates(texts).learn(whole_name)
    assert templates.group(whole_name) == signature("log", texts[0]).digest
    host = signature("log", "login failed for ada from host 10.0.0.9")
    assert templates.group(host) == host.digest


LINES = st.lists(
    st.sampled_from([text for texts in (ONE | APART).values() for text in texts]),
    max_size=40,
)


@given(LINES, st.randoms(use_true_random=False))
def test_the_groups_do_not_depend_on_the_order(texts, random):
    shuffled = random.sample(texts, len(texts))
    assert groups(learn_templates(texts), texts) == groups(
        learn_templates(shuffled), texts
    )


@given(LINES)
def test_line_by_line_is_as_all_at_once(texts):
    templates = Templates()
    for text in texts:
        templates = templates.learn(signature("log", text))
    assert templates.merges() == learn_templates(texts).merges()
    assert templates == learn_templates(texts)


def test_memory_is_bounded():
    names = [
        signature("log", f"{chr(0x4E00 + n)} is") for n in range(MAX_SCOPE_PATTERNS + 5)
    ]
    assert (
        sum(map(len, Templates().learn(*names).branches.values())) == MAX_SCOPE_PATTERNS
    )
    long = signature("log", "word " * MAX_PATTERN_CHARS)
    assert Templates().learn(long) == Templates()
    assert Templates().group(long) == long.digest
    many = [signature("log", f"{name} x" + " , y" * 100) for name in NAMES]
    assert Templates().learn(*many).merges() == ()
