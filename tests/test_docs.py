"""The reference names what there is, with its defaults; links between pages lead somewhere."""

import inspect
import re
from pathlib import Path

import pytest

from heedful.cli.settings import Settings
from heedful.loop.policies import PRESETS
from heedful.loop.stop import All, Budget, Echo, Fatigue, MaxAttempts, Plateau, Repeat

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
RULES = (MaxAttempts, Budget, Fatigue, Echo, Repeat, Plateau, All)


def shown(name: str, function: object) -> str:
    """A callable as the reference writes it: its parameters and defaults, without types."""
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    return f"{name}{inspect.Signature(plain)}".replace("'", '"').replace("Ellipsis", "...")


def slug(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    """All anchors of a page."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return {slug(found) for found in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def test_llms_txt_names_every_page():
    listed = set(re.findall(r"\]\(([^)]+)\)", (ROOT / "llms.txt").read_text(encoding="utf-8")))
    pages = {page.relative_to(ROOT).as_posix() for page in PAGES}
    assert listed == pages | {"docs/openapi.json"}


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_there_with_its_defaults(rule):
    assert f"`{shown(rule.__name__, rule)}`" in REFERENCE


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_is_there_with_its_rules(name):
    row = re.search(rf"^\| `heedful\.policies\.{name}` \|.*$", REFERENCE, re.MULTILINE)
    assert row is not None
    short = re.sub(r"(MaxAttempts|Repeat)\((?:limit|times)=", r"\1(", row.group())
    for rule in PRESETS[name].rules:
        said = re.sub(r"(MaxAttempts|Repeat)\((?:limit|times)=", r"\1(", repr(rule))
        assert said in short


def test_every_setting_is_there_with_its_default():
    section = REFERENCE.partition("## Settings")[2].partition("\n## ")[0]
    for name, field in Settings.model_fields.items():
        row = re.search(rf"^\| .*`{name}`.*$", section, re.MULTILINE)
        assert row is not None, name
        if field.default is not None:
            said = str(field.default).lower().removesuffix(".0")
            assert f"`{said}`" in row.group(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    text = re.sub(r"```.*?```|`[^`\n]+`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target
