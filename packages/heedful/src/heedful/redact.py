"""Redaction of secrets, before text is stored or sent to a model.

A secret is recognised by the format that its issuer uses, by the words before it (a
header, a name such as `password`), or because it is a random string in quotes. A mark
replaces the secret and says what kind it was. `redact_rules` is the table of what is
recognised; this module applies it to texts (`redact`) and to JSON data (`redact_data`),
where the key of a value also says whether it is a secret. docs/secrets.md lists what is
found, and how often ordinary texts are marked.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any, Literal
from unicodedata import category

from heedful.redact_rules import (
    ARGUMENT_SEPARATOR,
    COMMAND_RULES,
    FOREIGN_NAME_PATTERN,
    FOREIGN_NAME_WORDS,
    JOINED_COMMAND_RULE,
    LONG_WORD_RULES,
    MIN_LONG_WORD_CHARS,
    NAME_RULES,
    NOT_A_REFERENCE,
    OTHER_NAME_RULES,
    PERSONAL_RULES,
    PIN_PATTERN,
    PLACE_RULES,
    RANDOM_TEXT_RULE,
    SECRET_HEADER_WORDS,
    SECRET_NAME_PATTERN,
    SECRET_NAME_WORDS,
    TOKEN_PART_PATTERN,
    TOKEN_RULES,
    Rule,
)

MARK_START = "[redacted: "  # the kind of the secret and a bracket follow
# Of a long text only the ends are redacted, with so much of its middle that a secret is
# whole: a private key of 16,384 bits has 12,600 characters.
CUT_MARGIN_CHARS = 20_000

# Texts in which no secret was found. A text is redacted where it enters, and again by
# the store: a text that is remembered here is not searched again.
_CLEAN_TEXTS: set[str] = set()
_CLEAN_LONG_TEXTS: set[str] = set()
MAX_SHORT_CHARS = 200  # of one short text
MAX_SHORT_TEXTS = 2_000
MAX_LONG_CHARS = 10_000  # of one long text
MAX_LONG_TEXTS = 100
# What a terminal obeys and does not draw (ECMA-48): a style as "\x1b[31m", a link or a
# title up to its end, a character set and other codes. Its escape may be written as in
# programs, in HTML and XML, by `cat -v` and by the log of the system.
_ESCAPE = r"""(?:\x1b | \^\[ | &?(?:amp;)?\#(?:27|033|x1[bB]);?
  | \\{1,4}(?:[uUx]\{?0{0,6}1[bB]\}? | 033 | e))"""
# Logs leave the escape out of a style, or write it in words.
_LOST_ESCAPE = r"""(?:ESC | \ufffd | \\{1,4}E)"""
TERMINAL_CODES = rf"""
    {_ESCAPE}\[[0-?]*[ -/]*[@-~]
  | {_ESCAPE}[\]PX^_](?:(?!{_ESCAPE})[^\x07]){{0,2000}}(?:\x07|{_ESCAPE}\\)
  | {_ESCAPE}[ -/]+[0-~] | \x1b[78=>cDEHMZ]
  | {_LOST_ESCAPE}?\[(?:\d{{1,3}}(?:[;:]\d{{0,3}}){{0,16}}m|[0-2]K|\?25[hl])
"""
# The end of a style: it may be a word of a text that has no other code.
_STYLE_ENDS = rf"{_LOST_ESCAPE}?\[[mK]"
# A text without any of these has no such code.
_ESCAPE_STARTS = ("\x1b", "[?25", *(f"[{digit}" for digit in range(10)))
# Letters and marks that are drawn as nothing.
INVISIBLE_LETTERS = "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"
# Marks of the way in which the character before them is drawn, as a range of a pattern.
VARIATION_SELECTORS = "\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
_MARK_PATTERN = r"\[redacted:\ [^\]]*\]"
_PATTERN_FLAGS = re.ASCII | re.VERBOSE
# What follows the fixed characters at the beginning of a pattern.
_LOOSE_REST = r"(?s)(?:(?<!\\)[][(|)^$.\s#]|\\[A-Za-z]).*"
# A word without blanks that is long enough for a token.
_LONG_WORD_PATTERN = rf"\S{{{MIN_LONG_WORD_CHARS},}}+"


def has_mark(text: str) -> bool:
    """Return True if a secret was replaced in the text, as `redact` does it."""
    return MARK_START in text


def redact(text: str) -> str:
    """Return the text with `[redacted: kind]` in place of every recognised secret.

    It recognises tokens of common issuers, private keys, hashes of passwords,
    credentials in URLs, headers, commands and SQL, and the values of names such as
    `password`; docs/secrets.md lists them. A text with a secret among characters that
    are not drawn, such as the colours of a terminal, loses these characters. A text
    that is JSON is redacted as these data, and then as a text.

    >>> redact("key AKIAIOSFODNN7EXAMPLE in use")
    'key [redacted: aws_key] in use'
    """
    if text in _CLEAN_TEXTS or text in _CLEAN_LONG_TEXTS:
        return text

    data_text = _redact_json(text)
    clean = _redact_as_drawn(data_text, _apply_rules(data_text))
    if clean == text:
        _remember(text)
    return clean


def _remember(text: str) -> None:
    """Remember that a text has no secret, unless it is very long."""
    texts = _CLEAN_TEXTS
    max_texts = MAX_SHORT_TEXTS
    if len(text) > MAX_SHORT_CHARS:
        texts = _CLEAN_LONG_TEXTS
        max_texts = MAX_LONG_TEXTS

    if len(text) <= MAX_LONG_CHARS:
        if len(texts) >= max_texts:
            texts.clear()
        texts.add(text)


def _redact_json(text: str) -> str:
    """Return a text without the secrets in its data if it is JSON, else as it is.

    In JSON all lines are one, so a rule that looks at a line does not see where it
    ends.
    """
    if not text.startswith(("{", "[")):
        return text
    with suppress(ValueError, RecursionError):
        data = json.loads(text)
        clean = redact_data(data)
        if clean != data:
            return json.dumps(clean, ensure_ascii=False)
    return text


def _redact_as_drawn(text: str, clean: str) -> str:
    """Return `clean`, a redacted text, without a secret that only its reader sees.

    What is not drawn may part a secret or hide where it begins, and is left out later.
    """
    drawn = _as_drawn(text)
    if drawn == text:
        return clean
    clean_drawn = _apply_rules(drawn)
    if clean_drawn == drawn:
        return clean
    # One search may find a whole secret where the other finds only a part of it.
    both = (clean_drawn, _apply_rules(_as_drawn(clean)))
    return min(both, key=_unmarked_length)


def _as_drawn(text: str) -> str:
    """Return a text without codes of a terminal and what is drawn as nothing."""
    if any(map(text.__contains__, _ESCAPE_STARTS)):
        text, codes = _compiled(TERMINAL_CODES).subn("", text)
        if codes:
            text = _compiled(_STYLE_ENDS).sub("", text)
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    hidden = {
        character
        for character in set(text)
        if category(character)[0] == "C" and character not in "\n\r\t"
    }
    undrawn = f"[{INVISIBLE_LETTERS}{VARIATION_SELECTORS}]"
    hidden.update(_compiled(undrawn).findall(text))
    return text.translate(dict.fromkeys(map(ord, hidden))) if hidden else text


def _unmarked_length(text: str) -> int:
    """Return the number of characters of a redacted text outside the marks."""
    return len(_compiled(_MARK_PATTERN).sub("", text))


def redact_start(text: str, most: int) -> str:
    """Redact a text, then leave out what comes after `most` characters."""
    clean = redact(text[: most + CUT_MARGIN_CHARS])
    if len(text) > most + CUT_MARGIN_CHARS:  # its end may be half a secret
        clean = clean[:-CUT_MARGIN_CHARS]
    return clean[:most]


def mask_personal(text: str) -> str:
    """Return the text with `[redacted: kind]` in place of personal data.

    That are mail addresses, telephone numbers, dates of birth with the names before
    them, postal addresses, and names in JSON. Other names are not recognised.

    >>> mask_personal('{"first_name": "Mia", "dob": "1990-04-05"}')
    '{"first_name": "[redacted: name]", "dob": "[redacted: birth]"}'
    """
    return _mark_all(PERSONAL_RULES, text, text.lower())


def _apply_rules(text: str) -> str:
    """Return the text with a mark for each secret that a rule finds.

    Slow rules are applied only if the text has what they need: a long word, or a word
    such as `password`.
    """
    if len(text) < 8:  # it has no room for a secret
        return text
    # One word without punctuation can only be a token, but Chinese has no blanks.
    if text.isascii() and text.isidentifier():
        return text if len(text) < MIN_LONG_WORD_CHARS else _mark_tokens(text)

    lower = text.lower()
    long_words = set(_compiled(_LONG_WORD_PATTERN).findall(text))
    text = _mark_all(PLACE_RULES, text, lower)
    if long_words:
        text = _mark_all(LONG_WORD_RULES, text, lower)
    if any(map(lower.__contains__, SECRET_NAME_WORDS)):
        text = _mark_all(NAME_RULES, text, lower)
    text = _mark_all(OTHER_NAME_RULES, text, lower)
    text = _mark_all(COMMAND_RULES, text, lower)
    if not long_words:
        return text

    token_part = _compiled(TOKEN_PART_PATTERN)
    candidates = "\n".join(filter(token_part.search, long_words))
    if _token_rules_in(candidates):
        text = _mark_tokens(text)
    if _compiled(RANDOM_TEXT_RULE.pattern).search("\n".join(long_words)):
        text = _mark(RANDOM_TEXT_RULE, text)
    return text


def _mark_all(rules: Iterable[Rule], text: str, lower: str) -> str:
    """Apply the rules whose conditions hold; `lower` is the text in lower case.

    A rule with keywords needs one of them in the text, and its trigger must match.
    """
    for rule in rules:
        for keyword in rule.keywords:
            if keyword in lower:
                break
        else:
            if rule.keywords:
                continue

        if not rule.trigger or _compiled(rule.trigger).search(text):
            text = _mark(rule, text)
    return text


def _mark(rule: Rule, text: str) -> str:
    """Replace each secret that the rule finds by a mark.

    A secret begins after the last group of a match. A match without a group is only
    there to be passed over.
    """
    mark = f"{MARK_START}{rule.kind}]"

    def replacement(match: re.Match[str]) -> str:
        if match.lastindex is None:
            return match[0]

        start = match.end(match.lastindex)
        secret = text[start : match.end()]
        if rule.accept and not rule.accept(secret):
            return match[0]
        return text[match.start() : start] + mark

    return _compiled(rule.pattern).sub(replacement, text)


def _mark_tokens(text: str) -> str:
    """Replace each token of an issuer by a mark.

    One pattern joins the rules, so that no part of a token is marked as another. The
    empty group that ends the pattern of a rule says which rule it was.
    """
    rules = _token_rules_in(text)
    if not rules:
        return text

    def replacement(match: re.Match[str]) -> str:
        assert match.lastindex is not None
        return f"{MARK_START}{rules[match.lastindex - 1].kind}]"

    pattern = "|".join(f"{_token_pattern(rule)}()" for rule in rules)
    return re.sub(pattern, replacement, text, flags=_PATTERN_FLAGS)


def _token_rules_in(text: str) -> list[Rule]:
    """Return the rules whose tokens are in a text."""
    return [
        rule
        for rule, beginning in _token_beginnings()
        if beginning in text and _compiled(_token_pattern(rule)).search(text)
    ]


@cache
def _token_beginnings() -> Sequence[tuple[Rule, str]]:
    """Return each rule with the fixed characters that begin its tokens."""
    beginnings = [_compiled(_LOOSE_REST).sub("", rule.pattern) for rule in TOKEN_RULES]
    fixed = [beginning.replace("\\", "") for beginning in beginnings]
    return list(zip(TOKEN_RULES, fixed, strict=True))


def _token_pattern(rule: Rule) -> str:
    """Return the pattern of the tokens of a rule, where a word begins if it says so."""
    if not rule.starts_word:
        return rule.pattern
    letter = rule.pattern[0]
    # A letter after a backslash belongs to an escape such as a line break. What stands
    # before the token is looked at last, because `re` finds a letter quickly.
    return rf"{letter}(?<!(?<!\\)[A-Za-z0-9]{letter}){rule.pattern[1:]}"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern at its first use, because a hook process needs few of them."""
    return re.compile(pattern, _PATTERN_FLAGS)


# What a key in JSON data says about its value: it is a secret ("assigned"), it may be
# one ("named"), it is below the name of a secret ("below"), or nothing ("").
KeyMeaning = Literal["assigned", "named", "below", ""]

_NUMBER_TYPES = frozenset((int, float, bool, type(None)))
_NAME_AND_VALUE_KEYS = (
    ("name", "value"),
    ("key", "value"),
    ("Name", "Value"),
    ("Key", "Value"),
)
# What the keys of a value in a mapping below the name of a secret end with: `value`,
# `Value`, `values`, and in OpenTelemetry `stringValue` or `kvlistValue`.
_VALUE_KEY_ENDINGS = ("value", "values")
_NESTED_KEY = "\0"  # the key of what is nested below the name of a secret
_COOKIE_KEY = "cookies"  # its values are secrets below any name
MAX_KEY_CHARS = 64  # of a key only its end is judged
MIN_NAMED_VALUE_CHARS = 12  # a key alone makes no shorter value a secret
# A key that may name a secret, such as `api_key` or `X-Auth-Token`.
_SECRET_KEY = "|".join(
    (
        rf"(?i)^auth\Z|^{PIN_PATTERN}",
        *(*SECRET_NAME_WORDS, *FOREIGN_NAME_WORDS, *SECRET_HEADER_WORDS),
    )
)
# A value below the name of a secret is one, too, if it has digits and letters, such as
# `x7Qp2mZk9`, and does not consist of words and numbers, as a time, path or URL does.
_NESTED_SECRET = r"""(?x)
    (?=\S{0,80}\d)(?=\S{0,80}[A-Za-z])
    (?!
        (?>
            (?:
                [A-Z]{1,5}[a-z]+
              | (?<![a-zA-Z\d])(?:[a-z]+|[A-Z]+(?![a-z]))
              | \d{1,6}(?![a-z])
              | [-_./#]
            )+
        )\Z
    )
    [\w.+/~=@!#%&-]{8,}\Z
"""
_ASSIGNED_VALUE = rf"(?x){NOT_A_REFERENCE}\S{{6,}}\Z"


def redact_data(value: Any, key: str = "") -> Any:
    """Return JSON data without secrets.

    The value of a `key` such as `password` is a secret; "" means no key.
    """
    if isinstance(value, str):
        meaning = _key_meaning(key)
        return _redact_value(value, key, meaning) if meaning else redact(value)
    if isinstance(value, dict):
        return _redact_mapping(value, key)
    return _redact_list(value, key) if isinstance(value, list | tuple) else value


def _redact_mapping(mapping: Mapping[Any, Any], key: str) -> dict[Any, Any]:
    """Return a mapping, the value of `key`, without secrets in its keys and values."""
    meaning = _key_meaning(key)
    is_secret = meaning in ("assigned", "below") or key.lower() == _COOKIE_KEY
    telling_key = key if meaning else ""
    judging_keys = _judging_keys(mapping, telling_key)

    clean = {}
    for name, item in mapping.items():
        if type(item) not in _NUMBER_TYPES:  # most values are numbers
            item_key = str(judging_keys.get(name, name))
            if is_secret and _classify_key(item_key) != "assigned":
                item_key = _NESTED_KEY
            if not _is_known_clean(item, item_key):
                item = redact_data(item, item_key)

        clean_name = name if name in _CLEAN_TEXTS else redact_data(name)
        clean[clean_name] = item
    return clean


def _judging_keys(mapping: Mapping[Any, Any], key: str) -> dict[Any, Any]:
    """Map a key of `mapping` to another key if the other key judges its value.

    In {"name": "password", "value": …} the name judges the value. In {"value": …} the
    `key` of the mapping does; it is "" if it says nothing.
    """
    judging_keys = {
        name: key
        for name in mapping
        if key and isinstance(name, str) and name.lower().endswith(_VALUE_KEY_ENDINGS)
    }
    if "value" in mapping or "Value" in mapping:
        for name_key, value_key in _NAME_AND_VALUE_KEYS:
            if name_key in mapping and value_key in mapping:
                judging_keys[value_key] = mapping[name_key]
    return judging_keys


def _is_known_clean(item: Any, key: str) -> bool:
    """Return True if a text was found clean before, and its key says nothing."""
    return isinstance(item, str) and item in _CLEAN_TEXTS and not _key_meaning(key)


def _redact_list(items: Sequence[Any], key: str) -> list[Any]:
    """Return a list, the value of `key`, without secrets.

    It may be the arguments of a command: ["login", "--password", "…"].
    """
    # Without a hyphen there is no option.
    if not any(isinstance(item, str) and "-" in item for item in items):
        return [redact_data(item, key) for item in items]

    clean_items = [
        redact_data(item, item_key)
        for item, item_key in zip(items, _argument_keys(items, key), strict=True)
    ]

    # Only a command has options, and a text with the separator cannot be joined.
    texts = [item if isinstance(item, str) else "" for item in clean_items]
    line = ARGUMENT_SEPARATOR.join(texts)
    has_option = f"{ARGUMENT_SEPARATOR}-" in line
    if not has_option or line.count(ARGUMENT_SEPARATOR) >= len(clean_items):
        return clean_items

    # An item that is not text has "" here, and stays as it is.
    arguments = _mark(JOINED_COMMAND_RULE, line).split(ARGUMENT_SEPARATOR)
    return [
        argument or item for item, argument in zip(clean_items, arguments, strict=True)
    ]


def _argument_keys(items: Sequence[Any], key: str) -> Iterator[str]:
    """Yield the key of each item: an option names the argument after it."""
    item_key = key
    for item in items:
        yield item_key
        item_key = item if isinstance(item, str) and item[:1] == "-" else key


def _key_meaning(key: str) -> KeyMeaning:
    """Return what a key says about its value; a number at its end says nothing."""
    if key == _NESTED_KEY:
        return "below"
    return _classify_key(key[-MAX_KEY_CHARS:].rstrip("0123456789")) if key else ""


@lru_cache(1_024)
def _classify_key(key: str) -> KeyMeaning:
    """Return "assigned" if values of this key are secret, "named" if they may be.

    Returns "" if the key says nothing.
    """
    # A `key` alone names a finding.
    if key == "key" or not re.search(_SECRET_KEY, key):
        return ""
    for pattern in (SECRET_NAME_PATTERN, FOREIGN_NAME_PATTERN):
        if _compiled(pattern).search(f"{key}="):
            return "assigned"
    return "named"


def _redact_value(value: str, key: str, meaning: KeyMeaning) -> str:
    """Return a text without secrets, or a mark if its key says that it is a secret."""
    secrets = {"assigned": _ASSIGNED_VALUE, "below": _NESTED_SECRET}
    if meaning in secrets and re.match(secrets[meaning], value):
        return f"{MARK_START}assigned]"

    is_header = key.lower() in SECRET_HEADER_WORDS
    is_short = len(value) < MIN_NAMED_VALUE_CHARS and not value.isdigit()
    if meaning == "below" or (is_short and not is_header):
        return redact(value)

    # The rules see the value behind its key.
    start = f'"{key}": '
    clean = redact(start + value)
    return clean.removeprefix(start) if clean.startswith(start) else redact(value)
