"""No code reads a sentence that the house wrote.

A text of at least three words that code compares, cuts or searches for stands nowhere
else in the code of the library: whoever wants what a sentence says asks the record. Nor
is the text of a record read, whatever is looked for in it: the words of a signal, a
strategy, a lesson.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

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
PATTERN_FUNCTIONS = frozenset(
    "compile match fullmatch search sub subn split findall finditer".split()
)
TEMPLATES = jinja2.Environment(
    extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"], autoescape=True
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
# Where a text of heedful comes back by a way that has no other place for a mark: what a
# client cut. The cases of adapters
# look for what heedful says to a model. The texts of the last one are SQL.
READ_BACK = frozenset(
    (
        "sanitize.py",
        "testing/conformance.py",
        "store/statements.py",
    )
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
    ("checks/claims/text_parts.py", "word in row.words"): "the words of a table",
    ("checks/claims/__init__.py", "token.low in evidence.words"): "the same set",
    ("checks/claims/__init__.py", "stem(name) in evidence.words"): "the same set",
    (
        "store/patterns.py",
        "MASK_PATTERN.sub(' ', wording.words)",
    ): "the error of a caller",
}


def is_sentence(text: str) -> bool:
    """Return whether a text is long enough to be part of a sentence."""
    return len(WORD.findall(text)) >= MIN_SENTENCE_WORDS


def squeezed(text: str) -> str:
    """Return a text with one blank in place of several."""
    return " ".join(text.split())


def texts_in(node: ast.AST) -> Iterator[ast.Constant]:
    """Yield the texts of an expression, those of its parts among them."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part


def searched_for(node: ast.AST) -> list[ast.expr]:
    """Return what a comparison, a method or a pattern compares or searches for."""
    match node:
        case ast.Compare(left=left, ops=ops, comparators=operands):
            kinds = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)
            is_match = any(isinstance(op, kinds) for op in ops)
            return [left, *operands] if is_match else []
        case ast.Call(func=ast.Attribute(value=owner, attr=method), args=[first, *_]):
            is_pattern = isinstance(owner, ast.Name) and owner.id == "re"
            names = PATTERN_FUNCTIONS if is_pattern else CUTTING_METHODS
            return [first] if method in names else []
        case ast.MatchValue(value=value):
            return [value]
        case _:
            return []


def read_code(source: str) -> tuple[set[str], set[str]]:
    """Return the texts that a module searches for, and its other ones.

    The text of a constant is looked up among the assignments of the module.
    """
    tree = ast.parse(source)
    assigned: dict[str, list[ast.Constant]] = {}
    docstrings = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name.isupper():
                assigned.setdefault(name, []).extend(texts_in(value))
            case ast.Expr(value=ast.Constant() as text):
                docstrings.add(id(text))
            case _:
                pass
    operands: list[ast.Constant] = []
    for node in ast.walk(tree):
        for operand in searched_for(node):
            operands += texts_in(operand)
            for part in ast.walk(operand):
                if isinstance(part, ast.Name):
                    operands += assigned.get(part.id, ())

    matched = {
        squeezed(literal)
        for text in operands
        for literal in NOT_LITERAL.split(str(text.value))
    }
    seen = docstrings.union(map(id, operands))
    others = {str(text.value) for text in texts_in(tree) if id(text) not in seen}
    return matched, others


def read_template(source: str) -> tuple[set[str], set[str]]:
    """Return the texts that a template compares, and what it shows."""
    tree = TEMPLATES.parse(source)
    compared = [
        const
        for node in tree.find_all(nodes.Compare)
        for const in node.find_all(nodes.Const)
    ]
    seen = set(map(id, compared))
    others = [node for node in tree.find_all(nodes.Const) if id(node) not in seen]
    shown_texts = [node.data for node in tree.find_all(nodes.TemplateData)]
    shown_texts += [str(const.value) for const in others]
    return {squeezed(str(const.value)) for const in compared}, set(shown_texts)


def find_read_sentences(files: Mapping[str, str]) -> set[tuple[str, str]]:
    """Return the files and their matched texts that stand elsewhere in the files."""
    readings = {
        name: (read_template if ".j2" in name else read_code)(source)
        for name, source in files.items()
    }
    rendered = "\n".join(
        squeezed(text) for _, texts in readings.values() for text in texts
    )
    return {
        (name, text)
        for name, (matched, _) in readings.items()
        for text in matched - FOREIGN_TEXTS
        if is_sentence(text) and text in rendered
    }


def find_read_records(source: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield the file and the code of each place that reads the text of a record."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        texts = {
            node.targets[0].id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and is_record_text(node.value, frozenset())
        }
        for node in ast.walk(function):
            if any(is_record_text(part, texts) for part in searched_in(node)):
                yield name, ast.unparse(node)


def searched_in(node: ast.AST) -> list[ast.expr]:
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


def is_record_text(node: ast.AST, texts: Collection[str]) -> bool:
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
    return {str(path.relative_to(PACKAGE)): path.read_text("utf-8") for path in paths}


def test_no_code_reads_a_sentence_that_the_house_wrote():
    readers = find_read_sentences(package_files())
    assert {use for use in readers if use[0] not in READ_BACK} == set()


def test_no_code_reads_the_text_of_a_record():
    reads = {
        place
        for name, source in package_files().items()
        if name.endswith(".py")
        for place in find_read_records(source, name)
    }
    assert reads == NOT_OUR_WORDS.keys()


RENDERER = 'def say(n):\n    return f"it has made {n} of all attempts"\n'
LOCAL = """BEGIN = 'it has made'
def f(s):
    return s.startswith(BEGIN)
"""
PLANTED = {
    "in": "def f(s):\n    return 'of all attempts' in s\n",
    "equality": "def f(s):\n    return s == 'it has made'\n",
    "cut": "def f(s):\n    return s.partition('of all attempts')\n",
    "pattern": "import re\nP = re.compile(r'it has made (\\d+)')\n",
    "name": LOCAL,
}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_reader_is_found(kind: str):
    files = {"say.py": RENDERER, "planted.py": PLANTED[kind]}
    assert {name for name, _ in find_read_sentences(files)} == {"planted.py"}


def test_a_planted_reader_in_a_template_is_found():
    template = '{% if "of all attempts" in words %}x{% endif %}'
    files = {"say.py": RENDERER, "page.html.j2": template}
    assert {name for name, _ in find_read_sentences(files)} == {"page.html.j2"}
