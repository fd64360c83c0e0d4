"""The reference names what there is, with its defaults; links between pages lead somewhere."""

import inspect
import re
from pathlib import Path

import pytest
import typer

import heedful
from heedful import errors
from heedful.checks.loading import FACTORIES
from heedful.cli.app import COMMANDS, app
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


@pytest.mark.parametrize("name", heedful.__all__)
def test_every_public_name_is_in_the_reference(name):
    assert re.search(rf"`{name}`", REFERENCE)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_there_with_its_defaults(rule):
    assert f"`{shown(rule.__name__, rule)}`" in REFERENCE


@pytest.mark.parametrize("name", sorted(FACTORIES))
def test_every_check_is_there_with_its_defaults(name):
    assert f"`{shown(name, getattr(heedful.checks, name))}`" in REFERENCE


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_is_there_with_its_rules(name):
    row = re.search(rf"^\| `heedful\.policies\.{name}` \|.*$", REFERENCE, re.MULTILINE)
    assert row is not None
    short = re.sub(r"(MaxAttempts|Repeat)\((?:limit|times)=", r"\1(", row.group())
    for rule in PRESETS[name].rules:
        said = re.sub(r"(MaxAttempts|Repeat)\((?:limit|times)=", r"\1(", repr(rule))
        assert said in short


def test_every_argument_of_run_is_there():
    parameters = inspect.signature(heedful.run).parameters
    missing = [name for name in parameters if f"\n| `{name}` |" not in REFERENCE]
    assert missing == []
    assert parameters.keys() - {"task"} == inspect.signature(heedful.Run).parameters.keys() - {
        "task"
    }


def test_every_error_is_there():
    values = vars(errors).values()
    kinds = [k for k in values if isinstance(k, type) and issubclass(k, errors.HeedfulError)]
    assert [
        kind.__name__ for kind in kinds if not re.search(rf"\b{kind.__name__}\b", REFERENCE)
    ] == []


def test_every_setting_is_there_with_its_default():
    section = REFERENCE.partition("## Settings")[2].partition("\n## ")[0]
    for name, field in Settings.model_fields.items():
        row = re.search(rf"^\| .*`{name}`.*$", section, re.MULTILINE)
        assert row is not None, name
        if field.default is not None:
            said = str(field.default).lower().removesuffix(".0")
            assert f"`{said}`" in row.group(), name


def test_every_command_and_option_is_there():
    top = typer.main.get_command(app)
    section = REFERENCE.partition("## Command line")[2].partition("\n## ")[0]
    missing = []
    for name in COMMANDS:
        command = top.get_command(None, name)  # type: ignore[attr-defined]
        inner = getattr(command, "commands", {})
        for title, one in [(f"{name} {key}", each) for key, each in inner.items()] or [
            (name, command)
        ]:
            missing += [title] if f"`heedful {title}" not in section else []
            options = [flag for p in one.params for flag in (*p.opts, *p.secondary_opts)]
            flags = [flag for flag in options if flag.startswith("-")]
            missing += [f"{title} {flag}" for flag in flags if flag not in section]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    text = re.sub(r"```.*?```|`[^`\n]+`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target
