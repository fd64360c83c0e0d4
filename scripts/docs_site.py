"""Build the docs as a site in `build/docs`, which git ignores: `make docs`.

The pages are put together in `build/pages`, each at the place that it has in the
repository, beside those that are made from the code: the names by package, and the
help of every command. Zensical builds the site from them by `zensical.toml`, without a
network; with `--strict` a broken link or anchor fails. `llms.txt` and `llms-full.txt`
are made from the same pages, for readers that are models.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import griffe
import typer

import heedful
import heedful_compat
from heedful import checks
from heedful.cli.app import app, command_groups
from scripts.workspace import NAMES, SOURCES

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "pages"
SITE = ROOT / "build" / "site"  # as in zensical.toml
BUILT = ROOT / "build" / "docs"
CONFIG = ROOT / "zensical.toml"
# What pages are, or link to.
PAGE_SOURCES = (
    *("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"),
    *("SECURITY.md", "LICENSE"),
    *("docs", "deploy", "examples", "packages/heedful/examples"),
    *(f"packages/{name}/README.md" for name in NAMES),
    "clients/typescript/README.md",
)
NAMES_HEAD = """\
# {title}

The public names of `{title}`, each with its signature and what it does, made from the
code. Formats, settings and rules for several names stand in the
[reference](../docs/reference/README.md).
"""
COMMANDS_HEAD = """\
# Commands

What `heedful COMMAND --help` prints, for every command. Results go to standard output,
everything else to standard error.
[Settings](docs/reference/command-line.md#settings) and
[exit codes](docs/reference/command-line.md#exit-codes) are the same for all commands.
"""
# Modules that are public as a whole, beside the names of the packages.
MODULES = ("checks.numbers", "errors", "loop.policies", "models", "testing", "episodes")
PREFIXES = {"loop.policies": "policies"}
WIDTH = 100
MARKS = {
    griffe.ParameterKind.var_positional: "*",
    griffe.ParameterKind.var_keyword: "**",
}


def commands() -> str:
    """Return the page of the commands, in the order of `heedful --help`."""
    top: Any = typer.main.get_command(app)
    lines = [COMMANDS_HEAD]
    names = chain.from_iterable(command_groups().values())
    for name in names:
        command = top.get_command(typer.Context(top), name)
        inner = getattr(command, "commands", {})
        for title, each in [(f"{name} {key}", one) for key, one in inner.items()] or [
            (name, command)
        ]:
            context = typer.Context(
                each, info_name=f"heedful {title}", terminal_width=WIDTH
            )
            lines += [
                "",
                f"## heedful {title}",
                "",
                "```text",
                each.get_help(context),
                "```",
            ]
    return "\n".join(lines) + "\n"


def names() -> Mapping[str, str]:
    """Return a page for each public package or module, by its file name."""
    # One loader: names of the one package are found in the other.
    loader = griffe.GriffeLoader(search_paths=[folder.parent for folder in SOURCES])
    loaded = {
        name: loader.load(name, try_relative_path=False)
        for name in ("heedful", "heedful_compat")
    }
    package = loaded["heedful"]
    pages = {}
    for room in (heedful, checks, heedful_compat):
        lines = [NAMES_HEAD.format(title=room.__name__)]
        for name, home in sorted(room._HOMES.items(), key=lambda pair: pair[0].lower()):
            distribution, _, place = f"{home}.{name}".partition(".")
            lines += entry(loaded[distribution][place])
        pages[f"api/{room.__name__}.md"] = "\n".join(lines) + "\n"

    for module in MODULES:
        title = f"heedful.{PREFIXES.get(module, module)}"
        lines = [NAMES_HEAD.format(title=title)]
        for name in sorted(public(package[module]), key=str.lower):
            lines += entry(package[f"{module}.{name}"])
        pages[f"api/{title}.md"] = "\n".join(lines) + "\n"
    return pages


def public(module: Any) -> list[str]:
    """Return the names in `__all__`, or else those declared in the module."""
    if module.exports is not None:
        return [str(name) for name in module.exports]
    own = ((n, m) for n, m in module.members.items() if not (m.is_alias or m.is_module))
    return [
        n for n, m in own if not n.startswith("_") and (m.docstring or m.is_attribute)
    ]


def entry(found: Any) -> Iterator[str]:
    """Yield the lines of one name: heading, signature, docstring, public methods."""
    if isinstance(found, griffe.Alias):
        found = found.final_target
    yield from (
        "",
        f"## {found.name}",
        "",
        "```text",
        signature(found),
        "```",
        *docstring(found),
    )
    if found.is_class:
        for name, member in found.all_members.items():
            if member.docstring and not name.startswith("_"):
                yield from (
                    "",
                    "```text",
                    "." + signature(member),
                    "```",
                    *docstring(member),
                )


def docstring(found: Any) -> list[str]:
    """Return a blank line and the docstring with fenced doctests, or nothing."""
    if found.docstring is None:
        return []
    lines: list[str] = [""]
    for block in found.docstring.value.split("\n\n"):
        fenced = block.lstrip().startswith(">>>")
        lines += ["```pycon", block, "```", ""] if fenced else [block, ""]
    return lines[:-1]


def signature(found: Any) -> str:
    """Return the signature of a callable, or the type and value of a constant."""
    if found.is_attribute:
        value = found.value if "property" not in found.labels else None
        stated = found.name + (f": {found.annotation}" if found.annotation else "")
        return f"{stated} = {value}" if value is not None else stated
    ending = f" -> {found.returns}" if found.is_function and found.returns else ""
    start = "class " if found.is_class else "async " if "async" in found.labels else ""
    listed = list(arguments(found.parameters))
    line = f"{start}{found.name}({', '.join(listed)}){ending}"
    if len(line) <= WIDTH:
        return line
    return (
        f"{start}{found.name}(\n"
        + "".join(f"    {each},\n" for each in listed)
        + f"){ending}"
    )


def arguments(parameters: griffe.Parameters) -> Iterator[str]:
    """Yield the parameters as declared, with a bare `*` before the keyword-only
    ones.
    """
    starred = False
    for each in parameters:
        if each.name in ("self", "cls"):
            continue
        if each.kind is griffe.ParameterKind.keyword_only and not starred:
            yield "*"
        starred = starred or each.kind in (
            griffe.ParameterKind.keyword_only,
            griffe.ParameterKind.var_positional,
        )
        stated = MARKS.get(each.kind, "") + each.name
        if each.annotation is not None:
            stated += f": {each.annotation}"
        if each.default is not None and each.kind not in MARKS:
            stated += (
                f" = {each.default}"
                if each.annotation is not None
                else f"={each.default}"
            )
        yield stated


def assemble() -> None:
    """Write all pages and what they link to below `PAGES`."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for name in PAGE_SOURCES:
        target = PAGES / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, target, ignore=ignored)
        else:
            shutil.copyfile(ROOT / name, target)

    for name, text in made_pages().items():
        page = PAGES / name
        page.parent.mkdir(exist_ok=True)
        page.write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class Section:
    """A part of the navigation: its title, and the paths of its pages in order."""

    title: str
    pages: tuple[str, ...]


def made_pages() -> Mapping[str, str]:
    """Return the pages that are made from the code, by their paths."""
    return {**names(), "commands.md": commands()}


def navigation() -> tuple[Section, ...]:
    """Return the sections of the navigation in `zensical.toml`."""
    config = tomllib.loads(CONFIG.read_text(encoding="utf-8"))
    sections = []
    for entries in config["project"]["nav"]:
        for title, content in entries.items():
            sections.append(Section(title, tuple(_paths(content))))
    return tuple(sections)


def _paths(content: Any) -> Iterator[str]:
    """Yield the paths in an entry of the navigation."""
    if isinstance(content, Mapping):
        content = list(content.values())
    if isinstance(content, str):
        yield content
    else:
        for part in content:
            yield from _paths(part)


def summary(text: str) -> tuple[str, str]:
    """Return the title of a page and its first sentence of prose, without links."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    blocks = [" ".join(block.split()) for block in prose.split("\n\n")]
    title = next(block for block in blocks if block.startswith("# "))
    body = next(block for block in blocks if re.match(r"[A-Za-z*`]", block))
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", body).replace("**", "")
    sentence = re.match(r".*?[.:?](?= |$)", plain)
    return title.removeprefix("# "), sentence[0] if sentence else plain


def for_models() -> tuple[str, str]:
    """Return the texts of `llms.txt`, an index, and `llms-full.txt`, all pages."""
    readme = (PAGES / "README.md").read_text(encoding="utf-8")
    introduction = readme.partition("\n\n")[2].partition("\n\n")[0]
    index = ["# heedful", "", f"> {' '.join(introduction.split())}"]
    full = []
    for section in navigation():
        index += ["", f"## {section.title}", ""]
        for path in section.pages:
            text = (PAGES / path).read_text(encoding="utf-8")
            title, sentence = summary(text)
            index.append(f"- [{title}]({path}): {sentence}")
            full.append(f"<!-- {path} -->\n\n{text.strip()}\n")
    return "\n".join(index) + "\n", "\n".join(full)


def main() -> int:
    """Build the site; return 1 if Zensical finds a broken link or anchor."""
    assemble()
    zensical = Path(sys.executable).parent / "zensical"
    command = [str(zensical), "build", "--clean", "--strict", "-f", str(CONFIG)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        print(done.stdout)
        return 1
    index, full = for_models()
    (SITE / "llms.txt").write_text(index, encoding="utf-8")
    (SITE / "llms-full.txt").write_text(full, encoding="utf-8")
    for page in PAGES.rglob("*.md"):
        copy = SITE / page.relative_to(PAGES)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, copy)
    shutil.rmtree(BUILT, ignore_errors=True)
    shutil.move(SITE, BUILT)
    print(BUILT.relative_to(ROOT) / "index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
