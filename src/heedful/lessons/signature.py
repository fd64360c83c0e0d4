"""Signatures: the name of an error, which is its text with the particulars masked.

Two occurrences of one error differ in numbers, ids, paths, hosts, times, addresses and SQL values;
these are masked, so both have one pattern. An assertion is named by its expression and the expected
value: only the actual value is masked there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from heedful.lessons.lesson import Signature, digest_of, short_digest

# A longer text is read at its two ends, which is where errors are named.
MOST = 4_096
DEEPEST = 64
_BRACKET = re.compile(r"[\[\]{}]")


def signature(error_type: str, text: str) -> Signature:
    """Return the signature of an error; the same text always gives the same signature.

    Measured numbers, ids, paths, hosts, times, addresses and line numbers are masked. An assertion
    keeps its expression and the expected value; the actual value is masked. In JSON neither the
    order of keys nor that of failed assertions counts.

    >>> signature("KeyError", "'a'") == signature("KeyError", "'b'")
    False
    >>> signature("Timeout", "after 12.5 s at 10.0.0.7").pattern
    'after <N> at <HOST>'
    """
    pattern = " ".join(_pattern(error_type, text).split())
    return Signature(
        short_digest(f"{error_type}:{text.lower().strip()}"),
        pattern,
        digest_of(error_type, pattern),
        error_type,
    )


def _pattern(error_type: str, text: str) -> str:
    text = text.strip()
    if len(text) > MOST:
        return _masked(error_type, f"{text[: MOST // 2]}\n{text[-MOST // 2 :]}")
    if text[:1] in ("[", "{") and text[-1:] in ("]", "}") and _depth(text) <= DEEPEST:
        try:
            return _payload(error_type, json.loads(text))
        except ValueError:
            return _masked(error_type, text)
    return _masked(error_type, text)


def _masked(error_type: str, text: str) -> str:
    return "".join(
        piece if asserted else mask_particulars(piece)
        for piece, asserted in split_assertions(error_type, text)
    )


def _payload(error_type: str, value: object, name: str = "") -> str:
    match value:
        case dict():
            fields = sorted(value.items())
            parts = [
                f"{mask_particulars(key)}: {_payload(error_type, part, key)}"
                for key, part in fields
            ]
            return f"{{{', '.join(parts)}}}"
        case list():
            distinct = {repr(part): part for part in value}.values()
            parts = [_payload(error_type, part, name) for part in distinct]
            failures = all("assert " in part for part in parts)
            return f"[{', '.join(sorted(set(parts)) if failures else dict.fromkeys(parts))}]"
        case _ if names_identity(name):
            return "<ID>"
        case str() if not value.isdecimal():
            return _masked(error_type, value)
    return mask_particulars(
        f"{name}: {value if isinstance(value, str) else json.dumps(value)}"
    ).removeprefix(f"{mask_particulars(name)}: ")


def _depth(text: str) -> int:
    depth = deepest = 0
    for bracket in _BRACKET.findall(text):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


MOST_VALUES = 20
MOST_STATEMENT = 8_192
# A text without one of these words has no assertion.
_ABOUT = ("assert", "expect", "want", "differ")
_VALUE = (
    r"(?:[+-]?\d[\w.]*|'[^'\n]{0,100}'|\"[^\"\n]{0,100}\"|`[^`\n]{0,100}`|<[^<>\n]{1,100}>"
    r"|[\[({][^\n]{0,100}[\])}]|(?i:true|false|none|null|nil|undefined|nan)\b)"
)
_GAP = r"(?: value)?[ \t]{0,9}[:=]?[ \t]{0,9}"
_OTHER = r"(?:[!=]==?|not (?:less|greater) than(?: or equal to)?|matches expected|to [a-z ]{1,40}?)"
_STATEMENT = re.compile(
    r"^[ \t]*(E[ \t]+|>[ \t]+)?(?:AssertionError: )?(assert\s"
    r"(?:'[^'\n]{0,400}'|\"[^\"\n]{0,400}\"|[^\n#])*)(?:#[^\n]*)?",
    re.MULTILINE,
)
# What pytest adds: the expressions whose values an assertion shows, and how the values differ.
_WHERE = re.compile(
    r"^[ \t]*(?:E[ \t]+)?\+[ \t]+(?:where|and)[ \t]+([^\n]{1,400}?) = ([^\n]+)\n?", re.MULTILINE
)
_DETAIL = re.compile(r"(?:\n[ \t]*E(?:[ \t][^\n]*)?(?=\n|\Z))+")
_BOTH_VALUES = re.compile(rf"assert {_VALUE}(?P<rest> (?:==|!=|<=?|>=?|is|in|not in) {_VALUE}\s*)")
_NAMED = r"(?P<before>[ \t]*(?i:actual|received|got|left)[ \t]*:[ \t]*)"
# Which of two values is the actual one, in the words of unittest, JUnit, Jest, Chai, Go and Rust.
_ACTUAL = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        rf"^{_NAMED}(?!.*\b(?:want|expected)).+(?P<after>)",
        rf"\b(?P<before>[Ee]xpected ){_VALUE}(?P<after> to [a-z ]{{1,40}}?{_VALUE})",
        rf"(?<![^\s:])(?P<before>){_VALUE}(?P<after> {_OTHER} {_VALUE})",
        rf"(?P<before>= ){_VALUE}(?P<after>[,;] (?:want|expected))",
        rf"\b(?P<before>(?i:but was|actual|received|got|was|found){_GAP}){_VALUE}(?P<after>)",
    )
)
_EXPECTED = re.compile(
    r"^[ \t]*(?i:expected|want|right)[ \t]*:[ \t]*(?P<line>\S[^\n]*?)"
    r"(?=[,;]?[ \t](?:but|got|actual|received|was)\b|$)"
    rf"|\b(?i:expected|want|wanted|desired|right){_GAP}(?!<ACTUAL>)(?P<value>{_VALUE})"
    rf"|<ACTUAL> {_OTHER} ?(?P<other>{_VALUE})",
    re.MULTILINE,
)
_MINUS = re.compile(r"^-[ \t]", re.MULTILINE)
_PLUS = re.compile(r"^\+[ \t]", re.MULTILINE)
_MINUS_IS_EXPECTED = re.compile(r"^-{1,3}[ \t]*expected\b", re.MULTILINE | re.IGNORECASE)
_HEADS = re.compile(
    r"^(?:-{1,3}[ \t]*expected\b|\+{1,3}[ \t]*(?:received|actual)\b|(?:first|second) \w+ contains )"
    r"[^\n]*\n?"
    r"|^first (?:differing|extra) element [^\n]*\n(?:[^\n]+\n){1,2}",
    re.MULTILINE | re.IGNORECASE,
)


def split_assertions(error_type: str, text: str) -> Iterator[tuple[str, bool]]:
    """Split the text in pieces, each with True if it is asserted and so must not be masked."""
    words = f"{error_type} {text}".lower()
    if not any(word in words for word in _ABOUT):
        yield text, False
        return
    found = list(_STATEMENT.finditer(text))
    yield from _compared(text[: found[0].start()] if found else text)
    ends = [one.start() for one in found[1:]] + [len(text)] * bool(found)
    for one, end in zip(found, ends, strict=True):
        rest = text[one.end() : end]
        values = _WHERE.findall(rest)[:MOST_VALUES]
        yield _asserted(one[2], values), True
        rest = _WHERE.sub("", rest) if values else rest
        yield from _compared(_DETAIL.sub("", rest, count=1) if one[1] else rest)


def _asserted(statement: str, values: Sequence[tuple[str, str]]) -> str:
    """Return the statement with expressions in place of the values that they had."""
    if not values and (both := _BOTH_VALUES.fullmatch(statement)):
        return f"assert <ACTUAL>{both['rest']}"
    for value, expression in values:
        shown = re.compile(rf"(?<![\w.]){re.escape(value)}(?![\w.])")
        statement = shown.sub(expression.replace("\\", r"\\"), statement, count=1)[:MOST_STATEMENT]
    return statement


def _compared(text: str) -> Iterator[tuple[str, bool]]:
    """Find comparisons in prose: the actual value is masked, the expected value is asserted."""
    if _MINUS.search(text) and _PLUS.search(text):
        text = _expected_lines(text)
    for actual in _ACTUAL:
        text = actual.sub(r"\g<before><ACTUAL>\g<after>", text)
    end = 0
    for found in _EXPECTED.finditer(text):
        start, stop = found.span(found.lastgroup or 0)
        yield text[end:start], False
        yield text[start:stop], True
        end = stop
    yield text[end:], False


def _expected_lines(text: str) -> str:
    """Keep only the expected lines of a diff: plus in unittest, minus elsewhere."""
    keep, drop = "-+" if _MINUS_IS_EXPECTED.search(text) else "+-"
    text = re.sub(rf"^[?{drop}][ \t][^\n]*\n?", "", _HEADS.sub("", text), flags=re.MULTILINE)
    return re.sub(rf"^[{keep}][ \t]", "expected: ", text, flags=re.MULTILINE)


_NUMBER = r"\d+(?:[.,]\d+)*(?:[eE][+-]?\d+)?"
_UNIT = (
    r"(?:\s?(?:[nuµm]?s|[nuµm]?secs?|(?:nano|micro|milli)?seconds?|m|mins?|minutes?|h|hrs?|hours?"
    r"|d|days?|weeks?|[kKMGTP]i?[Bb]?(?:ps|/s)?|[Bb]ytes?|B|%)(?!\w))"
)
_TOP = (
    r"(?:com|net|org|edu|gov|info|biz|eu|dev|cloud|local|internal|localdomain"
    r"|(?:com?|net|org|edu|ac|gov)\.[a-z]{2})"
)
# Endings of the name of a file, not of a host, before a number: `x.py:12`.
_SOURCE = (
    r"(?:py|[cm]?jsx?|[cm]?tsx?|vue|java|kt|go|rs|rb|php|[ch]|cc|cpp|hh|hpp|cs|mm?|ml|hs|exs?|erl|pl"
    r"|sh|lua|sql|conf|cfg|ini|ya?ml|json|xml|html|css|txt|log|md|csv)"
)
_HEX = "[0-9a-fA-F]"
_KINDS = {
    # The value of a key that names who or which, such as user= or id=.
    "OWN": (
        r"(?:[a-z0-9]+_)*(?:r?user|r?host|client|peer|session|email|ip|(?:uu)?id)(?:_?name)?="
        r"[\"']?[^\s,;&'\"()\[\]{}]+[\"']?"
    ),
    "URL": r"[a-z][a-z0-9+.-]{1,20}://[^\s'\"<>)]+",
    "MAIL": r"(?<![+-])[\w+-][\w.+-]{0,63}@[\w-]+(?:\.[\w-]+)+\b",
    "TIME": (
        r"\d{4}[-/]\d\d[-/]\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?\b"
        r"|\d\d?/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d(?: [+-]\d{4})?\b"
        r"|(?<!:)\d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?(?![\w:])"
    ),
    "HOST": (
        r"\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"
        rf"|(?<!:)(?=[0-9a-fA-F:]{{0,20}}\d)(?:{_HEX}{{1,4}}:){{1,6}}(?::{_HEX}{{1,4}}){{1,6}}(?![\w:])"
        rf"|(?<!-)(?:[A-Za-z0-9][\w-]*\.)+{_TOP}(?::\d+)?(?![\w.]\w|\w)"
        rf"|(?<!-)(?:[a-z0-9][a-z0-9_-]*\.)+(?!{_SOURCE}:)[a-z]{{2,4}}:\d{{2,5}}(?![\w:])"
    ),
    "ADDRESS": r"0x[0-9a-fA-F]+\b",
    "PATH": (
        r"(?:(?:[A-Za-z]:\\|~?/|\.{1,2}/)[\w.@+-]+(?:[\\/][\w.@+-]+)*[\\/]?"
        r"|(?<![/@+-])(?:[\w@+-][\w.@+-]*/)+[\w.@+-]*\.[A-Za-z]\w{0,5}(?![\w.+(-]))(?::\d+){0,2}"
    ),
    "ID": rf"(?=[0-9a-fA-F:-]{{0,20}}\d){_HEX}{{2,32}}(?:[:-]{_HEX}{{2,32}}){{2,15}}(?!\w)",
    "N": (
        rf"[<>~≤≥]?[+-]?{_NUMBER}{_UNIT}(?: \({_NUMBER}{_UNIT}\))?"
        r"|(?:\d+(?:\.\d+)?(?:[hms]|ms|us|µs|ns)){2,}(?!\w)"
        r"|v?\d+\.\d+\.\d+\w*(?:[.+~-]\w+)*"
        rf"|[+-]?v?{_NUMBER}(?!\w)"
    ),
    "WORD": r"\w*\d\w*|[a-f]{8,}\b|[A-F]{8,}\b",
}
# The first kind that matches counts. It is tried only at the start of a word that is not all
# letters, so most of a text is passed in one step. The time is linear: no branch can look at the
# same characters from an unbounded number of places.
_PARTICULAR = re.compile(
    r"(?<![\w.])(?=[\w<>~≤≥+./-])"
    r"(?!(?!(?:[a-f]{8}|[A-F]{8}))[A-Za-z_]++(?:[\s,;)\]}'\"]|$))"
    rf"(?:{'|'.join(f'(?P<{kind}>{pattern})' for kind, pattern in _KINDS.items())})"
)
# Part of a word between underscores: hexadecimal, or digits and letters in turn.
_SEGMENT = re.compile(
    r"(?<![A-Za-z0-9])(?:h(?=[0-9a-f]{16}(?!\w)))?(?:"
    r"(?=[a-fA-F]*[0-9])(?=[0-9]*[a-fA-F])[0-9a-fA-F]{6,}|[a-f]{8,}|[A-F]{8,}"
    r"|(?=[A-Za-z]*[0-9]+[A-Za-z]+[0-9]+[A-Za-z]+[0-9])[A-Za-z0-9]{10,})(?![A-Za-z0-9])"
)
_LONG = re.compile(r"\d{5}")
_DIGITS = re.compile(r"\d+")
# Characters between a number that names an error and the word before it.
_LINKS = " :=[\"'"
_BEFORE = 24
_ENDS = (
    *("code", "status", "exit", "errno", "sqlstate", "winerror", "signal", "http"),
    *("http/1.0", "http/1.1", "http/2", "http/2.0", "http/3"),
)
_CODE = re.compile(
    r"(?<![a-z])(?:(?P<status>http(?:/[0-9.]+)?|(?<!exit )status(?:[ _]?code)?)"
    r"|(?:exit|err|error|return)?[ _]?code|exit(?: status)?|errno|sqlstate|winerror|signal)\Z"
)
_SQL_WORDS = ("SELECT ", "INSERT INTO ", "UPDATE ", "DELETE FROM ", "VALUES ")
_SQL = re.compile(rf"\b(?:{'|'.join(_SQL_WORDS)})[^;\n]*")
_SQL_LITERAL = re.compile(r"'[^'\n]*'|(?<=[(,= ])[+-]?\d+(?:\.\d+)?\b")
_SQL_ROWS = re.compile(r"\(<V>(?:, ?<V>)*\)(?:, ?\(<V>(?:, ?<V>)*\))*")
_SQL_DETAIL = re.compile(
    r"(\[parameters: )[^\n]*|(\bKey \([^()\n]{1,200}\)=\()[^)\n]*|(\bDuplicate entry ')[^'\n]*"
)
_CARETS = re.compile(r"^[ \t]*[~^]+[ \t]*$", re.MULTILINE)
_WAITING = re.compile(r"(?<=\[)([a-z ()]{1,40}), \d+ minutes(?=[\],])")
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}[ /-]{1,2}<N>"
_HAS_MONTH = re.compile(_MONTH)
_DATE = re.compile(
    rf"\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{{0,6}},? )?(?:<N>[ /-])?{_MONTH}"
    r"(?:[ :,]{1,2}(?:<TIME>|<N>|[A-Z]{3,4}\b))*"
)


def mask_particulars(text: str) -> str:
    """Replace every particular by a mask such as `<N>`, in time linear in the text's length."""
    if "^" in text:
        text = _CARETS.sub("", text)
    if " minutes" in text:
        text = _WAITING.sub(r"\1", text)
    if "=(" in text or "parameters: " in text or "Duplicate entry" in text:
        text = _SQL_DETAIL.sub(lambda found: f"{found[found.lastindex or 0]}<V>", text)
    if any(word in text for word in _SQL_WORDS):
        text = _SQL.sub(
            lambda found: _SQL_ROWS.sub("(<V>)", _SQL_LITERAL.sub("<V>", found[0])), text
        )
    text = _PARTICULAR.sub(_mask, text)
    return _DATE.sub("<TIME>", text) if _HAS_MONTH.search(text) else text


def names_identity(name: str) -> bool:
    """Return True if the value of this key names who or which, whatever it looks like."""
    found = _PARTICULAR.match(f"{name}=x")
    return found is not None and found.lastgroup == "OWN"


def _mask(found: re.Match[str]) -> str:
    kind, given = found.lastgroup, found[0]
    if kind == "N":
        return given if _is_error_code(found) else "<N>"
    if kind == "OWN":
        return f"{given.partition('=')[0]}=<ID>"
    if kind != "WORD":
        return f"<{kind}>"
    word = _SEGMENT.sub("<ID>", given) if len(given) > 5 else given
    return _DIGITS.sub("<N>", word) if _LONG.search(word) else word


def _is_error_code(found: re.Match[str]) -> bool:
    given, start, text = found[0].lstrip("+-"), found.start(), found.string
    if text[start - 1 : start] not in _LINKS or not given.isdecimal() or not given.strip("0"):
        return False
    before = text[max(0, start - _BEFORE) : start].rstrip(_LINKS).lower()
    code = _CODE.search(before) if before.endswith(_ENDS) else None
    return code is not None and (not code["status"] or (len(given) == 3 and given >= "400"))
