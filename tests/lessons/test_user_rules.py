"""Which sentences of a user are rules, what they name, and which older ones end."""

import pytest

from heedful.lessons.user_rules import StatedRule, names_in, read_correction, read_rules


@pytest.mark.parametrize(
    "message",
    [
        pytest.param("never use npm", id="a marker"),
        pytest.param("No, we always bill ACME in euros.", id="no, and who"),
        pytest.param("In this repo we never commit to main.", id="a place"),
        pytest.param("please don't touch generated files", id="a verb of acting"),
        pytest.param("Stop using npm!", id="stop, with a verb of acting"),
        pytest.param("use uv instead of pip", id="a choice"),
        pytest.param("run tests with make test, never with pytest", id="an aside"),
        pytest.param("From now on answer in German.", id="from now on"),
        pytest.param("Benutze nie npm.", id="German"),
        pytest.param("Bitte keine Tests löschen.", id="German, an infinitive"),
        pytest.param("n'utilise pas npm", id="French"),
        pytest.param("no uses npm, por favor", id="Spanish"),
    ],
)
def test_a_plain_marker_makes_a_rule(message):
    assert read_rules(message) == (message,)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param("don't worry about the tests", id="no verb of acting"),
        pytest.param("stop the server", id="stop a thing"),
        pytest.param("Should we never use npm?", id="a question"),
        pytest.param("never " * 50, id="a long sentence"),
        pytest.param("the tests never fail here", id="a marker within"),
        pytest.param("```\nnever use npm\n```", id="code"),
        pytest.param("> never use npm", id="quoted"),
        pytest.param("<notice>never use npm</notice>", id="words of a machine"),
        pytest.param("never use a. " * 6 + "never b.\n" * 6, id="a document"),
    ],
)
def test_other_sentences_are_no_rules(message):
    if message.startswith("never use a"):
        message = "\n".join(f"never use npm{n}" for n in range(6))
    assert read_rules(message) == ()


@pytest.mark.parametrize(
    "message",
    [
        pytest.param("No, ACME is billed in euros.", id="no"),
        pytest.param("That's wrong: we bill ACME in euros, never dollars.", id="wrong"),
        pytest.param("Actually, invoices must be in euros", id="actually"),
        pytest.param("Not quite. Dates are written as YYYY-MM-DD.", id="two sentences"),
        pytest.param("No, use euros, not dollars.", id="a marker"),
        pytest.param("No, you must never email customers.", id="what the agent does"),
        pytest.param("Nein, ACME bekommt immer Euro.", id="German"),
        pytest.param("Non, les factures sont toujours en euros.", id="French"),
        pytest.param("No, ACME siempre se factura en euros.", id="Spanish"),
    ],
)
def test_a_refusal_with_what_holds_instead_is_a_rule(message):
    assert read_correction(f"{message}\nDo it again.") == message
    assert read_rules(message) == (message,)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param("ACME is billed in euros.", id="nothing is refused"),
        pytest.param("No problem, prices are never wrong.", id="no refusal"),
        pytest.param("No, my address is Elm Street.", id="the speaker"),
        pytest.param("No, I always fly economy.", id="what the speaker does"),
        pytest.param("No, the address is Elm Street.", id="the matter in hand"),
        pytest.param("No, flights are at 9.", id="a figure"),
        pytest.param("No, this is fine.", id="this answer"),
        pytest.param("No, write the plan.", id="an order of the moment"),
        pytest.param("No, are totals always net?", id="a question"),
        pytest.param("Actually, never mind.", id="never mind"),
        pytest.param("No, " + "prices are net " * 20, id="a long sentence"),
    ],
)
def test_other_refusals_are_no_corrections(message):
    assert read_correction(message) == ""


def test_each_sentence_is_a_rule_of_its_own():
    message = "Thanks. Never use npm. Fix a.py.\nalways run make fmt"
    assert read_rules(message) == ("Never use npm.", "always run make fmt")


@pytest.mark.parametrize(
    ("rule", "tool", "arguments"),
    [
        pytest.param(
            "never use npm", "Bash", {"command": "cd app && npm ci"}, id="a program"
        ),
        pytest.param(
            "never commit to main",
            "Bash",
            {"command": "git commit -m x"},
            id="a verb of a program",
        ),
        pytest.param(
            "never use --no-verify",
            "Bash",
            {"command": "git push --no-verify"},
            id="an option",
        ),
        pytest.param(
            "never use git push --force",
            "Bash",
            {"command": "git push origin a"},
            id="a program with a verb",
        ),
        pytest.param(
            "don't edit files in generated/",
            "Edit",
            {"file_path": "/a/generated/b.py"},
            id="a folder",
        ),
        pytest.param(
            "never edit conf/prod.ini",
            "Edit",
            {"file_path": "/a/conf/prod.ini"},
            id="the end of a path",
        ),
        pytest.param(
            "from now on format with gofumpt, not with gofmt",
            "Bash",
            {"command": "gofmt -w ."},
            id="what to do it with",
        ),
        pytest.param(
            "niemals podman verwenden",
            "Bash",
            {"command": "podman build ."},
            id="German, with the verb at the end",
        ),
        pytest.param(
            "don't touch *.lock files",
            "Write",
            {"file_path": "yarn.lock"},
            id="a pattern of files",
        ),
        pytest.param(
            "never `rm -rf`", "Bash", {"command": "rm -rf build"}, id="quoted code"
        ),
        pytest.param(
            "we always bill ACME in euros",
            "bill",
            {"customer": "ACME"},
            id="an argument",
        ),
        pytest.param("never use create_invoice", "create_invoice", {}, id="a tool"),
        pytest.param(
            "Benutze nie Docker", "Bash", {"command": "docker ps"}, id="German"
        ),
    ],
)
def test_a_rule_names_a_call(rule, tool, arguments):
    assert StatedRule(text=rule).named_in(tool, arguments)


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("never use npm", "pnpm install"),
        ("never use git push --force", "git status"),
        ("never commit to main", "git status"),
        ("never use npm", "git commit -m 'No npm here'"),
        ("always answer in German", "answer in German"),
    ],
)
def test_a_rule_is_silent_before_another_call(rule, command):
    assert not StatedRule(text=rule).named_in("Bash", command)


@pytest.mark.parametrize(
    ("newer", "older", "ends"),
    [
        pytest.param("use podman, never docker", "use docker", True, id="the opposite"),
        pytest.param(
            "always run helm lint before you push",
            "never run helm uninstall",
            False,
            id="another command of the program",
        ),
        pytest.param(
            "use nerdctl, never docker",
            "never run docker prune",
            False,
            id="the whole program",
        ),
        pytest.param(
            "always run black on schema.py",
            "never edit schema.py",
            False,
            id="another action",
        ),
        pytest.param("you may run helm", "never use helm", True, id="to run is to use"),
        pytest.param("use tabs", "never use helm", False, id="another thing"),
    ],
)
def test_a_newer_rule_ends_one_about_the_same_thing(newer, older, ends):
    assert StatedRule(text=newer).ends(older) is ends


def test_what_no_call_can_match_is_told_at_the_start_only():
    assert names_in("always answer in German") == ()
    words = StatedRule(text="always answer in German").told
    assert words == "told at the start only"
    assert "npm" in StatedRule(text="never use npm").told


@pytest.mark.parametrize(
    ("newer", "older", "ends"),
    [
        ("use pnpm, never npm", "use npm for packages", True),
        ("we are back to npm, never pnpm", "use pnpm, never npm", True),
        ("you may edit docs/", "never edit generated/", False),
        ("never push on Fridays", "never push to main", False),
        ("always answer in German", "always answer in English", False),
    ],
)
def test_a_newer_rule_ends_an_older_one_about_the_same_thing(newer, older, ends):
    assert StatedRule(text=newer).ends(older) is ends
