"""The learned level: what is merged by evidence, what never is, and how it is
undone.
"""

from collections.abc import Iterable

import pytest
from hypothesis import given, strategies as st

from heedful.lessons.patterns import MIN_PARTICULAR_VALUES, Templates
from heedful.lessons.signature import signature

NAMES = ("ada", "bo2", "cy", "di", "ed", "flo", "gus", "hal")


def learn_templates(texts: Iterable[str]) -> Templates:
    return Templates().learn(*(signature("log", text) for text in texts))


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
    "too few words": [f"{name} failed" for name in NAMES],
    "words of a language, however many": [
        f"the volume of the database was {verb} today"
        for verb in ("attached", "detached", "formatted", "locked", "opened", "shut")
    ],
    "the first word": [f"{name} has failed once more today" for name in NAMES],
    "lengths": [
        "it failed for ada now",
        "it failed for ada and bo now",
        "it failed for now",
    ],
    "exceptions with a package": [
        f"job ended: a.b.{n.title()}Exception today" for n in NAMES
    ],
    "quoted text with a mask": [f"there is no key '{name} 12' in it" for name in NAMES],
    "assertions": [f"assert f({n}) == 4 in all of them" for n in range(8)],
    "expected values": [f"got 17, want {n} in all of them" for n in range(8)],
}


@pytest.mark.parametrize("case", ONE)
def test_what_evidence_makes_one(case):
    texts = ONE[case]
    assert groups(learn_templates(texts), texts) == {frozenset(texts)}
    merge = learn_templates(texts).merge(signature("log", texts[-1]))
    assert merge is not None
    assert merge.group == signature("log", texts[0]).digest == merge.members[0]
    assert len(merge.members) == len({signature("log", text).digest for text in texts})


@pytest.mark.parametrize("case", APART)
def test_what_stays_apart(case):
    texts = APART[case]
    assert groups(learn_templates(texts), texts) == {
        frozenset([text]) for text in texts
    }


def test_not_is_no_name():
    texts = [f"the host {name} answers today" for name in NAMES]
    denied = signature("log", "the host not answers today")
    assert learn_templates(texts).group(denied) == denied.digest


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
    assert templates == learn_templates(texts)
