"""The commands that heedful offers for pasting into a shell. Pure.

Names of tools, sources and files in them may be a stranger's, so every word is quoted
here and nowhere else.
"""

import shlex
from collections.abc import Sequence


def quote_words(words: Sequence[str]) -> str:
    """Return words as a command line that a shell reads as these words.

    >>> quote_words(["heedful", "trust", "a;touch b"])
    "heedful trust 'a;touch b'"
    """
    return " ".join(map(shlex.quote, words))


def option_words(name: str, value: str) -> list[str]:
    """Return an option and its value as words of a command.

    A value that looks like an option is in one word with the name.
    """
    return [f"--{name}={value}"] if value.startswith("-") else [f"--{name}", value]


def release_command(entries: Sequence[int]) -> str:
    """Return the command that releases quarantined entries; "" without an id.

    `entries` are ids, and 0 is none.
    """
    ids = [str(entry) for entry in entries if entry]
    if not ids:
        return ""
    return quote_words(["heedful", "quarantine", "release", *ids, "--by", "NAME"])


def trust_words(names: Sequence[str]) -> list[str]:
    """Return the arguments of `heedful` that declare sources to be one's own.

    `names` are those of the sources; without one, returns []. If a terminal may show
    one as another name, or `heedful` may take it for an option, the arguments list the
    quarantine instead, which escapes names.
    """
    if not names:
        return []
    if not all(name.isprintable() and not name.startswith("-") for name in names):
        return ["quarantine", "list"]
    return ["trust", *names]


def trust_command(names: Sequence[str]) -> str:
    """Return the command that states these names; "" without a name."""
    words = trust_words(names)
    return quote_words(["heedful", *words]) if words else ""
