"""Build the pages of names and commands from the code, in `build/docs`, which git
ignores.

`api.md` has every public name with its signature and docstring, `commands.md` the help
of every command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import griffe
import typer

import heedful
from heedful import checks, compat
from heedful.cli.app import COMMAND_TABLE, app

ROOT = Path(__file__).resolve().parent.parent
BUILT = ROOT / "build" / "docs"
NAMES = """\
# Names

Every public name, its signature and what it does, made from the code. A name is
imported when it is first used. Formats, settings and rules for several names stand in
the [reference](../../docs/reference/README.md).
"""
COMMANDS_HEAD = """\
# Commands

What `heedful COMMAND --help` prints, for every command. Results go to standard output,
everything else to standard error. [Settings and exit
codes](../../docs/reference/command-line.md) are the same for all commands.
"""
# Modules that are public as a whole, beside the names of the packages.
MODULES = ("checks.numbers", "errors", "loop.policies", "models", "testing", "traces")
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
    for name in COMMAND_TABLE:
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


def names() -> str:
    """Return the page of the names, a part for each public package or module."""
    package = griffe.load(
        "heedful", search_paths=[ROOT / "src"], try_relative_path=False
    )
    lines = [NAMES]
    lazy: tuple[ModuleType, ...] = (heedful, checks, compat)
    for room in lazy:
        lines += ["", f"## {room.__name__}"]
        for name, home in sorted(room._HOMES.items(), key=lambda pair: pair[0].lower()):
            lines += entry(package[f"{home}.{name}".removeprefix("heedful.")])
    for module in MODULES:
        lines += ["", f"## heedful.{PREFIXES.get(module, module)}"]
        for name in sorted(public(package[module]), key=str.lower):
            lines += entry(package[f"{module}.{name}"])
    return "\n".join(lines) + "\n"


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
        f"### {found.name}",
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


# The file names of the pages, and the functions that return their texts.
PAGES: Mapping[str, Callable[[], str]] = {"api.md": names, "commands.md": commands}


def main() -> None:
    """Write every page and print where it is."""
    BUILT.mkdir(parents=True, exist_ok=True)
    for name, build in PAGES.items():
        page = BUILT / name
        page.write_text(build(), encoding="utf-8")
        print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
