"""Secrets to plant, made anew from a fixed seed, so that no scanner takes this file for
a leak.
"""

import base64
import json
import re
import sqlite3
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, log
from pathlib import Path
from random import Random
from typing import Any

import numpy

_RANDOM = Random("planted")
LOWER = string.ascii_lowercase
UPPER = string.ascii_uppercase
DIGITS = string.digits
HEX = "0123456789abcdef"
WORD = string.ascii_letters + string.digits
URL = f"{WORD}-_"


Draw = Callable[[str, int], str]
"""Return so many characters of an alphabet."""


def some(alphabet: str, length: int, random: Random = _RANDOM) -> str:
    """Random characters, a digit and a letter of each case among them where the
    alphabet has it.
    """
    must = [c for c in (LOWER, UPPER, DIGITS) if set(c) & set(alphabet)]
    chars = [random.choice(sorted(set(c) & set(alphabet))) for c in must]
    chars += random.choices(alphabet, k=length - len(chars))
    random.shuffle(chars)
    # Neither end is a sign, so that none runs together with what a test puts beside it.
    return (
        "".join(chars)
        if chars[0] in WORD and chars[-1] in WORD
        else some(alphabet, length, random)
    )


def _web(data: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")


_ALPHABETS = {"U": UPPER, "D": DIGITS, "L": LOWER, "H": HEX, "W": WORD, "R": URL}
_ALPHABETS |= {"UD": UPPER + DIGITS, "LD": LOWER + DIGITS}
_JWT = {"JWT": ({"alg": "HS256"}, {"sub": 1}), "NONE": ({"alg": "none"}, {})}
_FOLDER = Path(__file__).parent
_PAGES = (_FOLDER.parent / "docs" / "secrets.md", _FOLDER / "planted_forms.md")


def fill_in(form: str, draw: Draw = some) -> tuple[str, list[str]]:
    """The example with random characters in place of its braces, and what was put
    there.
    """
    secrets: list[str] = []

    def fill(brace: re.Match[str]) -> str:
        name, length = brace.groups()
        if name in _JWT:
            secrets.append(".".join(map(_web, _JWT[name])))
        elif name == "UUID":
            secrets.append("-".join(draw(HEX, size) for size in (8, 4, 4, 4, 12)))
        else:
            secrets.append(draw(_ALPHABETS[name], int(length)))
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


@dataclass(frozen=True)
class Value:
    """A text with a secret of a form, and the parts of the secret."""

    form: str
    text: str
    secrets: tuple[str, ...]


def _draw(random: Random, alphabet: str, length: int) -> str:
    """Random characters, at least one of them a digit if the alphabet has digits.

    A value of letters only is not always recognised, as docs/secrets.md says.
    """
    while True:
        value = "".join(random.choices(alphabet, k=length))
        if not set(DIGITS) & set(alphabet) or set(DIGITS) & set(value):
            return value


PEM_FORMS = (
    "-----BEGIN RSA PRIVATE KEY-----\\n{W64}\\n{W64}\\n-----END RSA PRIVATE KEY-----",
    (
        "-----BEGIN OPENSSH PRIVATE KEY-----\\nb3BlbnNzaC1rZXktdjEA{W50}\\n"
        "-----END OPENSSH PRIVATE KEY-----"
    ),
)
FORMS: tuple[str, ...] = (
    *(
        form
        for heading in ("Tokens", "Places", "Names")
        for forms, kind in _rows(heading)
        for form in forms
        # Whether a text without a name is random is a matter of chance.
        if kind != "random_token"
    ),
    *PEM_FORMS,
)
"""The forms of secrets that docs/secrets.md promises to recognise."""
MIN_PIECE_CHARS = 8


def values_of(form: str, count: int) -> list[Value]:
    """The same so many random values of a form, whenever they are made."""
    draw = partial(_draw, Random(form))
    filled = [fill_in(form, draw) for _ in range(count)]
    # The claims of all our web tokens are the same, and ids of digits are no secrets.
    return [
        Value(
            form,
            text,
            tuple(s for s in secrets if not s.isdecimal() and not s.startswith("eyJ")),
        )
        for text, secrets in filled
    ]


def bundles(values: Sequence[Value], size: int) -> Iterator[Sequence[Value]]:
    """Share values out, so that a text has values of many forms."""
    count = -(-len(values) // size)
    for start in range(count):
        yield values[start::count]


def join(values: Sequence[Value]) -> str:
    """A text with all these values, each in a paragraph of its own."""
    return "\n\n".join(f"value {n}: {value.text}" for n, value in enumerate(values))


def pieces(secret: str, length: int = MIN_PIECE_CHARS) -> Iterator[str]:
    """All pieces of so many characters, without what is the same for all users."""
    for start in range(len(secret) - length + 1):
        yield secret[start : start + length]


def find_pieces(values: Iterable[Value], data: bytes | str) -> list[str]:
    """The pieces of the values' secrets that are in the data.

    Data have many random words of their own: digests, ids. A piece is long enough not
    to be one of them by chance, so it is longer if its alphabet is smaller.
    """
    pieces_by_start: dict[bytes, set[bytes]] = {}
    for value in values:
        for secret in value.secrets:
            for piece in map(str.encode, pieces(secret, _piece_length(secret))):
                pieces_by_start.setdefault(piece[:MIN_PIECE_CHARS], set()).add(piece)

    if isinstance(data, str):
        data = data.encode("utf-8", "replace")
    secrets = set[str]()
    for place in _places_of(pieces_by_start, data):
        for piece in pieces_by_start.get(data[place : place + MIN_PIECE_CHARS], ()):
            if data.startswith(piece, place):
                secrets.add(piece.decode())
    return sorted(secrets)


def _places_of(starts: Iterable[bytes], data: bytes) -> Iterator[int]:
    """Where the data may have one of these texts of eight characters; few other places.

    All places are compared at once, as numbers of 64 bits, by a hash of 24 bits.
    """
    is_hash = numpy.zeros(1 << 24, dtype=bool)
    is_hash[_hashes(numpy.frombuffer(b"".join(starts), dtype=">u8"))] = True
    for start in range(0, len(data), 1 << 20):
        part = data[start : start + (1 << 20) + MIN_PIECE_CHARS - 1]
        if len(part) < MIN_PIECE_CHARS:
            return
        characters = numpy.frombuffer(part, dtype=numpy.uint8)
        windows = numpy.lib.stride_tricks.sliding_window_view(characters, 8)
        numbers = numpy.ascontiguousarray(windows).view(">u8").ravel()
        yield from (start + numpy.flatnonzero(is_hash[_hashes(numbers)])).tolist()


def _hashes(numbers: Any) -> Any:
    """A hash of 24 bits of each number, by the constant of Fibonacci hashing."""
    return (numbers.astype(numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)) >> 40


def _piece_length(secret: str) -> int:
    """How many characters of a secret are as rare as eight letters and digits."""
    alphabets = (HEX, LOWER, UPPER, LOWER + DIGITS, UPPER + DIGITS, WORD)
    sizes = [len(alphabet) for alphabet in alphabets if set(secret) <= set(alphabet)]
    size = min(sizes, default=len(WORD))
    length = ceil(MIN_PIECE_CHARS * log(len(WORD)) / log(size))
    return max(MIN_PIECE_CHARS, min(length, len(secret)))


def everything_in(database: Path) -> Iterator[str]:
    """All values in the tables of a database, and all words of its searches."""
    connection = sqlite3.connect(database)
    try:
        tables = connection.execute(
            "select name, sql from sqlite_master where type = 'table'"
        ).fetchall()
        for name, sql in tables:
            for row in connection.execute(f'select * from "{name}"'):
                yield from (str(value) for value in row if value is not None)
            if "using fts5" in (sql or "").lower():
                words = f"temp.words_of_{name}"
                connection.execute(
                    f"create virtual table {words} using fts5vocab(main, {name}, row)"
                )
                for (word,) in connection.execute(f"select term from {words}"):
                    yield str(word)
    finally:
        connection.close()


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
