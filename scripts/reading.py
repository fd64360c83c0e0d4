"""Count the habits that cost a reader, per 1,000 statements of a folder of Python.

    scripts/reading.py FOLDER [OTHER …]           a table, one column a folder
    scripts/reading.py --where packed_call FOLDER the places of one habit

The unit is the statement and not the line: two statements on one line, or a call on
fewer lines, change nothing here. `scripts/budgets.py` holds the figures to ceilings.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import statistics
import sys
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

HABITS = {
    "packed_call": "a call with a star, but for the function's own *args: f(*values)",
    "packed_keywords": "a call with two stars, but for the function's own **kwargs",
    "many_positions": "over 3 positions to a class of ours, over 4 to a function",
    "bare_flag": "True or False from the 2nd position on, None or numbers from the 3rd",
    "wide_assignment": "three names or more from a written tuple: a, b, c = x, y, z",
    "pair_assignment": "two names from a written tuple, but for a swap: a, b = x, y",
    "times_bool": "arithmetic on a condition: [x] * (a > b), n + (a > b)",
    "any_bag": "a local annotated Any, list[Any] or dict[str, Any]",
    "nested_condition": "a conditional expression inside another",
    "condition_in_call": "a conditional expression as an argument",
    "deep_comprehension": "a comprehension with two for, or inside another",
    "walrus": "an assignment inside an expression",
    "lambda_long": "a lambda of more than 60 characters",
    "tuple_compare": "two written tuples compared: (a, b) == (c, d)",
    "vague_name": "a local that is named by how it came to be, or by nothing",
    "noqa": "a mark that turns a check off",
}
VAGUE_NAMES = frozenset(
    "one each at it said told made found known given held own every about whole asked "
    "begun kept taken stored named shown plain what most".split()
)
# Calls that take any number of alike values: a star says nothing less there.
VARIADIC_CALLS = frozenset(
    "zip map max min print chain gather join joinpath Path set union".split()
)
MARK_PATTERN = re.compile(r"# (noqa|type: ignore|fmt: (skip|off))\b")
MAX_LAMBDA_CHARS = 60
LONG_LINE_CHARS = 90
MAX_CLASS_POSITIONS = 3
MAX_FUNCTION_POSITIONS = 4
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Function = ast.FunctionDef | ast.AsyncFunctionDef
BAGS = frozenset({"Any", "dict[str, Any]", "list[Any]"})
CONDITION_CALLS = frozenset({"bool", "any", "all", "isinstance"})


@dataclass(frozen=True)
class Module:
    """A parsed file, and what its nodes need to be judged.

    `ours` are the names of all functions and classes of the folder. `own_stars` maps
    the id of a node to the names of `*args` and `**kwargs` of the functions around it,
    and `fields` are the ids of annotated names in the bodies of classes.
    """

    path: Path
    tree: ast.Module
    text: str
    ours: frozenset[str]
    own_stars: Mapping[int, set[str]]
    fields: set[int]


@dataclass
class Survey:
    """The figures of a folder, and where each comes from.

    `places` are the file and line of each habit; `shared` are the names of constants
    and classes that stand in several modules.
    """

    places: dict[str, list[tuple[Path, int]]] = field(default_factory=dict)
    shared: dict[str, list[str]] = field(
        default_factory=lambda: {"constant": [], "class": []}
    )
    figures: dict[str, float] = field(default_factory=dict)


def is_condition(node: ast.AST) -> bool:
    """Return whether an expression is plainly a truth value."""
    match node:
        case ast.Compare() | ast.UnaryOp(op=ast.Not()):
            return True
        case ast.BoolOp(values=values):
            return all(map(is_condition, values))
        case ast.Call(func=ast.Name(id=name)):
            return name in CONDITION_CALLS
        case _:
            return False


def called_name(node: ast.Call) -> str:
    """Return the last part of the name of what is called; "" without a name."""
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def star_habits(node: ast.Call, module: Module) -> Iterator[str]:
    """Yield the habits of the stars of a call."""
    own_stars = module.own_stars.get(id(node), set())
    if called_name(node) not in VARIADIC_CALLS:
        for argument in node.args:
            if isinstance(argument, ast.Starred) and not is_own(argument, own_stars):
                yield "packed_call"
    for keyword in node.keywords:
        if keyword.arg is None and not is_own(keyword, own_stars):
            yield "packed_keywords"


def is_own(argument: ast.Starred | ast.keyword, own_stars: set[str]) -> bool:
    """Return whether an argument is `*args` or `**kwargs` of the function around it."""
    return isinstance(argument.value, ast.Name) and argument.value.id in own_stars


def call_habits(node: ast.Call, module: Module) -> Iterator[str]:
    """Yield the habits of a call."""
    yield from star_habits(node, module)

    values = [*node.args, *(keyword.value for keyword in node.keywords)]
    if any(isinstance(value, ast.IfExp) for value in values):
        yield "condition_in_call"

    name = called_name(node)
    if name not in module.ours:
        return
    limit = MAX_FUNCTION_POSITIONS
    if name[:1].isupper():
        limit = MAX_CLASS_POSITIONS
    if len(node.args) > limit:
        yield "many_positions"
    if any(is_bare(value, place) for place, value in enumerate(node.args)):
        yield "bare_flag"


def is_bare(node: ast.expr, place: int) -> bool:
    """Return whether an argument at this place, from 0, says nothing by itself."""
    if not isinstance(node, ast.Constant) or isinstance(node.value, str | bytes):
        return False
    return place >= (1 if isinstance(node.value, bool) else 2)


def assignment_habits(node: ast.Assign, module: Module) -> Iterator[str]:
    """Yield the habits of an assignment from a written tuple."""
    target = node.targets[0]
    if not (isinstance(node.value, ast.Tuple) and isinstance(target, ast.Tuple)):
        return
    targets = {ast.dump(name).replace("Store", "Load") for name in target.elts}
    values = {ast.dump(value) for value in node.value.elts}
    if len(target.elts) > 2:
        yield "wide_assignment"
    elif targets != values:
        yield "pair_assignment"


def arithmetic_habits(node: ast.BinOp, module: Module) -> Iterator[str]:
    """Yield the habits of an arithmetic expression."""
    if not isinstance(node.op, ast.Mult | ast.Add | ast.Sub):
        return
    if is_condition(node.left) or is_condition(node.right):
        yield "times_bool"


def increment_habits(node: ast.AugAssign, module: Module) -> Iterator[str]:
    """Yield the habits of `n += value`."""
    if is_condition(node.value):
        yield "times_bool"


def condition_habits(node: ast.IfExp, module: Module) -> Iterator[str]:
    """Yield the habits of a conditional expression."""
    if sum(isinstance(child, ast.IfExp) for child in ast.walk(node)) > 1:
        yield "nested_condition"


def comprehension_habits(node: Comprehension, module: Module) -> Iterator[str]:
    """Yield the habits of a comprehension."""
    loops = sum(isinstance(child, ast.comprehension) for child in ast.walk(node))
    if loops > 1:
        yield "deep_comprehension"


def walrus_habits(node: ast.NamedExpr, module: Module) -> Iterator[str]:
    """Yield the habit that an assignment inside an expression is."""
    yield "walrus"


def lambda_habits(node: ast.Lambda, module: Module) -> Iterator[str]:
    """Yield the habits of a lambda."""
    if len(ast.unparse(node)) > MAX_LAMBDA_CHARS:
        yield "lambda_long"


def comparison_habits(node: ast.Compare, module: Module) -> Iterator[str]:
    """Yield the habits of a comparison."""
    written = [isinstance(side, ast.Tuple) for side in (node.left, *node.comparators)]
    if written[0] and any(written[1:]):
        yield "tuple_compare"


def name_habits(node: ast.Name, module: Module) -> Iterator[str]:
    """Yield the habits of a local where it gets its value."""
    is_local = isinstance(node.ctx, ast.Store) and id(node) not in module.fields
    if is_local and node.id in VAGUE_NAMES:
        yield "vague_name"


def annotation_habits(node: ast.AnnAssign, module: Module) -> Iterator[str]:
    """Yield the habits of a local with an annotation."""
    is_local = bool(node.simple) and id(node.target) not in module.fields
    if is_local and ast.unparse(node.annotation) in BAGS:
        yield "any_bag"


def function_habits(node: Function, module: Module) -> Iterator[str]:
    """Yield the habits of the head of a function."""
    if not node.name.startswith("_") or node.name.endswith("__"):
        return
    arguments = node.args
    for name in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if name.arg in VAGUE_NAMES:
            yield "vague_name"


Rule = Callable[[Any, Module], Iterator[str]]
# How each kind of node is judged.
RULES: Mapping[type[ast.AST], Rule] = {
    ast.AnnAssign: annotation_habits,
    ast.Assign: assignment_habits,
    ast.AsyncFunctionDef: function_habits,
    ast.AugAssign: increment_habits,
    ast.BinOp: arithmetic_habits,
    ast.Call: call_habits,
    ast.Compare: comparison_habits,
    ast.DictComp: comprehension_habits,
    ast.FunctionDef: function_habits,
    ast.GeneratorExp: comprehension_habits,
    ast.IfExp: condition_habits,
    ast.Lambda: lambda_habits,
    ast.ListComp: comprehension_habits,
    ast.Name: name_habits,
    ast.NamedExpr: walrus_habits,
    ast.SetComp: comprehension_habits,
}


def is_statement(node: ast.AST) -> bool:
    """Return whether a node is a statement, and not a docstring."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return False
        case _:
            return isinstance(node, ast.stmt)


def statements(tree: ast.AST) -> int:
    """Return the number of statements of a tree, without docstrings."""
    return sum(map(is_statement, ast.walk(tree)))


def own_stars(tree: ast.AST) -> dict[int, set[str]]:
    """Return the names of `*args` and `**kwargs` around each node, by the node's id."""
    names: dict[int, set[str]] = {}
    for outer in ast.walk(tree):
        if not isinstance(outer, Function | ast.Lambda):
            continue
        stars = [star.arg for star in (outer.args.vararg, outer.args.kwarg) if star]
        if stars:
            for inner in ast.walk(outer):
                names.setdefault(id(inner), set()).update(stars)
    return names


def class_fields(tree: ast.AST) -> set[int]:
    """Return the ids of the annotated names in the bodies of classes."""
    fields: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign):
                    fields.add(id(statement.target))
    return fields


def names_at_the_top(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the classes ("class", name) and constants ("constant", name) of a file.

    A type variable is neither: `T` says nothing that another module could contradict.
    """
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name):
                yield "class", name
            case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar" | "ParamSpec"))):
                pass
            case ast.Assign(targets=[ast.Name(id=name)]) if name.isupper():
                yield "constant", name
            case ast.AnnAssign(target=ast.Name(id=name)) if name.isupper():
                yield "constant", name


def defined_names(trees: Sequence[ast.Module]) -> frozenset[str]:
    """Return the names of all functions and classes of some files."""
    names: set[str] = set()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, Function | ast.ClassDef):
                names.add(node.name)
    return frozenset(names)


def modules(folder: Path) -> list[Module]:
    """Return the files of a folder of Python, or the one file, ready to be judged."""
    paths = sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]
    texts = [path.read_text(encoding="utf-8") for path in paths]
    trees = [ast.parse(text) for text in texts]
    ours = defined_names(trees)
    return [
        Module(
            path=path,
            tree=tree,
            text=text,
            ours=ours,
            own_stars=own_stars(tree),
            fields=class_fields(tree),
        )
        for path, tree, text in zip(paths, trees, texts, strict=True)
    ]


def find_places(module: Module) -> Iterator[tuple[str, int]]:
    """Yield each habit of a module with its line."""
    for node in ast.walk(module.tree):
        rule = RULES.get(type(node))
        if rule is not None:
            for habit in rule(node, module):
                yield habit, getattr(node, "lineno", 1)
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT and MARK_PATTERN.search(token.string):
            yield "noqa", token.start[0]


def code_lines(module: Module) -> Iterator[str]:
    """Yield the lines that hold code: comments and docstrings are prose, not packed."""
    prose: set[int] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            prose.update(range(node.lineno, (node.end_lineno or 0) + 1))
    for number, line in enumerate(module.text.splitlines(), 1):
        is_prose = number in prose or line.lstrip().startswith("#")
        if line.strip() and not is_prose:
            yield line


def survey(*folders: Path) -> Survey:
    """Return the habits and figures of folders of Python, or of files, together."""
    result = Survey(places={habit: [] for habit in HABITS})
    sizes: list[int] = []
    lengths: list[int] = []
    names: Counter[tuple[str, str]] = Counter()
    for module in chain.from_iterable(map(modules, folders)):
        sizes.append(statements(module.tree))
        lengths += map(len, code_lines(module))
        names.update(set(names_at_the_top(module.tree)))
        for habit, line in find_places(module):
            result.places[habit].append((module.path, line))

    total = sum(sizes)
    for (kind, name), count in sorted(names.items()):
        if count > 1:
            result.shared[kind].append(name)
    long_lines = sum(length >= LONG_LINE_CHARS for length in lengths)
    result.figures = {
        "files": len(sizes),
        "statements": total,
        "largest module": max(sizes, default=0),
        "mean line": round(statistics.fmean(lengths or [0]), 1),
        "long lines, %": round(100 * long_lines / max(1, len(lengths)), 1),
        "shared constants": len(result.shared["constant"]),
        "shared classes": len(result.shared["class"]),
    }
    for habit, places in result.places.items():
        result.figures[habit] = round(1000 * len(places) / max(1, total), 2)
    return result


def table(surveys: Mapping[str, Survey]) -> Iterator[str]:
    """Yield the lines of a table: a row a figure, a column a folder."""
    rows: list[str] = list(next(iter(surveys.values())).figures)
    yield " " * 20 + "".join(f"{Path(name).name[:12]:>13}" for name in surveys)
    for row in rows:
        values = "".join(f"{item.figures[row]:>13,}" for item in surveys.values())
        yield f"{row:<20}{values}   {HABITS.get(row, '')}".rstrip()


def main() -> int:
    """Print what the arguments ask for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--where", choices=sorted(HABITS), help="show its places")
    arguments = parser.parse_args()

    surveys = {str(folder): survey(folder) for folder in arguments.folders}
    if arguments.where:
        for item in surveys.values():
            for path, line in sorted(set(item.places[arguments.where])):
                text = path.read_text(encoding="utf-8").splitlines()[line - 1]
                print(f"{path}:{line}: {text.strip()}")
    else:
        print("\n".join(table(surveys)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
