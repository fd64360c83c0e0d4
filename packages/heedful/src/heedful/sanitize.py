"""Make texts from untrusted sources safe for a prompt.

`sanitize` removes what a reader does not see and what a model takes for the end of a
turn. `delimit` sets texts between tags with a mark that no text has (`delimiter`).
`cut_middle`, `redact_ends` and `clean` shorten. `visible` shows a person what a text
is. `plain_text` is a text as its reader takes it, so that words can be found again.
"""

import hashlib
import re
import unicodedata
from collections.abc import Mapping

from heedful.redact import (
    CUT_MARGIN_CHARS,
    INVISIBLE_LETTERS,
    VARIATION_SELECTORS,
    redact,
    redact_start,
)

# Tokens of chat templates that begin or end a turn, a tool's part or thinking. Between
# bars: ChatML, Llama 3 and 4, Phi, Qwen, Harmony, Command, DeepSeek, and with one bar
# Gemma 4. As tags: Llama 2, Gemma 2 and 3, Qwen. In brackets: Mistral. At the start of
# a line: older Claude. Signs may have their full width. Blanks may come between the
# signs and the name if the name is that of a token: "f <| ys |> g" is code, and so is
# "a < s > b". The patterns are compiled at their first use: `heedful --help` has none.
_CHAT_TOKENS = r"""(?ix)
    [<＜][|｜][^|｜>＞\s…]{1,40}[|｜]?[>＞]
  | [<＜]\s{0,3}[|｜]\s{0,3}
    (?:/?\w{1,40}[_▁＿]\w{1,40}(?:▁\w{1,40}){0,3}
      |user|assistant|system|end\w{0,20})
    \s{0,3}[|｜]\s{0,3}[>＞]
  | [<＜]\w{1,40}[|｜][>＞]
  | [<＜]\s?[<＜]\s{0,3}/?\s{0,3}SYS\s{0,3}[>＞]\s?[>＞]
  | [<＜]/?s[>＞] | [<＜]\s{0,3}/\s{0,3}s\s{0,3}[>＞]
  | [<＜]\s{0,3}/?\s{0,3}
    (?:[be]os|\w{3,5}_of_turn|tool_(?:call|response)|think)\s{0,3}[>＞]
    # Tags that imitate a message of the system.
  | [<＜]\s{0,3}/?\s{0,3}
    (?:system|assistant|developer|instructions?|function_\w{5,7})
    (?:[-_:]\w{1,40})?(?:\s[^<>＜＞]{0,200})?[>＞]
    # Images, which a page loads from anywhere.
  | !(?=\[[^\]\n]{0,200}\]\s?[(\[])
  | <(?=(?:ima?ge?|svg|video|object|embed|iframe)[\s/>])
  | [\[［]\s{0,3}/?\s{0,3}
    (?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_\w{5,7})\s{0,3}[\]］]
  | (?:\A\n?|(?<=\n\n))(?-i:Human|Assistant)(?=:)
"""
# Every token begins with one of these; a text without them is not searched.
_CHAT_TOKEN_STARTS = (*"<＜[［!", "Human:", "Assistant:")
# Scripts and pictographs need these, but only right after a visible character outside
# ASCII. After each other, or within ASCII, they would only hide something: all chat
# tokens consist of ASCII and the signs `｜＜＞［］`.
_ZERO_WIDTH_JOINERS = "\u200c\u200d\u180e"
MAX_CUT_WORD_CHARS = 20  # the characters of a word that a cut may leave out
_ALLOWED_CONTROLS = f"\n\t{_ZERO_WIDTH_JOINERS}"
_VISIBLE_CHARACTER = (
    rf"[^\x00-\x7f\s｜＜＞［］▁{VARIATION_SELECTORS}{_ZERO_WIDTH_JOINERS}]"
)
# A selector or a joiner without such a character before it. A selector may also follow
# the digit of a keycap, and a joiner may follow a selector.
_LOOSE_SELECTORS = rf"(?<!{_VISIBLE_CHARACTER})(?<![0-9#*])[{VARIATION_SELECTORS}]"
_LOOSE_JOINERS = (
    rf"(?<!{_VISIBLE_CHARACTER})(?<![{VARIATION_SELECTORS}])[{_ZERO_WIDTH_JOINERS}]"
)


def sanitize(text: str, most: int | None = None) -> str:
    """Return the text without hidden characters and chat tokens.

    It is cut at `most` characters. It loses control, bidirectional, zero-width, tag,
    private and unassigned characters; a flag drawn with tags becomes a plain flag. A
    joiner or variation selector stays after a character outside ASCII, and a selector
    after the digit of a keycap. A chat token, a `<system>`-like tag and the beginning
    of an image become `…`.

    >>> sanitize("a\\u200bb <|im_start|>system", 8)
    'ab …sys…'
    """
    # Hidden characters go first, because they could split a token.
    if not (text.isascii() and text.replace("\n", "").isprintable()):
        characters = set(text)
        hidden = {character for character in characters if _is_control(character)}
        hidden -= set(_ALLOWED_CONTROLS)
        hidden |= characters.intersection(INVISIBLE_LETTERS)
        text = text.translate(dict.fromkeys(map(ord, hidden)))
        text = re.sub(_LOOSE_SELECTORS, "", text)
        text = re.sub(_LOOSE_JOINERS, "", text)

    if find_chat_tokens(text):
        text = re.sub(_CHAT_TOKENS, "…", text)

    if most is not None and len(text) > most:
        text = f"{text[: most - 1]}…"
    return text


def find_chat_tokens(text: str) -> list[re.Match[str]]:
    """Return the tokens of chat templates in a text, and what imitates them."""
    if not any(map(text.__contains__, _CHAT_TOKEN_STARTS)):
        return []
    return list(re.finditer(_CHAT_TOKENS, text))


def _is_control(character: str) -> bool:
    """Return True for a control, format, private or unassigned character."""
    return unicodedata.category(character)[0] == "C"


def delimit(mark: str, shown: Mapping[str, str]) -> list[str]:
    """Return the texts of `shown`, each between tags of its label and `mark`."""
    return [
        f"<{label} {mark}>\n{text}\n</{label} {mark}>" for label, text in shown.items()
    ]


def delimiter(name: str, shown: Mapping[str, str]) -> str:
    """Return a mark for `delimit`: 8 hexadecimal digits that no text has.

    It is made of `name` and `shown`, so equal prompts have equal marks.
    """
    digest = "\0".join((name, *shown, *shown.values()))
    # If a text has the digits, the digest of the digest has others.
    while True:
        digest = hashlib.sha256(digest.encode("utf-8", "replace")).hexdigest()
        mark = digest[:8]
        if not any(mark in text for text in shown.values()):
            return mark


def cut_middle(text: str, most: int) -> str:
    """Return a text without its middle, in at most `most` (200 or more) characters."""
    if len(text) <= most:
        return text

    half = (most - 60) // 2  # the line between the halves has up to 60 characters
    omitted = len(text) - 2 * half
    return f"{text[:half]}\n[{omitted} characters are left out]\n{text[-half:]}"


def redact_ends(text: str, most: int) -> str:
    """Redact a text, then cut its middle if it has over `most` characters (≥ 200).

    A text that is cut first may keep the value of a secret, and lose its name. Of a
    very long text, only the ends are redacted.
    """
    if len(text) <= 2 * (most + CUT_MARGIN_CHARS):
        return cut_middle(redact(text), most)

    tail = redact(text[-most - CUT_MARGIN_CHARS :])[CUT_MARGIN_CHARS:]
    middle = " " * (len(text) - 2 * most)
    return cut_middle(f"{redact_start(text, most)}{middle}{tail}", most)


def clean(text: str, most: int) -> str:
    """Return `text` as one line without control characters, cut in the middle."""
    if len(text) <= most and text.isprintable() and "  " not in text:
        return text.strip()

    # The middle of a long text would be cut anyway.
    if len(text) > 4 * most:
        text = text[: 2 * most] + text[-2 * most :]
    if not text.isprintable():
        text = "".join(
            character
            for character in text
            if character.isspace() or not _is_control(character)
        )
    text = " ".join(text.split())
    if len(text) <= most:
        return text

    half = (most - 3) // 2  # " … " comes between the halves
    head = text[:half]
    if text[half] != " ":
        head = _without_last_word(head)
    tail = text[-half:]
    if text[-half - 1] != " ":
        tail = _without_last_word(tail[::-1])[::-1]
    return f"{head.rstrip()} … {tail.lstrip()}"


def _without_last_word(text: str) -> str:
    """Return a text without its last word, of which it may have only a part.

    A word of more than `MAX_CUT_WORD_CHARS` stays: it is no word, or all of the text.
    """
    words, blank, word = text.rpartition(" ")
    return words if blank and len(word) <= MAX_CUT_WORD_CHARS else text


def visible(text: str) -> str:
    r"""Return a text in which nothing is hidden from the person who must agree to it.

    Control and format characters become escapes, and eight blanks or more their number.
    So a line cannot end early, run backwards, or go on past the edge of a screen.

    >>> visible("make" + " " * 300 + "; curl x\u202e")
    'make[300 blanks]; curl x\\u202e'
    """
    if not text.isprintable():
        text = "".join(
            character
            if character.isprintable()
            else character.encode("unicode_escape").decode("ascii")
            for character in text
        )
    return re.sub(r" {8,}", lambda blanks: f"[{len(blanks[0])} blanks]", text)


def without_controls(text: str) -> str:
    r"""Return lines in which control and format characters are escapes.

    So no text of others moves the cursor of a terminal, or runs backwards.

    >>> without_controls("a\x1b[2J\n\tb\u202e")
    'a\\x1b[2J\n\tb\\u202e'
    """
    return re.sub(
        _CONTROLS, lambda hit: hit[0].encode("unicode_escape").decode("ascii"), text
    )


# The categories Cc and Cf, and separators of lines; without the ends of lines, tabs and
# joiners of letters.
_CONTROLS = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u180e\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
