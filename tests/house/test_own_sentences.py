"""No code reads a sentence that the house wrote.

The test knows every constant part of a rendered sentence: a text of at least three
words that stands in the code outside of docstrings and of comparisons, and every such
text between the tags of a template. None of them may be an operand of `==` or `in`, an
argument of a method that searches or cuts texts, or the literal part of a pattern.

Nor is the text of a record read, whatever is looked for in it: the words of a signal, a
strategy, a lesson. What code needs of it stands in a field of the record.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import pytest
from jinja2 import nodes

import heedful

PACKAGE = Path(heedful.__file__).parent
MIN_SENTENCE_WORDS = 3
CUTTING_METHODS = frozenset(
    """
    startswith endswith partition rpartition split rsplit replace find rfind index
    rindex count removeprefix removesuffix
    """.split()
)
TEMPLATES = jinja2.Environment(
    extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"], autoescape=True
)
CUTTING_FILTERS = frozenset(("replace",))
PATTERN_FUNCTIONS = frozenset(
    "compile match fullmatch search sub subn split findall finditer".split()
)
# What separates the literal texts of a pattern.
NOT_LITERAL = re.compile(
    r"\(\?[a-zA-Z]*[:)]|\\[A-Za-z]|[][(){}|.*+?^$<>=!]|\\(?=[^A-Za-z])"
)
WORD = re.compile(r"(?<!\S)[(“‘\"'`]?[^\W\d_]+(?:['’][a-z]+)?[.,:;!?)”’\"'`]*(?!\S)")
# What other programs write, and heedful, too.
FOREIGN_TEXTS = frozenset(
    (
        "internal server error",
        "too many requests",
        "closed the connection",
        "has no column",
    )
)
# Where a text of heedful comes back by a way that has no other place for a mark: the
# input of a run that the framework stored, and what a client cut. The cases of adapters
# look for what heedful says to a model.
READ_BACK = frozenset(
    ("integrations/openai_agents.py", "sanitize.py", "testing/conformance.py")
)
# The fields of records that hold sentences, as attributes and as keys of rows.
RECORD_ATTRIBUTES = frozenset(("words", "strategy", "lesson"))
RECORD_KEYS = frozenset(("text", "strategy", "lesson"))
# A text that only these change is the same text.
EVEN_METHODS = frozenset(("strip", "rstrip", "lstrip", "lower", "casefold"))
# What has such a name and is no sentence of a record, by file and code.
NOT_OUR_WORDS: Mapping[tuple[str, str], str] = {
    ("checks/claims/evidence.py", "word in self.words"): "a set of words of a user",
    (
        "checks/claims/evidence.py",
        "stem(word) in self.words",
    ): "a set of words of a user",
    ("checks/claims/__init__.py", "token.low in evidence.words"): "the same set",
    ("checks/claims/__init__.py", "stem(name) in evidence.words"): "the same set",
    (
        "store/patterns.py",
        "MASK_PATTERN.sub(' ', wording.words)",
    ): "the error of a caller",
}
# Its texts are SQL.
SQL_MODULES = frozenset(("store/statements.py",))


class Use(NamedTuple):
    """A text that code compares, cuts or searches for, and where."""

    place: str
    text: str


class Reading(NamedTuple):
    """The texts that a file renders, and those that it matches.

    `constants` maps the names of its constants to their texts; `matched_names` are the
    names that it matches, `rendered_names` those that it uses otherwise.
    """

    rendered: set[str]
    matched: list[Use]
    constants: dict[str, list[str]]
    matched_names: list[Use]
    rendered_names: set[str]


def is_sentence(text: str) -> bool:
    """Return whether a text is long enough to be part of a sentence."""
    return len(WORD.findall(text)) >= MIN_SENTENCE_WORDS


def squeezed(text: str) -> str:
    """Return a text with one blank in place of several."""
    return " ".join(text.split())


def texts_of(node: ast.AST) -> Iterator[str]:
    """Yield the texts that an expression is or consists of.

    Of a mapping these are the keys; a list of words and a record have none.
    """
    for part in parts_of(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def parts_of(node: ast.AST | None) -> Iterator[ast.AST]:
    """Yield the names and texts that an expression is or consists of."""
    if isinstance(node, (ast.Constant, ast.Name, ast.Attribute)):
        yield node
        return

    inner: list[Any] = []
    match node:
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            inner = items
        case ast.Dict(keys=items) | ast.JoinedStr(values=items):
            inner = items
        case ast.BinOp():
            inner = [node.left, node.right]
        case ast.Starred(value=item) | ast.FormattedValue(value=item):
            inner = [item]
        case ast.Call(func=ast.Name(id="frozenset" | "set" | "tuple"), args=items):
            inner = items
        case _:
            pass
    for item in inner:
        yield from parts_of(item)


def docstrings(tree: ast.AST) -> set[int]:
    """Return the ids of the nodes that are docstrings or other bare texts."""
    bare = (node for node in ast.walk(tree) if isinstance(node, ast.Expr))
    return {id(node.value) for node in bare if isinstance(node.value, ast.Constant)}


def match_operands(node: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """Yield the operands of a comparison or search, and whether each is a pattern."""
    if isinstance(node, ast.Compare):
        if any(
            isinstance(op, (ast.Eq, ast.NotEq, ast.In, ast.NotIn)) for op in node.ops
        ):
            for operand in (node.left, *node.comparators):
                yield operand, False
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        owner = node.func.value
        is_pattern = isinstance(owner, ast.Name) and owner.id == "re"
        if is_pattern and node.func.attr in PATTERN_FUNCTIONS and node.args:
            yield node.args[0], True
        elif node.func.attr in CUTTING_METHODS:
            for argument in node.args[:1]:
                yield argument, False
    elif isinstance(node, ast.MatchValue):
        yield node.value, False


def name_of(node: ast.Name | ast.Attribute) -> str:
    """Return the last name of a name."""
    return node.id if isinstance(node, ast.Name) else node.attr


def read_code(source: str, name: str) -> Reading:
    """Return what a module renders and what it matches."""
    tree = ast.parse(source)
    reading = Reading(set(), [], {}, [], set())
    seen = docstrings(tree)
    for node in ast.walk(tree):
        for operand, is_pattern in match_operands(node):
            place = f"{name}:{getattr(node, 'lineno', 0)}"
            for part in parts_of(operand):
                seen.add(id(part))
                if isinstance(part, (ast.Name, ast.Attribute)):
                    reading.matched_names.append(Use(place, name_of(part)))
            for text in texts_of(operand):
                literals = NOT_LITERAL.split(text) if is_pattern else [text]
                reading.matched.extend(Use(place, literal) for literal in literals)
    for place, part in locals_matched(tree, name):
        if isinstance(part, (ast.Name, ast.Attribute)):
            reading.matched_names.append(Use(place, name_of(part)))
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            reading.matched.append(Use(place, part.value))
    for constant, value in constants_of(tree):
        reading.constants.setdefault(constant, []).extend(texts_of(value))
        seen.update(map(id, parts_of(value)))
    unseen = [node for node in ast.walk(tree) if id(node) not in seen]
    reading.rendered_names.update(
        name_of(node)
        for node in unseen
        if isinstance(node, (ast.Name, ast.Attribute))
        and isinstance(node.ctx, ast.Load)
    )
    reading.rendered.update(
        squeezed(node.value)
        for node in unseen
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return reading


def locals_matched(tree: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
    """Yield the parts of the local values that a function matches, with the place."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    for function in ast.walk(tree):
        if not isinstance(function, kinds):
            continue
        values: dict[str, list[ast.AST]] = defaultdict(list)
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                values[node.targets[0].id] += parts_of(node.value)
        for node in ast.walk(function):
            for operand, _ in match_operands(node):
                for part in parts_of(operand):
                    if isinstance(part, ast.Name):
                        place = f"{name}:{getattr(node, 'lineno', 0)}"
                        yield from ((place, value) for value in values[part.id])


def constants_of(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the constants that a module declares, each with its value."""
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            value = getattr(node, "value", None)
            if isinstance(target, ast.Name) and target.id.isupper() and value:
                yield target.id, value


def template_operands(node: nodes.Node) -> list[nodes.Node]:
    """Return what a node of a template compares, or searches or cuts a text for."""
    if isinstance(node, nodes.Compare):
        return [node.expr, *(operand.expr for operand in node.ops)]
    is_cut = isinstance(node, nodes.Filter) and node.name in CUTTING_FILTERS
    if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
        is_cut = node.node.attr in CUTTING_METHODS
    return list(getattr(node, "args", ())[:1]) if is_cut else []


def read_template(source: str, name: str) -> Reading:
    """Return what a template renders and what it matches."""
    reading = Reading(set(), [], {}, [], set())
    tree = TEMPLATES.parse(source)
    matched: set[int] = set()
    for node in tree.find_all((nodes.Compare, nodes.Call, nodes.Filter)):
        for operand in template_operands(node):
            for part in (operand, *operand.find_all((nodes.Const, nodes.Name))):
                matched.add(id(part))
                if isinstance(part, nodes.Const) and isinstance(part.value, str):
                    reading.matched.append(Use(f"{name}:{node.lineno}", part.value))
                elif isinstance(part, nodes.Name):
                    use = Use(f"{name}:{node.lineno}", part.name)
                    reading.matched_names.append(use)
    for const in tree.find_all(nodes.Const):
        if id(const) not in matched and isinstance(const.value, str):
            reading.rendered.add(squeezed(const.value))
    for data in tree.find_all(nodes.TemplateData):
        reading.rendered.update(map(squeezed, re.split(r"<[^>]*>", data.data)))
    return reading


def find_read_sentences(files: Mapping[str, str]) -> list[Use]:
    """Return the matched texts of files that are parts of rendered sentences."""
    readings = [
        (read_template if ".j2" in name else read_code)(source, name)
        for name, source in files.items()
    ]
    constants: dict[str, list[str]] = defaultdict(list)
    for reading in readings:
        for name, texts in reading.constants.items():
            constants[name] += texts
    rendered = set().union(*(reading.rendered for reading in readings))
    for name in set().union(*(reading.rendered_names for reading in readings)):
        rendered.update(map(squeezed, constants[name]))
    rendered_text = "\n".join(sorted(filter(is_sentence, rendered)))
    return sorted(set(_reads(readings, constants, rendered_text)))


def _reads(
    readings: Iterable[Reading], constants: Mapping[str, list[str]], rendered_text: str
) -> Iterator[Use]:
    """Yield each matched text that stands in a rendered one."""
    for reading in readings:
        by_name = [
            Use(use.place, text)
            for use in reading.matched_names
            for text in constants.get(use.text, ())
        ]
        for use in (*reading.matched, *by_name):
            text = squeezed(use.text)
            if (
                is_sentence(text)
                and text not in FOREIGN_TEXTS
                and text in rendered_text
            ):
                yield use


def find_read_records(source: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield the file and the code of each place that reads the text of a record."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        texts = set[str]()
        for node in ast.walk(function):
            if isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = (
                    node.targets if isinstance(node, ast.Assign) else [node.target]
                )
                if is_record_text(node.value, frozenset()):
                    texts |= {part.id for part in targets if isinstance(part, ast.Name)}
        for node in ast.walk(function):
            if any(is_record_text(part, texts) for part in searched_in(node)):
                yield name, ast.unparse(node)


def searched_in(node: ast.AST) -> list[ast.AST]:
    """Return what a comparison, a method or a pattern searches or cuts."""
    match node:
        case ast.Compare(ops=ops, comparators=operands):
            pairs = zip(ops, operands, strict=True)
            return [part for op, part in pairs if isinstance(op, (ast.In, ast.NotIn))]
        case ast.Call(func=ast.Attribute(value=owner, attr=method), args=arguments):
            owners = [owner] if method in CUTTING_METHODS else []
            return [*owners, *(arguments if method in PATTERN_FUNCTIONS else ())]
        case _:
            return []


def is_record_text(node: ast.AST | None, texts: Collection[str]) -> bool:
    """Return whether an expression is the text of a record, or a local with it."""
    match node:
        case ast.Name(id=name):
            return name in texts
        case ast.Attribute(attr=name):
            return name in RECORD_ATTRIBUTES
        case ast.Subscript(slice=ast.Constant(value=key)):
            return key in RECORD_KEYS
        case ast.Call(func=ast.Name(id="str"), args=[text]):
            return is_record_text(text, texts)
        case ast.Call(func=ast.Attribute(value=text, attr=method)):
            return method in EVEN_METHODS and is_record_text(text, texts)
        case _:
            return False


def package_files() -> dict[str, str]:
    paths = [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.j2")]
    return {
        str(path.relative_to(PACKAGE)): path.read_text("utf-8")
        for path in sorted(paths)
        if str(path.relative_to(PACKAGE)) not in SQL_MODULES
    }


def test_no_code_reads_a_sentence_that_the_house_wrote():
    readers = find_read_sentences(package_files())
    reads = [use for use in readers if use.place.partition(":")[0] not in READ_BACK]
    assert not reads, "\n".join(f"{use.place} reads {use.text!r}" for use in reads)


def test_no_code_reads_the_text_of_a_record():
    reads = {
        place
        for name, source in package_files().items()
        if name.endswith(".py")
        for place in find_read_records(source, name)
    }
    assert reads == NOT_OUR_WORDS.keys()


RENDERER = 'def say(n):\n    return f"it has made {n} of all attempts"\n'
PLANTED = [
    pytest.param("def f(s):\n    return 'of all attempts' in s\n", id="in"),
    pytest.param("def f(s):\n    return s == 'it has made'\n", id="equality"),
    pytest.param("def f(s):\n    return s.partition('of all attempts')\n", id="cut"),
    pytest.param("def f(s):\n    return s.replace('it has made', 'x')\n", id="replace"),
    pytest.param("import re\nP = re.compile(r'it has made (\\d+)')\n", id="pattern"),
    pytest.param(
        "BEGIN = 'it has made '\ndef f(s):\n    return s.startswith(BEGIN)\n",
        id="a name",
    ),
]


LOCAL = """BEGIN = 'it has made'
def f(s):
    begin = f'{BEGIN} '
    return s.startswith(begin)
"""


@pytest.mark.parametrize("planted", [*PLANTED, pytest.param(LOCAL, id="a local")])
def test_a_planted_reader_is_found(planted):
    reads = find_read_sentences({"say.py": RENDERER, "planted.py": planted})
    assert [use.place.partition(":")[0] for use in reads] == ["planted.py"]


def test_a_planted_reader_in_a_template_is_found():
    template = '{% if "of all attempts" in words %}x{% endif %}'
    (use,) = find_read_sentences({"say.py": RENDERER, "page.html.j2": template})
    assert use.place == "page.html.j2:1"
