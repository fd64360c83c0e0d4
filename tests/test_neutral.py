"""What others wrote poses as nobody's turn, hides nothing, and is otherwise left as it
is.
"""

import re
import unicodedata

import pytest
from hypothesis import example, given, strategies as st

from heedful.sanitize import sanitize

# The special tokens of the templates named.
TOKENS = [
    *"<|im_start|> <|im_end|> <|endoftext|> <|fim_prefix|>".split(),  # ChatML, Qwen
    # Llama 3
    *"<|header_start|> <|eot|>".split(),  # Llama 4
    *"[SYSTEM_PROMPT] [/SYSTEM_PROMPT] [AVAILABLE_TOOLS]".split(),
    *"<bos> <eos> <start_of_turn> <end_of_turn>".split(),  # Gemma 2 and 3
    # Gemma 4
    *"<｜User｜> <｜begin▁of▁sentence｜> <｜tool▁calls▁begin｜>".split(),  # DeepSeek
    # Qwen
    *"<tool_call> </tool_call> <tool_response> </tool_response>".split(),
    # Harmony
    *"<|start|> <|channel|> <|message|> <|constrain|> <|return|> <|call|>".split(),
]
HIDDEN = (
    "\u200b\u200c\u200d\u2060\ufeff\u202e\u2066\0\x07\r"
    "\x85\U000e0041\ufe0f\U000e0100\u00ad\u3164"
)
ORDINARY = [
    "x < y and z > 3 | 'a' [1] </p> <strong> naïve\n\tindented",
    (
        "Human rights. The assistant said: no\nHuman: so says the line after\n\n## "
        "Assistant: not here"
    ),
    "if a < b and [ -f x ] || [ INSTALL ]; then cat <<EOF; fi, [ ] todo, [x] done",
    "全角の＜見出し＞と［注］、｜区切り｜",
    "漢字とかな、한국어 텍스트",
    "שָׁלוֹם עוֹלָם",
    "ภาษาไทย, ភាសាខ្មែរ, မြန်မာ, ქართული, አማርኛ",
    "👩‍👩‍👧‍👦 👁️‍🗨️ ❤️‍🔥 🏳️‍🌈 👍🏽 1️⃣ #️⃣ ☎️ ☎︎ ‼️ 葛󠄀城 𝒳︀",
]


@pytest.mark.parametrize("token", TOKENS)
def test_no_role_token_is_left_however_it_is_hidden(token: str) -> None:
    assert sanitize(f"before {token} after") == "before … after"
    assert sanitize(token.swapcase()) == "…"
    for hidden in HIDDEN:
        assert sanitize(f"a {hidden.join(token)} b") in ("a … b", f"a {hidden}… b"), (
            ascii(hidden)
        )
        assert token not in sanitize(hidden * 3 + (hidden * 2).join(token))
    for other in TOKENS:
        for place in range(1, len(token)):
            assert token not in sanitize(token[:place] + other + token[place:])


@pytest.mark.parametrize("text", ORDINARY)
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert sanitize(text) == text
    assert sanitize(text, len(text)) == text


NASTY = st.text(
    st.one_of(
        st.sampled_from(
            [*HIDDEN, *"<|｜>[]/sINT▁:", "\n", "\n", "\t", " ", "😀", "漢", "7"]
        ),
        st.characters(),
    ),
    max_size=300,
)
PIECES = st.one_of(
    NASTY, st.sampled_from([*TOKENS, *ORDINARY, "\n\nHuman:", "\n\nAssistant:"])
)


@given(st.lists(PIECES, max_size=12).map("".join), st.integers(1, 400))
@example("<|im_start\u200d<s>|>", 20)
@example("7\ufe0f\u200d\ufe0f", 3)
def test_what_is_shown_cannot_pose_as_anything_else(text: str, limit: int) -> None:
    uncut = sanitize(text)
    cut = sanitize(text, limit)
    assert len(cut) <= limit
    assert sanitize(uncut) == uncut
    assert sanitize(cut, limit) == cut
    for clean in (uncut, cut):
        allowed = "\n\t\u200c\u200d\u180e"
        assert all(c in allowed or unicodedata.category(c)[0] != "C" for c in clean)
        assert not re.search(
            "[\ufe00-\ufe0f\U000e0100-\U000e01ef\u200c\u200d]{3}", clean
        )
        assert not any(token.lower() in clean.lower() for token in TOKENS)
        assert not re.search(r"(?:\A|\n\n)(?:Human|Assistant):", clean)
