"""Names: which later calls have a name in common with a call that failed."""

from typing import Any

import pytest

from heedful.episodes.error_lines import named_errors
from heedful.lessons.call_marks import MAX_CALL_MARKS, failed_marks, marks_of
from tests.tables import cases


def failed_names(tool: str, arguments: Any, error: str) -> set[str]:
    """Return the names under which a failed call is recorded."""
    lines = named_errors(error, arguments)
    marks = failed_marks(tool, arguments, lines)
    return {mark.name for mark in marks if mark.kind == "name"}


def is_warned(tool: str, failed: Any, error: str, later: Any) -> bool:
    """Return True if a later call has a name with which an earlier call failed."""
    marks = failed_marks(tool, failed, named_errors(error, failed))
    names = {mark for mark in marks if mark.kind == "name"}
    return not names.isdisjoint(marks_of(tool, later))


# A name is a whole word of the error and of the call.


@cases(
    "command, error, names",
    {
        "a glob is no name": (
            "ls .planning/phases/14-*-plan.md",
            "ls: cannot access '.planning/phases/14-*-plan.md': No such file",
            set(),
        ),
        "nor is a glob without quotes": (
            "wc -l logs/app-?.log",
            "zsh: no matches found: logs/app-?.log",
            set(),
        ),
        "nor a list in braces": (
            "cp src/{a,b}.ts /srv",
            "cp: src/{a,b}.ts: No such file or directory",
            set(),
        ),
        "nor a variable in a path": (
            "cat $HOME/etc/app.toml",
            "cat: '$HOME/etc/app.toml': No such file or directory",
            set(),
        ),
        "a folder of a longer path is no name": (
            "tar -xf dist src/lib",
            "tar: cannot open /srv/src/lib/old: denied",
            set(),
        ),
        "a part of an option is no name": (
            "deploy --plan -plan",
            "error: unknown flag: --plan-only",
            set(),
        ),
        "a part of a dotted name is no name": (
            "pytest shop",
            "error: cannot import 'shop.cart.shop'",
            set(),
        ),
        "a place in a file is no name": (
            "tsc src/cart.ts",
            "src/cart.ts:14:3: error: unknown type",
            set(),
        ),
        "a whole path is one": (
            "wc -l docs/guide.md",
            "wc: docs/guide.md: open: No such file or directory",
            {"docs/guide.md"},
        ),
        "a quoted path is one": (
            "rm 'tmp/old one' tmp/cache",
            "rm: cannot remove 'tmp/cache': No such file or directory",
            {"tmp/cache"},
        ),
        "an option with a value is one": (
            "kubectl get --colour=red",
            "error: unknown flag: --colour",
            {"--colour"},
        ),
        "a quoted word is one": (
            "npm run bundle",
            'npm error Missing script: "bundle"',
            {"bundle"},
        ),
        "a name in capitals is one": (
            "terraform apply -target=Web",
            'Error: Invalid target "WEB"',
            {"web"},
        ),
        "a file of a database is no column": (
            'sqlite3 shop.db "select id from pets"',
            'Error: unable to open database "shop.db": unable to open',
            {"shop.db"},
        ),
    },
)
def test_a_name_is_a_whole_word(command, error, names):
    assert failed_names("Bash", command, error) == names


# A column goes with its table if the error says the table or its alias.

JOIN = "select o.city, p.owner from shop.pets p join owners as o on p.id = o.pet"
BY_ALIAS = "select p.owner from pets as p where p.age > 3"


@cases(
    "query, error, names",
    {
        "MySQL by alias": (
            BY_ALIAS,
            "Unknown column 'p.owner' in 'field list'",
            {"pets.owner"},
        ),
        "MySQL by table": (
            "select pets.owner from pets",
            "ERROR 1054 (42S22): Unknown column 'pets.owner' in 'field list'",
            {"pets.owner"},
        ),
        "MySQL says the table": (
            "insert into visits (vet, day) values ('a', 1)",
            "Unknown column 'vet' in 'visits'",
            {"visits.vet"},
        ),
        "MySQL without a table": (
            "select owner from pets where age > 3",
            "Unknown column 'owner' in 'where clause'",
            {"owner"},
        ),
        "PostgreSQL by alias, without quotes": (
            JOIN,
            "ERROR:  column p.owner does not exist",
            {"pets.owner"},
        ),
        "PostgreSQL of a relation, in an update": (
            "update visits set vet = 1",
            'column "vet" of relation "visits" does not exist',
            {"visits.vet"},
        ),
        "PostgreSQL without a table": (
            'select "vet" from visits',
            'column "vet" does not exist',
            {"vet"},
        ),
        "SQLite by alias": (JOIN, "no such column: o.city", {"owners.city"}),
        "SQLite of a table": (
            "insert into visits (vet) values (1)",
            "table visits has no column named vet",
            {"visits.vet"},
        ),
        "SQLite without a table": (
            "select vet from visits",
            "no such column: vet",
            {"vet"},
        ),
        "DuckDB by alias": (
            BY_ALIAS,
            'Binder Error: Table "p" does not have a column named "owner"',
            {"pets.owner"},
        ),
        "DuckDB without a table": (
            "select vet from visits v",
            'Binder Error: Referenced column "vet" not found in FROM clause!',
            {"vet"},
        ),
        "BigQuery by alias": (
            "select p.owner from `a-b.shop.pets` p",
            "Name owner not found inside p at [1:10]",
            {"pets.owner"},
        ),
        "BigQuery without a table": (
            "select vet from shop.visits",
            "Unrecognized name: vet at [1:8]",
            {"vet"},
        ),
        "Oracle, each part in quotes": (
            BY_ALIAS,
            'ORA-00904: "P"."OWNER": invalid identifier',
            {"pets.owner"},
        ),
        "the alias of a subquery is no table": (
            "select s.owner from (select * from pets) s",
            "no such column: s.owner",
            {"owner"},
        ),
        "MySQL has no such table": (
            "select vet from shop.visits",
            "Table 'shop.visits' doesn't exist",
            {"visits"},
        ),
        "MySQL describes no such table": (
            "desc visits",
            "Table 'shop.visits' doesn't exist",
            {"visits"},
        ),
        "SQLite has no such table": (
            "select vet from visits",
            "no such table: visits",
            {"visits"},
        ),
        "PostgreSQL has no such table": (
            "select vet from visits v",
            'relation "visits" does not exist',
            {"visits"},
        ),
        "DuckDB has no such table": (
            "select vet from visits",
            "Catalog Error: Table with name visits does not exist!",
            {"visits"},
        ),
    },
)
@pytest.mark.parametrize("tool", ["run_sql", "psql"])
def test_a_column_is_named_with_its_table(tool, query, error, names):
    if tool == "run_sql":
        assert failed_names(tool, {"query": query}, error) == names
    else:
        words = query.replace("\n", " ").replace('"', "").replace("`", "")
        assert failed_names("Bash", f'psql -c "{words}"', error) == names


@cases(
    "query, clause",
    {
        "where": ("select age from visits where vet = 1", "where clause"),
        "on": ("select age from dogs join visits on vet = 1", "on clause"),
        "order": ("select age from visits order by vet", "order clause"),
        "group": ("select age from visits group by vet", "group statement"),
        "having": ("select age from visits having vet > 1", "having clause"),
        "delete": ("delete from visits where vet = 1", "where clause"),
        "a table expression": (
            "with old as (select * from visits) select vet from old where age > 1",
            "field list",
        ),
    },
)
def test_the_clause_of_a_query_is_no_alias(query, clause):
    error = f"Unknown column 'vet' in '{clause}'"
    assert failed_names("run_sql", {"query": query}, error) == {"vet"}


@cases(
    "query, error, names",
    {
        "both tables of a join": (
            "select city from pets join owners on pets.id = owners.pet_id",
            "Unknown column 'owners.pet_id' in 'on clause'",
            {"owners.pet_id"},
        ),
        "a table with a schema in quotes": (
            'select "p"."owner" from "shop"."pets" as "p"',
            "no such column: p.owner",
            {"pets.owner"},
        ),
        "a query after another": (
            "use shop; delete from pets p where p.owner = 1",
            "Unknown column 'p.owner' in 'where clause'",
            {"pets.owner"},
        ),
        "a query with a table expression": (
            "with old as (select p.owner from pets p) select age from old",
            "no such column: p.owner",
            {"pets.owner"},
        ),
        "a described table": (
            "describe visits",
            "Table 'shop.visits' doesn't exist",
            {"visits"},
        ),
        "no query": (
            "update the docs from shop.pets",
            "error: 'shop' is missing",
            set(),
        ),
    },
)
def test_the_tables_of_a_query_are_found(query, error, names):
    assert failed_names("run_sql", {"query": query}, error) == names


@cases(
    "later, warned",
    {
        "the same table under another alias": ("select x.owner from pets x", True),
        "the same table without an alias": ("select age, owner from pets", True),
        "the same table in an update": ("update pets set owner = 1", True),
        "the same table over lines": ("select x.owner\nfrom pets\n  as x", True),
        "the same column of another table": ("select owner from dogs", False),
        "another column of the table": ("select p.name from pets p", False),
        "a longer name": ("select p.owner_id from pets p", False),
        "the column of the other table": (
            "select o.owner from owners o join pets p on p.id = o.pet",
            False,
        ),
        "a value": ("select age from pets where name = 'owner'", False),
    },
)
def test_a_column_of_a_table_is_announced_for_this_table(later, warned):
    error = "no such column: p.owner"
    query = {"query": BY_ALIAS}
    assert is_warned("run_sql", query, error, {"query": later}) is warned


def test_a_column_without_a_table_is_announced_for_each_table():
    query = {"query": "select owner from pets"}
    later = {"query": "select owner from dogs"}
    assert is_warned("run_sql", query, "no such column: owner", later)


def test_columns_do_not_displace_the_words_of_a_query():
    words = [f"col{number}" for number in range(MAX_CALL_MARKS - 6)]
    query = {"query": f"select {', '.join(words)} from pets"}
    names = [mark.name for mark in marks_of("run_sql", query)]
    assert {*words, "pets"} <= set(names)


# What a shell does not find is a name, in quotes or not.

SHELLS = {
    "zsh in an evaluation": "(eval):1: command not found: NAME",
    "zsh": "zsh: command not found: NAME",
    "dash with a line": "sh: 1: NAME: not found",
    "ash": "/bin/sh: NAME: not found",
    "bash with a line": "bash: line 1: NAME: command not found",
    "bash of a login": "-bash: NAME: command not found",
    "sudo": "sudo: NAME: command not found",
    "tcsh": "NAME: Command not found.",
    "no shell at all": "NAME: command not found",
    "fish": "fish: Unknown command: NAME",
    "env with quotes": "env: 'NAME': No such file or directory",
    "env with curly quotes": "env: ‘NAME’: No such file or directory",
    "env without quotes": "env: NAME: No such file or directory",
    "timeout": "timeout: failed to run command ‘NAME’: No such file or directory",
    "cmd": "'NAME' is not recognized as an internal or external command,",
    "PowerShell": "NAME : The term 'NAME' is not recognized as the name of a cmdlet",
    "Go": 'exec: "NAME": executable file not found in $PATH',
    "Ubuntu": "Command 'NAME' not found, did you mean:",
}
CALLS = {
    "plain": "NAME --check .",
    "in a chain": "cd app && NAME src",
    "behind timeout": "timeout 60 NAME src",
    "behind env": "env CI=1 NAME",
    "by its path": "/usr/local/bin/NAME src; NAME",
}


@cases("error", SHELLS)
@pytest.mark.parametrize("name", ["ripgrep", "g++-12", "tsc"])
def test_a_program_that_is_not_found_is_announced(error, name):
    failed = f"cd app && {name} --fix src"
    message = error.replace("NAME", name)
    for call in CALLS.values():
        later = call.replace("NAME", name)
        assert is_warned("Bash", failed, message, later), later
    assert not is_warned("Bash", failed, message, "cd app && cargo --fix src")
    assert not is_warned("Bash", failed, message, f"cd app && brew install {name}")


@cases("call", CALLS)
def test_a_program_behind_another_is_announced(call):
    failed = call.replace("NAME", "jq")
    assert is_warned("Bash", failed, "sh: 1: jq: not found", "jq . a.json")


@cases(
    "error, later, warned",
    {
        "the wrapper, with other arguments": ("timeout", "timeout 5 go test", True),
        "not what it runs": ("timeout", "npm test", False),
        "what it runs": ("npm", "npm ci", True),
        "not the wrapper": ("npm", "timeout 9 go test", False),
    },
)
def test_a_wrapper_that_is_not_found_is_not_what_it_runs(error, later, warned):
    message = f"(eval):1: command not found: {error}"
    assert is_warned("Bash", "timeout 60 npm test", message, later) is warned


@cases(
    "later, warned",
    {
        "the same runner with another file": ("python -m pytest b.py", True),
        "another version of the runner": ("python3.12 -m pytest b.py", True),
        "another runner": ("uv run pytest a.py", False),
        "the runner with another program": ("python -m http.server", False),
    },
)
def test_what_a_runner_does_not_find_another_runner_may_have(later, warned):
    error = "/usr/bin/python: No module named pytest"
    assert is_warned("Bash", "python -m pytest a.py", error, later) is warned


@cases(
    "failed, later, warned",
    {
        "python is not python3": ("python", "python3 b.py", False),
        "python3 is not python": ("python3", "python b.py", False),
        "python3 with another file": ("python3", "python3 b.py", True),
    },
)
def test_a_version_of_a_program_is_another_program(failed, later, warned):
    error = f"zsh: command not found: {failed}"
    assert is_warned("Bash", f"{failed} a.py", error, later) is warned


@cases("error", SHELLS)
def test_a_program_that_is_not_found_is_the_first_error(error):
    message = error.replace("NAME", "yq")
    output = f"Exit code 127\nBuilding 3 of 127\nno cache 'a', not resumed\n{message}"
    assert named_errors(output, {"command": "yq . a"})[0] == message


@cases(
    "command, error",
    {
        "a repository": ("git fetch", "fatal: repository 'x' not found"),
        "an image": ("docker run web", "docker: image not found in registry."),
        "a page": ("curl a.test", "curl: (22) error: 404 not found"),
        "a package": ("pip install x", "ERROR: No matching distribution found"),
    },
)
def test_what_a_program_does_not_find_is_not_the_program(command, error):
    program = command.split()[0]
    assert program not in failed_names("Bash", command, error)
