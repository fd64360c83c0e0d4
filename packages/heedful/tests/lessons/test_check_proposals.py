"""Which check is proposed from what examples, and what a form is."""

from hypothesis import given, strategies as st

from heedful.lessons.check_proposals import Material, Proposed, ReplacedCall, propose
from heedful.lessons.lesson_check import LessonCheck, fits, pieces
from heedful.lessons.mistake import Call, Fix, Mistake
from tests.tables import cases


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


@cases(
    "given_material, kind, finds, accepts",
    {
        "fields of an object": (
            material(["hat 3", '{"price": 3}'], OBJECTS),
            "object",
            ['{"item": "hat"}', '{"item": 3, "amount": 3}', "[]", "x"],
            ['{"amount": 9, "item": "x", "more": null}'],
        ),
        "a number and its unit": (
            material(["12 kilos", "7"], ["12 kg", "9.5 kg"], "write it as in 4 kg"),
            "form",
            ["4", "4 pounds", "4kg", "about 4 kg"],
            ["-3 kg", "1,000.5 kg"],
        ),
        "what joins words": (
            material(
                ["cash withdrawal", "Card lost"],
                ["cash_withdrawal", "card_is_lost"],
                "write it as top_up",
            ),
            "form",
            ["top up"],
            ["top_up", "refund", "w2_form"],
        ),
        "how many words": (
            material(
                ["one two three", "a b c d"],
                ["one", "one two"],
                text="3 words, the limit is 2 words",
            ),
            "bound",
            ["a b c"],
            ["a", "a b"],
        ),
        "a bound that the lesson names": (
            material(
                ["One (1), two. Three four five six seven", "a; b c d e f g, h"],
                ["a. b, c", "a: b! c d", "x (y) z!"],
                text="at most 5 words are asked for",
            ),
            "bound",
            ["a b c d e f"],
            ["a, b. c; d e"],
        ),
        "a word to leave out, without a key": (
            material(
                ["```sql\nselect 1```", "Here:\n```select 2```"],
                ["select 1;", "select a, b from c"],
                text="write it without ``` around it",
                keyed=False,
            ),
            "word",
            ["``` x"],
            ["anything"],
        ),
        "the words of a call": (
            material(["npm test", "npm run x"], ["pnpm test", "yarn"], is_call=True),
            "call",
            ["cd a && npm i", '{"command": "npm i"}'],
            ["pnpm i", "npm-check"],
        ),
        "a wrong value": (material(["5", "6"], ["4", "9"]), None, [], []),
        "a form without a key": (
            material(["12", "7"], ["12 kg", "7 kg"], keyed=False),
            None,
            [],
            [],
        ),
        "a form that stands in a rejected output": (
            material(
                ["1 May.", "2 May."], ["1 May", "2 May"], "'1 May.' ends with a dot"
            ),
            None,
            [],
            [],
        ),
        "a form that 20 outputs have": (
            material(
                ["Paris."] * 2,
                ["Oslo", "Lima"],
                harmless=tuple(f"City{letter}" for letter in "abcdefghijklmnopqr"),
            ),
            "form",
            ["Rome."],
            ["Cork"],
        ),
        "calls that begin in two ways": (
            material(["npm test", "yarn"], ["make", "pnpm test"], is_call=True),
            None,
            [],
            [],
        ),
    },
)
def test_the_simplest_check_that_separates_is_proposed(
    given_material, kind, finds, accepts
):
    proposed = propose(given_material)
    if kind is None:
        assert proposed is None
        return

    assert proposed is not None
    assert proposed.kind == kind
    assert [text for text in finds if _fits(proposed, text)] == []
    assert [text for text in accepts if not _fits(proposed, text)] == []


@cases(
    "failed, fix, calls",
    {
        "another command": (
            Call(tool="Bash", text="npm test"),
            Fix(kind="command", calls=(Call(tool="Bash", text="pnpm test"),)),
            ("npm test", "pnpm test"),
        ),
        "a step before the same command": (
            Call(tool="Bash", text="npm test"),
            Fix(kind="step", calls=(Call(tool="Bash", text="npm install"),)),
            None,
        ),
        "no command": (
            Call(tool="read", text="a.py"),
            Fix(kind="tool", calls=(Call(tool="Bash", text="cat a.py"),)),
            None,
        ),
        "no fix": (Call(tool="Bash", text="npm test"), None, None),
    },
)
def test_the_commands_of_a_mistake_are_read(failed, fix, calls):
    assert ReplacedCall.of(Mistake(action=failed, fix=fix)) == calls


def _fits(proposed: Proposed, text: str) -> bool:
    return fits(proposed.kind, proposed.rule, text)


def test_a_text_is_never_taken_for_an_expression():
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
def test_the_pieces_of_a_text_are_the_text(text):
    joined = "".join(piece.text for piece in pieces(text))
    assert "".join(joined.split()) == "".join(text.split())


@given(st.lists(st.text(max_size=40), min_size=2, max_size=4), st.text(max_size=40))
def test_what_is_proposed_keeps_what_it_was_made_from(accepted, rejected):
    proposed = propose(material([rejected, rejected], accepted, text=rejected))
    if proposed is not None:
        assert all(_fits(proposed, text) for text in accepted)
        assert not _fits(proposed, rejected)


def test_an_empty_answer_is_left_to_other_checks():
    check = LessonCheck(
        lesson=1, kind="word", rule={"word": "x", "wanted": True}, about="no x"
    )
    assert not check.refuses(" \n")
    assert check.refuses("y")
