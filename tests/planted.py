"""Secrets to plant, made anew from a fixed seed, so that no scanner takes this file for a leak."""

from __future__ import annotations

import base64
import json
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


TOKENS: Mapping[str, tuple[str, ...]] = {
    "aws_key": (f"AKIA{some(UPPER + DIGITS, 16)}", f"A3TX{some(UPPER + DIGITS, 16)}"),
    "google_key": (f"AIza{some(URL, 35)}", f"GOCSPX-{some(URL, 28)}", f"ya29.{some(URL, 60)}"),
    "cloud_key": (
        f"dop_v1_{some(HEX, 64)}",
        f"dapi{some(HEX, 32)}",
        f"LTAI{some(WORD, 20)}",
        f"dp.st.dev.{some(WORD, 43)}",
        f"hvs.{some(URL, 90)}",
        f"pscale_tkn_{some(URL, 43)}",
        f"sbp_{some(HEX, 40)}",
        f"pul-{some(HEX, 40)}",
        f"https://api.softlayer.com/soap/v3.1/{some(LOWER + DIGITS, 64)}",
    ),
    "github_token": (f"ghp_{some(WORD, 36)}", f"github_pat_{some(WORD, 22)}_{some(WORD, 59)}"),
    "gitlab_token": (
        f"glpat-{some(URL, 20)}",
        f"glrt-{some(WORD, 20)}",
        f"GR1348941{some(URL, 20)}",
    ),
    "package_token": (
        f"npm_{some(WORD, 36)}",
        f"pypi-AgEIcHlwaS5vcmc{some(URL, 90)}",
        f"rubygems_{some(HEX, 48)}",
        f"dckr_pat_{some(URL, 27)}",
        f"AKCp{some(WORD, 69)}",
        f"AP6{some(WORD, 30)}",
    ),
    "slack_token": (
        f"xoxb-{some(DIGITS, 12)}-{some(DIGITS, 13)}-{some(WORD, 24)}",
        f"xoxe.xoxp-1-{some(WORD, 100)}",
        f"xapp-1-A{some(UPPER, 10)}-{some(DIGITS, 13)}-{some(HEX, 64)}",
    ),
    "slack_hook": (f"https://hooks.slack.com/services/T0{some(UPPER, 8)}/B0{some(WORD, 30)}",),
    "chat_token": (
        f"{some(DIGITS, 10)}:AA{some(URL, 33)}",
        f"M{some(WORD, 23)}.{some(WORD, 6)}.{some(WORD, 27)}",
        f"N{some(WORD, 25)}.{some(WORD, 6)}.{some(WORD, 38)}",
        f"O{some(WORD, 23)}.{some(WORD, 6)}.{some(WORD, 27)}",
        f"https://discord.com/api/webhooks/{some(DIGITS, 19)}/{some(URL, 68)}",
    ),
    "stripe_key": (
        f"sk_live_{some(WORD, 24)}",
        f"rk_test_{some(WORD, 24)}",
        f"whsec_{some(WORD, 32)}",
    ),
    "heedful_key": (f"heedful_{some(HEX, 12)}_{some(HEX, 64)}",),
    "payment_key": (
        f"sq0csp-{some(URL, 43)}",
        f"EAAA{some(URL, 60)}",
        f"shpat_{some(HEX, 32)}",
    ),
    "phone_key": (f"AC{some(HEX, 32)}", f"SK{some(HEX, 32)}"),
    "mail_key": (
        f"SG.{some(URL, 22)}.{some(URL, 43)}",
        f"key-{some(HEX, 32)}",
        f"xkeysib-{some(HEX, 64)}-{some(WORD, 16)}",
        f"{some(HEX, 32)}-us14",
    ),
    "model_key": (
        f"sk-{some(WORD, 20)}T3BlbkFJ{some(WORD, 20)}",
        f"sk-proj-{some(URL, 120)}",
        f"sk-ant-api03-{some(URL, 95)}",
        f"gsk_{some(WORD, 52)}",
        f"xai-{some(WORD, 80)}",
        f"pplx-{some(WORD, 48)}",
        f"r8_{some(WORD, 37)}",
        f"nvapi-{some(URL, 64)}",
        f"lsv2_pt_{some(HEX, 32)}_{some(HEX, 10)}",
        f"pcsk_{some(WORD, 60)}",
        f"tvly-dev-{some(WORD, 32)}",
    ),
    "hub_token": (f"hf_{some(WORD, 34)}", f"api_org_{some(WORD, 34)}"),
    "tool_token": (
        f"lin_api_{some(WORD, 40)}",
        f"ntn_{some(WORD, 46)}",
        f"figd_{some(URL, 40)}",
        f"ATATT3xFfGF0{some(URL, 180)}",
        f"PMAK-{some(HEX, 24)}-{some(HEX, 34)}",
        f"NRAK-{some(UPPER + DIGITS, 27)}",
        f"glsa_{some(WORD, 32)}_{some(HEX, 8)}",
        f"sntrys_{some(WORD, 60)}",
    ),
    "jwt": (
        f"{_web({'alg': 'HS256'})}.{_web({'sub': 1})}.{some(URL, 43)}",
        f"{_web({'alg': 'none'})}.{_web({})}.",
    ),
    "signature": (f"sig={some(WORD, 43)}%3D", f"X-Amz-Signature={some(HEX, 64)}"),
    "private_key": (f"AGE-SECRET-KEY-1{some(UPPER + DIGITS, 58)}",),
}
"""Kind -> tokens that are known by their own form."""

_BODY = "\n".join(some(WORD + "+/", 64) for _ in range(4))
_PASSWORD, _HARD = some(WORD, 12), f"{some(LOWER, 6)}!{some(LOWER, 6)}"
_LETTERS, _LONG = f"Zorn{some(LOWER, 8)}", some(WORD + "+/", 40)

PLACED: tuple[tuple[str, str, str], ...] = (
    (
        "private_key",
        f"-----BEGIN RSA PRIVATE KEY-----\n{_BODY}\n-----END RSA PRIVATE KEY-----",
        _BODY,
    ),
    (
        "private_key",
        (
            "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n"
            f"{_BODY}\n-----END EC PRIVATE KEY-----"
        ),
        _BODY,
    ),
    ("private_key", f"-----BEGIN PRIVATE KEY-----\n{_BODY}", _BODY),
    ("private_key", f"-----BEGIN OPENSSH PRIVATE KEY-----\\n{_BODY}\\n-----END", _BODY),
    (
        "private_key",
        (
            f"-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: 2 - x\n\n{_BODY}\n"
            "-----END PGP PRIVATE KEY BLOCK-----"
        ),
        _BODY,
    ),
    (
        "private_key",
        (
            f"---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n{_BODY}\n"
            "---- END SSH2 ENCRYPTED PRIVATE KEY ----"
        ),
        _BODY,
    ),
    (
        "private_key",
        f"PuTTY-User-Key-File-2: ssh-rsa\nPrivate-Lines: 4\n{_BODY}\nPrivate-MAC: {some(HEX, 40)}",
        _BODY,
    ),
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
