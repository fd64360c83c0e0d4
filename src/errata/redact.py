"""Secrets -> a mark that names their kind, before anything is stored or sent to a model. Pure."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

# Prefixes and lengths as the issuers document them. Each branch begins with a literal or a keyword
# and runs over one character class, so a text is read in time linear in its length.
_SECRET = (
    r"(?P<private_key>-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-]{0,20000}(?:-----END [A-Z ]{0,30}"
    r"PRIVATE KEY-----)?)"
    r"|(?P<aws_key>\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b)"
    r"|(?P<github_token>\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255})\b)"
    r"|(?P<gitlab_token>\bglpat-[A-Za-z0-9_-]{20,})"
    r"|(?P<slack_token>\bxox[abeoprs]-[A-Za-z0-9-]{10,})"
    r"|(?P<slack_hook>\bhooks\.slack\.com/services/[A-Za-z0-9/]{20,})"
    r"|(?P<stripe_key>\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,})"
    r"|(?P<model_key>\bsk-[A-Za-z0-9_-]{20,})"
    r"|(?P<google_key>\bAIza[A-Za-z0-9_-]{35})"
    r"|(?P<package_token>\b(?:npm_[A-Za-z0-9]{36}|pypi-AgE[A-Za-z0-9_-]{50,}))"
    r"|(?P<hub_token>\bhf_[A-Za-z0-9]{30,})"
    r"|(?P<mail_key>\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,})"
    r"|(?P<jwt>\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,})"
    r"|(?P<bearer>(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{20,})"
    r"|(?P<password_in_url>(?<=://)[^\s/:@'\"]{1,128}:[^\s/@'\"]{1,128}(?=@))"
    # Code and prose assign to such names, too: a secret stands in quotes or has a digit.
    r"|(?P<assigned>(?<![^\W_])(?i:password|passwd|secret|api[_-]?key|(?:access|auth)[_-]?token"
    r"|client[_-]?secret|(?:secret[_-]?)?access[_-]?key)[\"']?\s{0,3}[:=]{1,3}>?\s{0,3}"
    r"(?:[\"'](?![$<{%])(?P<quoted>[^\s\"']{8,256}+)(?=[\"']|\Z)"
    r"|(?!\$)(?=[^\s\"',;&()\[\]{}<>]{0,255}\d)"
    r"(?P<bare>[^\s\"',;&()\[\]{}<>]{8,256}+)(?![(\[{])))"
)
_LONG = re.compile(r"\S{8}")  # no secret is shorter: most findings are read no further


def redacted(text: str) -> str:
    """The text with every secret it recognises replaced by `[redacted: kind]`.

    Known are the tokens of common providers, private keys, web tokens, passwords in addresses, and
    values of 8 characters or more, in quotes or with a digit, that are assigned to a name such as
    `password` or `api_key`.

    >>> redacted("key AKIAIOSFODNN7EXAMPLE in use")
    'key [redacted: aws_key] in use'
    """
    return _secret().sub(_mark, text) if _LONG.search(text) else text


@cache
def _secret() -> re.Pattern[str]:
    """Compiled when a text is long enough: it costs 0.3 MB, and opening a store has none."""
    return re.compile(_SECRET)


def redacted_data(value: Any) -> Any:
    """The same for every text inside JSON data; a value under a telling key counts as assigned."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, list | tuple):
        return [redacted_data(one) for one in value]
    if isinstance(value, dict):
        return {key: _under(key, one) for key, one in value.items()}
    return value


def _under(key: Any, value: Any) -> Any:
    if not isinstance(value, str):
        return redacted_data(value)
    prefix = f'{key}="'
    text = redacted(prefix + value)
    return text.removeprefix(prefix) if text.startswith(prefix) else redacted(value)


def _mark(found: re.Match[str]) -> str:
    kind = "assigned" if found["assigned"] else found.lastgroup
    if kind != "assigned":
        return f"[redacted: {kind}]"
    whole, value = found["assigned"], found["quoted"] or found["bare"]
    return f"{whole[: len(whole) - len(value)]}[redacted: assigned]"
