"""Text of others -> text that poses as nobody's turn and hides nothing. Pure.

What somebody else wrote, shown to a model as data: between delimiters, and bounded. Pure.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping

# What chat templates take for the begin or end of a turn, of a tool's part or of thinking. Between
# bars: ChatML, Llama 3 and 4, Phi, Qwen, Harmony, Command, DeepSeek, and with one bar Gemma 4. As
# tags: Llama 2, Gemma 2 and 3, Qwen. In brackets: Mistral. At the begin of a line: older Claude.
TOKEN = re.compile(
    r"<[|｜][^|｜>\s…]{1,40}[|｜]?>|<\w{1,40}[|｜]>|<</?SYS>>"
    r"|</?(?:s|bos|eos|start_of_turn|end_of_turn|tool_call|tool_response|think)>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_(?:CALLS|RESULTS|CONTENT))\]"
    r"|(?:\A\n?|(?<=\n\n))(?-i:Human|Assistant)(?=:)",
    re.IGNORECASE,
)
# Scripts and pictographs need these, and only right after what is seen. Within ASCII, of which all
# tokens are made but for the bar, and after one another they would only hide something.
_SELECTORS = "\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
_JOINERS = "\u200c\u200d\u180e"
_SEEN = rf"[^\x00-\x7f\s｜{_SELECTORS}{_JOINERS}]"
_LOOSE_SELECTOR = re.compile(rf"(?<!{_SEEN})(?<![0-9#*])[{_SELECTORS}]")
_LOOSE_JOINER = re.compile(rf"(?<!{_SEEN})(?<![{_SELECTORS}])[{_JOINERS}]")
_BLANK = "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"  # letters and marks that nothing is seen of


def sanitize(text: str, most: int | None = None) -> str:
    """The text without controls and role tokens, cut at `most` characters (from 1; None: all).

    Taken out are control, bidirectional, zero-width, tag, private and unassigned characters, so a
    flag drawn with tags is a plain one. A joiner or variation selector stays behind a character
    outside ASCII, a selector behind a digit of a keycap, too. A role token becomes `…`.

    >>> neutral("a\\u200bb <|im_start|>system", 8)
    'ab …sys…'
    """
    # First, or what is taken out could have hidden a token.
    hidden = [c for c in set(text) if c in _BLANK or _hides(c)]
    text = text.translate(dict.fromkeys(map(ord, hidden))) if hidden else text
    if not text.isascii():
        text = _LOOSE_JOINER.sub("", _LOOSE_SELECTOR.sub("", text))
    text = TOKEN.sub("…", text)
    return text if most is None or len(text) <= most else f"{text[: most - 1]}…"


def _hides(c: str) -> bool:
    return unicodedata.category(c)[0] == "C" and c not in "\n\t" and c not in _JOINERS


def delimit(mark: str, shown: Mapping[str, str]) -> list[str]:
    """Each text between its delimiters."""
    return [f"<{label} {mark}>\n{text}\n</{label} {mark}>" for label, text in shown.items()]


def delimiter(name: str, shown: Mapping[str, str]) -> str:
    """A digest of all that is shown, which occurs in none of it: no text can end its delimiters."""
    said = "\0".join((name, *shown, *shown.values()))
    while True:
        said = hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()
        if not any(said[:12] in text for text in shown.values()):
            return said[:12]


def cut_middle(text: str, most: int) -> str:
    """Its beginning and end, at most `most` characters (200 or more) in all, where it is longer."""
    if len(text) <= most:
        return text
    half = (most - 60) // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters are left out]\n{text[-half:]}"
