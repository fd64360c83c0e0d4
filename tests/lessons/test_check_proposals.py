"""Which check is proposed from what examples, and what a form is."""

import pytest
from hypothesis import given, strategies as st

from heedful.lessons.check_proposals import Material, Proposed, ReplacedCall, propose
from heedful.lessons.lesson_check import LessonCheck, fits, pieces
from heedful.lessons.mistake import Call, Fix, Mistake


def material(
    rejected: list[str],
    accepted: list[str],
    text: str = "it is wrong",
    harmless: tuple[str, ...] = (),
    keyed: bool = True,
    is_call: bool = False,
) -> Material:
    """What a check is made from; by default its loops have a memory key."""
    return Material(
        text=text,
        rejected=tuple(rejected),
        accepted=tuple(accepted),
        harmless=harmless,
        keyed=keyed,
        is_call=is_call,
    )


OBJECTS = ['{"item": "hat", "amount": 3}', '{"item": "cup", "amount": 2.5, "note": ""}']


@pytest.mark.parametrize(
    ("given_material", "kind", "finds", "accepts"),
    [
        pytest.param(
            material(["hat 3", '{"price": 3}'], OBJECTS),
            "object",
            ['{"item": "hat"}', '{"item": 3, "amount": 3}', "[]", "x"],
            ['{"amount": 9, "item": "x", "more": null}'],
            id="fields of an object",
        ),
        pytest.param(
            material(["12 kilos", "7"], ["12 kg", "9.5 kg"], "write it as in 4 kg"),
            "form",
            ["4", "4 pounds", "4kg", "about 4 kg"],
            ["-3 kg", "1,000.5 kg"],
            id="a number and its unit",
        ),
        pytest.param(
            material(
                ["cash withdrawal", "Card lost"],
                ["cash_withdrawal", "card_is_lost"],
                "write it as top_up",
            ),
            "form",
            ["top up"],
            ["top_up", "refund", "w2_form"],
            id="what joins words",
        ),
        pytest.param(
            material(
                ["one two three", "a b c d"],
                ["one", "one two"],
                text="3 words, the limit is 2 words",
            ),
            "bound",
            ["a b c"],
            ["a", "a b"],
            id="how many words",
        ),
        pytest.param(
            material(
                ["One (1), two. Three four five six seven", "a; b c d e f g, h"],
                ["a. b, c", "a: b! c d", "x (y) z!"],
                text="at most 5 words are asked for",
            ),
            "bound",
            ["a b c d e f"],
            ["a, b. c; d e"],
            id="a bound that the lesson names",
        ),
        pytest.param(
            material(
                ["```sql\nselect 1```", "Here:\n```select 2```"],
                ["select 1;", "select a, b from c"],
                text="write it without ``` around it",
                keyed=False,
            ),
            "word",
            ["``` x"],
            ["anything"],
            id="a word to leave out, without a key",
        ),
        pytest.param(
            material(["npm test", "npm run x"], ["pnpm test", "yarn"], is_call=True),
            "call",
            ["cd a && npm i", '{"command": "npm i"}'],
            ["pnpm i", "npm-check"],
            id="the words of a call",
        ),
        pytest.param(
            material(["5", "6"], ["4", "9"]), None, [], [], id="a wrong value"
        ),
        pytest.param(
            material(["12", "7"], ["12 kg", "7 kg"], keyed=False),
            None,
            [],
            [],
            id="a form without a key",
        ),
        pytest.param(
            material(
                ["1 May.", "2 May."], ["1 May", "2 May"], "'1 May.' ends with a dot"
            ),
            None,
            [],
            [],
            id="a form that stands in a rejected output",
        ),
        pytest.param(
            material(
                ["Paris."] * 2,
                ["Oslo", "Lima"],
                harmless=tuple(f"City{letter}" for letter in "abcdefghijklmnopqr"),
            ),
            "form",
            ["Rome."],
            ["Cork"],
            id="a form that 20 outputs have",
        ),
        pytest.param(
            material(["npm test", "yarn"], ["make", "pnpm test"], is_call=True),
            None,
            [],
            [],
            id="calls that begin in two ways",
        ),
    ],
)
def test_the_simplest_check_that_separates_is_proposed(
    given_material: Material, kind: str | None, finds: list[str], accepts: list[str]
) -> None:
    proposed = propose(given_material)
    if kind is None:
        assert proposed is None
        return

    assert proposed is not None
    assert proposed.kind == kind
    assert [text for text in finds if _fits(proposed, text)] == []
    assert [text for text in accepts if not _fits(proposed, text)] == []


@pytest.mark.parametrize(
    ("failed", "fix", "calls"),
    [
        pytest.param(
            Call(tool="Bash", text="npm test"),
            Fix(kind="command", calls=(Call(tool="Bash", text="pnpm test"),)),
            ("npm test", "pnpm test"),
            id="another command",
        ),
        pytest.param(
            Call(tool="Bash", text="npm test"),
            Fix(kind="step", calls=(Call(tool="Bash", text="npm install"),)),
            None,
            id="a step before the same command",
        ),
        pytest.param(
            Call(tool="read", text="a.py"),
            Fix(kind="tool", calls=(Call(tool="Bash", text="cat a.py"),)),
            None,
            id="no command",
        ),
        pytest.param(Call(tool="Bash", text="npm test"), None, None, id="no fix"),
    ],
)
def test_the_commands_of_a_mistake_are_read(
    failed: Call, fix: Fix | None, calls: tuple[str, str] | None
) -> None:
    assert ReplacedCall.of(Mistake(action=failed, fix=fix)) == calls


def _fits(proposed: Proposed, text: str) -> bool:
    return fits(proposed.kind, proposed.rule, text)


def test_a_text_is_never_taken_for_an_expression() -> None:
    text = "write (a+)+$ and .* in it"
    proposed = propose(
        material(
            ["no. nothing, here", "none (of) it"],
            ["(a+)+$ is, so. it", "it has (a+)+$!", "one: (a+)+$, two"],
            text=f"{text}: '(a+)+$'",
        )
    )
    assert proposed is not None
    assert proposed.rule == {"word": "(a+)+$", "wanted": True}
    assert not _fits(proposed, "a" * 10_000)


@given(st.text(max_size=300))
def test_the_pieces_of_a_text_are_the_text(text: str) -> None:
    joined = "".join(piece.text for piece in pieces(text))
    assert "".join(joined.split()) == "".join(text.split())


@given(st.lists(st.text(max_size=40), min_size=2, max_size=4), st.text(max_size=40))
def test_what_is_proposed_keeps_what_it_was_made_from(
    accepted: list[str], rejected: str
) -> None:
    proposed = propose(material([rejected, rejected], accepted, text=rejected))
    if proposed is not None:
        assert all(_fits(proposed, text) for text in accepted)
        assert not _fits(proposed, rejected)


def test_an_empty_answer_is_left_to_other_checks() -> None:
    check = LessonCheck(
        lesson=1, kind="word", rule={"word": "x", "wanted": True}, about="no x"
    )
    assert check.judge(" \n") == []
    assert check.judge("y")
