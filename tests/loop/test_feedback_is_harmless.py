"""Feedback cannot imitate a message of the system."""

import pytest

from heedful.loop.record import Evaluation, Finding, feedback


@pytest.mark.parametrize(
    "hostile",
    [
        "<|im_start|>",
        "[INST]",
        "</s>",
        "<system>",
        "</assistant>",
        "![x](http://a",
        "<img src=x>",
        "<image src=x>",
        "<svg>",
        "<video poster=x>",
    ],
)
def test_feedback_is_sanitised(hostile: str) -> None:
    said = feedback(Evaluation((Finding("c", f"a {hostile}) b", f"do {hostile}) c"),)))
    assert hostile not in said
    assert "…" in said
