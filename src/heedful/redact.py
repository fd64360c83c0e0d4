"""Redaction of secrets, before text is stored or sent to a model.

A secret is recognised by the format that its issuer uses, by the words before it (a header, a name
such as `password`), or because it is a random string in quotes. A mark replaces the secret and says
what kind it was. Every pattern takes time linear in the length of the text.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache, lru_cache
from itertools import groupby
from math import log2
from typing import Any

# A test compares this with the detectors of detect-secrets 1.5: everything that they find is found.
# Three of them find too much, measured on 60,000 ordinary texts (9 MB) and 2,200 source files.
# Public addresses are left alone: 11 % of 16,000 log lines have one. Hexadecimal in quotes counts
# only after a key or token: all others were digests, ids and alphabets. Base64 in quotes counts
# only with letters of both cases, digits and no sequence: that left 14 of 88 texts, all tokens.

# Tokens in the form that their issuers give them: a kind and its patterns. A pattern begins with a
# fixed letter and continues with one class of characters, so a text is read in time linear in its
# length. "<" means that the pattern begins at the start of a word.
_ISSUED = r"""
aws_key A(?:KIA|SIA|BIA|CCA|3T[A-Z0-9])[A-Z0-9]{16}
google_key AIza[\w-]{35} GOCSPX-[\w-]{28} ya29\.[\w-]{20,}
cloud_key do[opr]_v1_[a-f0-9]{64} dapi[0-9a-f]{32} LTAI[A-Za-z0-9]{20}
cloud_key dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[\w-]{2,35}\.)?[A-Za-z0-9]{40,44} hv[sbr]\.[\w-]{20,}
cloud_key pscale_[a-z]{2,5}_[\w.=-]{32,} sbp_[a-f0-9]{40} pul-[a-f0-9]{40}
cloud_key api\.softlayer\.com/soap/v3(?:\.1)?/[A-Za-z0-9]{64}
github_token gh[oprsu]_\w{36,} github_pat_\w{22,}
gitlab_token gl(?:pat|dt|ft|soat|rt|rtr|cbt|imt|ptt|agent|oas|ffct|wt)-[\w.-]{20,}
gitlab_token GR1348941[\w-]{20,}
package_token npm_\w{36} pypi-AgE[\w-]{50,} rubygems_[a-f0-9]{48} dckr_[op]at_[\w-]{27,}
package_token AKC<[A-Za-z0-9]{10,}+(?![\w+/-]) AP<[0-9A-F][A-Za-z0-9]{8,}+(?![\w+/-])
slack_token xox[a-z](?:\.xox[a-z])?-[\w-]{6,} xapp-\d-[\w-]{10,}
slack_hook hooks\.slack\.com/(?:services|workflows|triggers)/[\w/]{10,}
chat_token M<[\w-]{23,25}\.[\w-]{6}\.[\w-]{27,} N<[\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}
chat_token O<[\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}
chat_token discord(?:app)?\.com/api/webhooks/\d{10,}+/[\w-]{40,}
stripe_key sk_(?:live|test)_[A-Za-z0-9]{16,} rk_(?:live|test)_[A-Za-z0-9]{16,}
stripe_key whsec_[A-Za-z0-9+/=]{24,}
heedful_key heedful_[0-9a-f]{12}_[0-9a-f]{64}
payment_key sq0[a-z]{3}-[\w\\-]{22,} EAAA[\w-]{60,} shp(?:at|ca|pa|ss|ua)_[a-fA-F0-9]{32}
phone_key AC[a-z0-9]{32} SK[a-z0-9]{32}
mail_key SG\.[\w-]{16,}+\.[\w-]{16,} key-[0-9a-f]{32} xkeysib-[a-f0-9]{64}[\w-]*
model_key sk-<(?:(?=[A-Za-z_-]{0,60}\d)[\w-]{20,}|[A-Za-z0-9]{20,}) gsk_[A-Za-z0-9]{40,}
model_key xai-[A-Za-z0-9]{60,} pplx-[A-Za-z0-9]{40,} r8_[A-Za-z0-9]{36,} nvapi-[\w-]{60,}
model_key lsv2_[a-z]{2}_\w{32,} pcsk_\w{40,} tvly-[\w-]{24,}
hub_token hf_[A-Za-z0-9]{30,} api_org_[A-Za-z0-9]{30,}
tool_token lin_(?:api|oauth)_[A-Za-z0-9]{32,} ntn_[A-Za-z0-9]{40,} figd_[\w-]{40}
tool_token ATATT3[\w=-]{60,} PMAK-[a-f0-9]{24}-[a-f0-9]{34} NRAK-[A-Z0-9]{27}
tool_token glsa_[A-Za-z0-9]{32}_[a-fA-F0-9]{8} sntry[su]_[\w+/=-]{40,}
private_key AGE-SECRET-KEY-1[0-9A-Z]{58}
jwt eyJ<[\w-]{5,}+={0,2}\.[\w=-]{2,}+(?:\.[\w.+/=-]*+)?
signature sig=[\w%+/-]{40,}+={0,2} X-(?:Amz|Goog)-Signature=[0-9a-f]{64,}
"""
# No token is shorter, and few ordinary words are as long: only these are searched for tokens.
_RUN = r"[\w.+/=:\\%-]{16,}+"
_LONG = re.compile(r"\S{8}")

# Secrets recognised by the text before them: the kind, a word that the whole text must contain, and
# a pattern with a group for the text before the secret.
_PRIVATE_KEY = (
    r"()-{4,5} ?BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)? ?-{4,5}(?>(?:[^-]++|-(?!---))*)"
    r"(?:-{4,5} ?END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)? ?-{4,5})?"
)
_AUTHORIZATION = (
    r"((?i:uthorization)(?:\\{0,3}[\"'])?\s{0,20}[:=]\s{0,20}(?:\\{0,3}[\"'])?"
    r"(?i:basic|token|digest|negotiate|ntlm|apikey|key)\s{1,3})(?!\[)[^\s\"']{8,}"
)
_COOKIE = (
    r"((?i:ookie)(?:\\{0,3}[\"'])?\s{0,20}:\s{0,20}(?:\\{0,3}[\"'])?)"
    r"[\w.%+-]{1,64}=[^\s;\"']*+(?>(?:;\s{0,20}[\w.%+-]{1,64}=[^\s;\"']*+)*)"
)
_COMPARED = (
    r"([\"'])[^\s\"']{6,}+(?=[\"']\s{0,20}[!=]={1,2}\s{0,20}[\w.]{0,30}?"
    r"(?i:passw|passphrase|pwd|secret|contrase|(?:OWNERS)_?(?:key|token|pass)))"
)
_CLOUDANT = (
    r"([cC](?i:l(?:ou(?:dant)?)?[_-]?(?:api[_-]?)?(?:key|token|pass(?:word)?|pwd?))"
    r"[\"'\]]{0,2}(?:\s{0,20}+[:=]{1,2}>?\s{0,20}+|\s{1,20}+)[\"']?)[A-Za-z]{24}"
)
_PLACED = (
    ("private_key", "private key", _PRIVATE_KEY),
    ("private_key", "putty-user-key", r"()PuTTY-User-Key-File-\d(?s:.)*?(?:Private-MAC: ?\w+|\Z)"),
    ("password_in_url", "://", r"(://)[^\s/:@'\"]*+:(?!\$?[{<])[^\s/@'\"]++(?=@)"),
    ("bearer", "bearer", r"((?i:earer) {1,3})[\w.~+/=-]{20,}"),
    ("authorization", "authorization", _AUTHORIZATION),
    ("cookie", "cookie", _COOKIE),
    ("chat_token", ":", r"(:(?<=\d{8}:))[\w-]{35}(?![\w-])"),
    ("mail_key", "-us", r"()(?<![0-9a-z])[0-9a-z]{32,}+-us\d{1,2}"),
    ("assigned", "=", _COMPARED),
    ("assigned", "cl", _CLOUDANT),
)

# Names that a secret is assigned to. "key", "token" and "pass" count only after the name of an
# owner, or if the value can only be a secret.
_OWNERS = "api bot key auth priv access client master account encryption private refresh service "
_OWNERS += "session signing database db"
_CLOSED = r"(?>(?:\\{0,3}[\"']|\]NO_MARK){0,2})"
_SECRET_NAME = (
    # The first letter, then the second, and the rest of either.
    r"([pPsScCkKtT](?:[aA](?<=[pP].)(?i:ssw(?:or)?d|ssphrase|ssOWNED4)"
    r"|[wW](?<=[pP].)[dD](?![^\w\s]{1,4}\s{0,20}[/~.])"  # not the working directory
    r"|[eE](?i:(?<=s.)cret(?!ar)|(?<=k.)yOWNED3)"
    r"|[oO](?i:(?<=t.)kenOWNED5|(?<=c.)ntrase[nñÑ]a)|[rR](?<=[cC].)(?i:edential))"
    rf"[\w-]{{0,24}}+{_CLOSED}(?=[\s:=!>])"
    r"(?>\s{0,20}+:\s{0,20}+[\w.\[\] |]{1,40}+=\s{0,20}+(?=\\{0,3}[\"'])"  # with its type
    r"|\s{0,20}+[:=!]{1,3}>?\s{0,20}+|(?<!-)>|\s{1,20}+(?=\\{0,3}[\"'][^\"'\n]{2,}+[\"'];)))"
)
# References, templates, names of variables and parts of expressions are not secrets.
_NO_SECRET = (
    r"(?!\$[A-Za-z_{(]|[<{%*),;.|&\]}\[]|\+(?!\S{16})"
    r"|[A-Z]++(?>(?:_[A-Z]++)+)(?![^\s\"',;)\]}]))"
)
_IN_QUOTES = (
    rf"([bBrRuU@]?\\{{0,3}}[\"']{_NO_SECRET})((?=[^\s\"']{{6}})"
    r"[^\s\"'\\]*+(?>(?:\\(?!\\{0,2}[\"'])[^\s\"'\\]*+)*)"
    r"(?=\\{0,3}[\"']|[^\"'\n]*+(?:\n|\Z))|(?:(?<==[\"'])|(?<==\s[\"']))[^\"'\n]{8,}+(?=[\"']))"
)
# Code and prose also assign to such names. So without quotes a secret needs a digit or a sign, or
# it follows "=" directly, as in settings and addresses, and is not itself the name of a secret.
_IN_WORD = r"[^\s\"'`,;&()\[\]{}<>]"
_BARE = (
    rf"{_NO_SECRET}((?=[!@#~]?+[^\s\"'`,;&()\[\]{{}}<>!@#$~\d]{{0,40}}+[!@#$~\d])"
    rf"(?!\d{{1,7}}(?!{_IN_WORD})){_IN_WORD}{{6,}}+(?![(\[{{])"
    r"|(?<=\w=)(?=[A-Za-z_-]{8,64}+(?![^\s&;\"'<>`\\]))"
    r"(?![A-Za-z_-]{0,60}(?i:secret|key|token|pass|pwd|cred))[A-Za-z_-]++)"
    rf"|{_IN_WORD}{{64,}}+"
)
# The pattern also consumes a name with a long value that is not a secret; otherwise a value that
# repeats itself would be tried again from each of its positions.
_ASSIGNED = rf"{_SECRET_NAME}(?:{_IN_QUOTES}|{_BARE})?"
_KEYED = (
    r"([kKtTpP](?:[eE](?<=[kK].)[yY]|[oO](?<=[tT].)(?i:ken)|[aA](?<=[pP].)(?i:ss(?:word)?)"
    rf"|[wW](?<=[pP].)[dD]?)(?=[\\\"'\]\s:=!]){_CLOSED}"
    r"(?:\s{0,20}+[:=!]{1,3}+>?\s{0,20}+|\s{1,20}+)(?:\\{0,3}[\"'`])?)"
    r"(?=[\w+/~-]{20})(?=[\w+/~-]{0,60}\d)(?:[\w-]{44}(?![\w-])|[0-9A-Za-z]{64}|[0-9a-fA-F]{32,}"
    r"|(?=[\w+/~-]{0,60}[a-z])(?=[\w+/~-]{0,60}[A-Z])[\w+/~-]{20,}+={0,2})"
)
_NAMED = "pass pw secret contrase credential key token".split()
_HEADERS = ("authorization", "cookie")

# Text in quotes with letters of both cases, digits and an entropy above 4.5 bits per character; and
# 40 characters in quotes near a word about AWS keys.
_QUOTED = r"([\"'])([\w+/=-]{24,512}+)(?=\\{0,3}[\"'])"
_CLOGC = [0.0, *(count * log2(count) for count in range(1, 513))]
_MIXED = r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])(?!sha\d|.*(?:abcdef|ABCDEF|012345))"
_AWS = r"(?i)aws[^\n]{0,20}(?:key|pwd?|pass(?:word)?|token)[^\n]{0,20}\Z"


def redact(text: str) -> str:
    """Return the text with `[redacted: kind]` in place of every recognised secret.

    Recognised are the tokens of common issuers, private keys, JSON web tokens, passwords in URLs,
    credentials in headers, and random strings in quotes. The value after a name such as `password`
    or `api_key` is a secret if it has 6 or more characters and is in quotes or contains a digit or
    a sign. In `name=value`, 8 letters are enough.

    >>> redact("key AKIAIOSFODNN7EXAMPLE in use")
    'key [redacted: aws_key] in use'
    """
    if not _LONG.search(text):
        return text
    lower = text.lower()
    for kind, word, pattern in _PLACED:
        if word in lower:
            text = _mark_after(pattern, kind, text)
    named = any(name in lower for name in _NAMED)
    if named:
        text = _compiled(_ASSIGNED).sub(_marked, text)
    runs = _compiled(_RUN).findall(text)
    if not runs:
        return text
    if named:
        text = _mark_after(_KEYED, "assigned", text)
    issued, kinds = _forms()
    if issued.search("\n".join(runs)):
        text = issued.sub(lambda found: f"[redacted: {kinds[(found.lastindex or 1) - 1]}]", text)
    return _compiled(_QUOTED).sub(_mark_random, text)


def _mark_after(pattern: str, kind: str, text: str) -> str:
    """In each match of the pattern, replace what follows the first group by a mark."""
    mark = f"[redacted: {kind}]"
    return _compiled(pattern).sub(lambda found: found[1] + mark, text)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern at its first use, because compiling all patterns takes 6 ms."""
    kinds = {kind for kind, *_ in (*_issued(), *_PLACED)}
    no_mark = "".join(rf"(?<!redacted: {kind}\])" for kind in sorted(kinds))
    pattern = pattern.replace("NO_MARK", no_mark).replace("OWNERS", "|".join(_OWNERS.split()))
    return re.compile(re.sub(r"OWNED(\d)", lambda at: _owned(int(at[1])), pattern), re.ASCII)


def _owned(past: int) -> str:
    """Return a pattern for a position `past` characters after a name that is assigned a secret."""
    owners = sorted((name for one in _OWNERS.split() for name in (one, f"{one}_")), key=len)
    same = ("|".join(names) for _, names in groupby(owners, len))
    ended = "|".join(f"(?<=(?:{names}).{{{past}}})" for names in same).replace("_", "[_-]")
    assigned = r"(?=[\w-]{0,24}+(?>(?:\\{0,3}[\"'\]]){0,2})\s{0,20}+[:=!>\"'\\])"
    return rf"(?<=[b-y_-].{{{past}}}){assigned}(?:{ended})"


def _issued() -> list[tuple[str, str]]:
    rows = (row.split() for row in _ISSUED.strip().split("\n"))
    return [(kind, form) for kind, *forms in rows for form in forms]


@cache
def _forms() -> tuple[re.Pattern[str], list[str]]:
    """Return a pattern for the tokens of all issuers, and the kind of token of each group in it."""
    rows = sorted(_issued(), key=lambda row: row[1][0])
    letters = (
        f"{letter}(?:{'|'.join(f'{_begun(form)[1:]}()' for _, form in same)})"
        for letter, same in groupby(rows, lambda row: row[1][0])
    )
    return re.compile("|".join(letters), re.ASCII), [kind for kind, _ in rows]


def _begun(form: str) -> str:
    begin = re.match(r"([\w-]+)<", form)
    # A letter after a backslash belongs to an escape such as a line break.
    return rf"{begin[1]}(?<!(?<!\\)[\w-]{begin[1]}){form[begin.end() :]}" if begin else form


def _marked(found: re.Match[str]) -> str:
    name, quote, quoted, bare = found.groups()
    return found[0] if quoted is bare else f"{name}{quote or ''}[redacted: assigned]"


def _mark_random(found: re.Match[str]) -> str:
    value, marked = found[2], f"{found[1]}[redacted: random_token]"
    near = max(0, found.start() - 48)
    if len(value) == 40 and _compiled(_AWS).search(found.string, near, found.start()):
        return marked
    if not _compiled(_MIXED).match(value):
        return found[0]
    # The entropy of n characters is log n - sum(c log c) / n, where c is how often each occurs.
    bits = log2(len(value)) - sum(map(_CLOGC.__getitem__, Counter(value).values())) / len(value)
    return marked if bits > 4.5 else found[0]


def redact_data(value: Any) -> Any:
    """Return JSON data without secrets; the value of a key such as `password` is a secret."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list | tuple):
        return [redact_data(one) for one in value]
    if isinstance(value, dict):
        return {redact_data(key): _under(str(key), one) for key, one in value.items()}
    return value


@lru_cache(1_024)
def _telling(key: str) -> bool:
    lower = key.lower()  # a `key` alone names a finding
    return key != "key" and any(name in lower for name in (*_NAMED, *_HEADERS))


def _under(key: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_under(key, one) for one in value]
    if not isinstance(value, str) or not _telling(key):
        return redact_data(value)
    # Quotes in the value would end it early.
    begin, whole = f'"{key}": ', value.translate(dict.fromkeys(map(ord, "\"'\\"), "x"))
    if redact(f'{begin}"{whole}"') == f'{begin}"[redacted: assigned]"':
        return "[redacted: assigned]"
    text = redact(begin + value)
    return text.removeprefix(begin) if text.startswith(begin) else redact(value)
