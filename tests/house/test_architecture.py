"""`docs/architecture.md` and the code name the same rooms, in the same order, and real
modules.
"""

import re
import tomllib
from pathlib import Path

import pytest

import heedful

PACKAGE = Path(heedful.__file__).parent
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PAGES_ABOUT_CODE = [
    ROOT / "CONTRIBUTING.md",
    ROOT / "docs" / "architecture.md",
    ROOT / "docs" / "testing.md",
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
]
# What a command writes.
OUTPUTS = {"build/docs", "bench/out"}
PICTURE = PAGE.partition("```text")[2].partition("```")[0]


def rooms_of_the_picture() -> list[str]:
    names = re.findall(r"^ (\w+)(?:/|\.py)", PICTURE, flags=re.MULTILINE)
    return [*names[:-1], *re.findall(r"(\w+)\.py", PICTURE.splitlines()[-1])]


def test_the_picture_shows_every_room_and_no_other():
    real = {
        path.stem
        for path in PACKAGE.iterdir()
        if (path / "__init__.py").exists()
        or (path.suffix == ".py" and path.stem != "__init__")
    }
    assert set(rooms_of_the_picture()) == real - {"testing", "__main__"}


def test_the_order_of_the_picture_is_the_one_that_is_enforced():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    enforced = [re.sub(r"[()]|heedful\.", "", layer) for layer in layers]
    drawn = [
        room
        for room in rooms_of_the_picture()
        if room
        not in ("redact", "redact_rules", "errors", "sanitize", "validation", "faults")
    ]
    assert [room for room in enforced if room in drawn] == drawn


@pytest.mark.parametrize("page", PAGES_ABOUT_CODE, ids=lambda page: page.stem)
def test_every_file_that_the_page_names_exists(page):
    text = page.read_text(encoding="utf-8")
    paths = set(re.findall(r"`(\w+(?:/[\w.]+)+/?)`", text))
    places = (PACKAGE, PACKAGE.parent, ROOT)
    missing = {
        path for path in paths if not any((place / path).exists() for place in places)
    }
    assert missing <= OUTPUTS


def test_every_module_of_a_room_that_is_described_exists():
    for room, text in re.findall(
        r"^\*\*`(loop|lessons|models)/`\*\*(.*?)\n\n", PAGE, re.MULTILINE | re.DOTALL
    ):
        modules = {path.stem for path in (PACKAGE / room).glob("*.py")}
        words = {word for word in re.findall(r"`(\w+)`", text) if word.islower()}
        assert words <= modules, (room, words - modules)
