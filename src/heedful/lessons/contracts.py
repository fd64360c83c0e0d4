"""Contracts: what the common tools of agents demand, by the class of an error. Pure.

A contract is the same for every repository and every agent. Its words are ours, so they
may be told even if the words of an error wait in quarantine.
"""

from __future__ import annotations

import re

READ_FIRST = (
    "Read a file before you edit it; after a resumption or a compaction, read it again."
)
READ_AGAIN = (
    "Read a file again before you edit it, if a command or a formatter may have "
    "changed it since."
)
COPY_TEXT = (
    "Copy the text to replace from a fresh read of the file: your own edits and "
    "formatters change it."
)
UNIQUE_TEXT = (
    "The text to replace must be unique in the file: take lines around it, or replace "
    "all."
)
NEW_TEXT = "The old and the new text of an edit must not be the same."
SMALL_PARTS = "Read a large file in parts, with an offset and a limit."
NO_GUESSES = "Do not guess paths, some do not exist: list or search first."
# What the errors of each contract say; the first that fits counts.
_ERRORS = {
    READ_FIRST: r"\b(?:not|n't) (?:yet )?been read\b",
    READ_AGAIN: r"\bsince (?:it was )?(?:last )?read\b|\bmodified since\b",
    COPY_TEXT: r"\b(?:string|text|old_string|context)\b.* not found\b",
    UNIQUE_TEXT: r"\bmatches of the string\b|\b(?:string|text)\b.* not unique\b",
    NEW_TEXT: r"\bexactly the same\b|\bno changes? to make\b",
    SMALL_PARTS: r"\bexceeds (?:the )?(?:maximum|limit)|\bfile is too large\b",
    NO_GUESSES: (
        r"\b(?:file|path|directory) (?:does not|doesn't) exist\b"
        r"|\bno such (?:file|directory|path)\b"
    ),
}
_CONTRACT_PATTERNS = {
    contract: re.compile(error, re.IGNORECASE) for contract, error in _ERRORS.items()
}


def contract_of(error: str) -> str:
    """Return what a tool that says this error demands; "" if it breaks no contract.

    >>> contract_of("Found 2 matches of the string to replace") == UNIQUE_TEXT
    True
    >>> contract_of("2 tests failed")
    ''
    """
    for contract, pattern in _CONTRACT_PATTERNS.items():
        if pattern.search(error):
            return contract
    return ""
