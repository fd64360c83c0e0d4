"""Checks of the values that callers pass; every room of heedful uses them.

Each function raises `InvalidInput`, which names the field, its value and what is
allowed. `check_options` raises `UnknownName` instead. Checks of one kind of record,
such as the goals of a loop, are in the room of that record. `typed_frozen` declares the
records that each attempt makes, or each hook process imports.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from numbers import Integral, Number
from typing import Any, TypeVar, cast, dataclass_transform

from heedful.errors import InvalidInput, UnknownName
from heedful.redact import redact

T = TypeVar("T")
# The fields of an object of JSON, to be read.
Fields = Mapping[str, Any]
# An object of JSON that is written, or handed on.
Document = dict[str, Any]
# A word of what other libraries call the limit of attempts, which a policy of heedful
# has: `max_retries`, `num_tries`.
ATTEMPT_LIMIT_WORDS = ("attempt", "iteration", "retr", "tries")
# The option that limits attempts, and what to write to make 3 at most.
ATTEMPT_LIMIT_CURES = {
    "max_attempts": "max_attempts=3 makes 3 attempts at most, the first one included",
    "retries": "retries=2 makes 3 attempts at most, the first one included",
    "policy": (
        'a policy limits attempts: policy="default, attempts.limit=3" makes 3 at most, '
        "the first one included"
    ),
}
# Options about memory that are given elsewhere, and what to write.
MEMORY_CURES = {
    "holdout": 'memory=Memory("heedful.db", holdout=0) withholds nothing',
    "tell": 'it is an option of run and self_correcting, as in tell="rules"',
    "memory_key": "it is an option of run, self_correcting and the stage of a pipeline",
}
# inspect.CO_VARKEYWORDS: a function takes any option; that module is slow to import.
ANY_OPTION_FLAG = 0x08
MAX_INTEGER = 2**63 - 1  # the largest integer that a database stores
# The largest score or threshold: up to it, two floats can differ by a thousandth.
MAX_SCORE = 1e12


def require(condition: object, field: str, value: object, allowed: str) -> None:
    """Raise InvalidInput unless `condition` is true; `allowed` says what is allowed."""
    if not condition:
        raise InvalidInput(field, value, allowed)


# Of a name within a line, a column or the name of a file.
MAX_LABEL_CHARS = 40
# Of every name that is typed in: of a loop, a model, a memory key, a source.
MAX_NAME_CHARS = 200
# Of a line in which one thing is shown or said, such as a rule or a query.
MAX_SHOWN_LINE_CHARS = 200
# Of a text in a line, a finding, a reason or a feedback; a longer one is cut.
MAX_SHOWN_TEXT_CHARS = 400
# Of a task, an answer, a note or another text that memory stores, a critic reads or a
# page shows: two of them fit a context of 4,096 tokens.
MAX_STORED_TEXT_CHARS = 4_000
# Of a text that is searched, compared or copied to its end.
MAX_LONG_TEXT_CHARS = 20_000
# Of a text whose error lines are looked for, at its two ends; it takes 0.3 s.
MAX_LOOKED_UP_CHARS = 200_000
# Of a file, a record or a body that is read at once and without a turn.
MAX_READ_BYTES = 2**20
# Levels of data; what is nested more deeply is text.
MAX_DATA_DEPTH = 40
# Of one kind in a sentence or a box, in a list of a few lines, and in a table or on a
# page. The others are counted, folded away or on the next page.
MAX_LISTED_ITEMS = 5
MAX_SHOWN_ITEMS = 10
MAX_SHOWN_ROWS = 50


def check_name(field: str, name: str) -> None:
    """Raise InvalidInput unless `name` is printable, without a secret, and short.

    It may be empty.
    """
    is_printable = isinstance(name, str) and name.isprintable()
    if not is_printable or redact(name[:MAX_NAME_CHARS]) != name:
        allowed = f"at most {MAX_NAME_CHARS} printable characters without a secret"
        raise InvalidInput(field, name, allowed)


# A longer id of a session or a prompt of another program becomes a digest.
MAX_SHORT_ID_CHARS = 80


def storable_id(id: str) -> str:
    """Return an id, or its digest if it is long or not printable."""
    fits = len(id) <= MAX_SHORT_ID_CHARS and id.isprintable()
    return id if fits else hex_digest(id)


def hex_digest(text: str) -> str:
    """Return the SHA-256 of a text in hex."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def check_number(field: str, value: object, low: float, high: float) -> None:
    """Raise InvalidInput unless `value` is a number in `low`..`high`, not a bool."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not low <= value <= high
    ):
        raise InvalidInput(field, value, f"a number in {low:g}..{high:g}")


def as_float(value: Any) -> Any:
    """Return a Decimal or a number of numpy as a float, any other value unchanged."""
    if isinstance(value, int | float) or not isinstance(value, Number):
        return value
    return float(value) if hasattr(value, "__float__") else value


def as_integer(value: Any) -> Any:
    """Return an integer of numpy as an int, any other value unchanged."""
    if isinstance(value, Integral) and not isinstance(value, int):
        return int(value)
    return value


def check_share(field: str, value: object) -> None:
    """Raise InvalidInput unless `value` is a number in 0..1."""
    check_number(field, value, low=0, high=1)


def check_integer(
    field: str, value: object, least: int = 1, alternative: str = ""
) -> None:
    """Raise InvalidInput unless `value` is an integer from `least` to `MAX_INTEGER`.

    The message ends with the `alternative`, another value that `field` may have.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInput(field, value, f"an integer of at least {least}{alternative}")

    if value > MAX_INTEGER:
        allowed = f"an integer of at least {least} and below 2**63{alternative}"
        raise InvalidInput(field, value, allowed)


def check_texts(**arguments: object) -> None:
    """Raise InvalidInput unless every argument is a string."""
    for name, value in arguments.items():
        require(isinstance(value, str), name, value, "a text")


def check_sequence(
    field: str, values: object, kind: type | tuple[type, ...], allowed: str
) -> None:
    """Raise InvalidInput unless `values` is a sequence of `kind`, and not text."""
    if (
        isinstance(values, str | bytes)
        or not isinstance(values, Sequence)
        or not all(isinstance(value, kind) for value in values)
    ):
        raise InvalidInput(field, values, allowed)


def check_actor(by: object, why: object) -> None:
    """Raise InvalidInput unless `by` names a person and `why` is a string."""
    require(isinstance(by, str) and by.strip(), "by", by, "the name of a person")
    check_texts(why=why)


def check_options(owner: str, options: Iterable[str], known: Sequence[str]) -> None:
    """Raise UnknownName for an option of `owner` whose name is not in `known`."""
    for name in options:
        if name not in known:
            is_limit_of_attempts = any(word in name for word in ATTEMPT_LIMIT_WORDS)
            cures = (
                cure
                for option, cure in ATTEMPT_LIMIT_CURES.items()
                if is_limit_of_attempts and option in known
            )
            cure = next(cures, MEMORY_CURES.get(name, ""))
            raise UnknownName(f"option of {owner}", name, known, cure) from None


def refuses_unknown_options(target: T) -> T:
    """Return a class or a plain function, which now raises UnknownName for an option it
    does not have.

    Python's own TypeError does not say which options there are.
    """
    public: Any = target
    is_class = isinstance(target, type)
    function = public.__init__ if is_class else public
    code = function.__code__
    if code.co_flags & ANY_OPTION_FLAG:
        return target

    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    optional = function.__kwdefaults__ or {}
    # Those that a caller must give come first.
    options_of_target = sorted(
        (name for name in names if name != "self"), key=optional.__contains__
    )

    @wraps(function)
    def checked(*arguments: Any, **options: Any) -> Any:
        """Call the function. Raises UnknownName."""
        try:
            return function(*arguments, **options)
        except TypeError:
            check_options(public.__name__, options, options_of_target)
            raise

    if not is_class:
        return cast("T", checked)
    public.__init__ = checked
    return target


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def typed_frozen(
    *, slots: bool = False, kw_only: bool = False
) -> Callable[[type[T]], type[T]]:
    """Declare a record that each attempt makes, or that each hook process imports: mypy
    and pyright refuse to change its fields, and a running program does not.

    It is compared and hashed as a frozen dataclass is; `dataclasses.replace` copies it.
    A frozen dataclass takes a fifth of an attempt longer, since it sets each field
    through `object.__setattr__`, and twice as long to define. It cannot inherit from
    this one.
    """
    return dataclass(unsafe_hash=True, slots=slots, kw_only=kw_only)
