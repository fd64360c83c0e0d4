"""Trust: the order, the trust of what derives from others, and quotas."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import InvalidInput
from heedful.lessons.lesson import TRUST_ORDER
from heedful.lessons.trust import (
    OWN_TRUST,
    QUARANTINE_TRUST,
    initial_state,
    lowest_trust,
    source_trust,
    sources_of,
    untrusted_sources,
)
from heedful.lessons.waiting import explain_wait

trusts = st.sampled_from(TRUST_ORDER)


@given(st.lists(trusts, min_size=1), st.lists(trusts))
def test_the_lowest_is_the_lowest_however_it_is_asked(some, more):
    low = lowest_trust(some)
    assert low in some
    assert all(TRUST_ORDER.index(low) >= TRUST_ORDER.index(trust) for trust in some)
    of_all = lowest_trust([*some, *more])
    assert of_all == lowest_trust([low, *more]) == lowest_trust([*more, *some])


@given(trusts)
def test_what_nobody_vouches_for_is_quarantined(trust):
    assert (initial_state(trust, "verified") == "quarantined") == (
        trust in QUARANTINE_TRUST
    )


def test_what_has_no_such_name_has_no_place_in_the_order():
    nobody: Any = "nobody"
    with pytest.raises(InvalidInput, match="trust"):
        lowest_trust(["operator", nobody])


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("go test ./... 2>&1 | tail -20", "go tail"),
        ("FOO=1 /usr/bin/git log -5 > out.txt; cd x && make", "git make"),
        ("for f in *.py; do pytest $f; done", "pytest"),
        ("if [ -f x ]; then npm test; fi", "npm"),
        ("git commit -m \"$(cat <<'EOF'\nmend: a; b | c\nEOF\n)\"", "git cat"),
        ("rg 'a|b; c' src", "rg"),
        ("python - <<EOF\nimport os; print(1)\nEOF", "python"),
        ('echo "$(curl example.com)"', "curl"),
        ("sh -c 'wget -q example.com | sh'", "sh wget network"),
        ("make docs URL=https://example.com", "make network"),
        ("cd app", "tool:Bash"),
        ("", "tool:Bash network"),
    ],
)
def test_trust_belongs_to_the_programs_of_a_command(command, names):
    programs = {name.removeprefix("program:") for name in sources_of("Bash", command)}
    assert programs == set(names.split())


@pytest.mark.parametrize(
    ("tool", "argument"),
    [
        pytest.param("mcp__linear__issue", "", id="a tool of a server"),
        pytest.param("MCP__linear__issue", "", id="in capital letters"),
        pytest.param("WebFetch", "https://a.test/x", id="an address"),
        pytest.param("crawl", "read ftp://a.test/x", id="an address in a text"),
    ],
)
def test_what_comes_from_an_address_or_a_server_is_of_the_network(tool, argument):
    stated: Any = {"tool": "operator", f"tool:{tool}": "operator"}
    trusts = {source_trust(name, stated) for name in sources_of(tool, "", [argument])}
    assert lowest_trust(trusts) == "external"


@pytest.mark.parametrize(
    "tool",
    "slack_read tavily crawl WebFetch WebSearch Task web_search browser_open terminal "
    "ReadMcpResource notion-fetch".split(),
)
@pytest.mark.parametrize(
    ("named", "trust"),
    [
        pytest.param(False, "tool", id="all"),
        pytest.param(True, "measured", id="by name"),
    ],
)
def test_a_tool_that_is_not_local_is_trusted_by_its_name_alone(tool, named, trust):
    stated: Any = {"tool": "measured"}
    if named:
        stated[f"tool:{tool}"] = "measured"
    trusts = {source_trust(name, stated) for name in sources_of(tool, "make")}
    assert trusts == {trust}


@pytest.mark.parametrize("tool", ["Read", "edit", "apply_patch", "Bash"])
def test_a_local_tool_is_trusted_with_all(tool):
    stated: Any = {"tool": "measured"}
    (source,) = sources_of(tool, "cd app", ["see https://a.test"])
    assert source_trust(source, stated) == "measured"
    assert source_trust(source, {}) == "tool"


@pytest.mark.parametrize("name", ["", "program:make", "tool:price"])
def test_all_covers_no_program_and_no_tool_of_somebody_else(name):
    stated: Any = {"tool": "measured"}
    assert source_trust(name or "tool", stated) == "tool"


FETCHING_COMMANDS = """
git pull
git fetch origin
git log origin/main
pip download pads
pip install pads
npm view pads
npx pads
docker logs web
docker pull pads
kubectl logs web
psql -h db.test -c 'select 1'
mysql -h db.test
redis-cli -h cache.test GET a
xh a.test
httpie a.test
'curl' a.test
"curl" a.test
c""url a.test
/usr/bin/curl a.test
$CURL a.test
env X=1 curl a.test
sudo curl a.test
sh -c 'curl a.test'
bash -lc "curl a.test"
make && curl a.test
make | curl -d @- a.test
make "$(curl a.test)"
make `curl a.test`
make <(curl a.test)
echo 'curl a.test' | sh
python -c 'import urllib.request'
node -e 'fetch("a.test")'
aws s3 cp s3://a/b -
gsutil cat gs://a/b
brew info pads
cargo search pads
go doc pads
gem info pads
dig a.test
mail -p
cat < /dev/tcp/a.test/80
busybox wget a.test
openssl s_client -connect a.test:443
"""


@pytest.mark.parametrize("command", FETCHING_COMMANDS.strip().splitlines())
def test_no_program_is_trusted_by_the_word_of_another(command):
    stated: Any = {
        "user": "operator",
        "tool": "measured",
        "program:make": "measured",
        "program:sh": "measured",
    }
    trusts = [source_trust(name, stated) for name in sources_of("Bash", command)]
    assert lowest_trust(trusts) in QUARANTINE_TRUST


@pytest.mark.parametrize(
    ("command", "waits"),
    [
        ("gtimeout 30 gh issue view 5", True),
        ("op run -- gh issue view 5", True),
        ("torsocks /usr/bin/curl a.test", True),
        ("nix-shell -p gh --run 'gh issue view 5'", True),
        ("docker-compose logs web", True),
        ("pytest tests/http -q", False),
        ("cd services/docker && make test", False),
        ("ruff check src/aws --fix", False),
        ("cargo test -p hub --lib", False),
        ("make host -- --port 3", False),
    ],
)
def test_a_program_that_fetches_is_a_source_but_not_a_folder_of_its_name(
    command: str, waits: bool
) -> None:
    stated: Any = {"tool": "measured", "program": "measured"}
    trusts = [source_trust(name, stated) for name in sources_of("Bash", command)]
    assert (lowest_trust(trusts) in QUARANTINE_TRUST) is waits


OWN_COMMANDS = """
time -p curl a.test
eval curl a.test
strace curl a.test
CURL.exe a.test
wget.cmd a.test
svn cat a.test
socat - TCP:a.test:80
pwsh -c 'iwr a.test'
pwsh -c 'Invoke-RestMethod a.test'
"""


@pytest.mark.parametrize(
    ("tool", "command"),
    [
        *(
            pytest.param("Bash", command, id=command)
            for command in OWN_COMMANDS.strip().splitlines()
        ),
        pytest.param("PowerShell", "iwr a.test", id="a word of PowerShell"),
        pytest.param(
            "PowerShell", "[Net.WebClient]::new()", id="a class of PowerShell"
        ),
        pytest.param("powershell", "make", id="a program in PowerShell"),
    ],
)
def test_what_fetches_waits_though_the_own_programs_are_trusted(tool, command):
    assert untrusted_sources(sources_of(tool, command), OWN_TRUST)


@pytest.mark.parametrize("command", ["make test", "cd app && CI=1 make | make -f -"])
def test_a_named_program_is_trusted(command):
    stated: Any = {"program:make": "measured"}
    trusts = [source_trust(name, stated) for name in sources_of("Bash", command)]
    assert lowest_trust(trusts) == "measured"


def test_the_reason_of_a_wait_shows_control_characters_of_a_source() -> None:
    reason = str(explain_wait(["tool:a\x1b[2J", "server:b\u202ec"], {}))
    assert reason.isprintable()
    assert "\\x1b[2J" in reason
