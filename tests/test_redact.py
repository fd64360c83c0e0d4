"""Secrets never reach the store or a model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import errata
from errata.redact import redacted, redacted_data
from errata.testing import ScriptedModel

# Made up, in the shapes that their issuers document; put together here so that no scanner of
# repositories takes them for real ones.
SECRETS = {
    "aws_key": "AKIA" + "IOSFODNN7EXAMPLE",
    "github_token": "ghp_" + "a1B2" * 9,
    "gitlab_token": "glpat-" + "x" * 20,
    "slack_token": "xoxb-" + "123456789012-abcdef",
    "stripe_key": "sk_live_" + "4eC39HqLyjWDarjt",
    "model_key": "sk-" + "proj-" + "A1b2" * 8,
    "google_key": "AIza" + "S" * 35,
    "package_token": "npm_" + "a1B2c3" * 6,
    "hub_token": "hf_" + "a1B2c3" * 6,
    "mail_key": "SG." + "a" * 22 + "." + "b" * 43,
    "jwt": "eyJ" + "hbGciOiJIUzI1" + ".eyJ" + "zdWIiOiIxMjM0" + ".c2lnbmF0dXJl",
    "bearer": "abcdefghijklmnopqrstuvwx",
    "password_in_url": "bob:correct-horse",
    "private_key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
    "assigned": "correct-horse-battery",
}
CARRIERS = {"bearer": "Bearer {}", "password_in_url": "postgres://{}@db/x"}
CARRIERS["assigned"] = 'api_key = "{}"'


@pytest.mark.parametrize("kind", SECRETS)
def test_each_kind_is_marked_and_gone(kind: str) -> None:
    text = f"before {CARRIERS.get(kind, '{}').format(SECRETS[kind])} after"
    clean = redacted(text)
    assert SECRETS[kind] not in clean
    assert f"[redacted: {kind}]" in clean
    assert clean.startswith("before ")
    assert clean.endswith(" after")
    assert redacted(clean) == clean


@pytest.mark.parametrize(
    "text",
    [
        "the password is short",
        "token limits are 4096",
        "sk-learn",
        "a secret: no",
        "10:30@home",
        "password: required",
        "The secret: kindness matters",
        "password = getpass.getpass()",
        "password = hash2hash(password)",
        'api_key = os.environ["API_KEY_2"]',
        "def login(user, password: Optional[str] = None):",
        "connect(api_key=api_key_from_env)",
        'PASSWORD="$DB_PASSWORD_2"',
        'password = f"{password_2_hash}"',
        'label = {"password": "required field", "secret": "wonderful day"}',
    ],
)
def test_plain_words_stay(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "AWS_SECRET_ACCESS_KEY={}",
        "export DB_PASSWORD={} && run",
        "MY_API_KEY: {}",
        "?user=me&password={}&next=1",
        "{{'client_secret': '{}'}}",
        'password := "{}"',
        'if password == "{}":',
        'cut off: password="{}',
    ],
)
def test_what_is_assigned_is_a_secret_in_quotes_or_with_a_digit(text: str) -> None:
    secret = "wJalrXUtnFEMI/K7MDENG"
    assert redacted(text.format(secret)) == text.format("[redacted: assigned]")


@given(st.text())
def test_marking_twice_changes_nothing_more(text: str) -> None:
    assert redacted(redacted(text)) == redacted(text)


def test_a_telling_key_makes_its_value_a_secret() -> None:
    data = {
        "password": "correct-horse",
        "n": 3,
        "in": [{"api_key": "abcdefgh1234"}],
        "secret": "a day",
    }
    assert redacted_data(data) == {
        "password": "[redacted: assigned]",
        "n": 3,
        "in": [{"api_key": "[redacted: assigned]"}],
        "secret": "a day",
    }


@pytest.mark.parametrize("by", ["a check", "an evaluator"])
def test_findings_are_cleaned_before_anything_cuts_them(by: str) -> None:
    def find(candidate: str, at: errata.Context) -> errata.Evaluation:
        secret = SECRETS["aws_key"]
        return errata.Evaluation((errata.Finding("c", secret, secret, evidence=secret),))

    given: dict[str, Any] = {"checks": [find]} if by == "a check" else {"evaluate": find}
    result = asyncio.run(errata.run("t", generate=lambda task, hint: "x", store=None, **given))
    assert "redacted: aws_key" in str(result.loop)
    assert SECRETS["aws_key"] not in str(result.loop)


def test_no_planted_secret_reaches_the_database_or_the_model(tmp_path: Path) -> None:
    planted = " ".join(CARRIERS.get(k, "{}").format(v) for k, v in SECRETS.items())
    path = tmp_path / "errata.db"

    def refuse(candidate: str, at: errata.Context) -> list[errata.Finding]:
        if at.attempt > 1:
            return []
        return [errata.Finding("refuse", f"saw {planted}", f"drop {planted}", evidence=planted)]

    async def driven() -> ScriptedModel:
        model = ScriptedModel(f"first {planted}", f"second {planted}")
        store = errata.open_store(str(path))
        memory = errata.Memory(store)
        await errata.run(
            f"do {planted}", generate=model, checks=[refuse], store=store, memory=memory
        )
        await memory.remember("Leak", f"error with {planted}")
        await store.close()
        return model

    model = asyncio.run(driven())
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    sent = "\n".join(message.content for prompt in model.prompts for message in prompt)
    for kind, secret in SECRETS.items():
        assert secret.encode() not in kept, kind
        assert secret not in sent, kind
    assert b"[redacted: aws_key]" in kept
