"""Secrets to plant, made anew from a fixed seed, so that no scanner takes this file for
a leak.
"""

import base64
import json
import re
import string
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

_RANDOM = Random("planted")
LOWER = string.ascii_lowercase
UPPER = string.ascii_uppercase
DIGITS = string.digits
HEX = "0123456789abcdef"
WORD = string.ascii_letters + string.digits
URL = f"{WORD}-_"


def some(alphabet: str, length: int) -> str:
    """Random characters, a digit and a letter of each case among them where the
    alphabet has it.
    """
    must = [c for c in (LOWER, UPPER, DIGITS) if set(c) & set(alphabet)]
    chars = [_RANDOM.choice(sorted(set(c) & set(alphabet))) for c in must]
    chars += _RANDOM.choices(alphabet, k=length - len(chars))
    _RANDOM.shuffle(chars)
    # Neither end is a sign, so that none runs together with what a test puts beside it.
    return (
        "".join(chars)
        if chars[0] in WORD and chars[-1] in WORD
        else some(alphabet, length)
    )


def _web(data: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")


_ALPHABETS = {"U": UPPER, "D": DIGITS, "L": LOWER, "H": HEX, "W": WORD, "R": URL}
_ALPHABETS |= {"UD": UPPER + DIGITS, "LD": LOWER + DIGITS}
_JWT = {"JWT": ({"alg": "HS256"}, {"sub": 1}), "NONE": ({"alg": "none"}, {})}
_FOLDER = Path(__file__).parent
_PAGES = (_FOLDER.parent / "docs" / "secrets.md", _FOLDER / "planted_forms.md")


def fill_in(form: str) -> tuple[str, list[str]]:
    """The example with random characters in place of its braces, and what was put
    there.
    """
    secrets: list[str] = []

    def fill(brace: re.Match[str]) -> str:
        name, length = brace.groups()
        if name in _JWT:
            secrets.append(".".join(map(_web, _JWT[name])))
        elif name == "UUID":
            secrets.append("-".join(some(HEX, size) for size in (8, 4, 4, 4, 12)))
        else:
            secrets.append(some(_ALPHABETS[name], int(length)))
        return secrets[-1]

    text = re.sub(r"\{(UUID|JWT|NONE|[UDLHWR]{1,2})(\d*)\}", fill, form)
    return text.replace("\\n", "\n").replace("\\|", "|"), secrets


def _rows(heading: str) -> list[tuple[list[str], str]]:
    """The examples and the kind of each row of the tables under a heading, in
    docs/secrets.md and in the forms that it leaves out.
    """
    rows: list[tuple[str, str]] = []
    for page in _PAGES:
        after = page.read_text("utf-8").partition(f"\n## {heading}\n")[2]
        text = after.partition("\n## ")[0]
        rows += re.findall(r"^\|[^|`]*\| (`.*`) *\|(?: (\w+) \|)?$", text, re.MULTILINE)
    return [(re.findall(r"`([^`]+)`", examples), kind) for examples, kind in rows]


def _tokens() -> Mapping[str, tuple[str, ...]]:
    tokens: dict[str, tuple[str, ...]] = {}
    for forms, kind in _rows("Tokens"):
        tokens[kind] = (*tokens.get(kind, ()), *(fill_in(form)[0] for form in forms))
    return tokens


TOKENS = _tokens()
"""Kind -> tokens that are known by their own form."""

_BODY = "\n".join(some(WORD + "+/", 64) for _ in range(4))
_BLOCK = "-----BEGIN {0}-----\n{1}{2}\n-----END {0}-----"
_PRIVATE_KEYS = (
    _BLOCK.format("RSA PRIVATE KEY", "", _BODY),
    _BLOCK.format(
        "EC PRIVATE KEY", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n", _BODY
    ),
    f"-----BEGIN PRIVATE KEY-----\n{_BODY}",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\\n{_BODY}\\n-----END",
    _BLOCK.format("PGP PRIVATE KEY BLOCK", "Version: 2 - x\n\n", _BODY),
    (
        f"---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n{_BODY}\n---- END SSH2 ENCRYPTED "
        "KEY ----"
    ),
    (
        f"PuTTY-User-Key-File-2: ssh-rsa\nPrivate-Lines: 4\n{_BODY}\nPrivate-MAC: "
        f"{some(HEX, 40)}"
    ),
)
PLACED: tuple[tuple[str, str, str], ...] = (
    *(("private_key", text, _BODY) for text in _PRIVATE_KEYS),
    *(
        (kind, text, secret)
        for (form,), kind in _rows("Places")
        for text, secrets in [fill_in(form)]
        for secret in secrets
    ),
)
"""Kind, text, secret: what is known by what it stands behind."""

ASSIGNED: tuple[tuple[str, list[str]], ...] = tuple(
    fill_in(form) for (form,), _ in _rows("Names")
)
"""What is assigned to a telling name: a text, and the secrets in it."""

"""Texts with a secret that is not recognised."""

EVERY: Mapping[str, tuple[tuple[str, str], ...]] = {
    kind: (
        *((token, token) for token in TOKENS.get(kind, ())),
        *((text, secret) for placed, text, secret in PLACED if placed == kind),
        *(
            (text, secret)
            for text, secrets in ASSIGNED
            if kind == "assigned"
            for secret in secrets
        ),
    )
    for kind in sorted({*TOKENS, *(kind for kind, _, _ in PLACED), "assigned"})
}
"""Kind -> texts, each with the secret in it."""

ONE_OF_EACH = {kind: planted[0] for kind, planted in EVERY.items()}
"""Kind -> a text and the secret in it."""


def parts(secret: str) -> list[str]:
    """All parts of 12 characters, without what every address of an issuer begins
    with.
    """
    for issuer in (
        "https://hooks.slack.com/services/",
        "https://discord.com/api/webhooks/",
    ):
        secret = secret.removeprefix(issuer)
    secret = secret.removeprefix("https://api.softlayer.com/soap/v3.1/")
    return [secret[start : start + 12] for start in range(max(1, len(secret) - 11))]


def left(secret: str, clean: bytes | str) -> str:
    """A part of the secret that is left in a text; "" without one."""
    text = clean if isinstance(clean, str) else clean.decode("utf-8", "replace")
    return next((part for part in parts(secret) if part in text), "")


def _kinds() -> Iterator[tuple[str, str, list[str], bool]]:
    alphabets = {
        "l": LOWER,
        "u": f"{UPPER}234567",
        "h": HEX,
        "d": DIGITS,
        "b": URL,
        "s": f"{WORD}+/",
    }
    for line in (Path(__file__).parent / "kinds.txt").read_text("utf-8").splitlines():
        kind, _, text = line.removeprefix("- ").partition("\t")
        random = Random(kind)

        def fill(brace: re.Match[str], random: Random = random) -> str:
            characters = random.choices(alphabets.get(brace[1], WORD), k=int(brace[2]))
            # A digit, and letters of both cases, near the end.
            end = "".join(random.choice(some) for some in ("abc", "XYZ", "2345"))
            return (
                "".join(characters[:-3]) + end
                if brace[1] in "ab" and len(characters) > 5
                else "".join(characters)
            )

        text = re.sub(r"\{([aluhdbs])(\d+)\}", fill, text).replace("⏎", "\n")
        secrets = [
            part
            for secret in re.findall("«(.*?)»", text, re.DOTALL)
            for part in re.split(r"\\n|\s+", secret)
            if len(part) > 1 and not re.search("-----|^BEGIN|^END|PRIVATE|^KEY", part)
        ]
        if not line.startswith("#"):
            yield kind, re.sub("[«»]", "", text), secrets, line[:2] != "- "


KINDS = tuple(_kinds())
"""Name, text, parts of the secrets in it, whether they are found."""
