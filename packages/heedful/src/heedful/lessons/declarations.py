"""What checks declare in their code and as their parameters, for rules of findings."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import partial
from inspect import getclosurevars
from types import CodeType, FunctionType, MethodType
from typing import Any

from heedful.lessons.finding_rules import Declared
from heedful.lessons.words import compiled
from heedful.loop.stop import requirement_of

# How far functions that call each other, and records in records, are followed.
MAX_DEPTH = 4
# What a literal leaves open: "%s", "%.2f", "{}", "{name!r}".
_PLACEHOLDER_PATTERN = r"%[-+#0 ]?\d*(?:\.\d+)?[a-zA-Z]|\{[^{}]*\}"


def declared_by(checks: Iterable[Callable[..., object]]) -> Declared:
    """Return the texts, parameters and lists that these checks have.

    A check is a function or an object that judges the answers of a model. Texts stand
    in its code. Parameters are single numbers and texts that it holds, such as in its
    fields, its defaults and the variables that it uses; lists are lists of these.
    """
    reader = _DeclarationReader()
    for check in checks:
        reader.read(check, MAX_DEPTH)
    return Declared(
        texts=frozenset(reader.texts - {""}),
        parameters=frozenset(reader.parameters),
        lists=frozenset(reader.lists),
    )


class _DeclarationReader:
    """Collects texts and lists from checks; each object is read once."""

    def __init__(self) -> None:
        self.texts: set[str] = set()
        self.parameters: set[str] = set()
        self.lists: set[tuple[str, ...]] = set()
        self._seen: dict[int, Any] = {}

    def read(self, value: Any, depth: int) -> None:
        """Collect what a check, or a value that belongs to one, has in it.

        Follows the parts of the value `depth` levels down, and reads no object twice:
        parts may refer to each other.
        """
        if isinstance(value, str | int | float):
            self.parameters.add(str(value))
            return
        if depth == 0 or id(value) in self._seen or isinstance(value, type):
            return

        # It is kept, so that no other object gets its id.
        self._seen[id(value)] = value
        if isinstance(value, list | tuple | set | frozenset | dict):
            self._read_items(value)
        if isinstance(value, FunctionType):
            self._read_code(value.__code__)
            # Its author wrote this sentence of the finding, too.
            self.texts.add(requirement_of(value).rstrip(". "))
        for part in _parts_of(value):
            self.read(part, depth - 1)

    def _read_code(self, code: CodeType) -> None:
        """Collect the texts and lists in the code of a function and its inner ones.

        A text with placeholders counts as a whole, and so does each piece between them.
        Numbers do not count: they are mostly positions and counts.
        """
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._read_code(constant)
            elif isinstance(constant, str):
                self.texts.update(compiled(_PLACEHOLDER_PATTERN).split(constant))
                self.texts.add(constant)
            elif isinstance(constant, tuple | frozenset):
                self._read_items(constant)

    def _read_items(self, items: Iterable[Any]) -> None:
        """Collect a list, and the sentences in it.

        Of a dictionary, the values are the list. It counts only if it has nothing but
        texts and numbers.
        """
        values = list(items.values() if isinstance(items, dict) else items)
        if all(isinstance(value, str | int | float) for value in values):
            self.lists.add(tuple(map(str, values)))
        # A sentence in a list is a text of the check, not one of several answers.
        sentences = (text for text in values if isinstance(text, str) and " " in text)
        self.parameters.update(sentences)


def _parts_of(value: Any) -> Iterator[Any]:
    """Yield the values that a check, or a value of one, is made of.

    These are the items of a list; the function and the arguments of a partial; the
    defaults of a function, and the variables and helpers of its own module that it
    uses; and the fields and methods of any other object.
    """
    if isinstance(value, list | tuple | set | frozenset | dict):
        items = value.values() if isinstance(value, dict) else value
        yield from (item for item in items if not isinstance(item, str | int | float))
    elif isinstance(value, partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, FunctionType):
        yield from (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
        with suppress(ValueError):  # a name is not assigned yet
            yield from getclosurevars(value).nonlocals.values()
        for name in value.__globals__.keys() & set(value.__code__.co_names):
            part = value.__globals__[name]
            # A function of the same module; one of a library is not the check's own.
            is_own = getattr(part, "__globals__", None) is value.__globals__
            if is_own or isinstance(part, str | int | float | list | tuple | dict):
                yield part
    else:
        yield from getattr(value, "__dict__", {}).values()
        if is_dataclass(value):
            yield from (getattr(value, item.name) for item in fields(value))
        members = vars(type(value)).values()
        yield from (member for member in members if isinstance(member, FunctionType))
