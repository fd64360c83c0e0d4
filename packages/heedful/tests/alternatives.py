"""Leave each alternative of a module out once: a branch of a pattern, a word of a list.

A module that knows how people and tools write has texts that need each alternative of
what it knows. `alternatives_of` yields the alternatives of its source, and
`Alternative.left_out` makes the module without one, beside the module as it is.
"""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.test_knowledge import branches

# The constant whose rows have the names of their keys, and its parts.
TABLE = "_TOKENS"
TABLES: list[ast.AST] = []
# It stands in a pattern for the text of another expression, the first for the first.
FIRST_HOLE = 0xE000
# A comment of a pattern, or what may have its sign in it: an escape or a class.
COMMENT = re.compile(r"(?m)\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(#.*)$")


@dataclass(frozen=True, kw_only=True)
class Source:
    """The source of a module."""

    name: str
    tree: ast.Module

    def executed(self) -> ModuleType:
        """Return a new module of this source."""
        module = ModuleType(self.name)
        tree = ast.fix_missing_locations(self.tree)
        exec(compile(tree, self.name, "exec"), module.__dict__)
        return module


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A part of a module that can be left out.

    `place` is the name of its rule, constant or function. Without it, the field of the
    node has another value.
    """

    source: Source
    place: str
    text: str
    node: ast.AST
    field: str
    without: Any

    def left_out(self) -> ModuleType:
        """Return a new module without the alternative."""
        value = getattr(self.node, self.field)
        setattr(self.node, self.field, self.without)
        try:
            return self.source.executed()
        finally:
            setattr(self.node, self.field, value)


def source_of(module: ModuleType) -> Source:
    """Return the source of a module."""
    assert module.__file__ is not None
    text = Path(module.__file__).read_text(encoding="utf-8")
    return Source(name=module.__name__, tree=ast.parse(text))


def alternatives_of(source: Source) -> Iterator[Alternative]:
    """Yield the alternatives of a module, but not those of its docstrings."""
    for place, node, outer in _nodes_in(source.tree, "", source.tree):
        alternative = partial(Alternative, source=source, place=place)
        yield from _alternatives(alternative, node, outer)


def _nodes_in(
    node: ast.AST, place: str, outer: ast.AST
) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """Yield each node within a node, with its place and the node around it."""
    place = _own_name(node) or place
    yield place, node, outer
    # A row of the table of tokens has the name of its key.
    if isinstance(node, ast.Dict) and (place == TABLE or outer in TABLES):
        TABLES.append(node)
        for key, value in zip(node.keys, node.values, strict=True):
            name = key.value if isinstance(key, ast.Constant) else place
            yield from _nodes_in(value, str(name), node)
        return
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.Expr):
            yield from _nodes_in(child, place, node)


def _alternatives(
    alternative: Callable[..., Alternative], node: ast.AST, outer: ast.AST
) -> Iterator[Alternative]:
    """Yield the alternatives of an expression itself, made by `alternative`."""
    match node:
        case ast.Call(func=ast.Attribute(attr="split", value=ast.Constant() as words)):
            listed = str(words.value).split()
            for word in listed:
                others = " ".join(other for other in listed if other != word)
                yield alternative(text=word, node=words, field="value", without=others)
        case ast.Constant(value=str()) if outer in TABLES:
            # Without a row: its pattern finds nothing.
            yield alternative(text="the rule", node=node, field="value", without="(?!)")
            yield from _shortened_constants(alternative, node)
        case ast.Constant(value=str()) if not isinstance(outer, ast.JoinedStr):
            yield from _shortened_constants(alternative, node)
        case ast.JoinedStr(values=values):
            for text, without in _shortened(_template_of(values)):
                parts = _filled_in(without, values)
                yield alternative(text=text, node=node, field="values", without=parts)
        case ast.Tuple(elts=items) if _is_list(node, outer):
            for position, item in enumerate(items):
                rest = [*items[:position], *items[position + 1 :]]
                text = ast.unparse(item)
                row = alternative(text=text, node=node, field="elts", without=rest)
                yield replace(row, place=_own_name(item) or row.place)
        case _:
            pass


def _shortened_constants(
    alternative: Callable[..., Alternative], node: ast.Constant
) -> Iterator[Alternative]:
    """Yield the alternatives of a pattern that is a text."""
    for text, without in _shortened(str(node.value)):
        yield alternative(text=text, node=node, field="value", without=without)


def _own_name(node: ast.AST) -> str:
    """Return the name of a rule, a constant or a function; "" for another node."""
    match node:
        case ast.Call(func=ast.Name(id="Rule"), keywords=fields):
            names = (field.value for field in fields if field.arg == "name")
            name = next(names)
            return str(name.value) if isinstance(name, ast.Constant) else ""
        case (
            ast.Assign(targets=[ast.Name(id=name)])
            | ast.AnnAssign(target=ast.Name(id=name))
            | ast.FunctionDef(name=name)
        ):
            return name
        case _:
            return ""


def _is_list(node: ast.Tuple, outer: ast.AST) -> bool:
    """Return whether an expression lists words, tuples of words or rules."""
    if isinstance(outer, ast.Tuple | ast.Subscript):
        return False
    return len(node.elts) > 1 and all(
        _own_name(item) or isinstance(item, ast.Constant | ast.Tuple)
        for item in node.elts
    )


def _template_of(values: Sequence[ast.expr]) -> str:
    """Return a text with a hole for each expression in it."""
    return "".join(
        str(value.value) if isinstance(value, ast.Constant) else chr(FIRST_HOLE + place)
        for place, value in enumerate(values)
    )


def _filled_in(template: str, values: Sequence[ast.expr]) -> list[ast.expr]:
    """Return the parts of a text with the expressions in its holes."""
    parts = re.split(f"([{chr(FIRST_HOLE)}-{chr(FIRST_HOLE + len(values))}])", template)
    return [
        values[ord(part) - FIRST_HOLE] if index % 2 else ast.Constant(part)
        for index, part in enumerate(parts)
    ]


def _shortened(pattern: str) -> Iterator[tuple[str, str]]:
    """Yield each alternative of a pattern, and the pattern without it."""
    if len(pattern) < 3 or "|" not in pattern:
        return
    if "\n" in pattern:
        pattern = COMMENT.sub(lambda match: "" if match[1] else match[0], pattern)
    for start, end in branches(pattern):
        alternative = pattern[start:end].strip()
        if pattern[start - 1 : start] == "|":
            yield alternative, pattern[: start - 1] + pattern[end:]
        else:
            yield alternative, pattern[:start] + pattern[end + 1 :]
