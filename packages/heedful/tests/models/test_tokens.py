"""An estimate of tokens that is hardly ever too low."""

import pytest
from hypothesis import given, strategies as st

from heedful.models.contract import tokens

# With the counts of the tokenizer of Qwen2.5.
COUNTED = {
    "English": (
        39,
        (
            "The parcel was weighed twice because the first scale had not been "
            "calibrated since"
            " spring. Please write the weight in kilograms, round it to one decimal "
            "place, and"
            " leave a single space before the unit."
        ),
    ),
    "Chinese": (
        32,
        (
            "包裹的重量必须以公斤为单位书写，并保留一位小数。如果重量未知，请不要猜测，而是写明“未知”，"
            "并说明原因。"
        ),
    ),
    "emoji": (23, "👍🎉🚀🔥😂❤️✅⚠️💡🙏😊😭🤔👏💯✨🌍📦⚖️🏠"),
    "numbers": (52, "12.5 0.75 1234567 -3.14 2024-03-05 99.9% 1,250.00 007"),
}


@pytest.mark.parametrize("kind", COUNTED)
def test_it_is_not_below_what_a_tokenizer_counts(kind):
    counted, text = COUNTED[kind]
    assert 0.97 * counted <= tokens(text) <= 2.6 * counted


@given(st.text(), st.text())
def test_more_text_has_no_fewer_tokens_and_parts_no_more_than_their_characters(
    text, other
):
    assert (
        tokens(text) <= tokens(text + other) + 1
    )  # a word may end in the middle of six letters
    assert tokens(text) <= len(text.encode("utf-16-le", "surrogatepass")) // 2
