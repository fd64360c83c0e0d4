"""Secrets to plant, made anew from a fixed seed, so that no scanner takes this file for a leak."""

from __future__ import annotations

import base64
import json
import re
import string
from collections.abc import Mapping
from random import Random

_RANDOM = Random("planted")
LOWER, UPPER, DIGITS = string.ascii_lowercase, string.ascii_uppercase, string.digits
HEX, WORD = "0123456789abcdef", string.ascii_letters + string.digits
URL = f"{WORD}-_"


def some(alphabet: str, length: int) -> str:
    """Random characters, a digit and a letter of each case among them where the alphabet has it."""
    must = [c for c in (LOWER, UPPER, DIGITS) if set(c) & set(alphabet)]
    chars = [_RANDOM.choice(sorted(set(c) & set(alphabet))) for c in must]
    chars += _RANDOM.choices(alphabet, k=length - len(chars))
    _RANDOM.shuffle(chars)
    # Neither end is a sign, so that none runs together with what a test puts beside it.
    return "".join(chars) if chars[0] in WORD and chars[-1] in WORD else some(alphabet, length)


def _web(data: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")


# A kind, and its tokens: what stands in braces is that many random characters of an alphabet.
_FORMS = """
aws_key AKIA{UD16} A3TX{UD16}
google_key AIza{R35} GOCSPX-{R28} ya29.{R60}
cloud_key dop_v1_{H64} dapi{H32} LTAI{W20} dp.st.dev.{W43} hvs.{R90} pscale_tkn_{R43} sbp_{H40}
cloud_key pul-{H40} https://api.softlayer.com/soap/v3.1/{LD64}
github_token ghp_{W36} github_pat_{W22}_{W59}
gitlab_token glpat-{R20} glrt-{W20} GR1348941{R20}
package_token npm_{W36} pypi-AgEIcHlwaS5vcmc{R90} rubygems_{H48} dckr_pat_{R27} AKCp{W69} AP6{W30}
slack_token xoxb-{D12}-{D13}-{W24} xoxe.xoxp-1-{W100} xapp-1-A{U10}-{D13}-{H64}
slack_hook https://hooks.slack.com/services/T0{U8}/B0{W30}
chat_token {D10}:AA{R33} M{W23}.{W6}.{W27} N{W25}.{W6}.{W38} O{W23}.{W6}.{W27}
chat_token https://discord.com/api/webhooks/{D19}/{R68}
stripe_key sk_live_{W24} rk_test_{W24} whsec_{W32}
heedful_key heedful_{H12}_{H64}
payment_key sq0csp-{R43} EAAA{R60} shpat_{H32}
phone_key AC{H32} SK{H32}
mail_key SG.{R22}.{R43} key-{H32} xkeysib-{H64}-{W16} {H32}-us14
model_key sk-{W20}T3BlbkFJ{W20} sk-proj-{R120} sk-ant-api03-{R95} gsk_{W52} xai-{W80} pplx-{W48}
model_key r8_{W37} nvapi-{R64} lsv2_pt_{H32}_{H10} pcsk_{W60} tvly-dev-{W32}
hub_token hf_{W34} api_org_{W34}
tool_token lin_api_{W40} ntn_{W46} figd_{R40} ATATT3xFfGF0{R180} PMAK-{H24}-{H34} NRAK-{UD27}
tool_token glsa_{W32}_{H8} sntrys_{W60}
jwt {JWT}.{R43} {NONE}.
signature sig={W43}%3D X-Amz-Signature={H64}
private_key AGE-SECRET-KEY-1{UD58}
"""
_ALPHABETS = {"U": UPPER, "D": DIGITS, "L": LOWER, "H": HEX, "W": WORD, "R": URL}
_ALPHABETS |= {"UD": UPPER + DIGITS, "LD": LOWER + DIGITS}
_JWT = {"JWT": ({"alg": "HS256"}, {"sub": 1}), "NONE": ({"alg": "none"}, {})}


def _filled(form: re.Match[str]) -> str:
    if form[0][1:-1] in _JWT:
        return ".".join(map(_web, _JWT[form[0][1:-1]]))
    return some(_ALPHABETS[form[1]], int(form[2]))


def _tokens() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for line in _FORMS.split("\n")[1:-1]:
        kind, *forms = line.split()
        made = (re.sub(r"\{([A-Z]+)(\d*)\}", _filled, form) for form in forms)
        found[kind] = (*found.get(kind, ()), *made)
    return found


TOKENS = _tokens()
"""Kind -> tokens that are known by their own form."""

_BODY = "\n".join(some(WORD + "+/", 64) for _ in range(4))
_PASSWORD, _HARD = some(WORD, 12), f"{some(LOWER, 6)}!{some(LOWER, 6)}"
_LETTERS, _LONG = f"Zorn{some(LOWER, 8)}", some(WORD + "+/", 40)

_BLOCK = "-----BEGIN {0}-----\n{1}{2}\n-----END {0}-----"
_PRIVATE_KEYS = (
    _BLOCK.format("RSA PRIVATE KEY", "", _BODY),
    _BLOCK.format("EC PRIVATE KEY", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n", _BODY),
    f"-----BEGIN PRIVATE KEY-----\n{_BODY}",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\\n{_BODY}\\n-----END",
    _BLOCK.format("PGP PRIVATE KEY BLOCK", "Version: 2 - x\n\n", _BODY),
    f"---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n{_BODY}\n---- END SSH2 ENCRYPTED KEY ----",
    f"PuTTY-User-Key-File-2: ssh-rsa\nPrivate-Lines: 4\n{_BODY}\nPrivate-MAC: {some(HEX, 40)}",
)
PLACED: tuple[tuple[str, str, str], ...] = (
    *(("private_key", text, _BODY) for text in _PRIVATE_KEYS),
    ("password_in_url", f"postgres://bob:{_PASSWORD}@db/x", _PASSWORD),
    ("password_in_url", f"mongodb+srv://bob:{_HARD}@db.example.com", _HARD),
    ("password_in_url", f"redis://:{_PASSWORD}@cache:6379/0", _PASSWORD),
    ("bearer", f"curl -H 'Authorization: Bearer {_LONG}'", _LONG),
    ("bearer", f"bearer {_PASSWORD * 2}", _PASSWORD),
    ("authorization", f"Authorization: Basic {_LONG}=", _LONG),
    ("authorization", f'{{"Proxy-Authorization": "basic {_PASSWORD}"}}', _PASSWORD),
    ("cookie", f"Cookie: theme=dark; session={_PASSWORD}", _PASSWORD),
    ("cookie", f"Set-Cookie: sid={_LETTERS}; Path=/; HttpOnly", _LETTERS),
    ("random_token", f'call("{_LONG}")', _LONG),
    ("random_token", f"aws.login(token, '{_LONG}')", _LONG),
)
"""Kind, text, secret: what is known by what it stands behind."""

ASSIGNED: tuple[tuple[str, str], ...] = (
    *(
        (form, _PASSWORD)
        for form in (
            "AWS_SECRET_ACCESS_KEY={}",
            "export DB_PASSWORD={} && run",
            "MY_API_KEY: {}",
            "?user=me&password={}&next=1",
            "Server=db;Pwd={};Database=x",
            "{{'client_secret': '{}'}}",
            'password := "{}"',
            'if password == "{}":',
            'if "{}" != password:',
            'cut off: password="{}',
            'password: str = "{}"',
            'password = b"{}"',
            'config["auth_token"] = "{}"',
            "SECRET_KEY_BASE={}",
            "dbPassword={}",
            'private_key   "{}";',
            '{{\\"password\\": \\"{}\\"}}',
            "<password>{}</password>",
            "//registry.example.com/:_authToken={}",
            "contraseña: '{}'",
            "passphrase = '{}'",
            "db_pass='{}'",
        )
    ),
    ("password: {}", _HARD),
    ("password={}", "hunter2"),
    ("password = '{}'", "hunter"),
    ("password = '{}'", "correct horse battery staple"),
    ("DB_PASSWORD={}\n", _LETTERS),
    ("?password={}&next=1", _LETTERS),
    ("AccountName=x;AccountKey={}", f"{some(WORD + '+/', 86)}=="),
    ("token: {}", some(HEX, 32)),
    ("the key '{}'", some(WORD, 40)),
    ("ibm_cloud_iam_apikey: {}", some(URL, 44)),
    ("cos_hmac_secret_access_key = {}", some(HEX, 48)),
    ("softlayer_api_key = {}", some(LOWER + DIGITS, 64)),
    ("cloudant_password   {}", some(HEX, 64)),
    ("cloudant_api_key: {}", some(LOWER, 24)),
)
"""What is assigned to a telling name: a text with a place, and the secret."""

EVERY: Mapping[str, tuple[tuple[str, str], ...]] = {
    kind: (
        *((token, token) for token in TOKENS.get(kind, ())),
        *((text, secret) for placed, text, secret in PLACED if placed == kind),
        *((text.format(secret), secret) for text, secret in ASSIGNED if kind == "assigned"),
    )
    for kind in sorted({*TOKENS, *(kind for kind, _, _ in PLACED), "assigned"})
}
"""Kind -> texts, each with the secret in it."""


def parts(secret: str) -> list[str]:
    """All parts of 12 characters, without what every address of an issuer begins with."""
    for issuer in ("https://hooks.slack.com/services/", "https://discord.com/api/webhooks/"):
        secret = secret.removeprefix(issuer)
    secret = secret.removeprefix("https://api.softlayer.com/soap/v3.1/")
    return [secret[at : at + 12] for at in range(max(1, len(secret) - 11))]


def left(secret: str, clean: bytes | str) -> str:
    """A part of the secret that is left in a text; "" without one."""
    text = clean if isinstance(clean, str) else clean.decode("utf-8", "replace")
    return next((part for part in parts(secret) if part in text), "")
