"""Particulars of an error text -> masks: numbers, ids, paths, hosts, times, addresses, SQL values.

They differ from one sighting of an error to the next. A number that names an error stays: a status
of HTTP from 400 on, an exit code or errno that is not 0.
"""

from __future__ import annotations

import re

_NUMBER = r"\d+(?:[.,]\d+)*(?:[eE][+-]?\d+)?"
_UNIT = (
    r"(?:\s?(?:[nuµm]?s|[nuµm]?secs?|(?:nano|micro|milli)?seconds?|m|mins?|minutes?|h|hrs?|hours?"
    r"|d|days?|weeks?|[kKMGTP]i?[Bb]?(?:ps|/s)?|[Bb]ytes?|B|%)(?!\w))"
)
_TOP = (
    r"(?:com|net|org|edu|gov|info|biz|eu|dev|cloud|local|internal|localdomain"
    r"|(?:com?|net|org|edu|ac|gov)\.[a-z]{2})"
)
# What ends the name of a file, not of a host, before a number: `x.py:12`.
_SOURCE = (
    r"(?:py|[cm]?jsx?|[cm]?tsx?|vue|java|kt|go|rs|rb|php|[ch]|cc|cpp|hh|hpp|cs|mm?|ml|hs|exs?|erl|pl"
    r"|sh|lua|sql|conf|cfg|ini|ya?ml|json|xml|html|css|txt|log|md|csv)"
)
_HEX = "[0-9a-fA-F]"
_KINDS = {
    # The value of a key that says who or which one.
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
# The first kind that matches counts. Tried only at the start of a word that is not all letters, so
# most places of a text are passed in one step. No branch can look at the same characters from an
# unbounded number of places: the time is linear.
_PARTICULAR = re.compile(
    r"(?<![\w.])(?=[\w<>~≤≥+./-])"
    r"(?!(?!(?:[a-f]{8}|[A-F]{8}))[A-Za-z_]++(?:[\s,;)\]}'\"]|$))"
    rf"(?:{'|'.join(f'(?P<{kind}>{pattern})' for kind, pattern in _KINDS.items())})"
)
# In a word, between underscores: hexadecimal, or digits and letters in turn.
_SEGMENT = re.compile(
    r"(?<![A-Za-z0-9])(?:h(?=[0-9a-f]{16}(?!\w)))?(?:"
    r"(?=[a-fA-F]*[0-9])(?=[0-9]*[a-fA-F])[0-9a-fA-F]{6,}|[a-f]{8,}|[A-F]{8,}"
    r"|(?=[A-Za-z]*[0-9]+[A-Za-z]+[0-9]+[A-Za-z]+[0-9])[A-Za-z0-9]{10,})(?![A-Za-z0-9])"
)
_LONG = re.compile(r"\d{5}")
_DIGITS = re.compile(r"\d+")
# What stands before a number that names an error.
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


def masked(text: str) -> str:
    """The text with a mask, as `<N>`, in the place of every particular; linear in its length."""
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


def is_own(name: str) -> bool:
    """Whether the value of this key says who or which one, whatever it looks like."""
    found = _PARTICULAR.match(f"{name}=x")
    return found is not None and found.lastgroup == "OWN"


def _mask(found: re.Match[str]) -> str:
    kind, given = found.lastgroup, found[0]
    if kind == "N":
        return given if _names_an_error(found) else "<N>"
    if kind == "OWN":
        return f"{given.partition('=')[0]}=<ID>"
    if kind != "WORD":
        return f"<{kind}>"
    word = _SEGMENT.sub("<ID>", given) if len(given) > 5 else given
    return _DIGITS.sub("<N>", word) if _LONG.search(word) else word


def _names_an_error(found: re.Match[str]) -> bool:
    given, start, text = found[0].lstrip("+-"), found.start(), found.string
    if text[start - 1 : start] not in _LINKS or not given.isdecimal() or not given.strip("0"):
        return False
    before = text[max(0, start - _BEFORE) : start].rstrip(_LINKS).lower()
    code = _CODE.search(before) if before.endswith(_ENDS) else None
    return code is not None and (not code["status"] or (len(given) == 3 and given >= "400"))
