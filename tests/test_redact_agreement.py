"""What a detector of detect-secrets takes for a secret is redacted."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from typing import Any

import pytest
from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.plugins.keyword import DENYLIST
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from heedful.redact import redact

KNOWN: dict[str, Any] = get_mapping_from_secret_type_to_class()
DETECTORS: dict[str, Any] = {kind.__name__: kind for kind in KNOWN.values()}
# Addresses are no secrets, and hexadecimal in quotes is a digest or an id: see heedful.redact.
LEFT_OUT = {"IPPublicDetector", "HexHighEntropyString"}
OTHERS = {"KeywordDetector", "Base64HighEntropyString"}
# The others know a secret by its form, from which it is made here.
FORMS = sorted(set(DETECTORS) - LEFT_OUT - OTHERS)

PRINTABLE = st.characters(min_codepoint=32, max_codepoint=126)
AROUND = st.sampled_from(["{}", " {} ", "a\n{}\nb", "({})", "'{}'", "x={};", '\\n"{}"'])
SHORTEST = 16  # no token is shorter
WIDEST = " " * 21  # nobody leaves so much room around an equals sign
BODY = "MIIEowIBAAKCAQEA7bq5kCtkq1fQ\n" * 3
BEGIN = "-----BEGIN {}PRIVATE KEY-----\n{}"


def test_every_detector_is_met():
    assert set(DETECTORS) == {*FORMS, *OTHERS, *LEFT_OUT}


def dotted(parts: Iterable[bytes]) -> str:
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


def like(*forms: str | re.Pattern[str]) -> st.SearchStrategy[str]:
    return st.one_of([st.from_regex(form, fullmatch=True, alphabet=PRINTABLE) for form in forms])


OBJECTS = st.dictionaries(like("[a-z]+"), st.integers() | st.text(), min_size=1)
PARTS = OBJECTS.map(lambda data: json.dumps(data).encode())
# Where the detector's own form has one character or none for what is long, or any for a dot.
STRICTER: dict[str, st.SearchStrategy[str]] = {
    "ArtifactoryDetector": like(" AKC[a-zA-Z0-9]{13,70} ", " AP[0-9A-F][a-zA-Z0-9]{13,40} "),
    "BasicAuthDetector": like("[a-z]{2,9}://[^\\s:/?#[\\]@!$&'\"()*+,;={}<]+:[\\w.~%^|-]+@[a-z]*"),
    "JwtTokenDetector": st.tuples(PARTS, PARTS, st.binary(min_size=8)).map(dotted),
    "NpmDetector": like("//npm[.]example[.]com/:_authToken=(npm_[a-zA-Z0-9]{36}|[a-f0-9-]{36})"),
    "PrivateKeyDetector": st.sampled_from(
        [
            *(BEGIN.format(kind, BODY) for kind in ("", "RSA ", "DSA ", "OPENSSH ")),
            f"-----BEGIN EC PRIVATE KEY-----\n{BODY}-----END EC PRIVATE KEY-----",
            f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{BODY}",
            f"---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nComment: x\n{BODY}",
            f"PuTTY-User-Key-File-2: ssh-rsa\n{BODY}",
        ]
    ),
    "SlackDetector": like(
        "xox[abposr]-([0-9]{10,13}-){1,2}[a-z0-9]{24}",
        "https://hooks[.]slack[.]com/services/T[A-Z0-9]{8}/B[A-Z0-9]{8}/[a-zA-Z0-9_]{24}",
    ),
    "SoftlayerDetector": like(
        "(softlayer|sl)[_-]?(api)?[_-]?(key|token|pwd|pass|password)['\"]?[ ]?[:= ] ?[a-z0-9]{64}",
        "https?://api[.]softlayer[.]com/soap/(v3|v3[.]1)/[a-z0-9]{64}",
    ),
}


def made_for(detector: Any) -> st.SearchStrategy[str]:
    forms = [re.compile(form.pattern, form.flags & ~re.IGNORECASE) for form in detector.denylist]
    stricter = STRICTER.get(type(detector).__name__)
    return like(*forms) if stricter is None else stricter


def secrets(detector: Any, text: str) -> list[str]:
    """What it finds: the longest group of a form, or all where its groups are but prefixes."""
    if detector.secret_type == "JSON Web Token":
        return list(detector.analyze_string(text))
    found = []
    for match in (match for form in detector.denylist for match in form.finditer(text)):
        longest = max((group or "" for group in match.groups()), key=len, default="")
        found.append(longest if len(longest) >= SHORTEST else match[0])
    return found


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_has_the_form_of_a_secret_is_redacted(name, data):
    detector = DETECTORS[name]()
    text = data.draw(AROUND).format(data.draw(made_for(detector)))
    assume(WIDEST not in text)
    found = secrets(detector, text)
    assert found
    clean = redact(text)
    for one in found:
        assume(len(one) < SHORTEST or re.search(r"\d", one))  # letters alone are a word
        windows = [one[at : at + SHORTEST] for at in range(max(1, len(one) - SHORTEST + 1))]
        assert name == "PrivateKeyDetector" or not any(window in clean for window in windows)
    assert BODY[:28] not in clean


NAMES = st.sampled_from(DENYLIST).flatmap(lambda name: st.from_regex(name, fullmatch=True))
VALUES = st.from_regex(r"""[a-z0-9][^\s"'`]{5,40}""", fullmatch=True, alphabet=PRINTABLE)
WRITTEN = """{n}: {v}
{n} = {v}
'{n}': {v}
"{n}" : {v}
c["{n}"] = {v}
{n} := {v}
if {n} == {v}:
if {n} !== {v}:
{n} => {v}
{v} == {n}
{v} != {n}
{n}  {v};""".split("\n")


@given(
    st.sampled_from(["", "my_", "db", "MY_", "x."]),
    NAMES,
    st.sampled_from(["", "_secure", "2", "Value"]),
    st.sampled_from([str, str.upper, str.title]),
    st.sampled_from(WRITTEN),
    VALUES,
    st.sampled_from("\"'"),
)
def test_what_is_assigned_to_a_telling_name_in_quotes_is_redacted(
    before, name, after, case, written, value, quote
):
    name = f"{before}{case(name)}{after}"
    text = written.format(n=name, v=f"{quote}{value}{quote}")
    clean = redact(text)
    for found in DETECTORS["KeywordDetector"]().analyze_string(text):
        assert found not in clean.replace("[redacted: assigned]", "")
