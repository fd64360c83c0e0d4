"""Which calls of an agent do what a rule of a user forbids, or what it wants. Pure.

A call is divided into acts: each command of a shell line, with what it runs, and each
file that it writes. `judge` compares them with the parts of a rule.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain
from typing import Literal, TypeGuard

from heedful.knowledge import KnowledgeTable, Row
from heedful.lessons.action import (
    REPLACED_ARGUMENTS,
    WRITTEN_ARGUMENTS,
    command_of,
    commands_in,
    path_of,
)
from heedful.lessons.scope import MAX_READ_CHARS
from heedful.lessons.shell import here_documents, operated_commands, redirected_files
from heedful.lessons.triggers import ANY_CALL, trigger_of
from heedful.lessons.user_rules import RulePart, RuleParts, StatedRule
from heedful.lessons.words import compiled
from heedful.validation import Fields

CALL_TABLE = KnowledgeTable("lessons/rule_calls")
Judgement = Literal["broken", "kept", ""]
# The files of a patch, as Codex writes it, with the lines that it adds and removes.
_PATCHED_PATH_PATTERN = r"(?m)^\*\*\* (?:Add|Update|Delete) File: (.+)$"
# Where a plain word is a name in code: a member, a call, a type, a declaration, or what
# an import names.
_TYPE_USE = r"(?:[:<|,]|->|\bas\b)\s*{word}\s*(?=[;,)=|&>\]{{}}\[]|$)"
_CODE_USES = (
    r"\.{word}\b",
    r"(?<![\w.]){word}(?:!?\(|\.\w|\s*\{{)",
    _TYPE_USE,
    r"^[ \t]*(?:\w+ ){{0,3}}{word}(?: +[\w$]+){{1,2}} *[=;:({{<]",
    r"^[ \t]*(?:\w+ )?['\"](?:[\w.@-]+/)*{word}['\"]",
    r"^[ \t]*(?:import|from|use|using|require|include)\b.*\b{word}\b",
    r"(?:from|import|require|import\()\s*\(?['\"]{word}['\"/]",
)
# What stands for any text: in a pattern of files, and as a variable in "df.iterrows()".
_OPEN_PATTERN = r"[*?\[\]]|/+$|^\./|\A\w{1,2}(?=\.\w)"
# Files of words, in which no name stands in code.
_PROSE_ENDINGS = (".md", ".txt", ".rst", ".adoc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One thing that a call does: it runs a command, or writes a file.

    `commands` are the command and what it runs: of "sudo npm ci", also "npm ci". If the
    act `edits`, it changes the file at `path`, or those that the command names; the
    text `written` takes the place of `replaced`.
    """

    tool: str = ""
    commands: tuple[Sequence[str], ...] = ()
    path: str = ""
    edits: bool = False
    written: str = ""
    replaced: str = ""

    @property
    def paths(self) -> Sequence[str]:
        """The files that the act may be about."""
        return self.commands[0][1:] if self.commands else [self.path]


def acts_of(tool: str, arguments: Fields | str) -> tuple[Act, ...]:
    """Return what a call of a tool does."""
    line = command_of(arguments)[:MAX_READ_CHARS]
    if line and "sql" not in tool.casefold():
        return (*_commands_of(line), *_patched(line))
    fields = {} if isinstance(arguments, str) else arguments
    written = _texts_of(fields, WRITTEN_ARGUMENTS)
    name = re.sub(r"(?<=[a-z])(?=[A-Z])|[_.-]+", " ", tool).lower()
    act = Act(
        tool=tool,
        path=path_of(fields),
        edits=bool(written) or CALL_TABLE.find("edit_tool", name) is not None,
        written=written,
        replaced=_texts_of(fields, REPLACED_ARGUMENTS),
    )
    texts = filter(_is_text, fields.values())
    return (act, *chain.from_iterable(map(_patched, texts)))


def _texts_of(fields: Fields, names: Sequence[str]) -> str:
    """Return the texts under these names, also in a list of edits."""
    edits = fields.get("edits")
    objects = [fields, *(edits if isinstance(edits, list) else ())]
    texts = chain.from_iterable(map(entry.get, names) for entry in objects)
    return "\n".join(filter(_is_text, texts))[:MAX_READ_CHARS]


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str)


def _commands_of(line: str) -> Iterator[Act]:
    """Yield the commands of a line of a shell, and the files that it writes."""
    for operator, words in operated_commands(line):
        if operator:
            yield Act(commands=((operator,),))
        # A shell takes its commands as a text.
        if CALL_TABLE.pattern("shell", r"(?<!\S)", r"(?!\S)").search(" ".join(words)):
            for text in words[1:]:
                yield from _commands_of(text) if " " in text else ()
        edits = CALL_TABLE.find("edit_command", " ".join(words)) is not None
        yield Act(commands=tuple(commands_in(words)), edits=edits)
    written = "\n".join(here_documents(line))
    for path in redirected_files(line):
        yield Act(path=path, edits=True, written=written)


def _patched(text: str) -> Iterator[Act]:
    """Yield the files that a patch in a text writes."""
    _, *parts = compiled(_PATCHED_PATH_PATTERN).split(text)
    for path, body in zip(parts[::2], parts[1::2], strict=True):
        yield Act(
            path=path.strip(),
            edits=True,
            written="\n".join(compiled(r"(?m)^\+(.*)").findall(body)),
            replaced="\n".join(compiled(r"(?m)^-(.*)").findall(body)),
        )


# How well an act does what a part names: so many words, in so deep a command.
Closeness = tuple[int, int]
_NOT = (0, 0)


def judge(parts: RuleParts, acts: Sequence[Act]) -> Judgement:
    """Return whether a call breaks a rule, or keeps it: does what the rule wants.

    A command may do both, as "uv run python" does for “use uv, never python”. Then the
    part with more words counts, and of equal ones that of the outer command.
    """
    is_kept = False
    for act in acts:
        forbidden = max(
            (_closeness(part, act) for part in parts.forbidden), default=_NOT
        )
        wanted = max((_closeness(part, act) for part in parts.wanted), default=_NOT)
        if forbidden > _NOT and forbidden >= wanted:
            return "broken"
        if wanted > _NOT:
            is_kept = True
    return "kept" if is_kept else ""


def triggers_of_rule(parts: RuleParts) -> list[str]:
    """Return the triggers of the calls that break a rule, or keep it.

    One with other signs than letters, digits and underscores may be a part of a word.
    """
    every_part = (*parts.forbidden, *parts.wanted)
    return sorted(set(chain.from_iterable(map(_triggers_of_part, every_part))))


def _triggers_of_part(part: RulePart) -> Iterator[str]:
    """Yield the triggers of the calls that do what a part names.

    Of several words only the first is surely in the call: "npm install" is "npm i". An
    option alone is in the call as it is, or in a short form.
    """
    name = part.words[0].lower().strip("-")
    pieces = compiled(_OPEN_PATTERN).split(name.removesuffix("()"))
    longest = max(pieces, key=len)
    yield longest.rstrip("0123456789.") or longest or ANY_CALL
    if part.words[0].startswith("-"):
        for row in CALL_TABLE.rows("same"):
            if re.fullmatch(row.pattern, part.words[0]):
                yield trigger_of(row.tool)


def broken_rules(
    rules: Iterable[StatedRule], tool: str, arguments: Fields | str
) -> list[StatedRule]:
    """Return the rules that a call breaks, each with what it wants instead."""
    acts = acts_of(tool, arguments)
    return [
        replace(rule, instead=" or ".join(map(str, rule.parts.wanted)))
        for rule in rules
        if judge(rule.parts, acts) == "broken"
    ]


def _closeness(part: RulePart, act: Act) -> Closeness:
    """Return how well an act does what a part names; `_NOT` if it does not."""
    outside = part.outside.rstrip("s").lower()
    if outside and any(outside in path.lower() for path in act.paths):
        return _NOT
    name = " ".join(part.words)
    is_close = len(part.words), 0
    edits_files = act.edits and (part.deed != "use" or part.is_file)
    if edits_files and any(_is_path(name, path) for path in act.paths):
        return is_close
    if part.deed == "edit" or (part.is_file and part.deed == "add"):
        return _NOT
    is_tool = act.tool.rpartition("__")[2].lower() == name.lower()
    if is_tool or _is_written(name, act):
        return is_close
    if part.deed == "add":
        return _NOT
    for depth, command in enumerate(act.commands):
        inner = [*act.commands[depth + 1 :], ()][0]
        if _runs(part.words, command, inner):
            return len(part.words), -depth
    return _NOT


def _is_path(name: str, path: str) -> bool:
    """Return True if a path is at a name: a file, a folder or a pattern of files."""
    name = re.sub(r"/\**$|^\./", "", name)
    if "*" in name:
        return fnmatchcase(f"/{path}", f"*/{name}")
    # ".pb.go" is an ending of files.
    is_ending = name.startswith(".") and path.endswith(name)
    return is_ending or f"/{name}/" in f"/{path.strip('/')}/"


def _runs(words: Sequence[str], command: Sequence[str], inner: Sequence[str]) -> bool:
    """Return True if a command has the words of a part in their order, and its options.

    Between the program and its first subcommand only options may stand, and the values
    of options. A command of several words may be run by another one. What a command
    runs, the `inner` one, has options of its own.
    """
    synonyms = _synonyms_in(command)
    names, options = _read_command(words, synonyms)
    if len(names) == 1:
        command = command[: len(command) - len(inner)]
    own_names, own_options = _read_command(command, synonyms)
    if not options <= own_options:
        return False
    # A script may be run by another program, and so may several words; people say
    # “rebase” for "git rebase".
    may_be_second = CALL_TABLE.find("shell", command[0]) or command[0] == "git"
    places = [place for place, (_, is_value) in enumerate(own_names) if not is_value]
    if len(words) == 1:
        places = places[: 2 if may_be_second else 1]
    return not names or any(_begins(names, own_names[place:]) for place in places)


# A word of a command that is no option, and whether it may be the value of one.
Name = tuple[str, bool]


def _synonyms_in(command: Sequence[str]) -> list[Row]:
    """Return the rows of the table with words that mean the same in a command."""
    words = {*command}
    return [
        row for row in CALL_TABLE.rows("same") if words.issuperset(row.tool.split())
    ]


def _read_command(
    words: Sequence[str], synonyms: Sequence[Row]
) -> tuple[list[Name], set[str]]:
    """Return the names in a command, and its options without their signs and values.

    Letters in one option are options each. Of words that mean the same, by the rows
    `synonyms`, each is the one meant.
    """
    takes_tasks = CALL_TABLE.find("tasks", words[0]) is not None
    names: list[Name] = []
    options: set[str] = set()
    is_value = False
    for place, word in enumerate(words):
        same = [row.meaning for row in synonyms if re.fullmatch(row.pattern, word)]
        name = [*same, word][0]
        if compiled(r"-\w{2,4}").fullmatch(name):
            options.update(name[1:])
        elif name[:1] in ("-", "+"):
            options.add(name.lstrip("-").partition("=")[0])
        else:
            names.append((name, is_value or (takes_tasks and place > 0)))
        is_value = name[:1] in ("-", "+") and "=" not in name
    return names, options


def _begins(names: Sequence[Name], own_names: Sequence[Name]) -> bool:
    """Return True if a command begins with a program, its subcommand and arguments."""
    (program, _), *arguments = names
    (own_program, _), *own_arguments = own_names
    if not _is_program(program, own_program):
        return False
    for place, (argument, _) in enumerate(arguments):
        is_of_git = place > 0 and program == "git"
        is_argument = _is_argument if is_of_git else _is_subcommand
        while own_arguments and not is_argument(argument, own_arguments[0][0]):
            if not place and not own_arguments[0][1]:
                return False
            own_arguments = own_arguments[1:]
        if not own_arguments:
            return False
        own_arguments = own_arguments[1:]
    return True


def _is_program(name: str, program: str) -> bool:
    """Return True if a program has this name; "python3" is also "python"."""
    if "/" in name:
        return _is_path(name, program)
    own_name = program.rpartition("/")[2].lower()
    return name.lower() in (own_name, own_name.rstrip("0123456789."))


def _is_subcommand(name: str, word: str) -> bool:
    """Return True for a word of a command that is a name, or a path at it."""
    return _is_path(name, word) if "/" in name else name.lower() == word.lower()


def _is_argument(name: str, word: str) -> bool:
    """Return True for an argument of git with a name, as in "HEAD:main"."""
    return _is_subcommand(name, word) or _is_subcommand(name, word.partition(":")[2])


def _is_written(name: str, act: Act) -> bool:
    """Return True if an act writes a name in code that was not in what it replaces."""
    if not act.written or act.path.endswith(_PROSE_ENDINGS):
        return False
    pattern = _code_pattern(name)
    return len(pattern.findall(act.written)) > len(pattern.findall(act.replaced))


@cache
def _code_pattern(name: str) -> re.Pattern[str]:
    """Return a pattern that finds a name in code, a plain word where it is used."""
    # "df" is a variable, so any other may stand there.
    name = compiled(r"\A\w{1,2}(?=\.\w)").sub("", name)
    bare_name = name.removesuffix("()")
    text = r"\s+".join(map(re.escape, bare_name.split()))
    if CALL_TABLE.pattern("keyword").fullmatch(name):
        return re.compile(rf"(?<![\w.$-]){text}\s+[\w$\[{{]")
    if CALL_TABLE.pattern("alone").fullmatch(bare_name):
        return re.compile(rf"(?<![\w.]){text}\(")
    if name.isalpha() and name.islower():
        is_type = CALL_TABLE.pattern("type").fullmatch(name)
        code_uses = [_TYPE_USE] if is_type else _CODE_USES
        uses = "|".join(use.format(word=text) for use in code_uses)
        return re.compile(f"(?m){uses}")
    after = r"(?!\w)" if name[-1].isalnum() else ""
    # "datetime.utcnow" is also used without a call.
    if bare_name != name and not compiled(r"\w+\.\w.*").fullmatch(name):
        after = r"\("
    # "as any other"
    after += r"(?!\s+[a-z])" if " " in name else ""
    flags = "(?i)" if name.isupper() else ""
    return re.compile(rf"{flags}(?:(?<!\w)|(?=\W)){text}{after}")
