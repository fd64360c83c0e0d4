"""`heedful learn-sessions` with reviews and CI: two changes, one bad file, folders."""

import json
import shlex
import subprocess
from pathlib import Path

from heedful.store.projects import find_project
from tests.episodes.remarks import (
    LINT_LINES,
    comment,
    commit_lines,
    log_text,
    write_archive,
    write_report,
    write_review,
)

SHAS = ("a" * 40, "b" * 40)
TOTAL = ("test_total", "AssertionError: no total for a cart")
WRAP = "Please wrap errors with it."


def write_files(folder: Path, number: int) -> None:
    """Write what was said about one change, in all formats."""
    folder.mkdir(parents=True, exist_ok=True)
    log = log_text(commit_lines(SHAS[number]) + LINT_LINES)
    write_review(folder / f"review{number}.json", comment(number, WRAP))
    write_report(folder / f"junit{number}.xml", [TOTAL])
    if number:
        (folder / f"job{number}.log").write_text(log)
    else:
        write_archive(folder / "logs.zip", build=log)
    (folder / "notes.txt").write_text("nothing")
    (folder / "other.xml").write_text("<a/>")


def test_two_changes_teach_what_one_does_not(session, tmp_path):
    write_files(tmp_path / "ci", 0)
    done = session(("learn-sessions ci --db m.db --json", 0))
    survey = json.loads(done.out)
    assert survey["changes"] == 3
    assert survey["remarks"] == 3
    assert survey["failures"] == []
    assert survey["waiting"] == {}
    session(("lessons --db m.db", 0, "!make lint"))

    write_files(tmp_path / "ci", 1)
    session(
        (
            "learn-sessions ci --db m.db",
            0,
            "6 changes with 6 remarks",
            "A review of cart/total.go said",
            "CI: `make lint` failed with",
            "CI: `tests.test_cart.test_total` failed with",
            "3 texts in quarantine of m.db",
            "heedful trust ci reviewer:ann --db m.db",
            "!notes.txt",
            "!other.xml",
        ),
        ("trust reviewer:ann --db m.db", 0, "1 text released"),
        ("trust ci --db m.db", 0, "2 texts released"),
        ("learn-sessions ci --db m.db", 0, "6 changes with 6 remarks"),
        ("lessons --db m.db", 0, "seen 2", "!seen 3", WRAP),
        ("lessons 1 --db m.db", 0, "lesson 1, ", WRAP, "!lesson 2, "),
        ("lessons show 1 --db m.db", 0, "lesson 1, ", WRAP),
        ("lessons 999 --db m.db", 3, "no lesson"),
    )


def test_a_bad_file_is_named_and_the_others_are_learnt(session, tmp_path):
    for number in (0, 1):
        write_files(tmp_path / "ci", number)
    (tmp_path / "ci" / "bad.xml").write_text("<testsuites><!DOCTYPE")
    (tmp_path / "ci" / "bad.zip").write_bytes(b"PK\x03\x04 not an archive")
    done = session(("learn-sessions ci --db m.db --json", 1))
    survey = json.loads(done.out)
    assert len(survey["failures"]) == 3
    assert len(survey["problems"]) == 2
    assert any("ci/bad.xml:1: not a JUnit report" in p for p in survey["problems"])
    assert any("ci/bad.zip: not an archive" in p for p in survey["problems"])


def test_they_go_to_the_memory_of_the_repository_where_one_is(
    session, desk, monkeypatch
):
    """A comment may quote a folder; it does not choose a memory."""
    monkeypatch.setenv("HOME", str(desk.folder / "home"))
    subprocess.run(["git", "init", "-q", str(desk.folder)], check=True)
    elsewhere = desk.folder / "elsewhere"
    subprocess.run(["git", "init", "-q", str(elsewhere)], check=True)
    body = f'Set it here, not in "cwd": "{elsewhere}" please.'
    for number in (1, 2):
        write_review(desk.folder / f"{number}.json", comment(number, body))
    place = str(find_project(desk.folder).db)
    session((f"learn-sessions {shlex.quote('1.json')} 2.json", 0, place))
    assert not find_project(elsewhere).db.exists()
