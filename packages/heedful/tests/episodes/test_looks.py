"""Which calls only look at something, and which change it."""

import pytest

from heedful.episodes.looks import changes, checks, looks
from tests.tables import cases
from tests.test_knowledge import texts_of_groups

TABLE = "episodes/looks"


@pytest.mark.parametrize(
    "call", texts_of_groups(TABLE, "look look_tool look_command note", "needs")
)
def test_the_witnesses_of_a_look_only_look(call):
    assert looks(call, "") or looks("Bash", call)


@pytest.mark.parametrize("query", texts_of_groups(TABLE, "query", "needs"))
def test_the_witnesses_of_a_query_only_look(query):
    assert looks("run_sql", query)


@pytest.mark.parametrize("command", texts_of_groups(TABLE, "check", "needs"))
def test_the_witnesses_of_a_check_check_the_work(command):
    assert checks(command)


@pytest.mark.parametrize(
    "command",
    [*texts_of_groups(TABLE, "check", "not"), "curl https://shop.test/x", "./test/run"],
)
def test_what_resembles_a_check_is_none(command):
    assert not checks(command)


@pytest.mark.parametrize("call", texts_of_groups(TABLE, "change", "needs"))
def test_the_witnesses_of_a_change_change_something(call):
    assert changes(call, "") or changes("Bash", call)
    assert not looks(call, "")
    assert not looks("Bash", call)


@cases(
    "command, is_look",
    {
        "in a folder": ("cd shop && git log -3", True),
        "after a heading": ("echo '== cart' && cat cart.py", True),
        "with options of git": ("git -C shop status", True),
        "a family of subcommands": ("git ls-files src", True),
        "without errors": ("cat notes.md 2>/dev/null", True),
        "a text that is written": ("cat > cart.py <<'EOF'\nx = 1\nEOF", False),
        "a line that is added": ("echo 'x = 1' >> cart.py", False),
        "a heading of another command": ("echo '== build' && make", False),
        "a folder with the name of a look": ("mkdir logs", False),
        "a file with the name of a look": ("python search.py", False),
        "a right that is granted": ("grant select on city to ada", False),
        "a dependency that is got": ("go get example.test/cart", False),
    },
)
def test_a_command_looks_by_its_program_or_its_subcommand(command, is_look):
    assert looks("", command) is is_look


@cases(
    "tool, is_look",
    {
        "camel case": ("TaskUpdate", True),
        "a server of MCP": ("mcp__shop-server__get_order", True),
        "what a word of change says": ("get_or_create_cart", False),
        "another deed": ("book_reservation", False),
    },
)
def test_a_tool_looks_by_the_words_of_its_name(tool, is_look):
    assert looks(tool, "") is is_look
