"""Each alternative of what is recognised as a secret has a witness that needs it.

Every branch of every pattern and every word of every list in `redact_rules.py` and
`redact.py` is left out once, and a witness has to notice: a secret is left in its
text, or a harmless text is changed. The texts are those of docs/secrets.md, of
tests/planted_forms.md and tests/kinds.txt, and for a rule, a constant or a function
those under its name in `witnesses/redact_rules.toml`: `needs` have a secret, `not` are
harmless. They are written as in docs/secrets.md, and one that begins with `json:` is
read as JSON. `source` says who writes such texts.
"""

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from heedful import redact as redaction, redact_rules
from heedful.redact_rules import Rule
from tests.alternatives import Alternative, alternatives_of, source_of
from tests.planted import FORMS, KINDS, ONE_OF_EACH, PLACED, fill_in, left, some
from tests.test_knowledge import texts_of
from tests.test_redact import EXAMPLES, LIKE_NAMES, NOT_PERSONAL, PLAIN_WORDS, UNDRAWN

FILE = Path(__file__).parent / "witnesses" / "redact_rules.toml"
WITNESSES: dict[str, Any] = tomllib.loads(FILE.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Witness:
    """A text, the secrets in it, and what has to stay.

    Without secrets, nothing in the text may be marked.
    """

    text: str
    secrets: tuple[str, ...] = ()
    is_personal: bool = False
    kept: tuple[str, ...] = ()

    def misses_nothing(self, module: ModuleType) -> bool:
        """Return whether a variant of `redact` does with the text what it should."""
        data = self.text.removeprefix("json:")
        if "\x1f" in data:
            clean = " ".join(module.redact_data(data.split("\x1f")))
        elif self.is_personal:
            clean = module.mask_personal(self.text)
        elif data is self.text:
            clean = module.redact(data)
        else:
            clean = json.dumps(module.redact_data(json.loads(data)))
        if not self.secrets:
            return bool(clean == data)
        is_left = any(left(secret, clean) for secret in self.secrets)
        return not is_left and all(part in clean for part in self.kept)


REDACT = source_of(redaction)
ALTERNATIVES: dict[tuple[str, str], list[Alternative]] = {}
for source in (source_of(redact_rules), REDACT):
    for alternative in alternatives_of(source):
        place = (source.name, alternative.place)
        ALTERNATIVES.setdefault(place, []).append(alternative)


def redact_without(alternative: Alternative) -> ModuleType:
    """Return `heedful.redact` as it is without an alternative of it or of its rules.

    What is compiled once is not compiled again.
    """
    if alternative.source is REDACT:
        variant = alternative.left_out()
    else:
        rules = redact_rules.__name__
        sys.modules[rules] = alternative.left_out()
        try:
            variant = REDACT.executed()
        finally:
            sys.modules[rules] = redact_rules
    variant.__dict__["_compiled"] = redaction.__dict__["_compiled"]
    return variant


def witnesses_of(place: str) -> list[Witness]:
    """Return the witnesses under a name."""
    entry = WITNESSES.get(place, {})
    is_personal = any(rule.name == place for rule in redact_rules.PERSONAL_RULES)
    return [
        *(as_witness(form, is_personal) for form in texts_of(entry, "needs")),
        *(Witness(text, (), is_personal) for text in texts_of(entry, "not")),
    ]


def as_witness(form: str, is_personal: bool = False) -> Witness:
    """Return the witness that a form describes.

    Its secrets stand in `{}` or in `«»`, and in `‹›` what has to stay.
    """
    text, secrets = fill_in(form, partial(some, random=Random(form)))
    # The id of a bot, which stands before its secret, is none.
    secrets = [secret for secret in secrets if len(secret) < 9 or not secret.isdigit()]
    secrets += re.findall("«(.*?)»", text)
    kept = re.findall("‹(.*?)›", text)
    unmarked_text = re.sub("[«»‹›]", "", text)
    return Witness(unmarked_text, tuple(secrets), is_personal, tuple(kept))


def hidden_secrets() -> Iterator[Witness]:
    """Yield secrets among what is not drawn."""
    for kind in ("github_token", "assigned"):
        text, secret = ONE_OF_EACH[kind]
        for around in UNDRAWN.values():
            before, after = around.split("{}")
            middle = text.index(secret) + len(secret) // 2
            yield Witness(f"{text[:middle]}{before}{after}{text[middle:]}", (secret,))
            yield Witness(text.replace(secret, f"{before}{secret}{after}"), (secret,))


RULES = {
    rule.name: rule
    for rules in vars(redact_rules).values()
    for rule in (rules if isinstance(rules, tuple) else [rules])
    if isinstance(rule, Rule) and rule not in redact_rules.PERSONAL_RULES
}
KNOWN_TEXTS = [
    *(witness for place in WITNESSES for witness in witnesses_of(place)),
    *(as_witness(EXAMPLES[name]) for name in RULES),
    *map(as_witness, FORMS),
    *(Witness(text, (s,)) for kind, text, s in PLACED if kind == "private_key"),
    *(Witness(text, tuple(secrets)) for _, text, secrets, found in KINDS if found),
    *map(Witness, PLAIN_WORDS),
    *(Witness(str(case.values[0])) for case in LIKE_NAMES),
    *(Witness(str(case.values[0]), (), True) for case in NOT_PERSONAL),
    *hidden_secrets(),
]


@pytest.mark.parametrize("place", ALTERNATIVES, ids=" ".join)
def test_each_alternative_has_a_witness_that_needs_it(place: tuple[str, str]) -> None:
    witnesses = [*witnesses_of(place[1]), *KNOWN_TEXTS]
    unneeded = [
        alternative.text
        for alternative in ALTERNATIVES[place]
        for variant in [redact_without(alternative)]
        if all(witness.misses_nothing(variant) for witness in witnesses)
    ]
    assert unneeded == []


@pytest.mark.parametrize("place", WITNESSES)
def test_secrets_are_marked_and_harmless_texts_stay(place: str) -> None:
    assert place in {name for _, name in ALTERNATIVES}
    assert WITNESSES[place]["source"]
    wrong = [w.text for w in witnesses_of(place) if not w.misses_nothing(redaction)]
    assert wrong == []
