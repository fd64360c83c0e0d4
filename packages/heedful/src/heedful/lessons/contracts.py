"""Contracts of tools: what to do next after a class of errors, in any repository. Pure.

Common tools of agents fail in a few ways that have nothing to do with the project: an
edit of a file that was not read, a text that stands in it twice. What helps is the same
everywhere, so it is shipped and not learnt. The class of the error decides, and whether
the call has a file or a command, never the name of a tool or of a project. The table
beside this module gives each error its class. The words are ours, so they may be told
even if the words of an error wait in quarantine.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Literal

from heedful.knowledge import KnowledgeTable
from heedful.lessons.action import command_of, path_of
from heedful.lessons.scope import MAX_READ_CHARS
from heedful.validation import Fields, typed_frozen

_CONTRACT_ERRORS = KnowledgeTable("lessons/contracts")


@typed_frozen(slots=True, kw_only=True)
class Contract:
    """What a class of errors demands: its `name`, and what to do in a `text`.

    `rule` is what to do before any such call, if that is worth a line of a brief. A
    call breaks the contract in a `state`: its file was not read, or two of its texts
    are equal. A trouble that `is_passing` says nothing about the call.
    """

    name: str
    text: str
    state: Literal["", "unread", "equal"] = ""
    rule: str = ""
    is_passing: bool = False


# What each class of errors of the tools of coding agents demands.
CONTRACTS = (
    Contract(
        name="read first",
        text="Read the file, then make the same edit; after a resumption or a "
        "compaction, read again what you edit.",
        state="unread",
        rule="Read a file before you edit it; after a resumption or a compaction, "
        "read it again.",
    ),
    Contract(
        name="changed since",
        text="Read the file again, for it has changed since (by a formatter, a command "
        "or somebody else), and copy old_string from what it says now.",
        rule="Read a file again before you edit it, if a command or a formatter may "
        "have changed it since.",
    ),
    Contract(
        name="not unique",
        text="Read the place again and copy old_string with lines around it until it "
        "stands there once; set replace_all only if every match is meant.",
        rule="The text to replace must be unique in the file: take lines around it, "
        "or replace all.",
    ),
    Contract(
        name="not found",
        text="Read the file again and copy old_string from it with its indentation: "
        "it says something else than you remember.",
        rule="Copy the text to replace from a fresh read of the file: your own edits "
        "and formatters change it.",
    ),
    Contract(
        name="no change",
        text="Both texts are equal: if the file already says what you want, go on; if "
        "not, Read it and give another new_string.",
        state="equal",
        rule="The old and the new text of an edit must not be the same.",
    ),
    Contract(
        name="too large",
        text="Read a part of it, with offset and limit, or search it for the words "
        "that you need.",
        rule="Read a large file in parts, with an offset and a limit.",
    ),
    Contract(
        name="folder",
        text="The path is a folder: list it, then read a file in it.",
    ),
    Contract(
        name="broken tool",
        text="The program behind this tool is gone, perhaps by an update: use the "
        "shell for it until the agent is restarted.",
        is_passing=True,
    ),
    Contract(
        name="folder of the shell",
        text="The shell keeps its folder from call to call: leave out the cd if you "
        "are there already, or give the path from the root.",
    ),
    Contract(
        name="push rejected",
        text="Somebody else has pushed: take their commits first (git pull --rebase), "
        "then push again.",
    ),
)
# What says that a path is absent.
ABSENT_CONTRACT = Contract(
    name="absent path",
    text="Look for the name before you open it: list the folder, or search for a part "
    "of the name.",
    rule="Search for a file before you open it, or list its folder.",
)
CONTRACTS_BY_NAME: Mapping[str, Contract] = {
    contract.name: contract for contract in (*CONTRACTS, ABSENT_CONTRACT)
}


def find_contract(
    arguments: Fields, failure: str, errors: Iterable[str] = ()
) -> Contract | None:
    """Return the demand of a tool that a failed call broke, or None if none is known.

    `arguments` are those of the call, and `failure` is what the tool said. `errors` are
    the lines of it that name errors; only these may say that a path is absent, because
    the rest of a text may mention such a path by chance.

    >>> error = "File has not been read yet. Read it first before writing to it."
    >>> find_contract({"file_path": "a.py"}, error).name
    'read first'
    """
    if command_of(arguments):
        return broken_contract(failure, "command", "any")
    if not path_of(arguments):
        return broken_contract(failure, "any")
    absences = (broken_contract(error, "absent") for error in errors)
    contracts = chain([broken_contract(failure, "file", "any")], absences)
    return next(filter(None, contracts), None)


def broken_contract(error: str, *groups: str) -> Contract | None:
    """Return the contract of the first row of some groups that an error fits, or None.

    A group is what the calls are about: a "file", a "command", or "any" of them; or
    "absent" for what is said of an absent path. The beginning of the error is read.
    """
    rows = (_CONTRACT_ERRORS.find(group, error[:MAX_READ_CHARS]) for group in groups)
    row = next(filter(None, rows), None)
    return None if row is None else CONTRACTS_BY_NAME.get(row.meaning)
