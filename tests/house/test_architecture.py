"""`ARCHITECTURE.md` and the code name the same rooms and real modules."""

import re
import tomllib

import pytest

from scripts.workspace import NAMES, PACKAGES, ROOT, SOURCES

PAGE = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
PAGES_ABOUT_CODE = [
    ROOT / "CONTRIBUTING.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "docs" / "testing.md",
    *(package / "README.md" for package in PACKAGES),
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
]
# What a command writes.
OUTPUTS = {"build/docs", "bench/out"}
PICTURE = PAGE.partition("```text")[2].partition("```")[0]
# The parts of the picture by their folders, and the rooms in each.
PARTS = dict(re.findall(r"(?ms)^ ([\w/-]+)(.*?)(?=^ \S|\Z)", PICTURE))
PARTS_OF_PACKAGES = [PARTS[f"packages/{name}"] for name in NAMES]


def drawn(part: str) -> list[str]:
    """Return the rooms in a part of the picture, as names of files and folders."""
    return re.findall(r"^   (\w+(?:/|\.py))", part, re.MULTILINE)


def contracts() -> list[dict[str, list[str]]]:
    """Return the contracts about imports; the first two are those of layers."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    listed: list[dict[str, list[str]]] = settings["tool"]["importlinter"]["contracts"]
    return listed


def names(rooms: list[str]) -> list[str]:
    """Return rooms without what distinguishes modules from folders."""
    return [re.sub(r"[()/]|heedful\.|\.py$", "", room) for room in rooms]


def test_the_picture_has_every_package_and_the_lab():
    packages = [f"packages/{name}" for name in reversed(NAMES)]
    assert [*PARTS] == [*packages, "lab/"]


@pytest.mark.parametrize(
    ("folder", "part"), [*zip(SOURCES, PARTS_OF_PACKAGES, strict=True)], ids=NAMES
)
def test_the_picture_shows_every_folder_of_a_package_and_real_modules(folder, part):
    folders = {f"{path.parent.name}/" for path in folder.glob("*/__init__.py")}
    rooms = drawn(part)
    assert {room for room in rooms if room.endswith("/")} == folders
    assert [room for room in rooms if not (folder / room).exists()] == []


def test_the_picture_shows_every_module_of_the_library():
    modules = {path.name for path in SOURCES[0].glob("[!_]*.py")}
    rooms = drawn(PARTS_OF_PACKAGES[0])
    assert {room for room in rooms if room.endswith(".py")} == modules


def test_the_order_of_the_picture_is_the_one_that_is_enforced():
    enforced = names(contracts()[0]["layers"])
    packages = [folder.name for folder in reversed(SOURCES[1:])]
    assert enforced == [*packages, *names(drawn(PARTS_OF_PACKAGES[0]))]


def test_the_order_of_the_rooms_of_the_service_is_the_one_that_is_enforced():
    contract = contracts()[1]
    assert contract["containers"] == ["heedful_server"]
    assert names(contract["layers"]) == names(drawn(PARTS_OF_PACKAGES[1]))


@pytest.mark.parametrize(
    "page", PAGES_ABOUT_CODE, ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_every_file_that_the_page_names_exists(page):
    text = page.read_text("utf-8")
    paths = set(re.findall(r"`([\w-]+(?:/[\w.-]+)+/?)`", text))
    # A page names a file from the root, or from the folder of a package's modules.
    places = (ROOT, *SOURCES, *(folder.parent for folder in SOURCES))
    missing = {
        path for path in paths if not any((place / path).exists() for place in places)
    }
    assert missing <= OUTPUTS


def test_only_the_store_writes_loops():
    table = "(loop|attempt|decision|step|override)"
    call = rf'\.(insert|insert_now|update|delete)\(\s*"{table}"'
    sql = rf"(insert into|update|delete from) {table} (set|where|\()"
    for folder in SOURCES:
        for path in (*folder.rglob("*.py"), *folder.rglob("*.sql")):
            text = path.read_text()
            is_store = path.parts[-2] in ("store", "sql")
            assert is_store or not re.search(f"{call}|{sql}", text), path
            assert path.name == "journal.py" or "loops.commit" not in text, path
