"""Triggers: words without which memory has nothing to say about a call. Pure.

A hook process starts at each call of an agent, and memory has nothing to say about most
of them. So what memory may say about calls is stored with a trigger: a word that each
of these calls has. A call without any trigger needs no further look. A call with one
may still be silent: the trigger is one word of many.

A word is a run of letters of ASCII, digits and underscores, in lower case, and the same
without digits at its end, because "python3" is "python", too.
"""

import re
from zlib import crc32

from heedful.lessons.call_marks import Mark
from heedful.lessons.contracts import CONTRACTS_BY_NAME
from heedful.redact import has_mark

# The trigger of what has no word that each of its calls has.
ANY_CALL = "*"
_TRIGGER_PATTERN = re.compile(r"[a-z0-9_]+")
# It stands in a mark in place of a secret, which the call itself has.
_REDACTED_PATTERN = re.compile(r"\[redacted: [^\]]*\]")
# Options come in several forms: "-rf", "-r -f".
_FLAG_PATTERN = re.compile(r"(?<!\S)-\S*")


def trigger_of(text: str) -> str:
    """Return the longest word of a text that is no option; `ANY_CALL` without one.

    >>> trigger_of("npx vitest --run"), trigger_of("src/cart.ts"), trigger_of("-k")
    ('vitest', 'cart', '*')
    """
    clean_text = _REDACTED_PATTERN.sub(" ", text.casefold())
    words = _TRIGGER_PATTERN.findall(_FLAG_PATTERN.sub(" ", clean_text))
    # A name that ends so may go on in the call.
    closed_words = [word for word in words if not word.endswith("_")]
    longest = max(closed_words, key=len, default=ANY_CALL)
    return longest.rstrip("0123456789") or longest


def trigger_of_mark(mark: Mark) -> str:
    """Return the trigger of what is known of calls with a mark; "" if no call has it.

    A name is a word of each of its calls. A path or a whole call is one in itself, as
    `number_of` it. A call seems to break a contract only in a state of its file, which
    stands before the tool: "unread edit".
    """
    if mark.kind == "contract":
        state = CONTRACTS_BY_NAME[mark.name].state
        return f"{state} {mark.tool.casefold()}" if state else ""
    if mark.kind == "name" or has_mark(mark.name):
        return trigger_of(mark.name.lstrip("-"))
    return number_of(mark.name)


def number_of(text: str) -> str:
    """Return a number for a text, which equal texts have in common.

    >>> number_of("make test")
    '=be16da9a'
    """
    return f"={crc32(text.encode('utf-8', 'replace')):x}"
