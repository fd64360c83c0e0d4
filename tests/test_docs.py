"""The reference names what there is, with its defaults; links between pages lead
somewhere.
"""

import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from heedful import checks
from heedful.cli.settings import Settings
from heedful.lessons.reasons import Reason
from heedful.lessons.telling import REASONS
from scripts import demo_picture, docs_site, page_parts, run_docs

ROOT = Path(__file__).parent.parent
DECISIONS = ROOT / "docs" / "decisions"
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", *(page for page in DOCS if page.parent != DECISIONS)]
HOW_TO = sorted((ROOT / "docs" / "howto").glob("*.md"))
OTHERS = [
    *sorted(page for page in ROOT.glob("*.md") if page.name != "README.md"),
    *sorted(DECISIONS.glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
    *sorted((ROOT / "packages").glob("*/README.md")),
    *sorted((ROOT / "packages").glob("*/examples/**/*.md")),
    ROOT / "clients" / "typescript" / "README.md",
]


def read_reference(subject: str) -> str:
    """The page of the reference about a subject."""
    page = ROOT / "docs" / "reference" / f"{subject}.md"
    return page.read_text("utf-8")


def slug(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    """All anchors of a page."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def test_the_navigation_of_the_site_has_every_page_once():
    listed = [path for section in docs_site.navigation() for path in section.pages]
    pages = [page.relative_to(ROOT).as_posix() for page in {*PAGES, *OTHERS}]
    assert sorted(listed) == sorted([*pages, *docs_site.made_pages()])


def test_the_index_for_models_has_a_page_with_its_first_sentence():
    page = "# Costs\n\n```sh\nmake it\n```\n\nSee [a page](x.md) first. Then wait.\n"
    assert docs_site.summary(page) == ("Costs", "See a page first.")


@pytest.mark.parametrize("page", page_parts.PARTS, ids=lambda page: page.stem)
def test_the_parts_of_a_page_are_what_the_code_says(page):
    stale = "run .venv/bin/python -m scripts.page_parts"
    assert page_parts.written(page) == page.read_text("utf-8"), stale


def test_every_setting_is_there_with_its_default():
    page = read_reference("command-line")
    section = page.partition("## Settings")[2].partition("\n## ")[0]
    for name, default in asdict(Settings()).items():
        row = re.search(rf"^\| .*`{name}`.*$", section, re.MULTILINE)
        assert row is not None, name
        if default is not None:
            text = str(default).lower().removesuffix(".0")
            assert f"`{text}`" in row.group(), name


@pytest.mark.parametrize(
    "code",
    [
        *(code for code, _ in REASONS),
        "answers",
        "filter",
        "harmful memory",
        "holdout",
        "later",
        "no room",
        "other function",
        "same",
    ],
)
def test_every_reason_why_memory_is_silent_has_its_row(code):
    figures = {"key": "…", "loop_key": "…", "form": "examples", "tell": "rules"}
    words = Reason.of(code, trust="…", release="", model="MODEL", **figures).words
    page = (ROOT / "docs" / "memory-is-silent.md").read_text("utf-8")
    assert f"`{words.partition(':')[0].partition(';')[0]}" in page


def test_every_check_is_in_the_table_of_checks():
    page = read_reference("checks")
    section = page.partition("## Ready-made checks")[2].partition("\n## ")[0]
    listed = re.findall(r"`([a-z_]+)(?:\(.*?\))?`(?=.*\|.*\|)", section)
    assert sorted(listed) == sorted(checks.known())


def test_the_index_of_the_how_to_names_every_page():
    index = (ROOT / "docs" / "howto" / "README.md").read_text("utf-8")
    pages = {page.name for page in HOW_TO} - {"README.md"}
    assert set(re.findall(r"\]\(([\w-]+\.md)\)", index)) == pages


@pytest.mark.parametrize("page", DOCS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_first_words_of_a_page_say_for_whom_it_is(page):
    lines = page.read_text("utf-8").splitlines()
    assert lines[2].startswith(("For ", "Use this ")), lines[2]


DOORS = sorted((ROOT / "docs" / "start").glob("*.md"))


@pytest.mark.parametrize(
    ("page", "most"),
    [(ROOT / "README.md", 700), *((door, 400) for door in DOORS)],
    ids=lambda value: value.stem if isinstance(value, Path) else "",
)
def test_what_a_stranger_reads_first_is_short(page, most):
    assert len(page.read_text("utf-8").split()) <= most


def test_every_door_is_in_the_table_of_the_readme():
    table = (ROOT / "README.md").read_text("utf-8").partition("| you have")[2]
    doors = re.findall(r"\]\(docs/start/([\w-]+)\.md\)", table)
    assert sorted(doors) == [door.stem for door in DOORS]


def test_the_index_of_examples_names_every_example():
    folder = ROOT / "examples"
    index = (folder / "README.md").read_text("utf-8")
    examples = [
        path
        for path in folder.iterdir()
        if path.name not in ("README.md", "__pycache__")
    ]
    examples += (folder / "integrations").glob("*.py")
    missing = [path for path in examples if f"({path.relative_to(folder)}" not in index]
    assert missing == []


def test_a_new_user_needs_ten_lines_from_an_empty_folder_to_a_told_lesson(tmp_path):
    page = (ROOT / "docs" / "start" / "learn-from-runs.md").read_text(encoding="utf-8")
    example = next(b for b in run_docs.blocks(page) if b.language == "python")
    lines = [line for line in example.body.splitlines() if line.strip()]
    assert len(lines) <= 10
    words = "quarantine release state importance kind signature set_trust".split()
    assert [word for word in words if word in example.body] == []

    script = tmp_path / example.title
    script.write_text(example.body, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env={**os.environ, "HEEDFUL_EMBEDDER": "none"},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert "Error: no such item" in done.stdout
    assert "red kettle" in done.stdout


def check_links(page: Path, text: str) -> None:
    """Check that each link in the text of a page leads to a file or a part of one."""
    prose = re.sub(r"```.*?```|`[^`\n]+`", "", text, flags=re.DOTALL)
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose):
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


@pytest.mark.parametrize(
    "page", [*PAGES, *OTHERS], ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_between_pages_lead_somewhere(page):
    check_links(page, page.read_text("utf-8"))


def test_the_moving_picture_has_the_words_of_the_recorded_demo():
    text = demo_picture.PICTURE.read_text("utf-8")
    assert text == demo_picture.picture()
    assert "<script" not in text
    assert "KG:12  ✓" in text
