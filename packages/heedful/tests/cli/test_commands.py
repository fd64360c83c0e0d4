"""Every command on one database: in words, as one JSON document, and with bad input."""

import os
import re
import subprocess
import sys
from collections import ChainMap
from importlib import metadata

import pytest

from heedful import doors
from heedful.cli.app import command_groups
from tests.cli.support import task
from tests.tables import cases


@pytest.fixture
def heedful_(desk, monkeypatch, history):
    """The command in a folder with the database and a file of recorded loops."""
    monkeypatch.setenv("HEEDFUL_EMBEDDER", "none")
    desk.write("heedful.db", history)
    desk.write(
        "loops.jsonl", '{"attempts": [{"candidate": "x", "passed": true}]}\n' * 9
    )
    return lambda line, stdin="": desk.invoke(monkeypatch, line, stdin=stdin)


# Arguments -> a part of the words, and the keys of the JSON document.
GOOD = {
    "why r/passed": (
        "=> passed",
        "id state task goals policy made decisions lines briefing",
    ),
    "loops": ("Say red", "loops"),
    "loops runs": ("no run of a pipeline in project", "runs"),
    "lessons --limit 1": ("(held back)\nNext: heedful quarantine list", "lessons"),
    "seen log": (
        "4 patterns merged as: login failed",
        "seen signature pattern group lessons",
    ),
    "recall 'Say red'": ("rejected: blue", "examples"),
    "recall --why 'Say red'": ("shown: lesson", "memory_key space waiting choices"),
    "recall": ("nothing to show", "examples silence"),
    "lessons pin 1 --by ann": ("lesson 1 is pinned", "lesson pinned by why"),
    "lessons prune --by ann --keep 1 --dry-run": (
        "would be removed",
        "dry_run removed loops",
    ),
    "forget --lesson 1 --dry-run": (
        "would go",
        (
            "examples lessons sightings loops attempts notes prompts reasons episodes "
            "traces events failures exposures outcomes lesson_ids loop_ids "
            "reopened shared remains dry_run by why"
        ),
    ),
    "quarantine list": ("Next: heedful quarantine show", "waiting"),
    "quarantine log": ("nothing was reviewed yet", "rulings"),
    "proof": (
        "insufficient data",
        "model pooled models lessons pending ended holdout trials",
    ),
    "consolidate --dry-run": ("lessons: ", "id at by before proposals after nothing"),
    "consolidate log": ("no dream yet", "dreams"),
    "replay": ("÷ oracle", "recorded policies notes"),
    "replay loops.jsonl": ("9 loops, 9 attempts", "recorded policies notes"),
    "loops override r/stopped attempts --by ann": (
        "loop r/stopped is open",
        "loop rule by why decisions until verdict reasons feedback lifted",
    ),
    "loops cancel r/open --by ann --why 'no more need'": (
        "loop r/open is cancelled",
        "loop by why verdict best passed stopped_by lifted",
    ),
    "export out.jsonl": ("lessons exported", "file lessons bytes digest"),
    "key create --name ci": (
        "this key is not shown again",
        "id name may projects secret key",
    ),
    "key list": ("this tenant has no key", "keys"),
    "key audit": ("nothing was done in this tenant yet", "audit"),
    "db copy heedful.db copy.db": ("rows of heedful.db", "source target rows tables"),
    "doctor --model toy:answer": ("✓ database", "well signs"),
}
STDIN = {"seen log": "login failed for ada1 here", "recall": bytes(range(256)) * 40}


@pytest.mark.parametrize("line", GOOD)
def test_words_or_one_json_document(heedful_, line, desk, history):
    words, keys = GOOD[line]
    stdin = STDIN.get(line, "")
    if stdin:
        line = f"{line} -"
    spoken = heedful_(line, stdin=stdin)
    assert spoken.code == 0, spoken
    assert words in spoken.out, spoken
    assert "\x1b" not in spoken.out, spoken
    desk.write("heedful.db", history)
    for name in ("heedful.db-wal", "heedful.db-shm", "out.jsonl", "copy.db"):
        (desk.folder / name).unlink(missing_ok=True)
    done = heedful_(f"{line} --json", stdin=stdin)
    assert done.code == 0, done
    assert done.err == spoken.err
    assert set(keys.split()) <= done.json.keys()


# What a command that reads the store must not wait for.
HEAVY_PACKAGES = {
    "fastapi",
    "httpx",
    "jsonschema",
    "matplotlib",
    "numpy",
    "onnxruntime",
    "openai",
    "opentelemetry",
    "psycopg",
    "pydantic",
    "starlette",
    "tokenizers",
    "uvicorn",
}


@cases(("line", "also"), {"a table needs no templates": ("loops", {"jinja2"})})
def test_a_command_imports_only_what_it_shows(desk, history, line, also):
    desk.write("heedful.db", history)
    # Where a setting is stated, pydantic checks it.
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("HEEDFUL_")
    }
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "heedful", *line.split()],
        cwd=desk.folder,
        env=inherited,
        capture_output=True,
        text=True,
        check=True,
    )
    # A line is `import time: 10 | 20 | package.module`.
    imported = {
        row.rpartition("|")[2].strip().partition(".")[0]
        for row in done.stderr.splitlines()
        if row.startswith("import time:")
    }
    assert "heedful" in imported
    assert imported & (HEAVY_PACKAGES | also) == set()


BAD = {
    "why": (2, "Missing argument 'loop'"),
    "looops": (2, "did you mean 'loops'?"),
    "loops --limt 3": (2, "No such option: --limt (Possible options: --limit"),
    "why r/": (2, "several loops begin with 'r/'"),
    "lessons prune": (2, "Missing option '--by'"),
    "lessons prune --by ann": (2, "nothing says what to remove"),
    "replay --policy nope": (2, "no policy is called 'nope'; there are: default"),
    "quarantine revoke nobody": (3, "no source 'nobody'"),
    "run loops.jsonl": (2, "loops.jsonl:1: id is missing"),
    "worker --once --drives short=toy:long": (2, "has no attribute 'long'"),
    "key create --name x --expires soon": (2, "--expires is 'soon'"),
    "export none/x.jsonl": (4, "No such file or directory"),
    "import loops.jsonl": (2, "loops.jsonl:1: "),
    "loops --limit x": (2, "'--limit': 'x' is not a valid int"),
    "db copy tasks.jsonl new.db": (4, "tasks.jsonl is not a SQLite database"),
    "ui --port 0 --db tasks.jsonl": (4, "tasks.jsonl is not a SQLite database, or is"),
    "why zzz": (3, "no loop or run 'zzz' in "),
    "loops --db no.db": (3, "or let heedful run create one\n"),
    "lessons prune --by ann --unused-for 0d": (
        2,
        "--unused-for is '0d'; it must be a time such as",
    ),
    "proof --restore 1": (2, "--restore needs --by"),
    "loops override r/passed attempts --by a": (2, "the loop passed; there is n"),
    "quarantine revoke page --yes": (2, "by is ''"),
    "loops --db mysql://host/db": (2, "no store is called 'mysql://'; there are: a pa"),
    "run tasks.jsonl --jobs 0": (2, "--jobs is 0; it must be at least 1"),
    "db migrate": (2, "heedful.db is not a postgresql:// URL"),
    "demo --pipeline --db a.db": (2, "leave --full, --tasks, --db"),
    "export .": (2, "a name that is free"),
    "db copy none.db new.db": (3, "no database 'none.db' in this folder"),
    "loops --db .": (4, "is a folder; name a file in it"),
    "loops --db postgresql://u:hidden@127.0.0.1:1/x": (
        4,
        "port 1 failed: Connection refused",
    ),
}


@pytest.mark.parametrize("line", BAD)
def test_bad_input_has_a_code_and_says_what_is_wrong(heedful_, desk, line):
    code, words = BAD[line]
    desk.tasks([task("red")])
    done = heedful_(line)
    assert done.code == code, done
    assert words.lower() in done.err.lower(), done
    assert "Traceback" not in done.err
    assert done.out == ""


@cases(
    ("line", "kind"),
    {
        "an argument is missing": ("why", "UsageError"),
        "no such option": ("loops --limt 3", "UsageError"),
        "no such command": ("looops", "UsageError"),
        "an option is missing": ("lessons prune", "UsageError"),
        "not a number": ("loops --limit x", "UsageError"),
        "options that need others": ("proof --restore 1", "UsageError"),
        "no such loop": ("why zzz", "NotFound"),
        "no database": ("db copy tasks.jsonl new.db", "StoreCorrupt"),
        "no such folder": ("export none/x.jsonl", "StoreUnavailable"),
    },
)
def test_bad_input_is_one_json_document(heedful_, desk, line, kind):
    code, words = BAD[line]
    desk.tasks([task("red")])
    done = heedful_(f"{line} --json")
    assert done.code == code, done
    error = done.json["error"]
    assert error["type"] == kind
    assert words.lower() in error["message"].lower()
    assert "Traceback" not in done.err


def test_every_command_has_help_that_says_the_same_as_the_list(heedful_):
    overview = heedful_("--help")
    titles = re.findall(r"^(\S.*):$", overview.out, re.MULTILINE)
    assert titles[1:] == [*command_groups()]
    words = " ".join(overview.out.split())
    commands = ChainMap(*command_groups().values())
    for name, (_, summary) in commands.items():
        done = heedful_(f"{name} --help")
        assert done.code == 0
        assert done.err == ""
        assert f" {name} {summary}" in words
        assert not re.search(
            r"^  .*\.\.\.$", done.out, re.MULTILINE
        )  # no summary is cut
        assert re.match(rf"Usage: \S+ {name}", done.out.strip())
        assert summary.split()[0] in done.out
    assert heedful_("--version").out.startswith("heedful ")
    assert heedful_("").code == 2


@pytest.mark.parametrize(
    "name", ["why", "loops", "lessons", "before", "recall", "proof"]
)
def test_the_example_of_a_command_in_the_help_runs(name, heedful_):
    _, summary = command_groups()["Begin with"][name]
    example = summary.partition(": heedful ")[2]
    assert example.startswith(name)
    done = heedful_(example)
    assert done.code < 2, done.err


@pytest.mark.parametrize(
    ("line", "name"),
    [
        pytest.param("lessons list", "lessons", id="lessons are listed by their name"),
        pytest.param("loops list", "loops", id="loops are listed by their name"),
    ],
)
def test_another_word_for_a_command_works_and_the_name_is_said(line, name, heedful_):
    done = heedful_(line)
    assert done.code == 0
    assert f"is called heedful {name}\n" in done.err


@cases(
    ("command", "package"),
    {
        "the pages": ("ui", "heedful-server"),
        "the service": ("serve", "heedful-server"),
        "the hooks of agents": ("hook", "heedful-agents"),
    },
)
def test_a_command_of_a_package_that_is_not_installed_names_it(
    desk, monkeypatch, command, package
):
    monkeypatch.setattr(doors, "_entry_texts", list)
    doors._places.cache_clear()
    done = desk.invoke(monkeypatch, command)
    doors._places.cache_clear()
    assert done.code == 2
    assert f"pip install ./packages/heedful ./packages/{package} in" in done.err


def test_a_door_has_the_entry_points_that_python_finds():
    for door in (doors.COMMANDS, doors.JOBS, doors.READERS, doors.ROUTERS):
        entries = metadata.entry_points(group=door.group)
        assert door.load_all() == {entry.name: entry.load() for entry in entries}


def test_mcp_without_its_package_names_its_extra(desk, monkeypatch):
    # None in place of a module: it can be neither found nor imported.
    monkeypatch.setitem(sys.modules, "mcp", None)
    done = desk.invoke(monkeypatch, "mcp")
    assert done.code == 2
    assert "./packages/heedful-agents[mcp]" in done.err
